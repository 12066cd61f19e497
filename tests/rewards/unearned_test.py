"""Nothing is paid for answers that are hidden, denied or hedged, nor for forms without content; gold is."""

import pytest
from hostile.unearned import (
    ANSWERS,
    CONSTRAINTS,
    FORMED,
    FORMS,
    GSM_SYMBOLIC,
    MATHS,
    MET,
    RUDE,
    UNLISTED,
    fresh,
)

from postgrad.data.tasks.gsm8k import verify as gsm8k
from postgrad.data.tasks.gym import names_another_number
from postgrad.records import Prompt
from postgrad.rewards.constitution import read_constitution
from postgrad.rewards.constraints import is_kept
from postgrad.rewards.format import find_marked
from postgrad.rewards.named import read_spec
from postgrad.rewards.sandbox import tier

in_jail = pytest.mark.skipif(tier() is None, reason="this machine has no sandbox that holds")
SHIPPED = read_constitution()
HALF = 0.5  # of a style that is paid in shares


def earned(spec, gold, reply):
    """What a reply earns beyond what no content earns."""
    if spec in FORMED:
        return float(is_kept(reply, FORMED[spec]))
    if spec == "constitution":
        return float("no insults" not in SHIPPED.broken(reply))
    said = read_spec(spec)(Prompt.ask("?", gold), reply)
    assert said.error is None and said.reason
    return said.score if not spec.startswith("language") else float(said.score > HALF)


@pytest.mark.parametrize("verify", [read_spec("number"), gsm8k], ids=["number", "gsm8k"])
def test_an_answer_that_is_hidden_denied_or_hedged_is_none(verify):
    paid = [name for name, reply in ANSWERS.items()
            if verify(Prompt.ask("?", "42"), f"So\n{reply}").score]
    assert not paid and len(ANSWERS) >= 30
    marked = [reply.replace(r"\boxed{42}", "\n#### 42\n") for reply in ANSWERS.values()]
    assert not [reply for reply in marked if verify(Prompt.ask("?", "42"), f"So {reply}").score]


@pytest.mark.parametrize("reply", [
    r"It is not hard to see that the answer is \boxed{42}.", "The answer is 41. No, the answer is 42.",
    "<think>Is it 41? No, 42.</think>The answer is 42.", "I guess the answer is 42.",
    "#### 42\nThat is all.",
    "The answer is 42 because 41 is wrong.", "It can't be 41, so the answer is 42.",
    "No doubt the answer "
                                                                                     "is 42.",
    r"\boxed{42}. I hope this helps!", "The answer is 4\u200b2.", "x</think>The answer is 42"])
def test_an_answer_that_stands_is_paid(reply):
    assert read_spec("number")(Prompt.ask("?", "42"), reply).score == 1


@pytest.mark.parametrize("after", [
    "", ".", " eggs.", " dollars every day at the farmers' market.", r" \text{ cm}^2", r"\%", " °C",
    "$", r"\]",
    " because 41 is wrong.", ", since it is the sum.", ".\n\nSo the answer is 42.",
    ".\n\nCheck: 6*7 = 42.",
    ". Thus she earns $42 per day.",
    "\n\nI hope this helps! Let me know if you have any other questions.", " it is",
    "\n\n#### 42", ". I am confident.", "</s>", "```\nDone."])
def test_what_may_follow_an_answer(after):
    assert find_marked(r"So we get $x = \boxed{42}$" + after) == "42"


@pytest.mark.parametrize("after", [
    "\nBlah blah.", ". Esto es falso.", ". 这是错的。", " - so they lie", ", they lie", " (a fib)",
    ". Lies!", "+1", "^3",
    " = 43", "?", ". Or so he wrote.", ". It is 43.", ". 42 is a lie.", ". A fool says 42.",
    ". Not 42.", " said they",
    ". Is it 42?", "." + " so" * 1000])
def test_any_other_statement_after_it_leaves_none(after):
    """By its place, not by its words."""
    assert find_marked(r"So \boxed{42}" + after) != "42"


@pytest.mark.parametrize("before", [
    "Nothing suggests ", "Fools say ", "He said it is ", "If I were a fool I would say ",
    r"\boxed{42} or \boxed{43}. Hm: "])
def test_nobody_s_answer_is_none(before):
    assert find_marked(before + r"\boxed{42}") == ""


def test_denials_that_were_paid_once_are_not():
    assert len(MET) == 20 and not [reply for reply in MET if find_marked(reply) == "7"]
    # by what follows all are known; `python proofs/reliability.py earned` counts
    assert sum(find_marked(reply) == "7" for reply in UNLISTED) <= 7


@in_jail
def test_maths_pays_nothing_for_them_either():
    pytest.importorskip("math_verify")
    rows = [("42", reply) for reply in ANSWERS.values()] + list(MATHS.values())
    assert not [row for row in rows if earned("maths", *row)]
    for gold, answer in (("100", "10²"), ("x^2", "x\u200b²"), (r"90^\circ", "90")):
        assert earned("maths", gold, answer) == 1


@pytest.mark.parametrize("spec", FORMS)
def test_a_form_without_content_is_not_paid(spec):
    if spec.startswith("regex") and tier() is None:
        pytest.skip("this machine has no sandbox that holds")
    assert len(FORMS[spec]) >= 10
    assert not [reply for reply in FORMS[spec] if earned(spec, "42", reply)]


def test_a_constraint_is_kept_by_what_is_seen():
    rows = [(rule, reply) for rule, replies in CONSTRAINTS.items() for reply in replies]
    assert not [row for row in rows if is_kept(row[1], row[0])]
    assert sum(map(len, CONSTRAINTS.values())) >= 60


def test_a_rude_word_is_rude_in_any_dress():
    assert len(RUDE) >= 10 and not [reply for reply in RUDE if "no insults" not in SHIPPED.broken(reply)]
    assert "no insults" not in SHIPPED.broken("Hello! A fo x and 1 ool, s i t down. It is full.")


def test_a_scorer_that_drops_the_sign_does_not():
    """That of gsm_symbolic takes the first digits of an answer."""
    answers = [answer.replace("{}", "37") for answer in GSM_SYMBOLIC]
    assert len(answers) >= 10 and not [answer for answer in answers if not names_another_number(answer, "37")]
    assert [names_another_number(answer, "37") for answer in ("37", "37.0", "37 apples",
    "$37")] == [""] * 4


@in_jail
def test_few_fresh_cheats_are_paid():
    """`python proofs/reliability.py fresh` tries more."""
    paid = [row for row in fresh(0, 60) if row[0] != "maths" and earned(*row)]
    assert len(paid) <= 1, paid
