"""Tools of the house, and a chat in which a task's tools answer."""

import json
from itertools import count

import pytest
from doc_blocks import blocks
from doors import fit
from paths import ROOT

import postgrad as pg
from postgrad.cli import main
from postgrad.data import environments
from postgrad.data.tasks import toolbox
from postgrad.models.chat.tools import read_reply, tool_schema
from postgrad.recipes.chat_session import ChatModel, ChatReply, ChatSession
from postgrad.records import Prompt
from postgrad.resolve.models import open_writer
from postgrad.rewards.sandbox.selftest import missing_sandbox
from postgrad.sampling import Sampling

JAIL = pytest.mark.skipif(bool(missing_sandbox()), reason=f"no sandbox here: {missing_sandbox()}")


@JAIL
@pytest.mark.parametrize(("code", "said"), [
    ("print('a')\n2**70", "a\n1180591620717411303424\n"), ("x = 5", "(nothing was printed)"),
    ("1/0", "ZeroDivisionError: division by zero\n"),
    ("while True: pass", "error: over the time limit of 2 s"),
    ("print('x' * 9000)", "x" * 2000 + " (cut)"), ("def", "error: SyntaxError: invalid syntax"),
    ("import os\nos._exit(3)", "error: "), ("bytearray(8 << 30)", "MemoryError"),
])
def test_a_program_runs_in_the_jail_within_its_limits(code, said):
    assert said in toolbox.python(code)


@JAIL
def test_a_program_reaches_neither_files_nor_the_network(tmp_path):
    (tmp_path / "secret").write_text("word")
    for code in (f"print(open({str(tmp_path / 'secret')!r}).read())", "import socket; socket.socket()",
                 "import os; os.fork()"):
        assert "Error" in toolbox.python(code) and "word" not in toolbox.python(code)


@JAIL
def test_a_training_on_the_task_of_the_page_runs_programs_in_the_jail(tmp_path, monkeypatch):
    """Every second round of replies calls the tool, as the embedded model does not yet know when to."""
    page, rounds = ROOT / "docs" / "environments.md", count()
    (source,) = [block.text for block in blocks(page) if "toolbox import python" in block.text]
    (tmp_path / "powers.py").write_text(source)
    monkeypatch.setattr(environments, "read_reply", lambda text, tools: read_reply(
        text if next(rounds) // 4 % 2 else f"{text}<tool>python 2**70</tool>", tools))
    run = fit(tmp_path, model="tiny-tools", task=str(tmp_path / "powers.py"), rollouts={"max_new_tokens": 64})
    told = ["".join(sample["tokens"][turn["start"]: turn["end"]])
            for sample in run.samples() for turn in sample.get("turns", ()) if turn["role"] == "tool"]
    assert sum("1180591620717411303424" in text for text in told) >= 2
    assert all(row["errors"] == 0 for row in run.metrics())


def test_without_a_jail_a_task_with_the_tool_is_refused(monkeypatch):
    monkeypatch.setattr(toolbox, "missing_sandbox", lambda: "no Landlock")
    assert tool_schema(toolbox.python)["function"]["name"] == "python"
    with pytest.raises(ValueError, match="this machine has none that holds .no Landlock.*leave the tool out"):
        pg.make_task(["What is 2**70?"], lambda prompt, text: False, tools=[toolbox.python])


class Says:
    """A sampler that says these replies, one after another."""

    def __init__(self, chat, *texts):
        self.chat, self.texts, self.positions, self.asked = chat, list(texts), 500, []
        self.model = type("", (), {"config": type("", (), {"max_position_embeddings": 500})})

    def reply(self, contexts, seeds, settings, after=()):
        self.asked.append(self.chat.tokenizer.decode(contexts[0], skip_special_tokens=False))
        tokens = (*self.chat.encode(self.texts.pop(0)), self.chat.stop[0])
        return [type("", (), {"tokens": tokens, "logp": (0.0,) * len(tokens), "finished": True})]


def test_in_a_chat_the_tasks_tools_answer():
    task = pg.load_task("big-numbers")
    problem = task.prompts("test", 1, 0)[0]
    sum_of = problem.question.removeprefix("What is ").removesuffix("?")
    _, chat = open_writer("tiny-chat")
    for known, calls in ((problem, 2), (None, 2)):
        sampler = Says(chat, f"<tool>calc {sum_of}</tool>", f"<answer>{problem.answer}</answer>")
        session = ChatSession([ChatModel("said", "", sampler)], Sampling(max_new_tokens=20), task=task)
        reply = ChatReply(session.models[0], Prompt(id="q", messages=problem.messages), known)
        shown = "".join(session.sample(reply))
        assert f"[tool] {problem.answer}\n" in shown and len(sampler.asked) == calls
        assert str(problem.answer) in sampler.asked[1] and reply.text == f"<answer>{problem.answer}</answer>"
        assert [t["role"] for t in reply.turns] == ["assistant", "tool"] and reply.ended == "end"
        assert (reply.verdict.score == 1) if known else reply.verdict is None


def test_a_problem_of_a_game_is_played_in_a_chat(capsys):
    assert main(["chat", "tiny-chat", "--task", "guess", "--problem", "2", "--json"]) == 0
    (reply,) = json.loads(capsys.readouterr().out)["replies"]
    assert reply["score"] == 0 and "is no number" in reply["reason"]
