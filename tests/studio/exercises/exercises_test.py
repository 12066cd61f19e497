"""Exercises: model solutions pass, planted mistakes are named, other right answers pass, hostile ones are
refused in a sentence; the command; what is kept."""

import ast
import inspect
import json
import os
import re
from random import Random

import pytest
from exercises_small import (
    NAMED,
    OTHERWISE,
    RESTYLED,
    STRANGERS,
    STUDENTS,
    judged,
    names_in,
    planted,
)
from mutants import wrong_answers

from postgrad.cli import main
from postgrad.maths import credit, passk  # noqa: F401 (loaded, as they are in the jail)
from postgrad.studio.cells.runner import Runner
from postgrad.studio.exercises import EXERCISES, QUESTIONS, exercise_named, progress
from postgrad.studio.exercises.values import near, to_plain

PLANTED = planted()
SLOW = ("new-row", "simple-grpo", "bandit", "bias-audit")  # seconds for all their mistakes


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
    assert len(EXERCISES) >= 20 and len(PLANTED) >= 70
    assert {e.chapter for e in EXERCISES.values()} == {*range(1, 11)}, "an exercise for every chapter"
    for exercise in EXERCISES.values():
        assert len(exercise.mistakes) >= 5 and len(exercise.hints) == 3 and exercise.properties
        assert f"`{exercise.function}(" in exercise.statement and exercise.function in exercise.starter
    assert {q.chapter for q in QUESTIONS.values()} >= {1, 2, 3, 4, 6}
    assert sum(q.open for q in QUESTIONS.values()) == 2


@pytest.mark.parametrize("name", EXERCISES)
def test_the_model_solution_passes_in_the_jail(runner, name):
    verdict = runner.grade(EXERCISES[name], EXERCISES[name].solution)
    assert verdict.passed and all(ok for _, ok in verdict.checks), verdict.says + verdict.example


@pytest.mark.parametrize("name", EXERCISES)
def test_the_starter_is_no_answer(name):
    assert not judged(name, EXERCISES[name].starter).passed


@pytest.mark.parametrize(("name", "number", "source"), [
    pytest.param(exercise, number, source, id=f"{exercise} {number}",
                 marks=pytest.mark.long if exercise in SLOW else ())
    for exercise, number, source in PLANTED])
def test_every_planted_mistake_is_named(name, number, source):
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
    ("def advantages(r, g):\n    while True: yield 1.0", "It returned 1000 numbers"),
    ("import os\ndef advantages(r, g):\n    os.write(1, b'x' * 10**6)", "it printed more than 64 kB"),
    ("def advantages(r, g):\n    print('x' * 10**6)", "It returned nothing"),
    ("import os\ndef advantages(r, g):\n    os.system('true')\n    return r", "line 3: an answer has no "
                                                                              "files"),
    ("import os\ndef advantages(r, g):\n    try:\n        os.system('true')\n    except OSError:\n        "
     "return r",
     "line 4: an answer has no files"),
]


@pytest.mark.parametrize(("source", "says"), HOSTILE, ids=lambda x: x[:40])
def test_a_hostile_answer_is_refused_in_a_sentence(runner, source, says):
    verdict = runner.grade(EXERCISES["group-advantages"], source)
    refused_in_a_sentence(runner, verdict, says)


def refused_in_a_sentence(runner, verdict, says):
    if not runner.facts["jailed"] and "no files" in says:
        pytest.skip(f"no jail on this machine: {runner.facts['tier']}")
    assert not verdict.passed and says in verdict.says and "\n" not in verdict.says
    assert verdict.says.endswith((".", "?")) and (len(verdict.output) < 3000 or "64 kB" in says)


NEW = ("bandit", "distillation", "stale-samples", "turn-returns", "wilson", "paired-bootstrap")


@pytest.mark.parametrize(("name", "hostile"), [
    pytest.param(name, hostile, marks=() if hostile == at else pytest.mark.long)
    for at, name in enumerate(NEW) for hostile in range(len(HOSTILE))])
def test_hostile_answers_to_the_later_exercises(runner, name, hostile):
    exercise = EXERCISES[name]
    source, says = HOSTILE[hostile]
    arguments = ", ".join(exercise.marks(next(iter(exercise.cases(Random(0))))))
    source = re.sub(r"advantages\(r, g\)", f"{exercise.function}({arguments})", source)
    says = says.replace("advantages", exercise.function).replace("It returned 1000 numbers", "It returned")
    source = re.sub(r"\breturn r\b", "return 0", source)
    refused_in_a_sentence(runner, runner.grade(exercise, source), says)


LIBRARY = [  # every exercise: the library, imported, reached without an import, and handed on
    ("from postgrad.maths import credit\n\n\n", "Line 1 names postgrad.maths.credit"),
    ("import postgrad.maths.kl as kl\n\n\n", "Line 1 names postgrad.maths.kl"),
    ("import importlib\nkl = importlib.import_module('postgrad.maths.kl')\n\n\n", "Line 2 names "
                                                                                  "postgrad.maths.kl"),
    ("from postgrad.studio.exercises import EXERCISES\n\n\n", "Line 1 names "
                                                              "postgrad.studio.exercises.EXERCISES"),
]


@pytest.mark.parametrize("name", EXERCISES)
def test_an_answer_that_is_the_librarys_is_told_apart(name):
    """With the right answer beside it: what is asked for is one's own."""
    for begin, says in LIBRARY:
        verdict = judged(name, begin + EXERCISES[name].solution)
        assert not verdict.passed and verdict.named_by == "library" and verdict.says.startswith(says)
    own = f"def {EXERCISES[name].function}("
    head, _, body = EXERCISES[name].solution.partition(own)
    first = body.index(":\n") + 2
    verdict = judged(name, f"import sys\n{head}{own}{body[:first]}    kl = sys.modules['postgra' + "
                           f"'d.maths.passk']\n"
                     f"    kl.pass_at_k(4, 2, 2)\n{body[first:]}")
    assert not verdict.passed and verdict.says.startswith("It calls postgrad.maths.passk.pass_at_k")


def test_a_copy_of_the_library_is_told_apart():
    """A copied function under other names, in an answer that is right."""
    copied = inspect.getsource(credit.leave_one_out) + inspect.getsource(credit.by_prompt)
    verdict = judged("gae", copied.replace("adv", "gain").replace("reward", "pay").replace(
        "Tensor", "object") + EXERCISES["gae"].solution)
    assert not verdict.passed and verdict.says.startswith("The function at line 1 is "
                                                          "postgrad.maths.credit.leave_one_out")


def test_a_wall_of_output_does_not_hide_the_reason(runner, state, capsys, monkeypatch):
    monkeypatch.setattr("postgrad.studio.cells.runner.Runner", lambda: runner)
    monkeypatch.setattr(runner, "close", lambda: None)
    (state / "loud.py").write_text("def pass_at_k(n, c, k):\n    print('x\\n' * 100_000)\n    return c / n\n")
    assert main(["exercise", "check", "pass-at-k", "loud.py"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("You gave pass@1, whatever k is.") and len(said) < 4000
    assert "and 198,001 more characters" in said


def test_a_property_that_fails_shows_the_call():
    """A reply that only a property tries: its text is shown, and what was paid for it."""
    source = EXERCISES["verifier"].solution.replace("    lines = [", "    if text.startswith('My Answer: "
                                                                     "1'):\n"
                                                    "        return 1.0\n    lines = [")
    verdict = judged("verifier", source + "\nown = verify\n\n\ndef verify(text, gold):\n"
                     "    return 0.0 if text.startswith('The line') else own(text, gold)\n")
    assert verdict.named_by == "property"
    assert "The line Answer:" in verdict.example and "gave 0" in verdict.example


STATED = [(exercise, call, said) for exercise in EXERCISES.values() for call, said in re.findall(
    r"^    (\w+\([^\n]*\))\n? *(?:    )?-> ([^\n]+)$", exercise.statement, re.M)]


@pytest.mark.parametrize(("exercise", "call", "said"), STATED, ids=lambda x: getattr(x, "name", x)[:30])
def test_an_example_of_a_statement_is_what_the_oracle_says(exercise, call, said):
    function = names_in(exercise.solution)[exercise.function]
    for value in (function, exercise.right):
        came = to_plain(eval(call, {exercise.function: value}))
        wanted = to_plain(ast.literal_eval(said))
        assert near(came, wanted, 5e-5), (came, wanted)


LISTED = {  # what a learner's mistakes were not told before: how the sentence begins
    "bradley-terry": ["You took one step too few"],
    "bias-audit": ["The sign of `whole`", "The sign of `beyond`", "You padded the edited text",
                   "You took absolute"],
    "gae": ["The sign of V", "You subtracted the value twice"],
    "clipped-surrogate": ["You returned the mean", "Your loss is the log-ratio",
                          "You clipped the log of the ratio"],
    "kl-estimators": ["Your k2 squares the mean"], "dpo": ["You swapped the references"],
    "group-advantages": ["Your groups are interleaved", "You took every G-th",
                         "You compared each answer with the"],
    "new-row": ["Your groups are interleaved", "You compared each line with the",
                "The credit stands on the last"],
    "reward-hacking": ["Your KL is the other way round"],
    "broken-run": ["You took flat groups for a learning rate too high"],
}


def test_the_mistakes_that_were_found_unnamed_are_among_the_planted():
    for name, begins in LISTED.items():
        says = [mistake.says for mistake in EXERCISES[name].mistakes]
        assert all(any(text.startswith(begin) for text in says) for begin in begins), name


def test_the_statements_have_examples():
    assert len({exercise.name for exercise, _, _ in STATED}) >= 11


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if at % 5 == 0 else pytest.mark.long)
                                  for at, name in enumerate(EXERCISES)])
def test_wrong_answers_made_by_a_machine_are_refused_and_most_are_named(name):
    """proofs/exercises.py measures it with another seed; here a part, and nothing wrong is praised."""
    made, _ = wrong_answers(name, "test", 6, others=4)
    assert len(made) == 6 and not any(verdict.passed for _, _, verdict in made)
    assert sum(verdict.named_by != "count" for _, _, verdict in made) >= 4


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
    with pytest.raises(ValueError, match=f"only 1 to {len(EXERCISES)}"):
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


def test_a_record_that_is_no_file_is_a_sentence(state, capsys):
    path = progress.progress_file()
    path.mkdir(parents=True)
    for _ in range(2):  # a folder, then a pipe that nobody writes to
        with pytest.raises(ValueError, match="move it away"):
            progress.load_progress()
        if path.is_dir():
            with pytest.raises(ValueError, match="cannot be written .*: move away what is there"):
                progress.save_progress(progress.Progress())
            path.rmdir()
            os.mkfifo(path)
    assert main(["exercise", "list"]) == 2 and "it is no regular file" in capsys.readouterr().err
