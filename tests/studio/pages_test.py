"""The studio's shell in a real browser: instruments by keyboard, themes, narrow screens."""

import itertools
import re
from urllib.parse import quote

import pytest
import torch
from studio import addresses
from studio_browser import STRANGE, TOKEN, Watched, axe, browser, serving, studio, tab  # noqa: F401
from studio_small import make, poisons

from postgrad.data.store import Item, Store
from postgrad.maths.preference import bradley_terry
from postgrad.runs import Run
from postgrad.studio.security import start_url

expect = pytest.importorskip("playwright.sync_api").expect


def test_a_slider_moved_by_keyboard_shows_what_the_library_computes(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/bradley-terry")
    page.get_by_label("Reward of the chosen answer").focus()
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".picture")).to_have_attribute("data-query", "chosen=1.7")
    loss = bradley_terry(torch.tensor(1.7), torch.tensor(0.0), torch.tensor(0.0))
    assert f"{loss.item():.3f}" in page.locator("tex-math annotation").text_content()
    assert f"{100 * (-loss).exp().item():.1f} %" in page.locator(".insight").text_content()
    expect(page).to_have_url(re.compile(r"\?chosen=1\.7$"))
    page.reload()
    assert page.get_by_label("Reward of the chosen answer").input_value() == "1.7"


def test_the_start_address_lets_a_browser_in(studio, browser):  # noqa: F811
    page, origin = browser.new_page(), studio()
    assert page.goto(origin).status == 401
    page.goto(start_url(origin, TOKEN))
    assert page.url == f"{origin}/" and page.goto(f"{origin}/about").status == 200
    page.close()


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_follows_the_system_and_then_the_switch(studio, tab, dark):  # noqa: F811
    page = tab(studio(), dark=dark)
    page.goto("/")
    papers = {False: "rgb(251, 250, 246)", True: "rgb(21, 23, 26)"}
    expect(page.locator("body")).to_have_css("background-color", papers[dark])
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(page.locator("body")).to_have_css("background-color", papers[not dark])
    page.goto("/about")
    expect(page.locator("body")).to_have_css("background-color", papers[not dark])


def test_a_printed_page_keeps_the_colours_of_its_figures_and_keys(studio, tab):  # noqa: F811
    """A browser leaves backgrounds out of a print, and with them the swatches of a key."""
    page = tab(studio())
    for name in ("gae", "dpo-ppo"):
        page.goto(f"/instruments/{name}")
        page.emulate_media(media="print")
        swatches = page.locator(".keys span").evaluate_all(
            "all => all.map((e) => getComputedStyle(e, '::before')).filter((s) => s.content != 'none')"
            ".map((s) => s.printColorAdjust)")
        assert len(swatches) >= 4 and set(swatches) == {"exact"}
        assert set(page.locator("figure svg *").evaluate_all(
            "all => all.map((e) => getComputedStyle(e).printColorAdjust)")) == {"exact"}


def test_the_fonts_and_the_mathematics_are_our_own(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/bradley-terry")
    expect(page.locator("tex-math .katex").first).to_be_visible()
    assert page.locator(".katex-error").count() == 0
    loaded = page.evaluate("document.fonts.ready.then(all => [...all].filter(f => f.status == "
                           "'loaded').map(f => f.family))")
    assert {"Source Serif 4", "Inter", "KaTeX_Main"} <= {name.strip('"') for name in loaded}


def test_by_keyboard_from_the_address_bar_to_a_slider(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/bradley-terry")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Reward of the chosen answer")).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator(".picture")).to_have_attribute("data-query", "chosen=5")


def test_what_is_moved_before_the_page_is_awake_is_sent_then(studio, tab):  # noqa: F811
    """htmx is held back until the slider has been moved."""
    page, held = tab(studio()), []
    page.route("**/htmx.min.js*", lambda route: held.append(route))
    page.goto("/instruments/bradley-terry", wait_until="commit")
    slider = page.get_by_label("Reward of the chosen answer")
    slider.wait_for()
    slider.evaluate("e => { e.value = 3; e.dispatchEvent(new Event('input', {bubbles: true})); }")
    held[0].continue_()
    expect(page.locator(".picture")).to_have_attribute("data-query", "chosen=3")


def test_hold_and_reset(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/bradley-terry?chosen=2")
    page.get_by_role("link", name="Keep as").click()
    expect(page.locator(".picture")).to_have_attribute("data-held", "chosen=2")
    page.get_by_label("Reward of the rejected answer").press("ArrowLeft")
    expect(page.locator(".picture")).to_have_attribute("data-query", "chosen=2&rejected=-0.1")
    expect(page.locator(".picture")).to_have_attribute("data-held", "chosen=2")
    page.get_by_role("link", name="Reset").click()
    expect(page.locator(".picture")).to_have_attribute("data-query", "")
    expect(page.locator(".picture")).to_have_attribute("data-held", "")


PLACES = ("/{}", "/instruments/{}", "/instruments/bradley-terry?chosen={}",
          "/instruments/bradley-terry?{}=1", "/lab/{}", "/runs/{}", "/runs/compare?ids={}",
          "/runs/new?recipe={}", "/runs/new?recipe=grpo&set.steps={}", "/runs?q={}", "/label?labeller={}",
          "/label/data?text={}", "/label/data?shown={}", "/instruments/preference-labeller?labels={}")
READ = """async ([path, strange]) => {
    const page = new DOMParser().parseFromString(await (await fetch(path)).text(), "text/html");
    const taken = [...page.querySelectorAll(strange)];
    for (const e of page.querySelectorAll("*"))
        if ([...e.attributes].some((a) => a.name.startsWith("on") || /^\\W*javascript:/i.test(a.value)))
            taken.push(e);
    return page.title ? taken.map((e) => e.outerHTML) : ["there is no page"];
}"""  # what a page has that would run, by the browser's own reader and without the cost of opening it
RUNS = "script:not([src^='/static/']):not([type='application/json'])"


def test_100_poisons_in_addresses_and_on_the_first_page(studio, tab, tmp_path):  # noqa: F811
    """What an address says comes back in sentences; names of runs stand on the first page. Each poison is
    read somewhere, and each place is opened with one that gets out of any quotes, so that scripts see it."""
    for text in poisons()[::16]:
        run = Run.create(tmp_path / "x", recipe=text, config={}, steps=1, method=text, model=text, task=text)
        run.log(1, {"reward": 1.0})
        run.status("failed", error=text)
        (tmp_path / "x").rename(tmp_path / text.replace("/", "\u2215").replace("\0", ""))
    page = tab(studio(runs=tmp_path), errors=("400 (Bad Request)", "404 (Not Found)"))
    page.goto("/")
    expect(page.locator("table.runs tbody tr")).to_have_count(6)
    for text, place in zip(poisons(), itertools.cycle(PLACES), strict=False):
        address = place.format(quote(text, safe=""))
        assert page.evaluate(READ, [address, f"{STRANGE}, {RUNS}"]) == [], (place, text)
    for place in PLACES:
        page.goto(place.format(quote("'\"><img src=x onerror=window.pwned=1>", safe="")))
        assert page.evaluate("window.pwned") is None, place
        assert page.locator(STRANGE).count() == 0, place


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory):
    """A studio with two runs and their samples, and pairs that two people have judged."""
    folder = tmp_path_factory.mktemp("studio")
    for name, lr in (("one", 1e-3), ("two", 2e-3)):
        make(folder / "runs" / name, 3, config={"steps": 3, "optim": {"lr": lr}})
    with Store.open(folder / "preferences.db") as store:
        asked = (({"role": "user", "content": f"Where is {n}?"},) for n in range(4))
        store.add(items := [Item.of(messages, ("It is here.", "Go away.")) for messages in asked])
        for who, choice in (("ann", "a"), ("ben", "b")):
            store.label(items[0].uid, who, choice)
    with serving(folder / "runs", folder / "preferences.db") as origin:
        yield origin


LOOKED_AT = [*addresses(["one", "two"]), "/lab/clip", "/lab/gae", "/label?labeller=ann",
             "/runs/one?step=2&colour=ratio", "/instruments/grpo?size=32",
             "/instruments/preference-labeller?labels=abtab"]


@pytest.fixture(scope="module")
def reader(lived_in, browser):  # noqa: F811
    """One reader who goes through all pages: what every page shares is fetched once."""
    watched = Watched(browser, lived_in)
    yield watched
    watched.context.close()


@pytest.mark.parametrize("path", LOOKED_AT)
def test_every_page_opens_fits_and_can_be_read_by_all(reader, path):
    """On a phone at night, then on a desk by day: no error on the console, no request elsewhere, nothing
    sideways, nothing serious by axe-core."""
    page, opened = reader.page, False
    for width, height, scheme in ((390, 844, "dark"), (1280, 900, "light")):
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        opened = opened or page.goto(path)
        assert opened.status == (404 if path == "/nowhere" else 200)
        expect(page.locator("h1").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert axe(page) == []
    reader.judge(("404 (Not Found)",) if path == "/nowhere" else ())
