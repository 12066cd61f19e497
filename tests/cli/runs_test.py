"""`postgrad runs`: names whole, times as people say them, a pipeline's stages under its name."""

import io
import json
import time
from datetime import datetime, timedelta

import pytest

from postgrad.cli import main
from postgrad.runs import Run, folder
from postgrad.runs.display import print_rows, time_ago

LONG = "ppo-questions-kl-0.05-seed-1"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    now = time.time()
    make(LONG, "ppo", now - 130, model="tiny-chat", task="questions")
    make("demo/sft", "sft", now - 40, model="tiny", task="words")
    make("demo/rl", "grpo", now - 10, model="runs/demo/sft", task="words")
    make("pretrained", None, now - 400 * 86_400, recipe="pretrain")
    return tmp_path


def make(name, method, created, recipe="rollouts", **names):
    run = Run.create(f"runs/{name}", recipe=recipe, config={}, steps=3, method=method, created=created,
                     **names)
    run.log(1, {"reward": 0.25})
    run.status("stopped")


def test_a_long_log_is_read_a_few_times_whatever_is_said_of_it(here, monkeypatch, capsys):
    read, calls = folder.read_log, []
    monkeypatch.setattr(folder, "read_log", lambda path, *how: calls.append(path.name) or read(path, *how))
    for words in ([], ["--json"]):
        calls.clear()
        assert main(["runs", LONG, *words]) == 0
        assert calls.count("metrics.jsonl") <= 2, calls
    capsys.readouterr()


def test_the_list_at_110_columns(here, capsys):
    assert main(["runs"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "method", "model", "task", "state", "steps", "latest", "started"]
    assert all(len(line) <= 110 for line in [head, *lines])
    assert [line.split()[0] for line in lines] == ["demo", "sft", "rl", LONG, "pretrained"]
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 2, 0, 0]
    assert lines[3].split() == [LONG, "ppo", "tiny-chat", "questions", "stopped", "1/3", "reward", "0.250",
                                "2", "min", "ago"]
    assert lines[2].endswith("just now")
    assert lines[4].endswith(f" {datetime.fromtimestamp(time.time() - 400 * 86_400).year}")
    assert lines[4].split()[1] == "pretrain"


def test_a_terminal_of_110_columns_cuts_no_name(monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("TERM", "xterm")
    file = io.StringIO()
    file.isatty = lambda: True
    print_rows([{"run": LONG, "model": "m" * 60, "task": "t" * 60}], whole=["run"], file=file)
    assert LONG in file.getvalue() and "m" * 60 not in file.getvalue()


def test_for_programs_the_pipeline_has_a_field(here, capsys):
    assert main(["runs", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["pipeline"], row["name"]) for row in rows] == [
        ("demo", "sft"), ("demo", "rl"), (None, LONG), (None, "pretrained")]


@pytest.mark.parametrize("word", ["demo/rl", "runs/demo/rl"])
def test_one_run_by_its_path_or_its_name(here, capsys, word):
    assert main(["runs", word]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    assert (lines["method"], lines["created"], lines["reward"]) == ("grpo", "just now", "0.250")


@pytest.mark.parametrize(("word", "sentence"), [
    ("rl", "no run or folder of runs is called 'rl'; did you mean runs/demo/rl?"),
    ("zzz", "no run or folder of runs is called 'zzz'; there is: runs/demo/rl, runs/demo/sft, "),
    ("empty", "no runs in empty: name a folder of runs, or one run."),
])
def test_a_name_that_is_nobody_s_is_an_error(here, capsys, word, sentence):
    (here / "empty").mkdir()
    assert main(["runs", word]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and sentence in said[0]


def test_no_runs_yet_is_no_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0 and "no runs in runs yet" in capsys.readouterr().out


@pytest.mark.parametrize(("ago", "said"), [
    (timedelta(seconds=59), "just now"), (timedelta(seconds=60), "1 min ago"),
    (timedelta(minutes=59, seconds=59), "59 min ago"), (timedelta(minutes=62), "14:03"),
    (timedelta(days=2), "3 Nov"), (timedelta(days=366), "4 Nov 2024"), (timedelta(seconds=-90), "15:06"),
])
def test_times_as_people_say_them(ago, said):
    now = datetime(2025, 11, 5, 15, 5)
    assert time_ago((now - ago).timestamp(), now.timestamp()) == said


def test_no_time_is_nothing():
    assert time_ago(None) == ""
