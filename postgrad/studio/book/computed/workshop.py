"""The numbers of chapter 5: what the recorded runs came to, nano beside grpo, and a real model's results."""

from __future__ import annotations

import json
from pathlib import Path

from postgrad.studio.json_types import JsonDict

RIGHT = (1.0, 0.0, 0.0, 1.0)
LENGTHS = (10, 30)  # tokens of two replies, one pass each
KEPT = 0.9          # of the probability, by a sampler that cuts the rest off


def values(repository: Path) -> JsonDict:
    kept = json.loads((repository / "postgrad/studio/book/bias.json").read_text())
    real = json.loads((repository / "docs" / "results" / "real-models.json").read_text())["tables"]
    bias = {"bias_grpo": kept["grpo"]["bias"], "bias_nano": kept["nano"]["bias"]}
    return {**run_values(), **workshop_group_values(), **normaliser_values(), **truncation_values(),
            **row_table_values(), **bias, **smollm_values(real)}


def run_values() -> JsonDict:
    """The recorded runs: right before and after, with the interval, what was paid, how long replies were."""
    from postgrad.studio.book.experiments import EXPERIMENTS, FIRST, SMALL, VARIANTS
    from postgrad.studio.book.workshop import line_facts
    from postgrad.studio.recordings import recording

    found = recording("workshop")["runs"]
    out: JsonDict = {"steps": int(SMALL["steps"]), "asked": int(SMALL["evaluation.problems"]),
                 "rate": float(SMALL["optim.lr"]), "look": int(SMALL["evaluation.every"])}
    for name, run in found.items():
        key = name.replace("-", "_")
        first, last = run["evals"][0], run["evals"][-1]
        out |= {f"{key}_end": last[1], f"{key}_low": last[2], f"{key}_high": last[3],
                f"{key}_length": last[4], f"{key}_paid": sum(run["rewards"][-5:]) / 5,
                f"{key}_first": run["evals"][1][1]}
        out.setdefault("begin", first[1])
        out.setdefault("begin_length", first[4])
    times = float(VARIANTS["rate"].settings["optim.lr"]) / out["rate"]
    out |= {"rate_times": times, "kl_times": round(times**2)}
    table = []
    for experiment in EXPERIMENTS.values():
        for variant in experiment.variants:
            line = line_facts({**found[variant.name]})
            table.append([variant.name, variant.differs or "as it is", line["before"],
                          f"{line['after']} ({line['within']})", line["paid"], line["length"]])
    return out | {"recorded": {
        "caption": f"Recorded: {FIRST.command}, and what each of the others types besides. One seed each, "
                   f"{out['asked']} held-out problems with one reply; 95 % intervals",
        "columns": ["run", "besides", "start", "end", "reward, last steps", "tokens of a reply"],
        "rows": table}}


def workshop_group_values() -> JsonDict:
    """Advantages of a small group by both rows, and how often a group is flat."""
    import torch

    from postgrad.maths.credit import group_centre, group_zscore
    from postgrad.studio.recordings import recording

    row = torch.tensor(RIGHT, dtype=torch.float64)[:, None]
    mask = torch.ones_like(row, dtype=torch.bool)
    centred, scored = (f(row, mask, len(RIGHT))[:, 0].tolist() for f in (group_centre, group_zscore))
    one = torch.tensor([1.0] + [0.0] * 7, dtype=torch.float64)[:, None]
    rare = [f(one, torch.ones_like(one, dtype=torch.bool), 8)[0, 0].item()
            for f in (group_centre, group_zscore)]
    p = recording("workshop")["runs"]["nano"]["evals"][0][1]
    return {"group_of": len(RIGHT), "centre_right": centred[0], "centre_wrong": centred[1],
            "score_right": scored[0], "score_wrong": scored[1], "rare_of": len(one), "rare_centre": rare[0],
            "rare_score": rare[1], "in_all": 64, **{f"flat_{g}": p**g + (1 - p) ** g for g in (2, 8, 32)}}


def normaliser_values() -> JsonDict:
    """What a token weighs: by all tokens of a step, and by those of its own pass."""
    import torch

    from postgrad.maths.weights import sequence_mean, token_mean

    mask = torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]
    step, row = token_mean(mask, 0), sequence_mean(mask, 0)
    return {"short": LENGTHS[0], "long": LENGTHS[1], "token_step": step[0, 0].item(),
            "token_short": 1 / LENGTHS[0] / 2, "token_long": 1 / LENGTHS[1] / 2,
            "sequence_short": row[0, 0].item(), "sequence_long": row[1, 0].item()}


def truncation_values() -> JsonDict:
    """What a sampler that cuts a tail off does to the log-probability of what it draws."""
    import math

    return {"mass": KEPT, "mass_gap": -math.log(KEPT)}


def row_table_values() -> JsonDict:
    """The rows nano and grpo side by side, as the table of methods has them."""
    from postgrad.methods import METHODS, describe_row

    both: list[JsonDict] = [describe_row(METHODS[name]) for name in ("nano", "grpo")]
    words = {"credit": "from rewards to advantages", "surrogate": "what is minimised at a token",
             "weigh": "what a token counts"}
    table = [[said, *(row["functions"][key].rpartition(".")[2] for row in both)]
             for key, said in words.items()]
    for key, said in {"ratio": "a ratio to the policy that sampled", "critic": "a critic",
                      "kl_in_loss": "KL to the start, in the loss"}.items():
        shown = [getattr(METHODS[name], key) for name in ("nano", "grpo")]
        table.append([said, *(("yes" if x else "no") if isinstance(x, bool) else f"{x:g}" for x in shown)])
    return {"beside": {"caption": "Two rows of the table", "columns": ["", "nano", "grpo"], "rows": table},
            "grpo_kl": both[1]["constants"]["kl_in_loss"]}


def smollm_values(tables: JsonDict) -> JsonDict:
    """SmolLM2 on GSM8K, seed by seed, as docs/results has it."""
    title = next(name for name in tables if name.startswith("(b) GSM8K"))
    shown = [[f"{row['seed']}", row["stage"], row["pass@1 (95 % interval)"].replace("%", "\u00a0%"),
              row["pass@8"].replace("%", "\u00a0%")] for row in tables[title]]
    minutes = [row["minutes of training"] for row in tables[title] if row["stage"] != "before"]
    seeds, problems = len({row["seed"] for row in tables[title]}), tables[title][0]["problems"]
    return {"smol_seeds": seeds, "smol_minutes": sum(minutes) / seeds,
            "smollm": {"caption": f"SmolLM2-135M-Instruct on GSM8K’s {problems} test problems, one H200",
                       "columns": ["seed", "stage", "pass@1", "pass@8"], "rows": shown}}
