"""The fast sampler says what the plain way says, on the embedded model and a random one: a part of
`make bench`, a minute on one core.

    python proofs/parity.py
"""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from harness import Bars, bar, show
from shapes import SHAPES, new_chat

from postgrad.data.tasks import load_task
from postgrad.models import Decoder, Models, find_model, load_model
from postgrad.models.chat import Chat
from postgrad.models.model_set import set_compute
from postgrad.records import Prompt, pad_rows
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training.optim import OptimSettings

PROMPTS, NEW = 200, 48
ROUGH = 0.1  # nats, for the one token of several thousand that bfloat16 moves most
CHOICES = {"whole": {}, "top-k 50": {"top_k": 50}, "top-p 0.9": {"top_p": 0.9}, "min-p 0.05": {"min_p": 0.05},
           "temperature 0.7": {"temperature": 0.7}}


def mixed_prompts(count: int) -> list[Prompt]:
    """Prompts of several tasks, short and long."""
    tasks = [load_task(name).prompts("test", count, 0)
             for name in ("words", "words-hard", "arithmetic", "countdown")]
    return list(itertools.islice(itertools.chain.from_iterable(zip(*tasks, strict=True)), count))


def greedy(model, chat, theirs) -> tuple[int, int, set[int]]:
    """(rows equal to transformers' generate token for token, rows, the prompts' lengths); theirs without
    padding."""
    settings, by_length, same = Sampling(max_new_tokens=NEW, temperature=0), {}, 0
    said = [g[0] for g in LocalSampler(model, chat).sample(mixed_prompts(PROMPTS), 1, settings, 0)]
    for rollout in said:
        by_length.setdefault(len(rollout.prompt_tokens), []).append(rollout)
    for group in by_length.values():
        tokens = torch.tensor([r.prompt_tokens for r in group])
        out = theirs.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=NEW,
                              do_sample=False, eos_token_id=list(chat.stop), pad_token_id=chat.id(chat.pad))
        for rollout, row in zip(group, out[:, tokens.shape[1]:].tolist(), strict=True):
            end = next((i + 1 for i, t in enumerate(row) if t in chat.stop), len(row))
            same += list(rollout.tokens) == row[:end]
    return same, len(said), set(by_length)


@torch.no_grad()
def mismatch(model, rollouts: list) -> float:
    """The largest difference between a sampled token's log-prob by the sampler and by the trainer's pass."""
    def columns(before, of, fill, dtype):
        rows = [[before(t) for t in r.prompt_tokens] + list(of(r)) for r in rollouts]
        return pad_rows(rows, fill=fill, dtype=dtype).to(model.head.device)

    full = columns(lambda t: t, lambda r: r.tokens, 0, torch.int64)
    mask = columns(lambda t: False, lambda r: [True] * len(r.tokens), False, torch.bool)
    said = columns(lambda t: 0.0, lambda r: r.logp, 0.0, torch.float32)
    return (model.logp(full, mask)[0] - said).abs().max().item()


def drawn(model, chat) -> list:
    groups = LocalSampler(model, chat).sample(mixed_prompts(64), 4, Sampling(max_new_tokens=NEW), 3)
    return [r for g in groups for r in g]


def composition(model, chat) -> tuple[int, int]:
    """(rows that are the same alone as among others, rows)."""
    prompts, settings = mixed_prompts(24), Sampling(max_new_tokens=NEW)
    together = LocalSampler(model, chat).sample(prompts, 4, settings, 7)
    alone = [LocalSampler(model, chat).sample([p], 4, settings, 7)[0] for p in prompts]
    pairs = [(a, b) for x, y in zip(together, alone, strict=True) for a, b in zip(x, y, strict=True)]
    return sum(a.tokens == b.tokens for a, b in pairs), len(pairs)


def kept(p: torch.Tensor, settings: Sampling) -> torch.Tensor:  # [V] -> [V]
    """The distribution that the settings ask for, one token after the other."""
    order = sorted(range(len(p)), key=lambda i: -float(p[i]))
    order = order[: settings.top_k] if settings.top_k else order
    total, mass, keep = float(p[order].sum()), 0.0, []
    for i in order:
        if mass >= settings.top_p * total:
            break
        keep.append(i)
        mass += float(p[i])
    keep = [i for i in keep if float(p[i]) >= settings.min_p * float(p[keep[0]])]
    out = torch.zeros_like(p)
    out[keep] = p[keep] / p[keep].sum()
    return out


@torch.no_grad()
def frequencies(model, chat, settings: Sampling, draws: int = 8192) -> float:
    """The p-value of a chi-square test of the first sampled token against the softmax; rare tokens are
    counted together."""
    rows = LocalSampler(model, chat).sample([Prompt.ask("w7 w8 w9")], draws, settings, 11)[0]
    logits = (
        model.logits(torch.tensor([rows[0].prompt_tokens], device=model.head.device))[0, -1].double().cpu())
    p = kept((logits / settings.temperature).softmax(-1), settings)
    seen = torch.bincount(torch.tensor([r.tokens[0] for r in rows]), minlength=len(p)).double()
    assert not seen[p == 0].any(), "a token was drawn that the settings leave out"
    common = p * draws >= 5
    want = torch.cat([p[common] * draws, (p[~common].sum() * draws)[None]])
    have = torch.cat([seen[common], seen[~common].sum()[None]])
    have, want = have[want > 0], want[want > 0]
    assert len(want) > 4, "too few tokens to choose from for a test"
    chi = ((have - want) ** 2 / want).sum()
    return float(torch.special.gammaincc(torch.tensor((len(want) - 1) / 2), (chi / 2).float()))


def bars(folder: Path | None = None) -> Bars:
    from transformers import LlamaForCausalLM
    place = find_model("tiny-chat")
    model, half, chat = load_model(place), load_model(place), Chat.load(place)
    same, rows, lengths = greedy(model, chat, LlamaForCausalLM.from_pretrained(place, dtype=torch.float32))
    off = mismatch(model, drawn(model, chat))
    alone, of = composition(model, chat)
    set_compute(Models(policy=half), OptimSettings(lr=1.0, precision="bf16"))  # sampler and trainer
    rough = mismatch(half, drawn(half, chat))
    toy = Decoder(SHAPES["tiny"]).start(torch.Generator().manual_seed(0))
    toy.model.norm.weight.data *= 3.0  # spreads its logits
    words = new_chat(SHAPES["tiny"].vocab_size)
    chances = {name: frequencies(toy, words, Sampling(max_new_tokens=1, **how))
               for name, how in CHOICES.items()}
    return [bar("greedy output equals transformers' generate, fp32",
                f"{PROMPTS} of {PROMPTS} prompts, token for token",
                f"{same} of {rows}, prompts of {min(lengths)} to {max(lengths)} tokens",
                same == rows == PROMPTS),
            bar("sampled tokens' log-probs, sampler against trainer, fp32", "<= 1e-4", f"{off:.1e}",
                off <= 1e-4),
            bar("the same in bf16, the trainer's pass too", f"<= {ROUGH}, a stated bound", f"{rough:.1e}",
                rough <= ROUGH),
            bar("a row is the same alone and among others, fp32 on CPU", "all rows", f"{alone} of {of}",
                alone == of),
            bar("sampling frequencies against the softmax, chi-square", "p > 0.001 each",
                ", ".join(f"{name}: p = {p:.2g}" for name, p in chances.items()),
                all(p > 0.001 for p in chances.values()))]


if __name__ == "__main__":
    show(bars())
