"""A page for every row in the studio: its line numbers point at its functions, its figure is drawn; and what
docs/methods.md says of TRL and verl stands on a test."""

import ast
import json
import re

import bias
import pytest
from against import found
from book_small import client
from doc_blocks import ROOT

from postgrad.cli import main
from postgrad.methods import METHODS, get_method, method
from postgrad.methods.pages import (
    compare_rows,
    doc_pieces,
    docstring,
    first_paragraph,
    formulas_in,
    function_facts,
    method_page,
    row_comments,
)
from postgrad.methods.row import row_functions, unbound

rows = pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    return client(tmp_path_factory.mktemp("studio"))


@rows
def test_every_line_number_points_at_its_function(row, studio):
    said, text = method_page(row, METHODS), studio.get(f"/book/methods/{row.name}").text
    assert said.parts
    for part in said.parts:
        line = (ROOT / part.file).read_text().splitlines()[part.line - 1]
        assert line.startswith(f"def {part.function}(") and f"{part.file}:{part.line}" in text


@rows
def test_a_page_lacks_nothing(row, studio):
    text, listed = studio.get(f"/book/methods/{row.name}").text, (ROOT / "docs" / "methods.md").read_text()
    parts = ["row", "formulas", "constants", "neighbours"] + ["bias"] * (row.kind == "policy")
    assert all(f'id="{part}"' in text for part in parts)
    place = re.search(rf"\[`{row.name}`\]\(\.\./(\S+)#L(\d+)\)", listed)
    assert place, f"docs/methods.md does not have {row.name}: run make docs"
    file, line = place.groups()
    near = (ROOT / file).read_text().splitlines()[int(line) - 1: int(line) + 30]
    assert any(f'"{row.name}"' in text for text in near)


@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if row.kind == "policy"])
def test_the_figure_of_a_row(name, studio):
    """Drawn, and all its points within it."""
    drawn = studio.get(f"/book/methods/{name}").text
    points = [(float(x), float(y)) for x, y in
              re.findall(r'<circle class="dot policy" cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    assert points, f"studio/book/bias.json does not have {name}: run make docs"
    assert len(points) >= 10 and all(0 < x < 420 and 0 < y < 300 for x, y in points)


def test_the_points_of_an_unbiased_row_lie_on_the_line():
    kept = bias.kept(METHODS)
    for shown in (kept["rloo"], kept["dr_grpo"], kept["maxrl"]["own"]):
        assert shown["bias"] == 0
        assert [y / shown["scale"] for y in shown["mean"]] == pytest.approx(shown["exact"], rel=1e-3)
    assert kept["grpo"]["bias"] > 0.1 and kept["maxrl"]["bias"] > 0.1


def test_the_nearest_rows():
    assert method_page(METHODS["dpo"], METHODS).neighbours[0].name in ("cdpo", "online_dpo")
    counts = [len(n.differences) for n in method_page(METHODS["grpo"], METHODS).neighbours]
    assert counts == sorted(counts) and len(counts) == 3
    wide = method_page(method("dapo", name="wide", high=0.3), METHODS).neighbours[0]
    assert wide.name == "dapo" and {d.part for d in wide.differences} == {"surrogate", "high"}


def test_what_is_said_of_a_library_stands_on_a_test_of_that_row():
    held = found()
    assert {h.library for h in held} >= {"TRL", "verl"} and len({h.row for h in held}) > 20
    for h in held:
        assert h.row in METHODS and h.test.startswith("test_"), h
        nodes = ast.walk(ast.parse((ROOT / h.file).read_text()))
        tested = {node.value for node in nodes if isinstance(node, ast.Constant)}
        assert h.row in tested, f"{h.file} says something of {h.row} and does not test it"


def test_the_columns_that_a_row_wants_are_named():
    assert method_page(METHODS["grpo"], METHODS).wants == {}
    assert method_page(METHODS["ppo"], METHODS).wants.keys() == {"value"}


def test_a_comment_is_read_where_it_stands():
    text = """
# Why it
# differs.
row = method("grpo", name="mine", high=0.3)

ROWS = (
    # Another.
    Policy(name="b", credit=f),
    Policy(name="c", credit=f),
)
"""
    assert row_comments(text) == {"mine": "Why it differs.", "b": "Another.", "c": ""}


MINE = '''
from functools import partial

from postgrad import method


def bold(logp, old_logp, adv, mask, *, much):
    """Praise counts for more.

        loss = -(A + much max(A, 0)) log pi
    """
    return -(adv + much * adv.clamp(min=0)) * logp, mask & False


# A row for the tests.
row = method("nano", name="bold", paper="none", about="more praise", surrogate=partial(bold, much=1.0))
'''


def test_a_user_s_row_has_a_page_too(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    row = get_method(str(path))
    said = method_page(row, METHODS)
    surrogate = next(part for part in said.parts if part.field == "surrogate")
    assert (surrogate.file, surrogate.line, surrogate.constants) == (str(path), 7, {"much": 1.0})
    assert [p.kind for p in surrogate.pieces] == ["words", "formula"]
    assert said.departures == "A row for the tests." and said.neighbours[0].name == "nano"


# `postgrad diff`: two rows side by side, only what differs, with the formulas

OWN_ROW = '''
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
    path.write_text(OWN_ROW)
    assert main(["diff", str(path), "nano"]) == 0
    said = capsys.readouterr().out
    assert "bold  bold: Praise counts twice.   -(adv + max(adv, 0)) log pi" in said
    assert "nano  policy_gradient:" in said and "weigh" not in said
    path.with_name("other.py").write_text(OWN_ROW.replace("adv.clamp(min=0)", "adv.clamp(min=1)"))
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
