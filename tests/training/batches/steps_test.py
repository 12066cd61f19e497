"""A process model's scores as rewards: paid as they fall, over the tokens of a reply."""

import json
from dataclasses import replace
from functools import wraps

import pytest
import torch
from process_small import GOLD, rolled
from small import CHAT, PROMPTS, FixedReward, scheduled, small_models

from postgrad.data.tasks import word_problems as wp
from postgrad.data.tasks.base import think
from postgrad.maths import credit
from postgrad.methods import METHODS
from postgrad.models.checkpoint import _put_back, _take_out
from postgrad.records import Rollout, Scored, Verdict
from postgrad.rewards.model import SO_FAR, ProcessReward
from postgrad.training.batches import RolloutBatches, Rollouts
from postgrad.training.batches.checkpointing import dump_batch, load_batch
from postgrad.training.batches.columns import token_rewards


class Says:
    """A scalar model that says a chance at each place of a reply, wherever the steps are."""

    def __init__(self, chance):
        self.chance = chance

    def token_scores(self, tokens, packed=None):
        return torch.logit(torch.tensor([[self.chance(row[: t + 1]) for t in range(len(row))]
                                         for row in tokens.tolist()]))


def steps_of(rollout):
    return [step.end for step in wp.label_chain(rollout.prompt, rollout.text)]


def judged(text, chances, how):
    """A reply judged by a model that gives these chances at its steps, in order."""
    rollout = rolled(text)
    places = CHAT.places(rollout.tokens, steps_of(rollout))
    table = {len(rollout.prompt_tokens) + place + 1: c for place, c in zip(places, chances, strict=True)}
    reward = ProcessReward(Says(lambda row: table.get(len(row), 0.5)), CHAT, steps_of, how=how)
    (said,) = reward.score([rollout])
    return said, places


@pytest.mark.parametrize(("how", "score", "paid"), [
    ("min", 0.2, [-0.1, -0.7, 0.0, 0.0]), ("product", 0.9 * 0.2 * 0.8 * 0.5, [-0.1, -0.72, -0.036, -0.072]),
    ("last", 0.5, [-0.1, -0.7, 0.6, -0.3])])
def test_the_score_is_paid_as_it_falls(how, score, paid):
    said, places = judged(GOLD, [0.9, 0.2, 0.8, 0.5], how)
    assert said.score == pytest.approx(score) and len(places) == 4
    wanted = [0.0] * len(said.per_token)
    wanted[0] = 1.0
    for place, x in zip(places, paid, strict=True):
        wanted[place] += x
    assert (said.per_token == pytest.approx(wanted, abs=1e-6)
            and sum(said.per_token) == pytest.approx(said.score))
    assert said.parts == {"steps": 4.0, "last": pytest.approx(0.5)}


@pytest.mark.parametrize("how", SO_FAR)
def test_more_right_steps_do_not_pay_more(how):
    """A judge that believes 0.97 of every step, and a reply that writes more and more of them."""
    scores = []
    for many in (0, 1, 3, 9):
        said, places = judged(think(", ".join(["5+8=13"] * many), 20), [0.97] * (many + 1), how)
        assert len(places) == many + 1 and said.score == pytest.approx(sum(said.per_token))
        scores.append(said.score)
        if how != "last":
            assert all(x <= 1e-6 for x in said.per_token[1:])  # no step earns, it can only cost
    assert max(scores) <= scores[0] + 1e-6


def test_a_judge_does_not_see_labels_and_names_its_ways():
    right, wrong = rolled(GOLD), rolled(GOLD.replace("8", "9"))
    assert steps_of(right) == steps_of(wrong)
    with pytest.raises(ValueError, match="how is 'mean'.*min, product, last"):
        ProcessReward(None, CHAT, steps_of, how="mean")
    nothing = ProcessReward(Says(lambda row: 0.5), CHAT, lambda r: []).score([right])[0]
    assert nothing.score == 0 and set(nothing.per_token) == {0.0}


def line(method, verdicts, **changes):
    """A line over replies of three tokens, judged in turn by the verdicts."""
    def sample(prompts, group_size, seed, step):
        return [[Rollout(prompt=p, prompt_tokens=(1, 5), tokens=(7, 8, 2), logp=(-0.5,) * 3, text="78",
                         finished=True, seed=i) for i in range(group_size)] for p in prompts]

    settings = Rollouts(prompts_per_step=1, group_size=len(verdicts), max_new_tokens=4, **changes)
    return RolloutBatches(PROMPTS, sample=sample, reward=FixedReward(lambda rows: verdicts),
                          models=small_models(), method=method, settings=settings, steps=4, seed=0,
                          tokens_per_pass=64)


def rewards_of(method, verdicts):
    seen = []

    @wraps(method.credit)  # so that it takes the same columns
    def spy(reward, mask, group_size, **wanted):
        seen.append(reward)
        return method.credit(reward, mask, group_size, **wanted)

    (batch, *_) = line(replace(method, credit=spy), verdicts)
    return seen[0][:, 2:], batch


def test_a_verdict_may_spread_its_score_over_the_tokens():
    dense = Verdict(score=0.25, per_token=(1.0, -0.75, 0.0))
    plain, failed = Verdict(score=0.75), Verdict(score=0.0, error="infrastructure", per_token=(1.0, 0.0, 0.0))
    reward, batch = rewards_of(replace(METHODS["nano"]), [dense, plain, failed])
    assert reward.tolist() == [[1.0, -0.75, 0.0], [0.0, 0.0, 0.75], [0.0, 0.0, 0.0]]
    same, _ = rewards_of(METHODS["nano"], [Verdict(score=0.25), plain, failed])
    assert credit.group_centre(reward, torch.ones(3, 3).bool(), 3).equal(
        credit.group_centre(same, torch.ones(3, 3).bool(), 3))
    # 3 of 4 tokens: no penalty yet
    reward, _ = rewards_of(replace(METHODS["dapo"], resample_flat=False), [dense, plain])
    assert reward.tolist() == [[1.0, -0.75, 0.0], [0.0, 0.0, 0.75]]
    long = replace(METHODS["dapo"], resample_flat=False)
    at_the_limit = token_rewards([Scored(rollout=s.rollout, verdict=dense) for s in batch.scored[:1]],
                           torch.tensor([[False, False, True, True, True]]), long, 3)
    assert at_the_limit.tolist() == [[0.0, 0.0, 1.0, -0.75, -1.0]]  # one less, on the last token


def test_gae_reads_the_row_as_it_is():
    dense = [Verdict(score=s, per_token=(1.0, s - 1.0, 0.0)) for s in (0.0, 1.0)]
    row = replace(METHODS["ppo"], whiten=False, kl_in_reward=0.0)
    _, batch = rewards_of(row, dense)
    value = batch.value[:, 2:]
    final = [-value[:, 2], torch.tensor([-1.0, 0.0]) + value[:, 2] - value[:, 1],
             1 + value[:, 1] - value[:, 0]]
    by_seed = [int(s.rollout.seed) for s in batch.scored]
    assert by_seed == [0, 1]
    second = final[1] + 0.95 * final[0]
    assert torch.allclose(batch.adv[:, 2:], torch.stack([final[2] + 0.95 * second, second, final[0]], 1),
                          atol=1e-6)


def test_a_held_batch_keeps_its_dense_rewards_over_a_checkpoint():
    dense = [Verdict(score=s, per_token=(1.0, s - 1.0, 0.0)) for s in (0.0, 1.0)]
    source = line(scheduled(METHODS["dr_grpo"], epochs=2), dense)
    next(iter(source))
    tensors = {}
    plain = json.loads(json.dumps(_take_out([dump_batch(b) for b in source.waiting], "", tensors)))
    (back,) = [load_batch(b) for b in _put_back(plain, tensors)]
    assert back.scored[0].verdict == dense[0] and torch.equal(back.adv, source.waiting[0].adv)
