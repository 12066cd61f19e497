"""The recipes and pipelines of RLHF: cut and resumed to the same bits, and what they write."""

import json
import math
from dataclasses import replace

import pytest
import torch
from rlhf_small import small, trained
from small import CHAT, begins, build

from postgrad.cli import main
from postgrad.data.rows import read_conversations
from postgrad.data.tasks import load_task
from postgrad.models import Adapted, load_model, load_scalar, save_model
from postgrad.models.chat import Chat
from postgrad.recipes import rollouts
from postgrad.recipes.preference import PreferenceConfig
from postgrad.recipes.reward import RewardConfig
from postgrad.recipes.running import resume_run
from postgrad.resolve import models as opening
from postgrad.runs import Run
from postgrad.system.throughput import repeatable


@pytest.fixture(scope="module")
def reward_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reward") / "run"
    return str(trained("reward", small(RewardConfig(task="questions")), folder).folder)


@pytest.mark.parametrize(("recipe", "change"), [
    ("reward", "lora=0"), pytest.param("reward", "lora=2", marks=pytest.mark.long),
    *(pytest.param("preference", change, marks=pytest.mark.long) for change in ("method=kto", "lora=2")),
    ("rollouts", "method=best_of_n"),
    *(pytest.param("rollouts", change, marks=pytest.mark.long)
      for change in ("ptx=0.1", "method=online_dpo", "target=0.5", "lora=2"))])
def test_a_cut_run_goes_on_to_the_same_bits(recipe, change, reward_run, tmp_path):
    config = {"reward": RewardConfig(task="questions"), "preference": PreferenceConfig(task="questions"),
              "rollouts": rollouts.RolloutConfig(task="questions", method="ppo", reward=reward_run)}[recipe]
    config = small(config, change)
    whole, cut = trained(recipe, config, tmp_path / "whole"), trained(recipe, config, tmp_path / "cut", cut=2)
    ours, theirs = ([repeatable(row)
                     for row in r.rows("metrics")[0]] for r in (cut, whole))
    assert ours == theirs and len(ours) == 3 and not any(row["skipped"] for row in ours)
    a, b = ((r.latest() / "model.safetensors").read_bytes() for r in (cut, whole))
    assert a == b
    start, end = (load_scalar(x).body if recipe == "reward" else load_model(x)
                  for x in ("tiny-chat", whole.latest()))
    moved = max((p - q).abs().max().item() for p, q in zip(start.parameters(), end.parameters(), strict=True))
    assert moved > 1e-6


def test_with_adapters_four_models_share_one_body(reward_run, tmp_path):
    judge = trained("reward", small(RewardConfig(task="questions"), "lora=4", "heads=1"), tmp_path / "judge")
    config = small(rollouts.RolloutConfig(task="questions", method="ppo", reward=str(judge.folder)), "lora=4")
    models = build(config, begins("tiny-chat")).models
    bodies = {id(m.body) for m in (models.policy, models.reference, models.critic.body, models.reward.body)}
    assert len(bodies) == 1 and isinstance(models.policy, Adapted) and models.reference.adapter is None
    count = sum(p.numel() for m in models.trained().values() for p in m.parameters())
    assert count < 0.12 * sum(p.numel() for p in models.policy.body.parameters())
    tokens = torch.randint(6, 500, (2, 9), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([9, 7])
    alone = load_scalar(judge.latest())  # the same model, merged, with a body of its own
    torch.testing.assert_close(models.reward.score(tokens, lengths), alone.score(tokens, lengths), rtol=1e-4,
                               atol=1e-5)
    torch.testing.assert_close(models.critic.value(tokens), alone.value(tokens), rtol=1e-4, atol=1e-5)
    assert not any(p.requires_grad for p in models.reward.parameters())
    assert all(p.requires_grad for p in models.critic.parameters())
    apart = build(replace(config, reward=reward_run), begins("tiny-chat")).models  # trained whole
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
        resume_run(Run.open(tmp_path / "run"), config)


def test_reward_models_that_cannot_judge(reward_run, tmp_path):
    for reward, words in (("tiny-chat", "tiny-chat is no reward model"), ("nowhere", "no model at nowhere"),
                          (f"{reward_run},tiny", "tiny is no reward model")):
        with pytest.raises(ValueError, match=words):
            build(small(rollouts.RolloutConfig(task="questions", reward=reward)),
                           begins("tiny-chat"))
    save_model(load_scalar(opening.open_folder(reward_run)), tmp_path)
    Chat(CHAT.tokenizer, CHAT.template + " ", bos=CHAT.bos, eos=CHAT.eos, pad=CHAT.pad).save(tmp_path)
    with pytest.raises(ValueError,
                       match="has another tokenizer or chat template than the policy, so it would misread"):
        build(small(rollouts.RolloutConfig(task="questions", reward=str(tmp_path))),
                       begins("tiny-chat"))
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"id": "b", "prompt": "Say it.", "completion": "word " * 600}) + "\n")
    with pytest.raises(ValueError, match=r"text b has \d+ tokens, over the model's 512"):
        rollouts.pretraining_mix(
            rollouts.RolloutConfig(task="words", ptx=rollouts.Ptx(coef=0.1, texts=str(long))), CHAT, 512)
    with pytest.raises(ValueError, match="rejection has no KL"):
        _ = rollouts.RolloutConfig(task="words", method="rejection", kl=rollouts.KL(coef=0.1)).row
    with pytest.raises(ValueError, match="ptx.coef and kl.target are for policy methods"):
        rollouts.RolloutConfig(task="words", method="rejection", ptx=rollouts.Ptx(coef=0.1))


# Pipelines

def test_a_pipeline_goes_on_where_it_was_and_says_what_it_found(tmp_path, capsys):
    change = "pairs=16 reward_steps=2 collections=1 problems=4 samples=1 methods=simpo,best_of_n"
    folder = tmp_path / "align"
    assert main(["train", "align", *change.split(), "--run", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [p["name"] for p in said["policies"]] == ["start", "simpo", "best_of_n"]
    assert 0 <= said["reward_model"]["accuracy"] <= 1 and 0 <= said["reward_model"]["ece"] <= 0.5
    assert (said["policies"][0]["interval"][0] < said["policies"][0]["true"]
            < said["policies"][0]["interval"][1])
    kept = (folder / "simpo/metrics.jsonl").read_bytes()
    assert main(["resume", str(folder), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (folder / "simpo/metrics.jsonl").read_bytes() == kept
    assert [p["true"] for p in again["policies"]] == [p["true"] for p in said["policies"]]
    assert main(["train", "align", "pairs=17", "--run", str(folder), "--json"]) == 2
    assert "holds a pipeline with other settings" in capsys.readouterr().err
    assert main(["train", "align", "methods=ppo,sft", "--json"]) == 2
    assert "methods names 'sft'" in capsys.readouterr().err


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
                        (["--keep", "passing", "--reward", "runs/x"], "say which score passes"),
                        ([], "is there already")):
        out = tmp_path / ("best.jsonl" if not more else "none.jsonl")
        assert main([*ask, "--out", str(out), *more]) == 2 and words in capsys.readouterr().err
    assert not (tmp_path / "none.jsonl").exists()
