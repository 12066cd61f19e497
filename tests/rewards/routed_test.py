"""A judge for each prompt: rules for some tasks of a mixture, a reward model for others."""

import pytest
from rlhf_small import small, trained
from small import begins, build

from postgrad.data.tasks import load_task
from postgrad.recipes import rollouts
from postgrad.recipes.reward import RewardConfig
from postgrad.records import Prompt, Reward, Rollout, Verdict
from postgrad.resolve.rewards import GraderTerm, ModelTerm, VerifierTerm, parse_reward
from postgrad.rewards.base import RoutedReward

BOTH = """
from dataclasses import replace

from postgrad.data.tasks import load_task

PARTS = [load_task(name) for name in ("words", "questions")]


def prompts(split):
    drawn = [[replace(p, meta={**p.meta, "task": task.name}) for p in task.prompts(split, 20, 0)]
             for task in PARTS]
    return [p for pair in zip(*drawn) for p in pair]


def verify(prompt, text):
    return next(task for task in PARTS if task.name == prompt.meta["task"]).verify(prompt, text)
"""


def rollout(task, text="x"):
    return Rollout(prompt=Prompt.ask("?", 5, **({"task": task} if task else {})), prompt_tokens=(), tokens=(),
                   logp=(), text=text, finished=True, seed=0)


class CountedReward(Reward):
    """Counts how often it is called, and with what."""

    def __init__(self, paid):
        self.paid, self.asked, self.prefetched = paid, [], []

    def prefetch(self, rollout):
        self.prefetched.append(rollout.text)

    def score(self, rollouts):
        self.asked.append([r.text for r in rollouts])
        return [Verdict(score=self.paid) for _ in rollouts]


def test_each_judge_is_asked_once_for_its_own_and_the_order_stays():
    a, b, other = CountedReward(1.0), CountedReward(2.0), CountedReward(3.0)
    reward = RoutedReward({"a": a, "b": b}, other, task="c")
    given = [rollout(name, f"{name}{i}") for i, name in enumerate(("b", "a", "", "b", "zzz"))]
    assert [v.score for v in reward.score(given)] == [2.0, 1.0, 3.0, 2.0, 3.0]
    assert (a.asked, b.asked, other.asked) == ([["a1"]], [["b0", "b3"]], [["2", "zzz4"]])
    for r in given:
        reward.prefetch(r)
    assert b.prefetched == ["b0", "b3"] and reward.score([]) == []
    of_task = RoutedReward({"c": a}, other, task="c")
    assert of_task.score([rollout("")])[0].score == 1.0  # a prompt of the task itself


@pytest.mark.parametrize(("text", "found"), [
    ("questions=runs/r", [("questions", ModelTerm, ("runs/r",))]),
    ("questions=a,b;number+0.2*think", [("questions", ModelTerm, ("a", "b")), ("", VerifierTerm, ())]),
    ("number", [("", VerifierTerm, ())]), ("runs/r", [("", ModelTerm, ("runs/r",))]),
    ("regex(a=1;b)", [("", VerifierTerm, ())]), ("words=regex(a;b)", [("words", VerifierTerm, ())]),
    ("q=judge:tiny", [("q", GraderTerm, ("tiny",))]),
])
def test_rewards_of_tasks_are_read(text, found):
    assert [(term.task, type(term), term.model_names) for term in parse_reward(text).terms] == found


def test_a_judge_of_rules_and_another_of_the_rest():
    task = load_task("words")
    reward = parse_reward("questions=regex(^Hi);number+0.5*think").open(task, None, [], device="cpu")
    texts = [("questions", "Hi you"), ("questions", "5"), ("words", "<think></think><answer>5</answer>"),
             ("", "5")]
    assert [v.score for v in reward.score([rollout(*x) for x in texts])] == [1.0, 0.0, 1.5, 1.0]
    own = parse_reward("questions=regex(^Hi)").open(task, None, [], device="cpu")
    (prompt,) = task.prompts("train", 1, 0)
    gold = Rollout(prompt=prompt, prompt_tokens=(), tokens=(), logp=(), text=task.gold(prompt), finished=True,
                   seed=0)
    assert own.score([gold])[0].score == 1.0  # what names no task is judged by the task's own verifier
    assert parse_reward("questions=regex(^Hi);number").best_score(task) is None
    assert parse_reward("number+0.5*think").best_score(task) == 1.5
    assert parse_reward("questions=a,b;number").model_names == ["a", "b"]


def test_a_run_is_judged_by_rules_and_by_a_reward_model(tmp_path):
    reward = trained("reward", small(RewardConfig(task="questions"), "heads=1"), tmp_path / "reward")
    (tmp_path / "both.py").write_text(BOTH)
    config = small(rollouts.RolloutConfig(task=str(tmp_path / "both.py"),
                                          reward=f"questions={reward.folder};number+0.5*think"))
    parts = build(config, begins("tiny-chat"))
    scored = [s for batch in parts.batches for s in batch.scored]
    kinds = {s.rollout.prompt.meta["task"] for s in scored}
    assert kinds == {"words", "questions"}
    for s in scored:
        rules = s.rollout.prompt.meta["task"] == "words"
        assert (s.verdict.score in (0.0, 0.5, 1.0, 1.5)) is rules, s.verdict
    run = trained("rollouts", config, tmp_path / "run", cut=2)  # goes on with the same judges
    assert run.summary()["state"] == "done" and len(run.info["judged_by"]) == 1
