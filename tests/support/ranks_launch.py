"""Trainings in several ranks on this machine: one process imports everything and forks them.

    python tests/support/ranks_launch.py WORLD JOBS.json
A job is {"train": "grpo", "changes": [...], "run": FOLDER} or {"run": FOLDER}, which goes on with that run;
"until": the step after which it is asked to stop; "dies": the step in which its second rank is killed;
"spoils": [rank, steps, number], by which that rank multiplies its gradients in those steps.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch

from postgrad.cli.settings import config_from_text
from postgrad.recipes.launch import resume_training, start_training
from postgrad.runs import Follower
from postgrad.runs.tracker import CallbackTracker
from postgrad.system import processes
from postgrad.system.signals import Stopped
from postgrad.training.optim import Optim


def spoil(stack, rank, steps, number):
    """Until the stack ends, this rank's gradients of these steps are multiplied."""
    if os.environ.get("RANK", "0") != str(rank):
        return
    backward, step, now = torch.Tensor.backward, Optim.step, [0]

    def spoilt(loss):
        backward(loss, torch.full_like(loss, float(number)) if now[0] in steps else None)

    def counted(optim, at, *more):
        now[0] = at + 1
        return step(optim, at, *more)

    now[0] = 1
    stack.enter_context(patch.object(torch.Tensor, "backward", spoilt))
    stack.enter_context(patch.object(Optim, "step", counted))


def carry_out(job):
    """One training in this process, as one of its ranks."""
    def stop(step, row):
        if step == job.get("until"):
            os.kill(os.getpid(), signal.SIGTERM)

    def die(follower, step, row):
        if step == job["dies"]:
            os.kill(os.getpid(), signal.SIGKILL)
        follower.next_step = step + 1

    if "dies" in job:
        Follower.log = die
    folder, stack = Path(job["run"]), ExitStack()
    try:
        if "spoils" in job:
            spoil(stack, *job["spoils"])
        if "train" in job:
            recipe, config = config_from_text(job["train"], job["changes"])
            start_training(recipe, config, folder, command="a test", trackers=[CallbackTracker(stop)])
        else:
            resume_training(folder, trackers=[CallbackTracker(stop)])
    except Stopped:
        assert "until" in job
    except processes.Lost:
        assert "dies" in job
    except ValueError as error:
        assert "spoils" in job and "steps in a row" in str(error), error
    finally:
        stack.close()


def launch(world, jobs, folder, threads=1, timeout=300):
    """The jobs in so many ranks, one after another."""
    path = folder / f"jobs-{world}.json"
    path.write_text(json.dumps(jobs))
    here = Path(__file__).parent
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": f"{here.parent.parent}:{here}"}
    done = subprocess.run([sys.executable, __file__, str(world), str(path)], env=env, capture_output=True,
                          text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def main():
    import torch._dynamo  # noqa: F401  what every rank would load is loaded before the fork, once

    world, jobs = int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    port, children = str(free_port()), []
    for rank in range(world):
        child = os.fork()
        if not child:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                              MASTER_PORT=port)
            for job in jobs:
                carry_out(job)
            return 0
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return int(any(code not in (0, -signal.SIGKILL) for code in codes))


if __name__ == "__main__":
    sys.exit(main())
