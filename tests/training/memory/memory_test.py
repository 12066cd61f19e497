"""The memory estimate: known numbers by hand, the decoder's own weights and saved tensors,
the optimizer's own arrays."""

import json
from dataclasses import replace

import pytest
import torch

from postgrad import methods
from postgrad.cli import main
from postgrad.maths.logprob import chosen_logp
from postgrad.models import Adapted, Adapter, Config, Decoder, Models
from postgrad.models.families import Architecture
from postgrad.models.kernels import cpu
from postgrad.training.memory import (
    GB,
    SIZES,
    Memory,
    Setup,
    activations,
    adapter,
    cache,
    estimate,
    head,
    held,
    layers,
    parameters,
)
from postgrad.training.optim import Optim, OptimSettings

SMALL = Config(vocab_size=64, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
               num_attention_heads=4, num_key_value_heads=2, head_dim=16)
BIASED = Config(vocab_size=64, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=24, tie_word_embeddings=True,
                architecture=Architecture(model_type="qwen3", qkv_bias=True, o_bias=True))
OLMO = replace(SMALL, architecture=Architecture(model_type="olmo2"))


def of(size, method, **setup):
    return estimate(SIZES[size], methods.get_method(method), Setup(**setup))


@pytest.mark.parametrize(("size", "count"), [("1B", 1_235_814_400), ("7B", 6_738_415_616),
                                             ("13B", 13_015_864_320), ("70B", 68_976_648_192)])
def test_the_sizes_are_those_of_the_published_models(size, count):
    assert parameters(SIZES[size]) == count


@pytest.mark.parametrize("config", [SMALL, BIASED, OLMO])
def test_weights_are_those_of_the_decoder_and_its_adapter(config):
    model = Decoder(config)
    assert parameters(config) == sum(p.numel() for p in model.parameters())
    made = Adapter(model, rank=3, generator=torch.Generator())
    assert adapter(config, 3) == sum(p.numel() for p in made.parameters())


def test_a_trained_weight_is_20_bytes_in_bfloat16_and_16_in_float32():
    n, half, full = 6_738_415_616, of("7B", "sft"), of("7B", "sft", bits=32)
    assert (half.weights, half.gradients, half.optimizer) == (2 * n, 6 * n, 12 * n)
    assert (full.weights, full.gradients, full.optimizer) == (4 * n, 4 * n, 8 * n)


def test_these_are_the_arrays_that_the_optimizer_holds():
    """Optim over weights in bfloat16, after a pass and a step:
    masters, sums, moments, the gradients of a pass."""
    model = Decoder(SMALL).start(torch.Generator().manual_seed(0)).to(torch.bfloat16)
    optim = Optim(Models(model), OptimSettings(lr=1e-3, precision="fp32"), steps=2)
    model.logits(torch.ones(1, 4, dtype=torch.int64)).sum().backward()
    passing = sum(p.grad.nbytes for p in model.parameters())
    optim.gather()
    sums = sum(m.grad.nbytes for m in optim.masters)
    optim.step(1, 1.0)
    n = parameters(SMALL)
    moments = sum(x.nbytes for s in optim.adam.state.values() for k, x in s.items() if k != "step")
    assert sums + passing == 6 * n
    assert sum(m.nbytes for m in optim.masters) + moments == 12 * n


def test_qlora_of_65b_as_its_paper_says():
    """Dettmers et al. 2023: fine-tuning 65B takes more than 780 GB in 16 bits,
    and less than 48 GB with 4-bit weights."""
    assert of("70B", "sft").updating > 780 * GB
    assert of("70B", "sft", lora=16, bits=4, recompute=True, tokens=512).updating < 48 * GB
    # of a body in 4 bits, what is made whole for a product
    both = of("7B", "grpo", lora=16, bits=4), of("7B", "grpo", lora=16)
    assert both[0].activations - both[1].activations == 2 * 4096 * 11008
    # and in the sampler: there is no copy, but the fused gate and up in float32, twice at most
    assert both[0].sampler == 16 * 4096 * 11008 + 4 * 16 * 32000 and both[0].cache == both[1].cache
    # 6.48 x 0.516 + 0.26 x 2 + adapter
    assert of("7B", "sft", lora=16, bits=4).weights == pytest.approx(4.02 * GB, rel=0.01)


@pytest.mark.parametrize(("method", "judged", "wanted"), [
    ("ppo", True, "policy reference reward critic"), ("grpo", False, "policy reference"),
    ("dapo", False, "policy"), ("dpo", True, "policy reference"), ("simpo", False, "policy"),
    ("orpo", False, "policy"), ("sft", True, "policy"), ("opd", False, "policy teacher"),
    ("sdft", False, "policy teacher"),
])
def test_models_in_memory(method, judged, wanted):
    assert held(methods.get_method(method), judged) == tuple(wanted.split())


def test_ppo_trains_two_and_holds_four():
    made, n = of("7B", "ppo", reward_model=True), 6_738_415_616
    assert made.weights == 8 * n + 4 * 2 * 4096  # the heads of reward model and critic, in float32
    assert (made.gradients == 6 * (2 * n + 4096)
            and list(made.models) == ["policy", "reference", "reward", "critic"])


def test_a_teacher_is_held_beside_the_policy():
    """Of its own size where it is named; the model itself, as a teacher, is a copy, or with adapters the
    body."""
    alone, taught = of("7B", "dapo"), of("7B", "opd")
    assert taught.weights - alone.weights == taught.models["teacher"] == 2 * 6_738_415_616
    large = of("7B", "opd", teacher=SIZES["13B"], lora=16)
    assert large.models["teacher"] == 2 * parameters(SIZES["13B"]) > taught.models["teacher"]
    assert of("7B", "sdft").weights == taught.weights and of("7B", "sdft", lora=16).models["teacher"] == 0


def test_an_adapters_reference_is_its_body():
    with_reference, without = of("7B", "grpo", lora=16), of("7B", "dapo", lora=16)
    assert with_reference.weights == without.weights and with_reference.models["reference"] == 0
    # 16 x (7 x 4096 + 4 x 4096 + 3 x 11008) x 32 layers
    assert with_reference.weights == 2 * 6_738_415_616 + 4 * 39_976_960


def test_the_cache_by_hand():
    """Llama 2 7B: 2 x 32 layers x 4096 x 2 bytes = 512 KiB a token;
    the 70B with 8 key-value heads: 320 KiB."""
    assert cache(SIZES["7B"], Setup(tokens=1, samples=1)) == 512 * 1024
    assert cache(SIZES["70B"], Setup(tokens=1, samples=1)) == 320 * 1024
    # a prompt of 1,000 tokens is kept once for a group of 8
    shared = Setup(tokens=1024, samples=16, prompt=1000, group=8)
    assert cache(SIZES["7B"], shared) == (16 * 24 + 2 * 1000) * 512 * 1024
    # besides, the sampler's copies of q, k, v, gate and up, and a step's logits
    fused = 32 * (3 * 4096 * 4096 + 2 * 4096 * 11008)
    assert of("7B", "dpo").cache == of("7B", "dpo").sampler == 0
    assert of("7B", "grpo").cache == 16 * 1024 * 512 * 1024
    assert of("7B", "grpo").sampler == 2 * fused + 4 * 16 * 32000
    # on a CPU all matrices and the head, laid out for few rows
    assert of("7B", "grpo", bits=32, on_gpu=False).cache == 2 * 16 * 1024 * 512 * 1024
    here = of("7B", "grpo", bits=32, on_gpu=False).sampler
    assert here == 4 * (32 * (4 * 4096 * 4096 + 3 * 4096 * 11008) + 32000 * 4096) + 4 * 16 * 32000
    # with adapters all matrices are merged
    merged = of("7B", "grpo", lora=16).sampler - of("7B", "grpo").sampler
    assert merged == 2 * 32 * (4096 * 4096 + 4096 * 11008)


def test_sampling_and_updating_take_turns():
    made = Memory(weights=10.0, gradients=1.0, optimizer=5.0, activations=3.0, cache=4.0, sampler=3.0,
                  models={}, stays={})
    assert (made.sampling, made.updating, made.peak) == (22.0, 19.0, 22.0)
    # a cache that is not given back, graphs that stay
    kept = replace(made, release=False, stays={"gradients": 2.0})
    assert (kept.sampling, kept.updating) == (24.0, 26.0)
    assert of("7B", "dpo").sampling == 0 and of("7B", "dpo").peak == of("7B", "dpo").updating


def test_what_saves_memory_saves_it():
    full = of("13B", "grpo", tokens=2048)
    assert of("13B", "grpo", tokens=2048, recompute=True).activations < 0.35 * full.activations
    assert of("13B", "grpo", tokens=2048, lora=16).optimizer < 0.01 * full.optimizer
    # a pair is two rows
    assert of("13B", "dpo", lora=16).activations > 1.9 * of("13B", "grpo", lora=16).activations


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize("changes", [{}, {"num_key_value_heads": 4, "intermediate_size": 512},
                                     {"hidden_size": 256}, {"architecture": BIASED.architecture},
                                     {"architecture": OLMO.architecture}])
def test_layers_keep_what_autograd_saves(changes, lora):
    """The bytes that autograd saves of a pass up to the log-probs, counted on a CPU: the C kernels keep no
    attention matrix."""
    if cpu.c_library() is None:
        pytest.skip("the C kernels could not be built here; plain torch keeps more")
    config = Config(**{**vars(SMALL), **changes})
    body, saved = Decoder(config).start(torch.Generator().manual_seed(0)), {}
    model = (Adapted(body, Adapter(body, rank=lora, generator=torch.Generator().manual_seed(0))) if lora
             else body)
    mine = {p.untyped_storage().data_ptr() for p in (*body.parameters(), *model.parameters())}
    tokens = torch.randint(0, 64, (4, 96), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(4, 96) > 0
    mask[:, 0] = False

    def keep(x):
        if x.untyped_storage().data_ptr() not in mine:
            saved[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        logp, _ = model.logp(tokens, mask)
    counted = sum(x.untyped_storage().nbytes() for x in saved.values())
    assert logp.requires_grad
    beside = 4 * 4 * 96 * 7 * config.num_hidden_layers * lora  # what A gives, too small for the estimate
    if lora and config.architecture.family.norms.get("before_attention"):
        beside -= 4 * 4 * 96 * config.hidden_size  # the first norm reads frozen embeddings, and keeps nothing
    said = layers(config, Setup(bits=32, on_gpu=False, rows=4, tokens=96, lora=lora))
    assert counted == pytest.approx(said + beside, rel=0.02)


def peak_of(work):
    """The most bytes that were allocated at once in a piece of work, beyond those before it, by torch's own
    profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                profile_memory=True) as seen:
        work()
    now = peak = 0
    for event in seen.profiler.kineto_results.events():
        now += event.nbytes() if event.name() == "[memory]" else 0
        peak = max(peak, now)
    return peak


def test_the_heads_backward_pass_holds_six_copies_of_the_logits():
    V, N, D = 4000, 256, 16
    states, matrix = (torch.randn(n, D, generator=torch.Generator().manual_seed(n), requires_grad=True)
                      for n in (N, V))
    for leaf in (states, matrix):
        leaf.grad = torch.zeros_like(leaf)

    def work():
        logp, entropy = chosen_logp(states, matrix, torch.arange(N))
        (logp.sum() + entropy.sum()).backward()

    config = Config(**{**vars(SMALL), "vocab_size": V, "hidden_size": D})
    assert head(config, Setup(bits=32, on_gpu=False, rows=1, tokens=N)) == pytest.approx(peak_of(work),
                                                                                         rel=0.05)


@pytest.mark.parametrize(("changes", "lora", "recompute"), [
    ({}, 0, False), ({}, 0, True), ({"intermediate_size": 1024, "num_hidden_layers": 2}, 4, True),
    ({"vocab_size": 2048, "tie_word_embeddings": True, "num_hidden_layers": 1}, 0, True)])
def test_the_peak_of_a_pass_is_what_is_said(changes, lora, recompute):
    """Layers, a layer's backward pass, the head's: with gradients there, as from the second pass on."""
    if cpu.c_library() is None:
        pytest.skip("the C kernels could not be built here; plain torch keeps more")
    config = Config(**{**vars(SMALL), "hidden_size": 256, "head_dim": 64, "num_hidden_layers": 4,
                       "intermediate_size": 512, "vocab_size": 512, **changes})
    model = body = Decoder(config).start(torch.Generator().manual_seed(0))
    body.recompute = recompute
    if lora:
        model = Adapted(body, Adapter(body, rank=lora, generator=torch.Generator().manual_seed(0)))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    tokens = torch.randint(0, 64, (2, 256), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(256) > 0).expand(2, 256)
    model.logp(tokens[:1, :8], mask[:1, :8])  # angles are made, kernels are loaded

    setup = Setup(bits=32, on_gpu=False, rows=2, tokens=256, lora=lora, recompute=recompute)
    peak = peak_of(lambda: model.logp(tokens, mask)[0].sum().backward())
    assert activations(config, setup, 1, True) == pytest.approx(peak, rel=0.05)


def test_the_command(capsys):
    assert main("memory 7B --method grpo --lora 16 --json".split()) == 0
    (row,) = json.loads(capsys.readouterr().out)["methods"]
    assert row["peak"] == of("7B", "grpo", lora=16).peak
    assert main(["memory", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "policy, reference, reward, critic" in out and "12 GB" in out
    assert main(["memory", "8B"]) == 0 and "8B: 8.00B parameters" in capsys.readouterr().out
    assert main(["memory", "nowhere"]) == 2 and "no model at nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(("setup", "said"), [({"bits": 8}, "32, 16 or 4"), ({"tokens": 0}, "at least 1"),
                                             ({"lora": -1}, "0 or more")])
def test_a_setup_that_cannot_be(setup, said):
    with pytest.raises(ValueError, match=said):
        Setup(**setup)


# GB at the peak of a step on an H200, graphs' own memory included: python bench/memory.py, 2026-11-17
MEASURED = [("sft", Setup(bits=32), 26.187), ("sft", Setup(bits=32, rows=4), 39.162),
            ("sft", Setup(bits=32, rows=4, recompute=True), 25.998), ("sft", Setup(bits=16, rows=8), 37.693),
            ("sft", Setup(bits=16, rows=8, recompute=True), 30.328),
            ("sft", Setup(bits=16, rows=8, compiled=False), 39.124),
            ("ppo", Setup(bits=32, rows=4, reward_model=True), 77.682),
            ("ppo", Setup(bits=32, rows=4, lora=16, reward_model=True), 33.589)]


@pytest.mark.parametrize(("method", "setup", "measured"), MEASURED)
def test_the_estimate_is_within_a_tenth_of_a_gpu(method, setup, measured):
    said = estimate(SIZES["1B"], methods.get_method(method), setup).peak / 1e9
    assert said == pytest.approx(measured, rel=0.1)
