"""What the tests of the book share: its pages as they are served, and the prose of a page with its links."""

import html.parser

from studio_small import client  # noqa: F401

from postgrad.studio.book.chapters import LAYERS, all_chapters

PAGES = [(chapter.number, layer) for chapter in all_chapters() for layer in LAYERS]


class Prose(html.parser.HTMLParser):
    """The running text of a page, piece by piece: (text, the term that it links to or "")."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.pieces, self.depth, self.term, self.skipped = [], 0, "", 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if self.depth or "prose" in (attrs.get("class") or "").split():
            self.depth += tag not in ("br", "input", "img")
        if self.depth and tag in ("code", "tex-math"):
            self.skipped += 1
        if tag == "a" and attrs.get("class") == "term":
            self.term = attrs["href"].partition("#")[2]

    def handle_endtag(self, tag):
        self.depth -= bool(self.depth)
        if self.depth and tag in ("code", "tex-math"):
            self.skipped -= 1
        if tag == "a":
            self.term = ""

    def handle_data(self, data):
        if self.depth and not self.skipped:
            self.pieces.append((data, self.term))
