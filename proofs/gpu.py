"""Kernels on GPUs: every family of decoders on the one at hand, and whether they fit those that are not.

    python proofs/gpu.py families [NAME ..] sampler against trainer, captured graphs against none, by family,
                                            and the rewards of a GRPO run of the embedded model; lines of JSON
    python proofs/gpu.py fit [80 89 90 120] the Triton kernels compiled for compute capabilities: that they
                                            find the shared memory that they ask for; no GPU, two minutes

families: the models of tests/support/family_models.py with heads of 64, which transformers makes; the paths a
GPU takes (Triton, CUDA graphs, torch.compile) say what plain torch on the CPU says, for every way in which a
layer can be built. fit: heads of 64, 128 and 256, one query for a key and several, in the sizes that the
wrappers choose.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import harness  # noqa: F401  so that the package is found

ROOM = {80: 166_912, 89: 101_376, 90: 232_448, 120: 101_376}
KINDS = {"fp32": "heat eps scale",
         "i32": "N H rep V K C D R S F KV NEW width window q_width k_width v_width k_row v_row tiles pieces "
                "stride most",
         "*i64": "at slot shown count prompt prompt_length token tokens keys positions where ends table",
         "*i32": "blocks places places_to", "*i1": "done", "*fp64": "u",
         "*fp32": "sums pairs tops weights moments total logp logps entropy by_logp by_entropy kept"}


class Launch(NamedTuple):
    name: str
    kernel: Any
    constants: dict[str, Any]
    warps: int
    stages: int
    types: dict[str, str] = {}  # where the name of an argument does not tell


def type_of(name: str) -> str:
    return next((kind for kind, names in KINDS.items() if name in names.split()), "*bf16")


def launches(room: int) -> Iterator[Launch]:
    from postgrad.models.kernels import gpu, gpu_decode, gpu_training, gradient_sums, vocab_softmax
    rows, columns, deep, *how = vocab_softmax.TILE if room >= vocab_softmax.ROOM else vocab_softmax.SMALL_TILE
    tile = {"EVEN": True, "ROWS": rows, "COLUMNS": columns, "DEEP": deep}
    yield Launch("head: read", vocab_softmax._read_tiles, tile, *how)
    yield Launch("head: slope", vocab_softmax._slope_tiles, tile | {"BOTH": True}, *how)
    yield Launch("head: join", vocab_softmax._join_tiles,
                 {"ROWS": vocab_softmax.JOIN_ROWS, "TILES": vocab_softmax.JOIN_TILES, "DEEP": deep}, 4, 3)
    piece = {"PIECE": gpu_decode.PIECE}
    yield Launch("choosing: tops", gpu_decode._tops, tile | piece, *how)
    yield Launch("choosing: choose", gpu_decode._choose,
                 piece | {"ENDS": 2, "PIECES": 4096, "DEEP": gpu_decode.DEEP}, gpu_decode.WARPS, 3,
                 {"out": "*i64"})
    yield Launch("softmax: read", vocab_softmax._read_logits, {"BLOCK": vocab_softmax.READ_BLOCK,
                                                     "STAGES": vocab_softmax.READ_STAGES},
                 vocab_softmax.READ_WARPS, 3, {"logits": "*fp32"})
    yield Launch("pick", gpu._pick, {"BLOCK": gpu.PICK[0], "BLOCKS": 64}, gpu.PICK[1], 3, {"logits": "*fp32"})
    yield Launch("note", gpu._note, {"ENDS": 2, "BLOCK": 128}, 4, 3, {"out": "*i64"})
    yield Launch("norm", gpu._add_norm, {"has_delta": True, "BLOCK": 4096}, 8, 3)
    yield Launch("gate", gpu_decode._gate, {"WIDE": 4096, "EARLY": False, "BLOCK": 2048}, 4, 3)
    yield Launch("gate, back", gpu_training._gate_back, {"BLOCK": gpu_training.GATE_BLOCK}, 4, 3)
    yield Launch("sums of gradients", gradient_sums._add, {"PIECE": gradient_sums.PIECE}, gradient_sums.WARPS,
                 3, {"pieces": "*i64"})
    for size in (64, 128, 256):
        yield from of_heads(size)


def of_heads(D: int) -> Iterator[Launch]:
    from postgrad.models.kernels import decode_attention, gpu_training
    own, block = gpu_training.tiles(D), {"D": D, "ROUND": D, "WINDOW": False}
    for name, kernel, (other, *how) in (("forward", gpu_training._forward, own.forward),
                                        ("back to queries", gpu_training._back_q, own.back_q)):
        yield Launch(f"attention of {D}: {name}", kernel,
                     block | {"QUERIES": own.queries, "KEYS": other}, *how)
    other, *how = own.back_kv
    yield Launch(f"attention of {D}: back to keys", gpu_training._back_kv,
                 block | {"KEYS": own.keys, "QUERIES": other}, *how)
    yield Launch(f"turned, of {D}", gpu_training._turn,
                 {"HALF": D // 2, "WIDE": D // 2, "HEADS": 64, "TIMES": 4, "BACK": True}, 4, 3)
    moved = {"D": D, "TIMES": 4, "BLOCK": gpu_training.COLUMNS, "AT_ONCE": gpu_training.AT_ONCE}
    yield Launch(f"keys taken, of {D}", gpu_training._take, moved, 1, 3)
    yield Launch(f"keys given back, of {D}", gpu_training._give_back, moved, 1, 3)
    yield Launch(f"kept, heads of {D}", decode_attention._keep, {"KV": 8, "D": D, "WIDE": 8 * D}, 1, 3,
                 {"place": "*i64", "position": "*i64"})
    for REP in (1, 4):
        for group in {decode_attention.QUERIES // REP if D <= decode_attention.WIDEST else 1, 1}:
            for few in {False, group == 1}:
                keys, *how = decode_attention.division(group, D, few)
                yield Launch(f"decode_attention, heads of {D}, {REP} for a key, {group} rows{', few' * few}",
                             decode_attention._decode_attention,
                             {"KV": 8, "REP": REP, "D": D, "ROUND": D,
                              "WIDE": decode_attention.squared_columns(2048, group),
                              "PIECES": 8, "INNER": True, "GROUP": group, "TIMES": max(REP, 16 // group),
                              "BLOCK": keys, "CHUNK": 512 if group == 1 else 0}, *how, {"count": "*i32"})


def shared_memory(launch: Launch, kind: int) -> int:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    names = launch.kernel.arg_names
    types = {name: "constexpr" if name in launch.constants else launch.types.get(name, type_of(name))
             for name in names}
    # sizes of real models are multiples of 16 as well, and what is known to be aligned is loaded ahead
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names)
               if types[name].startswith(("*", "i"))}
    source = ASTSource(launch.kernel, types, attrs=aligned,
                       constexprs={(names.index(name),): x for name, x in launch.constants.items()})
    compiled = triton.compile(source, target=GPUTarget("cuda", kind, 32),
                              options={"num_warps": launch.warps, "num_stages": launch.stages})
    return compiled.metadata.shared


def fit(kinds: list[int]) -> int:
    wrong = 0
    for kind in kinds:
        largest, count = 0, 0
        for launch in launches(ROOM[kind]):
            count += 1
            try:
                size = shared_memory(launch, kind)
            except Exception as fault:  # reported, and the next is compiled
                print(f"sm_{kind}: {launch.name} does not compile: {' '.join(str(fault).split())[:200]}")
                wrong += 1
                continue
            if size > ROOM[kind]:
                print(f"sm_{kind}: {launch.name} takes {size:,} bytes of {ROOM[kind]:,}")
                wrong += 1
            largest = max(largest, size)
        print(f"sm_{kind}: {count} kernels, {largest:,} bytes of shared memory at most, of {ROOM[kind]:,}",
              flush=True)
    return int(wrong > 0)


def tried(name: str, folder: str) -> dict:
    """A family in its own form, with random weights: greedy texts on the GPU and on the CPU; the differences
    of log-probs, sampler's against trainer's, in float32 and bfloat16; of gradients, compiled or not."""
    import torch
    from family_models import larger, make
    from small import CHAT, PROMPTS

    from postgrad.models import Decoder
    from postgrad.sampling import LocalSampler, Sampling
    from postgrad.training.batches.columns import rollout_batch
    model, _ = make(name, folder, **larger(name))
    out: dict = {"family": name}
    greedy = {}
    for device in ("cpu", "cuda"):
        model = model.to(device)
        groups = LocalSampler(model, CHAT).sample(PROMPTS, 1, Sampling(max_new_tokens=24, temperature=0.0), 0)
        greedy[device] = [r.tokens for group in groups for r in group]
    out["greedy equal to the CPU"] = (sum(a == b for a, b in zip(greedy["cpu"], greedy["cuda"], strict=True))
                                      / len(PROMPTS))
    for dtype in (torch.float32, torch.bfloat16):
        model = model.to(dtype)
        groups = LocalSampler(model, CHAT).sample(PROMPTS, 4, Sampling(max_new_tokens=48), 1)
        batch = rollout_batch([r for group in groups for r in group]).to("cuda")
        logp, _ = model.logp(batch.tokens, batch.mask)
        gap = (logp - batch.sampler_logp).abs()[batch.mask]
        out[f"sampler against trainer, {dtype}".replace("torch.", "")] = float(gap.detach().max())
    packed = next(batch.split(10**9)).packed
    grads = []
    # each a model of its own: a graph is captured before anything else has run backwards
    for compiled in (True, False):
        fresh = Decoder(model.config).to("cuda", torch.bfloat16)
        fresh.load_state_dict(model.state_dict())
        fresh.compiled = compiled
        (fresh.logp(batch.tokens, batch.mask, packed=packed)[0].sum() / batch.mask.sum()).backward()
        grads.append(torch.cat([p.grad.float().flatten() for p in fresh.parameters()]))
    out["gradients, compiled against not, relative"] = float((grads[0] - grads[1]).norm() / grads[0].norm())
    return out


def families(only: list[str]) -> None:
    from family_models import ADDED, FAMILIES

    import postgrad
    with tempfile.TemporaryDirectory() as folder:
        for name in FAMILIES:
            if name not in ADDED and (not only or name in only):
                try:
                    print(json.dumps(tried(name, f"{folder}/{name}")), flush=True)
                except Exception as fault:  # reported, and the next family is tried
                    print(json.dumps({"family": name, "error": " ".join(repr(fault).split())[-300:]}),
                          flush=True)
        if only:
            return
        run = postgrad.fit("tiny-chat", "grpo", task="words", run=f"{folder}/run", steps=12, device="cuda",
                           display=False)
        print(json.dumps({"rewards": [round(row["reward"], 3) for row in run.metrics()],
                          "mismatch": max(row["mismatch"] for row in run.metrics())}))


if __name__ == "__main__":
    what, *rest = harness.arguments()[0] or sys.exit(__doc__)
    sys.exit(fit([int(x) for x in rest] or [*ROOM]) if what == "fit" else families(rest))
