"""Verifiers: gold is paid, near misses are not, and no text of a model can break them."""

import random
from fractions import Fraction

import pytest

from postgrad.records import Prompt, Verdict
from postgrad.rewards import (
    check_verifier,
    exact_number,
    extract_answer,
    find_answer,
    last_number,
    parse_number,
    think_answer,
    weighted,
)
from postgrad.rewards.expression import (
    BadExpression,
    expression_steps,
    expression_value,
    integers,
    parse_expression,
    render_expression,
)

PROMPT = Prompt.ask("What is 2+3?", "5", id="sum/1")


@pytest.mark.parametrize(("text", "number"), [
    ("20", 20), ("20.0", 20), (" 20\n", 20), ("1,000", 1000), ("1,234,567.5", Fraction(2469135, 2)),
    ("-3", -3), ("+3", 3), ("1/2", Fraction(1, 2)), ("-6/4", Fraction(-3, 2)), ("0.50", Fraction(1, 2)),
    ("9" * 64, int("9" * 64)),
])
def test_numbers_are_read_exactly(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize("text", [
    "", " ", "twenty", "20 stamps", "1,00", "1,0000", "10,00", ",100", "1/0", "1/2/3", "1.5/2", "2e9", "0x14",
    "20.", ".5", "--3", "1 000", "20%", "$20", "٢٠", "２０", "²", "9" * 65, "9" * 10**5, "9**9", "9^9", "nan",
    "inf", "1_000", "20\x00", "__import__('os')",
])
def test_what_is_no_number_is_refused(text):
    assert parse_number(text) is None


def test_exact_number_pays_equal_values_and_nothing_near():
    pays = exact_number("20")
    assert [pays(text).score for text in ("20", "20.0", "40/2", "+20")] == [1.0] * 4
    for miss in ("2", "200", "-20", "20.0001", "02 0", "21", "19.9999999999999999999999999999", "20 or 21",
                 ""):
        assert pays(miss).score == 0.0 and pays(miss).reason, miss
    assert exact_number(0.1)("1/10").score == 1.0  # no float comes between
    assert exact_number("0.3333333333333333")("1/3").score == 0.0


@pytest.mark.parametrize("gold",
                         ["twenty", "", None, True, [20], "1/0", "nan", float("inf"), "9" * 65, "#### 20"])
def test_a_broken_gold_number_raises(gold):
    with pytest.raises(ValueError, match="gold answer"):
        exact_number(gold)


@pytest.mark.parametrize(("text", "number"), [
    ("so 3 and then 20.", "20"), ("costs $1,250.", "1,250"), ("it is 2.5", "2.5"), ("-3", "-3"),
    ("17-25", "25"), ("half: 1/2", "1/2"), ("12, 13,", "13"), ("none", None), ("", None), ("9" * 10**5, None),
])
def test_the_last_number_of_a_text(text, number):
    assert last_number(text) == number


@pytest.mark.parametrize(("text", "reason"), [
    ("<answer>5</answer>", "no <think>"),
    ("<think>a</think>5", "no <answer>"),
    ("<think>a</think><answer>5", "no </answer>"),
    ("<think>a</think><answer>4</answer><answer>5</answer>", "2 times <answer>"),
    ("<think><think>a</think><answer>5</answer>", "2 times <think>"),
    ("<answer>5</answer><think>a</think>", "order"),
    ("<think>a<answer>5</answer></think>", "order"),
    ("Well: <think>a</think><answer>5</answer>", "before <think>"),
    ("<think>a</think> so <answer>5</answer>", "between"),
    ("<think>a</think><answer>5</answer> Right?", "after </answer>"),
    ("<think>a</think><answer> </answer>", "empty <answer>"),
    ("<THINK>a</THINK><answer>5</answer>", "no <think>"),
])
def test_each_failure_of_form_has_its_reason(text, reason):
    said = think_answer(text)
    assert said.score == 0.0 and reason in said.reason


def test_the_strict_form_and_the_lenient_answer():
    good = " <think>2+3=5</think>\n<answer> 5 </answer>\n"
    assert think_answer(good).score == 1.0 and extract_answer(good) == "5"
    assert think_answer("<think></think><answer>5</answer>").score == 1.0
    sloppy = "I think <answer>4</answer> no, <answer>5</answer> it is"
    assert extract_answer(sloppy) is None and find_answer(sloppy) == "5"
    assert find_answer("<answer>5") is None and find_answer("</answer><answer>") is None


@pytest.mark.parametrize(("text", "result"), [
    ("3+5*8", 43), ("(3+5)*8", 64), ("8-5-3", 0), ("8/4/2", 1), ("7/2", Fraction(7, 2)), ("1/3*3", 1),
    (" ( 3 ) ", 3), ("8-(5-3)", 6),
])
def test_expressions_have_exact_values(text, result):
    assert expression_value(parse_expression(text)) == result


@pytest.mark.parametrize(("text", "reason"), [
    ("", "ends"), ("3+", "ends"), ("3 5", "unexpected 5"), ("3(5)", "unexpected"),
    ("(3+5", "open parenthesis"), ("3+5)", "unexpected"), ("-3+8", "where a number"),
    ("3++5", "where a number"), ("3**5", "where a number"), ("3//5", "where a number"), ("3^5", "character"),
    ("3=3", "character"), ("3.5", "character"), ("٣+٥", "character"), ("__import__('os')", "character"),
    ("9" * 10, "digits"), ("(" * 30 + "3" + ")" * 30, "inside each other"), ("(" * 10**5, "200 characters"),
    ("1+" * 40 + "1", "more than 32 integers"),
])
def test_bad_expressions_are_refused_with_a_reason(text, reason):
    with pytest.raises(BadExpression, match=reason):
        parse_expression(text)


def test_a_division_by_zero_is_no_value():
    with pytest.raises(BadExpression, match="zero"):
        expression_value(parse_expression("8/(4-4)"))


def test_rendering_keeps_value_and_numbers():
    rng = random.Random(3)

    def tree(depth):
        return (rng.randint(1, 9) if depth == 0 or rng.random() < 0.2
                else (rng.choice("+-*"), tree(depth - 1), tree(depth - 1)))

    for _ in range(300):
        made = tree(3)
        again = parse_expression(render_expression(made))
        assert expression_value(again) == expression_value(made) == expression_steps(made)[0]
        assert integers(again) == integers(made)
    assert expression_steps(parse_expression("17+3*4-8")) == (21, ["3*4=12", "17+12=29", "29-8=21"])


def test_verdicts_add_up_and_an_error_is_no_low_score():
    both = weighted({"correct": (Verdict(score=1.0, reason="right"), 0.8),
                     "language": (Verdict(score=0.5), 0.2)})
    assert both.score == pytest.approx(0.9) and both.parts == {"correct": 1.0, "language": 0.5}
    assert both.reason == "correct: right" and both.error is None
    absent = Verdict(score=0.0, absent=True)
    parts = {"a": (Verdict(score=0.5), 3.0), "b": (absent, 1.0), "c": (Verdict(score=1.0), 1.0)}
    assert weighted(parts).score == pytest.approx(5 * (3 * 0.5 + 1 * 1.0) / 4)
    assert weighted(parts).parts == {"a": 0.5, "c": 1.0}
    nothing = weighted({"b": (absent, 2.0)})
    assert (nothing.score, nothing.absent, nothing.parts) == (0.0, True, {})
    broken = weighted({"a": (Verdict(score=1.0), 1.0),
                       "b": (Verdict(score=0.0, error="infrastructure: no disk"), 1.0)})
    assert broken.error == "b: infrastructure: no disk"
    with pytest.raises(ValueError, match="at least one part"):
        weighted({})


def test_check_accepts_a_sound_verifier_and_names_what_is_wrong_with_others():
    def sound(prompt, text):
        return exact_number(prompt.answer)(text)

    assert check_verifier(sound, [(PROMPT, "5"), (PROMPT, "5.0")]) == 2
    with pytest.raises(ValueError, match=r"sum/1.*'6'.*6 is not the answer"):
        check_verifier(sound, [(PROMPT, "6")])
    with pytest.raises(ValueError, match=r"full 1 for the garbage '' on prompt 'sum/1'"):
        check_verifier(lambda prompt, text: Verdict(score=1.0), [(PROMPT, "5")])
    with pytest.raises(ValueError, match="no disk"):
        check_verifier(lambda prompt, text: Verdict(score=1.0, error="no disk"), [(PROMPT, "5")])
    with pytest.raises(ValueError, match="answered float"):
        check_verifier(lambda prompt, text: 1.0, [(PROMPT, "5")])
    with pytest.raises(ValueError, match="pays 1 instead of 2.2"):
        check_verifier(sound, [(PROMPT, "5")], best=2.2)
    with pytest.raises(ValueError, match="no gold"):
        check_verifier(sound, [])
