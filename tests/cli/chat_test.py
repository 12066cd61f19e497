"""`postgrad chat`: one question, several models, each by name, by step or by the way that led to it."""

import io
import json
import os
import re
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from small import CHAT, small_model

from postgrad.cli import chat, main
from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import load_task
from postgrad.models import load_model
from postgrad.recipes.chat_session import ChatModel, ChatSession
from postgrad.recipes.launch import start_training
from postgrad.records import Prompt
from postgrad.resolve.models import open_folder, open_model, start_model
from postgrad.resolve.stages import model_stages
from postgrad.sampling import LocalSampler, Sampling

WORDS = load_task("words").prompts("test", 3, 0)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of runs as the demo leaves one: SFT from tiny, then RL from that,
    and a reward model beside them."""
    here = tmp_path_factory.mktemp("chat")
    before = os.getcwd()
    os.chdir(here)
    try:
        train("sft:words", "demo/sft", "steps=4", "examples=16", "rows_per_step=4", "save_every=2",
              "evaluation.every=0")
        train("grpo:words", "demo/rl", "model=demo/sft", "steps=1", "rollouts.prompts=4",
              "rollouts.prompts_per_step=2", "rollouts.group_size=2", "rollouts.max_new_tokens=12",
              "evaluation.every=0")
        train("reward:questions", "demo/judge", "steps=1", "pairs.drawn=8", "pairs.held_out=2",
              "evaluation.every=0")
    finally:
        os.chdir(before)
    return here


@pytest.fixture
def here(home, monkeypatch):
    monkeypatch.chdir(home)
    return home


def train(spec, folder, *changes):
    return start_training(*config_from_text(spec, changes), folder)


def ask(capsys, *words):
    assert main(["chat", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["replies"]


def alone(name, question):
    """What a model says by itself, greedily."""
    settings = Sampling(max_new_tokens=20, temperature=0)
    return LocalSampler(*open_model(name)).sample([Prompt.ask(question)], 1, settings, 0)[0][0]


def test_a_step_names_a_checkpoint_of_a_run(here):
    assert open_folder("demo/sft@2").name == "000002" and open_folder("demo/sft") == open_folder("demo/sft@4")
    assert open_folder("demo/sft@0") == open_folder("tiny")
    assert open_folder("demo/rl@0") == open_folder("demo/sft")
    with pytest.raises(ValueError, match=r"keeps no step '3': it has 0, 2, 4 \(e.g. demo/sft@4\)"):
        open_folder("demo/sft@3")
    with pytest.raises(ValueError, match="folder of runs and no model: name one of them, e.g. demo/judge"):
        open_folder("demo")
    with pytest.raises(ValueError, match="no model at tiny@3"):
        open_folder("tiny@3")


def test_the_way_to_a_run_goes_back_through_all_it_stands_on(here):
    way = [("base", "tiny"), ("sft", "demo/sft"), ("grpo", "demo/rl")]
    assert model_stages("demo/rl") == (way, [])
    assert model_stages("demo/sft@2") == ([("base", "tiny"), ("sft", "demo/sft@2")], [])
    assert model_stages("demo/rl@0") == (way[:2], [])
    found, passed = model_stages("demo")
    assert found == way and passed == ["demo/judge scores text and writes none"]


def test_a_folder_of_runs_may_move_but_not_change(here, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree("demo", moved)
    assert start_model(moved / "rl") == str(moved / "sft")  # and not demo/sft, which has the same weights
    shutil.rmtree(moved / "sft" / "checkpoints" / "000004")
    assert start_model(moved / "rl") == "demo/sft"
    os.chdir(moved)
    with pytest.raises(ValueError, match="no model at demo/sft|other weights now"):
        start_model("rl")


def test_a_run_from_a_step_of_another(here, tmp_path, monkeypatch):
    """Its adapter's files name the folder of that step, which is no hub id; and the two may move together."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(here / "demo" / "sft", "pair/sft")
    run = train("sft:words", "pair/more", "model=pair/sft@2", "steps=1", "examples=16", "rows_per_step=4",
                "lora=2")
    adapter, whole = (load_model(folder).logits(torch.arange(8)[None])
                      for folder in (run.latest() / "adapter", run.latest()))
    torch.testing.assert_close(adapter, whole, rtol=0, atol=1e-5)
    os.rename("pair", "moved")
    assert start_model("moved/more") == "moved/sft@2"
    assert model_stages("moved/more@0")[0] == [("base", "tiny"), ("sft", "moved/sft@2")]


def test_each_model_says_what_it_says_alone(here, capsys):
    question = "What is 2+3?"
    said = ask(capsys, "demo", "--prompt", question, "--max-new-tokens", "20")
    assert [(r["made_by"], r["model"]) for r in said] == [("base", "tiny"), ("sft", "demo/sft"),
                                                          ("grpo", "demo/rl")]
    for reply in said:
        rollout = alone(reply["model"], question)
        assert reply["reply"] == rollout.text and reply["ended"] == ("end" if rollout.finished else "length")
    steps = ask(capsys, "demo/sft", "--steps", "0,2", "--prompt", question, "--max-new-tokens", "20")
    assert [r["reply"] for r in steps] == [alone(name, question).text for name in ("tiny", "demo/sft@2")]
    assert ask(capsys, "demo/rl", "--stages", "--prompt", question, "--max-new-tokens", "20") == said


def test_the_settings_reach_the_sampler(here, capsys):
    several = ("tiny-chat", "--prompt", "What is 2+3?", "--max-new-tokens", "20", "--samples", "3")
    narrow = ask(capsys, *several, "--top-k", "1")
    assert {r["reply"] for r in narrow} == {alone("tiny-chat", "What is 2+3?").text}
    wild = ask(capsys, *several, "--temperature", "3")
    assert len({r["reply"] for r in wild}) == 3 and wild == ask(capsys, *several, "--temperature", "3")
    assert wild != ask(capsys, *several, "--temperature", "3", "--seed", "1")
    (cut,) = ask(capsys, "tiny-chat", "--prompt", "What is 2+3?", "--stop", "<answer>")
    assert cut["reply"].endswith("<answer>") and cut["ended"] == "end"


def test_a_problem_of_a_task_is_judged(here, capsys):
    task = load_task("words")
    for words in (["--problem", "2"], ["--prompt", WORDS[1].question]):
        for reply in ask(capsys, "tiny", "tiny-chat", "--task", "words", *words):
            verdict = task.verify(WORDS[1], reply["reply"])
            assert (reply["score"], reply["reason"]) == (verdict.score, verdict.reason)
    assert "score" not in ask(capsys, "tiny", "--task", "words", "--prompt", "Who?")[0]
    (here / "mine.py").write_text("prompts = [{'question': f'Say {n}.'} for n in range(9)]\n"
                                  "def verify(p, c): return 1 if not c else 1 / 0\n")
    mine = ("tiny-chat", "--task", "mine.py", "--problem", "1", "--max-new-tokens", "4")
    (lost,) = ask(capsys, *mine)
    # a broken verifier's word is no score of 0
    assert "ZeroDivisionError" in lost["error"] and "score" not in lost
    assert (main(["chat", *mine]) == 0
            and "\nnot judged: infrastructure: mine.py, line 2" in capsys.readouterr().out)
    assert main(["chat", "tiny", "--task", "words", "--problem", "1"]) == 0
    assert capsys.readouterr().out.startswith(f"{WORDS[0].question}  (answer: {WORDS[0].answer})\n")


WRONG = {
    "chat tiny --problem 1": "of which task?",
    "chat tiny --task words --problem 0": "count from 1",
    "chat tiny --task words --problem 1 --prompt hello": "name one of the two",
    "chat tiny --samples 2 --turns --prompt hello": "which one would be remembered",
    "chat tiny --samples 2 --temperature 0 --prompt hello": "all are the same",
    "chat tiny --steps 0 --prompt hello": "tiny is none",
    "chat demo/sft --steps 1 --prompt hello": "keeps no step '1': it has 0, 2, 4",
    "chat demo/judge --prompt hello": "is a reward model",
    "chat tiny tiny tiny tiny tiny tiny tiny tiny tiny --prompt hello": "name up to 8",
    "chat tiny --top-p 0 --prompt hello": "top_p 0.0",
    "chat tiny --device cuda --prompt hello": "no GPU",
    "eval tiny --task words --device gpu": "there is no device 'gpu': it is cpu, cuda",
    "eval demo --task words": "folder of runs and no model",
}


@pytest.mark.parametrize("line", WRONG)
def test_bad_input_gets_a_sentence(here, capsys, line):
    assert main(line.split()) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and WRONG[line] in said[0], said


def session(**more):
    """A random model of 128 positions and another, which remember."""
    models = [ChatModel(name, "", LocalSampler(small_model(i), CHAT)) for i, name in enumerate("ab")]
    return ChatSession(models, Sampling(max_new_tokens=6, temperature=0), **{"turns": True, **more})


def test_each_model_remembers_its_own_turns(capsys):
    talk = session(system="Be brief.")
    chat.ask_models(talk, "one", quiet=True)
    first = json.loads(capsys.readouterr().out)["replies"]
    rows = talk.replies("two")
    for reply, before in zip(rows[0], first, strict=True):
        assert [m["content"] for m in reply.prompt.messages] == ["Be brief.", "one", before["reply"], "two"]
    assert first[0]["reply"] != first[1]["reply"]
    chat.chat_command(talk, "/new", True)
    assert [m["content"] for m in talk.replies("three")[0][0].prompt.messages] == ["Be brief.", "three"]
    deaf = session(turns=False)
    chat.ask_models(deaf, "one", quiet=True)
    assert [m["content"] for m in deaf.replies("two")[0][0].prompt.messages] == ["two"]


def test_the_oldest_turns_go_when_the_positions_are_full(capsys):
    talk = session()
    model = talk.models[0]
    turn = ({"role": "user", "content": "how many?"}, {"role": "assistant", "content": "so many"})
    model.turns += turn * 30
    messages = talk.replies("and now?")[0][0].prompt.messages
    room = model.sampler.model.config.max_position_embeddings - talk.settings.max_new_tokens
    assert len(CHAT.render(messages)) <= room
    assert len(CHAT.render((*turn, *messages))) > room  # not one turn too many was given up
    assert (f"forgets the oldest {30 - len(messages) // 2} of 30 turns: it has 128 positions"
            in capsys.readouterr().err)
    assert not talk.models[1].turns


def test_commands_change_the_session(capsys):
    talk = session()
    chat.chat_command(talk, "/temp 0.5", False)
    chat.chat_command(talk, "/system Be kind.", False)
    assert talk.settings == Sampling(max_new_tokens=6, temperature=0.5) and talk.system == "Be kind."
    chat.chat_command(talk, "/system", False)
    assert talk.system is None
    for line, why in {"/temp hot": "e.g. /temp 0.7", "/temp -1": "e.g. /temp 0.7",
                      "/problem 1": "of which task", "/problem x": "whole number",
                      "/bye": "/help lists"}.items():
        with pytest.raises(ValueError, match=why):
            chat.chat_command(talk, line, False)


def test_ctrl_c_stops_the_reply_and_not_the_chat(capsys, monkeypatch):
    talk = session()
    stream, calls = talk.models[0].sampler.stream, []

    def broken(prompt, settings, seed):
        for i, piece in enumerate(stream(prompt, settings, seed)):
            calls.append(piece)
            yield piece
            if i == 1 and len(talk.models[0].turns) == 0:
                raise KeyboardInterrupt

    talk.models[0].sampler.stream = broken
    assert chat.ask_models(talk, "one") is False
    assert "(stopped)" in capsys.readouterr().out
    written = "".join(calls)
    assert [m["content"] for m in talk.models[0].turns] == ["one", written] and not talk.models[1].turns
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    lines = iter(["two", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    assert chat.converse(talk, quiet=True) == 0
    assert [r["ended"] != "stopped" for r in json.loads(capsys.readouterr().out)["replies"]] == [True, True]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def in_terminal(monkeypatch, columns, *words):
    """What a terminal of so many columns was shown, line by line, without colours and movements."""
    screen = Terminal()
    for name, value in {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "40"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(["chat", *words]) == 0
    return [line.rstrip()
            for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue()))]


def test_side_by_side_in_a_wide_terminal_one_under_another_in_a_narrow_one(here, capsys, monkeypatch):
    words = ("tiny", "demo/sft", "--task", "words", "--problem", "1", "--max-new-tokens", "20")
    said = [f"score {r['score']:g}: {r['reason']}" for r in ask(capsys, *words)]
    wide = in_terminal(monkeypatch, 120, *words)
    assert any(line.split() == ["tiny", "demo/sft"] for line in wide)
    assert any(line.find(said[0]) == 0 for line in wide) and any(line.find(said[1]) >= 55 for line in wide)
    narrow = in_terminal(monkeypatch, 80, *words)
    assert [line for line in narrow if line in ("--- tiny", "--- demo/sft", *said)] == [
        "--- tiny", said[0], "--- demo/sft", said[1]]


def test_text_of_a_model_cannot_steer_the_terminal(capsys):
    talk = session(turns=False)
    for model in talk.models:
        model.sampler.stream = lambda *_: iter(["ok\x1b]0;title\x07", "\x1b[2J"])
    chat.ask_models(talk, "one")
    assert "\x1b" not in capsys.readouterr().out

