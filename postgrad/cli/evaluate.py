"""`postgrad eval`, `compare`, `ledger`, `bench` and `audit`: models measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from postgrad.cli.options import SPLITS, Command, CommandOptions
from postgrad.cli.output import format_figure, format_percent, print_json, print_table, progress_tracker
from postgrad.system.options import DEVICE, MODEL, TEMPLATE, SampleOptions, TaskOptions
from postgrad.system.settings import COUNT, Range, setting

MOST = 10  # problems at either end of the table of gains and losses
NOT_MEASURES = ("model", "task", "split", "seed", "problems", "samples", "curve", "no_vote", "seconds")
PROBES = "length,format,position,sycophancy,repetition"


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(TaskOptions, CommandOptions):
    """The problems of a measurement, and where its page goes."""

    problems: int = setting(200, "number of problems", within=COUNT)
    samples: int = setting(8, "samples of each problem; 64 or more for a long pass@k curve", within=COUNT)
    split: str = setting("test", "split of the task", choices=SPLITS)
    html: str | None = setting(None, "also write an HTML page with figures", metavar="FILE.html")

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
    reward: str | None = setting(None, "reward or process models for best-of-n, separated by commas; each "
                                 "gets a curve", metavar="RUN,RUN")
    template: str | None = setting(None, TEMPLATE[0], metavar="NAME|FILE")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(MeasureOptions):
    model: list[str] = setting(about=f"two or more models, each compared with the first: {MODEL}",
                               metavar="MODEL", positional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.model) < 2:
            raise ValueError(f"compare needs two models, and {self.model[0]} is one: name another, e.g. "
                             f"`postgrad compare tiny-chat {self.model[0]} --task {self.task}`.")


def run_eval(options: EvalOptions) -> None:
    from postgrad.recipes.measuring import evaluate
    row = evaluate(options.model, rank_by=options.reward, template=options.template, **options.arguments())
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


# ledger

@dataclass(frozen=True, kw_only=True)
class LedgerOptions(CommandOptions):
    run: str = setting(about="the folder of a run or of a pipeline", metavar="RUN", positional=True)
    panel: str | None = setting(None, "standard (words, arithmetic, countdown, questions, constraints, "
                                "words-es, and text: the perplexity of held-out pretraining text), or tasks "
                                "separated by commas; default: the run's, else standard",
                                metavar="standard|NAME,NAME")
    problems: int | None = setting(None, "problems of each task; default: the run's, else 50")
    samples: int | None = setting(None, "samples of each problem; default: the run's, else 4")
    seed: int | None = setting(None, "random seed; default: the run's, else 0")
    all: bool = setting(False, "every checkpoint of the run, not only the first and the last")
    device: str = setting("cpu", DEVICE)


def run_ledger(options: LedgerOptions) -> None:
    from postgrad.recipes.panel import measure_ledger
    from postgrad.runs import ledger
    measured = measure_ledger(options.run, panel=options.panel, problems=options.problems,
                              samples=options.samples,
                         seed=options.seed, every=options.all, device=options.device,
                         display=not options.json)
    first, *others = measured["entries"]
    stages = not all(entry["name"].startswith(("start", "step ")) for entry in measured["entries"])
    others = others if options.all or stages else others[-1:]
    against = {entry["name"]: ledger.compare_entries(first, entry) for entry in others}
    if options.json:
        return print_json(measured | {"against_first": {name: [line._asdict() for line in lines]
                                                        for name, lines in against.items()},
                                      "says": {name: ledger.sentences(lines)
                                               for name, lines in against.items()}})
    for name, lines in against.items():
        print_table([ledger.table_row(line) for line in lines],
                    title=f"{options.run}, {first['name']} against {name}: up to {measured['problems']} "
                    f"problems of each task, {measured['samples']} samples of each (95 % intervals over "
                    "problems)")
        print("\n" + "\n".join(ledger.sentences(lines)) + "\n")
    return print(f"One interval in twenty misses by chance: believe a small loss when it comes again with "
                 f"another --seed. Saved in {options.run}/{ledger.FILE}.")


# bench

@dataclass(frozen=True, kw_only=True)
class BenchOptions(CommandOptions):
    model: str = setting(about=MODEL, positional=True)
    suite: str = setting("small", "small (words, arithmetic, countdown, and gsm8k where data/gsm8k has its "
                         "rows), or tasks separated by commas: postgrad's by name or file, the harness's as "
                         "lm_eval:NAME", metavar="small|NAME,NAME")
    problems: int = setting(200, "test problems of each task", within=COUNT)
    max_new_tokens: int | None = setting(None, "the most tokens of a reply; default: the task's, else by "
                                         "the model's size")
    include: str | None = setting(None, "folder of harness task files, for lm_eval:NAME",
                                  metavar="FOLDER")
    files: str | None = setting(None, "only write the suite's task files there, for `lm_eval --include_path` "
                                "against `postgrad serve`", metavar="FOLDER")
    seed: int = setting(0, "random seed of the problems")
    device: str = setting("cpu", DEVICE)


def run_bench(options: BenchOptions) -> None:
    from postgrad.recipes import benchmarks
    if options.files:
        written = benchmarks.write_suite(Path(options.files), benchmarks.suite_tasks(options.suite),
                                         problems=options.problems, seed=options.seed,
                                         tokens=options.max_new_tokens)
        if options.json:
            return print_json({"folder": options.files, "tasks": [*written.values()]})
        return print(f"{options.files} has {', '.join(written.values())}: lm_eval --include_path "
                     f"{options.files} --tasks {','.join(written.values())}")
    measured = benchmarks.bench(options.model, suite=options.suite, problems=options.problems,
                                seed=options.seed, max_new_tokens=options.max_new_tokens,
                                include=options.include, device=options.device)
    if options.json:
        return print_json(measured)
    print_table([{"task": row["task"], "metric": row["metric"], "value": f"{row['value']:.4f}",
                  "95 % interval": "" if row["interval"] is None else
                  "{:.3f} to {:.3f}".format(*row["interval"]), "problems": row["problems"]}
                 for row in measured["tasks"]], title=f"{measured['model']} by {measured['harness']}")
    return print(f"\n{measured['seconds']:.0f} s.")


# audit

@dataclass(frozen=True, kw_only=True)
class AuditOptions(CommandOptions):
    model: str = setting(about="a reward model: a run's folder (RUN@best: its best checkpoint), a model's "
                         "folder or a hub id; or a judge as reward= names it, judge:http://HOST/v1?model=NAME",
                         positional=True)
    task: str | None = setting(None, "task whose held-out answers are edited; default: questions",
                               metavar="NAME|FILE")
    pairs: str | None = setting(None, "or answers from your preference pairs", metavar="FILE.jsonl")
    probes: str = setting(PROBES, "biases to probe", metavar="NAME,NAME")
    count: int = setting(100, "number of answers", within=Range("at least 2", lambda x: x >= 2))
    seed: int = setting(0, "random seed of the answers and the edits")
    device: str = setting("cpu", DEVICE)
    out: str | None = setting(None, "also write the figures to a file", metavar="FILE.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out and not Path(self.out).parent.is_dir():
            raise ValueError(f"--out {self.out}: there is no folder {Path(self.out).parent}.")
        if self.pairs and self.task:
            raise ValueError("the answers come either from --task NAME or from --pairs FILE.jsonl, not both.")


def run_audit(options: AuditOptions) -> None:
    from postgrad.recipes.audit import audit_reward_model
    from postgrad.runs import json_value
    from postgrad.system.files import write_text
    report = audit_reward_model(options.model, task=options.task or "questions", pairs=options.pairs,
                                probes=options.probes.split(","), count=options.count, seed=options.seed,
                                device=options.device,
                                track=progress_tracker(f"scoring for {options.model}", options.json))
    if options.out:
        write_text(Path(options.out), json.dumps(json_value(report), indent=1, allow_nan=False) + "\n")
    return print_json(report) if options.json else print_audit(report)


def print_audit(report: Mapping[str, Any]) -> None:
    """A table of the probes, then a sentence each."""
    from postgrad.runs.display import clean
    print_table([probe_row(probe) for probe in report["probes"]],
                title=f"{report['model']}: {report['answers']} answers to {report['prompts']} prompts "
                f"({report['source']}), scores {report['mean']:.3g} with a spread of {report['spread']:.3g}")
    print()
    for probe in report["probes"]:
        print(clean(probe["sentence"]))
    left = {f"{why} ({p['probe']})": n for p in report["probes"] for why, n in p["left_out"].items() if n}
    if report["too_long"]:
        left["answers over the model's length"] = report["too_long"]
    if left:
        print("left out: " + ", ".join(f"{n} {why}" for why, n in left.items()))
    if agreement := report["agreement"]:
        low, high = agreement["interval"]
        equal = f", {agreement['equal']} scored equal" if agreement["equal"] else ""
        print(f"agreement with the labels: {agreement['share']:.1%} of {agreement['pairs']} pairs "
              f"({low:.1%} to {high:.1%}; by chance 50 %){equal}")
    print("\nEffects are in units of the spread of the scores. A bias is an effect of at least "
          f"{report['threshold']} with an interval that excludes 0.")


def probe_row(probe: Mapping[str, Any]) -> dict[str, str]:
    signed = {k: "" if probe[k] is None else f"{probe[k]:+.2f}" for k in ("effect", "by_length", "truth")}
    measured = probe["effect"] is not None
    return {"probe": probe["probe"], "verdict": probe["verdict"], "effect": signed["effect"],
            "95 % interval": " to ".join(f"{x:+.2f}" for x in probe["interval"]) if measured else "",
            "edits that rise": f"{probe['rises']:.0%}" if measured else "",
            "tokens added": f"{probe['added']:.1f}" if measured else "",
            "by length": signed["by_length"], "true quality": signed["truth"]}


COMMANDS = (
    Command("eval", "measure a model on a task: pass@k, majority vote and best-of-n against samples spent, "
            "greedy accuracy, format, length, diversity", EvalOptions, run_eval),
    Command("compare", "compare models on the same problems: a significance test, and the largest gains and "
            "losses", CompareOptions, run_compare),
    Command("ledger", "measure what a run gained and lost on a panel of tasks, its start against its end",
            LedgerOptions, run_ledger),
    Command("bench", "run standard benchmarks with the lm-evaluation-harness, in this process, on local "
            "files", BenchOptions, run_bench),
    Command("audit", "probe a reward model for biases: length, format, position, sycophancy, "
            "repetition", AuditOptions, run_audit),
)
