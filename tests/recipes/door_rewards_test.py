"""Rewards at the Python door: functions, sums of them, reward models, functions written for TRL;
and what is wrong with one."""

from functools import partial
from itertools import count

import pytest
from doors import PAIRS, QUESTIONS, fit, letters, long
from small import FixedReward

import postgrad as pg
from postgrad.models import load_scalar
from postgrad.resolve.rewards import parse_reward
from postgrad.rewards.base import WeightedReward
from postgrad.rewards.function import own_verifier
from postgrad.system.user_code import record


def scores(run):
    return {(s["prompt"], s["text"]): s["score"] for s in run.samples()}


@pytest.fixture(scope="module")
def reward_run(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("reward"), "reward", data=PAIRS, pairs={"per_step": 4})


@pytest.mark.parametrize(("reward", "expected"), [
    (letters, letters),
    (lambda prompt, text: "e" in text, lambda prompt, text: float("e" in text)),
    (lambda prompt, text: pg.Verdict(score=0.5, reason="so"), lambda prompt, text: 0.5),
    ([letters, lambda p, t: 1.0], lambda p, t: 1 + letters(p, t)),
    ({letters: 2.0, "think": 0.5},
     lambda p, t: 2 * letters(p, t) + 0.5 * t.startswith("<think>") * t.endswith("</answer>")),
    (pg.from_trl(long), lambda p, t: len(t) / 100),
    ([pg.from_trl(long), letters], lambda p, t: len(t) / 100 + letters(p, t)),
    ("length(1,3)", None),
], ids=["float", "bool", "verdict", "list", "weighted", "trl", "trl in a list", "name"])
def test_a_reward(reward, expected, tmp_path):
    run = fit(tmp_path, "nano", task=QUESTIONS, reward=reward)
    assert run.state()["state"] == "done" and run.metrics()[0]["errors"] == 0
    for (_, text), score in scores(run).items():
        if expected:
            assert score == pytest.approx(expected(None, text))


def test_reward_models_by_run_name_and_object(reward_run, tmp_path):
    """All of them judge alike; the one without a name is kept by a hash of its weights."""
    opened = load_scalar(reward_run.latest())
    runs = {kind: fit(tmp_path, "nano", kind, task=QUESTIONS, reward=given) for kind, given in
            {"run": reward_run, "name": str(reward_run.folder), "path": reward_run.folder,
             "object": opened}.items()}
    first = scores(runs["run"])
    assert len(set(first.values())) > 1 and all(scores(run) == first for run in runs.values())
    assert runs["run"].config["reward"] == runs["path"].config["reward"] == str(reward_run.folder)
    assert runs["run"].info["judged_by"] and runs["object"].config["reward"]["given"] == "model"
    both = fit(tmp_path, "nano", "both", task=QUESTIONS, reward={reward_run: 1.0, letters: 0.5})
    for row in both.samples():
        assert row["score"] == pytest.approx(first.get((row["prompt"], row["text"]), row["parts"]["run"])
                                             + 0.5 * letters(None, row["text"]))
    assert both.info["judged_by"] == runs["run"].info["judged_by"]
    assert pg.evaluate(runs["run"], QUESTIONS, reward=reward_run, problems=2, samples=2,
                       max_new_tokens=8)["errors"] == 0


def test_trl_functions_get_their_columns(tmp_path):
    seen = {}

    def judge(prompts, completions, completion_ids, level, answer, **kwargs):
        seen.update(prompt=prompts[0], completion=completions[0], level=level, answer=answer)
        return [float(len(ids)) for ids in completion_ids]

    rows = [{"prompt": q, "answer": "5", "level": n} for n, q in enumerate(QUESTIONS)]
    run = fit(tmp_path, "nano", task=rows, reward=pg.from_trl(judge))
    assert seen["prompt"][0]["role"] == "user" and seen["completion"][0]["role"] == "assistant"
    assert set(seen["answer"]) == {"5"} and all(isinstance(n, int) for n in seen["level"])
    assert all(s["score"] == len(s["token_ids"]) for s in run.samples())
    texts = pg.from_trl(lambda prompts, completions, **_: [float(isinstance(x, str)) for x in prompts],
                        conversational=False)
    assert set(scores(fit(tmp_path, "nano", "texts", task=rows, reward=texts)).values()) == {1.0}


def test_a_trl_function_that_leaves_samples_to_others():
    """None is no score of 0: the sample is judged by the rest, at the weight of all;
    by nobody only where all say None."""
    prompt = pg.Prompt.ask("?")
    rollouts = [pg.Rollout(prompt=prompt, prompt_tokens=(), tokens=(), logp=(), text=t, finished=True, seed=0)
                for t in "ab"]
    some = pg.from_trl(lambda completions, **_: [None, 2.0])
    none = pg.from_trl(lambda completions, **_: [None, None])
    other = FixedReward(lambda rollouts: [pg.Verdict(score=3.0)] * len(rollouts))
    sums = WeightedReward({"some": (some, 1.0), "other": (other, 1.0)}).score(rollouts)
    assert [(v.score, v.error) for v in sums] == [(6.0, None), (5.0, None)]
    left, paid = WeightedReward({"some": (some, 1.0), "none": (none, 1.0)}).score(rollouts)
    assert left.absent and (paid.score, paid.error) == (4.0, None)


def test_a_function_that_fails_now_and_then_is_counted(tmp_path):
    """Of four samples of a step one raises and one is None: two errors,
    kept out of the loss and out of the mean reward."""
    turn = count()

    def odd(prompt, text):
        n = next(turn)  # 0 is the proof before the run
        return {0: 8.0, 1: 4.0, 2: None}.get(n % 4) if n % 4 < 3 else raises(prompt, text)

    run = fit(tmp_path, "reinforce", task=QUESTIONS, reward=odd, kl=0)
    assert run.state()["state"] == "done" and [row["errors"] for row in run.metrics()] == [2, 2]
    assert [row["reward"] for row in run.metrics()] == [6.0, 6.0]


def raises(prompt, text):
    raise KeyError("level")


class Judge:
    """An object that is called, with a weight of its own."""

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, prompt, text):
        return self.weight * len(text)


@pytest.mark.parametrize(("reward", "words"), [
    (raises, "reward raises fails on an empty reply .*door_rewards_test.py, line [0-9]+: KeyError: "
     "'level'.*: it must judge"),
    (lambda prompt, text: None, r"returned nothing \(None\): it has to return a float, a bool or a Verdict"),
    (lambda prompt, text: float("nan"), "returned the score nan"),
    (lambda text: 1.0, r"\(text\) cannot be called with \(prompt, text\): give it these two arguments"),
    (lambda prompt, text, answer: 1.0, r"cannot be called with \(prompt, text\)"),
    (lambda completions, level: [1.0], "asks for the column 'level', and the rows have answer: add it to"),
    (pg.from_trl(lambda completions, **_: []), "0 scores for 1 completions"),
    ({letters: 0.0}, "the weight 0.0: it must be a number other than 0"),
    ({letters: True}, "the weight True: it must be a number other than 0"),
    (3.5, "reward is 3.5: expected a function of"),
    ("nmber", "did you mean 'number'"),
    ([letters, 7], "reward is 7: expected a function"),
], ids=range(12))
def test_a_bad_reward(reward, words, tmp_path):
    with pytest.raises(ValueError, match=words) as error:
        fit(tmp_path, task=QUESTIONS, reward=reward)
    assert "\n" not in str(error.value) and list(tmp_path.iterdir()) == []


def test_what_is_kept_of_a_function():
    """Module, name and a hash: of its text, of what it closes over, of what is bound to it."""
    def scaled(by):
        def reward(prompt, text):
            return by * len(text)
        return reward

    kept = record(letters)
    assert kept["given"] == "function" and kept["name"] == "doors.letters" and len(kept["sha256"]) == 64

    def hash_of(f):
        return record(f)["sha256"]

    assert hash_of(scaled(2)) == hash_of(scaled(2)) != hash_of(scaled(3))
    assert hash_of(partial(letters, None)) != hash_of(partial(letters, 1)) == hash_of(partial(letters, 1))
    assert hash_of(Judge(1)) == hash_of(Judge(1)) != hash_of(Judge(2))
    assert hash_of(Judge(1).__call__) != hash_of(Judge(2).__call__)
    # a lambda's line holds more than the lambda: its code alone counts, and that of what is inside it
    one, same = (lambda p, t: sum(c == "e" for c in t)), (lambda p, t: sum(c == "e" for c in t))
    other = lambda p, t: sum(c == "f" for c in t)  # noqa: E731
    assert hash_of(one) == hash_of(same) != hash_of(other)
    assert (record({letters: 1.0, "think": 0.5}) != record({letters: 1.0, "think": 0.6})
            == record({letters: 1.0, "think": 0.6}))
    assert record([letters, "think"])["parts"] == [record(letters), "think"]


def test_a_guarded_function_is_known_by_its_own_text():
    assert record(own_verifier(letters)) == record(letters) != record(own_verifier(raises))
    tasks = [pg.make_task(QUESTIONS, f) for f in (letters, letters, lambda p, t: 0.5)]
    assert tasks[0].record() == tasks[1].record() != tasks[2].record()
    assert tasks[0].record() != pg.make_task(QUESTIONS[1:], letters).record()


# folders with commas

def test_a_folder_with_a_comma_in_its_name_is_one_reward_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a,b", "a", "runs,old/reward"):
        (tmp_path / name).mkdir(parents=True)
    assert parse_reward("a,b").model_names == ["a,b"] and parse_reward("a,b@20").model_names == ["a,b@20"]
    assert parse_reward("runs,old/reward").model_names == ["runs,old/reward"]
    assert parse_reward("a, c@3").model_names == ["a", "c@3"]  # two, of which one is to be found elsewhere
    for several in ("a,b,a", "a,a,b@20", "runs,old/reward,runs,old/none", "x,runs,old/none"):
        with pytest.raises(ValueError, match="(a,b|runs,old) has a comma in its name, and a comma stands "):
            parse_reward(several)
