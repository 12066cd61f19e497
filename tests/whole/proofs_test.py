"""Proofs over one harness: a page keeps what is not measured anew, bars follow from the figures, and every
test that a bar counts on exists."""

import importlib
import json
import re
import sys
from dataclasses import replace

import harness
import cookbook
import engine
import environments
import gpu_paths
import pytest
import reasoning
import rlhf
import rows
from harness import HOME, TESTS, Page, bar
from against import found

from postgrad.methods import METHODS
from postgrad.recipes.registry import PIPELINES

PAGES = {name: importlib.import_module(name).PAGE for name in (
    "foundation", "rlhf", "rows", "scale", "environments", "endpoint", "reasoning", "real_models", "mend",
    "studio", "book", "exercises", "oversight", "speed", "everyday", "house", "cookbook", "reliability",
    "engine")}
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
        "two": lambda folder: [bar("b", "1", "no", False, "pytest b")]}, [0])


def test_a_page_keeps_what_is_not_measured_anew(page, tmp_path, monkeypatch):
    for name in page.parts:
        page.measure(name, tmp_path / "first", {"level": "0.25"})
    assert [row["holds"] for row in page.write(tmp_path / "first")] == [True, False]
    monkeypatch.setattr(harness, "commit", lambda: "second")
    page.measure("two", tmp_path / "second", {})
    page.write(tmp_path / "second")
    written = json.loads((tmp_path / "topic.json").read_text())
    one, two = written["bars"]
    assert (one["measured"], one["commit"]) == ("0.25", "first") and two["commit"] == "second"
    assert (one["command"], two["command"]) == ("python proofs/x.py one", "pytest b")
    assert written["commit"] == "second" and written["tables"] == {"T": [{"x": 1}]}
    assert "| a | > 0 | 0.25 (at commit first) |" in (tmp_path / "topic.md").read_text()


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
    assert counts == {"tests/a_test.py::test_one": (2, 0, 0), "tests/a_test.py::test_two": (1, 1, 0),
                      "tests/b_test.py::test_three": (0, 0, 1)}
    held = lambda *words: harness.test_bar("", "all", list(words), counts)["holds"]  # noqa: E731
    assert held("test_one") and not held("a_test.py") and not held("test_one", "test_three")
    assert not held("test_one", "nothing")
    assert harness.test_bar("", "all", ["_test"], counts)["measured"] == "2 of 3 tests pass, 1 skipped"
    assert [harness.test_bar("", target, ["test_one"], counts)["holds"]
            for target in (">= 2, all", ">= 3, all", ">= 90 %")] == [True, False, True]


def test_a_target_that_changes_says_who_and_why(page, tmp_path):
    """a: > 0 becomes > 0.1, first without a word."""
    for name in page.parts:
        page.measure(name, tmp_path / "first", {})
    page.write(tmp_path / "first")
    changed = lambda **more: replace(page, parts=page.parts | {  # noqa: E731
        "one": lambda folder: [bar("a", "> 0.1", 0.5, True, **more)]})
    changed().measure("one", tmp_path / "second", {})
    with pytest.raises(SystemExit, match="its target was '> 0' and is '> 0.1'"):
        changed().write(tmp_path / "second")
    why = [{"target": "> 0", "by": "somebody", "why": "it was too easy"}]
    changed(earlier=why).measure("one", tmp_path / "third", {})
    changed(earlier=why).write(tmp_path / "third")
    shown = "| a | > 0.1; before: > 0 (changed by somebody: it was too easy) | 0.5 |"
    assert shown in (tmp_path / "topic.md").read_text()


def test_what_was_measured_with_uncommitted_changes_is_refused(page, tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "commit", lambda: "first with uncommitted changes")
    page.measure("one", tmp_path, {})
    with pytest.raises(SystemExit, match="one of .* was measured with uncommitted changes"):
        page.write(tmp_path)
    with pytest.raises(SystemExit, match="a page is not made from a tree"):
        harness.write("topic", "A topic", [], seeds=[0], tables={})


@pytest.mark.parametrize("target", ["reported", "listed", "yes", "green", "with intervals", "as good as R1's",
                                    "the tax with intervals, 3 seeds", "at least 1.2x, or the reason", ""])
def test_a_target_that_cannot_be_missed_is_no_bar(target):
    with pytest.raises(ValueError, match="cannot be missed"):
        bar("a", target, 1, True)


@pytest.mark.parametrize("changed, holds, said", [
    (False, True, "yes"), (False, False, "**no**"), (True, True, "stale (yes then)"),
    (True, False, "stale (**no** then)"), (None, True, "not known (yes then)")])
def test_a_bar_is_stale_when_its_code_has_changed(monkeypatch, changed, holds, said):
    asked = []
    monkeypatch.setattr(harness, "changed_since", lambda *words: asked.append(words) or changed)
    row = bar("a", "1", 1, holds, "pytest tests/training/loop_test.py") | {"commit": "abc"}
    assert harness.standing(row, {"paths": ["postgrad/models"]}) == said
    assert asked == [("abc", ("postgrad/training", "tests/training/loop_test.py"))]
    assert harness.settled(f"| 1 | {said} | x |") == f"| 1 | {'yes' if holds else '**no**'} | x |"
    assert harness.depends_on(row | {"command": "x"}, {"paths": ["postgrad/models"]}) == ("postgrad/models",)
    assert harness.standing(row | {"measured": "not measured"}, {"paths": []}) == "not measured"


def test_without_its_history_a_checkout_says_that_it_does_not_know(monkeypatch, tmp_path):
    monkeypatch.setattr(harness, "HOME", tmp_path)
    harness.changed_since.cache_clear()
    assert harness.changed_since("0123456", ("postgrad",)) is None
    harness.changed_since.cache_clear()


@pytest.mark.parametrize("path", sorted(harness.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_pages_of_results_cannot_flatter(path):
    """Every target can be missed, nothing comes from an uncommitted tree, what was typed is marked."""
    found = json.loads(path.read_text())
    for row in found["bars"]:
        assert harness.can_be_missed(row["target"]), row["name"]
        assert "uncommitted" not in row["commit"] + row["measured"] + found["commit"], row["name"]
        assert "by hand" not in row["measured"], row["name"]
        assert row.get("by_hand", False) or row.get("part") != "by_hand" or not row["holds"], row["name"]
        assert all({"target", "by", "why"} == old.keys() for old in row.get("earlier", ())), row["name"]
        assert not (row["holds"] and row["measured"] == harness.NOT_MEASURED), row["name"]


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


def test_every_row_and_pipeline_is_a_path_of_the_gpu():
    assert {*METHODS, *PIPELINES, "pretrain", *gpu_paths.LONG} <= {*gpu_paths.PATHS}
    assert gpu_paths.relative({"loss": 1e-9, "grad_norm": 2.0}, {"loss": -1e-9, "grad_norm": 1.9}) == (
        pytest.approx(0.05))


def test_lines_of_the_endpoint_hold_where_speed_ratio_and_growth_do():
    def held(stream=True, **change):
        line = {"chats": 64, "stream": stream, "seconds": 30, "commit": "c10deea8", "tokens/s": 41_000.0,
                "ratio": 0.8, "first token ms p50": 25.0}
        more = line | {"chats": 256, "tokens/s": 95_000.0}
        return [b["holds"] for b in engine.chat_bars([more, line | change], stream)]

    assert held() == [True] * 6 and len(held(stream=False)) == 5
    for change, fails in (({"ratio": 0.6}, {3}), ({"tokens/s": 96_000.0}, {5}),
                          ({"first token ms p50": 31.0}, {4}), ({"tokens/s": 39_000.0}, {2})):
        assert held(**change) == [i not in fails for i in range(6)]


def test_recipes_hold_where_all_of_them_learned_in_time_with_three_seeds():
    def results(minutes=4.9):
        return {name: {"curve": [0.1, 0.3] * 5 + [0.4] * 5 if recipe.rises else [0.4] * 5 + [0.3, 0.1] * 5,
                       "minutes": minutes, "cpu": 1.0, "load": 1.0}
                for name, recipe in cookbook.RECIPES.items()}

    def held(*seeds):
        return [row["holds"] for row in cookbook.recipe_bars(dict(enumerate(seeds)))[0]]

    assert held(results(), results(), results()) == [True] * 3
    assert held(results(), results(5.1), results()) == [True, False, True]
    assert held(results()) == [True, True, False]
    flat = results() | {"sl_loop": {"curve": [0.4] * 15, "minutes": 1.0, "cpu": 1.0, "load": 1.0}}
    assert held(results(), flat, results()) == [True, True, False]
    assert held({name: row for name, row in results().items() if name != "rl_loop"}) == [False] * 3


def test_one_test_less_than_rows_does_not_hold():
    counts = {test: (sum(kind in ("", row.kind) for row in METHODS.values()), 0, 0)
              for test, kind in rows.ONE_A_ROW.values()}
    assert all(b["holds"] for b in rows.by_row(counts))
    counts[rows.LEARNS] = len(METHODS) - 1, 0, 0
    assert [b["holds"] for b in rows.by_row(counts)].count(False) == 1
    skipped = {f"{h.file}::{h.test}": (0, 0, 1) for h in found()}
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


def test_the_preregistered_claims_are_counted_over_all_ten_seeds():
    def rows(seeds, missed=0):
        return [{"seed": s, "KL weight": w, "fall": 0.04 if w or s < 100 + missed else 0.2,
                 "proxy rises": True, "end": 0.5 + 0.01 * s if w else 0.3}
                for s in seeds for w in (0.0, rlhf.LEASH)]

    ten = rlhf.PREREGISTERED
    assert ten == list(range(100, 110))
    assert [b["holds"] for b in rlhf.preregistered_bars(rows(ten, 2))] == [True, True, True]
    assert [b["holds"] for b in rlhf.preregistered_bars(rows(ten, 3))] == [False, True, True]
    assert not any(b["holds"] for b in rlhf.preregistered_bars(rows(ten[:7])))


@pytest.mark.parametrize("greedy, holds", [(0.15, True), (0.12, False)])
def test_gsm8k_holds_by_the_mean_of_three_seeds(greedy, holds):
    within = {"pass@1_interval": [0.1, 0.2], "greedy_interval": [0.1, 0.2], "pass@8": 0.3, "problems": 1319}
    figures = lambda sampled, greedy: {  # noqa: E731
        "pass@1": sampled, "greedy": greedy, "lenient": sampled, "greedy_lenient": greedy, **within}
    done = {seed: {"sft": figures(0.06, 0.09), "grpo": figures(0.09, 0.11), "last": figures(sampled, greedy)}
            for seed, sampled in zip(reasoning.SEEDS, (0.11, 0.12, 0.14), strict=True)}
    (first, minutes), tables = reasoning.gsm8k_bars(done, 1400 / 60)
    assert first["holds"] is holds
    assert first["measured"].startswith(f"12.3 % and {100 * greedy:.1f} %: seed 3")
    assert "9.0 % and 11.0 %" in tables[harness.FIGURES][1]["measured"]
    assert (minutes["measured"], minutes["holds"]) == ("23.3", True)
