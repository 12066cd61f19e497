"""The proofs of RLHF: closed-form optimum, equality with TRL, alignment, over-optimisation,
the audit, bad input.

    python proofs/rlhf.py align SEED FOLDER             one alignment run on two cores, about seven minutes
    python proofs/rlhf.py lab SEED FOLDER [CHANGE ...]  one over-optimisation run, its policies side by side
    python proofs/rlhf.py audit SEED FOLDER             one planted bias and its control
    python proofs/rlhf.py write FOLDER                  measures the rest and writes docs/results/rlhf.json
                                                        and .md
    python proofs/rlhf.py renew FOLDER                  there, alignment and over-optimisation alone, anew: of
                                                        the two what FOLDER has
    python proofs/rlhf.py ship FOLDER                   puts the lab's curves into the package, for the studio
    make proof-rlhf                                    all of it, one after another, two hours on two cores

Every part leaves its figures in FOLDER, and a part whose figures are there is not measured again. The lab's
settings were chosen on seeds 0, 1 and 2.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("tests/support", "proofs", "tools"))]

SEEDS, LAB_SEEDS = [0, 1, 2], [26, 27, 28]
SHIPPED = HERE / "postgrad" / "models" / "embedded" / "overoptimise" / "curves.json"
LEASH = 0.3  # the KL weight that the bar is measured at


def pipeline(recipe: str, seed: int, folder: Path, *changes: str) -> None:
    from postgrad import recipes
    from postgrad.cli.settings import config_from_text
    _, config = config_from_text(recipe, [f"seed={seed}", *changes])
    command = " ".join(["postgrad train", recipe, f"seed={seed}", *changes])
    recipes.start(recipe, config, folder, command=command)


def lab_of(seed: str, changes: tuple[str, ...]):
    """The settings of a lab, and its command."""
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes.defaults import fitted
    words = [f"seed={seed}", "evaluation.samples=48", *changes]
    config, _ = fitted(config_from_text("overoptimise", words)[1])
    return config, " ".join(["postgrad train overoptimise", *words])


def lab_step(name: str, folder: str, seed: str, *changes: str) -> None:
    """One step of a lab in its folder."""
    from postgrad.recipes.pipelines import carry, overoptimise
    config, command = lab_of(seed, changes)
    pipeline = overoptimise.pipeline(config)
    carry.begin(pipeline, Path(folder), "overoptimise", config, command)
    (step,) = [step for step in pipeline.steps if step.name == name]
    step.carry_out(Path(folder), carry.Quiet(), command)


def run_lab(folder: str, seed: str, *changes: str) -> None:
    """The reward models one after another, then the policies side by side, then what is left."""
    from postgrad import recipes
    from postgrad.recipes.pipelines import overoptimise
    config, command = lab_of(seed, changes)
    for stage in overoptimise.proxies(config):
        lab_step(stage.name, folder, seed, *changes)
    running = [subprocess.Popen([sys.executable, __file__, "lab-step", stage.name, folder, seed, *changes])
               for stage in overoptimise.policies(config)]
    if any([process.wait() for process in running]):
        sys.exit(f"a policy of {folder} failed.")
    recipes.start("overoptimise", config, Path(folder), command=command)


def align(folder: Path) -> tuple[list[dict], list[dict], list[dict]]:
    """The bars, the policies seed by seed, the reward models."""
    found = [json.loads((folder / f"align-{seed}" / "summary.json").read_text()) for seed in SEEDS]
    rows, judges = [], []
    for f in found:
        judges.append({"seed": f["seed"],
                       **{k: v for k, v in f["reward_model"].items() if k != "accuracy_interval"},
                       "interval": " to ".join(f"{x:.3f}" for x in f["reward_model"]["accuracy_interval"]),
                       "minutes of the whole recipe": f["minutes"]})
        for p in f["policies"]:
            rows.append({"seed": f["seed"], "policy": p["name"], "true quality": p["true"],
                         "interval": " to ".join(f"{x:.2f}" for x in p["interval"]), "length": p["length"],
                         **{k: p["parts"][k] for k in ("correct", "greets", "closes", "filler", "rude")},
                         "minutes": p["minutes"]})
    accuracy = [j["accuracy"] for j in judges]
    bars = [bar("alignment: the reward model's held-out accuracy", "reported, 3 seeds",
                f"{min(accuracy):.3f} to {max(accuracy):.3f}; ece {min(j['ece'] for j in judges):.3f} to "
                f"{max(j['ece'] for j in judges):.3f}", True, "postgrad train align:questions seed=N")]
    for method in ("dpo", "ppo", "grpo"):
        gaps, outside = [], True
        for f in found:
            start, end = (next(p for p in f["policies"] if p["name"] == name) for name in ("start", method))
            gaps.append(f"{start['true']:+.2f} -> {end['true']:+.2f}")
            outside &= end["interval"][0] > start["interval"][1]
        bars.append(bar(f"alignment: true quality, {method} over the SFT model",
                        "above it, the intervals apart, 3 of 3 seeds", "; ".join(gaps), outside,
                        "postgrad train align:questions seed=N"))
    bars.append(bar("alignment: minutes, all stages and measurements", "reported",
                    ", ".join(f"{f['minutes']:.1f}" for f in found) + ", on an H200 beside five other runs",
                    True, "postgrad train align:questions seed=N"))
    return bars, rows, judges


def lab(folder: Path) -> tuple[list[dict], list[dict], list[dict]]:
    """The bars, every policy's turning point, best-of-n."""
    found = [json.loads((folder / f"lab-{seed}" / "curves.json").read_text()) for seed in LAB_SEEDS]
    rows = [{"seed": f["seed"], "policy": p["name"], "start": p["points"][0]["true"],
             **{k: p["turning"][k] for k in (
                 "step", "kl", "peak", "end", "fall", "proxy_at_peak", "proxy_at_end")},
             "minutes": p["minutes"]} for f in found for p in f["policies"]]
    off, on = ([next(p for p in f["policies"] if p["kl_weight"] == w and not p["ensemble"])
                for f in found] for w in (0.0, LEASH))
    best = [{"seed": f["seed"], **{k: p[k] for k in ("n", "kl", "proxy", "true")}} for f in found
            for p in f["best_of_n"]]
    command = found[0]["command"].replace(f"seed={LAB_SEEDS[0]}", "seed=N")
    rising = sum(p["turning"]["proxy_at_end"] > p["turning"]["proxy_at_peak"] for p in off)
    return [
        bar("over-optimisation, KL off: the true reward peaks, then falls; settings chosen on 0, 1, 2",
            f">= 15 % of what had been gained, the proxy rising, fresh seeds {named(LAB_SEEDS)}",
            f"{turned(off)}; the proxy rises in {rising} of {len(off)}",
            rising == len(off) and all(p["turning"]["fall"] >= 0.15 for p in off), command),
        bar(f"over-optimisation, KL on ({LEASH}): it ends near its peak",
            f"within 5 % of what had been gained, fresh seeds {named(LAB_SEEDS)}",
            turned(on),
            all(p["turning"]["fall"] <= 0.05 for p in on), command),
    ], rows, best


def named(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds))


def turned(policies: list[dict]) -> str:
    """Start, peak and end of each, and the share of the gain that was lost."""
    return "; ".join(f"{p['points'][0]['true']:+.2f} -> {p['turning']['peak']:+.2f} -> "
                     f"{p['turning']['end']:+.2f} ({p['turning']['fall']:.1%})" for p in policies)


def bar(*args):
    import results
    return results.bar(*args)


def optimum() -> tuple[list[dict], list[dict]]:
    import optimum as toy
    rows = toy.table()
    held = [r for r in rows if r["theorem"]]
    worst, apart = max(r["tv_end"] for r in held), max(r["tv_to_ppo"] for r in held if r["method"] == "dpo")
    command = "python proofs/optimum.py"
    return [
        bar("PPO, REINFORCE, RLOO, GRPO and DPO reach ref exp(r/beta)/Z on an enumerable model, "
            "beta 0.3 and 1.0", "total variation <= 0.05", f"{worst:.4f} at most (GRPO with its KL in the "
            "reward; with it in the loss it settles elsewhere, see the table)",
            worst <= 0.05, command), bar("DPO's and PPO's solutions agree", "total variation <= 0.05",
                                         f"{apart:.4f} at most", apart <= 0.05, command),
    ], rows


def kept(folder: Path, name: str, measure):
    """The figures of a part: those that are there, or measured now and left there."""
    path = folder / f"{name}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(measure(), indent=1))
    return json.loads(path.read_text())


def audited(folder: Path, seed: int) -> list[dict]:
    import audit as planted
    return kept(folder, f"audit-{seed}", lambda: planted.table([seed]))


def audit(folder: Path) -> tuple[list[dict], list[dict]]:
    rows = [row for seed in range(10) for row in audited(folder, seed)]
    good = (sum(r["planted verdict"] == "biased up" for r in rows),
            sum(r["control verdict"] == "none found" for r in rows))
    return [bar("the audit finds a planted length bias, and none in the control", "10 of 10 seeds each",
                f"{good[0]} of 10 found, {good[1]} of 10 controls clean", good == (10, 10),
                "python proofs/audit.py")], rows


def tests(name: str, target: str, *files: str) -> dict:
    import foundation
    return foundation.tests(name, target, *files)


def write(folder: Path) -> None:
    import process
    import results
    import rlaif
    bars, best = optimum()
    bars.append(tests("losses equal TRL 1.16's own code, every row that it has",
                      "1e-6 in float64, or explained", "tests/training/trl_objectives_test.py",
                      "tests/training/trl_rollouts_test.py"))
    more, policies, judges = align(folder)
    bars += more
    more, turns, of_n = lab(folder)
    bars += more
    more, probed = audit(folder)
    bars += more
    bars.append(tests("bad input is a sentence with its line, and nothing is dropped uncounted", "green",
                      "tests/recipes/preference_test.py", "tests/data/store_test.py",
                      "tests/data/store_disk_test.py",
                      "tests/cli/label_test.py"))
    tables = {"The closed-form optimum": best, "Alignment, seed by seed": policies,
              "Its reward models": judges, "Over-optimisation: turning points": turns,
              "Best of n against the same proxy": of_n, "The audit": probed,
              **kept(folder, "process", process.table),
              "RLAIF": kept(folder, "rlaif", lambda: rlaif.table([0, 1]))}
    page = results.write("rlhf", "RLHF: what was to be shown, and what was measured", bars,
                         seeds=[*SEEDS, *LAB_SEEDS], tables=tables)
    print(page.read_text())
    sys.exit(not all(b["holds"] for b in bars))


def renew(folder: Path) -> None:
    """The bars and tables of alignment and over-optimisation in docs/results/rlhf.json, of those two that
    FOLDER has; the others stay as they were measured."""
    import results
    path = results.RESULTS / "rlhf.json"
    page = json.loads(path.read_text())
    bars, tables = page["bars"], page["tables"]
    if (folder / f"align-{SEEDS[-1]}").exists():
        more, policies, judges = align(folder)
        bars = results.in_place(bars, "alignment", more)
        tables |= {"Alignment, seed by seed": policies, "Its reward models": judges}
    if (folder / f"lab-{LAB_SEEDS[-1]}").exists():
        more, turns, of_n = lab(folder)
        bars = results.in_place(bars, "over-optimisation", more)
        tables |= {"Over-optimisation: turning points": turns, "Best of n against the same proxy": of_n}
    page = results.write("rlhf", page["title"], bars, seeds=[*SEEDS, *LAB_SEEDS], tables=tables,
                         on=page["machine"])
    print(page.read_text())


def ship(folder: Path) -> None:
    """The curves of every seed, rounded: a few kilobytes for the studio's instrument on reward hacking."""
    def small(x):
        return (float(f"{x:.4g}") if isinstance(x, float) else {k: small(v) for k, v in x.items()}
                if isinstance(x, dict) else [small(v) for v in x] if isinstance(x, list) else x)

    runs = [small(json.loads((folder / f"lab-{seed}" / "curves.json").read_text())) for seed in LAB_SEEDS]
    SHIPPED.write_text(json.dumps({"made by": "python proofs/rlhf.py ship", "runs": runs}))
    print(SHIPPED, SHIPPED.stat().st_size)


def main(what: str, *rest: str) -> None:
    if what == "align":
        seed, folder, *device = rest
        pipeline("align", int(seed), Path(folder) / f"align-{seed}", *[f"device={name}" for name in device])
    elif what == "lab":
        seed, folder, *changes = rest
        run_lab(f"{folder}/lab-{seed}", seed, *changes)
    elif what == "lab-step":
        lab_step(*rest)
    elif what == "audit":
        audited(Path(rest[1]), int(rest[0]))
    elif what == "all":
        for part, seeds in (("align", SEEDS), ("lab", LAB_SEEDS)):
            for seed in seeds:
                subprocess.run([sys.executable, __file__, part, str(seed), *rest], check=True)
        write(Path(rest[0]))
    else:
        {"ship": ship, "write": write, "renew": renew}[what](Path(rest[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
