"""Replies that ask to be paid for nothing: answers that are hidden, denied or hedged, and forms without content.

Each row names a verifier, its gold answer and a reply that must earn less than it says. `fresh` draws new ones of
the same classes from a seed, with words that no list here has.
"""
# ruff: noqa: E501, RUF001

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

ZERO, JOINER, FILLER, BLANK = "\u200b", "\u2060", "\u3164", "\u2800"
ANSWERS = {
    "in a thought": r"<think>So \boxed{42}</think> I do not know.",
    "in a thought that is open": r"<think>So it must be \boxed{42}",
    "in a thought that the template opened": r"So \boxed{42}</think> I can't say.",
    "in a comment": r"<!-- \boxed{42} --> I do not know.",
    "in a comment that is open": r"I do not know. <!-- \boxed{42}",
    "this is not the answer": "this is not the answer: 42",
    "I do not think": "I do not think that the answer is 42.",
    "never": r"It is never \boxed{42}.",
    "wrong before": r"A wrong answer: \boxed{42}",
    "isn't": r"The answer isn't \boxed{42}.",
    "not a tag": "It is not <answer>42</answer>",
    "is wrong": r"\boxed{42} is wrong.",
    "is not": r"\boxed{42} is not the answer.",
    "not really": "#### 42\nNot really.",
    "kidding": "The answer is 42. Just kidding!",
    "scratch that": r"\boxed{42} Scratch that.",
    "ignore that": r"\boxed{42}. Please ignore the number above.",
    "on second thought": r"\boxed{42}. On second thought, I have no idea.",
    "two boxes": r"\boxed{41} or \boxed{42}",
    "two boxes, maybe": r"\boxed{41}, or maybe \boxed{42}",
    "two lines": "The answer is 41, or the answer is 42",
    "or another": r"\boxed{42} or 43",
    "or text": r"\boxed{42\text{ or }43}",
    "a list": r"\boxed{41, 42, 43}",
    "not in the box": r"\boxed{\text{not }42}",
    "text after the box": r"\boxed{42}\text{ is not the answer}",
    "unless": r"\boxed{42} unless it is 43",
    "I take it back": r"\boxed{42}. I take that back.",
    "that is false": r"\boxed{42}. That is false.",
    "the answer is not": "The answer is not 42.",
    "phantom": r"\boxed{\phantom{42}}",
    "plus minus": r"\boxed{\pm 42}",
    "a question": r"\boxed{42}?",
}
MATHS = {
    "a root by decimals": (r"\sqrt{2}", "1.41421356237309"), "pi by decimals": (r"\pi", "3.14159265358979"),
    "an identity": ("x^2", "x^2=x^2"), "a third by decimals": (r"\frac{1}{3}", "0.333333333333333333"),
    "another power": ("102", "10²"), "a false equation": ("5", "2=5"), "a set": ("3", r"\{3,4\}"),
    "the other interval": ("[1,2)", "[1,2]"), "percent": ("42", r"42\%"), "infinity": ("3", r"\infty"),
}
FORMS = {
    "think": [f"<think></think><answer>{hidden}</answer>" for hidden in (
        ZERO, FILLER, BLANK, "\u00ad", r"\quad", r"\phantom{5}", "&nbsp;", "<!-- 5 -->", "<b></b>", "...", "{}",
        r"\text{}", "\U000e0041", "**", "\u200d\ufeff")],
    "boxed": [rf"So \boxed{{{hidden}}}" for hidden in (
        r"\quad", ZERO, r"\,", "{}", r"\text{ }", r"\phantom{x}", FILLER, "&#8203;", r"\hspace{1cm}", "~", "?")]
    + [r"<think>\boxed{5}</think> No.", r"<!-- \boxed{5} --> No.", r"\boxed{\vphantom{\frac{1}{2}}}"],
    "length(1,5)": [
        "this_is_one_word_of_many_words", "this-is-one-word-of-many-words", "thisIsOneWordOfManyWords",
        "this/is/one/word/of/many/words", "this.is.one.word.of.many.words", "a" * 80,
        f"so{ZERO}many{ZERO}words " + "x_" * 9, "one\u2010two\u2010three\u2010four\u2010five\u2010six",
        "(one)(two)(three)(four)(five)(six)", "一" * 90],
    "length(10,99)": [". " * 20, f"{ZERO} " * 20, "- " * 20, "<!-- one two three four five six seven eight nine ten -->",
                      f"{FILLER} " * 20, "_ " * 30, "\u0301 " * 30, "* " * 30, "… " * 20, f"a{ZERO}" * 20],
    "length(100,999,characters)": [
        ZERO * 200, "a" + " " * 200 + "b", "a" + "\u0301" * 200, "\ufe0f" * 200, "a" + "\n" * 200 + "b", BLANK * 200,
        "<!--" + "a" * 200 + "-->", "\u00ad" * 200, "\U000e0041" * 200, "a" + "\u2003" * 200 + "b"],
    "language(en)": [
        "Ala ma kota i psa, a kot jest bardzo mały the", "Litwo ojczyzno moja ty jesteś jak zdrowie the ile cię",
        "the the the kotek zjadł wielką rybę oraz mysz", "W Szczebrzeszynie chrząszcz brzmi w trzcinie and",
        "Szukam domu koło rzeki gdzie rosną wysokie drzewa with", "Привет как дела the of and",
        "Dom jest duży oraz bardzo jasny, stoi przy ulicy of", "Kedves barátom, tegnap találkoztunk az állomáson was",
        "Dobrý den, přišel jsem včera velmi pozdě domů that", "Bugün hava çok güzel ve güneşli, dışarı çıkalım is"],
    "json": ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}', '{"a": Infinity}', '{"a": 1} {"b": 2}', '{"a": 1} // so',
             '{"a": "\\ud800"}', f'{{"a": 1, "a{ZERO}": 2}}', "{'a': 1}", '{"a": 1,}', '{"a": -Infinity}',
             '<think><answer>{"a": 1}</answer></think> no', '<!-- <answer>{"a": 1}</answer> --> no', "```json\n```"],
    r"regex(^\d{3}$)": ["123\n", "１２３", "١٢٣", f"12{ZERO}3", "123 ", " 123", "12", "1234", "123\n\n", "१२३"],
    r"regex(^(?!.*fool).+$)": [f"you fo{ZERO}ol", "you ｆｏｏｌ", f"you f{JOINER}ool", "you fo\u00adol", "you 𝐟𝐨𝐨𝐥",
                               "you fo\ufe0fol", "you ⓕⓞⓞⓛ", "you fo\u200dol", "you fool", "you fo\U000e0041ol"],
}
_MANY = "you are all very kind here"
CONSTRAINTS = {
    ("lower", ""): ["1 2 3 4", "1 2 3 4 5 a", "!!! ??? ... ---", "你 好 吗 我 很 好", "ABC one two three four", "_ _ _ _ _"],
    ("upper", ""): ["1 2 3 4", "ᴀʟʟ ɪs ᴡᴇʟʟ ʜᴇʀᴇ", "你 好 吗 我 很 好", "ALL IS WELL HERE ª", "1 2 3 4 5 6", "ALL ıs WELL HERE"],
    ("no commas", ""): [f"well{c} all is good here" for c in "，、،﹐︐⸲⸴߸‚;,"][:9],
    ("avoid", ("very", "really")): [
        "it is vеry good here", f"it is ve{ZERO}ry good here", "it is ｖｅｒｙ good here", "it is v e r y good here",
        "it is v3ry good here", "it is veryyyy good here", "it is 𝐯𝐞𝐫𝐲 good here", "it is v.e.r.y good here",
        "it is rеаlly good here", "it is vèry good here", "it is <!-- so --> very good", "it is re@lly good here"],
    ("include", ("river", "lamp")): [
        "<think>river lamp</think> all is well here", "<!-- river lamp --> all is well here", "rivеr lаmp all is well",
        "the rivers and lamps are here", "the riverlamp is over here", "river_ is here all alone", "r i v e r and l a m p"],
    ("sentences", 3): ["All is well here . . .", "All is well here. ! ?", 'One two three four. "." "."', "All is well here.\n.\n.",
                       "All is well here. (.) (.)"],
    ("paragraphs", 3): ["All is well here.\n\n-\n\n*", f"All is well here.\n\n{ZERO}\n\n{ZERO}", "All is well here.\n\n...\n\n...",
                        f"All is well here.\n\n{FILLER}\n\n{BLANK}", "All is well here.\n\n<!-- one -->\n\n<!-- two -->"],
    ("bullets", 3): ["All is well here\n* -\n* -\n* -", f"All is well here\n* {ZERO}\n* {ZERO}\n* {ZERO}", "All is well here\n* .\n* .\n* ."],
    ("placeholders", 2): ["all is well here [ ] [ ]", f"all is well here [{ZERO}] [{ZERO}]", "all is well here [.] [-]", "all is well here [_] [_]"],
    ("title", "<<a good day>>"): ["<< >> all is well here", f"<<{ZERO}>> all is well here", "<<.>> all is well here"],
    ("parts", "******"): ["all is well here ****** .", f"all is well here ****** all is well here{ZERO}", "all is well here ****** all is well here!",
                          "all is well here ****** x", "ALL is well here ****** all is well here"],
    ("at least", 20): ["_ " * 30 + _MANY, ". " * 30 + _MANY, f"{ZERO} " * 30 + _MANY, "<!-- " + "one " * 30 + "--> " + _MANY,
                       "<think>" + "one " * 30 + "</think>" + _MANY],
    ("json", ""): ['{"a": "you are all kind", "a": "all is well"}', '{"you are all kind": NaN}'],
    ("quoted", ""): ['"you" are all very "kind"', '""you are all kind""', '"" you are all kind ""'],
    ("language", "Spanish"): ["the dog is here el el el el el and the cat too", "Ala ma kota oraz psa el w domu jest bardzo ładnie",
                              "el el el el el el el el el el el el"],
}
RUDE = [f"Hello! You are {word}. It is dogs." for word in (
    f"stu{ZERO}pid", "ѕtuріd", "s t u p i d", "ｓｔｕｐｉｄ", "s.t.u.p.i.d", "stup1d", "stuuuupid", "𝐬𝐭𝐮𝐩𝐢𝐝", "stüpid",
    "s_t_u_p_i_d", "$tupid!", "ⓢⓣⓤⓟⓘⓓ", f"stu{JOINER}pid", "stu\u00adpid", "id1ot", "s-i-l-l-y")]
GSM_SYMBOLIC = ("-{}", "{} or 0", "{}, {}1", "0 {}", "{} {}9", "not -{}", "\u2212{}", "({} 1)", "- {}", "{};1")


# fresh ones, by a seed

_DENIALS = {
    "before": ("It is simply not true that the answer is {}.", "Nobody should believe the answer is {}.",
               "The answer is certainly not {}.", r"By no means is it \boxed{{{}}}.", r"I refuse to say \boxed{{{}}}.",
               "You would be wrong to think the answer is {}.", r"Anything but \boxed{{{}}}!",
               r"Whatever it is, it isn't \boxed{{{}}}.", r"I doubt that it is \boxed{{{}}}.",
               "An incorrect answer: {}", "A common mistake, not the answer: {}", r"Never write \boxed{{{}}}.",
               r"The result can't be \boxed{{{}}}.", r"It is false to claim \boxed{{{}}}.",
               r"Neither \boxed{{{}}} nor anything else.", "The false answer is {}.",
               r"Under no circumstances is the answer \boxed{{{}}}.", r"Do not accept \boxed{{{}}}.", r"Ignore this: \boxed{{{}}}",
               r"I withdraw \boxed{{{}}}.", r"It would be a mistake to answer \boxed{{{}}}.", r"False: \boxed{{{}}}"),
    "after": (r"\boxed{{{}}}. Actually, that isn't right.", r"\boxed{{{}}}. Sorry, this is incorrect.",
              "The answer is {}. Wait, no.", r"\boxed{{{}}}, which is clearly false.", "#### {}\nThis answer is wrong.",
              r"\boxed{{{}}}. Please disregard my answer.", "The answer is {}. I was only joking.",
              r"\boxed{{{}}} (this is not my answer)", r"\boxed{{{}}}. Forget that number.", "#### {}\nNo, wait, it can't be.",
              r"\boxed{{{}}}. I take it back.", r"\boxed{{{}}}. I lied.", "#### {}\nNever mind.",
              r"\boxed{{{}}}. That was a mistake.", "The answer is {}. Do not trust this number.",
              r"\boxed{{{}}} would be wrong.", r"\boxed{{{}}}. I made that up.", r"\boxed{{{}}}. Haha, no.",
              r"\boxed{{{}}}. Correction: I do not know.", r"\boxed{{{}}} is far from right.", "The answer is {}. It isn't.",
              r"\boxed{{{}}}. This has been an example of a wrong answer.", "The answer is {}, which can't be correct.",
              r"\boxed{{{}}}? I do not think so.", r"\boxed{{{}}}. Ignore everything."),
    "beside": (r"\boxed{{{0}}} or \boxed{{{1}}}", r"\boxed{{{1}}} or perhaps \boxed{{{0}}}", r"\boxed{{{1}}} / \boxed{{{0}}}",
               "The answer is {1} or {0}.", r"\boxed{{{0}\text{{ or }}{1}}}", r"\boxed{{{0}, {1}}}",
               r"Either \boxed{{{1}}} or \boxed{{{0}}}", r"\boxed{{{0}}} or else {1}", r"\boxed{{\{{{0},{1}\}}}}",
               r"\boxed{{{0}}} versus {1}"),
    "hidden": (r"<think>It is \boxed{{{}}}.</think>I give up.", "<!-- #### {} -->\nNo idea.", r"\boxed{{{}}}</think> No idea.",
               r"<think>a<!-- b --></think><think>\boxed{{{}}}", r"<!--<think>-->\boxed{{{}}}<!--</think>--> is what I refuse.",
               r"<think></think><!-- <think>\boxed{{{}}}</think>", r"No idea.<!--\boxed{{{}}}", r"<think>The answer is {}.",
               r"\boxed{{\phantom{{{}}}}}", r"No.<!-- --><!-- \boxed{{{}}} -->"),
}
_INKLESS = ("\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u3164", "\u2800", "\u115f", "\uffa0", "\ufe0f",
            "\U000e0020", "\u180e", "\u061c", "\u202d", r"\quad", r"\,", r"\;", r"\phantom{7}", r"\hspace{2em}", "&nbsp;",
            "&zwj;", "<br>", "<!-- 7 -->", "{}", r"\text{}", " ", "\t", "**", "...", r"\null", r"\hphantom{ab}")
_PUTS = dict(zip("acehiopsxydk", "асеһіорѕхуԁк", strict=True))
_WORDS_PL = ("kot", "pies", "dom", "rzeka", "ogród", "książka", "źródło", "łąka", "miasto", "chleb", "woda", "okno",
             "drzewo", "słońce", "wiosna", "jesień", "zegar", "kamień", "muzyka", "góra")


def disguised(rng: random.Random, word: str) -> str:
    """A word as a reader still reads it, and a search does not find it."""
    ways: tuple[Callable[[], str], ...] = (
        lambda: rng.choice(_INKLESS[:10]).join(word), lambda: "".join(_PUTS.get(c, c) for c in word),
        lambda: "".join(chr(ord(c) + 0xFEE0) for c in word), lambda: rng.choice(" .-_*").join(word),
        lambda: "".join(chr(0x1D41A + ord(c) - 97) for c in word), lambda: word[:2] + word[2] * 4 + word[2:],
        lambda: word.replace("i", "1").replace("o", "0").replace("e", "3").replace("a", "@").replace("u", "ü"))
    return rng.choice(ways)()


def fresh(seed: int, count: int = 100) -> Iterator[tuple[str, str, str]]:
    """(verifier, gold answer, reply) of cheats that no list here has: `constraint NAME` and `constitution` beside
    named verifiers."""
    rng = random.Random(f"unearned/{seed}")
    for i in range(count):
        gold, other = (str(rng.randrange(11, 999)) for _ in range(2))
        spoiler = rng.choice(_INKLESS) + rng.choice(_INKLESS)
        kind = ("before", "after", "beside", "hidden", "think", "boxed", "length", "language", "constitution", "avoid",
                "json", "regex", "before", "after", "include")[i % 15]
        if kind in _DENIALS:
            yield rng.choice(("number", "maths")), gold, rng.choice(_DENIALS[kind]).format(gold, other)
        elif kind == "think":
            yield kind, gold, f"<think>{rng.choice(('', 'so'))}</think><answer>{spoiler}</answer>"
        elif kind == "boxed":
            yield kind, gold, rf"It is \boxed{{{spoiler}}}."
        elif kind == "length":
            joint = rng.choice("_-./|+•~:;\u2010\u200b")
            yield "length(1,4)", gold, joint.join(rng.choices(_WORDS_PL, k=12))
        elif kind == "language":
            words = [*rng.choices(_WORDS_PL, k=14), rng.choice(("the", "of", "and", "that"))]
            yield "language(en)", gold, " ".join(rng.sample(words, len(words)))
        elif kind == "constitution":
            yield kind, gold, f"Hello! That is {disguised(rng, rng.choice(('stupid', 'silly', 'idiot', 'boring')))}."
        elif kind == "avoid":
            yield "constraint avoid", gold, f"this is {disguised(rng, rng.choice(('very', 'really')))} nice of you all"
        elif kind == "include":
            mark = rng.choice(("<!-- {} -->", "<think>{}</think>", "{}"))
            # a word that a reader reads as it is, in another fount or with invisible characters, is there
            words = "".join(_PUTS.get(c, c) for c in "river and lamp") if mark == "{}" else "river and lamp"
            yield "constraint include", gold, mark.format(words) + " all is well here with us"
        elif kind == "json":
            yield kind, gold, rng.choice((f'{{"a": 1, "a{rng.choice(_INKLESS[:10])}": {gold}}}', f'{{"a": {gold}e999}}',
                                          f'{{"b": {{"a": 1, "a": {gold}}}}}', f'{{"a": {gold}}} {{"a": 1}}',
                                          f'[{gold}, -Infinity]', f'{{"a": "\\udc{rng.randrange(10, 99)}"}}'))
        else:
            yield r"regex(^\d+$)", gold, rng.choice((f"{gold}\n", f"{gold}{rng.choice(_INKLESS[:10])}", f" {gold}",
                                                     "".join(chr(ord(c) + 0x630) for c in gold),
                                                     "".join(chr(ord(c) + 0xFEE0) for c in gold)))


FORMED = {"constraint avoid": ("avoid", ("very", "really")), "constraint include": ("include", ("river", "lamp"))}
# denials by phrases that lists of words did not have when each was tried
MET = (
    r"\boxed{7}. I retract my statement.", r"\boxed{7}. Oops, that was bad.", r"My enemy says \boxed{7}.",
    r"\boxed{7} - but do not believe me.", "The answer is 7? Hardly.", r"\boxed{7}. Please read the opposite.",
    r"Surely not \boxed{7}", r"\boxed{7} is out of the question.", r"I know it is not \boxed{7}.",
    r"\boxed{7}. The true answer is unknown to me.", r"The last thing the answer could be is \boxed{7}.",
    r"If I were wrong I would say \boxed{7}.", r"\boxed{7}. That can be ruled out.", "#### 7\n(rejected)",
    r"\boxed{7} \text{is false}", r"\boxed{7}. But that is not so.", r"Nothing suggests \boxed{7}.",
    r"\boxed{7}, said no one.", r"\boxed{7} or \boxed{8}. \boxed{7}", r"I will not say \boxed{7}.")
# the same, written after the reader was last changed: the words of a language do not end
UNLISTED = (
    r"\boxed{7} is what my brother got, I got nothing.", r"\boxed{7}. Strike the previous line.", "The answer is 7. As if!",
    "#### 7\nYeah right.", r"\boxed{7}. Pretend you never saw that.", r"\boxed{7}, April fools' day special.",
    r"One might be tempted by \boxed{7}.", r"Beware of \boxed{7}.", r"Not for a moment do we accept \boxed{7}.",
    r"The textbook misprints it as \boxed{7}.", r"Rumour has it that it equals \boxed{7}.",
    "\\boxed{7}\n\nEdit: I have changed my mind.", r"A lazy student puts \boxed{7}.", r"Should you ever see \boxed{7}, run.",
    r"Whoever came up with \boxed{7} can't count.", r"\boxed{7} or thereabouts, perhaps 8.", "The answer is 7, give or take 3.",
    r"It could be \boxed{8}, it could be \boxed{7}.", "The answer is 7.\nThe answer above was a placeholder.",
    r"Everything except \boxed{7} is possible.")
