"""The rest of the public names: records that are handed in and given back, tasks, and the loop by itself."""

import re
from types import SimpleNamespace

import pytest
import torch
from doors import fit
from paths import TESTS
from small import small_model

import postgrad as pg
from postgrad.models import Models
from postgrad.training import objectives
from postgrad.training.optim import Optim, OptimSettings


def test_records_are_handed_in(tmp_path):
    ask = ({"role": "user", "content": "Say a."},)
    replies = [{"role": "assistant", "content": "a" * n} for n in (1, 2, 3)]
    talks = [pg.Conversation(id=reply["content"], messages=(*ask, reply)) for reply in replies]
    pairs = [pg.Pair(id=str(n), messages=ask, chosen="a" * n, rejected="b") for n in (1, 2, 3)]
    assert fit(tmp_path, "sft", "sft", data=talks, rows_per_step=3).config["data"]["name"] == "3 rows"
    first = fit(tmp_path, "dpo", "dpo", data=pairs, pairs={"per_step": 3}).metrics()[0]
    assert first["loss"] == pytest.approx(0.6931, abs=1e-3)  # log 2: the policy is its own reference


def test_a_tracker_is_told_what_was_sampled(tmp_path):
    seen = []

    class Samples(pg.Tracker):
        def on_samples(self, step, rows):
            seen.extend(rows)

    fit(tmp_path, "nano", task="arithmetic", trackers=[Samples()])
    assert {*pg.Scored.__dataclass_fields__} >= {"rollout", "verdict"}
    assert len(seen) == 8 and all(row["token_ids"] and 0 <= row["score"] <= 1 for row in seen)


def test_a_task_by_name():
    task = pg.load_task("arithmetic")
    (prompt,) = task.prompts("train", 1, 0)
    assert isinstance(task, pg.Task) and isinstance(prompt, pg.Prompt)
    assert task.verify(prompt, task.gold(prompt)).score == task.best > task.verify(prompt, "?").score


def test_the_loop_by_itself():
    """`train` takes any batches: one row, three times over, becomes likelier."""
    tokens = torch.tensor([[1, 7, 9, 8]])
    mask = torch.tensor([[False, True, True, True]])
    batch = pg.Batch(ids=("a",), tokens=tokens, mask=mask, lengths=torch.tensor([4]), weight=mask / 3)
    models, rows = Models(policy=small_model()), []
    run = SimpleNamespace(next_step=1, log=lambda step, row: rows.append((step, row["loss"])))
    optim = Optim(models, OptimSettings(lr=1e-2), 3)
    pg.train(models, [batch] * 3, objectives.build_objective(pg.METHODS["sft"]), optim, run)
    assert [step for step, _ in rows] == [1, 2, 3] and rows[0][1] > rows[1][1] > rows[2][1]


def test_what_is_registered_is_found(monkeypatch):
    from postgrad.models import families
    from postgrad.resolve.samplers import SAMPLERS, is_sampler_name
    monkeypatch.setattr(families, "FAMILIES", dict(families.FAMILIES))
    own = pg.register_family("mine", families.Family(classes="Llama", config_defaults={}))
    assert families.find_family("mine") is own

    class Mine(pg.Sampler):
        def sample(self, prompts, n, sampling: pg.Sampling, seed):
            return []

    assert pg.register_sampler("mine", lambda policy, chat: Mine()) and is_sampler_name("mine")
    monkeypatch.delitem(SAMPLERS.entries, "mine")
    assert not is_sampler_name("mine")


def test_every_public_name_is_used_here():
    text = "".join(path.read_text() for path in TESTS.rglob("*_test.py"))
    assert not [name for name in pg.__all__ if not re.search(rf"\b(pg|postgrad)\.{name}\b", text)]
