"""Six changes as CONTRIBUTING describes them, each on a scratch copy with the documented files alone.

    python proofs/changes.py [NAME ...] [--suite] [--out FILE.json]

    row       a policy row with a surrogate and a credit of its own   one file in methods/ and its test
    loss      a preference loss that needs another column             one file in methods/ and its test
    task      a task inside the package                               one file in data/tasks/
    family    decoders whose norms subtract the mean                  one description in models/families.py
    tracker   a tracker, from Python and from the command line        one file: examples/own_tracker.py
    sampler   a sampler, from Python and from the command line        one file, as in docs/your-own-sampler.md

After each, generated pages are made (`make docs`) and the checks run: it is listed, trained, shown in the
studio's form, and the tests over every row, task or family take it in. --suite: the whole suite as well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from mutations import HOME, copy_of

ROW = '''"""A soft gate on the ratio, and credit by the best of the group."""

from typing import Annotated

import torch

from postgrad.maths import weights
from postgrad.methods.row import Policy
from postgrad.system.settings import POSITIVE


def gated_ratio(logp, old_logp, adv, mask, *,
                tau: Annotated[float, POSITIVE, "how soon the gate closes", "lower: later"] = 1.0):
    """-(4 / tau) sigmoid(tau (rho - 1)) A: the slope is 1 at rho = 1 and falls away on both sides."""
    ratio = torch.where(mask, logp - old_logp, 0.0).exp()
    gate = 4.0 / tau * torch.sigmoid(tau * (ratio - 1.0))
    return torch.where(mask, -gate * adv, 0.0), torch.zeros_like(mask)


def below_best(reward, mask, group_size):
    """A = r - the best reward of the other samples of the group."""
    score = reward.sum(1).view(-1, group_size)
    others = score[:, None, :].expand(-1, group_size, -1).clone()
    others.diagonal(dim1=1, dim2=2).fill_(float("-inf"))
    return (score - others.amax(2)).reshape(-1, 1) * mask


GATED = Policy(name="gated", credit=below_best, surrogate=gated_ratio, weigh=weights.sequence_mean,
               paper="a stranger's own", about="a soft gate where PPO has a clip")
'''
ROW_TEST = '''import torch

from postgrad.methods.gated import below_best, gated_ratio


def test_by_hand():
    one, mask = torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool)
    loss, clipped = gated_ratio(one, one, torch.full((1, 1), 2.0), mask)
    assert loss.item() == -4.0 and not clipped.any()  # 4 sigmoid(0) = 2, times an advantage of 2
    adv = below_best(torch.tensor([[1.0], [0.0], [0.5]]), torch.ones(3, 1, dtype=torch.bool), 3)
    assert adv.squeeze(1).tolist() == [0.5, -1.0, -0.5]
'''
LOSS = '''"""DPO with log-ratios per token: scores over the lengths of the replies."""

from typing import Annotated

import torch.nn.functional as F

from postgrad.maths import preference
from postgrad.methods.row import Preference
from postgrad.system.settings import POSITIVE


def length_normalised(chosen, rejected, margin, *, chosen_length, rejected_length,
                      beta: Annotated[float, POSITIVE, "the weight of the gap", "with the lengths"] = 2.0):
    """-log sigmoid(beta (chosen / |chosen| - rejected / |rejected|) - margin)."""
    gap = chosen / chosen_length - rejected / rejected_length
    return -F.logsigmoid(beta * gap - margin)


PER_TOKEN = Preference(name="per_token_dpo", source="pairs", score=preference.sum_logp, reference=True,
                       loss=length_normalised, paper="a stranger's own", about="DPO per token")
'''
LOSS_TEST = '''import math

import torch

from postgrad.methods.per_token import length_normalised


def test_by_hand():
    chosen, rejected, none = torch.tensor([4.0]), torch.tensor([1.0]), torch.zeros(1)
    loss = length_normalised(chosen, rejected, none, chosen_length=torch.tensor([4]),
                             rejected_length=torch.tensor([2]), beta=2.0)
    assert math.isclose(loss.item(), math.log(1 + math.exp(-1.0)), rel_tol=1e-6)  # 2 (1 - 0.5) = 1
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
from postgrad.studio.runs.forms import form_sections, recipe_menu
assert {name!r} in {{row["name"] for row in recipe_menu()}}
groups = form_sections("{name}:{setting}", {{}})
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
             "tests/methods")
TRACKED = """
import sys; sys.path.insert(0, "examples")
import postgrad as pg
from own_tracker import BestSoFar
pg.fit("tiny-chat", "grpo", task="words", run="runs/python", trackers=[BestSoFar()], display=False, steps=1,
       prompts_per_step=2, group_size=2, evaluation={"every": 1, "problems": 2, "samples": 2})
"""
SAMPLED = """
import postgrad as pg
from mine import Mine
model = pg.load_model("tiny-chat")
pg.fit(model, "grpo", task="words", sampler=Mine(model.net, model.chat), run="runs/object", display=False,
       steps=1, prompts_per_step=2, group_size=2, rollouts={"max_new_tokens": 8}, evaluation={"every": 0})
"""


def example(page: str, name: str) -> str:
    """The file of that name that a page of docs/ shows."""
    text = (HOME / "docs" / page).read_text()
    return re.search(rf"<!-- file: {name} -->\n```python\n(.*?)```", text, flags=re.S)[1]


CHANGES = (
    Change("row", {"postgrad/methods/gated.py": ROW}, {"postgrad/methods/gated_test.py": ROW_TEST}, (), (
        postgrad("methods", "gated"),
        postgrad("train", "gated:words", "tau=0.5", *SMALL, "--run", "runs/gated"),
        python(SHOWN.format(name="gated", constant="tau", setting="words")),
        pytest("postgrad/methods/gated_test.py", *EVERY_ROW, "tests/training/oracle_test.py", "-k",
               "gated or by_hand"))),
    Change("loss", {"postgrad/methods/per_token.py": LOSS},
           {"postgrad/methods/per_token_test.py": LOSS_TEST}, (), (
        postgrad("methods", "per_token_dpo"),
        postgrad("train", "per_token_dpo:questions", "beta=1.5", "steps=2", "pairs.drawn=16",
                 "pairs.held_out=8", "pairs.per_step=4", "evaluation.every=0", "--run", "runs/per-token"),
        python(SHOWN.format(name="per_token_dpo", constant="beta", setting="questions")),
        pytest("postgrad/methods/per_token_test.py", *EVERY_ROW, "-k", "per_token or by_hand"))),
    Change("task", {"postgrad/data/tasks/larger.py": TASK}, {}, (), (
        postgrad("eval", "tiny-chat", "--task", "larger", "--problems", "4", "--samples", "2"),
        postgrad("train", "grpo", "--task", "larger", *SMALL, "--run", "runs/larger"),
        pytest("tests/data/tasks/every_task_test.py"))),
    Change("family", {}, {}, (("postgrad/models/families.py", '    "olmo2": Family(', FAMILY),), (
        python(FAMILY_CHECK), pytest("tests/models/layer_test.py", "tests/training/memory/memory_test.py"))),
    Change("tracker", {"examples/own_tracker.py": (HOME / "examples/own_tracker.py").read_text()}, {}, (), (
        postgrad("train", "grpo:words", *SMALL[:-1], "evaluation.every=1", "evaluation.problems=2",
                 "--track", "examples/own_tracker.py", "--run", "runs/tracked"),
        python(TRACKED))),
    Change("sampler", {"mine.py": example("your-own-sampler.md", "mine.py")}, {}, (), (
        postgrad("train", "grpo:words", *SMALL, "sampler=mine.py", "rollouts.max_new_tokens=8", "--run",
                 "runs/sampled"),
        python(SAMPLED))),
)


def made(change: Change, place: Path, suite: bool) -> dict:
    """Applies the change to the copy, runs its checks, and takes the change back."""
    before = {name: (place / name).read_text() for name, _, _ in change.lines}
    for name, text in {**change.files, **change.tests}.items():
        (place / name).write_text(text)
    for name, mark, text in change.lines:
        assert before[name].count(mark) == 1, f"{name}: {mark!r} is not there once"
        (place / name).write_text(before[name].replace(mark, text + mark))
    began, failed = time.perf_counter(), []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (place, place / "tests/support"))),
                                "OMP_NUM_THREADS": "1"}
    checks = [[sys.executable, "tools/docs.py"], *change.checks]
    checks += [[sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]] if suite else []
    for command in checks:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False,
                              env=environment)
        if done.returncode:
            failed.append({"command": " ".join(command[2:])[:200],
                           "said": (done.stdout + done.stderr)[-1500:]})
    copy_of(HOME, place)
    for name in (*change.files, *change.tests):
        if not (HOME / name).exists():
            (place / name).unlink()
    code = (sum(text.count("\n") for text in change.files.values())
            + sum(text.count("\n") for *_, text in change.lines))
    return {"name": change.name, "files of code": len(change.files) + len(change.lines),
            "lines of code": code, "files": [*change.files, *(name for name, *_ in change.lines)],
            "tests": len(change.tests), "checks": len(checks), "failed": failed,
            "seconds": round(time.perf_counter() - began, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these changes")
    parser.add_argument("--suite", action="store_true", help="the whole suite after each change")
    parser.add_argument("--out", metavar="FILE.json")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy_of(HOME, Path(folder))
        for change in CHANGES:
            if not args.names or change.name in args.names:
                rows.append(made(change, Path(folder), args.suite))
                print(json.dumps(rows[-1]), flush=True)
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
