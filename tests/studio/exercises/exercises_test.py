"""Exercises: model solutions pass, planted mistakes are named, other right answers pass, hostile ones are
refused in a sentence; the command; what is kept."""

import json

import pytest
from exercises_small import NAMED, OTHERWISE, RESTYLED, STRANGERS, STUDENTS, judged, planted

from postgrad.cli import main
from postgrad.studio.cells.runner import Runner
from postgrad.studio.exercises import EXERCISES, QUESTIONS, exercise_named, progress

PLANTED = planted()


@pytest.fixture(scope="module")
def runner():
    runner = Runner()
    yield runner
    runner.close()


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_enough_of_everything():
    assert len(EXERCISES) >= 14 and len(PLANTED) >= 70
    for exercise in EXERCISES.values():
        assert len(exercise.mistakes) >= 5 and len(exercise.hints) == 3 and exercise.properties
        assert f"`{exercise.function}(" in exercise.statement and exercise.function in exercise.starter
        assert len({m.says for m in exercise.mistakes}) == len(exercise.mistakes)
    assert {q.chapter for q in QUESTIONS.values()} >= {1, 2, 3, 4, 6}
    assert sum(q.open for q in QUESTIONS.values()) == 2


@pytest.mark.parametrize("name", EXERCISES)
def test_the_model_solution_passes_in_the_jail(runner, name):
    verdict = runner.grade(EXERCISES[name], EXERCISES[name].solution)
    assert verdict.passed and all(ok for _, ok in verdict.checks), verdict.says + verdict.example


@pytest.mark.parametrize("name", EXERCISES)
def test_the_starter_is_no_answer(name):
    assert not judged(name, EXERCISES[name].starter).passed


@pytest.mark.parametrize("name", EXERCISES)
def test_every_planted_mistake_is_named(name):
    for exercise, number, source in PLANTED:
        if exercise == name:
            verdict = judged(name, source)
            assert not verdict.passed
            assert verdict.mistake == number, f"{EXERCISES[name].mistakes[number].says} -> {verdict.says}"
            assert verdict.example


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, which says nan where Python raises
@pytest.mark.parametrize(("name", "wrong", "source"), STUDENTS, ids=[f"{n}: {w}" for n, w, _ in STUDENTS])
def test_a_students_wrong_answer_is_refused_and_no_other_mistake_named(name, wrong, source):
    verdict = judged(name, source)
    assert not verdict.passed
    assert (verdict.mistake is not None) == (wrong in NAMED), verdict.says
    assert verdict.says.startswith(NAMED.get(wrong, ""))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "wrong", "source"), STRANGERS, ids=[f"{n}: {w}" for n, w, _ in STRANGERS])
def test_a_strangers_wrong_answer_is_refused(name, wrong, source):
    assert not judged(name, source).passed


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_right_answer_written_otherwise_passes(runner, name):
    verdict = runner.grade(EXERCISES[name], OTHERWISE[name])
    assert verdict.passed, verdict.says + verdict.example


@pytest.mark.parametrize(("name", "old", "new", "says"), RESTYLED)
def test_a_planted_mistake_is_named_in_another_style_too(name, old, new, says):
    assert OTHERWISE[name].count(old) == 1
    assert judged(name, OTHERWISE[name].replace(old, new)).says.startswith(says)


HOSTILE = [
    ("def advantages(r, g):\n    return [0] * 2**40", "line 2: it asked for more memory"),
    ("import torch\nx = torch.zeros(2**36)", "line 2: it asked for more memory"),
    ("def advantages(r, g):\n    return open('/etc/passwd').read()", "line 2: an answer has no files"),
    ("open('/tmp/x', 'w')", "line 1: an answer has no files, no network"),
    ("import socket; socket.socket()", "line 1: an answer has no files, no network"),
    ("import urllib.request as u; u.urlopen('http://127.0.0.1')", "line 1: an answer has no files"),
    ("import os; os.fork()", "line 1: an answer has no files, no network and no other processes"),
    ("import os; os._exit(0)", "the process ended by itself"),
    ("import sys; sys.exit()", "it called sys.exit"),
    ("def advantages(r, g):\n    return advantages(r, g)", "RecursionError"),
    ("def advantages(", "line 1: SyntaxError"),
    ("x = 1", "The answer defines no function advantages."),
    ("def advantages(r, g):\n    return object()", "It returned"),
    ("def advantages(r, g):\n    while True: yield 1.0", "It returned 10000 numbers"),
    ("def advantages(r, g):\n    print('x' * 10**6)", "it printed more than 64 kB"),
]


@pytest.mark.parametrize(("source", "says"), HOSTILE, ids=lambda x: x[:40])
def test_a_hostile_answer_is_refused_in_a_sentence(runner, source, says):
    verdict = runner.grade(EXERCISES["group-advantages"], source)
    if not runner.facts["jailed"] and "no files" in says:
        pytest.skip(f"no jail on this machine: {runner.facts['tier']}")
    assert not verdict.passed and says in verdict.says and "\n" not in verdict.says
    assert verdict.says.endswith((".", "?"))


def test_an_endless_loop_is_refused_in_a_sentence(runner, monkeypatch):
    monkeypatch.setattr(runner, "wall", 1.0)
    verdict = runner.grade(EXERCISES["gae"], "while True: pass")
    assert verdict.says == "The answer did not come to its end: stopped after 1 seconds: an endless loop?"


def test_what_an_answer_prints_is_shown_once(runner):
    exercise = EXERCISES["pass-at-k"]
    loud = exercise.solution.replace("    return", "    print(n, c, k)\n    return")
    verdict = runner.grade(exercise, loud)
    assert verdict.passed and verdict.output == "4 2 2\n"


def test_an_exercise_is_found_by_number_and_by_name():
    assert exercise_named("1") is exercise_named(next(iter(EXERCISES)))
    with pytest.raises(ValueError, match="there is no exercise 'gea'.*did you mean gae"):
        exercise_named("gea")
    with pytest.raises(ValueError, match="only 1 to 14"):
        exercise_named("0")


def test_from_the_start_to_the_model_solution_by_command(state, capsys, runner, monkeypatch):
    monkeypatch.setattr("postgrad.studio.cells.runner.Runner", lambda: runner)  # which is up already
    monkeypatch.setattr(runner, "close", lambda: None)
    assert main(["exercise", "start", "pass-at-k"]) == 0
    file = state / "pass_at_k.py"
    assert "chosen without putting any back" in file.read_text()
    assert main(["exercise", "start", "pass-at-k"]) == 2
    capsys.readouterr()
    file.write_text("def pass_at_k(n, c, k):\n    return 1 - (1 - c / n) ** k\n")
    assert main(["exercise", "check", "pass-at-k", str(file), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["says"].startswith("You drew with replacement") and said["solution"] is None
    file.write_text(EXERCISES["pass-at-k"].solution)
    assert main(["exercise", "check", "pass-at-k", str(file)]) == 0
    assert EXERCISES["pass-at-k"].solution in capsys.readouterr().out
    kept = json.loads((state / "state" / "postgrad" / "exercises.json").read_text())
    assert kept["solved"]["pass-at-k"]["tries"] == 2 and kept["tries"] == {}


def test_hints_questions_and_export_by_command(state, capsys):
    assert main(["exercise", "hint", "gae", "--step", "2"]) == 0
    assert capsys.readouterr().out.startswith("1. A[t] needs A[t + 1]")
    assert main(["exercise", "hint", "gae", "--step", "4"]) == 2
    assert main(["exercise", "ask", "beta"]) == 0
    assert QUESTIONS["beta"].answer not in capsys.readouterr().out
    assert main(["exercise", "ask", "beta", "--answer", "high: stays; low: hacks"]) == 0
    assert QUESTIONS["beta"].answer in capsys.readouterr().out
    assert main(["exercise", "export", "mine.json"]) == 0 and main(["exercise", "list"]) == 0
    assert json.loads((state / "mine.json").read_text())["written"] == {"beta": "high: stays; low: hacks"}


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"solved": []}', '{"other": {}}',
                                  '{"solved": {"x": 1}}'])
def test_a_record_that_is_none_is_not_overwritten(state, text, capsys):
    progress.progress_file().parent.mkdir(parents=True)
    progress.progress_file().write_text(text)
    assert main(["exercise", "list"]) == 2
    assert "move it away" in capsys.readouterr().err and progress.progress_file().read_text() == text
