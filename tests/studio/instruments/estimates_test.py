"""Instruments 11 and 12, estimators of the KL and GAE: by hand, and every sentence at every place of the
controls against numbers that are worked out here."""

import itertools
import math

import pytest
from studio_positions import after, numbers_in, positions

from postgrad.studio.instruments import INSTRUMENTS, gae, kl_estimators

CLOSE = 6e-4  # numbers are shown with three digits


# the KL by plain sums

def world(state):
    added = (state.likeliest, 0, 0, 0, state.rarest)
    tilted = [p * math.exp(x) for p, x in zip(kl_estimators.REFERENCE, added, strict=True)]
    policy = [x / sum(tilted) for x in tilted]
    d = [math.log(p / q) for p, q in zip(policy, kl_estimators.REFERENCE, strict=True)]
    shapes = {"k1": lambda x: x, "k2": lambda x: x * x / 2, "k3": lambda x: math.exp(-x) - 1 + x}
    found = {name: [f(x) for x in d] for name, f in shapes.items()}
    mean = {name: sum(p * v for p, v in zip(policy, values, strict=True)) for name, values in found.items()}
    std = {name: math.sqrt(sum(p * (v - mean[name]) ** 2 for p, v in zip(policy, values, strict=True)))
           for name, values in found.items()}
    back = -sum(q * x for q, x in zip(kl_estimators.REFERENCE, d, strict=True))
    below = sum(p for p, v in zip(policy, d, strict=True) if v < -1e-9)
    return policy, d, mean, std, back, below


def slope(f, policy):
    """The derivative of f(policy) by each logit, by differences."""
    out = []
    for i in range(len(policy)):
        ends = []
        for h in (1e-5, -1e-5):
            moved = [p * math.exp(h if j == i else 0) for j, p in enumerate(policy)]
            ends.append(f([x / sum(moved) for x in moved]))
        out.append((ends[0] - ends[1]) / 2e-5)
    return out


def test_gradients_of_the_estimators_by_differences():
    state = kl_estimators.State(likeliest=0.7, rarest=-1.1)
    policy, *_ = world(state)
    ref = kl_estimators.REFERENCE
    ahead = slope(lambda p: sum(a * math.log(a / b) for a, b in zip(p, ref, strict=True)), policy)
    back = slope(lambda p: sum(b * math.log(b / a) for a, b in zip(p, ref, strict=True)), policy)
    found = kl_estimators.compute(state)
    for got, wanted in ((found["right"], ahead), (found["other"], back),
                        (found["estimators"]["k1"]["gradient"], [0] * 5),
                        (found["estimators"]["k2"]["gradient"], ahead),
                        (found["estimators"]["k3"]["gradient"], back)):
        assert got == pytest.approx(wanted, abs=1e-8)


def test_sentences_of_the_estimators_hold_everywhere():
    seen = set()
    same = kl_estimators.State(likeliest=0.0, rarest=0.0)
    for state in (same, *positions(INSTRUMENTS["kl-estimators"])):
        said = kl_estimators.insight(kl_estimators.compute(state))
        _, d, mean, std, back, below = world(state)
        if max(map(abs, d)) < 1e-9:
            assert said.startswith("Policy and reference are the same")
            seen.add("same")
            continue
        assert after(said, "has the mean") == pytest.approx(mean[state.estimator], abs=CLOSE)
        if state.estimator == "k1":
            assert mean["k1"] == pytest.approx(sum(mean[k] for k in ("k1", "k3")) / 2)
            share = after(said, "It is negative on") if "though" in said else 0
            assert (abs(share - 100 * below) <= 0.5) if share else below < 0.0051
        elif state.estimator == "k2":
            seen.add("above" if "above" in said else "below" if "below" in said else "within")
            gap = mean["k2"] - mean["k1"]
            assert ("above" in said) == (gap >= 5e-4) and ("below" in said) == (gap <= -5e-4)
        else:
            seen.add("less" if "less than k1" in said else "more" if "more than k1" in said else "as k1")
            assert after(said, "scatters by") == pytest.approx(std["k3"], abs=CLOSE)
            assert ("less than" in said) == (std["k3"] - std["k1"] <= -5e-4)
            assert ("more than" in said) == (std["k3"] - std["k1"] >= 5e-4)
            assert numbers_in(said)[-1] == pytest.approx(back, abs=CLOSE)
    assert {"same", "above", "less"} <= seen


# GAE by plain loops over the 256 replies

def pushed(lam, wrong):
    """(bias, noise) of one reply's push, by the definition of the advantage as a sum of deltas."""
    def value(t, s):
        left = gae.LENGTH - t
        return sum(math.comb(left, k) for k in range(left + 1) if s + k >= gae.NEEDED) / 2**left

    start, by_prefix = value(0, 0), {}
    for reply in itertools.product((0, 1), repeat=gae.LENGTH):
        good = [sum(reply[:t]) for t in range(gae.LENGTH + 1)]
        critic = [(1 - wrong) * value(t, good[t]) + wrong * start for t in range(gae.LENGTH)] + [0.0]
        paid = float(good[-1] >= gae.NEEDED)
        deltas = [critic[t + 1] - critic[t] + (paid if t == gae.LENGTH - 1 else 0) for t in range(gae.LENGTH)]
        for t in range(gae.LENGTH):
            sign = 2 * reply[t] - 1
            push = sign * sum(lam**k * x for k, x in enumerate(deltas[t:]))
            exact = sign * (value(t + 1, good[t + 1]) - value(t, good[t]))
            by_prefix.setdefault((t, good[t]), []).append((push, exact))
    bias = noise = count = 0
    for rows in by_prefix.values():
        mean = sum(push for push, _ in rows) / len(rows)
        bias += sum((mean - exact) ** 2 for _, exact in rows)
        noise += sum((push - mean) ** 2 for push, _ in rows)
        count += len(rows)
    return math.sqrt(bias / count), math.sqrt(noise / count)


@pytest.mark.parametrize(("lam", "wrong"), [(0.0, 0.5), (0.95, 0.5), (1.0, 1.0), (0.4, 0.0)])
def test_bias_and_noise_by_plain_loops(lam, wrong):
    bias, noise = pushed(lam, wrong)
    for samples in (1, 16):
        found = gae.compute(gae.State(lam=lam, wrong=wrong, samples=samples))
        assert found["bias"] == pytest.approx(bias, abs=1e-12)
        assert found["noise"] == pytest.approx(noise / math.sqrt(samples), abs=1e-12)
    if lam == 1:
        assert bias < 1e-12  # the return says what a choice is worth, whatever the critic thinks
    if lam == 0 and not wrong:
        assert noise < 1e-12


def test_sentences_of_gae_hold_everywhere():
    seen = set()
    for state in positions(INSTRUMENTS["gae"], mixed=20):
        numbers = gae.compute(state)
        said, rows = gae.insight(numbers), numbers["curve"]
        best = min(row["error"] for row in rows)
        error = math.hypot(numbers["bias"], numbers["noise"])
        assert ("right on average" in said) == (numbers["bias"] < 5e-4)
        assert ("free of chance" in said) == (numbers["noise"] < 5e-4)
        assert after(said, "chance: ") == pytest.approx(error, abs=CLOSE)
        better = [row["lam"] for row in rows if row["error"] == best]
        if "no other" in said:
            assert error - best < 1e-3
        else:
            assert numbers_in(said)[-2:] == pytest.approx([better[0], best], abs=CLOSE) and error > best
            assert ("Here less" in said) == (better[0] < state.lam)
        seen.add("no other" in said or ("Here less" in said))
    assert len(seen) == 2
