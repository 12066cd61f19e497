"""What the host does in a step: how often it waits for the device, what it does once, what it does aside."""

from __future__ import annotations

import gc
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from run_small import logged, make
from small import CHAT, PROMPTS, build, small_model
from torch.utils._python_dispatch import TorchDispatchMode

from postgrad.cli.settings import config_from_text
from postgrad.maths.packing import pack
from postgrad.models import Models, model_set
from postgrad.models.chat import chat
from postgrad.models.engine import fuse_weights
from postgrad.models.kernels import plain
from postgrad.recipes import hooks, running
from postgrad.recipes.hooks import round_column
from postgrad.recipes.running import start_run
from postgrad.runs import SampleLog
from postgrad.runs.tracker import Tracker
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.gc_tuning import seldom_collected
from postgrad.system.throughput import compiling_pays
from postgrad.training.optim import Optim, OptimSettings
from postgrad.training.stats import Deferred, ExplainedVariance, Max, Mean, Stats, resolve_deferred

MOST_READS = 8  # of single numbers in a step: on a GPU each of them waits for all that was asked of it before


class Reads(TorchDispatchMode):
    """Counts how often a single number is read from a tensor."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_a_step_reads_few_numbers_one_by_one(method, tmp_path):
    changes = ["steps=3", "rollouts.prompts=8", "rollouts.prompts_per_step=4", "rollouts.group_size=4",
               "rollouts.max_new_tokens=8", "evaluation.every=0", "method.epochs=1", "method.minibatches=1"]
    recipe, config = config_from_text(f"{method}:words", changes, None)
    counts = []

    class Watch(Tracker):
        def on_step(self, step, metrics):
            counts.append(reads.count)

    with Reads() as reads:
        start_run(config, tmp_path / "run", trackers=[Watch()])
    steps = [after - before for before, after in zip(counts, counts[1:], strict=False)]
    assert len(steps) == 2 and max(steps) <= MOST_READS


def test_a_run_is_compiled_where_that_ends_it_sooner():
    step = {"layers": 30, "parameters": 134_500_000, "tokens": 131_072, "tokens_per_pass": 8192}
    assert not compiling_pays(**step, steps=60) and compiling_pays(**step, steps=90)
    small = {"layers": 4, "parameters": 2_000_000, "tokens": 8192, "tokens_per_pass": 8192}
    assert not compiling_pays(**small, steps=1000) and compiling_pays(**small, steps=10_000)
    for said, tokens, compiled in ((None, 64, False), (None, 10**9, True), (None, None, True),
                                   (True, 64, True), (False, 10**9, False)):
        model, settings = small_model(), OptimSettings(lr=1.0, compile=said)
        assert model_set.should_compile(model, settings, 2000, tokens) is compiled
        Optim(Models(policy=model), settings, 2000, tokens)
        assert not model.compiled  # on a CPU nothing is


@pytest.mark.parametrize(("changes", "compiled"), [(["steps=20"], False), (["compile=true"], True)])
def test_a_short_run_of_the_embedded_model_is_not_compiled(changes, compiled, monkeypatch):
    answers, compiles = [], model_set.should_compile
    monkeypatch.setattr(model_set, "should_compile", lambda *asked: answers.append(compiles(*asked))
                        or answers[-1])
    recipe, config = config_from_text("grpo:words", changes, None)
    build(config, running.model_source(config))
    assert set(answers) == {compiled}


def test_results_are_the_same_read_together_or_one_by_one():
    x = torch.tensor([0.1, 0.7, 3.3])
    entries = {"mean": Mean(x.sum(), torch.tensor(3)), "none": Mean(torch.tensor(0.0), 0),
               "max": Max(x.max()),
               "explained": ExplainedVariance(torch.tensor(3), x.sum().double(), (x**2).sum().double(), 0.1,
                                              0.2)}
    results, more = Stats(entries).read(x[1], 2.5, torch.tensor(True))
    assert results == {name: entry.result() for name, entry in entries.items()}
    assert more == [x[1].item(), 2.5, 1.0]


def test_rows_are_packed_as_one_after_another():
    rng = np.random.default_rng(0)
    for _ in range(40):
        rows, width = rng.integers(1, 9), rng.integers(4, 12)
        lengths = rng.integers(3, width + 1, rows)
        tokens = rng.integers(1, 3, (rows, width))
        mask = (np.arange(width) >= rng.integers(1, 3, rows)[:, None]) & (np.arange(width) < lengths[:, None])
        mask &= rng.random(rows)[:, None] > 0.2
        packed = pack(*map(torch.from_numpy, (lengths, tokens, mask)))
        cells, positions, spans, home = one_after_another(lengths, tokens, mask)
        assert packed.cells.tolist() == cells and packed.positions.tolist() == positions
        assert packed.home.tolist() == home.tolist()
        s = packed.spans
        assert torch.stack([s.start, s.stop, s.prefix_start, s.prefix_stop], 1).tolist() == spans


def one_after_another(lengths, tokens, mask):
    """The layout of `pack`, row by row."""
    first = [row.argmax() if row.any() else 0 for row in mask]

    def same(a, b):
        n = first[a]
        return 0 <= a < b < len(first) and n > 1 and n == first[b] and (tokens[a, :n] == tokens[b, :n]).all()

    cells, positions, spans, at, prompt = [], [], [], 0, (0, 0)
    home = np.zeros(tokens.shape, np.int64)
    for row, length in enumerate(lengths.tolist()):
        again = row > 0 and same(row - 1, row)
        known = int(first[row]) if again or same(row, row + 1) else 0
        parts = [(known, length)] if again or not known else [(0, known), (known, length)]
        for begin, end in parts:
            if begin == 0 and not again:
                prompt = at, at + known
            lead = end == known and begin == 0 and known > 0
            spans.append([at, at + end - begin, *((0, 0) if lead else prompt)])
            cells += range(row * tokens.shape[1] + begin, row * tokens.shape[1] + end)
            positions += range(begin, end)
            at += end - begin
        home[row, :known] = np.arange(*prompt) if known else []
        home[row, known:length] = np.arange(at - (length - known), at)
    return cells, positions, spans, home


@torch.no_grad()
def test_weights_are_taken_again_without_a_walk_through_the_model(monkeypatch):
    model = small_model()
    engine = model.engine(rows=4, prompts=2, read=8, new=8)
    engine.ops, engine.own, engine.panels = plain, set(), {}  # all in matrices of its own, as on a GPU
    engine.refresh()
    for p in model.parameters():
        p.add_(0.1)
    model.model.layers[0].mlp.up_proj.weight.data = model.model.layers[0].mlp.up_proj.weight.data + 0.1
    wanted = {name: fuse_weights(model.merged(), parts) for name, parts in engine.layout.items()}
    monkeypatch.setattr(type(model), "merged", None)
    engine.refresh()
    assert engine.weights.keys() == wanted.keys()
    assert all(torch.equal(engine.weights[name], x) for name, x in wanted.items())


@torch.no_grad()
def test_weights_are_taken_by_a_graph_for_as_long_as_they_stand_where_they_do(monkeypatch):
    model = small_model()
    engine = model.engine(rows=4, prompts=2, read=8, new=8)
    engine.ops, engine.own, engine.panels = plain, set(), {}
    engine.refresh()
    made, replayed = [], []

    def capture():
        made.append(graph := len(made) + 1)
        return SimpleNamespace(replay=lambda: replayed.append(graph))

    engine.device = SimpleNamespace(type="cuda")
    monkeypatch.setattr(engine, "capture_taking", capture)
    weight = model.model.layers[0].mlp.up_proj.weight
    for _ in range(3):
        engine.refresh(often=True)
    assert made == [1] and replayed == [1, 1]
    weight.data = weight.data + 0.1  # it stands elsewhere: what is captured would read the old one
    engine.refresh(often=True)
    assert made == [1, 2] and torch.equal(engine.weights["0.gate_up"][-len(weight):], weight)
    engine.refresh(often=True)
    engine.refresh()  # as it is
    assert replayed == [1, 1, 2] and engine.taking is None


class Counted:
    """A tokenizer that counts what it is asked."""

    def __init__(self, tokenizer):
        self.tokenizer, self.asked = tokenizer, 0

    def __getattr__(self, name):
        self.asked += name in ("encode", "decode", "decode_batch")
        return getattr(self.tokenizer, name)


def test_a_token_is_decoded_once_and_a_prompt_rendered_once(monkeypatch):
    monkeypatch.setattr(CHAT, "tokenizer", counted := Counted(CHAT.tokenizer))
    monkeypatch.setattr(CHAT, "_pieces", {})
    tokens = CHAT.encode("2 + 3 = 5 and 5 = 3 + 2")
    pieces, before = CHAT.pieces(tokens), counted.asked
    assert CHAT.pieces(tokens) == pieces and counted.asked == before
    assert pieces == [counted.tokenizer.decode([t], skip_special_tokens=False) for t in tokens]
    sampler, how = LocalSampler(small_model(), CHAT), Sampling(max_new_tokens=2)
    sampler.sample(PROMPTS[:2], 1, how, 0)
    before = counted.asked
    rows = sampler.sample(PROMPTS[:2], 3, how, 0)
    assert counted.asked - before == 6  # the text of each reply
    monkeypatch.setattr(chat, "MANY", 2)
    for table, least, most in ((CHAT._spelling, 0, 0), (None, 1, 2)):
        monkeypatch.setitem(CHAT.__dict__, "_spelling", table)
        before = counted.asked
        assert [[r.text for r in group] for group in sampler.sample(PROMPTS[:2], 3, how, 0)] == \
            [[r.text for r in group] for group in rows]
        # by the table, or the texts of those at once that end together, after either token
        assert least <= counted.asked - before <= most
    assert [list(group[0].prompt_tokens) for group in rows] == [CHAT.render(p.messages) for p in PROMPTS[:2]]


def test_samples_are_written_aside_in_order_and_before_a_checkpoint_is_begun(tmp_path):
    run, may = logged(make(tmp_path / "run"), 2), Event()

    def slow():
        assert may.wait(30)
        return [{"text": "one"}, {"text": "two"}]

    with SampleLog(run) as log:
        log.log(1, slow)
        log.log(2, lambda: [{"text": "three"}])
        assert not run.rows("samples")[0]
        may.set()
        log.wait()
        written = [(row["step"], row["text"]) for row in run.rows("samples")[0]]
        assert written == [(1, "one"), (1, "two"), (2, "three")]


def test_samples_that_were_put_off_are_asked_for_once_in_order_and_at_the_end(tmp_path):
    run, asked = logged(make(tmp_path / "run"), 4), []

    def put_off(step):
        return lambda: asked.append(step) or (lambda: [{"text": str(step)}])

    def texts():
        return [row["text"] for row in run.rows("samples")[0]]

    with SampleLog(run) as log:
        log.later(1, put_off(1))
        assert not asked
        log.ask()
        log.ask()
        assert asked == [1]
        log.later(2, put_off(2))
        log.later(3, put_off(3))  # the models are about to change: what was put off before is asked for
        assert asked == [1, 2]
        log.wait()
        assert asked == [1, 2, 3] and texts() == ["1", "2", "3"]
        log.later(4, put_off(4))
    assert texts() == ["1", "2", "3", "4"]


def test_samples_that_were_put_off_are_written_of_a_run_that_fails(tmp_path):
    run = logged(make(tmp_path / "run"), 1)
    with pytest.raises(ValueError, match="of its own"), SampleLog(run) as log:
        log.later(1, lambda: lambda: [{"text": "one"}])
        raise ValueError("an error of its own")
    assert [row["text"] for row in run.rows("samples")[0]] == ["one"]
    with pytest.raises(ValueError, match="of its own") as found, SampleLog(run) as log:
        log.later(1, lambda: 1 / 0)
        raise ValueError("an error of its own")
    assert found.value.__notes__ == ["samples could not be written either: division by zero"]
    with pytest.raises(ZeroDivisionError), SampleLog(run) as log:
        log.later(1, lambda: 1 / 0)


def test_a_pass_is_under_way_when_the_rows_of_the_step_before_are_asked_for(tmp_path, monkeypatch):
    seen, ask = [], hooks.sample_rows
    monkeypatch.setattr(hooks, "sample_rows", lambda now, parts: seen.append(now.step) or ask(now, parts))
    changes = ["steps=3", "rollouts.prompts=8", "rollouts.prompts_per_step=4", "rollouts.group_size=4",
               "rollouts.max_new_tokens=8", "evaluation.every=0", "save_every=2"]
    recipe, config = config_from_text("grpo:words", changes, None)

    class Watch(Tracker):
        def on_step(self, step, metrics):
            seen.append(f"end of {step}")

    run = start_run(config, tmp_path / "run", trackers=[Watch()])
    # those of steps 2 and 3 before their checkpoints are begun
    assert seen == ["end of 1", 1, "end of 2", 2, "end of 3", 3]
    assert sorted({row["step"] for row in run.rows("samples")[0]}) == [1, 2, 3]


def test_columns_are_rounded_as_python_rounds():
    chosen = torch.tensor([0.0, -0.0, -1e-7, 1 / 64, 3 / 64, -5 / 128, 0.1, 12345.678, 3e38, 1e-45])
    bits = torch.randint(-2**31, 2**31 - 1, (20_000,), generator=torch.Generator().manual_seed(0))
    drawn = bits.to(torch.int32).view(torch.float32)
    for x in (chosen, torch.arange(-5000, 5000) / 64, drawn[drawn.isfinite()]):
        assert list(map(repr, round_column(x))) == [repr(round(v, 5)) for v in x.tolist()]


def test_garbage_is_looked_for_seldom_in_a_run_and_as_before_after_it():
    before = gc.get_threshold(), gc.get_freeze_count()
    with pytest.raises(ValueError, match="of its own"), seldom_collected():
        assert gc.get_threshold()[0] > before[0][0] and gc.get_freeze_count() > before[1]
        raise ValueError("an error of its own")
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_a_figure_for_the_log_is_computed_once_and_when_it_is_asked_for():
    calls = []
    facts = {"reward": 1.0, "repetition": Deferred(lambda: calls.append(1) or 0.5), "errors": 0.0}
    assert not calls
    assert list(resolve_deferred(facts).items()) == [("reward", 1.0), ("repetition", 0.5), ("errors", 0.0)]
    assert resolve_deferred(facts)["repetition"] == 0.5 and calls == [1]


def test_samples_that_fail_are_raised_where_the_run_looks_next(tmp_path):
    run = logged(make(tmp_path / "run"), 2)

    def broken():
        raise RuntimeError("out of ideas")

    with pytest.raises(RuntimeError, match="out of ideas"), SampleLog(run) as log:
        log.log(1, broken)
        log.wait()
    with pytest.raises(RuntimeError, match="out of ideas"), SampleLog(run) as log:
        log.log(1, broken)
        log.log(2, lambda: [{"text": "later"}])
    with pytest.raises(ValueError, match="of its own") as found, SampleLog(run) as log:
        log.log(1, broken)
        raise ValueError("an error of its own")
    assert found.value.__notes__ == ["samples could not be written either: out of ideas"]
    assert not run.rows("samples")[0]
