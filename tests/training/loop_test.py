"""The loop: it trains, a step that is not finite changes nothing, any split is one update,
a restored state one future."""

import copy
import itertools
import math
from dataclasses import replace

import pytest
import torch
from loop_small import POLICY, SFT, Descent, conversations, identical, new_run, rollouts, weights
from small import small_model

from postgrad.methods import METHODS, change
from postgrad.models import Models, ScalarModel, load_model
from postgrad.models.cuda_graphs import PassGraphs
from postgrad.training import objectives
from postgrad.training.loop import SKIPS_IN_A_ROW, train
from postgrad.training.optim import Optim, OptimSettings


def test_one_loop_trains(tmp_path):
    models, run, seen = Models(policy=small_model()), new_run(tmp_path), []
    optim = Optim(models, OptimSettings(lr=1e-2, tokens_per_pass=40), steps=30)
    train(models, conversations(30), SFT, optim, run,
          [lambda now: seen.append(now), lambda now: seen.append(now.step)])
    rows, _ = run.rows("metrics")
    assert [r["step"] for r in rows] == list(range(1, 31))
    assert (rows[-1]["loss"] < 0.5 * rows[0]["loss"]
            and all(r["skipped"] == 0 and r["grad_norm"] > 0 for r in rows))
    assert ({"loss", "entropy", "grad_norm", "lr", "skipped", "tokens", "time/step", "time/train"}
            <= rows[0].keys())
    assert seen[1::2] == list(range(1, 31)) and [now.step for now in seen[::2]] == seen[1::2]
    assert (seen[0].models is models and seen[0].row["loss"] == rows[0]["loss"]
            and len(seen[0].stats.columns["logp"]) == 4)


def test_the_logged_loss_is_the_mean_over_trained_tokens(tmp_path):
    models, run = Models(policy=small_model()), new_run(tmp_path)
    batch = next(iter(conversations(1)))
    exact = -small_model().logp(batch.tokens, batch.mask)[0].sum().item() / batch.mask.sum().item()
    train(models, [batch], SFT, Optim(models, OptimSettings(lr=1e-3, tokens_per_pass=1), 1), run)
    assert run.rows("metrics")[0][0]["loss"] == pytest.approx(exact, rel=1e-6)


def test_weights_in_bfloat16_have_masters_that_are_trained(tmp_path):
    """Updates too small for bfloat16 add up in the masters; the weights are their image;
    a restored state, the same future."""

    def begun():
        models = Models(policy=small_model().to(torch.bfloat16))
        return models, Optim(models, OptimSettings(lr=2e-4, tokens_per_pass=40), steps=40)

    models, optim = begun()
    start = [m.clone() for m in optim.masters]
    first = [p.detach().clone() for p in models.policy.parameters()]
    train(models, conversations(1), SFT, optim, new_run(tmp_path, "one", 1))
    columns = zip(models.policy.parameters(), first, optim.masters, start, strict=True)
    assert any((p.eq(q) & m.ne(n)).any() for p, q, m, n in columns)  # a master moved, and its weight not yet
    train(models, conversations(20), SFT, optim, run := new_run(tmp_path, "twenty", 20))
    for p, master in zip(models.policy.parameters(), optim.masters, strict=True):
        assert p.dtype == torch.bfloat16 and torch.equal(p, master.bfloat16())
    rows = run.rows("metrics")[0]
    assert rows[-1]["loss"] < rows[0]["loss"] and all(r["skipped"] == 0 for r in rows)
    again, other = begun()
    again.policy.load_state_dict(models.policy.state_dict())
    other.restore(copy.deepcopy(optim.state()))
    for m, o, at in ((models, optim, "a"), (again, other, "b")):
        train(m, conversations(3), SFT, o, new_run(tmp_path, at, 3))
    assert all(torch.equal(a, b) for a, b in zip(optim.masters, other.masters, strict=True))


def test_gradients_of_several_passes_are_summed_in_float32():
    """Each is taken, so what the next pass gives is its own."""
    optim = Optim(Models(policy=small_model().to(torch.bfloat16)), OptimSettings(lr=1.0), steps=1)
    first, *others = optim.params
    for size in (1.0, 2**-10, 2**-10):  # bfloat16 would lose the last two
        first.grad = torch.full_like(first, size)
        optim.gather()
        assert first.grad is None
    assert (optim.masters[0].grad == 1 + 2**-9).all() and all(m.grad is None for m in optim.masters[1:])
    for p in (first, *others):
        p.grad = torch.ones_like(p)
    optim.gather()
    assert (optim.masters[0].grad == 2 + 2**-9).all() and all((m.grad == 1).all() for m in optim.masters[1:])


def test_a_gradient_in_a_graphs_memory_is_copied_before_the_next_pass():
    layer = torch.nn.Linear(2, 2)
    replays, memory = PassGraphs(layer), [torch.ones_like(p) for p in layer.parameters()]
    for turn in range(3):
        for p, own in zip(layer.parameters(), memory, strict=True):
            p.grad = own.detach()  # a pass gives it out, and it is not taken
        replays.keep_gradients()
        for p, own in zip(layer.parameters(), memory, strict=True):
            own.fill_(5)
            p.grad += 1
        kept = [p.grad for p in layer.parameters()]
        replays.keep_gradients()
        for p, one, own in zip(layer.parameters(), kept, memory, strict=True):
            assert p.grad is one and (one == 2).all(), turn  # a copy is added to where it lies
            own.fill_(1)
        layer.zero_grad()


def test_a_pass_is_padded_to_a_graph_that_is_there_where_no_more_are_kept():
    replays = PassGraphs(torch.nn.Linear(2, 2))
    assert replays.fitting(14976, 100) == (14976, 128) and replays.fitting(14977, 127) == (15104, 256)
    replays.most, replays.made = 5, {(16384, 128): None, (15616, 128): None}
    assert replays.fitting(15200, 100) == (15616, 128)  # near enough
    assert replays.fitting(15100, 100) == (15104, 128)  # of its own
    replays.made[15616, 256] = None
    assert replays.fitting(14000, 100) == (14336, 128)  # the rest of the sizes are far apart
    replays.most = 3
    assert replays.fitting(15500, 120) == (15616, 128)
    assert replays.fitting(15000, 118) == (15616, 128)  # 118 and 10 of padding
    assert replays.fitting(15000, 119) == (15616, 256)
    assert replays.fitting(15900, 100) == (16384, 128)
    assert replays.fitting(15900, 250) is None and replays.fitting(16385, 9) is None
    assert replays.fitting(12000, 9) is None  # much smaller: rather without a graph


def test_bfloat16_products_on_a_cpu_are_near_and_named(tmp_path):
    models, batch = Models(policy=small_model()), next(iter(conversations(1)))
    exact = models.policy.logp(batch.tokens, batch.mask)[0]
    Optim(models, OptimSettings(lr=1e-3, precision="bf16"), 1)
    near = models.policy.logp(batch.tokens, batch.mask)[0]
    assert models.policy.precision == torch.bfloat16 and models.policy.head.dtype == torch.float32
    assert 0 < (near - exact).abs().max() < 0.2
    with pytest.raises(ValueError, match="optim.precision is 'half': expected auto, fp32 or bf16"):
        OptimSettings(lr=1e-3, precision="half")


# what is not finite

def poisoned(kind, steps, models):
    """The SFT objective with a fault in the first micro-batch of these steps; ids tell the steps apart."""
    def objective(models, batch):
        loss, stats = SFT(models, batch)
        if batch.ids[0].startswith("bad"):
            if kind == "nan loss":
                loss = loss.index_fill(1, torch.tensor([loss.shape[1] - 1]), math.nan)
            elif kind == "inf loss":
                loss = loss + torch.inf
            else:
                value = {"nan gradient": math.nan, "inf gradient": math.inf}[kind]
                loss.register_hook(lambda g: g * value)
        return loss, stats

    batches = []
    for step, batch in enumerate(conversations(12), start=1):
        prefix = "bad" if step in steps else "good"
        batches.append(replace(batch, ids=tuple(f"{prefix}{step}/{i}" for i in batch.ids)))
    return batches, objective


@pytest.mark.parametrize("at_once", [30, 10**6])
@pytest.mark.parametrize("kind", ["nan loss", "inf loss", "nan gradient", "inf gradient"])
def test_a_step_that_is_not_finite_changes_nothing(kind, at_once, tmp_path):
    models = Models(policy=small_model())
    run = new_run(tmp_path)
    after = [weights(Models(policy=small_model()))]
    batches, objective = poisoned(kind, {2, 3}, models)
    optim = Optim(models, OptimSettings(lr=1e-2, tokens_per_pass=at_once, weight_decay=0.1), 5)
    moments = []

    def note(now):
        after.append(weights(models))
        moments.append({k: v.clone() for k, v in optim.state()["adam"]["0"].items()})

    train(models, batches[:5], objective, optim, run, [note])
    assert (identical(after[1], after[2]) and identical(after[2], after[3])
            and identical(moments[0], moments[2]))
    assert [identical(a, b) for a, b in itertools.pairwise(after)] == [False, True, True, False, False]
    assert all(v.isfinite().all() for v in after[5].values())
    rows, _ = run.rows("metrics")
    assert [r["skipped"] for r in rows] == [0, 1, 1, 0, 0]
    assert rows[1]["loss" if "loss" in kind else "grad_norm"] in ("nan", "inf", "-inf")
    events = [e for e in run.rows("events")[0] if e["kind"] == "skipped"]
    assert [e["step"] for e in events] == [2, 3] and "the weights were left as they were" in events[0]["text"]
    assert events[1]["data"]["ids"] == list(batches[2].ids)
    clean = Models(policy=small_model())  # as if the two steps had not been there
    train(clean, [batches[i] for i in (0, 3, 4)], SFT, Optim(clean, optim.settings, 5),
          new_run(tmp_path, "clean"))
    assert identical(weights(clean), after[5])


def test_five_in_a_row_stop_the_run(tmp_path):
    models, run = Models(policy=small_model()), new_run(tmp_path)
    batches, objective = poisoned("nan loss", {2, 3, 4, 5, 7, 8, 9, 10, 11}, models)
    optim = Optim(models, OptimSettings(lr=1e-3), 12)
    kept = {}
    words = r"5 steps in a row gave no finite loss and gradient \(last: step 11, rows bad11/c"
    with pytest.raises(ValueError, match=words) as error:
        train(models, batches, objective, optim, run, [lambda now: kept.update({now.step: weights(models)})])
    assert "lower optim.lr or look at these rows" in str(error.value) and SKIPS_IN_A_ROW == 5
    assert [r["skipped"] for r in run.rows("metrics")[0]] == [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    assert identical(weights(models), kept[6])


def test_a_step_in_which_no_row_is_trained_changes_nothing(tmp_path):
    """Momentum alone must not move the weights."""
    models, run = Models(policy=small_model()), new_run(tmp_path)
    batches = list(conversations(steps=3))
    batches[1] = replace(batches[1], mask=torch.zeros_like(batches[1].mask),
                         weight=torch.zeros_like(batches[1].weight))
    after = []
    train(models, batches, SFT, Optim(models, OptimSettings(lr=1e-3), 3), run,
          [lambda now: after.append(weights(models))])
    assert identical(after[0], after[1]) and not identical(after[1], after[2])
    assert [r["skipped"] for r in run.rows("metrics")[0]] == [0, 1, 0]


def test_the_count_of_skips_survives_a_restart(tmp_path):
    models = Models(policy=small_model())
    batches, objective = poisoned("inf loss", set(range(1, 13)), models)
    first, second = (Optim(models, OptimSettings(lr=1e-3), 12) for _ in range(2))
    train(models, batches[:3], objective, first, new_run(tmp_path, "a"))
    second.restore(first.state())
    with pytest.raises(ValueError, match="5 steps in a row"):
        train(models, batches[3:5], objective, second, new_run(tmp_path, "b"))


# accumulation

def tiny_models(method):
    """The embedded model as policy, itself less a little as the reference, less more as the teacher,
    and a critic where the row has one."""
    other = load_model("tiny").requires_grad_(False)
    other.model.norm.weight.data *= 0.9 if method.needs_reference else 0.7
    reference, teacher = (other if needed else None
                          for needed in (method.needs_reference, getattr(method, "teacher", False)))
    critic = None
    if getattr(method, "critic", False):
        critic = ScalarModel(load_model("tiny"))
        critic.score_head.weight.data.fill_(0.02)
    return Models(policy=load_model("tiny"), reference=reference, critic=critic, teacher=teacher)


PARTED = {"grpo, icepop": change(METHODS["grpo"], correction="icepop"),
          "dapo, top entropy": change(METHODS["dapo"], choose="top_entropy", minibatches=1)}


# a token at the edge of the share that this row chooses may fall on either side of it by rounding
EDGE = {"kl_cov": 1e-4}


@pytest.mark.parametrize("name", ["sft", *POLICY, *PARTED])
def test_any_split_is_the_same_update(name, tmp_path):
    """Two steps by plain gradient descent, so that a small gradient counts for as little as it is;
    the second is off policy."""
    method = PARTED[name] if name in PARTED else METHODS[name]
    models = tiny_models(method)
    batches = list(conversations(2, rows=7) if name == "sft" else
                   rollouts(method, models, 2, epochs=1 + method.ratio))
    objective, start, results, passes = objectives.build_objective(method), weights(models), {}, {}
    for at_once in (10**9, 60, 1):
        for role, model in models.trained().items():
            model.load_state_dict({k.removeprefix(role + "."): v for k, v in start.items()
                                   if k.startswith(role + ".")})
        optim = Optim(models, OptimSettings(lr=0.1, tokens_per_pass=at_once), 2)
        optim.adam = Descent(optim.params)
        counted = []
        run = new_run(tmp_path, f"run{at_once}")
        train(models, batches, lambda m, b, c=counted: c.append(1) or objective(m, b), optim, run)
        results[at_once], passes[at_once] = weights(models), len(counted)
        assert all(r["skipped"] == 0 for r in run.rows("metrics")[0])
    assert passes[10**9] == 2 < passes[60] < passes[1] == 2 * len(batches[0])
    for role in models.trained():
        assert max((results[10**9][k] - start[k]).abs().max().item() for k in start
                   if k.startswith(role)) > 1e-3
    for at_once in (60, 1):
        apart = max((results[10**9][k] - results[at_once][k]).abs().max().item() for k in start)
        assert apart < EDGE.get(name, 1e-6)
