"""Tools from plain functions, calls read out of any text, and the games of the package."""

import random

import pytest
from small import CHAT
from talks import STYLES
from texts import hostile_texts

from postgrad.data.environments import Player
from postgrad.data.tasks import load_task
from postgrad.data.tasks.games import play_game
from postgrad.models.chat.tools import read_reply, tool_schema
from postgrad.recipes.sft import SFTConfig, task_demonstrations
from postgrad.records import Verdict
from postgrad.sampling import Sampling
from postgrad.training.batches.offline import encode_conversation
from tests.data.environments_test import Puppet, one


def add(a: int, b: int = 2) -> int:
    """Adds two numbers.

    Args:
        a: the first
        b (int): the second
    """
    return a + b


def test_a_function_is_its_schema():
    assert tool_schema(add) == {"type": "function", "function": {
        "name": "add", "description": "Adds two numbers.", "parameters": {
            "type": "object", "required": ["a"], "properties": {
                "a": {"type": "integer", "description": "the first"},
                "b": {"type": "integer", "description": "the second"}}}}}
    with pytest.raises(ValueError, match=r"tool <lambda>: \*rest has no schema"):
        tool_schema(lambda *rest: 0)


@pytest.mark.parametrize(("text", "results", "malformed"), [
    ("no call", [], []),
    ('<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>', ["5"], []),
    ('x <tool_call>\n{"name": "add", "arguments": {"a": "4"}}\n</tool_call> y', ["6"], []),
    ("<tool>half 8</tool><tool>half 0</tool>", ["4.0", "error: ValueError: nothing to halve"], []),
    ("<tool>add 1</tool>", [], ["add takes 2 arguments"]),
    ("<tool>half x</tool>", [], ["half: n is no number"]),
    ("<tool>none 1</tool>", [], ["there is no tool 'none', there is add, half"]),
    ("<tool_call>{</tool_call>", [], ["a call is one JSON object"]),
    ('<tool_call>["add"]</tool_call>', [], ['a call is {"name"']),
    ('<tool_call>{"name": "add", "arguments": {"c": 1}}</tool_call>', [], ["add: missing a required"]),
    ('<tool_call>{"name": "add", "arguments": {"a": [1]}}</tool_call>', [], ["add: a is no integer"]),
    ("<tool>half 8", [], ["<tool> without </tool>"]),
    ("<tool></tool>", [], ["there is no tool ''"])])
def test_calls_in_a_text(text, results, malformed):
    def half(n: float):
        if not n:
            raise ValueError("nothing to halve")
        return n / 2

    reply = read_reply(text, [add, half])
    assert [call.run() for call in reply.tool_calls] == results
    assert len(reply.malformed) == len(malformed)
    assert all(said.startswith(start) for said, start in zip(reply.malformed, malformed, strict=True))


def test_any_text_is_read():
    rng = random.Random(0)
    bits = ["<tool>", "</tool>", "<tool_call>", "</tool_call>", "add", " ", '{"name"', ":", '"add"', "}", "[",
            "1", '"arguments"', "\n", "\ud800"]
    for _ in range(2000):
        reply = read_reply("".join(rng.choice(bits) for _ in range(rng.randint(0, 12))), [add])
        for call in reply.tool_calls:
            call.run()


def test_tools_and_a_verifier_are_an_environment():
    seen = []

    def verify(prompt, text):
        seen.append(text)
        return Verdict(score=float(text == "9"))

    def says(text):
        if "<|tool|>" not in text:
            return "<tool>x</tool>"
        return "9" if "9" in text else "<tool>calc 4+5</tool>"

    calc, chat = load_task("big-numbers").tools[0], STYLES["ours with tools"]()
    made = one(None, says, verify=verify, tools=(calc,), chat=chat, settings=Sampling(max_new_tokens=32))
    assert made.verdict.score == 1.0 and seen == ["9"]
    told = [chat.spoken(made.tokens[t.start: t.end]) for t in made.turns if t.role == "tool"]
    assert told[0].startswith("<|tool|>error: there is no tool 'x'") and "<|tool|>9<|end|>" in told[1]


@pytest.mark.parametrize("name", ["guess", "animals", "big-numbers"])
def test_the_embedded_games(name):
    from postgrad.recipes.base import check_task
    task = load_task(name)
    check_task(task)
    rows = task.demonstrations("train", 40, 0)
    assert rows == task.demonstrations("train", 40, 0) and len({c.id for c in rows}) == 40
    assert max(sum(m["role"] == "assistant" for m in c.messages) for c in rows) > 1
    held = {p.id for p in task.prompts("test", 100, 0)}
    assert not held & {p.id for p in task.prompts("train", 1000, 0)}
    for c in rows:
        CHAT.conversation(c.messages)


@pytest.mark.parametrize("name", ["guess", "animals"])
def test_games_are_total(name):
    """Whatever is said gets a score."""
    task = load_task(name)
    (prompt,) = task.prompts("train", 1, 0)
    for i, text in enumerate(hostile_texts(500)):
        says = [text, task.gold(prompt, prompt.messages)][:: 1 if i % 2 else -1]
        _, said = play_game(prompt, task.play, lambda prompt, messages, says=says: says[len(messages) % 2],
                            random.Random(i))
        assert isinstance(said, Verdict) and 0 <= said.score <= 1 and said.reason


def test_demonstrations_show_the_tools_that_a_player_is_shown():
    """What is imitated begins with the tokens of the prompt that an episode begins with."""
    chat, task = STYLES["qwen2.5"](), load_task("big-numbers")
    rows = task_demonstrations("big-numbers", SFTConfig(task="big-numbers", examples=3))
    tokens = Player(task, Puppet(lambda text: "<answer>1</answer>", chat)).sample(
        task.prompts("train", 3, 0), 1, Sampling(max_new_tokens=32), 0)
    for row, (episode,) in zip(rows, tokens, strict=True):
        assert tuple(encode_conversation(row, chat)[0][: len(episode.prompt_tokens)]) == episode.prompt_tokens


def test_what_heeds_what_was_told_is_paid_a_little():
    task, talk = load_task("guess"), ["1", "2", "1", "3"]  # the number is 10: 2 and 3 fit, 1 does not again
    (prompt,) = task.prompts("train", 1, 0)
    rng = random.Random(next(seed for seed in range(99) if random.Random(seed).randint(1, 10) == 10))
    _, said = play_game(prompt, task.play, lambda prompt, messages: talk[len(messages) // 2], rng)
    assert said.per_turn == pytest.approx((0, 0.1, 0, 0.1)) and said.score == pytest.approx(0.2)
    assert said.parts["correct"] == 0
