"""RLHF: closed-form optimum, equality with TRL, alignment, over-optimisation, audit, process models, RLAIF.

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

from harness import HOME, Bars, Page, Tables, bar, once, pipeline, read_lines, tests, train

SEEDS, LAB_SEEDS, AUDIT_SEEDS = [0, 1, 2], [26, 27, 28], list(range(10))
LAB = HOME / "examples" / "labs" / "overoptimise.py"
SHIPPED = HOME / "postgrad" / "models" / "embedded" / "overoptimise" / "curves.json"
LEASH = 0.3  # the KL weight that the bar is measured at


def optimum(folder: Path) -> tuple[Bars, Tables]:
    """How close every row comes to ref exp(r / beta) / Z on a language that can be listed whole. theorem: pi*
    is the method's fixed point; the other rows show where GRPO goes with its KL in the loss."""
    import tilted
    rows = []
    for beta in tilted.BETAS:
        best, start = tilted.optimum(beta), tilted.REF.row_logp().exp()
        for name in tilted.rows_at(beta):
            end = tilted.solution(name, beta, 0)
            rows.append({"method": name, "beta": beta, "theorem": name in tilted.THEOREM,
                         "tv_start": tilted.distance(start, best), "tv_end": tilted.distance(end, best),
                         "tv_to_ppo": tilted.distance(end, tilted.solution("ppo", beta, 0))})
    held = [r for r in rows if r["theorem"]]
    worst, apart = max(r["tv_end"] for r in held), max(r["tv_to_ppo"] for r in held if r["method"] == "dpo")
    return [bar("PPO, REINFORCE, RLOO, GRPO and DPO reach ref exp(r/beta)/Z on an enumerable model, "
                "beta 0.3 and 1.0", "total variation <= 0.05", f"{worst:.4f} at most (GRPO with its KL in "
                "the reward; with it in the loss it settles elsewhere, see the table)", worst <= 0.05),
            bar("DPO's and PPO's solutions agree", "total variation <= 0.05", f"{apart:.4f} at most",
                apart <= 0.05)], {"The closed-form optimum": rows}


# alignment and over-optimisation

def align(folder: Path, seed: str = "", device: str = "cpu") -> tuple[Bars, Tables]:
    seeds, found = [int(seed)] if seed else SEEDS, []
    for each in seeds:
        found.append(pipeline(folder / f"align-{each}", "align", f"seed={each}", f"device={device}"))
    judges = [{"seed": f["seed"], **{k: v for k, v in f["reward_model"].items() if k != "accuracy_interval"},
               "interval": " to ".join(f"{x:.3f}" for x in f["reward_model"]["accuracy_interval"]),
               "minutes of the whole recipe": f["minutes"]} for f in found]
    rows = [{"seed": f["seed"], "policy": p["name"], "true quality": p["true"],
             "interval": " to ".join(f"{x:.2f}" for x in p["interval"]), "length": p["length"],
             **{k: p["parts"][k] for k in ("correct", "greets", "closes", "filler", "rude")},
             "minutes": p["minutes"]} for f in found for p in f["policies"]]
    command = "postgrad train align:questions seed=N"
    span = lambda key: f"{min(j[key] for j in judges):.3f} to {max(j[key] for j in judges):.3f}"  # noqa: E731
    bars = [bar("alignment: the reward model's held-out accuracy", "reported, 3 seeds",
                f"{span('accuracy')}; ece {span('ece')}", True, command)]
    for method in ("dpo", "ppo", "grpo"):
        ends = [[next(p for p in f["policies"] if p["name"] == name) for name in ("start", method)]
                for f in found]
        bars.append(bar(f"alignment: true quality, {method} over the SFT model",
                        "above it, the intervals apart, 3 of 3 seeds",
                        "; ".join(f"{a['true']:+.2f} -> {b['true']:+.2f}" for a, b in ends),
                        all(b["interval"][0] > a["interval"][1] for a, b in ends), command))
    bars.append(bar("alignment: minutes, all stages and measurements", "reported",
                    ", ".join(f"{f['minutes']:.1f}" for f in found), True, command))
    return bars, {"Alignment, seed by seed": rows, "Its reward models": judges}


def lab_step(name: str, folder: Path, words: list[str]) -> None:
    """One step of a lab in its folder."""
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes.defaults import fill_defaults
    from postgrad.recipes.launch import start_training
    from postgrad.recipes.pipelines.stages import StageTrackers, save_plan
    from postgrad.recipes.registry import recipe_module
    config, _ = fill_defaults(config_from_text(str(LAB), words)[1])
    overoptimise = recipe_module(str(LAB))
    whole = overoptimise.pipeline(config)
    command = " ".join([f"postgrad train {LAB.relative_to(HOME)}", *words])
    if name == "names":
        return print(json.dumps([[stage.name for stage in stages(config)]
                                 for stages in (overoptimise.proxies, overoptimise.policies)]))
    if name == "rest":
        return start_training(str(LAB), config, folder, command=command)
    save_plan(whole, folder, str(LAB), config, command)
    (step,) = [step for step in whole.steps if step.name == name]
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
    found = [json.loads((folder / f"lab-{each}" / "curves.json").read_text()) for each in seeds]
    rows = [{"seed": f["seed"], "policy": p["name"], "start": p["points"][0]["true"],
             **{k: p["turning"][k] for k in ("step", "kl", "peak", "end", "fall", "proxy_at_peak",
                                             "proxy_at_end")}, "minutes": p["minutes"]}
            for f in found for p in f["policies"]]
    off, on = ([next(p for p in f["policies"] if p["kl_weight"] == w and not p["ensemble"]) for f in found]
               for w in (0.0, LEASH))
    best = [{"seed": f["seed"], **{k: p[k] for k in ("n", "kl", "proxy", "true")}} for f in found
            for p in f["best_of_n"]]
    command = found[0]["command"].replace(f"seed={seeds[0]}", "seed=N")
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
    from postgrad.data.tasks.questions import (
        ANNOTATORS,
        BY_QUESTION,
        prompts,
        question_reply,
        reply_quality,
        reply_words,
    )
    from postgrad.evaluation.edits import insert
    from postgrad.records import Pair
    rng, asked, pairs = random.Random(f"audit/{split}/{seed}"), prompts(split, count, seed), []
    for i in range(count):
        prompt = asked[i % len(asked)]
        bare = [question_reply(BY_QUESTION[prompt.question], style, rng) for style in rng.sample(STYLES, 2)]
        bare = [bare[0]] * 2 if i % 2 else bare
        full = [insert(text, rng.sample(NEUTRAL, amount))
                for text, amount in zip(bare, rng.sample(range(4), 2), strict=True)]
        a, b = (reply_quality(prompt, x).score + bias * len(reply_words(y)) for x,
                y in zip(bare, full, strict=True))
        u = rng.uniform(1e-9, 1 - 1e-9)
        chosen, rejected = (full if a - b + ANNOTATORS["questions"]["noise"] * math.log(u / (1 - u)) > 0
                            else full[::-1])
        pairs.append(Pair(id=str(i), messages=prompt.messages, chosen=chosen, rejected=rejected))
    return pairs


def audited(folder: Path, seed: int, bias: float) -> dict:
    """A reward model of an annotator's pairs: the audit's length probe, and the accuracy on held-out pairs
    that differ in quality."""
    from postgrad.evaluation.audit import answers_of_pairs, audit_scores, text_scorer
    from postgrad.models import load_scalar
    from postgrad.models.chat import Chat
    from postgrad.resolve.models import open_folder
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": p.messages[0]["content"], "chosen": p.chosen, "rejected": p.rejected}
            for p in label("train", PAIRS, seed, bias)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = train(folder / "run", "reward", f"data={folder / 'pairs.jsonl'}", f"steps={STEPS}",
                f"save_every={STEPS}", f"seed={seed}", "evaluation.every=0", "pairs.per_step=24",
                "optim.lr=3e-4")
    model, chat = load_scalar(open_folder(run.folder)), Chat.load(open_folder(run.folder))
    score, held = text_scorer(model, chat), label("test", HELD, seed, bias)
    found = audit_scores(answers_of_pairs(held, ANSWERS, seed), score, names=["length"], seed=seed,
                  length=lambda a: len(chat.answer(*a)[0]), max_tokens=model.config.max_position_embeddings)
    best, other = (score([(p.messages, getattr(p, side)) for p in held[::2]])
                   for side in ("chosen", "rejected"))
    return found["probes"][0] | {"accuracy": fmean(a > b for a, b in zip(best, other, strict=True))}


def audit_part(folder: Path, seed: str = "") -> tuple[Bars, Tables]:
    """Does the audit find a length bias that was planted, and none where there is none?"""
    rows = []
    for each in [int(seed)] if seed else AUDIT_SEEDS:
        row = {"seed": each}
        for name, bias in (("planted", BIAS), ("control", 0.0)):
            found = once(folder / f"{name}-{each}.json",
                         lambda: audited(folder / f"{name}-{each}", each, bias))  # noqa: B023
            low, high = found["interval"]
            row |= {f"{name} effect": found["effect"], f"{name} interval": f"{low:+.2f} to {high:+.2f}",
                    f"{name} verdict": found["verdict"], f"{name} accuracy": found["accuracy"],
                    f"{name} per token": found["slope"]["per_token"]}
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
    """The mean share with its interval; over: how much more than the mean of these, of the same problems."""
    from postgrad.maths.intervals import gain_interval, mean_interval
    mean, low, high = gain_interval(over, values, (0.0, 1.0)) if over else mean_interval(values, (0.0, 1.0))
    return f"{mean:.1%} ({low:.1%} to {high:.1%})"


def checkers(folder: Path) -> tuple[str, dict[str, str], list[dict]]:
    """The generator, the run of each model, and how well each tells right from wrong on held-out replies."""
    made = train(folder / "generator", "grpo:words", "steps=1", "save_every=1", "evaluation.every=0",
                 "optim.schedule=constant")
    runs = {name: train(folder / name, f"{name}:words", f"model={made.folder}", "save_every=100",
                        "evaluation.every=100", "evaluation.split=test") for name in ("process", "outcome")}
    rows = [{"model": name, "balanced accuracy": f"{last['balanced_accuracy']:.1%} ({low:.1%} to {high:.1%})",
             "accuracy": f"{last['accuracy']:.1%}", "on right": f"{last['accuracy_right']:.1%}",
             "on wrong": f"{last['accuracy_wrong']:.1%}",
             "labels that say right": f"{last['right_steps']:.1%}"}
            for name, run in runs.items() for last in [run.evaluations()[-1]]
            for low, high in [last["balanced_accuracy_interval"]]]
    return str(made.folder), {name: str(run.folder) for name, run in runs.items()}, rows


def sampled(name: str, count: int, seed: int) -> tuple[list, list[list[float]]]:
    """Samples of test problems, and whether each is right."""
    from postgrad.data.tasks import load_task
    from postgrad.evaluation import passed, score_samples
    from postgrad.resolve.models import open_model
    from postgrad.sampling import LocalSampler, Sampling
    task = load_task("words")
    groups = score_samples(task, LocalSampler(*open_model(name)), task.prompts("test", PROBLEMS, seed), count,
                           Sampling(max_new_tokens=64), 0)
    return groups, [[float(passed(task, s)) for s in group] for group in groups]


def vote(group: list, right: list[float], n: int, rng: random.Random) -> float:
    """How often the commonest answer of n is right, ties shared: every subset for n = 1 and N, else the mean
    of SUBSETS."""
    from postgrad.rewards.format import find_answer
    said = [find_answer(s.rollout.text) for s in group]
    draws = ([[i] for i in range(N)] if n == 1 else [range(N)] if n == N
             else [rng.sample(range(N), n) for _ in range(SUBSETS)])
    hits = []
    for draw in draws:
        count = Counter(said[i] for i in draw)
        top = {answer for answer, many in count.items() if many == max(count.values())}
        hits.append(fmean(fmean(right[i] for i in draw if said[i] == answer) for answer in top))
    return fmean(hits)


def reranking(generator: str, runs: dict[str, str]) -> list[dict]:
    """The accuracy of the answer picked from n, over all subsets of n of the N samples of each problem."""
    from postgrad.data.tasks import load_task
    from postgrad.maths.passk import best_of_n
    from postgrad.models import load_scalar
    from postgrad.resolve.models import open_folder, open_model
    from postgrad.rewards.model import SO_FAR, ModelReward, ProcessReward
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
    generator, runs, told = checkers(folder)
    before = [fmean(r) for r in sampled(generator, 4, 1)[1]]
    rows = []
    for name, reward in (("the verifier", ""), ("outcome model", "outcome"),
                         ("process model, dense", "process")):
        after, said = [], []
        for seed in (0, 1):
            run = train(folder / f"{METHOD}-{reward or 'verifier'}-{seed}", f"{METHOD}:words",
                        f"model={generator}", f"seed={seed}", "rollouts.prompts_per_step=8",
                        f"rollouts.collections={COLLECTIONS}", "evaluation.every=0",
                        *([f"reward={runs[reward]}"] if reward else []))
            after.append([fmean(r) for r in sampled(str(run.folder), 4, 1)[1]])
            said.append(run.metrics())
        first_last = lambda key: [fmean(x[i][key] for x in said) for i in (0, -1)]  # noqa: B023, E731
        rows.append({"reward": name, "pass@1 before": interval(before),
                     "after": interval([fmean(x) for x in zip(*after, strict=True)]),
                     "after, by seed": ", ".join(f"{fmean(x):.1%}" for x in after),
                     "reward, first and last step": "{:.2f} to {:.2f}".format(*first_last("reward")),
                     "length": "{:.1f} to {:.1f}".format(*first_last("length"))})
    return [], {"Process and outcome model on held-out replies": told,
                f"Picking one of n answers: {PROBLEMS} test problems, {N} samples each":
                    reranking(generator, runs),
                f"As the reward of {COLLECTIONS} collections of {METHOD}, 2 seeds": rows}


# RLAIF: what a constitution changes, and what it cannot

def true_quality(model: str, seed: int, samples: int = 16) -> dict:
    """On the validation prompts, its interval over prompts, and the shares of what it is made of."""
    from postgrad.data.tasks import load_task
    from postgrad.evaluation import mean_of, score_samples
    from postgrad.maths.intervals import mean_interval
    from postgrad.resolve.models import open_model
    from postgrad.rewards.constitution import read_constitution
    from postgrad.sampling import LocalSampler, Sampling
    task, rules = load_task("questions"), read_constitution()
    groups = score_samples(task, LocalSampler(*open_model(model)), task.prompts("validation", 1000, seed),
                           samples, Sampling(max_new_tokens=64), seed)
    mean, low, high = mean_interval([mean_of(s.verdict.score for s in group) for group in groups])
    rows = [s for group in groups for s in group]
    return {"true quality": mean, "95 % interval": f"{low:.2f} to {high:.2f}",
            "right": mean_of(s.verdict.parts["correct"] > 0 for s in rows),
            **{name: mean_of(s.verdict.parts[name] != 0 for s in rows)
               for name in ("rude", "filler", "greets", "closes")},
            "keeps all rules": mean_of(not rules.broken(s.rollout.text) for s in rows)}


def rlaif_part(folder: Path) -> tuple[Bars, Tables]:
    """tiny-chat; SFT on its revised replies; DPO from there on pairs of its own; DPO from tiny-chat."""
    rows = [row for seed in (0, 1) for row in stages(seed, folder / str(seed))]
    return [], {"RLAIF": rows, "RLAIF: labels on pairs of tiny-chat's replies to 60 training prompts":
                [labelled(seed, judge, folder) for seed in (0, 1) for judge in ("rules", "tiny-chat")]}


def stages(seed: int, home: Path) -> list[dict]:
    from postgrad.recipes import rlaif
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
    from postgrad.data.tasks import load_task
    from postgrad.data.tasks.questions import reply_quality
    from postgrad.maths.intervals import mean_interval
    from postgrad.recipes import rlaif
    from postgrad.rewards.constitution import read_constitution
    from postgrad.rewards.judges import RuleJudge
    asked = {p.question: p for p in load_task("questions").prompts("train", 1000, 0)}
    place = folder / f"labels-{seed}-{judge}"
    found = rlaif.run_rlaif(rlaif.RLAIFConfig(model="tiny-chat", task="questions", judge=judge, prompts=60,
                                        seed=seed), place)
    ends = [(asked[p["prompt"]], p["chosen"], p["rejected"]) for p in read_lines(place / "pairs.jsonl")]
    true = [[reply_quality(q, text) for text in sides] for q, *sides in ends]

    def agreement(gaps: list[float]) -> str:
        hits: dict[str, list[bool]] = {}
        for (ask, *_), gap in zip(ends, gaps, strict=True):
            if abs(gap) > 1e-9:
                hits.setdefault(ask.id, []).append(gap > 0)
        mean, low, high = mean_interval([statistics.fmean(x) for x in hits.values()], (0.0, 1.0))
        return f"{mean:.2f} ({low:.2f} to {high:.2f})"

    rules = RuleJudge(read_constitution()).compare(ends, seed)
    return {"seed": seed, "judge": judge, "pairs": len(ends), "ties": found["ties"],
            "agrees with true quality": agreement([a.score - b.score for a, b in true]),
            "agrees with the rules": agreement([o.first - 0.5 for o in rules]),
            "chooses the right reply": agreement([a.parts["correct"] - b.parts["correct"] for a, b in true]),
            "reply shown first preferred": found["reply shown first preferred"]}


PARTS: dict[str, Callable] = {"optimum": optimum, "tests": tests("rlhf"), "align": align, "lab": lab,
                              "audit": audit_part, "process": process, "rlaif": rlaif_part}
PAGE = Page("rlhf", "RLHF: what was to be shown, and what was measured", PARTS, [*SEEDS, *LAB_SEEDS])

if __name__ == "__main__":
    if sys.argv[1:2] == ["lab-step"]:
        lab_step(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
    elif sys.argv[1:2] == ["ship"]:
        ship(HOME / "runs" / "proof-rlhf")
    else:
        PAGE.main()
