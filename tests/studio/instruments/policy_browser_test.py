"""Instruments 5 to 8 in a browser: a control of each moved by keyboard."""

import math
import re

import pytest
import torch
from studio_browser import browser, studio, tab  # noqa: F401

from postgrad.maths.preference import bradley_terry, dpo
from postgrad.maths.surrogate import clipped_ratio
from postgrad.studio.instruments import reward_hacking

expect = pytest.importorskip("playwright.sync_api").expect


def moved(page, label, key, query, times=1):
    page.get_by_label(label).focus()
    for _ in range(times):
        page.keyboard.press(key)
    expect(page.locator(".picture")).to_have_attribute("data-query", query)
    return " ".join(page.locator("tex-math annotation").all_text_contents())


def test_a_ratio_moved_by_keyboard(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/ppo-clip?advantage=-0.7")
    shown = moved(page, "Ratio of new to old probability", "ArrowLeft", "ratio=1.4&advantage=-0.7", 2)
    logp, none = torch.tensor([[math.log(1.4)]], requires_grad=True), torch.zeros(1, 1)
    loss, _ = clipped_ratio(logp, none, none - 0.7, none == 0, low=0.2, high=0.2)
    loss.sum().backward()
    assert (f"= {-loss.item():.3f}".replace("-", "−") in shown
            and f"{-logp.grad.item():.3f}".replace("-", "−") in shown)
    page.get_by_role("link", name="dapo").click()
    expect(page.locator(".picture")).to_have_attribute("data-query", "high=0.28")


def test_beta_moved_by_keyboard(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/dpo-ppo?moved=1&machine=dpo")
    shown = moved(page, "β: the higher, the shorter the leash", "ArrowRight",
                  "machine=dpo&beta=1.2&moved=1", 2)
    ref, reward = torch.tensor([0.4, 0.3, 0.2, 0.1]).log(), torch.tensor([-1.0, 0.0, 0.5, 1.5])
    policy = torch.softmax(ref + reward / 1.2, 0)
    assert f"= {policy[3]:.4f}" in shown and f"= {1.2 * (policy[3].log() - ref[3]):.3f}" in shown
    expect(page.locator(".stages .now")).to_have_text("Step")
    page.get_by_label("Stage of one update").press("ArrowLeft")
    gap = 1.2 * ((policy.log() - ref)[3] - (policy.log() - ref)[0])
    says = torch.exp(-dpo(gap / 1.2, torch.tensor(0.0), torch.tensor(0.0), beta=1.2))
    expect(page.locator(".machine .says")).to_contain_text(f"says {says:.3f}")


def test_a_penalty_moved_by_keyboard(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/reward-hacking")
    moved(page, "KL penalty in training, β", "ArrowRight", "beta=0.05", 5)
    point = reward_hacking.available_labs()["seed-26"]["policies"][1]["points"][14]
    shown = moved(page, "Training done", "ArrowLeft", "beta=0.05&progress=60", 4)
    total = point["proxy"] - 0.05 * point["kl"]
    printed = [f"{round(point['proxy'], k) - 0.05 * round(point['kl'], k):.2f}" for k in range(2, 7)]
    digits = 2 + max((i + 1 for i, text in enumerate(printed) if text != f"{total:.2f}"), default=0)
    assert f"{point['proxy']:.{digits}f} - 0.05 \\cdot {point['kl']:.{digits}f} = {total:.2f}" in shown
    expect(page.locator(".facts")).to_contain_text(f"{point['true']:.2f}")


def test_a_shift_moved_by_keyboard(studio, tab):  # noqa: F811
    page = tab(studio())
    page.goto("/instruments/bradley-terry?chosen=1.4")
    shown = moved(page, "Added to both", "ArrowRight", "chosen=1.4&shift=0.3", 3)
    loss = bradley_terry(torch.tensor(1.7), torch.tensor(0.3), torch.tensor(0.0)).item()
    assert re.search(rf"1\.7 - 0\.3.*= {loss:.3f}", shown)
