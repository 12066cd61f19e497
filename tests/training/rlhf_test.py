"""What RLHF adds: ensembles, KTO's baseline, chosen rollouts, PPO's anchors."""

import math
from dataclasses import replace

import pytest
import torch
from small import CHAT, PROMPTS, by_text, reward_of, small_model, small_models

from postgrad.methods import METHODS
from postgrad.models import Models, ScalarModel, load_scalar, save_model
from postgrad.recipes.preference import balance_kto, split_pairs
from postgrad.records import Conversation, Pair, Verdict
from postgrad.rewards.model import ModelReward
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training import objectives
from postgrad.training.batches import (
    PairBatches,
    PtxMix,
    RolloutBatches,
    Rollouts,
    SelectedPairs,
    SelectedTexts,
    SingleBatches,
)

PAIRS = [Pair(id=str(i), messages=({"role": "user", "content": f"Hi {i}"},), chosen="Hello" + "!" * i,
              rejected="What?") for i in range(6)]
TALKS = [Conversation(id=str(i), label=i % 3 > 0, messages=({"role": "user", "content": "a" * (1 + i % 4)},
                                                           {"role": "assistant", "content": "b" * (1 + i)}))
         for i in range(6)]


def line(kind, method, *, verify=by_text, models=None, settings=None, steps=2, **more):
    models = models or small_models()
    settings = settings or Rollouts(prompts_per_step=4, group_size=3, max_new_tokens=6)
    sampler = LocalSampler(models.policy, CHAT)

    def sample(prompts, group_size, seed, step):
        return sampler.sample(prompts, group_size, Sampling(max_new_tokens=settings.max_new_tokens), seed)

    method = METHODS[method] if isinstance(method, str) else method
    return kind(PROMPTS, sample=sample, reward=reward_of(verify), models=models, method=method,
                settings=settings, steps=steps, seed=0, tokens_per_pass=256, **more)


# Ensembles

def test_each_head_learns_from_its_own_bootstrap():
    model = ScalarModel(small_model(), heads=3)
    pairs = [replace(PAIRS[0], id=str(i)) for i in range(400)]
    batches = PairBatches(pairs, CHAT, METHODS["reward"], Models(policy=model), per_step=400, steps=1, seed=0,
                          max_tokens=64, tokens_per_pass=4096)
    (batch,) = batches
    assert (batch.votes.shape == (400, 3)
            and batch.votes.mean(0).tolist() == pytest.approx([1.0] * 3, abs=0.15))
    assert (batch.votes == 0).float().mean() == pytest.approx(math.exp(-1), abs=0.05)
    assert (batch.votes[:, 0] != batch.votes[:, 1]).float().mean() > 0.4
    one = batch.take(0, 8)
    assert one.votes.tolist() == batch.votes[:8].tolist()
    silent = replace(one, votes=one.votes * torch.tensor([1.0, 0.0, 1.0]))
    loss, seen = objectives.build_objective(METHODS["reward"])(Models(policy=model), silent)
    (loss * silent.weight).sum().backward()
    grad = model.score_head.weight.grad.abs().sum(1)
    assert grad[1] == 0 and grad[0] > 0 and grad[2] > 0 and seen["disagreement"].result() > 0


def test_an_ensemble_opens_in_transformers(tmp_path):
    from transformers import AutoModelForSequenceClassification
    model = ScalarModel(small_model(), heads=3)
    save_model(model, tmp_path)
    tokens = torch.randint(6, 500, (2, 9), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([9, 9])
    with torch.no_grad():
        theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path, pad_token_id=0)(tokens).logits
        torch.testing.assert_close(model.scores(tokens, lengths), theirs, rtol=1e-4, atol=1e-5)
        assert torch.equal(load_scalar(tmp_path).score(tokens, lengths), model.score(tokens, lengths))


def test_a_judge_of_several_models_follows_its_rule():
    models = [ScalarModel(small_model(seed)) for seed in (0, 1)]
    for i, model in enumerate(models):
        model.score_head.weight.data.normal_(generator=torch.Generator().manual_seed(i))
    groups = LocalSampler(small_model(), CHAT).sample(PROMPTS, 2, Sampling(max_new_tokens=5), 0)
    rollouts = [r for group in groups for r in group]
    rules = {"mean": lambda x, y: (x + y) / 2, "min": min,
             "penalised": lambda x, y: (x + y) / 2 - (x - y) ** 2 / 4}
    said = [[v.score for v in ModelReward([model], max_concurrent=5).score(rollouts)] for model in models]
    for rule, of in rules.items():
        verdicts = ModelReward(models, rule=rule, max_concurrent=5).score(rollouts)
        assert [v.score for v in verdicts] == pytest.approx([of(x, y) for x, y in zip(*said, strict=True)],
                                                            abs=1e-5)
        assert verdicts[0].parts["disagreement"] == pytest.approx(abs(said[0][0] - said[1][0]) / 2, abs=1e-5)


# KTO

def test_the_baseline_is_the_mean_log_ratio_of_swapped_answers():
    models = small_models()
    (batch,) = SingleBatches(TALKS, CHAT, METHODS["kto"], models, per_step=6, steps=1, seed=0, max_tokens=64,
                             tokens_per_pass=64)
    by_id = {t.id: t for t in TALKS}
    order = [by_id[name] for name in batch.ids]
    ratios = []
    for i, talk in enumerate(order):
        answer = order[(i + 1) % 6].messages[1]["content"]
        tokens, mask = (torch.tensor([x]) for x in CHAT.answer(talk.messages[:1], answer))
        with torch.no_grad():
            policy, reference = (m.logp(tokens, mask)[0].sum().item()
                                 for m in (models.policy, models.reference))
        ratios.append(policy - reference)
    assert batch.baseline.tolist() == pytest.approx([max(0.0, sum(ratios) / 6)] * 6, rel=1e-4)
    assert batch.label.tolist() == [1.0 if by_id[name].label else -1.0 for name in batch.ids]
    assert [sum(row) for row in batch.mask.tolist()] == [len(CHAT.encode(t.messages[1]["content"])) + 1
                                                         for t in order]


def test_wanted_and_unwanted_count_alike():
    weights = balance_kto(METHODS["kto"], TALKS).loss.keywords  # 4 wanted, 2 not
    assert (weights["wanted"], weights["unwanted"], weights["beta"]) == (1.0, 2.0, 0.1)
    assert [(c.id, c.label) for c in split_pairs(PAIRS[:1])] == [("0/chosen", True), ("0/rejected", False)]


def test_a_single_trains_its_last_answer_alone():
    talk = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"})
    tokens, mask = CHAT.answer(talk, "d")
    assert CHAT.decode([t for t, on in zip(tokens, mask, strict=True) if on]) == "d"
    both, every = CHAT.conversation([*talk, {"role": "assistant", "content": "d"}])
    assert both == tokens and sum(every) > sum(mask)


# Chosen rollouts

def test_online_pairs_are_the_best_against_the_worst():
    models = small_models()
    for batch in line(SelectedPairs, "online_dpo", models=models):
        scores = [s.verdict.score for s in batch.scored]
        assert (batch.rows_per_unit == 2
                and all(best > worst for best, worst in zip(scores[::2], scores[1::2], strict=True)))
        asked = [s.rollout.prompt.id for s in batch.scored]
        # one pair a prompt, both of that prompt
        assert asked[::2] == asked[1::2] and len(set(asked)) == len(asked) / 2
        assert batch.facts["chosen_share"] == len(batch) / 12 and batch.weight.sum() == pytest.approx(1.0)
        expected, _ = models.reference.logp(batch.tokens, batch.mask)
        torch.testing.assert_close(batch.ref_logp, expected, rtol=1e-4, atol=1e-5)


def test_pairs_are_read_at_temperature_one_and_survive_a_checkpoint():
    models = small_models()
    settings = Rollouts(prompts_per_step=4, group_size=3, max_new_tokens=6, temperature=0.5)
    first = line(SelectedPairs, "online_dpo", models=models, settings=settings)
    again = line(SelectedPairs, "online_dpo", models=models, settings=settings)
    batch = next(iter(first))
    torch.testing.assert_close(batch.ref_logp, models.reference.logp(batch.tokens, batch.mask)[0], rtol=1e-4,
                               atol=1e-5)
    first.waiting = [batch]  # one that waits to be trained on
    again.restore(first.state())
    second = next(iter(again))
    assert (second.rows_per_unit == 2 and second.ids == batch.ids
            and torch.equal(second.ref_logp, batch.ref_logp))


@pytest.mark.parametrize("method", ["best_of_n", "rejection"])
def test_texts_to_imitate_are_those_that_were_selected(method):
    for batch in line(SelectedTexts, method, steps=3, best=1.0):
        scores = [s.verdict.score for s in batch.scored]
        if method == "rejection":
            assert set(scores) == {1.0} or not batch.facts["chosen_share"]
            if not batch.facts["chosen_share"]:
                continue
        else:
            assert len(batch) == 4 and batch.facts["kl_bound"] == pytest.approx(math.log(3) - 2 / 3)
        assert batch.facts["chosen_share"] == len(batch) / 12
        assert batch.weight.sum() == pytest.approx(1.0) and not batch.weight[~batch.mask].any()


def test_where_nothing_is_chosen_nothing_is_trained():
    for kind, method, more in ((SelectedPairs, "online_dpo", {}), (SelectedTexts, "rejection",
                                                                   {"best": 1.0})):
        for batch in line(kind, method, verify=lambda prompt, text: Verdict(score=0.5), **more):
            assert not batch.weight.any() and batch.facts["chosen_share"] == 0
    with pytest.raises(ValueError, match="none of 12 replies could be judged: broken"):
        next(iter(line(SelectedPairs, "online_dpo",
                       verify=lambda prompt, text: Verdict(score=len(text), error="broken"))))
    with pytest.raises(ValueError, match="best_of_n chooses among the samples of a group"):
        line(SelectedTexts, "best_of_n", settings=Rollouts(group_size=1))


# PPO's anchors

def gradient(models, objective, batch):
    models.policy.zero_grad(), models.critic.zero_grad()
    for micro in batch.split(10_000):
        loss, seen = objective(models, micro)
        (loss * micro.weight).sum().backward()
    return (torch.cat([p.grad.flatten() for p in models.policy.parameters() if p.grad is not None]),
            seen.results())


def test_the_mix_adds_the_gradient_of_imitation():
    texts = [(str(i), *CHAT.document("x" * (3 + i))) for i in range(4)]
    models, ppo = small_models(), METHODS["ppo"]
    models = Models(*(m.double() if m else None for m in (models.policy, models.reference, models.critic)))
    plain, mixed = (next(iter(line(RolloutBatches, ppo, models=models, mix=mix)))
                    for mix in (None, PtxMix(texts, rows=4, weight=0.3, seed=0)))
    both, seen = gradient(models, objectives.build_objective(ppo), mixed)
    alone, without = gradient(models, objectives.build_objective(ppo), plain)
    rows = mixed.take(len(plain), len(mixed))
    assert set(rows.ids) == {"0", "1", "2", "3"} and rows.weight.sum() == pytest.approx(0.3)
    imitated, _ = gradient(models, objectives.build_objective(METHODS["sft"]), replace(rows, imitate=None))
    torch.testing.assert_close(both, alone + imitated, rtol=1e-7, atol=1e-9)
    assert ({k: v for k, v in seen.items() if k != "ptx_loss"} == pytest.approx(without)
            and seen["ptx_loss"] > 0)
    again = line(RolloutBatches, ppo, models=models, mix=PtxMix(texts, rows=3, weight=0.3, seed=0), steps=3)
    first = next(iter(again))
    other = line(RolloutBatches, ppo, models=models, mix=PtxMix(texts, rows=3, weight=0.3, seed=0), steps=3)
    other.restore(again.state())
    assert next(iter(other)).ids[-3:] == next(iter(again)).ids[-3:] != first.ids[-3:]


def test_the_kl_coefficient_is_steered_to_its_target():
    facts = {}
    for target in (1e-3, 1e6, None):
        batches = line(RolloutBatches, "rloo", target=target, gain=0.12, steps=3)
        seen = [batch.facts for batch in batches]
        facts[target] = [f["kl_coefficient"] for f in seen]
        assert all(f["kl_reply"] > 1 for f in seen)  # policy and reference are two random models
    # the error is clipped at 0.2
    assert facts[1e-3] == pytest.approx([0.03, 0.03 * 1.024, 0.03 * 1.024**2])
    assert facts[1e6] == pytest.approx([0.03, 0.03 * 0.976, 0.03 * 0.976**2]) and facts[None] == [0.03] * 3
    with pytest.raises(ValueError, match="adaptive KL coefficient needs a method with the KL in its reward"):
        line(RolloutBatches, "grpo", target=1.0)
