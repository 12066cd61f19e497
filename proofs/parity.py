"""Correctness under speed, on the embedded model and a random one:
the fast sampler says what the plain way says.

    python proofs/parity.py      about a minute on one core
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch

from postgrad.data.tasks import load_task
from postgrad.models import Decoder, Models, find_model, load_model
from postgrad.models.chat import Chat
from postgrad.models.computing import set_compute
from postgrad.records import Prompt, pad_rows
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training.optim import OptimSettings

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / "bench"), str(HERE / "tools")]

from shapes import SHAPES, new_chat  # noqa: E402

COMMAND = "python proofs/parity.py"
PROMPTS, NEW = 200, 48
ROUGH = 0.1  # nats, for the one token of several thousand that bfloat16 moves most


def mixed_prompts(count: int) -> list:
    """Prompts of several tasks, short and long."""
    tasks = [load_task(name).prompts("test", count, 0)
             for name in ("words", "words-hard", "arithmetic", "countdown")]
    return list(itertools.islice(itertools.chain.from_iterable(zip(*tasks, strict=True)), count))


def greedy(model, chat, theirs) -> tuple[int, int, set[int]]:
    """(rows equal to transformers' generate token for token, rows, the prompts' lengths).

    Theirs runs without any padding.
    """
    prompts = mixed_prompts(PROMPTS)
    said = [g[0] for g in LocalSampler(model, chat).sample(prompts, 1,
                                                           Sampling(max_new_tokens=NEW, temperature=0), 0)]
    by_length: dict[int, list] = {}
    for rollout in said:
        by_length.setdefault(len(rollout.prompt_tokens), []).append(rollout)
    same = 0
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
    """The largest difference between a sampled token's log-prob as the sampler said it and as the
    trainer's pass does."""
    full = pad_rows([[*r.prompt_tokens, *r.tokens] for r in rollouts])
    mask = pad_rows([[False] * len(r.prompt_tokens) + [True] * len(r.tokens) for r in rollouts], fill=False,
                    dtype=torch.bool)
    said = pad_rows([[0.0] * len(r.prompt_tokens) + list(r.logp) for r in rollouts], fill=0.0,
                    dtype=torch.float32)
    device = model.head.device
    return (model.logp(full.to(device), mask.to(device))[0].cpu() - said).abs().max().item()


def half(folder) -> float:
    """`mismatch` where both the sampler and the trainer multiply in bfloat16."""
    model, chat = load_model(folder), Chat.load(folder)
    set_compute(Models(policy=model), OptimSettings(lr=1.0, precision="bf16"))
    groups = LocalSampler(model, chat).sample(mixed_prompts(64), 4, Sampling(max_new_tokens=NEW), 3)
    return mismatch(model, [r for g in groups for r in g])


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


CHOICES = {"whole": Sampling(max_new_tokens=1), "top-k 50": Sampling(max_new_tokens=1, top_k=50),
           "top-p 0.9": Sampling(max_new_tokens=1, top_p=0.9),
           "min-p 0.05": Sampling(max_new_tokens=1, min_p=0.05),
           "temperature 0.7": Sampling(max_new_tokens=1, temperature=0.7)}


@torch.no_grad()
def toy() -> tuple:
    """A random model, fresh but for a final norm that spreads its logits, and its tokenizer."""
    model = Decoder(SHAPES["tiny"]).start(torch.Generator().manual_seed(0))
    model.model.norm.weight *= 3.0
    return model, new_chat(SHAPES["tiny"].vocab_size)


def bars() -> list[dict]:
    from results import bar
    from transformers import LlamaForCausalLM

    folder = find_model("tiny-chat")
    model, chat = load_model(folder), Chat.load(folder)
    same, rows, lengths = greedy(model, chat, LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32))
    drawn = LocalSampler(model, chat).sample(mixed_prompts(64), 4, Sampling(max_new_tokens=NEW), 3)
    off = mismatch(model, [r for g in drawn for r in g])
    alone, of = composition(model, chat)
    rough = half(folder)
    chances = {name: frequencies(*toy(), settings) for name, settings in CHOICES.items()}
    fair = all(p > 0.001 for p in chances.values())
    return [
        bar("greedy output equals transformers' generate, fp32",
            f"{PROMPTS} of {PROMPTS} prompts, token for token",
            f"{same} of {rows}, prompts of {min(lengths)} to {max(lengths)} tokens", same == rows == PROMPTS,
            COMMAND),
        bar("sampled tokens' log-probs, sampler against trainer, fp32", "<= 1e-4", f"{off:.1e}", off <= 1e-4,
            COMMAND),
        bar("the same in bf16, the trainer's pass too", f"<= {ROUGH}, a stated bound", f"{rough:.1e}",
            rough <= ROUGH, COMMAND),
        bar("a row is the same alone and among others, fp32 on CPU", "all rows", f"{alone} of {of}",
            alone == of, COMMAND),
        bar("sampling frequencies against the softmax, chi-square", "p > 0.001 each",
            ", ".join(f"{name}: p = {p:.2g}" for name, p in chances.items()), fair, COMMAND),
    ]


if __name__ == "__main__":
    for line in bars():
        print(f"{'ok  ' if line['holds'] else 'FAIL'} {line['name']}: {line['measured']} (asked: "
              f"{line['target']})")
