"""Whether a reply takes back the answer that it marks: by a "not" before it, words after it, or a second one
beside it. English alone; an answer that is merely unsure ("I guess the answer is 5") stands.

Read are the words that lead up to the mark and the 400 characters after it. A reply that names one answer and
denies it would be right whichever it is, so it has none.
"""

from __future__ import annotations

import re

BEFORE, AFTER = 120, 400  # characters around a mark that are read

_LEADS = (r"(?:\s|[$*_:\"'(“‘-]|\b(?:that|the|my|our|this|an?|it|is|was|be|been|being|to|of|by|as|in|for|final|real|"
          r"right|correct|true|actual|best|only|possible|equal|equals|answer|result|value|number|solution|"
          r"thinks?|believe[sd]?|says?|saying|claims?|means?|agrees?|accepts?|knows?|sure|certain|convinced|possibly|"
          r"really|anyone|anybody|someone|people|here|hope|expect|reader|"
          r"actually|necessarily|at all|exactly|ever|any|longer|way|case|given|called|choose|pick|write|"
          r"writing|give|giving|you|we|should|would|could|might|can|have|what|which)\b)")
_NOT = (r"(?:\b(?:not|never|cannot|neither|nor|wrong(?:ly)?|incorrect(?:ly)?|false(?:ly)?|untrue|mistaken(?:ly)?|"
        r"bad|fake|bogus|invalid|unlikely|doubt|doubtful|deny|denied|denying|refuse|reject(?:ed)?|disagree|"
        r"hardly|scarcely|impossible|unlike|except|without|avoid|instead of|rather than|other than|far from|"
        r"anything but|nothing like|nobody|no one|none|nothing|nowhere|(?:by|under|on|at|in) no \w+|no|isnt|"
        r"no longer|decoy|trap|lie|joke|kidding|mistake|error|ignore|disregard|forget|withdraw|retract|reject|"
        r"dismiss|discard|cancel|revoke)\b|n['’]t\b)")
_DENIED = re.compile(rf"{_NOT}{_LEADS}{{0,24}}\Z", re.IGNORECASE)
_PLAIN = re.compile(r"\b(?:not|isn['’]t)\s+(?:hard|difficult)\b|\bno doubt\b|\bwhy not\b|\bnot only\b|\bwithout "
                    r"(?:a )?doubt\b|\bcan(?:no|['’])t be (?:wrong|doubted)\b|\bimpossible to doubt\b", re.IGNORECASE)
_MARK = r"(?:</answer>|\\boxed\{[^{}]{0,80}\}|answer is [^.\n]{1,60}|#### ?[^\n]{1,60})"
_SECOND = re.compile(rf"{_MARK}\W{{0,9}}(?:(?:or|and|maybe|perhaps|possibly|alternatively|otherwise|else|also|"
                     r"either|it|is|could|might|be|even|then|if|not|that|versus|vs|the|answer)\b\W{0,9}){0,9}"
                     r"(?:\$\W{0,3})?\Z", re.IGNORECASE)
_OR = re.compile(r"\b(?:or|alternatively|otherwise|versus|vs|maybe|perhaps|possibly|if)\b|[/|]\W*\Z", re.IGNORECASE)

_SURE = r"(?:\s+(?:\w+ly|of course|in fact|no doubt|just|at all|even|quite|so|very|all))?"
_NO = (r"(?:not|never|no longer|wrong|incorrect|false|untrue|mistaken|invalid|bogus|nonsense|fake|rubbish|"
       r"garbage|impossible|refuted|retracted|withdrawn|rejected|meaningless|far from|anything but|a lie|a joke|an error|a mistake|a trap|"
       r"a decoy|a typo|no answer|only a test|made up|off|out)\b")
_IS = r"(?:(?:is|was|are|were|be|['’]s|seems|looks|sounds|remains|proves)|(?:can|could|would|should|must|may|might|will)(?: be)?)"
_IS_NOT = rf"(?:{_IS}{_SURE}\s+{_NO}|(?:is|was|does|did|do|ca|could|would|should|wo|are)n['’]t\b|cannot\b|" \
          r"(?:does|did|do|can|could|will|would|should|may|might|must) not\b)"
_IT = (r"(?:that|this|it|which|above|former|previous|first|last|the (?:final |above |boxed |marked |given |last )?"
       r"(?:answer|number|value|result|box|line|claim|statement|one)|my (?:final )?answer|what i (?:wrote|said)|"
       r"[-\d.,/]+)")
_WRONG = (r"(?:wrong|incorrect|false|untrue|mistaken|invalid|bogus|nonsense|fake|rubbish|garbage|impossible|"
          r"refuted|retracted|withdrawn|rejected|a lie|a joke|an error|a mistake|a trap|a decoy|a typo|no answer|"
          r"made up|(?:not|never|no longer)(?: (?:be|the|my|an?|your|what|really|final|right|correct|true|real|"
          r"actual|i|we|it))*? (?:answer|right|correct|true|it|so|valid|solution|result|one|mean|meant|think|"
          r"believe|case)\b)")
_DENIES = (rf"(?:{_IS}{_SURE}\s+{_WRONG}|(?:is|was|does|did|do|ca|could|would|should|wo|are)n['’]t"
           r"(?: (?:be|the|my|an?|your|what|really|final|right|correct|true|real|actual|i|we|it|to))*? (?:answer|right|"
           r"correct|true|it|so|valid|solution|result|one|mean|meant|think|believe|case|hold|work)\b|"
           r"(?:is|was)(?:n['’]t| not)(?=\s*(?:[.!?;)]|\Z))|far from (?:right|correct|true|it)|"
           r"(?:cannot|(?:does|did|do|can|could|will|would|should|may|might|must) not) (?:hold|work|be (?:right|"
           r"correct|true|it))\b)")
_AT_ONCE = re.compile(rf"[\s$*_.,;:)\]}}>\"'”’!?(—–-]*(?:{_IS_NOT}|{_NO}|n['’]t\b|(?:is|was) what \w+ (?:refuse|reject|den(?:y|ies)|doubt|never|do(?:es)?(?: not|n['’]t))|no\b(?=\s*[,.;:!?)]|\s+wait|\s*\Z)|"
                      r"nope\b|(?:just )?(?:kidding|joking)\b|(?:and/)?or\b|versus\b|vs\b|alternatively\b|unless\b|"
                      r"/\s*[-\d\\$]|\?)", re.IGNORECASE)
_LATER = re.compile(
    rf"\b{_IT}\s*{_DENIES}|\b(?:kidding|joking|april fool)\b|\bscratch (?:that|this|it)\b|\bnever ?mind\b|"
    r"\b(?:ignore|disregard|forget|discard|delete|strike|reject|retract|withdraw|revoke|cancel|dismiss|"
    r"do(?: not|n['’]t) (?:use|take|trust|count|accept|believe|read))\s+(?:\w+\s+){0,4}?(?:that|this|it|above|answer|"
    r"previous|result|number|value|box|line|all|everything|what)\b|\b(?:take|took|taking) (?:that|it|this|everything|"
    r"all)(?: \w+){0,2} back\b|\btake back\b|\bon second thoughts?\b|\bi (?:was|am|stand)(?: \w+)? (?:wrong|lying|mistaken|joking|"
    r"corrected|kidding)\b|\bi (?:lied|(?:just )?(?:made|invented|guessed) (?:that|this|it)(?: up)?)\b|\bcorrection\b|"
    r"\b(?:a|an|one) (?:\w+ )?(?:example|sample|case|instance) of an? (?:wrong|incorrect|false|bad)|"
    r"(?:[.!?\n]|\A)[\s)]*(?:\w+,? )?no[.!]|\bmy mistake\b|\bopposite (?:is|day|of)\b|\bno,? wait\b|\bwait,? no\b|"
    r"\bnot (?:really|the (?:right |correct |final |real |true )?answer|my (?:final )?answer|that)\b|"
    r"\b(?:is|was|be) (?:wrong|incorrect|false|untrue|mistaken)\b", re.IGNORECASE)
_BECAUSE = re.compile(r"[\s$*_,;)\]}]*(?:because|since)\b[^.!?\n]*", re.IGNORECASE)
_CLAUSE = re.compile(r"[.;!?\n]\s|,\s|\b(?:so|(?<!anything )but|hence|thus|therefore|then|and|because|since)\b", re.IGNORECASE)


def takes_back(before: str, after: str) -> bool:
    """Whether the texts on both sides of a marked answer deny it, or put another one beside it."""
    before, after = before[-BEFORE:], after[:AFTER]
    if _DENIED.search(_PLAIN.sub(" ", _CLAUSE.split(before)[-1])):
        return True
    if (second := _SECOND.search(before)) and _OR.search(second[0]):
        return True
    reason = _BECAUSE.match(after)
    rest = after[reason.end():] if reason else after
    return bool(not reason and _AT_ONCE.match(after) or _LATER.search(rest))
