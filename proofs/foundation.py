"""The proofs of the foundation: demo over five seeds, oracle, parity, exact resume, start-up, size;
about 25 minutes.

make proof      writes docs/results/foundation.json and .md
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / name) for name in ("tests/support", "proofs", "tools")]

import kills  # noqa: E402
import results  # noqa: E402
import torch  # noqa: E402
from results import bar  # noqa: E402

SEEDS = [0, 1, 2, 3, 4]
PROOF = "make proof"


def postgrad(*args: str) -> tuple[str, float]:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "postgrad", *args], capture_output=True, text=True, cwd=HERE,
                          check=True)
    return done.stdout, time.perf_counter() - began


def demo(folder: Path) -> tuple[list[dict], list[dict]]:
    rows = []
    for seed in SEEDS:
        out, seconds = postgrad("demo", "--json", "--seed", str(seed), "--run", str(folder / f"demo-{seed}"))
        base, sft, rl = json.loads(out)["stages"]
        rows.append(
            {
                "seed": seed,
                "base": base["pass@1"],
                "SFT": sft["pass@1"],
                "RL": rl["pass@1"],
                "RL interval": " to ".join(f"{x:.3f}" for x in rl["pass@1_interval"]),
                "SFT interval": " to ".join(f"{x:.3f}" for x in sft["pass@1_interval"]),
                "gain": rl["pass@1"] - sft["pass@1"],
                "pass@8 SFT": sft["pass@8"],
                "pass@8 RL": rl["pass@8"],
                "greedy RL": rl["greedy"],
                "length SFT": sft["mean_length"],
                "length RL": rl["mean_length"],
                "seconds": seconds,
            }
        )
        print(rows[-1], flush=True)
    _, quick = postgrad("demo", "--quick", "--json", "--run", str(folder / "quick"))
    gains, slowest = [r["gain"] for r in rows], max(r["seconds"] for r in rows)
    longer = all(r["length RL"] > r["length SFT"] for r in rows)
    bars = [
        bar(
            "demo, all in all",
            "<= 180 s on 2 cores of the machine named above",
            f"{slowest:.0f} s at most over {len(rows)} seeds",
            slowest <= 180,
            "make demo",
        ),
        bar(
            "RL over SFT, pass@1 on held-out problems",
            ">= 40 points with 5 of 5 seeds",
            f"{min(gains) * 100:.1f} to {max(gains) * 100:.1f} points",
            min(gains) >= 0.4,
            PROOF,
        ),
        bar(
            "mean length rises with it",
            "5 of 5 seeds",
            f"{sum(r['length RL'] > r['length SFT'] for r in rows)} of 5",
            longer,
            PROOF,
        ),
        bar("demo --quick, against the demo on this machine", "<= 35 % of its time",
            f"{quick / slowest:.0%}: {quick:.0f} s", quick <= 0.35 * slowest, "postgrad demo --quick"),
    ]
    return bars, rows


def oracle() -> tuple[list[dict], list[dict]]:
    from toy_variants import bias_table

    rows = bias_table()
    claimed = [r for r in rows if r["claims_unbiased"]]
    worst = max(r["relative_bias"] for r in claimed)
    return [
        bar(
            "bias of the rows that claim none, by enumeration",
            "0",
            f"{worst:.1e} at most over {len(claimed)} rows",
            worst < 1e-9,
            PROOF,
        )
    ], rows


def counted(output: str) -> str:
    """pytest's own count: "203 passed in 20.1s"."""
    lines = [line.strip("= ") for line in output.splitlines() if " passed" in line or " failed" in line]
    return lines[-1] if lines else "no tests ran"


def tests(name: str, target: str, *files: str) -> dict:
    """A bar that a test file holds."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-n", "2", *files], capture_output=True, text=True,
                          cwd=HERE)
    return bar(name, target, counted(done.stdout), done.returncode == 0, "pytest " + " ".join(files))


def parity() -> list[dict]:
    """The largest differences from transformers and between sampler and trainer, on the embedded model."""
    from transformers import LlamaForCausalLM

    from postgrad.data.tasks import load_task
    from postgrad.models import find_model, load_model
    from postgrad.models.chat import Chat
    from postgrad.records import pad_rows
    from postgrad.sampling import LocalSampler, Sampling

    ours = load_model("tiny")
    theirs = LlamaForCausalLM.from_pretrained(find_model("tiny"), dtype=torch.float32)
    tokens = torch.randint(0, ours.config.vocab_size, (8, 128), generator=torch.Generator().manual_seed(0))
    a, b = ours.logits(tokens), theirs(tokens).logits
    logits = (a - b).abs().max().item()
    weight = torch.randn(a.shape, generator=torch.Generator().manual_seed(1)) / a.numel()
    (a * weight).sum().backward()
    (b * weight).sum().backward()
    named = dict(theirs.named_parameters())
    grads = max((p.grad - named[n].grad).abs().max().item() for n, p in ours.named_parameters())
    chat = Chat.load(find_model("tiny"))
    groups = LocalSampler(ours, chat).sample(load_task("words").prompts("test", 32, 0), 8,
                                             Sampling(max_new_tokens=64), 0)
    rows = [r for g in groups for r in g]
    full = pad_rows([[*r.prompt_tokens, *r.tokens] for r in rows])
    mask = pad_rows([[False] * len(r.prompt_tokens) + [True] * len(r.tokens) for r in rows], fill=False,
                    dtype=torch.bool)
    said = pad_rows([[0.0] * len(r.prompt_tokens) + list(r.logp) for r in rows], fill=0.0,
                    dtype=torch.float32)
    with torch.no_grad():
        mismatch = (ours.logp(full, mask)[0] - said).abs().max().item()
    return [
        bar("logits against transformers' LlamaForCausalLM, fp32", "<= 1e-5", f"{logits:.1e}", logits <= 1e-5,
            PROOF),
        bar("gradients against the same", "<= 1e-5", f"{grads:.1e}", grads <= 1e-5, PROOF),
        bar(
            "sampled tokens' log-probs, sampler against trainer",
            "<= 1e-5",
            f"{mismatch:.1e} over {int(mask.sum())} tokens",
            mismatch <= 1e-5,
            PROOF,
        ),
    ]


def resume(folder: Path) -> tuple[list[dict], list[dict]]:
    rows = []
    for recipe in kills.SMALL:
        (folder / recipe).mkdir()
        rows += kills.try_kills(recipe, folder / recipe, 10, seed=0)
        print(rows[-10:], flush=True)
    same, inside = sum(not r["differences"] for r in rows), sum(r["inside_save"] for r in rows)
    shown = [{"recipe": r["recipe"],
              "killed": f"at file call {r['at']}" if "at" in r else f"after {r['kill_after']} s",
              "inside a save": r["inside_save"], "differences": ", ".join(r["differences"]) or "none"}
             for r in rows]
    return [
        bar("SFT and GRPO killed at 10 random moments each and resumed",
            "20 of 20 bitwise equal, some inside a save",
            f"{same} of {len(rows)} equal; {inside} inside a save", same == len(rows) and inside > 0, PROOF)
    ], shown


def best_of(count: int, *command: str) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return min(times)


def size(folder: Path) -> list[dict]:
    bare = best_of(5, sys.executable, "-c", "pass")
    importing = best_of(5, sys.executable, "-c", "import postgrad") - bare
    helping = best_of(5, sys.executable, "-m", "postgrad", "--help")
    needs = len(tomllib.loads((HERE / "pyproject.toml").read_text())["project"]["dependencies"])
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(HERE)], check=True,
        capture_output=True
    )
    wheel = next(folder.glob("*.whl")).stat().st_size / 1e6
    return [
        bar("import postgrad", "< 0.2 s", f"{importing:.3f} s", importing < 0.2,
            'python -c "import postgrad"'),
        bar("postgrad --help", "< 0.5 s", f"{helping:.2f} s", helping < 0.5, "postgrad --help"),
        bar("direct dependencies", "<= 15", str(needs), needs <= 15, "pyproject.toml"),
        bar("wheel", "< 15 MB", f"{wheel:.1f} MB", wheel < 15, "pip wheel --no-deps ."),
    ]


def fresh_clone(folder: Path) -> list[dict]:
    """make test where nothing is set up yet; the time counts the installation too."""
    subprocess.run(["git", "clone", "-q", str(HERE), str(folder / "clone")], check=True)
    began = time.perf_counter()
    done = subprocess.run(["make", "test"], cwd=folder / "clone", capture_output=True, text=True)
    seconds, last = time.perf_counter() - began, counted(done.stdout)
    return [
        bar(
            "make test on a fresh clone, installation included",
            "green in <= 480 s",
            f"{seconds:.0f} s: {last}",
            done.returncode == 0 and seconds <= 480,
            "make test",
        )
    ]


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="postgrad-proof-"))
    bars, rows = demo(folder)
    more, bias = oracle()
    bars += [
        tests("every row of the table passes the learning test", "all rows",
              "tests/training/learning_test.py"),
        *more,
        *parity(),
        tests("batch, padding and packing invariance", "green", "tests/models/decoder_test.py",
              "tests/models/load_test.py", "tests/sampling/local_test.py"),
        tests("micro-batch sums equal the whole batch, float64, every row", "bit for bit",
              "tests/training/batches/microbatch_test.py"),
    ]
    more, killed = resume(folder)
    bars += [*more, *fresh_clone(folder), tests("the layers hold", "green", "tests/whole/layers_test.py"),
             *size(folder)]
    page = results.write(
        "foundation",
        "The foundation: what was to be shown, and what was measured",
        bars,
        seeds=SEEDS,
        tables={"The demo, seed by seed": rows, "Bias of each policy row, by enumeration": bias,
                "Kills": killed},
    )
    shutil.rmtree(folder)
    print(page.read_text())
    sys.exit(not all(b["holds"] for b in bars))


if __name__ == "__main__":
    main()
