"""The run folder: the only door between training and whoever looks at it.

Reader and writer; standard library only.

runs/NAME/
  run.json       what was started: recipe, method, model, task, command, versions, seed, created, steps
  config.json    the resolved config: enough to start the run again
  metrics.jsonl  one row a step, each step exactly once: {"step": 3, "loss": 0.41, "time/step": 1.2}
  evals.jsonl  samples.jsonl  events.jsonl   rows with a step; an event without one is about the process, not
                                             the training
  status.json    {"state": "running" | "done" | "stopped" | "failed", "pid", "step", "steps", "updated",
                 "error"}
  checkpoints/000020/{files, manifest.json}  sizes and sha256 of every file; a folder with this name is
                                             complete
  lock           held (flock) by the one process that writes; the kernel lets go of it when that process dies

A run may have come from somewhere else: it is made of plain files and folders, and before anything is written
or deleted in one that holds a link, it is refused.
JSON here is strict: a float that is not finite is written as "nan", "inf" or "-inf"; `number` turns it back.
A row is one os.write on an O_APPEND descriptor, so a kill tears at most the last line, and readers skip a
line without its newline.

reader  rows, curves and the state of a run, for whoever looks
writer  the lock of the one process that writes, its rows and its status
folder  class Run, which adds checkpoints and the way back to them; and the list of runs
saves   checkpoints that are written while the run goes on
later   sample rows that are made and written while the run goes on
follower  a run in a process that takes part in it and writes nothing
rows    strict JSON, and the lines of the logs
disk    files, locks and checkpoint folders under kills, full disks and flipped bits

Left out on purpose: what a checkpoint holds (the caller writes the files), and any network or database.
"""

from postgrad.runs.disk import DamagedCheckpoint, RunBusy, RunGone, check_name
from postgrad.runs.folder import Run, list_runs
from postgrad.runs.follower import Follower
from postgrad.runs.later import SampleLog
from postgrad.runs.rows import LOGS, dumps, json_value, number
from postgrad.runs.saves import Saves
from postgrad.system.files import DiskFull

__all__ = ["LOGS", "DamagedCheckpoint", "DiskFull", "Follower", "Run", "RunBusy", "RunGone", "SampleLog",
           "Saves", "check_name", "dumps", "list_runs", "number", "json_value"]
