"""GSM8K as a task: the published files where they are, and a few rows of its shape everywhere."""

import json

import pytest
from paths import DATA
from small import gsm8k_folder

from postgrad.data.tasks import load_task
from postgrad.rewards.base import check_verifier

DATA = (
    DATA / "gsm8k")


@pytest.fixture
def folder(tmp_path):
    return gsm8k_folder(tmp_path)


def test_the_published_split_is_kept(folder):
    task = load_task(f"gsm8k:{folder}")
    ids = {split: {p.id for p in task.prompts(split, 1000, 0)} for split in ("train", "validation", "test")}
    assert [len(ids[s]) for s in ids] == [task.meta["sizes"][s] for s in ids] and len(ids["test"]) == 20
    assert len(ids["train"]) + len(ids["validation"]) == 80 and ids["validation"]
    assert not ids["train"] & ids["validation"] and not ids["train"] & ids["test"]


@pytest.mark.parametrize("text, strict, lenient", [
    ("600+602=1202\n#### 1,202", 1, 1), ("so it is\n#### 1202.", 1, 1), ("600 #### $1202", 1, 1),
    ("she has 1202 eggs", 0, 1), ("#### 1202", 0, 1), ("600+602=1202\n#### 1202 eggs", 0, 1),
    ("600\n#### 1203", 0, 0), ("", 0, 0), ("1202, or 5", 0, 0), ("1202 #### 12020", 0, 0),
    ("it is #### 1202 #### 7", 0, 0)])
def test_strict_and_lenient_side_by_side(folder, text, strict, lenient):
    task = load_task(f"gsm8k:{folder}")
    prompt = next(p for s in ("train", "validation") for p in task.prompts(s, 1000, 0) if p.answer == "1,202")
    said = task.verify(prompt, text)
    assert (said.score, said.parts["lenient"]) == (strict, lenient)


def test_demonstrations_are_the_published_solutions(folder):
    task = load_task(f"gsm8k:{folder}")
    shown = task.demonstrations("train", 5, 0)
    assert all("<<" in c.messages[-1]["content"] and "\n#### " in c.messages[-1]["content"] for c in shown)


@pytest.mark.parametrize("text, said",
                         [("", "holds no rows"), ('{"question": "a", "answer": "5"}\n', "line 1: expected"),
                          ('{"question": "a", "answer": "b #### many"}\n', "'many' is not a number")])
def test_files_of_another_shape_are_refused(folder, text, said):
    (folder / "test.jsonl").write_text(text)
    with pytest.raises(ValueError, match=said):
        load_task(f"gsm8k:{folder}")


def test_where_there_is_no_folder():
    with pytest.raises(ValueError, match="nothing at nowhere: write gsm8k:FOLDER"):
        load_task("gsm8k:nowhere")


@pytest.mark.skipif(not DATA.is_dir(), reason="GSM8K is not here")
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_the_published_problems_pay_their_own_solutions(count):
    task = load_task(f"gsm8k:{DATA}")
    assert (task.meta["sizes"]["test"] == 1319
            and task.meta["sizes"]["train"] + task.meta["sizes"]["validation"] == 7473)
    for split in ("train", "validation", "test"):
        prompts = task.prompts(split, count, 0)
        assert check_verifier(task.verify, [(p, task.gold(p)) for p in prompts]) == len(prompts)
        assert all(task.verify(p, task.gold(p)).parts["lenient"] == 1 for p in prompts)


def test_pairs_are_right_and_wrong_answers_to_one_problem(folder):
    said = {"a": ("3+2=5\nA: 5", True), "b": ("so 2+3=5\nA: 5", True), "c": ("2+3=6\nA: 6", False)}
    row = {"ground_truth": "5",
           **{name: {"solution": text, "is_correct": right} for name, (text, right) in said.items()}}
    many = [{**row, "question": f"{i}: 2+3?"} for i in range(40)]
    (folder / "example_model_solutions.jsonl").write_text("".join(json.dumps(r) + "\n" for r in many))
    task = load_task(f"gsm8k:{folder}")
    pairs = {s: task.preferences(s, 1000, 0) for s in ("train", "validation", "test")}
    assert sum(map(len, pairs.values())) == 80  # two right answers, each beside the wrong one
    questions = {s: {p.messages[0]["content"] for p in pairs[s]} for s in pairs}
    assert not questions["train"] & questions["test"] and questions["test"]
    assert {p.chosen for p in pairs["train"]} == {"3+2=5\n#### 5", "so 2+3=5\n#### 5"}
    assert {p.rejected for p in pairs["train"]} == {"2+3=6\n#### 6"}
    (folder / "example_model_solutions.jsonl").write_text('{"question": "a", "m": "b"}\n')
    with pytest.raises(ValueError, match="line 1: expected a question"):
        load_task(f"gsm8k:{folder}")


@pytest.mark.skipif(not DATA.is_dir(), reason="GSM8K is not here")
def test_the_published_pairs():
    task = load_task(f"gsm8k:{DATA}")
    pairs = [p for split in ("train", "validation", "test") for p in task.preferences(split, 10_000, 0)]
    answers = {p.question: p for p in task.prompts("test", 2000, 0)}
    assert (len(pairs), len({p.messages[0]["content"] for p in pairs})) == (2429, 731)
    assert all(task.verify(answers[p.messages[-1]["content"]], p.chosen).score > task.verify(
        answers[p.messages[-1]["content"]], p.rejected).score for p in pairs)
