"""`postgrad diff`: two rows side by side, only what differs, with the formulas."""

import json

import pytest

from postgrad.cli import main
from postgrad.methods import METHODS, method
from postgrad.methods.pages import (
    compare_rows,
    doc_pieces,
    docstring,
    first_paragraph,
    formulas_in,
    function_facts,
)
from postgrad.methods.row import row_functions, unbound

MINE = '''
"""A row of one's own."""
import postgrad


def bold(logp, old_logp, adv, mask):
    """Praise counts twice.

        -(adv + max(adv, 0)) log pi
    Of what is blamed it is policy_gradient.
    """
    return -(adv + adv.clamp(min=0)) * logp, mask & False


row = postgrad.method("nano", name="bold", surrogate=bold)
'''


def parts(a, b):
    return {d.part: (d.first, d.second) for d in compare_rows(a, b)}


@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_a_row_does_not_differ_from_itself(row):
    assert compare_rows(row, row) == compare_rows(row, method(row, name="copy")) == []


@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_two_rows_of_the_table_differ(row):
    for other in METHODS.values():
        assert bool(compare_rows(row, other)) == (row is not other), f"{row.name} and {other.name}"


def test_what_differs_and_nothing_else():
    found = parts(METHODS["grpo"], METHODS["dapo"])
    assert found.keys() == {"surrogate", "weigh", "reference", "kl_estimator", "kl_in_loss", "resample_flat",
                            "overlong", "minibatches", "high", "about", "paper"}
    assert found["high"] == (0.2, 0.28) and found["kl_in_loss"] == (0.04, 0.0)
    assert [told["function"] for told in found["weigh"]] == ["sequence_mean", "token_mean"]
    assert "clip(rho, 1 - low, 1 + high)" in found["surrogate"][0]["says"]
    assert found["kl_estimator"][0]["function"] == "k3" and found["kl_estimator"][1] is None


def test_rows_of_two_kinds():
    found = parts(METHODS["ppo"], METHODS["dpo"])
    assert found["kind"] == ("policy", "preference") and found["learns from"] == ("rollouts", "pairs")
    assert found["columns of credit"] == (["value"], None) and found["loss"][0] is None
    assert found["credit"][0]["formulas"] and "reference" not in found
    assert "columns of choose" not in found and "kl_stop" not in found  # neither has one


def test_a_constant_alone():
    assert parts(METHODS["grpo"], method("grpo", high=0.3)).keys() == {"surrogate", "high"}


def test_the_command(capsys):
    assert main(["diff", "grpo", "dapo"]) == 0
    said = capsys.readouterr().out
    assert "both  PPO's clipped surrogate" in said and "dapo  clipped_ratio(low=0.2, high=0.28)" in said
    assert "arXiv:2402.03300" in said and "kl_in_loss     0.04  0.0" in said
    assert main(["diff", "grpo", "grpo"]) == 0 and "the same row" in capsys.readouterr().out
    assert main(["diff", "dpo", "ipo", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["methods"] == ["dpo", "ipo"] and not found["same"]
    assert {"loss", "paper"} <= {d["part"] for d in found["differences"]}
    assert main(["diff", "grpo", "grop"]) == 2 and "grpo" in capsys.readouterr().err


def test_a_row_of_a_file(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    assert main(["diff", str(path), "nano"]) == 0
    said = capsys.readouterr().out
    assert "bold  bold: Praise counts twice.   -(adv + max(adv, 0)) log pi" in said
    assert "nano  policy_gradient:" in said and "weigh" not in said
    path.with_name("other.py").write_text(MINE.replace("adv.clamp(min=0)", "adv.clamp(min=1)"))
    assert main(["diff", str(path), str(path.with_name("other.py")), "--json"]) == 0
    assert [d["part"] for d in json.loads(capsys.readouterr().out)["differences"]] == ["surrogate"]


def test_docstrings_taken_apart():
    doc = """In words,
    over two lines.

        f(x) = x^2
    Then more.
    """
    assert first_paragraph(doc) == "In words, over two lines." and formulas_in(doc) == ["f(x) = x^2"]
    assert first_paragraph(None) == "" and formulas_in(None) == []


def test_a_formula_that_ends_a_docstring_is_one():
    assert formulas_in("""The square.

        f(x) = x^2
    """) == ["f(x) = x^2"]


def ends_with_formulas(x):
    """The square.

        f(x) = x^2
             = x x
        g(x) = 2 x"""
    return x * x


def test_docstrings_are_read_from_the_source():
    """Whatever Python makes of the margin, and wherever the quotes are closed."""
    assert function_facts(ends_with_formulas)["formulas"] == ["f(x) = x^2 = x x", "g(x) = 2 x"]
    assert [p.kind for p in doc_pieces(docstring(ends_with_formulas))] == ["words", "formula", "formula"]
    assert docstring(lambda x: x) == "" and docstring(int)


@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_what_a_function_says_is_whole(row):
    """No word of a docstring is lost."""
    for function in row_functions(row).values():
        whole = " ".join(piece.text for piece in doc_pieces(docstring(function)))
        assert whole.split() == unbound(function).__doc__.split() and function_facts(function)["says"]
