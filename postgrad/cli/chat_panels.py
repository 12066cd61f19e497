"""Replies in a chat as they are sampled: under one another, side by side in panels, or silently."""

from __future__ import annotations

import sys
from functools import partial
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from postgrad.runs.display import clean, is_terminal

if TYPE_CHECKING:
    from rich.table import Table

    from postgrad.recipes.chat_session import ChatReply, ChatSession

WIDE, COLUMN = 100, 30  # columns of a terminal for panels side by side: at all, and of each model


def show_replies(session: ChatSession, rows: list[list[ChatReply]], quiet: bool) -> None:
    """Samples the replies, [sample][model], and shows them as they come."""
    wide = get_terminal_size().columns >= max(WIDE, COLUMN * len(session.models))
    if quiet:
        for reply in (reply for row in rows for reply in row):
            for _ in session.sample(reply):
                pass
    elif is_terminal(sys.stdout) and len(session.models) > 1 and wide:
        show_panels(session, rows)
    else:
        show_lines(session, rows)


def show_lines(session: ChatSession, rows: list[list[ChatReply]]) -> None:
    """One under another, with a heading where there are several."""
    for column in zip(*rows, strict=True):
        for i, reply in enumerate(column, 1):
            if len(session.models) * session.samples > 1:
                print(f"--- {clean(reply.model.heading)}"
                      + (f" ({i} of {session.samples})" if session.samples > 1 else ""))
            for piece in session.sample(reply):
                print(clean(piece), end="", flush=True)
            print("".join(f"\n{line}" for line in reply_notes(session, reply)))


def show_panels(session: ChatSession, rows: list[list[ChatReply]]) -> None:
    """Side by side, token by token: all models sample at the same time."""
    from rich.console import Console
    from rich.live import Live

    with Live(get_renderable=partial(panels, session, rows), console=Console(), refresh_per_second=12):
        for row in rows:
            sampling = [session.sample(reply) for reply in row]
            while sampling:
                sampling = [pieces for pieces in sampling if next(pieces, None) is not None]


def panels(session: ChatSession, rows: list[list[ChatReply]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, expand=True, show_edge=False, show_lines=session.samples > 1,
                 padding=(0, 2, 0, 0))
    for model in session.models:
        grid.add_column(Text(clean(model.heading), style="bold"), ratio=1, overflow="fold")
    for row in rows:
        grid.add_row(*(Text("\n").join([
            Text(clean(reply.transcript)),
            *(Text(line, style=verdict_colour(reply) if line.startswith("score") else "dim")
              for line in reply_notes(session, reply)),
        ]) for reply in row))
    return grid


def verdict_colour(reply: ChatReply) -> str:
    return "green" if reply.verdict is not None and reply.verdict.score > 0 else "red"


def reply_notes(session: ChatSession, reply: ChatReply) -> list[str]:
    """The lines below a reply: that it was cut, and how it was judged."""
    notes = ([f"(cut at {session.settings.max_new_tokens} tokens: --max-new-tokens)"]
             if reply.ended == "length" else [])
    if verdict := reply.verdict:
        notes.append(clean(f"not judged: {verdict.error}" if verdict.error
                           else f"score {verdict.score:g}: {verdict.reason}").replace("\n", " "))
    return notes
