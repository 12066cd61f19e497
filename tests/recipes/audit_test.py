"""pg.score: texts scored by a reward model, a judge behind an address, a function; a run that such a judge
pays; and agreement with labels that the judge has not seen."""

import json

import pytest
from both_sides import scorer_of
from judge_server import JudgeServer

import postgrad as pg
from postgrad.cli import main
from postgrad.data.preferences import read_pairs, split_rows
from postgrad.models import load_scalar
from postgrad.recipes.audit import unseen_pairs
from postgrad.records import Prompt, pad_rows
from postgrad.rewards.remote_judge import quoted

TEXTS = [("What is 2+3?", "It is 5."), ("What is 2+3?", "No, I do not know that one."), ("And 4+4?", "8")]


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    return scorer_of("tiny-chat", tmp_path_factory.mktemp("models") / "scorer")


def test_a_reward_model_scores_texts_as_transformers_does(scorer):
    """The head's value at the last token of the rendered conversation."""
    transformers = pytest.importorskip("transformers")
    import torch
    tokenizer = transformers.AutoTokenizer.from_pretrained(scorer)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(scorer, num_labels=1,
                                                                            dtype=torch.float32)
    model.config.pad_token_id = tokenizer.pad_token_id
    scores = pg.score(str(scorer), TEXTS)
    for (question, text), score in zip(TEXTS, scores, strict=True):
        talk = [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
        ids = tokenizer.apply_chat_template(talk, return_dict=False)
        with torch.no_grad():
            theirs = model(torch.tensor([ids])).logits.item()
        assert score == pytest.approx(theirs, abs=1e-5)
        net = load_scalar(scorer)
        assert score == pytest.approx(net.score(pad_rows([ids]), torch.tensor([len(ids)])).item(), abs=1e-5)


def test_answers_are_written_in_many_ways(scorer, tmp_path):
    wanted = pg.score(scorer, TEXTS)
    dicts = [{"prompt": question, "completion": text} for question, text in TEXTS]
    said = [{"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": text}]}
            for question, text in TEXTS]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in dicts))
    for answers in (dicts, said, [(Prompt.ask(q), t) for q, t in TEXTS], tmp_path / "rows.jsonl"):
        assert pg.score(scorer, answers) == wanted
    assert pg.score(scorer, []) == []
    model = pg.load_model("tiny-chat")
    drawn = [r for group in model.sample(["What is 2+3?"], 2, max_new_tokens=8) for r in group]
    assert len(pg.score(scorer, drawn)) == 2


def test_other_judges_score_texts_too(tmp_path):
    rows = [{"prompt": "2+3?", "completion": text, "answer": "5", "level": n} for n, text in enumerate("56")]
    assert pg.score("number", rows) == [1.0, 0.0]
    assert pg.score(lambda prompt, text: len(text) / 10, rows) == [0.1, 0.1]
    assert pg.score(lambda completions, level, **_: level, rows) == [0, 1]
    with JudgeServer() as server:
        judge = pg.RemoteJudge(server.address, model="m", cache=str(tmp_path))
        assert pg.score(judge, [("Hi", "quality 7"), ("Hi", "quality 2")]) == [0.7, 0.2]


@pytest.mark.parametrize(("judge", "answers", "words"), [
    ("tiny-chat", TEXTS, "tiny-chat is no reward model: it scores all 0"),
    (None, TEXTS, "the judge is None: expected one reward model"),
    ("a,b", TEXTS, "expected one reward model"),
    (len, TEXTS, "cannot be called with"),
    ("number", ["a text alone"], r"answers\[0\] is 'a text alone': expected a prompt and a text"),
    ("number", [{"prompt": "2+3?"}], "expected a prompt and a text, a dict of prompt and completion"),
    ("number", [("2+3?", [{"role": "user", "content": "5"}])], "expected one message of the assistant"),
    (lambda prompt, text: 1 / len(text) and 1 / (len(text) - 8), TEXTS, "fails on an empty reply"),
])
def test_what_cannot_be_scored_is_a_sentence(judge, answers, words):
    with pytest.raises(ValueError, match=words) as error:
        pg.score(judge, answers)
    assert "\n" not in str(error.value)


def test_a_run_is_paid_by_a_judge_behind_an_address(tmp_path):
    """Replies that the server's rule scores are trained on; its faults are asked again, and its calls and
    tokens are in the metrics."""
    with JudgeServer({1: 500, 4: 429}) as server:
        judge = pg.RemoteJudge(server.address, model="m", cache=str(tmp_path / "cache"),
                               sleep=lambda seconds: None)
        run = pg.fit("tiny-chat", "grpo", task=[{"question": f"Say {n}."} for n in range(8)], reward=judge,
                     run=tmp_path / "run", steps=2, prompts_per_step=2, group_size=2, display=False,
                     rollouts={"max_new_tokens": 8}, evaluation={"every": 0})
        seen = [body["messages"][1]["content"] for body in server.bodies]
    rows = run.metrics()
    assert len(rows) == 2 and run.state()["state"] == "done"
    assert all(any(quoted(sample["text"]) in text for text in seen) for sample in run.samples())
    assert rows[-1]["judge/retries"] == 2 and 0 < rows[0]["judge/tokens"] < rows[1]["judge/tokens"]
    assert run.config["reward"]["name"] == f"m at {server.address}"


class Letters:
    """A reward of one's own, with the two methods of `Reward`."""

    def score(self, rollouts):
        return [pg.Verdict(score=len(set(r.text)) / 40) for r in rollouts]

    def prefetch(self, rollout):
        return None


@pytest.mark.parametrize("many", [False, True])
def test_a_run_is_paid_by_an_object_that_scores_rollouts_and_goes_on_with_it(many, tmp_path):
    reward = [Letters(), lambda prompt, text: 1.0] if many else Letters()
    rows = [{"question": f"Say {n}."} for n in range(8)]
    run = pg.fit("tiny-chat", "grpo", task=rows, reward=reward, run=tmp_path / "run", steps=1,
                 prompts_per_step=2, group_size=2, display=False, rollouts={"max_new_tokens": 4},
                 evaluation={"every": 0})
    assert run.config["reward"]["given"] == "reward"
    assert len(pg.resume(run, steps=2, task=rows, reward=reward, display=False).metrics()) == 2


def test_an_audit_asks_a_judge_behind_an_address_and_reports_its_agreement(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pairs = [{"prompt": f"{n}?", "chosen": f"quality {n + 1}, I say. It is so.",
              "rejected": f"quality {n}. No."} for n in range(6)]
    pairs[0] |= {"chosen": pairs[0]["rejected"], "rejected": pairs[0]["chosen"]}
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    with JudgeServer() as server:
        assert main(["audit", f"judge:{server.address}?model=m", "--pairs", "pairs.jsonl", "--probes",
                     "repetition", "--json"]) == 0
    agreement = json.loads(capsys.readouterr().out)["agreement"]
    assert agreement["pairs"] == 6 and agreement["share"] == pytest.approx(5 / 6)


def test_agreement_is_with_pairs_that_the_model_has_not_seen(tmp_path):
    pairs = [{"prompt": f"What is {n}?", "chosen": f"{n}.", "rejected": "no"} for n in range(30)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    run = pg.fit("tiny-chat", "reward", data=file, run=tmp_path / "run", steps=1, pairs={"per_step": 2},
                 display=False, evaluation={"every": 0})
    unseen = unseen_pairs(str(run.folder), str(file))
    assert unseen == split_rows(read_pairs(file), 0.1)[1] and 0 < len(unseen) < 30
    assert len(unseen_pairs("tiny-chat", str(file))) == 30
