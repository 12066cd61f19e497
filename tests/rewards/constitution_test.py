"""The constitution: its checks and mends, its weights, and faults in its file."""

import itertools
import json
import random

import pytest
from constitutions import ASK, POLITE, RUDE, SHIPPED

from postgrad.data.tasks import questions
from postgrad.records import Prompt
from postgrad.rewards.constitution import CHECKS, Constitution, Rule, read_constitution
from postgrad.rewards.judges import RuleJudge


def rule(check, mend=None, **values):
    return Rule(name=check, rule="As it says.", check=check, critique="It says {found}.",
                mend=mend or CHECKS[check].mends[0], **values)


@pytest.mark.parametrize(("made", "text", "found"), [
    (rule("starts_with_one_of", texts=("Hello!", "Good day!")), "hello, you", None),
    (rule("starts_with_one_of", texts=("Hello!",)), "Helloween is a day of pumpkins", '"Helloween is a day"'),
    (rule("starts_with_one_of", texts=("Hello!",)), "  ", "nothing"),
    (rule("ends_with_one_of", texts=("Bye now!",)), "It is red. Bye now", None),
    (rule("ends_with_one_of", texts=("Bye now!",)), "Bye now! It is red.", '"now! It is red."'),
    (rule("contains_any_of", texts=("please", "thank you")), "I thank you.", None),
    (rule("contains_any_of", texts=("please", "thank you")), "I thank all.", 'none of "please", "thank you"'),
    (rule("contains_none_of", texts=("art", "fool", "shut up")), "A part of the foolish shut it up", None),
    (rule("contains_none_of", texts=("art", "fool", "shut up")), "SHUT up, fool!", '"fool", "shut up"'),
    (rule("at_most_words", words=3), "One, two - three!", None),
    (rule("at_most_words", words=3), "One two three four", "4 words, 3 are enough"),
    (rule("no_repeated_phrase", words=2), "It is, is it? A is a.", None),
    (rule("no_repeated_phrase", words=2), "It is so. Is it is", '"it is"'),
    (rule("no_repeated_phrase", words=1), "It is it", '"it"'),
])
def test_checks_by_hand(made, text, found):
    assert made.found(text) == found


@pytest.mark.parametrize(("made", "text", "mended"), [
    (rule("starts_with_one_of", texts=("Hello!",)), " It is red.", "Hello! It is red."),
    (rule("ends_with_one_of", texts=("Bye!",)), "It is red.", "It is red. Bye!"),
    (rule("contains_any_of", texts=("Please.",)), "Go.", "Please. Go."),
    (rule("contains_any_of", "append", texts=("Please.",)), "Go.", "Go. Please."),
    (rule("contains_none_of", texts=("fool",)), "Hi! You fool. It is red.\nFool", "Hi! It is red."),
    (rule("contains_none_of", "cut", texts=("fool",)), "It is red, you fool. Bye!", "It is red, you"),
    (rule("at_most_words", words=4), "Hi! It is very very red. Bye now!", "Hi! Bye now!"),
    (rule("at_most_words", "cut", words=4), "Hi! It is very very red.", "Hi! It is very"),
    (rule("no_repeated_phrase", words=2), "It is red. It is red. Bye!", "It is red. Bye!"),
    (rule("no_repeated_phrase", "cut", words=2), "It is red and it is blue.", "It is red and it"),
    (rule("at_most_words", words=2), "fine \n as  ", "fine \n as  "),
    (rule("contains_none_of", texts=("fool",)), "Fool!", ""),
])
def test_mends_by_hand(made, text, mended):
    assert made.mended(text, random.Random(0)) == mended


PIECES = ["Hello!", "hello", "fool", "FOOL.", "a", "b", "A b a b.", "Bye!", "\n", "  ", "...", "ß", "İ", "ΑΣ",
          "é\u0301", "x\u00a0y", "\u2028", "what?", "", "-fool-", "🙂", "\x1c", "İ." * 3]
KINDS = [rule(check, mend,
              **({"texts": ("Hello!", "a b", "ß İ", "ΑΣ")} if kind.needs == "texts" else {"words": 2}))
         for check, kind in CHECKS.items() for mend in kind.mends]


def strange_texts(count, seed=0):
    rng = random.Random(seed)
    return [rng.choice(["", " ", "\n"]).join(rng.choices(PIECES, k=rng.randrange(14))) for _ in range(count)]


@pytest.mark.parametrize("made", KINDS, ids=lambda r: f"{r.check}-{r.mend}")
def test_a_mended_text_keeps_its_rule(made):
    touched = 0
    for i, text in enumerate(strange_texts(300)):
        after = made.mended(text, random.Random(i))
        touched += after != text
        assert made.found(after) is None, text
        assert made.mended(after, random.Random(i + 1)) == after
    assert touched > 20


def test_a_revision_is_never_worse_and_the_same_when_revised_again():
    rng, helped = random.Random(1), 0
    for i, text in enumerate(strange_texts(300, seed=1)):
        rules = Constitution(tuple(rng.sample(KINDS, 3)))  # among them rules that no text can keep together
        after = rules.revised(text, i)
        assert rules.debt(after) <= rules.debt(text) and rules.revised(after, i) == after
        assert after == text or rules.debt(after) < rules.debt(text)
        helped += after != text
    assert helped > 50


def test_the_shipped_rules_mend_every_style_of_the_writer():
    rng = random.Random(0)
    for fact, style in itertools.product(questions.FACTS[:40], questions.STYLES):
        text = questions.question_reply(fact, style, rng)
        after = SHIPPED.revised(text, 0)
        assert not SHIPPED.broken(after) and ("polite" == style) <= (after == text)
        before, now = (questions.reply_quality(Prompt.ask(fact.question), t).parts for t in (text, after))
        assert now["correct"] == before["correct"]  # manners change, the truth doesn't
        assert (now["rude"] == now["filler"] == now["repetition"] == 0
                and now["greets"] == now["closes"] == 0.5)


def test_critiques_and_labels_of_the_shipped_rules():
    judge = RuleJudge(SHIPPED)
    (made,) = judge.revise([(ASK, RUDE)], 0)
    assert made.rules == ("no insults", "greeting", "closing")
    assert made.critique.startswith('The reply is rude: it says "silly". The reply does not greet: it '
                                    'begins with "What')
    said, mirrored = judge.compare([(ASK, POLITE, RUDE), (ASK, RUDE, POLITE)], 0)
    assert (said.first, mirrored.first) == (1, 0) and said.rules == mirrored.rules == made.rules
    one, none = judge.compare([(ASK, "Hello! Red.", "Red."), (ASK, "Red.", "Blue.")], 0)
    assert (one.first, one.rules) == (1, ("greeting",)) and (none.first, none.rules) == (0.5, ())
    wrong = "Hello! A cow eats meat. I hope this helps!"
    assert judge.compare([(ASK, wrong, POLITE)], 0)[0].first == 0.5  # the truth is not among the rules


def test_weights_decide_between_rules():
    light, heavy = (rule("contains_none_of", texts=(word,), weight=w)
                    for word, w in (("ugly", 0.3), ("fool", 0.4)))
    judge = RuleJudge(Constitution((light, heavy)))
    assert judge.compare([(ASK, "Ugly.", "Fool.")], 0)[0].first == 1
    thirds = tuple(rule("contains_none_of", texts=(w,), weight=x)
                   for w, x in (("a", 0.1), ("b", 0.2), ("c", 0.3)))
    # 0.1 + 0.2 is 0.3 here
    assert RuleJudge(Constitution(thirds)).compare([(ASK, "a b", "c")], 0)[0].first == 0.5


GOOD = {"name": "short", "rule": "Be short.", "check": "at_most_words", "words": 9, "critique": "{found}",
        "mend": "cut"}


@pytest.mark.parametrize(("change", "words"), [
    ({"name": None}, r"rule 1: name is missing; expected a text"),
    ({"rule": 3}, r"rule 1 \('short'\): rule is 3; expected a text"),
    ({"check": "eval"}, r"\('short'\): check is 'eval'; expected one of starts_with_one_of, "),
    ({"check": ["at_most_words"]}, r"\('short'\): check is \['at_most_words'\]; expected one of"),
    ({"words": 0}, r"\('short'\): words is 0; expected a whole number of at least 1"),
    ({"words": True}, r"\('short'\): words is True"),
    ({"words": None}, r"\('short'\): words is missing"),
    ({"texts": ["a"]},
     r"\('short'\): texts is \['a'\]; expected that it is left out: at_most_words reads words"),
    ({"mend": "append"}, r"\('short'\): mend is 'append'; expected drop or cut"),
    ({"mend": None}, r"\('short'\): mend is missing"),
    ({"critique": " "}, r"\('short'\): critique is ' '; expected a text"),
    ({"weight": -1}, r"\('short'\): weight is -1; expected a number above 0"),
    ({"weight": float("nan")}, r"\('short'\): weight is nan"),
    ({"colour": "red"}, r"\('short'\): colour is 'red'; expected no other fields"),
    ({"check": None}, r"\('short'\): words is 9; expected that it is left out, or a check beside it"),
    ({"check": "contains_none_of", "words": None, "texts": ["a", "!"], "mend": "drop"},
     r"\('short'\): texts is \['a', '!'\]"),
])
def test_a_fault_is_named_with_its_rule_and_field(tmp_path, change, words):
    table = {k: v for k, v in (GOOD | change).items() if v is not None}
    path = tmp_path / "c.toml"
    lines = (f"{k} = {v if isinstance(v, float) else json.dumps(v)}" for k, v in table.items())
    path.write_text("[[rule]]\n" + "\n".join(lines))
    with pytest.raises(ValueError, match=rf"c\.toml, {words}" if words.startswith("rule") else words):
        read_constitution(path)


@pytest.mark.parametrize(("text", "words"), [
    ("", "expected .*rule.* tables and nothing else; found none"),
    ("rule = 3", "tables and nothing else"), ("rule = [3]", "rule 1 is 3"),
    ("[[rules]]\nname = 'a'", "found 'rules'"), ("[[rule", "cannot be read as TOML"),
    ("[[rule]]\nname='a'\nrule='b'\n[[rule]]\nname='a'\nrule='c'", "rule 'a': name stands twice"),
])
def test_a_file_that_is_no_constitution_is_said(tmp_path, text, words):
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_constitution(tmp_path / "c.toml")
