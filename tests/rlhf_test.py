"""What the RLHF recipes add to the lines: ensembles, KTO's baseline, chosen rollouts, the pretraining mix, the KL's steering,
adapters that share a body, and pipelines."""

import json
import math
from dataclasses import replace

import pytest
import torch
from small import CHAT, PROMPTS, begins, by_text, judge, small_model, small_models

from postgrad import objectives, recipes
from postgrad.batches import ChosenPairs, ChosenTexts, Mix, PairBatches, RolloutBatches, Rollouts, SingleBatches
from postgrad.chat import Chat
from postgrad.cli import main
from postgrad.data.rows import read_conversations
from postgrad.methods import METHODS
from postgrad.models import Adapted, Models, ScalarModel, load_model, load_scalar, save_model
from postgrad.opening import models as opening
from postgrad.recipes import rollouts, running
from postgrad.recipes.pipelines.overoptimise import turning
from postgrad.recipes.preference import PreferenceConfig, balanced, singles
from postgrad.recipes.reward import RewardConfig
from postgrad.records import Conversation, Pair, Verdict
from postgrad.rewards.model import ModelJudge
from postgrad.run import Run
from postgrad.sampler import LocalSampler, Sampling
from postgrad.settings import flat, override
from postgrad.tasks import load_task

PAIRS = [Pair(id=str(i), messages=({"role": "user", "content": f"Hi {i}"},), chosen="Hello" + "!" * i, rejected="What?")
         for i in range(6)]
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
    return kind(PROMPTS, sample=sample, judge=judge(verify), models=models, method=method, settings=settings, steps=steps,
                seed=0, tokens_per_pass=256, **more)


# Ensembles

def test_each_head_learns_from_its_own_bootstrap():
    model = ScalarModel(small_model(), heads=3)
    pairs = [replace(PAIRS[0], id=str(i)) for i in range(400)]
    batches = PairBatches(pairs, CHAT, METHODS["reward"], Models(policy=model), per_step=400, steps=1, seed=0, max_tokens=64,
                          tokens_per_pass=4096)
    (batch,) = batches
    assert batch.votes.shape == (400, 3) and batch.votes.mean(0).tolist() == pytest.approx([1.0] * 3, abs=0.15)
    assert (batch.votes == 0).float().mean() == pytest.approx(math.exp(-1), abs=0.05)
    assert (batch.votes[:, 0] != batch.votes[:, 1]).float().mean() > 0.4
    one = batch.take(0, 8)
    assert one.votes.tolist() == batch.votes[:8].tolist()
    silent = replace(one, votes=one.votes * torch.tensor([1.0, 0.0, 1.0]))
    loss, seen = objectives.build(METHODS["reward"])(Models(policy=model), silent)
    (loss * silent.weight).sum().backward()
    grad = model.score_head.weight.grad.abs().sum(1)
    assert grad[1] == 0 and grad[0] > 0 and grad[2] > 0 and seen["disagreement"].result() > 0


def test_an_ensemble_opens_in_transformers(tmp_path):
    from transformers import AutoModelForSequenceClassification
    model = ScalarModel(small_model(), heads=3)
    save_model(model, tmp_path)
    tokens, lengths = torch.randint(6, 500, (2, 9), generator=torch.Generator().manual_seed(1)), torch.tensor([9, 9])
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
    rules = {"mean": lambda x, y: (x + y) / 2, "min": min, "penalised": lambda x, y: (x + y) / 2 - (x - y) ** 2 / 4}
    said = [[v.score for v in ModelJudge([model], rows_at_once=5)(rollouts)] for model in models]
    for rule, of in rules.items():
        verdicts = ModelJudge(models, rule=rule, rows_at_once=5)(rollouts)
        assert [v.score for v in verdicts] == pytest.approx([of(x, y) for x, y in zip(*said, strict=True)], abs=1e-5)
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
            policy, reference = (m.logp(tokens, mask)[0].sum().item() for m in (models.policy, models.reference))
        ratios.append(policy - reference)
    assert batch.baseline.tolist() == pytest.approx([max(0.0, sum(ratios) / 6)] * 6, rel=1e-4)
    assert batch.label.tolist() == [1.0 if by_id[name].label else -1.0 for name in batch.ids]
    assert [sum(row) for row in batch.mask.tolist()] == [len(CHAT.encode(t.messages[1]["content"])) + 1 for t in order]


def test_wanted_and_unwanted_count_alike():
    weights = balanced(METHODS["kto"], TALKS).loss.keywords  # 4 wanted, 2 not
    assert (weights["wanted"], weights["unwanted"], weights["beta"]) == (1.0, 2.0, 0.1)
    assert [(c.id, c.label) for c in singles(PAIRS[:1])] == [("0/chosen", True), ("0/rejected", False)]


def test_a_single_trains_its_last_answer_alone():
    talk = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"})
    tokens, mask = CHAT.answer(talk, "d")
    assert CHAT.decode([t for t, on in zip(tokens, mask, strict=True) if on]) == "d"
    both, every = CHAT.conversation([*talk, {"role": "assistant", "content": "d"}])
    assert both == tokens and sum(every) > sum(mask)


# Chosen rollouts

def test_online_pairs_are_the_best_against_the_worst():
    models = small_models()
    for batch in line(ChosenPairs, "online_dpo", models=models):
        scores = [s.verdict.score for s in batch.scored]
        assert batch.rows_per_unit == 2 and all(best > worst for best, worst in zip(scores[::2], scores[1::2], strict=True))
        asked = [s.rollout.prompt.id for s in batch.scored]
        assert asked[::2] == asked[1::2] and len(set(asked)) == len(asked) / 2  # one pair a prompt, both of that prompt
        assert batch.facts["chosen_share"] == len(batch) / 12 and batch.weight.sum() == pytest.approx(1.0)
        expected, _ = models.reference.logp(batch.tokens, batch.mask)
        torch.testing.assert_close(batch.ref_logp, expected, rtol=1e-4, atol=1e-5)


def test_pairs_are_read_at_temperature_one_and_survive_a_checkpoint():
    models, settings = small_models(), Rollouts(prompts_per_step=4, group_size=3, max_new_tokens=6, temperature=0.5, epochs=2)
    first = line(ChosenPairs, "online_dpo", models=models, settings=settings)
    batch = next(iter(first))
    torch.testing.assert_close(batch.ref_logp, models.reference.logp(batch.tokens, batch.mask)[0], rtol=1e-4, atol=1e-5)
    again = line(ChosenPairs, "online_dpo", models=models, settings=settings)
    again.restore(first.state())
    second = next(iter(again))  # the same collection, used a second time
    assert second.rows_per_unit == 2 and second.ids == batch.ids and torch.equal(second.ref_logp, batch.ref_logp)


@pytest.mark.parametrize("method", ["best_of_n", "rejection"])
def test_texts_to_imitate_are_those_that_were_selected(method):
    for batch in line(ChosenTexts, method, steps=3):
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
    for kind, method in ((ChosenPairs, "online_dpo"), (ChosenTexts, "rejection")):
        for batch in line(kind, method, verify=lambda prompt, text: Verdict(score=0.5)):
            assert not batch.weight.any() and batch.facts["chosen_share"] == 0
    for batch in line(ChosenPairs, "online_dpo", verify=lambda prompt, text: Verdict(score=len(text), error="broken")):
        assert not batch.weight.any() and batch.facts["errors"] == 12
    with pytest.raises(ValueError, match="online_dpo makes one batch of each collection"):
        line(ChosenPairs, "online_dpo", settings=Rollouts(minibatches=2))
    with pytest.raises(ValueError, match="best_of_n chooses among the samples of a group"):
        line(ChosenTexts, "best_of_n", settings=Rollouts(group_size=1))


# PPO's anchors

def gradient(models, objective, batch):
    models.policy.zero_grad(), models.critic.zero_grad()
    for micro in batch.split(10_000):
        loss, seen = objective(models, micro)
        (loss * micro.weight).sum().backward()
    return torch.cat([p.grad.flatten() for p in models.policy.parameters() if p.grad is not None]), seen.results()


def test_the_mix_adds_the_gradient_of_imitation():
    texts = [(str(i), *CHAT.document("x" * (3 + i))) for i in range(4)]
    models, ppo = small_models(), METHODS["ppo"]
    models = Models(*(m.double() if m else None for m in (models.policy, models.reference, models.critic)))
    plain, mixed = (next(iter(line(RolloutBatches, ppo, models=models, mix=mix)))
                    for mix in (None, Mix(texts, rows=4, weight=0.3, seed=0)))
    both, seen = gradient(models, objectives.build(ppo), mixed)
    alone, without = gradient(models, objectives.build(ppo), plain)
    rows = mixed.take(len(plain), len(mixed))
    assert set(rows.ids) == {"0", "1", "2", "3"} and rows.weight.sum() == pytest.approx(0.3)
    imitated, _ = gradient(models, objectives.build(METHODS["sft"]), replace(rows, imitate=None))
    torch.testing.assert_close(both, alone + imitated, rtol=1e-7, atol=1e-9)
    assert {k: v for k, v in seen.items() if k != "ptx_loss"} == pytest.approx(without) and seen["ptx_loss"] > 0
    again = line(RolloutBatches, ppo, models=models, mix=Mix(texts, rows=3, weight=0.3, seed=0), steps=3)
    first = next(iter(again))
    other = line(RolloutBatches, ppo, models=models, mix=Mix(texts, rows=3, weight=0.3, seed=0), steps=3)
    other.restore(again.state())
    assert next(iter(other)).ids[-3:] == next(iter(again)).ids[-3:] != first.ids[-3:]


def test_the_kl_coefficient_is_steered_to_its_target():
    facts = {}
    for target in (1e-3, 1e6, None):
        batches = line(RolloutBatches, "rloo", target=target, horizon=100, steps=3)
        seen = [batch.facts for batch in batches]
        facts[target] = [f["kl_coefficient"] for f in seen]
        assert all(f["kl_reply"] > 1 for f in seen)  # policy and reference are two random models
    assert facts[1e-3] == pytest.approx([0.03, 0.03 * 1.024, 0.03 * 1.024**2])  # 12 rollouts of 100, the error clipped at 0.2
    assert facts[1e6] == pytest.approx([0.03, 0.03 * 0.976, 0.03 * 0.976**2]) and facts[None] == [0.03] * 3
    with pytest.raises(ValueError, match="adaptive KL coefficient needs a method with the KL in its reward"):
        line(RolloutBatches, "grpo", target=1.0)


# Recipes

SMALL = {"steps": 3, "save_every": 1, "rollouts.prompts": 6, "rollouts.prompts_per_step": 2, "rollouts.group_size": 3,
         "rollouts.max_new_tokens": 8, "pairs.drawn": 16, "pairs.held_out": 8, "pairs.per_step": 4, "evaluation.every": 3,
         "evaluation.problems": 2, "evaluation.samples": 2, "head.heads": 2, "seed": 3}


def small(config, *changes):
    return override(config, [*(f"{k}={v}" for k, v in SMALL.items() if k in flat(config)), *changes])


def trained(recipe, config, folder, cut=None):
    class Cut(Exception):
        pass

    class Watch:
        def stepped(self, step, row, scored):
            if step == cut:
                raise Cut

        def examined(self, step, row):
            pass

    home = recipes.module(recipe)
    if not cut:
        return running.start(recipe, config, home.build, folder)
    with pytest.raises(Cut):
        running.start(recipe, config, home.build, folder, watch=Watch())
    return running.resume(Run.open(folder), config, home.build)


@pytest.fixture(scope="module")
def reward_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reward") / "run"
    return str(trained("reward", small(RewardConfig(task="questions")), folder).folder)


@pytest.mark.parametrize(("recipe", "change"), [
    ("reward", "lora=0"), ("reward", "lora=2"), ("preference", "method=kto"), ("preference", "lora=2"),
    ("rollouts", "method=online_dpo"), ("rollouts", "method=best_of_n"), ("rollouts", "ptx=0.1"),
    ("rollouts", "target=0.5"), ("rollouts", "lora=2")])
def test_a_cut_run_goes_on_to_the_same_bits(recipe, change, reward_run, tmp_path):
    config = {"reward": RewardConfig(task="questions"), "preference": PreferenceConfig(task="questions"),
              "rollouts": rollouts.RolloutConfig(task="questions", method="ppo", reward=reward_run)}[recipe]
    config = small(config, change)
    whole, cut = trained(recipe, config, tmp_path / "whole"), trained(recipe, config, tmp_path / "cut", cut=2)
    ours, theirs = ([{k: v for k, v in row.items() if not k.startswith("time/")} for row in r.rows("metrics")[0]]
                    for r in (cut, whole))
    assert ours == theirs and len(ours) == 3 and not any(row["skipped"] for row in ours)
    a, b = ((r.latest() / "model.safetensors").read_bytes() for r in (cut, whole))
    assert a == b
    start, end = (load_scalar(x).body if recipe == "reward" else load_model(x) for x in ("tiny-chat", whole.latest()))
    moved = max((p - q).abs().max().item() for p, q in zip(start.parameters(), end.parameters(), strict=True))
    assert moved > 1e-6


def test_with_adapters_four_models_share_one_body(reward_run, tmp_path):
    judge = trained("reward", small(RewardConfig(task="questions"), "lora=4", "heads=1"), tmp_path / "judge")
    config = small(rollouts.RolloutConfig(task="questions", method="ppo", reward=str(judge.folder)), "lora=4")
    models = rollouts.build(config, begins("tiny-chat")).models
    bodies = {id(m.body) for m in (models.policy, models.reference, models.critic.body, models.reward.body)}
    assert len(bodies) == 1 and isinstance(models.policy, Adapted) and models.reference.adapter is None
    count = sum(p.numel() for m in models.trained().values() for p in m.parameters())
    assert count < 0.12 * sum(p.numel() for p in models.policy.body.parameters())
    tokens, lengths = torch.randint(6, 500, (2, 9), generator=torch.Generator().manual_seed(1)), torch.tensor([9, 7])
    alone = load_scalar(judge.latest())  # the same model, merged, with a body of its own
    torch.testing.assert_close(models.reward.score(tokens, lengths), alone.score(tokens, lengths), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(models.critic.value(tokens), alone.value(tokens), rtol=1e-4, atol=1e-5)
    assert not any(p.requires_grad for p in models.reward.parameters())
    assert all(p.requires_grad for p in models.critic.parameters())
    apart = rollouts.build(replace(config, reward=reward_run), begins("tiny-chat")).models  # trained whole
    assert not isinstance(apart.reward.body, Adapted) and isinstance(apart.critic.body, Adapted)


def test_a_run_does_not_go_on_against_another_reward_model(reward_run, tmp_path):
    from shutil import copytree
    copytree(reward_run, tmp_path / "reward")
    config = small(rollouts.RolloutConfig(task="questions", method="rloo", reward=str(tmp_path / "reward")))
    trained("rollouts", config, tmp_path / "run")
    save_model(load_scalar("tiny-chat", heads=2), opening.open_folder(tmp_path / "reward"))
    for path in (tmp_path / "reward/checkpoints").iterdir():
        if path != opening.open_folder(reward_run) and path.name == "000003":
            path.rename(tmp_path / "gone")  # the newest sound checkpoint is now an older one
    with pytest.raises(ValueError, match="the reward model .* has changed since this run began"):
        running.resume(Run.open(tmp_path / "run"), config, rollouts.build)


def test_reward_models_that_cannot_judge(reward_run, tmp_path):
    for reward, words in (("tiny-chat", "tiny-chat is no reward model"), ("nowhere", "no model at nowhere"),
                          (f"{reward_run},tiny", "tiny is no reward model")):
        with pytest.raises(ValueError, match=words):
            rollouts.build(small(rollouts.RolloutConfig(task="questions", reward=reward)), begins("tiny-chat"))
    save_model(load_scalar(opening.open_folder(reward_run)), tmp_path)
    Chat(CHAT.tokenizer, CHAT.template + " ", bos=CHAT.bos, eos=CHAT.eos, pad=CHAT.pad).save(tmp_path)
    with pytest.raises(ValueError, match="has another tokenizer or chat template than the policy, so it would misread"):
        rollouts.build(small(rollouts.RolloutConfig(task="questions", reward=str(tmp_path))), begins("tiny-chat"))
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"id": "b", "prompt": "Say it.", "completion": "word " * 600}) + "\n")
    with pytest.raises(ValueError, match=r"text b has \d+ tokens, over the model's 512"):
        rollouts.mixed_in(rollouts.RolloutConfig(task="words", anchor=rollouts.Anchor(ptx=0.1, texts=str(long))), CHAT, 512)
    with pytest.raises(ValueError, match="rejection has no KL"):
        rollouts.row_of(rollouts.RolloutConfig(task="words", method="rejection", anchor=rollouts.Anchor(kl=0.1)))
    with pytest.raises(ValueError, match="anchor.ptx and anchor.target are for policy methods"):
        rollouts.RolloutConfig(task="words", method="rejection", anchor=rollouts.Anchor(ptx=0.1))


# Pipelines

def test_the_turning_point():
    def curve(*true):
        return [{"step": 10 * i, "kl": float(i * i), "distance": float(i), "true": t, "proxy": i / 10}
                for i, t in enumerate(true)]

    found = turning(curve(0.0, 1.0, 2.0, 1.0, 0.0, 0.0, 0.0))
    assert (found["step"], found["distance"], found["peak"], found["end"]) == (20, 2.0, pytest.approx(4 / 3), 0.0)
    assert found["fall"] == found["gain_lost"] == 1.0 and found["proxy_at_end"] > found["proxy_at_peak"]
    assert turning(curve(-1.0, 0.0, 1.0, 1.0, 1.0))["fall"] == 0


def test_a_pipeline_goes_on_where_it_was_and_says_what_it_found(tmp_path, capsys):
    change = "pairs=16 reward_steps=2 steps=1 problems=4 samples=1 methods=simpo,best_of_n"
    folder = tmp_path / "align"
    assert main(["train", "align", *change.split(), "--run", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [p["name"] for p in said["policies"]] == ["start", "simpo", "best_of_n"]
    assert 0 <= said["reward_model"]["accuracy"] <= 1 and 0 <= said["reward_model"]["ece"] <= 0.5
    assert said["policies"][0]["interval"][0] < said["policies"][0]["true"] < said["policies"][0]["interval"][1]
    kept = (folder / "simpo/metrics.jsonl").read_bytes()
    assert main(["resume", str(folder), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (folder / "simpo/metrics.jsonl").read_bytes() == kept
    assert [p["true"] for p in again["policies"]] == [p["true"] for p in said["policies"]]
    assert main(["train", "align", "pairs=17", "--run", str(folder), "--json"]) == 2
    assert "holds a pipeline with other settings" in capsys.readouterr().err
    assert main(["train", "align", "methods=ppo,sft", "--json"]) == 2
    assert "methods names 'sft'" in capsys.readouterr().err


def test_the_lab_writes_its_curves(tmp_path, capsys):
    change = ("members=2 train_steps=2 proxies.pairs=16 kls=0,0.5 steps=2 best_of=4 prompts_per_step=2 group_size=2 "
              "rollouts.max_new_tokens=8 problems=2 evaluation.samples=2 evaluation.every=1")
    assert main(["train", "overoptimise", *change.split(), "--run", str(tmp_path / "lab")]) == 0
    shown = capsys.readouterr().out
    assert "ppo-kl-0.5" in shown and "Best of n" in shown
    curves = json.loads((tmp_path / "lab/curves.json").read_text())
    assert [p["name"] for p in curves["policies"]] == ["ppo-kl-0", "ppo-kl-0.5", "ppo-ensemble"]
    for policy in curves["policies"]:
        assert [p["step"] for p in policy["points"]] == [0, 1, 2] and abs(policy["points"][0]["kl"]) < 1e-4
        assert policy["points"][-1]["kl"] != 0
    assert [p["n"] for p in curves["best_of_n"]] == [1, 2, 4]
    proxy = [p["proxy"] for p in curves["best_of_n"]]
    assert proxy == sorted(proxy)  # more to choose from is never worse by the measure that chooses
    assert main(["train", "overoptimise", "kls=a,b", "--json"]) == 2
    assert "expected weights with commas between" in capsys.readouterr().err


def test_picked_replies_are_the_best_or_those_that_pass(tmp_path, capsys):
    ask = ["pick", "tiny-chat", "--task", "questions", "--prompts", "4", "--samples", "6", "--json"]
    assert main([*ask, "--out", str(tmp_path / "best.jsonl")]) == 0
    said, rows = json.loads(capsys.readouterr().out), read_conversations(tmp_path / "best.jsonl")
    assert (said["kept"], said["replies"], said["KL at most"]) == (4, 24, pytest.approx(math.log(6) - 5 / 6))
    assert len({r.messages[0]["content"] for r in rows}) == 4 and said["mean score kept"] > said["mean score"]
    assert main([*ask, "--out", str(tmp_path / "good.jsonl"), "--keep", "passing", "--threshold", "0"]) == 0
    good = [json.loads(line) for line in (tmp_path / "good.jsonl").read_text().splitlines()]
    task = load_task("questions")
    prompts = {p.question: p for p in task.prompts("train", 400, 0)}
    for row in good:
        score = task.verify(prompts[row["messages"][0]["content"]], row["messages"][1]["content"]).score
        assert row["score"] == score >= 0
    for more, words in ((["--keep", "passing", "--threshold", "9"], "none of 24 replies scores 9"),
                        (["--keep", "passing", "--reward", "x"], "say which score passes"), ([], "is there already")):
        out = tmp_path / ("best.jsonl" if not more else "none.jsonl")
        assert main([*ask, "--out", str(out), *more]) == 2 and words in capsys.readouterr().err
    assert not (tmp_path / "none.jsonl").exists()
