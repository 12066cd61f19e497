"""The book's numbers and its search.

    python tools/book.py build      compute the values of the text, the index of search, the kept biases
    python tools/book.py numbers    list every number of the prose; status 1 where one is not accounted for
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE)]

from postgrad.studio.book import chapters, computed, numbers, places  # noqa: E402
from postgrad.studio.book.methods import BIAS  # noqa: E402
from postgrad.studio.pages import STATIC  # noqa: E402

KEPT_BIAS = HERE / "docs" / "methods" / "bias.json"


def build() -> dict[Path, str]:
    """file -> its text. The values come first: the index is made of texts that hold them."""
    values = json.dumps(computed.compute_values(HERE), indent=1, ensure_ascii=False) + "\n"
    chapters.VALUES.write_text(values, encoding="utf-8")
    for kept in (chapters.stored_values, chapters.chapter, chapters.all_chapters):
        kept.cache_clear()
    return {chapters.VALUES: values, STATIC / "book-index.js": places.search_script(),
            BIAS: KEPT_BIAS.read_text()}


def main(words: list[str]) -> int:
    if words == ["build"]:
        for path, text in build().items():
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(HERE)}: {len(text)} bytes")
        return 0
    if words == ["numbers"]:
        rows = numbers.numbers_of_book()
        for row in rows:
            print(f"{row.kind:12} {row.number:>14}  {row.where}  {row.source}")
        count = Counter(row.kind for row in rows)
        print(f"{len(rows)} numbers: {count['computed']} computed, {count['cited']} cited, "
              f"{count['structural']} structural, {count['unaccounted']} unaccounted")
        return 1 if count["unaccounted"] else 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
