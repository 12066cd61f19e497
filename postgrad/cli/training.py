"""`postgrad demo`, `train` and `resume`."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

from postgrad.cli.output import say_json, table
from postgrad.cli.pipelines import carry_out
from postgrad.cli.settings import show
from postgrad.cli.watching import Stages, stopping
from postgrad.display import Watch


def demo(args) -> int:
    folder = Path(args.run)
    from postgrad.recipes.pipelines import demo as recipe
    move_aside(folder)
    config = recipe.quick(args.seed) if args.quick else recipe.full(args.seed)
    command = ("postgrad demo" + (" --quick" if args.quick else "")
               + (f" --seed {args.seed}" if args.seed else ""))
    with stopping(folder, args.json, again="postgrad demo"):
        summary = recipe.run(config, folder, watch=Stages(args.json), command=command)
    if args.json:
        say_json(summary)
        return 0
    print()
    title = f"Word problems: {config.problems} held out, {config.samples} samples each (95 % intervals)"
    table([stage_row(s) for s in summary["stages"]], title=title)
    for shown in summary["answers"]:
        print(f"\n{shown['question']}  (answer: {shown['gold']})")
        for stage in shown["stages"]:
            print(f"  {stage['name']:<5}{'right' if stage['correct'] else 'wrong':<7}{stage['text']!r}")
    print(f"\n{summary['seconds_total'] / 60:.1f} minutes. Curves: {folder}/report.html   figures: "
          f"{folder}/summary.json")
    print("\nNext:\n" + "\n".join(f"  {line.replace('runs/demo', str(folder))}" for line in recipe.NEXT))
    return 0


def stage_row(s: dict) -> dict:
    def share(name: str) -> str:
        low, high = s[f"{name}_interval"]
        return f"{s[name]:.1%} ({100 * low:.1f} to {100 * high:.1f})"

    shares = ("pass@1", f"pass@{s['samples']}", "greedy")
    return {"stage": s["name"], **{name: share(name) for name in shares},
            "in form": f"{s.get('format', 0):.1%}", "mean length": f"{s['mean_length']:.1f}",
            "minutes": f"{s['seconds'] / 60:.1f}"}


def move_aside(folder: Path) -> None:
    """An older demo is kept under another name."""
    if folder.exists() and any(folder.iterdir()):
        number = next(n for n in range(1, 10_000) if not folder.with_name(f"{folder.name}-{n}").exists())
        folder.rename(folder.with_name(f"{folder.name}-{number}"))


def train(args) -> int:
    from postgrad import recipes
    from postgrad.recipes.fit import free_folder
    from postgrad.settings import flat
    if args.show:
        return show(args)
    from postgrad.recipes.defaults import fitted
    recipe, config = recipes.resolve(args.recipe, args.changes, args.task)
    config, chosen = fitted(config)
    folder = Path(args.run) if args.run else free_folder(args.recipe)
    if not args.json:
        print(f"{args.recipe} -> {folder}\n" + "  ".join(f"{k}={v}" for k, v in flat(config).items()))
        if chosen:
            print(chosen)
    command = shlex.join(["postgrad", "train", args.recipe, *args.changes,
                          *(["--task", args.task] if args.task else [])])
    go = partial(recipes.start, recipe, config, folder, command=command)
    if recipe in recipes.PIPELINES:
        return carry_out(args, folder, go)
    return follow(args, folder, args.recipe, config.steps, go)


def resume(args) -> int:
    from postgrad import recipes
    from postgrad.run import Run
    if recipes.pipeline_in(Path(args.run)):
        return carry_out(args, Path(args.run), partial(recipes.resume, Path(args.run)))
    run = Run.open(args.run)
    recipe, steps = run.started()
    return follow(args, Path(args.run), run.info.get("method") or recipe, steps,
                  partial(recipes.resume, Path(args.run)))


def follow(args, folder: Path, title: str, steps: int, go) -> int:
    """Runs a training with its display, and says at the end where things are."""
    with stopping(folder, args.json, again=f"postgrad resume {folder}"):
        if args.json:
            run = go(watch=None)
        else:
            with Watch(title, steps) as watch:
                run = go(watch=watch)
    if args.json:
        say_json(run.summary() | {"folder": str(folder)})
    else:
        scores = run.info["recipe"] in ("reward", "process")  # and writes no text
        print(f"done: {folder}\n  postgrad runs {folder}   postgrad {'audit' if scores else 'chat'} {folder}")
    return 0
