"""The README's own page: its task file loads and proves itself, and each of its commands is one that exists."""

import shlex

import readme

from postgrad.cli import parser
from postgrad.recipes import resolve
from postgrad.recipes.base import prove
from postgrad.tasks import load_task


def test_the_task_file_works_as_written(tmp_path):
    (tmp_path / "mytask.py").write_text(readme.task_file())
    task = load_task(str(tmp_path / "mytask.py"))
    prove(task)
    splits = [{p.id for p in task.prompts(split, 1000, 0)} for split in ("train", "validation", "test")]
    assert sum(map(len, splits)) == len(set.union(*splits)) == 500 and min(map(len, splits)) > 20
    prompt = task.prompts("test", 1, 0)[0]
    assert task.verify(prompt, task.gold(prompt)).score == 1 and task.verify(prompt, "<answer>7</answer>").score == 0


def test_every_command_is_one_that_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mytask.py").write_text(readme.task_file())
    found = readme.commands()
    assert len(found) >= 8
    for line in found:
        args, extra = parser().parse_known_args(shlex.split(line)[1:])
        assert all("=" in word for word in extra), line
        if args.command == "train":
            resolve(args.recipe, [*args.changes, *extra], args.task)
