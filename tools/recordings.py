"""What the studio's instruments show of real models, recorded: the three stages' answers and figures, a group
of samples of one problem, and pairs of answers to label. Every text was written by a model of this package
and judged by its task's own verifier.

    python tools/recordings.py FOLDER       trains the RL stage in FOLDER, writes
                                            postgrad/models/embedded/recordings; 6 minutes on
                                            one core

base is `tiny`, SFT is `tiny-chat`, RL is `postgrad train grpo:words` from there.
"""

from __future__ import annotations

import json
import sys
from itertools import combinations
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
OUT = HERE / "postgrad" / "models" / "embedded" / "recordings"
RL = "postgrad train grpo:words evaluation.every=0"
SHOWN = {"words": 6, "questions": 4}     # prompts whose answers are kept
PROBLEMS, SAMPLES, KEPT = 200, 8, 4      # what is measured on; how many of the samples are kept as text
GROUP, TO_LABEL, UNSEEN = 32, 40, 200


def stages(folder: Path) -> list[dict]:
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes.launch import start_training
    _, config = config_from_text("grpo:words", RL.split()[3:])
    if not (folder / "rl").exists():
        start_training("rollouts", config, folder / "rl", command=RL)
    origin = {name: json.loads((HERE / "postgrad" / "models" / "embedded" / name / "origin.json").read_text())
              for name in ("tiny", "tiny-chat")}
    return [{"name": "base", "model": "tiny", "made_by": origin["tiny"]["made_by"]},
            {"name": "sft", "model": "tiny-chat", "made_by": origin["tiny-chat"]["made_by"]},
            {"name": "rl", "model": str(folder / "rl"), "made_by": RL}]


def said(task, scored) -> dict:
    from postgrad.evaluation import passed
    right = scored.verdict.parts["correct"] > 0 if task.name == "questions" else passed(task, scored)
    return {"text": scored.rollout.text, "right": bool(right), "score": round(scored.verdict.score, 3),
            "reason": scored.verdict.reason}


def measured(task, groups) -> dict:
    """Counts by problem, so that whoever reads them can take means and intervals over problems."""
    rows = [s for group in groups for s in group]
    def count(holds):
        return [sum(bool(holds(s)) for s in group) for group in groups]
    found = {"problems": len(groups), "samples": len(groups[0]),
             "right": count(lambda s: said(task, s)["right"]),
             "mean_length": round(sum(len(s.rollout.tokens) for s in rows) / len(rows), 2)}
    if task.name == "questions":
        return found | {"kind": count(lambda s: s.verdict.parts["rude"] == 0)}
    return found | {"formed": count(lambda s: s.verdict.parts["format"] == 1)}


def pipeline(folder: Path) -> dict:
    from postgrad.data.tasks import load_task
    from postgrad.evaluation import score_samples
    from postgrad.resolve.models import open_model
    from postgrad.sampling import LocalSampler, Sampling
    tasks = [load_task(name) for name in SHOWN]
    shown, out = [], []
    for task in tasks:
        shown += [{"task": task.name, "question": p.question, "gold": str(p.answer), "answers": {}}
                  for p in task.prompts("test", SHOWN[task.name], 0)]
    for stage in stages(folder):
        model, chat = open_model(stage["model"])
        sampler, figures = LocalSampler(model, chat), {}
        for task in tasks:
            prompts = task.prompts("test", PROBLEMS, 0)
            groups = score_samples(task, sampler, prompts, SAMPLES, Sampling(max_new_tokens=64), 0)
            plain = score_samples(task, sampler, prompts, 1, Sampling(max_new_tokens=64, temperature=0.0), 0)
            figures[task.name] = (measured(task, groups)
                                  | {"greedy": [int(said(task, s)["right"]) for (s,) in plain]})
            kept = {p.question: [said(task, s) for s in (plain[i][0], *groups[i][:KEPT])]
                    for i, p in enumerate(prompts)}
            for row in shown:
                if row["task"] == task.name:
                    row["answers"][stage["name"]] = kept[row["question"]]
        out.append({k: v for k, v in stage.items() if k != "model"} | {"measured": figures})
        print(stage["name"],
              {t: {k: v for k, v in f.items() if not isinstance(v, list)} for t, f in figures.items()})
    return {"made by": "python tools/recordings.py FOLDER", "stages": out, "prompts": shown}


def distinct(rollouts, count: int):
    """The first so many that differ in their text."""
    return list({r.text: r for r in rollouts}.values())[:count]


def group() -> dict:
    """32 different completions of tiny-chat for one problem, as sampled,
    of which the first four are not all alike."""
    from postgrad.data.tasks import load_task
    from postgrad.resolve.models import open_model
    from postgrad.sampling import LocalSampler, Sampling
    task, sampler = load_task("words"), LocalSampler(*open_model("tiny-chat"))
    for prompt in task.prompts("test", 100, 0):
        (sampled,) = sampler.sample([prompt], 256, Sampling(max_new_tokens=64), 0)
        kept = distinct(sampled, GROUP)
        scores = [task.verify(prompt, r.text).score for r in kept]
        if len(kept) == GROUP and sum(scores[:4]) == 1 and sum(scores[:8]) == 3:
            return {"made by": "python tools/recordings.py FOLDER", "model": "tiny-chat",
                    "question": prompt.question, "gold": str(prompt.answer), "drawn": len(sampled),
                    "completions": [
                        {"text": r.text, "score": s} for r, s in zip(kept, scores, strict=True)]}
    raise ValueError("no problem among 100 has 32 different completions of which one of the first "
                     "four is right.")


def pairs() -> dict:
    """Two different answers of tiny-chat to a question, with the true quality of each:
    to label, and of other questions."""
    from postgrad.data.tasks import load_task
    from postgrad.resolve.models import open_model
    from postgrad.sampling import LocalSampler, Sampling
    task, sampler = load_task("questions"), LocalSampler(*open_model("tiny-chat"))

    def drawn(splits, count, each):
        prompts = [p for split in splits for p in task.prompts(split, count, 0)]
        found = []
        for prompt, rollouts in zip(prompts, sampler.sample(prompts, 8, Sampling(max_new_tokens=64), 0),
                                    strict=True):
            left = [(r.text, task.verify(prompt, r.text).score)
                    for r in distinct([r for r in rollouts if r.finished], 8)]
            for _ in range(each):
                two = next(((a, b) for a, b in combinations(left, 2) if a[1] != b[1]), None)
                if two is None:
                    break
                left = [a for a in left if a not in two]
                found.append({"question": prompt.question, "answers": [a for a, _ in two],
                              "quality": [round(q, 3) for _, q in two]})
        return found[:count]

    return {"made by": "python tools/recordings.py FOLDER", "model": "tiny-chat",
            "to_label": drawn(["train"], TO_LABEL, 1), "unseen": drawn(["validation", "test"], UNSEEN, 4)}


def features() -> None:
    """What tiny-chat makes of every answer of the pairs: it stands still,
    so a reader need not wait for it."""
    import torch
    from safetensors.torch import save_file

    from postgrad.studio.label.reward_head import answer_features as made_of
    data = json.loads((OUT / "pairs.json").read_text())
    rows = {name: [(p["question"], answer) for p in data[name] for answer in p["answers"]]
            for name in ("to_label", "unseen")}
    save_file({name: made_of(answers).view(len(answers) // 2, 2, -1).to(torch.float16)
               for name, answers in rows.items()}, OUT / "features.safetensors")


def main() -> None:
    folder = Path(sys.argv[1])
    OUT.mkdir(parents=True, exist_ok=True)
    made_by = {"pairs": pairs, "group": group, "pipeline": lambda: pipeline(folder)}
    for name, made in made_by.items():
        (OUT / f"{name}.json").write_text(json.dumps(made(), indent=1, ensure_ascii=False) + "\n")
        print("wrote", name)
    features()


if __name__ == "__main__":
    main()
