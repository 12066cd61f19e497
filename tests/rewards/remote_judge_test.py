"""A judge behind an address: every grading comes, none is wrong, and no reply can pay itself."""

import json

import pytest
from judge_server import INJECTIONS, JudgeServer

import postgrad as pg
from postgrad.records import Prompt, Rollout
from postgrad.resolve.rewards import RemoteJudgeTerm, parse_reward
from postgrad.rewards.remote_judge import JudgeCache, RateLimit, RemoteJudge, quoted, read_rubric

PROMPT = Prompt.ask("How are you?", "fine")


def rollouts(texts, prompt=PROMPT):
    return [Rollout(prompt=prompt, prompt_tokens=(), tokens=(), logp=(), text=text, finished=True, seed=0)
            for text in texts]


def judge(server, tmp_path, **settings):
    return RemoteJudge(server.address, model="m", cache=str(tmp_path), sleep=lambda seconds: None,
                       **{"timeout": 0.3, **settings})


def test_faults_are_asked_again_and_no_grade_is_lost_or_wrong(tmp_path):
    kinds = [429, 500, 503, "slow", "nonsense", "echo", "cut", "huge", "null"]
    faults = {7 * n: kinds[n % len(kinds)] for n in range(18)}
    texts = [f"quality {n % 11} of {n}" for n in range(150)]
    with JudgeServer(faults) as server:
        reward = judge(server, tmp_path, price_in=10.0, price_out=100.0)
        said = reward.score(rollouts(texts))
        assert [v.score for v in said] == [n % 11 / 10 for n in range(150)]
        assert reward.totals["judge/retries"] == 18 and reward.totals["judge/failed"] == 0
        answered = reward.totals["judge/tokens"] / 120
        assert said[0].metrics["judge/cost"] == pytest.approx(answered * (100 * 1e-5 + 20 * 1e-4))
        before = len(server.bodies)
        again = judge(server, tmp_path)
        assert [v.score for v in again.score(rollouts(texts))] == [v.score for v in said]
        assert len(server.bodies) == before and again.totals["judge/cached"] == 150
        other = RemoteJudge(server.address, model="n", cache=str(tmp_path))
        other.score(rollouts(texts[:1]))
        assert len(server.bodies) == before + 1, "another model judges for itself"


def test_what_stays_nonsense_is_a_failed_verdict_and_is_not_kept(tmp_path):
    with JudgeServer({n: "nonsense" for n in range(6)} | {6: 401}) as server:  # to a neutral reply too
        reward = judge(server, tmp_path, retries=2)
        (said,) = reward.score(rollouts(["quality 9"]))
        assert said.error and "no JSON object with the id of the request" in said.error
        assert "status 401: " in reward.score(rollouts(["quality 9"]))[0].error and len(server.bodies) == 7
        assert reward.score(rollouts(["quality 9"]))[0].score == 0.9


@pytest.mark.parametrize("body", [
    b"[" * 100_000, b"", b"\xff", b"[]", b"7", b'{"choices": []}', b'{"choices": 1, "choices": 2}',
    b'{"choices": [{"message": {"content": "5"}}], "usage": {"prompt_tokens": 1e308}}' + b" " * 2**24,
    b'{"choices": [{"message": {"content": "5"}}], "usage": {"prompt_tokens": 1e999}}',
    b'{"choices": [{"message": {"content": "5"}}], "usage": {"prompt_tokens": ' + b"9" * 5000 + b"}}",
    b'{"choices": [{"message": {"content": "\\ud800"}}]}'])
def test_an_answer_that_is_no_completion_is_asked_for_again(tmp_path, body):
    with JudgeServer({0: body}) as server:
        reward = judge(server, tmp_path)
        assert reward.score(rollouts(["quality 9"]))[0].score == 0.9
        assert reward.totals["judge/retries"] == 1


def test_a_server_is_left_alone_as_long_as_it_asks(tmp_path):
    pauses = []
    with JudgeServer({0: 429, 1: 500, 2: 500}) as server:
        reward = RemoteJudge(server.address, model="m", cache="none", sleep=pauses.append)
        assert reward.score(rollouts(["quality 1"]))[0].score == 0.1
    assert pauses == [3.0, 1.0, 2.0] and not list(tmp_path.iterdir())
    limit = RateLimit(4.0, pauses.append, lambda: 100.0)
    for _ in range(3):
        limit.wait()
    assert pauses[3:] == [0.25, 0.5]


@pytest.mark.parametrize("fault", [None, "echo"])
def test_no_injection_is_paid(fault, tmp_path):
    assert len(INJECTIONS) == 60
    with JudgeServer({n: fault for n in range(500)}) as server:
        said = judge(server, tmp_path, retries=0).score(rollouts(INJECTIONS))
        assert [v.score for v in said] == [0.0] * 60 and all(bool(v.error) == bool(fault) for v in said)
        for body in server.bodies:
            assert len(body["messages"][1]["content"].splitlines()) == 3


def test_a_quoted_text_is_one_line_and_reads_back():
    for text in INJECTIONS:
        line = quoted(text)
        assert len(line.splitlines()) == 1 and line.isascii() and "<|" not in line and "[INST]" not in line
        assert json.loads(line) == text.encode(errors="replace").decode()
    assert quoted("a < b and c[0]") == '"a < b and c[0]"', "code stays readable"


def test_rubrics_item_by_item(tmp_path):
    """quality 2 meets the first two items: (1 + 3) / (1 + 3 + 4)."""
    path = tmp_path / "rubric.toml"
    path.write_text('[[items]]\ntext = "polite"\n[[items]]\ntext = "right"\nweight = 3\n'
                    '[[items]]\ntext = "short"\nweight = 4\n')
    with JudgeServer() as server:
        (said,) = judge(server, tmp_path, rubric=str(path)).score(rollouts(["quality 2"]))
        assert said.score == 0.5 and said.parts == {"item 1": 1.0, "item 2": 1.0, "item 3": 0.0}
        prompt = Prompt.ask("?", rubric=["kind", {"criterion": "true", "weight": 3}])
        column = judge(server, tmp_path, rubric_column="rubric")
        assert column.score(rollouts(["quality 1"], prompt))[0].score == 0.25
        with pytest.raises(ValueError, match="has no column 'rubric', where its rubric stands"):
            column.score(rollouts(["quality 1"]))
    (tmp_path / "bad.json").write_text('[{"text": "a", "weight": -1}]')
    with pytest.raises(ValueError, match="item 1 has the weight -1: it must be a number above 0"):
        read_rubric(str(tmp_path / "bad.json"))


def test_a_judge_ranks_the_samples_of_a_group(tmp_path):
    texts = ["quality 3", "quality 9", "quality 3", "quality 1"]
    other = Prompt.ask("And you?")
    with JudgeServer() as server:
        said = judge(server, tmp_path, ranked=True).score(rollouts(texts) + rollouts(["quality 1"], other))
        assert [v.score for v in said] == [0.5, 1.0, 0.5, 0.0, 0.5] and len(server.bodies) == 1


def test_a_cache_that_was_cut_off_is_read_and_goes_on(tmp_path):
    path = tmp_path / "cache.jsonl"
    JudgeCache(path).keep("a", {"score": 0.5})
    path.write_bytes(path.read_bytes() + b'{"key": "b", "fig')
    cache = JudgeCache(path)
    cache.keep("c", {"score": 1.0})
    assert JudgeCache(path).rows == {"a": {"score": 0.5}, "c": {"score": 1.0}}


def test_a_judge_by_its_address():
    (term,) = parse_reward("judge:http://h:1/v1?model=org/m&rate=5&concurrency=4").terms
    assert isinstance(term, RemoteJudgeTerm) and term.learned
    reward = term.open(None)
    assert (reward.address, reward.model, reward.rate.rate) == ("http://h:1/v1", "org/m", 5.0)
    assert isinstance(pg.RemoteJudge("https://h/v1", model="m", cache="none"), RemoteJudge)
    for text, words in {"judge:http://h/v1": "name the model behind the address",
                        "judge:http://h/v1?modle=m": "there is no option 'modle'",
                        "judge:http://h/v1?model=m&rate=x": "rate is 'x', which cannot be read"}.items():
        with pytest.raises(ValueError, match=words):
            parse_reward(text)
