"""What is handed out: wheel, source distribution, the image's steps, workflows, notebooks, skills. Parts of
proofs/ecosystem.py."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness import HOME, Bars, bar, own_python, postgrad, read_lines, run_tests, test_bar

# isort: split
from doc_blocks import Block, blocks

SKILLS = sorted((HOME / "skills").glob("*/SKILL.md"))


def output(*words: object, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=check)


def wheel(folder: Path) -> Bars:
    """The image's steps in an empty environment without the checkout: the demo learns there."""
    prefix, place = folder / "prefix", folder / "place"
    place.mkdir(exist_ok=True)
    output("sh", HOME / "tools/image.sh", HOME, prefix, cwd=place)
    demo = json.loads(output(prefix / "bin/postgrad", "demo", "--quick", "--json", cwd=place).stdout)
    first, *_, last = demo["stages"]
    return [bar("tools/image.sh in an empty environment, then postgrad demo --quick; no image was built",
                "pass@1 rises", f"{first['pass@1']:.1%} -> {last['pass@1']:.1%}",
                last["pass@1"] > first["pass@1"])]


def sdist(folder: Path) -> Bars:
    """A wheel made from the source distribution has the files of one made from the checkout."""
    output(sys.executable, "-m", "venv", folder / "builder", cwd=folder)
    python = folder / "builder/bin/python"
    output(python, "-m", "pip", "install", "-q", "build", cwd=folder)
    output(python, "-m", "build", "-q", "--outdir", folder / "dist", HOME, cwd=folder)  # the wheel from it
    output(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder / "tree", HOME, cwd=folder)
    names = [set(output(python, "-m", "zipfile", "-l", next((folder / name).glob("*.whl")), cwd=folder)
                 .stdout.split()) for name in ("dist", "tree")]
    files = [{name for name in each if name.startswith("postgrad/")} for each in names]
    return [bar("files of a wheel made from the source distribution and of one made from the checkout",
                "the same", f"{len(files[0])} and {len(files[1])}, {len(files[0] ^ files[1])} differ",
                files[0] == files[1] and len(files[0]) > 400)]


def workflows(folder: Path) -> Bars:
    """GitHub's own schemas, as check-jsonschema carries them."""
    output(sys.executable, "-m", "venv", folder / "checker", cwd=folder)
    python = folder / "checker/bin/python"
    output(python, "-m", "pip", "install", "-q", "check-jsonschema", cwd=folder)
    files = sorted((HOME / ".github/workflows").glob("*.yml"))
    bad = [path.name for path in files if output(
        folder / "checker/bin/check-jsonschema", "--builtin-schema", "vendor.github-workflows", path,
        cwd=folder, check=False).returncode]
    return [bar("workflows by GitHub's schema, as check-jsonschema carries it", "0 faults",
                f"{len(files)} workflows, {len(bad)} faults", not bad and len(files) >= 3)]


def run_skill_block(block: Block, place: Path) -> list[Any]:
    """Writes the file of a block, or runs its commands and returns what they print, parsed as JSON."""
    if block.mark == "file":
        (place / block.words).write_text(block.text)
    if block.mark or block.language != "sh":
        return []
    postgrad = Path(sys.executable).parent / "postgrad"
    return [json.loads(line) for command in block.commands
            for line in output(postgrad, *shlex.split(command)[1:], cwd=place).stdout.splitlines()]


def skills(folder: Path) -> Bars:
    """The fenced commands of every SKILL.md as they stand, with no command of this script's own; only JSON is
    read."""
    printed: dict[str, list[Any]] = {}
    for path in SKILLS:
        place = folder / path.parent.name
        place.mkdir(exist_ok=True)
        printed[path.parent.name] = [value for block in blocks(path)
                                     for value in run_skill_block(block, place)]
    rows: Any = printed["train-on-a-task"][-1]
    count = sum(len(values) for values in printed.values())
    fenced = sum(len(re.findall(r"^postgrad ", block.text, re.M)) for path in SKILLS
                 for block in blocks(path))
    second = rows[1]
    low, high = second["pass@1_gain_interval"]
    return [bar("commands of the skills that ran and printed JSON alone", "all", f"{count} of {fenced}",
                count == fenced),
            bar("the skill's task, trained and compared by its own commands: gain in pass@1 on held-out "
                "prompts", "95 % lower bound above 0",
                f"{second['pass@1_gain']:.1%} ({low:.1%} to {high:.1%})", low > 0)]


def launch(folder: Path) -> Bars:
    """postgrad launch --on local: two ranks train, and the same command then resumes further."""
    words = ["launch", "grpo:words", "steps=2", "rollouts.prompts_per_step=4", "evaluation.every=0", "--on",
             "local", "--processes", "2", "--run", str(folder / "run")]
    for _ in range(2):
        ended = output(Path(sys.executable).parent / "postgrad", *words, cwd=folder, check=False)
    summary = json.loads(output(Path(sys.executable).parent / "postgrad", "runs", folder / "run", "--json",
                                cwd=folder).stdout)
    return [bar("postgrad launch --on local with two ranks, started twice", "2 of 2 steps, exit code 0",
                f"{summary['step']} of 2 steps, {summary['state']}, exit code {ended.returncode}",
                (summary["step"], summary["state"], ended.returncode) == (2, "done", 0))]


# what reads a file of launch: the package that has it, and a program that prints some of the values it read
READERS = {
    "k8s": ("kubeflow-trainer-api", """
import sys, yaml
from kubeflow_trainer_api.models import JobsetV1alpha2JobSet as JobSet
given = yaml.safe_load(open(sys.argv[1]))
read = JobSet.from_dict(given)
assert read.to_dict() == given, "fields that the schema does not have, or has otherwise"
[ranks] = read.spec.replicated_jobs
print(read.kind, ranks.template.spec.parallelism, read.spec.failure_policy.max_restarts)
"""),
    "sky": ("skypilot", """
import sys, sky
task = sky.Task.from_yaml(sys.argv[1])
[machine] = task.resources
print("Task", task.num_nodes, machine.job_recovery["max_restarts_on_errors"])
"""),
    "hf-jobs": ("huggingface_hub", """
import re, shlex, subprocess, sys
from pathlib import Path
words = shlex.split(open(sys.argv[1]).read().split("keep it\\n")[1])
assert words[:3] == ["hf", "jobs", "run"]
done = subprocess.run([Path(sys.executable).parent / "hf", *words[1:3], "--dry-run", *words[3:]], text=True,
                      capture_output=True)
assert not done.returncode, done.stderr
print(re.sub(r"\\s+", " ", done.stdout))
"""),
}
# what SkyPilot's parser imports: pip does not find versions for all that skypilot requires within an hour
IMPORTED = {"sky": "pyyaml typing_extensions colorama packaging cachetools sqlalchemy[asyncio] jsonschema "
                   "pydantic aiosqlite prometheus_client filelock httpx psutil alembic prettytable requests "
                   "psycopg2 click passlib ijson paramiko aiohttp fastapi orjson casbin sqlalchemy_adapter "
                   "numpy tqdm".split()}
CLUSTER = ["--nodes", "2", "--processes", "8", "--restarts", "3"]
OPTIONS = {"k8s": CLUSTER, "sky": CLUSTER, "hf-jobs": ["--gpu", "a100-large", "--hours", "4"]}
READ = {"k8s": "JobSet 2 3", "sky": "Task 2 3", "hf-jobs": "a100-large"}


def target(name: str, folder: Path) -> Bars:
    """The file of postgrad launch, read by what its target reads it with, in an environment of its own."""
    package, program = READERS[name]
    python = own_python(folder / "venv", IMPORTED.get(name, [package, "pyyaml"]), behind=False)
    output(python, "-m", "pip", "install", "-q", "--no-deps", package, cwd=folder)
    file = folder / "job.yaml"
    file.write_text(postgrad("launch", "grpo:words", "device=cuda", "--on", name, "--run", "/shared/mine",
                             *OPTIONS[name], "--dry-run")["text"])
    version = output(python, "-c", f"import importlib.metadata as m; print(m.version('{package}'))",
                     cwd=folder).stdout.strip()
    done = output(python, "-c", program, file, cwd=folder, check=False)
    printed = done.stdout.strip()
    return [bar(f"postgrad launch --on {name}: its file, read by {package}",
                f"taken, with the values that were asked for, all of {READ[name]!r}",
                f"{package} {version}: "
                f"{'taken' if READ[name] in printed else (done.stderr.strip() or printed)[-300:]}",
                READ[name] in printed and not done.returncode)]


SLURM = """\
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
ReturnToService=2
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort=16817
SlurmdPort=16818
SelectType=select/cons_tres
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def slurm(folder: Path) -> Bars:
    """A Slurm of one node (slurm-wlm and a running munged, as root): two ranks train, are killed after two
    steps, and the job that is queued again resumes."""
    host, run = platform.node().split(".")[0], folder / "run"
    for name in ("state", "spool"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "slurm.conf").write_text(SLURM.format(host=host, folder=folder))
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for daemon in ("slurmctld", "slurmd"):
        output(f"/usr/sbin/{daemon}", cwd=folder)
    try:
        output("postgrad", "launch", "grpo:words", "steps=6", "rollouts.prompts_per_step=4",
               "evaluation.every=0", "save_every=1", "--on", "slurm", "--processes", "2", "--run", run,
               "--hours", "0.5", cwd=folder)
        output("sbatch", "postgrad.sbatch", cwd=folder)
        wait_until(lambda: len(read_lines(run / "metrics.jsonl")) >= 2)
        for line in output("ps", "-eo", "pid=,args=", cwd=folder).stdout.splitlines():
            if f"--run {run}" in line and "srun" not in line:  # the agent of torchrun and its ranks
                os.kill(int(line.split()[0]), signal.SIGKILL)
        wait_until(lambda: len(read_lines(run / "metrics.jsonl")) >= 6)
    finally:
        for name in ("slurmd", "slurmctld"):
            os.kill(int((folder / f"{name}.pid").read_text()), signal.SIGTERM)
    steps = [row["step"] for row in read_lines(run / "metrics.jsonl")]
    return [bar("a Slurm of one node: two ranks killed with SIGKILL, queued again, resumed by the same "
                "file", "steps 1 to 6, each once", f"steps {steps}", steps == [*range(1, 7)])]


def wait_until(condition: Callable[[], bool], seconds: float = 600) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError(f"it did not come within {seconds:g} s")
        time.sleep(0.05)


def notebooks(folder: Path, report: str = "") -> Bars:
    """examples/notebooks, each from its first cell to its last."""
    name = "tests/whole/notebooks_test.py"
    return [test_bar("notebooks executed from the first cell to the last", "3 of 3 pass",
                     [f"{name}::test_a_notebook_runs"], run_tests(folder, [name], report))]


PARTS = {"wheel": wheel, "sdist": sdist, "workflows": workflows, "notebooks": notebooks, "skills": skills,
         "launch": launch, **{name: partial(target, name) for name in READERS}, "slurm": slurm}
