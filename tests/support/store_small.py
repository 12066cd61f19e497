"""Items for the tests of the preference store."""

import json

from postgrad.data.store import Item

ITEMS = [Item.of(({"role": "user", "content": f"Question {n}?"},), (f"yes {n}", f"no {n}"), "test")
         for n in range(12)]
NAMES = ("ann", "ben", "cleo", "dan")


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
