"""Audits a reward model, by its name, for biases (evaluation/audit.py)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from postgrad.data.preferences import read_pairs
from postgrad.data.tasks import load_task
from postgrad.evaluation.audit import SPLIT, answers_of_pairs, answers_of_task, audit_scores, text_scorer
from postgrad.evaluation.edits import draw_probes
from postgrad.evaluation.progress import Progress
from postgrad.resolve.models import open_reward


def audit_reward_model(model: str, *, task: str, pairs: str | None, probes: Sequence[str], count: int,
                       seed: int, device: str, track: Progress = iter) -> dict[str, object]:
    """The audit's figures, with the model and the source of the answers.

    pairs: a JSONL file of preference pairs whose answers are edited, in place of the task's.
    """
    draw_probes(probes, seed)  # refuses unknown names before the model is loaded
    if pairs:
        answers, truth, source = answers_of_pairs(read_pairs(Path(pairs)), count, seed), None, pairs
    else:
        asked = load_task(task)
        (answers, truth), source = answers_of_task(asked, count, seed), f"{asked.name}, {SPLIT} split"
    net, chat = open_reward(model, device)
    if not net.score_head.weight.any():
        raise ValueError(f"{model} is no reward model: it scores all 0; train one with `postgrad "
                         "train reward:...`")
    report = audit_scores(answers, text_scorer(net.requires_grad_(False), chat, device=device, track=track),
                          names=probes, seed=seed, truth=truth,
                          length=lambda answer: len(chat.answer(*answer)[0]),
                          max_tokens=net.config.max_position_embeddings)
    return {"model": model, "source": source, **report}
