"""The book as an EPUB: well-formed pages whose links lead somewhere; a part of a page as XHTML."""

import zipfile
from urllib.parse import urldefrag
from xml.etree import ElementTree

import pytest
from studio_browser import CHROMIUM

from postgrad.cli import main
from postgrad.studio import editions
from postgrad.studio.book.chapters import LAYERS, all_chapters
from postgrad.studio.editions import Xhtml, contents, write_epub

XHTML, MATHML = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/1998/Math/MathML}"


def as_xhtml(text, files=None, maths=None):
    page = Xhtml(files or {}, maths or {})
    page.feed(text)
    page.close()
    ElementTree.fromstring(f"<body>{page.text()}</body>")
    return page.text()


@pytest.mark.parametrize(("html", "wanted"), [
    ("<p>a<br>b &amp; c &lt; d</p>", "<p>a<br/>b &amp; c &lt; d</p>"),
    ("<form><p>gone</p></form><p>kept</p>", "<p>kept</p>"),
    ('<py-cell><p tabindex="0" hx-get="/x">kept</p></py-cell>', "<p>kept</p>"),
    ("<p hidden>gone</p><ol><li>one<li>two</ol>", "<ol><li>one<li>two</li></li></ol>"),
    ('<p id="a">1</p><p id="a">2</p>', '<p id="a">1</p><p>2</p>'),
    ('<a href="/book/3#x">in</a> <a href="/runs">out</a> <a href="https://a.b/c">far</a>',
     '<a href="book-3.xhtml#x">in</a> <span>out</span> <a href="https://a.b/c">far</a>'),
    ("<p>so \ue0000\ue001</p>", "<p>so <math/></p>"),
    ('<svg viewBox="0 0 2 1" role="img"><clipPath><path d="M0 0"/></clipPath></svg>',
     '<svg viewBox="0 0 2 1" xmlns="http://www.w3.org/2000/svg"><clipPath><path d="M0 0"></path></clipPath>'
     '</svg>'),
    ("<script>if (a < b) {}</script><p>kept</p>", "<p>kept</p>"),
])
def test_a_page_becomes_xhtml(html, wanted):
    assert as_xhtml(html, {"/book/3": "book-3.xhtml"}, {"0": "<math/>"}) == wanted


def test_the_contents_have_the_layers_below_their_chapter():
    found = contents([("a", "1. A", "/book/1"), ("b", "M", "/book/1/mathematics"),
                      ("c", "I", "/book/1/implementation"), ("d", "Glossary", "/book/glossary")])
    lists = ElementTree.fromstring(found.replace("epub:", "")).findall("ol/li")
    assert [len(item.findall("ol/li")) for item in lists] == [2, 0]


def test_without_a_browser_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(editions, "BROWSERS", ("no-such-browser",))
    monkeypatch.setattr(editions, "run_coroutine", lambda work: (work.close(), {"/book": "<p>a</p>"})[1])
    assert main(["studio", "export", str(tmp_path / "book.epub")]) == 2
    assert "equations are set by Chromium" in capsys.readouterr().err
    assert not (tmp_path / "book.epub").exists()


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="equations are set by chromium, which is not here")
def test_the_whole_book(tmp_path):
    written = write_epub(tmp_path / "book.epub", runs=tmp_path)
    with zipfile.ZipFile(tmp_path / "book.epub") as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        pages = {name.removeprefix("book/"): ElementTree.fromstring(archive.read(name))
                 for name in archive.namelist() if name.endswith(".xhtml")}
    assert len(pages) == written["pages"] + 1 >= len(all_chapters()) * len(LAYERS)
    marks = {name: {e.get("id") for e in page.iter()} for name, page in pages.items()}
    for name, page in pages.items():
        for link in page.iter(f"{XHTML}a"):
            file, mark = urldefrag(link.get("href"))
            assert "://" in file or (file or name) in pages, link.attrib
            assert "://" in file or not mark or mark in marks[file or name], link.attrib
    assert sum(len(list(page.iter(f"{MATHML}math"))) for page in pages.values()) >= written["equations"] > 400
    assert "pull one lever" in "".join(pages["book-1.xhtml"].itertext())
