"""The doctor on real runs of a few steps, and the figures that are logged for it."""

import zlib
from dataclasses import replace
from statistics import fmean

import pytest
import torch
from settings_text import merged

from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import load_task
from postgrad.maths import surrogate
from postgrad.methods import METHODS, describe_row, method
from postgrad.recipes.base import Evaluation, data_counts
from postgrad.recipes.launch import start_training
from postgrad.recipes.preference import count_judged
from postgrad.records import Prompt, Rollout, Scored, Verdict
from postgrad.resolve.models import open_model
from postgrad.runs import Run
from postgrad.runs.doctor import diagnose
from postgrad.runs.doctor.chart import Chart
from postgrad.runs.doctor.unsound import directions
from postgrad.training.batches import rollouts

SMALL = ["rollouts.prompts=40", "rollouts.prompts_per_step=3", "rollouts.group_size=4",
         "rollouts.max_new_tokens=40", "steps=5", "save_every=5", "evaluation.every=5",
         "evaluation.problems=4", "evaluation.samples=2"]


def trained(folder, *changes, **given):
    folder.mkdir(exist_ok=True)
    recipe, config = config_from_text("grpo:words", merged(*SMALL, *changes))
    return start_training(recipe, replace(config, **given), folder / "run")


def names(run):
    return [named.symptom for named in diagnose(Run.open(run.folder)).findings]


def test_a_short_run_in_which_nothing_is_wrong(tmp_path):
    run = trained(tmp_path)
    found = diagnose(Run.open(run.folder))
    assert not found.findings and "stale reference" in found.clear
    assert dict(found.not_looked)["truncation"] == "too early: 5 of 8 steps"
    assert run.info["data"] == {"prompts": 40, "repeated": 0, "evaluated": 4, "leaked": 0}
    assert run.info["row"]["compares"] is True


def varied(prompt, text):
    """Scores that differ within every group."""
    return zlib.crc32(text.encode()) % 7


def test_a_surrogate_of_the_wrong_sign(tmp_path):
    def backwards(logp, old_logp, adv, mask):
        return surrogate.policy_gradient(logp, old_logp, -adv, mask)

    right = trained(tmp_path / "right", reward=varied, method=METHODS["nano"])
    wrong = trained(tmp_path / "wrong", reward=varied,
                    method=method("nano", name="backwards", surrogate=backwards))
    found = [[x for _, x in directions(Chart.of(run))] for run in (right, wrong)]
    assert fmean(found[0]) > 0.2 and fmean(found[1]) < -0.2
    assert "wrong sign or mask" not in names(right) and names(wrong)[0] == "wrong sign or mask"


def test_two_faults_worst_first(tmp_path):
    task = load_task("words")
    leaky = replace(task, prompts=lambda split, count, seed: task.prompts("train", count, 0))
    found = names(trained(tmp_path, "rollouts.group_size=2", task=leaky))
    assert found == ["splits share prompts", "group too small"]


# what is logged

def test_prompts_are_counted_by_their_text():
    def ask(*texts):
        return [({"role": "user", "content": text},) for text in texts]

    assert data_counts(ask("a b", "a  b ", "c"), ask("c", "d")) == {
        "prompts": 3, "repeated": 1, "evaluated": 2, "leaked": 1}
    other = [({"role": "system", "content": "x"}, {"role": "user", "content": "c"})]
    assert data_counts(ask("c"), other)["leaked"] == 0


def test_evaluations_ask_what_was_counted():
    task = load_task("words")
    asked = Evaluation(problems=5).asked(task, 3)
    assert [p.id for p in asked] == [p.id for p in Evaluation(problems=5).asked(task, 3)]
    assert len(asked) == 5 and asked != Evaluation(problems=5).asked(task, 4)


@pytest.mark.parametrize("tokens", [2048, 190])
def test_moved_is_the_change_of_the_log_probability(tmp_path, tokens):
    """The logged change, against the weights before and after the update, however the passes are cut."""
    run = trained(tmp_path, "steps=1", "evaluation.every=0", "rollouts.prompts_per_step=5", "seed=2",
                  f"tokens_per_pass={tokens}")
    (before, chat), (after, _) = open_model("tiny-chat"), open_model(f"{run.folder}@1")
    for row in run.rows("samples")[0]:
        tokens = row["token_ids"]
        assert len(row["columns"]["moved"]) == len(tokens)
        prompt = chat.render(({"role": "user", "content": row["prompt"]},))
        whole = torch.tensor([[*prompt, *tokens]])
        mask = torch.arange(whole.shape[1])[None] >= len(prompt)
        with torch.no_grad():
            change = after.logp(whole, mask, 1.0)[0] - before.logp(whole, mask, 1.0)[0]
        assert row["columns"]["moved"] == pytest.approx(change[0, len(prompt):].tolist(), abs=2e-4)


@pytest.mark.parametrize("name", ["grpo", "rloo", "dapo", "nano"])
def test_a_row_says_whether_it_compares(name):
    assert describe_row(METHODS[name])["compares"] is True
    assert describe_row(METHODS["ppo"])["compares"] is describe_row(METHODS["sft"])["compares"] is False


def test_pull_is_the_advantage_of_a_policy_gradient(tmp_path):
    """-d(-adv log pi) / d log pi = adv, whatever was sampled; with a KL in the loss it is the surrogate's."""
    for name in ("nano", "grpo"):
        run = trained(tmp_path / name, "steps=2", "evaluation.every=0", reward=varied, method=METHODS[name])
        for row in run.rows("samples")[0]:
            columns = row["columns"]
            assert columns["pull"] == pytest.approx(columns["adv"], abs=2e-5)
        shares = run.curve("kl_share")[1]
        assert (not shares) if name == "nano" else shares[0] == 0 and 0 < shares[1] < 0.2


def test_advantages_of_other_rows_are_named(tmp_path, monkeypatch):
    credit = rollouts.credit_columns

    def shifted(*args, **how):
        batch = credit(*args, **how)
        return replace(batch, adv=batch.adv.roll(1, 0))

    monkeypatch.setattr(rollouts, "credit_columns", shifted)
    assert names(trained(tmp_path, reward=varied))[0] == "advantages of other samples"


def scored(text, score, prompt="a"):
    rollout = Rollout(prompt=Prompt(id=prompt, messages=()), prompt_tokens=(1,), tokens=tuple(text.encode()),
                      logp=(0.0,) * len(text), text=text, finished=True, seed=0)
    return Scored(rollout=rollout, verdict=Verdict(score=score))


def test_contradictions_by_hand():
    """Of the four x of one prompt three repeat the first, and one is scored otherwise; 0.1 is no more than
    half the range; another prompt's x is another reply."""
    groups = [[scored("x", 1.0), scored("x", 0.0), scored("x", 1.0), scored("x", 0.9), scored("y", 0.0)],
              [scored("x", 0.0, "b"), scored("z", 1.0, "b")]]
    assert rollouts.count_contradictions(groups) == {"same_replies": 3.0, "contradicted": 1.0}
    assert rollouts.count_contradictions([]) == {"same_replies": 0.0, "contradicted": 0.0}


def test_the_task_judges_its_pairs():
    task = load_task("questions")
    pairs = task.preferences("train", 64, 0)
    swapped = [replace(p, chosen=p.rejected, rejected=p.chosen) for p in pairs]
    found, other = (count_judged(task, rows, 0) for rows in (pairs, swapped))
    assert found["judged"] == other["judged"] > 40
    assert found["judged_against"] + other["judged_against"] == found["judged"]
    assert found["judged_against"] < 0.4 * found["judged"]
    assert count_judged(replace(task, verify=None), pairs, 0) == {}


def test_the_stop_token_is_counted_among_what_is_trained(tmp_path):
    recipe, config = config_from_text("sft:words", ["steps=2", "examples=64", "rows_per_step=8",
                                                    "evaluation.every=0", "save_every=2"])
    assert start_training(recipe, config, tmp_path / "run").curve("stop_trained")[1] == [1.0, 1.0]
