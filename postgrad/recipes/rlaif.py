"""RLAIF: replies of a model, critiqued, revised and compared by a constitution, as data for SFT, DPO and
reward models.

    sample -> critique -> revise   revisions.jsonl   postgrad train sft data=...   (SL-CAI, Bai et al. 2022)
    sample -> compare in pairs     pairs.jsonl       postgrad train dpo data=...   (RL-CAI; RLAIF, Lee et al.
                                                                                    2023)

Left out on purpose: chain-of-thought before the judgement, and soft labels (a row keeps its confidence,
training takes the side). The rules that ship do not judge whether a reply is right: that needs the gold
answer.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from postgrad.data.tasks import load_task
from postgrad.evaluation import BLOCK
from postgrad.evaluation.progress import Progress, track_replies
from postgrad.maths.noise import seed_of
from postgrad.recipes.defaults import reply_sampling
from postgrad.records import Prompt, Rollout
from postgrad.resolve.models import open_writer
from postgrad.rewards.constitution import SHIPPED, Constitution, read_constitution
from postgrad.rewards.judges import PreferenceJudge, PromptedJudge, RuleJudge
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.files import atomic_folder, read_text
from postgrad.system.options import RULES, RLAIFConfig
from postgrad.system.settings import settings_to_json

Rows = list[dict[str, Any]]
Counts = dict[str, float]
Groups = Sequence[Sequence[Rollout]]  # of rollouts to one prompt


def run_rlaif(config: RLAIFConfig, folder: Path, *, track: Progress = iter) -> dict[str, object]:
    """Writes revisions.jsonl, pairs.jsonl, summary.json and the constitution into an empty folder;
    -> the summary."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there and is not an empty folder: give another one with --out, "
                         "or move it away.")
    task, constitution = load_task(config.task), read_constitution(config.constitution)
    model, chat = open_writer(config.model, config.device)
    settings = reply_sampling(task, model, config.max_new_tokens, config.temperature)
    config = replace(config, max_new_tokens=settings.max_new_tokens)
    judge = open_preference_judge(config, constitution, settings)
    sampler, prompts = LocalSampler(model, chat), task.prompts("train", config.prompts, config.seed)
    sampler.check(prompts, settings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be made ({error}): choose a place you can write to.") from error
    revisions: Rows = []
    pairs: Rows = []
    counts: Counts = defaultdict(int)
    asked = [judge.sampler] if isinstance(judge, PromptedJudge) else []  # a critique and a revision each
    with track_replies(track, len(prompts) * config.samples * (1 + 2 * len(asked)), sampler, *asked):
        for block in [prompts[i: i + BLOCK] for i in range(0, len(prompts), BLOCK)]:
            groups = sampler.sample(block, config.samples, settings, config.seed)
            counts["unfinished"] += sum(not r.finished for group in groups for r in group)
            revisions += revise_replies(judge, groups, config.seed, counts)
            pairs += compare_replies(judge, groups, config.seed, counts)
    summary = rlaif_summary(config, constitution, revisions, pairs, counts) | {"prompts": len(prompts)}
    with atomic_folder(folder) as place:
        (place / "constitution.toml").write_text(read_text(config.constitution or SHIPPED), encoding="utf-8")
        for name, rows in (("revisions", revisions), ("pairs", pairs)):
            (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows),
                                                 encoding="utf-8")
        (place / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def open_preference_judge(config: RLAIFConfig, constitution: Constitution,
                          settings: Sampling) -> PreferenceJudge:
    if config.judge == RULES:
        return RuleJudge(constitution)
    model, chat = open_writer(config.judge, config.device)
    return PromptedJudge(model, chat, LocalSampler(model, chat), constitution, settings, device=config.device)


def revise_replies(judge: PreferenceJudge, groups: Groups, seed: int, counts: Counts) -> Rows:
    """Rows for SFT: every reply, critiqued and revised. Replies without text, before or after, are counted
    and left out."""
    replies = [(r.prompt, r.text) for group in groups for r in group if r.text.strip()]
    counts["empty"] += sum(map(len, groups)) - len(replies)
    rows: Rows = []
    for (prompt, before), revision in zip(replies, judge.revise(replies, seed_of(seed, "revise")),
                                          strict=True):
        counts["revised"] += revision.text != before
        if not revision.text.strip():
            counts["emptied"] += 1
            continue
        messages = [*map(dict, prompt.messages), {"role": "assistant", "content": revision.text}]
        rows.append({"id": f"{prompt.id}#{len(rows)}", "messages": messages, "critique": revision.critique,
                     "rules": revision.rules, "before": before})
    return rows


def compare_replies(judge: PreferenceJudge, groups: Groups, seed: int, counts: Counts) -> Rows:
    """Rows for DPO and reward models: all pairs of different replies to a prompt. Ties, equal texts and
    repeats are counted and left out."""
    asks: dict[tuple[str, frozenset[str]], tuple[Prompt, str, str]] = {}
    for group in groups:
        texts = [r.text for r in group if r.text.strip()]
        for a, b in combinations(texts, 2):
            key = group[0].prompt.id, frozenset((a, b))
            kind = "identical" if a == b else "repeated" if key in asks else "judged"
            counts[kind] += 1
            if kind == "judged":
                asks[key] = group[0].prompt, a, b
    rows: Rows = []
    for (prompt, a, b), opinion in zip(
            asks.values(), judge.compare(list(asks.values()), seed_of(seed, "compare")), strict=True):
        counts["first shown"] += opinion.position
        if opinion.first == 0.5:
            counts["ties"] += 1
            continue
        sides = (a, b) if opinion.first > 0.5 else (b, a)
        rows.append({"id": f"{prompt.id}#{len(rows)}", **pair_row(prompt, *sides), "rules": opinion.rules,
                     "why": opinion.why, "confidence": max(opinion.first, 1 - opinion.first)})
    return rows


def pair_row(prompt: Prompt, chosen: str, rejected: str) -> dict[str, object]:
    """As texts where the prompt is one question, else as messages."""
    if [m["role"] for m in prompt.messages] == ["user"]:
        return {"prompt": prompt.question, "chosen": chosen, "rejected": rejected}
    sides = {name: [{"role": "assistant", "content": text}]
             for name, text in (("chosen", chosen), ("rejected", rejected))}
    return {"prompt": [*map(dict, prompt.messages)], **sides}


def rlaif_summary(config: RLAIFConfig, constitution: Constitution, revisions: Rows, pairs: Rows,
                  counts: Counts) -> dict[str, object]:
    """Counts, and how often each rule was broken before and after the revision and decided a pair."""
    before = [constitution.broken(row["before"]) for row in revisions]
    after = [constitution.broken(row["messages"][-1]["content"]) for row in revisions]
    decided = Counter(name for row in pairs for name in row["rules"])
    rules = [{"rule": r.name, "broken before": sum(r.name in b for b in before) if r.check else None,
              "after": sum(r.name in b for b in after) if r.check else None, "pairs decided": decided[r.name]}
             for r in constitution.rules]
    changed = next((row for row in revisions if row["messages"][-1]["content"] != row["before"]), None)
    out = {**settings_to_json(config), "rules": rules, "revisions": len(revisions),
           "keep all rules before": sum(not b for b in before),
           "keep all rules after": sum(not b for b in after),
           **{name: counts[name] for name in ("revised", "empty", "emptied", "unfinished")},
           "pairs": len(pairs), **{name: counts[name] for name in ("ties", "identical", "repeated")},
           "reply shown first preferred": counts["first shown"] / counts["judged"] if counts["judged"]
                                          else None}
    if changed:
        out["example"] = {"question": changed["messages"][-2]["content"], "before": changed["before"],
                          "critique": changed["critique"], "after": changed["messages"][-1]["content"]}
    return out
