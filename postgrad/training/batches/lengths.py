"""Rows that are longer than the model: refused together, or cut and counted."""

from __future__ import annotations

from collections.abc import Sequence

LISTED_ROWS = 20

TokenRow = tuple[list[int], list[bool]]  # tokens and mask


class TokenLimit:
    """What is done about units (a row, or the two rows of a pair) of more tokens than the model takes.

    truncate: refuse, or where tokens are cut: left, from the start, of both rows of a pair alike; right, from
    the end. limit.fit("chats.jsonl line 3", [(tokens, mask)]) gives the rows, cut or not; `settle` refuses
    those that were not to be cut, or had nothing left to learn from.
    """

    def __init__(self, most: int, truncate: str = "refuse"):
        self.most, self.truncate = most, truncate
        self.units = self.cut = self.refused = 0
        self.first: list[str] = []

    def fit(self, where: str, rows: Sequence[TokenRow]) -> Sequence[TokenRow]:
        self.units += 1
        longest = max(len(tokens) for tokens, _ in rows)
        if longest <= self.most:
            return rows
        keep = {"left": slice(longest - self.most, None), "right": slice(self.most)}.get(self.truncate)
        cut = [(tokens[keep], mask[keep]) for tokens, mask in rows] if keep else []
        if not cut or not all(any(mask) for _, mask in cut):
            self.refused += 1
            self.first += [f"{where} has {longest:,} tokens"][: LISTED_ROWS - len(self.first)]
            return rows
        self.cut += 1
        return cut

    def settle(self) -> None:
        other = {"refuse": "leave out or cut such rows with truncate=drop, left or right.",
                 "left": "leave it out with truncate=drop: without its start nothing is left to learn.",
                 "right": "leave it out with truncate=drop: without its end nothing is left to learn."}
        remedy = other[self.truncate]
        if self.refused == 1:
            raise ValueError(f"{self.first[0]}, over the model's {self.most:,}: shorten it, or {remedy}")
        if self.refused:
            more = f", the first {LISTED_ROWS} of them" if self.refused > LISTED_ROWS else ""
            listed = "".join(f"\n  {row}" for row in self.first)
            raise ValueError(f"{self.refused:,} of {self.units:,} rows are over the model's {self.most:,} "
                             f"tokens{more}:{listed}\nShorten them, or {remedy}")

    def note(self, name: str) -> tuple[str, ...]:
        """What is said of units that were cut."""
        where = "start" if self.truncate == "left" else "end"
        return (f"{name}: {self.cut:,} of {self.units:,} rows are cut at the {where}, for they are over the "
                f"model's {self.most:,} tokens",) if self.cut else ()
