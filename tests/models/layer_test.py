"""A layer is described once: from a row in the table of families follow decoder, sampler and estimate."""

import pytest
import torch
from small import CHAT, PROMPTS

from postgrad.models import Adapter, Config, Decoder
from postgrad.models.families import AFTER, BEFORE, FAMILIES, Architecture, Family
from postgrad.models.kernels import cpu
from postgrad.models.layer import layer_spec, stored_tensors
from postgrad.models.nf4 import linear_layers
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training.memory import adapter, matrices, parameters

SIZES = dict(vocab_size=1024, hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=12,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
MADE_UP = {  # no family of that kind is read from files
    "bare": dict(norms={}),
    "sandwich": dict(norms={**BEFORE, **AFTER, "before_mlp": "pre_feedforward_layernorm"}, qk_norm="head"),
    "before one, after the other": dict(norms={"before_attention": "first_norm", "after_mlp": "last_norm"}),
    "wide norms": dict(norms=BEFORE, qk_norm="projection"),
}


def config_of(kind, **parts):
    return Config(**SIZES, architecture=Architecture(model_type=kind, **parts))


def filled(config):
    model, draw = Decoder(config), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) * 0.15 + (p.dim() == 1))
    return model


def by_hand(model, tokens):
    """x + after(half(before(x))) for each half, in plain torch, by the names of weights: [T] -> [T, D]."""
    w, c, family = model.state_dict(), model.config, model.config.architecture.family
    positions = torch.arange(len(tokens))
    angles = torch.outer(positions.float(), 1 / c.rope_theta ** (torch.arange(0, c.head_dim, 2) / c.head_dim))
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]

    def norm(x, name):
        return x / (x.square().mean(-1, keepdim=True) + c.rms_norm_eps).sqrt() * w[name] if name else x

    def rotated(x):
        a, b = x.chunk(2, dim=-1)
        z = torch.complex(a, b) * turn
        return torch.cat([z.real, z.imag], dim=-1)

    def attention(x, at):
        heads = []
        for part in "qkv":
            y = x @ w[f"{at}self_attn.{part}_proj.weight"].T
            y = y if family.qk_norm == "projection" and part != "v" else y.view(len(x), -1, c.head_dim)
            y = norm(y, f"{at}self_attn.{part}_norm.weight" if family.qk_norm and part != "v" else "")
            heads.append(y.view(len(x), -1, c.head_dim))
        q, k = rotated(heads[0]), rotated(heads[1])
        k, v = (y.repeat_interleave(c.num_attention_heads // c.num_key_value_heads, 1) for y in (k, heads[2]))
        scores = torch.einsum("qhd,khd->hqk", q, k) / c.head_dim**0.5
        seen = scores.masked_fill(positions[None] > positions[:, None], -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", seen, v).flatten(1) @ w[f"{at}self_attn.o_proj.weight"].T

    def mlp(x, at):
        gate, up = (x @ w[f"{at}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        return (gate * gate.sigmoid() * up) @ w[f"{at}mlp.down_proj.weight"].T

    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c.num_hidden_layers):
        at = f"model.layers.{i}."
        for half, name in ((attention, "attention"), (mlp, "mlp")):
            before, after = (family.norms.get(f"{place}_{name}") for place in ("before", "after"))
            y = half(norm(x, before and f"{at}{before}.weight"), at)
            x = x + norm(y, after and f"{at}{after}.weight")
    return norm(x, "model.norm.weight")


@pytest.fixture(params=MADE_UP)
def made_up(request, monkeypatch):
    """A family that is one row of the table and nothing else."""
    monkeypatch.setitem(FAMILIES, "made up", Family(classes="MadeUp", config_defaults={},
                                                    **MADE_UP[request.param]))
    return filled(config_of("made up"))


def test_the_decoder_follows_one_row(made_up):
    tokens = torch.randint(0, 1024, (1, 30), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(made_up.hidden(tokens)[0], by_hand(made_up, tokens[0]), rtol=1e-4, atol=1e-4)


def test_the_sampler_follows_one_row(made_up):
    groups = LocalSampler(made_up, CHAT).sample(PROMPTS[:3], 2, Sampling(max_new_tokens=16), seed=5)
    for rollout in (r for group in groups for r in group):
        n, tokens = len(rollout.prompt_tokens), torch.tensor([rollout.prompt_tokens + rollout.tokens])
        logp, _ = made_up.logp(tokens, torch.arange(tokens.shape[1])[None] >= n)
        torch.testing.assert_close(torch.tensor(rollout.logp), logp[0, n:].detach(), rtol=0, atol=1e-5)


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
                                             ("qwen3", False), ("olmo2", False)])
def test_the_c_step_is_taken_where_it_knows_the_layers(kind, known):
    engine = Decoder(config_of(kind, qkv_bias=True)).engine(rows=1, prompts=1, read=4, new=4)
    assert (engine.whole is not None) is known
