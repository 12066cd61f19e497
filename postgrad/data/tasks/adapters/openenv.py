"""An OpenEnv server (0.10): env:openenv:ws://localhost:8000, or http(s)://, wss://; ?turns=4 for the most
replies of an episode, 8 without. Its package is not needed.

Each episode has a WebSocket, /ws, for reset and step; /schema describes an action. If an action is one text,
each reply is one. Otherwise the model calls the tool `act` with the action's fields; a reply without a call
ends the episode.

An observation becomes a user message: its one text, or all its fields as JSON. An episode ends when the
server says so, or after `turns` replies; its score is the sum of the rewards of its steps, which are also the
turn rewards. The seed is the same for a group. Left out: environments of MCP tools only, lists of tasks.
"""

from __future__ import annotations

import inspect
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from keyword import iskeyword
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from urllib.request import ProxyHandler, build_opener

from postgrad.data.rows import DataRow
from postgrad.data.tasks.adapters import ForeignGame, import_needed
from postgrad.data.tasks.base import Task
from postgrad.data.tasks.listed import no_prompts, split_task
from postgrad.models.chat.tools import ModelReply
from postgrad.records import Prompt, Verdict
from postgrad.system.json_text import strict_json
from postgrad.system.limit import SECONDS
from postgrad.system.sockets import read_within

ROWS, TURNS = 1000, 8
BESIDE = ("metadata", "reward", "done")  # fields that are part of neither action nor observation
LARGEST = 100 * 2**20                    # bytes of a message of the server
SCHEMA, MOST_FIELDS = 2**20, 64         # bytes of a schema; fields of an action
LOCAL = ("localhost", "127.0.0.1", "::1")
KINDS = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


def load(source: str) -> Task:
    url = urlsplit(source)
    if url.scheme not in ("ws", "wss", "http", "https") or not url.hostname:
        raise ValueError(f"env:openenv:{source} is no address: write env:openenv:ws://localhost:8000.")
    place, safe = f"{url.netloc}{url.path.rstrip('/')}", "s" * (url.scheme in ("wss", "https"))
    turns = dict(parse_qsl(url.query)).get("turns", str(TURNS))
    if not (turns.isascii() and turns.isdecimal() and 0 < int(turns[:9]) < 10**6):
        raise ValueError(f"env:openenv:{source}: turns={turns[:40]} is no number of replies: write ?turns=8.")
    fields = action_fields(schema_of(f"http{safe}://{place}/schema", url.hostname in LOCAL))
    play = OpenEnvPlay(f"ws{safe}://{place}/ws", fields, int(turns[:9]))
    prompts = [Prompt(id=f"{place}/{i}", messages=({"role": "user", "content": ""},)) for i in range(ROWS)]
    task = Task(name=f"env:openenv:{place}", about=f"the OpenEnv server at {place}",
                prompts=no_prompts, verify=None, play=play, tools=play.tools,
                turns=play.turns, waits=True)
    return split_task(task, prompts, lambda prompt: prompt.id, name=place)


def schema_of(url: str, local: bool) -> DataRow:
    """The JSON schema of an action."""
    opener = build_opener(ProxyHandler({})) if local else build_opener()
    try:
        with opener.open(url, timeout=SECONDS) as answer:
            schema: DataRow = strict_json(read_within(answer, SCHEMA, time.monotonic() + SECONDS))["action"]
            return schema
    except (OSError, ValueError, KeyError, TypeError, HTTPException) as error:
        raise ValueError(f"no OpenEnv server answers at {url} ({type(error).__name__}: {error}): start it, "
                         "or mend the address.") from error


def action_fields(schema: object) -> dict[str, tuple[Any, bool]]:
    """name -> (type, required) of an action's fields."""
    parts = schema if isinstance(schema, dict) else {"properties": None}
    required, listed = parts.get("required", []), parts.get("properties", {})
    if not (isinstance(required, list) and isinstance(listed, dict) and len(listed) <= MOST_FIELDS
            and all(isinstance(about, dict) for about in listed.values())):
        raise ValueError(f"the server's schema of an action is no object of up to {MOST_FIELDS} fields: "
                         f"{json.dumps(schema)[:80]}.")
    fields: dict[str, tuple[Any, bool]] = {}
    for name, about in listed.items():
        if not name.isidentifier() or iskeyword(name) or len(name) > 100:
            raise ValueError(f"the server's schema has a field {name[:60]!r}, which cannot name an argument "
                             "of the tool act.")
        kind = about.get("type", "string")
        if name not in BESIDE:
            fields[name] = KINDS.get(kind, str) if isinstance(kind, str) else str, name in required
    return fields


def act_of(fields: Mapping[str, tuple[Any, bool]]) -> Callable[..., DataRow]:
    """The tool for actions of more than one text."""
    def act(**action: Any) -> DataRow:
        """Acts in the environment."""
        return action

    kinds = {name: kind for name, (kind, _) in fields.items()}
    act.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind,
                          default=inspect.Parameter.empty if needs else None)
        for name, (kind, needs) in fields.items()])
    act.__annotations__ = kinds
    return act


def observation_text(observation: object) -> str:
    """observation_text({"text": "higher"}) -> "higher"; several fields as JSON."""
    if not isinstance(observation, Mapping):
        return str(observation)
    fields = {name: value for name, value in observation.items() if name not in BESIDE and value is not None}
    texts = [value for value in fields.values() if isinstance(value, str)]
    return texts[0] if len(fields) == len(texts) == 1 else json.dumps(fields)


class OpenEnvPlay:
    """Episodes of a server, each on a connection of its own."""

    def __init__(self, url: str, fields: Mapping[str, tuple[Any, bool]], turns: int):
        self.url, self.turns = url, turns
        plain = [name for name, (kind, _) in fields.items() if kind is str]
        needs = [name for name, (_, needs) in fields.items() if needs]
        self.text = plain[0] if len(plain) == 1 and needs in ([], plain) else None
        self.tools = () if self.text else (act_of(fields),)
        self.connect = import_needed("websockets.sync.client", f"env:openenv:{url}", "websockets>=13").connect
        self.free: deque[Any] = deque()

    def __call__(self, prompt: Prompt, rng: random.Random) -> ForeignGame:
        with self._connection() as connection:
            step = ask_server(connection, "reset", {"seed": rng.getrandbits(31)})
            reply = yield [{"role": "user", "content": observation_text(step["observation"]), "joins": True}]
            paid: list[float] = []
            while (action := self._action(reply)) is not None or reply.malformed:
                step = (ask_server(connection, "step", action) if action is not None
                        else step | {"reward": 0.0})
                paid.append(reward_number(step.get("reward") or 0.0))
                if step.get("done") or len(paid) == self.turns:
                    break
                text = (f"error: {reply.malformed[0]}" if action is None
                        else observation_text(step["observation"]))
                reply = yield [{"role": "tool" if self.tools else "user", "content": text}]
            return Verdict(score=sum(paid), per_turn=tuple(paid),
                           reason=observation_text(step["observation"])[:200])

    def _action(self, reply: ModelReply) -> DataRow | None:
        if self.text:
            return {self.text: reply.text}
        return dict(reply.tool_calls[0].arguments) if reply.tool_calls else None

    def _connected(self) -> Any:
        local = urlsplit(self.url).hostname in LOCAL
        return self.connect(self.url, open_timeout=SECONDS, max_size=LARGEST,
                            **({"proxy": None} if local else {})).__enter__()

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """A free connection or a new one; it is free again afterwards, unless the server failed."""
        connection = self.free.pop() if self.free else self._connected()
        try:
            yield connection
        except GeneratorExit:  # the episode was truncated while the server waited for a reply
            self.free.append(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self.free.append(connection)


def reward_number(reward: object) -> float:
    if not isinstance(reward, int | float) or not abs(reward) < 1e100:
        raise ValueError(f"the server's reward is {reward!r:.60}, and has to be a number")
    return float(reward)


def ask_server(connection: Any, kind: str, data: DataRow) -> DataRow:
    """Sends a message, and returns the data of the answer."""
    connection.send(json.dumps({"type": kind, "data": data}))
    answer = strict_json(connection.recv(timeout=SECONDS))
    if answer.get("type") != "observation":
        error = answer.get("data", {})
        remedy = ": serve it with more max_concurrent_envs, as many as a step has rollouts" \
            if error.get("code") == "CAPACITY_REACHED" else ""
        raise ValueError(f"the server answered {kind} with {error.get('code', 'no observation')}, "
                         f"{error.get('message', '')}{remedy}")
    observed: DataRow = answer["data"]
    return observed
