"""What a list of prompts holds out: nothing without evaluation, a share that is said with it."""

import zlib
from dataclasses import replace

import pytest

from postgrad.cli import main
from postgrad.data.tasks.base import split_of
from postgrad.data.tasks.listed import holdout_note
from postgrad.data.tasks.mixed import mix_tasks
from postgrad.recipes.base import Evaluation
from postgrad.resolve.tasks import make_task, open_task
from postgrad.runs import Run
from postgrad.system.renamed import translate_config

ROWS = [{"question": f"What is {n}+1?", "answer": n + 1} for n in range(500)]


def ids(task, split):
    return {prompt.id for prompt in task.prompts(split, 1000, 0)}


def test_a_fifth_is_what_it_was_and_smaller_shares_lie_within():
    for n in range(3000):
        last = zlib.crc32(f"{n}".encode()) % 10
        assert split_of(f"{n}") == ("test" if last == 0 else "validation" if last == 1 else "train")
        if split_of(f"{n}", 0.05) != "train":
            assert split_of(f"{n}", 0.1) != "train"
    assert sum(split_of(f"{n}", 0.04) != "train" for n in range(10_000)) == pytest.approx(400, abs=60)


def test_without_evaluation_nothing_is_held_out():
    task = open_task(ROWS)
    whole = Evaluation(every=0).held_out(task)
    assert len(ids(whole, "train")) == 500
    assert holdout_note(whole)[0].startswith("rows: all 500 prompts are trained, none is held out")
    some = Evaluation(every=5).held_out(task)
    sizes = {split: len(ids(some, split)) for split in ("train", "validation", "test")}
    assert sum(sizes.values()) == 500 and 430 < sizes["train"] < 470
    assert not ids(some, "train") & (ids(some, "validation") | ids(some, "test"))
    assert f"{sizes['train']} prompts are trained, {sizes['validation']} are held out as validation" in (
        holdout_note(some)[0])
    assert len(ids(Evaluation(every=0, holdout_prompts=0.5).held_out(task), "train")) < 300
    named = open_task("words")
    assert Evaluation(every=0).held_out(named) is named and holdout_note(named) == ()


def test_a_task_object_has_one_hash_whatever_is_held_out():
    task = make_task(ROWS[:50], lambda prompt, text: 0.0)
    assert task.with_holdout(0.0).record() == task.record()


def test_what_is_replaced_in_a_task_stays_whatever_is_held_out():
    task = make_task(ROWS[:50], lambda prompt, text: 0.0)
    for whole in (task, mix_tasks([task, open_task("words")])):
        other = replace(whole, verify=None, best=2.0).with_holdout(0.0)
        assert other.verify is None and other.best == 2.0 == other.with_holdout(0.1).best
        assert ids(other, "train") == ids(whole.with_holdout(0.0), "train") != ids(whole, "train")
    few = replace(task, prompts=lambda split, count, seed: task.prompts(split, 3, seed))
    assert few.with_holdout(0.0) is few


def test_make_task_takes_a_function_of_the_split():
    rows = {"train": ROWS[:10], "validation": ROWS[10:12], "test": ROWS[12:15]}
    task = make_task(lambda split: rows[split], lambda prompt, text: str(prompt.answer) in text)
    assert [len(ids(task, split)) for split in rows] == [10, 2, 3]
    assert Evaluation(every=0).held_out(task) is task, "its splits are its own"
    assert len(ids(make_task(lambda: ROWS[:20], lambda prompt, text: 0.0), "train")) in range(15, 20)
    with pytest.raises(ValueError, match="make_task: `prompts` gave an empty list for the split 'test'"):
        make_task(lambda split: rows[split] if split != "test" else [], lambda prompt, text: 0.0)
    with pytest.raises(ValueError, match="make_task: KeyError: 'validation'"):
        make_task(lambda split: {"train": ROWS}[split], lambda prompt, text: 0.0)


def test_mixtures_hold_out_as_their_parts(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(f'{{"question": "{n}+1?", "answer": {n + 1}}}\n' for n in range(100)))
    task = open_task(f"{path}+words")
    own = [p for p in Evaluation(every=0).held_out(task).prompts("train", 400, 0) if "words" not in p.id]
    assert len(own) == 100


def test_a_run_says_what_it_holds_out(tmp_path, capsys):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(f'{{"question": "{n}+1?", "answer": {n + 1}}}\n' for n in range(40)))
    small = ["steps=1", "save_every=1", "rollouts.prompts_per_step=2", "rollouts.group_size=2",
             "rollouts.max_new_tokens=4", "evaluation.problems=2", "evaluation.samples=2"]
    assert main(["train", "grpo", "--task", str(path), *small, "evaluation.every=0", "--run",
                 str(tmp_path / "run")]) == 0
    assert "q: all 40 prompts are trained, none is held out" in capsys.readouterr().err
    assert Run.open(tmp_path / "run").info["data"]["prompts"] == 40


def test_runs_saved_without_the_setting_hold_out_a_fifth():
    saved = {"evaluation": {"every": 0, "split": "validation"}}
    assert translate_config(saved)["evaluation"]["holdout_prompts"] == 0.2
    assert translate_config({"evaluation": {"every": 0, "split": "validation", "holdout_prompts": None}})[
        "evaluation"]["holdout_prompts"] is None
