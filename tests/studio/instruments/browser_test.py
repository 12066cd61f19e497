"""Instruments 1 to 4 in a browser: a control of each by keyboard."""

import re

import pytest
import torch
from studio_browser import browser, studio, tab  # noqa: F401
from studio_instruments import D, ones

from postgrad import methods
from postgrad.maths.credit import group_zscore
from postgrad.maths.intervals import mean_interval
from postgrad.maths.passk import pass_at_k
from postgrad.studio.instruments import INSTRUMENTS, grpo
from postgrad.studio.instruments import preference_labeller as labeller
from postgrad.studio.label.reward_head import fit_head, ranking_accuracy, win_share
from postgrad.studio.recordings import recording
from postgrad.training.memory import GB, SIZES, Setup, estimate

expect = pytest.importorskip("playwright.sync_api").expect


# in a browser

def numbers(text):
    return [float(x) for x in re.findall(r"-?\d+\.\d+", text.replace("\u2212", "-"))]


def test_a_reward_by_keyboard(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/grpo")
    page.get_by_label("Reward 1", exact=True).focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    rewards = (0.8, *grpo.recorded_verdicts(8)[1:])
    address = INSTRUMENTS["grpo"].query(grpo.State(rewards=rewards))
    expect(page.locator("#grpo-picture")).to_have_attribute("data-query", address)
    wanted = torch.tensor(rewards, dtype=D)[:, None]
    shown = [numbers(s.get_attribute("aria-label"))[0]
             for s in page.locator(".group svg[aria-label^=advantage]").all()]
    assert shown == pytest.approx(group_zscore(wanted, ones(8), 8)[:, 0].tolist(), abs=6e-4)
    page.get_by_label("16", exact=True).check(force=True)
    page.wait_for_selector("#grpo-rewards-15")
    assert (page.locator(".group samp").count() == 16
            and page.locator("#grpo-rewards-0").input_value() == "0.8")


def test_a_model_size_by_keyboard(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/algorithms")
    page.get_by_label("7B", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".picture[data-query='size=13B']")
    made = estimate(SIZES["13B"], methods.get_method("ppo"), Setup(reward_model=True))
    assert f"{made.peak / GB:.0f} GB" in page.locator(".algorithm .peak").first.text_content()


def test_tries_by_keyboard(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/pipeline")
    page.get_by_label("Tries allowed on a word problem, k").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".picture[data-query='k=2']")
    counts = recording("pipeline")["stages"][2]["measured"]["words"]["right"]
    mean, _, _ = mean_interval([pass_at_k(8, c, 2) for c in counts], (0.0, 1.0))
    assert f"{100 * mean:.1f} %" in page.locator("svg.for-wide .value").first.text_content()


def test_labels_by_keyboard(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/preference-labeller")
    for done, key in enumerate("bab", start=1):
        page.keyboard.press(key)
        page.wait_for_selector(f".picture[data-query='labels={'bab'[:done]}']")
        expect(page).to_have_url(re.compile(f"labels={'bab'[:done]}$"))
    x, y = labeller.answer_vectors()
    w = fit_head(x[:3, 0], x[:3, 1], win_share("bab"))
    quality = torch.tensor([p["quality"] for p in recording("pairs")["unseen"]])
    right = ranking_accuracy((y[:, 0] - y[:, 1]) @ w, quality[:, 0] - quality[:, 1])
    assert f"{100 * right:.1f} %" in page.locator(".insight").text_content()
    page.keyboard.press("u")
    expect(page).to_have_url(re.compile("labels=ba$"))
    page.reload()
    assert "Pair 3 of 40" in page.locator(".asked").text_content()
