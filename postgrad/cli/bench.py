"""The command `postgrad bench`: standard benchmarks by the lm-evaluation-harness."""

from __future__ import annotations

from pathlib import Path

from postgrad.cli.measuring_options import BenchOptions
from postgrad.cli.options import made
from postgrad.cli.output import say_json, table


def bench(args) -> int:
    from postgrad.recipes import benchmarks as standard
    asked = made(BenchOptions, args)
    names = standard.suite_of(asked.suite)
    if asked.files:
        called = standard.write_suite(Path(asked.files), names, problems=asked.problems, seed=asked.seed,
                                      tokens=asked.max_new_tokens)
        if args.json:
            return say_json({"folder": asked.files, "tasks": [*called.values()]})
        return print(f"{asked.files} has {', '.join(called.values())}: lm_eval --include_path {asked.files} "
                     f"--tasks {','.join(called.values())}")
    found = standard.bench(asked.model, suite=asked.suite, problems=asked.problems, seed=asked.seed,
                           max_new_tokens=asked.max_new_tokens, include=asked.include, device=asked.device)
    if args.json:
        return say_json(found)
    table([{"task": row["task"], "metric": row["metric"], "value": f"{row['value']:.4f}",
            "95 % interval": "" if row["interval"] is None else "{:.3f} to {:.3f}".format(*row["interval"]),
            "problems": row["problems"]} for row in found["tasks"]],
          title=f"{found['model']} by {found['harness']}")
    return print(f"\n{found['seconds']:.0f} s.")
