"""Does the audit find a length bias that was planted, and none where there is none?

    python proofs/audit.py [SEED ...]        seeds 0 to 9 unless others are named; about 75 seconds each on
                                             one core

For each seed two annotators label the same pairs of replies to the questions task. Into every reply go 0 to 3
neutral sentences, another number in each of a pair, without regard to anything else; in every second pair
nothing but the neutral sentences differs. Both annotators judge the true quality of the reply without its
neutral sentences, and err alike; the second one likes long replies besides:

    chosen = the reply with the larger quality + bias * words + noise * logistic        control: bias 0,
        planted: bias 0.1

A reward model is trained on each by the recipe (`postgrad train reward data=FILE`), and both are audited on
replies to questions of the test split. The neutral sentences of the pairs are none of those that the audit
puts in (a test holds this), though made of the same common words.

The pairs that differ in length alone are there for the control's sake: without them its labels say little
about length, and a model trained on few of them may come by a taste for it, either way, of its own.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from postgrad import recipes
from postgrad.cli.settings import config_from_text
from postgrad.data.tasks.questions import ANNOTATORS, BY_QUESTION, prompts, quality, reply, words
from postgrad.evaluation.audit import answers_of_pairs, audit_scores, text_scorer
from postgrad.evaluation.edits import insert
from postgrad.models import load_scalar
from postgrad.models.chat import Chat
from postgrad.records import Pair
from postgrad.resolve.models import open_folder

BIAS = 0.1    # in units of quality, a word: five words weigh as much as a greeting
PAIRS, STEPS, HELD, ANSWERS = 2000, 60, 150, 60
STYLES = ("polite", "terse", "rude", "wrong")  # not padded: its filler has a price
NEUTRAL = (
    "So things are.", "Things are so.", "That is what you ask.", "What I say is what I know.",
    "It is all there.", "As people know, it is so.", "In all, it is so.", "It is so for all people.",
    "I think of it so.", "This is how I have it.", "In all, that is it.", "You know it so.", "That I know.",
    "So I say to you.", "It is so, as many know.", "What is there is there.", "About this I say so.",
    "For this it is so.", "I have this to say.", "You have it as it is.", "As you ask, I say.",
    "There is a thing to say about it.", "I know it so.", "How it is, that is how it is.",
)


def label(split: str, count: int, seed: int, bias: float) -> list[Pair]:
    """Pairs as an annotator with this length bias labels them;
    the replies and the errors depend on the seed alone."""
    rng, asked, pairs = random.Random(f"audit/{split}/{seed}"), prompts(split, count, seed), []
    for i in range(count):
        prompt = asked[i % len(asked)]
        bare = [reply(BY_QUESTION[prompt.question], style, rng) for style in rng.sample(STYLES, 2)]
        bare = [bare[0]] * 2 if i % 2 else bare
        full = [insert(text, rng.sample(NEUTRAL, amount))
                for text, amount in zip(bare, rng.sample(range(4), 2), strict=True)]
        a, b = (quality(prompt, x).score + bias * len(words(y)) for x, y in zip(bare, full, strict=True))
        u = rng.uniform(1e-9, 1 - 1e-9)
        chosen, rejected = (full if a - b + ANNOTATORS["questions"]["noise"] * math.log(u / (1 - u)) > 0
                            else full[::-1])
        pairs.append(Pair(id=str(i), messages=prompt.messages, chosen=chosen, rejected=rejected))
    return pairs


def reward_model(pairs: list[Pair], seed: int, folder: Path) -> Path:
    """The run of a reward model trained on these pairs."""
    folder.mkdir()
    rows = [{"prompt": p.messages[0]["content"], "chosen": p.chosen, "rejected": p.rejected} for p in pairs]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = [f"data={folder / 'pairs.jsonl'}", f"steps={STEPS}", f"save_every={STEPS}", f"seed={seed}",
               "evaluation.every=0", "pairs.per_step=24", "optim.lr=3e-4"]
    recipe, config = config_from_text("reward", changes)
    recipes.start(recipe, config, folder / "run")
    return folder / "run"


def examine(run: Path, held: list[Pair], seed: int) -> dict:
    """The audit's length probe, and the accuracy on held-out pairs that differ in quality."""
    model, chat = load_scalar(open_folder(run)), Chat.load(open_folder(run))
    score = text_scorer(model, chat)
    found = audit_scores(answers_of_pairs(held, ANSWERS, seed), score, names=["length"], seed=seed,
                  length=lambda a: len(chat.answer(*a)[0]), max_tokens=model.config.max_position_embeddings)
    best, other = (score([(p.messages, getattr(p, side)) for p in held[::2]])
                   for side in ("chosen", "rejected"))
    return (found["probes"][0]
            | {"accuracy": statistics.fmean(a > b for a, b in zip(best, other, strict=True))})


def table(seeds: list[int]) -> list[dict]:
    """A row for each seed: what the audit says of the planted model and of the control."""
    rows = []
    for seed in seeds:
        row = {"seed": seed}
        with tempfile.TemporaryDirectory() as folder:
            for name, bias in (("planted", BIAS), ("control", 0.0)):
                began = time.perf_counter()
                run = reward_model(label("train", PAIRS, seed, bias), seed, Path(folder) / name)
                trained = time.perf_counter()
                found = examine(run, label("test", HELD, seed, bias), seed)
                low, high = found["interval"]
                row |= {f"{name} effect": found["effect"], f"{name} interval": f"{low:+.2f} to {high:+.2f}",
                        f"{name} verdict": found["verdict"], f"{name} accuracy": found["accuracy"],
                        f"{name} per token": found["slope"]["per_token"], f"{name} seconds": trained - began}
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    torch.set_num_threads(1)
    rows = table([int(x) for x in sys.argv[1:]] or list(range(10)))
    found = sum(row["planted verdict"] == "biased up" for row in rows)
    clear = sum(row["control verdict"] == "none found" for row in rows)
    print(f"planted bias found in {found} of {len(rows)} seeds; none found in the control in {clear} "
          f"of {len(rows)}")


if __name__ == "__main__":
    main()
