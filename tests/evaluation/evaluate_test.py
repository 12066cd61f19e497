"""Figures of an evaluation and their intervals: what is printed, kept, shown and exported."""


import pytest
from coverage_cells import AMONG, ASKED, LEAST, SHARES, Cell, covered
from small import CHAT, small_model

from postgrad.cli.train import demo_row
from postgrad.data.tasks import Task
from postgrad.evaluation import against_first, evaluate_task
from postgrad.maths.intervals import student, wilson
from postgrad.methods import METHODS
from postgrad.models import Models
from postgrad.models.heads import ScalarModel
from postgrad.recipes.preference import pair_figures, split_pairs
from postgrad.records import Pair, Prompt, Scored, Verdict
from postgrad.runs.report.training import stage_table
from postgrad.sampling import Sampling, ScriptedSampler
from postgrad.training import objectives
from postgrad.training.batches import PairBatches, SingleBatches


def asked(replies, verify=lambda prompt, text: Verdict(score=float(text == "yes")), best=1.0, samples=2,
          **more):
    """An evaluation of problems whose samples are scripted."""
    prompts = [Prompt.ask(f"q{i}") for i in range(len(replies))]
    task = Task(name="scripted", about="", prompts=lambda *_: prompts, verify=verify, best=best)
    script = {p.question: said for p, said in zip(prompts, replies, strict=True)}
    return evaluate_task(task, ScriptedSampler(CHAT, script), prompts, samples=samples, settings=Sampling(),
                    seed=0, **more)


SHARED = ("pass@1", "pass@2", "greedy", "reward")


@pytest.mark.parametrize(("said", "share"), [("no", 0.0), ("yes", 1.0)])
def test_none_or_all_of_twenty_is_no_certainty(said, share):
    row = asked([[said]] * 20)
    for name in SHARED:
        low, high = row[f"{name}_interval"]
        assert row[name] == share and (low, high) == pytest.approx(wilson(share, 20, student(19)))
        assert 0 <= low <= high <= 1 and high - low > 0.15


def test_every_share_has_an_interval_and_stays_in_its_range():
    row = asked([["yes", "no"]] + [["no", "no"]] * 9)
    assert [row[name] for name in SHARED] == [0.05, 0.1, 0.1, 0.05]
    for name in SHARED:
        low, high = row[f"{name}_interval"]
        assert 0 <= low < row[name] < high < 0.5
    low, high = asked([["yes"]] + [["no"]] * 9, lambda p, text: Verdict(score=0.5 * (text == "yes")),
                      best=0.5)["reward_interval"]
    assert 0 <= low < 0.05 < high < 0.5


def test_the_replies_to_the_first_problems_can_be_kept():
    assert "answers" not in asked([["yes", "no"]] * 3)
    kept = asked([["yes", "no"], ["no", "no"], ["yes", "yes"]], kept=2)["answers"]
    assert [a["prompt"] for a in kept] == ["q0", "q1"]
    assert [[(r["text"], r["score"]) for r in a["replies"]] for a in kept] == [[("yes", 1.0), ("no", 0.0)],
                                                                               [("no", 0.0), ("no", 0.0)]]


def test_a_reward_without_a_range_has_students_interval():
    def penalty(prompt, text):
        return Verdict(score=float(text))

    low, high = asked([["-1"], ["-2"], ["-3"], ["-4"], ["-5"]], penalty)["reward_interval"]
    assert (low, high) == pytest.approx((-3 - 1.96324, -3 + 1.96324), abs=1e-4)
    assert asked([["-1"]] * 5, penalty)["reward_interval"] is None  # equal values know no spread


def test_gains_are_taken_problem_by_problem():
    def samples(scores):
        return [[Scored(rollout=None, verdict=Verdict(score=score)) for score in group] for group in scores]

    class task:
        best = 1.0

    easy_and_hard = [[1.0, 1.0]] * 10 + [[0.0, 0.0]] * 10
    better = [[1.0, 1.0]] * 12 + [[0.0, 0.0]] * 8
    first, second, third = against_first(task, [samples(x) for x in (easy_and_hard, better, better[::-1])])
    assert first["pass@1_gain"] == 0 and first["reward_gain_interval"] == [0, 0]
    assert second["pass@1_gain"] == third["pass@1_gain"] == pytest.approx(0.1)
    (low, high), (far_low, far_high) = second["pass@1_gain_interval"], third["pass@1_gain_interval"]
    assert -1 <= far_low < low < 0.1 < high < far_high <= 1  # the same problems solved: a narrower gain
    none, again = against_first(task, [samples([[0.0]] * 20)] * 2)
    low, high = again["reward_gain_interval"]
    assert low < -0.1 and high > 0.1, "two models that solve none of 20 may differ"


def held_out(prompts, method):
    """What the evaluation of a preference run says of pairs that all have the same two answers."""
    model = small_model()
    models = Models(policy=ScalarModel(model) if method == "reward" else model, reference=model)
    pairs = [Pair(id=str(i), messages=({"role": "user", "content": f"question {name}"},), chosen="yes",
                  rejected="no") for i, name in enumerate(prompts)]
    rows = split_pairs(pairs) if method == "kto" else pairs
    (batch,) = (SingleBatches if method == "kto" else PairBatches)(
        rows, CHAT, METHODS[method], models, per_step=len(rows), steps=1, seed=0, max_tokens=64,
        tokens_per_pass=4096)
    return pair_figures(objectives.build_objective(METHODS[method]), models, batch, 256)


@pytest.mark.parametrize("method", ["reward", "dpo", "kto"])
def test_pairs_of_one_prompt_are_not_independent(method):
    def width(prompts):
        row = held_out(prompts, method)
        low, high = row["accuracy_interval"]
        assert 0 <= low <= row["accuracy"] <= high <= 1
        return high - low

    alone, repeated = width(range(40)), width([i // 10 for i in range(40)])
    assert repeated > 1.5 * alone > 0.05


def test_tables_and_the_report_show_them():
    row = asked([["yes", "no"]] * 20, samples=2)
    stage = {"name": "base", "format": 1.0, "seconds": 1.0, **row}
    shown = demo_row(stage)
    assert shown["pass@1"] == "50.0% (46.4 to 53.6)" and shown["greedy"] == "100.0% (82.0 to 100.0)"
    assert shown["pass@2"] == "100.0% (82.0 to 100.0)"
    cells = {line["label"]: line["cells"][0] for line in stage_table([stage])}
    assert cells["Likeliest answer right (greedy)"]["interval"] == pytest.approx(wilson(1.0, 20, student(19)))
    assert cells["Right within 2 tries (pass@2)"]["interval"] == pytest.approx(wilson(1.0, 20, student(19)))
    assert cells["Length"]["interval"] is None


@pytest.mark.parametrize("kind", ["mean", "pass@k", "graded", "gain"])
def test_coverage(kind):
    """A part of proofs/mend.py coverage: 95 % intervals hold the truth about so often."""
    for n, k in ((20, 1), (20, 4), (20, 16), (100, 4)):
        for p in SHARES:
            cell = Cell(kind, n, k, p)
            held, _, width = covered(cell, 50 if cell.certain else 500, seed=1)
            assert (held == 1 and width > 0) if cell.certain else held >= LEAST, (cell, held)


@pytest.mark.parametrize(("kind", "alike"), [("mean", 10.0), ("solved", 2.0), ("gain", 10.0), ("same", 2.0)])
def test_coverage_of_what_eval_and_compare_show(kind, alike):
    """200 problems x 8 samples: neither too narrow nor too wide."""
    for p in ASKED[kind == "same":]:  # where almost nothing differs it can only be too wide
        held, _, _ = covered(Cell(kind, 200, 8, p, alike), 1500, seed=0)
        assert AMONG[0] <= held <= AMONG[1] + 0.004, (kind, p, held)


@pytest.mark.parametrize("kind", ["mean", "pass@k", "solved", "gain", "same"])
def test_coverage_with_few_problems(kind):
    for p in ASKED:
        held, _, _ = covered(Cell(kind, 30, 8, p, 10.0), 1000, seed=0)
        assert held >= AMONG[0], (kind, p, held)
