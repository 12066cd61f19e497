"""Records conversations: exact tokens, and the log-probs they were sampled with.

A folder has a file for each session, SESSION.jsonl, with a line for each reply:
    {"row": 0, "shown": [1, 5, 9], "tokens": [7, 2], "logp": [-0.1, -0.7], "role": "user", "end": "stop",
     "policy_step": 20, "temperature": 1.0, "told": {"role": "assistant", "content": "5"}, "asked": [...]}
A row is the shown and the sampled tokens of its lines, end to end. A conversation that quotes the last reply
as the client received it continues its row; any other begins a new one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from postgrad.data.environments import EpisodeRows, ReplyRequest, TokenRow, rollout_of
from postgrad.data.rows import read_data_rows
from postgrad.models.chat import Chat
from postgrad.records import Prompt, Rollout
from postgrad.sampling import RequestSequence
from postgrad.serving.messages import ChatMessages, read_message
from postgrad.serving.request_body import Refusal
from postgrad.system.files import disk_full_error, is_full

MOST_SESSIONS = 1000  # whose tokens are held in memory; one that was left longer ago begins new rows
MOST_FILES = 100_000  # sessions of a folder
MOST_BYTES = 2**28    # of a session's file
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class RecordedSession:
    """The conversations of one client."""

    def __init__(self, path: Path, chat: Chat):
        self.path, self.rows = path, EpisodeRows(chat, chat.inert)
        self.numbers: dict[TokenRow, int] = {}
        self.lock = asyncio.Lock()

    async def ask(self, talk: ChatMessages) -> ReplyRequest:
        """One call after the other: a long conversation is tokenized beside the event loop."""
        if self.path.exists() and self.path.stat().st_size > MOST_BYTES:
            raise Refusal(f"this session has {MOST_BYTES:,} bytes of conversations, the most that are "
                          "recorded: begin another one, with another X-Session-ID.", 429)
        try:
            async with self.lock:
                return await run_in_threadpool(self.rows.ask, talk.messages, talk.tools or ())
        except ValueError as error:
            raise Refusal(f"the messages can't be shown to the model: {error}", param="messages") from None

    def record_reply(self, request: ReplyRequest, sequence: RequestSequence, message: dict[str, Any]) -> None:
        """Records a finished reply. message: as the client receives it."""
        logp = [token.logp for token in sequence.sampled]
        step = sequence.weight_versions[-1][1] if sequence.weight_versions else 0
        row = self.rows.wrote(request, sequence.tokens, logp, step, read_message(message, "message."))
        goes_on = len(row.turns) > 1
        shown, asked = request.context, request.messages
        if goes_on and request.after:
            shown = row.tokens[row.turns[-2].start: row.turns[-2].end]
            asked = asked[len(request.after.messages):]
        line = {"row": self.numbers.setdefault(row, len(self.numbers)), "shown": shown,
                "role": request.added if goes_on else "prompt", "tokens": sequence.tokens, "logp": logp,
                "end": sequence.finish_reason, "policy_step": step, "asked": asked, "told": message,
                "temperature": sequence.request.sampling.temperature}
        before = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        except OSError as error:  # no half a line stays
            os.truncate(self.path, before)
            raise disk_full_error(self.path, error) if is_full(error) else error from error


class Recorder:
    """Sessions by name: the header X-Session-ID, else a hash of the client's key, which is a secret. Each is
    for the key that began it."""

    def __init__(self, folder: Path | str, chat: Chat):
        self.folder, self.chat = Path(folder), chat
        self.sessions: OrderedDict[str, RecordedSession] = OrderedDict()
        self.owners: dict[str, str] = {}  # of every session's name
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ValueError(f"--record {folder} is there already and not an empty folder: name another.")
        self.folder.mkdir(parents=True, exist_ok=True)

    def session(self, headers: Mapping[str, str]) -> RecordedSession:
        name, key = headers.get("x-session-id") or "", headers.get("authorization", "").partition(" ")[2]
        owner = short_hash(key.strip()) if key.strip() else "nobody"
        if not NAME.fullmatch(name):
            name = short_hash(name) if name else owner
        if self.owners.setdefault(name, owner) != owner:
            raise Refusal(f"the session {name} is another client's: choose another X-Session-ID.", 403)
        if len(self.owners) > MOST_FILES:
            del self.owners[name]
            raise Refusal(f"{MOST_FILES:,} sessions are recorded already, the most there are: go on with "
                          "one of yours.", 429)
        session = self.sessions.pop(name, None) or RecordedSession(self.folder / f"{name}.jsonl", self.chat)
        self.sessions[name] = session
        if len(self.sessions) > MOST_SESSIONS:
            self.sessions.popitem(last=False)
        return session


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_sessions(folder: Path | str) -> dict[str, Rollout]:
    """The sessions of a folder, each as a rollout."""
    sessions = {}
    for path in sorted(Path(folder).glob("*.jsonl")):
        rows: dict[int, TokenRow] = {}
        lines = [line for _, _, line in read_data_rows(path)]
        for line in lines:
            if line["row"] not in rows:
                rows[line["row"]] = TokenRow(line["shown"])
            else:
                rows[line["row"]].add(line["shown"], None, line["role"], None)
            rows[line["row"]].add(line["tokens"], line["logp"], "assistant", line["policy_step"])
        prompt = Prompt(id=path.stem, messages=tuple(lines[0]["asked"]), where=str(path))
        last = lines[-1]
        sessions[path.stem] = rollout_of([*rows.values()], prompt, text=last["told"]["content"] or "",
                                      finished=last["end"] == "stop", seed=0, episode=path.stem)
    return sessions
