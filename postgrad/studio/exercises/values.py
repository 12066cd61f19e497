"""What an answer returns, as plain values: tensors, arrays and tuples become lists; compared and shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

DEEP, LONG = 6, 1000  # nesting, and items of one list
HUGE = 1e5  # a number of this size has been divided by next to nothing


def to_plain(value: object, deep: int = DEEP) -> object:
    """Numbers, texts, None, and lists and dicts of these; whatever else as its name: "a Module"."""
    if hasattr(value, "tolist"):  # a tensor or an array, of any size
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Fraction | Decimal):
        return float(value)
    if deep and isinstance(value, Mapping):
        return {to_plain(key, 0): to_plain(item, deep - 1) for key, item in value.items()}
    if deep and isinstance(value, Iterable) and not isinstance(value, bytes):
        return [to_plain(item, deep - 1) for _, item in zip(range(LONG), value, strict=False)]
    return f"a {type(value).__name__}"


def near(a: object, b: object, tolerance: float) -> bool:
    """Equal, numbers to the tolerance; nan equals nothing."""
    if isinstance(a, bool | int | float) and isinstance(b, bool | int | float):
        return a == b or abs(a - b) <= tolerance * (1 + abs(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(near(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(near(a[key], b[key], tolerance) for key in a)
    return type(a) is type(b) and a == b


def tame(value: object) -> bool:
    """No nan and nothing that has blown up anywhere in it."""
    if isinstance(value, dict):
        value = list(value.values())
    return all(map(tame, value)) if isinstance(value, list) else (
        not isinstance(value, float) or abs(value) < HUGE)


def value_text(value: object, most: int = 400) -> str:
    """For people: four digits of a number, and not too much."""
    text = _shown(value)
    return text if len(text) <= most else text[:most] + " …"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_shown(key)}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        left, right = "()" if isinstance(value, tuple) else "[]"
        return left + ", ".join(map(_shown, value)) + right
    return getattr(value, "__name__", None) or repr(value)


def value_kind(value: object) -> str:
    """What kind of value it is, in words: "a number", "3 numbers", "3 values"."""
    if isinstance(value, bool | int | float):
        return "a number"
    if isinstance(value, list):
        if len(value) == 1:
            return f"a list of {value_kind(value[0])}"
        return f"{len(value)} {'numbers' if all(isinstance(x, int | float) for x in value) else 'values'}"
    return "a text" if isinstance(value, str) else "a dict" if isinstance(value, dict) else "nothing"
