"""The command `postgrad audit`: a reward model, probed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from postgrad.cli.options import AuditOptions, made
from postgrad.cli.output import say_json
from postgrad.runs import display
from postgrad.runs.display import progress
from postgrad.system.files import write_text

COLUMNS = ("probe", "verdict", "effect", "95 % interval", "edits that rise", "tokens added", "by length",
           "true quality")


def audit(args) -> int:
    from postgrad.evaluation.audit import audit_scores as measure
    from postgrad.evaluation.audit import text_scorer
    from postgrad.evaluation.edits import draw_probes
    names, out = args.probes.split(","), Path(args.out) if args.out else None
    made(AuditOptions, args)  # checks itself
    draw_probes(names, args.seed)  # so do they
    if out and not out.parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}.")
    answers, truth, source = gather(args)
    model, chat = open_reward_model(args.model, args.device)
    track = iter if args.json else partial(progress, label=f"scoring for {args.model}")
    found = measure(answers, text_scorer(model, chat, device=args.device, track=track), names=names,
                    seed=args.seed, truth=truth, length=lambda answer: len(chat.answer(*answer)[0]),
                    max_tokens=model.config.max_position_embeddings)
    found = {"model": args.model, "source": source, **found}
    if out:
        from postgrad.runs import plain
        write_text(out, json.dumps(plain(found), indent=1, allow_nan=False) + "\n")
    if args.json:
        say_json(found)
    else:
        show(found)
    return 0


def gather(args) -> tuple[list, object, str]:
    """The answers to edit, their true quality if it is known, and where they are from."""
    from postgrad.data.preferences import read_pairs
    from postgrad.data.tasks import load_task
    from postgrad.evaluation.audit import SPLIT, answers_of_pairs, answers_of_task
    if args.pairs and args.task:
        raise ValueError("the answers come either from --task NAME or from --pairs FILE.jsonl, not both.")
    if args.pairs:
        return answers_of_pairs(read_pairs(Path(args.pairs)), args.count, args.seed), None, args.pairs
    task = load_task(args.task or "questions")
    return *answers_of_task(task, args.count, args.seed), f"{task.name}, {SPLIT} split"


def open_reward_model(name: str, device: str) -> tuple:
    from postgrad.resolve.models import open_reward
    model, chat = open_reward(name, device)
    if not model.score_head.weight.any():
        raise ValueError(f"{name} is no reward model: it scores all 0; train one with `postgrad "
                         "train reward:...`")
    return model.requires_grad_(False), chat


def show(found: dict) -> None:
    """A table of the probes, then a sentence each."""
    title = (f"{found['model']}: {found['answers']} answers to {found['prompts']} prompts "
             f"({found['source']}), scores {found['mean']:.3g} with a spread of {found['spread']:.3g}")
    display.table([row_of(probe) for probe in found["probes"]], COLUMNS, title=title)
    print()
    for probe in found["probes"]:
        print(display.clean(probe["sentence"]))
    left = {f"{why} ({p['probe']})": n for p in found["probes"] for why, n in p["left_out"].items() if n}
    if found["too_long"]:
        left["answers over the model's length"] = found["too_long"]
    if left:
        print("left out: " + ", ".join(f"{n} {why}" for why, n in left.items()))
    print("\nEffects are in units of the spread of the scores. A bias is an effect of at least "
          f"{found['threshold']} with an interval that excludes 0.")


def row_of(probe: dict) -> dict:
    signed = {k: "" if probe[k] is None else f"{probe[k]:+.2f}" for k in ("effect", "by_length", "truth")}
    measured = probe["effect"] is not None
    return {"probe": probe["probe"], "verdict": probe["verdict"], "effect": signed["effect"],
            "95 % interval": " to ".join(f"{x:+.2f}" for x in probe["interval"]) if measured else "",
            "edits that rise": f"{probe['rises']:.0%}" if measured else "",
            "tokens added": f"{probe['added']:.1f}" if measured else "",
            "by length": signed["by_length"], "true quality": signed["truth"]}
