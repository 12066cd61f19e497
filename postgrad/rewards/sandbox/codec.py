"""Plain values as bytes and back, between processes that do not trust each other. Stdlib alone.

None, bool, int, float, complex, str, bytes, and lists, tuples, dicts, sets and frozensets of these, decoded
to exactly these types: no class and no code ever travels. Tagged JSON: (1, 2) -> {"t": [1, 2]}.
"""

from __future__ import annotations

import json
from itertools import groupby

LONGEST, DEPTH, NODES = 1 << 21, 40, 200_000  # bytes of a message, nesting, values in all
ALIKE = 32  # keys of one dict or set with the same hash
_TAGS = {"t": tuple, "s": set, "z": frozenset}


class NotPlain(ValueError):
    """A value that cannot cross, or bytes that are none; the message says which."""


class TooBig(NotPlain):
    """Plain perhaps, but too long, too deep or of too many parts."""


def encode(value: object) -> bytes:
    """encode((1, {2})) -> b'{"t":[1,{"s":[2]}]}'; a subclass (Counter, namedtuple) as its plain type."""
    text = json.dumps(_tagged(value, DEPTH, [NODES]), separators=(",", ":")).encode()
    if len(text) > LONGEST:
        raise TooBig(f"a value of more than {LONGEST} bytes")
    return text


def _tagged(value: object, depth: int, left: list[int]) -> object:
    left[0] -= 1
    if depth == 0 or left[0] < 0:
        raise TooBig(f"a value nested over {DEPTH} deep, or of more than {NODES} parts")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if -(1 << 63) < value < 1 << 63 else {"i": hex(value)}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return {"c": [value.real, value.imag]}
    if isinstance(value, bytes):
        return {"b": value.hex()}
    if isinstance(value, list):
        return [_tagged(item, depth - 1, left) for item in value]
    if isinstance(value, dict):
        return {"d": [[_tagged(k, depth - 1, left), _tagged(v, depth - 1, left)] for k, v in value.items()]}
    for tag, kind in _TAGS.items():
        if isinstance(value, kind):
            return {tag: [_tagged(item, depth - 1, left) for item in value]}
    raise NotPlain(f"a {type(value).__name__} is not a plain value")


def decode(data: bytes) -> object:
    """The value of untrusted bytes; raises NotPlain on whatever `encode` does not write."""
    if len(data) > LONGEST:
        raise TooBig(f"a message of more than {LONGEST} bytes")
    try:
        return _plain(json.loads(data), DEPTH)
    except NotPlain:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError) as fault:
        raise NotPlain(f"bytes that are no value: {type(fault).__name__}") from None


def _check_hashes(keys: list[object]) -> None:
    """NotPlain where keys were chosen to share a hash, as multiples of 2^61 - 1 do: a set of them takes a
    time that grows with its square. Hashes are sorted, not hashed again."""
    if max((len(list(run)) for _, run in groupby(sorted(map(hash, keys)))), default=0) > ALIKE:
        raise NotPlain(f"{len(keys)} keys of which over {ALIKE} share a hash")


def _plain(node: object, depth: int) -> object:
    if depth == 0:
        raise TooBig(f"a value nested over {DEPTH} deep")
    if isinstance(node, list):
        return [_plain(item, depth - 1) for item in node]
    if not isinstance(node, dict):
        return node
    ((tag, body),) = node.items()
    if tag == "i" and isinstance(body, str):
        return int(body, 16)
    if tag == "b" and isinstance(body, str):
        return bytes.fromhex(body)
    if tag == "c" and isinstance(body, list):
        real, imag = body
        return complex(real, imag)
    if tag == "d" and isinstance(body, list):
        pairs = [(_plain(key, depth - 1), _plain(value, depth - 1)) for key, value in body]
        _check_hashes([key for key, _ in pairs])
        return dict(pairs)
    if tag in _TAGS and isinstance(body, list):
        items = [_plain(item, depth - 1) for item in body]
        if tag != "t":
            _check_hashes(items)
        return _TAGS[tag](items)
    raise NotPlain(f"an unknown tag {tag!r:.20}")
