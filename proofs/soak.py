"""Training, sampling, serving, studio and labelling together for an hour; and a run of 100,000 steps: the
parts soak and logs of proofs/reliability.py.

    python proofs/reliability.py soak minutes=60

What a process holds (memory, handles, threads) is compared between the second and the last fifth of the time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
from harness import Bars, Tables, bar, best, environment, is_done, python, started
from faults import small_args
from studio import long_run
from studio_labels import ITEMS, judge

from postgrad.data.store import Item, Store
from postgrad.runs import Run

PAGES = ("/", "/runs", "/runs/long", "/runs/-/curves?run=long", "/runs/-/samples?run=long", "/label/data",
         "/label/live", "/instruments/grpo/frame", "/book/1")
HELD = {"memory, MB": 0, "handles": 1, "threads": 2}
MEMORY, MORE = 1.1, 4  # what is no growth: a tenth of the memory, four handles or threads
LONG, PAGE_SECONDS = 100_000, 1.0


def held(pid: int) -> tuple[float, int, int]:
    """Memory in MB, open handles and threads of a process."""
    home = Path(f"/proc/{pid}")
    megabytes = int((home / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return megabytes, len(os.listdir(home / "fd")), len(os.listdir(home / "task"))


def start_server(stack: ExitStack, *words: object, **env: str) -> tuple[int, str]:
    """A server beside this process: its id and address."""
    process = stack.enter_context(started([sys.executable, "-m", "postgrad", *words, "--json"], text=True,
                                          stdout=subprocess.PIPE, env=environment(**env)))
    return process.pid, json.loads(process.stdout.readline())["url"]


def studio_of(stack: ExitStack, runs: Path, *words: object) -> tuple[int, httpx.Client]:
    pid, start = start_server(stack, "studio", runs, "--port", 0, "--no-open", *words,
                       XDG_STATE_HOME=str(runs.parent))
    web = client_of(stack, start.partition("/start")[0])
    web.get(start).raise_for_status()
    return pid, web


def client_of(stack: ExitStack, url: str) -> httpx.Client:
    return stack.enter_context(httpx.Client(base_url=url, timeout=60, trust_env=False, follow_redirects=True,
                                            headers={"X-Postgrad": "1"}))


def request_answered(client: httpx.Client, path: str, **body: object) -> bool:
    """Whether it was answered."""
    answer = client.post(path, json=body) if body else client.get(path)
    return answer.is_success and bool(answer.content)


def disk_of(run: Path) -> tuple[int, int, int]:
    """Steps, bytes of logs, and checkpoints of a run."""
    logs = sorted(run.glob("*.jsonl"))
    with (run / "metrics.jsonl").open("rb") as file:
        steps = sum(1 for _ in file)
    return steps, sum(path.stat().st_size for path in logs), len([*(run / "checkpoints").glob("[0-9]*")])


def soak(folder: Path, minutes: str = "60") -> tuple[Bars, Tables]:
    runs, store = folder / "runs", folder / "preferences.db"
    with Store.open(store) as db:
        db.add([Item.of(({"role": "user", "content": f"What is {n}?"},), (f"Yes {n}.", f"No {n}."), "soak")
                for n in range(60 * int(float(minutes) * 60 // len(ITEMS) + 1))])
    words = [word for word in small_args("grpo", "grpo:words") if not word.startswith(("steps", "save"))]
    rows, disk, lost, labels, answered = list[dict](), list[tuple](), list[str](), 0, 0
    with ExitStack() as stack:
        trainer = stack.enter_context(started(
            [sys.executable, "-m", "postgrad", "train", *words, "steps=10000000", "save_every=20", "--run",
             runs / "long"], (runs / "long/checkpoints/000020").exists, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL))
        server, url = start_server(stack, "serve", runs / "long", "--port", 0)
        chat = client_of(stack, url.removesuffix("/v1"))
        home, web = studio_of(stack, runs, "--store", store)
        several = stack.enter_context(ThreadPoolExecutor(4))
        page, ends = web.get("/label?labeller=soak").text, time.monotonic() + 60 * float(minutes)
        while time.monotonic() < ends:
            turn = time.monotonic()
            work: list[Callable[[], bool]] = [
                lambda i=i: request_answered(chat, "/v1/chat/completions", model="long", max_tokens=16,
                                  messages=[{"role": "user", "content": f"{i} + 2?"}]) for i in range(4)]
            work += [lambda path=path: request_answered(web, path) for path in PAGES]
            sent = [(one, several.submit(one)) for one in work]
            with web.stream("GET", "/runs/-/live?list=1") as events:  # a reader that leaves
                next(events.iter_raw())
            said = judge(web, page, "A" if len(rows) % 2 else "B")
            labels += said.is_success
            page = said.text
            oks = [future.result() for _, future in sent] + [said.is_success]
            answered, lost = answered + sum(oks), lost + [str(len(rows))] * (not all(oks))
            rows.append({name: held(pid) for name, pid in
                         {"training": trainer.pid, "serving": server, "studio": home}.items()})
            disk.append(disk_of(runs / "long"))
            time.sleep(max(0.0, turn + 1 - time.monotonic()))
    with Store.open(store) as db:
        kept = db.size() - db.left("soak")
    fifth = max(1, len(rows) // 5)
    early, late = rows[fifth:2 * fifth], rows[-fifth:]
    middle = lambda part, name, i: statistics.median(row[name][i] for row in part)  # noqa: E731
    table = [{"process": name} | {what: f"{middle(early, name, i):.0f} -> {middle(late, name, i):.0f}"
                                  for what, i in HELD.items()} for name in rows[0]]
    grown = [f"{row['process']}: {what}" for row in table for what, i in HELD.items()
             if middle(late, row["process"], i) > (middle(early, row["process"], i) * MEMORY if i == 0
                                                   else middle(early, row["process"], i) + MORE)]
    (s0, b0, _), (s1, b1, _), (s2, b2, _) = disk[0], disk[len(disk) // 2], disk[-1]
    first, last = max(1, b1 - b0) / max(1, s1 - s0), (b2 - b1) / max(1, s2 - s1)
    return [bar(f"{minutes} minutes of training, serving, studio and labelling: growth of memory by over a "
                f"tenth, of handles or threads by over {MORE}", "0 of 9",
                f"{len(grown)} of 9 {', '.join(grown)}".strip(), not grown),
            bar("the same: rounds with a request that got no answer", "0",
                f"{len(lost)} of {len(rows)}, {answered} answers", not lost),
            bar("the same: labels that were acknowledged and are kept", "all", f"{kept} of {labels}",
                kept == labels > 0),
            bar("the same: bytes of logs for a step, the second half against the first", "<= 1.1 times",
                f"{last / first:.2f} times ({last:.0f} bytes, {s2} steps)", last <= 1.1 * first),
            bar("the same: checkpoints kept at any time", "<= 4", max(n for *_, n in disk),
                max(n for *_, n in disk) <= 4)], {"The second and the last fifth of the time": table}


def logs(folder: Path) -> Bars:
    """A run of 100,000 steps: how fast it is read, listed and shown."""
    run = folder / "runs" / "long"
    if not is_done(run):
        long_run(run, LONG)
    reading, = best(lambda: Run.open(run).rows("metrics"), rounds=1, clock=time.process_time)
    listing, = best(lambda: python("-m", "postgrad", "runs", run), rounds=1)
    with ExitStack() as stack:
        _, web = studio_of(stack, folder / "runs")
        times = {path: best(lambda path=path: web.get(path).raise_for_status(), rounds=3)[0]
                 for path in PAGES[1:5]}
    slow = max(times, key=times.__getitem__)
    return [bar(f"a run of {LONG:,} steps in the studio: the slowest of {', '.join(times)}",
                f"<= {PAGE_SECONDS:g} s", f"{times[slow]:.2f} s ({slow})", times[slow] <= PAGE_SECONDS),
            bar("the same: all its metrics are read, processor time", "<= 5 s", f"{reading:.1f} s",
                reading <= 5),
            bar("the same: `postgrad runs RUN`, start too", "<= 10 s", f"{listing:.1f} s", listing <= 10)]
