"""Proofs over one harness: a page keeps what is not measured anew, bars follow from the figures, and every
test that a bar counts on exists."""

import importlib
import json
import re
import sys

import harness
import environments
import pytest
import reasoning
import rows
from harness import HOME, TESTS, Page, bar
from against import found

from postgrad.methods import METHODS

PAGES = {name: importlib.import_module(name).PAGE for name in (
    "foundation", "rlhf", "rows", "scale", "environments", "endpoint", "reasoning", "real_models", "mend",
    "studio", "book", "exercises", "oversight", "speed")}
CASES = """<testsuites><testsuite>
<testcase classname="tests.a_test" name="test_one[x]"/><testcase classname="tests.a_test" name="test_one[y]"/>
<testcase classname="tests.a_test" name="test_two"><failure/></testcase>
<testcase classname="tests.b_test" name="test_three"><skipped/></testcase></testsuite></testsuites>"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page of two parts, and what runs the script."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "commit", lambda: "first")
    monkeypatch.setattr(sys, "argv", [str(HOME / "proofs/x.py")])
    return Page("topic", "A topic", {
        "one": lambda folder, level="0.5": ([bar("a", "> 0", level, float(level) > 0)], {"T": [{"x": 1}]}),
        "two": lambda folder: [bar("b", "yes", "no", False, "pytest b")]}, [0])


def test_a_page_keeps_what_is_not_measured_anew(page, tmp_path, monkeypatch):
    for name in page.parts:
        page.measure(name, tmp_path / "first", {"level": "0.25"})
    assert [row["holds"] for row in page.write(tmp_path / "first")] == [True, False]
    monkeypatch.setattr(harness, "commit", lambda: "second")
    page.measure("two", tmp_path / "second", {})
    page.write(tmp_path / "second")
    written = json.loads((tmp_path / "topic.json").read_text())
    one, two = written["bars"]
    assert one["measured"].startswith("0.25 (at commit first, ") and two["measured"] == "no"
    assert (one["command"], two["command"]) == ("python proofs/x.py one", "pytest b")
    assert written["commit"] == "second" and written["tables"] == {"T": [{"x": 1}]}
    assert "| a | > 0 | 0.25" in (tmp_path / "topic.md").read_text()


def test_what_is_there_is_not_measured_again(page, tmp_path):
    page.measure("one", tmp_path, {"level": "1"})
    page.measure("one", tmp_path, {"level": "2"})
    assert json.loads((tmp_path / "one.json").read_text())["bars"][0]["measured"] == "1"


def test_a_folder_with_nothing_measured_writes_no_page(page, tmp_path):
    with pytest.raises(SystemExit, match="nothing that was measured"):
        page.write(tmp_path / "empty")


def test_tests_are_counted_by_function(tmp_path):
    path = tmp_path / "tests.xml"
    path.write_text(CASES)
    counts = harness.counted(path)
    assert counts == {"tests/a_test.py::test_one": (2, 0), "tests/a_test.py::test_two": (1, 1),
                      "tests/b_test.py::test_three": (0, 0)}
    held = lambda *words: harness.test_bar("", "", list(words), counts)["holds"]  # noqa: E731
    assert held("test_one") and not held("a_test.py") and not held("test_one", "test_three")
    assert not held("test_one", "nothing")


def test_the_tests_that_are_counted_exist():
    names = {f"{path.relative_to(HOME).as_posix()}::{name}" for top in ("tests", "postgrad")
             for path in (HOME / top).rglob("*_test.py")
             for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}
    words = {word for topic in TESTS.values() for some in topic["bars"].values() for word in some}
    words |= {test for test, _ in rows.ONE_A_ROW.values()} | set(sum(rows.EXACT.values(), ()))
    assert {word for word in words if not any(word in name for name in names)} == set()


@pytest.mark.parametrize("script", PAGES)
def test_every_bar_of_a_page_belongs_to_a_part(script):
    page = PAGES[script]
    for row in json.loads((harness.RESULTS / f"{page.topic}.json").read_text())["bars"]:
        assert row["part"] in (*page.parts, "by_hand"), (page.topic, row["name"])


def test_games_hold_where_all_of_them_were_played_and_are_met():
    row = {"form": 0.3, "grpo": 0.75, "minutes": 4.0}
    tool = {"form": 0.05, "grpo": 0.9}
    played = [{"game": name, "seed": seed, **row, **(tool if name == "big-numbers" else {})}
              for name, seeds in environments.SEEDS.items() for seed in seeds]

    def held(change):
        return [b["holds"] for b in environments.game_bars(played[:-1] + [played[-1] | change])]

    assert held({}) == [True] * 4
    for change, fails in (({"form": 0.1}, 2), ({"grpo": 0.8}, 2), ({"minutes": 5.1}, 3)):
        assert held(change) == [i != fails for i in range(4)]
    assert [b["holds"] for b in environments.game_bars(played[1:])] == [False, True, True, True]
    assert not any(b["holds"] for b in environments.game_bars([]))


def test_one_test_less_than_rows_does_not_hold():
    counts = {test: (sum(kind in ("", row.kind) for row in METHODS.values()), 0)
              for test, kind in rows.ONE_A_ROW.values()}
    assert all(b["holds"] for b in rows.by_row(counts))
    counts[rows.LEARNS] = len(METHODS) - 1, 0
    assert [b["holds"] for b in rows.by_row(counts)].count(False) == 1
    skipped = {f"{h.file}::{h.test}": (0, 0) for h in found()}
    assert not any(rows.by_library(name, skipped)["holds"] for name in rows.EXACT)


def run_of(name, rate, seed, passed):
    return {"row": name, "rate": rate, "seed": seed, "pass@1": passed, "interval": [0.3, 0.5], "first": 0.2,
            "updates": 160, "pass@8": 0.9, "length": 50.0, "clipped": 0.01, "ratio_max": 2.0 + seed,
            "entropy": 0.1, "samples": 5120}


def test_the_bake_off_takes_the_best_rate_and_has_a_line_a_row():
    tried = [run_of("a", rate, seed, passed) for seed in (10, 11)
             for rate, passed in ((1e-4, 0.5), (3e-4, 0.7), (1e-3, 0.7))]
    assert rows.best_rate(tried, "a") == "0.0003"  # the lower of two equals
    found = [run_of(name, 1e-4, seed, 0.4 + 0.1 * seed * (name == "b"))
             for name in "ab" for seed in rows.REPORTED]
    best, last = rows.table(found)
    assert (best["row"], last["row"]) == ("b", "a") and best["mean pass@1"] == pytest.approx(0.5)
    assert best["seed 2"] == "0.600 (0.300 to 0.500)" and best["largest ratio"] == 4.0
    (said,) = rows.baked(found)
    assert said["holds"] and "2 rows x 3 seeds, 5,120 samples each, from 20.0%" in said["measured"]
    assert not rows.baked(found[:-1])[0]["holds"]


@pytest.mark.parametrize("greedy, holds", [(0.15, True), (0.12, False)])
def test_gsm8k_holds_by_the_mean_of_three_seeds(tmp_path, greedy, holds):
    within = {"pass@1_interval": [0.1, 0.2], "greedy_interval": [0.1, 0.2], "pass@8": 0.3, "problems": 1319}
    figures = lambda sampled, greedy: {  # noqa: E731
        "pass@1": sampled, "greedy": greedy, "lenient": sampled, "greedy_lenient": greedy, **within}
    for number, (seed, sampled) in enumerate(zip(reasoning.SEEDS, (0.11, 0.12, 0.14), strict=True)):
        (tmp_path / f"gsm8k-{seed}").mkdir()
        measured = {"sft": figures(0.06, 0.09), "grpo": figures(0.09, 0.11), "last": figures(sampled, greedy)}
        (tmp_path / f"gsm8k-{seed}/summary.json").write_text(json.dumps({"measured": measured}))
        (tmp_path / f"clock-{seed}.json").write_text(json.dumps({"began": 60.0 * number, "ended": 1400.0}))
    first, *reported, minutes = reasoning.gsm8k_bars(tmp_path)
    assert first["holds"] is holds
    assert first["measured"].startswith(f"12.3 % and {100 * greedy:.1f} %: seed 3")
    assert all(b["holds"] for b in reported) and "9.0 % and 11.0 %" in reported[1]["measured"]
    assert (minutes["measured"], minutes["holds"]) == ("23.3", True)
