"""Long commands say how far they are and how long it will take; trainings show what they find on rows that
are held out."""

import json
import re
from functools import partial

import pytest
import torch
from small import CHAT, small_model

import postgrad as pg
from postgrad.cli import main, models
from postgrad.data.preferences import split_rows
from postgrad.data.rows import read_conversations
from postgrad.data.tasks import load_task
from postgrad.evaluation.progress import track_replies
from postgrad.methods import METHODS
from postgrad.models import Models
from postgrad.recipes.row_reader import RowSettings, evaluate_objective
from postgrad.runs import Run
from postgrad.runs.display import progress
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training import objectives
from postgrad.training.batches import ConversationBatches

SMALL = {"problems": 6, "samples": 2, "max_new_tokens": 6}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Progress from the first moment on."""
    for place in ("runs.display", "recipes.measuring"):
        monkeypatch.setattr(f"postgrad.{place}.progress", partial(progress, after=0.0))


@pytest.mark.parametrize(("line", "total"), [
    ("eval tiny-chat --task arithmetic --problems 6 --samples 2", 18),
    ("pick tiny-chat --task arithmetic --prompts 6 --samples 2 --out {out}", 12),
    ("rlaif tiny-chat --task questions --prompts 6 --samples 2 --out {out}", 12),
    ("rlaif tiny-chat --task questions --prompts 6 --samples 2 --judge tiny-chat --out {out}", 36),
    ("label make --model tiny-chat --task questions --prompts 6 --store {out}", 12),
], ids=["eval", "pick", "rlaif", "rlaif by a model", "label make"])
def test_a_command_tells_how_far_it_is_reply_by_reply(line, total, tmp_path, capsys):
    assert main([*line.format(out=tmp_path / "out").split(), "--max-new-tokens", "6"]) == 0
    found = re.findall(r"^.*: (\d+)/(\d+) \(\d+ %\), \d+:\d\d, \d+:\d\d left$", capsys.readouterr().err, re.M)
    assert len(found) >= 5 and {whole for _, whole in found} == {str(total)}
    counts = [int(done) for done, _ in found]
    assert counts == sorted(set(counts)) and counts[-1] >= 0.8 * total


def test_json_is_alone(capsys):
    assert main(["eval", "tiny-chat", "--task", "arithmetic", "--problems", "6", "--samples", "2",
                 "--max-new-tokens", "6", "--json"]) == 0
    said = capsys.readouterr()
    assert said.err == "" and json.loads(said.out)["problems"] == 6


def test_the_python_door_tells_too_unless_it_is_to_be_silent(capsys):
    pg.evaluate("tiny-chat", "arithmetic", **SMALL)
    assert "tiny-chat on arithmetic: " in capsys.readouterr().err
    pg.compare("tiny-chat", "tiny", task="arithmetic", **SMALL)
    said = capsys.readouterr().err
    assert "tiny-chat on arithmetic: " in said and "tiny on arithmetic: " in said
    pg.evaluate("tiny-chat", "arithmetic", **SMALL, display=False)
    pg.compare("tiny-chat", "tiny", task="arithmetic", **SMALL, display=False)
    assert capsys.readouterr().err == ""


def test_every_reply_is_counted_once_and_the_sampler_is_given_back():
    ticks, told, sampler = [], [], LocalSampler(small_model(), CHAT)
    sampler.ended = told.append
    before = sampler.ended

    def track(items):
        for item in items:
            ticks.append(item)
            yield item

    prompts = load_task("arithmetic").prompts("train", 5, 0)
    with track_replies(track, 10, sampler):
        assert ticks == [0], "the clock starts at once"
        sampler.sample(prompts, 2, Sampling(max_new_tokens=3), 0)
    assert ticks == list(range(10)) and len(told) == 10 and sampler.ended == before
    with pytest.raises(KeyError), track_replies(track, 10, sampler):
        raise KeyError
    assert sampler.ended == before


def test_a_large_export_says_what_it_is_about_to_do(tmp_path, capsys, monkeypatch):
    assert main(["export", "tiny", "--out", str(tmp_path / "quick")]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(models, "LARGE", 1)
    assert main(["export", "tiny", "--out", str(tmp_path / "slow")]) == 0
    assert "of weights are read, then written to" in capsys.readouterr().err


# what is held out

def chats(path, count=30):
    rows = [{"messages": [{"role": "user", "content": f"What is {n}+{n}?"},
                          {"role": "assistant", "content": f"It is {2 * n}."}]} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


SFT = ["steps=4", "rows_per_step=4", "save_every=4"]


def test_sft_on_own_data_shows_the_loss_on_what_is_held_out(tmp_path, capsys):
    words = ["train", "sft", f"data={chats(tmp_path / 'chats.jsonl')}", *SFT]
    assert main([*words, "--run", str(tmp_path / "run")]) == 0
    *lines, speed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sft: ")]
    assert speed.startswith("sft: training ")
    assert len(lines) == 5 and all(re.search(r"loss \d.*, held-out loss \d", line) for line in lines)
    rows = Run.open(tmp_path / "run").rows("evals")[0]
    assert [(row["step"], row["rows"]) for row in rows] == [(n, 3) for n in range(5)]
    assert rows[-1]["loss"] < rows[0]["loss"], "the held-out rows are like the others"
    assert lines[-1].startswith("sft: done, ") and f"held-out loss {rows[-1]['loss']:.3f}" in lines[-1]
    assert main([*words, "holdout=0", "--run", str(tmp_path / "all")]) == 0
    assert Run.open(tmp_path / "all").rows("evals")[0] == [] and "held-out" not in capsys.readouterr().out
    assert main([*words, "evaluation.every=3", "--run", str(tmp_path / "some")]) == 0
    assert [row["step"] for row in Run.open(tmp_path / "some").rows("evals")[0]] == [0, 3, 4]


def test_what_is_held_out_is_fixed_by_the_texts(tmp_path):
    rows = read_conversations(chats(tmp_path / "chats.jsonl", 60))
    train, held = split_rows(rows, 0.25)
    assert len(held) == 15 and not {r.id for r in held} & {r.id for r in train} and len(train) == 45
    assert {r.id for r in split_rows(rows[::-1], 0.25)[1]} == {r.id for r in held}
    assert split_rows(rows[:19], 0.25) == (rows[:19], []), "too few to spare any"
    assert len(split_rows(rows, 0.25, most=4)[1]) == 4
    for share in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="holdout is .*: it must be from 0 to below 1"):
            RowSettings(holdout=share)


def test_the_held_out_loss_is_the_mean_over_the_tokens_and_trains_nothing(tmp_path):
    rows, model, method = read_conversations(chats(tmp_path / "c.jsonl", 7)), small_model(), METHODS["sft"]
    (batch,) = ConversationBatches(rows, CHAT, method, per_step=7, steps=1, seed=0, max_tokens=128)
    found = evaluate_objective(objectives.build_objective(method), Models(policy=model), batch, 40).results()
    total = count = 0.0
    for row in rows:
        tokens, mask = CHAT.conversation(row.messages)
        with torch.no_grad():
            logp, _ = model.logp(torch.tensor([tokens]), torch.tensor([mask]))
        total -= float(logp.sum())
        count += sum(mask)
    assert found["loss"] == pytest.approx(total / count, rel=1e-4)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("method", ["dpo", "reward", "kto"])
def test_preferences_show_their_accuracy_in_training_and_held_out(method, tmp_path, capsys):
    words = ["pairs.drawn=24", "pairs.held_out=12", "pairs.per_step=4", "steps=2", "save_every=2",
             "evaluation.every=1", "evaluation.problems=2", "evaluation.samples=2",
             "--run", str(tmp_path / "run")]
    assert main(["train", f"{method}:questions", *words]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines()
             if line.startswith(f"{method}:questions: done")]
    shown = re.search(r" accuracy ([\d.]+), held-out accuracy ([\d.]+)", lines[-1])
    run = Run.open(tmp_path / "run")
    assert float(shown[1]) == pytest.approx(run.rows("metrics")[0][-1]["accuracy"], abs=6e-4)
    assert float(shown[2]) == pytest.approx(run.rows("evals")[0][-1]["accuracy"], abs=6e-4)
