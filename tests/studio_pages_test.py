"""The studio's shell in a real browser: instruments by keyboard, themes, narrow screens."""

import re

import pytest
import torch
from studio_browser import browser, studio, tab  # noqa: F401

from postgrad.maths.preference import bradley_terry

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


@pytest.mark.parametrize("path", ["/", "/about", "/instruments", "/instruments/bradley-terry"])
def test_narrow_pages_don_t_scroll_sideways(studio, tab, path):  # noqa: F811
    page = tab(studio(), width=390)
    page.goto(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
