"""Instruments 9, 10 and 13 to 15, which show recorded data: every sentence at every place of the controls
against numbers that are worked out here; and the pages of 9 to 15."""

import itertools
import json
import math
import random
from collections import Counter

import pytest
import recordings as record_reasoning
from studio_positions import after, numbers_in, places, positions
from studio_small import client

from postgrad.studio.book import blocks, chapters
from postgrad.studio.instruments import (
    INSTRUMENTS,
    language_mixing,
    ledger,
    mismatch,
    more_samples,
    pass_at_k,
)
from postgrad.studio.instruments.base import RUNS
from postgrad.studio.recordings import FOLDER, recording

SMALL = ("choosing", "languages", "ledger", "samplers", "tries")
ALL = ("test-time", "pass-at-k", "kl-estimators", "gae", "language-mixing", "ledger", "mismatch")


def said_everywhere(name, mixed=15):
    instrument = INSTRUMENTS[name]
    for state in positions(instrument, mixed):
        numbers = instrument.compute(state)
        yield state, numbers, instrument.insight(numbers)


def test_recordings_are_small_and_say_how_they_were_made():
    for name in SMALL:
        assert (FOLDER / f"{name}.json").stat().st_size < 60_000
        assert recording(name)["made by"].startswith("python tools/recordings.py")
    commands = {recording(name)["command"] for name in ("ledger", "samplers", "tries")}
    assert commands == {recording("languages")["runs"][0]["command"]}


# 9: who chooses

def chosen(row, n, chooser, draws=4000):
    """The share of random draws in which the chooser is right."""
    draw, hits = random.Random(n), 0.0
    for _ in range(draws):
        held = draw.sample(range(len(row["right"])), n)
        if chooser == "verifier":
            hits += any(row["right"][i] for i in held)
            continue
        if chooser == "judge":
            top = max(row["scores"][i] for i in held)
            best = [i for i in held if row["scores"][i] == top]
        else:
            votes = Counter(row["answers"][i] for i in held if row["answers"][i] >= 0)
            most = [a for a, count in votes.items() if count == max(votes.values())]
            picked = draw.choice(most) if most else None
            best = [i for i in held if row["answers"][i] == picked]
        hits += sum(row["right"][i] for i in best) / len(best) if best else 0
    return hits / draws


@pytest.mark.parametrize("chooser", ["verifier", "judge", "vote"])
def test_a_problem_s_curve_is_what_draws_give(chooser):
    for i, n in ((0, 4), (7, 9)):
        row = recording("choosing")["rows"][i]
        assert more_samples.solved_by_chooser()[chooser][i][n - 1] == pytest.approx(chosen(row, n, chooser),
                                                                                    abs=0.035)


def test_sentences_of_choosing_hold_everywhere():
    seen = set()
    rows = recording("choosing")["rows"]
    for state, numbers, said in said_everywhere("test-time"):
        kept = [i for i, row in enumerate(rows)
                if state.kind == "all" or (sum(row["right"]) >= 8) == (state.kind == "often")]
        curve = [sum(more_samples.solved_by_chooser()[state.chooser][i][n] for i in kept) / len(kept)
                 for n in range(32)]
        one = sum(sum(rows[i]["right"]) / 32 for i in kept) / len(kept)
        there = sum(more_samples.solved_by_chooser()["verifier"][i][state.spent - 1]
                    for i in kept) / len(kept)
        assert numbers["problems"] == len(kept)
        if state.spent == 1:
            assert after(said, "choose:") == pytest.approx(100 * one, abs=0.06)
            assert all(abs(v - one) < 5e-4 for v in numbers["here"].values())
            continue
        assert after(said, "solves") == pytest.approx(100 * curve[state.spent - 1], abs=0.06)
        assert after(said, "one sample") == pytest.approx(100 * one, abs=0.06)
        lost = there - curve[state.spent - 1]
        if state.chooser == "verifier":
            assert lost == 0 and max(curve) == curve[-1] and "ceiling" in said
        elif "misses none" in said:
            assert lost < 5e-4
        else:
            assert after(said, "was there in") == pytest.approx(100 * lost, abs=0.06)
        if "It is best with" in said:
            best, top, all_, down = numbers_in(said.partition("It is best with")[2])
            assert curve[int(best) - 1] == max(curve) and all_ == 32
            assert [top, down] == pytest.approx([100 * max(curve), 100 * curve[-1]], abs=0.06) and top > down
        elif state.chooser != "verifier":
            assert max(curve) - curve[-1] < 0.01
        seen.add("It is best" in said)
    assert seen == {True, False}


# 10: before and after

def test_sentences_of_pass_at_k_hold_everywhere():
    kinds = set()
    for state, numbers, said in said_everywhere("pass-at-k"):
        data = pass_at_k.right_counts()[state.task]
        n, k = data["samples"], state.k
        shares = {who: sum(1 - math.comb(n - c, k) / math.comb(n, k) for c in data[who]) / len(data[who])
                  for who in ("base", "rl")}
        assert after(said, "RL solves") == pytest.approx(100 * shares["rl"], abs=0.06)
        assert after(said, "before it") == pytest.approx(100 * shares["base"], abs=0.06)
        gain, low, high = numbers["gain"]
        assert low <= gain <= high and gain == pytest.approx(shares["rl"] - shares["base"])
        assert ("RL is ahead" in said, "RL is behind" in said, "chance" in said) == (
            low > 0, high < 0, low <= 0 <= high)
        never = [b for a, b in zip(data["base"], data["rl"], strict=True) if not a]
        if "every one" in said:
            assert not never and min(data["base"]) > 0
        else:
            assert after(said, "Of the") == len(never) and after(said, "tries, RL solves") == sum(
                b > 0 for b in never)
        assert numbers["worth"] is None or numbers["worth"] >= 2  # as the title says
        kinds.add(said.partition(": ")[2].split()[0])
    assert {"RL", "a"} <= kinds


# 13: languages

def test_sentences_of_languages_are_the_evaluations_everywhere():
    runs = {run["name"]: run["evaluations"] for run in recording("languages")["runs"]}
    for state, numbers, said in said_everywhere("language-mixing"):
        rows = runs[state.source]
        row = next(r for r in rows if r["step"] == numbers["step"])
        asked = state.progress / 100 * rows[-1]["step"]
        assert abs(row["step"] - asked) == min(abs(r["step"] - asked) for r in rows)
        assert ("language" in numbers["reward"]) == (state.source != "zero")
        of = [row[f"{state.part}/{name}"] for name in ("worded", "wrong_language", "mixed_languages")]
        first = after(said, "steps" if row["step"] else "Before training")
        wanted = [100 * x for x in (*of, row["pass@1"])]
        assert [first, *numbers_in(said)[-3:]] == pytest.approx(wanted, abs=0.51)
        assert ("(before," in said) == (row["step"] > 0)
        if row["step"]:
            assert after(said, "(before,") == pytest.approx(100 * rows[0][f"{state.part}/worded"], abs=0.51)


def test_where_the_language_is_paid_for_it_is_kept():
    free, paid, r1 = (language_mixing.compute(language_mixing.State(source=name))["here"]["wrong_language"]
                      for name in ("zero", "paid", "r1"))
    assert r1 < free / 2 and paid < free


def test_a_run_of_one_s_own_can_be_shown(tmp_path):
    rows = recording("languages")["runs"][0]["evaluations"]
    mine = "\n".join(map(json.dumps, rows))
    for name, text in (("mine/rl", mine), ("other", '{"step": 0}'), ("torn", "{")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "evals.jsonl").write_text(text)
    (tmp_path / "mine" / "ledger.json").write_text(json.dumps(recording("ledger")["ledger"]))
    (tmp_path / "torn" / "ledger.json").write_text("{")
    kept = RUNS.set(tmp_path)
    try:
        assert list(language_mixing.language_runs()) == ["zero", "paid", "r1", "run/mine/rl"]
        mine = language_mixing.compute(language_mixing.State(source="run/mine/rl"))
        assert mine["right"] == rows[-1]["pass@1"] and mine["command"] == mine["reward"] == ""
        assert [v for v, _ in language_mixing.controls(language_mixing.State())[-1].pairs()] == [
            "zero", "paid", "r1", "run/mine/rl"]
        assert list(ledger.ledger_books()) == ["zero", "run/mine"]
        assert ledger.compute(ledger.State(source="run/mine"))["rows"]
    finally:
        RUNS.reset(kept)
    for module, names in ((language_mixing, "zero, paid, r1"), (ledger, "zero")):  # the recorded ones alone
        assert ("source" in [c.name for c in module.controls(module.State())]) == (", " in names)
        with pytest.raises(ValueError, match=f"source is one of {names}, not 'run/mine'"):
            module.settle(module.State(source="run/mine"))


# 14: the ledger

def test_sentences_of_the_ledger_hold_everywhere():
    entries = recording("ledger")["ledger"]["entries"]
    first, last = entries[0]["figures"], entries[-1]["figures"]
    kinds = set()
    for state, numbers, said in said_everywhere("ledger"):
        told = dict(part.split(" on ") for part in
                    said.partition(f"{numbers['name']}: ")[2].partition(".")[0].split("; "))
        named = {task: kind for kind, tasks in told.items() for task in tasks.split(", ")}
        assert set(named) == {task for task in first if state.measure in first[task]}
        for row in numbers["rows"]:
            a, b = (side[row["task"]][state.measure][: state.problems] for side in (first, last))
            assert row["gain"] == pytest.approx(sum(b) / len(b) - sum(a) / len(a), abs=1e-9)
            assert row["low"] <= row["gain"] <= row["high"]
            up, down = row["low"] > 0, row["high"] < 0
            wanted = {(1, 0): ("gained", "more varied"), (0, 1): ("lost", "less varied", "collapsed"),
                      (0, 0): ("not told apart from chance",)}[up, down]
            assert named[row["task"]] in wanted
            kinds.add(named[row["task"]])
        both = zip(first["text"]["nats"], last["text"]["nats"], strict=True)
        nats = [b - a for a, b in both][: state.problems]
        mean = sum(nats) / len(nats)
        assert ("worse" in said and mean > 0) or ("better" in said and mean < 0) or "can be told" in said
    assert {"gained", "not told apart from chance"} <= kinds


# 15: sampler and trainer

def test_sentences_of_the_mismatch_hold_everywhere():
    data = recording("samplers")
    seen = set()
    for state, numbers, said in said_everywhere("mismatch"):
        replies = next(s["replies"] for s in data["samplers"] if s["name"] == state.sampler)
        logs = [[-x * data["fine"] for x in reply["more"]] for reply in replies]
        ratios = [math.exp(x) for x in itertools.chain(*logs)]
        whole = [math.exp(math.fsum(row)) for row in logs]
        cap = state.cap
        weights = {"none": [1.0] * len(ratios), "truncated": [min(w, cap) for w in ratios],
                   "banded": [w if 1 / cap <= w <= cap else 0.0 for w in ratios],
                   "sequence": [w if w <= cap else 0.0
                                for w, row in zip(whole, logs, strict=True) for _ in row]}[state.rule]
        apart = sum(abs(x) for row in logs for x in row) / len(ratios)
        assert after(said, "On") == len(ratios)
        assert after(said, "trainer are") == pytest.approx(apart, rel=0.01, abs=6e-4)
        if "ratios go from" in said:
            assert after(said, "ratios go from") == pytest.approx(min(ratios), rel=0.05, abs=6e-3)
            assert after(said.partition("ratios go from")[2], " to") == pytest.approx(max(ratios), abs=6e-3)
        else:
            farthest = max(max(ratios) - 1, 1 - min(ratios))
            assert after(said, "farther than") == pytest.approx(farthest, rel=0.1, abs=6e-4)
        assert numbers["mean_weight"] == pytest.approx(sum(weights) / len(weights), abs=1e-9)
        if state.rule == "none":
            assert "counts 1" in said
            continue
        assert after(said, "mean is") == pytest.approx(sum(weights) / len(weights), abs=6e-4)
        told = said.partition("on average; ")[2].partition(". ")[2]
        if state.rule == "truncated":
            above = sum(w > cap + 1e-12 for w in ratios)
            assert told.startswith("None is above") if not above else numbers_in(told)[0] == above
            seen.add(above > 0)
        elif state.rule == "banded":
            out = sum(w == 0 for w in weights)
            assert told.startswith("None") if not out else numbers_in(told)[0] == out
        else:
            out = sum(w > cap for w in whole)
            assert after(said, "products:") == out if out else "products: none of" in said
    assert seen == {True, False}


def test_the_recorded_trainer_is_the_sampler_where_both_are_one():
    own = mismatch.compute(mismatch.State(sampler="own", rule="truncated"))
    far = mismatch.compute(mismatch.State(sampler="start", rule="truncated"))
    assert own["mean_apart"] < 1e-5 < far["mean_apart"] and own["touched"] == 0 < far["touched"]


# pages

@pytest.mark.parametrize("name", ALL)
def test_every_end_of_every_control_can_be_drawn(tmp_path, name):
    """The corners are where a chart divides by zero; what stands below the sentence is drawn too."""
    studio, instrument = client(tmp_path), INSTRUMENTS[name]
    for control in instrument.shown(instrument.settle(instrument.state())):
        values = places(control)
        for value in (values if hasattr(control, "options") else (values[0], values[-1])):
            answer = studio.get(f"/instruments/{name}/figure", params={control.name: value})
            assert answer.status_code == 200 and "nan" not in answer.text.lower(), (control.name, value)
            assert 'class="below">' in answer.text and "tex-math" in answer.text
    assert studio.get(f"/instruments/{name}/small").text.count("<svg") == 1


def test_each_stands_in_its_chapter():
    places = {"gae": ("algorithms", "intuition"), "mismatch": ("algorithms", "intuition"),
              "kl-estimators": ("algorithms", "mathematics"), "language-mixing": ("reasoning", "intuition"),
              "pass-at-k": ("reasoning", "intuition"), "test-time": ("reasoning", "intuition"),
              "ledger": ("frontiers", "intuition")}
    for name, (chapter, layer) in places.items():
        page = list(blocks.walk_blocks(chapters.chapter(chapter).layers[layer]))
        (at,) = (i for i, b in enumerate(page) if b.kind == "instrument" and b.argument == name)
        assert page[at - 1].kind == "p", f"a sentence leads to {name}"


# the tool that records

def test_a_longer_run_is_recorded_by_the_same_tool(tmp_path):
    """What a run's own evaluations say, whichever run lies in the folder; others are left out."""
    row = {"step": 4, "pass@1": 0.5, "pass@1_interval": [0.4, 0.6], "words-es/worded": 1 / 3, "seconds": 9.0}
    for name, rows in (("zero", [row, row]), ("paid", [row]), ("outcome", [{"step": 0, "accuracy": 0.7}])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "evals.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (tmp_path / name / "run.json").write_text(json.dumps({"command": f"postgrad train {name} --run /x"}))
        (tmp_path / name / "config.json").write_text(json.dumps({"reward": "correct"}))
    found = record_reasoning.languages(tmp_path)["runs"]
    assert [(run["name"], run["command"]) for run in found] == [
        ("zero", "postgrad train zero"), ("paid", "postgrad train paid")]
    assert found[0]["evaluations"][0] == {"step": 4, "pass@1": 0.5, "pass@1_interval": [0.4, 0.6],
                                           "words-es/worded": 0.33333}
    assert record_reasoning.numbered([7, None, 3, 7]) == [0, -1, 1, 0]
