"""Text becomes values by the field's annotation, in one module; a mistyped name gets a hint."""

import ast
from pathlib import Path

import pytest
from settings_text import Inner, Outer, override

import postgrad
from postgrad.system.parse import parse_value
from postgrad.system.settings import flat_settings

PARSERS = {"cli/settings.py", "cli/train.py", "studio/runs/forms.py"}  # where text arrives


@pytest.mark.parametrize(("change", "key", "value"), [
    ("count=20", "count", 20), ("count=1e3", "count", 1000), ("count=-4", "count", -4),
    ("count=5.0", "count", 5),
    ("count=9007199254740993", "count", 9007199254740993),  # 2^53 + 1: not by way of a float
    ("name=7", "name", "7"), ("name=a=b", "name", "a=b"), ("name=", "name", ""),
    ("name=none", "name", "none"), ("share=1e-4", "share", 1e-4), ("share=3", "share", 3.0),
    ("share=none", "share", None), ("share=", "share", None), ("path=None", "path", None),
    ("path=data/x.jsonl", "path", "data/x.jsonl"),
    ("inner.rate=2", "inner.rate", 2.0), ("inner.on=true", "inner.on", True),
    ("inner.on=0", "inner.on", False), ("inner.on=Yes", "inner.on", True),
])
def test_a_value_takes_the_type_of_its_field(change, key, value):
    before = Outer()
    after = flat_settings(override(before, [change]))
    assert after == flat_settings(before) | {key: value} and type(after[key]) is type(value)
    assert before == Outer()


@pytest.mark.parametrize(("change", "words"), [
    ("cuont=3", r"there is no setting 'cuont'. Did you mean 'count'\?"),
    ("inner.rat=3", r"there is no setting 'inner.rat'. Did you mean 'inner.rate'\?"),
    ("iner.rate=3", r"there is no setting 'iner.rate'. Did you mean 'inner.rate'\?"),
    ("outer.on=3", r"there is no setting 'outer.on'. Did you mean 'inner.on'\?"),
    ("zzz=3", "there is no setting 'zzz'. There is: count, high, inner, low, name, path, share"),
    ("inner=3", r"'inner' is a group of settings: name one of inner.rate, inner.on"),
    ("count.more=3", "'count' is one value"),
    ("count=abc", "count='abc': expected a whole number"),
    ("count=1.5", "count='1.5': expected a whole number"),
    ("count=inf", "expected a whole number"),
    ("count=nan", "expected a whole number"), ("count=", "expected a whole number"),
    ("count=true", "expected a whole number"), ("share=lots", "share='lots': expected a number"),
    ("inner.on=maybe", "inner.on='maybe': expected true or false"),
    ("inner.rate=0", "inner.rate is 0.0: it must be above 0"), ("inner.rate=none", "expected a number"),
    ("count", "'count' is not a setting: write KEY=VALUE"), ("=3", "'=3' is not a setting"),
    ("low=9", "low 9 must be below high 9"),
])
def test_a_bad_change_is_a_sentence(change, words):
    with pytest.raises(ValueError, match=words):
        override(Outer(), [change])


def test_changes_that_are_right_only_together():
    assert override(Outer(), ["rate=2", "inner.on=1"]).inner == Inner(rate=2.0, on=True)
    assert ((override(Outer(), ["low=10", "high=20"]).low, override(Outer(), ["high=20", "low=10"]).high)
            == (10, 20))
    assert override(Outer(), ["count=1", "count=2"]).count == 2  # the last one counts
    both = override(Outer(), ["inner.rate=2", "name=y", "inner.on=1"])
    assert (both.inner, both.name) == (Inner(rate=2.0, on=True), "y")


def test_a_list_is_written_with_commas():
    assert parse_value("1, 2,3", tuple[int, ...], "layers") == (1, 2, 3)
    assert parse_value("a,b", list[str], "names") == ["a", "b"]


def test_nobody_else_parses():
    """Everything but the command line and the studio's form builds configs from Python values."""
    home, found = Path(postgrad.__file__).parent, set()
    for path in home.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module == "postgrad.system.parse" or (
                    node.module == "postgrad.system" and "parse" in {name.name for name in node.names})):
                found.add(path.relative_to(home).as_posix())
    assert found == PARSERS
