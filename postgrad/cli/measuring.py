"""The commands `eval` and `compare`: a model against samples spent, and models on the same problems."""

from __future__ import annotations

from dataclasses import fields

from postgrad.cli.measuring_options import Asking, CompareOptions, EvalOptions, Measuring
from postgrad.cli.options import made
from postgrad.cli.output import say_json, shown, table

SHOWN = 10  # problems at either end of the table of what was won and lost
ASIDE = ("model", "task", "split", "seed", "problems", "samples", "curve", "no_vote", "seconds")


def asked_of(asked: Measuring, as_json: bool) -> dict:
    """The options of a measurement, as the functions take them."""
    names = [f.name for f in (*fields(Asking), *fields(Measuring)) if f.name != "html"]
    return {name: getattr(asked, name) for name in names} | {"watch": None if as_json else "auto"}


def share(row: dict, name: str) -> str:
    """0.234 with its interval -> 23.4% (20.1 to 27.0)"""
    low, high = row[f"{name}_interval"]
    return f"{row[name]:.1%} ({100 * low:.1f} to {100 * high:.1f})"


def evaluate(args) -> int:
    from postgrad.recipes.measuring import evaluate as measure
    asked = made(EvalOptions, args)
    row = measure(asked.model, rank_by=asked.reward, **asked_of(asked, args.json))
    written = page(asked, row)
    if args.json:
        return say_json(row)
    table([{"samples": at["k"], **{name: share(at, name) for name in at
                                   if name != "k" and not name.endswith("_interval")}}
           for at in row["curve"]],
          title=f"{row['model']} on {row['task']}: {counts(row)}")
    if "no_vote" in row:
        print(f"no majority vote: {row['no_vote']}.")
    print()
    table([{"measure": name, "value": shown(value), "95 % interval": shown(row.get(f"{name}_interval") or "")}
           for name, value in row.items() if name not in ASIDE and not name.endswith("_interval")])
    return print(f"\n{row['seconds']:.0f} s.{written}")


def compare(args) -> int:
    from postgrad.recipes.measuring import compare as measure
    asked = made(CompareOptions, args)
    rows = measure(*asked.model, **asked_of(asked, args.json))
    written = page(asked, rows)
    if args.json:
        return say_json(rows)
    first, *others = rows
    table([{"model": row["model"], "pass@1": share(row, "pass@1"),
            "more than the first": points(row, "pass@1_gain") if "p_value" in row else "",
            "p": f"{row['p_value']:.2g}" if "p_value" in row else "", "reward": shown(row["reward"])}
           for row in rows],
          title=f"{first['task']}: {counts(first)}")
    for row in others:
        print(f"\n{row['model']} against {first['model']}. {row['says']}")
        if changed := ends(row["by_problem"]):
            print()
            table(changed, title="Won and lost most")
    return print(f"\nThe test: {others[0]['test']}.{written}")


def counts(row: dict) -> str:
    return f"{row['problems']} problems, {row['samples']} samples of each (95 % intervals over problems)"


def points(row: dict, name: str) -> str:
    """A difference of shares in points, with its interval."""
    low, high = row[f"{name}_interval"]
    return f"{100 * row[name]:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def ends(problems: list[dict]) -> list[dict]:
    """The problems that were most won, and those most lost."""
    ranked = sorted((p for p in problems if p["gain"]), key=lambda p: -p["gain"])
    cut = [p for i, p in enumerate(ranked) if i < SHOWN or i >= len(ranked) - SHOWN]
    return [{"problem": p["question"][:70], "first": f"{p['first']:.0%}", "second": f"{p['second']:.0%}",
             "": "won" if p["gain"] > 0 else "lost"} for p in cut]


def page(asked: Measuring, found) -> str:
    """Writes the page that was asked for; says where it is."""
    if asked.html is None:
        return ""
    from postgrad.runs.report import write_comparison, write_evaluation
    write = write_evaluation if isinstance(found, dict) else write_comparison
    return f" The page: {write(asked.html, found)}"
