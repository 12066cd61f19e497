"""Distillation on word problems: how many rollouts opd needs for what GRPO learned, and where sdft teaches.

    python proofs/distil.py [folder=runs/proof-distil] [device=cpu] [seeds=0,1,2] [choose=10]
                            [rates=1e-4,2e-4,4e-4] [out=runs/proof-rows/distil.json]

The teacher is a GRPO run from tiny-chat with its defaults, the student tiny-chat by opd from that teacher.
GRPO draws eight samples of each of 16 prompts for an update; opd, which compares nothing and hears of every
choice, one of each of 32. GRPO is examined every 256 rollouts, opd every 128, on the same held-out problems;
a level is reached at the first examination whose pass@1 is not below the interval of GRPO's last one. Of
several rates the one with the highest curve is taken, on seeds that are not reported. Runs stay in the
folder, and what is done there is not made again. Writes its file after every seed.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tools"), str(HERE / "tests/support")]

from results import bar  # noqa: E402

import postgrad as pg  # noqa: E402

COMMAND = "python proofs/distil.py"
PROMPTS, GROUP = {"grpo": 16, "opd": 32}, {"grpo": 8, "opd": 1}  # of a collection
COLLECTIONS = {"grpo": 40, "opd": 16}
EVERY = {"grpo": 2, "opd": 4}  # collections between two examinations
EXAM = {"problems": 128, "samples": 4}


def trained(folder: Path, name: str, row: str, device: str, **settings) -> pg.Run:
    """The run of that name: the one that is there, where it is done."""
    place = folder / name
    if (place / "run.json").exists() and pg.Run.open(place).state()["state"] == "done":
        return pg.Run.open(place)
    shutil.rmtree(place, ignore_errors=True)
    return pg.fit("tiny-chat", row, task="words", run=place, device=device, watch=None, compile=False,
                  evaluation={**EXAM, "every": EVERY[row]},
                  rollouts={"prompts_per_step": PROMPTS[row], "group_size": GROUP[row],
                            "collections": COLLECTIONS[row]}, **settings)


def reached(run: pg.Run, level: float) -> int | None:
    """Rollouts until the first examination that is not below the level; None where none is."""
    found = next((row["step"] for row in run.examinations() if row["pass@1"] >= level), None)
    row = run.info["method"]
    return None if found is None else found * PROMPTS[row] * GROUP[row]


def opd(folder: Path, seed: int, rate: str, device: str) -> tuple[pg.Run, pg.Run]:
    """The teacher and its student."""
    teacher = trained(folder, f"grpo-{seed}", "grpo", device, seed=seed)
    return teacher, trained(folder, f"opd-{seed}-{rate}", "opd", device, seed=seed, lr=rate,
                            teacher=str(teacher.folder))


def chosen(folder: Path, seeds: list[int], rates: list[str], device: str) -> tuple[str, list[dict]]:
    """The rate whose examinations are highest in the mean, over the seeds that are not reported; of one rate
    nothing has to be tried."""
    tried = [{"rate": rate, "seed": seed, "pass@1": [round(e["pass@1"], 3) for e in
                                                     opd(folder, seed, rate, device)[1].examinations()]}
             for rate in rates for seed in seeds if len(rates) > 1]
    height = {rate: sum(sum(row["pass@1"]) for row in tried if row["rate"] == rate) for rate in rates}
    return max(rates, key=height.__getitem__), tried


def row_of(folder: Path, seed: int, rate: str, device: str) -> dict:
    teacher, student = opd(folder, seed, rate, device)
    last, end = teacher.examinations()[-1], student.examinations()[-1]
    low, high = last["pass@1_interval"]
    by_grpo, by_opd = reached(teacher, low), reached(student, low)
    return {"seed": seed, "rate": float(rate), "start": student.examinations()[0]["pass@1"],
            "grpo": last["pass@1"], "low": low, "high": high, "grpo rollouts": by_grpo,
            "opd": end["pass@1"], "opd rollouts": by_opd,
            "share": by_opd / by_grpo if by_opd is not None and by_grpo else None,
            "teacher_kl": [round(m["teacher_kl"], 3) for m in student.metrics()],
            "opd by examination": [round(e["pass@1"], 3) for e in student.examinations()],
            "grpo by examination": [round(e["pass@1"], 3) for e in teacher.examinations()]}


def opd_bar(rows: list[dict]) -> dict:
    told = "; ".join(f"seed {r['seed']}: {r['opd rollouts'] or 'not reached, where GRPO took'} "
                     f"{'of ' * bool(r['opd rollouts'])}{r['grpo rollouts']} rollouts, pass@1 "
                     f"{r['opd']:.1%} where GRPO has {r['grpo']:.1%} ({r['low']:.1%} to {r['high']:.1%})"
                     for r in rows)
    return bar("opd reaches the teacher's pass@1 within its interval",
               "with at most a third of the rollouts that GRPO needed, on every seed", told,
               bool(rows) and all(r["share"] is not None and r["share"] <= 1 / 3 for r in rows), COMMAND)


def refused(device: str) -> str:
    """What sdft says to tiny-chat on word problems."""
    try:
        pg.fit("tiny-chat", "sdft", task="words", run=HERE / "runs" / "proof-distil-refused", device=device,
               evaluation={**EXAM, "every": 0}, watch=None)
    except ValueError as fault:
        return str(fault)
    return ""


def shown(folder: Path) -> tuple[str, list[dict]]:
    """What sdft makes of a model that can copy from a demonstration, and what it said of its help."""
    from copyist import copyist, one_letter
    place = folder / "sdft"
    shutil.rmtree(place, ignore_errors=True)
    run = pg.fit(copyist(), "sdft", task=one_letter(), run=place, steps=12, lr=5e-3, watch=None,
                 rollouts={"prompts_per_step": 16, "group_size": 8, "max_new_tokens": 3},
                 evaluation={"every": 4, "problems": 20, "samples": 8})
    (said,) = [event["text"] for event in run.rows("events")[0] if event["kind"] == "data"]
    return said, [{"step": e["step"], "pass@1": e["pass@1"], "interval": e["pass@1_interval"]}
                  for e in run.examinations()]


def sdft_bars(folder: Path, device: str) -> list[dict]:
    no, (yes, curve) = refused(device), shown(folder)
    return [bar("sdft where a demonstration does not help", "refused, with both figures", no, "pass@1" in no,
                COMMAND),
            bar("sdft where a demonstration helps", "held-out pass@1 rises above its first interval",
                f"{yes}; trained: {curve[0]['pass@1']:.1%} to {curve[-1]['pass@1']:.1%}",
                curve[-1]["pass@1"] > curve[0]["interval"][1], COMMAND)]


def main(folder: Path, out: Path, device: str, seeds: list[int], choose: list[int], rates: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    bars = sdft_bars(folder, device)
    rate, tried = chosen(folder, choose, rates, device)
    rows: list[dict] = []
    for seed in seeds:
        rows.append(row_of(folder, seed, rate, device))
        made = {"bars": [opd_bar(rows), *bars], "rows": rows, "rates": tried, "rate": rate}
        out.write_text(json.dumps(made, indent=1) + "\n")
        print(json.dumps(rows[-1]), flush=True)
    print(json.dumps(made["bars"], indent=1))
    sys.exit(not all(b["holds"] for b in made["bars"]))


if __name__ == "__main__":
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    rows_file = given.get("out", HERE / "runs" / "proof-rows" / "distil.json")
    place = given.get("folder", HERE / "runs" / "proof-distil")
    main(Path(place), Path(rows_file), given.get("device", "cpu"),
         [int(seed) for seed in given.get("seeds", "0,1,2").split(",")],
         [int(seed) for seed in given.get("choose", "10").split(",")],
         given.get("rates", "1e-4,2e-4,4e-4").split(","))
