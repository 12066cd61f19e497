"""Readers that are fair to what models write: a table with a careful person's verdicts, and cases."""

import json
from collections import Counter

import pytest
from paths import ASSETS

from postgrad.data.tasks.gsm8k import verify as gsm8k
from postgrad.records import Prompt
from postgrad.rewards.format import find_marked, tidy
from postgrad.rewards.named import read_spec
from postgrad.rewards.number import bare_number
from postgrad.rewards.sandbox import tier
from postgrad.rewards.unequal import is_interval, solutions
from postgrad.rewards.wording import split_wording, words_agree

TABLE = [json.loads(line) for line in (ASSETS / "replies.jsonl").read_text("utf-8").split("\n")[:-1]]


@pytest.mark.skipif(tier() is None, reason="this machine has no sandbox that holds")
def test_no_wrong_reply_is_paid_and_few_right_ones_are_not():
    """The table's verdicts are a person's, who reads what is meant; a reader may be stricter in one of 20."""
    pytest.importorskip("math_verify")
    seen, accepted, rejected = Counter(), [], []
    for row in TABLE:
        verify = gsm8k if row["verifier"] == "gsm8k" else read_spec(row["verifier"])
        said = verify(Prompt.ask("?", row["gold"]), row["reply"])
        assert said.error is None
        seen[row["verifier"], row["right"]] += 1
        if (said.score == 1) != row["right"]:
            (rejected if row["right"] else accepted).append((*row.values(), said.reason))
    right = sum(count for (_, is_right), count in seen.items() if is_right)
    assert len(TABLE) >= 350 and len(seen) == 12 and min(seen.values()) >= 20
    assert not accepted
    assert len(rejected) <= 0.05 * right, rejected


@pytest.mark.parametrize(("reply", "answer"), [
    ("The answer is **5**.", "5"), ("**The answer is 5**", "5"), 
    ("The answer is 4. No, the answer is 5.", "5"), ("#### 72\nI hope this helps!", "72"),
    ("#### 72 ####", "72"), ("The answer is:\n\n**72**", "72"),
    ("so\n### Final answer\n72\n", "72"), ("The answer is $5$.", "$5$"), ("Answer: 5 because 2+3=5", "5"),
    (r"\boxed {5}", "5"), ("The answer is", None), ("the answer", None), ("####", None), ("Answer:** 5", "5"),
])
def test_marks_by_hand(reply, answer):
    assert find_marked(reply) == answer


@pytest.mark.parametrize(("text", "bare"), [
    ("**5**.", "5"), ("`5`", "5"), ("5**", "5"), ("**a** b **c**", "**a** b **c**"), ("2*3", "2*3"), ("", ""),
    ('"Paris".', "Paris"), ("\u201cParis\u201d", "Paris"), ("_5", "_5"), ("5.5.", "5.5")])
def test_emphasis_is_no_part_of_an_answer(text, bare):
    assert tidy(text) == bare


def test_a_written_number_without_its_dress():
    written = ("**$72$**.", r"\$72", r"\(72\)", "$72", "72.", "$$72$$")
    assert [bare_number(text) for text in written] == ["72"] * len(written)
    assert bare_number("72" + " " * 200 + "or 73").endswith("or 73")  # never cut to what is wanted


@pytest.mark.parametrize(("text", "formula", "words"), [
    (r"10\text{ cm}", "10", ["cm"]), ("10 square inches", "10", ["in^2"]), (r"9\text{ cm}^2", "9", ["cm^2"]),
    ("5 a.m.", "5", ["am"]), ("12_{3}", "12", ["base 3"]), ("12 base 3", "12", ["base 3"]),
    ("1 foot", "1", ["ft"]),
    ("x_1", "x_1", []), (r"\log_2 8", r"\log_2 8", []), (r"5\mathrm{i}", "5 i", []),
    (r"\text{on}", "", ["on"]), (r"2\text{ or }3", "2,3", []),
    ("1, 234", "1, 234", []), ("2m", "2m", []), (r"\text{cos}(0)+5", "(0)+5", ["cos", "amid"])])
def test_formulas_and_words_are_parted(text, formula, words):
    assert split_wording(text) == (formula, tuple(words))


@pytest.mark.parametrize(("wanted", "got", "fits"), [
    (["cm"], ["cm"], 1), (["cm"], [], 1), ([], ["cm"], 1), (["cm"], ["kg"], 0), (["am"], ["pm"], 0),
    (["am"], [], 0), (["base 3"], [], 1), (["base 3"], ["base 4"], 0), ([], ["base 3"], 0),
    ([], ["thousand"], 0), ([], ["i"], 0), ([], [], 1)])
def test_words_that_go_together(wanted, got, fits):
    assert words_agree(tuple(wanted), tuple(got)) == bool(fits)


def test_solutions_and_intervals():
    assert solutions("x=1,x=2") == "1,2" and solutions("x=1,y=2") == "x=1,y=2" and solutions("x=1") == "x=1"
    assert [is_interval(text) for text in (r"(-\infty,3)", "[1,2)", "(1,2)", "3")] == [1, 1, 0, 0]
