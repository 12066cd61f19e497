"""The memory estimate: known numbers by hand, the decoder's own weights and saved tensors, and peaks measured on a GPU."""

import json

import pytest
import torch

from postgrad import methods
from postgrad.cli import main
from postgrad.memory import GB, SIZES, Memory, Setup, adapter, cache, estimate, held, layers, parameters
from postgrad.models import Adapter, Config, Decoder
from postgrad.models.families import Parts

SMALL = Config(vocab_size=64, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
               num_key_value_heads=2, head_dim=16)
BIASED = Config(vocab_size=64, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=24, tie_word_embeddings=True,
                parts=Parts(model_type="qwen3", qkv_bias=True, o_bias=True, qk_norm=True))


def of(size, method, **setup):
    return estimate(SIZES[size], methods.get(method), Setup(**setup))


@pytest.mark.parametrize(("size", "count"), [("1B", 1_235_814_400), ("7B", 6_738_415_616), ("13B", 13_015_864_320),
                                             ("70B", 68_976_648_192)])
def test_the_sizes_are_those_of_the_published_models(size, count):
    assert parameters(SIZES[size]) == count


@pytest.mark.parametrize("config", [SMALL, BIASED])
def test_weights_are_those_of_the_decoder_and_its_adapter(config):
    model = Decoder(config)
    assert parameters(config) == sum(p.numel() for p in model.parameters())
    made = Adapter(model, rank=3, generator=torch.Generator())
    assert adapter(config, 3) == sum(p.numel() for p in made.parameters())


def test_all_weights_in_mixed_precision_are_16_bytes_each():
    made = of("7B", "sft")
    assert made.weights == 2 * 6_738_415_616 and made.gradients == made.weights and made.optimizer == 6 * made.weights
    full = of("7B", "sft", bits=32)
    assert (full.weights, full.gradients, full.optimizer) == (2 * made.weights, 2 * made.weights, 4 * made.weights)
    assert full.weights + full.gradients + full.optimizer == made.weights + made.gradients + made.optimizer


def test_qlora_of_65b_as_its_paper_says():
    """Dettmers et al. 2023: fine-tuning 65B takes more than 780 GB in 16 bits, and less than 48 GB with 4-bit weights."""
    assert of("70B", "sft").updating > 780 * GB
    assert of("70B", "sft", lora=16, bits=4, recompute=True, tokens=512).updating < 48 * GB
    assert of("7B", "sft", lora=16, bits=4).weights == pytest.approx(3.94 * GB, rel=0.01)  # 6.48 x 0.516 + 0.26 x 2 + adapter


@pytest.mark.parametrize(("method", "judged", "wanted"), [
    ("ppo", True, "policy reference reward critic"), ("grpo", False, "policy reference"), ("dapo", False, "policy"),
    ("dpo", True, "policy reference"), ("simpo", False, "policy"), ("orpo", False, "policy"), ("sft", True, "policy"),
])
def test_models_in_memory(method, judged, wanted):
    assert held(methods.get(method), judged) == tuple(wanted.split())


def test_ppo_trains_two_and_holds_four():
    made, n = of("7B", "ppo", reward_model=True), 6_738_415_616
    assert made.weights == 2 * (4 * n + 2 * 4096)  # the heads of reward model and critic
    assert made.gradients == 2 * (2 * n + 4096) and list(made.models) == ["policy", "reference", "reward", "critic"]


def test_an_adapters_reference_is_its_body():
    with_reference, without = of("7B", "grpo", lora=16), of("7B", "dapo", lora=16)
    assert with_reference.weights == without.weights and with_reference.models["reference"] == 0
    assert with_reference.weights == 2 * (6_738_415_616 + 39_976_960)  # 16 x (7 x 4096 + 4 x 4096 + 3 x 11008) x 32 layers


def test_the_cache_by_hand():
    """Llama 2 7B: 2 x 32 layers x 4096 x 2 bytes = 512 KiB a token; the 70B with 8 key-value heads: 320 KiB."""
    assert cache(SIZES["7B"], Setup(tokens=1, samples=1)) == 512 * 1024
    assert cache(SIZES["70B"], Setup(tokens=1, samples=1)) == 320 * 1024
    assert of("7B", "dpo").cache == 0 and of("7B", "grpo").cache == 16 * 1024 * 512 * 1024


def test_sampling_and_updating_take_turns():
    made = Memory(weights=10.0, gradients=1.0, optimizer=5.0, activations=3.0, cache=7.0, models={})
    assert (made.sampling, made.updating, made.peak) == (22.0, 19.0, 22.0)
    assert of("7B", "dpo").sampling == 0 and of("7B", "dpo").peak == of("7B", "dpo").updating


def test_what_saves_memory_saves_it():
    full = of("13B", "grpo", tokens=2048)
    assert of("13B", "grpo", tokens=2048, recompute=True).activations < 0.35 * full.activations
    assert of("13B", "grpo", tokens=2048, lora=16).optimizer < 0.01 * full.optimizer
    assert of("13B", "dpo").activations > 1.9 * of("13B", "grpo").activations  # a pair is two rows


def test_layers_keep_what_autograd_saves():
    """The bytes that autograd saves, counted on a CPU. There a norm is made of smaller steps and keeps a little more."""
    config = Config(**{**vars(SMALL), "num_key_value_heads": 4, "intermediate_size": 512})
    model, saved = Decoder(config).start(torch.Generator().manual_seed(0)), {}
    mine = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(x):
        if x.untyped_storage().data_ptr() not in mine:
            saved[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        hidden = model.hidden(torch.ones(4, 96, dtype=torch.int64))
    counted = sum(x.untyped_storage().nbytes() for x in saved.values())
    assert hidden.requires_grad and 0.8 < counted / layers(config, Setup(bits=32, rows=4, tokens=96)) < 1.25


# Bytes above weights and optimizer state, by torch.cuda.max_memory_allocated on an H200 with torch 2.11, by a shorter script of
# the same steps as bench/memory.py; the last with one pass a step, which hardly matters where the gradients are an adapter's.
MEASURED = [
    ("1B", "sft", {"bits": 32}, 13_488_958_464), ("1B", "sft", {"bits": 32, "rows": 4}, 33_870_640_128),
    ("1B", "ppo", {"bits": 32, "rows": 4, "reward_model": True}, 53_916_394_496),
    ("1B", "ppo", {"bits": 32, "rows": 4, "reward_model": True, "lora": 16}, 44_110_488_576),
    ("1B", "grpo", {"bits": 16, "rows": 8, "lora": 16}, 23_237_542_912),
]


@pytest.mark.parametrize(("size", "method", "setup", "measured"), MEASURED)
def test_the_estimate_against_measured_peaks(size, method, setup, measured):
    made = of(size, method, **setup)
    assert made.gradients + made.activations == pytest.approx(measured, rel=0.07)


def test_the_command(capsys):
    assert main("memory 7B --method grpo --lora 16 --json".split()) == 0
    (row,) = json.loads(capsys.readouterr().out)["methods"]
    assert row["peak"] == of("7B", "grpo", lora=16).peak
    assert main(["memory", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "policy, reference, reward, critic" in out and "12 GB" in out
    assert main(["memory", "8B"]) == 2 and "no model at 8B" in capsys.readouterr().err


@pytest.mark.parametrize(("setup", "said"), [({"bits": 8}, "32, 16 or 4"), ({"tokens": 0}, "at least 1"),
                                             ({"lora": -1}, "0 or more")])
def test_a_setup_that_cannot_be(setup, said):
    with pytest.raises(ValueError, match=said):
        Setup(**setup)
