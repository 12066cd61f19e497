"""The book in a browser: the layers, a question, a figure, search; on a phone; and from files."""

import re
import shutil

import pytest
from starlette.datastructures import QueryParams
from studio_browser import axe, browser, studio, tab  # noqa: F401
from studio_small import client

from postgrad.studio.book.chapters import all_chapters
from postgrad.studio.book.glossary import book_symbols
from postgrad.studio.book.tours import chapter_tour
from postgrad.studio.book.walks import all_walks
from postgrad.studio.export import exported_file, with_relative_links
from postgrad.studio.instruments import INSTRUMENTS
from postgrad.studio.pages import STATIC
from postgrad.studio.script import instrument_script

expect = pytest.importorskip("playwright.sync_api").expect


def test_layers_a_question_and_search(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/book/1")
    assert page.locator("h1").bounding_box()["height"] <= 150
    check = page.locator("[data-check='why/bandit-steps']")
    expect(check.locator(".why").first).to_be_hidden()
    check.get_by_label("1024", exact=True).focus()
    page.keyboard.press("Space")
    expect(check.locator("li:has(:checked) .why")).to_contain_text("Not so.")
    check.get_by_label("1", exact=True).check()
    expect(check.locator("li:has(:checked) .why")).to_contain_text("Right.")
    page.reload()
    expect(check.get_by_label("1", exact=True)).to_be_checked()
    page.get_by_role("link", name="Mathematics", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/book/1/mathematics")
    expect(page.locator("tex-math .katex").first).to_be_visible()
    page.get_by_role("link", name="Contents", exact=True).click()
    page.locator("a[data-chapter]").first.click()
    page.wait_for_url("**/book/1/mathematics")  # the layer is remembered
    page.get_by_label("Search the book").fill("policy gradient")
    page.keyboard.press("Enter")
    page.wait_for_url("**/book/search?q=policy+gradient")
    expect(page.locator("#book-results a").first).to_be_visible()
    page.get_by_label("Search the book").fill("what the bandit view")
    expect(page.locator("#book-results a").first).to_have_attribute(
        "href", "/book/1/mathematics#what-the-bandit-view-discards")
    page.get_by_label("Search the book").fill("zzz")
    expect(page.locator("#book-found")).to_have_text("No places with “zzz”")


def test_progress_is_kept_and_can_be_taken_along(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/book/1")
    page.locator("[data-check='why/bandit-steps']").get_by_label("1", exact=True).check()
    page.goto("/book")
    figure = page.locator("main figure, .figure-place").first
    expect(figure).to_be_visible()
    assert figure.bounding_box()["y"] < 800  # a live figure first
    told = page.locator("[data-progress-of='why']")
    expect(told).to_contain_text("1 of 3 layers opened, 1 of")
    with page.expect_download() as taken:
        page.get_by_role("button", name="Export my progress").click()
    page.evaluate("localStorage.clear()")
    page.reload()
    expect(told).to_have_text("")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import").click()
    chooser.value.set_files(taken.value.path())
    expect(told).to_contain_text("1 of 3 layers opened")


def test_a_question_for_a_number(studio, tab):  # noqa: F811
    page = tab(studio(), width=390)
    page.goto("/book/4/mathematics")
    check = page.locator("[data-check='reasoning/pass-at-two']")
    said = check.locator("li .why:visible")
    for text, says in (("0.51", "Not so. You drew with putting back."), ("47 %", "both are wrong"),
                       ("0,9", "It is less than that."), ("a half", "That is no number"),
                       ("53.3 %", "Right: 0.533.")):
        check.get_by_label("Your number").fill(text)
        page.keyboard.press("Enter")
        expect(said).to_contain_text(says)
    page.reload()
    expect(said).to_contain_text("Right: 0.533.")
    assert axe(page) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_claim_opens_its_derivation_beside_it(studio, tab, width):  # noqa: F811
    """The panel shows the derivation and the marked line; the page stays, and the reader comes back."""
    page = tab(studio(), width=width)
    page.goto("/book/3")
    mark = page.locator("[data-join='z-cancels']")
    expect(page.locator(".figure-place")).to_have_count(0)
    mark.scroll_into_view_if_needed()
    mark.focus()
    place = mark.bounding_box()["y"]
    page.keyboard.press("Enter")
    side = page.locator("#side")
    expect(side.locator("h2")).to_have_text("The inverted reward, and a loss without Z")
    expect(side.locator("li.marked")).to_contain_text("cancels")
    expect(side.locator(".row.marked .q-beta").first).to_have_text("beta")
    expect(side.locator("tex-math .q-policy").first).to_be_visible()
    box, panel = mark.bounding_box(), side.bounding_box()
    along, size = ("x", "width") if width == 1280 else ("y", "height")
    assert box[along] + box[size] < panel[along]
    assert axe(page) == []
    page.keyboard.press("Escape")
    expect(side).to_be_hidden()
    expect(mark).to_be_focused()
    assert abs(mark.bounding_box()["y"] - place) <= 1
    mark.click()
    expect(side).to_be_visible()
    page.go_back()
    expect(side).to_be_hidden()
    assert page.url.partition("?")[0].endswith("/book/3")
    mark.click()
    side.get_by_role("link", name="In the mathematics").click()
    page.wait_for_url("**/book/3/mathematics#the-inverted-reward-and-a-loss-without-z")
    page.go_back()
    expect(page.locator("#side li.marked")).to_contain_text("cancels")


LAYERS_READ = [f"{c.address}/{layer}" for c in all_chapters() for layer in c.layers]
BOOK = ["/book", "/book/glossary", "/book/index", "/book/sources", "/book/methods", "/book/methods/grpo"]
LOOKS = [(width, dark) for width in (390, 820, 1280) for dark in (False, True)]


@pytest.mark.parametrize(("width", "dark", "pages"), [
    (1280, False, ["/book/1/mathematics"]),
    (390, True, ["/book", "/book/search?q=kl", all_chapters()[-1].address]),
    *(pytest.param(width, dark, pages, marks=pytest.mark.long) for width, dark in LOOKS
      for pages in (BOOK, LAYERS_READ, [f"/instruments/{name}" for name in INSTRUMENTS])),
])
def test_every_page_can_be_used_by_everybody(studio, tab, width, dark, pages):  # noqa: F811
    """No page is wider than the screen, what is cut says so, each landmark has a name of its own, and axe
    finds nothing serious."""
    page = tab(studio(), width=width, dark=dark)
    for address in pages:
        page.goto(address)
        expect(page.locator(".figure-place")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{address} is too wide"
        assert page.locator("h1").bounding_box()["height"] <= 150
        for place in page.locator(".scroll:visible").all():
            if place.evaluate("e => e.scrollWidth > e.clientWidth + 1"):
                expect(place).to_have_attribute("data-cut", "right")
        assert axe(page) == [], address
        assert [x for x in axe(page, ("moderate",)) if "landmark" in x or "heading" in x] == [], address


def test_search_finds_words_by_their_beginning(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/book/search?q=lora")
    expect(page.locator("#book-found")).to_contain_text("with “lora”")
    for mark in page.locator("#book-results mark").all():
        before = mark.evaluate("e => e.previousSibling?.textContent.slice(-1) ?? ''")
        assert mark.text_content().lower() == "lora" and not before.isalnum()
    page.get_by_label("Search the book").fill("PRM")
    expect(page.locator("#book-results a").first).to_have_attribute("href", "/book/glossary#process-model")


def test_a_figure_of_a_chapter_keeps_its_state_and_can_be_linked_and_reset(studio, tab):  # noqa: F811
    page = tab(studio())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/book/2")
    expect(page.locator(".figure-place")).to_have_count(0)
    figure = page.locator("#bradley-terry")
    expect(figure.locator(".figure-title")).to_have_text(
        f"Figure 2.3 {INSTRUMENTS['bradley-terry'].title}")
    figure.get_by_label("Reward of the chosen answer").focus()
    page.keyboard.press("End")
    expect(figure.locator(".picture")).to_have_attribute("data-query", "chosen=5")
    page.wait_for_url("**/book/2?bradley-terry=chosen%3D5")
    page.reload()
    expect(figure.locator(".picture")).to_have_attribute("data-query", "chosen=5")
    expect(figure.get_by_label("Reward of the chosen answer")).to_have_value("5")
    figure.get_by_role("link", name="Link").click()
    expect(figure.get_by_role("link", name="Link copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").endswith("/instruments/bradley-terry?chosen=5")
    figure.get_by_role("link", name="Reset").click()
    expect(figure.locator(".picture")).to_have_attribute("data-query", "")
    page.wait_for_url("**/book/2")


def test_a_term_says_what_it_means_under_the_pointer_and_by_keyboard(studio, tab):  # noqa: F811
    page = tab(studio(), width=390)
    page.goto("/book/1")
    term, tip = page.locator("a.term").first, page.get_by_role("tooltip")
    says = term.get_attribute("data-tip")
    term.hover()
    expect(tip).to_have_text(says)
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    page.mouse.move(1, 1)
    cited = page.locator("a.cite").first
    cited.focus()
    expect(tip).to_have_text(cited.get_attribute("data-tip"))
    expect(cited).to_have_attribute("aria-describedby", "tip")
    box = tip.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_a_cell_in_a_chapter(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/book/2/mathematics")
    result = page.locator("#result-recover")
    expect(result).to_have_attribute("data-state", "ran", timeout=60_000)
    assert result.locator(".green").count() == result.locator("li").count() == 3
    expect(result.locator("svg.plotted path.line")).to_have_count(4)
    expect(result.locator(".prints")).to_contain_text("600 [1.4")


def test_from_files(browser, tmp_path):  # noqa: F811
    """Opened from a folder: layers, questions and search, without a server."""
    served, site = client(tmp_path / "runs"), tmp_path / "site"
    pages = {exported_file(address): served.get(address, headers={"x-postgrad-export": "1"}).text
             for address in ("/book/1", "/book/1/mathematics", "/book/search")}
    for file, text in pages.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(with_relative_links(text, file, set(pages)), encoding="utf-8")
    shutil.copytree(STATIC, site / "static")
    (site / "static" / "alive").mkdir()
    for name, instrument in INSTRUMENTS.items():
        if any(f"alive/{name}.js" in text for text in pages.values()):
            (site / "static" / "alive" / f"{name}.js").write_text(instrument_script(instrument))
    page = browser.new_page()
    faults = []
    page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: faults.append(str(e)))
    page.goto(f"file://{site}/book/1/index.html")
    page.get_by_label("Pretrained", exact=True).check(force=True)
    expect(page.locator("#pipeline-picture .insight")).to_contain_text("The pretrained model solves")
    page.get_by_role("link", name="Mathematics", exact=True).click()
    page.wait_for_url("**/book/1/mathematics/index.html")
    page.get_by_label("Search the book").fill("bandit view discards")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search/index.html?q=*")
    page.locator("#book-results a").first.click()
    page.wait_for_url("**/book/1/mathematics/index.html#what-the-bandit-view-discards")
    page.close()
    assert faults == []


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_guided_tour(studio, tab, width, dark):  # noqa: F811
    """By buttons and keys, with the figure set as a stop says, the stop in the address, and a way out."""
    page = tab(studio(), width=width, dark=dark, height=800)
    page.goto("/book/1")
    begin = page.get_by_role("button", name="Guided tour")
    begin.click()
    card = page.get_by_role("region", name="Guided tour")
    expect(card).to_be_focused()
    expect(card.get_by_role("status")).to_have_text("1 of 12")
    expect(card.get_by_role("button", name="Back")).to_be_disabled()
    page.keyboard.press("ArrowLeft")  # before the first there is none
    card.get_by_role("button", name="Next").click()
    expect(card.get_by_role("status")).to_have_text("2 of 12")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(card.get_by_role("status")).to_have_text("6 of 12")
    figure = page.locator("#token-mdp")
    expect(figure.locator(".picture")).to_have_attribute("data-query", "reply=wrong&step=12")
    expect(figure).to_have_class(re.compile("toured"))
    assert 0 <= figure.bounding_box()["y"] < card.bounding_box()["y"]
    assert axe(page) == []
    slider = figure.get_by_role("slider", name="State")
    slider.focus()
    page.keyboard.press("ArrowLeft")  # is the slider's
    expect(figure.locator(".picture")).to_have_attribute("data-query", "reply=wrong&step=11")
    expect(card.get_by_role("status")).to_have_text("6 of 12")
    page.wait_for_url("**/book/1?tour=6&token-mdp=*")
    page.reload()
    expect(card.get_by_role("status")).to_have_text("6 of 12")
    expect(figure.locator(".picture")).to_have_attribute("data-query", "reply=wrong&step=12")
    page.locator("#token-mdp").scroll_into_view_if_needed()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    expect(begin).to_be_focused()
    page.wait_for_url(lambda address: "tour=" not in address)
    page.goto("/book/1?tour=12")
    card.get_by_role("button", name="Finish").click()
    expect(card).to_be_hidden()
    page.goto("/book/1/mathematics")
    page.get_by_role("link", name="Guided tour").click()
    expect(card.get_by_role("status")).to_have_text("1 of 12")


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 390])
def test_every_stop_of_every_tour(studio, tab, width):  # noqa: F811
    """Its place is in sight above the card, its figure is as it says, and axe finds nothing."""
    page = tab(studio(), width=width, height=800)
    for found in all_chapters():
        stops = chapter_tour(found.name)
        page.goto(f"{found.address}?tour=1")
        expect(page.locator(".figure-place")).to_have_count(0)
        card = page.locator("#tour-card")
        for n, stop in enumerate(stops, start=1):
            expect(card.get_by_role("status")).to_have_text(f"{n} of {len(stops)}")
            if stop.figure:
                instrument = INSTRUMENTS[stop.figure]
                query = instrument.query(instrument.read(QueryParams(list(stop.pose))))
                expect(page.locator(f"#{stop.figure}-picture")).to_have_attribute("data-query", query)
            place, top = page.locator(".toured").first, card.bounding_box()["y"]
            expect(place).to_be_in_viewport()
            assert -1 <= place.bounding_box()["y"] < top - 60, (found.name, n)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (found.name, n)
            page.keyboard.press("ArrowRight")
        assert axe(page) == [], found.name


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_a_walk_through_code(studio, tab, width, dark):  # noqa: F811
    """One step at a time; its lines are marked and in sight."""
    page = tab(studio(), width=width, dark=dark, height=800)
    for address, name in (("/book/4/implementation", "r1"), ("/book/5/implementation", "nano")):
        steps = all_walks()[name].steps
        page.goto(address)
        walk = page.locator(".walk")
        code = walk.get_by_role("region")
        for n, step in enumerate(steps, start=1):
            expect(walk.get_by_role("status")).to_have_text(f"{n} of {len(steps)}")
            expect(walk.locator(".walk-steps > li:visible")).to_have_count(1)
            marked = walk.locator(".row.marked .at")
            expect(marked).to_have_text([str(line) for line in range(step.first, step.last + 1)])
            box, line = code.bounding_box(), marked.first.bounding_box()
            assert box["y"] <= line["y"] < box["y"] + box["height"] - 19
            if n < len(steps):
                walk.get_by_role("button", name="Next").click()
        expect(walk.get_by_role("button", name="Next")).to_be_disabled()
        walk.get_by_role("button", name="Back").press("Enter")
        expect(walk.get_by_role("status")).to_have_text(f"{len(steps) - 1} of {len(steps)}")
        assert axe(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# a symbol is a command, or a letter that stands alone outside of words
TOKENS_OF_TEX = re.compile(r"\\(?:text|operatorname|mathcal|mathbb|mathrm)\*?\{[^}]*\}|\\[A-Za-z]+|"
                           r"[A-Za-z]+(?:_t(?![A-Za-z]))?")


@pytest.mark.parametrize("found", all_chapters(), ids=lambda found: found.name)
def test_symbols_say_what_they_mean(studio, tab, found):  # noqa: F811
    """Every symbol of the table, in every displayed equation of a chapter: under the pointer, and for the
    keyboard on the equation."""
    page, means = tab(studio()), {symbol.tex: symbol.means for symbol in book_symbols()}
    equations = 0
    for layer in ("intuition", "mathematics"):
        page.goto(found.layer_address(layer))
        expect(page.locator(".figure-place")).to_have_count(0)
        assert page.locator(".katex-error").count() == 0
        rows = page.locator("tex-math[display]").evaluate_all(
            "all => all.map((e) => { e.reach(); return [e.says, e.dataset.tips ?? '', e.tabIndex, "
            "[...e.querySelectorAll('[data-symbol]')].map((s) => s.dataset.tip)]; })")
        for tex, tips, place, told in rows:
            used = {token for token in TOKENS_OF_TEX.findall(tex) if token in means}
            assert {means[symbol] for symbol in used} == set(told), tex
            assert place == 0 or not used, tex
            assert all(means[symbol] in tips for symbol in used)
            equations += bool(used)
    assert equations >= 1


def test_a_symbol_is_told_by_pointer_and_by_keyboard(studio, tab):  # noqa: F811
    page = tab(studio(), width=390)
    page.goto("/book/3/mathematics")
    tip, equation = page.get_by_role("tooltip"), page.locator("main > tex-math[display]").nth(2)
    beta = equation.locator(".q-beta [data-symbol]").first
    beta.hover()
    expect(tip).to_contain_text("The weight of the KL penalty")
    page.mouse.move(1, 1)
    expect(tip).to_be_hidden()
    equation.focus()
    expect(tip).to_contain_text("β: The weight of the KL penalty")
    expect(tip).to_contain_text("σ: The sigmoid.")
    expect(equation).to_have_attribute("aria-describedby", "tip")
    box = tip.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    assert axe(page) == []
