"""The tables and bars of `speed`: what two sides said, side by side."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from results import bar  # noqa: E402

SAME = 1e-4  # largest relative difference of losses and gradient norms over the compared steps
DEFAULTS, TUNED, FP32 = "TRL defaults", "TRL tuned", "postgrad fp32"


def without_units() -> str:
    """What has to be said of TRL's defaults on a CPU that computes bfloat16 by way of float32."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text() if info.exists() else ""
    units = any(name in flags for name in ("amx_bf16", "avx512_bf16", " bf16"))
    return "" if units else "; a CPU without bfloat16 units, on which TRL's defaults are slow"


def agreement(case: str, shape: str, ours: list[dict], theirs: list[dict]) -> dict:
    """Losses and gradient norms of the same steps: TRL says those of a step with the next one."""
    pairs = [(a, b["before"]) for a, b in zip(ours, theirs[1:], strict=False)]
    off = {key: max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-3) for a, b in pairs)
           for key in ("loss", "grad_norm")}
    return {"work": case, "model": shape, "steps": len(pairs),
            "loss, largest relative difference": off["loss"], "gradient norm, the same": off["grad_norm"],
            "tokens of a step": int(ours[0]["tokens"]), "TRL's": int(theirs[0]["tokens"]),
            "same": max(off.values()) < SAME and ours[0]["tokens"] == theirs[0]["tokens"]}


def cell(answers: list[dict]) -> str:
    ms = [1e3 * a["seconds"] for a in answers[1:]]
    return f"{statistics.median(ms):.0f} ms ({min(ms):.0f} to {max(ms):.0f})"


def rate(answers: list[dict], key: str = "seconds") -> float:
    """Tokens a second, the median of the rounds."""
    return statistics.median(a["tokens"] / a[key] for a in answers[1:])


def row(name: str, shape: str, seen: dict[str, list[dict]], floors: dict[str, float]) -> dict:
    """A line of the table. Ratios are of tokens a second, so that they hold where lengths differ."""
    line = {"work": name, "model": shape, **{side: cell(answers) for side, answers in seen.items()}}
    for side in seen:
        if side.startswith("postgrad"):
            short = side.removeprefix("postgrad ")
            line |= {f"{short} x {other}": round(rate(seen[side]) / rate(seen[other]), 2)
                     for other in (DEFAULTS, TUNED)}
            line[f"{short} x {DEFAULTS}, CPU time"] = round(
                rate(seen[side], "cpu") / rate(seen[DEFAULTS], "cpu"), 2)
    tokens = statistics.median(a["tokens"] for a in seen[FP32][1:])
    return line | {"tokens": int(tokens), "tokens/s": int(rate(seen[FP32])),
                   "tokens/CPU s": int(rate(seen[FP32], "cpu")),
                   **{f"floor {name}": f"{1e3 * seconds:.0f} ms" for name, seconds in floors.items()}}


def start_row(shape: str, seen: dict[str, dict]) -> dict:
    line = {"model": shape}
    for name, found in seen.items():
        line |= {f"{name}: first step": f"{statistics.median(found['first']):.1f} s",
                 f"{name}: peak": f"{statistics.median(found['peak']) / 2**20:.0f} MiB"}
    return line


def bars(table: list[dict], samples: list[dict], memory: dict[str, dict], checks: list[dict],
         kept: float | None, ours: list[str]) -> list[dict]:
    """The CPU lines of what was to be shown, for the smallest shape that was run; the best of our precisions.
    kept: of the tokens a CPU second, where lengths are ragged."""
    command, found = "make bench", []

    def best(rows: list[dict], name: str) -> tuple[dict, str]:
        line = next((r for r in rows if r["work"] == name and r["model"] == "1M"), None)
        return line, max(ours, key=lambda k: line[f"{k} x {DEFAULTS}"]) if line else ""

    for rows, name, target in ((table, "GRPO step, beta 0", 3.8), (samples, "sampling", 4.0)):
        line, how = best(rows, name)
        if line:
            ratio, cpu = line[f"{how} x {DEFAULTS}"], line[f"{how} x {DEFAULTS}, CPU time"]
            # by either clock: a busy machine favours whom it likes
            found.append(bar(f"{name}, 1M, 8 x 8 samples of 16 + 48 tokens, against TRL's defaults",
                             f">= {target:g}x", f"{ratio:.2f}x ({how}; {cpu:.2f}x by CPU time); "
                             f"{line[f'{how} x {TUNED}']:.2f}x TRL tuned{without_units()}",
                             min(ratio, cpu) >= target, command))
    if kept is not None:
        found.append(bar("ragged lengths: sampled tokens kept per CPU second against equal lengths, 1M, "
                         "fp32, a call of each by turns, rollouts.async_depth=0",
                         ">= 65 %", f"{100 * kept:.0f} %", kept >= 0.65, command))
    for shape, seen in memory.items():
        peak = {name: statistics.median(x["peak"]) for name, x in seen.items()}
        ratio, other = peak[FP32] / peak[TUNED], peak[FP32] / peak[DEFAULTS]
        found.append(bar(f"peak memory of a GRPO step over what is loaded, {shape}, equal settings (fp32, no "
                         "checkpointing)",
                         "<= 0.5x TRL", f"{ratio:.2f}x; {other:.2f}x TRL's defaults", ratio <= 0.5, command))
    if checks:
        found.append(bar("both sides do the same work: losses, gradient norms, tokens, fp32",
                         f"every work, {SAME:g} relative",
                         f"{sum(c['same'] for c in checks)} of {len(checks)}", all(c["same"] for c in checks),
                         command))
    return found
