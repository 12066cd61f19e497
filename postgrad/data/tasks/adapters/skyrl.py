"""Environments of skyrl-gym (0.4): env:skyrl:NAME:ROWS.jsonl, such as env:skyrl:gsm8k:rows.jsonl.

NAME is registered there, or `module:NAME` is your own. The rows are SkyRL's: a "prompt" of messages, and the
environment's `extras` (reward_spec, max_turns, ...). Each reply is a step; the score is the sum of the step
rewards, which are also the turn rewards. The global `random` and `numpy.random` are seeded per episode. Left
out: env_config (empty), replies that the environment rewrites (postprocessed_action), rewritten prompts.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

from postgrad.data.rows import DataRow, read_messages, read_rows_file
from postgrad.data.tasks.adapters import ForeignGame, import_needed, seeded_globals
from postgrad.data.tasks.base import Task
from postgrad.data.tasks.listed import no_prompts, split_task
from postgrad.records import Prompt, Verdict


def load(source: str) -> Task:
    name, _, file = source.rpartition(":")
    path = Path(file).expanduser()
    if not name or not path.is_file():
        raise ValueError(f"env:skyrl:{source} names no file of rows: write env:skyrl:NAME:ROWS.jsonl.")
    make = import_needed("skyrl_gym", f"env:skyrl:{name}", "skyrl-gym>=0.4").make
    prompts = [skyrl_prompt(row, i, where) for i, (where, row) in enumerate(read_rows_file(path))]
    play = SkyRLPlay(make, name)
    try:
        turns = int(play.made(prompts[0]).max_turns)
    except Exception as error:  # noqa: BLE001 - whatever an environment raises
        raise ValueError(f"env:skyrl:{source} cannot be made of its first row: {type(error).__name__}: "
                         f"{' '.join(str(error).split())}") from error
    task = Task(name=f"env:skyrl:{name}", about=f"{name} of skyrl-gym on {path.name}",
                prompts=no_prompts, verify=None, play=play, turns=turns,
                meta={"file": str(path)})
    return split_task(task, prompts, skyrl_row_key, name=name)


def skyrl_prompt(row: DataRow, number: int, where: str) -> Prompt:
    extras = {key: value for key, value in row.items() if key != "prompt"}
    return Prompt(id=f"row-{number}", messages=read_messages(row.get("prompt"), where), where=where,
                  answer=(row.get("reward_spec") or {}).get("ground_truth"), meta={"extras": extras})


def skyrl_row_key(prompt: Prompt) -> str:
    """Rows with the same prompt may differ in their extras."""
    return json.dumps([prompt.messages, prompt.meta["extras"]], sort_keys=True, default=str)


class SkyRLPlay:
    """Episodes of an environment, each on an instance of its own."""

    def __init__(self, make: Any, name: str):
        self.make, self.name = make, name

    def made(self, prompt: Prompt) -> Any:
        return self.make(self.name, env_config={}, extras=dict(cast(DataRow, prompt.meta["extras"])))

    def __call__(self, prompt: Prompt, rng: random.Random) -> ForeignGame:
        asked, paid = [dict(message) for message in prompt.messages], []
        with seeded_globals(rng):
            environment = self.made(prompt)
            begun, _ = environment.init([dict(message) for message in asked])
        if [dict(message) for message in begun[: len(asked)]] != asked:
            raise ValueError(f"{self.name} rewrites its prompt, which this adapter does not support.")
        try:
            reply = yield begun[len(asked):]
            while True:
                with seeded_globals(rng):
                    step = environment.step(reply.text)
                paid.append(float(step["reward"]))
                if step["done"] or len(paid) == environment.max_turns:
                    return Verdict(score=sum(paid), per_turn=tuple(paid))
                reply = yield step["observations"]
        finally:
            environment.close()
