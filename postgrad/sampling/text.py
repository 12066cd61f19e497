"""A reply's text while its tokens come: pieces that join to the whole, ended before a stop text."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Text:
    """text.add(token) -> the piece that may be shown; text.end() -> what was held back.

    A character cut between two tokens waits for the rest, and what may be the beginning of a stop text waits
    until it is one or is none. Only the last few tokens are decoded for each piece.

    whole: all that was read so far. stopped: a stop text has come; it is left out of the pieces, and so is
    all that follows.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()):
        self.decode, self.stop, self.longest = decode, tuple(stop), max(map(len, stop), default=0)
        self.tokens: list[int] = []
        self.first = self.read = 0  # tokens[first:read] have been read; with them the next ones are decoded
        self.whole, self.shown, self.stopped = "", 0, False

    def add(self, token: int) -> str:
        self.tokens.append(token)
        if self.stopped:
            return ""
        piece = self.fresh()
        if piece.endswith("\ufffd"):
            return ""
        self.take(piece)
        return self.show(max(self.shown, len(self.whole) - max(0, self.longest - 1)))

    def end(self) -> str:
        if not self.stopped:
            self.take(self.fresh())
        return self.show(len(self.whole))

    def fresh(self) -> str:
        """The text of the tokens that were not read yet."""
        before = self.decode(self.tokens[self.first: self.read])
        return self.decode(self.tokens[self.first:])[len(before):]

    def take(self, piece: str) -> None:
        # decoders may treat the first token of a text in another way: one with text stands before the next
        if self.read > self.first and self.decode(self.tokens[self.first: self.read]):
            self.first = self.read
        self.read = len(self.tokens)
        start = max(0, len(self.whole) - self.longest + 1)
        self.whole += piece
        found = [at for stop in self.stop if (at := self.whole.find(stop, start)) >= 0]
        if found:
            self.whole, self.stopped = self.whole[: min(found)], True

    def show(self, to: int) -> str:
        to = len(self.whole) if self.stopped else to
        piece, self.shown = self.whole[self.shown: to], max(self.shown, to)
        return piece
