"""Trainings in several ranks on this machine: one process imports everything and forks them.

    python tests/support/ranks_launch.py WORLD JOBS.json
A job is {"train": "grpo", "changes": [...], "run": FOLDER} or {"run": FOLDER}, which goes on with that run;
"until": the step after which it is asked to stop; "dies": the step in which its second rank is killed.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from postgrad.cli.settings import config_from_text
from postgrad.recipes.launch import resume_training, start_training
from postgrad.runs import Follower
from postgrad.runs.tracker import CallbackTracker
from postgrad.system import processes
from postgrad.system.signals import Stopped


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
    folder = Path(job["run"])
    try:
        if "train" in job:
            recipe, config = config_from_text(job["train"], job["changes"])
            start_training(recipe, config, folder, command="a test", trackers=[CallbackTracker(stop)])
        else:
            resume_training(folder, trackers=[CallbackTracker(stop)])
    except Stopped:
        assert "until" in job
    except processes.Lost:
        assert "dies" in job


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
