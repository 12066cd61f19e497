"""The command `postgrad`: its parser and its commands. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, NoReturn

from postgrad import __version__
from postgrad.cli import (
    chat,
    data,
    env,
    evaluate,
    exercise,
    generate,
    label,
    launch,
    methods,
    models,
    plan,
    runs,
    serve,
    train,
)
from postgrad.cli.completion import completion_command
from postgrad.cli.options import Command, add_options, options_from
from postgrad.cli.output import print_json
from postgrad.cli.settings import setting_for_flag
from postgrad.system import processes

WIDTH = 100  # columns of descriptions
EPILOG = """\
first steps:
  postgrad demo                                  base -> SFT -> GRPO on word problems, in minutes
  postgrad train grpo:words                      one training run; any setting can follow: lr=1e-4 steps=20
  postgrad train grpo --task mytask.py           your own prompts and your own verifier
  postgrad train sft data=chats.jsonl            imitate conversations of your own
  postgrad train dpo data=pairs.jsonl            learn from preferences of your own
  postgrad train r1-zero                         a base model learns to reason, by rules alone; then r1
  postgrad train align                           reward model, PPO, DPO and GRPO on one task, side by side
  postgrad train examples/labs/overoptimise.py   a pipeline of a file: push a reward model too far
  postgrad train examples/labs/oversight.py      who can watch over a model that knows more?
  postgrad studio                                see it all in the browser
"""
INSTEAD = {  # words of other command lines, and the command here
    "generate infer inference sample predict ask": "chat MODEL",
    "merge convert save gguf": "export RUN --out FOLDER",
    "upload publish": "push",
    "list ls log logs show": "runs",
    "report plot ui dashboard tensorboard wandb": "studio",
    "download pull": "fetch",
    "evaluate test": "eval MODEL --task NAME",
    "vllm-serve server api": "serve MODEL",
    "finetune fine-tune tune rl fit": "train METHOD",
    "tasks": "eval --help",
    "help": "--help",
    "version": "--version",
}
GROUPS = (train, launch, data, evaluate, generate, chat, models, plan, runs, methods, exercise, serve, label,
          env)


class UsageError(SystemExit):
    """A command line that the parser does not take."""

    def __init__(self, sentence: str) -> None:
        super().__init__(2)
        self.sentence = sentence


class SentenceParser(argparse.ArgumentParser):
    """Answers a mistake with a sentence."""

    def error(self, message: str) -> NoReturn:
        word = re.match(r"argument COMMAND: invalid choice: '(.*?)'", message)
        if word and (instead := instead_of(word[1])):
            self.end_with(f"{self.prog}: there is no command {word[1]!r}: write {self.prog} {instead}; see "
                          f"{self.prog} --help")
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        near = get_close_matches(choice[1], re.findall(r"'([^']+)'", choice[2]), 1) if choice else []
        hint = f"did you mean {near[0]}?" if near else f"see {self.prog} --help"
        self.end_with(f"{self.prog}: {message}; {hint}")

    def end_with(self, sentence: str) -> NoReturn:
        self._print_message(f"{sentence}\n", sys.stderr)
        raise UsageError(sentence)


def instead_of(word: str) -> str:
    """The command in place of a word of another command line: sft, as TRL's has it, is train sft."""
    from postgrad.methods import METHODS
    if word in METHODS:
        return f"train {word}, with its settings as KEY=VALUE"
    return next((command for words, command in INSTEAD.items() if word in words.split()), "")


def flag_hint(command: Command, flag: str) -> str:
    """What to write for a flag that a command does not have."""
    name, options = flag.partition("=")[0], fields(command.options)
    for f in options:
        if f.metadata["positional"] and name.lstrip("-") in (f.name, f.name.removesuffix("s")):
            return f"it stands without a flag, postgrad {command.name} {f.name.upper()}"
    flags = [command.options.name_of(f.name) for f in options if not f.metadata["positional"]]
    near = get_close_matches(name.replace("_", "-"), flags, 1, 0.75) if name.startswith("--") else []
    return f"did you mean {near[0]}?" if near else f"see postgrad {command.name} --help"


def parser() -> SentenceParser:
    return parser_of(COMMANDS)


@cache
def parser_of(commands: tuple[Command, ...]) -> SentenceParser:
    top = SentenceParser(prog="postgrad", description="Post-training for language models, by gradient.",
                         epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=f"postgrad {__version__}")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in commands:
        add_command(subparsers, command)
    return top


COMMANDS = (*(command for group in GROUPS for command in group.COMMANDS), completion_command(parser))


def add_command(subparsers: Any, command: Command) -> None:
    """A command with its options, or with its actions, each a command of its own."""
    about, epilog = command.about, command.epilog
    made = subparsers.add_parser(command.name, help=about,
                                 description=textwrap.fill(f"{about[0].upper()}{about[1:]}.", WIDTH),
                                 epilog=epilog if "\n" in epilog else textwrap.fill(epilog, WIDTH),
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    if command.actions:
        inside = made.add_subparsers(dest="action", metavar="ACTION", required=True)
        for action in command.actions:
            add_command(inside, action)
        return
    made.set_defaults(chosen=command)
    add_options(made, command.options)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0, 1 (the reader of the output is gone) or 2 (a mistake, or a
    file that cannot be used: one sentence on stderr).

    With --json stdout has the mistake too: {"error": {"code": "usage" | "input" | "file", "message": ...}}.
    """
    argv = sys.argv[1:] if argv is None else argv
    code = ""
    try:
        return run_command(argv)
    except UsageError as error:
        code, sentence = "usage", error.sentence
        raise
    except ValueError as error:
        sentence = str(error)
        processes.tell_end(sentence)
        if processes.says_first(sentence):
            code = "input"
            print(f"postgrad: {sentence}", file=sys.stderr)
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a full disk, a file that is not ours to read
        code, sentence = "file", f"{error.filename or 'a file'}: {error.strerror or error}."
        print(f"postgrad: {sentence}", file=sys.stderr)
    finally:
        if code and "--json" in argv:
            print_json({"error": {"code": code, "message": sentence}})
    return 2


def run_command(argv: Sequence[str]) -> int:
    """Parses a command line and runs its command."""
    top = parser()
    args, extra = top.parse_known_args(argv)
    if args.command is None and not extra:
        top.print_help()
        return 0
    training = args.command == "train"
    stray = [word for word in extra if not training or "=" not in word or word.startswith("-")]
    if training and (hint := setting_for_flag(stray, argv)):
        raise ValueError(hint)
    if stray:
        hint = flag_hint(args.chosen, stray[0]) if args.command else "see postgrad --help"
        top.end_with(f"postgrad: unrecognized arguments: {' '.join(stray)}; {hint}")
    if training:
        args.changes = [*args.changes, *extra]
    return args.chosen.run(options_from(args.chosen.options, args)) or 0
