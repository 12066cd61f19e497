"""The look before the first step, on planted and healthy runs, and the run that learns from nothing by its
one offer (issue 36). Part of proofs/truth.py:

    python proofs/truth.py look probes      a quarter of an hour on one core
"""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import torch
from harness import Bars, Tables, bar, once

from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import load_task
from postgrad.data.tasks.base import conversation
from postgrad.evaluation import evaluate_task
from postgrad.models import find_model
from postgrad.recipes.base import RunConfig
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.look import take_look
from postgrad.recipes.row_reader import RowSettings
from postgrad.recipes.running import build_setup, model_source, start_run
from postgrad.recipes.sft import SFTConfig
from postgrad.resolve.models import open_named_model
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling

SEEDS = (41, 42, 43)
AWAY_STEPS, PROBLEMS = 27, 250


def looked(spec: str, *changes: str):
    """The look at what `postgrad train SPEC CHANGES` would train."""
    config = fill_defaults(config_from_text(spec, changes)[1])[0]
    return take_look(config, build_setup(config, model_source(config)))


# a model that answers, in a form that is not paid

def trained_away(folder: Path, seed: int) -> Path:
    """tiny-chat after a little SFT on right answers to word problems without <think>."""
    if not (folder / "run.json").exists():
        task = load_task("words")
        rows = []
        for i, prompt in enumerate(task.prompts("train", 32 * AWAY_STEPS, 1000 + seed)):
            steps = re.search("<think>(.*)</think>", task.gold(prompt))[1]
            said = f"{steps}. So" if i % 3 == 0 else "So"
            rows.append(conversation(prompt, f"{said} <answer>{prompt.answer}</answer>", i))
        start_run(SFTConfig(model="tiny-chat", data=rows, steps=AWAY_STEPS, rows_per_step=32, seed=seed,
                            save_every=AWAY_STEPS, rows=RowSettings(holdout=0.0)), folder)
    return folder


def figures(model: Path) -> dict:
    """Strict and lenient pass@1 on held-out problems, the same for every model."""
    opened, task = open_named_model(model), load_task("words")
    row = evaluate_task(task, LocalSampler(opened.net, opened.chat), task.prompts("test", PROBLEMS, 0),
                        samples=4, settings=Sampling(max_new_tokens=64), seed=0, greedy=False)
    return {name: round(float(row[name]), 4) for name in ("pass@1", "lenient", "format")}


def from_nothing(folder: Path, seed: int) -> dict:
    """`postgrad train grpo task=words model=AWAY`, every setting at its default but the seed: with one yes to
    the look's question, and with a no."""
    model, asked = trained_away(folder / f"away-{seed}", seed), []
    out = {"seed": seed, "start": figures(model)}
    for answer in ("yes", "no"):
        run = folder / f"{answer}-{seed}"
        for path in folder.glob(f"{run.name}*"):
            shutil.rmtree(path)
        config = config_from_text("grpo", ["task=words", f"model={model}", f"seed={seed}"])[1]
        start_run(config, run, ask=lambda question, yes=answer == "yes": asked.append(question) or yes)
        out[answer] = figures(run)
    out["questions"] = len(asked)
    out["asked"] = asked[0]
    return out


def look(folder: Path, seeds: str = ",".join(map(str, SEEDS))) -> tuple[Bars, Tables]:
    found = [once(folder / f"nothing-{seed}.json", from_nothing, folder, int(seed))
             for seed in seeds.split(",")]
    learned = [f["yes"]["pass@1"] >= f["start"]["lenient"] and f["questions"] == 2 for f in found]
    rows = [{"seed": f["seed"], "strict before": f["start"]["pass@1"],
             "lenient before": f["start"]["lenient"], "strict after yes": f["yes"]["pass@1"],
             "strict after no": f["no"]["pass@1"]} for f in found]
    said = "; ".join(f"seed {r['seed']}: strict {r['strict before']:.1%} and lenient "
                     f"{r['lenient before']:.1%} before, strict {r['strict after yes']:.1%} after one yes, "
                     f"{r['strict after no']:.1%} after a no" for r in rows)
    return [bar("from nothing: right answers in a form that is not paid, a default run with one yes to the "
                "look (embedded model trained away from the form)",
                "final strict pass@1 >= initial lenient in 3 of 3 seeds",
                f"{sum(learned)} of {len(learned)}; {said}",
                all(learned) and len(learned) >= 3)], {"From nothing": rows}


# planted and healthy

def spoiled(folder: Path, change=lambda weights: None, **tokenizer: str) -> Path:
    """A copy of tiny-chat with other weights, or another template."""
    from safetensors.torch import load_file, save_file
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(find_model("tiny-chat"), folder)
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | tokenizer))
    return folder


def certain(weights: dict) -> None:
    """The last norm thirty times as large: every token is the likeliest one."""
    name = next(name for name in weights if name.endswith("norm.weight") and "layers" not in name)
    weights[name] *= 30


def endless(weights: dict) -> None:
    """The stop token's row turned round: it is never sampled."""
    from postgrad.models.chat import Chat
    name = next(name for name in weights if "embed" in name)
    weights[name][Chat.load(find_model("tiny-chat")).stop[0]] *= -1


IMPOSSIBLE = '''prompts = [{"question": f"What is {n}37 times {n}91?",
            "answer": str((n * 100 + 37) * (n * 100 + 91))} for n in range(11, 99)]
def verify(prompt, completion): return prompt.answer in completion
'''
SOLVED = '''prompts = [{"question": f"Say something about {n}.", "answer": ""} for n in range(100)]
def verify(prompt, completion): return 1.0
'''
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}")
UNOPENED = "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"


def planted(folder: Path) -> dict[str, tuple[str, list[str]]]:
    """name of the run -> (what must be named, the words of its command)."""
    (folder / "impossible.py").write_text(IMPOSSIBLE)
    (folder / "solved.py").write_text(SOLVED)
    words = load_task("words").prompts("train", 300, 5)
    rows = [{"question": p.question, "answer": p.answer} for p in words]
    for name, part in (("few", rows[:80]), ("many", rows)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    away = trained_away(folder / "away", 7)
    return {
        "short limit": ("cut replies", ["grpo:words", "rollouts.max_new_tokens=12"]),
        "no end": ("cut replies", ["grpo:arithmetic", f"model={spoiled(folder / 'endless', endless)}"]),
        "too hard": ("flat groups", ["grpo", f"task={folder / 'impossible.py'}"]),
        "unpaid form": ("form is not paid", ["grpo:words", f"model={away}"]),
        "all solved": ("no headroom", ["grpo", f"task={folder / 'solved.py'}"]),
        "certain model": ("no headroom", ["grpo:words", f"model={spoiled(folder / 'certain', certain)}"]),
        "evaluated on train": ("leaked split", ["grpo", f"task={folder / 'many.jsonl'}",
                                                "evaluation.split=train"]),
        "nothing held out": ("leaked split", ["grpo", f"task={folder / 'few.jsonl'}",
                                              "evaluation.holdout_prompts=0"]),
        "another model's template": ("wrong template", ["grpo:words", "model=" + str(
            spoiled(folder / "chatml", chat_template=CHATML))]),
        "no generation prompt": ("wrong template", ["grpo:words", "model=" + str(
            spoiled(folder / "unopened", chat_template=UNOPENED))]),
    }


HEALTHY = (["grpo:words"], ["grpo:arithmetic"], ["grpo:countdown"], ["grpo:hard"], ["grpo:questions"],
           ["ppo:words"], ["dapo:arithmetic"], ["grpo:words", "model=tiny-zero"], ["grpo:big-numbers"],
           ["rloo:words", "lora=8"])


def probes(folder: Path, seed: str = "48") -> tuple[Bars, Tables]:
    rows, named, accused = [], 0, 0
    for name, (wanted, words) in planted(folder).items():
        seen = looked(*words, f"seed={seed}")
        found = [c.name for c in seen.concerns]
        named += wanted in found
        rows.append({"run": name, "planted": wanted, "named": ", ".join(found) or "nothing",
                     "seconds": round(seen.seconds, 2)})
    for words in HEALTHY:
        seen = looked(*words, f"seed={seed}")
        accused += bool(seen.concerns)
        rows.append({"run": " ".join(words), "planted": "", "seconds": round(seen.seconds, 2),
                     "named": ", ".join(c.name for c in seen.concerns) or "nothing"})
    cost = once(folder / "cost.json", probe_cost, folder, seed)
    return [bar("probes: planted conditions named before step 1 (cut replies, flat groups, unpaid form, no "
                "headroom, leaked split, wrong template)", "10 of 10",
                f"{named} of 10 (the limit of no headroom was chosen on seeds 45 and 46; "
                "before it, seed 45 had 9)",
                named == 10),
            bar("probes: healthy runs unaccused", "10 of 10", f"{10 - accused} of 10", not accused),
            bar("probes: their share of a default run (grpo:words on one core)", "<= 3 %",
                f"{cost['look'] / cost['run']:.2%} ({cost['look']:.2f} of {cost['run']:.1f} s)",
                cost["look"] <= 0.03 * cost["run"])], {"Looks": rows}


def probe_cost(folder: Path, seed: str) -> dict[str, float]:
    """Seconds of a default run, and of the look in it."""
    shutil.rmtree(folder / "cost", ignore_errors=True)
    torch.set_num_threads(1)
    began = time.perf_counter()
    config = config_from_text("grpo:words", [f"seed={seed}"])[1]
    assert isinstance(config, RunConfig)
    start_run(config, folder / "cost")
    return {"run": time.perf_counter() - began, "look": Run.open(folder / "cost").info["look"]["seconds"]}
