"""From logits to a token: by hand, by frequency, and against the filters of transformers."""

import math

import pytest
import torch
from transformers import LlamaForCausalLM
from transformers.generation import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from postgrad.data.tasks import load_task
from postgrad.maths.noise import uniform
from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.models.kernels import cpu, plain
from postgrad.sampling import LocalSampler, Sampling
from postgrad.sampling.drawing import draw_tokens

compiled = pytest.mark.skipif(cpu.c_library() is None, reason="no C compiler on this machine")
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
PROMPTS = load_task("words").prompts("test", 20, 0)[:4]
FILTERS = {
    "whole": {},
    "cool": dict(temperature=0.6),
    "top-k": dict(top_k=5),
    "top-p": dict(top_p=0.8, temperature=1.3),
    "min-p": dict(min_p=0.1, temperature=1.5),
    "all": dict(temperature=1.4, top_k=12, top_p=0.9, min_p=0.02),
}


@pytest.fixture(scope="module")
def sampler():
    return LocalSampler(load_model("tiny").requires_grad_(False), Chat.load(find_model("tiny")))


@pytest.fixture(scope="module")
def theirs():
    return LlamaForCausalLM.from_pretrained(find_model("tiny"), dtype=torch.float32).eval()


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def warped(logits, settings):
    """The logits as transformers' own filters leave them, in its order."""
    chain = [TemperatureLogitsWarper(settings.temperature)]
    chain += [TopKLogitsWarper(settings.top_k)] if settings.top_k else []
    chain += [TopPLogitsWarper(settings.top_p)] if settings.top_p < 1 else []
    chain += [MinPLogitsWarper(settings.min_p)] if settings.min_p else []
    for warp in chain:
        logits = warp(None, logits)
    return logits


def chi_square(counts, p):
    """How many standard deviations the chi-square statistic lies above its mean;
    rare outcomes are taken together."""
    expected = p.double() * counts.sum()
    common = expected >= 5
    seen = torch.cat([counts[common], counts[~common].sum()[None]]).double()
    wanted = torch.cat([expected[common], expected[~common].sum()[None]])
    assert counts[p == 0].sum() == 0
    keep = wanted > 0
    statistic, degrees = ((seen - wanted)[keep] ** 2 / wanted[keep]).sum().item(), int(keep.sum()) - 1
    assert degrees >= 1
    return (statistic - degrees) / math.sqrt(2 * degrees)


@pytest.mark.parametrize("name", FILTERS)
def test_frequencies_are_the_softmax(name):
    settings, draws = Sampling(**FILTERS[name]), 40_000
    logits = torch.randn(2, 40, generator=torch.Generator().manual_seed(0)) * 1.5
    p = warped(logits, settings).softmax(-1)
    assert name in ("whole", "cool") or (p == 0).any()
    for row in range(2):
        u = uniform(torch.full((draws,), 7 + row), torch.arange(draws))
        tokens, logp = draw_tokens(logits[row].expand(draws, 40), u, settings, plain)
        assert chi_square(tokens.bincount(minlength=40), p[row]) < 3
        torch.testing.assert_close(logp, p[row].log()[tokens], rtol=0, atol=1e-5)


def test_a_choice_by_hand():
    """Probabilities 1/2, 1/4, 1/4: u below 1/2 is token 0, from 1/2 token 1, from 3/4 token 2;
    zero is never chosen."""
    logits = torch.tensor([[-torch.inf, 2.0, 1.0, 1.0]]).mul(math.log(2)).expand(6, 4)
    u = torch.tensor([0.0, 0.4999, 0.5001, 0.7499, 0.7501, 1 - 2**-53], dtype=torch.float64)
    tokens, logp = draw_tokens(logits, u, Sampling(), plain)
    assert tokens.tolist() == [1, 1, 2, 2, 3, 3]
    assert logp.exp().tolist() == pytest.approx([0.5, 0.5, 0.25, 0.25, 0.25, 0.25])
    tokens, logp = draw_tokens(logits, u, Sampling(top_p=0.5), plain)
    # renormalised: the only one left is certain
    assert tokens.tolist() == [1] * 6 and logp.tolist() == [0.0] * 6
    assert draw_tokens(logits, u, Sampling(top_k=1), plain)[0].tolist() == [1] * 6
    assert set(draw_tokens(logits, u, Sampling(min_p=0.51), plain)[0].tolist()) == {1}
    assert set(draw_tokens(logits, u, Sampling(min_p=0.49), plain)[0].tolist()) == {1, 2, 3}


@pytest.mark.parametrize(("settings", "words"), [
    (dict(max_new_tokens=0), "max_new_tokens is 0: a reply needs at least 1 token"),
    (dict(temperature=-1.0), "temperature is -1.0: use 0 for greedy"),
    (dict(top_k=-1), "top_k -1"), (dict(top_p=0.0), "top_p 0.0"), (dict(top_p=1.5), "top_p 1.5"),
    (dict(min_p=1.0), "min_p 1.0"),
])
def test_settings_out_of_range(settings, words):
    with pytest.raises(ValueError, match=words):
        Sampling(**settings)


@compiled
def test_pick_takes_the_token_whose_share_holds_u():
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().expand(6, 4).contiguous()
    u = torch.tensor([0.0, 0.0999, 0.1001, 0.2999, 0.6001, 1 - 2**-53], dtype=torch.float64)
    token, logp = cpu.sample_tokens(logits, u, 1.0)
    assert token.tolist() == [0, 0, 1, 1, 3, 3]
    torch.testing.assert_close(logp, logits[0][token], **CLOSE)


@compiled
@pytest.mark.parametrize("V", [5, 64, 300, 5000])
def test_pick_never_takes_a_forbidden_token(V):
    """-inf first, last and over whole blocks: u = 0 takes the first that may be taken,
    u just below 1 the last."""
    logits = torch.full((2, V), -float("inf"))
    allowed = [V // 2, V // 2 + 1]
    logits[:, allowed] = torch.tensor([0.0, 1.0])
    token, logp = cpu.sample_tokens(logits, torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64), 1.0)
    assert token.tolist() == allowed
    torch.testing.assert_close(logp, torch.tensor([0.0, 1.0]).log_softmax(0), **CLOSE)


@compiled
@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
def test_pick_draws_each_token_as_often_as_its_probability(temperature):
    """u on a grid of 100,000: a token's share is its probability to one step of the grid,
    and logp is that of log_softmax."""
    V, n = 300, 100_000
    logits, u = 4 * draw(1, V), (torch.arange(n, dtype=torch.float64) + 0.5) / n
    token, logp = cpu.sample_tokens(logits.expand(n, V).contiguous(), u, temperature)
    want = (logits[0].double() / temperature).log_softmax(0)
    assert (token.diff() >= 0).all()
    torch.testing.assert_close(torch.bincount(token, minlength=V) / n, want.exp().float(), rtol=0,
                               atol=1.1 / n + 1e-6)
    torch.testing.assert_close(logp, want[token].float(), **CLOSE)


@compiled
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_pick_refuses_logits_without_a_distribution(bad):
    logits = draw(3, 70)
    logits[1] = -float("inf") if bad is None else torch.where(torch.arange(70) == 66, bad, logits[1])
    with pytest.raises(ValueError, match="row 1 of the logits"):
        cpu.sample_tokens(logits, torch.zeros(3, dtype=torch.float64), 1.0)


@pytest.mark.parametrize("name", ["whole", "all"])
def test_first_tokens_of_many_samples_are_the_softmax(name, sampler, theirs):
    settings = Sampling(max_new_tokens=1, **FILTERS[name])
    (group,) = sampler.sample(PROMPTS[:1], 3000, settings, seed=11)
    logits = theirs(torch.tensor([group[0].prompt_tokens])).logits[0, -1:]
    p = warped(logits, settings).softmax(-1)[0].detach()
    assert p.max() < 0.9
    assert chi_square(torch.tensor([r.tokens[0] for r in group]).bincount(minlength=1024), p) < 3


@pytest.mark.parametrize("name", FILTERS)
def test_the_log_prob_is_of_the_filtered_distribution(name, sampler, theirs):
    settings = Sampling(max_new_tokens=12, **FILTERS[name])
    for rollout in (r for group in sampler.sample(PROMPTS, 3, settings, seed=2) for r in group):
        with torch.no_grad():
            logits = theirs(torch.tensor([[*rollout.prompt_tokens, *rollout.tokens]])).logits[0]
        steps = warped(logits[len(rollout.prompt_tokens) - 1 : -1], settings).log_softmax(-1)
        wanted = steps.gather(1, torch.tensor(rollout.tokens)[:, None]).squeeze(1)
        torch.testing.assert_close(torch.tensor(rollout.logp), wanted, rtol=0, atol=2e-5)
