"""`postgrad rlaif`: what the judge found, one example, and what to do with the files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from postgrad.cli.options import made
from postgrad.cli.output import say_json
from postgrad.runs.display import clean, progress, table


def label(args) -> int:
    from postgrad.recipes.rlaif import run
    from postgrad.system.options import RLAIFConfig
    config, folder = made(RLAIFConfig, args), Path(args.out)
    summary = run(config, folder,
                  track=iter if args.json else partial(progress, label=f"{args.model} on {args.task}"))
    if args.json:
        say_json(summary)
        return 0
    show(summary)
    for kind, file in (("sft", "revisions"), ("dpo", "pairs")):
        if summary[file]:
            print(f"  postgrad train {kind} model={args.model} data={folder}/{file}.jsonl")
    return 0


def show(found: dict) -> None:
    table(found["rules"],
          title=f"{found['revisions']} replies of {found['model']}, judged by {found['judge']}")
    print(f"\nkeep every rule: {found['keep all rules before']} before, {found['keep all rules after']} "
          "after the revision"
          f"\npairs: {found['pairs']}; ties {found['ties']}, equal texts {found['identical']}, repeats "
          f"{found['repeated']}"
          f"\nleft out: {found['empty']} empty replies, {found['emptied']} revisions that left nothing")
    if found["judge"] != "rules" and found["reply shown first preferred"] is not None:
        print(f"the reply shown first was preferred by {found['reply shown first preferred']:.1%} "
              "(50 % is no bias)")
    if example := found.get("example"):
        print("\n" + "\n".join(f"{name:<10}{clean(text)}" for name, text in example.items()) + "\n")
