"""A run that version 0.1 saved opens under today's names of settings, and is resumed to the same metrics."""

import json
import shutil
from pathlib import Path

import pytest

import postgrad as pg
from postgrad.runs.doctor import diagnose
from postgrad.system.throughput import repeatable

SAVED = Path(__file__).resolve().parents[1] / "assets/run-0.1"  # `postgrad train` at 6e66ba3; no weights


@pytest.fixture
def old(tmp_path):
    """As if it had been killed before its first checkpoint."""
    folder = tmp_path / "old"
    shutil.copytree(SAVED, folder)
    (folder / "checkpoints").mkdir()
    return folder


def test_it_opens(old):
    run = pg.Run.open(old)
    assert run.config["kl"] == {"coef": 0.07, "target": None, "gain": 0.2, "measure": True}
    assert run.config["ptx"] == {"coef": 0.0, "texts": None} and run.config["reward_ensemble"] == "mean"
    assert run.config["remote"]["weight_sync"] == "folder" and run.config["optim"]["virtual_ranks"] == 1
    assert (run.config["rollouts"]["async_depth"], run.config["rollouts"]["max_concurrent"]) == (0, 8)
    assert not {"anchor", "elsewhere"} & run.config.keys() and diagnose(run).steps == 2
    assert run.info["data"] == {"prompts": 8, "repeated": 0, "evaluated": 0, "leaked": 0}
    with pytest.raises(AttributeError, match="it is called evaluations now"):
        run.examinations()


def test_it_is_resumed_to_the_metrics_of_a_new_run(old, tmp_path):
    """Against a new run by today's names on the same processor: the last bits differ between processors.
    Every metric that 0.1 saved is there; some came since."""
    saved = [json.loads(line) for line in (old / "metrics.jsonl").read_text().splitlines()]
    run = pg.resume(old, display=False)
    new = pg.fit("tiny-chat", "grpo", task="arithmetic", run=tmp_path / "new", display=False, steps=2,
                 save_every=2, kl={"coef": 0.07, "measure": True, "gain": 0.2},
                 rollouts={"prompts": 8, "prompts_per_step": 2, "group_size": 2, "max_new_tokens": 8,
                           "max_concurrent": 8}, evaluation={"every": 0})
    assert run.state()["state"] == "done" and len(run.metrics()) == 2
    assert [repeatable(row) for row in run.metrics()] == [repeatable(row) for row in new.metrics()]
    assert all(repeatable(was).keys() <= now.keys() for was, now in zip(saved, run.metrics(), strict=True))
