"""Reasoning: what R1-Zero and R1 make of tiny-zero, its control, pass@1 against pass@64, what each pipeline
cost elsewhere.

    python proofs/reasoning.py zero SEED FOLDER [CHANGE ...]   one R1-Zero, on two cores in minutes
    python proofs/reasoning.py control SEED FOLDER MODEL [CHANGE ...]
                                                               the same from the control (tools/make_zero.py)
    python proofs/reasoning.py r1 SEED FOLDER [CHANGE ...]     one R1
    python proofs/reasoning.py many SEED FOLDER [--device cuda]  pass@1 to pass@64, base and R1-Zero
    python proofs/reasoning.py ledger NAME SEED FOLDER [--device cuda]  gains, losses of align or r1
    python proofs/reasoning.py write FOLDER                    docs/results/reasoning.json and .md

Settings were chosen on seeds 0, 1 and 7; what is shown here has seeds 3, 4 and 5, R1 (and the R1-Zero that
it is held against) 8, 9 and 10, since the length of its last stage was chosen anew. Every part leaves its
figures in FOLDER; what is done there is not made again, and a bar of which FOLDER has nothing stays as the
page has it. Minutes are those of the runs in FOLDER/two-cores, which were made on a CPU (that of
FOLDER/two-cores/machine.txt, where it is another); the others may have been made with device=cuda.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tools")]

from results import NOT_MEASURED, bar, kept, kept_rows, write  # noqa: E402

SEEDS, R1_SEEDS = (3, 4, 5), (8, 9, 10)
PARTS = ("words", "words-es", "countdown")
MOST = 64  # samples of a problem for the curve of pass@k
TWO_CORES = {"zero": "postgrad train r1-zero seed=N", "r1": "postgrad train r1 seed=N"}
COMMAND = {name: f"{words} device=cuda" for name, words in TWO_CORES.items()}


# what is run

def pipeline(recipe: str, folder: Path, seed: str, *changes: str) -> None:
    command = [sys.executable, "-m", "postgrad", "train", recipe, f"seed={seed}", *changes, "--run",
               str(folder)]
    begun = (folder / "pipeline.json").exists()
    subprocess.run([sys.executable, "-m", "postgrad", "resume", str(folder)] if begun else command,
                   check=True, cwd=HERE)


def said_once(out: Path, *words: str) -> None:
    """What a command says with --json, in a file; not asked again where that is there."""
    if not out.exists():
        said = subprocess.run([sys.executable, "-m", "postgrad", *words, "--json"], check=True, cwd=HERE,
                              stdout=subprocess.PIPE, text=True).stdout
        out.write_text(said)


def many(folder: Path, seed: str, *more: str) -> None:
    """pass@k of the base and of R1-Zero, on the same problems of each part."""
    found = {}
    for name, model in (("base", "tiny-zero"), ("rl", str(folder / f"zero-{seed}" / "rl"))):
        for part in PARTS:
            out = folder / f"many-{seed}-{name}-{part}.json"
            said_once(out, "eval", model, "--task", part, "--problems", "100", "--samples", str(MOST),
                 "--seed", seed, *more)
            found[f"{name} {part}"] = json.loads(out.read_text())
    (folder / f"many-{seed}.json").write_text(json.dumps(found, indent=1))


def ledger(folder: Path, name: str, seed: str, *more: str) -> None:
    """What a pipeline gained and lost against the model that it began with."""
    said_once(folder / f"ledger-{name}-{seed}.json", "ledger", str(folder / f"{name}-{seed}"), "--problems",
              "100", *more)


# what is said of it

def summaries(folder: Path, name: str, seeds: Iterable[int] = SEEDS) -> dict[int, dict]:
    paths = {seed: folder / f"{name}-{seed}" / "summary.json" for seed in seeds}
    return {seed: json.loads(path.read_text()) for seed, path in paths.items() if path.exists()}


def told(rows: dict[int, dict], line: Callable[[dict], str]) -> str:
    return "; ".join(f"seed {seed}: {line(row)}" for seed, row in rows.items()) or NOT_MEASURED


def whole(rows: dict, holds: Callable[[dict], bool]) -> bool:
    return len(rows) == len(SEEDS) and all(holds(row) for row in rows.values())


def share(x: float) -> str:
    return f"{100 * x:.1f} %"


def within(x: dict, name: str = "pass@1") -> str:
    low, high = x[f"{name}_interval"]
    return f"{share(x[name])} ({100 * low:.1f} to {100 * high:.1f})"


def base_bar(folder: Path) -> dict:
    path = folder / "rates.json"
    found = json.loads(path.read_text())["tiny-zero"] if path.exists() else {}
    return bar("base rates of tiny-zero", "each part pass@1 2 to 30 %, pass@8 >= 40 %",
               "; ".join(f"{part}: pass@1 {within(x)}, pass@8 {share(x['pass@8'])}"
                         for part, x in found.items()) or NOT_MEASURED,
               bool(found) and all(0.02 <= x["pass@1"] <= 0.3 and x["pass@8"] >= 0.4 for x in found.values()),
               "python proofs/base_rates.py tiny-zero --out FOLDER/rates.json")


def zero_bars(folder: Path) -> list[dict]:
    done = summaries(folder, "zero")
    both = {seed: (row["measured"]["base"], row["measured"]["rl"]) for seed, row in done.items()}
    control = summaries(folder, "control")
    command = COMMAND["zero"]
    return [
        bar("R1-Zero: word problems", "pass@1 +40 points, replies longer, 3 seeds",
            told(both, lambda x: f"{within(x[0]['words'])} -> {within(x[1]['words'])}, "
                 f"{x[0]['words']['mean_length']:.0f} -> {x[1]['words']['mean_length']:.0f} tokens"),
            whole(both, lambda x: x[1]["words"]["pass@1"] - x[0]["words"]["pass@1"] >= 0.4
                  and x[1]["words"]["mean_length"] > x[0]["words"]["mean_length"]), command),
        bar("R1-Zero: countdown turns back", "the share that turns back rises with pass@1, 3 seeds",
            told(both, lambda x: searched(x[0]["countdown"], x[1]["countdown"])),
            whole(both, lambda x: all(x[1]["countdown"][key] > x[0]["countdown"][key]
                                      for key in ("pass@1", "turn_back"))), command),
        bar("R1-Zero: the wrong language", ">= 20 % of the worded replies to Spanish problems, 3 seeds",
            told(both, lambda x: f"{share(x[1]['words-es']['wrong_language'])} of the "
                 f"{share(x[1]['words-es']['worded'])} with words"),
            whole(both, lambda x: x[1]["words-es"]["wrong_language"] >= 0.2), command),
        minutes_bar(folder, "zero", "R1-Zero: minutes on two cores, measurements included", 10),
        bar("the control does not find what its text has not", "no turning back, countdown below, 3 seeds",
            told(control, lambda x: f"turning back {share(x['measured']['rl']['countdown']['turn_back'])}, "
                 f"countdown {within(x['measured']['rl']['countdown'])}"),
            whole(control, lambda x: x["measured"]["rl"]["countdown"]["turn_back"] < 0.01)
            and all(control[s]["measured"]["rl"]["countdown"]["pass@1_interval"][1]
                    < both[s][1]["countdown"]["pass@1_interval"][0] for s in control if s in both),
            "python proofs/reasoning.py control SEED FOLDER MODEL")]


def minutes_bar(folder: Path, name: str, words: str, most: int) -> dict:
    found = summaries(folder / "two-cores", name, (*SEEDS, *R1_SEEDS))
    machine = folder / "two-cores" / "machine.txt"
    where = f" on {machine.read_text().strip()}" if found and machine.exists() else ""
    return bar(words, f"<= {most}", told(found, lambda x: f"{x['minutes']:.1f}") + where,
               bool(found) and all(x["minutes"] <= most for x in found.values()), TWO_CORES[name])


def searched(before: dict, after: dict) -> str:
    return (f"pass@1 {within(before)} -> {within(after)}, turning back {share(before['turn_back'])} -> "
            f"{share(after['turn_back'])}")


def mixing(found: dict[str, dict]) -> float:
    """Of the replies with words, those in another language than the problem's."""
    worded = sum(x["worded"] for x in spoken(found))
    return sum(x["worded"] * x["wrong_language"] for x in spoken(found)) / max(worded, 1e-9)


def spoken(found: dict[str, dict]) -> Iterable[dict]:
    return [found[part] for part in ("words", "words-es")]


def mean(found: dict[str, dict], key: str) -> float:
    return sum(x[key] for x in found.values()) / len(found)


def r1_bars(folder: Path) -> list[dict]:
    zero, done = (summaries(folder, name, R1_SEEDS) for name in ("zero", "r1"))
    last = {s: (zero[s]["measured"]["rl"], row["measured"]["last"]["reasoning"]) for s, row in done.items()
            if s in zero}
    quality = {s: (row["measured"]["sft"]["general"], row["measured"]["last"]["general"])
               for s, row in done.items()}
    command = COMMAND["r1"]
    return [
        bar("R1: the wrong language, among replies with words", "half of R1-Zero's; their share no lower",
            told(last, lambda x: f"{share(mixing(x[0]))} -> {share(mixing(x[1]))}, with words "
                 f"{share(sum(p['worded'] for p in spoken(x[0])) / 2)} -> "
                 f"{share(sum(p['worded'] for p in spoken(x[1])) / 2)}"),
            whole(last, lambda x: mixing(x[1]) <= mixing(x[0]) / 2
                  and sum(p["worded"] for p in spoken(x[1])) >= sum(p["worded"] for p in spoken(x[0]))),
            command),
        bar("R1: pass@1 of all parts", "no lower than R1-Zero's",
            told(last, lambda x: f"{share(mean(x[0], 'pass@1'))} -> {share(mean(x[1], 'pass@1'))}: "
                 + ", ".join(f"{part} {share(x[0][part]['pass@1'])} -> {share(x[1][part]['pass@1'])}"
                             for part in PARTS)),
            whole(last, lambda x: mean(x[1], "pass@1") >= mean(x[0], "pass@1")), command),
        bar("R1: replies in form", ">= 98 %", told(last, lambda x: share(mean(x[1], "format"))),
            whole(last, lambda x: mean(x[1], "format") >= 0.98), command),
        bar("R1: helpfulness, the true quality of general replies", "above the SFT model's",
            told(quality, lambda x: " -> ".join(
                f"{y['reward']:+.2f} ({y['reward_interval'][0]:+.2f} to {y['reward_interval'][1]:+.2f})"
                for y in x)), whole(quality, lambda x: x[1]["reward"] > x[0]["reward"]), command),
        minutes_bar(folder, "r1", "R1: minutes on two cores, all stages in one table", 20)]


def curves(folder: Path) -> list[dict]:
    """pass@1 against pass@64 of the base and of R1-Zero, by part."""
    out = []
    for seed in SEEDS:
        path = folder / f"many-{seed}.json"
        if path.exists():
            found = json.loads(path.read_text())
            out += [{"seed": seed, "task": part, "model": name,
                     **{f"pass@{row['k']}": within(row, "pass@k") for row in found[f"{name} {part}"]["curve"]
                        if row["k"] in (1, 8, MOST)}} for part in PARTS for name in ("base", "rl")]
    return out


def stages(folder: Path) -> list[dict]:
    """R1's table, seed by seed."""
    return [{"seed": seed, **{key: value for key, value in row.items() if not key.endswith("_interval")}}
            for seed, summary in summaries(folder, "r1", R1_SEEDS).items()
            for row in next(iter(summary["tables"].values()))]


def ledgers(folder: Path, name: str) -> dict[int, tuple[str, list]]:
    """By seed: a pipeline's last stage, and what that gained and lost."""
    from postgrad.runs import ledger as book
    paths = {seed: folder / f"ledger-{name}-{seed}.json" for seed in (*SEEDS, *R1_SEEDS)}
    found = {seed: list(json.loads(path.read_text())["against_first"].items())[-1]
             for seed, path in paths.items() if path.exists()}
    return {seed: (stage, [book.Line(**line) for line in lines]) for seed, (stage, lines) in found.items()}


def taxed(folder: Path, name: str) -> list[dict]:
    """A line for each measure of a task that a ledger is read by: the last stage against the start."""
    from postgrad.runs import ledger as book
    return [{"pipeline": name, "seed": seed, "stage": stage, **book.shown(line)}
            for seed, (stage, lines) in ledgers(folder, name).items()
            for line in lines if line.measure in ("pass@1", "reward", "nats", book.DIVERSITY)]


def ledger_bar(folder: Path, name: str) -> dict:
    from postgrad.runs import ledger as book
    found = ledgers(folder, name)
    return bar(f"the ledger of {name}, last stage against the start", "the tax with intervals, 3 seeds",
               " ".join(f"Seed {seed}: {' '.join(book.sentences(lines))}"
                        for seed, (_, lines) in found.items()) or NOT_MEASURED,
               len(found) == len(SEEDS), "python proofs/reasoning.py ledger NAME SEED FOLDER")


def results(folder: Path) -> None:
    many_rows = curves(folder)
    bars = [base_bar(folder), *zero_bars(folder), *r1_bars(folder),
            bar("pass@1 against pass@64, base and R1-Zero", "with intervals",
                f"{len(many_rows)} rows below" if many_rows else NOT_MEASURED,
                len(many_rows) == 2 * len(PARTS) * len(SEEDS), "python proofs/reasoning.py many SEED FOLDER"),
            *(ledger_bar(folder, name) for name in ("align", "r1"))]
    more = folder / "by_hand.json"  # bars of other scripts
    bars += json.loads(more.read_text()) if more.exists() else []
    tables = {"R1, stage by stage": stages(folder), "What RL created, what it amplified": many_rows,
              "Gains and losses of align, last stage against the start": taxed(folder, "align"),
              "Gains and losses of r1, last stage against the start": taxed(folder, "r1")}
    page = write("reasoning", "Reasoning: R1-Zero, R1, and measurements of them", kept("reasoning", bars),
                 seeds=[*SEEDS, *R1_SEEDS], tables=kept_rows("reasoning", tables))
    print(page.read_text())


def main(what: str, *rest: str) -> None:
    if what == "write":
        return results(Path(rest[0]))
    if what == "ledger":
        name, seed, place, *more = rest
        return ledger(Path(place), name, seed, *more)
    seed, place, *more = rest
    folder = Path(place).resolve()
    if what == "many":
        return many(folder, seed, *more)
    if what == "control":
        more[0] = f"model={more[0]}"
    pipeline("r1" if what == "r1" else "r1-zero", folder / f"{what}-{seed}", seed, *more)


if __name__ == "__main__":
    main(*sys.argv[1:])
