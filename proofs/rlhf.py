"""RLHF: equality with TRL and the closed-form optimum, alignment, over-optimisation, audit, process models,
RLAIF.

    python proofs/rlhf.py [PART ...] [seed=N] [device=cuda]   two hours on two cores; seed: of align, lab and
                                                              audit the run of that seed alone
    python proofs/rlhf.py lab seed=26 CHANGE=VALUE ...        with other settings, which is not for the page
    python proofs/rlhf.py ship                                puts the lab's curves into the package

The lab's settings were chosen on seeds 0, 1 and 2. The audit: two annotators label the same pairs of replies
to the questions task. Into every reply go 0 to 3 neutral sentences, another number in each of a pair; in
every second pair nothing else differs. Both judge the true quality of the reply without them, and err alike;
one likes long replies besides:

    chosen = the reply with the larger quality + bias * words + noise * logistic       control: bias 0

The process model's generator is `tiny-chat` after one step of GRPO, right in about half of its answers. The
rules of RLAIF are about manners: whether an answer is right is not among them, so that is measured beside.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from harness import HOME, Bars, Page, Tables, bar, once, percent, pipeline, read_lines, tests, train

from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import load_task, questions
from postgrad.evaluation import mean_of, passed, score_samples
from postgrad.evaluation.audit import answers_of_pairs, audit_scores, text_scorer
from postgrad.evaluation.edits import insert
from postgrad.maths.intervals import gain_interval, mean_interval
from postgrad.maths.passk import best_of_n
from postgrad.models import load_scalar
from postgrad.models.chat import Chat
from postgrad.recipes import rlaif
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.launch import start_training
from postgrad.recipes.pipelines.stages import StageTrackers, save_plan
from postgrad.recipes.registry import recipe_module
from postgrad.records import Pair
from postgrad.resolve.models import open_folder, open_model
from postgrad.rewards.constitution import read_constitution
from postgrad.rewards.format import find_answer
from postgrad.rewards.judges import RuleJudge
from postgrad.rewards.model import SO_FAR, ModelReward, ProcessReward
from postgrad.sampling import LocalSampler, Sampling

SEEDS, LAB_SEEDS, AUDIT_SEEDS = [0, 1, 2], [26, 27, 28], list(range(10))
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
    bars = [bar("alignment: the reward model's held-out accuracy", "reported, 3 seeds",
                f"{span('accuracy')}; ece {span('ece')}", True, command)]
    for method in ("dpo", "ppo", "grpo"):
        ends = [[next(p for p in r["policies"] if p["name"] == name) for name in ("start", method)]
                for r in runs]
        bars.append(bar(f"alignment: true quality, {method} over the SFT model",
                        "above it, the intervals apart, 3 of 3 seeds",
                        "; ".join(f"{a['true']:+.2f} -> {b['true']:+.2f}" for a, b in ends),
                        all(b["interval"][0] > a["interval"][1] for a, b in ends), command))
    bars.append(bar("alignment: minutes, all stages and measurements", "reported",
                    ", ".join(f"{r['minutes']:.1f}" for r in runs), True, command))
    return bars, {"Alignment, seed by seed": rows, "Its reward models": judges}


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
        noise = questions.ANNOTATORS["questions"]["noise"] * math.log(u / (1 - u))
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


# the process model against the outcome model: picking the best of n answers, and as the reward of a policy

N, SIZES, PROBLEMS, SUBSETS = 16, (1, 2, 4, 8, 16), 150, 200
COLLECTIONS, METHOD = 20, "ppo"


def interval(values: list[float], over: list[float] | None = None) -> str:
    """The mean share with its interval; over: its gain over the mean of these, paired by problem."""
    mean, low, high = gain_interval(over, values, (0.0, 1.0)) if over else mean_interval(values, (0.0, 1.0))
    return percent(mean, [low, high])


def samples_of(model: str, task: str, split: str, problems: int, samples: int, draw: int, seed: int) -> list:
    return score_samples(load_task(task), LocalSampler(*open_model(model)),
                         load_task(task).prompts(split, problems, draw), samples, Sampling(max_new_tokens=64),
                         seed)


def sampled(model: str, count: int, draw: int) -> tuple[list, list[list[float]]]:
    """Samples of test problems, and whether each is right."""
    groups = samples_of(model, "words", "test", PROBLEMS, count, draw, 0)
    return groups, [[float(passed(load_task("words"), s)) for s in group] for group in groups]


def checkers(folder: Path) -> tuple[str, dict[str, str], list[dict]]:
    """The generator, the run of each model, and how well each tells right from wrong on held-out replies."""
    generator = train(folder / "generator", "grpo:words", "steps=1", "save_every=1", "evaluation.every=0",
                      "optim.schedule=constant").folder
    runs = {name: train(folder / name, f"{name}:words", f"model={generator}", "save_every=100",
                        "evaluation.every=100", "evaluation.split=test") for name in ("process", "outcome")}
    last = {name: run.evaluations()[-1] for name, run in runs.items()}
    rows = [{"model": name, "balanced accuracy": percent(x["balanced_accuracy"],
                                                         x["balanced_accuracy_interval"]),
             **{label: f"{x[key]:.1%}" for label, key in (
                 ("accuracy", "accuracy"), ("on right", "accuracy_right"), ("on wrong", "accuracy_wrong"),
                 ("labels that say right", "right_steps"))}} for name, x in last.items()]
    return str(generator), {name: str(run.folder) for name, run in runs.items()}, rows


def vote(group: list, right: list[float], n: int, rng: random.Random) -> float:
    """How often the commonest answer of n is right, ties shared: every subset for n = 1 and N, else the mean
    of SUBSETS."""
    answers = [find_answer(s.rollout.text) for s in group]
    draws = ([[i] for i in range(N)] if n == 1 else [range(N)] if n == N
             else [rng.sample(range(N), n) for _ in range(SUBSETS)])
    hits = []
    for draw in draws:
        count = Counter(answers[i] for i in draw)
        top = {answer for answer, many in count.items() if many == max(count.values())}
        hits.append(fmean(fmean(right[i] for i in draw if answers[i] == answer) for answer in top))
    return fmean(hits)


def reranking(generator: str, runs: dict[str, str]) -> list[dict]:
    """The accuracy of the answer picked from n, over all subsets of n of the N samples of each problem."""
    (groups, right), rng, task = sampled(generator, N, 0), random.Random(0), load_task("words")
    process, outcome = (load_scalar(open_folder(runs[name])) for name in ("process", "outcome"))
    chat = open_model(generator)[1]
    judges = {"outcome model": ModelReward([outcome])} | {
        f"process model, {how}": ProcessReward(
            process, chat, lambda r: [step.end for step in task.steps(r.prompt, r.text)], how=how)
        for how in SO_FAR}
    picks = {"chance (pass@1)": [[fmean(r)] * len(SIZES) for r in right],
             "majority vote": [[vote(g, r, n, rng) for n in SIZES]
                               for g, r in zip(groups, right, strict=True)]}
    for name, judge in judges.items():
        scores = [[v.score for v in judge([s.rollout for s in group])] for group in groups]
        picks[name] = [[best_of_n(s, r, n) for n in SIZES] for s, r in zip(scores, right, strict=True)]
    picks["the truth (pass@n)"] = [[best_of_n(r, r, n) for n in SIZES] for r in right]
    column = lambda name, i: [p[i] for p in picks[name]]  # noqa: E731
    rows = [{"picked by": name} | {f"n = {n}": interval(column(name, i)) for i, n in enumerate(SIZES)}
            for name in picks]
    gap = {f"n = {n}": interval(column("process model, min", i), column("outcome model", i))
           for i, n in enumerate(SIZES)}
    return [*rows, {"picked by": "process (min) less outcome", **gap}]


def process(folder: Path) -> tuple[Bars, Tables]:
    """Three tables; what counts of a reward is the true pass@1 after METHOD on so many collections."""
    generator, runs, accuracy = checkers(folder)
    before = [fmean(r) for r in sampled(generator, 4, 1)[1]]
    rows = []
    for name, reward in (("the verifier", ""), ("outcome model", "outcome"),
                         ("process model, dense", "process")):
        after, metrics = [], []
        for seed in (0, 1):
            run = train(folder / f"{METHOD}-{reward or 'verifier'}-{seed}", f"{METHOD}:words",
                        f"model={generator}", f"seed={seed}", "rollouts.prompts_per_step=8",
                        f"rollouts.collections={COLLECTIONS}", "evaluation.every=0",
                        *([f"reward={runs[reward]}"] if reward else []))
            after.append([fmean(r) for r in sampled(str(run.folder), 4, 1)[1]])
            metrics.append(run.metrics())
        first_last = lambda key: [fmean(x[i][key] for x in metrics) for i in (0, -1)]  # noqa: B023, E731
        rows.append({"reward": name, "pass@1 before": interval(before),
                     "after": interval([fmean(x) for x in zip(*after, strict=True)]),
                     "after, by seed": ", ".join(f"{fmean(x):.1%}" for x in after),
                     "reward, first and last step": "{:.2f} to {:.2f}".format(*first_last("reward")),
                     "length": "{:.1f} to {:.1f}".format(*first_last("length"))})
    return [], {"Process and outcome model on held-out replies": accuracy,
                f"Picking one of n answers: {PROBLEMS} test problems, {N} samples each":
                    reranking(generator, runs),
                f"As the reward of {COLLECTIONS} collections of {METHOD}, 2 seeds": rows}


# RLAIF: what a constitution changes, and what it cannot

def true_quality(model: str, seed: int, samples: int = 16) -> dict:
    """On the validation prompts, its interval over prompts, and the shares of what it is made of."""
    groups = samples_of(model, "questions", "validation", 1000, samples, seed, seed)
    mean, low, high = mean_interval([mean_of(s.verdict.score for s in group) for group in groups])
    rows = [s for group in groups for s in group]
    return {"true quality": mean, "95 % interval": f"{low:.2f} to {high:.2f}",
            "right": mean_of(s.verdict.parts["correct"] > 0 for s in rows),
            **{name: mean_of(s.verdict.parts[name] != 0 for s in rows)
               for name in ("rude", "filler", "greets", "closes")},
            "keeps all rules": mean_of(not read_constitution().broken(s.rollout.text) for s in rows)}


def rlaif_part(folder: Path) -> tuple[Bars, Tables]:
    """tiny-chat; SFT on its revised replies; DPO from there on pairs of its own; DPO from tiny-chat."""
    rows = [row for seed in (0, 1) for row in stages(seed, folder / str(seed))]
    return [], {"RLAIF": rows, "RLAIF: labels on pairs of tiny-chat's replies to 60 training prompts":
                [labelled(seed, judge, folder) for seed in (0, 1) for judge in ("rules", "tiny-chat")]}


def stages(seed: int, home: Path) -> list[dict]:
    optim = ("optim.schedule=linear", "optim.warmup=5", f"seed={seed}", "evaluation.every=0")
    began, rows = time.process_time(), []

    def label_pairs(model: str, name: str) -> int:
        return rlaif.run_rlaif(rlaif.RLAIFConfig(model=model, task="questions", samples=8, seed=seed),
                         home / name)["pairs"]

    def prefer(model: str, data: str, pairs: int, name: str) -> str:
        """One pass over the pairs at most: there are few once the model keeps the rules."""
        return str(train(home / name, "dpo", f"model={model}", f"data={home / data / 'pairs.jsonl'}",
                         "pairs.per_step=16", f"steps={max(1, min(120, pairs // 16))}", "save_every=120",
                         "optim.lr=5e-5", *optim).folder)

    def note(stage: str, model: str, pairs: object) -> None:
        rows.append({"seed": seed, "stage": stage, "pairs": pairs, **true_quality(model, seed),
                     "CPU minutes so far": (time.process_time() - began) / 60})

    note("tiny-chat", "tiny-chat", "")
    first = label_pairs("tiny-chat", "first")
    tuned = str(train(home / "sft", "sft", "model=tiny-chat", f"data={home / 'first' / 'revisions.jsonl'}",
                      "steps=40", "rows_per_step=32", "save_every=40", "optim.lr=3e-4", *optim).folder)
    note("SFT on its revisions", tuned, "")
    second = label_pairs(tuned, "second")
    note("then DPO on the judge's pairs", prefer(tuned, "second", second, "then-dpo"), second)
    note("DPO on the judge's pairs alone", prefer("tiny-chat", "first", first, "dpo"), first)
    return rows


def labelled(seed: int, judge: str, folder: Path) -> dict:
    """How often a judge's label has the order of the true quality, and finds the right reply where only one
    is: the mean over prompts with its interval; pairs without a gap are left out."""
    asked = {p.question: p for p in load_task("questions").prompts("train", 1000, 0)}
    place = folder / f"labels-{seed}-{judge}"
    labels = rlaif.run_rlaif(rlaif.RLAIFConfig(model="tiny-chat", task="questions", judge=judge, prompts=60,
                                               seed=seed), place)
    ends = [(asked[p["prompt"]], p["chosen"], p["rejected"]) for p in read_lines(place / "pairs.jsonl")]
    true = [[questions.reply_quality(q, text) for text in sides] for q, *sides in ends]

    def agreement(gaps: list[float]) -> str:
        hits: dict[str, list[bool]] = {}
        for (ask, *_), gap in zip(ends, gaps, strict=True):
            if abs(gap) > 1e-9:
                hits.setdefault(ask.id, []).append(gap > 0)
        mean, low, high = mean_interval([statistics.fmean(x) for x in hits.values()], (0.0, 1.0))
        return f"{mean:.2f} ({low:.2f} to {high:.2f})"

    rules = RuleJudge(read_constitution()).compare(ends, seed)
    return {"seed": seed, "judge": judge, "pairs": len(ends), "ties": labels["ties"],
            "agrees with true quality": agreement([a.score - b.score for a, b in true]),
            "agrees with the rules": agreement([o.first - 0.5 for o in rules]),
            "chooses the right reply": agreement([a.parts["correct"] - b.parts["correct"] for a, b in true]),
            "reply shown first preferred": labels["reply shown first preferred"]}


PARTS: dict[str, Callable] = {"tests": tests("rlhf"), "align": align, "lab": lab,
                              "audit": audit_part, "process": process, "rlaif": rlaif_part}
PAGE = Page("rlhf", "RLHF: what was to be shown, and what was measured", PARTS, [*SEEDS, *LAB_SEEDS])

if __name__ == "__main__":
    if sys.argv[1:2] == ["lab-step"]:
        lab_step(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
    elif sys.argv[1:2] == ["ship"]:
        ship(HOME / "runs" / "proof-rlhf")
    else:
        PAGE.main()
