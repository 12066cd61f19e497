"""A judge for each prompt: rules for some tasks of a mixture, a reward model for others."""

import pytest
from rlhf_small import small, trained
from small import begins

from postgrad.data.tasks import load_task
from postgrad.recipes import rollouts
from postgrad.recipes.reward import RewardConfig
from postgrad.records import Prompt, Rollout, Verdict
from postgrad.resolve.rewards import best_score, model_names, open_judge, parts_of
from postgrad.rewards.routed import PerTask

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


class Told:
    """A judge that counts how often it is asked, and of what."""

    def __init__(self, score):
        self.score, self.asked, self.heard = score, [], []

    def ahead(self, rollout):
        self.heard.append(rollout.text)

    def __call__(self, rollouts):
        self.asked.append([r.text for r in rollouts])
        return [Verdict(score=self.score) for _ in rollouts]


def test_each_judge_is_asked_once_for_its_own_and_the_order_stays():
    a, b, other = Told(1.0), Told(2.0), Told(3.0)
    judge = PerTask({"a": a, "b": b}, other, task="c")
    given = [rollout(name, f"{name}{i}") for i, name in enumerate(("b", "a", "", "b", "zzz"))]
    assert [v.score for v in judge(given)] == [2.0, 1.0, 3.0, 2.0, 3.0]
    assert (a.asked, b.asked, other.asked) == ([["a1"]], [["b0", "b3"]], [["2", "zzz4"]])
    for r in given:
        judge.ahead(r)
    assert b.heard == ["b0", "b3"] and judge([]) == []
    assert PerTask({"c": a}, other, task="c")([rollout("")])[0].score == 1.0  # a prompt of the task itself


@pytest.mark.parametrize(("text", "found"), [
    ("questions=runs/r", [("questions", "models", ("runs/r",))]),
    ("questions=a,b;number+0.2*think", [("questions", "models", ("a", "b")), ("", "verifier", None)]),
    ("number", [("", "verifier", None)]), ("runs/r", [("", "models", ("runs/r",))]),
    ("regex(a=1;b)", [("", "verifier", None)]), ("words=regex(a;b)", [("words", "verifier", None)]),
    ("q=judge:tiny", [("q", "grader", ("tiny", ""))]),
])
def test_rewards_of_tasks_are_read(text, found):
    assert [(p.task, p.kind, p.value if p.kind != "verifier" else None) for p in parts_of(text)] == found


def test_a_judge_of_rules_and_another_of_the_rest():
    task = load_task("words")
    judge = open_judge("questions=regex(^Hi);number+0.5*think", task, None, [], device="cpu")
    texts = [("questions", "Hi you"), ("questions", "5"), ("words", "<think></think><answer>5</answer>"),
             ("", "5")]
    assert [v.score for v in judge([rollout(*x) for x in texts])] == [1.0, 0.0, 1.5, 1.0]
    own = open_judge("questions=regex(^Hi)", task, None, [], device="cpu")
    (prompt,) = task.prompts("train", 1, 0)
    gold = Rollout(prompt=prompt, prompt_tokens=(), tokens=(), logp=(), text=task.gold(prompt), finished=True,
                   seed=0)
    assert own([gold])[0].score == 1.0  # what names no task is judged by the task's own verifier
    assert best_score("questions=regex(^Hi);number", task) is None
    assert best_score("number+0.5*think", task) == 1.5
    assert model_names("questions=a,b;number") == ["a", "b"]


def test_a_run_is_judged_by_rules_and_by_a_reward_model(tmp_path):
    reward = trained("reward", small(RewardConfig(task="questions"), "heads=1"), tmp_path / "reward")
    (tmp_path / "both.py").write_text(BOTH)
    config = small(rollouts.RolloutConfig(task=str(tmp_path / "both.py"),
                                          reward=f"questions={reward.folder};number+0.5*think"))
    parts = rollouts.build(config, begins("tiny-chat"))
    scored = [s for batch in parts.batches for s in batch.scored]
    kinds = {s.rollout.prompt.meta["task"] for s in scored}
    assert kinds == {"words", "questions"}
    for s in scored:
        rules = s.rollout.prompt.meta["task"] == "words"
        assert (s.verdict.score in (0.0, 0.5, 1.0, 1.5)) is rules, s.verdict
    run = trained("rollouts", config, tmp_path / "run", cut=2)  # goes on with the same judges
    assert run.summary()["state"] == "done" and len(run.info["judged_by"]) == 1
