"""The text of a sequence while its tokens come: pieces that join to the whole, ended before a stop text."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class IncrementalDetokenizer:
    """add(*tokens) -> the text that may be shown; end() -> what was held back.

    A character cut between two tokens is held back, and so is what may be the beginning of a stop text. Only
    the last few tokens are decoded for each piece.

    text: all that was decoded so far. stopped: a stop text has come; it is left out, and so is all that
    follows.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()):
        self.decode, self.stop, self.longest = decode, tuple(stop), max(map(len, stop), default=0)
        self.tokens: list[int] = []
        self.first = self.read = 0  # tokens[first:read] are decoded; with them the next ones are decoded
        self.text, self.shown, self.stopped = "", 0, False

    def add(self, *tokens: int) -> str:
        self.tokens += tokens
        if self.stopped:
            return ""
        piece = self.undecoded()
        if piece.endswith("\ufffd"):
            return ""
        self.take(piece)
        return self.show(max(self.shown, len(self.text) - max(0, self.longest - 1)))

    def end(self) -> str:
        if not self.stopped:
            self.take(self.undecoded())
        return self.show(len(self.text))

    def undecoded(self) -> str:
        """The text of the tokens that were not decoded yet."""
        before = self.decode(self.tokens[self.first: self.read])
        return self.decode(self.tokens[self.first:])[len(before):]

    def take(self, piece: str) -> None:
        # decoders may treat the first token of a text in another way: one with text stands before the next
        if self.read > self.first and self.decode(self.tokens[self.first: self.read]):
            self.first = self.read
        self.read = len(self.tokens)
        start = max(0, len(self.text) - self.longest + 1)
        self.text += piece
        stops = [at for stop in self.stop if (at := self.text.find(stop, start)) >= 0]
        if stops:
            self.text, self.stopped = self.text[: min(stops)], True

    def show(self, to: int) -> str:
        to = len(self.text) if self.stopped else to
        piece, self.shown = self.text[self.shown: to], max(self.shown, to)
        return piece
