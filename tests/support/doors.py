"""What the tests of the Python door share: settings that make any run small, rewards and rows to hand in."""

import postgrad as pg
from postgrad.system.throughput import repeatable

TALK = {"evaluation": {"every": 0}, "display": False, "steps": 2, "save_every": 2}
SMALL = {**TALK, "prompts_per_step": 2, "group_size": 2, "rollouts": {"max_new_tokens": 8}}
QUESTIONS = [f"Say {n}." for n in range(12)]
PAIRS = [{"prompt": f"Say {n}.", "chosen": f"{n}, gladly.", "rejected": f"No {n}."} for n in range(24)]
TALKS = [{"prompt": f"Say {n}.", "completion": f"I say {n}."} for n in range(12)]
LABELLED = [{"prompt": f"Say {n}.", "completion": f"{n}", "label": n % 2 == 0} for n in range(12)]


def letters(prompt, text):
    """More letters, more score: any two replies differ."""
    return min(sum(c.isalpha() for c in text) / 50, 0.99)


def long(completions, **columns):
    """A reward as TRL's users write them."""
    return [len(said[0]["content"]) / 100 for said in completions]


def fit(folder, method="grpo", name="run", model="tiny-chat", **more):
    """A small run in a folder."""
    small = SMALL if pg.method(method).source.startswith("rollouts") else TALK
    return pg.fit(model, method, run=folder / name, **small | more)


def facts(run):
    """The rows of a run without its clock."""
    return [repeatable(row) for row in run.metrics()]
