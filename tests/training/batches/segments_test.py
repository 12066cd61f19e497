"""A rollout is segments: what the policy was shown between its turns has no part in any loss, and an episode
counts the same however its tokens are laid out."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from line_small import POLICY, contents
from toy import every_choice

from postgrad.methods import METHODS
from postgrad.records import Prompt, Rollout, Scored, Turn, Verdict
from postgrad.training import objectives
from postgrad.training.batches.checkpointing import dump_batch, load_batch
from postgrad.training.batches.columns import credit_columns, minibatches, token_rewards
from postgrad.training.batches.rollouts import scored_batch

V, GROUP, BUDGET = 7, 4, 12
GAP = 2  # tokens that are shown between two turns


class Unigram:
    """A policy that says the same at every column, observed ones too; `leaf` are logits that can be
    differentiated, one set for each cell of a batch."""

    def __init__(self, seed, leaf=None):
        self.table = torch.randn(V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.leaf = leaf

    def logp(self, tokens, mask, temperature=1.0, packed=None):
        logits = self.table.expand(*tokens.shape, V)
        every = torch.log_softmax((logits if self.leaf is None else logits + self.leaf) / temperature, -1)
        return every.gather(-1, tokens[..., None]).squeeze(-1), -(every.exp() * every).sum(-1)

    def choices(self, tokens, mask, packed=None):
        logits = self.table.expand(*tokens.shape, V)
        return every_choice(logits if self.leaf is None else logits + self.leaf, mask)

    def value(self, tokens, packed=None):
        return self.table[tokens]


MODELS = SimpleNamespace(policy=Unigram(0), reference=Unigram(1), critic=Unigram(2), teacher=Unigram(3))


def turns_of(rng):
    """What a policy says in one to three turns."""
    return [[rng.randrange(V) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 3))]


def laid(prompt, turns, how, seed):
    """The turns as one rollout: close together, with gaps between them, or in rows of their own."""
    known = dict(prompt=prompt, text="", finished=True, seed=seed, episode=f"{prompt.id}#{seed}")

    def row(said, before=(1, 2)):
        """Turns of one row; what lies between them is shown."""
        tokens, mask, spans = [], [], []
        for i, turn in enumerate(said):
            shown = [3] * GAP if i and how == "gaps" else []
            tokens, mask = [*tokens, *shown, *turn], [*mask, *[False] * len(shown), *[True] * len(turn)]
            spans.append(Turn(start=len(tokens) - len(turn), end=len(tokens), policy_step=0))
        logp, _ = MODELS.policy.logp(torch.tensor([tokens]), None)
        return Rollout(prompt_tokens=tuple(before), tokens=tuple(tokens), turns=tuple(spans),
                       logp=tuple((logp[0] * torch.tensor(mask)).tolist()), mask=tuple(mask), **known)

    if how != "rows":
        return row(turns)
    *earlier, last = [row([turn], (1, 2, *[4] * i)) for i, turn in enumerate(turns)]
    return replace(last, earlier=tuple(earlier))


def collection(how, seed=0, failed=True):
    """Two groups of episodes; one verdict has failed, and one pays turn by turn."""
    rng, rows = random.Random(seed), []
    for i in range(2 * GROUP):
        turns = turns_of(rng)
        verdict = Verdict(score=rng.choice([0.0, 0.5, 1.0]), weights={"a": 1.0}, parts={"a": rng.random()})
        if failed and i == 1:
            verdict = Verdict(score=0.0, error="infrastructure: gone")
        if i == 2:
            paid = [rng.random() for turn in turns for _ in turn]
            verdict = replace(verdict, score=sum(paid), per_token=tuple(paid))
        rows.append(Scored(rollout=laid(Prompt(id=f"p{i // GROUP}", messages=()), turns, how, i),
                           verdict=verdict))
    return rows


def made(name, rows):
    """The first batch that a row of the table makes of a collection."""
    method = METHODS[name]
    batch = scored_batch(rows, GROUP)
    reward = token_rewards(rows, batch.mask, method, BUDGET, batch.episode)
    batch = credit_columns(batch, reward, method, MODELS, group_size=GROUP, kl=method.kl_in_reward,
                    tokens_per_pass=10**6)
    return minibatches(batch, method, group_size=GROUP, budget=BUDGET, seed=0, step=1)


def observed(batch):
    """The cells of a batch that no policy wrote: prompts, gaps, padding."""
    out = torch.ones(batch.tokens.shape, dtype=torch.bool)
    for i, s in enumerate(batch.scored):
        at, tokens = len(s.rollout.prompt_tokens), s.rollout.tokens
        out[i, at: at + len(tokens)] = ~torch.tensor(s.rollout.mask or [True] * len(tokens))
    return out


@pytest.mark.parametrize("how", ["gaps", "rows"])
@pytest.mark.parametrize("name", POLICY)
def test_what_was_shown_has_no_part_in_the_loss(name, how):
    for batch in made(name, collection(how)):
        shown = observed(batch)
        assert shown[:, 2:].any() and not batch.mask[shown].any()
        assert not batch.weight[shown].any() and not batch.adv[shown].any()
        leaf = torch.zeros(*batch.tokens.shape, V, dtype=torch.float64, requires_grad=True)
        moved = SimpleNamespace(**vars(MODELS) | {"policy": Unigram(4, leaf)})  # so that ratios leave 1
        loss, _ = objectives.build_objective(METHODS[name])(moved, batch)
        (loss * batch.weight).sum().backward()
        assert leaf.grad[shown].abs().max() == 0.0 and leaf.grad[batch.mask].abs().max() > 0


@pytest.mark.parametrize("how", ["gaps", "rows"])
@pytest.mark.parametrize("name", POLICY)
def test_an_episode_counts_the_same_however_it_is_laid_out(name, how):
    """Advantages, returns and weights of the sampled tokens: those of the same tokens without gaps; where
    turns are compared, with them."""
    base = "gaps" if name == "turn_grpo" else "close"
    for close, apart in zip(made(name, collection(base)), made(name, collection(how)), strict=True):
        for column in ("adv", "weight", "returns", "correction", "marked"):
            one, other = getattr(close, column), getattr(apart, column)
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one[close.mask], other[apart.mask], rtol=0, atol=1e-6)


def test_rows_of_an_episode_stand_side_by_side():
    rows = collection("rows", failed=False)
    batch = scored_batch(rows, GROUP)
    assert len(batch) == sum(len(s.rollout.rows) for s in rows) > len(rows)
    assert batch.episode.unique().tolist() == list(range(len(rows))) and len(set(batch.ids)) == len(batch)
    assert scored_batch(collection("gaps"), GROUP).episode is None


def test_segments_come_back_from_a_checkpoint():
    for how in ("gaps", "rows"):
        batch = made("grpo", collection(how))[0]
        assert contents(load_batch(dump_batch(batch))) == contents(batch)


def test_what_a_rollout_says_of_itself():
    episode = laid(Prompt(id="p", messages=()), [[5], [6, 1], [2]], "rows", 0)
    assert [row.tokens for row in episode.rows] == [(5,), (6, 1), (2,)] and episode.sampled == (5, 6, 1, 2)
    gaps = laid(Prompt(id="p", messages=()), [[5], [6, 1]], "gaps", 0)
    assert gaps.tokens == (5, 3, 3, 6, 1) and gaps.sampled == (5, 6, 1)
    assert gaps.tokens[gaps.reply] == (6, 1)
    plain = replace(gaps, mask=None, turns=())
    assert plain.sampled is plain.tokens and plain.tokens[plain.reply] == plain.tokens
