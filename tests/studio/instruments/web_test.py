"""What instruments do with models: a problem of the reader's own, and DPO on the reader's labels."""

import json

import pytest
from studio_small import client, make

from postgrad.runs import Run
from postgrad.studio.instruments import label_dpo, pipeline
from postgrad.studio.instruments import pipeline_replies as pipeline_ask
from postgrad.studio.recordings import recording

ASKED = {"question": "Ana has 3 cats. Ana gets 4 more. How many cats?"}


def test_a_right_number_in_a_wrong_form_is_told_apart():
    said = {"text": "<think>12+20=32, 32/2=16\nAnswer: 16", "right": False}
    assert pipeline.answer_verdict(said, "16") == "right number, wrong form"
    assert pipeline.answer_verdict(said, "15") == "wrong"
    assert pipeline.answer_verdict(said | {"right": True}, "1") == "right"
    assert pipeline.answer_verdict({"text": "Hi there!", "right": False}, "16") == "wrong"


def test_an_arrow_shows_what_changed_by_more_than_its_intervals():
    first, second = pipeline.compute(pipeline.State())["changes"]
    assert [row["name"] for row in first] == ["reasoning", "format"]
    assert [row["name"] for row in second] == ["reasoning"]
    counts = {s["name"]: s["measured"]["words"] for s in recording("pipeline")["stages"]}
    assert first[1]["before"] == pytest.approx(sum(counts["base"]["formed"]) / 1600)
    assert second[0]["after"] == pytest.approx(sum(counts["rl"]["right"]) / 1600)


def test_the_stages_answer_a_problem_of_one_s_own(tmp_path):
    studio = client(tmp_path)
    found = studio.post("/instruments/pipeline/ask", data=ASKED).text
    said = pipeline_ask.greedy_reply("tiny-chat", ASKED["question"])
    assert said["formed"] and said["text"].replace("<", "&lt;").replace(">", "&gt;") in found
    assert found.count('class="stage"') == 3 and "no model after RL" in found
    for question in ("", " \n", "x" * 301):
        answer = studio.post("/instruments/pipeline/ask", data={"question": question})
        assert answer.status_code == 400 and "1 to 300 characters" in answer.text


def test_the_newest_run_on_word_problems_stands_for_the_rl_model(tmp_path, monkeypatch):
    make(tmp_path / "other", task="questions")
    make(tmp_path / "untouched", model="tiny")
    assert pipeline_ask.trained_by_rl(tmp_path) is None
    make(tmp_path / "words")
    assert pipeline_ask.trained_by_rl(tmp_path) is None  # it has no checkpoint
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.json").write_text('{"task": "wor')
    monkeypatch.setattr(Run, "latest", lambda self: self.folder / "checkpoints" / "1")
    assert pipeline_ask.trained_by_rl(tmp_path) == tmp_path / "words"
    monkeypatch.setattr(pipeline_ask, "greedy_reply", lambda model, *_: {"text": model, "formed": True})
    found = client(tmp_path).post("/instruments/pipeline/ask", data=ASKED).text
    assert "run words" in found and str(tmp_path / "words") in found and "no model after RL" not in found


def test_a_run_that_is_damaged_stands_for_nothing(tmp_path):
    for name, text in (("list", "[1]"), ("cut", '{"task": ['), ("binary", "\udcff")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_bytes(text.encode(errors="surrogateescape"))
    assert pipeline_ask.trained_by_rl(tmp_path) is None


LABELS = "ab" * 15


def test_labels_become_pairs_and_a_model_is_trained_on_them(monkeypatch):
    one, other = recording("pairs")["to_label"][:2]
    assert label_dpo.labelled_pairs("abts") == [
        {"prompt": one["question"], "chosen": one["answers"][0], "rejected": one["answers"][1]},
        {"prompt": other["question"], "chosen": other["answers"][1], "rejected": other["answers"][0]}]
    monkeypatch.setattr(label_dpo, "STEPS", 1)
    monkeypatch.setattr(label_dpo, "PER_STEP", 2)
    monkeypatch.setattr(label_dpo, "measure_replies", lambda model: model)
    found = label_dpo.train_on_labels(LABELS)
    assert found["pairs"] == 30 and found["before"] == "tiny-chat" and found["after"].endswith("dpo")


def test_fewer_than_thirty_labels_train_nothing(tmp_path, monkeypatch):
    studio, asked = client(tmp_path), "/instruments/preference-labeller/dpo"
    answer = studio.post(asked, data={"labels": LABELS[:-1] + "t"})
    assert answer.status_code == 400 and "30 labels that prefer one answer; these are 29" in answer.text
    assert "Nothing was trained" in studio.get(asked, params={"labels": LABELS}).text


def test_what_a_training_found_or_why_it_failed_is_told(tmp_path, monkeypatch):
    class Double:
        returncode = 0

        def __init__(self, *words, **more):
            self.words = words

        def communicate(self):
            return json.dumps({"labels": self.words[1]}), "a warning\nthe last line"

    trainings = label_dpo.LabelTrainings()
    monkeypatch.setattr(label_dpo, "python_process", Double)
    trainings.start("ab")
    trainings.thread.join()
    assert trainings.found["ab"] == {"labels": "ab"} and trainings.busy == ""
    monkeypatch.setattr(Double, "returncode", 1)
    trainings.start("ba")
    trainings.thread.join()
    assert trainings.found["ba"] == {"error": "the last line"}
    trainings.busy = "aa"
    with pytest.raises(ValueError, match="other labels: wait"):
        trainings.start("bb")
