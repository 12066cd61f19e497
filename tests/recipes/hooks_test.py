"""Who looks on at the Python door: nobody, a callback, plain lines, a thread; and arguments that are wrong
leave nothing."""

import re
import signal
import subprocess
import sys
import threading

import pytest
from doors import PAIRS, QUESTIONS, SMALL, TALK, TALKS, fit, letters

import postgrad as pg
from postgrad.recipes import sft
from postgrad.system.signals import stop_on_signal
from postgrad.system.throughput import repeatable

MINE = {"task": QUESTIONS, "reward": letters}


def test_silent_without_a_watch(tmp_path, capfd):
    """Nothing on either stream, whatever there is to say of the data: that is in the run's events."""
    evaluated = {"evaluation": {"every": 2, "problems": 2, "samples": 2}}
    run = fit(tmp_path, "grpo", **MINE | evaluated)
    pg.evaluate(run, QUESTIONS, reward=letters, problems=2, samples=1, max_new_tokens=4)
    twice = fit(tmp_path, "dpo", "twice", data=[*PAIRS, PAIRS[0]], pairs={"per_step": 4})
    assert capfd.readouterr() == ("", "")
    events = [(e["kind"], "1 repeated (1 and 25)" in e["text"]) for e in twice.rows("events")[0]]
    assert events == [("data", False), ("data", True), ("length", False)]


def test_plain_lines_when_piped(tmp_path, capsys):
    fit(tmp_path, "dpo", data=[*PAIRS, PAIRS[0]], pairs={"per_step": 4}, display=True)
    out, err = capsys.readouterr()
    chosen, *lines = out.splitlines()
    assert chosen.startswith("tiny-chat has 2M parameters: ") and "optim.lr=0.0001" in chosen
    *steps, speed = lines
    assert [line.split(",")[0] for line in steps] == ["dpo: step 1/2 (50 %)", "dpo: step 2/2 (100 %)"]
    assert re.fullmatch(r"dpo: training [\d,]+ tokens/s; \d+ % of the time training(, \d+ % evaluating and "
                        r"saving)?; \d+\.\d GB", speed)
    understood, judged, length = err.splitlines()
    assert "\x1b" not in out and understood.startswith("data: 25 rows") and "passes over them" in length
    assert judged.startswith("data: 25 judgements")


def test_a_tracker_of_ones_own(tmp_path):
    seen = []

    class Mine(pg.Tracker):
        def __getattribute__(self, name):
            return (lambda *what: seen.append((name, what[0]))) if name.startswith("on_") else \
                super().__getattribute__(name)

        def on_samples(self, step, rows): ...

    fit(tmp_path, "nano", task="arithmetic", trackers=[Mine()],
        evaluation={"every": 2, "problems": 2, "samples": 2})
    assert [*seen[0][1]] == [*pg.Run.open(tmp_path / "run").config]
    assert seen[1:] == [("on_event", "length"), ("on_eval", 0), ("on_step", 1), ("on_samples", 1),
                        ("on_step", 2), ("on_samples", 2), ("on_eval", 2), ("on_end", "done")]


def test_a_callback_follows_each_step(tmp_path):
    seen = []
    run = fit(tmp_path, "nano", callback=lambda step, row: seen.append((step, row)), **MINE)
    assert [step for step, _ in seen] == [1, 2]
    assert [{"step": step, **row} for step, row in seen] == run.metrics()


def test_a_callback_that_raises_ends_the_run(tmp_path):
    def stop(step, row):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough") as error:
        fit(tmp_path, "nano", callback=stop, **MINE)
    state = pg.Run.open(tmp_path / "run").state()
    assert (state["state"], state["error"], state["step"]) == ("failed", "LookupError: enough", 1)
    assert error.value.__notes__ == [
        "raised by on_step of tracker CallbackTracker: mend it, and resume the run"]


@pytest.mark.parametrize("who", ["callback", "tracker"])
def test_who_returns_stop_ends_the_run_with_a_checkpoint(tmp_path, who):
    """And it goes on to the same bits as one that was not stopped."""
    class Enough(pg.Tracker):
        def on_eval(self, step, figures):
            return "stop" if step == 2 else None

    asked = {"callback": {"callback": lambda step, row: "stop" if step == 2 else len(row)},
             "tracker": {"trackers": [Enough()]}}[who]
    settings = MINE | {"steps": 4, "save_every": 3, "evaluation": {"every": 2, "problems": 2, "samples": 2}}
    run = fit(tmp_path, "nano", **settings, **asked)
    why = {"callback": "stopped by the callback after step 2",
           "tracker": "stopped by on_eval of tracker Enough after step 2"}[who]
    state = run.state()
    assert (state["state"], state["error"], [*run.checkpoints()]) == ("stopped", why, [2])
    assert run.rows("events")[0][-1]["text"] == why and "stopped, step 2 of 4" in repr(run)
    resumed = pg.resume(run, display=False, task=QUESTIONS, reward=letters)
    plain = fit(tmp_path, "nano", "plain", **settings)
    assert [repeatable(row) for row in resumed.metrics()] == [repeatable(row) for row in plain.metrics()]
    assert resumed.state()["state"] == "done"


def test_a_hook_that_returns_another_text_is_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="it returned 'halt', where a hook returns nothing, or 'stop'"):
        fit(tmp_path, "nano", callback=lambda step, row: "halt", **MINE)


def test_a_run_ends_when_evaluations_no_longer_get_better(tmp_path, monkeypatch, capsys):
    """After `patience` of them; the best is saved though no checkpoint is due, and resuming says what is."""
    losses = {0: 3.0, 1: 2.0, 2: 1.0, 3: 1.5, 4: 1.0, 5: 0.5}  # as good as the best is not better
    monkeypatch.setattr(sft, "held_out_loss", lambda *given: {"loss": losses[given[-1]], "ece": -given[-1]})
    talks = [{"prompt": f"Say {n}.", "completion": f"I say {n}."} for n in range(24)]
    settings = {"data": talks, "steps": 5, "save_every": 5, "rows": {"holdout": 0.5}, "rows_per_step": 4}
    examined = {"every": 1, "metric": "loss", "patience": 2}
    run = fit(tmp_path, "sft", **settings, evaluation=examined, display=True)
    assert [row["step"] for row in run.evaluations()] == [0, 1, 2, 3, 4]
    assert "early stop: no better loss in 2 evaluations, the best is 1 at step 2" in capsys.readouterr().err
    assert run.state()["state"] == "done" and run.state()["error"] is None
    assert {2, 4} <= {*run.checkpoints()} and run.best() == (4, "loss", 1.0)
    assert pg.resume(run, data=talks).metrics()[-1]["step"] == 4
    said = capsys.readouterr().out
    assert "is finished at step 4 of 5, early stop: no better loss" in said and "model=" in said
    longer = fit(tmp_path, "sft", "longer", **settings, evaluation=examined | {"patience": 3})
    assert longer.metrics()[-1]["step"] == 5 and longer.best()[0] == 5
    other = fit(tmp_path, "sft", "other", **settings, evaluation=examined | {"metric": "ece", "patience": 1})
    assert other.best() == (5, "ece", -5.0)
    with pytest.raises(ValueError, match="evaluation.metric is 'los': an evaluation of this run has loss"):
        fit(tmp_path, "sft", "typo", **settings, evaluation=examined | {"metric": "los"})
    with pytest.raises(ValueError, match="evaluation.patience needs evaluations, and this run has none"):
        fit(tmp_path, "sft", "none", data=TALKS, rows={"holdout": 0.0}, evaluation={"patience": 1})


def test_in_a_thread(tmp_path):
    """The same numbers as in the main thread, and the process's signal handlers stay."""
    before, done = signal.getsignal(signal.SIGINT), {}

    def work():
        done["run"] = fit(tmp_path, "nano", "threaded", **MINE)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    here = fit(tmp_path, "nano", "here", **MINE)
    assert [row["loss"] for row in done["run"].metrics()] == [row["loss"] for row in here.metrics()]
    assert signal.getsignal(signal.SIGINT) is before


def test_signal_handlers_that_are_not_pythons_are_left_alone(monkeypatch):
    """A program that embeds Python may have its own, which Python shows as None and could not put back."""
    taken = []
    monkeypatch.setattr(signal, "getsignal", lambda s: None if s == signal.SIGINT else signal.SIG_DFL)
    monkeypatch.setattr(signal, "signal", lambda s, handler: taken.append(s) or signal.SIG_DFL)
    with stop_on_signal() as stop:
        assert stop() is None and taken == [signal.SIGTERM, signal.SIGHUP]
    assert taken == [signal.SIGTERM, signal.SIGHUP] * 2


PROGRAM = """
import threading
import postgrad as pg
def work():
    run = pg.fit("tiny-chat", "nano", task=["Say a.", "Say b.", "Say c."], reward=lambda p, t: len(t) / 9,
                 run={run!r}, steps=1, prompts_per_step=1, group_size=2, rollouts={{"max_new_tokens": 4}},
                 evaluation={{"every": 0}})
    print(run.state()["state"])
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_in_a_program_of_its_own(tmp_path):
    """From a thread of a fresh process, through a pipe: plain lines, and on the other stream what is to be
    known of the data."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(run=str(tmp_path / "run"))],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chosen, first, *_, last = done.stdout.splitlines()
    assert "has 2M parameters" in chosen and first.startswith("nano: step 1/1 (100 %)") and last == "done"
    assert "rows: all 3 prompts are trained" in done.stderr
    assert "rows: 3 prompts; 1 step" in done.stderr and done.stderr.count("\n") == 3


@pytest.mark.parametrize(("more", "words"), [
    ({"model": 7}, "model is 7: expected a name, a folder, a Run"),
    ({"model": "nowhere"}, "no model at nowhere"),
    ({"method": "gpro"}, "there is no method 'gpro'. Did you mean"),
    ({"method": 3}, "method is 3: expected a row of the table"),
    ({"task": None}, "grpo of what"),
    ({"task": []}, "task has no rows"),
    ({"task": [3]}, r"task\[0\]: a prompt is a Prompt or a dict"),
    ({"task": {"first": QUESTIONS}}, "task is a dict of 'first': expected rows; .* task=table\\['train'\\]"),
    ({"task": 5}, "task is 5: expected rows, a table, a file or a name"),
    ({"task": QUESTIONS, "reward": None}, "task has prompts without answers: say who judges"),
    ({"task": [{"question": "a", "answer": 1}, {"question": "b"}], "reward": None},
     r"task\[1\]: the row needs an answer"),
    ({"data": TALKS}, "grpo takes no data: it learns from rollouts"),
    ({"watch": None}, "fit takes no watch: display=False prints nothing, and trackers="),
    ({"trackers": "loud"}, "trackers is 'loud': expected a list"),
    ({"trackers": [5]}, "tracker 5 has no on_start, on_step"),
    ({"trackers": ["loud"]}, "there is no tracker 'loud': name trackio, wandb, tensorboard, mlflow, FILE.py"),
    ({"callback": 5}, "callback is 5: expected a function"),
    ({"steps": 0}, "steps is 0: it must be at least 1"),
    ({"steps": "many"}, "steps is 'many', a str: expected a whole number or None"),
    ({"steps": 2.5}, "steps is 2.5, a float: expected a whole number"),
    ({"lr": [1e-4]}, r"optim.lr is \[0.0001\], a list: expected a number or None"),
    ({"optim": {"lr": "1e-4"}}, "optim.lr is '1e-4', a str: expected a number"),
    ({"recompute": 1}, "optim.recompute is 1, an? int: expected True or False"),
    ({"group_size": True}, "rollouts.group_size is True, a bool: expected a whole number"),
    ({"optim": 3}, "'optim' is a group of settings: name one of optim.lr"),
    ({"high": "0.3"}, "method.high='0.3': grpo expects a number"),
    ({"learning_rate": 1e-4}, "no setting 'learning_rate'. It is called lr here"),
    ({"num_generations": 4}, "It is called group_size here"),
    ({"rollouts": {"max_tokens": 4}}, "It is called rollouts.max_new_tokens here"),
    ({"group_size": 1}, "grpo compares the samples of a group"),
    ({"run": "a b"}, "'a b' cannot name a run"),
], ids=lambda x: next(iter(x)) if isinstance(x, dict) else "")
def test_a_bad_argument(more, words, tmp_path, monkeypatch):
    """One sentence, and nothing is left behind: no run, no copy of the model."""
    monkeypatch.chdir(tmp_path)
    given = {"model": pg.load_model("tiny-chat"), "method": "grpo", "run": "runs/it", **MINE, **SMALL} | more
    with pytest.raises(ValueError, match=words) as error:
        pg.fit(given.pop("model"), given.pop("method"), **given)
    assert "\n" not in str(error.value) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("method", "more", "words"), [
    ("sft", {"data": TALKS, "reward": letters}, "sft takes no reward: it learns from conversations"),
    ("sft", {}, "sft of what"),
    ("sft", {"data": TALKS, "task": "words"}, "either task=NAME .* or data"),
    ("sft", {"data": ["text"]}, r"there is no file text"),
    ("sft", {"data": 5}, "data is 5: expected rows"),
    ("dpo", {"data": [{"prompt": "a", "chosen": "b"}]}, r"data\[0\]: 'rejected' is missing"),
    ("dpo", {"data": {"first": PAIRS}}, "data is a dict of 'first': expected rows"),
    ("kto", {"data": [{"prompt": "a", "completion": "b"}]}, "the label is missing"),
    ("dpo", {"data": PAIRS, "method.beta": 0}, "method.beta is 0"),
])
def test_bad_data(method, more, words, tmp_path):
    with pytest.raises(ValueError, match=words) as error:
        pg.fit("tiny-chat", method, run=tmp_path / "run", **TALK, **more)
    assert "\n" not in str(error.value) and list(tmp_path.iterdir()) == []


def test_a_folder_that_is_taken(tmp_path):
    run = fit(tmp_path, "nano", **MINE)
    kept = run.metrics()
    with pytest.raises(ValueError, match="already holds a run: resume it"):
        fit(tmp_path, "nano", model=pg.load_model("tiny-chat"), **MINE)
    assert pg.Run.open(run.folder).metrics() == kept and [p.name for p in tmp_path.iterdir()] == ["run"]


def test_measuring_refuses_what_it_cannot_measure():
    with pytest.raises(ValueError, match="compare needs two models at least; it was given 1"):
        pg.compare("tiny-chat", task="words")
    with pytest.raises(ValueError, match="problems 0 and samples 8 must be at least 1"):
        pg.evaluate("tiny-chat", "words", problems=0)
    with pytest.raises(ValueError, match="over the model's 512 positions"):
        pg.evaluate("tiny-chat", "words", problems=1, max_new_tokens=600)
