"""Several turns on one device: rows that stay in their slots, of which only what was added is computed,
against rows that are read anew at every turn.

    python bench/turns.py [device=cuda] [shape=135M] [rows=256] [turns=4] [prompt=256] [shown=32] [new=48]

One line of JSON: seconds of a game of all rows either way (median of three after a first), their ratio, and
how far the log-probs of the last turn are from the trainer's, at most.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("bench", "proofs", "tools"))]

import torch  # noqa: E402
from parity import mismatch  # noqa: E402
from shapes import SHAPES, write_model  # noqa: E402

from postgrad.chat import Chat  # noqa: E402
from postgrad.loop import OptimSettings, compute_in  # noqa: E402
from postgrad.models import Models, load_model  # noqa: E402
from postgrad.models.engine import Engine  # noqa: E402
from postgrad.sampler import LocalSampler, Sampling  # noqa: E402

DEFAULTS = {"device": "cuda", "shape": "135M", "rows": 256, "turns": 4, "prompt": 256, "shown": 32, "new": 48}


def play(sampler: LocalSampler, given: SimpleNamespace, number: int) -> list:
    """A game; -> the contexts of the last turn with what was written after them."""
    words = random.Random(number)

    def some(count: int) -> list[int]:
        return [words.randrange(8, 500) for _ in range(count)]

    contexts, after = [some(given.prompt) for _ in range(given.rows)], []
    for turn in range(given.turns):
        seeds = [1000 * number + 100 * turn + row for row in range(given.rows)]
        after = sampler.reply(contexts, seeds, Sampling(max_new_tokens=given.new), after)
        played = [SimpleNamespace(prompt_tokens=context, tokens=row.tokens, logp=row.logp)
                  for context, row in zip(contexts, after, strict=True)]
        contexts = [[*row.prompt_tokens, *row.tokens, *some(given.shown)] for row in played]
    return played


def measure(model, chat: Chat, given: SimpleNamespace) -> dict:
    sampler, seconds = LocalSampler(model, chat), []
    for number in range(4):
        began = time.perf_counter()
        played = play(sampler, given, number)
        if given.device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return {"first": seconds[0], "seconds": statistics.median(seconds[1:]), "read anew": sampler.anew,
            "from the trainer's": mismatch(model, played[:64])}


def main(words: list[str]) -> None:
    said = dict(word.split("=", 1) for word in words)
    given = SimpleNamespace(**{key: type(value)(said.get(key, value)) for key, value in DEFAULTS.items()})
    with tempfile.TemporaryDirectory() as place:
        folder = write_model(Path(place) / "model", SHAPES[given.shape], 0.02)
        model, chat = load_model(folder, device=given.device), Chat.load(folder)
    compute_in(Models(policy=model), OptimSettings(lr=1.0))
    kept = measure(model, chat, given)
    Engine.appends = False
    anew = measure(model, chat, given)
    print(json.dumps({**vars(given), "kept": kept, "anew": anew,
                      "ratio": anew["seconds"] / kept["seconds"]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
