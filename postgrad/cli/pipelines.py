"""Pipelines in the terminal: their stages as they run, and the tables of what they found."""

from __future__ import annotations

from pathlib import Path

from postgrad.cli.output import say_json, shown, table
from postgrad.cli.watching import Stages, stopping


def carry_out(args, folder: Path, go, again: str = "", intro: str = "") -> int:
    """Carries out a pipeline, and shows what it found. again: what goes on with it after a stop; intro: what
    is said once it has been checked."""
    with stopping(folder, again=again or f"postgrad resume {folder}"):
        summary = go(watch=Stages(args.json, intro))
    if args.json:
        return say_json(summary | {"folder": str(folder)})
    print()
    if summary["recipe"] == "demo":
        return show_demo(folder, summary)
    for title, rows in summary.get("tables", {}).items():
        table([cells(row) for row in rows], title=title)
    print(f"{summary['minutes']:.1f} minutes. Runs and figures: {folder}")
    return 0


def cells(row: dict) -> dict[str, str]:
    """A row as text: a figure with its interval behind it, a pair of numbers as "low to high"."""
    out = {}
    for name, value in row.items():
        if name.endswith("_interval") and name.removesuffix("_interval") in row:
            continue
        interval = row.get(f"{name}_interval")
        out[name] = shown(value) + (f" ({shown(interval)})" if interval else "")
    return out


def show_demo(folder: Path, summary: dict) -> int:
    """Base, SFT and RL in figures and in answers, and what to try next."""
    from postgrad.recipes.pipelines.demo import NEXT
    title = (f"Word problems: {summary['problems']} held out, {summary['samples']} samples each "
             "(95 % intervals)")
    table([stage_row(s) for s in summary["stages"]], title=title)
    for asked in summary["answers"]:
        print(f"\n{asked['question']}  (answer: {asked['gold']})")
        for stage in asked["stages"]:
            print(f"  {stage['name']:<5}{'right' if stage['correct'] else 'wrong':<7}{stage['text']!r}")
    print(f"\n{summary['seconds_total'] / 60:.1f} minutes. Curves: {folder}/report.html   figures: "
          f"{folder}/summary.json")
    print("\nNext:\n" + "\n".join(f"  {line.replace('runs/demo', str(folder))}" for line in NEXT))
    return 0


def stage_row(s: dict) -> dict:
    def share(name: str) -> str:
        low, high = s[f"{name}_interval"]
        return f"{s[name]:.1%} ({100 * low:.1f} to {100 * high:.1f})"

    shares = ("pass@1", f"pass@{s['samples']}", "greedy")
    return {"stage": s["name"], **{name: share(name) for name in shares},
            "in form": f"{s.get('format', 0):.1%}", "mean length": f"{s['mean_length']:.1f}",
            "minutes": f"{s['seconds'] / 60:.1f}"}
