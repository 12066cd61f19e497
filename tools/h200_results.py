"""docs/results/speed-h200.json from the lines that bench/h200.py, scaling.py, short_run.py, memory.py and
foreign_steps.py printed on the GPU machine.

    python tools/h200_results.py COMMIT LINES.jsonl ...      a part that was run twice counts as it was run
                                                             last, one that was not run as the page has it
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "bench")]

import memory  # noqa: E402
from results import NOT_MEASURED, RESULTS, bar, write  # noqa: E402

H200 = {"cpu": "one NVIDIA H200, 16 cores of its host", "cores": 16, "python": "3.12.3",
        "torch": "2.11.0+cu130"}
RUN = "python bench/h200.py"
BY_ROWS = "How cost grows with rows (fewer than 512 leave the GPU half idle)"
BY_TOKENS = "How cost grows with tokens, 64 rows"
ALL = "Everything that was measured"
FIRST = "d51ac1b"  # the commit of the page that had no column for it
BEFORE = 189_569  # tokens/s of the ragged rows there: what is to be half as fast again


def read(paths: list[str], commit: str) -> tuple[dict[str, dict], list[dict]]:
    """The parts by their names, each with its commit, and how cost grows."""
    page = json.loads((RESULTS / "speed-h200.json").read_text())["tables"]
    parts = {row["part"]: json.loads(row["line"]) | {"commit": row.get("commit", FIRST)} for row in page[ALL]}
    new = []
    for line in (line for path in paths for line in Path(path).read_text().splitlines()):
        if line.startswith('{"part"'):
            found = json.loads(line)
            name = found.pop("part")
            if "error" not in found:
                parts[name] = found | {"commit": commit}
        elif line.startswith('{"case"'):
            found = json.loads(line)
            parts[f"memory: {found.pop('case')}"] = found | {"commit": commit}
        elif line.startswith("{'"):
            new.append(ast.literal_eval(line))
    return parts, new or [*page[BY_ROWS], *page[BY_TOKENS]]


def ratio(a: float, b: float) -> str:
    return f"{a / b:.2f}x"


def bars_of(p: dict[str, dict], rows: list[dict]) -> list[dict]:
    shape = "135M shape, 64 x 8 samples, 128 + 128 tokens"
    step, anchored = p["step"]["beta 0"], p["step"]["beta 0.04"]
    theirs, theirs_anchored = p["trl"]["beta 0"], p["trl"]["beta 0.04"]
    big, big_theirs = p["big"]["beta 0"], p["trl-big"]["beta 0"]
    sampling, train, ragged, start, graphs = (p[x]
                                              for x in ("sampling", "train", "ragged", "start", "graphs"))
    far = sampling["log-probs, largest difference from the trainer's"]
    cold, warm = (start[f"{x}: first step less a later one"] for x in ("cold", "warm"))
    by_rows = [r for r in rows if "rows" in r and r["rows"] >= 512]
    per_token = [r["sampling us/token"] for r in by_rows], [r["training us/token"] for r in by_rows]
    spread = [max(x) / min(x) for x in per_token]
    return [
        bar(f"{shape}: whole GRPO step, beta 0 (TRL: {theirs['step']:.2f} s)", "<= 0.42 s",
            f"{step['step']:.2f} s, {theirs['step'] / step['step']:.1f}x; floor {step['floor']:.2f} s",
            step["step"] <= 0.42, f"{RUN} step trl"),
        bar(f"the same with beta 0.04 (TRL: {theirs_anchored['step']:.2f} s)", "<= 0.75 s",
            f"{anchored['step']:.2f} s, {theirs_anchored['step'] / anchored['step']:.1f}x; floor "
            f"{anchored['floor']:.2f} s",
            anchored["step"] <= 0.75, f"{RUN} step trl"),
        bar(f"{shape}: sampling with log-probs", ">= 380k tokens/s",
            f"{sampling['tokens/s'] / 1e3:.0f}k; floor {sampling['floor tokens/s'] / 1e3:.0f}k",
            sampling["tokens/s"] >= 380e3, f"{RUN} sampling"),
        bar(f"{shape}: forward and backward, prompts counted for each sample as TRL computes them",
            ">= 620k tokens/s", f"{train['tokens/s'] / 1e3:.0f}k; floor {train['floor tokens/s'] / 1e3:.0f}k",
            train["tokens/s"] >= 620e3, f"{RUN} train"),
        bar(f"1B shape, the same work: whole GRPO step (TRL: {big_theirs['step']:.2f} s)", "<= 1.25 s",
            f"{big['step']:.2f} s, {big_theirs['step'] / big['step']:.1f}x; floor {big['floor']:.2f} s",
            big["step"] <= 1.25, f"{RUN} big trl-big"),
        bar(f"ragged lengths (geometric, mean 128, cap 1024), {ragged['rows']} rows over "
            f"{ragged['slots']} slots, against commit {FIRST} with its 512", ">= 1.5x its tokens/s",
            f"{ratio(ragged['ragged tokens/s'], BEFORE)} ({ragged['ragged tokens/s'] / 1e3:.0f}k, "
            f"{BEFORE / 1e3:.0f}k); over 512 slots {ragged['ragged tokens/s over 512 slots'] / 1e3:.0f}k; "
            f"{100 * ragged['kept']:.0f} % of what equal lengths reach; 512 rows alone, which wait for their "
            f"longest: {ragged['ragged tokens/s of 512 rows alone'] / 1e3:.0f}k",
            ragged["ragged tokens/s"] >= 1.5 * BEFORE, f"{RUN} ragged"),
        bar("peak memory of a GRPO step, 16,384 tokens a pass on both sides (ours has prompts shared in "
            "them)", "<= 0.8x TRL",
            f"{ratio(step['peak GiB'], theirs['peak GiB'])} ({step['peak GiB']:.1f} GiB at "
            f"{step['step']:.2f} s, {theirs['peak GiB']:.1f} GiB at {theirs['step']:.2f} s)",
            step["peak GiB"] <= 0.8 * theirs["peak GiB"], f"{RUN} step trl"),
        recomputed(p.get("recompute"), theirs),
        bar("compile and capture before the first step, cold", "<= 60 s", f"{cold:.0f} s", cold <= 60,
            f"{RUN} start"),
        bar("the same with a warm cache", "<= 15 s", f"{warm:.0f} s", warm <= 15, f"{RUN} start"),
        *short_runs(p),
        estimator({name: x for name, x in p.items() if name.startswith("memory: ")}),
        foreign(p.get("foreign")),
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


def recomputed(found: dict | None, theirs: dict) -> dict:
    name, target, command = "the same with optim.recompute=true", "<= 0.5x TRL", \
        f"{RUN} recompute trl"
    if found is None:
        return bar(name, target, NOT_MEASURED, False, command)
    mine = found["beta 0"]
    return bar(name, target, f"{ratio(mine['peak GiB'], theirs['peak GiB'])} ({mine['peak GiB']:.1f} GiB at "
               f"{mine['step']:.2f} s)", mine["peak GiB"] <= 0.5 * theirs["peak GiB"], command)


def short_runs(p: dict[str, dict]) -> list[dict]:
    out, command = [], "python bench/short_run.py"
    for name, what in (("cold", "nothing compiled before"), ("warm", "with the kernels of an earlier run")):
        found = p.get(name, {})
        seconds = found.get("seconds")
        parts = ", ".join(f"{part} {found[part]:.1f}" for part in
                          ("import", "start", "first step", "other steps", "end") if part in found)
        if seconds is not None:
            told = f"{seconds:.1f} s" + (f" ({parts})" if parts else "")
        out.append(bar(f"20 GRPO steps of the embedded model, from start to end, {what}", "<= 15 s",
                       NOT_MEASURED if seconds is None else told,
                       seconds is not None and seconds <= 15, f"{command} {name}"))
    saves = p.get("saves", {})
    delay = saves.get("delay seconds")
    out.append(bar("a checkpoint of a 0.63B model with Adam's state, while training goes on: delay",
                   "<= 1.5 s", NOT_MEASURED if delay is None else
                   f"{delay:.1f} s for {saves['GB']:.1f} GB ({saves['the call']:.2f} s in the call, written "
                   f"{saves['written after']:.0f} s later)", delay is not None and delay <= 1.5,
                   f"{command} saves"))
    return out


def estimator(cases: dict[str, dict]) -> dict:
    """The larger of the two peaks of each case, as it was measured, and as the estimate says it now."""
    apart = {}
    for case in memory.CASES:
        found = cases.get(f"memory: {case.words}", {})
        if "peaks" in found:
            said = memory.said_of(case, found["graphs"])
            most = max(said.updating, said.sampling if "sampling" in found["peaks"] else 0.0) / memory.GB
            apart[case.words] = most / max(peak["measured"] for peak in found["peaks"].values()) - 1
    near = [name for name, off in apart.items() if abs(off) <= 0.1]
    worst = max(apart.items(), key=lambda pair: abs(pair[1]), default=("", 0.0))
    return bar("peak memory as `postgrad memory` says it, on a GPU", "within 10 % on 8 cases or more",
               f"{len(near)} of {len(apart)} within 10 %; furthest off by {100 * worst[1]:+.0f} % "
               f"({worst[0]})" if apart else NOT_MEASURED, len(near) == len(apart) >= 8,
               "python bench/memory.py")


def foreign(found: dict | None) -> dict:
    name, command = "a step of 128 samples of 62 tokens through transformers, llama of 1M parameters, " \
        "against rows laid out anew at every token", "python bench/foreign_steps.py"
    if found is None:
        return bar(name, ">= 4x", NOT_MEASURED, False, command)
    return bar(name, ">= 4x", f"{found['before'] / found['now']:.1f}x ({found['before']:.3f} s, "
               f"{found['now']:.3f} s)", found["before"] >= 4 * found["now"], command)


def main(commit: str, paths: list[str]) -> None:
    parts, rows = read(paths, commit)
    bars = bars_of(parts, rows)
    tables = {BY_ROWS: [r for r in rows if "rows" in r], BY_TOKENS: [r for r in rows if "tokens" in r],
              ALL: [{"part": name, "commit": x.pop("commit"), "line": json.dumps(x)}
                    for name, x in parts.items()]}
    print(write("speed-h200", "Speed on one H200: what was to be shown, and what was measured", bars,
                seeds=[0], tables=tables, on=H200, at=commit))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
