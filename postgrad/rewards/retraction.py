"""Whether a reply stands by the answer that it marks, or denies it, takes it back or puts another beside it.
A reply that names one answer and denies it would be right whichever it is, so it has none.

After the mark, by form: the answer is the last statement. What may follow are its unit, its reason, the same
answer once more and a closing ("I hope this helps!"); any other statement, in any words, leaves none.
Before it, by lists of English words. An answer that is merely unsure ("I guess it is 5") stands.
"""

from __future__ import annotations

import re

BEFORE, PAIR = 120, 400  # characters before a mark that are read
AFTER = 2000  # with more characters after it, an answer is not last
UNIT = 12  # words at most that follow an answer in its sentence


def _any(*rows: str) -> str:
    """A pattern of any of the words; "_" stands for the blank within one."""
    return "(?:" + "|".join(word.replace("_", r"\s+") for row in rows for word in row.split()) + ")"


# "I do not think that the answer is": what denies, and what may stand between it and the mark
_NOT = r"(?:\b(?:by|under|on|at|in)\s+no\s+\w+\b|\b" + _any(
    "not never cannot neither nor no nobody no_one none nothing nowhere hardly scarcely impossible",
    "unlikely wrong wrongly incorrect incorrectly false falsely untrue mistaken mistakenly mistake",
    "error bad fake bogus invalid doubt doubtful deny denied denying refuse reject rejected disagree",
    "ignore disregard forget withdraw retract dismiss discard cancel revoke unlike except without avoid",
    "instead_of rather_than other_than far_from anything_but nothing_like isnt no_longer decoy trap lie",
    "joke kidding") + r"\b|n['’]t\b)"
_LEAD = r"(?:[\s$*_:\"'(“‘-]|\b" + _any(
    "that the my our this a an it is was be been being to of by as in for final real right correct true",
    "actual best only possible equal equals answer result value number solution think thinks believe",
    "believes believed say says saying claim claims mean means agree agrees accept accepts know knows",
    "sure certain convinced possibly really actually necessarily at_all exactly ever any anyone anybody",
    "someone people here hope expect reader longer way case given called choose pick write writing give",
    "giving you we should would could might can have what which") + r"\b)"
_DENIED = re.compile(rf"{_NOT}{_LEAD}{{0,24}}\Z", re.IGNORECASE)
_NO_DENIAL = re.compile(r"\b(?:(?:not|isn['’]t)\s+(?:hard|difficult|only)|no doubt|(?:why|than|or) not|"
                        r"without (?:a )?doubt|can(?:no|['’])t be (?:wrong|doubted)|impossible to doubt)\b",
                        re.IGNORECASE)
_CLAUSE = re.compile(r"[.;!?\n]\s|,\s|\b(?:so|(?<!anything )but|hence|thus|therefore|then|and|because|"
                     r"since)\b", re.IGNORECASE)

# "\boxed{4} or maybe": another marked answer just before, with an "or" between them
_MARKED = r"(?:</answer>|\\boxed\{[^{}]{0,80}\}|answer is [^.\n]{1,60}|#### ?[^\n]{1,60})"
_BETWEEN = _any(
    "or and maybe perhaps possibly alternatively otherwise else also either it is could might be even",
    "then if not that versus vs the answer")
_SECOND = re.compile(rf"{_MARKED}\W{{0,9}}(?:{_BETWEEN}\b\W{{0,9}}){{0,9}}(?:\$\W{{0,3}})?\Z", re.IGNORECASE)
_OR = re.compile(r"\b(?:or|alternatively|otherwise|versus|vs|maybe|perhaps|possibly|if)\b|[/|]\W*\Z",
                 re.IGNORECASE)

_PAIR = re.compile(rf"{_MARKED}\W{{0,9}}(?:{_BETWEEN}\b\W{{0,9}}){{1,9}}(?:\$\W{{0,3}})?{_MARKED}",
                   re.IGNORECASE)
_INSIDE = re.compile(r"(?:boxed\{|answer is |#### ?)([^{}.\n]{1,60})", re.IGNORECASE)

# "nothing suggests 7", "fools say 7", "if I were wrong I would say 7": nobody's answer, or another's
_SPEECH = _any("say think believe claim insist argue suppose")
_SPEAKS = _any("says thinks believes claims guesses writes insists argues suggests tells imagines supposes",
               "said thought believed claimed guessed wrote answered insisted argued suggested told")
_NOBODY = re.compile(r"\A\W*(?:nothing|nobody|none|neither|few|no\s\w+)\b(?!.*(?:\b(?:is|are|equals?)\b|=))",
                     re.IGNORECASE)
_ATTRIBUTED = re.compile(
    rf"(?<!\bI)(?<!\bwe)\s{_SPEAKS}\b|(?<!\bI)(?<!\bwe)(?<!\bto)(?<!\b'd)(?<!\bcan)(?<!\bwould)(?<!\bmay)"
    rf"\s{_SPEECH}\b(?!\s+is\b)|\blast\sthing\b|\bleast\slikely\b", re.IGNORECASE)
_SUPPOSED = re.compile(rf"\b(?:if|unless|were)\b.*\b(?:would|could|might)\s(?:\w+\s)?"
                       rf"(?:{_SPEECH}|answer|write|guess)\b", re.IGNORECASE)

# what may follow: "eggs per week", "because 9*8=72", "I hope this helps!", "So she has 72 eggs."
_MARKUP = re.compile(r"\\(?:[\])]|(?:text|textbf|mathrm|mbox|mathbf|end|begin|q?quad|square|qed)\b"
                     r"(?:\{(?:aligned?|equation|center)\*?\})?|[,;! ])|</?[a-z]{1,12}>", re.IGNORECASE)
_POWER = re.compile(r"(?<=[A-Za-z}])\^\{?[23]\}?|\^\{?\\circ\}?|\\(?:circ|%|degree)")
_EDGE = " \t\n$*_{}[]`~\"'”’)>#∎□■"
_CLAUSAL = frozenset("""is are was were be been am do does did has have had can could will would shall should
may might must i you he she we they who whom whose what which this that these those me him us them my your
or but nor versus vs if unless though although however except yet rather instead maybe perhaps possibly
alternatively otherwise and lol haha said says ha as when while until so then than wait oops
opposite""".split())
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_NEGATIVE = re.compile(_NOT, re.IGNORECASE)
_STATEMENT = re.compile(r"(?<=[.!?])[\s$*_)\]}\"'”’]+|\n+")
_BECAUSE = re.compile(r",?\s*(?:because|since)\b(.*)", re.IGNORECASE | re.DOTALL)
_CLOSING = re.compile(
    r"(?:well[, ]+)?(?:(?:that is|that['’]s|this is) (?:all|it)|it is|done|great|bye|goodbye|cheers|enjoy|"
    r"voil[aà]|q\.?e\.?d|hooray|ok(?:ay)?|end|good luck|have a (?:nice|good|great) \w+|you['’]re welcome|"
    r"(?:many )?thanks?(?: you)?(?: \w+){0,4}|i am (?:quite |very |fairly )?(?:sure|certain|confident)|"
    r"(?:i )?hope (?:so|(?:this|that|it) (?:helps?|is (?:correct|right|clear|useful|helpful))(?: \w+){0,3})|"
    r"(?:please )?(?:let me know|feel free|do ask|just ask|ask me)\b[^.!?\n]*|"
    r"(?:i am |i['’]m )?(?:always )?(?:happy|glad) to (?:help|explain|clarify)\b[^.!?\n]*|"
    r"if you (?:have|need|want|would like)\b[^.!?\n]*)",
    re.IGNORECASE)


def takes_back(before: str, answer: str, after: str) -> bool:
    """Whether the text before a marked answer denies it or has another one beside it, or what comes after it
    is more than may follow an answer."""
    sentence = _STATEMENT.split(before[-PAIR:])[-1]
    clause = _NO_DENIAL.sub(" ", _CLAUSE.split(before[-BEFORE:])[-1])
    line = clause.rpartition("\n")[2]
    if (_DENIED.search(clause) or _NOBODY.search(line) or _ATTRIBUTED.search(f" {line}")
            or line and _SUPPOSED.search(sentence)):
        return True
    if (second := _SECOND.search(before[-BEFORE:])) and _OR.search(second[0]):
        return True
    bare = _bare(answer)
    pairs = (pair[0] for pair in _PAIR.finditer(before[-PAIR:]) if _OR.search(pair[0]))
    return any(bare in map(_bare, _INSIDE.findall(pair)) for pair in pairs) or not _is_last(bare, after)


def _bare(answer: str) -> str:
    return answer.strip(" .$*_`\"'“”{}\\").casefold()


def _is_last(answer: str, after: str) -> bool:
    """Whether nothing follows an answer but what may: the rest of its sentence, then statements."""
    if len(after) > AFTER:
        return False
    rest, *more = _STATEMENT.split(f"\n{after}" if after[:1] == "\n" else f"{after} ")
    return _follows(rest) and all(_closes(piece, answer) for piece in more)


def _follows(rest: str) -> bool:
    """Whether the rest of an answer's sentence is its unit or its reason."""
    if reason := _BECAUSE.fullmatch(rest.lstrip(_EDGE)):
        return bool(re.search(r"\d", reason[1])) or not _NEGATIVE.search(reason[1])
    ends = _POWER.sub("", _MARKUP.sub(" ", rest)).strip(_EDGE)
    unit = ends.rstrip("." + "!" + _EDGE)
    if not unit or re.fullmatch(r"[(]?it is", unit, re.IGNORECASE):
        return True
    words = [word.casefold() for word in _WORD.findall(unit)]
    return (re.match(r"[^\W\d]|[€£¥%°]", unit) is not None
            and not re.search(r"[\d?=+*/^<>,;:(—–|]", unit)
            and len(words) <= UNIT and not _CLAUSAL.intersection(words) and not _NEGATIVE.search(unit))


def _closes(piece: str, answer: str) -> bool:
    """Whether a statement after an answer is a closing, no words at all, or the answer once more."""
    piece = _MARKUP.sub(" ", piece).strip(f"{_EDGE}.!:;-—🙂😊👍")
    if not _WORD.search(piece) and not re.search(r"\d", piece):
        return "?" not in piece
    if _CLOSING.fullmatch(piece):
        return True
    lead, again, rest = piece.casefold().rpartition(answer) if answer else ("", "", "")
    if not again or re.search(r"[\w.,/-]\Z", lead.rstrip("$")) or re.match(r"[\w/]|[.,]\d", rest):
        return False
    clause = re.split(r"\b(?:so|hence|thus|therefore)\b|[.=]", lead)[-1]
    return (_follows(rest) and not _NEGATIVE.search(lead) and not _ATTRIBUTED.search(f" {lead}")
            and not re.search(r"[\d?]|\bor\b|\bif\b", clause))
