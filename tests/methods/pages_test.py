"""A page for every row: each is there, its line numbers point at its functions, its figures can be drawn, and
what it says of TRL and verl stands on a test."""

import ast
import re
from xml.etree import ElementTree

import bias
import method_pages
import pytest
from against import found
from doc_blocks import ROOT, links

from postgrad.methods import METHODS, get_method, method
from postgrad.methods.pages import method_page, row_comments

PAGES = ROOT / "docs" / "methods"
rows = pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)


@rows
def test_every_line_number_points_at_its_function(row):
    said = method_page(row, METHODS)
    text = (PAGES / f"{row.name}.md").read_text()
    assert said.parts
    for part in said.parts:
        line = (ROOT / part.file).read_text().splitlines()[part.line - 1]
        assert line.startswith(f"def {part.function}(")
        assert f"(../../{part.file}#L{part.line})" in text
    for link in re.findall(r"\(\.\./\.\./(tests/\w+\.py#L\d+)\)", text):
        file, _, line = link.partition("#L")
        assert (ROOT / file).read_text().splitlines()[int(line) - 1].startswith("def test_")


@rows
def test_a_page_leads_somewhere_and_lacks_nothing(row):
    path = PAGES / f"{row.name}.md"
    assert all((path.parent / link.partition("#")[0]).exists() for link in links(path)
               if not link.startswith("https://"))
    text = path.read_text()
    parts = ["Formulas", "Departures from the paper", "Updates", "The rows next to it"]
    assert all(f"\n## {part}\n" in text for part in parts + ["Bias"] * (row.kind == "policy"))
    assert row.paper.split(",")[0] in text
    assert f"(methods/{row.name}.md)" in (PAGES.parent / "methods.md").read_text()


@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if row.kind == "policy"])
def test_the_figure_of_a_row(name):
    """Drawn, and all its points within it."""
    drawn = ElementTree.parse(PAGES / "figures" / f"{name}.svg").getroot()
    points = [node for node in drawn if node.tag.endswith("circle")]
    assert len(points) >= 10 and f"(figures/{name}.svg)" in (PAGES / f"{name}.md").read_text()
    assert all(0 < float(p.get("cx")) < 320 and 0 < float(p.get("cy")) < 300 for p in points)


def test_the_points_of_an_unbiased_row_lie_on_the_line():
    kept = bias.kept(METHODS)
    for shown in (kept["rloo"], kept["dr_grpo"], kept["maxrl"]["own"]):
        assert shown["bias"] == 0
        assert [y / shown["scale"] for y in shown["mean"]] == pytest.approx(shown["exact"], rel=1e-3)
    assert kept["grpo"]["bias"] > 0.1 and kept["maxrl"]["bias"] > 0.1


def test_the_nearest_rows():
    assert method_page(METHODS["dpo"], METHODS).neighbours[0].name == "ipo"
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
    assert "handed: `value`, the critic's values when" in (PAGES / "ppo.md").read_text()


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
    text = method_pages.row_page(row, said, None, [])
    assert "```text\nloss = -(A + much max(A, 0)) log pi\n```" in text and "## Bias" not in text
    assert "a second update is refused" in text and "`much`" in text
