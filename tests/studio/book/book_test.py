"""The book without a browser: numbers accounted for, terms linked where they are first used, source cut by
name, right answers right, every page there, search and export."""

import itertools
import json
import re
import subprocess
import sys
from html import unescape

import pytest
from book_answers import NUMBERS, answered
from book_small import PAGES, Prose, client
from paths import ROOT

from postgrad.studio import export
from postgrad.studio.book import blocks, chapters, computed, glossary, inline, methods, numbers, places
from postgrad.studio.instruments import INSTRUMENTS
from postgrad.studio.instruments.base import function_source
from postgrad.studio.pages import STATIC

# words of the art: whoever uses one in the book must have it in the glossary
ART = """policy reward token prompt rollout episode trajectory bandit advantage baseline critic ratio clip
entropy logit gradient SFT RLHF RLVR PPO DPO GRPO KL RL REINFORCE sigmoid labeller preference verifier
reference margin ensemble calibration sycophancy pretraining exploration alignment""".split()
KNOWN = {"GPT", "AI", "AIME", "CPU", "GPU", "METR", "GB", "OK", "A", "I"}  # names, no terms


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    return client(tmp_path_factory.mktemp("book"))


# numbers that cannot lie

def test_every_number_of_the_prose_is_computed_or_cited():
    rows = numbers.numbers_of_book()
    assert [row for row in rows if row.kind == "unaccounted"] == []
    kinds = [row.kind for row in rows]
    assert kinds.count("computed") > 50 and kinds.count("cited") > 5
    known = chapters.book_sources()
    assert {row.source for row in rows if row.kind == "cited"} <= known.keys()


@pytest.mark.parametrize(("text", "found"), [
    ("A loss of 0.69.", ["0.69"]), ("It holds four models.", []), ("It holds seven models.", ["seven"]),
    ("see chapter 3", []), ("see chapter 12", ["12"]), ("R1-Zero and GSM8K", []),
    ("$1 - \\epsilon$ and $3x$", ["3"]),
    ("{{gap:2}} and [33,000](cite:ouyang2022) and [@ouyang2022]", []), ("`beta=0.1`", ["0.1"]),
    ("$x = {{gap}}$", []), ("**2 of 3**", ["2", "3"]), ("[7 pages](/book)", ["7"]),
])
def test_a_number_in_prose_is_found(text, found):
    rows = numbers.numbers_in_pieces(inline.parse_inline(text, {"gap": 1.5}), "here")
    assert [row.number for row in rows if row.kind == "unaccounted"] == found


def test_prose_and_value_cannot_part():
    """What is kept is what the library computes today; a value that is not there stops the page."""
    kept, now = json.loads(chapters.VALUES.read_text()), computed.compute_values(ROOT)
    assert kept.keys() == now.keys()
    for name in now:
        assert kept[name].keys() == now[name].keys()
        for key, value in now[name].items():
            wanted = pytest.approx(value, rel=1e-6, abs=1e-9) if isinstance(value, float) else value
            assert kept[name][key] == wanted, f"{name}: {key}: run `make docs`"
    with pytest.raises(LookupError, match="names a value 'nowhere'"):
        inline.parse_inline("{{nowhere}}", {})


def test_what_is_built_is_fresh():
    script = (STATIC / "book-index.js").read_text()
    assert script == places.search_script(), "run `make docs`"


@pytest.mark.parametrize(("value", "how", "text"), [
    (3, "", "3"), (0.69314718, "4", "0.6931"), (-0.5, "2", "−0.50"), (0.267, "%", "27\u00a0%"),
    (0.9525, "%1", "95.2\u00a0%"),
    (4, "word", "four"), (40, "word", "40"), (True, "yes", "yes"), (0.3, "+1", "+0.3"), (1.0, "", "1"),
])
def test_a_value_in_words(value, how, text):
    assert inline.format_value(value, how) == text


# the grammar

def test_blocks_and_what_is_wrong_with_them():
    page = blocks.read_blocks("## A title\nWords\ngo on.\n- one\n- two\n  more\n:::misconception All *is* "
                              "well.\nNo.\n:::\n| a | b |\n| 1 | 2 |\n$$ x\n= y $$\n::cell dpo\n", {})
    assert [b.kind for b in page] == ["h2", "p", "ul", "misconception", "grid", "tex", "cell"]
    assert page[0].anchor == "a-title" and inline.plain_text(page[1].pieces) == "Words go on."
    assert inline.plain_text(page[2].rows[1][0]) == "two more" and page[5].pieces[0].text == "x\n= y"
    for text, said in (("::nothing x", "there is no 'nothing'"), (":::note\nx", "is not closed"),
                       ("$$ x", "not closed"), (":::\n", "closes nothing")):
        with pytest.raises(ValueError, match=said):
            blocks.read_blocks(text, {})


# pages

@pytest.mark.parametrize(("number", "layer"), PAGES)
def test_a_chapter_answers_in_each_layer(studio, number, layer):
    chapter = next(c for c in chapters.all_chapters() if c.number == number)
    page = studio.get(f"/book/{number}/{layer}")
    assert page.status_code == 200 and page.text.count('aria-current="page">' + chapters.LAYERS[layer]) == 1
    assert f'href="{chapter.layer_address(layer)}" data-layer="{layer}" aria-current' in page.text
    if layer == "intuition":
        assert studio.get(f"/book/{number}").text.count('class="check"') >= 3
        assert "::" not in "".join(text for text, _ in Prose(page.text).pieces)


@pytest.mark.parametrize("path", ["/book", "/book/glossary", "/book/index", "/book/sources", "/book/search",
                                  "/book/methods", "/book/methods/dpo", "/book/methods/grpo"])
def test_the_other_pages(studio, path):
    assert studio.get(path).status_code == 200


def test_a_number_may_be_missing_between_two_chapters(studio):
    """Neighbours are those that are there; what is not there is said, and linked nowhere."""
    numbers = [chapter.number for chapter in chapters.all_chapters()]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 10
    for number in range(1, 11):
        there = number in numbers
        assert studio.get(f"/book/{number}").status_code == (200 if there else 404)
        assert (f'href="/book/{number}"' in studio.get("/book").text) is there
    for before, after in itertools.pairwise(numbers):
        assert f'<a href="/book/{after}" data-chapter>{after}. ' in studio.get(f"/book/{before}").text
        assert f'<a href="/book/{before}" data-chapter>← {before}. ' in studio.get(f"/book/{after}").text


def test_what_is_not_there_is_said(studio):
    assert "no chapter 99" in studio.get("/book/99").text
    assert studio.get("/book/1/poetry").status_code == studio.get("/book/methods/none").status_code == 404


def test_every_method_has_a_page(studio):
    from postgrad.methods import METHODS
    from postgrad.methods.pages import method_page
    table = studio.get("/book/methods").text
    for name in METHODS:
        assert f'href="/book/methods/{name}"' in table
        assert methods.row_source(name)["text"].count(f'name="{name}"') == 1
    page = studio.get("/book/methods/grpo").text
    near = [other.name for other in method_page(METHODS["grpo"], METHODS).neighbours]
    for words in ("group_zscore", "2402.03300", "exact gradient", "population std", "0.04", *near):
        assert words in page


# terms

def test_a_term_is_linked_where_it_is_first_used(studio):
    finder, forms = glossary.term_pattern()
    for chapter in chapters.all_chapters():
        pieces = Prose(studio.get(chapter.address).text).pieces
        assert len(pieces) > 100
        seen, linked = set(), set()
        for text, term in pieces:
            if term:
                assert term not in linked, f"{term} is linked a second time"
                linked.add(term)
                seen.add(forms[text.lower()])
                continue
            for match in finder.finditer(text):
                name = forms[match[0].lower()]
                assert name in seen, f"chapter {chapter.number}: {match[0]!r} is used before it is linked"
        assert len(linked) > 15


def test_no_term_is_left_undefined(studio):
    _, forms = glossary.term_pattern()
    assert {word.lower() for word in ART} <= forms.keys()
    for chapter in chapters.all_chapters():
        text = " ".join(text for text, _ in Prose(studio.get(chapter.address).text).pieces)
        for name in numbers.NAMES:
            text = text.replace(name, " ")
        short = set(re.findall(r"\b[A-Z]{2,}\b", text)) - KNOWN
        assert {word for word in short if word.lower() not in forms} == set()


def test_every_anchor_is_there(studio):
    """Links within the book lead to something that is there, mark and all."""
    pages = {address: studio.get(address).text for address in
             ("/book", "/book/glossary", "/book/sources", "/book/index",
              *(f"/book/{n}/{layer}" for n, layer in PAGES), *(c.address for c in chapters.all_chapters()))}
    for here, text in pages.items():
        for link in set(re.findall(r'href="(/book[^"]*)"', text)):
            path, _, mark = link.partition("#")
            found = pages.get(path) or studio.get(path).text
            assert not mark or f'id="{mark}"' in found, f"{here} links to {link}"


# source and answers

@pytest.mark.parametrize("folder", ["studio", "methods"])
def test_pages_read_source_one_at_a_time(folder):
    """Figures of one page are asked for at once, in threads; Python 3.11 can't parse in two of them."""
    for path in (ROOT / "postgrad" / folder).rglob("*.py"):
        for name in ("ast.parse(", "inspect.getsourcelines("):
            assert name not in path.read_text(), f"{path}: use what postgrad.system.user_code has for {name}"


def test_what_is_cut_out_exists():
    found = [b for c in chapters.all_chapters() for page in c.layers.values()
             for b in blocks.walk_blocks(page)]
    cut = [b.argument for b in found if b.kind == "source"]
    assert len(cut) > 5 and all(function_source(name)["text"] for name in cut)
    assert all(methods.row_source(b.argument) for b in found if b.kind == "row")
    assert {b.kind for b in found} >= {"instrument", "cell", "check", "misconception"}


def test_the_questions():
    """Each right answer is what a calculation of its own says; every wrong choice has its explanation."""
    assert [key for key, right in answered().items() if not right] == []
    for chapter in chapters.all_chapters():
        used = [b.argument for page in chapter.layers.values() for b in blocks.walk_blocks(page)
                if b.kind == "check"]
        assert sorted(used) == sorted(chapter.checks), f"{chapter.name}: each question stands once"
        intuition = [b for b in blocks.walk_blocks(chapter.layers["intuition"]) if b.kind == "check"]
        assert 3 <= len(intuition) <= 5
        for check in chapter.checks.values():
            if isinstance(check, chapters.NumberCheck):
                continue
            says = [inline.plain_text(c.says) for c in check.choices]
            assert sum(c.right for c in check.choices) == 1 and len(set(says)) == len(says) >= 3
            assert all(len(inline.plain_text(c.why)) > 40 for c in check.choices)


def test_the_questions_for_a_number():
    """Each has its lines; their answers are among those above."""
    asked = {(chapter.name, name): check for chapter in chapters.all_chapters()
             for name, check in chapter.checks.items() if isinstance(check, chapters.NumberCheck)}
    assert asked.keys() == NUMBERS.keys() and len(NUMBERS) >= 10
    assert all(len(inline.plain_text(line)) > 20 for check in asked.values() for line in check.lines())
    assert all(answered()[key] for key in asked)


@pytest.mark.parametrize(("change", "says"), [
    ({"kind": "poem"}, "is of kind 'poem'; there are choice, number"),
    ({"answer": "nowhere"}, "names a value 'nowhere'"), ({"answer": "word"}, "which is 'much'"),
    ({"hint": [{"value": "near", "says": "x"}]}, "within its tolerance"),
])
def test_a_question_for_a_number_that_is_none(change, says):
    question = {"name": "q", "kind": "number", "ask": "What?", "answer": "one", "tolerance": 0.01,
                "why": "So."}
    values = {"one": 1, "near": 1.015, "word": "much"}
    assert chapters.parse_check(question, values).shown == "1"
    with pytest.raises((ValueError, LookupError), match=says):
        chapters.parse_check(question | change, values)


# search and export

def test_search_knows_every_part(studio):
    rows = places.search_entries()
    kinds = {row.kind for row in rows}
    assert {"Glossary", "Method", "Instrument", "Cell", "Source", "Chapter 1 · Mathematics"} <= kinds
    for path in {row.kind: row.address.partition("#")[0] for row in rows}.values():
        assert studio.get(path).status_code == 200
    text = (STATIC / "book-index.js").read_text()
    body = text[text.index(places.INDEX) + len(places.INDEX):].rstrip().rstrip(";")
    assert len(json.loads(body)) == len(rows) and "</script" not in text


def test_the_book_needs_no_torch():
    """Pages open at once: words and numbers are there before torch is."""
    code = ("import sys; from postgrad.studio.book import web, chapters; chapters.all_chapters(); "
            "print('torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"


def test_the_book_is_exported(studio):
    """Figures are in the page, cells are their source, links are files; nothing is asked of a server."""
    kept = {"x-postgrad-export": "1"}
    page = studio.get("/book/1", headers=kept).text
    known = {f"book/{place}/index.html" for place in ("1/mathematics", "glossary", "search")}
    still = export.with_relative_links(page, "book/1/index.html", known)
    assert 'id="pipeline-picture"' in still and "figure-place" not in still
    assert 'href="mathematics/index.html" data-layer="mathematics"' in still
    assert 'action="../search/index.html"' in still and 'href="../glossary/index.html#token"' in still
    code = studio.get("/book/1/implementation", headers=kept).text
    assert "py-cell" not in code and "logp_of_logits" in code and "postgrad studio" in code


def test_an_export_asks_itself_alone():
    """A link to another site, or a file of one, is no page of ours."""
    asked = []

    async def app(scope, receive, send):
        asked.append(scope["path"])
        page = b'<a href="https://arxiv.org/abs/1">x</a> <a href="//cdn/y">y</a> <a href="/book">z</a>'
        kind = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": page})

    pages, lost = export.run_coroutine(export.crawl_pages(app))
    told = [export.exported_file(address) for address in export.NEEDS]  # pages that say what they need
    assert asked == ["/", "/book"] and sorted(pages) == sorted(["book/index.html", "index.html", *told])
    assert lost == []


# figures, contents, and what is told of a chapter

@pytest.mark.parametrize("chapter", chapters.all_chapters(), ids=lambda c: c.name)
def test_figures_are_numbered_in_the_order_of_reading(studio, chapter):
    """Each has its title; those of a later layer go on from the first."""
    numbers = []
    for layer in chapter.layers:
        page = studio.get(f"/book/{chapter.number}/{layer}").text
        asked = [unescape(x) for x in re.findall(r'class="figure-place wide" hx-get="([^"]*)"', page)]
        drawn = [b.argument for b in blocks.walk_blocks(chapter.layers[layer]) if b.kind == "instrument"]
        for address, argument in zip(asked, drawn, strict=True):
            frame = studio.get(address).text
            number = re.search(r'class="number">Figure ([\d.]+)</span> ([^<]*)', frame)
            name = argument.partition("?")[0]
            assert unescape(number[2]) == INSTRUMENTS[name].title
            assert f'aria-labelledby="{name}-title"' in frame
        numbers += re.findall(r"Figure (\d+\.\d+)", page + "".join(studio.get(a).text for a in asked))
    assert sorted(numbers, key=lambda n: int(n.partition(".")[2])) == [
        f"{chapter.number}.{i}" for i in range(1, len(numbers) + 1)]


def test_a_figure_s_state_stands_in_the_address_of_its_page(studio):
    page = unescape(studio.get("/book/3?gae=lam%3D0.5").text)
    address = re.search(r'hx-get="(/instruments/gae/frame[^"]*)"', page)[1]
    assert "lam=0.5" in address and 'value="0.5"' in studio.get(address).text
    begun = re.search(r'hx-get="(/instruments/dpo-ppo/frame[^"]*)"', page)[1]
    assert "moved=0.4" in begun  # as the text begins with it
    broken = unescape(studio.get("/book/3?gae=nothing%3D1").text)
    address = re.search(r'hx-get="(/instruments/gae/frame[^"]*)"', broken)[1]
    assert studio.get(address).status_code == 200  # what was typed by hand and cannot be read is left out


def test_contents_minutes_and_exercises_of_a_chapter(studio):
    from postgrad.studio.exercises import EXERCISES
    for chapter in chapters.all_chapters():
        for layer in chapter.layers:
            page = studio.get(f"/book/{chapter.number}/{layer}").text
            assert not re.search(r"\b1 minutes|\b(?!1\b)\d+ minute\b", page)
            parts = [b.anchor for b in chapter.layers[layer] if b.kind == "h2"]
            beside = page.partition('class="section-contents"')[2].partition("</nav>")[0]
            assert re.findall(r'href="#([^"]*)"', beside) == (parts if len(parts) > 2 else [])
        own = [e for e in EXERCISES.values() if e.chapter == chapter.number]
        page = studio.get(chapter.address).text.partition('id="exercises"')[2].partition("</section>")[0]
        assert re.findall(r'href="/exercises/([^"]*)"', page) == [e.name for e in own]
        assert ("no exercise of its own" in page) is not bool(own)


def running_text(pieces):
    """The words of a line in which terms are linked: no code, no formula, nothing that is a link already."""
    for piece in pieces:
        if piece.kind == "text":
            yield piece.text
        elif piece.kind in ("strong", "em"):
            yield from running_text(piece.inner)


def test_terms_and_citations_say_what_they_are_where_they_stand(studio):
    """Every term that the running text of a page uses is a link there that says what it means, and so is
    every source that it names."""
    means = {term.anchor: inline.plain_text(term.means) for term in glossary.terms().values()}
    met = set()
    for chapter in chapters.all_chapters():
        for layer, page in chapter.layers.items():
            text = studio.get(f"/book/{chapter.number}/{layer}").text
            links = re.findall(r'<a class="(?:term|cite|quoted)"[^>]*>', text)
            assert [link for link in links if not re.search(r' data-tip="[^"]{8,}"', link)] == []
            told = {anchor: unescape(tip) for anchor, tip in re.findall(
                r'<a class="term" href="/book/glossary#([^"]+)" data-tip="([^"]+)"', text)}
            assert told == {anchor: means[anchor] for anchor in told}
            lines = [chapter.hook] if layer == "intuition" else []
            lines += [line for block in blocks.walk_blocks(page) if block.kind in ("p", "ul", "ol", "grid")
                      for line in blocks.block_texts(block)]
            used = {glossary.terms()[name].anchor for line in lines for words in running_text(line)
                    for name in glossary.terms_in(words)}
            assert used == set(told), (chapter.name, layer)
            met |= used
    assert len(met) >= 0.9 * len(means)  # the others are met in headings and figures alone


# symbols

GREEK = re.compile(r"\\(alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|"
                   r"pi|varpi|rho|varrho|sigma|varsigma|tau|upsilon|phi|varphi|chi|psi|omega)(?![a-z])")
SETTINGS = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$|<tex-math.*?</tex-math>", re.S)


def formulas():
    """Every formula of the texts and of the figures, with where it stands."""
    files = [*(chapters.TEXT).glob("*/*.md"), *(chapters.TEXT).glob("*/*.toml"),
             *(STATIC.parent / "templates").rglob("*.html")]
    for path in files:
        for tex in SETTINGS.findall(path.read_text(encoding="utf-8")):
            yield f"{path.parent.name}/{path.name}", tex


def test_every_symbol_has_one_meaning():
    """All Greek letters are in the table, each once, and none stands there for nothing; the letters that once
    had two meanings keep to one."""
    table = [symbol.tex for symbol in glossary.book_symbols()]
    meanings = [symbol.means for symbol in glossary.book_symbols()]
    assert len(set(table)) == len(table) and len(set(meanings)) == len(meanings)
    used = {f"\\{name}" for _, tex in formulas() for name in GREEK.findall(tex)}
    assert used == {tex for tex in table if GREEK.fullmatch(tex)}
    for where, tex in formulas():
        words = r"\\(?:text|mathrm|operatorname)\{[^}]*\}|\\[a-zA-Z]+|\{\{.*?\}\}|\{%.*?%\}|<[^>]*>|\w{2,}"
        bare = re.sub(words, " ", tex)
        for state in re.findall(r"(?<![\w'])s(?:_\{?([^\s}]*))?", bare):
            step = state.split(",")[-1].strip("}")  # a token's t, a turn's k
            assert step.startswith(("t", "k")), f"{where}: {tex}"
    assert all("rewards" not in where and "frontiers" not in where
               for where, tex in formulas() if "\\rho" in tex)  # a ratio, and no correlation
    sigmoid = r"\\sigma(?:\(|\\bigl|\\Bigl|\$|'|\\?$| ?\(|\\,|\s*\\!)"
    assert [tex for _, tex in formulas() if "\\sigma" in tex and not re.search(sigmoid, tex)] == []


def test_the_symbols_stand_in_the_glossary(studio):
    page = studio.get("/book/glossary").text
    assert 'id="symbols"' in page
    assert all(f"<tex-math>{symbol.tex}</tex-math>" in page for symbol in glossary.book_symbols())
