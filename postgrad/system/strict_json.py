"""JSON from others, read strictly: no repeated keys, no NaN or infinity, no half of a surrogate pair."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any


def unique_fields(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dict; ValueError names the first key that stands twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"the field {repeated_name(pairs)!r:.100} stands twice")
    return fields


def repeated_name(pairs: Sequence[tuple[str, Any]]) -> str:
    """The first key that was there before."""
    first = {name: at for at, (name, _) in reversed([*enumerate(pairs)])}
    return next(name for at, (name, _) in enumerate(pairs) if first[name] < at)


def refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def finite_number(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"{digits:.40} is larger than any number that is read")
    return number


def strict_json(text: str) -> Any:
    """strict_json('{"a": 1, "a": 2}') raises ValueError, and so do NaN, 1e999 and "\\ud800"."""
    value = json.loads(text, object_pairs_hook=unique_fields, parse_constant=refuse_constant,
                       parse_float=finite_number)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value
