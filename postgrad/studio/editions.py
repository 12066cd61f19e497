"""The book as one file: an EPUB, written here, and a PDF, printed by Chromium. Both are made of the pages
that the studio serves.

Equations are set by KaTeX in Chromium, as MathML, for an EPUB runs no script; figures stand as they begin.
Left out on purpose: what a page does when it is used; an EPUB has the questions with their answers below.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import uuid
import zipfile
from datetime import UTC, datetime
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from postgrad.studio.app import create_studio
from postgrad.studio.book.chapters import LAYERS, all_chapters
from postgrad.studio.export import HOST, TOKEN, get_from_app, run_coroutine
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import STATIC
from postgrad.studio.security import COOKIE

TITLE = "Reinforcement learning for language models"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
MAIN = re.compile(r"<main\b[^>]*>(.*)</main>", re.S)
MARK = re.compile("\ue000(\\d+)\ue001")  # an equation, by its number
TEX = re.compile(r"<tex-math( display)?>(.*?)</tex-math>", re.S)
KEPT = set("section h1 h2 h3 h4 p ul ol li dl dt dd table thead tbody tr th td caption pre code em strong "
           "a span div blockquote mark br hr sub sup kbd abbr details summary small".split())
DRAWN = set("svg g path line rect circle ellipse polygon polyline text tspan title desc defs use marker "
            "clippath lineargradient stop pattern mask".split())
GONE = set("script style nav form button select textarea template noscript output link input".split())
AS = {"fieldset": "div", "legend": "p", "label": "span", "figure": "div", "figcaption": "div"}
VOID = {"br", "hr", "img", "input", "link", "meta"}
CASED = {name.lower(): name for name in (
    "viewBox preserveAspectRatio clipPath linearGradient markerWidth markerHeight refX refY textLength "
    "gradientUnits patternUnits clipPathUnits markerUnits pathLength lengthAdjust").split()}
STYLE = """body { font-family: serif; line-height: 1.5; margin: 0 5%; }
h1, h2, h3 { line-height: 1.2; text-align: left; }
table { border-collapse: collapse; font-size: 0.85em; }
th, td { border-bottom: 1px solid #999; padding: 0.3em 0.6em; text-align: left; }
pre { white-space: pre-wrap; font-size: 0.8em; } .kicker, .note { font-size: 0.85em; color: #555; }
.misconception, .derivation, .check { border-left: 3px solid #999; padding-left: 1em; margin: 1.5em 0; }
svg { width: 100%; height: auto; max-width: 36em; fill: none; stroke-width: 1.5; }
svg text { fill: currentColor; stroke: none; font-size: 12px; }
svg path, svg line, svg polyline { stroke: currentColor; }
svg rect, svg circle, svg polygon { fill: currentColor; fill-opacity: 0.35; }
.sr { display: none; } .holds { font-weight: bold; }
"""
PRINT = """@page { size: A4; margin: 18mm 16mm; }
main { padding: 0 !important; } .layer { break-before: page; }
.instrument form, .instrument .acts, nav, .acts, .busy, button { display: none !important; }
.instrument .plate { display: block !important; } figure, fieldset, pre { break-inside: avoid; }
"""


def browser_path() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise ValueError(f"equations are set by Chromium, and there is none here: install one of "
                         f"{', '.join(BROWSERS)}.")
    return found


def run_browser(page: Path, *what: str) -> str:
    """A page opened without a window."""
    root = ["--no-sandbox"] if hasattr(os, "getuid") and os.getuid() == 0 else []
    flags = ["--headless=new", "--disable-gpu", "--allow-file-access-from-files", *root, *what]
    done = subprocess.run([browser_path(), *flags, page.as_uri()], capture_output=True, text=True,
                          timeout=600)
    if done.returncode:
        raise ValueError(f"Chromium could not open the book: {done.stderr.strip().splitlines()[-1][:200]}")
    return done.stdout


async def read_pages(runs: Path) -> dict[str, str]:
    """Address -> what stands in <main>, in the order of reading."""
    app = create_studio(runs=runs, token=TOKEN, hosts=(HOST,))
    headers = {"host": HOST, "cookie": f"{COOKIE}={TOKEN}", "x-postgrad-export": "1"}
    addresses = ["/book", *(chapter.layer_address(layer) for chapter in all_chapters() for layer in LAYERS),
                 "/book/glossary", "/book/sources"]
    found = {}
    for address in addresses:
        status, _, body = await get_from_app(app, address, headers=headers)
        main = MAIN.search(body.decode())
        assert status == 200 and main, f"{address} did not answer with a page ({status})"
        found[address] = main[1]
    return found


def page_titles() -> dict[str, str]:
    """What each page is called in the contents."""
    chapters = {chapter.layer_address(layer): f"{chapter.number}. {chapter.title}" if layer == "intuition"
                else words for chapter in all_chapters() for layer, words in LAYERS.items()}
    return {"/book": TITLE} | chapters | {"/book/glossary": "Glossary", "/book/sources": "Sources"}


# EPUB

class Xhtml(HTMLParser):
    """A page as XHTML: what a book has no use for is left out, with all that is in it; of other elements that
    it does not know the content stays."""

    def __init__(self, files: dict[str, str], maths: dict[str, str]):
        super().__init__(convert_charrefs=True)
        self.files, self.maths = files, maths
        self.out: list[str] = []
        self.ids: set[str] = set()
        self.open: list[tuple[str, str]] = []  # tag as it came, as it is written; "" where it is not

    def text(self) -> str:
        return "".join(self.out)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        hidden = tag in GONE or "hidden" in given or (self.open and self.open[-1][1] == "-")
        drawn = tag in DRAWN and (tag == "svg" or self.inside("svg"))
        name = AS.get(tag, tag)
        written = "-" if hidden else CASED.get(name, name) if drawn or name in KEPT else ""
        if tag == "a" and not hidden:
            given, written = self.link(given, written)
        if tag not in VOID:
            self.open.append((tag, written))
        if written not in ("", "-"):
            ends = "/>" if tag in VOID else ">"
            self.out.append(f"<{written}{self.attributes(given, drawn)}{ends}")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and tag in {name for name, _ in self.open}:
            name, written = self.open.pop()
            if written not in ("", "-"):
                self.out.append(f"</{written}>")
            if name == tag:
                break

    def handle_data(self, data: str) -> None:
        if not (self.open and self.open[-1][1] == "-"):
            self.out.append(MARK.sub(lambda m: self.maths[m[1]], escape(data, quote=False)))

    def inside(self, tag: str) -> bool:
        return any(name == tag for name, _ in self.open)

    def link(self, given: dict[str, str], written: str) -> tuple[dict[str, str], str]:
        """An address in the book leads to its file; another one of the studio is no link."""
        target = urlsplit(given.get("href", ""))
        if target.scheme in ("http", "https") or not target.path and target.fragment:
            return given, written
        file = self.files.get(target.path.rstrip("/"))
        mark = f"#{target.fragment}" if target.fragment else ""
        return ({**given, "href": file + mark}, written) if file else ({}, "span")

    def attributes(self, given: dict[str, str], drawn: bool) -> str:
        if given.get("id") in self.ids:
            given = {k: v for k, v in given.items() if k != "id"}
        self.ids.add(given.get("id", ""))
        wanted = ("id", "class", "href", "scope", "colspan", "rowspan")
        kept = {CASED.get(k, k): v for k, v in given.items() if k in wanted or drawn and not k.startswith((
            "aria-", "data-", "on", "hx-", "role", "tabindex", "style", "focusable"))}
        if drawn and "viewBox" in kept:
            kept["xmlns"] = "http://www.w3.org/2000/svg"
        return "".join(f' {k}="{escape(v)}"' for k, v in kept.items() if v or k != "id")


def equations(pages: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The pages with a mark for each equation, and the MathML of each mark, set by KaTeX in one visit."""
    asked: dict[tuple[bool, str], int] = {}

    def mark(match: re.Match[str]) -> str:
        key = bool(match[1]), unescape(match[2]).strip()
        return f"\ue000{asked.setdefault(key, len(asked))}\ue001"
    marked = {address: TEX.sub(mark, text) for address, text in pages.items()}
    wanted = json.dumps([[display, tex] for display, tex in asked]).replace("<", "\\u003c")
    katex = (STATIC / "vendor" / "katex" / "katex.min.js").as_uri()
    script = ("document.body.innerHTML = " + wanted + ".map(([display, tex]) => katex.renderToString(tex, "
              "{ displayMode: display, output: 'mathml', throwOnError: false, strict: 'ignore' })).join('')")
    with TemporaryDirectory() as folder:
        page = Path(folder) / "equations.html"
        page.write_text(f'<!doctype html><meta charset="utf-8"><body><script src="{katex}"></script>'
                        f"<script>{script}</script>", encoding="utf-8")
        shown = run_browser(page, "--dump-dom")
    found = re.findall(r"<math\b.*?</math>", shown, re.S)
    if len(found) != len(asked):
        raise ValueError(f"of {len(asked)} equations {len(found)} were set.")
    return marked, {str(i): text.replace("&nbsp;", "&#160;") for i, text in enumerate(found)}


def write_epub(path: Path, *, runs: Path) -> JsonDict:
    """-> {"pages", "bytes", "equations"}"""
    pages, titles = run_coroutine(read_pages(runs)), page_titles()
    marked, maths = equations(pages)
    files = {address: f"{address.strip('/').replace('/', '-')}.xhtml" for address in pages}
    books = {address: Xhtml(files, maths) for address in pages}
    for address, text in marked.items():
        books[address].feed(text)
        books[address].close()
    ids = {files[address]: book.ids for address, book in books.items()}

    def existing(address: str, text: str) -> str:
        """Marks that are nowhere lead to the page."""
        def turn(match: re.Match[str]) -> str:
            file, _, mark = match[1].partition("#")
            there = not mark or mark in ids.get(file or files[address], ())
            return match[0] if there or "://" in file else f'href="{file or files[address]}"'
        return re.sub(r'href="([^"]*)"', turn, text)
    bodies = {files[address]: existing(address, book.text()) for address, book in books.items()}
    entries = [(files[address], titles[address], address) for address in pages]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("mimetype"), "application/epub+zip")
        archive.writestr("META-INF/container.xml", CONTAINER)
        archive.writestr("book/style.css", STYLE)
        archive.writestr("book/contents.xhtml", document("Contents", contents(entries)))
        archive.writestr("book/package.opf", package(bodies))
        for file, title, _ in entries:
            archive.writestr(f"book/{file}", document(title, bodies[file]))
    return {"pages": len(pages), "bytes": path.stat().st_size, "equations": len(maths)}


CONTAINER = """<?xml version="1.0" encoding="utf-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="book/package.opf" media-type="application/oebps-package+xml"/></rootfiles></container>
"""


def document(title: str, body: str) -> str:
    return ('<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n'
            '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="en" '
            f'xml:lang="en"><head><title>{escape(title)}</title>'
            '<link rel="stylesheet" href="style.css"/></head>\n'
            f"<body>{body}</body></html>\n")


def contents(entries: list[tuple[str, str, str]]) -> str:
    """The contents: each chapter with its two further layers below."""
    items: list[tuple[str, list[str]]] = []
    for file, title, address in entries:
        link = f'<a href="{file}">{escape(title)}</a>'
        if address.count("/") == 3:  # a further layer
            items[-1][1].append(f"<li>{link}</li>")
        else:
            items.append((link, []))
    lines = [f"<li>{link}{'<ol>' + ''.join(below) + '</ol>' if below else ''}</li>" for link, below in items]
    return f'<nav epub:type="toc"><h1>Contents</h1><ol>{"".join(lines)}</ol></nav>'


def package(bodies: dict[str, str]) -> str:
    def properties(text: str) -> str:
        found = " ".join(name for name, tag in (("mathml", "<math"), ("svg", "<svg")) if tag in text)
        return f' properties="{found}"' if found else ""
    items = "".join(f'<item id="p{i}" href="{file}" media-type="application/xhtml+xml"{properties(text)}/>\n'
                    for i, (file, text) in enumerate(bodies.items()))
    spine = "".join(f'<itemref idref="p{i}"/>' for i in range(len(bodies)))
    name = uuid.uuid5(uuid.NAMESPACE_URL, "".join(bodies.values()))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"""<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id" xml:lang="en">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">urn:uuid:{name}</dc:identifier>
<dc:title>{TITLE}</dc:title><dc:language>en</dc:language><dc:creator>postgrad</dc:creator>
<meta property="dcterms:modified">{now}</meta></metadata>
<manifest><item id="contents" href="contents.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="style" href="style.css" media-type="text/css"/>
{items}</manifest><spine><itemref idref="contents"/>{spine}</spine></package>
"""


# PDF

def write_pdf(path: Path, *, runs: Path) -> JsonDict:
    """-> {"pages": of the book, "bytes"}"""
    pages = run_coroutine(read_pages(runs))
    static = STATIC.as_uri()
    sheets = "".join(f'<link rel="stylesheet" href="{static}/{name}">' for name in (
        "vendor/katex/katex.min.css", "studio.css", "instruments.css", "book.css", "cells.css"))
    scripts = "".join(f'<script src="{static}/{name}"></script>' for name in (
        "vendor/katex/katex.min.js", "vendor/htmx/htmx.min.js", "quantities.js", "studio.js"))
    body = "".join(f'<section class="layer">{re.sub(r"<script.*?</script>", "", text, flags=re.S)}</section>'
                   for text in pages.values())
    with TemporaryDirectory() as folder:
        page = Path(folder) / "book.html"
        page.write_text('<!doctype html><html lang="en" data-exported data-theme="light">'
                        f'<meta charset="utf-8"><title>{TITLE}</title>{sheets}<style>{PRINT}</style>'
                        f"<body><main>{body}</main>{scripts}", encoding="utf-8")
        run_browser(page, "--no-pdf-header-footer", f"--print-to-pdf={path.resolve()}")
    return {"pages": len(pages), "bytes": path.stat().st_size}
