"""The proof of the environments is put together from files: what is absent or falls short does not hold."""

import json

import environment_bars
import environments
import pytest
import results

ROW = {"form": 0.3, "grpo": 0.75, "minutes": 4.0, "observed tokens": 9, "of them in the loss": 0.0}
TALK = {"conversations": 1000, "went on": 3, "new rows": 1, "differ": 0}
DOOR = {"package": "p 1", "collections": 12, "errors": 0.0, "reward_first": 0.5, "reward_last": 0.4,
        "before": 0.1, "after": 0.2}
FIGURE = {"problems": 200, "postgrad eval": 0.1, "local-chat-completions": 0.1, "inspect-ai": 0.1,
          "equal": True, "replies that differ": 0}
BARS = 22


def elsewhere(folder):
    """What other scripts leave where all is well."""
    doors = [{"door": door} | DOOR | ({"reward_last": 0.6} if door == "trl" else {})
             for door in environment_bars.DOORS]
    served = [results.bar(f"{name} ...", target, "", True, "")
              for name, target in environment_bars.SERVED.items()]
    once = {"same bits": True, "time": 1.01, "log-probs apart": 0.0}
    for name, what in {"single-turn": once, "adapters": doors, "serving": served,
                       "kills": [{"differences": []}] * 20}.items():
        (folder / f"{name}.json").write_text(json.dumps(what))
    tests = [name.split(".py::") for names in environment_bars.TESTS.values() for name in names]
    cases = "".join(f'<testcase classname="{file.replace("/", ".")}" name="{test}"/>' for file, test in tests)
    (folder / "tests.xml").write_text(f"<testsuite>{cases}</testsuite>")
    (folder / "results").mkdir(exist_ok=True)
    rows = [{"task": task} | FIGURE for task, _ in environment_bars.HARNESSES.values()]
    (folder / "results/harnesses.json").write_text(json.dumps({"tables": {"Figures": rows}}))


def written(folder, monkeypatch, row=None, talk=None, leave_out=""):
    """The bars of a folder in which all is well but for one game's row, one template's, or one file."""
    monkeypatch.setattr(results, "RESULTS", folder / "results")
    for name, seeds in environments.SEEDS.items():
        for seed in seeds:
            tool = {"form": 0.05, "grpo": 0.9} if name == environments.TOOL else {}
            changed = row if (name, seed) == (environments.TOOL, seeds[1]) and row else {}
            made = {"game": name, "seed": seed, **ROW, **tool, **changed}
            (folder / f"{name}-{seed}.json").write_text(json.dumps(made))
    for style in environments.STYLES:
        made = {"template": style, **TALK, **(talk if style == "ours" and talk else {})}
        (folder / f"extend-{style}.json").write_text(json.dumps(made))
    elsewhere(folder)
    if leave_out:
        (folder / leave_out).unlink()
    return held(folder)


def held(folder):
    """Which of the bars hold that are written of a folder."""
    environments.write(folder)
    return [bar["holds"] for bar in json.loads((folder / "results/environments.json").read_text())["bars"]]


@pytest.mark.parametrize(("change", "fails"), [
    ({}, None), ({"leave_out": "guess-5.json"}, 0), ({"leave_out": "animals-3.json"}, 1),
    ({"row": {"form": 0.1}}, 2), ({"row": {"grpo": 0.8}}, 2), ({"row": {"minutes": 5.1}}, 3),
    ({"row": {"of them in the loss": 1e-9}}, 4), ({"talk": {"differ": 1}}, 5),
    ({"talk": {"conversations": 999}}, 5), ({"leave_out": "extend-llama3.json"}, 5)])
def test_a_bar_holds_where_all_of_it_was_measured_and_is_met(change, fails, tmp_path, monkeypatch):
    assert written(tmp_path, monkeypatch, **change) == [i != fails for i in range(BARS)]


def test_nothing_measured_holds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    assert not any(held(tmp_path))


@pytest.mark.parametrize(("file", "old", "new", "fails"), [
    ("single-turn.json", "1.01", "1.06", [6]), ("single-turn.json", "true", "false", [6]),
    ("tests.xml", '_client"/>', '_client"><failure/></testcase>', [8]),
    ("tests.xml", "test_of_a_later", "test_of_another", [7]),
    ("adapters.json", '"errors": 0.0', '"errors": 1.0', [9]), ("adapters.json", "0.6", "0.5", [12]),
    ("serving.json", "throughput", "thought", [13]), ("kills.json", "[]", '["weights"]', [21]),
    ("results/harnesses.json", '"equal": true', '"equal": false', [19])])
def test_a_bar_of_another_script_holds_where_it_says_so(file, old, new, fails, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    elsewhere(tmp_path)
    before = held(tmp_path)[6:]
    (tmp_path / file).write_text((tmp_path / file).read_text().replace(old, new, 1))
    assert all(before) and [i for i, good in enumerate(held(tmp_path)) if not good and i >= 6] == fails
