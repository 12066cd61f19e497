"""Where things stand: the sections of the book, the index of terms, and what search looks through."""

from __future__ import annotations

import json
from typing import NamedTuple

from postgrad.studio.book import blocks, inline
from postgrad.studio.book.chapters import LAYERS, Chapter, all_chapters, book_sources, chapter
from postgrad.studio.book.glossary import terms, terms_in

INDEX = "window.bookIndex = "  # a classic script: pages opened from files can't fetch


class Section(NamedTuple):
    """A part of a layer under one heading. kind: where it belongs, in words. Search reads this order."""

    address: str
    title: str
    kind: str
    text: str


def chapter_sections(found: Chapter) -> list[Section]:
    """The parts of a chapter, layer by layer; what stands above the first heading is the chapter's own."""
    out = []
    for layer, page in found.layers.items():
        where = f"Chapter {found.number} · {LAYERS[layer]}" if found.number else "The book"
        address = found.layer_address(layer)
        title, mark, words = found.title, "", [inline.plain_text(found.hook)]
        for block in page:
            if block.kind == "h2":
                out.append(Section(address + mark, title, where, " ".join(words)))
                title, mark, words = inline.plain_text(block.pieces), f"#{block.anchor}", []
                continue
            words += block_words(block, found)
        out.append(Section(address + mark, title, where, " ".join(words)))
    return out


def block_words(block: blocks.TextBlock, found: Chapter) -> list[str]:
    """The words of a block and of what is in it; a question's too."""
    if block.kind == "check":
        return [inline.plain_text(found.checks[block.argument].ask)]
    own = [inline.plain_text(p) for p in blocks.block_texts(block) if block.kind != "tex"]
    return own + [words for inner in block.inner for words in block_words(inner, found)]


def term_index() -> dict[str, list[Section]]:
    """term -> the sections that use it, in the order of the book."""
    out: dict[str, list[Section]] = {name: [] for name in terms()}
    for found in all_chapters():
        for section in chapter_sections(found):
            for name in terms_in(f"{section.title} {section.text}"):
                out[name].append(section)
    return {name: where for name, where in out.items() if where}


def search_entries() -> list[Section]:
    """Everything that search looks through: sections, terms, rows, instruments, cells, sources."""
    from postgrad.methods import METHODS
    from postgrad.studio.cells.catalogue import CELLS
    from postgrad.studio.instruments import INSTRUMENTS
    out = [s for found in (chapter("landing"), *all_chapters()) for s in chapter_sections(found)]
    out += [Section(f"/book/glossary#{t.anchor}", t.name, "Glossary",
                    " ".join([inline.plain_text(t.means), *(["Also: " + ", ".join(t.forms[1:]) + "."]
                                                           if t.forms[1:] else [])]))
            for t in terms().values()]
    out += [Section(f"/book/methods/{row.name}", row.name, "Method", f"{row.about}. {row.paper}")
            for row in METHODS.values()]
    out += [Section(f"/instruments/{i.name}", i.title, "Instrument", i.about) for i in INSTRUMENTS.values()]
    out += [Section(f"/lab/{c.name}", c.title, "Cell", c.claim) for c in CELLS.values()]
    return out + [Section(f"/book/sources#{key}", s["title"], "Source", f"{s['who']} {s['year']}")
                  for key, s in book_sources().items()]


def search_script() -> str:
    """The index of search as a script: rows of address, title, kind, text."""
    rows = ",\n".join(json.dumps(section, ensure_ascii=False) for section in search_entries())
    return f"// Made by `make docs`.\n{INDEX}[\n{rows}\n];\n"
