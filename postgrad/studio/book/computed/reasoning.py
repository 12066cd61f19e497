"""The numbers of chapter 4: groups and their advantages, pass@k of the recorded stages, judges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from postgrad.studio.json_types import JsonDict

TRIES = (1, 2, 4, 8)
PICKED = "n = 16"


def values(repository: Path) -> JsonDict:
    kept = json.loads((repository / "postgrad/studio/book/bias.json").read_text())
    results = json.loads((repository / "docs" / "results" / "rlhf.json").read_text())["tables"]
    bias = {"bias_grpo": kept["grpo"]["bias"], "bias_dr": kept["dr_grpo"]["bias"]}
    return {**group_values(), **pass_values(), **picked_values(results), **bias, **recording_values(),
            **refusal_values()}


def group_values() -> JsonDict:
    """Advantages of small groups by the functions of the rows."""
    import torch

    from postgrad.maths.credit import group_centre, group_zscore, leave_one_out

    def adv(f: Callable[..., torch.Tensor], *rewards: float) -> list[float]:
        row = torch.tensor(rewards, dtype=torch.float64)[:, None]
        return f(row, torch.ones_like(row, dtype=torch.bool), len(rewards))[:, 0].tolist()

    four, rare = adv(group_zscore, 1, 0, 0, 1), adv(group_zscore, 1, *[0] * 7)
    loo, centred = adv(leave_one_out, 1, 0, 0), adv(group_centre, 1, 0, 0)
    spread = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    return {
        "mean_four": spread.mean().item(), "std_four": spread.std(unbiased=False).item(),
        "std_sample": (0.5 / spread.std()).item(), "adv_right": four[0], "adv_wrong": four[1],
        "group_of": len(four), "rare_of": len(rare), "adv_rare": rare[0], "adv_common": rare[1],
        "adv_flat": adv(group_zscore, 1, 1, 1, 1)[0], "adv_alone": adv(group_zscore, 1)[0],
        "loo_right": loo[0], "loo_wrong": loo[1], "centre_right": centred[0], "centre_wrong": centred[1],
        "loo_factor": centred[0] / loo[0],
    }


def pass_values() -> JsonDict:
    """pass@k of the recorded stages on word problems."""
    from postgrad.data.tasks.word_problems import WRITER
    from postgrad.maths.passk import pass_at_k
    from postgrad.studio.recordings import recording

    stages = {s["name"]: s["measured"]["words"] for s in recording("pipeline")["stages"]}

    def share(name: str, k: int) -> float:
        found = stages[name]
        return float(sum(pass_at_k(found["samples"], c, k) for c in found["right"]) / found["problems"])

    titles = {"base": "Pretrained", "sft": "SFT", "rl": "RL"}
    rows = [[title, *(f"{100 * share(name, k):.0f} %" for k in TRIES)] for name, title in titles.items()]
    one, eight = ({name: share(name, k) for name in titles} for k in (1, stages["rl"]["samples"]))
    return {
        "full_share": WRITER["full"] / sum(WRITER.values()),
        "sft_length": stages["sft"]["mean_length"], "rl_length": stages["rl"]["mean_length"],
        "sft_one": one["sft"], "rl_one": one["rl"], "sft_eight": eight["sft"], "rl_eight": eight["rl"],
        "gap_one": one["rl"] - one["sft"], "gap_eight": eight["rl"] - eight["sft"],
        "tries": stages["rl"]["samples"], "pk_n": 8, "pk_c": 2, "pk_k": 4, "pk_exact": pass_at_k(8, 2, 4),
        "pk_naive": 1 - (1 - 2 / 8) ** 4,
        "passes": {
            "caption": f"Word problems solved in k tries, {stages['rl']['problems']} problems",
            "columns": ["stage", *(f"k = {k}" for k in TRIES)], "rows": rows,
        },
    }


def picked_values(results: JsonDict) -> JsonDict:
    """Which of n answers a judge, a vote or chance picks, as docs/results has it."""
    title = next(name for name in results if name.startswith("Picking one of n"))
    by = {row["picked by"]: row[PICKED].partition(" ")[0].replace("%", "\u00a0%") for row in results[title]}
    return {"pick_n": 16, "pick_outcome": by["outcome model"], "pick_process": by["process model, min"],
            "pick_chance": by["chance (pass@1)"], "vote_n": 16, "vote_right": by["majority vote"]}


def recording_values() -> JsonDict:
    """What the figures of the chapter were recorded from: a short R1-Zero, tries, samples to choose from."""
    from postgrad.studio.recordings import recording

    zero, paid, r1 = (run["evaluations"] for run in recording("languages")["runs"])
    first, last = zero[0], zero[-1]
    return {"wrong_paid": paid[-1]["words-es/wrong_language"], "wrong_r1": r1[-1]["words-es/wrong_language"],
            "zero_steps": last["step"], "worded_before": first["words-es/worded"],
            "worded_after": last["words-es/worded"], "wrong_after": last["words-es/wrong_language"],
            "most_tries": recording("tries")["samples"], "spent_most": recording("choosing")["samples"]}


def refusal_values() -> JsonDict:
    """What the stages of a short R1 refuse, the mean over seeds, and how its demonstrations err."""
    from postgrad.data.tasks.requests import NAMES, WRITER
    from postgrad.studio.instruments.pipeline import stage_refusals
    from postgrad.studio.recordings import recording

    harmful, benign = NAMES
    shares = {f"{row['name']}_{kind}": row[kind]["mean"] for row in stage_refusals()["stages"]
              if row["name"] in ("sft", "last") for kind in ("harmful", "benign")}
    runs = recording("safety")["runs"]
    answered = [run["stages"]["sft"][benign]["right"] for run in runs]
    return {"safe_seeds": len(runs), "writer_answers": WRITER[harmful]["answers"],
            "writer_refuses": WRITER[benign]["refuses"], "safe_answered": sum(answered) / len(answered),
            **{f"safe_{key}": x for key, x in shares.items()}}
