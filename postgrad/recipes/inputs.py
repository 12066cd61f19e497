"""What a run was given by name, and whether it is still the same: else going on would not be the same run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from postgrad import methods
from postgrad.recipes.base import RunConfig, TrainConfig
from postgrad.resolve import tasks
from postgrad.resolve.models import fingerprint, open_folder
from postgrad.resolve.rewards import parse_reward
from postgrad.runs import Run
from postgrad.system.files import file_hash
from postgrad.system.renamed import translate_row
from postgrad.system.settings import flat_settings


def input_hashes(config: TrainConfig) -> dict:
    """Hashes of what a run was given by name: if one of them changes, going on would not be the same run."""
    given = config.inputs
    reward, teacher = parse_reward(given.reward), given.teacher
    named = {"task": given.task, "data": given.data, "reward": given.reward, "method": given.method_file}
    files = {name: found for name, value in named.items() if (found := tasks.files_in(value))}
    if given.agent_files:
        files["agent"] = [Path(file) for file in given.agent_files]
    if given.rates and Path(given.rates).is_file():
        files["difficulty.rates"] = [Path(given.rates)]
    return {"judged_by": [fingerprint(open_folder(name)) for name in reward.model_names],
            "taught_by": fingerprint(open_folder(teacher)) if isinstance(teacher, str) else None,
            "rubric": reward.rubric_hash(),
            "files": {name: contents_hash(found) for name, found in files.items()}}


def contents_hash(paths: list[Path]) -> str:
    """Of one file the hash of its bytes, of several a hash of theirs."""
    hashes = [file_hash(path) for path in paths]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def check_inputs(run: Run, config: TrainConfig) -> None:
    """Before anything in the run is touched: all that it was given is as it was."""
    remedy = "so it cannot go on to the same result: put the old one back, or start a new run."
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
        before, after = translate_row(run.info["row"]), methods.describe_row(config.row)
        if changed := methods.row_difference(before, after):
            raise ValueError(f"the row {config.method.name} has changed since this run began ({changed}), "
                             f"{remedy}")
    within = {"agent": "agent.command"}  # a setting of what was kept under its first name
    for name, before in run.info.get("files", {}).items():
        if now["files"].get(name) != before:
            value = flat_settings(config).get(within.get(name, name), "")
            raise ValueError(f"{name} {value!s:.100} has changed since this run began, {remedy}")
