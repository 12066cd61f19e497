"""Replies of a model to a task's prompts, as data.

    postgrad pick tiny-chat --task words --keep passing --out good.jsonl        rejection sampling, for `sft`
    postgrad pick tiny-chat --task questions --reward runs/reward --out best.jsonl      best-of-n
    postgrad label make ...                                                     pairs to label, into a store
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from postgrad.data.environments import sampler_for
from postgrad.data.exchange import draw_items
from postgrad.data.store import Store
from postgrad.data.tasks import Task, load_task
from postgrad.evaluation import mean_of, sample_all
from postgrad.evaluation.progress import Progress, track_replies
from postgrad.maths.noise import seed_of
from postgrad.maths.select import ROUNDING, best_of_group, best_of_n_kl, passing
from postgrad.recipes.defaults import reply_sampling
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.records import Rollout, Verdict, require_verdicts
from postgrad.resolve.models import ModelSource, open_folder, open_writer
from postgrad.resolve.rewards import parse_reward
from postgrad.runs.disk import refuse_if_unwritable
from postgrad.sampling import LocalSampler
from postgrad.system.files import write_text
from postgrad.system.options import PickConfig, SampleOptions

NUMBER = re.compile(r"[0-9]+(?:[.][0-9]+)?")


def pick_replies(config: PickConfig, out: Path, *, rates: Path | None = None,
                 track: Progress = iter) -> dict[str, object]:
    """Writes the selected replies, one conversation a line with its score; -> counts, and the KL bound of
    best-of-n. rates: the file for the pass rate of each prompt, for `difficulty`."""
    for file, flag in ((out, "--out"), (rates, "--rates")):
        if file is not None:
            refuse_if_there(file, flag)
    task = load_task(config.task)
    bar = parse_reward(config.reward).best_score(task) if config.threshold is None else config.threshold
    if bar is None and (config.keep == "passing" or rates):
        raise ValueError("a reward model's scores have no natural bar: say which score passes with "
                         "--threshold.")
    rollouts, verdicts = sample_and_score(config, task, track)
    score = torch.tensor([v.score if v.error is None else -torch.inf for v in verdicts])
    good = best_of_group(score, config.samples)
    if config.keep == "passing":
        assert bar is not None
        good = passing(score, config.samples, best=bar, threshold=1.0)
    passed = (good & score.isfinite()).nonzero().squeeze(1).tolist()
    if not passed:
        raise ValueError(f"none of {len(rollouts)} replies scores {bar:g}: lower --threshold, or "
                         "keep the best.")
    selected = distinct_replies(passed, config.samples, config.most,
                                lambda i: reply_key(rollouts[i].text, i, config.distinct))
    write_rows(out, [{"messages": [*map(dict, rollouts[i].prompt.messages),
                                    {"role": "assistant", "content": rollouts[i].text}],
                       "score": verdicts[i].score} for i in selected])
    prompts = [r.prompt for r in rollouts[::config.samples]]
    if rates:
        assert bar is not None
        write_rows(rates, [{"prompt": prompt.id, "rate": rate} for prompt, rate in
                            zip(prompts, pass_rates(verdicts, config.samples, bar), strict=True)
                            if rate is not None])
    sound = [v.score for v in verdicts if v.error is None]
    return {"prompts": len(prompts), "replies": len(rollouts), "passing": len(passed), "kept": len(selected),
            "errors": len(verdicts) - len(sound),
            "prompts without one": len(prompts) - len({i // config.samples for i in selected}),
            "mean score": mean_of(sound), "mean score kept": mean_of(verdicts[i].score for i in selected),
            "KL at most": best_of_n_kl(config.samples) if config.keep == "best" else None, "out": str(out)}


def refuse_if_there(file: Path, flag: str) -> None:
    if file.exists():
        raise ValueError(f"{file} is there already: give another file with {flag}.")
    refuse_if_unwritable(file)


def sample_and_score(config: PickConfig, task: Task, track: Progress) -> tuple[list[Rollout], list[Verdict]]:
    """All replies, those to one prompt in a row, and their verdicts."""
    model, chat = open_writer(config.model, config.device)
    judging = RolloutConfig(task=config.task, model=config.model, reward=config.reward, device=config.device)
    begins = ModelSource(origin=open_folder(config.model), name=config.model)
    spec = parse_reward(config.reward)
    models = spec.load_models(model, chat, judging, begins)
    reward = spec.open(task, chat, models, device=config.device)
    settings = reply_sampling(task, model, config.max_new_tokens, config.temperature)
    sampler = sampler_for(task, LocalSampler(model, chat))
    prompts = task.prompts("train", config.prompts, config.seed)
    sampler.check(prompts, settings)
    groups = sample_all(sampler, prompts, config.samples, settings, seed_of(config.seed, "pick"), track)
    rollouts = [r for group in groups for r in group]
    verdicts = reward.score(rollouts)
    require_verdicts(verdicts)
    return rollouts, verdicts


def reply_key(text: str, number: int, distinct: str) -> object:
    """The key by which replies to a prompt are distinct: place, text, or the numbers in order (the distinct
    reasoning paths of Yuan et al. 2023, arXiv:2308.01825)."""
    if distinct == "any":
        return number
    return " ".join(text.split()) if distinct == "text" else tuple(NUMBER.findall(text.replace(",", "")))


def distinct_replies(passed: Sequence[int], samples: int, most: int | None,
                     key: Callable[[int], object]) -> list[int]:
    """The first reply of each key, and of these the first `most` to each prompt.

    distinct_replies([0, 1, 2, 4], 3, 1, key) -> [0, 4]: replies 0 to 2 answer one prompt, 3 to 5 the next.
    """
    by_prompt: dict[int, dict[object, int]] = {}
    for i in passed:
        by_prompt.setdefault(i // samples, {}).setdefault(key(i), i)
    return [i for replies in by_prompt.values() for i in [*replies.values()][:most]]


def pass_rates(verdicts: Sequence[Verdict], samples: int, bar: float) -> list[float | None]:
    """The share of replies to each prompt that score the bar; None where none has a verdict."""
    sound = [[v.score for v in verdicts[i: i + samples] if v.error is None]
             for i in range(0, len(verdicts), samples)]
    return [mean_of(score >= bar - ROUNDING for score in scores) if scores else None for scores in sound]


def write_rows(file: Path, rows: Sequence[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def make_label_items(options: SampleOptions, store: str, *, prompts: int, split: str,
                     track: Progress = iter) -> dict[str, int]:
    """Puts two answers to each prompt into a store, to label; -> how many prompts were asked, skipped because
    both answers were equal, added, and known before."""
    task = load_task(options.task)
    model, chat = open_writer(options.model, options.device)
    sampler, asked = LocalSampler(model, chat), task.prompts(split, prompts, options.seed)
    settings = reply_sampling(task, model, options.max_new_tokens, options.temperature)
    sampler.check(asked, settings)
    with track_replies(track, 2 * len(asked), sampler):
        items, skipped = draw_items(sampler, asked, settings, options.seed,
                                    f"{options.model} on {task.name}, seed {options.seed}")
    with Store.open(store) as opened:
        added = opened.add(items)
    return {"prompts": len(asked), "skipped": skipped, "added": added["added"], "known": added["known"]}
