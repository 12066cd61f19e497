"""A layer is described once: from a row in the table of families follow decoder, sampler and estimate."""

import random

import pytest
import torch
from small import CHAT, PROMPTS

from postgrad.models import Adapter, Config, Decoder
from postgrad.models.families import (
    AFTER,
    BEFORE,
    FAMILIES,
    NUMBERS,
    SANDWICH,
    Architecture,
    ExpertSizes,
    Family,
)
from postgrad.models.kernels import cpu
from postgrad.models.kernels.fused import (
    C_DECODE_STEP,
    GPU_ATTENTION,
    GPU_DECODE_STEP,
    GPU_TRAINING_LAYER,
    report_refusal,
)
from postgrad.models.layer import layer_spec, stored_tensors
from postgrad.models.nf4 import linear_layers
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training.memory import adapter, matrices, parameters

SIZES = dict(vocab_size=1024, hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=12,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
ACTIVATIONS = {
    "silu": lambda x: x * x.sigmoid(), "relu": lambda x: x.clamp_min(0),
    "gelu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    "gelu_pytorch_tanh": lambda x: x * (1 + torch.tanh((2 / torch.pi)**0.5 * (x + 0.044715 * x**3))) / 2}
MADE_UP = {  # no family of that kind is read from files
    "bare": dict(norms={}),
    "sandwich": dict(norms={**BEFORE, **AFTER, "before_mlp": "pre_feedforward_layernorm"}, qk_norm="head"),
    "before one, after the other": dict(norms={"before_attention": "first_norm", "after_mlp": "last_norm"}),
    "wide norms": dict(norms=BEFORE, qk_norm="projection"),
    "subtracts the mean": dict(norm="layer", norm_bias=True, qk_norm="head"),
    "subtracts the mean, after": dict(norms=AFTER, norm="layer", norm_weight=False),
    "another activation": dict(activation="gelu_pytorch_tanh", norm_weight=False),
    "one added to norms": dict(norm_offset=1.0, norms=SANDWICH, qk_norm="head", scaled_embedding=True),
    "one matrix for three": dict(matrices={"qkv": "self_attn.qkv_proj", "gate_up": "mlp.both"}),
    "scales": dict(numbers=NUMBERS, activation="gelu_pytorch_tanh"),
}
# of the "scales"; every made-up decoder has a layer without rotation, and rotates three quarters of heads
NUMBERS_OF = dict(attention_multiplier=0.5, attn_logit_softcapping=1.5, residual_multiplier=0.3,
                  embedding_multiplier=3.0, logits_scaling=2.5, final_logit_softcapping=2.0)


def config_of(kind, **parts):
    return Config(**SIZES, architecture=Architecture(model_type=kind, **parts))


def filled(config):
    model, draw = Decoder(config), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            one = 1 - config.architecture.family.norm_offset
            p.copy_(torch.randn(p.shape, generator=draw) * 0.15 + (p.dim() == 1) * one)
    return model


def by_hand(model, tokens):
    """x + after(half(before(x))) for each half, in plain torch, by the names of weights: [T] -> [T, D]."""
    w, c, family = model.state_dict(), model.config, model.config.architecture.family
    R, number = int(c.head_dim * c.architecture.rotated), dict(c.architecture.numbers).get
    positions = torch.arange(len(tokens))
    angles = torch.outer(positions.float(), 1 / c.rope_theta ** (torch.arange(0, R, 2) / R))
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]

    def norm(x, name):
        if not name:
            return x
        x = x - x.mean(-1, keepdim=True) if family.norm == "layer" else x
        x = x / (x.square().mean(-1, keepdim=True) + c.rms_norm_eps).sqrt()
        return (x * (w.get(name, torch.tensor(1.0)) + family.norm_offset)
                + w.get(name.replace(".weight", ".bias"), 0.0))

    def rotated(x):
        a, b = x[..., :R].chunk(2, dim=-1)
        z = torch.complex(a, b) * turn
        return torch.cat([z.real, z.imag, x[..., R:]], dim=-1)

    def capped(x, cap):
        return cap * torch.tanh(x / cap) if cap else x

    def weight(at, room, part, widths):
        whole = family.matrices.get("qkv" if part in "qkv" else "gate_up")
        if whole is None:
            return w[f"{at}{room}.{part}_proj.weight"]
        return dict(zip(widths, w[f"{at}{whole}.weight"].split([*widths.values()]), strict=True))[part]

    def attention(x, at, i):
        heads, kv = [], c.num_key_value_heads * c.head_dim
        for part in "qkv":
            y = x @ weight(at, "self_attn", part, dict(q=c.num_attention_heads * c.head_dim, k=kv, v=kv)).T
            y = y if family.qk_norm == "projection" and part != "v" else y.view(len(x), -1, c.head_dim)
            y = norm(y, f"{at}self_attn.{part}_norm.weight" if family.qk_norm and part != "v" else "")
            heads.append(y.view(len(x), -1, c.head_dim))
        q, k = (x if i in c.architecture.unrotated_layers else rotated(x) for x in heads[:2])
        k, v = (y.repeat_interleave(c.num_attention_heads // c.num_key_value_heads, 1) for y in (k, heads[2]))
        scores = torch.einsum("qhd,khd->hqk", q, k) * (number("attention_multiplier") or c.head_dim**-0.5)
        scores = capped(scores, number("attn_logit_softcapping"))
        seen = scores.masked_fill(positions[None] > positions[:, None], -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", seen, v).flatten(1) @ w[f"{at}self_attn.o_proj.weight"].T

    def mlp(x, at, i):
        gate, up = (x @ weight(at, "mlp", part, dict.fromkeys(("gate", "up"), c.intermediate_size)).T
                    for part in ("gate", "up"))
        return (ACTIVATIONS[family.activation](gate) * up) @ w[f"{at}mlp.down_proj.weight"].T

    x = w["model.embed_tokens.weight"][tokens] * (c.hidden_size**0.5 if family.scaled_embedding else
                                                  number("embedding_multiplier") or 1)
    for i in range(c.num_hidden_layers):
        at = f"model.layers.{i}."
        for half, name in ((attention, "attention"), (mlp, "mlp")):
            before, after = (family.norms.get(f"{place}_{name}") for place in ("before", "after"))
            y = half(norm(x, before and f"{at}{before}.weight"), at, i)
            x = x + norm(y, after and f"{at}{after}.weight") * (number("residual_multiplier") or 1)
    x = norm(x, "model.norm.weight")
    logits = x @ w["lm_head.weight"].T / (number("logits_scaling") or 1)
    return x, capped(logits, number("final_logit_softcapping"))


def agree(model):
    """The log-probs of the sampler are those of the trainer."""
    groups = LocalSampler(model, CHAT).sample(PROMPTS[:3], 2, Sampling(max_new_tokens=16), seed=5)
    for rollout in (r for group in groups for r in group):
        n, tokens = len(rollout.prompt_tokens), torch.tensor([rollout.prompt_tokens + rollout.tokens])
        logp, _ = model.logp(tokens, torch.arange(tokens.shape[1])[None] >= n)
        torch.testing.assert_close(torch.tensor(rollout.logp), logp[0, n:].detach(), rtol=0, atol=1e-5)


@pytest.fixture(params=MADE_UP)
def made_up(request, monkeypatch):
    """A family that is one row of the table and nothing else."""
    monkeypatch.setitem(FAMILIES, "made up", Family(classes="MadeUp", config_defaults={},
                                                    **MADE_UP[request.param]))
    numbers = tuple(NUMBERS_OF.items()) if "numbers" in MADE_UP[request.param] else ()
    return filled(config_of("made up", numbers=numbers, unrotated_layers=(1,), rotated=2 / 3))


def test_the_decoder_follows_one_row(made_up):
    tokens = torch.randint(0, 1024, (1, 30), generator=torch.Generator().manual_seed(0))
    states, logits = by_hand(made_up, tokens[0])
    torch.testing.assert_close(made_up.hidden(tokens)[0], states, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made_up.logits(tokens)[0], logits, rtol=1e-4, atol=1e-4)
    logp, entropy = made_up.logp(tokens, torch.arange(30)[None] > 0, temperature=0.7)
    wanted = (logits[:-1] / 0.7).log_softmax(-1)
    torch.testing.assert_close(logp[0, 1:], wanted.gather(1, tokens[0, 1:, None])[:, 0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy[0, 1:], -(wanted.exp() * wanted).sum(-1), rtol=1e-4, atol=1e-4)
    pull = torch.randn(29, generator=torch.Generator().manual_seed(2))
    head = made_up.lm_head.weight
    (mine,) = torch.autograd.grad(((logp[0, 1:] + entropy[0, 1:]) * pull).sum(), head)
    columns = made_up.logits(tokens)[0, :-1] / 0.7
    columns = columns.log_softmax(-1)
    other = columns.gather(1, tokens[0, 1:, None])[:, 0] - (columns.exp() * columns).sum(-1)
    (theirs,) = torch.autograd.grad((other * pull).sum(), head)
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_the_sampler_follows_one_row(made_up):
    agree(made_up)


def random_family(draw):
    """A description drawn at random: norms, their places, activation, biases, windows, heads, matrices in
    one, scales and caps, experts, and which layers rotate how much of a head by which angles."""
    places = {place: f"{place}_norm" for place in (*BEFORE, *AFTER) if draw.random() < 0.5}
    family = Family(classes="MadeUp", config_defaults={}, norms=places if draw.random() < 0.5 else BEFORE,
                    norm=draw.choice(["rms", "rms", "layer"]), norm_weight=draw.random() < 0.8,
                    norm_bias=draw.random() < 0.3, qk_norm=draw.choice(["", "", "head", "projection"]),
                    activation=draw.choice(["silu", "silu", *ACTIVATIONS]),
                    norm_offset=draw.choice([0.0, 1.0]), scaled_embedding=draw.random() < 0.3,
                    numbers=NUMBERS, matrices={name: f"{room}.{name}_proj"
                                               for name, room in (("qkv", "self_attn"), ("gate_up", "mlp"))
                                               if draw.random() < 0.4})
    sizes = SIZES | dict(num_key_value_heads=draw.choice([1, 2, 4]), head_dim=draw.choice([4, 12, 16]),
                         hidden_size=draw.choice([24, 32]), tie_word_embeddings=draw.random() < 0.5,
                         rms_norm_eps=draw.choice([1e-6, 1e-2]))
    window = draw.choice([None, 3, 9])
    parts = dict(qkv_bias=draw.random() < 0.5, o_bias=draw.random() < 0.3, window=window,
                 window_layers=(1,) if window else (), local_theta=draw.choice([None, 100.0]),
                 unrotated_layers=draw.choice([(), (), (0,), (1,)]), rotated=draw.choice([1.0, 1.0, 0.5]),
                 experts=ExpertSizes(count=5, active=2, width=16, dense=(0,) if draw.random() < 0.5 else (),
                                     renormalised=draw.random() < 0.5) if draw.random() < 0.2 else None,
                 numbers=tuple((key, draw.choice([0.4, 2.0])) for key in NUMBERS if draw.random() < 0.3))
    return family, sizes, parts


@pytest.mark.parametrize("seed", range(40))
def test_the_sampler_says_what_the_trainer_says_of_any_description(seed, monkeypatch):
    family, sizes, parts = random_family(random.Random(seed))
    monkeypatch.setitem(FAMILIES, "made up", family)
    model = filled(Config(**sizes, architecture=Architecture(model_type="made up", **parts)))
    agree(model)
    names = set(layer_spec(model.config, 0).fused())  # what decode.c reads, by the names of its struct
    needed = {"before_attention", "before_mlp", "qkv", "o", "gate_up", "down"}
    runs = (family.norm == "rms" and family.activation in ("silu", "gelu_pytorch_tanh")
            and family.qk_norm != "projection" and (family.norm_weight and not family.norm_bias)
            and needed <= names <= {*needed, "qkv_bias", "o_bias", "after_attention", "after_mlp", "q_norm",
                                    "k_norm", "router"})
    engine = model.engine(rows=1, prompts=1, read=4, new=4)
    assert (engine.whole is not None) is (runs and cpu.c_library() is not None)


def test_a_kernel_that_cannot_run_a_layer_says_why_once(monkeypatch, caplog):
    monkeypatch.setitem(FAMILIES, "made up", Family(classes="MadeUp", config_defaults={}, norm="layer"))
    spec, llama = (layer_spec(config_of(kind), 0) for kind in ("made up", "llama"))
    why = "input_layernorm subtracts the mean, and it computes x / rms(x) * weight"
    assert C_DECODE_STEP.supports(spec, "float32", "cpu") == GPU_DECODE_STEP.supports(spec) == why
    assert C_DECODE_STEP.supports(llama, "float32", "cpu") is GPU_DECODE_STEP.supports(llama) is None
    phi, gemma = (layer_spec(config_of(kind, **parts), 0) for kind, parts in (
        ("phi3", dict(rotated=2 / 3)), ("gemma2", dict(numbers=(("attn_logit_softcapping", 50.0),)))))
    assert C_DECODE_STEP.supports(phi) is C_DECODE_STEP.supports(gemma) is None
    assert GPU_ATTENTION.supports(phi) == "it rotates whole heads, not 8 numbers of each"
    assert GPU_ATTENTION.supports(gemma) == "it does not cap scores"
    granite = layer_spec(config_of("granite", numbers=(("residual_multiplier", 0.2),)), 0)
    assert GPU_TRAINING_LAYER.supports(granite) == "it scales neither queries nor what a sublayer adds"
    assert C_DECODE_STEP.supports(llama, "bfloat16") == "it has no bfloat16"
    assert C_DECODE_STEP.supports(llama, device="cuda") == "it is for cpu"
    assert GPU_DECODE_STEP.supports(layer_spec(config_of("llama", qkv_bias=True), 0)) == (
        "it has no bias in self_attn.q_proj")
    assert GPU_TRAINING_LAYER.supports(spec) is None
    assert GPU_TRAINING_LAYER.supports(layer_spec(config_of("olmo2"), 0)) == "it has no norm after a sublayer"
    if cpu.c_library() is not None:
        report_refusal.cache_clear()
        for _ in range(2):
            Decoder(config_of("made up")).engine(rows=1, prompts=1, read=4, new=4)
        assert [record.message for record in caplog.records] == [
            f"postgrad: the fused decode step in C is not used, so that a step is slower: {why}."]


def test_the_counts_follow_one_row(made_up):
    assert parameters(made_up.config) == sum(p.numel() for p in made_up.parameters())
    made = Adapter(made_up, rank=3, generator=torch.Generator())
    assert adapter(made_up.config, 3) == sum(p.numel() for p in made.parameters())


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("bias", [False, True])
def test_what_is_described_is_what_the_decoder_has(kind, bias):
    config = config_of(kind, qkv_bias=bias, o_bias=bias)
    model = Decoder(config)
    made = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert {tensor.name: tensor.shape for tensor in stored_tensors(config)} == made
    described = [f"model.layers.{i}.{m.name}" for i in range(2) for m in layer_spec(config, i).matrices]
    assert list(linear_layers(model)) == described  # what an adapter is added to, and what is held in 4 bits
    assert matrices(config) == sum(m.weight.numel() for m in linear_layers(model).values())


def test_windows_are_those_of_the_layer():
    config = config_of("qwen2", window=5, window_layers=(1,))
    assert [layer_spec(config, i).window for i in range(2)] == [None, 5]
    assert [layer.window for layer in Decoder(config).model.layers] == [None, 5]


def test_weights_that_read_the_same_are_fused():
    fused = layer_spec(config_of("qwen2", qkv_bias=True), 0).fused()
    assert fused == {
        "before_attention": ("input_layernorm.weight",), "before_mlp": ("post_attention_layernorm.weight",),
        "qkv": tuple(f"self_attn.{x}_proj.weight" for x in "qkv"), "o": ("self_attn.o_proj.weight",),
        "qkv_bias": tuple(f"self_attn.{x}_proj.bias" for x in "qkv"),
        "gate_up": ("mlp.gate_proj.weight", "mlp.up_proj.weight"), "down": ("mlp.down_proj.weight",)}


@pytest.mark.skipif(cpu.c_library() is None, reason="no C kernels here")
@pytest.mark.parametrize(("kind", "known"), [("llama", True), ("mistral", True), ("qwen2", True),
                                             ("qwen3", True), ("gemma2", True), ("gemma3_text", True),
                                             ("phi3", True), ("granite", True), ("smollm3", True),
                                             ("olmo2", False)])
def test_the_c_step_is_taken_where_it_knows_the_layers(kind, known):
    engine = Decoder(config_of(kind, qkv_bias=True)).engine(rows=1, prompts=1, read=4, new=4)
    assert (engine.whole is not None) is known
