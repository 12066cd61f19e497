"""What each command does. Each imports what it needs, so that the light ones start at once."""

from __future__ import annotations

import shlex
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path

from postgrad.cli import display
from postgrad.cli.audit import audit
from postgrad.cli.chat import chat
from postgrad.cli.display import Display, progress, say_json
from postgrad.cli.export import export
from postgrad.cli.fetch import fetch
from postgrad.cli.memory import memory


def table(rows: list[dict], title: str = "") -> None:
    """All columns of the first row."""
    display.table(rows, list(rows[0]), title=title)


def demo(args) -> int:
    folder = Path(args.run)
    from postgrad.recipes import demo as recipe
    move_aside(folder)
    config = recipe.quick(args.seed) if args.quick else recipe.full(args.seed)
    command = "postgrad demo" + (" --quick" if args.quick else "") + (f" --seed {args.seed}" if args.seed else "")
    with stopping(folder, args.json, again="postgrad demo"):
        summary = recipe.run(config, folder, watch=Stages(args.json), command=command)
    if args.json:
        say_json(summary)
        return 0
    print()
    title = f"Word problems: {config.problems} held out, {config.samples} samples each"
    table([stage_row(s) for s in summary["stages"]], title=title)
    for shown in summary["answers"]:
        print(f"\n{shown['question']}  (answer: {shown['gold']})")
        for stage in shown["stages"]:
            print(f"  {stage['name']:<5}{'right' if stage['correct'] else 'wrong':<7}{stage['text']!r}")
    print(f"\n{summary['seconds_total'] / 60:.1f} minutes. Curves: {folder}/report.html   figures: {folder}/summary.json")
    print("\nNext:\n" + "\n".join(f"  {line.replace('runs/demo', str(folder))}" for line in recipe.NEXT))
    return 0


def stage_row(s: dict) -> dict:
    low, high = s["pass@1_interval"]
    return {"stage": s["name"], "pass@1": f"{s['pass@1']:.1%}", "95 % interval": f"{low:.1%} to {high:.1%}",
            f"pass@{s['samples']}": f"{s['pass@' + str(s['samples'])]:.1%}",
            "greedy": f"{s['greedy']:.1%}", "in form": f"{s.get('format', 0):.1%}", "mean length": f"{s['mean_length']:.1f}",
            "minutes": f"{s['seconds'] / 60:.1f}"}


def move_aside(folder: Path) -> None:
    """An older demo is kept under another name."""
    if folder.exists() and any(folder.iterdir()):
        number = next(n for n in range(1, 10_000) if not folder.with_name(f"{folder.name}-{n}").exists())
        folder.rename(folder.with_name(f"{folder.name}-{number}"))


class Stages:
    """The stages of the demo or a pipeline, each with a display of its own."""

    def __init__(self, quiet: bool):
        self.quiet = quiet

    def stage(self, name: str, steps: int):
        if self.quiet:
            return nullcontext()
        return Watch({"sft": "SFT: imitate an average writer", "rl": "GRPO: keep what earns reward"}.get(name, name), steps)

    def track(self, label: str):
        return iter if self.quiet else partial(progress, label=label)


class Watch:
    """A run's eyes: what the loop reports, on the display."""

    def __init__(self, title: str, steps: int):
        self.display = Display(title=title, steps=steps)

    def __enter__(self):
        self.display.__enter__()
        return self

    def __exit__(self, *error):
        return self.display.__exit__(*error)

    def stepped(self, step: int, row: dict, scored) -> None:
        sample = None
        if scored:
            s = scored[len(scored) // 2]
            sample = {"prompt": s.rollout.prompt.question, "text": s.rollout.text, "score": s.verdict.score,
                      "reason": s.verdict.reason}
        self.display.update(step, row, sample)

    def examined(self, step: int, row: dict) -> None:
        self.display.eval(row)


@contextmanager
def stopping(folder: Path, quiet: bool, again: str):
    """A signal ends the command with its code, after saying how to go on."""
    from postgrad.loop import Stopped
    try:
        yield
    except Stopped as end:
        if not quiet:
            print(f"\n{end}; saved. Go on with: {again}", file=sys.stderr)
        sys.exit(end.exit_code)


def train(args) -> int:
    from postgrad import recipes
    from postgrad.recipes.config import flat, plain
    recipe, config = recipes.resolve(args.recipe, args.changes, args.task)
    if args.show:
        return say_json(plain(config)) if args.json else table([{"setting": k, "value": v} for k, v in flat(config).items()])
    folder = Path(args.run) if args.run else free_folder(args.recipe)
    if not args.json:
        print(f"{args.recipe} -> {folder}\n" + "  ".join(f"{k}={v}" for k, v in flat(config).items()))
    command = shlex.join(["postgrad", "train", args.recipe, *args.changes, *(["--task", args.task] if args.task else [])])
    go = partial(recipes.start, recipe, config, folder, command=command)
    if recipe in recipes.PIPELINES:
        from postgrad.cli.pipelines import carry_out
        return carry_out(args, folder, go)
    return follow(args, folder, args.recipe, config.steps, go)


def resume(args) -> int:
    from postgrad import recipes
    from postgrad.run import Run
    if recipes.pipeline_in(Path(args.run)):
        from postgrad.cli.pipelines import carry_out
        return carry_out(args, Path(args.run), partial(recipes.resume, Path(args.run)))
    run = Run.open(args.run)
    return follow(args, Path(args.run), run.info["recipe"], run.info["steps"], partial(recipes.resume, Path(args.run)))


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


def free_folder(spec: str) -> Path:
    stem = Path(spec).name.replace(":", "-")
    return next(path for n in range(1, 100_000) if not (path := Path("runs") / f"{stem}-{n}").exists())


def evaluate(args) -> int:
    from postgrad.evaluate import evaluate as measure
    from postgrad.recipes.opening import open_writer
    from postgrad.sampler import LocalSampler, Sampling
    from postgrad.tasks import load_task
    if args.problems < 1 or args.samples < 1:
        raise ValueError(f"--problems {args.problems} and --samples {args.samples} must be at least 1.")
    task = load_task(args.task)
    settings = Sampling(max_new_tokens=args.max_new_tokens, temperature=args.temperature)
    model, chat = open_writer(args.model, args.device)
    prompts = task.prompts(args.split, args.problems, args.seed)
    row = measure(task, LocalSampler(model, chat), prompts, samples=args.samples, settings=settings, seed=args.seed,
                  track=iter if args.json else partial(progress, label=f"{args.model} on {task.name}"))
    row = {"model": args.model, "task": task.name, "split": args.split, "seed": args.seed, **row}
    if args.json:
        say_json(row)
    else:
        table([{"measure": k, "value": shown(v)} for k, v in row.items()])
    return 0


def shown(x) -> str:
    if isinstance(x, list):
        return " to ".join(shown(v) for v in x)
    return f"{x:.3f}" if isinstance(x, float) else str(x)


def rlaif(args) -> int:
    from postgrad.cli.rlaif import label
    return label(args)


def runs(args) -> int:
    from postgrad.run import Run, list_runs
    folder = Path(args.run)
    if (folder / "run.json").is_file():
        summary = Run.open(folder).summary()
        rows = [{"": k, "value": shown(v)} for k, v in summary.items() if not isinstance(v, (dict, list))]
        return say_json(summary) if args.json else table(rows)
    found = list_runs(folder)
    found += [row for nested in sorted(folder.glob("*/")) if not (nested / "run.json").exists() for row in list_runs(nested)]
    if args.json:
        return say_json(found)
    if not found:
        print(f"no runs in {folder} yet: try `postgrad demo` or `postgrad train grpo:words`.")
        return 0
    return table([{k: shown(v) for k, v in row.items() if not isinstance(v, (dict, list))} for row in found])


def methods(args) -> int:
    from postgrad.methods import METHODS, get
    rows = [get(args.method)] if args.method else list(METHODS.values())
    if args.json:
        return say_json([describe(row) for row in rows])
    if args.method:
        return table([{"field": k, "value": shown(v)} for k, v in describe(rows[0]).items()])
    return table([{"method": r.name, "batches": r.source, "what is particular": r.about, "paper": r.paper} for r in rows])


def verifiers(args) -> int:
    from postgrad.rewards.named import NAMED
    rows = [{"verifier": name + row.takes, "judges": {"answer": "the answer, by the row's gold", "form": "the form",
             "style": "the whole reply"}[row.kind], "pays for": row.pays, "sandbox": "yes" if row.jailed else ""}
            for name, row in NAMED.items()]
    return say_json(rows) if args.json else table(rows)


def describe(row) -> dict:
    """A row's fields; functions by name, with the constants bound to them."""
    def name(x):
        if isinstance(x, partial):
            return f"{x.func.__name__}({', '.join(f'{k}={v}' for k, v in x.keywords.items())})"
        return x.__name__ if callable(x) else x

    return {f.name: name(getattr(row, f.name)) for f in fields(row)}


def explain(args) -> int:
    from postgrad.explain import METRICS
    from postgrad.explain import explain as look_up
    if args.name is None:
        known = {name: m.meaning for name, m in METRICS.items()}
        return say_json(known) if args.json else table([{"metric": k, "meaning": v} for k, v in known.items()])
    try:
        found = asdict(look_up(args.name))
    except ValueError:
        from postgrad.methods import METHODS
        if args.name not in METHODS:
            raise
        args.method = args.name
        return methods(args)
    if args.json:
        return say_json(found)
    return table([{"": k, args.name: v} for k, v in found.items() if k != "name"])


def pick(args) -> int:
    from postgrad.recipes.pick import PickConfig, run
    config = PickConfig(**{f.name: getattr(args, f.name) for f in fields(PickConfig)})
    found = run(config, Path(args.out), track=iter if args.json else partial(progress, label=f"sampling {args.model}"))
    if args.json:
        return say_json(found)
    return table([{"": k, "value": shown(v)} for k, v in found.items() if v is not None])


def label(args) -> int:
    from postgrad.cli.label import label as act
    return act(args)


def studio(args) -> int:
    from postgrad.cli.studio import studio as open_studio
    return open_studio(args)


COMMANDS = {"demo": demo, "train": train, "resume": resume, "eval": evaluate, "chat": chat, "runs": runs, "methods": methods,
            "explain": explain, "audit": audit, "export": export, "fetch": fetch, "label": label, "memory": memory,
            "pick": pick, "rlaif": rlaif, "studio": studio, "verifiers": verifiers}
