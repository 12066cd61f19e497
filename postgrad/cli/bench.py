"""`postgrad bench`: standard benchmarks by the lm-evaluation-harness."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table
from postgrad.system.options import DEVICE, MODEL
from postgrad.system.settings import COUNT, setting


@dataclass(frozen=True, kw_only=True)
class BenchOptions(CommandOptions):
    model: str = setting(about=MODEL, positional=True)
    suite: str = setting("small", "small (words, arithmetic, countdown, and gsm8k where data/gsm8k has its "
                         "rows), or tasks with commas between: ours by name or file, the harness's own as "
                         "lm_eval:NAME", metavar="small|NAME,NAME")
    problems: int = setting(200, "test problems of each task", within=COUNT)
    max_new_tokens: int | None = setting(None, "the most tokens of a reply; without it: as the task says, "
                                         "else by the model's size")
    include: str | None = setting(None, "task files of the harness's own kind, for lm_eval:NAME",
                                  metavar="FOLDER")
    files: str | None = setting(None, "write the suite's task files there and stop: for `lm_eval "
                                "--include_path` against `postgrad serve`", metavar="FOLDER")
    seed: int = setting(0, "of the problems")
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


COMMAND = Command("bench", "standard benchmarks: the lm-evaluation-harness in this process, on local files",
                  BenchOptions, run_bench)
