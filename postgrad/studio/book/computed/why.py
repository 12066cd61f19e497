"""The numbers of chapter 1: the recorded stages of the embedded model, an episode taken apart, a checker."""

from __future__ import annotations

import json
import math
from pathlib import Path

from postgrad.studio.json_types import JsonDict

PRODUCT = (23, 17)
SUPPOSED = 0.8  # the share of right demonstrations in a question
DEMONSTRATIONS = 500
SHOWN = 5  # the prompt whose answers are shown: the base model's is an insult
STAGES = {"base": "Pretrained", "sft": "SFT", "rl": "RL"}


def values(repository: Path) -> JsonDict:
    from postgrad.studio.recordings import recording

    data, (a, b), judged = recording("pipeline"), PRODUCT, verdict_table()
    stages = {stage["name"]: stage["measured"] for stage in data["stages"]}
    prompt = data["prompts"][SHOWN]
    return {
        "question": prompt["question"],
        "gold": prompt["gold"],
        "base_answer": prompt["answers"]["base"][0]["text"],
        "one_problem": problem_table(prompt),
        "left": a,
        "right": b,
        "product": a * b,
        "verdicts": judged,
        "replies": len(judged["rows"]),
        **stage_values(stages),
        **demonstration_values(),
        **episode_values(prompt["answers"]["rl"][0]["text"]),
        **gradient_values(repository),
    }


def demonstration_values() -> JsonDict:
    """How many of the demonstrations that SFT imitates end in the right number, by the task's own checker."""
    from postgrad.data.tasks import load_task

    task = load_task("words")
    assert task.verify is not None and task.demonstrations is not None
    asked = task.prompts("train", DEMONSTRATIONS, 0)
    shown = task.demonstrations("train", DEMONSTRATIONS, 0)
    right = [task.verify(prompt, str(talk.messages[-1]["content"])).score >= 1
             for prompt, talk in zip(asked, shown, strict=True)]
    return {"demonstrations": len(right), "demonstrations_right": sum(right) / len(right),
            "supposed_right": SUPPOSED}


def problem_table(prompt: JsonDict) -> JsonDict:
    rows = [
        [title, prompt["answers"][name][0]["text"], prompt["answers"][name][0]["reason"]]
        for name, title in STAGES.items()
    ]
    return {
        "caption": prompt["question"],
        "columns": ["stage", "what it wrote (greedy)", "the checker says"],
        "rows": rows,
    }


def verdict_table() -> JsonDict:
    """The checker of the task `arithmetic` on replies to 23 * 17."""
    from postgrad.data.tasks import load_task
    from postgrad.records import Prompt

    a, b = PRODUCT
    task, prompt = load_task("arithmetic"), Prompt.ask(f"What is {a}*{b}?", str(a * b), expression=f"{a}*{b}")
    replies = [
        f"<think>{a}*{b}={a * b}</think><answer>{a * b}</answer>",
        f"<think></think><answer>{a * b - 10}</answer>",
        f"It is {a * b}.",
    ]
    rows = []
    assert task.verify is not None
    for reply in replies:
        verdict = task.verify(prompt, reply)
        rows.append([reply, f"{verdict.score:g}", verdict.reason])
    return {"caption": f"What is {a} × {b}?", "columns": ["reply", "reward", "reason"], "rows": rows}


def stage_values(stages: JsonDict) -> JsonDict:
    """Shares of right and well-formed replies, and how long they are."""
    from postgrad.maths.intervals import mean_interval
    from postgrad.maths.passk import pass_at_k

    out: dict[str, float | int] = {"tries": stages["base"]["words"]["samples"]}
    for name, found in stages.items():
        for task, key in (("words", "right"), ("questions", "helpful")):
            part = found[task]
            out[f"{name}_{key}"] = sum(part["right"]) / (part["samples"] * part["problems"])
        words = found["words"]
        out[f"{name}_formed"] = sum(words["formed"]) / (words["samples"] * words["problems"])
        out[f"{name}_length"] = words["mean_length"]
        solved = [pass_at_k(words["samples"], right, words["samples"]) for right in words["right"]]
        out[f"{name}_pass8"] = sum(solved) / len(solved)
    questions = stages["rl"]["questions"]
    shares = [right / questions["samples"] for right in questions["right"]]
    _, out["helpful_low"], out["helpful_high"] = mean_interval(shares, (0.0, 1.0))
    out["base_tries"] = 1 / out["base_right"]
    return out


def episode_values(reply: str) -> JsonDict:
    """One recorded reply as an episode: its tokens, the size of the space it lies in, its advantages."""
    import torch

    from postgrad.maths.credit import gae, group_zscore, place_reward
    from postgrad.resolve.models import open_named_model

    chat = open_named_model("tiny-chat").chat
    tokens = len(chat.encode(reply)) + 1  # with the stop token
    mask = torch.ones(1, tokens, dtype=torch.bool)
    reward = place_reward(torch.ones(1), mask)
    adv = gae(reward, mask, 1, value=torch.zeros(1, tokens), gamma=1.0, lam=1.0)[0]
    flat = group_zscore(torch.zeros(4, 1), torch.ones(4, 1, dtype=torch.bool), 4)
    return {
        "bandit_steps": 1,
        "reply_tokens": tokens,
        "steps_with_prompt": 2,
        "vocabulary": chat.vocab_size,
        "answers_log10": tokens * math.log10(chat.vocab_size),
        "first_advantage": adv[0].item(),
        "last_advantage": adv[-1].item(),
        "flat_advantage": flat.abs().max().item(),
    }


def gradient_values(repository: Path) -> JsonDict:
    """Noise and bias of two rows by enumeration (tests/support/bias.py)."""
    kept = json.loads((repository / "postgrad/studio/book/bias.json").read_text())
    return {
        "noise_reinforce": kept["reinforce"]["noise"],
        "noise_rloo": kept["rloo"]["noise"],
        "bias_rloo": kept["rloo"]["bias"],
    }
