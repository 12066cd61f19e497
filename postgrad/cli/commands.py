"""What each command does. Each imports what it needs, so that the light ones start at once."""

from __future__ import annotations

from dataclasses import asdict
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from postgrad.cli.audit import audit
from postgrad.cli.chat import chat
from postgrad.cli.diff import diff
from postgrad.cli.doctor import doctor
from postgrad.cli.export import export
from postgrad.cli.fetch import fetch
from postgrad.cli.ledger import ledger
from postgrad.cli.measuring import compare, evaluate
from postgrad.cli.memory import memory
from postgrad.cli.methods import methods
from postgrad.cli.options import made
from postgrad.cli.output import say_json, shown, table
from postgrad.cli.plan import plan
from postgrad.cli.runs import runs
from postgrad.cli.settings import find, told
from postgrad.cli.settings import known as every_setting
from postgrad.cli.training import demo, resume, train
from postgrad.runs.display import progress


def rlaif(args) -> int:
    from postgrad.cli.rlaif import label
    return label(args)


def verifiers(args) -> int:
    from postgrad.rewards.named import NAMED
    rows = [{"verifier": name + row.takes,
             "judges": {"answer": "the answer, by the row's gold", "form": "the form",
                        "style": "the whole reply"}[row.kind], "pays for": row.pays,
             "sandbox": "yes" if row.jailed else ""} for name, row in NAMED.items()]
    return say_json(rows) if args.json else table(rows)


def explain(args) -> int:
    """A metric, a method or a setting. Metrics come first; a setting of the same name is shown beside."""
    from postgrad.runs.explain import METRICS
    from postgrad.runs.explain import explain as look_up
    if args.name is None:
        known = {name: m.meaning for name, m in METRICS.items()}
        return (say_json(known) if args.json
                else table([{"metric": k, "meaning": v} for k, v in known.items()]))
    settings = find(args.name)
    try:
        found = asdict(look_up(args.name))
    except ValueError:
        if settings:
            return say_json({"name": args.name, "settings": settings}) if args.json else told(settings)
        return explain_method(args, [*METRICS])
    if args.json:
        return say_json(found | ({"settings": settings} if settings else {}))
    table([{"": k, args.name: v} for k, v in found.items() if k not in ("name", "worry")])
    return told(settings)


def explain_method(args, metrics: list[str]) -> int:
    """A row of the table or of a file; else what is near the name, among metrics, rows and settings."""
    from postgrad.methods import METHODS
    from postgrad.system.plugins import is_file_spec
    if args.name in METHODS or is_file_spec(args.name):
        args.method = args.name
        return methods(args)
    whole = [row["setting"] for row in every_setting()]
    names = dict.fromkeys([*metrics, *METHODS, *(name.rpartition(".")[2] for name in whole), *whole])
    near = get_close_matches(args.name.lower().replace("-", "_"), names, 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"metrics are: {', '.join(metrics)}"
    raise ValueError(f"no metric, method or setting is called {args.name!r}; {hint}")


def pick(args) -> int:
    from postgrad.recipes.pick import run
    from postgrad.system.options import PickConfig
    config = made(PickConfig, args)
    found = run(config, Path(args.out), rates=Path(args.rates) if args.rates else None,
                track=iter if args.json else partial(progress, label=f"sampling {args.model}"))
    if args.json:
        return say_json(found)
    return table([{"": k, "value": shown(v)} for k, v in found.items() if v is not None])


def bench(args) -> int:
    from postgrad.cli.bench import bench as act
    return act(args)


def label(args) -> int:
    from postgrad.cli.label import label as act
    return act(args)


def exercise(args) -> int:
    from postgrad.cli.exercise import exercise as act
    return act(args)


def studio(args) -> int:
    from postgrad.cli.studio import studio as open_studio
    return open_studio(args)


def serve(args) -> int:
    from postgrad.cli.serve import serve as start
    return start(args)


COMMANDS = {"demo": demo, "train": train, "resume": resume, "eval": evaluate,
            "compare": compare, "ledger": ledger, "bench": bench, "chat": chat, "runs": runs,
            "methods": methods, "diff": diff, "doctor": doctor, "explain": explain, "audit": audit,
            "exercise": exercise,
            "export": export, "fetch": fetch, "label": label, "memory": memory, "pick": pick,
            "plan": plan, "rlaif": rlaif, "serve": serve, "studio": studio, "verifiers": verifiers}
