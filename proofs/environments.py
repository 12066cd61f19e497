"""Episodes on the embedded model: what GRPO over several turns makes of the three games of the package, and
how often chat.extend goes on from the sampled tokens.

    python proofs/environments.py [games=guess,animals,big-numbers] [seeds=0,1,2] [talks=1000]
                                  [folder=runs/proof-environments] [out=runs/proof-environments/figures.json]

Each game: tiny-chat, then a short SFT that shows the form as a mediocre player fills it, then GRPO with the
settings below; success is pass@1 of 200 held-out games, two samples each. Seconds are the processor's, in one
process. Runs stay in the folder, and what is done there is not made again. The file is written after each.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tests")]

from talks import STYLES, conversation, spliced  # noqa: E402

import postgrad as pg  # noqa: E402

FORM = {"guess": {"examples": 512, "steps": 40}, "animals": {"examples": 512, "steps": 40},
        "big-numbers": {"examples": 4000, "steps": 120}}
GRPO = {"lr": 5e-4, "collections": 40, "anchor": {"kl": 0.0}}
EXAM = {"problems": 200, "samples": 2, "greedy": False, "watch": None}


def trained(place: Path, model, method: str, **settings) -> tuple[pg.Run, float | None]:
    """The run of that folder and the seconds it took; the one that is there, where it is done."""
    if (place / "run.json").exists() and pg.Run.open(place).state()["state"] == "done":
        return pg.Run.open(place), None
    shutil.rmtree(place, ignore_errors=True)
    began = time.process_time()
    run = pg.fit(model, method, run=place, watch=None, evaluation={"every": 0}, **settings)
    return run, time.process_time() - began


def game(name: str, seed: int, folder: Path) -> dict:
    """Success before, after the form, and after GRPO."""
    given = {"task": name, "seed": seed}
    form, first = trained(folder / f"{name}-form-{seed}", "tiny-chat", "sft", rows_per_step=32, **given,
                          **FORM[name])
    run, then = trained(folder / f"{name}-grpo-{seed}", form, "grpo", **given, **GRPO)
    row = {"game": name, "seed": seed, "form_seconds": first, "grpo_seconds": then}
    for stage, model in (("before", "tiny-chat"), ("form", form), ("grpo", run)):
        figures = pg.evaluate(model, name, seed=seed, **EXAM)
        row |= {stage: figures["pass@1"], f"{stage}_interval": figures["pass@1_interval"]}
    return row | {"turns": run.metrics()[-1]["turns"], "new_rows": sum(r["new_rows"] for r in run.metrics())}


def extended(style: str, talks: int) -> dict:
    """Random conversations in a template's style: turns that go on, and turns that begin a new row."""
    chat, rng, equal, new, wrong = STYLES[style](), random.Random(style), 0, 0, 0
    for _ in range(talks):
        for messages, turns, row, tools in conversation(chat, rng):
            longer, wanted = chat.extend(row, messages, tools), spliced(chat, messages, turns, tools)
            equal, new = equal + (longer is not None), new + (longer is None)
            wrong += longer != wanted
    return {"template": style, "conversations": talks, "went_on": equal, "new_rows": new, "differ": wrong}


def main(words: list[str]) -> None:
    given = dict(word.split("=", 1) for word in words)
    folder = Path(given.get("folder", "runs/proof-environments"))
    out = Path(given.get("out", folder / "figures.json"))
    figures: dict[str, list[dict]] = {"extend": [extended(style, int(given.get("talks", 1000)))
                                                 for style in STYLES], "games": []}
    print(*figures["extend"], sep="\n", flush=True)
    for name in given.get("games", "guess,animals,big-numbers").split(","):
        for seed in map(int, given.get("seeds", "0,1,2").split(",")):
            figures["games"].append(game(name, seed, folder))
            print(figures["games"][-1], flush=True)
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
