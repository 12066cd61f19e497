"""docs/results/real-models.json and .md, from what proofs/real.py and other scripts left in a folder,
and from the tests.

    python tools/real_results.py FOLDER
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from results import HERE, bar, machine, write

OTHERS = {  # files of bars in FOLDER, and what writes each
    "perplexity.json": "python proofs/perplexity.py models/smollm2 FILE.gguf --out FOLDER/perplexity.json",
    "opens.json": "python proofs/opens.py --model RUN --vllm PYTHON --out FOLDER/opens.json",
    "sandbox.json": "python proofs/sandbox.py FOLDER/sandbox.json",
    "verifiers.json": "python proofs/verifiers.py --out FOLDER/verifiers.json",
    "generators.json": "python proofs/generators.py --out FOLDER/generators.json",
}
TESTED = {  # what the tests hold, and which
    "decoder parity with transformers, each family, fp32: logits 1e-4, gradients 1e-4 relative; padding and "
    "packing; saved and reopened there": "tests/models/families_test.py tests/models/decoder_test.py "
                                         "tests/models/load_test.py tests/models/packing_test.py",
    "other architectures through transformers: logits, gradients, sampling, resume":
        "tests/models/foreign_test.py tests/models/foreign_recipes_test.py",
    "adapters: peft's layout both ways; 4-bit bodies": "tests/models/lora_test.py tests/models/peft_test.py "
                                                       "tests/models/nf4_test.py",
    "bad input (missing shard, wrong dtype, no chat template, unsupported architecture, a task file that "
    "raises, a verifier that rejects its gold ...): one sentence before any training":
    "tests/models/bad_models_test.py tests/cli/main_test.py",
}


def percent(row: dict, name: str = "pass@1") -> str:
    low, high = row[f"{name}_interval"]
    return f"{row[name]:.1%} ({low:.1%} to {high:.1%})"


def stage(seed: int, name: str, row: dict, minutes: float | None = None) -> dict:
    return {"seed": seed, "stage": name, "pass@1 (95 % interval)": percent(row),
            "pass@8": f"{row['pass@8']:.1%}", "greedy": f"{row['greedy']:.1%}",
            "lenient": f"{row.get('reward/lenient', row['reward']):.1%}", "mean length": row["mean_length"],
            "problems": row["problems"], "minutes of training": minutes or ""}


def minutes(part: dict) -> float:
    return round(sum(row["time/step"] or 0 for row in part["curve"]) / 60, 1)


def curves(found: list[dict], part: str, measure: str = "pass@1") -> list[dict]:
    """A row for each examination, a column for each seed."""
    return [{"step": rows[0]["step"], **{f"seed {f['seed']}": rows[i][measure] for i, f in enumerate(found)}}
            for rows in zip(*(f[part]["evals"] for f in found), strict=True)]


def read(folder: Path, name: str) -> list[dict]:
    return sorted((json.loads(path.read_text()) for path in folder.glob(f"{name}-*.json")),
                  key=lambda found: found["seed"])


def settings(config: dict, ahead: str = "") -> str:
    """A run's saved config on one line, without what is empty."""
    return " ".join(settings(v, f"{ahead}{k}.") if isinstance(v, dict) else f"{ahead}{k}={v}"
                    for k, v in config.items() if v is not None)


def points(before: dict, after: dict) -> float:
    return 100 * (after["pass@1"] - before["pass@1"])


def trained(folder: Path) -> tuple[list[dict], dict[str, list[dict]]]:
    """The bars and tables of (a), (b) and (c)."""
    a, b, c = (read(folder, name) for name in ("sums", "gsm8k", "dpo"))
    gains = [points(f["before"], f["after"]) for f in a]
    longest = max(minutes(f[part]) for found, parts in ((a, ("grpo",)), (b, ("sft", "grpo")), (c, ("dpo",)))
                  for f in found for part in parts)
    shown = lambda f, names: " -> ".join(f"{f[name]['pass@1']:.1%}" for name in names)  # noqa: E731
    held = [f["dpo"]["evals"] for f in c]
    command = "python proofs/real.py {} SEED FOLDER {}"
    bars = [
        bar("(a) GRPO on sums of two or three one-digit numbers: pass@1 on held-out problems", "+30 points",
            "; ".join(f"{shown(f, ('before', 'after'))}" for f in a)
            + f": +{min(gains):.0f} at least, {len(a)} seeds", min(gains) >= 30,
            command.format("sums", "FILE.jsonl")),
        bar("(b) GSM8K test, before / SFT / GRPO: pass@1, strict",
            "well above 2.4 % (published for this size: 0.4 -> 2.4 %)",
            "; ".join(shown(f, ("before", "after sft", "after grpo")) for f in b)
            + f"; greedy {min(f['after grpo']['greedy'] for f in b):.1%} at least, {len(b)} seeds",
            min(f["after grpo"]["pass@1"] for f in b) > 2 * 0.024, command.format("gsm8k", "DATA")),
        bar("(c) DPO on right and wrong answers: pairs of held-out problems told apart",
            "reported, before and after",
            "; ".join(f"{rows[0]['accuracy']:.1%} -> {percent(rows[-1], 'accuracy')}" for rows in held)
            + f", {len(c)} seed; pass@1 on problems outside the pairs "
            + "; ".join(shown(f, ("before", "after")) for f in c), bool(c), command.format("dpo", "DATA")),
        bar("(a) to (c): minutes of the longest run", "<= 10", str(longest), longest <= 10,
            command.format("PART", "...")),
    ]
    tables = {
        "(a) Sums: chain_sum of reasoning-gym, two or three terms of one digit": [
            row for f in a for row in (stage(f["seed"], "before", f["before"]),
                                       stage(f["seed"], "GRPO", f["after"], minutes(f["grpo"])))],
        "(a) pass@1 on validation problems while it trains": curves(a, "grpo"),
        "(b) GSM8K, the 1,319 published test problems": [
            row for f in b for row in (stage(f["seed"], "before", f["before"]),
                                       stage(f["seed"], "SFT", f["after sft"], minutes(f["sft"])),
                                       stage(f["seed"], "GRPO", f["after grpo"], minutes(f["grpo"])))],
        "(b) pass@1 on validation problems while GRPO trains": curves(b, "grpo"),
        "(c) DPO from the SFT model, test problems outside the pairs": [
            row for f in c for row in (stage(f["seed"], "SFT", f["before"]),
                                       stage(f["seed"], "DPO", f["after"], minutes(f["dpo"])))],
        "(c) pairs of held-out problems told apart while it trains": curves(c, "dpo", "accuracy"),
        "Commands and settings (of the first seed)": [
            {"part": name, "command": f"`{found[0][part]['command']}`",
             "settings": settings(found[0][part]["config"])}
            for name, found, part in (("(a)", a, "grpo"), ("(b) SFT", b, "sft"), ("(b) GRPO", b, "grpo"),
                                      ("(c)", c, "dpo"))],
    }
    return bars, tables


def tested(name: str, files: str) -> dict:
    """One pytest run as a bar."""
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-n", "2", *files.split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    return bar(name, "green", done.stdout.strip().splitlines()[-1].strip("= "), done.returncode == 0,
               f"pytest {files}")


def main(folder: Path) -> None:
    if missing := [f"{file} ({command})" for file, command in OTHERS.items()
                   if not (folder / file).is_file()]:
        sys.exit(f"{folder} lacks " + "; ".join(missing))
    bars, tables = trained(folder)
    others = [row for file in OTHERS for row in json.loads((folder / file).read_text())]
    runs = [found for name in ("sums", "gsm8k", "dpo") for found in read(folder, name)]
    seeds, gpus = sorted({found["seed"] for found in runs}), {found["machine"] for found in runs}
    print(write("real-models", "Real models and real tasks",
                [*map(tested, TESTED, TESTED.values()), *bars, *others], seeds=seeds, tables=tables,
                on=machine() | {"(a) to (c)": ", ".join(sorted(gpus))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
