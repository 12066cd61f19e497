"""The command `postgrad`: its parser and its commands. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Sequence
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
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        near = get_close_matches(choice[1], re.findall(r"'([^']+)'", choice[2]), 1) if choice else []
        hint = f"did you mean {near[0]}?" if near else f"see {self.prog} --help"
        sentence = f"{self.prog}: {message}; {hint}"
        self._print_message(f"{sentence}\n", sys.stderr)
        raise UsageError(sentence)


def parser() -> argparse.ArgumentParser:
    return parser_of(COMMANDS)


@cache
def parser_of(commands: tuple[Command, ...]) -> argparse.ArgumentParser:
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
        top.error(f"unrecognized arguments: {' '.join(stray)}")
    if training:
        args.changes = [*args.changes, *extra]
    return args.chosen.run(options_from(args.chosen.options, args)) or 0
