"""A frozen body in 4 bits: its codes by another road, the gradients of its unpacked weights, bytes held,
runs and resume."""

import sys
from dataclasses import replace
from statistics import NormalDist

import pytest
import torch
from rlhf_small import small, trained
from small import CHAT, begins, build

from postgrad import methods
from postgrad.models import Adapted, Adapter, Decoder, load_model, load_scalar, quantise
from postgrad.models.nf4 import Linear4, held_bytes
from postgrad.recipes import rollouts, sft
from postgrad.recipes.preference import PreferenceConfig
from postgrad.recipes.reward import RewardConfig
from postgrad.records import Prompt
from postgrad.resolve import models as opening
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.throughput import repeatable
from postgrad.training.memory import Setup, estimate, matrices, parameters
from tests.models.lora_test import MASK, TOKENS

pytest.importorskip("bitsandbytes", reason="the extra postgrad[qlora] is not installed")


def codebook():
    """NF4 as the paper has it (section 3): quantiles of N(0, 1), eight above zero, seven below, and zero,
    scaled to [-1, 1]."""
    edge = 0.9677083
    up = [NormalDist().inv_cdf(edge + (0.5 - edge) * i / 8) for i in range(8)]
    down = [-NormalDist().inv_cdf(edge + (0.5 - edge) * i / 7) for i in range(7)]
    return torch.tensor(sorted([*down, 0.0, *up])) / max(up)


def test_codes_are_the_nearest_of_the_paper_s_sixteen_numbers():
    layer = torch.nn.Linear(96, 50)
    layer.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    made, book = Linear4(layer, "cpu"), codebook()
    blocks = layer.weight.detach().reshape(-1, 64)
    distance = (blocks[..., None] / blocks.abs().amax(1)[:, None, None] - book).abs()
    pairs = distance.argmin(-1).view(-1, 2)
    assert torch.equal(made.codes.flatten(), (16 * pairs[:, 0] + pairs[:, 1]).to(torch.uint8))
    exact = book[distance.argmin(-1)] * blocks.abs().amax(1, keepdim=True)
    # the constants are in 8 bits, all in one block: off by a hundredth of its range or so
    largest = blocks.abs().amax(1)
    assert (made.weight.view(-1, 64) - exact).abs().max() < 0.02 * (largest - largest.mean()).abs().max()
    assert made.nbytes == 2400 + 75 + 4 + 4 and torch.equal(made.bias, layer.bias)


def test_what_cannot_be_split_into_blocks_is_said():
    with pytest.raises(ValueError, match="10 x 33 weights cannot be split into blocks of 64"):
        Linear4(torch.nn.Linear(33, 10), "cpu")


def test_without_the_package_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ValueError,
                       match="needs bitsandbytes: pip install 'postgrad\\[qlora\\]', or leave bits=4 out"):
        quantise(load_model("tiny"))


def bodies():
    """tiny in 4 bits, and a plain decoder in float32 with the very weights that it stands for."""
    packed = quantise(load_model("tiny"))
    plain = load_model("tiny")
    plain.load_state_dict(dict(packed.merged()))
    assert packed.merged().keys() == plain.state_dict().keys()
    return packed, plain


def adapted(body, seed=1):
    model = Adapted(body, Adapter(body, rank=4, generator=torch.Generator().manual_seed(seed)))
    for b in model.adapter.B.values():
        b.data.normal_(0, 0.05, generator=torch.Generator().manual_seed(seed))
    return model


@pytest.mark.parametrize("precision", [None, pytest.param(torch.bfloat16, marks=pytest.mark.long)])
def test_loss_and_gradients_are_those_of_the_unpacked_weights(precision):
    seen = []
    for body in bodies():
        model = adapted(body)
        body.precision = precision
        loss = -model.logp(TOKENS, MASK)[0].sum() / MASK.sum()
        loss.backward()
        seen.append([loss.detach(), *(p.grad for p in model.parameters())])
        assert not any(p.requires_grad for p in body.parameters())
    assert len(seen[0]) == 1 + 2 * 4 * 7 and all(x.abs().max() > 0 for x in seen[0])
    for ours, theirs in zip(*seen, strict=True):
        assert torch.equal(ours, theirs)
    assert (load_model("tiny").logp(TOKENS, MASK)[0] - bodies()[0].logp(TOKENS, MASK)[0]).abs().max() > 0.01


def test_no_whole_matrix_waits_for_the_backward_pass():
    model = adapted(quantise(load_model("tiny")))
    kept, sizes = [], {m.out_features * m.in_features for m in model.body.modules() if isinstance(m, Linear4)}
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        model.logp(TOKENS[:1], MASK[:1])
    assert kept and not sizes & set(kept)


def test_bytes_held_are_those_of_the_estimate():
    config = replace(load_model("tiny").config, hidden_size=512, intermediate_size=1024,
                     num_attention_heads=8, num_key_value_heads=4, head_dim=64, num_hidden_layers=2)
    body = Decoder(config).start(torch.Generator().manual_seed(0))
    before = held_bytes(body)
    assert before == 4 * parameters(config)
    packed = quantise(body)
    small = parameters(config) - matrices(config)
    assert held_bytes(packed) == pytest.approx(matrices(config) * 4.127 / 8 + 4 * small, rel=1e-3)
    model = Adapted(packed, Adapter(packed, rank=8, generator=torch.Generator()))
    held = held_bytes(packed) + held_bytes(model)
    said = estimate(config, methods.get_method("sft"), Setup(lora=8, bits=4, single=True)).weights
    assert held == pytest.approx(said, rel=1e-3)
    packed.to(torch.bfloat16)
    held = held_bytes(packed) + held_bytes(model)
    assert held == pytest.approx(estimate(config, methods.get_method("sft"), Setup(lora=8, bits=4)).weights,
                                 rel=1e-3)


def test_the_sampler_says_what_the_trainer_says_and_copies_no_matrix():
    model = adapted(quantise(load_model("tiny-chat")))
    sampler = LocalSampler(model, CHAT)
    (row,), = sampler.sample([Prompt.ask("What is 3 plus 4?", id="1")], 1, Sampling(max_new_tokens=12), 0)
    tokens = torch.tensor([[*row.prompt_tokens, *row.tokens]])
    mask = torch.arange(tokens.shape[1])[None] >= len(row.prompt_tokens)
    torch.testing.assert_close(model.logp(tokens, mask)[0][mask], torch.tensor(row.logp), rtol=1e-4,
                               atol=1e-4)
    matrix = min(m.out_features * m.in_features for m in model.body.modules() if isinstance(m, Linear4))
    kept = sampler._batch.engine.weights
    assert {name for name, w in kept.items() if w.numel() >= matrix} == {"embed", "head"}


@pytest.mark.parametrize(("recipe", "config"), [
    ("sft", sft.SFTConfig(task="words", rows_per_step=4, examples=32)),
    ("rollouts", rollouts.RolloutConfig(task="questions")),
    *(pytest.param(*further, marks=pytest.mark.long) for further in (
        ("reward", RewardConfig(task="questions")), ("preference", PreferenceConfig(task="questions")),
        ("rollouts", rollouts.RolloutConfig(task="questions", method="ppo"))))])
def test_a_cut_run_goes_on_to_the_same_bits(recipe, config, tmp_path):
    config = small(config, "lora=2", "bits=4", "targets=q_proj,down_proj", "steps=2", "evaluation.every=0")
    whole, cut = trained(recipe, config, tmp_path / "whole"), trained(recipe, config, tmp_path / "cut", cut=2)
    rows = [[repeatable(row) for row in r.rows("metrics")[0]]
            for r in (cut, whole)]
    assert rows[0] == rows[1] and len(rows[0]) == 2 and not any(row["skipped"] for row in rows[0])
    for name in ("model.safetensors", "state.tensors", "adapter/adapter_model.safetensors"):
        a, b = ((r.latest() / name).read_bytes() for r in (cut, whole))
        assert a == b
    load = load_scalar if recipe == "reward" else load_model
    model = load(whole.latest())
    body = model.body if recipe == "reward" else model
    packed, _ = opening.open_body(config, begins(config.model))
    still, moved = "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.q_proj.weight"
    weights = body.state_dict()
    assert (torch.equal(weights[still], packed.merged()[still])
            and not torch.equal(weights[moved], packed.merged()[moved]))


def test_four_models_share_one_body_in_four_bits(tmp_path):
    judge = trained("reward", small(RewardConfig(task="questions"), "lora=2", "bits=4", "heads=1"),
                    tmp_path / "judge")
    config = small(rollouts.RolloutConfig(task="questions", method="ppo", reward=str(judge.folder)), "lora=2",
                   "bits=4")
    models = build(config, begins("tiny-chat")).models
    assert len({id(m.body)
                for m in (models.policy, models.reference, models.critic.body, models.reward.body)}) == 1
    tokens = torch.randint(6, 500, (2, 9), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([9, 7])
    alone = load_scalar(judge.latest())
    torch.testing.assert_close(models.reward.score(tokens, lengths), alone.score(tokens, lengths), rtol=1e-4,
                               atol=1e-5)
    # the judge keeps its own body
    whole = build(small(config, "bits=16"), begins("tiny-chat")).models
    assert whole.reward.body is not whole.policy.body and not isinstance(whole.reward.body, Adapted)
