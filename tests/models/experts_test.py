"""Mixtures of experts: the sum by hand, files, routing replay, and what is refused."""

from dataclasses import replace

import pytest
import torch
from small import CHAT, PROMPTS

from postgrad.methods import METHODS
from postgrad.models import Adapted, Adapter, Config, Decoder, Models
from postgrad.models.experts import (
    ExpertFiles,
    expert_layers,
    last_routes,
    mix,
    replaying,
    route,
    stack_experts,
)
from postgrad.models.families import Architecture, ExpertSizes
from postgrad.models.layer import layer_spec
from postgrad.models.nf4 import quantise
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training.batches.columns import rollout_batch
from postgrad.training.batches.shuffled import model_logp
from postgrad.training.distributed.sharding import shard

SIZES = ExpertSizes(count=6, active=2, width=8, renormalised=True, dense=(1,))


def decoder(close=0.0, **sizes):
    """close: how close together the probabilities of the router are."""
    config = Config(vocab_size=1024, hidden_size=16, intermediate_size=24, num_hidden_layers=3, head_dim=8,
                    num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128,
                    architecture=Architecture(model_type="qwen3_moe", experts=replace(SIZES, **sizes)))
    model, draw = Decoder(config), torch.Generator().manual_seed(0)
    for name, p in model.named_parameters():
        wide = close if close and "gate.weight" in name else 0.3
        p.data.copy_(torch.randn(p.shape, generator=draw) * wide + ("norm" in name))
    return model


def sampled(model, n=4, new=24):
    groups = LocalSampler(model, CHAT).sample(PROMPTS[:3], n, Sampling(max_new_tokens=new), seed=3)
    return [rollout for group in groups for rollout in group]


def test_the_mixture_is_the_sum_over_the_chosen():
    spec = layer_spec(decoder().config, 0).mlp
    draw = torch.Generator().manual_seed(1)
    x, router, gate_up, down = (torch.randn(*shape, generator=draw)
                                for shape in ((5, 16), (6, 16), (6, 16, 16), (6, 16, 8)))
    chosen, share = route(x, router, spec)
    p = (x @ router.T).softmax(-1)
    for t in range(5):
        best = p[t].sort(descending=True).indices[:2]
        assert chosen[t].tolist() == best.tolist()
        wanted = 0
        for e in best:
            a, b = (gate_up[e] @ x[t]).chunk(2)
            wanted = wanted + p[t, e] / p[t, best].sum() * (down[e] @ (a * a.sigmoid() * b))
        torch.testing.assert_close(mix(x, chosen, share, gate_up, down, "silu")[t], wanted)


def test_replayed_experts_are_taken_and_open_ones_chosen():
    spec, draw = layer_spec(decoder().config, 0).mlp, torch.Generator().manual_seed(1)
    x, router = torch.randn(3, 16, generator=draw), torch.randn(6, 16, generator=draw, requires_grad=True)
    own, _ = route(x, router, spec)
    chosen, share = route(x, router, spec, torch.tensor([[1, 4], [0, 0], [6, 2]], dtype=torch.int16))
    assert chosen.tolist() == [[0, 3], own[1].tolist(), [5, 1]]
    torch.testing.assert_close(share.sum(-1), torch.ones(3))
    (slope,) = torch.autograd.grad(share[0, 0], router)
    assert slope[[0, 3]].abs().min() > 0  # the probabilities are the trainer's


def test_the_sampler_tells_the_experts_of_every_token_that_went_through_it():
    model = decoder()
    for rollout in sampled(model):
        tokens = torch.tensor([[*rollout.prompt_tokens, *rollout.tokens]])
        model.hidden(tokens)
        assert rollout.routes.shape == (tokens.shape[1], 2, 2)
        assert torch.equal(rollout.routes[:-1], last_routes(expert_layers(model))[:-1])
        assert not rollout.routes[-1].any()


def test_replay_keeps_log_probs_where_experts_would_change():
    """A router that moved since: without replay tokens go to other experts, with it they do not."""
    model, draw = decoder(close=1e-5), torch.Generator().manual_seed(2)
    batch = rollout_batch(sampled(model))
    logp = lambda b: model_logp(model, b, 10_000)[0]  # noqa: E731
    assert (logp(batch) - batch.sampler_logp).abs().max() < 1e-5
    layers = expert_layers(model)
    for layer in layers:
        layer.gate.weight.data += 1e-5 * torch.randn(layer.gate.weight.shape, generator=draw)
    gaps = [float((logp(b) - batch.sampler_logp).abs().max()) for b in (batch, replace(batch, routes=None))]
    assert gaps[0] < 1e-3 < 1e-2 < gaps[1]
    assert all(layer.replay is None for layer in layers)


def test_micro_batches_take_their_own_routes():
    model = decoder()
    batch = rollout_batch(sampled(model))
    shuffled = batch.routes.flatten(2)[..., torch.randperm(4)].view(batch.routes.shape)
    other = replace(batch, routes=torch.where(batch.routes == 0, 0, shuffled % 6 + 1))
    whole, parts = (model_logp(model, other, size)[0] for size in (10_000, 60))
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-5)
    assert (whole - model_logp(model, batch, 10_000)[0]).abs().max() > 0.1


def test_a_reference_on_the_same_body_chooses_itself():
    body = decoder()
    draw = torch.Generator().manual_seed(0)
    policy = Adapted(body, Adapter(body, rank=2, generator=draw))
    assert not any("mlp" in path for path in policy.adapter.paths if "layers.0" in path)
    batch = rollout_batch(sampled(policy))
    with replaying(policy, batch.routes, None):
        assert all(layer.replay is None for layer in expert_layers(body))
    assert METHODS["grpo"].needs_reference


def test_files_have_each_expert_by_itself():
    model = decoder()
    files = dict(ExpertFiles(model.state_dict(), model.config))
    assert files["model.layers.0.mlp.experts.5.up_proj.weight"].shape == (8, 16)
    assert "model.layers.1.mlp.up_proj.weight" in files and not any(x.dim() > 2 for x in files.values())
    again = stack_experts(files, model.config)
    assert again.keys() == model.state_dict().keys()
    assert all(torch.equal(x, again[name]) for name, x in model.state_dict().items())


def test_what_has_no_experts_says_so():
    with pytest.raises(ValueError, match="experts are not held in 4 bits: leave bits out"):
        quantise(decoder())
    with pytest.raises(ValueError, match="experts are not divided so: leave shard out"):
        shard(Models(policy=decoder()), half=False)
