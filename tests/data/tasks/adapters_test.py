"""Doors to environments that exist elsewhere: names, and classes as TRL takes them."""

import random
from pathlib import Path

import pytest
from talks import STYLES

from postgrad.data.environments import Player
from postgrad.data.tasks import load_task
from postgrad.data.tasks.games import play_game, prove_play
from postgrad.models.chat.tools import append_messages
from postgrad.records import Prompt
from postgrad.resolve.tasks import files_in
from postgrad.sampling import Sampling
from tests.data.environments_test import Puppet

CHAT = STYLES["ours with tools"]()
SETTINGS = Sampling(max_new_tokens=64)

TRL = '''
import random

train_dataset = [{"prompt": [{"role": "user", "content": "Reach the number. "}], "start": n}
                 for n in range(9)]
turns = 3


class Counter:
    """Counts up to a number that is drawn."""

    def reset(self, start=0, **row):
        self.now, self.goal = start, start + random.randint(1, 9)
        return f"It is {self.goal}."

    def add(self, n: int) -> str:
        """Adds to the number.

        Args:
            n: how much
        """
        if n < 0:
            raise ValueError("only up")
        self.now += n
        return self.now

    async def later(self, n: int) -> str:
        """Adds, in a while.

        Args:
            n: how much
        """
        return {"now": self.add(n)}

    def _hidden(self):
        raise AssertionError

    def get_reward(self):
        return 1.0 if self.now == self.goal else -0.5


def spoken(prompts, completions, environments, start, **kwargs):
    return [0.25 * ("done" in said[-1]["content"]) for said in completions]


async def nobody(environments, **kwargs):
    return [None] * len(environments)


reward_funcs = [spoken, nobody]
'''


@pytest.fixture
def counter(tmp_path):
    (tmp_path / "my_env.py").write_text(TRL)
    return f"env:trl:{tmp_path / 'my_env.py'}:Counter"


def calls(*named):
    return "".join(f'<tool_call>{{"name": "{name}", "arguments": {{"n": {n}}}}}</tool_call>'
                   for name, n in named)


def game(task, says, prompt=None):
    """One game with a script of replies."""
    script = iter(says)
    prompt = prompt or task.prompts("train", 1, 0)[0]
    messages, said = play_game(prompt, task.play, lambda prompt, messages: next(script), random.Random(0),
                               task.tools, task.turns)
    return messages[len(prompt.messages):], said


def test_a_class_of_trl_as_it_is(counter):
    task = load_task(counter)
    prove_play(task, task.prompts("train", 4, 0))
    assert [tool.__name__ for tool in task.tools] == ["add", "later"] and task.turns == 3
    assert sum(task.meta["sizes"].values()) == 9, "rows that ask the same and begin elsewhere are several"
    shown, said = game(task, [calls(("later", 1), ("add", 2), ("add", -1)), calls(("sub", 2)), "done"])
    start = shown[1]["content"]
    first = int(start)
    assert [m["content"] for m in shown if m["role"] == "tool"] == [
        start, "{'error': 'only up'}", f"{{'now': {first + 1}}}",
        str({"error": f"there is no tool 'sub', there is add, later: {calls(('sub', 2))[11:-12]!r}"})]
    assert said.parts == {"spoken": 0.25, "Counter": said.score - 0.25}


def test_what_reset_says_continues_the_question(counter):
    task = load_task(counter)
    prompt = task.prompts("train", 1, 0)[0]
    player = Player(task, Puppet(lambda text: "done", CHAT, positions=1024))
    (group,) = player.sample([prompt], 4, SETTINGS, 7)
    begins = {CHAT.spoken(r.prompt_tokens) for r in group}
    assert len(begins) == 1, "a group has one draw, though the class asks Python's own generator"
    assert "<|user|>Reach the number. It is " in begins.pop()
    assert {r.verdict.score for r in group} == {-0.25}
    before = random.getstate()
    again = player.sample([prompt], 4, SETTINGS, 7)
    assert again == [group] and random.getstate() == before


def test_the_last_reply_is_paid_whatever_it_asks(counter):
    task = load_task(counter)
    shown, said = game(task, [calls(("add", 1))] * 3)
    assert said.score in (-0.5, 1.0) and sum(m["role"] == "tool" for m in shown) == 2


def test_joined_words():
    asked = [{"role": "user", "content": "a"}]
    result = {"role": "tool", "content": "c"}
    assert append_messages(asked, [{"role": "user", "content": "b", "joins": True}, result]) == [
        {"role": "user", "content": "ab"}, result]
    assert asked == [{"role": "user", "content": "a"}]


@pytest.mark.parametrize(("source", "said"), [
    ("env:none:x", r"there is no environment env:none:x: write env:trl:my_env.py:Counter"),
    ("env:trl:FILE:None_", "my_env.py has no class 'None_'"),
    ("env:trl:FILE:Silent", "nobody scores Silent: give it get_reward"),
    ("env:trl:FILE:Still", "Still has no method reset"),
    ("env:trl:gone.py:A", "there is no file")])
def test_what_cannot_be_opened(tmp_path, source, said):
    file = tmp_path / "my_env.py"
    file.write_text("class Silent:\n def reset(self, **row): ...\nclass Still:\n def get_reward(self): ...\n")
    with pytest.raises(ValueError, match=said):
        load_task(source.replace("FILE", str(file)))


def test_a_fault_in_a_class_is_named_by_its_line(tmp_path):
    file = tmp_path / "my_env.py"
    file.write_text("class A:\n def reset(self, **row):\n  raise KeyError('gone')\n"
                    " def get_reward(self): ...\n")
    task = load_task(f"env:trl:{file}:A")
    player = Player(task, Puppet(lambda text: "1"))
    made = player.sample(task.prompts("train", 1, 0), 1, SETTINGS, 0)[0][0]
    assert made.verdict.error == "infrastructure: my_env.py, line 3: KeyError: 'gone'"


def test_prompts_of_a_class_that_has_no_rows(tmp_path):
    file = tmp_path / "my_env.py"
    file.write_text("class A:\n def reset(self, prompt): return 'Say 1.'\n"
                    " def get_reward(self): return 0.5\n")
    task = load_task(f"env:trl:{file}:A")
    assert isinstance(task.prompts("test", 50, 0)[0], Prompt) and len(task.prompts("test", 50, 0)) == 50
    shown, said = game(task, ["1"])
    assert said.score == 0.5


def test_the_files_of_a_name_are_those_of_its_source(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("my_env.py", "env/pyvenv.cfg", "trl/setup.py", "rows/train.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert files_in("env:trl:my_env.py:A") == [Path("my_env.py")]
    assert files_in("words+gsm8k:rows") == files_in("gsm8k:rows") == [Path("rows/train.jsonl")]
