"""The proof of the environments is put together from files: what is absent or falls short does not hold."""

import json

import environments
import pytest
import results

ROW = {"form": 0.3, "grpo": 0.75, "minutes": 4.0, "observed tokens": 9, "of them in the loss": 0.0}
TALK = {"conversations": 1000, "went on": 3, "new rows": 1, "differ": 0}


def written(folder, monkeypatch, row=None, talk=None, leave_out=""):
    """The bars of a folder in which all is well but for one game's row, one template's, or one file."""
    monkeypatch.setattr(results, "RESULTS", folder / "results")
    for seed in environments.SEEDS:
        for name in (*environments.GAMES, environments.TOOL):
            tool = {"form": 0.05, "grpo": 0.9} if name == environments.TOOL else {}
            changed = row if (name, seed) == (environments.TOOL, 1) and row else {}
            made = {"game": name, "seed": seed, **ROW, **tool, **changed}
            (folder / f"{name}-{seed}.json").write_text(json.dumps(made))
    for style in environments.STYLES:
        made = {"template": style, **TALK, **(talk if style == "ours" and talk else {})}
        (folder / f"extend-{style}.json").write_text(json.dumps(made))
    if leave_out:
        (folder / leave_out).unlink()
    return held(folder)


def held(folder):
    """Which of the bars hold that are written of a folder."""
    environments.write(folder)
    return [bar["holds"] for bar in json.loads((folder / "results/environments.json").read_text())["bars"]]


@pytest.mark.parametrize(("change", "fails"), [
    ({}, None), ({"leave_out": "guess-2.json"}, 0), ({"leave_out": "animals-0.json"}, 1),
    ({"row": {"form": 0.1}}, 2), ({"row": {"grpo": 0.8}}, 2), ({"row": {"minutes": 5.1}}, 3),
    ({"row": {"of them in the loss": 1e-9}}, 4), ({"talk": {"differ": 1}}, 5),
    ({"talk": {"conversations": 999}}, 5), ({"leave_out": "extend-llama3.json"}, 5)])
def test_a_bar_holds_where_all_of_it_was_measured_and_is_met(change, fails, tmp_path, monkeypatch):
    assert written(tmp_path, monkeypatch, **change) == [i != fails for i in range(6)]


def test_nothing_measured_holds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    assert not any(held(tmp_path))
