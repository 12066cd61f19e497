"""Faults on purpose: numbers that are none in a training, full disks, flipped bits, clocks that jump. For
tests, and for proofs/faults.py, which tries many more.

    python tests/support/faults_small.py TRICK ARGS...    `postgrad ARGS...` under a trick: clock:SECONDS,
                                                          slow:SECONDS, EROFS:N and its like (from the Nth
                                                          change of a file on), ENOLCK:1 (no locks), network:1
"""

import atexit
import builtins
import errno
import fcntl
import io
import json
import math
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

VALUES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "1e30": 1e30}
PLACES = {"loss": ("nan", "inf", "-inf", "1e30"), "gradient": ("nan", "inf", "-inf", "1e30"),
          "log-prob": ("nan", "-inf"), "reward": ("nan", "inf", "-inf"), "advantage": ("nan", "inf", "-inf")}
STEPS = 5


# numbers

def numeric_fault(place: str, value: str, draw: random.Random, folder: Path) -> dict:
    """One fault at a random step and token of a small GRPO training -> what the run did with it."""
    import torch
    from loop_small import identical, new_run, rollouts, weights
    from small import by_text, reward_of, small_models

    from postgrad.methods import METHODS
    from postgrad.records import Verdict
    from postgrad.training import objectives
    from postgrad.training.loop import train
    from postgrad.training.optim import Optim, OptimSettings

    at, where, number = draw.randint(2, STEPS - 1), draw.random(), VALUES[value]
    models, run = small_models(), new_run(folder, f"{place}-{value}-{draw.getrandbits(40)}", STEPS)
    plain, seen, states = objectives.build_objective(METHODS["grpo"]), [0, ()], [weights(models)]

    def spoil(batch):
        """A batch with the number in a column, at a token that is trained on."""
        name = {"log-prob": "old_logp", "advantage": "adv"}[place]
        columns = batch.weight.nonzero()
        r, t = columns[int(where * len(columns))].tolist()
        column = getattr(batch, name).clone()
        column[r, t] = number
        return replace(batch, **{name: column})

    def objective(models, batch):
        if seen[0] != at:
            return plain(models, batch)
        batch = spoil(batch) if place in ("log-prob", "advantage") else batch
        loss, stats = plain(models, batch)
        if value == "1e30":  # a spike
            loss = loss * number
        elif place == "loss":
            cells = batch.weight.nonzero()
            r, t = cells[int(where * len(cells))].tolist()
            loss = loss.index_put((torch.tensor(r), torch.tensor(t)), torch.tensor(number))
        elif place == "gradient":
            loss.register_hook(lambda g: g * number)
        return loss, stats

    def counted(batches):
        for step, batch in enumerate(batches, start=1):
            seen[0] = step
            seen[1] = batch.ids if step == at else seen[1]
            yield batch

    epochs = 2 if place == "log-prob" else 1  # in the first one the old log-probs are those of the step

    def judged(prompt, text):
        calls[0] += 1
        return Verdict(score=number) if place == "reward" and calls[0] == bad_call else by_text(prompt, text)

    source, calls = rollouts(METHODS["grpo"], models, STEPS, epochs), [0]
    bad_call = 8 * (at - 1) + 1 + int(8 * where)  # 8 replies a step
    source.reward = reward_of(judged)
    optim = Optim(models, OptimSettings(lr=1e-3), STEPS)
    train(models, counted(source), objective, optim, run,
          [lambda now: states.append(weights(models))])
    events = [e for e in run.rows("events")[0] if e["kind"] == "skipped"]
    skipped = [row["step"] for row in run.rows("metrics")[0] if row["skipped"]]
    finite = all(x.isfinite().all() for state in states for x in state.values())
    named = [e["step"] for e in events] == [at] and events[0]["data"]["ids"] == list(seen[1])
    return {"place": place, "value": value, "step": at, "skipped": skipped == [at], "named": named,
            "unchanged": identical(states[at - 1], states[at]), "finite": finite,
            "goes_on": not identical(states[at], states[STEPS])}


def is_caught(row: dict) -> bool:
    return all(row[key] for key in ("skipped", "named", "unchanged", "finite", "goes_on"))


def damaged_model(folder: Path, value: str, draw: random.Random) -> Path:
    """The tiny model with one weight that is no number."""
    import torch
    from safetensors.torch import load_file, save_file

    from postgrad.models import find_model
    shutil.copytree(find_model("tiny"), folder)
    tensors = load_file(folder / "model.safetensors")
    x = tensors[draw.choice(sorted(tensors))].view(-1)
    x[draw.randrange(len(x))] = torch.tensor(VALUES[value]).to(x.dtype)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


# bits

def flip_bits(folder: Path, count: int, draw: random.Random) -> list[tuple[str, int]]:
    """Flips random bits of a run's newest checkpoint, one at a time -> those that no check saw. After each
    the checkpoint before it is offered."""
    from postgrad.runs import Run
    run = Run.open(folder)
    steps = [*run.checkpoints()]
    home = run.checkpoints()[steps[-1]]
    files = [path for path in sorted(home.rglob("*")) if path.is_file()]
    silent = []
    for i in range(count):
        path = files[i % len(files)]  # small files as often as large ones
        bit = draw.randrange(8 * path.stat().st_size)
        with path.open("r+b") as file:
            file.seek(bit // 8)
            byte = file.read(1)[0]
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))
            file.flush()
            reader = Run.open(folder)
            offered = reader.latest()
            seen = path.name in reader.damaged.get(steps[-1], "")
            if not seen or offered is None or int(offered.name) != steps[-2]:
                silent.append((path.name, bit))
            file.seek(bit // 8)
            file.write(bytes([byte]))
    assert Run.open(folder).latest() == home
    return silent


# processes

def command(*words: object, file_bytes: int = 0, trick: str = "", memory: int = 0,
            user: int | None = None) -> tuple[int, str]:
    """`postgrad WORDS`: how it ended, and what it said. file_bytes: the most that a file may have. trick:
    what clock and files do. memory: the most that it may take. user: under which id it runs."""
    def limits():
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if file_bytes:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        if user is not None:
            os.setuid(user)

    begins = [sys.executable, __file__, trick] if trick else [sys.executable, "-m", "postgrad"]
    done = subprocess.run([*begins, *map(str, words)], capture_output=True, text=True, preexec_fn=limits,
                          env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"})
    return done.returncode, done.stderr


def is_sentence(said: str) -> bool:
    return "Traceback" not in said and any(line.startswith(("postgrad: ", "error: ")) or line.endswith(".")
                                           for line in said.splitlines())


def jump(seconds: float) -> None:
    """From here on the clock goes forth and back at each look; the monotonic one does not."""
    look, state = time.time, [0]

    def jumping() -> float:
        state[0] += 1
        return look() + seconds * (-1) ** state[0]

    time.time = jumping


def watch_changes(before) -> None:
    """Calls before() at each change of a file or folder."""
    def wrapped(call, changes=lambda *args: True):
        def changing(*args, **how):
            if changes(*args, *how.values()):
                before()
            return call(*args, **how)
        return changing

    for name in ("rename", "replace", "mkdir", "unlink", "rmdir", "fsync"):
        setattr(os, name, wrapped(getattr(os, name)))
    os.open = wrapped(os.open, lambda path, flags=0, *rest: flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    os.write = wrapped(os.write, lambda place, data: stat.S_ISREG(os.fstat(place).st_mode))
    builtins.open = io.open = wrapped(io.open, lambda file, mode="r", *rest: {*str(mode)} & {*"wax+"})


def slow(seconds: float) -> None:
    watch_changes(lambda: time.sleep(seconds))


def refuse(code: int, at: float) -> None:
    """From the change of this number on there is none, as on a disk that the kernel has made read-only."""
    seen = [0]

    def count() -> None:
        seen[0] += 1
        if seen[0] >= at:
            raise OSError(code, os.strerror(code))

    watch_changes(count)


def unlocked(at: float) -> None:
    def flock(file, kind):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = flock


def as_nfs(at: float) -> None:
    """What NFS does in another way: an exclusive lock wants a file that is open for writing, a folder is not
    synced, and a file that is open keeps a place in its folder until it is closed."""
    lock, sync, remove, left = fcntl.flock, os.fsync, os.unlink, []

    def flock(file, kind):
        number = file if isinstance(file, int) else file.fileno()
        if kind & fcntl.LOCK_EX and not fcntl.fcntl(number, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return lock(file, kind)

    def fsync(file):
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return sync(file)

    def unlink(path, *, dir_fd=None):
        place = Path(f"/proc/self/fd/{dir_fd}" if dir_fd is not None else ".", path)
        links = [entry for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
        if not place.is_symlink() and any(place.exists() and entry.samefile(place) for entry in links):
            left.append(Path(os.path.realpath(place)).with_name(f".nfs{len(left):08}"))
            return os.rename(place, left[-1])
        return remove(path, dir_fd=dir_fd)

    fcntl.flock, os.fsync, os.unlink = flock, fsync, unlink
    atexit.register(lambda: [remove(path) for path in left if path.exists()])


TRICKS = {"clock": jump, "slow": slow, "ENOLCK": unlocked, "network": as_nfs,
          **{name: partial(refuse, getattr(errno, name)) for name in ("EROFS", "EIO", "ESTALE", "EDQUOT")}}

if __name__ == "__main__":
    from postgrad.cli import main
    name, _, value = sys.argv[1].partition(":")
    TRICKS[name](float(value))
    with suppress(BrokenPipeError):
        code = main(sys.argv[2:])
    sys.exit(json.loads(str(code or 0)))
