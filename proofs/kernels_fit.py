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
    choosing,
    gathering,
    gpu,
    gpu_step,
    head,
    joined,
    looking,
    training,
    vocabulary,
)
from postgrad.models.kernels import shared_attention as shared  # noqa: E402

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
    rows, columns, deep, *how = head.TILE if room >= head.ROOM else head.SMALL_TILE
    tile = {"EVEN": True, "ROWS": rows, "COLUMNS": columns, "DEEP": deep}
    yield Launch("head: read", head._read, tile, *how)
    yield Launch("head: slope", head._slope, tile | {"BOTH": True}, *how)
    yield Launch("head: join", head._join,
                 {"ROWS": head.JOIN_ROWS, "TILES": head.JOIN_TILES, "DEEP": deep}, 4, 3)
    piece = {"PIECE": choosing.PIECE}
    yield Launch("choosing: tops", choosing._tops, tile | piece, *how)
    yield Launch("choosing: choose", choosing._choose,
                 piece | {"ENDS": 2, "PIECES": 4096, "DEEP": choosing.DEEP}, choosing.WARPS, 3,
                 {"out": "*i64"})
    yield Launch("softmax: read", vocabulary._read, {"BLOCK": vocabulary.READ_BLOCK,
                                                     "STAGES": vocabulary.READ_STAGES},
                 vocabulary.READ_WARPS, 3, {"logits": "*fp32"})
    yield Launch("pick", gpu._pick, {"BLOCK": gpu.PICK[0], "BLOCKS": 64}, gpu.PICK[1], 3, {"logits": "*fp32"})
    yield Launch("note", gpu._note, {"ENDS": 2, "BLOCK": 128}, 4, 3, {"out": "*i64"})
    yield Launch("norm", gpu._add_norm, {"has_delta": True, "BLOCK": 4096}, 8, 3)
    yield Launch("gate", gpu_step._gate, {"WIDE": 4096, "EARLY": False, "BLOCK": 2048}, 4, 3)
    yield Launch("gate, back", joined._gate_back, {"BLOCK": joined.GATE_BLOCK}, 4, 3)
    yield Launch("sums of gradients", gathering._add, {"PIECE": gathering.PIECE}, gathering.WARPS, 3,
                 {"pieces": "*i64"})
    for size in (64, 128, 256):
        yield from of_heads(size)


def of_heads(D: int) -> Iterator[Launch]:
    own, block = shared.tiles(D), {"D": D, "ROUND": D, "WINDOW": False}
    for name, kernel, (other, *how) in (("forward", shared._forward, own.forward),
                                        ("back to queries", shared._back_q, own.back_q)):
        yield Launch(f"attention of {D}: {name}", kernel,
                     block | {"QUERIES": own.queries, "KEYS": other}, *how)
    other, *how = own.back_kv
    yield Launch(f"attention of {D}: back to keys", shared._back_kv,
                 block | {"KEYS": own.keys, "QUERIES": other}, *how)
    yield Launch(f"turned, of {D}", joined._turn,
                 {"HALF": D // 2, "WIDE": D // 2, "HEADS": 64, "TIMES": 4, "BACK": True}, 4, 3)
    moved = {"D": D, "TIMES": 4, "BLOCK": training.COLUMNS, "AT_ONCE": training.AT_ONCE}
    yield Launch(f"keys taken, of {D}", training._take, moved, 1, 3)
    yield Launch(f"keys given back, of {D}", training._give_back, moved, 1, 3)
    yield Launch(f"kept, heads of {D}", looking._keep, {"KV": 8, "D": D, "WIDE": 8 * D}, 1, 3,
                 {"place": "*i64", "position": "*i64"})
    for REP in (1, 4):
        for group in {looking.QUERIES // REP if D <= looking.WIDEST else 1, 1}:
            for few in {False, group == 1}:
                keys, *how = looking.division(group, D, few)
                yield Launch(f"looking, heads of {D}, {REP} for a key, {group} rows{', few' * few}",
                             looking._attend,
                             {"KV": 8, "REP": REP, "D": D, "ROUND": D, "WIDE": looking.columns(2048, group),
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
