"""The model card of a run's model, a README.md as the hub reads it.

It says how the model was trained, on what, how good it is with intervals, what was not measured, and the
hashes of its files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from postgrad import methods
from postgrad.methods.pages import used_functions
from postgrad.models import on_hub
from postgrad.models.load import EMBEDDED
from postgrad.resolve.models import run_named
from postgrad.runs import Run
from postgrad.runs.frame import INTERVAL
from postgrad.runs.rows import JsonDict
from postgrad.system.files import file_hash

SIZES = ("problems", "samples")  # of an evaluation, no figures of the model


def model_card(name: str, folder: Path, *, adapter: bool = False, licence: str | None = None) -> str | None:
    """The card of the model of RUN or RUN@STEP, whose files are in a folder; None where the name is no run's,
    or that of its start."""
    named = run_named(name)
    if not named or named[1] == "0":
        return None
    from huggingface_hub import CardData
    run = Run.open(named[0])
    latest = run.latest()
    facts = card_facts(run, int(named[1] or (latest.name if latest else 0)))
    licence, kind = licence or base_licence(run), task_type(run)
    front = facts | {"library_name": "peft" if adapter else "transformers", "pipeline_tag": kind}
    front |= {"license": licence} if licence else {}
    front |= {"model-index": [index]} if (index := model_index(run, facts)) else {}
    text = "\n\n".join(part for part in card_parts(run, facts, folder, licence) if part)
    return f"---\n{CardData(**front).to_yaml()}\n---\n\n{text}\n"


def card_facts(run: Run, step: int) -> JsonDict:
    """What the front matter says. Folders are cut to their last part: a card is read on other machines."""
    info, config = run.info, run.config
    row, method, model = info.get("row") or {}, info.get("method") or info["recipe"], info.get("model")
    evals = [row for row in run.rows("evals")[0] if row["step"] <= step]
    figures = {k: v for k, v in evals[-1].items() if k not in ("seconds", "answers")} if evals else None
    return {"base_model": model if on_hub(str(model)) else last_part(model), "tags": ["postgrad", method],
            "method": method, "constants": row.get("constants", {}),
            "task": last_part(info.get("task") or config.get("data")),
            "reward": last_part(config.get("reward")), "steps": step, "seed": info.get("seed"),
            "evaluation": figures}


def task_type(run: Run) -> str:
    """The hub's word for what the model does."""
    return "text-classification" if run.info.get("recipe") in ("reward", "process") else "text-generation"


def last_part(value: object) -> object:
    """The last part of a path; of an object that a run was given, the name in its record."""
    name = value.get("name") if isinstance(value, dict) else value
    return Path(name).name if isinstance(name, str) else name


def base_licence(run: Run) -> str | None:
    """The licence of the model that a run began with, through runs that it goes on from; None: not known
    here. Of a model on the hub its card in the cache says it."""
    from huggingface_hub import metadata_load, try_to_load_from_cache
    name = str(run.info.get("model"))
    for _ in range(100):
        if not (above := run_named(name)):
            break
        name = str(Run.open(above[0]).info.get("model"))
    if name in EMBEDDED:
        return "apache-2.0"  # that of this package
    card = try_to_load_from_cache(name.partition("@")[0], "README.md") if on_hub(name) else Path(
        name) / "README.md"
    if not isinstance(card, str | Path) or not Path(card).is_file():
        return None
    licence = (metadata_load(card) or {}).get("license")
    return str(licence) if licence else None


def measured_figures(facts: Mapping[str, object]) -> Iterator[tuple[str, float, object]]:
    """(name, value, interval or None) of the evaluation."""
    row = facts["evaluation"]
    for name, value in (row if isinstance(row, dict) else {}).items():
        if isinstance(value, int | float) and name not in ("step", *SIZES):
            yield name, value, row.get(f"{name}{INTERVAL}") if isinstance(row, dict) else None


def model_index(run: Run, facts: JsonDict) -> JsonDict | None:
    """The evaluation as the hub's model-index has it; an interval is an argument of its metric."""
    metrics = [{"type": name, "value": value, "name": f"{name}, held out",
                **({"args": {"interval": [*interval], "level": 0.95}} if isinstance(interval, list) else {})}
               for name, value, interval in measured_figures(facts)]
    if not metrics:
        return None
    task, split = str(facts["task"]), evaluation_settings(run).get("split")
    dataset = {"name": task, "type": task, **({"split": split} if split else {}),
               "args": {name: facts["evaluation"][name] for name in SIZES if name in facts["evaluation"]}}
    return {"name": run.folder.name, "results": [{"task": {"type": task_type(run)}, "dataset": dataset,
                                                  "metrics": metrics}]}


def evaluation_settings(run: Run) -> JsonDict:
    settings = run.config.get("evaluation")
    return settings if isinstance(settings, dict) else {}


def card_parts(run: Run, facts: JsonDict, folder: Path, licence: str | None) -> Iterator[str]:
    """The paragraphs and tables of the card."""
    row, version = run.info.get("row") or {}, run.info.get("version", "")
    paper = f" ({row['paper']})" if row.get("paper") else ""
    yield f"# {run.folder.name}"
    yield (f"{facts['base_model']} after {facts['steps']} steps of {facts['method']}{paper} on "
           f"{facts['task']}, trained with postgrad {version}.".replace(" .", "."))
    yield "## Method"
    yield "\n".join(f"- {line}" for line in formula_lines(str(facts["method"]), row))
    if facts["constants"]:
        yield "Constants: " + ", ".join(f"{k} {v}" for k, v in facts["constants"].items()) + "."
    yield "## Training"
    yield f"```sh\n{run.info.get('command')}\n```"
    yield table({"seed": facts["seed"], "task or data": facts["task"], "reward": facts["reward"],
                 **data_facts(run), "torch": run.info.get("torch"), "Python": run.info.get("python"),
                 "sha256 of the weights it began with": run.info.get("begins_with")})
    yield "## Evaluation"
    yield card_evaluation(run, facts)
    yield "## Limits"
    yield limits(run, facts, licence)
    yield "## Files"
    yield "\n".join(["| file | bytes | sha256 |", "|---|---|---|",
                     *(f"| {path.name} | {path.stat().st_size:,} | {file_hash(path)} |"
                       for path in sorted(folder.iterdir()) if path.name != "README.md")])


def formula_lines(method: str, row: JsonDict) -> Iterator[str]:
    """What the row's functions compute, with their formulas; of a row that is not in the table, their
    names."""
    if method not in methods.METHODS:
        return (yield from (f"{place}: `{name}`" for place, name in (row.get("functions") or {}).items()))
    for place, facts in used_functions(methods.get_method(method)).items():
        if isinstance(facts, dict) and facts:
            formulas = "".join(f"; `{formula}`" for formula in facts["formulas"])
            yield f"{place}: {facts['says'].rstrip('.')}{formulas}"


def data_facts(run: Run) -> JsonDict:
    """How many prompts or rows there were, and the hashes of their files."""
    data, files = run.info.get("data"), run.info.get("files")
    return {**{f"data: {name.replace('_', ' ')}": value
               for name, value in (data if isinstance(data, dict) else {}).items()
               if isinstance(value, int | float | str)},
            **{f"file {Path(name).name}": value if isinstance(value, str) else json.dumps(value)
               for name, value in (files if isinstance(files, dict) else {}).items()}}


def table(facts: Mapping[str, object]) -> str:
    return "\n".join(["| | |", "|---|---|",
                      *(f"| {name} | {value} |" for name, value in facts.items() if value is not None)])


def card_evaluation(run: Run, facts: JsonDict) -> str:
    if not (rows := list(measured_figures(facts))):
        return "It was not evaluated during its training."
    evaluation = facts["evaluation"]
    lines = [f"| held-out problems, step {evaluation['step']} | | 95 % interval |", "|---|---|---|"]
    for name, value, interval in rows:
        bounds = f"{interval[0]:.4g} to {interval[1]:.4g}" if isinstance(interval, list) else ""
        lines.append(f"| {name} | {value:.4g} | {bounds} |")
    return "\n".join(lines)


def limits(run: Run, facts: JsonDict, licence: str | None) -> str:
    evaluation, split = facts["evaluation"] or {}, evaluation_settings(run).get("split")
    sizes = " and ".join(f"{evaluation[name]} {name}" for name in SIZES if name in evaluation)
    return "\n".join(f"- {line}" for line in (
        "One run with one seed; other seeds end elsewhere, and the intervals do not cover that."
        + (f" They cover the problems and samples of one evaluation ({sizes})." if sizes else ""),
        f"Nothing was measured but {facts['task']}{f' ({split})' if split else ''}: nothing is known of "
        "other tasks, languages, or of how safe its replies are.",
        f"Licence: {licence}, that of the model it began with." if licence else
        "The licence of the model it began with is not known to postgrad: look it up before you use this.",
    ))
