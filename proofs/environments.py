"""Episodes on the embedded models: what GRPO over several turns makes of the games of the package, what
observed tokens have to do with the loss, and how often chat.extend goes on from the sampled tokens.

    python proofs/environments.py FOLDER [games=guess,animals,big-numbers] [seeds=A,B] [talks=1000]
    python proofs/environments.py write FOLDER      docs/results/environments.json and .md of what is there,
                                                    also by other scripts (environment_bars.py)

Each game: a short SFT shows the form as a player without skill fills it, then GRPO with the settings below;
success is pass@1 of 200 held-out games, two samples each. Minutes are those of one core, all of it together:
form, both examinations and GRPO. Runs and figures stay in FOLDER; what is there is not made again.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "proofs"), str(HERE / "tests/support"), str(HERE / "tools")]

import environment_bars  # noqa: E402
import results  # noqa: E402
from results import bar  # noqa: E402
from small import begins  # noqa: E402
from talks import STYLES, conversation, spliced  # noqa: E402

import postgrad as pg  # noqa: E402
from postgrad import recipes  # noqa: E402
from postgrad.cli.settings import config_from_text  # noqa: E402
from postgrad.maths.logprob import align, logp_of_logits  # noqa: E402
from postgrad.recipes import rollouts, running  # noqa: E402
from tests.training.batches.segments_test import observed  # noqa: E402

COMMAND, ABSENT = "python proofs/environments.py FOLDER", "not measured"
TALKS, MINUTES = 1000, 5.0
GAMES, TOOL = ("guess", "animals"), "big-numbers"
SEEDS = {"guess": (3, 4, 5), "animals": (3, 4, 5), "big-numbers": (8, 9, 10)}  # chosen on others
EXAM = {"problems": 200, "samples": 2, "greedy": False, "watch": None}


def trained(spec: str, place: Path, *changes: str) -> pg.Run:
    """postgrad train SPEC ... --run PLACE, without examinations on the way."""
    recipe, config = config_from_text(spec, ["evaluation.every=0", *changes])
    running.start(recipe, config, recipes.module(recipe).build, place, command=f"postgrad train {spec}")
    return pg.Run.open(place)


def game(name: str, seed: int, folder: Path) -> dict:
    """Success after the form and after GRPO, and what it took; what was observed, in a batch of the game."""
    place, began = folder / f"{name}-{seed}", time.process_time()
    shutil.rmtree(place, ignore_errors=True)
    form = trained(f"sft:{name}", place / "form", f"seed={seed}")
    before = pg.evaluate(form, name, seed=seed, **EXAM)
    run = trained(f"grpo:{name}", place / "grpo", f"seed={seed}", f"model={form.folder}")
    after = pg.evaluate(run, name, seed=seed, **EXAM)
    minutes = (time.process_time() - began) / 60
    rows = run.metrics()
    return {"game": name, "seed": seed, "form": before["pass@1"], "form interval": before["pass@1_interval"],
            "grpo": after["pass@1"], "grpo interval": after["pass@1_interval"], "minutes": minutes,
            "in form before GRPO": rows[0]["reward/format"], "turns": rows[-1]["turns"],
            "new rows": sum(row["new_rows"] for row in rows),
            **shown(name, f"{run.folder}@{min(run.checkpoints())}", seed)}


class Spread:
    """A policy whose logits at every column can be differentiated, also where nothing was sampled."""

    def __init__(self, model):
        self.model, self.logits = model, torch.empty(0)

    def logp(self, tokens, mask, temperature=1.0, packed=None):
        self.logits = self.model.logits(tokens).detach().requires_grad_()
        every = align(torch.log_softmax(self.logits / temperature, -1))
        return logp_of_logits(self.logits / temperature, tokens), -(every.exp() * every).sum(-1)


def shown(name: str, model: str, seed: int) -> dict:
    """A batch of GRPO on a game: how many tokens between turns were observed, and how much of the
    mask, the weight, the advantage and the derivative of the loss lies on what was observed, at most."""
    _, config = config_from_text(f"grpo:{name}", ["evaluation.every=0", f"seed={seed}", f"model={model}"])
    parts = rollouts.build(config, begins(model))
    batch = next(iter(parts.batches))
    seen = observed(batch)
    between = sum(not on for scored in batch.scored for on in scored.rollout.mask or ())
    policy = Spread(parts.models.policy)
    loss, _ = parts.objective(replace(parts.models, policy=policy), batch)
    (loss * batch.weight).sum().backward()
    slope = align(policy.logits.grad).abs().amax(-1)
    most = max(float(x[seen].abs().max()) for x in (batch.mask.float(), batch.weight, batch.adv, slope))
    return {"observed tokens": between, "of them in the loss": most,
            "slope of a sampled token": float(slope[batch.mask].max())}


def extended(style: str, talks: int) -> dict:
    """Random conversations in a template's style: turns that go on, and turns that begin a new row."""
    chat, rng, equal, new, wrong = STYLES[style](), random.Random(style), 0, 0, 0
    for _ in range(talks):
        for messages, turns, row, tools in conversation(chat, rng):
            longer, wanted = chat.extend(row, messages, tools), spliced(chat, messages, turns, tools)
            equal, new = equal + (longer is not None), new + (longer is None)
            wrong += longer != wanted
    return {"template": style, "conversations": talks, "went on": equal, "new rows": new, "differ": wrong}


def kept(path: Path, make) -> dict:
    """What the file holds; made where it is not there yet."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"commit": results.commit(), **make()}, indent=1))
    print(path.read_text(), flush=True)
    return json.loads(path.read_text())


def main(folder: Path, games="guess,animals,big-numbers", seeds="", talks="1000") -> None:
    for style in STYLES:
        kept(folder / f"extend-{style}.json", lambda style=style: extended(style, int(talks)))
    for name in games.split(","):
        for seed in map(int, seeds.split(",")) if seeds else SEEDS[name]:
            kept(folder / f"{name}-{seed}.json", lambda name=name, seed=seed: game(name, seed, folder))


def write(folder: Path) -> None:
    """The page; what was not measured does not hold."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    read = [made for made in found if isinstance(made, dict)]
    rows = [row for row in read if "game" in row and row["seed"] in SEEDS[row["game"]]]
    talks = [row for row in read if "template" in row]
    bars = [learned(name, [row for row in rows if row["game"] == name]) for name in (*GAMES, TOOL)]
    bars += [limits(rows), untouched(rows), equal(talks), *environment_bars.bars(folder)]
    results.write("environments", "Environments: what was measured", bars,
                  seeds=sorted({seed for seeds in SEEDS.values() for seed in seeds}),
                  tables={"Games": rows, "extend against render": talks})
    print(*bars, sep="\n")


def learned(name: str, rows: list[dict]) -> dict:
    """A game gains 40 points; where the tool is needed, from under 10 % to over 80 %."""
    tool = name == TOOL
    good = [row["form"] < 0.1 and row["grpo"] > 0.8 if tool else row["grpo"] - row["form"] >= 0.4
            for row in rows]
    each = [f"{100 * row['form']:.1f} to {100 * row['grpo']:.1f}" for row in rows]
    return bar(f"success in {name}, from the form to the end of GRPO over several turns",
               "from < 10 % to > 80 %" if tool else "+40 points",
               f"{', '.join(each)} (%)" if rows else ABSENT, len(rows) == len(SEEDS[name]) and all(good),
               COMMAND)


def limits(rows: list[dict]) -> dict:
    most = max((row["minutes"] for row in rows), default=0.0)
    return bar("minutes of a game, form and examinations included", f"<= {MINUTES:g} each on two cores",
               f"at most {most:.1f} of processor time, one process" if rows else ABSENT,
               0 < most <= MINUTES, COMMAND)


def untouched(rows: list[dict]) -> dict:
    most = max((row["of them in the loss"] for row in rows), default=1.0)
    tokens = sum(row["observed tokens"] for row in rows)
    return bar("observed tokens in the loss: mask, weight, advantage, slope by the logits that predict them",
               "exactly 0", f"at most {most:g}, of {tokens:,} tokens between turns in a batch of each run"
               if rows else ABSENT, most == 0 < tokens, COMMAND)


def equal(talks: list[dict]) -> dict:
    went_on, new, wrong = (sum(row[key] for row in talks) for key in ("went on", "new rows", "differ"))
    whole = len(talks) == len(STYLES) and all(row["conversations"] >= TALKS for row in talks)
    return bar("extend == render with each sampled turn's ids in it, or a new row that is counted",
               f"every template, {TALKS:,} conversations each", f"{len(talks)} templates, {went_on:,} turns "
               f"went on, {new:,} began a new row, {wrong} differ", whole and not wrong, COMMAND)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]), **dict(word.split("=", 1) for word in sys.argv[2:]))
