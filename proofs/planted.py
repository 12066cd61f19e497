"""Runs with one planted fault each, and runs without: a few collections on the embedded models.

A planted run is a healthy setting with one thing spoiled: a setting, a row, a task, a reward, or, where no
setting can do it, a function of the package that is replaced while the run lasts.
"""

from __future__ import annotations

import copy
import math
import random
import shutil
import tomllib
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import torch
from harness import Bars, Tables, bar, train

from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import Task, load_task
from postgrad.data.tasks.base import think
from postgrad.maths import surrogate
from postgrad.methods import method
from postgrad.recipes import reward, rollouts
from postgrad.recipes.launch import start_training
from postgrad.recipes.running import model_source
from postgrad.records import Pair, Prompt, Verdict
from postgrad.resolve.models import open_policy
from postgrad.rewards.base import GARBAGE
from postgrad.runs import Run
from postgrad.runs.doctor import Chart, diagnose
from postgrad.runs.doctor.guard import Guard, Trouble
from postgrad.sampling import Sampling
from postgrad.training.batches import offline
from postgrad.training.batches import rollouts as rollout_batches

SAMPLED = ["evaluation.problems=12", "evaluation.samples=4"]
PAIRS = ["steps=16", "pairs.drawn=300", "pairs.held_out=60", "pairs.per_step=12", "evaluation.every=8"]
SMALL = {  # what makes a run short, by recipe
    "rollouts": ["rollouts.prompts=400", "rollouts.prompts_per_step=8", "rollouts.group_size=4",
                 "rollouts.max_new_tokens=48", "rollouts.collections=12", *SAMPLED],
    "sft": ["steps=16", "examples=1100", "evaluation.every=8", *SAMPLED],
    "preference": PAIRS + SAMPLED, "reward": PAIRS,
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run to train. given: fields of the config; within: patches of the package while it lasts."""

    spec: str
    changes: tuple[str, ...] = ()
    given: Callable[[], dict] = dict
    within: Callable[[], AbstractContextManager] = nullcontext


def make(plan: Plan, seed: int, folder: Path) -> Path:
    """Trains the run of a plan unless it exists; its checkpoints are deleted."""
    if (folder / "run.json").is_file():
        return folder
    part = folder.parent / "unfinished" / folder.name
    part.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(part, ignore_errors=True)
    with plan.within():
        recipe, _ = config_from_text(plan.spec)
        recipe, config = config_from_text(plan.spec, [*SMALL[recipe], *plan.changes, f"seed={seed}"])
        config = replace(config, **plan.given())
        if recipe == "rollouts":
            every = 6 * config.row.updates(config.rollouts.prompts_per_step)
            config = replace(config, evaluation=replace(config.evaluation, every=every), save_every=10_000)
        try:
            start_training(recipe, config, part)
        except ValueError as end:  # a run may die of its fault: what it has written is looked at
            if not (part / "run.json").is_file():
                raise
            print(f"{folder.name} ended: {end}", flush=True)
    shutil.rmtree(part / "checkpoints", ignore_errors=True)
    part.rename(folder)
    return folder


# what is spoiled

def words() -> Task:
    return load_task("words")


def leaked() -> dict:
    """The evaluation uses training prompts."""
    task = words()
    return {"task": replace(task, prompts=lambda split, count, seed: task.prompts("train", count, 0))}


def duplicated() -> dict:
    """Thirty texts, each under many names."""
    task = words()

    def prompts(split: str, count: int, seed: int) -> list[Prompt]:
        few = task.prompts(split, min(30, count), seed)
        return [replace(few[i % len(few)], id=f"{few[i % len(few)].id}#{i}") for i in range(count)]

    return {"task": replace(task, prompts=prompts)}


def hopeless() -> dict:
    """Answers that no reply will ever give."""
    task = words()

    def prompts(split: str, count: int, seed: int) -> list[Prompt]:
        return [replace(p, answer=f"{p.answer}00007") for p in task.prompts(split, count, seed)]

    return {"task": replace(task, prompts=prompts, gold=lambda p: think("1", p.answer))}


def raising() -> dict:
    """A verifier that fails on a third of the replies."""
    task = words()

    def verify(prompt: Prompt, text: str) -> Verdict:
        if text not in (*GARBAGE, task.gold(prompt)) and zlib.crc32(text.encode()) % 3 == 0:
            raise KeyError("units")
        return task.verify(prompt, text)

    return {"task": replace(task, verify=verify)}


def pays_length(prompt: Prompt, text: str) -> float:
    return len(text.split()) / 20


def pays_form(prompt: Prompt, text: str) -> Verdict:
    """Nine tenths for a short reply, one for the right answer."""
    short, right = float(len(text) < 38), words().verify(prompt, text).score
    return Verdict(score=0.9 * short + 0.1 * right, parts={"correct": right, "format": short})


def pays_sevens(prompt: Prompt, text: str) -> float:
    """The share of a reply that is the digit 7: far from anything that the model would write."""
    return text.count("7") / max(8, len(text))


def pays_rudeness(prompt: Prompt, text: str) -> float:
    return float(any(word in text.lower() for word in ("silly", "waste", "stupid", "boring", "fool")))


def wrong_sign(logp, old_logp, adv, mask):
    return surrogate.policy_gradient(logp, old_logp, -adv, mask)


class NowAndThen:
    """A surrogate that is not a number at every third update."""

    def __init__(self):
        self.calls = 0

    def __call__(self, logp, old_logp, adv, mask):
        loss, clipped = surrogate.policy_gradient(logp, old_logp, adv, mask)
        self.calls += torch.is_grad_enabled()
        return (loss * float("nan") if self.calls % 3 == 0 else loss), clipped


def other_reference():
    """The base model in the place of the model that the run starts from."""
    def opened(config, begins, policy):
        other = replace(config, model="tiny")
        return open_policy(other, model_source(other))[0].requires_grad_(False)

    return mock.patch.object(rollouts, "open_reference", opened)


def other_temperature():
    """The sampler's temperature is 1.4, the trainer's 1."""
    return mock.patch.object(rollouts, "Sampling",
                             lambda **words: Sampling(**words | {"temperature": 1.4}))


def dead_head():
    """The head stays at zero, so that no gradient reaches the body."""
    opened = reward.open_scalar

    def frozen(config, begins):
        model, chat = opened(config, begins)
        model.score_head.weight.data.zero_()
        model.score_head.requires_grad_(False)
        return model, chat

    return mock.patch.object(reward, "open_scalar", frozen)


def following_reference():
    """The policy itself in the place of the reference."""
    return mock.patch.object(rollouts, "open_reference", lambda config, begins, policy: policy)


def first_weights():
    """The sampler keeps the weights that it was opened with."""
    opened = rollouts.open_sampler

    def kept(config, policy, chat):
        return opened(config, copy.deepcopy(policy), chat)

    return mock.patch.object(rollouts, "open_sampler", kept)


def no_stop_token():
    """The mask ends before the stop token."""
    encode = offline.encode_conversation

    def without(conversation, chat, last=False):
        tokens, mask = encode(conversation, chat, last)
        return tokens, [kept and token not in chat.stop for token, kept in zip(tokens, mask, strict=True)]

    return mock.patch.object(offline, "encode_conversation", without)


def shifted_rows():
    """Every sample is credited with the advantage of the one before it."""
    credited = rollout_batches.credit_columns

    def shifted(*args, **how):
        batch = credited(*args, **how)
        return replace(batch, adv=batch.adv.roll(1, 0))

    return mock.patch.object(rollout_batches, "credit_columns", shifted)


def last_third(logp, old_logp, adv, mask):
    """A policy gradient of the last third of a reply alone."""
    loss, clipped = surrogate.policy_gradient(logp, old_logp, adv, mask)
    at = mask.cumsum(1) / mask.sum(1, keepdim=True).clamp(min=1)
    return loss * (at > 2 / 3), clipped


class Coin:
    """A verifier that does not look."""

    def __init__(self):
        self.rng = random.Random(7)

    def __call__(self, prompt: Prompt, text: str) -> float:
        return float(self.rng.random() < 0.5)


def swapped() -> dict:
    """The annotators' chosen and rejected answers, the wrong way round."""
    task = load_task("questions")

    def preferences(split: str, count: int, seed: int) -> list[Pair]:
        return [replace(p, chosen=p.rejected, rejected=p.chosen)
                for p in task.preferences(split, count, seed)]

    return {"task": replace(task, preferences=preferences)}


# issue 36: the run of a real model that went from 16 % to 6 to 10 %, as its figures were reported
WRECKED = {
    "reward": [.002, .021, .225, .072, .084, .053, .156, .113, .105, .068, .061, .080, .092, .127, .074, .201,
               .100, .135, .137, .098],
    "grad_norm": [.09, .26, .49, .35, .36, .29, .42, .44, .46, .35, .32, .42, .35, .41, .38, .55, .43, .42,
                  .42, .38]}
WRECKED_SOME = {15: {"kl": .155, "entropy": .47}, 30: {"kl": .199, "entropy": .45},
                45: {"kl": .206, "entropy": .64}, 60: {"kl": .186, "entropy": .48}}
WRECKED_EVALS = {10: .161, 30: .114, 40: .058, 60: .095}


def wrecked() -> Chart:
    """Rewards and gradients of every fourth step, KL and entropy of every fifteenth."""
    rows = {1 + 4 * i: {name: values[i] for name, values in WRECKED.items()} for i in range(20)}
    for step, figures in WRECKED_SOME.items():
        rows.setdefault(step, {}).update(figures)
    metrics = [{"step": step, "loss": 0.0, "truncated": 0.27, **rows[step]} for step in sorted(rows)]
    evals = [{"step": step, "pass@1": x, "pass@1_interval": interval(x)} for step, x in WRECKED_EVALS.items()]
    row = {"name": "grpo", "kind": "policy", "source": "rollouts", "compares": True,
           "constants": {"kl_in_loss": 0.04, "epochs": 1, "minibatches": 1, "low": 0.2, "high": 0.2}}
    config = {"optim": {"lr": 1.5e-5, "schedule": "constant", "max_grad_norm": 1.0}, "device": "cuda",
              "rollouts": {"prompts_per_step": 32, "group_size": 16, "max_new_tokens": 256}}
    return Chart(info={"row": row}, config=config, metrics=metrics, evals=evals, status={"state": "done"})


def interval(share: float, problems: int = 256) -> list[float]:
    """Of 256 problems, as the setting of that run evaluates."""
    half = 1.96 * math.sqrt(share * (1 - share) / problems)
    return [share - half, share + half]


GRPO = "grpo:words"
PPO = ("rollouts.collections=6", "rollouts.prompts_per_step=4")
PLANTED = {
    "rate too high": Plan(spec=GRPO, changes=("optim.lr=3e-3",)),
    "KL explosion": Plan(spec=GRPO, given=lambda: {"reward": pays_sevens}, changes=(
        "kl.coef=0.0001", "optim.schedule=constant", "rollouts.collections=18")),
    "entropy collapse": Plan(spec="grpo:questions", changes=("rollouts.temperature=0.1",)),
    "no signal": Plan(spec=GRPO, given=hopeless),
    "length creep": Plan(spec="grpo:questions", changes=("rollouts.max_new_tokens=96", "optim.lr=3e-4"),
                         given=lambda: {"reward": pays_length}),
    "truncation": Plan(spec=GRPO, changes=("rollouts.max_new_tokens=16",)),
    "form is paid, not content": Plan(spec=GRPO, given=lambda: {"reward": pays_form}),
    "proxy and evaluation diverge": Plan(spec="grpo:questions", changes=("optim.lr=3e-4",),
                                       given=lambda: {"reward": pays_rudeness}),
    "sampler and trainer disagree": Plan(spec=GRPO, within=other_temperature),
    "stale reference": Plan(spec=GRPO, within=other_reference),
    "critic explains nothing": Plan(spec="ppo:words", changes=(*PPO, "method.value_weight=0")),
    "clip always or never at work": Plan(spec=GRPO, changes=("method.minibatches=4", "method.low=1e-5",
                                                    "method.high=1e-5")),
    "dead reward head": Plan(spec="reward:questions", within=dead_head),
    "splits share prompts": Plan(spec=GRPO, given=leaked),
    "duplicated prompts": Plan(spec=GRPO, given=duplicated),
    "verifier errors": Plan(spec=GRPO, given=raising),
    "skipped steps": Plan(spec=GRPO, given=lambda: {
        "method": method("nano", name="sometimes", surrogate=NowAndThen())}),
    "gradient always clipped": Plan(spec=GRPO, changes=("optim.max_grad_norm=0.01",)),
    "wrong sign or mask": Plan(spec=GRPO, given=lambda: {
        "method": method("nano", name="backwards", surrogate=wrong_sign)}),
    "group too small": Plan(spec=GRPO, changes=("rollouts.group_size=2",)),
}
RATE, SFT_RATE = 3e-4, 1e-3  # of the embedded models, by default
FAULTS = {  # issue 36: what is planted -> the symptom to be named first, a word of its remedy, the run
    "sft at 20 times the rate": ("rate too high", "optim.lr", Plan(
        spec="sft:words", changes=(f"optim.lr={20 * SFT_RATE}",))),
    "grpo at 20 times the rate": ("rate too high", "optim.lr", Plan(
        spec=GRPO, changes=(f"optim.lr={20 * RATE}",))),
    "a thousandth of the rate": ("rate too low", "optim.lr", Plan(
        spec=GRPO, changes=(f"optim.lr={RATE / 1000}",))),
    "the reference follows the policy": ("reference follows the policy", "frozen", Plan(
        spec=GRPO, within=following_reference)),
    "chosen and rejected swapped": ("preferences the wrong way round", "swap", Plan(
        spec="dpo:questions", given=swapped)),
    "stop token not trained": ("stop token not trained", "stop token", Plan(
        spec="sft:words", within=no_stop_token)),
    "the last third of the tokens trained": ("wrong sign or mask", "every sampled token", Plan(
        spec=GRPO, given=lambda: {"method": method("nano", name="last", surrogate=last_third)})),
    "advantages shifted by a row": ("advantages of other samples", "order", Plan(
        spec=GRPO, within=shifted_rows)),
    "KL weight 20": ("leash too tight", "kl.coef", Plan(spec=GRPO, changes=("kl.coef=20",))),
    "a verifier that flips coins": ("verifier contradicts itself", "verifier", Plan(
        spec=GRPO, given=lambda: {"reward": Coin()})),
    "the sampler keeps the first adapter": ("sampler keeps old weights", "weights", Plan(
        spec=GRPO, within=first_weights, changes=("optim.adapter.lora=8",))),
    "the wrecked run of issue 36": ("rate too high", "optim.lr", None),
}
SLOW = ("ppo:words", "ppo:arithmetic", "dapo:words", "cispo:words")
HEALTHY = {spec.replace(":", " "): Plan(spec=spec, changes=PPO if spec in SLOW else ()) for spec in (
    *SLOW, GRPO, "grpo:arithmetic", "grpo:questions", "dr_grpo:words", "rloo:words", "reinforce:words",
    "nano:words", "gspo:words", "online_dpo:words", "best_of_n:words", "rejection:words", "sft:words",
    "sft:arithmetic", "kto:questions", "reward:questions", "dpo:questions")}
EVERY_ROW = HEALTHY | {spec.replace(":", " "): Plan(spec=spec, changes=PPO) for spec in (
    "dppo:words", "sapo:words", "gmpo:words", "kl_cov:words", "scalerl:words", "deepseek_v32:words")} | {
    spec.replace(":", " "): Plan(spec=spec) for spec in (
        "maxrl:words", "reinforce_pp:words", "lite_ppo:words", "opo:words", "gdpo:words", "ipo:questions",
        "cdpo:questions", "simpo:questions", "orpo:questions", "cpo:questions")}


# bars of issue 36

THRESHOLDS = "4c6d9a27"  # the commit of the doctor's limits, before any of these seeds was run


EARLIER = [{"seeds": "31, 32, 33", "limits of": "47989e09",
            "named first and with the right remedy": "35 of 36",
            "healthy runs accused": "1 of 36 (sft arithmetic, rate too high)",
            "changed since": "GROUPS 6 -> 3, LOSS_SPIKE 1.5 -> 2.5 (postgrad/runs/doctor/limits.py)"},
           {"seeds": "34, 35, 36", "limits of": "15518625",
            "named first and with the right remedy": "36 of 36",
            "healthy runs accused": "1 of the first 15 of seed 34 (online_dpo words, preferences the wrong "
                                    "way round), where the attempt was ended",
            "changed since": "that symptom is not looked for in pairs of a policy's own samples; the planted "
                             "faults of seeds 34 to 36 are looked at again, healthy runs are of seed 37"}]


def doctor(folder: Path, seeds: str = "34,35,36", healthy: str = "37") -> tuple[Bars, Tables]:
    """Does the doctor name each planted fault first, with its remedy, and accuse no healthy run?"""
    planted, well = [], []
    for seed in map(int, seeds.split(",")):
        for what, (symptom, word, plan) in FAULTS.items():
            chart = wrecked() if plan is None else Chart.of(Run.open(
                make(plan, seed, folder / f"{what.replace(' ', '-')}-{seed}")))
            found = diagnose(chart).findings
            first = found[0] if found else None
            planted.append({"planted": what, "seed": "-" if plan is None else seed,
                            "named, worst first": ", ".join(x.symptom for x in found) or "nothing",
                            "remedy of the first": first.finding.remedy if first else "",
                            "right": bool(first and first.symptom == symptom
                                          and word in first.finding.remedy)})
            print(planted[-1], flush=True)
    for seed in map(int, healthy.split(",")):
        for name, plan in EVERY_ROW.items():
            run = Run.open(make(plan, seed, folder / f"healthy-{name.replace(' ', '-')}-{seed}"))
            found = diagnose(run).findings
            well.append({"run": name, "seed": seed, "steps": run.next_step - 1,
                         "named": ", ".join(x.symptom for x in found) or "nothing",
                         "evidence": found[0].finding.evidence if found else ""})
            print(well[-1], flush=True)
    right, accused = sum(row["right"] for row in planted), sum(row["named"] != "nothing" for row in well)
    return [bar(f"doctor: planted faults named first and with the right remedy (limits of {THRESHOLDS})",
                f">= {len(planted) * 33 // 36} of {len(planted)}", f"{right} of {len(planted)}",
                right >= len(planted) * 33 // 36, seeds=[*map(int, seeds.split(","))]),
            bar("doctor: healthy runs of every row that are accused", f"0 of {len(well)}, 30 or more",
                f"{accused} of {len(well)}", not accused and len(well) >= 30,
                seeds=[*map(int, healthy.split(","))])], {
        "Doctor: planted faults": planted, "Doctor: healthy runs": well, "Doctor: earlier attempts": EARLIER}


SIZES = ("evaluation.every=4", "save_every=4", "evaluation.problems=24", "evaluation.samples=4")
LONG = {"rollouts": ("rollouts.prompts=400", "rollouts.prompts_per_step=8", "rollouts.group_size=4",
                     "rollouts.max_new_tokens=48", "rollouts.collections=24", *SIZES),
        "sft": ("steps=32", "examples=2200", *SIZES),
        "preference": ("steps=32", "pairs.drawn=600", "pairs.held_out=100", "pairs.per_step=12", *SIZES)}
LATE = "optim.warmup=24"  # the rate rises all the while: the run is healthy at first
RUNAWAYS = {
    "sft": ("sft:words", "optim.lr=2e-2"), "sft late": ("sft:words", "optim.lr=3e-2", "optim.warmup=30"),
    "grpo": (GRPO, "optim.lr=6e-3"), "grpo late": (GRPO, "optim.lr=6e-3", LATE),
    "nano": ("nano:words", "optim.lr=6e-3"), "rloo late": ("rloo:words", "optim.lr=6e-3", LATE),
    "ppo": ("ppo:words", "rollouts.collections=8", "rollouts.prompts_per_step=4", "optim.lr=6e-3"),
    "dpo": ("dpo:questions", "optim.lr=3e-3")}
LABELS = tomllib.loads((Path(__file__).parent / "recorded" / "runaways.toml").read_text())


EARLIER_GUARD = [{
    "seed": 51, "guard of": "c7b8cb71", "named within 10 steps": "8 of 8",
    "halve_rate above the start": "5 of 8", "healthy runs touched": "2 (sft arithmetic of seeds 34 and 37)",
    "changed since": "back to a checkpoint not evaluated below the start; GUARD_LOSS 1.5 -> 2; held-out "
                     "figures whose intervals are apart; a KL that the reward pays for is no trouble"}]


def troubles(run: Run) -> list[Trouble]:
    """What the guard names in the rows of a run, each thing once."""
    guard, found = Guard(str(run.info["row"]["kind"])), {}
    evals = {int(row["step"]): row for row in run.rows("evals")[0]}
    for step, row in [(0, None), *((int(row["step"]), row) for row in run.rows("metrics")[0])]:
        for trouble in (row and guard.on_step(step, row), step in evals and guard.on_eval(step, evals[step])):
            if trouble:
                found.setdefault(trouble.name, trouble)
    return [*found.values()]


def guard(folder: Path, healthy: str = "") -> tuple[Bars, Tables]:
    """Are planted runaways named within ten steps of their labelled beginning, does half the rate save them,
    and is no healthy run touched? healthy: the folder with the runs of the part `doctor`."""
    rows, curves = [], []
    for name, (spec, *changes) in RUNAWAYS.items():
        recipe, _ = config_from_text(spec)
        words = (*LONG[recipe], *changes, f"seed={LABELS['seed']}")
        place = folder / name.replace(" ", "-")
        run = train(place, spec, *words)
        slower = train(place.with_name(f"{place.name}-halved"), spec, *words, "on_trouble=halve_rate")
        first = min(troubles(run), key=lambda trouble: trouble.step, default=None)
        begins = LABELS["begins"][name]
        (_, sign, before), (_, _, after) = run.figures(), slower.figures()
        back = [event["data"] for event in slower.rows("events")[0] if event["kind"] == "halved"]
        rows.append({"runaway": name, "setting": " ".join((spec, *changes)), "labelled": begins,
                     "named at": first.step if first else "never", "by": first.text if first else "",
                     "within 10 steps": bool(first and begins <= first.step <= begins + 10),
                     "start": sign * before[0], "end with warn": sign * before[max(before)],
                     "end with halve_rate": sign * after[max(after)], "halvings": len(back),
                     "above its start": after[max(after)] > after[0]})
        curves += [{"runaway": name, "figure": figure, "at every step": " ".join(f"{x:.3g}" for x in values)}
                   for figure in ("loss", "grad_norm", "kl_k1", "length", "entropy", "reward")
                   if (values := run.curve(figure)[1])]
        print(rows[-1], flush=True)
    place = Path(healthy) if healthy else folder.parent / "doctor"
    well = [Run.open(path.parent) for path in sorted(place.glob("healthy-*/run.json"))]
    touched = [run.folder.name for run in well if troubles(run)]
    named, saved = (sum(row[name] for row in rows) for name in ("within 10 steps", "above its start"))
    return [bar("guard: planted runaways named within 10 steps of their labelled beginning",
                f"{len(rows)} of {len(rows)}", f"{named} of {len(rows)}", named == len(rows), seeds=[52]),
            bar("guard: on_trouble=halve_rate ends above its start", f">= 6 of {len(rows)}",
                f"{saved} of {len(rows)}", saved >= 6, seeds=[52]),
            bar("guard: healthy runs that it would touch", f"0 of {len(well)}, 20 or more",
                f"{len(touched)} of {len(well)} {' '.join(touched)}".strip(),
                not touched and len(well) >= 20, seeds=[34, 37])], {
        "Guard: runaways": rows, "Guard: earlier attempts": EARLIER_GUARD,
        "Guard: curves of the runaways, without the guard": curves}
