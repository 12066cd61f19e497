"""The files that start a training on other machines: torchrun under Slurm, JobSet, SkyPilot or Hugging Face
jobs. torchrun alone starts ranks; a restart resumes from the last checkpoint."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent

PORT = 29500  # of the rendezvous
HOURS, RESTARTS, IMAGE = 24.0, 3, "postgrad:cuda"
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training on several processes.

    train: the words after `postgrad train`, without --run; run: its folder, which every node sees by this
    path; processes: of each node, one for each GPU; hours: the time limit; restarts: after a failure or a
    preemption. None: the default of the target.
    """

    name: str
    train: tuple[str, ...]
    run: str
    nodes: int = 1
    processes: int = 1
    gpu: str | None = None
    hours: float | None = None
    restarts: int | None = None
    image: str | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"--name {self.name!r} has to be 1 to 40 lower-case letters, digits and "
                             "hyphens, as clusters ask for: my-run-1, say.")
        for field, value in (("--nodes", self.nodes), ("--processes", self.processes),
                             ("--hours", self.seconds)):
            if not value > 0:
                raise ValueError(f"{field} has to be above 0.")
        if self.most_restarts < 0:
            raise ValueError(f"--restarts is {self.restarts}, and has to be 0 or more.")
        if self.nodes > 1 and not self.run.startswith("/"):
            raise ValueError(f"--run {self.run} is a relative path, and {self.nodes} nodes share the run: "
                             "give the path of a shared folder, /shared/runs/mine, say.")

    @property
    def uses_gpus(self) -> bool:
        return any(word.startswith("device=cuda") for word in self.train)

    @property
    def seconds(self) -> int:
        return math.ceil(3600 * (HOURS if self.hours is None else self.hours))

    @property
    def most_restarts(self) -> int:
        return RESTARTS if self.restarts is None else self.restarts

    @property
    def container(self) -> str:
        return json.dumps(IMAGE if self.image is None else self.image)

    @property
    def clock(self) -> str:
        """Of 90 minutes: 01:30:00."""
        return f"{self.seconds // 3600:02}:{self.seconds // 60 % 60:02}:{self.seconds % 60:02}"


def start_script(job: Job, *, nodes: str = "", rendezvous: str = "", job_id: str = "") -> str:
    """Shell: resumes the run where there is one, else begins it. nodes, rendezvous, job_id: shell words of
    the cluster. Every node decides before the rendezvous, and no rank writes before all nodes have joined
    it, so they decide alike."""
    run, train = shlex.quote(job.run), shlex.join(job.train)
    several = f" --nnodes {nodes} --rdzv-backend c10d --rdzv-endpoint {rendezvous} --rdzv-id {job_id}"
    single = " --standalone"
    return (f"if [ -f {run}/run.json ]; then\n"
            f"    set -- resume {run}\n"
            "else\n"
            f"    set -- train {train} --run {run}\n"
            "fi\n"
            f"exec torchrun --nproc-per-node {job.processes}{several if job.nodes > 1 else single} \\\n"
            '    -m -- postgrad "$@"\n')


def slurm_file(job: Job) -> str:
    """An sbatch file. A preempted or failed job is queued again."""
    gpus = f"#SBATCH --gpus-per-node={job.gpu + ':' if job.gpu else ''}{job.processes}\n" * job.uses_gpus
    start = start_script(job, nodes='"$SLURM_NNODES"', rendezvous=f'"$first:{PORT}"',
                         job_id='"$SLURM_JOB_ID"')
    return ("#!/bin/bash\n"
            f"#SBATCH --job-name={job.name}\n"
            f"#SBATCH --nodes={job.nodes}\n"
            "#SBATCH --ntasks-per-node=1\n"
            f"{gpus}"
            f"#SBATCH --time={job.clock}\n"
            "#SBATCH --requeue\n"
            "#SBATCH --open-mode=append\n"
            "#SBATCH --signal=TERM@120\n"
            "set -eu\n"
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
            "export first\n"
            f"srun --kill-on-bad-exit=1 bash -c {shlex.quote(start)} || {{\n"
            "    code=$?\n"
            f'    [ "${{SLURM_RESTART_COUNT:-0}}" -ge {job.most_restarts} ] ||'
            ' scontrol requeue "$SLURM_JOB_ID"\n'
            "    exit $code\n"
            "}\n")


def jobset_file(job: Job) -> str:
    """A Kubernetes JobSet: a pod a node; all of them are restarted together. The run's folder is on the
    claim `shared`, mounted at the first folder of its path."""
    mount = "/" + job.run.lstrip("/").split("/")[0]
    start = start_script(job, nodes=str(job.nodes), rendezvous=f"{job.name}-ranks-0-0.{job.name}:{PORT}",
                         job_id=f'"{job.name}-$JOBSET_RESTART_ATTEMPT"')
    limits = f"\n                  resources: {{limits: {{nvidia.com/gpu: {job.processes}}}}}" * job.uses_gpus
    return f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {job.name}
spec:
  failurePolicy:
    maxRestarts: {job.most_restarts}
  replicatedJobs:
    - name: ranks
      replicas: 1
      template:
        spec:
          parallelism: {job.nodes}
          completions: {job.nodes}
          backoffLimit: 0
          activeDeadlineSeconds: {job.seconds}
          template:
            spec:
              restartPolicy: Never
              containers:
                - name: ranks
                  image: {job.container}
                  env:
                    - name: JOBSET_RESTART_ATTEMPT
                      valueFrom:
                        fieldRef:
                          fieldPath: metadata.annotations['jobset.sigs.k8s.io/restart-attempt']
                  command: [sh, -c]
                  args:
                    - |
{indent(start, " " * 22)}\
                  volumeMounts:
                    - {{name: shared, mountPath: {json.dumps(mount)}}}{limits}
              volumes:
                - name: shared
                  persistentVolumeClaim:
                    claimName: shared
"""


def sky_file(job: Job) -> str:
    """A SkyPilot task: `sky jobs launch FILE` resumes where a machine is taken back."""
    start = start_script(job, nodes='"$SKYPILOT_NUM_NODES"', rendezvous=f'"$first:{PORT}"',
                         job_id='"$SKYPILOT_TASK_ID"')
    machine = f"accelerators: {job.gpu or 'H100'}:{job.processes}" if job.uses_gpus else "cpus: 2+"
    return f"""\
name: {job.name}
num_nodes: {job.nodes}
resources:
  {machine}
  job_recovery:
    max_restarts_on_errors: {job.most_restarts}
setup: |
  pip install postgrad
run: |
  first=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)
{indent(start, "  ")}"""


def hf_jobs_file(job: Job) -> str:
    """A shell script with one `hf jobs run`, of one machine."""
    flavor = (job.gpu or "a10g-small") if job.uses_gpus else "cpu-upgrade"
    words = ["hf", "jobs", "run", "--detach", "--flavor", flavor, "--timeout", f"{job.seconds}s",
             job.image or IMAGE, "sh", "-c", start_script(job)]
    return ("#!/bin/sh\n# the run's folder ends with the job: mount a volume there (hf jobs run -v) to keep "
            f"it\n{shlex.join(words)}\n")


def local_file(job: Job) -> str:
    """What runs here, by bash."""
    return start_script(job)


@dataclass(frozen=True, kw_only=True)
class Target:
    """write: the file's text; ending: of the file; submit: the command that takes it. takes: the options
    that it honours beside the training, the run's folder and the processes."""

    write: Callable[[Job], str]
    ending: str
    submit: str
    takes: frozenset[str]

    def check(self, job: Job, name: str) -> None:
        """Refuses what the target does not honour."""
        given = {"nodes": job.nodes > 1, "gpu": job.gpu is not None, "hours": job.hours is not None,
                 "restarts": job.restarts is not None, "image": job.image is not None}
        for option in (option for option, is_given in given.items() if is_given and option not in self.takes):
            others = ", ".join(other for other, target in TARGETS.items() if option in target.takes)
            raise ValueError(f"--on {name} has no use for --{option}: leave it out, or take {others}.")


TARGETS = {
    "local": Target(write=local_file, ending=".sh", submit="bash {}", takes=frozenset()),
    "slurm": Target(write=slurm_file, ending=".sbatch", submit="sbatch {}",
                    takes=frozenset({"nodes", "gpu", "hours", "restarts"})),
    "k8s": Target(write=jobset_file, ending=".yaml", submit="kubectl apply -f {}",
                  takes=frozenset({"nodes", "hours", "restarts", "image"})),
    "sky": Target(write=sky_file, ending=".yaml", submit="sky jobs launch {}",
                  takes=frozenset({"nodes", "gpu", "restarts"})),
    "hf-jobs": Target(write=hf_jobs_file, ending=".sh", submit="sh {}",
                      takes=frozenset({"gpu", "hours", "image"})),
}


def launch_file(job: Job, target: str) -> str:
    """The text of the file that starts a job."""
    TARGETS[target].check(job, target)
    return TARGETS[target].write(job)
