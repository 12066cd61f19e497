"""Instruments from 9 on in a real browser: a control moved by keyboard, and the sentence that follows."""

from dataclasses import replace

import pytest
from studio_browser import browser, studio, tab  # noqa: F401

from postgrad.studio.instruments import INSTRUMENTS

expect = pytest.importorskip("playwright.sync_api").expect

# the slider, the key that moves it by one step, and the field after that
MOVES = {"test-time": ("spent", "ArrowRight", 9), "pass-at-k": ("k", "ArrowRight", 2),
         "kl-estimators": ("rarest", "ArrowRight", 1.6), "gae": ("lam", "ArrowLeft", 0.9),
         "language-mixing": ("progress", "ArrowLeft", 90), "ledger": ("problems", "ArrowLeft", 39),
         "mismatch": ("cap", "ArrowLeft", 1.9), "telling-apart": ("problems", "ArrowRight", 80),
         "divergences": ("step", "ArrowLeft", 55), "turn-credit": ("episode", "ArrowRight", 2),
         "staleness": ("updates", "ArrowRight", 5)}


def test_a_control_of_each_moved_by_keyboard(studio, tab):  # noqa: F811
    """The sentence is what the library computes, and equations are set."""
    page = tab(studio())
    for name, (field, key, value) in MOVES.items():
        instrument = INSTRUMENTS[name]
        state = replace(instrument.settle(instrument.state()), **{field: value})
        page.goto(f"/instruments/{name}")
        page.locator(f"#{name}-{field}").focus()
        page.keyboard.press(key)
        expect(page.locator(".picture")).to_have_attribute("data-query", instrument.query(state))
        expect(page.locator(".insight")).to_have_text(instrument.insight(instrument.compute(state)))
        expect(page.locator("tex-math .katex").first).to_be_attached()
        assert page.locator(".katex-error").count() == 0


def test_a_change_is_foretold_before_it_is_shown(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/bradley-terry")
    page.get_by_role("button", name="Predict first").click()
    rises = page.get_by_role("button", name="It rises")
    expect(rises).to_be_disabled()
    page.locator("#bradley-terry-chosen").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("output[for=bradley-terry-chosen]")).to_have_text("1.1")
    expect(page.locator(".picture")).to_have_attribute("data-query", "")
    rises.click()
    expect(page.locator(".predict")).to_contain_text("went from 0.731 to 0.750")
    expect(page.locator(".predict")).to_contain_text("1 of 1 foretold.")
    expect(page.locator(".picture")).to_have_attribute("data-query", "chosen=1.1")
    page.get_by_role("button", name="Stop predicting").click()
    page.locator("#bradley-terry-chosen").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".picture")).to_have_attribute("data-query", "chosen=1.2")
