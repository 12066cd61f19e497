"""Environments on the embedded models: GRPO over several turns, observed tokens and the loss, chat.extend,
one turn against an earlier commit, environments of other packages, the endpoint (endpoint.py), kills.

    python proofs/environments.py [PART ...] [games=guess,animals,big-numbers] [seeds=A,B]
    python proofs/environments.py single-turn commit=COMMIT     which has to have postgrad.fit
    python proofs/environments.py doors [doors=trl,verifiers,openenv,skyrl] [collections=12]

Each game: a short SFT shows the form as a player without skill fills it, then GRPO; success is pass@1 of 200
held-out games, two samples each. Minutes are those of one core: form, both evaluations and GRPO.

doors: their pins exclude one another, so each package has an environment of its own, FOLDER/venv-NAME, made
from the package index. In it postgrad trains: the embedded model, for all but verifiers after a short SFT
that shows the form, then GRPO. tests/support/adapters_record.py records what these packages say.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import endpoint
import kills
import torch
from harness import (
    HOME,
    RESULTS,
    Bars,
    Page,
    Tables,
    answers,
    bar,
    environment,
    once,
    own_python,
    python,
    started,
    tests,
    train,
    worktree,
)

MINUTES, TALKS, NOISE, APART = 5.0, 1000, 0.05, 1e-8
SEEDS = {"guess": (3, 4, 5), "animals": (3, 4, 5), "big-numbers": (8, 9, 10)}  # chosen on others
EXAM = {"problems": 200, "samples": 2, "greedy": False, "display": False}


# games

def game(name: str, seed: int, place: Path) -> dict:
    """Success after the form and after GRPO, and what it took; what was observed, in a batch of the game."""
    import postgrad as pg
    began = time.process_time()
    form = train(place / "form", f"sft:{name}", "evaluation.every=0", f"seed={seed}")
    before = pg.evaluate(form, name, seed=seed, **EXAM)
    run = train(place / "grpo", f"grpo:{name}", "evaluation.every=0", f"seed={seed}", f"model={form.folder}")
    after = pg.evaluate(run, name, seed=seed, **EXAM)
    minutes, rows = (time.process_time() - began) / 60, run.metrics()
    return {"game": name, "seed": seed, "form": before["pass@1"], "form interval": before["pass@1_interval"],
            "grpo": after["pass@1"], "grpo interval": after["pass@1_interval"], "minutes": minutes,
            "in form before GRPO": rows[0]["reward/format"], "turns": rows[-1]["turns"],
            "new rows": sum(row["new_rows"] for row in rows),
            **observed_in(name, f"{run.folder}@{min(run.checkpoints())}", seed)}


class Spread:
    """A policy whose logits at every column can be differentiated, also where nothing was sampled."""

    def __init__(self, model):
        self.model, self.logits = model, torch.empty(0)

    def logp(self, tokens, mask, temperature=1.0, packed=None):
        from postgrad.maths.logprob import align, logp_of_logits
        self.logits = self.model.logits(tokens).detach().requires_grad_()
        every = align(torch.log_softmax(self.logits / temperature, -1))
        return logp_of_logits(self.logits / temperature, tokens), -(every.exp() * every).sum(-1)


def observed_in(name: str, model: str, seed: int) -> dict:
    """A batch of GRPO on a game: how many tokens between turns were observed, and how much of the mask, the
    weight, the advantage and the derivative of the loss lies on what was observed, at most."""
    from small import begins

    from postgrad.cli.settings import config_from_text
    from postgrad.maths.logprob import align
    from postgrad.recipes import rollouts
    from tests.training.batches.segments_test import observed
    _, config = config_from_text(f"grpo:{name}", ["evaluation.every=0", f"seed={seed}", f"model={model}"])
    parts = rollouts.build(config, begins(model))
    batch = next(iter(parts.batches))
    seen, policy = observed(batch), Spread(parts.models.policy)
    loss, _ = parts.objective(replace(parts.models, policy=policy), batch)
    (loss * batch.weight).sum().backward()
    slope = align(policy.logits.grad).abs().amax(-1)
    most = max(float(x[seen].abs().max()) for x in (batch.mask.float(), batch.weight, batch.adv, slope))
    return {"observed tokens": sum(not on for scored in batch.scored for on in scored.rollout.mask or ()),
            "of them in the loss": most, "slope of a sampled token": float(slope[batch.mask].max())}


def played(folder: Path, games: str = ",".join(SEEDS), seeds: str = "") -> tuple[Bars, Tables]:
    rows = []
    for name in games.split(","):
        for seed in map(int, seeds.split(",")) if seeds else SEEDS[name]:
            rows.append(once(folder / f"{name}-{seed}.json",
                             lambda: game(name, seed, folder / f"{name}-{seed}")))  # noqa: B023
    return game_bars(rows), {"Games": rows}


def game_bars(rows: list[dict]) -> Bars:
    """A game gains 40 points; where the tool is needed, from under 10 % to over 80 %."""
    bars = []
    for name, seeds in SEEDS.items():
        tool, mine = name == "big-numbers", [row for row in rows if row["game"] == name]
        good = [row["form"] < 0.1 and row["grpo"] > 0.8 if tool else row["grpo"] - row["form"] >= 0.4
                for row in mine]
        bars.append(bar(f"success in {name}, from the form to the end of GRPO over several turns",
                        "from < 10 % to > 80 %" if tool else "+40 points",
                        ", ".join(f"{100 * row['form']:.1f} to {100 * row['grpo']:.1f}" for row in mine)
                        + " (%)", len(mine) == len(seeds) and all(good)))
    longest, most = (max((row[key] for row in rows), default=1e9)
                     for key in ("minutes", "of them in the loss"))
    tokens = sum(row["observed tokens"] for row in rows)
    return [*bars,
            bar("minutes of a game, form and evaluations included", f"<= {MINUTES:g} each on two cores",
                f"at most {longest:.1f} of processor time, one process", longest <= MINUTES),
            bar("observed tokens in the loss: mask, weight, advantage, slope by the logits that predict them",
                "exactly 0", f"at most {most:g}, of {tokens:,} tokens between turns in a batch of each run",
                most == 0 < tokens)]


def extend(folder: Path, talks: str = str(TALKS)) -> tuple[Bars, Tables]:
    """Random conversations in each template's style: turns that go on, and turns that begin a new row."""
    from talks import STYLES, conversation, spliced
    rows = []
    for style in STYLES:
        chat, rng, row = STYLES[style](), random.Random(style), {"went on": 0, "new rows": 0, "differ": 0}
        for _ in range(int(talks)):
            for messages, turns, tokens, tools in conversation(chat, rng):
                longer, wanted = chat.extend(tokens, messages, tools), spliced(chat, messages, turns, tools)
                row["new rows" if longer is None else "went on"] += 1
                row["differ"] += longer != wanted
        rows.append({"template": style, "conversations": int(talks), **row})
    went_on, new, wrong = (sum(row[key] for row in rows) for key in ("went on", "new rows", "differ"))
    return [bar("extend == render with each sampled turn's ids in it, or a new row that is counted",
                f"every template, {TALKS:,} conversations each", f"{len(rows)} templates, {went_on:,} turns "
                f"went on, {new:,} began a new row, {wrong} differ", int(talks) >= TALKS and not wrong)], {
        "extend against render": rows}


# one turn, by an earlier commit and by this checkout, turn by turn

ONCE = """
import json, sys, time
from postgrad import fit
how = dict(task="words", seed=3, display=False, evaluation={"every": 0}, steps=2,
           rollouts={"prompts_per_step": 16, "group_size": 8})
fit("tiny-chat", "grpo", run=sys.argv[1] + "/warm", **how)
began = time.process_time()
fit("tiny-chat", "grpo", run=sys.argv[1] + "/run", **how)
print(json.dumps(time.process_time() - began))
"""


def single_turn(folder: Path, commit: str, rounds: str = "3") -> Bars:
    """Weights and samples of a run, bit for bit, and the least processor time of each side."""
    sides: dict[str, list[float]] = {}
    facts = []
    with worktree(commit) as before:
        for turn in range(int(rounds)):
            for name, place in (("before", before), ("now", HOME)):
                out = folder / f"{name}-{turn}"
                out.mkdir()
                sides.setdefault(name, []).append(json.loads(python("-c", ONCE, out, cwd=place)))
                samples = [json.loads(line) for line in (out / "run/samples.jsonl").read_text().splitlines()]
                weights = max(out.glob("run/checkpoints/*/model.safetensors"))
                facts.append((hashlib.sha256(weights.read_bytes()).hexdigest(),
                              [row["tokens"] for row in samples], [row["logp"] for row in samples]))
    same = all(fact[:2] == facts[0][:2] for fact in facts)
    far = max(abs(a - b) for fact in facts for mine, first in zip(fact[2], facts[0][2], strict=True)
              for a, b in zip(mine, first, strict=True))
    ratio = min(sides["now"]) / min(sides["before"])
    return [bar("rollouts and steps of GRPO of one turn, against the commit before there were several",
                f"tokens and weights the same bits, log-probs within {APART:g}; processor time within "
                f"{NOISE:.0%}", f"{'the same' if same else 'other'} bits, log-probs up to {far:.1e} apart, "
                f"{ratio:.3f} of the time", same and far <= APART and abs(ratio - 1) <= NOISE)]


# environments that exist elsewhere, each with its real package

ELSEWHERE, PORT = HOME / "proofs" / "elsewhere", 8931
DOORS = {"trl": "a TRL environment class", "verifiers": "a verifiers taskset", "openenv": "an OpenEnv server",
         "skyrl": "a SkyRL environment"}
PACKAGES = {"trl": "trl==1.16.0", "verifiers": "verifiers==0.4.0", "openenv": "openenv==0.10.0",
            "skyrl": "skyrl-gym==0.4.0"}
TASKS = {"trl": f"env:trl:{ELSEWHERE / 'calculator_env.py'}:Calculator",
         "verifiers": "env:verifiers:sums-taskset",
         "openenv": f"env:openenv:ws://127.0.0.1:{PORT}?turns=4",
         "skyrl": f"env:skyrl:gsm8k_multi_turn:{ELSEWHERE / 'sums_rows.jsonl'}"}
SUMS = [(a, b) for a in range(2, 20) for b in range(2, 20)]
FORMS = {"trl": {"task": "big-numbers", "examples": 4000, "steps": 120},
         "openenv": {"task": "guess", "examples": 512, "steps": 40},
         "skyrl": {"steps": 40, "data": [  # every second one is wrong
             {"prompt": f"What is {a}+{b}?", "completion": f"#### {a + b + a % 2}"} for a, b in SUMS]}}


def inside(door: str, folder: Path, what: str) -> object:
    """What a child says that runs in a door's own Python, the server beside where the door leads to one."""
    own = Path(sys.executable) if door == "trl" else own_python(folder / f"venv-{door}", [PACKAGES[door]])
    env = environment(PYTHONPATH=os.pathsep.join([str(HOME), str(ELSEWHERE), str(HOME / "proofs"),
                                                  str(HOME / "tests/support")]))
    with started([own, ELSEWHERE / "guess_server.py", PORT],
                 lambda: answers(f"http://127.0.0.1:{PORT}/health")) if door == "openenv" else nullcontext():
        done = subprocess.run([own, "-P", "-c", what], env=env, check=True, text=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def trained(door: str, folder: Path, collections: int) -> dict:
    """What a short training makes of a door's environment; in that door's Python."""
    from importlib.metadata import version

    import postgrad as pg
    quiet = {"display": False, "evaluation": {"every": 0}, "seed": 0}
    exam = {"problems": 100, "samples": 2, "greedy": False, "display": False, "seed": 0}
    model = "tiny-chat"
    if door in FORMS:
        model = pg.fit(model, "sft", run=folder / f"{door}-form", rows_per_step=32, **FORMS[door], **quiet)
    before = pg.evaluate(model, TASKS[door], **exam)
    run = pg.fit(model, "grpo", task=TASKS[door], run=folder / f"{door}-grpo", lr=2e-4, kl=0.0,
                 collections=collections, **quiet)
    after, rows, package = pg.evaluate(run, TASKS[door], **exam), run.metrics(), PACKAGES[door].split("=")[0]
    return {"door": door, "package": f"{package} {version(package)}", "collections": collections,
            "before": before["pass@1"], "after": after["pass@1"], "reward_first": rows[0]["reward"],
            "reward_last": rows[-1]["reward"], "errors": sum(row["errors"] for row in rows)}


def through_doors(folder: Path, doors: str = "trl,verifiers,openenv", collections: str = "12") -> Bars:
    made, rises = [], []
    for door in doors.split(","):
        row = inside(door, folder, "import json, pathlib, environments as e; print(json.dumps(e.trained("
                                   f"{door!r}, pathlib.Path({str(folder)!r}), {collections})))")
        rises += [door] if row["reward_last"] > row["reward_first"] else []
        made.append(bar(f"{DOORS[door]} trains unchanged", "a short run without a fault",
                        f"{row['package']}: {row['collections']} collections, {row['errors']:g} faults, "
                        f"reward {row['reward_first']:.2f} to {row['reward_last']:.2f}, success "
                        f"{row['before']:.2f} to {row['after']:.2f}", row["errors"] == 0))
    return [*made, bar("... and the reward rises", "on one at least", ", ".join(rises) or "none", rises)]


def from_harnesses(folder: Path) -> Bars:
    """Two figures of docs/results/harnesses.json (proofs/endpoint.py)."""
    tables, made = json.loads((RESULTS / "harnesses.json").read_text())["tables"], []
    rows = [row for rows in tables.values() for row in rows]
    for what, (task, way) in {"lm-eval's GSM8K on 200 problems": ("postgrad_gsm8k", "local-chat-completions"),
                              "inspect-ai on 200 problems": ("postgrad_words", "inspect-ai")}.items():
        row = next(row for row in rows if row["task"] == task and row.get(way) is not None)
        made.append(bar(f"{what} against the server, and postgrad eval", "one figure, and the same replies",
                        f"{row[way]:g} and {row['postgrad eval']:g}, {row['replies that differ']} replies "
                        "differ", row["equal"] and not row["replies that differ"] and row["problems"] >= 200,
                        "python proofs/endpoint.py"))
    return made


def killed(folder: Path, count: str = "20") -> Bars:
    rows = kills.try_kills("games", folder / "killed", int(count), seed=0)
    same = sum(not row["differences"] for row in rows)
    return [bar("runs over several turns killed at random and resumed", "20 of 20 the same bits",
                f"{same} of {len(rows)}", same == len(rows) >= 20)]


PAGE = Page("environments", "Environments: what was measured",
            {"games": played, "extend": extend, "single-turn": single_turn, "tests": tests("environments"),
             "doors": through_doors, "serving": endpoint.serving, "harnesses": from_harnesses,
             "kills": killed}, sorted({seed for seeds in SEEDS.values() for seed in seeds}),
            apart=("single-turn", "doors"))

if __name__ == "__main__":
    PAGE.main()
