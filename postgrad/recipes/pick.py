"""Best-of-n and rejection sampling to a file: sample, judge,
keep the good replies as conversations that `sft` reads.

    postgrad pick tiny-chat --task words --keep passing --out good.jsonl        what the verifier pays in full
    postgrad pick tiny-chat --task questions --reward runs/reward --out best.jsonl
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import torch

from postgrad.environments import sampler_for
from postgrad.evaluation import mean_of, sample_all
from postgrad.files import write_text
from postgrad.maths.noise import seed_of
from postgrad.maths.select import best_of, best_of_n_kl, passing
from postgrad.opening.models import Beginning, open_folder, open_writer
from postgrad.opening.rewards import best_score, open_judge, reward_models
from postgrad.options import PickConfig
from postgrad.recipes.defaults import tokens_for
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.rewards.base import refuse_all_errors
from postgrad.run.disk import refuse_if_unwritable
from postgrad.sampler import LocalSampler, Sampling, Track
from postgrad.tasks import load_task


def run(config: PickConfig, out: Path, *, track: Track = iter) -> dict:
    """Writes the kept replies, one conversation a line with its score;
    -> counts, and the KL bound of best-of-n."""
    if out.exists():
        raise ValueError(f"{out} is there already: give another file with --out.")
    refuse_if_unwritable(out)
    task = load_task(config.task)
    bar = best_score(config.reward, task) if config.threshold is None else config.threshold
    if config.keep == "passing" and bar is None:
        raise ValueError("a reward model's scores have no natural bar: say which score passes with "
                         "--threshold.")
    model, chat = open_writer(config.model, config.device)
    judging = RolloutConfig(task=config.task, model=config.model, reward=config.reward, device=config.device)
    begins = Beginning(origin=open_folder(config.model), name=config.model)
    rewards = reward_models(config.reward, model, chat, judging, begins)
    judge = open_judge(config.reward, task, chat, rewards, device=config.device)
    tokens = tokens_for(task, model) if config.max_new_tokens is None else config.max_new_tokens
    settings = Sampling(max_new_tokens=tokens, temperature=config.temperature)
    sampler = sampler_for(task, LocalSampler(model, chat))
    prompts = task.prompts("train", config.prompts, config.seed)
    sampler.check(prompts, settings)
    seed = seed_of(config.seed, "pick")
    rollouts = [r for group in sample_all(sampler, prompts, config.samples, settings, seed, track)
                for r in group]
    verdicts = judge(rollouts)
    refuse_all_errors(verdicts)
    score = torch.tensor([v.score if v.error is None else -torch.inf for v in verdicts])
    select = best_of if config.keep == "best" else partial(passing, best=bar, threshold=1.0)
    kept = (select(score, config.samples) & score.isfinite()).nonzero().squeeze(1).tolist()
    if not kept:
        raise ValueError(f"none of {len(rollouts)} replies scores {bar:g}: lower --threshold, or "
                         "keep the best.")
    rows = [{"messages": [*map(dict, rollouts[i].prompt.messages),
                          {"role": "assistant", "content": rollouts[i].text}], "score": verdicts[i].score}
            for i in kept]
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    sound = [v.score for v in verdicts if v.error is None]
    return {"prompts": len(prompts), "replies": len(rollouts), "kept": len(kept),
            "errors": len(verdicts) - len(sound),
            "prompts without one": len(prompts) - len({i // config.samples for i in kept}),
            "mean score": mean_of(sound), "mean score kept": mean_of(row["score"] for row in rows),
            "KL at most": best_of_n_kl(config.samples) if config.keep == "best" else None, "out": str(out)}
