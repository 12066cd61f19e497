"""`postgrad launch`: a training under torchrun, here or on a cluster."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json
from postgrad.cli.settings import config_from_text
from postgrad.system.settings import setting

EPILOG = """\
examples:
  postgrad launch grpo:words --on local --processes 2 --run runs/two
  postgrad launch grpo:gsm8k device=cuda --on slurm --nodes 2 --processes 8 --run /shared/runs/mine
"""


@dataclass(frozen=True, kw_only=True)
class LaunchOptions(CommandOptions):
    recipe: str = setting(about="what to train, as in `train`", metavar="RECIPE[:SETTING]", positional=True)
    changes: list[str] = setting([], "settings, as in `train`", metavar="KEY=VALUE", positional=True)
    on: str = setting(about="local starts torchrun here; the others write a file to submit",
                      choices=("local", "slurm", "k8s", "sky", "hf-jobs"))
    run: str = setting(about="the run's folder; with several nodes, one that all of them see",
                       metavar="FOLDER")
    task: str | None = setting(None, "the task, as in `train`", metavar="NAME|FILE")
    name: str = setting("postgrad", "name of the job")
    nodes: int = setting(1, "machines")
    processes: int = setting(1, "processes of each machine, one for each GPU")
    gpu: str | None = setting(None, "kind of GPU in the cluster's words (hf-jobs: the flavor)",
                              metavar="KIND")
    hours: float | None = setting(None, "time limit; default: 24")
    restarts: int | None = setting(None, "restarts after a failure or a preemption, each of which resumes "
                                   "the run; default: 3")
    image: str | None = setting(None, "container image; default: postgrad:cuda")
    out: str | None = setting(None, "the file to write; default: NAME with the target's ending",
                              metavar="FILE")
    dry_run: bool = setting(False, "print the file or the command, and write or start nothing")


def run_launch(options: LaunchOptions) -> None:
    from postgrad.recipes.launchers import TARGETS, Job, launch_file
    from postgrad.recipes.registry import is_pipeline
    recipe, _ = config_from_text(options.recipe, options.changes, options.task)
    if is_pipeline(recipe):
        raise ValueError(f"{recipe} is several trainings and goes on in one process: launch its stages one "
                         "by one.")
    task = ["--task", options.task] if options.task else []
    job = Job(name=options.name, train=(options.recipe, *options.changes, *task), run=options.run,
              nodes=options.nodes, processes=options.processes, gpu=options.gpu, hours=options.hours,
              restarts=options.restarts, image=options.image)
    text, target = launch_file(job, options.on), TARGETS[options.on]
    if options.on == "local" and not options.dry_run:
        sys.stdout.flush()
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        os.execvp("bash", ["bash", "-c", text])
    path = Path(options.out or f"{options.name}{target.ending}")
    if not options.dry_run:
        if path.exists():
            raise ValueError(f"{path} exists already: name another file with --out.")
        path.write_text(text)
    command = target.submit.format(shlex.quote(str(path)))
    if options.json:
        return print_json({"file": str(path), "written": not options.dry_run, "submit": command,
                           "text": text})
    return print(text if options.dry_run else f"{path} is written; submit it:\n  {command}")


COMMANDS = (
    Command("launch", "start a training under torchrun: here, or by a file for Slurm, Kubernetes, SkyPilot "
            "or Hugging Face jobs", LaunchOptions, run_launch, EPILOG),
)
