"""Running out of memory is said in one sentence, with the phase, the setting to lower and by how much; what
the sampler holds can be given back."""

import os

import pytest
import torch
from settings_text import merged, override
from small import CHAT, small_model

from postgrad.cli.settings import config_from_text
from postgrad.models.families import HFSizes
from postgrad.recipes.defaults import memory_needs
from postgrad.recipes.launch import start_training
from postgrad.recipes.oom_advice import advice, available
from postgrad.records import Prompt
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training.memory import GB, SIZES
from postgrad.training.oom import OutOfMemory, iterate_in_phase, oom_phase

QUICK = ("task=arithmetic", "steps=1", "rollouts.prompts_per_step=2", "rollouts.group_size=2",
         "rollouts.max_new_tokens=2", "evaluation.every=0")


def runs_out(*args, **options):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


@pytest.mark.parametrize(("place", "said"), [
    ("postgrad.training.optim.Optim.gather", "training"),
    ("postgrad.sampling.LocalSampler.generate", "sampling"),
    ("postgrad.training.batches.rollouts.credit_columns", "scoring")])
def test_a_run_says_where_and_what_to_lower(tmp_path, monkeypatch, place, said):
    monkeypatch.setattr(place, runs_out)
    monkeypatch.setattr("postgrad.recipes.oom_advice.available", lambda device: 10 * GB)
    recipe, config = config_from_text("grpo", QUICK)
    with pytest.raises(ValueError, match=f"ran out of memory in {said}.* set (optim|rollouts)[.]") as told:
        start_training(recipe, config, tmp_path / "run")
    assert isinstance(told.value.__cause__, OutOfMemory)
    assert str(told.value) in Run.open(tmp_path / "run").state()["error"]


def of(*changes):
    _, config = config_from_text("grpo", merged("task=arithmetic", "device=cuda", "lr=1e-4", *changes))
    return config


@pytest.mark.parametrize(("phase", "changes", "memory"), [
    ("training", ("lora=16",), 15), ("training", ("lora=0",), 60), ("scoring", ("lora=16",), 15),
    ("training", ("lora=16", "recompute=true"), 8),
    ("sampling", ("lora=16", "prompts_per_step=64", "rollouts.max_new_tokens=4096"), 40)])
def test_the_settings_that_are_named_fit(phase, changes, memory):
    """Every proposal is a change that can be made, and brings the estimate to nine tenths of the memory."""
    config, shape = of("rollouts.max_new_tokens=256", *changes), SIZES["1B"]
    sentence = advice(config, shape, phase, memory * GB)
    assert sentence.endswith(".") and "\n" not in sentence
    proposals = sentence.split(": set ")[1].removesuffix(".").split(", or ")
    for proposal in proposals:
        settings = [part.split(" instead of ")[0] for part in proposal.split(" (about")[0].split(" and ")]
        changed = memory_needs(override(config, settings), shape)
        assert (changed.sampling if phase == "sampling" else changed.updating) <= 0.9 * memory * GB
    if phase == "sampling":
        assert proposals[0].startswith("rollouts.max_concurrent=") and "instead of 512" in proposals[0]
    elif "recompute=true" not in changes:
        assert "optim.recompute=true" in sentence


def test_where_the_estimate_was_too_low_less_is_asked_for_all_the_same():
    """The GPU has more than the estimate says is needed, and ran out: other programs, or the estimate."""
    config, shape = of("lora=16", "rollouts.max_new_tokens=64"), SIZES["1B"]
    now = memory_needs(config, shape).updating
    assert "optim.tokens_per_pass=4096 instead of 8192" in advice(config, shape, "training", 3 * now)


def test_what_cannot_be_helped_or_estimated():
    config = of("lora=16", "bits=4")
    assert "no setting brings it to" in advice(config, SIZES["70B"], "training", 8 * GB)
    theirs = HFSizes(model_type="gpt2", vocab_size=9, hidden_size=8, max_position_embeddings=64)
    for changes, said in (
            (("lora=0",), "set optim.tokens_per_pass=4096 instead of 8192, or recompute=true, or lora=16."),
            (("lora=16",), "set optim.tokens_per_pass=4096 instead of 8192, or recompute=true."),
            (("lora=0", "tokens_per_pass=64"), "set recompute=true, or lora=16."),
            (("lora=16", "recompute=true", "tokens_per_pass=64"), "take a smaller model or a larger GPU.")):
        assert advice(of(*changes), theirs, "training", 8 * GB).endswith(said)


def test_the_innermost_phase_is_named():
    def items():
        yield 1
        with oom_phase("sampling"):
            runs_out()

    with pytest.raises(OutOfMemory, match="in sampling"):
        list(iterate_in_phase("scoring", items()))
    assert list(iterate_in_phase("scoring", [1, 2])) == [1, 2]


def test_a_processor_runs_out_of_memory_too(monkeypatch):
    for error in (MemoryError(), RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: no")):
        with pytest.raises(OutOfMemory, match="in training"), oom_phase("training"):
            raise error
    with pytest.raises(RuntimeError, match="^shapes differ"), oom_phase("training"):
        raise RuntimeError("shapes differ")
    free, most = available("cpu"), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr("resource.getrlimit", lambda which: (most // 2, most // 2))
    assert 0 < available("cpu") < most / 2 < free < most
    said = advice(of("lora=16", "device=cpu"), SIZES["1B"], "training", 3 * GB)
    assert "this machine ran out of memory in training, with 3 GB for this run" in said and "GPU" not in said


def test_what_the_sampler_holds_is_given_back(tmp_path, monkeypatch):
    """After each collection; the samples are the same. The look before the first step holds nothing after."""
    held, samplers, made = [], [], LocalSampler.__init__

    def make(sampler, *args, **options):
        samplers.append(sampler)
        made(sampler, *args, **options)

    monkeypatch.setattr(LocalSampler, "__init__", make)
    monkeypatch.setattr("postgrad.training.optim.Optim.gather",
                        lambda optim: held.append(sum(s._batch is not None for s in samplers)))
    for release in ("false", "true"):
        samplers.clear()
        recipe, config = config_from_text("grpo", (*QUICK, "on_look=warn", f"rollouts.release={release}"))
        assert start_training(recipe, config, tmp_path / release).info["look"]
    assert held == [1, 0]
    rows = [(tmp_path / release / "samples.jsonl").read_text() for release in ("false", "true")]
    assert rows[0] == rows[1]
    with pytest.raises(ValueError, match="leave it out with rollouts.async_depth"):
        config_from_text("grpo", (*QUICK, "rollouts.release=true", "rollouts.async_depth=1"))


def test_fewer_slots_give_the_same_replies():
    model = small_model()
    prompts = [Prompt(id=str(n), messages=({"role": "user", "content": f"Say {n}."},)) for n in range(3)]
    said = [LocalSampler(model, CHAT, max_concurrent=slots).sample(prompts, 8, Sampling(max_new_tokens=6), 0)
            for slots in (512, 16)]
    assert said[0] == said[1]
