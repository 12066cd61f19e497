"""docs/results/speed-h200.json from the lines that bench/h200.py and bench/scaling.py
printed on the GPU machine.

    python tools/h200_results.py COMMIT LINES.jsonl ...      a part that was run twice counts as it was run
                                                             last
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

from results import bar, write

H200 = {"cpu": "one NVIDIA H200, 16 cores of its host", "cores": 16, "python": "3.12.3",
        "torch": "2.11.0+cu130"}
RUN = "python bench/h200.py"


def read(paths: list[str]) -> tuple[dict[str, dict], list[dict]]:
    parts, rows = {}, []
    for line in (line for path in paths for line in Path(path).read_text().splitlines()):
        if line.startswith('{"part"'):
            found = json.loads(line)
            parts[found["part"]] = found
        elif line.startswith("{'"):
            rows.append(ast.literal_eval(line))
    return parts, rows


def bars_of(p: dict[str, dict], rows: list[dict]) -> list[dict]:
    step, anchored = p["step"]["beta 0"], p["step"]["beta 0.04"]
    theirs, theirs_anchored = p["trl"]["beta 0"], p["trl"]["beta 0.04"]
    big, big_theirs = p["big"]["beta 0"], p["trl-big"]["beta 0"]
    sampling, train, ragged, start, graphs = (p[x]
                                              for x in ("sampling", "train", "ragged", "start", "graphs"))
    far = sampling["log-probs, largest difference from the trainer's"]
    memory = step["peak GiB"] / theirs["peak GiB"]
    cold, warm = (start[f"{x}: first step less a later one"] for x in ("cold", "warm"))
    shape = "135M shape, 64 x 8 samples, 128 + 128 tokens"
    by_rows = [r for r in rows if "rows" in r and r["rows"] >= 512]
    per_token = [r["sampling us/token"] for r in by_rows], [r["training us/token"] for r in by_rows]
    spread = [max(x) / min(x) for x in per_token]
    return [
        bar(f"{shape}: whole GRPO step, beta 0 (TRL in the same session: {theirs['step']:.2f} s)",
            "<= 0.75 s",
            f"{step['step']:.2f} s, {theirs['step'] / step['step']:.1f}x; floor {step['floor']:.2f} s",
            step["step"] <= 0.75, f"{RUN} step trl"),
        bar(f"the same with beta 0.04 (TRL: {theirs_anchored['step']:.2f} s)", "<= 0.75 s",
            f"{anchored['step']:.2f} s, {theirs_anchored['step'] / anchored['step']:.1f}x; floor "
            f"{anchored['floor']:.2f} s",
            anchored["step"] <= 0.75, f"{RUN} step trl"),
        bar(f"{shape}: sampling with log-probs", ">= 150k tokens/s",
            f"{sampling['tokens/s'] / 1e3:.0f}k; floor {sampling['floor tokens/s'] / 1e3:.0f}k",
            sampling["tokens/s"] >= 150e3, f"{RUN} sampling"),
        bar(f"{shape}: forward and backward, prompts counted for each sample as TRL computes them",
            ">= 350k tokens/s", f"{train['tokens/s'] / 1e3:.0f}k; floor {train['floor tokens/s'] / 1e3:.0f}k",
            train["tokens/s"] >= 350e3, f"{RUN} train"),
        bar("1B shape: GRPO step against TRL with generate, same settings", ">= 3x",
            f"{big_theirs['step'] / big['step']:.2f}x ({big['step']:.2f} s, {big_theirs['step']:.2f} s); "
            f"floor {big['floor']:.2f} s",
            big_theirs["step"] / big["step"] >= 3, f"{RUN} big trl-big"),
        bar(f"ragged lengths (geometric, mean 128, cap 1024): tokens/s kept, {ragged['rows']} rows "
            "over 512 slots",
            ">= 80 %", f"{100 * ragged['kept']:.0f} % ({ragged['ragged tokens/s'] / 1e3:.0f}k of "
            f"{ragged['equal tokens/s'] / 1e3:.0f}k; 512 rows alone, which wait for their longest: "
            f"{ragged['ragged tokens/s of 512 rows alone'] / 1e3:.0f}k)",
            ragged["kept"] >= 0.8, f"{RUN} ragged"),
        bar("peak memory of a GRPO step, 16,384 tokens a pass on both sides (ours has prompts "
            "shared in them)",
            "<= 0.5x TRL", f"{memory:.2f}x ({step['peak GiB']:.1f} GiB, {theirs['peak GiB']:.1f} GiB)",
            memory <= 0.5, f"{RUN} step trl"),
        bar("compile and capture before the first step, cold", "<= 60 s", f"{cold:.0f} s", cold <= 60,
            f"{RUN} start"),
        bar("the same with a warm cache", "<= 15 s", f"{warm:.0f} s", warm <= 15, f"{RUN} start"),
        bar("sampled tokens' log-probs, sampler against trainer, bf16", "<= 0.1, a stated bound",
            f"{far:.3f}",
            far <= 0.1, f"{RUN} sampling"),
        bar("gradients through CUDA graphs are as far from fp32 as without them, bf16", "<= 1.1x",
            f"{graphs['graphs against fp32']:.3f} and {graphs['none against fp32']:.3f} relative",
            graphs["graphs against fp32"] <= 1.1 * graphs["none against fp32"], f"{RUN} graphs"),
        bar("cost of a token stands still from 512 to 4,096 rows: dearest over cheapest", "<= 1.25",
            f"sampling {spread[0]:.2f}, training {spread[1]:.2f}", max(spread) <= 1.25,
            "python bench/scaling.py --device cuda"),
    ]


def main(commit: str, paths: list[str]) -> None:
    parts, rows = read(paths)
    bars = bars_of(parts, rows)
    tables = {
        "How cost grows with rows (fewer than 512 leave the GPU half idle)": [r for r in rows if "rows" in r],
        "How cost grows with tokens, 64 rows": [r for r in rows if "tokens" in r],
        "Everything that was measured": [{"part": x.pop("part"), "line": json.dumps(x)}
                                         for x in parts.values()]}
    print(write("speed-h200", "Speed on one H200: what was to be shown, and what was measured", bars,
                seeds=[0], tables=tables, on=H200, at=commit))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
