"""The assembly lines: order by seed, groups kept whole, credit by hand, faults kept out,
the same future from a state."""

import itertools
from dataclasses import replace

import pytest
import torch
from line_small import POLICY, by_id, contents, line, scripted
from small import CHAT, PROMPTS, TALKS, small_model, small_models

from postgrad.methods import METHODS
from postgrad.models import Models
from postgrad.models.checkpoint import copy_state, read_state
from postgrad.records import Pair
from postgrad.training.batches import ConversationBatches, PairBatches, Shuffled
from postgrad.training.stats import resolve_deferred

# the deck

def test_a_deck_gives_each_item_once_a_round():
    deck = Shuffled(list("abcdefg"), seed=3)
    rounds = [deck.take(7) for _ in range(4)]
    assert all(sorted(r) == list("abcdefg") for r in rounds) and len({tuple(r) for r in rounds}) == 4
    drawn = "".join(itertools.chain(*rounds))
    again, other = Shuffled(list("abcdefg"), seed=3), Shuffled(list("abcdefg"), seed=4)
    # the sizes of the draws do not matter
    assert "".join(again.take(5) + again.take(1) + again.take(22)) == drawn
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
    return ConversationBatches(TALKS, CHAT, METHODS["sft"], per_step=rows, steps=steps, seed=seed,
                               max_tokens=100)


def test_conversations_become_rows():
    batches = list(conversation_line(steps=7))
    # 21 rows: three rounds
    assert sorted(name for b in batches for name in b.ids) == sorted([t.id for t in TALKS] * 3)
    for batch in batches:
        for i, name in enumerate(batch.ids):
            tokens, mask = CHAT.conversation(next(t.messages for t in TALKS if t.id == name))
            assert (batch.tokens[i, : batch.lengths[i]].tolist() == tokens
                    and batch.mask[i, : batch.lengths[i]].tolist() == mask)
            assert (not batch.tokens[i, batch.lengths[i] :].any()
                    and not batch.mask[i, batch.lengths[i] :].any())
        assert (batch.weight[batch.mask].tolist()
                == pytest.approx([1 / batch.mask.sum().item()] * int(batch.mask.sum())))
        assert (batch.facts["tokens"] == batch.lengths.sum()
                and batch.lengths.tolist() == sorted(batch.lengths.tolist()))


@pytest.mark.parametrize("at", range(9))
def test_conversations_resumed_are_the_same(at, tmp_path):
    whole = [contents(b) for b in conversation_line()]
    first = conversation_line()
    begun = [contents(b) for b in itertools.islice(first, at)]
    copy_state({"batches": first.state(), "other": torch.ones(1)}, policy=small_model(), chat=CHAT)(tmp_path)
    second = conversation_line()
    second.restore(read_state(tmp_path)["batches"])
    assert begun + [contents(b) for b in second] == whole
    assert [contents(b) for b in conversation_line(seed=1)] != whole


def test_a_conversation_that_does_not_fit():
    with pytest.raises(
            ValueError,
            match=r"2 of 7 rows are over the limit of 20 tokens: conversation c7 has 26 tokens, "):
        ConversationBatches(TALKS[::-1], CHAT, METHODS["sft"], per_step=2, steps=1, seed=0, max_tokens=20)


# pairs

def test_pairs_become_alternate_rows():
    ask = ({"role": "user", "content": "Hi"},)
    pairs = [Pair(id="a", messages=ask, chosen="Hello!", rejected="What?", margin=0.5),
             Pair(id="b", messages=ask, chosen="Hi", rejected="No", weight=3.0)]
    (batch,) = PairBatches(pairs, CHAT, METHODS["simpo"], Models(policy=None), per_step=2, steps=1, seed=0,
                           max_tokens=64, tokens_per_pass=64)
    written = {name: CHAT.decode(batch.tokens[i][batch.mask[i]].tolist()) for i, name in enumerate(batch.ids)}
    assert (written == {"a/chosen": "Hello!", "a/rejected": "What?", "b/chosen": "Hi", "b/rejected": "No"}
            and batch.units == 2)
    # the shorter pair first, its two rows together
    assert batch.ids == ("b/chosen", "b/rejected", "a/chosen", "a/rejected")
    assert batch.weight.tolist() == [0.75, 0.25] and batch.margin.tolist() == [0.0, 0.5]


# rollouts

def test_a_step_of_groups_by_hand():
    """Scores 1, 0, 0, 1: z-scores 1, -1, -1, 1; each row weighs 1/16 in all, however long it is."""
    (batch,) = line(**scripted(["1", "0", "00000000", "1.0"]), steps=1)
    assert len(batch) == 16 and {s.rollout.prompt.id for s in batch.scored} < {p.id for p in PROMPTS}
    assert sorted(batch.ids) == sorted(f"{name}/{i}" for name in {i.split("/")[0] for i in batch.ids}
                                       for i in range(4))
    adv, weight = by_id(batch, "adv"), by_id(batch, "weight")
    for i, (name, s) in enumerate(zip(batch.ids, batch.scored, strict=True)):
        assert name.startswith(s.rollout.prompt.id + "/")
        assert batch.tokens[i, : batch.lengths[i]].tolist() == [*s.rollout.prompt_tokens, *s.rollout.tokens]
        assert adv[name] == [{"1": 1.0, "0": -1.0}[s.rollout.text[0]]] * len(s.rollout.tokens)
        assert sum(weight[name]) == pytest.approx(1 / 16) and len(set(weight[name])) == 1
        assert (batch.mask[i].nonzero().flatten().tolist()
                == [*range(len(s.rollout.prompt_tokens), int(batch.lengths[i]))])
        assert not batch.adv[i][~batch.mask[i]].any() and not batch.weight[i][~batch.mask[i]].any()
    # group by group: a prompt is computed once
    assert [name.split("/")[1] for name in batch.ids] == ["0", "1", "2", "3"] * 4
    facts = resolve_deferred(batch.facts)
    assert ([facts[k] for k in ("reward", "reward_std", "errors", "flat_groups", "resampled")]
            == [0.5, 0.5, 0, 0, 0])
    assert facts["length"] == sum(len(s.rollout.tokens) for s in batch.scored) / 16
    assert facts["truncated"] == 0.25  # eight zeros do not fit six tokens
    assert batch.facts["tokens"] == batch.lengths.sum()


def test_the_log_probs_in_a_batch_are_those_of_the_models():
    models = small_models()
    several = line("grpo", models=models, epochs=2, temperature=0.8)
    batch = next(iter(several))
    for column, model in (("old_logp", models.policy), ("ref_logp", models.reference)):
        torch.testing.assert_close(getattr(batch, column), model.logp(batch.tokens, batch.mask, 0.8)[0],
                                   rtol=0, atol=1e-5)
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
    gap = (models.policy.logp(batch.tokens, batch.mask)[0]
           - models.reference.logp(batch.tokens, batch.mask)[0]).sum(1).tolist()
    total = {name: s.verdict.score - 0.03 * g
             for name, s, g in zip(batch.ids, batch.scored, gap, strict=True)}
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
    collected = list(line("dapo", steps=8, epochs=2, minibatches=4, prompts_per_step=4, group_size=3,
                          resample_limit=0))
    assert len({resolve_deferred(b.facts)["reward"] for b in collected}) == 1
    orders = []
    for epoch in (collected[:4], collected[4:]):
        names = [{i.split("/")[0] for i in b.ids} for b in epoch]
        assert (all(len(n) == 1 and len(b) == 3 for n, b in zip(names, epoch, strict=True))
                and len(set.union(*names)) == 4)
        orders.append([n.pop() for n in names])
        for batch in epoch:
            assert (batch.weight[batch.mask].tolist()
                    == pytest.approx([1 / int(batch.mask.sum())] * int(batch.mask.sum())))
    assert orders[0] != orders[1]
    columns = [{k: v for b in epoch for k, v in by_id(b, "adv").items()}
               for epoch in (collected[:4], collected[4:])]
    assert columns[0] == columns[1] and len(columns[0]) == 12
    lengths = {int(b.mask.sum()) for b in collected}
    assert len(lengths) > 1  # so the weights of the minibatches do differ
