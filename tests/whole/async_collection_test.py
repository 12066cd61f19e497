"""Sampling ahead of training: by counting, in order, nothing lost and nothing twice; K = 0 is as ever."""

import threading

import pytest
import torch
from doors import facts, fit
from remote_small import begin, sampler_of, saying

import postgrad as pg
from postgrad.models import Adapters
from postgrad.models.lora import with_adapter
from postgrad.recipes.samplers import OLDER, open_sampler, row_logp
from postgrad.resolve.handles import start_folder, take_weights
from postgrad.resolve.models import open_writer
from postgrad.resolve.weights import current_weights
from postgrad.sampling import SamplerFault
from postgrad.sampling.remote import SpotCheck
from postgrad.training.batches.async_collector import AsyncCollector, Collection
from tests.sampling.remote_test import SMALL, config, equal, override, remote_settings

STEPS = {**SMALL, "steps": 4, "save_every": 2}


class Log:
    """A source that says which weights were used when."""

    def __init__(self):
        self.now, self.checked = None, []

    def keep(self, step):
        def use():
            self.now = step
        return use

    def check(self, step, behind):
        self.checked.append((step, behind))


def ahead_of(depth):
    log, drawn = Log(), []

    def collect(number, step):
        assert log.now == step
        drawn.append(number)
        return Collection([], [], {}, step)
    return AsyncCollector(depth, collect, log), log, drawn


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_slot_is_free_when_the_weights_are_there(depth):
    """Collection c is written by the weights after collection c - depth - 1; each once, in order."""
    ahead, log, drawn = ahead_of(depth)
    taken = [ahead.take(step, 9 - step).step for step in range(9)]
    assert taken == [max(0, c - depth) for c in range(9)]
    assert drawn == [*range(1, 10)] and not ahead.begun  # no more than were needed
    assert log.checked == [(made, c - made) for c, made in enumerate(taken)]


def test_what_was_begun_is_kept(depth=2):
    ahead, _, _ = ahead_of(depth)
    before = [ahead.take(step, 9 - step).step for step in range(4)]
    again, _, drawn = ahead_of(depth)
    again.restore(ahead.state(), {})
    after = [again.take(step, 9 - step).step for step in range(4, 9)]
    assert before + after == [max(0, c - depth) for c in range(9)] and drawn == [7, 8, 9]


def test_a_fault_of_the_sampler_is_the_trainings_and_nothing_is_drawn_after_it(monkeypatch):
    def collect(number, step):
        calls.append(number)
        raise ValueError(f"collection {number} failed")
    calls = []
    ahead = AsyncCollector(2, collect, Log())
    for _ in range(2):
        with pytest.raises(ValueError, match="collection 1 failed"):
            ahead.take(0, 9)
    assert calls == [1]
    monkeypatch.setenv("POSTGRAD_TIMEOUT", "0.01")
    with pytest.raises(ValueError, match="collection 1 did not come within 0.02 s"):
        AsyncCollector(1, lambda number, step: threading.Event().wait(1), Log()).take(0, 9)


def stopped(folder, at, sampler=None, **more):
    """A run that ends with a fault after a step, gone on with. sampler: where it finds one then."""
    def fail(step, row):
        if step == at:
            raise RuntimeError("killed")
    with pytest.raises(RuntimeError, match="killed"):
        fit(folder, name="stopped", **STEPS, callback=fail, **more)
    return pg.resume(folder / "stopped", display=False, sampler=sampler)


def test_a_run_ahead_in_process_and_over_the_endpoint_and_after_a_stop_is_one_run(tmp_path):
    how = {"async_depth": 1}
    alone = fit(tmp_path, name="alone", **STEPS, **how)
    rows = facts(alone)
    assert [row["staleness"] for row in rows] == [0, 1, 1, 1]
    assert all({"mismatch_kl", "effective_share", "time/wait"} <= row.keys() for row in alone.metrics())
    assert rows[0]["mismatch_kl"] < 1e-9 < rows[-1]["mismatch_kl"]
    with sampler_of(begin(tmp_path / "w")) as address, sampler_of(tmp_path / "w") as other:
        there = fit(tmp_path, name="there", **STEPS, **how, **remote_settings(tmp_path / "w", address))
        assert equal(alone, there)
        assert equal(alone, stopped(tmp_path, 3, other, **how, **remote_settings(tmp_path / "w", address)))
    with pytest.raises(ValueError, match="samples in its own process"):
        pg.resume(alone.folder, display=False, sampler="http://127.0.0.1:1", steps=9)


def goes_far(folder, *changes, lora=0, off=0.0):
    """Six collections, two ahead, of a policy that moves far at every step; off: how wrong the log-probs of
    its sampler are from the fourth on."""
    net, chat = open_writer("tiny-chat")
    draw, where = torch.Generator().manual_seed(0), folder / "w"
    if lora:
        net = with_adapter(net, Adapters(lora=lora), draw)

    def answer(path, body):
        said = current_weights(where)[1]
        return {"policy_step": said.step, "weights": said.name, "gpu": ""}

    def there():
        """The model that a sampler has."""
        path, said = current_weights(where)
        model = open_writer(path if path.is_dir() else start_folder(path))[0]
        if not path.is_dir():
            model.load_state_dict(take_weights(path, "cpu"))
        return model, said.name

    with saying(answer) as address:
        how = override(config(), ["async_depth=2", f"sampler={address}", f"weights={where}", *changes])
        sampler, source = open_sampler(how, net, chat)
        moved = []

        def collect(number, step):
            model, name = there()
            row = SpotCheck(address, name, [1, 5], [7, 8, 9], [0.0] * 3)
            logp = [x - (off if number > 3 else 0) for x in row_logp(source.config, model, [row])[0]]
            sampler.spot_checks.setdefault(step, []).append(row._replace(logp=logp))
            return Collection([], [], {"logp": sum(logp)}, step)

        line = AsyncCollector(2, collect, source)
        for step in range(6):
            made = line.take(step, 6 - step)
            row = SpotCheck(address, "", [1, 5], [7, 8, 9], [])
            moved.append(abs(sum(row_logp(source.config, net, [row])[0]) - made.facts["logp"]) / 3)
            with torch.no_grad():
                for p in net.parameters():
                    if p.requires_grad:
                        p += p.std() * torch.randn(p.shape, generator=draw) + 0.05 * bool(lora)
    return moved


WAYS = [([], 0), ([], 2), (["weight_sync=vllm"], 0)]


@pytest.mark.parametrize("changes, lora", WAYS)
def test_a_sampler_is_sound_however_far_the_policy_has_moved_since(tmp_path, changes, lora):
    """Rows that are off the present policy are held against the weights that wrote them."""
    assert max(goes_far(tmp_path, *changes, lora=lora)) > OLDER


@pytest.mark.parametrize("changes, lora", WAYS)
def test_a_sampler_of_other_weights_is_named_however_old_they_are(tmp_path, changes, lora):
    with pytest.raises(SamplerFault, match="has other weights than those of step [123].* off by 0.2"):
        goes_far(tmp_path, *changes, lora=lora, off=0.2)
