"""The run folder: the only door between training and everything that reads a run. Standard library only.

runs/NAME/
  run.json       what was started: recipe, method, model, task, command, versions, seed, created, steps
  config.json    the resolved config: enough to start the run again
  metrics.jsonl  one row a step, each step exactly once: {"step": 3, "loss": 0.41, "time/step": 1.2}
  evals.jsonl  samples.jsonl  events.jsonl   rows with a step; an event without one is about the process
  status.json    {"state": "running" | "done" | "stopped" | "failed", "pid", "step", "steps", "updated",
                 "error"}
  checkpoints/000020/{files, manifest.json}  complete once it has this name; size and sha256 of every file
  lock           held (flock) by the one process that writes; the kernel releases it when that process dies

A run may have been copied from anywhere, so nothing is written or deleted in one that holds a link.
JSON is strict: a non-finite float is written as "nan", "inf" or "-inf"; `number` converts it back.
A row is one os.write on an O_APPEND descriptor: a kill tears at most the last line, which readers skip.

folder      Run: rows, curves, state, lock, checkpoints, rewind; Follower, for ranks that do not write
background  checkpoints and sample rows that are written by a thread
tracker     the hooks of a run, for the terminal, this folder and others
rows        strict JSON, and the lines of the logs
disk        locks, run folders and checkpoint folders
display, report, doctor, explain, ledger   read a run folder

Left out on purpose: what a checkpoint holds (the caller writes the files), and any network or database.
"""

from postgrad.runs.background import SampleLog, Saves
from postgrad.runs.disk import DamagedCheckpoint, RunBusy, RunGone, check_name
from postgrad.runs.folder import Follower, Run, list_runs
from postgrad.runs.rows import LOGS, dumps, json_value, number
from postgrad.system.files import DiskFull

__all__ = ["LOGS", "DamagedCheckpoint", "DiskFull", "Follower", "Run", "RunBusy", "RunGone", "SampleLog",
           "Saves", "check_name", "dumps", "list_runs", "number", "json_value"]
