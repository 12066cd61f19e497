"""The foundation: demo over five seeds, bias by enumeration, parity, exact resume, start-up, size.

    python proofs/foundation.py [PART ...]      `make proof`; 25 minutes on two cores

The part `readme` prints what docs/tasks-and-verifiers.md says of the README's own task file."""

from __future__ import annotations

import re
import subprocess
import time
import tomllib
from functools import partial
from pathlib import Path

import harness
import kills
from harness import HOME, Bars, Tables, bar, best, percent, postgrad, python, tests
from parity import mismatch

from postgrad.data.tasks import load_task
from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.sampling import LocalSampler, Sampling

SEEDS = [0, 1, 2, 3, 4]


def demo(folder: Path) -> tuple[Bars, Tables]:
    rows = []
    for seed in SEEDS:
        began = time.perf_counter()
        base, sft, rl = postgrad("demo", "--seed", seed, "--run", folder / f"demo-{seed}")["stages"]
        rows.append({"seed": seed, "base": base["pass@1"], "SFT": sft["pass@1"], "RL": rl["pass@1"],
                     **{f"{stage['name']} interval": " to ".join(f"{x:.3f}" for x in stage["pass@1_interval"])
                        for stage in (rl, sft)},
                     "gain": rl["pass@1"] - sft["pass@1"], "pass@8 SFT": sft["pass@8"],
                     "pass@8 RL": rl["pass@8"], "greedy RL": rl["greedy"], "length SFT": sft["mean_length"],
                     "length RL": rl["mean_length"], "seconds": time.perf_counter() - began})
        print(rows[-1], flush=True)
    began = time.perf_counter()
    postgrad("demo", "--quick", "--run", folder / "quick")
    quick, slowest = time.perf_counter() - began, max(r["seconds"] for r in rows)
    gains, longer = [r["gain"] for r in rows], sum(r["length RL"] > r["length SFT"] for r in rows)
    return [bar("demo, all in all", "<= 180 s on 2 cores of the machine named above",
                f"{slowest:.0f} s at most over {len(rows)} seeds", slowest <= 180, "make demo"),
            bar("RL over SFT, pass@1 on held-out problems", ">= 40 points with 5 of 5 seeds",
                f"{min(gains) * 100:.1f} to {max(gains) * 100:.1f} points", min(gains) >= 0.4),
            bar("mean length rises with it", "5 of 5 seeds", f"{longer} of 5", longer == 5),
            bar("demo --quick, against the demo on this machine", "<= 35 % of its time",
                f"{quick / slowest:.0%}: {quick:.0f} s", quick <= 0.35 * slowest,
                "postgrad demo --quick")], {"The demo, seed by seed": rows}


def parity(folder: Path) -> Bars:
    """The largest difference of log-probs between sampler and trainer, on the embedded model."""
    model, chat = load_model("tiny"), Chat.load(find_model("tiny"))
    groups = LocalSampler(model, chat).sample(load_task("words").prompts("test", 32, 0), 8,
                                              Sampling(max_new_tokens=64), 0)
    rows = [r for g in groups for r in g]
    far = mismatch(model, rows)
    return [bar("sampled tokens' log-probs, sampler against trainer", "<= 1e-5",
                f"{far:.1e} over {sum(len(r.tokens) for r in rows)} tokens", far <= 1e-5)]


def resume(folder: Path) -> tuple[Bars, Tables]:
    rows = []
    for recipe in ("sft", "grpo"):
        (folder / recipe).mkdir()
        rows += kills.try_kills(recipe, folder / recipe, 10, seed=0)
    same, inside = sum(not r["differences"] for r in rows), sum(r["inside_save"] for r in rows)
    killed = [{"recipe": r["recipe"],
               "killed": f"at file call {r['at']}" if "at" in r else f"after {r['kill_after']} s",
               "inside a save": r["inside_save"], "differences": ", ".join(r["differences"]) or "none"}
              for r in rows]
    return [bar("SFT and GRPO killed at 10 random moments each and resumed",
                "20 of 20 bitwise equal, some inside a save",
                f"{same} of {len(rows)} equal; {inside} inside a save",
                same == len(rows) and inside > 0)], {"Kills": killed}


def size(folder: Path) -> Bars:
    words = ("-c", "import postgrad"), ("-c", "pass"), ("-m", "postgrad", "--help")
    imported, nothing, helping = best(*(partial(python, *each) for each in words))
    importing = imported - nothing
    needs = len(tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["dependencies"])
    python("-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, HOME)
    wheel = next(folder.glob("*.whl")).stat().st_size / 1e6
    return [bar("import postgrad", "< 0.2 s", f"{importing:.3f} s", importing < 0.2,
                'python -c "import postgrad"'),
            bar("postgrad --help", "< 0.5 s", f"{helping:.2f} s", helping < 0.5, "postgrad --help"),
            bar("direct dependencies", "<= 15", needs, needs <= 15, "pyproject.toml"),
            bar("wheel", "< 15 MB", f"{wheel:.1f} MB", wheel < 15, "pip wheel --no-deps .")]


def clone(folder: Path) -> Bars:
    """make test where nothing is set up yet; the time counts the installation too."""
    subprocess.run(["git", "clone", "-q", str(HOME), str(folder / "clone")], check=True)
    began = time.perf_counter()
    done = subprocess.run(["make", "test"], cwd=folder / "clone", capture_output=True, text=True)
    seconds, last = time.perf_counter() - began, re.findall(r".*(?:passed|failed).*", done.stdout)[-1:]
    return [bar("make test on a fresh clone, installation included", "0 fail, <= 480 s",
                f"{seconds:.0f} s: {''.join(last).strip('= ')}", done.returncode == 0 and seconds <= 480,
                "make test")]


def readme(folder: Path) -> Bars:
    """The README's newcomer's task file: pass@1 before and after."""
    text = (HOME / "README.md").read_text()
    task = folder / "larger.py"
    task.write_text(re.search(r"<!-- file: larger.py -->\n```python\n(.*?)```", text, re.S)[1])
    before = postgrad("eval", "tiny-chat", "--task", task)
    run = postgrad("train", "grpo", "--task", task, "--run", folder / "run")
    after = postgrad("eval", folder / "run", "--task", task)
    change = " -> ".join(percent(row["pass@1"], row["pass@1_interval"]) for row in (before, after))
    return [bar("the README's task file: pass@1 on held-out prompts", "rises",
                f"{change}; {run['seconds']:.0f} s, {run['steps']} steps",
                after["pass@1"] > before["pass@1"])]


PAGE = harness.Page("foundation", "The foundation: what was to be shown, and what was measured",
            {"demo": demo, "tests": tests("foundation"), "parity": parity, "resume": resume,
             "clone": clone, "size": size, "readme": readme}, SEEDS, apart=("readme",), paths=harness.TRAINS)

if __name__ == "__main__":
    PAGE.main()
