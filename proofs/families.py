"""Families of decoders in our own engine, against transformers: figures, routing replay, speed. The parts
`families`, `replay` and `speeds` of proofs/ecosystem.py."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness import Bars, Tables, bar

SPEED = {  # of about 135M weights: SmolLM2-135M's sizes
    "gemma2": dict(head_dim=64, sliding_window=64, query_pre_attn_scalar=64),
    "gemma3_text": dict(head_dim=64, sliding_window=64, query_pre_attn_scalar=64),
    "smollm3": {}, "phi3": {},
    "granite": dict(embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22,
                    attention_multiplier=0.0156),
    "qwen3_moe": dict(head_dim=64, num_hidden_layers=12, num_experts=16, num_experts_per_tok=4,
                      moe_intermediate_size=256, norm_topk_prob=True)}
PATHS = ["postgrad/models", "postgrad/sampling"]
ROWS, READ, NEW = 16, 8, 32


def compared(name: str, folder: Path) -> dict:
    """A family's figures, ours against those of transformers."""
    import torch
    from family_models import gradients, make, reopened
    from small import CHAT, PROMPTS

    from postgrad.models import save_model
    from postgrad.sampling import LocalSampler, Sampling
    (ours, theirs), draw = make(name, folder / "theirs"), torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 1024, (2, 100), generator=draw)
    a, b = ours.logits(tokens), theirs(tokens).logits
    pull = torch.randn(a.shape, generator=draw)
    mine, wanted = gradients(ours, a, pull), gradients(theirs, b, pull)
    apart = max(float((mine[key] - g).abs().max() / g.abs().max()) for key, g in wanted.items())
    equal, gap, count = 0, 0.0, 0
    greedy = Sampling(max_new_tokens=32, temperature=0.0)
    for (rollout,) in LocalSampler(ours, CHAT).sample(PROMPTS, 1, greedy, 0):
        prompt = torch.tensor([rollout.prompt_tokens])
        out = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                              max_new_tokens=32, eos_token_id=CHAT.stop[0], pad_token_id=0)
        equal += out[0, prompt.shape[1]:].tolist() == list(rollout.tokens)
    for group in LocalSampler(ours, CHAT).sample(PROMPTS, 4, Sampling(max_new_tokens=48), seed=5):
        for rollout in group:
            n, row = len(rollout.prompt_tokens), torch.tensor([[*rollout.prompt_tokens, *rollout.tokens]])
            logp, _ = ours.logp(row, torch.arange(row.shape[1])[None] >= n)
            gap = max(gap, float((torch.tensor(rollout.logp) - logp[0, n:]).abs().max()))
            count += len(rollout.tokens)
    (folder / "ours").mkdir(exist_ok=True)
    save_model(ours, folder / "ours")
    return {"family": name, "logits": float((a - b).abs().max()), "their standard deviation": float(b.std()),
            "gradients, of the largest": apart, "greedy texts equal": f"{equal} of {len(PROMPTS)}",
            "sampler against trainer": gap, "sampled tokens": count, "saved and reopened": float(
                (reopened(folder / "ours")(tokens).logits - b).abs().max())}


def timed(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def speed(kind: str, folder: Path) -> dict:
    """Tokens a second of the sampler and of transformers' generate, by the processor's time of one thread."""
    import torch
    from shapes import new_chat
    from transformers import AutoConfig, AutoModelForCausalLM

    from postgrad.models import load_model
    from postgrad.records import Prompt
    from postgrad.sampling import LocalSampler, Sampling
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                 num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048,
                 tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    config = AutoConfig.for_model(kind, **sizes | SPEED[kind])
    theirs = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    theirs.save_pretrained(folder)
    ours, chat = load_model(folder), new_chat(49152)
    prompts = [Prompt.ask(" ".join(f"w{1000 + 31 * r + 7 * i}" for i in range(READ - 4)), id=str(r))
               for r in range(ROWS)]
    read = torch.tensor([chat.render(prompt.messages) for prompt in prompts])
    sampler, written = LocalSampler(ours, chat), []

    def sample(*stop: str) -> None:
        groups = sampler.sample(prompts, 1, Sampling(max_new_tokens=NEW, stop=stop), seed=0)
        written.append(sum(len(rollout.tokens) for group in groups for rollout in group))

    def generate() -> None:
        theirs.generate(read, attention_mask=torch.ones_like(read), do_sample=True, top_k=0,
                        max_new_tokens=NEW, min_new_tokens=NEW)

    sample("w")  # which every token begins with: one of each row, so that the engine stands
    mine, other = (timed(work) for work in (sample, generate))
    rate = written[-1] / mine, ROWS * NEW / other
    return {"family": kind, "weights": sum(p.numel() for p in theirs.parameters()), "tokens/s": rate[0],
            "transformers": rate[1], "times": rate[0] / rate[1]}


def replay(folder: Path) -> tuple[Bars, Tables]:
    """Experts that trainer and sampler choose apart, and the gap of log-probs with replay and without; the
    gradients of routers against transformers."""
    import torch
    from family_models import gradients, make
    from small import CHAT, PROMPTS

    from postgrad.models import Config, Decoder
    from postgrad.models.experts import expert_layers, last_routes
    from postgrad.models.families import Architecture, ExpertSizes
    from postgrad.sampling import LocalSampler, Sampling
    from postgrad.training.batches.columns import rollout_batch
    from postgrad.training.batches.shuffled import model_logp
    config = Config(vocab_size=1024, hidden_size=64, intermediate_size=96, num_hidden_layers=6, head_dim=16,
                    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                    architecture=Architecture(model_type="qwen3_moe", experts=ExpertSizes(
                        count=64, active=8, width=32, renormalised=True)))
    rows = []
    width = 0.02
    for dtype in (torch.float32, torch.bfloat16):
        model = Decoder(config).start(torch.Generator().manual_seed(0))
        draw = torch.Generator().manual_seed(1)
        for layer in expert_layers(model):
            layer.gate.weight.data.normal_(0, width, generator=draw)
            for weight in layer.experts.parameters():
                weight.data.normal_(0, 0.2, generator=draw)
        model.to(dtype)
        groups = LocalSampler(model, CHAT).sample(PROMPTS, 4, Sampling(max_new_tokens=32), seed=3)
        rollouts = [rollout for group in groups for rollout in group]
        different = tokens = 0
        for rollout in rollouts:
            with torch.no_grad():
                model.hidden(torch.tensor([[*rollout.prompt_tokens, *rollout.tokens]]))
            own, theirs = (x[:-1].sort(-1).values
                           for x in (last_routes(expert_layers(model)), rollout.routes))
            different, tokens = different + int((own != theirs).any(-1).sum()), tokens + own[..., 0].numel()
        batch = rollout_batch(rollouts)
        gap = [float((model_logp(model, b, 4096)[0] - batch.sampler_logp)[batch.mask].abs().max())
               for b in (batch, replace(batch, routes=None))]
        rows.append({"weights": str(dtype).removeprefix("torch."), "router's weights": f"N(0, {width:g}^2)",
                     "choices": tokens, "other experts without replay": different,
                     "log-prob gap with replay": gap[0], "without": gap[1]})
    (ours, theirs), draw = make("qwen 3 moe", folder / "moe"), torch.Generator().manual_seed(1)
    read = torch.randint(0, 1024, (2, 100), generator=draw)
    pull = torch.randn(2, 100, 1024, generator=draw)
    mine, wanted = gradients(ours, ours.logits(read), pull), gradients(theirs, theirs(read).logits, pull)
    apart = max(float((mine[key] - g).abs().max() / g.abs().max()) for key, g in wanted.items()
                if "mlp.gate.weight" in key)
    single, half = rows
    bars = [bar("experts that sampler and trainer choose apart in bfloat16, without replay", "> 0",
                f"{half['other experts without replay']} of {half['choices']}",
                half["other experts without replay"] > 0),
            bar("log-probs of the sampler against the trainer's with routing replay, float32", "<= 1e-5",
                f"{single['log-prob gap with replay']:.2g}", single["log-prob gap with replay"] <= 1e-5),
            bar("gradients of routers against transformers, as a share of the largest", "<= 1e-4",
                f"{apart:.2g}", apart <= 1e-4)]
    return [row | {"paths": PATHS} for row in bars], {"Routing replay": rows}


def families(folder: Path) -> tuple[Bars, Tables]:
    """Every family in figures."""
    from family_models import ADDED, FAMILIES
    figures, names = [], [name for name in FAMILIES if name not in ADDED]
    for name in names:
        figures.append(compared(name, folder / name.replace(" ", "-")))
        print(json.dumps(figures[-1]), flush=True)
    worst = {key: max(figures, key=lambda row: row[key]) for key in (
        "logits", "gradients, of the largest", "sampler against trainer", "saved and reopened")}
    told = {key: f"{row[key]:.2g} ({row['family']})" for key, row in worst.items()}
    bounds = {"logits": 1e-5, "gradients, of the largest": 1e-4, "sampler against trainer": 1e-5,
              "saved and reopened": 0.0}
    names_of = {"logits": "logits, 2 rows of 100 tokens in float32", "saved and reopened":
                "logits of our saved folder in transformers", "sampler against trainer":
                "log-probs of the sampler against the trainer's", "gradients, of the largest":
                "gradients, as a share of each weight's largest"}
    bars = [bar(f"{len(names)} models of our families against transformers: {names_of[key]}",
                f"<= {bound:g} for each" if bound else "equal for each", told[key],
                worst[key][key] <= bound) for key, bound in bounds.items()]
    texts = sum(len({row["greedy texts equal"].split()[i] for i in (0, -1)}) == 1 for row in figures)
    bars += [
            bar("families against transformers: greedy texts of 32 tokens", f"all equal for {len(names)} of "
                f"{len(names)}", f"{texts} of {len(names)}", texts == len(names))]
    return [row | {"paths": PATHS} for row in bars], {"Families against transformers": figures}


def speeds(folder: Path) -> tuple[Bars, Tables]:
    """Sampling of models of about 135M weights, against transformers' generate."""
    rows = []
    for kind in SPEED:
        rows.append(speed(kind, folder / kind))
        print(json.dumps(rows[-1]), flush=True)
    *dense, mixture = rows
    slowest = min(dense, key=lambda row: row["times"])
    return [bar(f"sampling against transformers' generate, {what}: {ROWS} rows of {NEW} new tokens, about "
                "135M weights, one thread, the engine kept between calls", ">= 2 times",
                f"{row['times']:.2f} times ({row['family']})",
                row["times"] >= 2, paths=PATHS)
            for what, row in ((f"the slowest of {len(dense)} families", slowest), ("a mixture", mixture))
            ], {"Sampling, tokens a second of processor time": rows}


PARTS = {"families": families, "replay": replay, "speeds": speeds}
