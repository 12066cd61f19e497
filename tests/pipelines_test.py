"""The pipelines that ship: each cut at everything it does, and gone on with to the same bits."""

import json

import pytest
from pipeline_small import cut_everywhere, left_in
from rlhf_small import SMALL as FEW

from postgrad import recipes
from postgrad.cli import main
from postgrad.recipes.pipelines.stages import Stage
from postgrad.run import Run
from postgrad.settings import flat, override

SMALL = {
    "instruct": "sft_steps=2 pairs=8 reward_steps=2 collections=1 problems=2 samples=2".split(),
}


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Small collections, short replies, a checkpoint at every step: what pipelines leave to the recipes."""
    few = {k: v for k, v in FEW.items() if k not in ("steps", "seed", "head.heads")}
    few |= {"rows_per_step": 4, "examples": 16, "rollouts.collections": 1}
    start = Stage.carry_out

    def small(self, *args):
        known = flat(self.config)
        words = [f"{k}={v}" for k, v in few.items() if k in known]
        object.__setattr__(self, "config", override(self.config, words))
        return start(self, *args)

    monkeypatch.setattr(Stage, "carry_out", small)


def carried_out(name, folder, watch=None):
    recipe, config = recipes.resolve(name, SMALL[name])
    return recipes.start(recipe, config, folder, watch=watch, command=f"postgrad train {name}")


@pytest.mark.parametrize("name", SMALL)
def test_cut_at_everything_it_does_it_ends_the_same(name, tmp_path):
    whole = carried_out(name, tmp_path / "whole")
    cuts = cut_everywhere(lambda watch: carried_out(name, tmp_path / "cut", watch))
    stages = [step["name"] for step in json.loads((tmp_path / "cut/pipeline.json").read_text())["steps"]]
    assert len(cuts) > 2 * len(stages)
    assert left_in(tmp_path / "cut") == left_in(tmp_path / "whole")
    assert whole["tables"] and whole["minutes"] > 0


def test_instruct_is_sft_a_reward_model_and_ppo_with_text(tmp_path, capsys):
    folder = tmp_path / "a"
    assert main(["train", "instruct", *SMALL["instruct"], "--run", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "True quality on 2 held-out prompts" in out and "Reward model" in out
    runs = {name: Run.open(folder / name) for name in ("sft", "reward", "ppo")}
    assert [runs[name].info["model"] for name in runs] == ["tiny", f"{folder}/sft", f"{folder}/sft"]
    assert runs["ppo"].config["reward"] == f"{folder}/reward" and runs["ppo"].config["anchor"]["ptx"] == 0.1
    assert [p["name"] for p in json.loads((folder / "summary.json").read_text())["policies"]] == [
        "base", "sft", "ppo"]
