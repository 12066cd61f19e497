"""The guard: each runaway is named at its step, healthy curves are not, and a run goes back and on at half
the rate, to the same bits where it is interrupted."""

import json
from dataclasses import replace

import pytest
from settings_text import merged

from postgrad.cli.settings import config_from_text
from postgrad.recipes.launch import start_training
from postgrad.recipes.running import resume_saved
from postgrad.runs import Run
from postgrad.runs.doctor.guard import Guard
from postgrad.runs.tracker import Tracker

STEADY = {"loss": 1.0, "grad_norm": 1.0, "kl_k1": 0.02, "length": 20.0, "entropy": 0.3, "reward": 0.4,
          "reward_std": 0.4, "sampled": 100.0}


def first_trouble(kind, **late):
    """Of a run whose metrics change at step 10."""
    guard = Guard(kind)
    for step in range(1, 31):
        if trouble := guard.on_step(step, STEADY | (late if step >= 10 else {})):
            return trouble
    return None


@pytest.mark.parametrize(("kind", "late", "name"), [
    ("supervised", {"loss": 3.0}, "loss"), ("preference", {"loss": 2.6}, "loss"),
    ("policy", {"kl_k1": 0.8}, "kl_k1"), ("policy", {"grad_norm": 15.0}, "grad_norm"),
    ("policy", {"reward": 0.02}, "reward"), ("policy", {"length": 70.0}, "length"),
    ("policy", {"entropy": 1.5}, "entropy"), ("policy", {"entropy": 0.001, "reward": 0.3}, "entropy"),
])
def test_a_runaway_is_named_within_three_steps(kind, late, name):
    trouble = first_trouble(kind, **late)
    assert trouble.name == name and 10 <= trouble.step <= 12 and trouble.since <= trouble.step
    assert trouble.sentence.startswith(f"step {trouble.step}: ") and "optim.lr" in trouble.remedy


@pytest.mark.parametrize(("kind", "late"), [
    ("policy", {}), ("policy", {"loss": 9.0}),                 # a policy's loss says nothing
    ("policy", {"length": 70.0, "reward": 0.9}),               # longer, and better for it
    ("policy", {"kl_k1": 1.2, "reward": 0.9}),                 # far, and better for it
    ("policy", {"entropy": 0.01, "reward": 0.9}),              # decided, and right
    ("policy", {"reward": 0.25}), ("supervised", {"loss": 1.3}), ("policy", {"grad_norm": 4.0})])
def test_what_a_healthy_run_shows_is_no_trouble(kind, late):
    assert first_trouble(kind, **late) is None


def test_one_odd_batch_is_no_trouble():
    guard = Guard("policy")
    assert not any(guard.on_step(step, STEADY | {"kl_k1": 1.2 if step == 9 else 0.02})
                   for step in range(1, 30))


def test_steps_on_used_samples_do_not_count():
    guard = Guard("policy")
    used = {name: value for name, value in STEADY.items() if name != "sampled"} | {"kl_k1": 9.0}
    assert not any(guard.on_step(step, STEADY if step % 4 == 1 else used) for step in range(1, 30))


@pytest.mark.parametrize(("figures", "at"), [
    ([0.4, 0.2, 0.1], 20), ([0.4, 0.2, 0.38, 0.1, 0.1], 40), ([0.4, 0.3, 0.3], None),
    ([0.4, 0.6, 0.1], None)])
def test_a_held_out_figure_below_its_start_for_good(figures, at):
    """Twice in a row with intervals that do not overlap, of 0.09 either way each."""
    guard = Guard("policy")
    found = [guard.on_eval(10 * i, {"pass@1": x, "pass@1_interval": [x - 0.09, x + 0.09]})
             for i, x in enumerate(figures)]
    assert [trouble.step for trouble in found if trouble][:1] == ([at] if at else [])


def test_of_a_loss_higher_is_worse():
    guard = Guard("supervised")
    found = [guard.on_eval(i, {"loss": x}) for i, x in enumerate([1.0, 1.2, 1.3])]
    assert found[2].name == "held-out loss" and not any(found[:2])


def test_rows_of_a_log_are_judged_as_they_came():
    rows = [{"step": step, **STEADY, "kl_k1": 0.45 + 0.01 * step} for step in range(1, 9)]
    live = Guard("policy")
    for row in rows[:-1]:
        live.on_step(row["step"], row)
    again = Guard("policy", rows[:-1])
    assert live.on_step(8, rows[-1]) == again.on_step(8, rows[-1]) is not None


# runs

STEPS = 8
WILD = [f"steps={STEPS}", "save_every=2", "rollouts.prompts=40", "rollouts.prompts_per_step=3",
        "rollouts.group_size=4", "rollouts.max_new_tokens=24", "evaluation.every=0", "optim.lr=6e-3"]


def wild(folder, on_trouble, *trackers):
    recipe, config = config_from_text("grpo:words", merged(*WILD, f"on_trouble={on_trouble}"))
    return start_training(recipe, config, folder, trackers=trackers)


def events(run, kind):
    return [row for row in run.rows("events")[0] if row["kind"] == kind]


def without_times(run):
    return [{name: value for name, value in row.items() if not name.startswith(("time/", "memory"))}
            for row in run.rows("metrics")[0]]


@pytest.fixture(scope="module")
def halved(tmp_path_factory):
    return Run.open(wild(tmp_path_factory.mktemp("halved") / "run", "halve_rate").folder)


def test_a_warning_is_all_by_default(tmp_path):
    run = wild(tmp_path / "run", "warn")
    named = [row["data"]["trouble"] for row in events(run, "worry") if "trouble" in row["data"]]
    assert named and len(named) == len(set(named)) and run.state()["state"] == "done"
    assert not events(run, "halved") and len(run.rows("metrics")[0]) == STEPS


def test_stop_ends_the_run_and_says_why(tmp_path):
    run = wild(tmp_path / "run", "stop")
    state = run.state()
    assert state["state"] == "stopped" and "lower optim.lr" in state["error"]
    assert len(run.rows("metrics")[0]) < STEPS and run.latest()


def test_half_the_rate_from_the_last_good_checkpoint(halved):
    told, rows = events(halved, "halved"), halved.rows("metrics")[0]
    assert told and halved.state()["state"] == "done"
    assert [row["step"] for row in rows] == [*range(1, STEPS + 1)]
    assert all("on_trouble=halve_rate: back to" in row["text"] for row in told)
    factors = [row["data"]["factor"] for row in told]
    assert factors == [0.5 ** (i + 1) for i in range(len(told))]
    schedule = [6e-3 * (1 - (step - 1) / STEPS) for step in range(1, STEPS + 1)]  # linear
    assert rows[-1]["lr"] == pytest.approx(schedule[-1] * factors[-1])


class Killed(Tracker):
    """Ends the process, as it were, at a step after the last halving."""

    def __init__(self, halvings, step):
        self.halvings, self.step, self.seen = halvings, step, 0

    def on_event(self, kind, text, step, data):
        self.seen += kind == "halved"

    def on_step(self, step, metrics):
        if self.seen == self.halvings and step == self.step:
            raise RuntimeError("killed")


@pytest.mark.parametrize("halvings", [0, 1])
def test_interrupted_and_resumed_it_is_the_same_run(halved, tmp_path, halvings):
    after = events(halved, "halved")[halvings - 1]["data"]["after"] if halvings else 0
    with pytest.raises(RuntimeError, match="killed"):
        wild(tmp_path / "run", "halve_rate", Killed(halvings, after + 3 if halvings else 2))
    run = resume_saved(Run.open(tmp_path / "run"))
    assert without_times(run) == without_times(halved)
    assert [row["data"] for row in events(run, "halved")] == [row["data"] for row in events(halved, "halved")]
    weights = [(r.checkpoints()[STEPS] / "model.safetensors").read_bytes() for r in (run, halved)]
    assert weights[0] == weights[1]


def test_a_sampler_elsewhere_is_refused():
    with pytest.raises(ValueError, match="halve_rate goes back in this process"):
        config_from_text("grpo:words", ["on_trouble=halve_rate", "rollouts.async_depth=1"])


def test_the_setting_is_saved(halved):
    saved = json.loads((halved.folder / "config.json").read_text())
    assert saved["on_trouble"] == "halve_rate"
    recipe, config = config_from_text("grpo:words")
    assert config.on_trouble == "warn" and replace(config, on_trouble="stop").on_trouble == "stop"
