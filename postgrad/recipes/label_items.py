"""Items to label: two answers of a model to each of a task's prompts, put into a store."""

from __future__ import annotations

from postgrad.data.exchange import draw_items
from postgrad.data.store import Store
from postgrad.data.tasks import load_task
from postgrad.evaluation.progress import Progress, track_replies
from postgrad.recipes.defaults import reply_tokens_for
from postgrad.resolve.models import open_writer
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.options import SampleOptions


def make_label_items(options: SampleOptions, store: str, *, prompts: int, split: str,
                     track: Progress = iter) -> dict[str, int]:
    """-> how many prompts were asked, skipped because both answers were equal, added, and known before."""
    task = load_task(options.task)
    model, chat = open_writer(options.model, options.device)
    sampler = LocalSampler(model, chat)
    tokens = reply_tokens_for(task, model) if options.max_new_tokens is None else options.max_new_tokens
    settings = Sampling(max_new_tokens=tokens, temperature=options.temperature)
    asked = task.prompts(split, prompts, options.seed)
    sampler.check(asked, settings)
    with track_replies(track, 2 * len(asked), sampler):
        items, skipped = draw_items(sampler, asked, settings, options.seed,
                                    f"{options.model} on {task.name}, seed {options.seed}")
    with Store.open(store) as opened:
        added = opened.add(items)
    return {"prompts": len(asked), "skipped": skipped, "added": added["added"], "known": added["known"]}
