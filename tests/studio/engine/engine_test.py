"""A site with an engine, opened from files without a connection: cells and exercises run in the page. Needs
the package `pyodide`: POSTGRAD_PYODIDE=pyodide-314.0.7.tgz."""

import os
from pathlib import Path

import pytest
from studio_browser import SLOWEST, axe, browser  # noqa: F401

from postgrad.studio.exercises import EXERCISES
from postgrad.studio.export import export_site

expect = pytest.importorskip("playwright.sync_api").expect
PACKAGE = os.environ.get("POSTGRAD_PYODIDE", "")
pytestmark = pytest.mark.skipif(not PACKAGE, reason="the engine is no part of the package: POSTGRAD_PYODIDE "
                                                    "names it, as `npm pack pyodide` writes it")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    found = export_site(folder / "site", runs=folder / "runs", store=folder / "p.db",
                        engine=Path(PACKAGE))
    assert found["lost"] == [] and found["bytes"] < 25_000_000
    return folder / "site"


@pytest.fixture(scope="module")
def page(browser, site):  # noqa: F811
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_default_timeout(2 * SLOWEST)
    page.faults = []
    page.on("console", lambda m: page.faults.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda fault: page.faults.append(str(fault)))
    yield page
    assert page.faults == []
    context.close()


def write(page, text):
    page.evaluate("text => { const { editor } = document.querySelector('py-cell'); "
                  "editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } }); }",
                  text)


def test_an_edited_cell_changes_what_comes_out(site, page):
    page.goto((site / "lab" / "clip-plot" / "index.html").as_uri())
    assert page.evaluate("engine.ready") is False, "nothing is loaded before somebody runs it"
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".result")).to_have_attribute("data-red", "0", timeout=2 * SLOWEST)
    expect(page.locator(".result .plotted")).to_be_visible()
    source = page.locator("textarea").input_value()
    write(page, source.replace("low=clip, high=clip", "low=9.0, high=9.0") + "\nprint('mine', 6 * 7)\n")
    expect(page.locator(".prints")).to_have_text("mine 42\n", timeout=2 * SLOWEST)
    expect(page.locator(".result")).to_have_attribute("data-red", "2")  # nothing is flat any more
    assert axe(page) == []


def test_answers_are_judged_as_on_the_server(site, page):
    exercise = EXERCISES["dpo"]
    page.goto((site / "exercises" / "dpo" / "index.html").as_uri())
    write(page, exercise.mistakes[0].applied(exercise.solution))
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#verdict .says.wrong")).to_have_text(exercise.mistakes[0].says, timeout=2 * SLOWEST)
    write(page, exercise.solution)
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#verdict .says.right")).to_be_visible(timeout=2 * SLOWEST)
    expect(page.locator("#verdict .solution")).to_be_visible()


def test_an_endless_loop_ends_and_the_next_answer_is_judged(site, page):
    page.goto((site / "exercises" / "gae" / "index.html").as_uri())
    page.evaluate("engine.limit = 1")
    write(page, "while True: pass")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#verdict .says")).to_contain_text("an endless loop?", timeout=2 * SLOWEST)
    page.evaluate("engine.limit = 60")
    write(page, EXERCISES["gae"].solution)
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#verdict .says.right")).to_be_visible(timeout=2 * SLOWEST)


def test_python_reaches_nothing_outside_the_page(site, page):
    page.goto((site / "lab" / "bradley-terry" / "index.html").as_uri())
    write(page, "from js import XMLHttpRequest\nrequest = XMLHttpRequest.new()\n"
                "request.open('GET', 'https://example.com/', False)\nrequest.send()")
    expect(page.locator(".result .error")).to_contain_text("Error", timeout=2 * SLOWEST)
    page.faults.clear()  # what the policy refuses, it says on the console
