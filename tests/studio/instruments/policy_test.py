"""Instruments 5 to 8: what they compute against the library and the numbers of the book, and their pages."""

import json
import math
import re

import pytest
import torch
from starlette.testclient import TestClient

from postgrad.maths.passk import best_of_n
from postgrad.maths.surrogate import policy_gradient
from postgrad.methods import METHODS
from postgrad.runs.overoptimisation import turning_point
from postgrad.studio.app import create_studio
from postgrad.studio.instruments import INSTRUMENTS, dpo_ppo, ppo_clip, reward_hacking
from postgrad.studio.instruments import bradley_terry as pair
from postgrad.studio.instruments.base import RUNS
from postgrad.studio.security import COOKIE

TOKEN = "the-token-of-the-owner-of-this-studio"
MINE = ("reward-hacking", "bradley-terry", "dpo-ppo", "ppo-clip")


@pytest.fixture
def client(tmp_path):
    app = create_studio(runs=tmp_path / "runs", token=TOKEN, hosts=("testserver",), store=tmp_path / "p.db")
    return TestClient(app, headers={"cookie": f"{COOKIE}={TOKEN}", "x-postgrad": "1"},
                      raise_server_exceptions=False)


def near(value, **more):
    return pytest.approx(value, abs=1e-9, **more)


# 6, Bradley-Terry

def test_a_pair_by_hand():
    even = pair.compute(pair.State(chosen=-2.5, rejected=-2.5))
    assert (even["probability"], even["loss"], even["slope"]) == (near(0.5), near(math.log(2)), near(-0.5))
    wrong = pair.compute(pair.State(chosen=0.3, rejected=0.9))  # the rewards of EQUATIONS.md
    assert f"{wrong['probability']:.4f} {wrong['loss']:.4f} {wrong['slope']:.4f}" == "0.3543 1.0375 -0.6457"
    assert wrong["slope_rejected"] == near(-wrong["slope"])


def test_what_is_added_to_both_changes_nothing():
    here, there = (pair.compute(pair.State(chosen=1.2, rejected=-0.7, shift=c)) for c in (0.0, 2.5))
    for name in ("gap", "probability", "loss", "slope", "slope_rejected"):
        assert here[name] == near(there[name])
    assert there["chosen"] == near(here["chosen"] + 2.5)


def test_the_point_lies_on_the_curves():
    numbers = pair.compute(pair.State(chosen=1.5, rejected=-0.5))
    for curve, name in (("curve", "probability"), ("losses", "loss")):
        assert min(numbers[curve], key=lambda p: abs(p[0] - 2.0)) == (near(2.0), near(numbers[name]))


# 8, the clip

@pytest.mark.parametrize(("ratio", "advantage", "objective", "gradient", "clipped"), [
    # EQUATIONS.md: the ratio counts as 1.2, as 0.8
    (4.0, 1.0, 1.2, 0.0, True), (0.1, -1.0, -0.8, 0.0, True),
    # outside the clip, but the wrong way: whole gradient
    (0.5, 1.0, 0.5, 0.5, False), (2.0, -0.5, -1.0, -1.0, False),
    (1.1, 2.0, 2.2, 2.2, False), (1.7, 0.0, 0.0, 0.0, False),
])
def test_the_clip_by_hand(ratio, advantage, objective, gradient, clipped):
    numbers = ppo_clip.compute(ppo_clip.State(ratio=ratio, advantage=advantage))
    assert ((numbers["objective"], numbers["gradient"], numbers["clipped"])
            == (near(objective), near(gradient), clipped))
    assert (numbers["raw"], numbers["raw_gradient"]) == (near(ratio * advantage), near(ratio * advantage))


def test_at_ratio_one_the_gradient_is_reinforce():
    logp = torch.zeros(1, 1, requires_grad=True)
    adv = torch.tensor([[0.7]])
    mask = torch.ones(1, 1, dtype=torch.bool)
    loss, _ = policy_gradient(logp, torch.zeros(1, 1), adv, mask)
    loss.sum().backward()
    assert (ppo_clip.compute(ppo_clip.State(ratio=1.0, advantage=0.7))["gradient"]
            == pytest.approx(-logp.grad.item(), abs=1e-6))


def test_the_flat_region_is_where_the_gradient_is_zero():
    for advantage in (1.0, -0.5):
        numbers = ppo_clip.compute(ppo_clip.State(advantage=advantage, low=0.3, high=0.1))
        low, high = numbers["flat"]
        inside = [g for r, g in numbers["gradients"] if low < r < high]
        outside = [g for r, g in numbers["gradients"] if not low <= r <= high]
        assert inside and outside and not any(inside) and all(outside)


def test_the_clips_of_the_table():
    rows = {name: (row["low"], row["high"]) for row in ppo_clip.clips_of_rows() for name in row["names"]}
    assert (rows["dapo"] == (0.2, 0.28) and rows["ppo"] == (0.2, 0.2)
            and not {"gspo", "cispo", "reinforce"} & set(rows))


def test_a_dot_stands_at_its_value_as_far_as_the_ratio_goes(client):
    def raw(ratio):
        page = client.get("/instruments/ppo-clip/figure", params={"ratio": ratio, "advantage": 1.5}).text
        return float(re.search(r'class="dot hollow" cx="[\d.]+" cy="([\d.]+)"', page)[1])

    heights = [raw(ratio) for ratio in (2, 3, 4)]  # ratio times 1.5: equal steps up
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2) and heights[2] > 0
    assert heights[0] - heights[1] > 20


# 7, DPO and PPO
STATES = [dpo_ppo.State(moved=1.0), dpo_ppo.State(moved=1.0, beta=0.3, a=2.0, b=-1.0),
          dpo_ppo.State(moved=1.0, beta=2.5, a=0.4, b=0.4, c=-2.0, d=1.1)]


@pytest.mark.parametrize("state", STATES, ids=lambda s: f"beta {s.beta}")
def test_both_machines_stop_at_the_optimum(state):
    numbers = dpo_ppo.compute(state)
    reward, implied = torch.tensor(numbers["reward"]), torch.tensor(numbers["implied"])
    weight = [p * math.exp(r / state.beta)
              for p, r in zip(numbers["reference"], numbers["reward"], strict=True)]
    assert (numbers["policy"] == [near(w / sum(weight)) for w in weight]
            and sum(numbers["policy"]) == near(1.0))
    assert (reward - implied).tolist() == [pytest.approx(state.beta * math.log(sum(weight)), abs=1e-6)] * 4
    assert numbers["value"] == near(state.beta * math.log(sum(weight)))
    assert (max(map(abs, numbers["advantage"])) < 1e-9
            and max(numbers["ppo_slope"], numbers["dpo_slope"]) < 1e-9)
    assert (numbers["says"] == near(1 / (1 + math.exp(numbers["reward"][0] - numbers["reward"][3])))
            == near(numbers["label"]))
    assert (max(numbers["climb"], key=lambda p: p[1])[0]
            == min(numbers["descent"], key=lambda p: p[1])[0] == 1.0)


@pytest.mark.parametrize("goal", ["ppo", "dpo"])
def test_either_machine_trained_from_the_reference_ends_there(goal):
    numbers = dpo_ppo.compute(dpo_ppo.State(beta=0.7))
    ref, reward = torch.tensor(numbers["reference"]).double().log(), torch.tensor(numbers["reward"]).double()
    logits = ref.clone().requires_grad_()
    descent = torch.optim.LBFGS([logits], lr=0.5, max_iter=200, tolerance_grad=1e-10, tolerance_change=1e-14)

    def closure():
        descent.zero_grad()
        loss = (-dpo_ppo.regularised(logits, ref, reward, 0.7) if goal == "ppo"
                else dpo_ppo.pair_loss(logits, ref, reward, 0.7))
        loss.backward()
        return loss

    descent.step(closure)
    assert torch.softmax(logits, -1).tolist() == pytest.approx(numbers["optimum"], abs=1e-5)


def test_it_opens_away_from_the_optimum_and_beta_shortens_the_leash(client):
    assert 0 < dpo_ppo.State().moved < 1 and dpo_ppo.compute(dpo_ppo.State())["ppo_slope"] > 0.1
    assert "the higher, the shorter the leash" in client.get("/instruments/dpo-ppo").text
    near_by, far = (dpo_ppo.compute(dpo_ppo.State(beta=beta, moved=1.0))["kl"] for beta in (2.0, 0.5))
    assert near_by < far


@pytest.mark.parametrize("machine", ["ppo", "dpo"])
def test_the_last_stage_is_a_real_step_that_improves(machine):
    for moved in (0.0, 0.4, 1.5):
        numbers = dpo_ppo.compute(dpo_ppo.State(machine=machine, moved=moved))
        assert sum(numbers["stepped"]) == near(1.0)
        assert (numbers["stepped_value"] > numbers["value"] if machine == "ppo"
                else numbers["stepped_loss"] < numbers["loss"])


def test_at_the_reference_dpo_costs_log_2_for_any_beta():
    for beta in (0.2, 1.0, 3.0):
        numbers = dpo_ppo.compute(dpo_ppo.State(beta=beta, moved=0.0))
        assert (numbers["loss"] == near(math.log(2)) and numbers["kl"] == near(0.0)
                and numbers["implied"] == [near(0.0)] * 4)


def test_twice_as_likely_and_half_as_likely():
    """EQUATIONS.md: ratios 2 and 1/2 at beta 1 are a gap of 2 ln 2 and a probability of 0.8.

    Here: A and D.
    """
    numbers = dpo_ppo.compute(dpo_ppo.State(moved=1.0, a=-math.log(2), b=0.0, c=0.0, d=math.log(2)))
    assert (numbers["implied"][3] - numbers["implied"][0] == near(2 * math.log(2))
            and numbers["says"] == near(0.8))


def test_what_the_machines_need_is_what_the_table_says():
    ppo, other = dpo_ppo.machines()
    assert (ppo["count"], other["count"]) == (4, 2) and ppo["rollouts"] and not other["rollouts"]
    assert other["models"] == {"policy": True, "reference": METHODS["dpo"].reference, "reward": False,
                               "critic": False}
    for machine in (ppo, other):
        used = {name for stage in machine["stages"] for name in stage["uses"]}
        assert (used == {name for name, needed in machine["models"].items() if needed}
                and len(machine["stages"]) == 5)


# 5, reward hacking

@pytest.mark.parametrize("source", ["seed-26", "seed-27", "seed-28"])
@pytest.mark.parametrize(("beta", "ensemble"), [(0.0, False), (0.05, False), (0.3, False), (0.0, True)])
def test_the_turn_is_the_recipe_s(source, beta, ensemble):
    lab = reward_hacking.available_labs()[source]
    policy = next(p for p in lab["policies"] if (p["kl_weight"], p["ensemble"]) == (beta, ensemble))
    numbers = reward_hacking.compute(reward_hacking.State(source=source, beta=beta, ensemble=ensemble))
    found = turning_point(policy["points"])
    assert (numbers["turn"]["step"] == found["step"]
            and numbers["turn"]["end"] == pytest.approx(found["end"], abs=1e-3))
    assert numbers["turn"]["turned"] == (found["fall"] >= 0.15)
    assert numbers["turn"]["turned"] or beta or ensemble  # what the lab is for
    assert numbers["here"]["true"] == policy["points"][-1]["true"] and numbers["logged"] == (beta,)
    # the peak that is marked and spoken of is the highest point of the curve that is drawn
    assert (numbers["peak"]["x"], numbers["peak"]["true"]) == max(numbers["true"]["step"], key=lambda p: p[1])


def test_between_two_logged_penalties_the_curve_is_a_mean_and_says_so():
    low, high, here = (reward_hacking.compute(reward_hacking.State(beta=beta)) for beta in (0.05, 0.3, 0.15))
    assert here["logged"] == (0.05, 0.3) and "Interpolated between" in reward_hacking.insight(here)
    for (step, a), (_, b), (same, found) in zip(*(n["true"]["step"] for n in (low, high, here)), strict=True):
        assert same == step and found == near(0.6 * a + 0.4 * b)
    assert "Interpolated" not in reward_hacking.insight(low)
    asked = reward_hacking.compute(reward_hacking.State(beta=0.1, ensemble=True))
    assert asked["beta"] == 0.0 and "Logged at β = 0, the nearest" in reward_hacking.insight(asked)


def test_the_default_shows_the_logged_fall():
    numbers = reward_hacking.compute(reward_hacking.State())
    turn = numbers["turn"]
    assert (turn["step"], turn["peak"], turn["end"]) == (40, 0.2845, -0.01877)
    early = reward_hacking.compute(reward_hacking.State(progress=10))
    assert early["here"]["step"] == 20 and "So far both are above" in reward_hacking.insight(early)
    assert "Since step 40" in reward_hacking.insight(numbers)


@pytest.mark.parametrize("n", reward_hacking.SIZES)
def test_the_chance_to_be_kept(n):
    chances = reward_hacking.rank_chances(n)
    assert sum(chances) == near(1.0) and chances[-1] == near(n / 64) and chances == sorted(chances)
    values = [math.sin(i) for i in range(64)]
    assert sum(c * v for c, v in zip(chances, values, strict=True)) == near(best_of_n(range(64), values, n))
    numbers = reward_hacking.compute(reward_hacking.State(best_of=n))
    assert numbers["best_kl"] == near(math.log(n) - (n - 1) / n) and numbers["best"]["n"] == n
    assert numbers["best"]["kl"] == pytest.approx(numbers["best_kl"], abs=1e-3)


def a_lab(folder, **changes):
    """A run folder of the recipe, as far as the instrument reads it."""
    points = [{"step": s, "kl": k, "distance": math.sqrt(k), "proxy": p, "true": t, "length": 9.0}
              for s, k, p, t in ((0, 0.0, 0.0, 0.0), (5, 4.0, 1.0, 0.5), (10, 9.0, 2.0, 0.125))]
    policy = {"kl_weight": 0.5, "ensemble": False, "points": points, "turning": turning_point(points),
              "minutes": 1.0}
    best = [{"n": n, "kl": 0.1, "distance": 0.3, "proxy": 0.2, "true": 0.1} for n in (1, 2)]
    folder.mkdir(parents=True)
    (folder / "curves.json").write_text(json.dumps({
        "recipe": "overoptimise", "seed": 7, "command": "postgrad train overoptimise <b>",
        "reward_accuracy": [0.8], "policies": [policy], "best_of_n": best, **changes}))


def test_a_run_of_the_runs_folder_can_be_shown(client, tmp_path):
    a_lab(tmp_path / "runs" / "mine")
    a_lab(tmp_path / "runs" / "other", recipe="something else")
    page = client.get("/instruments/reward-hacking").text
    assert 'value="run/mine"' in page and 'value="run/other"' not in page and 'max="0.5"' in page
    shown = client.get("/instruments/reward-hacking",
                       params={"source": "run/mine", "beta": "0.5", "progress": 50}).text
    assert "true 0.50" in shown and "overoptimise &lt;b&gt;" in shown
    missing = client.get("/instruments/reward-hacking/figure", params={"source": "run/mine", "ensemble": 1})
    assert missing.status_code == 200 and "mine has no policy with three reward models" in missing.text
    nearest = client.get("/instruments/reward-hacking/figure", params={"source": "run/mine", "beta": "0.2"})
    assert "Logged at β = 0.5, the nearest there is" in nearest.text
    (tmp_path / "runs" / "torn").mkdir()
    (tmp_path / "runs" / "torn" / "curves.json").write_text('{"recipe": "overopt')
    assert ("torn/curves.json is damaged"
            in client.get("/instruments/reward-hacking", params={"source": "run/torn"}).text)
    for source in ("run/other", "run/../mine", "run/none", "mine"):
        assert client.get("/instruments/reward-hacking", params={"source": source}).status_code == 400
    assert RUNS.get() is None  # a request's folder stays with the request


# pages

@pytest.mark.parametrize("name", MINE)
def test_every_end_of_every_control_can_be_drawn(client, name):
    """The corners are where a chart divides by zero."""
    instrument = INSTRUMENTS[name]
    for control in instrument.shown(instrument.state()):
        for value in ((control.low, control.high) if hasattr(control, "low")
                      else [v for v, _ in control.pairs()] if hasattr(control, "pairs") else [0, 1]):
            answer = client.get(f"/instruments/{name}/figure", params={control.name: value})
            assert answer.status_code == 200 and "nan" not in answer.text.lower(), (control.name, value)


def test_the_gallery_has_a_figure_of_each(client):
    page = client.get("/instruments").text
    for name in INSTRUMENTS:
        assert client.get(f"/instruments/{name}/small").text.strip(), f"write instruments/small/{name}.html"
    for name in MINE:
        assert f'hx-get="/instruments/{name}/small"' in page
        assert client.get(f"/instruments/{name}/small").text.count("<svg") == 1
    kept = client.get("/instruments", headers={"x-postgrad-export": "1"}).text
    assert kept.count('<svg class="chart') >= len(MINE) and "hx-get" not in kept
    assert client.get("/instruments/none/small").status_code == 404
