"""Whether a reply takes back the answer that it marks: by a "not" before it, words after it, or a second one
beside it. English alone, by lists of words; an answer that is merely unsure ("I guess it is 5") stands.

Read are the words that lead up to the mark and the 400 characters after it. A reply that names one answer and
denies it would be right whichever it is, so it has none.
"""

from __future__ import annotations

import re

BEFORE, AFTER = 120, 400  # characters around a mark that are read


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

# "that is wrong", "is not the answer": what is said of a marked answer after it
_SURE = r"(?:\s+(?:\w+ly|of course|in fact|no doubt|just|at all|even|quite|so|very|all))?"
_FALSE = _any(
    "wrong incorrect false untrue mistaken invalid bogus nonsense fake rubbish garbage impossible",
    "refuted retracted withdrawn rejected meaningless far_from anything_but a_lie a_joke an_error",
    "a_mistake a_trap a_decoy a_typo no_answer only_a_test made_up off out not never no_longer") + r"\b"
_RIGHT = _any(
    "answer right correct true it so valid solution result one mean meant think believe case hold work")
_ITS = _any("be the my an? your what really final right correct true real actual i we it to")
_IS = "(?:" + _any("is was are were be ['’]s seems looks sounds remains proves") + "|" + (
    _any("can could would should must may might will")) + "(?: be)?)"
_N_T = _any("is was are does did do ca could would should wo") + r"n['’]t"
_CAN_NOT = r"(?:cannot|" + _any("does did do can could will would should may might must") + r"\s+not)"
_IS_NOT = rf"(?:{_IS}{_SURE}\s+{_FALSE}|{_N_T}\b|{_CAN_NOT}\b)"
_DENIES = (rf"(?:{_IS}{_SURE}\s+(?!(?:not|never|no\s+longer|off|out)\b){_FALSE}|(?:is|was)(?:n['’]t| not)"
           rf"(?=\s*(?:[.!?;)]|\Z))|(?:{_IS}{_SURE}\s+(?:not|never|no longer)|{_N_T}|{_CAN_NOT})"
           rf"(?:\s+{_ITS})*?\s+{_RIGHT}\b)")
_IT = (r"(?:that|this|it|which|above|former|previous|first|last|"
       r"the (?:final |above |boxed |marked |given |last )?(?:answer|number|value|result|box|line|claim|"
       r"statement|one)|my (?:final )?answer|what i (?:wrote|said)|[-\d.,/]+)")
_AT_ONCE = re.compile(
    rf"[\s$*_.,;:)\]}}>\"'”’!?(—–-]*(?:{_IS_NOT}|{_FALSE}|n['’]t\b|/\s*[-\d\\$]|\?|"
    r"(?:is|was) what \w+ (?:refuse|reject|den(?:y|ies)|doubt|never|do(?:es)?(?: not|n['’]t))|"
    r"no\b(?=\s*[,.;:!?)]|\s+wait|\s*\Z)|(?:nope|(?:just )?(?:kidding|joking)|(?:and/)?or|versus|vs|"
    r"alternatively|unless)\b)", re.IGNORECASE)
_FORGET = _any(
    "ignore disregard forget discard delete strike reject retract withdraw revoke cancel dismiss") + (
    r"|do(?: not|n['’]t) " + _any("use take trust count accept believe read"))
_LATER = re.compile(
    rf"\b{_IT}\s*{_DENIES}|\b(?:{_FORGET})\s+(?:\w+\s+){{0,4}}?"
    r"(?:that|this|it|above|answer|previous|result|number|value|box|line|all|everything|what)\b|"
    r"\b(?:kidding|joking|april fool|scratch (?:that|this|it)|never ?mind|on second thoughts?|correction|"
    r"my mistake|"
    r"i (?:was|am|stand)(?: \w+)? (?:wrong|lying|mistaken|joking|corrected|kidding)|"
    r"i (?:lied|(?:just )?(?:made|invented|guessed) (?:that|this|it)(?: up)?)|opposite (?:is|day|of)|"
    r"(?:take|took|taking) (?:that|it|this|everything|all)(?: \w+){0,2} back|take back|no,? wait|wait,? no|"
    r"not (?:really|the (?:right |correct |final |real |true )?answer|my (?:final )?answer|that)|"
    r"(?:is|was|be) (?:wrong|incorrect|false|untrue|mistaken)|"
    r"(?:an?|one) (?:\w+ )?(?:example|sample|case|instance) of an? (?:wrong|incorrect|false|bad))\b|"
    r"(?:[.!?\n]|\A)[\s)]*(?:\w+,? )?no[.!]", re.IGNORECASE)
_REASON = re.compile(r"[\s$*_,;)\]}]*(?:because|since)\b[^.!?\n]*", re.IGNORECASE)


def takes_back(before: str, after: str) -> bool:
    """Whether the texts on both sides of a marked answer deny it, or put another one beside it."""
    before, after = before[-BEFORE:], after[:AFTER]
    if _DENIED.search(_NO_DENIAL.sub(" ", _CLAUSE.split(before)[-1])):
        return True
    if (second := _SECOND.search(before)) and _OR.search(second[0]):
        return True
    reason = _REASON.match(after)
    rest = after[reason.end():] if reason else after
    return bool(not reason and _AT_ONCE.match(after) or _LATER.search(rest))
