"""Batches and rollouts as tensors and plain values for a checkpoint, and back; rows picked from a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import torch
from torch import Tensor

from postgrad.maths.packing import has_cpu_copy, to_cpu, to_device, with_cpu_copy
from postgrad.records import Batch, Prompt, Rollout, Scored, Turn, Verdict
from postgrad.training.stats import resolve_deferred


def pick_rows(batch: Batch, rows: list[int]) -> Batch:
    """These rows of a batch, in this order."""
    chosen = torch.tensor(rows)
    index = to_device(chosen, batch.tokens.device)
    cut: dict[str, Any] = {}
    for f in fields(batch):
        if isinstance(x := getattr(batch, f.name), Tensor):
            cut[f.name] = with_cpu_copy(x[index], to_cpu(x)[chosen]) if has_cpu_copy(x) else x[index]
    scored = tuple(batch.scored[i] for i in rows) if batch.scored else ()
    return replace(batch, ids=tuple(batch.ids[i] for i in rows), scored=scored, **cut)


def dump_rollout(rollout: Rollout) -> dict[str, Any]:
    """One row of an episode as plain values; its other rows are rows of the batch too."""
    values = {f.name: getattr(rollout, f.name) for f in fields(Rollout)
             if f.name not in ("prompt", "earlier", "verdict", "routes")}
    return values | {"tokens": tuple(rollout.tokens), "logp": tuple(rollout.logp),
                     "turns": [asdict(turn) for turn in rollout.turns]}


def dump_batch(batch: Batch) -> dict[str, Any]:
    """The gold answer is left out: the verdict has been given."""
    columns = {f.name: getattr(batch, f.name) for f in fields(batch)
               if isinstance(getattr(batch, f.name), Tensor)}
    scored = [{"prompt": {"id": s.rollout.prompt.id,
                          "messages": [dict(m) for m in s.rollout.prompt.messages]},
               "rollout": dump_rollout(s.rollout),
               "verdict": asdict(s.verdict)} for s in batch.scored]
    return {"columns": columns, "ids": list(batch.ids), "rows_per_unit": batch.rows_per_unit,
            "facts": resolve_deferred(batch.facts), "scored": scored}


def load_batch(saved: dict[str, Any]) -> Batch:
    """The inverse of `dump_batch`."""
    scored = []
    for s in saved["scored"]:
        prompt = Prompt(id=s["prompt"]["id"], messages=tuple(s["prompt"]["messages"]))
        scored.append(Scored(rollout=load_rollout(s["rollout"], prompt), verdict=load_verdict(s["verdict"])))
    return Batch(ids=tuple(saved["ids"]), rows_per_unit=saved["rows_per_unit"], facts=saved["facts"],
                 scored=tuple(scored), **saved["columns"])


def load_rollout(saved: dict[str, Any], prompt: Prompt, **more: Any) -> Rollout:
    rollout: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
    rollout["turns"] = tuple(Turn(**turn) for turn in rollout.get("turns", ()))
    return Rollout(prompt=prompt, **rollout, **more)


def load_verdict(saved: dict[str, Any]) -> Verdict:
    verdict: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
    return Verdict(**verdict)


def dump_scored(scored: Scored) -> dict[str, Any]:
    """A scored rollout with all rows of its episode; its prompt by id."""
    last = scored.rollout
    return {"prompt": last.prompt.id, "rows": [dump_rollout(row) for row in last.rows],
            "verdict": asdict(scored.verdict), "played": last.verdict and asdict(last.verdict)}


def load_scored(saved: dict[str, Any], prompts: Mapping[str, Prompt]) -> Scored:
    """The inverse of `dump_scored`. prompts: those of the run, by id."""
    prompt = prompts[saved["prompt"]]
    *earlier, last = saved["rows"]
    rollout = load_rollout(last, prompt, earlier=tuple(load_rollout(row, prompt) for row in earlier),
                           verdict=saved["played"] and load_verdict(saved["played"]))
    return Scored(rollout=rollout, verdict=load_verdict(saved["verdict"]))
