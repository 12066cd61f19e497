"""A model against samples spent, and models on the same problems: figures, sentences, commands, pages."""

import json
import random

import pytest
from rlhf_small import small, trained
from small import CHAT

import postgrad as pg
from postgrad.cli import main
from postgrad.data.tasks import Task
from postgrad.evaluation import compute_curve, diversity, draw_samples, paired_test
from postgrad.evaluation.compute import answer_in_reply, sample_counts
from postgrad.maths.passk import pass_at_k
from postgrad.recipes.process import ProcessConfig
from postgrad.recipes.reward import RewardConfig
from postgrad.records import Prompt, Verdict
from postgrad.runs.report import write_comparison, write_evaluation
from postgrad.sampling import Sampling, ScriptedSampler
from tests.runs.report.training_test import EVIL, Page

FEW = ["--problems", "4", "--samples", "4", "--max-new-tokens", "8"]


def scripted(replies, samples, verify=None, answer="5"):
    """The task, and the judged samples of problems whose replies are scripted."""
    prompts = [Prompt.ask(f"q{i}", answer) for i in range(len(replies))]
    right = f"<answer>{answer}</answer>"
    task = Task(name="scripted", about="", prompts=lambda *_: prompts,
                verify=verify or (lambda prompt, text: Verdict(score=float(text == right))))
    script = {p.question: said for p, said in zip(prompts, replies, strict=True)}
    drawn = draw_samples(task, ScriptedSampler(CHAT, script), prompts, samples=samples, settings=Sampling(),
                         seed=0)
    return task, drawn.judged


def said(*answers):
    return [f"<answer>{a}</answer>" for a in answers]


class ByLength:
    """A ranker that likes what is long."""

    def score(self, rollouts):
        return [Verdict(score=float(len(r.text))) for r in rollouts]


def test_samples_spent():
    assert sample_counts(1) == [1] and sample_counts(8) == [1, 2, 4,
                                                            8] and sample_counts(12) == [1, 2, 4, 8, 12]
    assert sample_counts(64)[-1] == 64 and sample_counts(128)[-1] == 128


@pytest.mark.parametrize(("text", "answer", "read"), [
    ("<answer>20</answer>", "5", 20), ("<answer>20.0</answer>", "5", 20), (r"\boxed{1,000}", "5", 1000),
    ("the answer is **3+5**.", "8", "3+5"), ("it is 7", "5", 7), ("it is 7", "red", None), ("", "5", None),
    ("it is 7", None, None)])
def test_the_answer_of_a_reply(text, answer, read):
    assert answer_in_reply(Prompt.ask("q", answer), text) == read


def test_a_curve_by_hand():
    task, groups = scripted([said(5, 5, 6, 77), said(7, 7, 5, 8)], 4)
    rows, no_vote = compute_curve(task, groups, {"long": ByLength()})
    assert no_vote == "" and [row["k"] for row in rows] == [1, 2, 4]
    assert [row["pass@k"] for row in rows] == pytest.approx([(2 / 4 + 1 / 4) / 2, (5 / 6 + 1 / 2) / 2, 1.0])
    assert rows[0]["maj@k"] == rows[0]["pass@k"] and rows[-1]["maj@k"] == 0.5  # 5 wins, then 7 does
    assert rows[0]["best@k/long"] == rows[0]["pass@k"]
    assert rows[-1]["best@k/long"] == pytest.approx((0 + 1 / 4) / 2)  # 77 is longest; the others tie
    for row in rows:
        low, high = row["pass@k_interval"]
        assert 0 <= low <= row["pass@k"] <= high <= 1


def test_best_of_n_by_the_verifier_is_pass_at_n():
    rng = random.Random(0)
    task, groups = scripted([said(*rng.choices((5, 6, 7), k=16)) for _ in range(6)], 16)
    rows, _ = compute_curve(task, groups, {"verifier": task.reward()})
    for row in rows:
        assert row["best@k/verifier"] == pytest.approx(row["pass@k"])
        hits = [sum(s.verdict.score == 1 for s in group) for group in groups]
        assert row["pass@k"] == pytest.approx(sum(pass_at_k(16, c, row["k"]) for c in hits) / 6)


def test_replies_without_answers_are_not_voted_on():
    yes = lambda prompt, text: Verdict(score=float("yes" in text))  # noqa: E731
    task, groups = scripted([["yes", "no"]], 2, yes, answer=None)
    rows, no_vote = compute_curve(task, groups, {})
    assert "mark no answer" in no_vote and not any("maj@k" in row for row in rows)
    assert "different_answers" not in diversity(task, groups)


def test_diversity_by_hand():
    task, groups = scripted([["5 5 5 5", "5 6"], ["<answer>5</answer>"] * 2], 2)
    row = diversity(task, groups)
    # q0: 5 5 5 5 5 6, two of six; q1: < answer > 5 < / answer > twice, five of sixteen
    assert row["distinct-1"] == pytest.approx((2 / 6 + 5 / 16) / 2)
    assert row["different_replies"] == (1 + 0.5) / 2 and row["different_answers"] == (2 + 1) / 2
    low, high = row["different_answers_interval"]
    assert 0 <= low <= 1.5 <= high <= 2


# two models

def gains(first, second):
    task, a = scripted([said(*x) for x in first], len(first[0]))
    _, b = scripted([said(*x) for x in second], len(second[0]))
    return paired_test(task, a, b)


def test_the_same_model_is_no_better_than_itself():
    found = gains([(5, 6)] * 5, [(5, 6)] * 5)
    assert found["p_value"] == 1 and not found["real"] and found["won"] == found["lost"] == 0
    assert found["says"] == "No difference: both did equally well on each of the 5 problems."
    assert found["problems_needed"] is None


def test_a_difference_that_is_real():
    found = gains([(6, 6)] * 8 + [(5, 5)], [(5, 5)] * 8 + [(5, 6)])
    assert found["p_value"] == pytest.approx(4 / 2**9) and found["real"]  # none turned, or the half alone
    assert (found["won"], found["lost"], found["even"]) == (8, 1, 0)
    assert found["says"].startswith("The difference is real: the second solves 83.3 points more (won 8")
    assert [p["gain"] for p in found["by_problem"]] == [1.0] * 8 + [-0.5]


def test_a_difference_that_may_be_chance_says_how_many_problems_would_tell():
    found = gains([(6,)] * 6 + [(5,)] * 4, [(5,)] * 3 + [(6,)] * 5 + [(5,)] * 2)
    # three won, two lost of ten: mean 0.1, std 0.738; (2.8016 * 7.379)^2 = 427.4
    assert found["p_value"] == 1.0 and found["problems_needed"] == 428
    assert "may be chance" in found["says"] and "about 428 problems" in found["says"]
    assert "tell differences from about 65 points up" in found["says"]
    even = gains([(5,), (6,)], [(6,), (5,)])
    assert "as much was won as lost" in even["says"] and even["problems_needed"] is None


# commands and pages

def shown(line, capsys):
    assert main(line) == 0
    return capsys.readouterr().out


def test_eval_as_a_table_as_json_and_as_a_page(tmp_path, capsys):
    page = tmp_path / "page.html"
    out = shown(["eval", "tiny-chat", "--task", "words", *FEW, "--html", str(page)], capsys)
    assert "samples  pass@k" in out and "maj@k" in out and "distinct-2" in out and "greedy" in out
    assert str(page) in out and "tiny-chat on words" in "".join(Page(page.read_text()).text)
    found = json.loads(shown(["eval", "tiny-chat", "--task", "words", *FEW, "--json"], capsys))
    assert [row["k"] for row in found["curve"]] == [1, 2, 4]
    assert found["pass@1"] == found["curve"][0]["pass@k"] and found["pass@4"] == found["curve"][2]["pass@k"]
    again = pg.evaluate("tiny-chat", "words", problems=4, samples=4, max_new_tokens=8, display=False)
    assert {**again, "seconds": 0} == {**found, "seconds": 0}


def test_eval_ranks_by_a_reward_model(tmp_path, capsys):
    run = trained("reward", small(RewardConfig(task="questions"), "evaluation.every=0"),
                  tmp_path / "reward").folder
    found = json.loads(shown(["eval", "tiny-chat", "--task", "questions", *FEW, "--json", "--reward",
                              str(run)], capsys))
    assert all("best@k/reward" in row for row in found["curve"]) and "no_vote" in found
    assert found["curve"][0]["best@k/reward"] == pytest.approx(found["pass@1"])
    assert main(["eval", "tiny-chat", "--task", "words", *FEW, "--reward", "tiny-chat"]) == 2
    assert "tiny-chat is no reward model" in capsys.readouterr().err


def test_eval_ranks_by_a_process_model(tmp_path, capsys):
    config = small(ProcessConfig(task="words"), "evaluation.every=0", "replies.problems=6",
                   "replies.samples=2", "replies.per_step=4")
    run = trained("process", config, tmp_path / "steps").folder
    found = json.loads(shown(["eval", "tiny-chat", "--task", "words", *FEW, "--json", "--reward", str(run)],
                             capsys))
    assert all("best@k/steps" in row and "maj@k" in row for row in found["curve"])
    assert main(["eval", "tiny-chat", "--task", "questions", *FEW, "--reward", str(run)]) == 2
    assert "task questions has none" in capsys.readouterr().err


def test_compare_as_a_table_as_json_and_as_a_page(tmp_path, capsys):
    page = tmp_path / "page.html"
    out = shown(["compare", "tiny-chat", "tiny-chat", "--task", "words", *FEW, "--html", str(page)], capsys)
    assert "No difference: both did equally well on each of the 4 problems." in out
    assert "sign-flip" in out and str(page) in out
    assert "No difference" in "".join(Page(page.read_text()).text)
    first, second, third = json.loads(shown(["compare", "tiny-chat", "tiny-chat", "tiny", "--task", "words",
                                             *FEW, "--json"], capsys))
    assert second["p_value"] == 1 and second["pass@1_gain"] == 0 and len(third["by_problem"]) == 4
    assert third["won"] + third["lost"] + third["even"] == 4 and "p_value" not in first


@pytest.mark.parametrize(("line", "why"), [
    ("compare tiny-chat --task words", "compare needs two models"),
    ("compare tiny-chat nothing --task words", "nothing"),
    ("compare tiny-chat tiny --task nothing", "there is no task 'nothing'"),
    ("eval tiny-chat --task words --samples 0", "must be at least 1"),
    ("eval tiny-chat --task words --html no/such/page.html", "there is no folder no/such"),
    ("eval tiny-chat --task words --reward runs/nothing", "runs/nothing"),
])
def test_what_is_wrong_is_a_sentence(line, why, capsys):
    assert main(line.split()) == 2
    err = capsys.readouterr().err
    assert why in err and "Traceback" not in err


@pytest.mark.parametrize("text", EVIL)
def test_text_stays_text(text, tmp_path):
    task, a = scripted([said(5, 6)] * 2, 2)
    _, b = scripted([said(5, 5)] * 2, 2)
    rows, _ = compute_curve(task, a, {text: ByLength()})
    common = {"model": text, "task": text, "split": "test", "seed": 0, "problems": 2, "samples": 2}
    shares = {"pass@1": 0.5, "pass@1_interval": [0.1, 0.9], "pass@1_gain": 0.5, "pass@1_gain_interval":
              [0.0, 1.0], "reward": 0.5, "reward_interval": None, "reward_gain": 0.0,
              "reward_gain_interval": None}
    found = paired_test(task, a, b)
    found["by_problem"] = [p | {"question": text} for p in found["by_problem"]]
    for page in (write_evaluation(tmp_path / "e.html", common | {"curve": rows, "no_vote": text}
                                  | diversity(task, a)),
                 write_comparison(tmp_path / "c.html", [common | shares, common | shares | found])):
        parsed = Page(page.read_text())
        assert not parsed.tags & {"script", "img", "base", "link", "iframe"}
        assert text[:300] in "".join(parsed.text)
        assert not any(name.startswith("on") for name, _ in parsed.attrs)
