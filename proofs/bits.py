"""Same bits: a short run of every row, named setting and pipeline; its weights and metrics against a record.

    python proofs/bits.py record FILE.json [CASE ...]     runs the cases, writes what they left
    python proofs/bits.py compare FILE.json [CASE ...]    runs them again; exit code 1 where anything differs

proofs/recorded/bits-xeon.json holds commit 6e66ba3 on one kind of processor (ipo: since it takes the mean of
the tokens; gdpo: since it whitens over rollouts). Bits differ between processors: on another one check out
that commit, record there, and compare here. --package FOLDER names the checkout whose package runs (default:
this one). Left out: sdft, which refuses the embedded models (a demonstration gains them nothing).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import HOME, environment, machine, read_lines
from kills import timeless

ROLLOUTS = ("model=tiny-chat steps=3 save_every=3 rollouts.prompts=12 rollouts.prompts_per_step=2 "
            "rollouts.group_size=4 rollouts.max_new_tokens=24 evaluation.every=3 evaluation.problems=2 "
            "evaluation.samples=2")
PAIRS = ("model=tiny-chat steps=3 save_every=3 pairs.drawn=24 pairs.held_out=12 pairs.per_step=4 "
         "evaluation.every=3 evaluation.problems=2 evaluation.samples=2")
PROCESS = ("model=tiny-chat steps=3 save_every=3 replies.problems=6 replies.samples=2 replies.per_step=4 "
           "evaluation.every=3")
SFT = ("model=tiny steps=3 save_every=3 examples=24 rows_per_step=4 evaluation.every=3 "
       "evaluation.problems=2 evaluation.samples=2")
WORDS = ("best_of_n rejection online_dpo ppo reinforce rloo grpo turn_grpo dr_grpo dapo gspo cispo nano "
         "dppo maxrl reinforce_pp sapo gmpo lite_ppo opo gdpo kl_cov scalerl deepseek_v32").split()
CASES = {
    **{f"{row}:words": ROLLOUTS for row in WORDS},
    "opd:words": f"{ROLLOUTS} teacher=tiny-chat",
    **{f"grpo:{name}": ROLLOUTS for name in ("questions", "hard", "arithmetic", "countdown", "guess",
                                             "animals", "big-numbers")},
    "grpo:words lora": f"{ROLLOUTS} lora=4",
    "grpo:words epochs": f"{ROLLOUTS} method.epochs=2 method.minibatches=2",
    "ppo:words epochs": f"{ROLLOUTS} method.epochs=2",
    **{f"{row}:questions": PAIRS for row in ("dpo", "ipo", "cdpo", "simpo", "orpo", "cpo", "kto")},
    "dpo:questions lora": f"{PAIRS} lora=4",
    **{f"reward:{name}": f"{PAIRS} head.heads=2" for name in ("questions", "biased")},
    **{f"{row}:{name}": PROCESS for row in ("process", "outcome") for name in ("words", "hard")},
    **{f"sft:{name}": SFT for name in ("words", "arithmetic", "countdown", "guess", "animals", "big-numbers",
                                       "questions")},
    "sft:words lora": f"{SFT} lora=4",
    "pretrain:smoke": "steps=3 save_every=3 documents=600 workers=1",
    "r1-zero:quick": "", "expert-iteration:quick": "", "r1:quick": "",
}


def outcome(folder: Path) -> dict[str, object]:
    """sha256 of the weights, and every row of metrics and evaluations, below a run or pipeline."""
    out: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name in ("model.safetensors", "adapter_model.safetensors") and "checkpoints" in name:
            out[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.name in ("metrics.jsonl", "evals.jsonl"):
            out[name] = [timeless(row, folder) for row in read_lines(path)]
    return out


def run_case(name: str, package: Path) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", name.partition(" ")[0], *CASES[name].split(), "--run", f"{folder}/run", "--json"]
        done = subprocess.run([sys.executable, "-m", "postgrad", *words], cwd=folder, capture_output=True,
                              text=True, env=environment(package))
        files = outcome(Path(folder) / "run")
        if not files:
            print(f"{name}: {done.stderr[-600:]}", file=sys.stderr, flush=True)
        return files


def holds(now: object, recorded: object) -> bool:
    """Whether all that is recorded is there, to the bit; metrics that came since are not compared."""
    if isinstance(now, dict) and isinstance(recorded, dict):
        return all(name in now and holds(now[name], value) for name, value in recorded.items())
    if isinstance(now, list) and isinstance(recorded, list):
        return len(now) == len(recorded) and all(map(holds, now, recorded))
    return now == recorded


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--package", type=Path, default=HOME)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    record: dict = {"cpu": machine()["cpu"], "cases": {}}
    if args.file.exists():
        record = json.loads(args.file.read_text())
    names = args.cases or list(CASES)
    bad = []
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = pool.map(lambda case: run_case(case, args.package), names)
        for name, files in zip(names, runs, strict=True):
            same = bool(files) and holds(files, record["cases"].get(name))
            word = "recorded" if args.what == "record" else "same" if same else "DIFFERENT"
            print(f"{name}: {word}", flush=True)
            if args.what == "record":
                record["cases"][name] = files
                args.file.parent.mkdir(parents=True, exist_ok=True)
                args.file.write_text(json.dumps(record, separators=(",", ":"), sort_keys=True) + "\n")
            if not files or args.what == "compare" and not same:
                bad.append(name)
    print(f"{len(names) - len(bad)} of {len(names)} cases")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
