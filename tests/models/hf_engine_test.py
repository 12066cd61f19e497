"""Rows of networks of transformers in slots of fixed cells."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from foreign_small import CHAT, ENDS, small_folders
from transformers import AutoModelForCausalLM, BloomConfig

from postgrad.models import hf_engine, load_model
from postgrad.models.hf_engine import NoCache, NoSync, RepackedCache, SlotCache
from postgrad.models.hf_model import HFModel
from postgrad.records import Prompt
from postgrad.sampling import LocalSampler, Sampling

SLOTS = ["gpt2", "gpt_neox", "cohere2", "phi"]
PROMPTS = [[5, 9, 7], [8] * 11, [6, 700, 31, 2, 90]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return small_folders(tmp_path_factory)


def opened(folder):
    return load_model(folder).requires_grad_(False)


def begun(model, rows=3):
    """An engine whose first three rows stand after prompts of several lengths, one of a window's size."""
    engine = model.engine(rows=rows, prompts=3, read=16, new=9)
    lengths = torch.tensor([len(p) for p in PROMPTS])
    tokens = torch.stack([torch.tensor([*p, *[0] * (16 - len(p))]) for p in PROMPTS])
    engine.prefill(tokens, lengths, [0, 1, 2])
    engine.seat(torch.arange(3), torch.arange(3))
    return engine, lengths


@pytest.mark.parametrize("kind", SLOTS)
def test_a_step_waits_for_nothing_and_has_one_shape(kind, folders, monkeypatch):
    """So a GPU can capture it; a row's state is that of the whole row, in the order of the slots or not."""
    model = opened(folders(kind))
    engine, lengths = begun(model)
    assert type(engine.memory) is SlotCache
    monkeypatch.setattr(SlotCache, "width", lambda memory, cell, longest: len(memory.cell))  # as on a GPU
    rows = [list(p) for p in PROMPTS]
    for at in range(8):
        order = torch.tensor([2, 0, 1]) if at % 2 else torch.tensor([1, 0])  # as many as slots, and fewer
        token = torch.tensor([17 + at + row for row in range(3)])
        for some in (order, torch.tensor([row for row in range(3) if row not in order.tolist()])):
            if len(some):
                with NoSync():
                    state = engine.step(token[some], torch.full_like(some, at), some, some, lengths[some])
                    engine.logits(state)
                for row, mine in zip(some.tolist(), state, strict=True):
                    rows[row].append(int(token[row]))
                    wanted = model.run(torch.tensor([rows[row]]))[0, -1]
                    torch.testing.assert_close(mine, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", SLOTS)
def test_greedy_replies_are_those_of_generate(kind, folders):
    model = opened(folders(kind))
    prompts = [Prompt.ask(text) for text in ("Hi", "What is 2+3?", "Tom has 12 apples and eats one.")]
    said = LocalSampler(model, CHAT).sample(prompts, 1, Sampling(max_new_tokens=16, temperature=0), seed=0)
    for (mine,) in said:
        asked = torch.tensor([mine.prompt_tokens])
        theirs = model.network.generate(asked, attention_mask=torch.ones_like(asked), do_sample=False,
                                        max_new_tokens=16, eos_token_id=list(CHAT.stop))
        assert list(mine.tokens) == theirs[0, asked.shape[1]:].tolist()


def test_a_step_touches_no_slot_that_it_does_not_name(folders):
    """Of as many rows as there are slots, most for no one: a row that is kept to go on stays as it is."""
    engine, lengths = begun(opened(folders("gpt2")), rows=16)
    before = [layer.keys[:, :, : 16 + 8].clone() for layer in engine.memory.cache.layers]
    first, nobody = torch.tensor([1]), torch.full((15,), 16)
    engine.step(torch.full((16,), 5), torch.zeros(16, dtype=torch.int64), torch.cat([first, nobody]),
                torch.cat([first, nobody * 0 + 3]), torch.cat([lengths[1:2], torch.ones_like(nobody)]))
    for was, layer in zip(before, engine.memory.cache.layers, strict=True):
        changed = (was != layer.keys[:, :, : 16 + 8]).any(-1).any(1).nonzero().tolist()
        assert [place for place in changed if place[0] < 16] == [[1, len(PROMPTS[1])]]


@pytest.mark.parametrize(("kind", "way"), [("bloom", RepackedCache), ("mamba", NoCache)])
def test_other_networks_keep_a_way_that_they_understand(kind, way, folders):
    if kind == "bloom":  # its biases are made of the mask
        torch.manual_seed(3)
        model = HFModel(AutoModelForCausalLM.from_config(
            BloomConfig(vocab_size=1024, hidden_size=32, n_layer=2, n_head=2, **ENDS)).requires_grad_(False))
    else:
        model = opened(folders(kind))
    engine, lengths = begun(model)
    assert type(engine.memory) is way and not engine.graphs
    rows = torch.arange(3)
    state = engine.step(rows + 17, torch.zeros_like(rows), rows, rows, lengths)
    for row, prompt in enumerate(PROMPTS):
        wanted = model.run(torch.tensor([[*prompt, 17 + row]]))[0, -1]
        torch.testing.assert_close(state[row], wanted, rtol=0, atol=2e-5)


def test_a_mask_that_is_not_obeyed_is_noticed(folders, monkeypatch):
    """Cells that no row may see would change what is said."""
    monkeypatch.setattr(SlotCache, "mask", lambda memory, now: torch.zeros(len(now.slot), 1, 1, now.width))
    assert type(begun(opened(folders("gpt2")))[0].memory) is RepackedCache


@pytest.mark.parametrize("work", [lambda x: x.max().item(), lambda x: bool((x > 1).all()), lambda x: x[x > 1],
                                  lambda x: x.nonzero(), lambda x: x.to("meta"), lambda x: x.unique()])
def test_what_would_wait_for_a_gpu_is_noticed(work):
    with NoSync(), pytest.raises(RuntimeError, match="waits for the GPU"):
        work(torch.arange(4))


def test_a_step_that_cannot_be_captured_runs_without_a_graph(folders, monkeypatch, capsys):
    """Said once, whichever the sampler; and the same tokens come out."""
    model, settings = opened(folders("gpt2")), Sampling(max_new_tokens=6)
    prompts = [Prompt.ask("Hi")]
    wanted = LocalSampler(model, CHAT).sample(prompts, 16, settings, seed=0)

    @contextmanager
    def graph(*_, **__):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")
        yield

    stream = []
    monkeypatch.setattr(hf_engine, "REPORTED", set())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "ours")
    monkeypatch.setattr(torch.cuda, "set_stream", stream.append)
    for _ in range(2):
        sampler = LocalSampler(model, CHAT)
        active = sampler._batch_for([[1] * 16], 16, settings)
        active.engine.graphs = True
        monkeypatch.setattr(active, "run", lambda *part, mine=active: run_as_on_gpu(mine, *part))
        said = sampler.sample(prompts, 16, settings, seed=0)
        assert not active.engine.graphs and not active.graphs
        assert [r.tokens for r in said[0]] == [r.tokens for r in wanted[0]]
    assert stream == ["ours", "ours"]  # that of a capture which failed is not left current
    assert capsys.readouterr().err == (
        "postgrad: a step of gpt2 cannot be captured as a CUDA graph and is launched kernel by kernel, "
        "slower (operation not permitted when stream is capturing).\n")


def run_as_on_gpu(active, *part):
    """A part of a step as a GPU runs it, where the rest is on a CPU."""
    device, active.device = active.device, SimpleNamespace(type="cuda")
    type(active).run(active, *part)
    active.device = device
