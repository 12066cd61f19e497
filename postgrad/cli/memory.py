"""The command `postgrad memory`: what a method would ask of a GPU, before it is started."""

from __future__ import annotations

from dataclasses import asdict

from postgrad.cli.options import made
from postgrad.cli.output import say_json
from postgrad.runs import display
from postgrad.system.options import Held

CARDS = (12, 24, 40, 80)


def memory(args) -> int:
    from postgrad import methods
    from postgrad.training.memory import PARTS, Setup, estimate, parameters
    shape, rows = shape_of(args.model), [methods.get_method(name) for name in args.method.split(",")]
    found = []
    for row in rows:
        judged = getattr(row, "critic", False) if args.reward is None else args.reward == "model"
        needs = estimate(shape, row, Setup(**asdict(made(Held, args)), reward_model=judged))
        found.append({"method": row.name, "models": needs.models,
                      **{part: getattr(needs, part) for part in (*PARTS, "sampling", "updating", "peak")}})
    if args.json:
        say_json({"model": args.model, "parameters": parameters(shape), "methods": found})
    else:
        trained = f"LoRA of rank {args.lora}" if args.lora else "all weights trained"
        display.table([line(row) for row in found], list(line(found[0])),
                      title=f"{args.model}: {parameters(shape) / 1e9:.2f}B parameters, {trained}, "
                            f"{args.bits} bits, GB")
        print("The peak is the larger of sampling and updating, which take turns. Leave a tenth "
              "of a card free.")
    return 0


def shape_of(name: str):
    """A size of the table, or the config.json of a model, which is all that is fetched of a hub id."""
    from postgrad.resolve.models import shape_of as read
    from postgrad.training.memory import SIZES
    return SIZES[name.upper()] if name.upper() in SIZES else read(name)


def line(row: dict) -> dict:
    from postgrad.training.memory import GB, PARTS
    fits = next((f"{card} GB" for card in CARDS if row["peak"] <= card * GB), f"over {CARDS[-1]} GB")
    parts = {part: f"{row[part] / GB:.1f}" for part in (*PARTS, "peak")}
    return {"method": row["method"], "models": ", ".join(row["models"]), **parts, "fits": fits}
