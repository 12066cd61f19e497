"""The command `postgrad plan`: a training on many GPUs, before it is started."""

from __future__ import annotations

from dataclasses import asdict

from postgrad.cli.memory import shape_of
from postgrad.cli.options import made
from postgrad.cli.output import say_json
from postgrad.cli.plan_options import PlanOptions
from postgrad.runs import display

SHOWN = 6  # ways in the table


def plan(args) -> int:
    from postgrad import methods
    from postgrad.recipes.plan import Lengths, Work, cards_named, options
    from postgrad.training.memory import Setup, parameters
    asked = made(PlanOptions, args)
    shape, (count, card) = shape_of(asked.model), cards_named(asked.gpus)
    method = methods.get_method(asked.method)
    if not method.source.startswith("rollouts"):
        raise ValueError(f"plan is for methods that sample, and {method.name} learns from {method.source}: "
                         "`postgrad memory` says what it asks of a GPU.")
    work = Work(prompts=asked.prompts, group=asked.group, prompt=asked.prompt_tokens,
                reply=asked.reply_tokens)
    lengths = Lengths(mean=asked.reply_tokens, longest=asked.longest, kind=asked.lengths)
    found = options(shape, method, count, card, work, lengths, Setup(bits=16, lora=asked.lora))
    if asked.ahead is not None:
        found = [option for option in found if option.ahead == asked.ahead]
    if not found:
        raise ValueError(f"{asked.model} with {method.name} does not fit {asked.gpus} in any way that is "
                         "known here: more GPUs, larger ones, or --lora RANK.")
    if args.json:
        say_json({"model": asked.model, "parameters": parameters(shape), "gpus": asked.gpus,
                  "options": [asdict(option) | {"times": option.times._asdict()} for option in found]})
        return 0
    title = f"{asked.model}, {parameters(shape) / 1e9:.2f}B parameters, {method.name} on {asked.gpus}"
    best = found[0]
    display.table([line(option) for option in found[:SHOWN]], list(line(best)),
                  title=f"{title}: seconds of a step, quickest first")
    display.table(memory_lines(best), ["GPU", "part", "GB"], title="memory of a GPU, the first of these ways")
    print("\n".join([*(f"Note: {note}." for note in best.notes), WORDS]))
    return 0


WORDS = ("Arithmetic, held against what was measured on one H200; nothing past one GPU was measured, and "
         "links and disks are assumed (docs/scale.md).")


def line(option) -> dict:
    parts = {name: f"{seconds:.2f}" for name, seconds in option.parts.items()}
    return {"GPUs": option.layout.words, "ahead": str(option.ahead), **parts,
            "waits": f"{option.times.waiting:.2f}", "step": f"{option.times.step:.2f}"}


def memory_lines(option) -> list[dict]:
    from postgrad.training.memory import GB
    phases = (("training", option.training), ("sampling", option.sampling))
    return [{"GPU": phase, "part": part, "GB": f"{size / GB:.1f}"}
            for phase, parts in phases for part, size in (*parts.items(), ("in all", sum(parts.values())))]
