"""`postgrad eval` and `postgrad compare`: a model against samples spent, and models on the same problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from postgrad.cli.options import SPLITS, Command, CommandOptions
from postgrad.cli.output import format_figure, format_percent, print_json, print_table
from postgrad.system.options import MODEL, SampleOptions, TaskOptions
from postgrad.system.settings import COUNT, setting

MOST = 10  # problems at either end of the table of gains and losses
NOT_MEASURES = ("model", "task", "split", "seed", "problems", "samples", "curve", "no_vote", "seconds")


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(TaskOptions, CommandOptions):
    """The problems of a measurement, and where its page goes."""

    problems: int = setting(200, "problems that are asked", within=COUNT)
    samples: int = setting(8, "replies to each problem; 64 and more for what more samples buy", within=COUNT)
    split: str = setting("test", "the part of the task that is asked", choices=SPLITS)
    html: str | None = setting(None, "write a page with figures here", metavar="FILE.html")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.html is not None and not Path(self.html).resolve().parent.is_dir():
            raise ValueError(f"--html {self.html}: there is no folder "
                             f"{Path(self.html).parent}; make it first.")

    def arguments(self) -> dict[str, Any]:
        """The options as `recipes.measuring` takes them."""
        names = {f.name for f in (*fields(TaskOptions), *fields(MeasureOptions))} - {"html", "json"}
        return {name: getattr(self, name) for name in names} | {"display": not self.json}


@dataclass(frozen=True, kw_only=True)
class EvalOptions(MeasureOptions, SampleOptions):
    reward: str | None = setting(None, "reward or process models that choose the best of several samples, "
                                 "with commas between; each has a curve of its own", metavar="RUN,RUN")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(MeasureOptions):
    model: list[str] = setting(about=f"two models or more, each against the first: {MODEL}", metavar="MODEL",
                               positional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.model) < 2:
            raise ValueError(f"compare needs two models, and {self.model[0]} is one: name another, e.g. "
                             f"`postgrad compare tiny-chat {self.model[0]} --task {self.task}`.")


def run_eval(options: EvalOptions) -> None:
    from postgrad.recipes.measuring import evaluate
    row = evaluate(options.model, rank_by=options.reward, **options.arguments())
    page = write_measure_page(options, row)
    if options.json:
        return print_json(row)
    print_table([{"samples": point["k"], **{name: format_percent(point, name) for name in point
                                            if name != "k" and not name.endswith("_interval")}}
                 for point in row["curve"]], title=f"{row['model']} on {row['task']}: {problem_counts(row)}")
    if "no_vote" in row:
        print(f"no majority vote: {row['no_vote']}.")
    print()
    print_table([{"measure": name, "value": format_figure(value),
                  "95 % interval": format_figure(row.get(f"{name}_interval") or "")}
                 for name, value in row.items()
                 if name not in NOT_MEASURES and not name.endswith("_interval")])
    return print(f"\n{row['seconds']:.0f} s.{page}")


def run_compare(options: CompareOptions) -> None:
    from postgrad.recipes.measuring import compare
    rows = compare(*options.model, **options.arguments())
    page = write_measure_page(options, rows)
    if options.json:
        return print_json(rows)
    first, *others = rows
    print_table([{"model": row["model"], "pass@1": format_percent(row, "pass@1"),
                  "more than the first": format_points(row, "pass@1_gain") if "p_value" in row else "",
                  "p": f"{row['p_value']:.2g}" if "p_value" in row else "",
                  "reward": format_figure(row["reward"])} for row in rows],
                title=f"{first['task']}: {problem_counts(first)}")
    for row in others:
        print(f"\n{row['model']} against {first['model']}. {row['says']}")
        if changed := largest_gains_and_losses(row["by_problem"]):
            print()
            print_table(changed, title="Largest gains and losses")
    return print(f"\nThe test: {others[0]['test']}.{page}")


def problem_counts(row: Mapping[str, Any]) -> str:
    return f"{row['problems']} problems, {row['samples']} samples of each (95 % intervals over problems)"


def format_points(row: Mapping[str, Any], name: str) -> str:
    """A difference of shares in percentage points, with its interval."""
    low, high = row[f"{name}_interval"]
    return f"{100 * row[name]:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def largest_gains_and_losses(problems: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    ranked = sorted((p for p in problems if p["gain"]), key=lambda p: -p["gain"])
    ends = [p for i, p in enumerate(ranked) if i < MOST or i >= len(ranked) - MOST]
    return [{"problem": p["question"][:70], "first": f"{p['first']:.0%}", "second": f"{p['second']:.0%}",
             "": "won" if p["gain"] > 0 else "lost"} for p in ends]


def write_measure_page(options: MeasureOptions, measured: Any) -> str:
    """Writes the page that was asked for; -> a sentence on where it is."""
    if options.html is None:
        return ""
    from postgrad.runs.report import write_comparison, write_evaluation
    write = write_evaluation if isinstance(measured, dict) else write_comparison
    return f" The page: {write(options.html, measured)}"


COMMANDS = (
    Command("eval", "measure a model on a task: pass@k, majority vote and best-of-n against samples spent, "
            "greedy, format, length, diversity", EvalOptions, run_eval),
    Command("compare", "models on the same problems: is the difference real, what was won and lost",
            CompareOptions, run_compare),
)
