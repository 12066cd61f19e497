"""The compatibility layer: names of version 0.1 and what they are called now. It goes with version 0.3.

An old import or setting is answered with a sentence that names the new one. The config of a saved run is
translated when the run is opened.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

PACKAGE = Path(__file__).parents[1]
P = ParamSpec("P")
R = TypeVar("R")

MODULES = {  # below postgrad.; the longest prefix counts
    "files": "system.files", "garbage": "system.gc_tuning", "hub": "system.hub",
    "listening": "system.sockets",
    "options": "system.options", "settings": "system.settings", "signals": "system.signals",
    "pace": "system.throughput", "user_code": "system.user_code", "ranks": "system.processes",
    "ranks.lanes": "training.distributed.virtual_ranks", "models.sharded": "training.distributed.sharding",
    "packing": "maths.packing", "adamw": "training.adamw", "loop": "training.loop",
    "objectives": "training.objectives", "optim": "training.optim", "stats": "training.stats",
    "phases": "training.oom", "batches": "training.batches", "memory": "training.memory",
    "chat": "models.chat", "template": "models.chat.template",
    "tokenizer_files": "models.chat.chat", "tools": "models.chat.tools",
    "spelling": "models.chat.detokenize", "capturing": "models.graph_capture", "embedded": "models.embedded",
    "models.foreign": "models.hf_model", "models.foreign_cache": "models.hf_engine",
    "models.foreign_engine": "models.hf_engine", "models.parts": "models.weights",
    "models.replay": "models.cuda_graphs", "models.computing": "models.model_set",
    "models.modules": "models.decoder",
    "audit": "evaluation.audit", "ledger": "runs.ledger", "run": "runs", "display": "runs.display",
    "report": "runs.report", "doctor": "runs.doctor", "explain": "runs.explain", "sampler": "sampling",
    "sampler.served": "sampling.remote", "sampler.continuous": "sampling.request_batch",
    "sampler.base": "sampling.sampler", "sampler.rows": "sampling.token_sampler",
    "sampler.counted": "evaluation.progress", "sampler.wire": "sampling.remote",
    "sampler.vllm_here": "sampling.vllm_engine",
    "tasks": "data.tasks", "environments": "data.environments", "opening": "resolve", "serve": "serving",
    "serve.served": "serving.decode_worker", "serve.record": "serving.session_recorder",
    "serve.follow": "serving.weight_updates", "agents.desk": "serving.agents.episode_server",
    "agents": "serving.agents", "plan": "recipes.plan", "benchmarks": "recipes.benchmarks",
    "rewards.jailed": "rewards.sandbox", "rewards.process": "rewards.model", "rewards.routed": "rewards.base",
    "rewards.estimate": "rewards.unequal", "evaluation.examine": "evaluation.evaluate",
    "data.bad_rows": "data.rows", "data.database": "data.store", "data.items": "data.store",
    "data.edits": "evaluation.edits", "tasks.animals": "data.tasks.guess",
    "evaluation.text": "evaluation.perplexity", "tasks.tries": "data.tasks.chain",
    "tasks.reflective": "data.tasks.corpus_zero", "tasks.gym_problems": "data.tasks.gym",
    "exercises": "studio.exercises",
}
NAMES: dict[str, str] = {}  # of `import postgrad as pg`: pg.OLD -> pg.NEW
PIPELINES = {  # of the command line and of saved plans -> the file of the source tree
    "overoptimise": "examples/labs/overoptimise.py", "oversight": "examples/labs/oversight.py",
}
SETTINGS: dict[str, str] = {  # dotted name in a config -> dotted name now
    "elsewhere.sampler": "remote.sampler", "elsewhere.weights": "remote.weights",
    "elsewhere.way": "remote.weight_sync", "elsewhere.gap": "remote.max_logp_gap",
    "rollouts.ahead": "rollouts.async_depth", "rollouts.slots": "rollouts.max_concurrent",
    "anchor.kl": "kl.coef", "anchor.target": "kl.target", "anchor.gain": "kl.gain",
    "anchor.measure": "kl.measure", "anchor.ptx": "ptx.coef", "anchor.texts": "ptx.texts",
    "anchor.ensemble": "reward_ensemble", "optim.lanes": "optim.virtual_ranks",
}

ROW_FIELDS = {"kl": "kl_estimator"}  # of a row of the table
FUNCTIONS = {  # of a row of the table, as a run keeps them
    "postgrad.maths.credit.told": "postgrad.maths.credit.distil_per_token",
    "postgrad.maths.preference.labelled": "postgrad.maths.preference.label_loss",
    "postgrad.maths.select.best_of": "postgrad.maths.select.best_of_group",
}
DATA_COUNTS = {"examined": "evaluated"}  # of `data` in run.json
ATTRIBUTES = {"examinations": "evaluations"}  # of postgrad.Run
ARGUMENTS = {  # of functions -> what to write now
    "watch": "display=False prints nothing, and trackers=[...] adds what has the hooks of postgrad.Tracker",
}


def renamed_argument(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Of a function that had the keyword argument in version 0.1: using it is answered with what to write."""
    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if name in kwargs:
                raise ValueError(f"{function.__name__} takes no {name}: {ARGUMENTS[name]}.")
            return function(*args, **kwargs)
        return checked
    return decorate


def renamed_attribute(owner: object, name: str) -> object:
    """`__getattr__` of a class that had other attributes in version 0.1."""
    hint = f": it is called {ATTRIBUTES[name]} now" if name in ATTRIBUTES else ""
    raise AttributeError(f"{type(owner).__name__} has no attribute {name!r}{hint}.")


def renamed_module(name: str) -> str:
    """"postgrad.chat" -> "postgrad.models.chat"; "" for a name that version 0.1 did not have."""
    inside = name.removeprefix("postgrad.")
    for old in sorted(MODULES, key=len, reverse=True):
        if inside == old or inside.startswith(f"{old}."):
            parts = f"{MODULES[old]}{inside[len(old):]}".split(".")
            while not any(PACKAGE.joinpath(*parts).with_suffix(end).exists() for end in (".py", "")):
                parts.pop()  # a module that is part of its package now
            return ".".join(("postgrad", *parts))
    return ""


def renamed_pipeline(name: str) -> str:
    """The file that a pipeline of version 0.1 is now; "" for any other name."""
    return PIPELINES.get(name, "")


def renamed_setting(name: str) -> str:
    """The present name of a setting of version 0.1, with or without its group; "" for any other name."""
    return SETTINGS.get(name) or next((new for old, new in SETTINGS.items() if old.endswith(f".{name}")), "")


def translate_config(config: Mapping[str, object]) -> dict[str, object]:
    """The saved config of a run of version 0.1 under today's names; any other config as it is."""
    out = _copied(config)
    if isinstance(changes := out.get("changes"), str):  # of a pipeline of the user's own: a command line
        out["changes"] = {name: _literal(text) for name, _, text in
                          (word.partition("=") for word in shlex.split(changes))}
    evaluation = out.get("evaluation")
    if isinstance(evaluation, dict) and "split" in evaluation:  # a run without the setting held out a fifth
        evaluation.setdefault("holdout_prompts", 0.2)
    for old, new in SETTINGS.items():
        home, value = _find(out, old.split("."))
        if home is not None:
            del home[old.split(".")[-1]]
            *groups, last = new.split(".")
            place = out
            for group in groups:
                inner = place.setdefault(group, {})
                assert isinstance(inner, dict)
                place = inner
            place[last] = value
    for group in {old.split(".")[0] for old in SETTINGS if "." in old}:
        if out.get(group) == {}:
            del out[group]
    return out


def _literal(text: str) -> object:
    """A number, true or false, none; else the text."""
    try:
        return None if text.lower() == "none" else json.loads(text)
    except ValueError:
        return text


def _copied(config: Mapping[str, object]) -> dict[str, object]:
    return {key: _copied(value) if isinstance(value, dict) else value for key, value in config.items()}


def _find(config: dict[str, object], path: list[str]) -> tuple[dict[str, object] | None, object]:
    """The dict that holds the last key of the path, and its value; (None, None) where it is not there."""
    for key in path[:-1]:
        inner = config.get(key)
        if not isinstance(inner, dict):
            return None, None
        config = inner
    return (config, config[path[-1]]) if path[-1] in config else (None, None)


def translate_info(info: Mapping[str, object]) -> dict[str, object]:
    """The run.json of version 0.1 under today's names; any other as it is."""
    data = info.get("data")
    return {**info, "data": {DATA_COUNTS.get(key, key): count for key, count in data.items()}} if isinstance(
        data, Mapping) else dict(info)


def renamed_field(name: str) -> str:
    """What to say of a field that rows had in version 0.1; "" for any other name."""
    if name.endswith("_wants"):
        return " The columns of a function are its keyword-only parameters without a default."
    return f" It is called {ROW_FIELDS[name]} now." if name in ROW_FIELDS else ""


def translate_row(row: Mapping[str, object]) -> dict[str, object]:
    """The row that a run of version 0.1 kept, under today's names; any other row as it is."""
    functions = row.get("functions")
    if not isinstance(functions, Mapping):
        return dict(row)
    return {**row, "functions": {ROW_FIELDS.get(place, place): FUNCTIONS.get(name, name)
                                 for place, name in functions.items()}}
