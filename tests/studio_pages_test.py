"""The studio's shell in a real browser: instruments by keyboard, themes, narrow screens."""

import itertools
import re
from urllib.parse import quote

import pytest
import torch
from screenshots import addresses
from studio_browser import axe, browser, serving, studio, tab  # noqa: F401

from postgrad.maths.preference import bradley_terry
from postgrad.run import Run
from postgrad.studio.export import export

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


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_follows_the_system_and_then_the_switch(studio, tab, dark):  # noqa: F811
    page = tab(studio(), dark=dark)
    papers = {False: "rgb(251, 250, 246)", True: "rgb(21, 23, 26)"}
    expect(page.locator("body")).to_have_css("background-color", papers[dark])
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(page.locator("body")).to_have_css("background-color", papers[not dark])
    page.goto("/about")
    expect(page.locator("body")).to_have_css("background-color", papers[not dark])


def test_the_fonts_and_the_mathematics_are_our_own(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/bradley-terry")
    expect(page.locator("tex-math .katex").first).to_be_visible()
    assert page.locator(".katex-error").count() == 0
    loaded = page.evaluate("document.fonts.ready.then(all => [...all].filter(f => f.status == 'loaded').map(f => f.family))")
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


HOSTILE = ['<script>window.hacked=1</script>', '"><img src=x onerror="window.hacked=1">', "'-window.hacked=1-'",
           "<svg onload=window.hacked=1>", "javascript:window.hacked=1", "{{7*7}}", "</title><script>window.hacked=1</script>"]


def test_hostile_words_stay_words(studio, tab, tmp_path):  # noqa: F811
    runs = tmp_path / "hostile"
    for text in (t.replace("/", "_") for t in HOSTILE):
        run = Run.create(runs / "x", recipe=text, config={}, steps=1, method=text, model=text, task=text)
        run.log(1, {"reward": 1.0})
        run.status("failed", error=text)
        (runs / "x").rename(runs / text)
    page = tab(studio(runs=runs), errors=("400 (Bad Request)", "404 (Not Found)"))
    places = ("/{}", "/instruments/{}", "/instruments/bradley-terry?chosen={}", "/instruments/bradley-terry?{}=1")
    pairs = zip(HOSTILE * 2, itertools.cycle(places), strict=False)
    for path in ["/", *(place.format(quote(text, safe="")) for text, place in pairs)]:
        page.goto(path)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main script, main svg[onload]").count() == 0


def test_a_kept_copy_opens_as_files(tab, browser, tmp_path):  # noqa: F811
    """No server: pages, fonts, mathematics and links work from the disk, and the controls don't pretend to."""
    run = Run.create(tmp_path / "runs" / "one", recipe="grpo", config={}, steps=1)
    run.log(1, {"reward": 1.0})
    run.status("done")
    export(tmp_path / "site", runs=tmp_path / "runs")
    page = browser.new_page()
    errors = []
    page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else errors.append(r.url))
    page.goto((tmp_path / "site" / "index.html").as_uri())
    page.get_by_role("link", name="Instruments", exact=True).click()
    page.get_by_role("link", name="A reward is a bet").click()
    expect(page.locator("tex-math .katex").first).to_be_visible()
    assert page.get_by_label("Reward of the chosen answer").is_disabled()
    loaded = page.evaluate("document.fonts.ready.then(all => [...all].filter(f => f.status == 'loaded').map(f => f.family))")
    page.close()
    assert "Source Serif 4" in {name.strip('"') for name in loaded} and not errors


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """A studio over two short runs, for as long as its pages are looked at."""
    runs = tmp_path_factory.mktemp("studio") / "runs"
    for name in ("one", "two"):
        run = Run.create(runs / name, recipe="grpo", config={"steps": 3}, steps=3, method="grpo", model="tiny", task="words")
        for step in (1, 2, 3):
            run.log(step, {"reward": step / 3, "loss": 0.1, "kl": 0.01 * step, "time/step": 1.0})
        run.status("done")
    with serving(runs, runs.parent / "preferences.db") as origin:
        yield origin


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)], ids=["wide and light", "narrow and dark"])
@pytest.mark.parametrize("path", addresses(["one", "two"]))
def test_every_page_opens_fits_and_can_be_read_by_all(two_runs, tab, path, width, dark):  # noqa: F811
    """No error on the console, no request elsewhere (the tab's own check), nothing sideways, nothing serious by axe-core."""
    page = tab(two_runs, width=width, dark=dark, errors=("404 (Not Found)",) if path == "/nowhere" else ())
    answer = page.goto(path)
    assert answer.status == (404 if path == "/nowhere" else 200)
    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert axe(page) == []
