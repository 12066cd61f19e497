"""Hashes of the inputs of a run: if one has changed, a resumed run would differ, and is refused."""

from __future__ import annotations

import ast
import hashlib
import os
from pathlib import Path
from typing import TypedDict

from postgrad import methods
from postgrad.recipes.base import RunConfig, TrainConfig
from postgrad.resolve import tasks
from postgrad.resolve.models import fingerprint, open_folder
from postgrad.resolve.rewards import parse_reward
from postgrad.runs import Run
from postgrad.system.files import file_hash
from postgrad.system.renamed import translate_row
from postgrad.system.settings import flat_settings
from postgrad.system.user_code import parse_source


class InputHashes(TypedDict):
    """judged_by: of the reward models; taught_by: of the teacher; files: by the setting that names them."""

    judged_by: list[str]
    taught_by: str | None
    rubric: str | None
    files: dict[str, str]


def input_hashes(config: TrainConfig) -> InputHashes:
    """The hashes of a run's inputs, as run.json keeps them."""
    inputs = config.inputs
    reward, teacher = parse_reward(inputs.reward), inputs.teacher
    return {"judged_by": [fingerprint(open_folder(name)) for name in reward.model_names],
            "taught_by": fingerprint(open_folder(teacher)) if isinstance(teacher, str) else None,
            "rubric": reward.rubric_hash(),
            "files": {name: contents_hash(paths) for name, paths in input_files(config).items()}}


def input_files(config: TrainConfig) -> dict[str, list[Path]]:
    """The files that a run reads, by the setting that names them."""
    inputs = config.inputs
    named = {"task": inputs.task, "data": inputs.data, "eval_task": inputs.eval_task,
             "eval_data": inputs.eval_data, "reward": inputs.reward, "method": inputs.method_file}
    files = {name: paths for name, value in named.items() if (paths := tasks.files_in(value))}
    if inputs.agent_files:
        files["agent"] = [Path(file) for file in inputs.agent_files]
    if inputs.rates and Path(inputs.rates).is_file():
        files["difficulty.rates"] = [Path(inputs.rates)]
    return files


def contents_hash(paths: list[Path], whole: bool = False) -> str:
    """The hash of one file; of several files, the hash of their hashes. Of Python without comments and blank
    lines. whole: of its bytes."""
    hashes = [file_hash(path) if whole else code_hash(path) for path in paths]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def code_hash(path: Path) -> str:
    """The hash of a file's bytes; of Python, of its syntax tree."""
    if path.suffix != ".py":
        return file_hash(path)
    try:
        return hashlib.sha256(ast.dump(parse_source(path.read_bytes())).encode()).hexdigest()
    except (SyntaxError, ValueError):
        return file_hash(path)


def check_inputs(run: Run, config: TrainConfig) -> None:
    """Refuses to resume a run whose inputs have changed; before anything in the run is touched."""
    remedy = ("so it cannot go on to the same result: put the old one back, or start a new run, from this "
              f"one with model={os.path.relpath(run.folder)}.")
    for key, form in {"judged_by": list, "files": dict, "row": dict}.items():
        if not isinstance(run.info.get(key, form()), form):
            raise ValueError(f"{run.folder / 'run.json'}: {key} is {run.info[key]!r:.60}: the run is broken; "
                             "restore the file from a copy.")
    expected = run.info.get("begins_with")
    model = config.source_model
    if expected and model and fingerprint(open_folder(model)) != expected:
        raise ValueError(f"the model this run began with has changed ({open_folder(model)}), {remedy}")
    now, reward = input_hashes(config), config.inputs.reward
    spec = parse_reward(reward)
    for name, before, after in zip(spec.model_names, run.info.get("judged_by", ()), now["judged_by"],
                                   strict=True):
        if before != after:
            kind = "grading" if spec.graders else "reward"
            raise ValueError(f"the {kind} model {name} has changed since this run began, {remedy}")
    if now["taught_by"] != run.info.get("taught_by"):
        raise ValueError(f"the teacher {config.inputs.teacher} has changed since this run began, {remedy}")
    if now["rubric"] != run.info.get("rubric"):
        raise ValueError(f"the rubric of {reward} has changed since this run began, {remedy}")
    if isinstance(config, RunConfig) and "row" in run.info:
        row = methods.describe_row(config.row)
        if changed := methods.row_difference(translate_row(run.info["row"]), row):
            raise ValueError(f"the row {config.method.name} has changed since this run began ({changed}), "
                             f"{remedy}")
    files = input_files(config)
    for name, before in run.info.get("files", {}).items():
        # earlier versions hashed the bytes
        whole = contents_hash(files[name], whole=True) if name in files else None
        if before not in (now["files"].get(name), whole):
            value = flat_settings(config).get("agent.command" if name == "agent" else name, "")
            raise ValueError(f"{name} {value!s:.100} has changed since this run began, {remedy}")
