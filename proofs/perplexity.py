"""SmolLM2's GGUF file, converted here, against `transformers`' own reading of it;
and whether it answers sensibly.

    python proofs/perplexity.py models/smollm2 FILE.gguf [--out bars.json]

The text is this repository's LICENSE. Needs the gguf package; about a minute and 2 GB on a CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tools")]

from results import bar  # noqa: E402

TOKENS = 1000
ASKED = {"What is the capital of France?": "Paris", "What is the opposite of hot?": "cold",
         "Who wrote Romeo and Juliet?": "Shakespeare",
         "Name the largest planet of the solar system.": "Jupiter",
         "Which language is spoken in Brazil?": "Portuguese"}


def perplexity(logits: torch.Tensor, ids: torch.Tensor) -> float:
    return F.cross_entropy(logits[0, :-1].float(), ids[0, 1:]).exp().item()


@torch.no_grad()
def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    asked.add_argument("folder")
    asked.add_argument("file", type=Path)
    asked.add_argument("--out", type=Path)
    args = asked.parse_args()
    from transformers import AutoModelForCausalLM

    from postgrad.records import Prompt
    from postgrad.resolve.models import open_model
    from postgrad.sampling import LocalSampler, Sampling
    model, chat = open_model(args.folder)
    ids = torch.tensor([chat.encode((HERE / "LICENSE").read_text())[:TOKENS]])
    ours = perplexity(model.logits(ids), ids)
    prompts = [Prompt.ask(question) for question in ASKED]
    said = [group[0].text
            for group in LocalSampler(model, chat).sample(prompts, 1, Sampling(temperature=0.0), 0)]
    right = [word in text for word, text in zip(ASKED.values(), said, strict=True)]
    theirs = AutoModelForCausalLM.from_pretrained(args.file.parent, gguf_file=args.file.name,
                                                  dtype=torch.float32)
    other = perplexity(theirs(ids).logits, ids)
    apart = abs(ours / other - 1)
    command = "python proofs/perplexity.py models/smollm2 FILE.gguf"
    rows = [bar("SmolLM2's GGUF: perplexity of a fixed text, ours and transformers' GGUF load",
                "within 0.5 %", f"{ours:.3f} and {other:.3f}: {apart:.4%} apart", apart <= 0.005, command),
            bar("SmolLM2's GGUF: it answers sensibly (greedy)", f"most of {len(ASKED)} plain questions right",
                f"{sum(right)}: " + "; ".join(f"{text.strip().splitlines()[0]:.60}" for text in said),
                2 * sum(right) > len(right), command)]
    print(json.dumps(rows, indent=1))
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
