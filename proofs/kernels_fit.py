"""Whether the Triton kernels compile for GPUs that are not at hand, and find the shared memory there that
they ask for: compiled for each kind, on any machine that has Triton; no GPU is needed.

    python proofs/kernels_fit.py [80 89 90 120]        compute capabilities; about two minutes

Shapes: heads of 64, 128 and 256, one query for a key and several, in the sizes that the wrappers choose.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from postgrad.models.kernels import (  # noqa: E402
    decode_attention,
    gpu,
    gpu_decode,
    gpu_training,
    gradient_sums,
    vocab_softmax,
)

# bytes of shared memory that a program can have: A100, RTX 40, H100 and H200, RTX 50
ROOM = {80: 166_912, 89: 101_376, 90: 232_448, 120: 101_376}
# arguments that are not bfloat16, by their names
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
    names = launch.kernel.arg_names
    types = {name: "constexpr" if name in launch.constants else launch.types.get(name, type_of(name))
             for name in names}
    # sizes of real models are multiples of 16 as well, and what is known to be aligned is loaded ahead
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names)
               if types[name].startswith(("*", "i"))}
    source = ASTSource(launch.kernel, types, attrs=aligned,
                       constexprs={(names.index(name),): x for name, x in launch.constants.items()})
    made = triton.compile(source, target=GPUTarget("cuda", kind, 32),
                          options={"num_warps": launch.warps, "num_stages": launch.stages})
    return made.metadata.shared


def main(kinds: list[int]) -> int:
    wrong = 0
    for kind in kinds:
        largest, count = 0, 0
        for launch in launches(ROOM[kind]):
            count += 1
            try:
                taken = shared_memory(launch, kind)
            except Exception as fault:  # said, and the next is tried
                print(f"sm_{kind}: {launch.name} does not compile: {' '.join(str(fault).split())[:200]}")
                wrong += 1
                continue
            if taken > ROOM[kind]:
                print(f"sm_{kind}: {launch.name} takes {taken:,} bytes of {ROOM[kind]:,}")
                wrong += 1
            largest = max(largest, taken)
        print(f"sm_{kind}: {count} kernels, {largest:,} bytes of shared memory at most, of {ROOM[kind]:,}",
              flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main([int(x) for x in sys.argv[1:]] or [*ROOM]))
