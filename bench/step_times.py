"""Where the time of a GRPO step on a GPU goes: the parts that a run logs, and what the host does meanwhile.

    python bench/step_times.py [--beta 0.04] [--passes 4] [--shape 1B] [--profile] [CHANGE ...]

64 x 8 samples, 128 + 128 tokens, as `bench/h200.py step`, of the 135M shape if none is named; half a minute.
--passes: in how many passes a step is trained on. --profile: the functions of the main thread, by their own
time and with what they call.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "bench")]

import sides  # noqa: E402
import torch  # noqa: E402
from passes import Setting  # noqa: E402
from work import Gate  # noqa: E402

from postgrad.runs import Run  # noqa: E402

WARM = 3  # steps that are left out


class Enough(Exception):
    """So many steps were made."""


def steps(s: Setting, beta: float, changes: list[str], count: int, profile: cProfile.Profile | None) -> dict:
    seen: list[dict] = []
    rows: list[dict] = []

    def hear() -> str:
        if profile and len(seen) == WARM:
            profile.enable()
        if len(seen) == count:
            raise Enough
        return "step"

    def logged(run: Run, step: int, row: dict) -> None:
        rows.append(row)
        log(run, step, row)

    log, Run.log = Run.log, logged  # type: ignore[method-assign]
    with suppress(Enough):
        sides.ours(s.work(s.shape, (*s.recipe(), *changes), steps=count, beta=beta), Gate(seen.append, hear))
    if profile:
        profile.disable()
    warm = rows[WARM:]
    return {"step": statistics.median(x["seconds"] for x in seen[WARM:]), "GiB": seen[-1]["gpu"] / 2**30,
            **{name: statistics.median(row[name] for row in warm) for name in warm[-1]
               if name.startswith("time/")}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--beta", type=float, default=0.0)
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--shape", default="135M")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--small", action="store_true", help="tiny, on a CPU: to try the script")
    args = parser.parse_args()
    profile = cProfile.Profile() if args.profile else None
    with tempfile.TemporaryDirectory() as folder:
        s = Setting(folder=Path(folder), ours=(), dtype=torch.bfloat16, shape=args.shape,
                    passes=args.passes)
        if args.small:
            s = replace(s, device="cpu", shape="tiny", prompts=4, group=4, prompt=16, new=16)
        found = steps(s, args.beta, args.changes, WARM + 6, profile)
    print(json.dumps({name: round(x, 4) for name, x in found.items()}))
    for order in ("tottime", "cumulative") if profile else ():
        pstats.Stats(profile).strip_dirs().sort_stats(order).print_stats(30)


if __name__ == "__main__":
    main()
