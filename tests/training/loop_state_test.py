"""The loop's state, its step and its signals: a restored state has one future,
a step follows its settings."""

import itertools
import math
import signal

import pytest
import torch
from loop_small import SFT, Descent, conversations, identical, new_run, rollouts, weights
from small import CHAT, small_model, small_models

from postgrad.methods import METHODS
from postgrad.models import Models, load_model
from postgrad.models.checkpoint import copy_state, read_state
from postgrad.system.processes import Lost
from postgrad.system.signals import stop_on_signal
from postgrad.training import objectives
from postgrad.training.loop import restore_state, state_of, train
from postgrad.training.optim import Optim, OptimSettings

# the state

def build(kind):
    if kind == "sft":
        models = Models(policy=small_model())
        batches, method = conversations(8), METHODS["sft"]
    else:
        models, method = small_models(), METHODS["ppo"]
        batches = rollouts(method, models, 8, epochs=2, minibatches=2)
    optim = Optim(models, OptimSettings(lr=1e-2, schedule="cosine", warmup=3, weight_decay=0.01), 8)
    return models, batches, objectives.build_objective(method), optim


@pytest.mark.parametrize("kind", ["sft", "ppo"])
@pytest.mark.parametrize("at", [1, 3, 4, 6])
def test_a_restored_run_goes_on_to_the_same_bits(kind, at, tmp_path):
    models, batches, objective, optim = build(kind)
    train(models, batches, objective, optim, new_run(tmp_path, "whole"))
    whole = weights(models)
    models, batches, objective, optim = build(kind)
    run = new_run(tmp_path, "parts")
    train(models, itertools.islice(batches, at), objective, optim, run)
    copy_state(state_of(models, optim, batches), policy=models.policy, chat=CHAT)(tmp_path)
    drawn = torch.rand(3), torch.rand(3)
    again, batches, objective, optim = build(kind)
    again.policy.load_state_dict(load_model(tmp_path).state_dict())
    restore_state(read_state(tmp_path), again, optim, batches)
    assert identical(weights(again), weights(models)) and torch.equal(torch.rand(3), drawn[0])
    train(again, batches, objective, optim, run)
    assert identical(weights(again), whole)
    assert [r["step"] for r in run.rows("metrics")[0]] == list(range(1, 9))


def test_the_optimizer_takes_its_moments_back_bit_for_bit(tmp_path):
    models, batches, objective, optim = build("sft")
    train(models, itertools.islice(batches, 3), objective, optim, new_run(tmp_path))
    copy_state(optim.state(), policy=models.policy, chat=CHAT)(tmp_path)
    other = Optim(models, optim.settings, 8)
    other.restore(read_state(tmp_path))
    a, b = optim.adam.state, other.adam.state
    assert a.keys() == b.keys() and all(identical(a[i], b[i]) for i in a) and a[0]["exp_avg"].any()


# the step

def test_the_learning_rate_follows_its_schedule(tmp_path):
    models = Models(policy=small_model())
    run = new_run(tmp_path)
    after = [weights(Models(policy=small_model()))]
    optim = Optim(models, OptimSettings(lr=1e-3, schedule="linear", warmup=2, max_grad_norm=1e9), 6)
    rates, update = [], optim.adam.step
    optim.adam.step = lambda lr: rates.append(lr) or update(lr)
    train(models, conversations(6), SFT, optim, run, [lambda now: after.append(weights(models))])
    wanted = [5e-4, 1e-3, 1e-3, 7.5e-4, 5e-4, 2.5e-4]
    assert rates == [r["lr"] for r in run.rows("metrics")[0]] == pytest.approx(wanted)
    change = max((after[1][k] - after[0][k]).abs().max().item() for k in after[0])
    assert change == pytest.approx(5e-4, rel=1e-2)  # Adam's first step moves a weight by the learning rate


def test_the_gradient_is_clipped_and_its_norm_is_logged(tmp_path):
    batch, norms = next(iter(conversations(1))), {}
    for clip in (1e9, 0.01):
        models = Models(policy=small_model())
        before = weights(models)
        optim = Optim(models, OptimSettings(lr=1e-3, max_grad_norm=clip), 1)
        optim.adam = Descent(optim.params)
        run = new_run(tmp_path, f"run{clip}")
        train(models, [batch], SFT, optim, run)
        step = sum((weights(models)[k] - before[k]).double().square().sum().item()
                   for k in before) ** 0.5 / 1e-3
        norms[clip] = run.rows("metrics")[0][0]["grad_norm"], step
    assert norms[0.01][0] == pytest.approx(norms[1e9][0]) == pytest.approx(norms[1e9][1], rel=1e-3)
    assert norms[1e9][0] > 0.1 and norms[0.01][1] == pytest.approx(0.01, rel=1e-2)


def test_what_is_frozen_is_not_touched(tmp_path):
    models = small_models()
    models.policy.model.embed_tokens.weight.requires_grad_(False)
    before, reference = weights(models), {k: v.clone() for k, v in models.reference.state_dict().items()}
    batches = rollouts(METHODS["ppo"], models, 2)
    train(models, batches, objectives.build_objective(METHODS["ppo"]), Optim(models, OptimSettings(lr=1e-2),
                                                                             2),
          new_run(tmp_path))
    after = weights(models)
    frozen = {k for k in before if torch.equal(before[k], after[k])}
    assert (frozen == {"policy.model.embed_tokens.weight"}
            and {k.split(".")[0] for k in after} == {"policy", "critic"})
    assert identical(reference, models.reference.state_dict())


@pytest.mark.parametrize(("settings", "words"), [
    (dict(lr=0.0), "optim.lr is 0.0"), (dict(lr=-1e-3), "optim.lr is -0.001"),
    (dict(lr=math.nan), "optim.lr is nan"), (dict(lr=math.inf), "optim.lr is inf"),
    (dict(lr=1e-3, schedule="cosin"), "optim.schedule is 'cosin': expected constant"),
    (dict(lr=1e-3, tokens_per_pass=0), "optim.tokens_per_pass is 0"),
    (dict(lr=1e-3, max_grad_norm=0.0), "max_grad_norm is 0.0"),
])
def test_settings_out_of_range(settings, words):
    with pytest.raises(ValueError, match=words):
        OptimSettings(**settings)


# signals

def test_where_a_rank_is_lost_its_sentence_comes_before_the_signal_that_torchrun_sends():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Lost), stop_on_signal():
            raise Lost("rank 1 died")
        signal.raise_signal(signal.SIGTERM)  # while checkpoint and log are brought to their end
        assert signal.getsignal(signal.SIGINT) == before[0]
    finally:
        signal.signal(signal.SIGTERM, before[1])


def test_the_first_signal_is_noted_and_the_second_ends():
    # a shell may have started us in the background, deaf to it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_on_signal() as stop:
        assert stop() is None
        signal.raise_signal(signal.SIGTERM)
        assert stop() == signal.SIGTERM
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    with pytest.raises(KeyboardInterrupt), stop_on_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop() == signal.SIGINT
        signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
