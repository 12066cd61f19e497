"""What a base can do before any training: of each part of words+words-es+countdown pass@1 and pass@8 with
intervals, the share in form, how its replies look back, which languages they mix, how long they are.

    python proofs/base_rates.py tiny-zero [MODEL ...] [--problems 200] [--samples 8] [--task T] [--out F.json]
"""

import argparse
import json
from pathlib import Path

from postgrad.data.tasks import Task, load_task, reflection
from postgrad.evaluation import evaluate_task
from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.sampling import LocalSampler, Sampling

TASK = "words+words-es+countdown"
SHOWN = ("pass@1", "pass@8", "format", "mean_length", "finished", "turn_back", "restart", "recheck", "worded",
         "wrong_language", "mixed_languages", "after_right")


def rates(name: str, task: Task, problems: int, samples: int, seed: int = 0) -> dict:
    """A row of figures of a model on a task, sampled at temperature 1."""
    folder = find_model(name)
    chat = Chat.load(folder)
    sampler = LocalSampler(load_model(folder), chat)
    return evaluate_task(task, sampler, task.prompts("test", problems, seed), samples=samples,
                    settings=Sampling(max_new_tokens=128), seed=seed, greedy=False,
                    measures=reflection.measures(task, chat.places))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("models", nargs="+")
    asked.add_argument("--task", default=TASK)
    asked.add_argument("--problems", type=int, default=200)
    asked.add_argument("--samples", type=int, default=8)
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    found = {}
    for name in given.models:
        found[name] = {part: rates(name, load_task(part), given.problems, given.samples)
                       for part in given.task.split("+")}
        for part, row in found[name].items():
            print(f"{name} {part}: " + ", ".join(f"{key} {row[key]:.3g}" for key in SHOWN if key in row),
                  flush=True)
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
