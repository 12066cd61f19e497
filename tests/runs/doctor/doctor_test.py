"""The doctor: every symptom fires on the rows that show it and on no healthy curve, what is worst comes
first, and what cannot be looked for is said."""

import json
import math
from dataclasses import replace

import pytest
from paths import ROOT

from postgrad.cli import main
from postgrad.runs import Run
from postgrad.runs.doctor import SYMPTOMS, Chart, diagnose
from postgrad.runs.doctor.chart import correlation, first, last

STEPS = 24
ROW = {"name": "grpo", "kind": "policy", "source": "rollouts", "compares": True,
       "constants": {"kl_in_loss": 0.04, "epochs": 1, "minibatches": 4, "low": 0.2, "high": 0.2,
                     "value_weight": 0.1},
       "functions": {"surrogate": "postgrad.maths.surrogate.clipped_ratio"}}
CONFIG = {"rollouts": {"group_size": 8, "prompts_per_step": 16, "max_new_tokens": 64}, "device": "cpu",
          "optim": {"lr": 3e-4, "max_grad_norm": 1.0, "precision": "auto"},
          "evaluation": {"split": "validation"}}
INFO = {"row": ROW, "data": {"prompts": 2000, "repeated": 12, "evaluated": 64, "leaked": 0}}


def line(begin, end):
    """A curve from begin to end, one value a step."""
    return [begin + (end - begin) * i / (STEPS - 1) for i in range(STEPS)]


def falling(begin):
    """A curve that loses a quarter a step."""
    return [begin * 0.75**i for i in range(STEPS)]


HEALTHY = {
    "reward": line(0.3, 0.8), "reward_std": line(0.4, 0.2), "flat_groups": line(0.2, 0.6),
    "length": line(18, 24), "truncated": line(0.01, 0.03), "errors": line(0, 0), "entropy": line(0.3, 0.02),
    "reward/correct": line(0.3, 0.8), "reward/format": line(0.97, 1.0), "kl": line(0, 0.08),
    "clip_fraction": [0.0, 0.05, 0.06, 0.07] * 6, "approx_kl": [0.0, 0.01, 0.02, 0.03] * 6,
    "mismatch": line(1e-6, 1e-6), "loss": line(0.01, -0.01), "grad_norm": [0.5, 1.2, 0.8] * 8,
    "explained_variance": line(0.0, 0.4), "value": line(0.0, 0.5), "return": line(0.3, 0.8),
    "skipped": line(0, 0), "same_replies": line(2, 2), "contradicted": line(0, 0), "lr": line(3e-4, 3e-5),
    "kl_share": line(0.01, 0.05),
}


def metrics(**changes):
    curves = {name: values for name, values in (HEALTHY | changes).items() if values is not None}
    return [{"step": i + 1, **{name: values[i] for name, values in curves.items()}} for i in range(STEPS)]


def evals(reward=(0.3, 0.6, 0.8), **others):
    return [{"step": step, "reward": paid, "reward_interval": [paid - 0.05, paid + 0.05], "kl_reply": 2.0,
             **{name: values[i] for name, values in others.items()}}
            for i, (step, paid) in enumerate(zip((0, 12, 24), reward, strict=True))]


def samples(sign=1.0, size=0.05, mask=(1, 1, 1), pull=(1, 1, 1), shift=0):
    """A group a step: what is praised moves up by `sign` times its advantage, other things wobble. pull:
    what the surrogate leaves of each token; shift: rows by which scores and advantages are apart."""
    rows, advantages = [], (1.0, -1.0, 0.5, -0.5)
    for step in range(1, STEPS + 1):
        for i, adv in enumerate(advantages):
            wobble = 0.01 * ((step * 7 + i * 3) % 5 - 2) * (size > 0.001)
            columns = {"mask": list(mask), "moved": [sign * size * adv + wobble] * len(mask),
                       "adv": [adv] * len(mask),
                       "pull": [adv * x for x in pull]}
            rows.append({"step": step, "adv": adv, "finished": True, "reason": "", "prompt": f"{step}?",
                         "score": advantages[i - shift], "columns": columns})
    return rows


def chart(changes=(), **parts):
    return Chart(**{"info": INFO, "config": CONFIG, "metrics": metrics(**dict(changes)), "evals": evals(),
                    "samples": samples(), "status": {"state": "done"}} | parts)


def config(**changes):
    """The config with settings changed: config(rollouts={"group_size": 2})."""
    return {name: value | changes.get(name, {}) if isinstance(value, dict) else value
            for name, value in CONFIG.items()}


def info(row=(), **data):
    return {"row": ROW | dict(row), "data": INFO["data"] | data}


REWARD_MODEL = {"kind": "preference", "source": "pairs", "compares": False, "constants": {}}
SICK = {
    "splits share prompts": chart(info=info(leaked=8)),
    "sampler and trainer disagree": chart({"mismatch": line(0.1, 0.1)}),
    "stale reference": chart({"kl": line(0.2, 0.2)}),
    "wrong sign or mask": chart(samples=samples(sign=-1)),
    "sampler keeps old weights": chart({"mismatch": line(1e-6, 0.3)}),
    "reference follows the policy": chart({"kl": line(0, 0)}),
    "preferences the wrong way round": chart(info=info(judged=50, judged_against=40)),
    "stop token not trained": chart(samples=samples(mask=(1,) * 19 + (0,), pull=(1,) * 19 + (0,))),
    "advantages of other samples": chart(samples=samples(shift=1)),
    "verifier contradicts itself": chart({"contradicted": line(1, 1)}),
    "rate too low": chart(samples=samples(size=1e-4)),
    "leash too tight": chart({"kl_share": line(0.3, 0.8)}, info=info({"constants": ROW["constants"] | {
        "kl_in_loss": 20.0}})),
    "verifier errors": chart({"errors": line(16, 16)}),
    "skipped steps": chart({"loss": [0.1, "nan", 0.1] * 8}),
    "rate too high": chart({"reward": line(0.4, 0.0)}, samples=samples(size=2.0)),
    "KL explosion": chart({"kl": line(0, 3.0)}),
    "dead reward head": Chart(info=info(REWARD_MODEL), config=CONFIG, metrics=metrics(
        reward=None, margin=line(0, 0.001), accuracy=line(0.5, 0.52), loss=line(math.log(2), math.log(2)))),
    "length creep": chart({"length": line(18, 40)},
                          evals=evals((0.5, 0.5, 0.48), proxy=(0.5, 0.6, 0.7))),
    "form is paid, not content": chart({"reward/format": line(0.3, 0.95), "reward/correct": line(0.3, 0.28)}),
    "proxy and evaluation diverge": chart({"length": line(18, 20)},
                                        evals=evals((0.6, 0.5, 0.4), proxy=(0.1, 0.4, 0.9))),
    "entropy collapse": chart({"entropy": falling(0.3), "reward": line(0.3, 0.32)}),
    "reward collapse": chart({"reward": [0.6] * 14 + [0.0] * 10, "flat_groups": [0.2] * 14 + [1.0] * 10}),
    "truncation": chart({"truncated": line(0.4, 0.3)}),
    "no signal": chart({"flat_groups": line(0.95, 0.97), "reward": line(0.01, 0.0)}),
    "critic explains nothing": chart({"explained_variance": line(0.01, -0.2), "value": line(0, 0.001)}),
    "clip always or never at work": chart({"clip_fraction": [0.0, 0.4, 0.5, 0.45] * 6}),
    "gradient always clipped": chart({"grad_norm": line(40.0, 30.0)}),
    "group too small": chart(config=config(rollouts={"group_size": 2})),
    "duplicated prompts": chart(info=info(repeated=900)),
    "the run failed": chart(status={"state": "failed", "error": "ValueError: no"}),
}


def names(found):
    return [named.symptom for named in found.findings]


def test_a_healthy_run_has_nothing_wrong():
    found = diagnose(chart())
    blind = {"dead reward head": "margin is not logged",
             "preferences the wrong way round": "data judged or margin or accuracy is not logged"}
    assert names(found) == [] and dict(found.not_looked) == blind
    assert set(found.clear) == {s.name for s in SYMPTOMS} - blind.keys()


def test_every_symptom_of_the_table_is_planted_here():
    assert SICK.keys() == {s.name for s in SYMPTOMS}


@pytest.mark.parametrize("name", SICK)
def test_a_symptom_is_named_first(name):
    found = diagnose(SICK[name])
    assert names(found)[0] == name
    finding = found.findings[0].finding
    assert finding.evidence and finding.consequence and finding.remedy
    assert not any(words.endswith(".") for words in (finding.evidence, finding.consequence, finding.remedy))


@pytest.mark.parametrize(("given", "name"), [
    (chart(samples=samples(mask=(1, 0, 0))), "wrong sign or mask"),
    (chart(samples=samples(pull=(0, 0, 1))), "wrong sign or mask"),
    (chart(samples=samples(pull=(-1, -1, -1))), "wrong sign or mask"),
    (chart({"stop_trained": line(0, 0)}), "stop token not trained"),
    (Chart(info=info({"kind": "preference", "constants": {"reference": True}}), config=CONFIG,
           metrics=metrics(reward=None, kl=None, chosen=line(0, 0), rejected=line(0, 0))),
     "reference follows the policy"),
    (Chart(info=info({"kind": "preference", "source": "pairs"}), config=CONFIG, metrics=metrics(
        reward=None, kl=None, margin=line(0, -3), accuracy=line(0.5, 0.2))),
     "preferences the wrong way round"),
    (Chart(info=info({"kind": "supervised"}) | {"trained_parameters": 2_000_000}, config=CONFIG,
           metrics=metrics(reward=None, loss=line(1, 1), lr=line(1e-7, 1e-7))), "rate too low"),
    (chart({"kl_share": None, "kl_coefficient": line(20, 20), "kl_reply": line(0, 2)}, info=info({
        "constants": ROW["constants"] | {"kl_in_loss": 0.0, "kl_in_reward": 20.0}})), "leash too tight"),
    (chart({"clip_fraction": line(0, 0), "approx_kl": line(0.001, 0.001)}), "clip always or never at work"),
    (chart(evals=evals() + [{"step": 25, "kl_reply": 90.0}], metrics=metrics(kl=None)), "KL explosion"),
    (Chart(info=info({"kind": "preference", "constants": {"reference": True}}), config=CONFIG,
           metrics=[{"step": 1, "chosen": -3.0}]), "stale reference"),
    (Chart(info=info({"kind": "supervised"}), config=CONFIG, metrics=metrics(reward=None, loss=line(1, 3))),
     "rate too high"),
    (chart(evals=evals((0.6, 0.5, 0.4))), "proxy and evaluation diverge"),
    (chart(metrics=[row | {"step": 5 * row["step"], "explained_variance": 0.01} for row in metrics()]),
     "critic explains nothing"),
    (chart({"length": line(18, 50), "reward": line(0.5, 0.5)}), "length creep"),
    (chart({"entropy": line(0.01, 0.01), "flat_groups": line(0.7, 0.9)}), "entropy collapse"),
])
def test_other_shapes_of_a_symptom(given, name):
    assert name in names(diagnose(given))


@pytest.mark.parametrize("given", [
    chart({"entropy": falling(0.3)}),                                     # it fell because the task is solved
    chart({"flat_groups": line(0.2, 1.0), "reward": line(0.3, 1.0)}),     # flat because all are right
    chart({"length": line(18, 60)}),                                      # longer, and better for it
    chart(info=info({"compares": False}), config=config(rollouts={"group_size": 1})),
    chart({"clip_fraction": line(0, 0), "approx_kl": line(0, 0)}),        # one update of each collection
    chart({"mismatch": line(0.02, 0.02)}, config=config() | {"device": "cuda"}),
    chart({"loss": [0.1, "nan", *[0.1] * 22]}),                           # one odd batch
    chart({"explained_variance": line(0, 0.01)}),                         # a young critic that learns
    chart({"flat_groups": line(1, 1), "reward": line(0, 0), "reward_std": line(0, 0),
           "entropy": falling(0.3)},
          info=info({"wants": ["old_logp", "teacher_logp"], "compares": False})),  # a teacher, and no verdict
], ids=range(9))
def test_what_only_looks_like_one(given):
    assert names(diagnose(given)) == []


def test_the_remedy_names_the_setting():
    wanted = {"truncation": "rollouts.max_new_tokens=128", "rate too high": "optim.lr=1.0e-05",
              "gradient always clipped": "optim.max_grad_norm=70", "KL explosion": "kl.coef=0.12",
              "group too small": "rollouts.group_size=8 rollouts.prompts_per_step=4",
              "clip always or never at work": "method.low=0.6 and method.high=0.6",
              "critic explains nothing": "method.value_weight=0.3"}
    for name, words in wanted.items():
        assert words in diagnose(SICK[name]).findings[0].finding.remedy


def test_too_early_is_said():
    found = diagnose(Chart(info=INFO, config=CONFIG, metrics=metrics()[:3]))
    assert dict(found.not_looked)["truncation"] == "too early: 3 of 8 steps" and not found.findings


@pytest.mark.parametrize("name", [*HEALTHY, "margin", "accuracy"])
def test_a_figure_that_is_not_there_is_said_and_stops_nothing(name):
    for sick in SICK.values():
        for bad in (None, "nan"):
            rows = [{k: bad if k == name else v for k, v in row.items() if k != name or bad}
                    for row in sick.metrics]
            diagnose(replace(sick, metrics=rows))


@pytest.mark.parametrize("gone", ["info", "config", "evals", "samples", "status"])
def test_so_is_a_file_that_is_empty(gone):
    for sick in SICK.values():
        diagnose(replace(sick, **{gone: type(getattr(sick, gone))()}))


def test_a_run_without_rows_is_no_fault():
    found = diagnose(Chart())
    assert not found.findings and found.steps == 0


def test_figures_by_hand():
    points = list(enumerate([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], start=1))
    assert (first(points), last(points)) == (1.5, 5.5)
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1) and correlation([1, 1], [0, 2]) is None
    assert correlation([1, 2, 3, 4], [1, -1, -1, 1]) == pytest.approx(0)


def test_the_page_has_every_symptom_in_order():
    page = (ROOT / "docs" / "doctor.md").read_text()
    rows = [line.split(" | ")[:2] for line in page.splitlines() if line.startswith("| ")]
    listed = [[f"| {s.name}", s.about] for s in SYMPTOMS]
    first = rows.index(listed[0])
    assert rows[first: first + len(listed)] == listed


# the command

@pytest.fixture
def folder(tmp_path):
    run = Run.create(tmp_path / "sick", recipe="rollouts", config=CONFIG, steps=STEPS, **INFO)
    for row in metrics(truncated=line(0.4, 0.3)):
        run.log(row["step"], {k: v for k, v in row.items() if k != "step"})
    run.status("done")
    return tmp_path


def test_the_command_prints_and_gives_data(folder, capsys):
    assert main(["doctor", str(folder / "sick")]) == 0
    said = capsys.readouterr().out
    assert "1. truncation: 38% of the samples hit the limit of 64 tokens" in said
    assert "do: set rollouts.max_new_tokens=128" in said and "dead reward head (margin is not logged)" in said
    assert main(["doctor", str(folder), "--json"]) == 0  # a folder of runs
    found = json.loads(capsys.readouterr().out)
    assert found["findings"][0]["symptom"] == "truncation" and found["findings"][0]["figures"]["limit"] == 64
    assert "group too small" in found["clear"]


def test_watching_ends_with_the_run(folder, capsys, monkeypatch):
    run = Run.open(folder / "sick")
    looks = []

    def later(seconds):
        looks.append(seconds)
        if len(looks) == 2:
            run.status("done")

    monkeypatch.setattr("time.sleep", later)
    with run.locked():
        run.status("running")
        assert main(["doctor", str(folder / "sick"), "--watch", "--every", "3", "--json"]) == 0
    said = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert looks == [3.0, 3.0] and [found["state"] for found in said] == ["running", "done"]


def test_no_run_is_a_clear_error(tmp_path, capsys):
    assert main(["doctor", str(tmp_path)]) == 2
    assert f"there is no run in {tmp_path}" in capsys.readouterr().err
