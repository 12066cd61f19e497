"""The defaults that fit the model, on a GPU: what is chosen at 2M, 135M and 1.4B parameters, in a short run.

    python proofs/defaults_gpu.py          one line of JSON for each size; random weights, two GRPO steps each
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "bench")]

import torch  # noqa: E402
from shapes import SHAPES, new_chat, shape  # noqa: E402

import postgrad as pg  # noqa: E402
from postgrad.models import Decoder, save_model  # noqa: E402


def chosen(run: pg.Run) -> dict:
    optim = run.config["optim"]
    return {"lr": optim["lr"], "lora": optim["adapter"]["lora"], "tokens_per_pass": optim["tokens_per_pass"],
            "max_new_tokens": run.config["rollouts"]["max_new_tokens"]}


def tried(name: str, model: str, prompts: list[str], folder: Path) -> dict:
    run = pg.fit(model, "grpo", task=prompts, reward=lambda prompt, text: len(text) % 7 / 7, steps=2,
                 device="cuda", prompts_per_step=4, group_size=4, evaluation={"every": 0}, save_every=2,
                 watch=None, run=folder / f"run-{name}", compile=False)
    return {"size": name, **chosen(run), "peak GiB": torch.cuda.max_memory_allocated() / 2**30,
            "mismatch": run.metrics()[-1]["mismatch"]}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(json.dumps(tried("tiny-chat", "tiny-chat", [f"What is {a}+2?" for a in range(20)], folder)),
              flush=True)
        larger = {"135M": SHAPES["135M"], "1.4B": shape(20, 2048, 32, 8, 8192, 32000)}
        for size, config in larger.items():
            place = folder / size
            place.mkdir()
            save_model(Decoder(config).start(torch.Generator().manual_seed(0)), place)
            new_chat(config.vocab_size).save(place)
            asked = [" ".join(f"w{5 + (i * 7 + k) % 400}" for k in range(6)) for i in range(20)]
            torch.cuda.reset_peak_memory_stats()
            print(json.dumps(tried(size, str(place), asked, folder)), flush=True)


if __name__ == "__main__":
    main()
