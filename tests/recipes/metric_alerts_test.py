"""Numbers that should worry: the limits fit the runs that were measured, a run that crosses one says so."""

import pytest

from postgrad import fit
from postgrad.cli import main
from postgrad.recipes import pretrain
from postgrad.recipes.metric_alerts import MetricAlerts, metric_limits
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.runs import Run
from postgrad.runs.explain import METRICS, Limit, explain
from postgrad.runs.tracker import RunTrackers

SMALL = ["steps=3", "save_every=1", "rollouts.prompts=4", "rollouts.prompts_per_step=2",
         "rollouts.group_size=2", "rollouts.max_new_tokens=6", "evaluation.every=0"]


HEALTHY = {  # (nats a token, nats a reply) where the run learned what it was to learn
    "README's example, pass@1 0.07 to 0.93": (2.6, 9.1), "grpo:words, 0.31 to 0.97": (0.14, 2.3),
    "ppo against a reward model, KL weight 0.05": (None, 2.8), "KL weight 0.2": (None, 2.6)}
FAR = {"README's example with lr=1e-3": (4.1, 54), "ppo against a reward model, no KL": (None, 4.8),
       "an ensemble, no KL": (None, 6.6)}


def test_the_limits_fit_what_was_measured():
    token, reply = METRICS["kl"].limit.above, METRICS["kl_reply"].limit.above
    assert all(kl is None or kl < token for kl, _ in HEALTHY.values())
    assert all(kl is None or kl > token for kl, _ in FAR.values())
    judged = [kl for name, (_, kl) in HEALTHY.items() if "example" not in name]
    assert max(judged) < reply < min(kl for _, kl in FAR.values())
    for name, limit in (("kl", "3"), ("kl_reply", "4")):
        assert f"{METRICS[name].limit.above:g}" == limit and limit in explain(name).healthy


def test_a_kl_per_reply_has_a_limit_where_a_model_judges():
    for reward in (None, "number", lambda p, t: 1.0):
        assert metric_limits(RolloutConfig(task="words", reward=reward)).keys() == {"kl"}
    for model in ("runs/reward", "judge:models/judge", ["number", "runs/reward"]):
        assert metric_limits(RolloutConfig(task="words", reward=model)).keys() == {"kl", "kl_reply"}
    assert metric_limits(pretrain.smoke()).keys() == {"kl"}


LOW = {"kl": Limit(above=1e-12, unit="nats a token", advice="look")}


def crossed(tmp_path, monkeypatch, words=()):
    """A run whose KL is over the limit as soon as it has moved."""
    monkeypatch.setattr("postgrad.recipes.running.metric_limits", lambda config: LOW)
    return main(["train", "grpo:arithmetic", *SMALL, *words, "--run", str(tmp_path / "run")])


def test_a_run_says_once_that_a_limit_is_crossed(tmp_path, monkeypatch, capsys):
    assert crossed(tmp_path, monkeypatch) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "(postgrad explain kl)" in line]
    run = Run.open(tmp_path / "run")
    events = [row for row in run.rows("events")[0] if row["kind"] == "worry"]
    assert len(said) == len(events) == 1 and said[0] == events[0]["text"]
    first = next(row["step"] for row in run.rows("metrics")[0] if row["kl"] > 1e-12)
    assert said[0].startswith(f"step {first}: kl is ") and "nats a token, over 1e-12: look (" in said[0]
    before = len(run.rows("events")[0])
    MetricAlerts(RunTrackers(run), LOW).on_step(4, {"kl": 5.0})
    assert len(run.rows("events")[0]) == before, "a run that goes on does not say it again"


@pytest.mark.parametrize("row", [{}, {"kl": 2.9}, {"kl_reply": 99.0}, {"kl": float("nan")}])
def test_below_the_limit_nothing_is_said(row, tmp_path):
    run = Run.create(tmp_path / "run", recipe="sft", config={}, steps=1)
    MetricAlerts(RunTrackers(run), {"kl": METRICS["kl"].limit}).on_step(1, row)
    assert run.rows("events")[0] == []


def test_json_output_keeps_it_in_the_events(tmp_path, monkeypatch, capsys):
    assert crossed(tmp_path, monkeypatch, ["--json"]) == 0
    assert "explain kl" not in capsys.readouterr().err
    assert any(row["kind"] == "worry" for row in Run.open(tmp_path / "run").rows("events")[0])


def test_a_verifier_that_fails_says_so_at_once_and_at_the_end(tmp_path, capsys):
    def fails_on_some(prompt, text):
        if len(text) % 2:
            raise RuntimeError("no parser")
        return 0.0

    rows = [{"prompt": f"What is {n} + 1?"} for n in range(12)]
    run = fit("tiny-chat", "grpo", task=rows, reward=fails_on_some, run=tmp_path / "run", steps=3,
              prompts_per_step=4, group_size=4, rollouts={"max_new_tokens": 6}, evaluation={"every": 0})
    failed = [int(row["errors"]) for row in run.metrics()]
    first = next(step for step, count in enumerate(failed, start=1) if count)
    lines = [line for line in capsys.readouterr().err.splitlines() if "the verifier failed" in line]
    assert lines == [
        f"step {first}: the verifier failed on {failed[first - 1]} samples, which are not trained on; the "
        f"reasons stand in {run.folder / 'samples.jsonl'}",
        f"the verifier failed on {sum(failed)} samples in {sum(map(bool, failed))} steps, which were not "
        "trained on (postgrad doctor says more)"]
