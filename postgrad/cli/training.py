"""`postgrad demo`, `train` and `resume`."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

from postgrad.cli.options import DemoOptions
from postgrad.cli.output import say_json
from postgrad.cli.pipelines import carry_out
from postgrad.cli.settings import config_from_text, show
from postgrad.cli.watching import stopping
from postgrad.runs.display import Watch


def demo(args) -> int:
    """The demo, or what is left of one that was stopped; one that came to its end steps aside."""
    from postgrad import recipes
    from postgrad.recipes.pipelines import demo as recipe
    from postgrad.recipes.pipelines.carry import unfinished
    folder = Path(args.run)
    config = recipe.quick(args.seed) if args.quick else recipe.full(args.seed)
    command = ("postgrad demo" + (" --quick" if args.quick else "")
               + (f" --seed {args.seed}" if args.seed else ""))
    if unfinished(config, folder):
        said = f"going on with the demo in {folder}, which was stopped"
    else:
        said = move_aside(folder)
    if said and not args.json:
        print(said)
    place = "" if folder == Path(DemoOptions().run) else f" --run {folder}"
    return carry_out(args, folder, partial(recipes.start, "demo", config, folder, command=command),
                     command + place)


def move_aside(folder: Path) -> str:
    """What is in the folder is kept under another name; says so, or nothing where nothing was there."""
    if not folder.exists() or not any(folder.iterdir()):
        return ""
    names = (folder.with_name(f"{folder.name}-{n}") for n in range(1, 10_000))
    aside = next(path for path in names if not path.exists())
    folder.rename(aside)
    return f"what was in {folder} is kept in {aside}"


def train(args) -> int:
    from postgrad import recipes
    from postgrad.recipes.fit import free_folder
    from postgrad.system import processes
    from postgrad.system.settings import flat_settings
    args.changes = [*args.changes, *([f"agent.command={args.agent}"] if args.agent else [])]
    if args.show:
        return show(args)
    from postgrad.recipes.defaults import fitted
    from postgrad.recipes.running import check_place
    processes.join()
    folder = (Path(args.run) if args.run
              else processes.agreed(lambda: free_folder(args.recipe), "named the run"))
    recipe, config = config_from_text(args.recipe, args.changes, args.task)
    if recipe not in recipes.STAGED:
        check_place(folder)
    config, chosen = fitted(config)
    settings = "  ".join(f"{k}={v}" for k, v in flat_settings(config).items())
    intro = "\n".join(filter(None, (f"{args.recipe} -> {folder}", settings, chosen)))
    command = shlex.join(["postgrad", "train", args.recipe, *args.changes,
                          *(["--task", args.task] if args.task else [])])
    go = partial(recipes.start, recipe, config, folder, command=command)
    if recipe in recipes.STAGED:
        return carry_out(args, folder, go, intro=intro)
    return follow(args, folder, args.recipe, config.steps, go, intro)


def resume(args) -> int:
    from postgrad import recipes
    from postgrad.recipes.running import finished
    from postgrad.runs import Run
    from postgrad.system import processes
    folder, changed = Path(args.run), changes_in(args.changes)
    steps, go = changed.get("steps"), partial(recipes.resume, folder, **changed)
    if recipes.pipeline_in(folder):
        return carry_out(args, folder, go)
    processes.join()
    run = Run.open(folder)
    recipe, made = run.started()
    if said := finished(run, steps):
        if not processes.leads():
            return 0
        return say_json(run.summary() | {"folder": str(folder)}) if args.json else print(said)
    return follow(args, folder, run.info.get("method") or recipe, steps or made, go)


def changes_in(changes: list[str]) -> dict:
    """["steps=80"] -> {"steps": 80}: what can change when a run is resumed."""
    from postgrad.system.parse import parse_value
    kinds = {"steps": int, "sampler": str}
    found: dict = {}
    for change in changes:
        name, sign, text = change.partition("=")
        if name not in kinds or not sign:
            raise ValueError(f"{change!r}: a run is resumed with the settings it began with, and steps=N and "
                             "sampler=http://HOST:PORT alone can change; for others start a new run, which "
                             "model=RUN begins where this one ended.")
        found[name] = parse_value(text, kinds[name], name)
    return found


def follow(args, folder: Path, title: str, steps: int, go, intro: str = "") -> int:
    """Runs a training with its display, and says at the end where things are. intro: what is said once all
    has been checked."""
    from postgrad.system import processes
    leads = processes.leads()
    with stopping(folder, again=f"postgrad resume {folder}"):
        if args.json or not leads:
            run = go(watch=None)
        else:
            with Watch(title, steps, intro=intro) as watch:
                run = go(watch=watch)
    processes.leave()
    if not leads:
        return 0
    if args.json:
        say_json(run.summary() | {"folder": str(folder)})
    else:
        scores = run.info["recipe"] in ("reward", "process")  # and writes no text
        print(f"done: {folder}\n  postgrad runs {folder}   postgrad {'audit' if scores else 'chat'} {folder}")
    return 0
