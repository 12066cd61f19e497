"""The assembly lines: order by seed, groups kept whole, credit by hand, faults kept out, the same future from a state."""

import itertools
from dataclasses import fields, replace

import pytest
import torch
from small import CHAT, PROMPTS, TALKS, by_text, judge, small_model, small_models
from torch import Tensor

from postgrad.batches import ConversationBatches, PairBatches, RolloutBatches, Rollouts, Shuffled
from postgrad.batches.columns import scores
from postgrad.methods import METHODS
from postgrad.models import Models
from postgrad.models.checkpoint import read_state, write_state
from postgrad.records import Pair, Rollout, Verdict
from postgrad.sampler import LocalSampler, Sampling, ScriptedSampler

POLICY = [name for name, row in METHODS.items() if row.kind == "policy"]


def line(name="grpo", *, sample=None, verify=by_text, models=None, steps=4, seed=0, prompts=PROMPTS, at_once=10**6, **settings):
    """A rollout line on small models, with the real sampler unless a script is given."""
    models = models or small_models()
    settings = Rollouts(**dict(prompts_per_step=4, group_size=2, max_new_tokens=6) | settings)
    sampler = sample or LocalSampler(models.policy, CHAT)
    how = Sampling(max_new_tokens=settings.max_new_tokens, temperature=settings.temperature)
    return RolloutBatches(prompts, sample=lambda ps, size, seed, step: sampler.sample(ps, size, how, seed), judge=judge(verify),
                          models=models, method=METHODS[name], settings=settings, steps=steps, seed=seed,
                          tokens_per_pass=at_once)


def scripted(replies):
    """Every question gets these replies; the score is the reply read as a number, and "fault" is a verifier that failed."""
    def verify(prompt, text):
        return Verdict(score=0.0, error="infrastructure") if text == "fault" else Verdict(score=float(text))
    return dict(sample=ScriptedSampler(CHAT, {p.question: replies for p in PROMPTS}), verify=verify, group_size=len(replies))


def by_id(batch, column):
    """id -> the column's values on the sampled tokens of that row (also where the mask is off)."""
    rows = getattr(batch, column)
    starts = [len(s.rollout.prompt_tokens) for s in batch.scored]
    return {name: rows[i, starts[i] : batch.lengths[i]].tolist() for i, name in enumerate(batch.ids)}


def contents(batch):
    """All that a batch says, but for the clock and the gold answer, which a checkpoint leaves out."""
    tensors = {f.name: getattr(batch, f.name) for f in fields(batch) if isinstance(getattr(batch, f.name), Tensor)}
    known = [f.name for f in fields(Rollout) if f.name != "prompt"]
    rows = [(s.rollout.prompt.id, s.rollout.prompt.messages, s.verdict, *(getattr(s.rollout, name) for name in known))
            for s in batch.scored]
    facts = {k: v for k, v in batch.facts.items() if not k.startswith("time/")}
    return {k: (v.dtype, tuple(v.shape), v.numpy().tobytes()) for k, v in tensors.items()}, batch.ids, rows, facts


# the deck

def test_a_deck_gives_each_item_once_a_round():
    deck = Shuffled(list("abcdefg"), seed=3)
    rounds = [deck.take(7) for _ in range(4)]
    assert all(sorted(r) == list("abcdefg") for r in rounds) and len({tuple(r) for r in rounds}) == 4
    drawn = "".join(itertools.chain(*rounds))
    again, other = Shuffled(list("abcdefg"), seed=3), Shuffled(list("abcdefg"), seed=4)
    assert "".join(again.take(5) + again.take(1) + again.take(22)) == drawn  # the sizes of the draws do not matter
    assert "".join(other.take(28)) != drawn
    for at in (0, 1, 6, 7, 20):
        later = Shuffled(list("abcdefg"), seed=3)
        later.at = at
        assert "".join(later.take(28 - at)) == drawn[at:]


def test_an_empty_deck_is_a_sentence():
    with pytest.raises(ValueError, match="there is nothing to train on"):
        Shuffled([], seed=0)


# conversations

def conversation_line(steps=9, seed=0, rows=3):
    return ConversationBatches(TALKS, CHAT, METHODS["sft"], per_step=rows, steps=steps, seed=seed, max_tokens=100)


def test_conversations_become_rows():
    batches = list(conversation_line(steps=7))
    assert sorted(name for b in batches for name in b.ids) == sorted([t.id for t in TALKS] * 3)  # 21 rows: three rounds
    for batch in batches:
        for i, name in enumerate(batch.ids):
            tokens, mask = CHAT.conversation(next(t.messages for t in TALKS if t.id == name))
            assert batch.tokens[i, : batch.lengths[i]].tolist() == tokens and batch.mask[i, : batch.lengths[i]].tolist() == mask
            assert not batch.tokens[i, batch.lengths[i] :].any() and not batch.mask[i, batch.lengths[i] :].any()
        assert batch.weight[batch.mask].tolist() == pytest.approx([1 / batch.mask.sum().item()] * int(batch.mask.sum()))
        assert batch.facts["tokens"] == batch.lengths.sum() and batch.lengths.tolist() == sorted(batch.lengths.tolist())


@pytest.mark.parametrize("at", range(9))
def test_conversations_resumed_are_the_same(at, tmp_path):
    whole = [contents(b) for b in conversation_line()]
    first = conversation_line()
    begun = [contents(b) for b in itertools.islice(first, at)]
    write_state(tmp_path, {"batches": first.state(), "other": torch.ones(1)}, policy=small_model(), chat=CHAT)
    second = conversation_line()
    second.restore(read_state(tmp_path)["batches"])
    assert begun + [contents(b) for b in second] == whole
    assert [contents(b) for b in conversation_line(seed=1)] != whole


def test_a_conversation_that_does_not_fit():
    with pytest.raises(ValueError, match=r"conversation c7 has \d+ tokens, over the model's 20: shorten it or leave it out"):
        ConversationBatches(TALKS[::-1], CHAT, METHODS["sft"], per_step=2, steps=1, seed=0, max_tokens=20)


# pairs

def test_pairs_become_alternate_rows():
    ask = ({"role": "user", "content": "Hi"},)
    pairs = [Pair(id="a", messages=ask, chosen="Hello!", rejected="What?", margin=0.5),
             Pair(id="b", messages=ask, chosen="Hi", rejected="No", weight=3.0)]
    (batch,) = PairBatches(pairs, CHAT, METHODS["simpo"], Models(policy=None), per_step=2, steps=1, seed=0, max_tokens=64,
                           tokens_per_pass=64)
    written = {name: CHAT.decode(batch.tokens[i][batch.mask[i]].tolist()) for i, name in enumerate(batch.ids)}
    assert written == {"a/chosen": "Hello!", "a/rejected": "What?", "b/chosen": "Hi", "b/rejected": "No"} and batch.units == 2
    assert batch.ids == ("b/chosen", "b/rejected", "a/chosen", "a/rejected")  # the shorter pair first, its two rows together
    assert batch.weight.tolist() == [0.75, 0.25] and batch.margin.tolist() == [0.0, 0.5]


# rollouts

def test_a_step_of_groups_by_hand():
    """Scores 1, 0, 0, 1: z-scores 1, -1, -1, 1; each row weighs 1/16 in all, however long it is."""
    (batch,) = line(**scripted(["1", "0", "00000000", "1.0"]), steps=1)
    assert len(batch) == 16 and {s.rollout.prompt.id for s in batch.scored} < {p.id for p in PROMPTS}
    assert sorted(batch.ids) == sorted(f"{name}/{i}" for name in {i.split("/")[0] for i in batch.ids} for i in range(4))
    adv, weight = by_id(batch, "adv"), by_id(batch, "weight")
    for i, (name, s) in enumerate(zip(batch.ids, batch.scored, strict=True)):
        assert name.startswith(s.rollout.prompt.id + "/")
        assert batch.tokens[i, : batch.lengths[i]].tolist() == [*s.rollout.prompt_tokens, *s.rollout.tokens]
        assert adv[name] == [{"1": 1.0, "0": -1.0}[s.rollout.text[0]]] * len(s.rollout.tokens)
        assert sum(weight[name]) == pytest.approx(1 / 16) and len(set(weight[name])) == 1
        assert batch.mask[i].nonzero().flatten().tolist() == [*range(len(s.rollout.prompt_tokens), int(batch.lengths[i]))]
        assert not batch.adv[i][~batch.mask[i]].any() and not batch.weight[i][~batch.mask[i]].any()
    assert [name.split("/")[1] for name in batch.ids] == ["0", "1", "2", "3"] * 4  # group by group: a prompt is computed once
    assert [batch.facts[k] for k in ("reward", "reward_std", "errors", "flat_groups", "resampled")] == [0.5, 0.5, 0, 0, 0]
    assert batch.facts["length"] == sum(len(s.rollout.tokens) for s in batch.scored) / 16
    assert batch.facts["truncated"] == 0.25  # eight zeros do not fit six tokens
    assert batch.facts["tokens"] == batch.lengths.sum()


def test_the_log_probs_in_a_batch_are_those_of_the_models():
    models = small_models()
    several = line("grpo", models=models, epochs=2, temperature=0.8)
    batch = next(iter(several))
    for column, model in (("old_logp", models.policy), ("ref_logp", models.reference)):
        torch.testing.assert_close(getattr(batch, column), model.logp(batch.tokens, batch.mask, 0.8)[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(batch.sampler_logp, batch.old_logp, rtol=0, atol=1e-5)
    once = next(iter(line("grpo")))
    assert once.old_logp is None and once.ref_logp is not None and once.value is None and once.returns is None
    assert next(iter(line("dapo"))).ref_logp is None and next(iter(line("rloo"))).old_logp is None
    judged = next(iter(line("ppo", models=models)))
    torch.testing.assert_close(judged.value, models.critic.value(judged.tokens), rtol=0, atol=1e-5)
    few = next(iter(line("ppo", models=models, at_once=1, epochs=2)))
    torch.testing.assert_close(few.value[few.mask], judged.value[judged.mask], rtol=0, atol=1e-6)


def test_a_penalty_in_the_reward_by_hand():
    """rloo: each sample's score less 0.03 (logp - ref_logp) summed, against the mean of the others."""
    models = small_models()
    (batch,) = line("rloo", models=models, steps=1, group_size=3)
    gap = (models.policy.logp(batch.tokens, batch.mask)[0] - models.reference.logp(batch.tokens, batch.mask)[0]).sum(1).tolist()
    total = {name: s.verdict.score - 0.03 * g for name, s, g in zip(batch.ids, batch.scored, gap, strict=True)}
    assert max(abs(0.03 * g) for g in gap) > 0.1
    for name, adv in by_id(batch, "adv").items():
        others = [v for k, v in total.items() if k != name and k.split("/")[0] == name.split("/")[0]]
        assert adv == pytest.approx([total[name] - sum(others) / 2] * len(adv), abs=1e-5)


@pytest.mark.parametrize("name", POLICY)
def test_the_models_a_row_needs(name):
    row, models = METHODS[name], small_models()
    for role, needed in (("reference", row.kl_in_reward > 0 or row.kl_in_loss > 0), ("critic", row.critic)):
        without = replace(models, **{role: None})
        if needed:
            with pytest.raises(ValueError, match=f"{name} needs a {role} model"):
                line(name, models=without)
        else:
            assert len(next(iter(line(name, models=without, steps=1)))) == 8


def test_minibatches_hold_whole_groups_and_weights_of_their_own():
    collected = list(line("dapo", steps=8, epochs=2, minibatches=4, prompts_per_step=4, group_size=3, resample_limit=0))
    assert len({b.facts["reward"] for b in collected}) == 1
    orders = []
    for epoch in (collected[:4], collected[4:]):
        names = [{i.split("/")[0] for i in b.ids} for b in epoch]
        assert all(len(n) == 1 and len(b) == 3 for n, b in zip(names, epoch, strict=True)) and len(set.union(*names)) == 4
        orders.append([n.pop() for n in names])
        for batch in epoch:
            assert batch.weight[batch.mask].tolist() == pytest.approx([1 / int(batch.mask.sum())] * int(batch.mask.sum()))
    assert orders[0] != orders[1]
    columns = [{k: v for b in epoch for k, v in by_id(b, "adv").items()} for epoch in (collected[:4], collected[4:])]
    assert columns[0] == columns[1] and len(columns[0]) == 12
    lengths = {int(b.mask.sum()) for b in collected}
    assert len(lengths) > 1  # so the weights of the minibatches do differ


# DAPO

def mixed(prompt, text):
    """Odd questions can be told apart by length, even ones never."""
    return Verdict(score=float(len(text) % 2) if int(prompt.id[1:]) % 2 else 1.0)


def test_flat_groups_are_drawn_again():
    replies = ScriptedSampler(CHAT, {p.question: ["a", "bb"] for p in PROMPTS})
    for step in range(5):
        drawn = line("dapo", sample=replies, verify=mixed, prompts_per_step=2, steps=1, seed=step, resample_limit=20)
        (batch,) = drawn
        assert {int(s.rollout.prompt.id[1:]) % 2 for s in batch.scored} == {1} and len(batch) == 4
        assert batch.facts["resampled"] == drawn.prompts.at - 2
        assert batch.facts["flat_groups"] == pytest.approx(batch.facts["resampled"] / drawn.prompts.at)
    plain = line("grpo", sample=replies, verify=mixed, prompts_per_step=6, steps=1)
    (batch,) = plain
    assert len(batch) == 12 and plain.prompts.at == 6 and (batch.facts["flat_groups"], batch.facts["resampled"]) == (0.5, 0)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_resampling_has_a_cap(limit):
    always = line("dapo", **scripted(["1", "1"]), steps=1, prompts_per_step=3, resample_limit=limit)
    (batch,) = always
    assert always.prompts.at == 3 * (1 + limit) and len(batch) == 6 and not batch.adv.any()
    assert batch.facts["flat_groups"] == 1.0 and batch.facts["resampled"] == 3 * limit


def test_resampled_groups_have_seeds_of_their_own():
    nothing, seen = Verdict(score=0.0), []
    drawn = line("dapo", verify=lambda p, t: nothing, prompts=PROMPTS[:1], prompts_per_step=1, steps=2, resample_limit=1)
    drawn.sample, plain = lambda ps, size, seed, step: seen.append(seed) or plain(ps, size, seed, step), drawn.sample
    list(drawn)
    assert len(set(seen)) == 4


def test_long_replies_lose_score():
    """Budget 10, so the last 2 tokens are the slope: 8 tokens cost nothing, 9 a half, 10 one."""
    texts = ["1" * 7, "1" * 8, "1" * 9, "1" * 12]
    two = dict(verify=lambda p, t: Verdict(score=2.0))
    cut = line("dapo", **scripted(texts) | two, steps=1, max_new_tokens=10, resample_limit=0)
    groups = cut.draw(4, 0)
    assert [len(s.rollout.tokens) for s in groups[0]] == [8, 9, 10, 10]
    assert scores(groups[0], cut.method, 10).tolist() == [2.0, 1.5, 1.0, 1.0]


# faults of the verifier

@pytest.mark.parametrize("name", POLICY)
def test_a_failed_verdict_has_no_say(name):
    """With the fault or without its row: the others' advantages and weights are the same."""
    models = small_models()
    replies = ["1", "0", "3", "fault"]
    (faulty,) = line(name, **scripted(replies), models=models, steps=1, prompts_per_step=2)
    (sound,) = line(name, **scripted(replies[:3]), models=models, steps=1, prompts_per_step=2)
    bad = [i for i, s in enumerate(faulty.scored) if s.verdict.error]
    assert len(bad) == 2 and faulty.facts["errors"] == 2 and sound.facts["errors"] == 0
    assert not faulty.mask[bad].any() and not faulty.weight[bad].any() and not faulty.adv[bad].any()
    for column in ("adv", "weight"):
        found, wanted = by_id(faulty, column), by_id(sound, column)
        assert found.keys() - wanted.keys() == {faulty.ids[i] for i in bad} and any(any(v) for v in wanted.values())
        for key, values in wanted.items():
            assert found[key] == pytest.approx(values, abs=1e-6), (column, key)


def test_a_failed_verdict_does_not_hide_a_flat_group():
    always = line("dapo", **scripted(["1", "1", "fault"]), steps=1, prompts_per_step=2, resample_limit=2)
    (batch,) = always
    assert batch.facts["flat_groups"] == 1.0 and always.prompts.at == 6 and batch.facts["errors"] == 2
    (lost,) = line("dapo", **scripted(["fault", "fault"]), steps=1, resample_limit=0)
    assert not lost.weight.any() and lost.facts["errors"] == 8


# sizes

def test_impossible_sizes_propose_what_fits():
    for count, parts, fits in ((6, 4, 3), (16, 5, 4), (7, 3, 1), (4, 9, 4)):
        words = f"{count} prompts cannot be split into {parts} minibatches: set rollouts.minibatches to a divisor, e.g. {fits}"
        with pytest.raises(ValueError, match=words):
            Rollouts(prompts_per_step=count, minibatches=parts)
    for name in ("prompts_per_step", "group_size", "max_new_tokens", "epochs", "minibatches"):
        with pytest.raises(ValueError, match=f"rollouts.{name} is 0: it must be at least 1"):
            Rollouts(**{name: 0})
    for temperature in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="samples of a group must differ"):
            Rollouts(temperature=temperature)


@pytest.mark.parametrize("name", POLICY)
def test_a_group_of_one(name):
    if name in ("ppo", "reinforce"):
        assert len(next(iter(line(name, group_size=1)))) == 4
    else:
        with pytest.raises(ValueError, match=f"{name} compares the samples of a group: rollouts.group_size is 1"):
            line(name, group_size=1)


# the future is a function of the state

def train_a_little(models, step):
    """Stands for an update: what is computed from the weights after a step differs from what was computed before it."""
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
        write_state(folder, {"batches": first.state()}, policy=models.policy, chat=CHAT)
        again = small_models()
        train_a_little(again, at)
        second = line(name, models=again, **options)
        second.restore(read_state(folder)["batches"])
        assert begun + go(second, again, at, steps) == whole, at


def test_another_seed_is_another_run():
    one, two, other = ([contents(b) for b in line(steps=3, seed=s)] for s in (0, 0, 1))
    assert one == two != other
