"""What stands around the figures is true of the numbers in them: titles, sentences of the list, labels and
notes of the templates, marks by their place, and worked equations by a calculator."""

import math
import random
import re
from html import unescape

import pytest
from studio_positions import positions
from studio_small import client

from postgrad.studio.book.chapters import stored_values
from postgrad.studio.book.experiments import SMALL
from postgrad.studio.book.numbers import numbers_in_text
from postgrad.studio.instruments import (
    INSTRUMENTS,
    algorithms,
    dpo_ppo,
    gae,
    grpo,
    kl_estimators,
    layouts,
    reward_hacking,
    staleness,
    trial,
)
from postgrad.studio.pages import HERE, MINUS
from postgrad.studio.recordings import recording

TEMPLATES = HERE / "templates"


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    return client(tmp_path_factory.mktemp("labels"))


def start(name):
    instrument = INSTRUMENTS[name]
    return instrument.compute(instrument.settle(instrument.state()))


def at(name, **fields):
    instrument = INSTRUMENTS[name]
    return instrument.compute(instrument.settle(instrument.state(**fields)))


# titles

def stage(name, key, part="words"):
    found = next(s["measured"] for s in recording("pipeline")["stages"] if s["name"] == name)[part]
    return sum(found[key]) / (found["problems"] * found["samples"])


def turned_over():
    labs = reward_hacking.available_labs().values()
    return all(p["turning"]["fall"] >= reward_hacking.WORTH_SAYING for lab in labs for p in lab["policies"]
               if p["kl_weight"] == 0 and not p["ensemble"])


TITLES = {  # what a title claims, of the numbers of its figure
    "pipeline": lambda: (stage("base", "right") > 0 and stage("sft", "formed") > 0.95
                         and stage("base", "formed") < 0.95
                         and stage("rl", "right") > 2 * stage("sft", "right")),
    "preference-labeller": lambda: stored_values()["rewards"]["many_right"] > 0.6,
    "algorithms": lambda: len(start("algorithms")["methods"]) == 3,
    "grpo": lambda: abs(sum(start("grpo")["advantages"])) < 1e-9,
    "reward-hacking": turned_over,
    "bradley-terry": lambda: start("bradley-terry")["probability"] > 0.5,
    "dpo-ppo": lambda: [m["name"] for m in start("dpo-ppo")["machines"]] == ["ppo", "dpo"],
    "ppo-clip": lambda: at("ppo-clip", ratio=1.5, advantage=1.0)["gradient"] == 0,
    "test-time": lambda: (at("test-time", spent=32)["here"]["verifier"]
                          > at("test-time", spent=1)["here"]["verifier"]),
    "pass-at-k": lambda: start("pass-at-k")["rl"][0] > start("pass-at-k")["base"][0],
    "kl-estimators": lambda: (start("kl-estimators")["kl"] > 0 and all(
        abs(slope) < 1e-9 for slope in start("kl-estimators")["estimators"]["k1"]["gradient"])),
    "gae": lambda: (at("gae", lam=1.0)["bias"] < at("gae", lam=0.0)["bias"]
                    and at("gae", lam=1.0)["noise"] > at("gae", lam=0.0)["noise"]),
    "language-mixing": None,
    "ledger": None,
    "mismatch": lambda: start("mismatch")["mean_apart"] > 0.001,
    "divergences": lambda: all(
        at("divergences", direction="forward")[part] > at("divergences", direction="reverse")[part]
        for part in ("covered", "outside")),
    "staleness": lambda: (at("staleness", updates=1)["share"] > at("staleness", updates=4)["share"]
                          > 100 * at("staleness", updates=4)["reply"]),
    "layouts": lambda: at("layouts", reply=256)["best"] != at("layouts", reply=4096)["best"],
    "turn-credit": lambda: any(
        max(turn["credit"] for turn in at("turn-credit", method="episode", episode=n)["turns"]) < 0
        < max(turn["change"] for turn in at("turn-credit", method="values", episode=n)["turns"])
        for n in range(1, 9)),
    "telling-apart": lambda: start("telling-apart")["least"] < start("telling-apart")["most"],
    "token-mdp": None, "bandit": None, "one-step": None,
    "tilt": lambda: all(
        a - b == pytest.approx(at("tilt", shift=1.0)["log_z"])
        for a, b in zip(at("tilt", shift=1.0)["tilted"], at("tilt", shift=1.0)["log_optimum"], strict=True)),
}


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_a_title_claims_what_the_figure_shows(name):
    """A question claims nothing."""
    true = TITLES[name]
    assert INSTRUMENTS[name].title.endswith("?") if true is None else true()


# labels and notes

TIMES = len(gae.CHOICES["late"])
NOTED = {  # number in a template -> whether it is so
    "instruments/algorithms.html": {"80": lambda: algorithms.CARDS[-1] == 80},
    "instruments/below/algorithms.html": {},
    "instruments/below/gae.html": {"Eight": lambda: gae.LENGTH == TIMES == 8, "five": lambda: gae.NEEDED == 5,
                                   "1": lambda: max(gae.all_replies()["reward"].flatten()) == 1,
                                   "256": lambda: len(gae.all_replies()["choices"]) == 256},
    "instruments/gae.html": {"eight": lambda: gae.LENGTH == 8},
    "instruments/below/kl-estimators.html": {"five": lambda: len(kl_estimators.REFERENCE) == 5},
    "instruments/kl-estimators.html": {"five": lambda: len(kl_estimators.REFERENCE) == 5},
    "instruments/small/kl-estimators.html": {"Three": lambda: len(start("kl-estimators")["estimators"]) == 3},
    "instruments/below/mismatch.html": {"0": lambda: "seed=0" in recording("samplers")["command"]},
    "instruments/below/ppo-clip.html": {},
    "instruments/below/reward-hacking.html": {
        "three": lambda: spacing() == {10}, "15": lambda: reward_hacking.WORTH_SAYING == 0.15,
        "64": lambda: reward_hacking.SIZES[-1] == len(reward_hacking.rank_chances(64)) == 64},
    "instruments/dpo-ppo.html": {"0": lambda: at("dpo-ppo", moved=0.0)["policy"] == pytest.approx(
        dpo_ppo.REFERENCE), "1": lambda: at("dpo-ppo", moved=1.0)["policy"] == pytest.approx(
            at("dpo-ppo")["optimum"])},
    "instruments/language-mixing.html": {
        "three": lambda: "task=words+words-es+countdown" in recording("languages")["runs"][0]["command"]},
    "instruments/pipeline_replies.html": {"ten": lambda: len(recording("pipeline")["prompts"]) == 10},
    "instruments/below/layouts.html": {"256": lambda: layouts.PROMPT == 256},
    "instruments/below/staleness.html": {"six": lambda: len(staleness.LOGITS) == 6},
    "instruments/below/turn-credit.html": {
        "four": lambda: max(len(at("turn-credit", episode=n)["turns"]) for n in range(1, 9)) == 4,
        "0.1": lambda: 0.1 in {turn["reward"] for n in range(1, 9)
                               for turn in at("turn-credit", episode=n)["turns"]}},
    "instruments/small/bandit.html": {"Four": lambda: len(start("bandit")["letters"]) == 4},
    "instruments/small/one-step.html": {"eight": lambda: start("one-step")["count"] >= 8},
    "instruments/tilt.html": {"three": lambda: len(start("tilt")["answers"]) == 3},
    "instruments/small/tilt.html": {"three": lambda: len(start("tilt")["answers"]) == 3},
    "instruments/trial.html": {"four": lambda: len({pair for _, pair, _ in trial.ORDER}) == 4},
    "book/workshop.html": {"0": lambda: "seed" not in SMALL,
                           "100": lambda: SMALL["evaluation.problems"] == "100"},
}
EVERYWHERE = {"95": "the level of the intervals", "100": "per cent", "1": "a unit", "0": "a unit"}
CODE = re.compile(r"\{#.*?#\}|\{\{.*?\}\}|\{%.*?%\}", re.S)


def spacing():
    """Steps between the evaluations of the logged curves."""
    points = [p["points"] for lab in reward_hacking.available_labs().values() for p in lab["policies"]]
    return {b["step"] - a["step"] for curve in points for a, b in zip(curve, curve[1:], strict=False)}


def words_of(template):
    """What a template says by itself: its text, its labels, and sentences within its expressions."""
    source = re.sub(r"<tex-math.*?</tex-math>", " ", template.read_text(), flags=re.S)
    said = [text for code in CODE.findall(source) if not code.startswith("{#")
            for text in re.findall(r'"([^"]*)"', code) if re.search(r"[a-z]{2,} [a-z]{2,}", text)]
    source = re.sub(r"\{% macro comb.*?endmacro %\}", " ", source, flags=re.S)  # a path alone
    bare = CODE.sub(" ", source)
    labels = re.findall(r'(?:aria-label|title|placeholder|alt)="([^"]*)"', bare)
    return unescape(" . ".join([re.sub(r'<path.*?/>|<[^>]*>', " ", bare), *labels, *said]))


@pytest.mark.parametrize("file", sorted(
    path.relative_to(TEMPLATES).as_posix() for room in ("instruments", "book")
    for path in (TEMPLATES / room).rglob("*.html")))
def test_every_number_in_a_label_is_accounted_for(file):
    """It is a constant that the test reads from the code, the level of an interval, or a unit."""
    noted = NOTED.get(file, {})
    for use in numbers_in_text(words_of(TEMPLATES / file), file):
        if use.kind == "unaccounted":
            assert use.number in noted or use.number in EVERYWHERE or use.number in LITERAL.get(file, ()), use
    assert [number for number, true in noted.items() if not true()] == []


LITERAL = {  # numbers that name a thing, or that belong to a worked example beside them
    "instruments/below/algorithms.html": ("16", "4"), "instruments/below/ppo-clip.html": ("4", "0.1"),
    "instruments/below/test-time.html": ("quarter",), "instruments/trial.html": ("5",),
    "instruments/below/kl-estimators.html": ("2", "12"),
}


ABOUT = {  # number in the list's sentence of an instrument -> whether it is so
    "pipeline": {"Three": lambda: len(recording("pipeline")["stages"]) == 3},
    "algorithms": {"1": lambda: control("algorithms", "size").options[0] == "1B",
                   "70": lambda: control("algorithms", "size").options[-1] == "70B"},
    "bandit": {"Four": lambda: len(start("bandit")["letters"]) == 4},
    "tilt": {}, "one-step": {}, "token-mdp": {},
    "bradley-terry": {"half": lambda: at("bradley-terry", chosen=1.0, rejected=1.0)["probability"] == 0.5},
    "test-time": {"32": lambda: control("test-time", "spent").high == 32},
    "pass-at-k": {"64": lambda: control("pass-at-k", "k").high == 64},
    "kl-estimators": {"five": lambda: len(kl_estimators.REFERENCE) == 5},
    "turn-credit": {"Eight": lambda: start("turn-credit")["group"] == 8,
                    "three": lambda: len(control("turn-credit", "method").options) == 3},
}


def control(name, field):
    return next(c for c in INSTRUMENTS[name].shown(INSTRUMENTS[name].state()) if c.name == field)


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_every_number_in_the_list_is_accounted_for(name):
    true = ABOUT.get(name, {})
    uses = numbers_in_text(f"{INSTRUMENTS[name].title}. {INSTRUMENTS[name].about}", name)
    assert {use.number for use in uses if use.kind == "unaccounted"} <= true.keys()
    assert [number for number, holds in true.items() if not holds()] == []


# marks stand where their numbers are

@pytest.mark.parametrize("size", grpo.SIZES)
def test_each_reward_is_drawn_at_its_place(studio, size):
    rng = random.Random(size)
    for rewards in (grpo.recorded_verdicts(size), (0.5,) * size, [round(rng.random() * 20) / 20
                                                                 for _ in range(size)]):
        query = "&".join([f"size={size}", *(f"rewards={r:g}" for r in rewards)])
        page = studio.get(f"/instruments/grpo?{query}").text
        scale = r'<g data-from="([\d.]+)" data-to="([\d.]+)" data-low="0" data-high="1">(.*?)</g>'
        drawings = re.findall(scale, page, re.S)
        assert len(drawings) == 2
        for low, high, marks in drawings:
            found = {int(i): float(x) for x, i in re.findall(
                r'<circle[^>]*?cx="([\d.]+)"[^>]*data-drag="grpo-rewards-(\d+)"', marks)}
            assert found == {i: pytest.approx(float(low) + r * (float(high) - float(low)), abs=0.06)
                             for i, r in enumerate(rewards)}
            heights = [float(y) for y in re.findall(r'<circle[^>]*?cy="([\d.]+)"', marks)]
            assert 15 < min(heights) and max(heights) - min(heights) <= 70.1  # within the strip
            if size <= 8:  # each can be taken by itself
                taken = sorted(zip(found.values(), heights, strict=True))
                assert all(math.dist(a, b) >= 9 for a, b in zip(taken, taken[1:], strict=False))


def test_the_rewards_of_four_answers_are_drawn_at_their_place(studio):
    """The implied rewards too, wherever the sliders stand."""
    for query in ("", "?moved=2&beta=3&a=-2&b=2&c=2&d=2", "?machine=dpo&moved=2&a=2&d=-2&beta=0.2"):
        numbers = INSTRUMENTS["dpo-ppo"].compute(state_of("dpo-ppo", query))
        page = studio.get(f"/instruments/dpo-ppo{query}").text
        drawing = page.partition("implied rewards of the four answers")[2].partition("</svg>")[0]
        ticks = [(float(y) - 4, float(v.replace(MINUS, "-"))) for y, v in re.findall(
            r'<text x="[\d.]+" y="([\d.]+)" text-anchor="end">([^<]*)</text>', drawing)]
        (y0, v0), (y1, v1) = ticks[0], ticks[-1]
        for role, key in (("reward", "reward"), ("policy", "implied")):
            drawn = [float(y) for y in re.findall(rf'<circle class="dot {role}" cx="[\d.]+" cy="([\d.]+)"',
                                                  drawing)]
            assert [v0 + (y - y0) * (v1 - v0) / (y1 - y0) for y in drawn] == pytest.approx(
                numbers[key], abs=0.02 * (v1 - v0))


def state_of(name, query):
    from urllib.parse import parse_qsl

    from starlette.datastructures import QueryParams
    return INSTRUMENTS[name].read(QueryParams(parse_qsl(query.lstrip("?"))))


@pytest.mark.parametrize(("name", "marks"), [
    ("gae", ("true advantage", "estimated", "bias", "noise", "both together", "least error")),
    ("dpo-ppo?stage=5", ("policy", "reference", "optimum", "reward", "after the step"))])
def test_every_mark_has_its_key(studio, name, marks):
    keys = studio.get(f"/instruments/{name}").text.partition('<p class="keys">')[2].partition("</p>")[0]
    assert all(f">{mark}" in keys for mark in marks)


# a control that would do nothing is not there

def test_a_penalty_can_be_moved_where_runs_were_logged_for_it():
    instrument = INSTRUMENTS["reward-hacking"]
    for ensemble in (False, True):
        state = instrument.state(ensemble=ensemble)
        slides = any(c.name == "beta" for c in instrument.shown(state))
        lines = {str(at("reward-hacking", ensemble=ensemble, beta=beta)["true"]) for beta in (0.0, 0.2)}
        assert slides == (len(lines) > 1)


# a sentence at the ends of its controls

def test_no_ratio_is_cut_to_a_limit_that_reads_like_it():
    """Where all ratios are shown as 1, none is said to be above a limit."""
    instrument = INSTRUMENTS["mismatch"]
    for state in positions(instrument, mixed=60):
        said = instrument.insight(instrument.compute(state))
        assert not re.search(r"go from 1\.00 to 1\.00|outside 1\.00 to 1\.00|None are|exceed 1\.0 ", said)
        assert not re.search(r"None[^;.]*(cut to it|count nothing)|\b0 of", said), said


# worked equations, by a calculator that has only what is printed

def value(text):
    return float(text.strip().replace(MINUS, "-"))


N = rf"([{MINUS}-]?\d+(?:\.\d+)?)"
EQUATIONS = {
    "grpo": [(rf"\\frac\{{ *{N} - {N} *\}}\{{ *{N} *\}} = {N}", lambda r, m, s: (r - m) / s),
             (rf"A_1 = r_1 - \\bar r = {N} - {N} = {N}", lambda r, m: r - m)],
    "gae": [(rf"\\sqrt\{{ {N}\^2 \+ {N}\^2 \}} = {N}", math.hypot)],
    "dpo-ppo": [(rf"\\frac\{{ {N}\\, e\^\{{ {N} / {N} \}} \}}\{{ {N} \}} = {N}",
                 lambda ref, r, beta, z: ref * math.exp(r / beta) / z),
                (rf"= {N} \\log\\frac\{{ {N} \}}\{{ {N} \}} = {N}", lambda b, p, q: b * math.log(p / q))],
    "reward-hacking": [(rf": \\quad {N} - {N} \\cdot {N} = {N}", lambda r, b, kl: r - b * kl)],
    "ledger": [(rf":\\quad {N} - {N} = {N}", lambda a, b: a - b)],
    "kl-estimators": [(rf"\\frac\{{ {N} \}}\{{\\sqrt\{{ {N} \}} \}} = {N}", lambda s, n: s / math.sqrt(n))],
    "algorithms": [(rf"\\underbrace\{{ {N} \}}.*?\\underbrace\{{ {N} \}}.*?\\underbrace\{{ {N} \}}.*?"
                    rf"\\times {N} \\cdot 10\^9.*? = {N}", lambda a, b, c, n: (a + b + c) * n)],
}


def states_of(instrument, rng):
    if instrument.name == "grpo":
        for size in (4, 8, 16, 32):
            for std in (True, False):
                rewards = tuple(round(rng.random() * 20) / 20 for _ in range(size))
                yield instrument.state(size=size, std=std, rewards=rewards)
        return
    states = list(positions(instrument, mixed=20))
    yield from rng.sample(states, min(20, len(states)))


@pytest.mark.parametrize("name", EQUATIONS)
def test_a_printed_equation_holds_on_a_calculator(studio, name):
    instrument, rng, met = INSTRUMENTS[name], random.Random(name), set()
    for state in states_of(instrument, rng):
        page = unescape(studio.get(f"/instruments/{name}?{instrument.query(state)}").text)
        for pattern, calculate in EQUATIONS[name]:
            for found in re.findall(pattern, page):
                *given, result = found
                digits = len(result.partition(".")[2])
                assert abs(calculate(*map(value, given)) - value(result)) <= 0.5 * 10**-digits * 1.001, (
                    found, state)
                met.add(pattern)
    assert met == {pattern for pattern, _ in EQUATIONS[name]}
