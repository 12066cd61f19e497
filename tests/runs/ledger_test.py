"""The ledger: gains and losses by hand, its file, a run that keeps one, the command, the studio's page."""

import json
import math

import pytest
from rlhf_small import small, trained
from settings_text import override
from small import CHAT, small_model
from studio_small import client, make

from postgrad.cli import main
from postgrad.data.tasks.corpus import documents
from postgrad.evaluation.perplexity import LENGTH, held_out_text, negative_log_likelihood
from postgrad.maths.intervals import gain_interval, mean_interval
from postgrad.recipes.launch import start_training
from postgrad.recipes.panel import STANDARD, ledger_models, measure_ledger, panel_tasks
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.runs import Run, ledger

HEADER = {"panel": ["words", "text"], "problems": 4, "samples": 2, "seed": 0}


def entry(step, once, nats_, varied=(1.0,) * 20):
    return {"name": f"step {step}" if step else "start", "step": step,
            "figures": {"words": {"pass@1": list(once), "different_replies": list(varied)},
                        "text": {"nats": list(nats_)}}}


FIRST = entry(0, [0.0] * 10 + [0.5] * 10, [1.0, 1.2] * 10)
LAST = entry(40, [1.0] * 15 + [0.5] * 5, [1.1, 1.25] * 10, [0.25] * 20)


# gains and losses

def test_lines_by_hand():
    words, varied, text = ledger.compare_entries(FIRST, LAST)
    a, b = FIRST["figures"]["words"]["pass@1"], LAST["figures"]["words"]["pass@1"]
    assert words.first == mean_interval(a, (0, 1)) and words.gain == gain_interval(a, b, (0, 1))
    assert words.gain[0] == pytest.approx(0.625) and words.verdict == "gain"
    assert varied.verdict == "collapse" and text.verdict == "loss"  # more nats are worse
    assert text.gain == pytest.approx(mean_interval([0.1, 0.05] * 10))
    assert {x.verdict for x in ledger.compare_entries(FIRST, FIRST)} == {"not told"}


def test_sentences_name_gain_loss_and_collapse():
    said = ledger.sentences(ledger.compare_entries(FIRST, LAST))
    assert said[0].startswith("Gained: words +62.5 points (+")
    assert said[1] == "Lost: text perplexity 3.00 to 3.24."
    assert said[2] == ("Diversity collapsed: on words 25% of a problem's replies differ, 100% before.")
    assert ledger.sentences(ledger.compare_entries(FIRST, FIRST)) == ["Not told from chance: words, text."]


def test_a_task_with_a_reward_and_a_pass_rate_is_told_by_both():
    def one(reward):
        figures = {"questions": {"pass@1": [0.25] * 20, "reward": reward}}
        return {"name": "x", "step": 0, "figures": figures}
    said = ledger.sentences(ledger.compare_entries(one([-1.0, -0.5] * 10), one([0.5, 0.75] * 10)))
    assert said[0].startswith("Gained: questions (reward) +1.38 (+")
    assert said[1:] == ["Not told from chance: questions (pass@1)."]


def test_what_narrows_is_said():
    def one(once, within):
        figures = {"words": {"pass@1": [once] * 20, "pass@8": [within] * 20}}
        return {"name": "x", "step": 0, "figures": figures}
    (said,) = [line for line in ledger.sentences(ledger.compare_entries(one(0.3, 1.0), one(0.3, 0.3)))
               if "narrowed" in line]
    assert said.startswith("On words fewer problems are solved within several tries")
    assert not ledger.narrowed(ledger.compare_entries(one(0.9, 1.0), one(0.2, 0.2)))  # lost, not narrowed


def test_less_varied_is_no_collapse_and_a_problem_without_a_verdict_is_left_out():
    a, b = entry(0, [1.0] * 20, [1.0] * 20, [1.0] * 20), entry(1, [1.0] * 20, [1.0] * 20, [0.6] * 20)
    assert [x.verdict for x in ledger.compare_entries(a, b)] == ["not told", "less varied", "not told"]
    found = ledger.compare_measure("words", "pass@1", [0.0, None, 1.0], [1.0, 1.0, None])
    assert found.gain[0] == 1.0
    with pytest.raises(ValueError, match="no problem of words"):
        ledger.compare_measure("words", "pass@1", [None], [1.0])


# the file

def test_entries_of_steps_that_a_run_went_back_from_go(tmp_path):
    for step in (0, 10, 20, 10):
        ledger.add_entry(tmp_path, HEADER, FIRST | {"step": step})
    assert [e["step"] for e in ledger.read_ledger(tmp_path)["entries"]] == [0, 10]
    ledger.add_entry(tmp_path, HEADER | {"seed": 1}, FIRST | {"step": 20})
    assert [e["step"] for e in ledger.read_ledger(tmp_path)["entries"]] == [20]
    assert ledger.read_ledger(tmp_path / "nothing") is None


BAD = [[], {}, HEADER | {"entries": [{}]}, HEADER | {"entries": 5}, HEADER | {"panel": "x", "entries": []},
       HEADER | {"entries": [FIRST, entry(1, [2.0] * 20, [1.0] * 20)]},
       HEADER | {"entries": [FIRST, entry(1, ["a"], [1.0])]},
       HEADER | {"entries": [FIRST, entry(1, [], [1.0])]},
       HEADER | {"entries": [FIRST, entry(1, [1.0], [1.0], [1.0])]}]


@pytest.mark.parametrize("found", BAD)
def test_a_file_that_is_none_is_a_sentence(found, tmp_path):
    (tmp_path / ledger.FILE).write_text(json.dumps(found))
    with pytest.raises(ValueError, match=r"is no ledger \(.*\): take it away"):
        ledger.read_ledger(tmp_path)


# measuring

def test_a_panel_by_name():
    assert panel_tasks("standard") == list(STANDARD) and len(STANDARD) == 7
    assert panel_tasks("words, text") == ["words", "text"]
    for wrong in ("", "words,,text", "words,words"):
        with pytest.raises(ValueError, match="tasks with commas between"):
            panel_tasks(wrong)


def test_held_out_text_is_rows_of_new_documents():
    rows = held_out_text(documents, CHAT, 3, 0)
    assert [len(row) for row in rows] == [LENGTH] * 3
    assert rows == held_out_text(documents, CHAT, 3, 0) != held_out_text(documents, CHAT, 3, 1)
    model = small_model()
    found = negative_log_likelihood(model, rows)
    assert len(found) == 3 and all(math.log(CHAT.vocab_size) / 2 < x < 2 * math.log(CHAT.vocab_size)
                                   for x in found)  # of a model that knows nothing


def run_with(folder, *changes):
    config = small(RolloutConfig(task="words"), "evaluation.every=1", *changes)
    return trained("rollouts", config, folder)


def test_a_run_keeps_its_ledger_and_a_stopped_one_the_same(tmp_path):
    panel = "panel=arithmetic,text"
    whole = run_with(tmp_path / "whole", panel)
    book = ledger.read_ledger(whole.folder)
    assert [e["name"] for e in book["entries"]] == ["start", "step 1", "step 2", "step 3"]
    assert book["panel"] == ["arithmetic", "text"] and book["problems"] == 2
    config = small(RolloutConfig(task="words"), "evaluation.every=1", panel)
    cut = trained("rollouts", config, tmp_path / "cut", cut=2)
    assert ledger.read_ledger(cut.folder) == book


@pytest.mark.parametrize(("changes", "why"), [
    (["panel=nothing"], "there is no task 'nothing'"), (["panel=words,words"], "each once"),
    (["panel=standard", "evaluation.every=0"], "evaluation.every=0 makes none")])
def test_a_panel_that_cannot_be_is_refused_before_the_run_is_made(changes, why, tmp_path):
    config = override(small(RolloutConfig(task="words"), "evaluation.every=1"), changes)
    with pytest.raises(ValueError, match=why):
        start_training("rollouts", config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_with(tmp_path_factory.mktemp("ledger") / "run", "evaluation.every=0").folder


def test_the_command_measures_once_and_shows_first_against_last(run, capsys, monkeypatch):
    line = ["ledger", str(run), "--panel", "arithmetic,text", "--problems", "3", "--samples", "2"]
    assert main(line) == 0
    out = capsys.readouterr().out
    assert "start against step 3" in out and "perplexity" in out and "different replies" in out
    monkeypatch.setattr("postgrad.recipes.panel.open_writer", None)  # nothing is opened again
    assert main(["ledger", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [e["step"] for e in found["entries"]] == [0, 3] and found["panel"] == ["arithmetic", "text"]
    assert set(found["against_first"]) == {"step 3"} and found["says"]["step 3"]
    assert found["against_first"]["step 3"][0]["task"] == "arithmetic"


def test_every_checkpoint_and_another_panel(run):
    book = measure_ledger(str(run), panel="text", problems=2, every=True, display=False)
    assert [e["step"] for e in book["entries"]] == [0, *Run.open(run).checkpoints()]
    assert [*book["entries"][0]["figures"]] == ["text"] and book["entries"][1:] != book["entries"][:-1]


def test_a_folder_of_runs_is_its_stages_in_order(tmp_path):
    first = run_with(tmp_path / "line" / "one", "evaluation.every=0", "steps=1")
    run_with(tmp_path / "line" / "two", "evaluation.every=0", "steps=1", f"model={first.folder}")
    assert [name for name, _, _ in ledger_models(str(tmp_path / "line"))] == ["base", "one", "two"]
    book = measure_ledger(str(tmp_path / "line"), panel="text", problems=2, display=False)
    assert [e["name"] for e in book["entries"]] == ["base", "one", "two"]
    assert (tmp_path / "line" / "ledger.json").is_file()


@pytest.mark.parametrize(("line", "why"), [
    ("ledger tiny", "tiny is no run"), ("ledger runs/nothing", "runs/nothing is no run"),
    ("ledger {run} --panel nothing", "there is no task 'nothing'"),
    ("ledger {run} --problems 0", "must be at least 1"), ("ledger {run}@3", "is no run")])
def test_what_is_wrong_is_a_sentence(line, why, run, capsys):
    assert main(line.format(run=run).split()) == 2
    assert why in capsys.readouterr().err


# the studio

def test_the_page_of_a_run_shows_its_ledger_and_its_pipeline_s(tmp_path):
    folder = make(tmp_path / "line" / "rl").folder
    with client(tmp_path) as browser:
        assert "Gained and lost" not in browser.get("/runs/line/rl").text
        ledger.write_ledger(folder, HEADER | {"entries": [FIRST,
                                                          LAST | {"name": "<script>alert(1)</script>"}]})
        ledger.write_ledger(folder.parent, HEADER | {"entries": [FIRST, LAST]})
        page = browser.get("/runs/line/rl").text
    assert "Gained and lost in the pipeline" in page and "Gained: words" in page and "collapse" in page
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("found", BAD)
def test_a_broken_ledger_is_said_and_the_page_stands(found, tmp_path):
    folder = make(tmp_path / "run").folder
    (folder / ledger.FILE).write_text(json.dumps(found))
    with client(tmp_path) as browser:
        answer = browser.get("/runs/run")
    assert answer.status_code == 200 and "is no ledger" in answer.text
