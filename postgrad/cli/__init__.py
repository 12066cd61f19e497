"""The command `postgrad`: the map of what it can do. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import os
import sys

from postgrad import __version__

EPILOG = """\
first steps:
  postgrad demo                                  base -> SFT -> GRPO on word problems, in about two minutes
  postgrad train grpo:words                      one training run; any setting can follow: optim.lr=1e-4 steps=20
  postgrad train grpo --task mytask.py           your own prompts and your own verifier
  postgrad train sft data=chats.jsonl            imitate conversations of your own
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="postgrad", description="Post-training for language models, by gradient.",
                                  epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=f"postgrad {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    def add(name: str, about: str, **more) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=about, description=more.pop("description", about[0].upper() + about[1:] + "."),
                                      formatter_class=argparse.RawDescriptionHelpFormatter, **more)
        command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        return command

    c = add("demo", "watch a small model learn to reason: base, SFT, RL, measured")
    c.add_argument("--quick", action="store_true", help="a shorter one, under 40 seconds")
    c.add_argument("--seed", type=int, default=0)
    c.add_argument("--run", default="runs/demo", metavar="FOLDER", help="where to write (an older one there is moved aside)")

    c = add("train", "train a model by a recipe", epilog="recipes: postgrad methods   settings: postgrad train RECIPE --show")
    c.add_argument("recipe", metavar="RECIPE[:SETTING]", help="e.g. grpo:words, sft:words, dapo:arithmetic")
    c.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="override a setting, e.g. optim.lr=1e-4 steps=20")
    c.add_argument("--task", metavar="NAME|FILE", help="a task's name, your Python file, or a .jsonl of questions and answers")
    c.add_argument("--run", metavar="FOLDER", help="the run's folder (default: runs/RECIPE-SETTING-N)")
    c.add_argument("--show", action="store_true", help="print the resolved settings and stop")

    c = add("resume", "go on with a run from its last checkpoint, to the same result as if it had never stopped")
    c.add_argument("run", metavar="FOLDER")

    c = add("eval", "measure a model on a task: pass@1, pass@k, greedy, format, length")
    c.add_argument("model", help="tiny, tiny-chat, a run's folder or a model's folder")
    c.add_argument("--task", required=True, metavar="NAME|FILE")
    c.add_argument("--problems", type=int, default=200)
    c.add_argument("--samples", type=int, default=8)
    c.add_argument("--split", default="test", choices=("train", "validation", "test"))
    c.add_argument("--max-new-tokens", type=int, default=64)
    c.add_argument("--temperature", type=float, default=1.0)
    c.add_argument("--seed", type=int, default=0)
    c.add_argument("--device", default="cpu")

    c = add("audit", "probe a reward model for biases: length, format, position, sycophancy, repetition")
    c.add_argument("model", help="a reward model: a run's folder or a model's folder")
    c.add_argument("--task", metavar="NAME|FILE", help="whose held-out answers are edited (default: questions)")
    c.add_argument("--pairs", metavar="FILE.jsonl", help="or the answers of preference pairs of your own")
    c.add_argument("--probes", default="length,format,position,sycophancy,repetition", metavar="NAME,NAME")
    c.add_argument("--count", type=int, default=100, help="how many answers (default: 100)")
    c.add_argument("--seed", type=int, default=0)
    c.add_argument("--device", default="cpu")
    c.add_argument("--out", metavar="FILE.json", help="write the figures here")

    c = add("chat", "talk to a model")
    c.add_argument("model", help="tiny, tiny-chat, a run's folder or a model's folder")
    c.add_argument("--prompt", help="ask this one question and leave")
    c.add_argument("--system", help="a system message")
    c.add_argument("--max-new-tokens", type=int, default=128)
    c.add_argument("--temperature", type=float, default=0.0, help="0 (the default) is greedy")
    c.add_argument("--seed", type=int, default=0)

    c = add("runs", "list the runs, or show one")
    c.add_argument("run", nargs="?", metavar="FOLDER", default="runs", help="a folder of runs (default: runs), or one run")

    c = add("methods", "the table of algorithms, with papers")
    c.add_argument("method", nargs="?", help="show one row in full")

    c = add("explain", "what a metric or a method means, and when to worry")
    c.add_argument("name", nargs="?", metavar="METRIC|METHOD")
    return top


def main(argv: list[str] | None = None) -> int:
    top = parser()
    args, extra = top.parse_known_args(argv)
    if args.command is None:
        top.print_help()
        return 0
    stray = [word for word in extra if args.command != "train" or "=" not in word or word.startswith("-")]
    if stray:
        top.error(f"unrecognized arguments: {' '.join(stray)}")
    if args.command == "train":
        args.changes = [*args.changes, *extra]
    from postgrad.cli import commands
    try:
        return commands.COMMANDS[args.command](args) or 0
    except ValueError as error:
        print(f"postgrad: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
