"""How much slower a model is through transformers than through our own decoder:
the same Llama weights, the same work.

python bench/foreign.py [MODEL]     the ratio of the times of sampling, and of forward and backward; one
                                    process
"""

from __future__ import annotations

import sys
import time

import torch
from transformers import LlamaForCausalLM

from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.models.hf_model import HFModel
from postgrad.records import Prompt, pad_rows
from postgrad.sampling import LocalSampler, Sampling

PROMPTS = [Prompt.ask(f"Tom has {n} apples and buys {n + 3} more. How many has he now?") for n in range(8)]
ROUNDS = 5


def best(works) -> list[float]:
    """The shortest of several times of each, in seconds, taken in turn; the first is not counted."""
    times = [[] for _ in works]
    for _ in range(ROUNDS + 1):
        for work, mine in zip(works, times, strict=True):
            began = time.perf_counter()
            work()
            mine.append(time.perf_counter() - began)
    return [min(mine[1:]) for mine in times]


def sampling(model, chat: Chat):
    sampler = LocalSampler(model.requires_grad_(False), chat)
    return lambda: sampler.sample(PROMPTS, 8, Sampling(max_new_tokens=48), seed=0)


def training(model, chat: Chat):
    """Forward and backward of 64 rows, eight to a prompt, as a GRPO step has them."""
    rollouts = [r for group in LocalSampler(model, chat).sample(PROMPTS, 8, Sampling(max_new_tokens=48),
                                                                seed=0) for r in group]
    tokens = pad_rows([[*r.prompt_tokens, *r.tokens] for r in rollouts])
    first, length = (
        torch.tensor([(len(r.prompt_tokens), len(r.tokens)) for r in rollouts])[:, :, None].unbind(1))
    column = torch.arange(tokens.shape[1])[None]
    mask = (column >= first) & (column < first + length)
    model.requires_grad_(True)

    def step():
        model.zero_grad()
        (-model.logp(tokens, mask)[0].sum() / mask.sum()).backward()

    return step


def main(name: str = "tiny-chat") -> None:
    folder = find_model(name)
    chat = Chat.load(folder)
    models = load_model(folder), HFModel(LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32))
    for what in (sampling, training):
        ours, theirs = best([what(model, chat) for model in models])
        print(f"{what.__name__}: decoder {ours * 1000:.0f} ms, transformers {theirs * 1000:.0f} ms, "
              f"{theirs / ours:.1f}x")


if __name__ == "__main__":
    main(*sys.argv[1:])
