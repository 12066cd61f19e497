"""MATH-style files as a task."""

import json

import pytest

from postgrad.data.tasks import SPLITS, load_task
from postgrad.data.tasks.maths import boxed_answer
from postgrad.rewards.base import check_verifier


def row(number, **more):
    solution = rf"It is \boxed{{\frac{{{number}}}{{2}}}}."
    return {"problem": f"Half of {number}?", "solution": solution, "level": "Level 1", **more}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_box_without_braces_is_read_in_solutions_alone():
    assert boxed_answer(r"so $\boxed{1} = \boxed 2$.") == "1"
    assert boxed_answer(r"it is $x = \boxed 12$ cm") == "12"
    assert boxed_answer("nothing") is None


def test_one_file_is_split_and_pays_its_solutions(tmp_path):
    task = load_task(f"math:{write(tmp_path / 'm.jsonl', map(row, range(60)))}")
    parts = {split: task.prompts(split, 99, 0) for split in SPLITS}
    assert sum(map(len, parts.values())) == 60 and all(parts.values()) and task.waits
    prompts = [p for split in SPLITS for p in parts[split]]
    assert check_verifier(task.verify, [(p, task.gold(p)) for p in prompts]) == 60
    assert all(r"\boxed" in p.question and p.meta["level"] == "Level 1" for p in prompts)
    assert task.demonstrations("train", 1, 0)[0].messages[-1]["content"].startswith("It is ")


def test_a_folder_keeps_its_split_and_the_answer_of_a_row_comes_first(tmp_path):
    write(tmp_path / "train.jsonl", map(row, range(40)))
    write(tmp_path / "test.jsonl",
          [{"problem": "What is x?", "answer": "x^2"}, row(3), row(99, answer="49.5")])
    task = load_task(f"math:{tmp_path}")
    assert task.meta["sizes"]["test"] == 3 and task.meta["repeats"] == 1
    golds = {p.answer: task.gold(p) for p in task.prompts("test", 9, 0)}
    assert golds == {"x^2": r"\boxed{x^2}", "49.5": r"\boxed{49.5}",
                     r"\frac{3}{2}": r"It is \boxed{\frac{3}{2}}."}


@pytest.mark.parametrize(("bad", "said"), [
    ({"question": "a", "answer": "1"}, "line 2: expected .*found answer, question"),
    ({"problem": "a"}, "line 2: the problem has no answer"),
    ({"problem": "a", "solution": "5"}, r"line 2: the problem has no answer: neither"),
    ({"problem": 3}, "line 2: expected")])
def test_files_of_another_shape_are_refused(tmp_path, bad, said):
    with pytest.raises(ValueError, match=said):
        load_task(f"math:{write(tmp_path / 'm.jsonl', [row(1), bad])}")
