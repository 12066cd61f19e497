"""The fast sampler says what the plain way says, on the embedded model and a random one: a part of
`make bench`, a minute on one core.

    python proofs/parity.py
"""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from harness import Bars, bar, show

from postgrad.data.tasks import load_task
from postgrad.models import Models, find_model, load_model
from postgrad.models.chat import Chat
from postgrad.models.model_set import set_compute
from postgrad.records import Prompt
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training.batches.columns import rollout_batch
from postgrad.training.optim import OptimSettings

PROMPTS, NEW = 200, 48
ROUGH = 0.1  # nats, for the one token of several thousand that bfloat16 moves most


def mixed_prompts(count: int) -> list[Prompt]:
    """Prompts of several tasks, short and long."""
    tasks = [load_task(name).prompts("test", count, 0)
             for name in ("words", "words-hard", "arithmetic", "countdown")]
    return list(itertools.islice(itertools.chain.from_iterable(zip(*tasks, strict=True)), count))


def greedy(model, chat, theirs) -> tuple[int, int, set[int]]:
    """(rows equal to transformers' generate token for token, rows, the prompts' lengths); theirs without
    padding."""
    settings, by_length, same = Sampling(max_new_tokens=NEW, temperature=0), {}, 0
    rollouts = [g[0] for g in LocalSampler(model, chat).sample(mixed_prompts(PROMPTS), 1, settings, 0)]
    for rollout in rollouts:
        by_length.setdefault(len(rollout.prompt_tokens), []).append(rollout)
    for group in by_length.values():
        tokens = torch.tensor([r.prompt_tokens for r in group])
        out = theirs.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=NEW,
                              do_sample=False, eos_token_id=list(chat.stop), pad_token_id=chat.id(chat.pad))
        for rollout, row in zip(group, out[:, tokens.shape[1]:].tolist(), strict=True):
            end = next((i + 1 for i, t in enumerate(row) if t in chat.stop), len(row))
            same += list(rollout.tokens) == row[:end]
    return same, len(rollouts), set(by_length)


@torch.no_grad()
def mismatch(model, rollouts: list) -> float:
    """The largest difference between a sampled token's log-prob by the sampler and by the trainer's pass."""
    batch = rollout_batch(rollouts).to(model.head.device)
    return (model.logp(batch.tokens, batch.mask)[0] - batch.sampler_logp)[batch.mask].abs().max().item()


def drawn(model, chat) -> list:
    groups = LocalSampler(model, chat).sample(mixed_prompts(64), 4, Sampling(max_new_tokens=NEW), 3)
    return [r for g in groups for r in g]


def bars(folder: Path | None = None) -> Bars:
    from transformers import LlamaForCausalLM
    place = find_model("tiny-chat")
    model, half, chat = load_model(place), load_model(place), Chat.load(place)
    same, rows, lengths = greedy(model, chat, LlamaForCausalLM.from_pretrained(place, dtype=torch.float32))
    off = mismatch(model, drawn(model, chat))
    set_compute(Models(policy=half), OptimSettings(lr=1.0, precision="bf16"))  # sampler and trainer
    rough = mismatch(half, drawn(half, chat))
    return [bar("greedy output equals transformers' generate, fp32",
                f"{PROMPTS} of {PROMPTS} prompts, token for token",
                f"{same} of {rows}, prompts of {min(lengths)} to {max(lengths)} tokens",
                same == rows == PROMPTS),
            bar("sampled tokens' log-probs, sampler against trainer, fp32", "<= 1e-4", f"{off:.1e}",
                off <= 1e-4),
            bar("the same in bf16, the trainer's pass too", f"<= {ROUGH}", f"{rough:.1e}",
                rough <= ROUGH)]


if __name__ == "__main__":
    show(bars())
