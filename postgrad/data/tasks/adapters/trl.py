"""Classes for TRL's `environment_factory`, unchanged: env:trl:my_env.py:Counter.

reset(**row)     begins an episode; the text that it returns is appended to the last user message
public methods   are tools, sync or async; the model reads what one raises as {'error': ...}
get_reward()     scores the episode; also, or instead, the file's `reward_funcs`, called as TRL does, with
                 prompts, completions, environments and the columns of the row

An episode ends at a reply without a tool call, or after `turns` replies; calls of the last one are not run.
The file may have `train_dataset` (rows with a "prompt" of messages; without one the prompt is what reset
returns) and best, tokens, turns, seconds and waits, as a task file. Instances are reused, as in TRL.
Left out: images, a dict of several classes, and completion_ids, log_extra, log_metric and trainer_state in
the arguments of reward functions.
"""

from __future__ import annotations

import inspect
import json
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from postgrad.data.rows import DataRow, read_messages
from postgrad.data.tasks.adapters import ForeignGame, await_value, seeded_globals
from postgrad.data.tasks.base import Task
from postgrad.data.tasks.listed import no_prompts, split_task
from postgrad.models.chat.tools import ModelReply, ToolCall, tool_schema
from postgrad.records import Message, Prompt, Verdict
from postgrad.system.limit import SECONDS
from postgrad.system.user_code import load_file

BLANK = [{"role": "user", "content": ""}]  # the prompt of a row that has none
ROWS, TURNS = 1000, 8                      # defaults


def load(source: str) -> Task:
    file, _, name = source.rpartition(":")
    path = Path(file).expanduser().resolve()
    module = load_file(path, "environment")
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ValueError(f"{path.name} has no class {name!r}: write env:trl:FILE.py:CLASS.")
    play = TRLPlay(factory, name, path, module)
    rows = [dict(row) for row in getattr(module, "train_dataset", None) or [{}] * ROWS]
    prompts = [trl_prompt(row, f"{name}/{i}", f"{path.name}: train_dataset[{i}]")
               for i, row in enumerate(rows)]
    task = Task(name=f"env:trl:{path.stem}.{name}", about=inspect.getdoc(factory) or f"{name} of {path.name}",
                prompts=no_prompts, verify=None, play=play, tools=play.tools,
                turns=play.turns, best=float(getattr(module, "best", 1.0)),
                tokens=getattr(module, "tokens", None), waits=play.waits,
                meta={"file": str(path)})
    return split_task(task, prompts, trl_row_key, name=name)


def trl_prompt(row: DataRow, id: str, where: str) -> Prompt:
    messages = read_messages(row.get("prompt", BLANK), where)
    return Prompt(id=id, messages=messages, answer=row.get("answer"), meta={"row": dict(row)}, where=where)


def trl_row_key(prompt: Prompt) -> str:
    """Rows with the same prompt may differ in other columns; without rows every episode is distinct."""
    return json.dumps(prompt.meta["row"] or prompt.id, sort_keys=True, default=str)


def methods_of(environment: object) -> list[str]:
    """The methods that are tools, in TRL's order."""
    return [name for name, _ in inspect.getmembers(type(environment), predicate=inspect.isfunction)
            if not name.startswith("_") and name not in ("reset", "get_reward")]


class TRLPlay:
    """Episodes of a class, each on an instance of its own."""

    def __init__(self, factory: Callable[[], Any], name: str, path: Path, module: ModuleType):
        self.factory, self.name, self.file = factory, name, str(path)
        self.turns, self.waits = getattr(module, "turns", TURNS), bool(getattr(module, "waits", False))
        self.seconds = getattr(module, "seconds", SECONDS)
        funcs = getattr(module, "reward_funcs", [])
        self.funcs = list(funcs) if isinstance(funcs, Sequence) else [funcs]
        probe = factory()
        if not callable(getattr(probe, "reset", None)):
            raise ValueError(f"{path.name}: {name} has no method reset, which begins an episode: add it.")
        if not self.funcs and not hasattr(probe, "get_reward"):
            raise ValueError(f"{path.name}: nobody scores {name}: give it get_reward(), or the file "
                             "reward_funcs = [function], as GRPOTrainer takes them.")
        self.tools = tuple(getattr(probe, method) for method in methods_of(probe))
        for tool in self.tools:
            tool_schema(tool)
        self.free = deque([probe])

    def __call__(self, prompt: Prompt, rng: random.Random) -> ForeignGame:
        asked, row = [dict(m) for m in prompt.messages], cast(DataRow, prompt.meta["row"])
        with self._instance() as environment:
            shown = self._run(rng, lambda: environment.reset(**{"prompt": asked, **row}))
            if not isinstance(shown, str | None):
                raise ValueError(f"{self.name}.reset returned {type(shown).__name__}: it is a text or None.")
            asked = [*asked[:-1], {**asked[-1], "content": asked[-1]["content"] + (shown or "")}]
            reply = yield [{"role": "user", "content": shown, "joins": True}] if shown else ()
            said: list[Mapping[str, Any]] = [reply_message(reply)]
            for _ in range(self.turns - 1):
                if not reply.tool_calls and not reply.malformed:
                    break
                results = self._answers(environment, reply, rng)
                reply = yield results
                said += [*results, reply_message(reply)]
            verdict: Verdict = self._run(rng, lambda: self._verdict(environment, asked, said, row))
            return verdict

    @contextmanager
    def _instance(self) -> Iterator[Any]:
        environment = self.free.pop() if self.free else self.factory()
        try:
            yield environment
        finally:
            self.free.append(environment)

    def _run(self, rng: random.Random, call: Callable[[], Any]) -> Any:
        """Calls the environment, with seeded global generators unless many run in threads."""
        with nullcontext() if self.waits else seeded_globals(rng):
            return await_value(call())

    def _answers(self, environment: Any, reply: ModelReply, rng: random.Random) -> list[Message]:
        """The results of the calls of a reply, as in TRL: async tools after the others."""
        calls = sorted(reply.tool_calls, key=lambda call: inspect.iscoroutinefunction(call.function))
        results = [(call.name, self._answer(environment, call, rng)) for call in calls]
        results += [("unknown", {"error": fault}) for fault in reply.malformed]
        return [{"role": "tool", "name": name, "content": str(result)} for name, result in results]

    def _answer(self, environment: Any, call: ToolCall, rng: random.Random) -> object:
        try:
            return self._run(rng, lambda: getattr(environment, call.name)(**call.arguments))
        except Exception as error:  # noqa: BLE001 - whatever a tool raises
            return {"error": str(error)}

    def _verdict(self, environment: Any, asked: list[dict[str, str]], said: list[Mapping[str, Any]],
                 row: DataRow) -> Verdict:
        """The sum of the rewards of the file's functions and of the class; None does not count."""
        columns = {name: [value] for name, value in row.items() if name != "prompt"}
        paid = {function.__name__: await_value(function(prompts=[asked], completions=[said],
                                                        environments=[environment], **columns))[0]
                for function in self.funcs}
        if hasattr(environment, "get_reward"):
            paid[type(environment).__name__] = await_value(environment.get_reward())
        parts = {name: float(score) for name, score in paid.items() if score is not None}
        return Verdict(score=sum(parts.values()), parts=parts, absent=not parts)


def reply_message(reply: ModelReply) -> DataRow:
    """A reply as a message for TRL's reward functions."""
    calls = [{"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
             for call in reply.tool_calls]
    return {"role": "assistant", "content": reply.text} | ({"tool_calls": calls} if calls else {})
