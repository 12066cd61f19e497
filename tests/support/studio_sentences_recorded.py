"""What the sentences of the instruments on recordings and on the memory estimate say, by their words, taken
from the recordings and the library's functions: (pattern, whether it is true of the state)."""

import json
import math
from functools import cache
from statistics import fmean

import pytest
import torch
from studio_sentences import N, P, shows, shows_share, value_of

from postgrad.maths.intervals import mean_interval
from postgrad.methods import METHODS
from postgrad.runs.overoptimisation import turning_point
from postgrad.studio.instruments import preference_labeller as labeller
from postgrad.studio.instruments import reward_hacking
from postgrad.studio.label.reward_head import fit_head, ranking_accuracy, win_share
from postgrad.studio.recordings import recording
from postgrad.training.memory import GB, SIZES, Setup, adapter, estimate, parameters


def curve(s):
    """(points of the drawn curve, the penalties it was logged with, its turn where logged), from the file."""
    runs = json.loads(reward_hacking.EMBEDDED.read_text())["runs"]
    lab = next(run for run in runs if f"seed-{run['seed']}" == s.source)
    logged = {p["kl_weight"]: p for p in lab["policies"] if p["ensemble"] == s.ensemble}
    low = max([b for b in logged if b <= s.beta + 1e-9], default=min(logged))
    high = min([b for b in logged if b >= s.beta - 1e-9], default=max(logged))
    if low == high:
        return logged[low]["points"], (low,), logged[low]["turning"]
    t = (s.beta - low) / (high - low)
    return [{k: (1 - t) * a[k] + t * b[k] for k in a} | {"step": a["step"]} for a, b in
            zip(logged[low]["points"], logged[high]["points"], strict=True)], (low, high), None


def standing(s):
    """(here, start, highest point so far and to come, whether the mean turns over, its fall)"""
    points, _, turn = curve(s)
    here = min(points, key=lambda p: abs(p["step"] - s.progress / 100 * points[-1]["step"]))
    fall = (turn or turning_point(points))["fall"]
    return here, points[0], max(points, key=lambda p: p["true"]), fall >= 0.15, fall


def begins(s, low, high, nearest):
    """What stands before a sentence: between which runs, or which is nearest."""
    _, logged, _ = curve(s)
    if low:
        return logged == (float(low), float(high))
    return logged == (float(nearest),) and logged[0] != s.beta if nearest else logged == (s.beta,)


def since_peak(s, step, top, now, proxy_then, proxy_now, who):
    here, _, peak, turned, _ = standing(s)
    return (turned and here["step"] > peak["step"] and shows(step, peak["step"]) and shows(top, peak["true"])
            and shows(now, here["true"]) and shows(proxy_then, peak["proxy"])
            and shows(proxy_now, here["proxy"]) and here["true"] < peak["true"]
            and (not who or (here["proxy"] > peak["proxy"] and ("three" in who) == s.ensemble)))


WHERE = rf"(?:Interpolated between the logged β of {N} and {N}: |Logged at β = {N}, the nearest there is: )?"
HACKING = [(WHERE + pattern, lambda s, low, high, nearest, *said, true=true:
            begins(s, low, high, nearest) and true(s, *said)) for pattern, true in [
    (rf"[Bb]efore training the reward model gives {N}, and true quality is {N}\.",
     lambda s, proxy, true: (standing(s)[0]["step"] == 0 and shows(proxy, standing(s)[1]["proxy"])
                             and shows(true, standing(s)[1]["true"]))),
    (rf"[Ss]o far both are above where they began: the proxy from {N} to {N}, true quality from {N} to {N}, "
     rf"at a KL of {N}\.",
     lambda s, p0, p1, t0, t1, kl: (
         shows(p0, standing(s)[1]["proxy"]) and shows(p1, standing(s)[0]["proxy"])
         and shows(t0, standing(s)[1]["true"]) and shows(t1, standing(s)[0]["true"])
         and shows(kl, standing(s)[0]["kl"]) and value_of(p1) > value_of(p0)
         and value_of(t1) > value_of(t0))),
    (rf"[Ss]ince step {N} true quality has gone from {N}, its highest, to {N}, while the proxy went from {N} "
     rf"to {N}(?:: the policy pleases (the .*) by its mistakes)?\.", since_peak),
    (rf"[Tt]rue quality is {N}, below its highest of {N} at step {N}; but on average over neighbouring "
     rf"evaluations {N} % of what was gained are lost by the end, less than the 15 % that count as turning "
     r"over\.",
     lambda s, now, top, step, fall: (
         shows(now, standing(s)[0]["true"]) and shows(top, standing(s)[2]["true"])
         and shows(step, standing(s)[2]["step"]) and shows(fall, 100 * standing(s)[4])
         and standing(s)[4] < 0.15)),
    (rf"[Aa]t step {N} the proxy is {N} and true quality {N}\.",
     lambda s, step, proxy, true: (shows(step, standing(s)[0]["step"])
                                   and shows(proxy, standing(s)[0]["proxy"])
                                   and shows(true, standing(s)[0]["true"]))),
]]


@cache
def made(s, name):
    return estimate(SIZES[s.size], METHODS[name],
                    Setup(lora=16 if s.trained == "lora" else 0, bits=s.bits, tokens=s.tokens,
                          samples=s.samples, recompute=s.recompute, reward_model=name == "ppo"))


PARTS = {"weights": "weights", "AdamW’s state": "optimizer", "gradients": "gradients",
         "activations": "activations", "the KV cache": "cache", "the sampler’s own copy": "sampler"}


def needs(s, *said):
    """(GB, %, part) of PPO and of GRPO"""
    for name, (size, share_of, part) in zip(("ppo", "grpo"), (said[:3], said[3:]), strict=True):
        m = made(s, name)
        sizes = {p: getattr(m, p) for p in PARTS.values() if p not in ("cache", "sampler")}
        if m.sampling > m.updating:
            sizes |= {"cache": m.cache, "sampler": m.sampler, **m.stays}
        found = PARTS[part]
        if not (shows(size, m.peak / GB) and shows(share_of, 100 * sizes[found] / m.peak)
                and sizes[found] == max(sizes.values())):
            return False
    return True


NEEDS = rf"PPO needs {N} GB, {N} % of it ([^,.]*?) and GRPO needs {N} GB, {N} % of it ([^,.]*?)\."
ALGORITHMS = [
    (rf"With adapters {N} % as many weights have gradients and optimizer state, and all models share one "
     rf"body: {NEEDS}",
     lambda s, few, *said: (
         s.trained == "lora" and needs(s, *said)
         and shows(few, 100 * adapter(SIZES[s.size], 16) / parameters(SIZES[s.size]))
         and all(size < 0.5 * made(s, "ppo").weights for role, size in made(s, "ppo").models.items()
                 if role != "policy"))),
    (rf"Trained in full, {NEEDS} GRPO has no critic to train and no reward model to hold: {N} % of PPO’s "
     r"peak\.", lambda s, *said: (s.trained == "full" and needs(s, *said[:6])
                                  and shows(said[6], 100 * made(s, "grpo").peak / made(s, "ppo").peak)
                                  and set(made(s, "grpo").models) == {"policy", "reference"})),
]


def figure(stage, name, k):
    """(mean, low, high) of a figure of a stage, from the recorded counts."""
    found = next(x for x in recording("pipeline")["stages"] if x["name"] == stage)["measured"]
    words, asked = found["words"], found["questions"]
    if name == "solved":
        values = [1 - math.comb(8 - c, k) / math.comb(8, k) for c in words["right"]]
    else:
        values = {"formed": [c / 8 for c in words["formed"]], "helpful": [c / 8 for c in asked["right"]],
                  "kind": [c / 8 for c in asked["kind"]]}[name]
    mean, low, high = mean_interval(values, (0.0, 1.0))
    assert mean == pytest.approx(fmean(values))
    return mean, low, high


def length(stage):
    found = next(x for x in recording("pipeline")["stages"] if x["name"] == stage)
    return found["measured"]["words"]["mean_length"]


def tried(words):
    return 1 if words == "one try" else int(words.split()[0])


def met(name):
    (_, low, high), (_, low2, high2) = figure("sft", name, 1), figure("rl", name, 1)
    return low <= high2 and low2 <= high


PIPELINE = [
    (rf"The pretrained model solves {P} of the word problems in (one try|\d tries), but writes whatever "
     rf"might follow: {P} of its replies are in form\.",
     lambda s, solved, k, formed: (s.stage == "base" and tried(k) == s.k
                                   and shows_share(solved, figure("base", "solved", s.k)[0])
                                   and shows_share(formed, figure("base", "formed", 1)[0]))),
    (rf"Imitation fixes the form, {P} to {P}; word problems solved in (one try|\d tries) go from {P} to "
     rf"{P}\. Replies get shorter, {N} to {N} tokens\.",
     lambda s, f0, f1, k, s0, s1, l0, l1: (
         s.stage == "sft" and tried(k) == s.k and shows_share(f0, figure("base", "formed", 1)[0])
         and shows_share(f1, figure("sft", "formed", 1)[0])
         and figure("sft", "formed", 1)[1] > figure("base", "formed", 1)[2]
         and shows_share(s0, figure("base", "solved", s.k)[0])
         and shows_share(s1, figure("sft", "solved", s.k)[0]) and shows(l0, length("base"))
         and shows(l1, length("sft")) and length("sft") < length("base"))),
    (rf"Paid for right answers alone, pass@(\d) goes from {P} to {P}(?: and replies from {N} to {N} tokens: "
     r"it writes the steps\. Helpfulness and manners, which nobody paid for, (stay where they were), within "
     r"their intervals)?\.",
     lambda s, k, s0, s1, l0, l1, stay: (
         s.stage == "rl" and int(k) == s.k and shows_share(s0, figure("sft", "solved", s.k)[0])
         and shows_share(s1, figure("rl", "solved", s.k)[0])
         and (not stay or (shows(l0, length("sft")) and shows(l1, length("rl"))
                           and length("rl") > length("sft") and met("helpful") and met("kind"))))),
]


def ranked(labels):
    x, y = labeller.answer_vectors()
    used = [i for i, label in enumerate(labels) if label != "s"]
    w = fit_head(x[used, 0], x[used, 1], win_share([labels[i] for i in used]))
    quality = torch.tensor([p["quality"] for p in recording("pairs")["unseen"]])
    return ranking_accuracy((y[:, 0] - y[:, 1]) @ w, quality[:, 0] - quality[:, 1])


def after_labels(s, count, right, pairs):
    return (int(count) == len(s.labels.replace("s", "")) and int(pairs) == 200
            and shows_share(right, ranked(s.labels)))


AFTER = rf"After (\d+) labels? the model ranks {P} of (\d+) unseen pairs as their true quality does"
LABELLER = [
    (r"Which of the two is better\? Press a, b or t: a reward model is trained after each label\.",
     lambda s: not s.labels.replace("s", "")),
    (rf"{AFTER}: so few are a first guess, and a coin is right in 50 %\.", after_labels),
    (rf"{AFTER}, and a coin 50 %: what it has learned of these labels is hardly that quality\.",
     lambda s, *said: after_labels(s, *said) and ranked(s.labels) < 0.55),
    (rf"{AFTER}, against 50 % of a coin: the labels carry over to questions that nobody labelled\.",
     lambda s, *said: after_labels(s, *said) and ranked(s.labels) >= 0.55),
]
