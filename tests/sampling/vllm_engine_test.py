"""vLLM in the process that trains, with a stand-in for the package; the real one: proofs/scale.py."""

import sys
from types import SimpleNamespace

import pytest
import torch
from doors import fit
from settings_text import override
from small import CHAT

from postgrad.recipes.rollouts import rollouts_on_words as config
from postgrad.recipes.samplers import open_sampler
from postgrad.resolve.models import open_writer
from postgrad.sampling import LocalSampler, SamplerFault, Sampling
from postgrad.sampling.vllm_engine import VllmSampler

SMALL = {"task": "words", "prompts_per_step": 4, "group_size": 4, "rollouts": {"max_new_tokens": 12},
         "steps": 2, "save_every": 2}


class Engine:
    """Writes as our own sampler does. spoil: changes the weights that it read."""

    made: list = []

    def __init__(self, model, **how):
        self.how, self.read, self.spoil = how, [], lambda net: None
        self.made.append(self)
        self.collective_rpc("reload_weights", {"weights_path": model})

    def collective_rpc(self, method, kwargs):
        assert method == "reload_weights"
        self.read.append(kwargs["weights_path"].rpartition("/")[2])
        net, chat = open_writer(kwargs["weights_path"])
        self.spoil(net)
        self.sampler = LocalSampler(net, chat)

    def generate(self, asked, params, use_tqdm):
        one = params[0]
        how = Sampling(max_new_tokens=one.max_tokens, temperature=one.temperature)
        rows = {row.number: row for rows in self.sampler.generate(
            [x["prompt_token_ids"] for x in asked], 1, [p.seed for p in params], how) for row in rows}
        return [SimpleNamespace(outputs=[SimpleNamespace(
            token_ids=tuple(row.tokens), finish_reason="stop" if row.finished else "length",
            logprobs=[{t: SimpleNamespace(logprob=x)} for t, x in zip(row.tokens, row.logp, strict=True)])])
            for _, row in sorted(rows.items())]


@pytest.fixture
def vllm(monkeypatch):
    package = SimpleNamespace(LLM=Engine, SamplingParams=lambda **how: SimpleNamespace(**how))
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setattr(Engine, "made", [])
    return package


def test_a_training_whose_samples_it_writes(tmp_path, vllm):
    """It reads the weights of each step, and its first rows are those that we would have written."""
    here = fit(tmp_path, name="here", **SMALL)
    there = fit(tmp_path, name="there", **SMALL,
                remote={"sampler": "vllm", "weights": str(tmp_path / "w")})
    (engine,) = Engine.made
    assert [name.partition("-")[0] for name in engine.read] == ["0", "1"]
    assert engine.how["dtype"] == "float32" and engine.how["logprobs_mode"] == "processed_logprobs"
    first, second = ([row["text"] for row in run.rows("samples")[0] if row["step"] == 1]
                     for run in (here, there))
    assert first == second and len(first) > 1
    assert "mismatch_kl" in there.rows("metrics")[0][-1]


def test_weights_that_it_did_not_take_are_noticed(tmp_path, vllm, monkeypatch):
    def spoiled(engine, net):
        with torch.no_grad():
            net.head.mul_(2.0)

    made = Engine.__init__

    def late(engine, *args, **how):
        made(engine, *args, **how)
        engine.spoil = lambda net: spoiled(engine, net)

    monkeypatch.setattr(Engine, "__init__", late)
    with pytest.raises(SamplerFault, match="sampler vllm has other weights than those of step 1"):
        fit(tmp_path, name="there", **SMALL, remote={"sampler": "vllm", "weights": str(tmp_path / "w")})


def test_a_reply_that_is_not_whole_is_named(vllm):
    sampler = VllmSampler(CHAT, positions=256, vocabulary=CHAT.vocab_size, rows=4, on_gpu=False)
    half = SimpleNamespace(token_ids=(5, 6), finish_reason="length", logprobs=[
        {5: SimpleNamespace(logprob=-1.0)}, {6: SimpleNamespace(logprob=-1.0)}])
    sampler.engine = SimpleNamespace(generate=lambda *_, **__: [SimpleNamespace(outputs=[half])])
    with pytest.raises(SamplerFault, match="vLLM in this process: its reply of 2 tokens ends by 'length'"):
        list(sampler.generate([[1, 2]], 1, [0], Sampling(max_new_tokens=9)))


def test_without_the_package_and_what_does_not_go_with_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    words = ["remote.sampler=vllm", f"remote.weights={tmp_path}"]
    policy, chat = open_writer("tiny-chat")
    with pytest.raises(ValueError, match=r"needs the package vllm .* pip install 'postgrad\[vllm\]'"):
        open_sampler(override(config(), words), policy, chat)
    with pytest.raises(ValueError, match="for one process that trains in step"):
        open_sampler(override(config(), [*words, "rollouts.async_depth=1"]), policy, chat)
    with pytest.raises(ValueError, match="remote.weight_sync=ipc is for samplers behind addresses"):
        override(config(), [*words, "remote.weight_sync=ipc"])
