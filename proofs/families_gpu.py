"""Every family of decoders on a GPU: sampler against trainer, captured graphs against none,
one GRPO run of the embedded model.

    python proofs/families_gpu.py          prints one line of JSON for each family, and the run's rewards

Weights are random and small: the point is that the paths a GPU takes (Triton, CUDA graphs, torch.compile) say
what plain torch on the CPU says, for every way in which a layer can be built.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from postgrad.models import Decoder  # noqa: E402
from postgrad.models.families import FAMILIES, Architecture, Config  # noqa: E402
from postgrad.records import Prompt  # noqa: E402
from postgrad.resolve.models import load  # noqa: E402
from postgrad.sampling import LocalSampler, Sampling  # noqa: E402
from postgrad.training.batches.collect import rollout_batch  # noqa: E402

PROMPTS = [Prompt.ask(f"What is {a}+{a + 3}?") for a in range(12)]


def tried(name: str, chat, shape: Config) -> dict:
    """Differences of log-probs, sampler's against trainer's, in float32 and bfloat16;
    and of gradients, compiled or not."""
    family = FAMILIES[name]
    config = replace(shape, architecture=Architecture(model_type=name, qkv_bias=family.bias_on_qkv))
    model = Decoder(config).start(torch.Generator().manual_seed(0))
    out: dict = {"family": name}
    greedy = {}
    for device in ("cpu", "cuda"):
        model = model.to(device)
        groups = LocalSampler(model, chat).sample(PROMPTS, 1, Sampling(max_new_tokens=24, temperature=0.0), 0)
        greedy[device] = [r.tokens for group in groups for r in group]
    out["greedy equal to the CPU"] = (sum(a == b for a, b in zip(greedy["cpu"], greedy["cuda"], strict=True))
                                      / len(PROMPTS))
    for dtype in (torch.float32, torch.bfloat16):
        model = model.to(dtype)
        groups = LocalSampler(model, chat).sample(PROMPTS, 4, Sampling(max_new_tokens=48), 1)
        batch = rollout_batch([r for group in groups for r in group]).to("cuda")
        logp, _ = model.logp(batch.tokens, batch.mask)
        gap = (logp - batch.sampler_logp).abs()[batch.mask]
        out[f"sampler against trainer, {dtype}".replace("torch.", "")] = float(gap.detach().max())
    packed = next(batch.split(10**9)).packed
    grads = []
    # each a model of its own: a graph is captured before anything else has run backwards
    for compiled in (True, False):
        fresh = Decoder(config).to("cuda", torch.bfloat16)
        fresh.load_state_dict(model.state_dict())
        fresh.compiled = compiled
        (fresh.logp(batch.tokens, batch.mask, packed=packed)[0].sum() / batch.mask.sum()).backward()
        grads.append(torch.cat([p.grad.float().flatten() for p in fresh.parameters()]))
    out["gradients, compiled against not, relative"] = float((grads[0] - grads[1]).norm() / grads[0].norm())
    return out


def main() -> None:
    opened = load("tiny-chat")
    for name in FAMILIES:
        print(json.dumps(tried(name, opened.chat, opened.net.config)), flush=True)
    import postgrad
    with tempfile.TemporaryDirectory() as folder:
        run = postgrad.fit("tiny-chat", "grpo", task="words", run=f"{folder}/run", steps=12, device="cuda",
                           watch=None)
        print(json.dumps({"rewards": [round(row["reward"], 3) for row in run.metrics()],
                          "mismatch": max(row["mismatch"] for row in run.metrics())}))


if __name__ == "__main__":
    main()
