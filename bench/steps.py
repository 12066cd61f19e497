"""Timings as ratios: postgrad's sampler and training pass against `transformers` on the same model and work, interleaved.

    make bench      prints a table; both sides in float32 on the CPU
"""

from __future__ import annotations

import statistics
import time

import torch
from transformers import LlamaForCausalLM

from postgrad.chat import Chat
from postgrad.models import find_model, load_model
from postgrad.records import pad_rows
from postgrad.sampler import LocalSampler, Sampling
from postgrad.tasks import load_task

PROMPTS, GROUP, NEW, ROUNDS = 8, 8, 48, 7


def main() -> None:
    folder = find_model("tiny-chat")
    chat, ours = Chat.load(folder), load_model(folder)
    theirs = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompts = load_task("words").prompts("train", PROMPTS, 0)
    work = {
        "sampling, until the end token": (
            lambda: sample_ours(ours, chat, prompts), lambda: sample_theirs(theirs, chat, prompts)),
        "forward and backward on the samples": (lambda: train(ours.logp, batch), lambda: train(their_logp(theirs), batch)),
    }
    batch = rows(LocalSampler(ours, chat).sample(prompts, GROUP, Sampling(max_new_tokens=NEW), 0))
    print(f"{PROMPTS} prompts x {GROUP} samples, <= {NEW} new tokens, {torch.get_num_threads()} threads, median of {ROUNDS}\n")
    print(f"{'work':<40}{'postgrad':>12}{'transformers':>14}{'ratio':>8}")
    for name, sides in work.items():
        times = ([], [])
        for turn in range(ROUNDS + 1):
            for side, seen in zip(sides, times, strict=True):
                began = time.perf_counter()
                side()
                if turn:  # the first round warms up
                    seen.append(time.perf_counter() - began)
        a, b = (statistics.median(seen) for seen in times)
        print(f"{name:<40}{a * 1e3:>9.0f} ms{b * 1e3:>11.0f} ms{b / a:>8.2f}")


def rows(groups) -> tuple[torch.Tensor, torch.Tensor]:
    flat = [r for group in groups for r in group]
    tokens = pad_rows([[*r.prompt_tokens, *r.tokens] for r in flat])
    masks = [[False] * len(r.prompt_tokens) + [True] * len(r.tokens) for r in flat]
    return tokens, pad_rows(masks, fill=False, dtype=torch.bool)


def sample_ours(model, chat, prompts) -> None:
    LocalSampler(model, chat).sample(prompts, GROUP, Sampling(max_new_tokens=NEW), 0)


@torch.no_grad()
def sample_theirs(model, chat, prompts) -> None:
    coded = [chat.render(p.messages) for p in prompts for _ in range(GROUP)]
    width = max(map(len, coded))
    pad = chat.id("<|pad|>")
    tokens = torch.tensor([[pad] * (width - len(c)) + c for c in coded])
    model.generate(tokens, attention_mask=(tokens != pad).long(), max_new_tokens=NEW, do_sample=True, top_k=0,
                   eos_token_id=chat.stop[0], pad_token_id=pad)


def their_logp(model):
    def logp(tokens, mask):
        logits = model(tokens).logits[:, :-1].log_softmax(-1)
        taken = logits.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return torch.nn.functional.pad(taken, (1, 0)) * mask, None
    return logp


def train(logp, batch) -> None:
    tokens, mask = batch
    (logp(tokens, mask)[0] * mask).sum().backward()


if __name__ == "__main__":
    main()
