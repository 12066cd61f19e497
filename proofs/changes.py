"""Four changes as a stranger would make them, on a scratch copy:
how many files and lines each takes, and that it is enough.

    python proofs/changes.py [NAME ...] [--out FILE.json]

    row      a policy method with a surrogate of its own        one file in methods/
    loss     a preference method with a loss of its own         one file in methods/
    task     a task inside the package                          one file in tasks/, which declares its NAMES
                                                                of tasks
    family   a family of decoders whose norms stand after       a row in models/families.py

After each the whole of it must follow by itself: it is listed, trained from the command line, shown in the
studio's form and in the generated pages, and the tests that run over every row, task or family take it in and
pass. No other file is touched.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from mutations import HOME, copy_of

ROW = '''"""SAPO-like: the ratio through a soft gate instead of a clip."""

import torch

from postgrad.maths import credit, weights
from postgrad.methods.row import Policy


def gated_ratio(logp, old_logp, adv, mask, *, tau=1.0):
    """-(4 / tau) sigmoid(tau (rho - 1)) A: the slope is 1 at rho = 1 and falls away on both sides."""
    ratio = torch.where(mask, logp - old_logp, 0.0).exp()
    gate = 4.0 / tau * torch.sigmoid(tau * (ratio - 1.0))
    return torch.where(mask, -gate * adv, 0.0), torch.zeros_like(mask)


GATED = Policy(name="gated", credit=credit.group_zscore, surrogate=gated_ratio, weigh=weights.sequence_mean,
               paper="a stranger's own", about="a soft gate where PPO has a clip")
'''
ROW_TEST = '''import torch

from postgrad.methods.gated import gated_ratio


def test_by_hand():
    one, mask = torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool)
    loss, clipped = gated_ratio(one, one, torch.full((1, 1), 2.0), mask)
    assert loss.item() == -4.0 and not clipped.any()  # 4 sigmoid(0) = 2, times an advantage of 2
'''
LOSS = '''"""A hinge on the gap of log-ratios (SLiC-HF's calibration loss)."""

from functools import partial

import torch

from postgrad.maths import preference
from postgrad.methods.row import Preference


def hinge(chosen, rejected, margin, *, beta):
    """max(0, 1 - beta gap + margin)."""
    return torch.clamp(1.0 - beta * (chosen - rejected) + margin, min=0.0)


HINGE = Preference(name="hinge", source="pairs", score=preference.sum_logp, reference=True,
                   loss=partial(hinge, beta=0.1), paper="Zhao et al. 2023, arXiv:2305.10425",
                   about="a hinge on the gap of log-ratios")
'''
LOSS_TEST = '''import torch

from postgrad.methods.hinge import hinge


def test_by_hand():
    loss = hinge(torch.tensor([4.0, 20.0]), torch.zeros(2), torch.zeros(2), beta=0.1)
    assert loss.tolist() == [0.6000000238418579, 0.0]
'''
TASK = '''"""Which of two numbers is larger."""

from postgrad.records import Prompt
from postgrad.data.tasks.base import Task, distinct_prompts, generator, number_in_form, split_of, think

NAMES = ("larger",)


def load(name):
    def prompts(split, count, seed):
        rng = generator(name, split, seed)

        def make():
            while True:
                a, b = rng.sample(range(10, 100), 2)
                if split_of(f"{a} {b}") == split:
                    asked = f"What is the larger of {a} and {b}?"
                    return Prompt.ask(asked, answer=max(a, b), id=f"{name}/{a}/{b}")

        return distinct_prompts(make, count)

    return Task(name=name, about="the larger of two numbers", prompts=prompts, verify=number_in_form,
                gold=lambda prompt: think("", prompt.answer))
'''
FAMILY = '''    "layered": Family(classes="StableLm", config_defaults={"max_position_embeddings": 2048},
                      norm="layer", norm_bias=True),  # its norms subtract the mean
'''
FAMILY_CHECK = '''
import torch
from dataclasses import replace
from postgrad.training.memory import parameters
from postgrad.models import load_model, save_model
from postgrad.models.decoder import Decoder
from postgrad.models.families import Architecture
from postgrad.resolve.models import open_named_model as load
from postgrad.records import Prompt
from postgrad.sampling import LocalSampler, Sampling
tiny = load("tiny-chat")
config = replace(tiny.net.config, architecture=Architecture(model_type="layered"))
model = Decoder(config).start(torch.Generator().manual_seed(0))
(group,) = LocalSampler(model, tiny.chat).sample([Prompt.ask("Hi")], 4, Sampling(max_new_tokens=12), 0)
for r in group:
    tokens = torch.tensor([[*r.prompt_tokens, *r.tokens]])
    mask = torch.arange(tokens.shape[1])[None] >= len(r.prompt_tokens)
    assert (model.logp(tokens, mask)[0][mask] - torch.tensor(r.logp)).abs().max() < 1e-5
assert parameters(model.config) == sum(p.numel() for p in model.parameters())
import pathlib, tempfile
with tempfile.TemporaryDirectory() as folder:
    save_model(model, pathlib.Path(folder)), tiny.chat.save(pathlib.Path(folder))
    assert torch.equal(load_model(pathlib.Path(folder)).logits(tokens), model.logits(tokens))
    import postgrad
    run = postgrad.fit(folder, "grpo", task="words", run=folder + "/run", steps=1, display=False,
                       prompts_per_step=2, group_size=2, evaluation={"every": 0})
    assert run.state()["state"] == "done"
'''
SHOWN = '''
from postgrad.studio.runs.forms import menu, sections
assert {name!r} in {{row["name"] for row in menu()}}
groups = sections("{name}:{setting}", {{}})
assert any(field["key"] == "method.{constant}" for group in groups for field in group["fields"])
'''
SMALL = "steps=2 rollouts.prompts_per_step=2 rollouts.group_size=2 evaluation.every=0".split()


class Change(NamedTuple):
    """files: what is written anew; lines: (file, before which line, what) put into a file that is there;
    checks: commands."""

    name: str
    files: dict[str, str]
    tests: dict[str, str]
    lines: tuple[tuple[str, str, str], ...]
    checks: tuple[list[str], ...]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def pytest(*words: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *words]


def postgrad(*words: str) -> list[str]:
    return [sys.executable, "-m", "postgrad", *words]


EVERY_ROW = ("tests/training/learning_test.py", "tests/training/batches/microbatch_test.py",
             "tests/methods/row_test.py")
CHANGES = (
    Change("row", {"postgrad/methods/gated.py": ROW}, {"postgrad/methods/gated_test.py": ROW_TEST}, (), (
        postgrad("methods", "gated"),
        postgrad("train", "gated:words", "tau=0.5", *SMALL, "--run", "runs/gated"),
        python(SHOWN.format(name="gated", constant="tau", setting="words")),
        pytest("postgrad/methods/gated_test.py", *EVERY_ROW, "tests/training/oracle_test.py", "-k",
               "gated or by_hand"))),
    Change("loss", {"postgrad/methods/hinge.py": LOSS}, {"postgrad/methods/hinge_test.py": LOSS_TEST}, (), (
        postgrad("methods", "hinge"),
        postgrad("train", "hinge:questions", "beta=0.2", "steps=2", "pairs.drawn=16", "pairs.held_out=8",
                 "pairs.per_step=4", "evaluation.every=0", "--run", "runs/hinge"),
        python(SHOWN.format(name="hinge", constant="beta", setting="questions")),
        pytest("postgrad/methods/hinge_test.py", *EVERY_ROW, "-k", "hinge or by_hand"))),
    Change("task", {"postgrad/data/tasks/larger.py": TASK}, {}, (), (
           postgrad("eval", "tiny-chat", "--task", "larger", "--problems", "4", "--samples", "2"),
           postgrad("train", "grpo", "--task", "larger", *SMALL, "--run", "runs/larger"),
           pytest("tests/data/tasks/every_task_test.py"))),
    Change("family", {}, {}, (
        ("postgrad/models/families.py", '    "olmo2": Family(', FAMILY),), (
        python(FAMILY_CHECK), pytest("tests/models/layer_test.py", "tests/training/memory/memory_test.py"))),
)


def made(change: Change, place: Path) -> dict:
    """The change in the copy, everything that must follow from it, and the copy as it was."""
    before = {name: (place / name).read_text() for name, _, _ in change.lines}
    for name, text in {**change.files, **change.tests}.items():
        (place / name).write_text(text)
    for name, mark, text in change.lines:
        assert before[name].count(mark) == 1, f"{name}: {mark!r} is not there once"
        (place / name).write_text(before[name].replace(mark, text + mark))
    began, failed = time.perf_counter(), []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (place, place / "tests/support"))),
                                "OMP_NUM_THREADS": "1"}
    for command in change.checks:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False,
                              env=environment)
        if done.returncode:
            failed.append({"command": " ".join(command[2:])[:200],
                           "said": (done.stdout + done.stderr)[-1500:]})
    for name in (*change.files, *change.tests):
        (place / name).unlink()
    for name, text in before.items():
        (place / name).write_text(text)
    code = (sum(text.count("\n") for text in change.files.values())
            + sum(text.count("\n") for *_, text in change.lines))
    return {"name": change.name, "files of code": len(change.files) + len(change.lines),
            "lines of code": code, "files": [*change.files, *(name for name, *_ in change.lines)],
            "tests": len(change.tests), "checks": len(change.checks), "failed": failed,
            "seconds": round(time.perf_counter() - began, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these changes")
    parser.add_argument("--out", metavar="FILE.json")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy_of(HOME, Path(folder))
        for change in CHANGES:
            if not args.names or change.name in args.names:
                rows.append(made(change, Path(folder)))
                print(json.dumps(rows[-1]), flush=True)
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
