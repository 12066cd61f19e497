"""RLHF: equality with TRL and the closed-form optimum, alignment, over-optimisation, audit.

    python proofs/rlhf.py [PART ...] [seed=N] [device=cuda]   two hours on two cores; seed: of align, lab and
                                                              audit the run of that seed alone
    python proofs/rlhf.py lab seed=26 CHANGE=VALUE ...        with other settings, which is not for the page
    python proofs/rlhf.py ship                                puts the lab's curves into the package

The lab's settings were chosen on seeds 0, 1 and 2. The audit: two annotators label the same pairs of replies
to the questions task. Into every reply go 0 to 3 neutral sentences, another number in each of a pair; in
every second pair nothing else differs. Both judge the true quality of the reply without them, and err alike;
one likes long replies besides:

    chosen = the reply with the larger quality + bias * words + noise * logistic       control: bias 0

The tables on process models and RLAIF are by examples/experiments.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, stdev

from harness import FIGURES, HOME, TRAINS, Bars, Page, Tables, bar, once, pipeline, shared_gpu, tests, train

from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import questions
from postgrad.evaluation.audit import answers_of_pairs, audit_scores, text_scorer
from postgrad.evaluation.edits import insert
from postgrad.models import load_scalar
from postgrad.models.chat import Chat
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.launch import start_training
from postgrad.recipes.pipelines.stages import StageTrackers, save_plan
from postgrad.recipes.registry import recipe_module
from postgrad.records import Pair
from postgrad.resolve.models import open_folder

SEEDS, LAB_SEEDS, AUDIT_SEEDS = [0, 1, 2], [26, 27, 28], list(range(10))
PREREGISTERED = list(range(100, 110))
LAB = HOME / "examples" / "labs" / "overoptimise.py"
SHIPPED = HOME / "postgrad" / "models" / "embedded" / "overoptimise" / "curves.json"
LEASH = 0.3  # the KL weight that the bar is measured at


# alignment and over-optimisation

def align(folder: Path, seed: str = "", device: str = "cpu") -> tuple[Bars, Tables]:
    runs = [pipeline(folder / f"align-{each}", "align", f"seed={each}", f"device={device}")
            for each in ([int(seed)] if seed else SEEDS)]
    judges = [{"seed": r["seed"], **{k: v for k, v in r["reward_model"].items() if k != "accuracy_interval"},
               "interval": " to ".join(f"{x:.3f}" for x in r["reward_model"]["accuracy_interval"]),
               "minutes of the whole recipe": r["minutes"]} for r in runs]
    rows = [{"seed": r["seed"], "policy": p["name"], "true quality": p["true"],
             "interval": " to ".join(f"{x:.2f}" for x in p["interval"]), "length": p["length"],
             **{k: p["parts"][k] for k in ("correct", "greets", "closes", "filler", "rude")},
             "minutes": p["minutes"]} for r in runs for p in r["policies"]]
    command = "postgrad train align:questions seed=N"
    span = lambda key: f"{min(j[key] for j in judges):.3f} to {max(j[key] for j in judges):.3f}"  # noqa: E731
    bars = []
    for method in ("dpo", "ppo", "grpo"):
        ends = [[next(p for p in r["policies"] if p["name"] == name) for name in ("start", method)]
                for r in runs]
        bars.append(bar(f"alignment: true quality, {method} over the SFT model",
                        "above it, the intervals apart, 3 of 3 seeds",
                        "; ".join(f"{a['true']:+.2f} -> {b['true']:+.2f}" for a, b in ends),
                        all(b["interval"][0] > a["interval"][1] for a, b in ends), command))
    figures = [{"what": "alignment: the reward model's held-out accuracy",
                "measured": f"{span('accuracy')}; ece {span('ece')}"},
               {"what": "alignment: minutes, all stages and measurements",
                "measured": ", ".join(f"{r['minutes']:.1f}" for r in runs)}]
    return bars, {FIGURES: figures, "Alignment, seed by seed": rows, "Its reward models": judges}


def lab_step(name: str, folder: Path, words: list[str]) -> None:
    """One step of a lab in its folder."""
    config, _ = fill_defaults(config_from_text(str(LAB), words)[1])
    overoptimise, command = recipe_module(str(LAB)), f"postgrad train {LAB.relative_to(HOME)}"
    plan, command = overoptimise.pipeline(config), " ".join([command, *words])
    if name == "names":
        return print(json.dumps([[stage.name for stage in stages(config)]
                                 for stages in (overoptimise.proxies, overoptimise.policies)]))
    if name == "rest":
        return start_training(str(LAB), config, folder, command=command)
    save_plan(plan, folder, str(LAB), config, command)
    (step,) = [step for step in plan.steps if step.name == name]
    step.run_step(folder, StageTrackers(), command)


def run_lab(folder: Path, words: list[str]) -> None:
    """The reward models one after another, then the policies side by side, then what is left."""
    def child(name: str, **how) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, __file__, "lab-step", name, str(folder), *words], text=True,
                                **how)

    proxies, policies = json.loads(child("names", stdout=subprocess.PIPE).communicate()[0].splitlines()[-1])
    for several in ([name] for name in proxies), [policies], [["rest"]]:
        for names in several:
            if any([process.wait() for process in map(child, names)]):
                sys.exit(f"a step of {folder} failed: {names}.")


def lab(folder: Path, seed: str = "", **changes: str) -> tuple[Bars, Tables]:
    seeds, more = [int(seed)] if seed else LAB_SEEDS, [f"{k}={v}" for k, v in changes.items()]
    for each in seeds:
        if not (folder / f"lab-{each}" / "curves.json").exists():
            run_lab(folder / f"lab-{each}", [f"seed={each}", "evaluation.samples=48", *more])
    labs = [json.loads((folder / f"lab-{each}" / "curves.json").read_text()) for each in seeds]
    rows = [{"seed": f["seed"], "policy": p["name"], "start": p["points"][0]["true"],
             **{k: p["turning"][k] for k in ("step", "kl", "peak", "end", "fall", "proxy_at_peak",
                                             "proxy_at_end")}, "minutes": p["minutes"]}
            for f in labs for p in f["policies"]]
    off, on = ([next(p for p in f["policies"] if p["kl_weight"] == w and not p["ensemble"]) for f in labs]
               for w in (0.0, LEASH))
    best = [{"seed": f["seed"], **{k: p[k] for k in ("n", "kl", "proxy", "true")}} for f in labs
            for p in f["best_of_n"]]
    command = labs[0]["command"].replace(f"seed={seeds[0]}", "seed=N")
    rising = sum(p["turning"]["proxy_at_end"] > p["turning"]["proxy_at_peak"] for p in off)

    def turned(policies: list[dict]) -> str:
        """Start, peak and end of each, and the share of the gain that was lost."""
        return "; ".join(f"{p['points'][0]['true']:+.2f} -> {p['turning']['peak']:+.2f} -> "
                         f"{p['turning']['end']:+.2f} ({p['turning']['fall']:.1%})" for p in policies)

    fresh = f"fresh seeds {', '.join(map(str, seeds))}"
    return [bar("over-optimisation, KL off: the true reward peaks, then falls; settings chosen on 0, 1, 2",
                f">= 15 % of what had been gained, the proxy rising, {fresh}",
                f"{turned(off)}; the proxy rises in {rising} of {len(off)}",
                rising == len(off) and all(p["turning"]["fall"] >= 0.15 for p in off), command),
            bar(f"over-optimisation, KL on ({LEASH}): it ends near its peak",
                f"within 5 % of what had been gained, {fresh}", turned(on),
                all(p["turning"]["fall"] <= 0.05 for p in on), command)], {
        "Over-optimisation: turning points": rows, "Best of n against the same proxy": best}


def preregistered(folder: Path, device: str = "cpu", seed: str = "",
                  at_once: str = "1") -> tuple[Bars, Tables]:
    """Ten seeds by the rule that docs/results/preregistered/overoptimisation.md had before they were run."""
    def run_seed(each: int) -> None:
        if not (folder / f"lab-{each}" / "curves.json").exists():
            run_lab(folder / f"lab-{each}", [f"seed={each}", "evaluation.samples=48", f"kls=0,{LEASH}",
                                             "proxies.members=1", f"device={device}"])

    rows, seeds = [], [int(seed)] if seed else PREREGISTERED
    with shared_gpu() as env, ThreadPoolExecutor(int(at_once)) as pool:
        os.environ.update(env)
        list(pool.map(run_seed, seeds))
    for each in seeds:
        place = folder / f"lab-{each}"
        rows += [{"seed": each, "KL weight": p["kl_weight"], "start": p["points"][0]["true"],
                  **{k: p["turning"][k] for k in ("step", "peak", "end", "fall")},
                  "fall over the peak": 1 - p["turning"]["end"] / p["turning"]["peak"],
                  "proxy rises": p["turning"]["proxy_at_end"] > p["turning"]["proxy_at_peak"]}
                 for p in json.loads((place / "curves.json").read_text())["policies"]]
    return preregistered_bars(rows), {"Over-optimisation by the rule written first: seeds 100 to 109": rows}


def preregistered_bars(rows: list[dict]) -> Bars:
    off, on = ([row for row in rows if row["KL weight"] == weight] for weight in (0.0, LEASH))
    fell = sum(row["fall"] >= 0.15 and row["proxy rises"] for row in off)
    stays = sum(row["fall"] <= 0.05 for row in on)
    gaps = [b["end"] - a["end"] for a, b in zip(off, on, strict=True)]
    half = 2.262 * stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else math.inf  # Student, 9 degrees
    every, command = len(PREREGISTERED), "python proofs/rlhf.py preregistered device=cuda"
    return [bar("over-optimisation, preregistered: without a leash the true reward falls, the proxy rises",
                ">= 15 % of the gain, >= 8 of 10 seeds", f"{fell} of {len(off)}", fell >= 8, command),
            bar(f"over-optimisation, preregistered: with a KL weight of {LEASH} it ends near its peak",
                "<= 5 % of the gain, >= 8 of 10 seeds", f"{stays} of {len(on)}", stays >= 8, command),
            bar("over-optimisation, preregistered: the leash ends higher", "95 % interval above 0, 10 seeds",
                f"{fmean(gaps):+.2f} ({fmean(gaps) - half:+.2f} to {fmean(gaps) + half:+.2f})",
                len(gaps) == every and fmean(gaps) > half, command)]


def ship(folder: Path) -> None:
    """The curves of every seed, rounded: a few kilobytes for the studio's instrument on reward hacking."""
    def small(x):
        return (float(f"{x:.4g}") if isinstance(x, float) else {k: small(v) for k, v in x.items()}
                if isinstance(x, dict) else [small(v) for v in x] if isinstance(x, list) else x)

    runs = [small(json.loads((folder / f"lab/lab-{seed}/curves.json").read_text())) for seed in LAB_SEEDS]
    SHIPPED.write_text(json.dumps({"made by": "python proofs/rlhf.py ship", "runs": runs}))


# the audit

BIAS = 0.1    # in units of quality, a word: five words weigh as much as a greeting
PAIRS, STEPS, HELD, ANSWERS = 2000, 60, 150, 60
STYLES = ("polite", "terse", "rude", "wrong")  # not padded: its filler has a price
NEUTRAL = (
    "So things are.", "Things are so.", "That is what you ask.", "What I say is what I know.",
    "It is all there.", "As people know, it is so.", "In all, it is so.", "It is so for all people.",
    "I think of it so.", "This is how I have it.", "In all, that is it.", "You know it so.", "That I know.",
    "So I say to you.", "It is so, as many know.", "What is there is there.", "About this I say so.",
    "For this it is so.", "I have this to say.", "You have it as it is.", "As you ask, I say.",
    "There is a thing to say about it.", "I know it so.", "How it is, that is how it is.",
)


def label(split: str, count: int, seed: int, bias: float) -> list:
    """Pairs as an annotator with this length bias labels them; the replies and the errors depend on the seed
    alone."""
    rng, asked, pairs = random.Random(f"audit/{split}/{seed}"), questions.prompts(split, count, seed), []
    for i in range(count):
        prompt = asked[i % len(asked)]
        bare = [questions.question_reply(questions.BY_QUESTION[prompt.question], style, rng)
                for style in rng.sample(STYLES, 2)]
        bare = [bare[0]] * 2 if i % 2 else bare
        full = [insert(text, rng.sample(NEUTRAL, amount))
                for text, amount in zip(bare, rng.sample(range(4), 2), strict=True)]
        a, b = (questions.reply_quality(prompt, x).score + bias * len(questions.reply_words(y))
                for x, y in zip(bare, full, strict=True))
        u = rng.uniform(1e-9, 1 - 1e-9)
        noise = questions.NOISE * math.log(u / (1 - u))
        chosen, rejected = full if a - b + noise > 0 else full[::-1]
        pairs.append(Pair(id=str(i), messages=prompt.messages, chosen=chosen, rejected=rejected))
    return pairs


def audited(folder: Path, seed: int, bias: float) -> dict:
    """A reward model of an annotator's pairs: the audit's length probe, and the accuracy on held-out pairs
    that differ in quality."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": p.messages[0]["content"], "chosen": p.chosen, "rejected": p.rejected}
            for p in label("train", PAIRS, seed, bias)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = train(folder / "run", "reward", f"data={folder / 'pairs.jsonl'}", f"steps={STEPS}",
                f"save_every={STEPS}", f"seed={seed}", "evaluation.every=0", "pairs.per_step=24",
                "optim.lr=3e-4")
    model, chat = load_scalar(open_folder(run.folder)), Chat.load(open_folder(run.folder))
    score, held = text_scorer(model, chat), label("test", HELD, seed, bias)
    report = audit_scores(answers_of_pairs(held, ANSWERS, seed), score, names=["length"], seed=seed,
                          length=lambda a: len(chat.answer(*a)[0]),
                          max_tokens=model.config.max_position_embeddings)
    best, other = (score([(p.messages, getattr(p, side)) for p in held[::2]])
                   for side in ("chosen", "rejected"))
    return report["probes"][0] | {"accuracy": fmean(a > b for a, b in zip(best, other, strict=True))}


def audit_part(folder: Path, seed: str = "") -> tuple[Bars, Tables]:
    """Does the audit find a length bias that was planted, and none where there is none?"""
    rows = []
    for each in [int(seed)] if seed else AUDIT_SEEDS:
        row = {"seed": each}
        for name, bias in (("planted", BIAS), ("control", 0.0)):
            probe = once(folder / f"{name}-{each}.json", audited, folder / f"{name}-{each}", each, bias)
            low, high = probe["interval"]
            row |= {f"{name} effect": probe["effect"], f"{name} interval": f"{low:+.2f} to {high:+.2f}",
                    f"{name} verdict": probe["verdict"], f"{name} accuracy": probe["accuracy"],
                    f"{name} per token": probe["slope"]["per_token"]}
        rows.append(row)
    good = (sum(r["planted verdict"] == "biased up" for r in rows),
            sum(r["control verdict"] == "none found" for r in rows))
    return [bar("the audit finds a planted length bias, and none in the control", "10 of 10 seeds each",
                f"{good[0]} of {len(rows)} found, {good[1]} of {len(rows)} controls clean",
                good == (10, 10))], {"The audit": rows}


PARTS: dict[str, Callable] = {"tests": tests("rlhf"), "align": align, "lab": lab, "audit": audit_part,
                              "preregistered": preregistered}
PAGE = Page("rlhf", "RLHF: what was to be shown, and what was measured", PARTS, [*SEEDS, *LAB_SEEDS],
            apart=("preregistered",), paths=(*TRAINS, "examples/labs"))

if __name__ == "__main__":
    if sys.argv[1:2] == ["lab-step"]:
        lab_step(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
    elif sys.argv[1:2] == ["ship"]:
        ship(HOME / "runs" / "proof-rlhf")
    else:
        PAGE.main()
