"""JSON that may be anybody's: each field once, finite numbers, nested within a limit; else a ValueError."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any, NoReturn

DEPTH = 200
TEXTS = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


class FieldTwice(ValueError):
    """name: of the field."""

    def __init__(self, name: str):
        super().__init__(f"the field {name!r:.80} stands twice")
        self.name = name


def strict_json(text: str | bytes | bytearray, depth: int = DEPTH, *, surrogates: bool = False) -> Any:
    """strict_json('{"a": [1]}') -> {"a": [1]}; bytes are UTF-8. surrogates: allows half of a surrogate pair,
    "\\ud800"."""
    text = text if isinstance(text, str) else text.decode()
    try:
        if nesting(text) <= depth:
            value = json.loads(text, object_pairs_hook=refuse_twice, parse_constant=refuse_constant,
                               parse_float=finite_number)
            if "\\u" in text and not surrogates:
                json.dumps(value, ensure_ascii=False).encode()
            return value
    except RecursionError:
        pass
    except ValueError as fault:
        if "set_int_max_str_digits" not in str(fault):  # Python's sentence about its own setting
            raise
        raise ValueError(f"it has a number of over {sys.get_int_max_str_digits():,} digits") from None
    raise ValueError(f"it is nested over {depth} deep")


def nesting(text: str) -> int:
    """How deep the brackets of a JSON text are nested; at most their number."""
    if text.count("[") + text.count("{") <= DEPTH:
        return 0
    deepest = now = 0
    for bracket in re.findall(r"[][{}]", TEXTS.sub("", text)):
        now += 1 if bracket in "[{" else -1
        deepest = max(deepest, now)
    return deepest


def refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen = set[str]()
        for name, _ in pairs:
            if name in seen:
                raise FieldTwice(name)
            seen.add(name)
    return fields


def refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def finite_number(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"{digits:.40} is larger than any number that is read")
    return number


def shorten_value(value: object, quote: bool = True) -> str:
    """A value in at most 80 characters, for an error."""
    try:
        text = json.dumps(value, ensure_ascii=True) if quote else json.dumps(value)[1:-1]
    except (ValueError, TypeError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
