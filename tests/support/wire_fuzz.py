"""Spoilt JSON from a seed: a value of another kind, one that is missing, a text that is torn or has a byte
changed."""

import copy
import json
import random

OTHERS = (None, True, -1, 0, 1.5, 1e308, 10**30, 10**4000, "", "x", "\ud800", [], [[]], {}, {"a": 1}, [None],
          "4", -1e308, 2**31, 2**63, ["x"] * 3)


def places(value, path=()):
    """The path of every value inside a value."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield from places(part, (*path, key))


def spoilt(value, seed):
    """The bytes of a value in which something is wrong, or nothing that matters."""
    rng = random.Random(f"wire/{seed}")
    value = copy.deepcopy(value)
    for _ in range(rng.randrange(1, 3)):
        path = rng.choice([*places(value)])
        if not path:
            value = rng.choice(OTHERS)
            break
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        if rng.random() < 0.2:
            del holder[path[-1]]
        else:
            holder[path[-1]] = rng.choice(OTHERS)
    text = bytearray(json.dumps(value).encode())
    if rng.random() < 0.2:
        del text[rng.randrange(len(text)):]
    if text and rng.random() < 0.2:
        text[rng.randrange(len(text))] = rng.randrange(256)
    return bytes(text)
