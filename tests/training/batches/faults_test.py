"""The rollout line where things go wrong or are drawn again:
flat groups, failed verdicts, sizes, and going on from a state."""

import itertools

import pytest
from line_small import POLICY, by_id, contents, line, scripted
from small import CHAT, PROMPTS, small_models

from postgrad.models.checkpoint import copy_state, read_state
from postgrad.records import Verdict
from postgrad.sampling import ScriptedSampler
from postgrad.training.batches import Rollouts
from postgrad.training.batches.columns import episode_scores
from postgrad.training.stats import resolve_deferred

# DAPO

def mixed(prompt, text):
    """Odd questions can be told apart by length, even ones never."""
    return Verdict(score=float(len(text) % 2) if int(prompt.id[1:]) % 2 else 1.0)


def test_flat_groups_are_drawn_again():
    replies = ScriptedSampler(CHAT, {p.question: ["a", "bb"] for p in PROMPTS})
    for step in range(5):
        drawn = line("dapo", sample=replies, verify=mixed, prompts_per_step=2, steps=1, seed=step,
                     resample_limit=20)
        (batch,) = drawn
        assert {int(s.rollout.prompt.id[1:]) % 2 for s in batch.scored} == {1} and len(batch) == 4
        assert batch.facts["resampled"] == drawn.prompts.at - 2
        assert batch.facts["flat_groups"] == pytest.approx(batch.facts["resampled"] / drawn.prompts.at)
    plain = line("grpo", sample=replies, verify=mixed, prompts_per_step=6, steps=1)
    (batch,) = plain
    assert (len(batch) == 12 and plain.prompts.at == 6
            and (batch.facts["flat_groups"], batch.facts["resampled"]) == (0.5, 0))


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_resampling_has_a_cap(limit):
    always = line("dapo", **scripted(["1", "1"]), steps=1, prompts_per_step=3, resample_limit=limit)
    (batch,) = always
    assert always.prompts.at == 3 * (1 + limit) and len(batch) == 6 and not batch.adv.any()
    assert batch.facts["flat_groups"] == 1.0 and batch.facts["resampled"] == 3 * limit


def test_resampled_groups_have_seeds_of_their_own():
    nothing, seen = Verdict(score=0.0), []
    drawn = line("dapo", verify=lambda p, t: nothing, prompts=PROMPTS[:1], prompts_per_step=1, steps=2,
                 resample_limit=1)
    drawn.sample, plain = (lambda ps, size, seed, step: seen.append(seed) or plain(ps, size, seed, step),
                           drawn.sample)
    list(drawn)
    assert len(set(seen)) == 4


def test_long_replies_lose_score():
    """Budget 10, so the last 2 tokens are the slope: 8 tokens cost nothing, 9 a half, 10 one."""
    texts = ["1" * 7, "1" * 8, "1" * 9, "1" * 12]
    two = dict(verify=lambda p, t: Verdict(score=2.0))
    cut = line("dapo", **scripted(texts) | two, steps=1, max_new_tokens=10, resample_limit=0)
    groups = cut.draw(4, 0)
    assert [len(s.rollout.tokens) for s in groups[0]] == [8, 9, 10, 10]
    assert episode_scores(groups[0], cut.method, 10).tolist() == [2.0, 1.5, 1.0, 1.0]


# faults of the verifier

@pytest.mark.parametrize("name", POLICY)
def test_a_failed_verdict_has_no_say(name):
    """With the fault or without its row: the others' advantages and weights are the same."""
    models = small_models()
    replies = ["1", "0", "3", "fault"]
    (faulty,) = line(name, **scripted(replies), models=models, steps=1, prompts_per_step=2)
    (sound,) = line(name, **scripted(replies[:3]), models=models, steps=1, prompts_per_step=2)
    bad = [i for i, s in enumerate(faulty.scored) if s.verdict.error]
    assert len(bad) == 2 and resolve_deferred(faulty.facts)["errors"] == 2
    assert resolve_deferred(sound.facts)["errors"] == 0
    assert not faulty.mask[bad].any() and not faulty.weight[bad].any() and not faulty.adv[bad].any()
    for column in ("adv", "weight"):
        found, wanted = by_id(faulty, column), by_id(sound, column)
        assert (found.keys() - wanted.keys() == {faulty.ids[i] for i in bad}
                and any(any(v) for v in wanted.values()))
        for key, values in wanted.items():
            assert found[key] == pytest.approx(values, abs=1e-6), (column, key)


def test_a_failed_verdict_does_not_hide_a_flat_group():
    always = line("dapo", **scripted(["1", "1", "fault"]), steps=1, prompts_per_step=2, resample_limit=2)
    (batch,) = always
    facts = resolve_deferred(batch.facts)
    assert facts["flat_groups"] == 1.0 and always.prompts.at == 6 and facts["errors"] == 6
    with pytest.raises(ValueError, match="none of 8 replies could be judged: infrastructure"):
        next(iter(line("dapo", **scripted(["fault", "fault"]), steps=1, resample_limit=0)))


# sizes

def test_impossible_sizes_propose_what_fits():
    for name in ("prompts_per_step", "group_size", "max_new_tokens", "collections"):
        with pytest.raises(ValueError, match=f"rollouts.{name} is 0: it must be at least 1"):
            Rollouts(**{name: 0})
    for temperature in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="samples of a group must differ"):
            Rollouts(temperature=temperature)


@pytest.mark.parametrize("name", POLICY)
def test_a_group_of_one(name):
    if name in ("ppo", "reinforce", "opd", "sdft"):
        assert len(next(iter(line(name, group_size=1)))) == 4
    else:
        with pytest.raises(ValueError,
                           match=f"{name} compares the samples of a group: rollouts.group_size is 1"):
            line(name, group_size=1)


# the future is a function of the state

def train_a_little(models, step):
    """Stands for an update: what is computed from the weights after a step differs from what was
    computed before it."""
    models.policy.model.norm.weight.data.fill_(1 + 0.05 * step)
    models.critic.score_head.weight.data.fill_(0.05 + 0.01 * step)


@pytest.mark.parametrize("name", ["grpo", "dapo", "ppo"])
def test_rollouts_resumed_anywhere_are_the_same(name, tmp_path):
    options, steps = dict(steps=10, epochs=2, minibatches=2, prompts_per_step=2, group_size=2), 10

    def go(line, models, at, stop):
        out = []
        for step, batch in enumerate(itertools.islice(line, stop - at), start=at + 1):
            out.append(contents(batch))
            train_a_little(models, step)
        return out

    models = small_models()
    whole = go(line(name, models=models, **options), models, 0, steps)
    assert len(whole) == steps and len({w[2][0][4] for w in whole}) > 3
    for at in (1, 2, 3, 4, 7):
        models = small_models()
        first = line(name, models=models, **options)
        begun = go(first, models, 0, at)
        assert len(first.waiting) == -at % 4
        folder = tmp_path / str(at)
        folder.mkdir()
        copy_state({"batches": first.state()}, policy=models.policy, chat=CHAT)(folder)
        again = small_models()
        train_a_little(again, at)
        second = line(name, models=again, **options)
        second.restore(read_state(folder)["batches"])
        assert begun + go(second, again, at, steps) == whole, at


def test_another_seed_is_another_run():
    one, two, other = ([contents(b) for b in line(steps=3, seed=s)] for s in (0, 0, 1))
    assert one == two != other
