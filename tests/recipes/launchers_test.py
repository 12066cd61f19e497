"""The files that start a training elsewhere: parsed by what reads them, and the shell in them run."""

import json
import os
import subprocess

import pytest
import yaml
from paths import ROOT

from postgrad.cli import main
from postgrad.recipes.launchers import TARGETS, Job, launch_file, start_script

TRAIN = ("grpo:words", "device=cuda", "method.high=0.3", "--task", "my task.py")


def job(**changes):
    return Job(**{"name": "mine", "train": TRAIN, "run": "/shared/runs/mine", "processes": 8} | changes)


def started(tmp_path, script, **env):
    """The words that the script hands to torchrun."""
    fake = tmp_path / "bin" / "torchrun"
    fake.parent.mkdir(exist_ok=True)
    fake.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    fake.chmod(0o755)
    path = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(["bash", "-c", script], env={"PATH": path, **env}, capture_output=True, text=True,
                          check=True).stdout.splitlines()


def test_a_run_is_begun_and_then_resumed(tmp_path):
    run = tmp_path / "a run"
    script = start_script(job(run=str(run)))
    assert started(tmp_path, script) == ["--nproc-per-node", "8", "--standalone", "-m", "--", "postgrad",
                                         "train", *TRAIN, "--run", str(run)]
    run.mkdir()
    (run / "run.json").write_text("{}")
    assert started(tmp_path, script)[-2:] == ["resume", str(run)]


def test_slurm_starts_torchrun_on_each_node_with_one_rendezvous(tmp_path):
    text = launch_file(job(nodes=2, hours=1.5, gpu="h100", restarts=2), "slurm")
    options = dict(line.removeprefix("#SBATCH --").split("=", 1) for line in text.splitlines()
                   if line.startswith("#SBATCH") and "=" in line)
    assert options == {"job-name": "mine", "nodes": "2", "ntasks-per-node": "1", "gpus-per-node": "h100:8",
                       "time": "01:30:00", "open-mode": "append", "signal": "TERM@120"}
    for name, code in (("srun", 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"'),
                       ("scontrol", 'if [ "$1" = requeue ]; then echo "again $2"; else echo node-a; fi')):
        fake = tmp_path / "bin" / name
        fake.parent.mkdir(exist_ok=True)
        fake.write_text(f"#!/bin/bash\n{code}\n")
        fake.chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7"}
    assert started(tmp_path, text, **slurm)[:10] == [
        "--nproc-per-node", "8", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "node-a:29500",
        "--rdzv-id", "7"]
    torchrun = tmp_path / "bin" / "torchrun"
    torchrun.write_text("#!/bin/sh\nexit 3\n")
    path = {"PATH": f"{torchrun.parent}{os.pathsep}{os.environ['PATH']}", **slurm}
    ends = [subprocess.run(["bash", "-c", text], env=path | {"SLURM_RESTART_COUNT": count}, text=True,
                           capture_output=True) for count in ("1", "2")]
    assert [end.returncode for end in ends] == [3, 3]
    assert [end.stdout for end in ends] == ["again 7\n", ""]


def test_a_jobset_has_a_pod_for_each_node_and_restarts_them_together():
    jobset = yaml.safe_load(launch_file(job(nodes=2, hours=2, restarts=5, image="a/b:c"), "k8s"))
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert jobset["spec"]["failurePolicy"] == {"maxRestarts": 5}
    [ranks] = jobset["spec"]["replicatedJobs"]
    pods = ranks["template"]["spec"]
    assert (pods["parallelism"], pods["completions"], pods["activeDeadlineSeconds"]) == (2, 2, 7200)
    [container] = pods["template"]["spec"]["containers"]
    assert container["image"] == "a/b:c" and container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert container["volumeMounts"] == [{"name": "shared", "mountPath": "/shared"}]
    assert "--rdzv-endpoint mine-ranks-0-0.mine:29500" in container["args"][0]
    assert "'my task.py'" in container["args"][0]


def test_skypilot_takes_the_first_node_as_the_rendezvous(tmp_path):
    task = yaml.safe_load(launch_file(job(nodes=2, gpu="A100", restarts=1), "sky"))
    assert task["resources"] == {"accelerators": "A100:8", "job_recovery": {"max_restarts_on_errors": 1}}
    words = started(tmp_path, task["run"], SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2", SKYPILOT_NUM_NODES="2",
                    SKYPILOT_TASK_ID="t")
    assert words[7] == "10.0.0.1:29500"
    assert yaml.safe_load(launch_file(job(train=("sft:words",)), "sky"))["resources"]["cpus"] == "2+"


def test_hugging_face_jobs_are_one_command(tmp_path):
    fake = tmp_path / "bin" / "hf"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    fake.chmod(0o755)
    words = started(tmp_path, launch_file(job(gpu="a100-large", hours=4), "hf-jobs"))
    assert words[:9] == ["jobs", "run", "--detach", "--flavor", "a100-large", "--timeout", "14400s",
                         "postgrad:cuda", "sh"]


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_target_does_not_honour_is_refused(target):
    given = {"nodes": 2, "gpu": "h100", "hours": 3.0, "restarts": 1, "image": "x"}
    for option in given.keys() - TARGETS[target].takes:
        with pytest.raises(ValueError, match=f"--on {target} has no use for --{option}"):
            launch_file(job(**{option: given[option]}), target)


@pytest.mark.parametrize("changes, words", [
    ({"name": "My Run"}, "lower-case"), ({"nodes": 0}, "--nodes"), ({"processes": -1}, "--processes"),
    ({"hours": 0.0}, "--hours"), ({"restarts": -1}, "--restarts"), ({"nodes": 2, "run": "runs/a"}, "shared")])
def test_a_job_that_cannot_be_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        job(**changes)


def test_the_command_writes_a_file_once_and_starts_nothing_when_dry(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["launch", "grpo:words", "steps=3", "--on", "slurm", "--run", "/shared/a", "--json"]
    assert main([*line, "--dry-run"]) == 0 and not any(tmp_path.iterdir())
    assert main(line) == 0
    dry, made = (json.loads(text) for text in capsys.readouterr().out.splitlines())
    assert dry["text"] == made["text"] == (tmp_path / "postgrad.sbatch").read_text()
    assert made["submit"] == "sbatch postgrad.sbatch"
    assert main(line) == 2 and main(["launch", "grpo:nothing", "--on", "slurm", "--run", "a"]) == 2
    assert main(["launch", "r1-zero", "--on", "slurm", "--run", "a"]) == 2
    assert "one process" in capsys.readouterr().err
    assert main(["launch", "grpo:words", "--on", "local", "--run", "a", "--dry-run"]) == 0
    assert "--standalone" in capsys.readouterr().out


def test_the_page_of_scale_shows_what_launch_writes():
    page = (ROOT / "docs" / "scale.md").read_text()
    for target in ("slurm", "k8s", "sky", "hf-jobs"):
        assert f"--on {target}" in page
