"""Attacks and faults that are counted: parts of proofs/reliability.py.

Parts: signals, labels, ranks, jail, answers (verifiers.py), files, lines, servers, pages. A row says how many
were tried, survived and lost.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import forks
import kills as strikes
import ranks_launch
from harness import Bars, bar, run_tests, test_bar
from faults import NAMED, small_args
from verifiers import programs, text

STOPPED, MOMENTS = ("sft", "dpo", "grpo", "ppo"), 3
LIMIT, LATE = 1.0, 0.5  # seconds that a program may take, and until its verdict
REFUSED = (401, 403, 421)
NAMES_A_FILE = re.compile(r"postgrad: .*\bbad\b.*(\b[\w.-]+\.(json|safetensors|jinja|bin|pth?|ckpt|pkl)\b|"
                          r"the (chat template|tokenizer)\b)|postgrad: (the )?prompt ")


def counted(name: str, least: int, tried: int, lost: Iterable[object], said: str = "") -> dict:
    """A row: none of at least so many is lost."""
    lost = [str(what)[:200] for what in lost]
    return bar(name, f"0 lost of >= {least:,}", f"{tried:,} tried, {tried - len(lost):,} survived, "
               f"{len(lost):,} lost{': ' * bool(lost)}{'; '.join(lost[:3])}{said}",
               tried >= least and not lost)


# signals

def spawn(args: list[str], *, at: int | str = 0, number: int = signal.SIGKILL) -> tuple[int, str]:
    return forks.run("kills:child", at, int(number), args)


def stopped(name: str, place: Path, number: int, at: int, twice: bool, alone: dict) -> str:
    """What is wrong after a signal, or two, at a file call, and a resume; "" where nothing is."""
    run = place / f"{number}-{at}-{twice}"
    shutil.rmtree(run, ignore_errors=True)
    code, said = spawn(strikes.train_args(name, run), at=f"twice:{at}" if twice else at, number=number)
    rows = len((run / "metrics.jsonl").read_text().splitlines())
    saved = [int(path.name) for path in (run / "checkpoints").glob("[0-9]*")]
    told = re.search(r"signalled after (\d+) steps", said)
    done = int(told[1]) if told else -9  # it was never signalled
    by_default = twice and number == signal.SIGTERM  # the system ends it, and a shell calls that 143
    wrong = [f"exit {code}"] * (code != (-number if by_default else 128 + number))
    wrong += ["a traceback"] * ("Traceback" in said)
    wrong += [f"{rows} steps, {done} at the signal"] * (rows not in (done, done + 1))
    if twice:
        wrong += ["not at once"] * ("saved" in said or "stopped at once" not in said and not by_default)
    else:
        wrong += [f"checkpoints {saved} at step {rows}"] * (rows not in saved)
    strikes.finish(name, run)
    wrong += strikes.differences(alone, run)
    return f"{name}, signal {number} at call {at}: {', '.join(wrong)}" if wrong else ""


def signals(folder: Path, moments: str = str(MOMENTS), only: str = ",".join(STOPPED)) -> Bars:
    """SIGTERM and Ctrl-C at random file calls of trainings, once and twice."""
    strikes.spawn, lost = spawn, {False: list[str](), True: list[str]()}
    draw, tried = random.Random(0), {False: 0, True: 0}
    for name in only.split(","):
        place, strikes.SMALL[name] = folder / name, small_args(name, NAMED[name])
        shutil.rmtree(place, ignore_errors=True)
        steps = strikes.left_alone(name, place / "alone")["steps"]
        alone = strikes.facts(place / "alone")
        for number in (signal.SIGTERM, signal.SIGINT):
            for i in range(int(moments) + 1):
                twice = i == int(moments)
                at = draw.randint(steps[0] + 1, steps[-2])
                said = stopped(name, place, number, at, twice, alone)
                tried[twice] += 1
                lost[twice] += [said] if said else []
    families = len(only.split(","))
    return [counted(f"SIGTERM and Ctrl-C at random moments of {families} families: exit 143 or 130, a "
                    "checkpoint within one step, the resumed run has the same bits", 24, tried[False],
                    lost[False]),
            counted("a second signal ends it at once, with 130 or, in a shell, 143; the resumed run has the "
                    "same bits", 8, tried[True], lost[True])]


# labels

def operation(k: int, count: int) -> tuple[int, str, str]:
    """(item, labeller, choice) of the k-th label; no two in a row leave the same behind."""
    return k % count, ("ann", "ben")[k // count % 2], ("a", "b", "tie")[k // (2 * count) % 3]


def labelled(last: int, count: int) -> dict[tuple[int, str], str]:
    """What stands after the labels up to this one."""
    recent = range(max(0, last + 1 - 2 * count), last + 1)
    return {(item, who): choice for item, who, choice in (operation(k, count) for k in recent)}


def label_until_killed(path: Path, first: int, uids: list[str], acks: int) -> None:
    from postgrad.data.store import Store
    with Store.open(path, create=False) as store:
        for k in itertools.count(first):
            item, who, choice = operation(k, len(uids))
            store.label(uids[item], who, choice)
            os.write(acks, k.to_bytes(8, "little"))


def labels(folder: Path, kills: str = "200") -> Bars:
    """A process that labels is killed at random times; what it acknowledged is in the store."""
    from store_small import ITEMS

    from postgrad.data.store import Store
    path, draw, done, lost, broken = folder / "labels.db", random.Random(0), -1, list[str](), list[str]()
    for old in folder.glob("labels.db*"):
        old.unlink()
    with Store.open(path) as store:
        store.add(ITEMS)
        uids = [item.uid for item, _ in store.items()]
    for i in range(int(kills)):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read)
                label_until_killed(path, done + 1, uids, write)
            finally:
                os._exit(70)
        os.close(write)
        wanted, heard = draw.randint(0, 12), b""
        with open(read, "rb", buffering=0) as acks:
            while len(heard) < 8 * wanted and (more := acks.read(8)):
                heard += more
            time.sleep(draw.uniform(0, 0.02))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            heard += acks.read()
        last = int.from_bytes(heard[-8:], "little") if heard else done
        with Store.open(path, create=False) as store:
            found = {(n, who): choice for n, (_, by) in enumerate(store.items())
                     for who, choice in by.items()}
        with closing(sqlite3.connect(path)) as db:
            broken += [f"kill {i}"] * (db.execute("PRAGMA integrity_check").fetchone() != ("ok",))
        kept = [k for k in (last, last + 1) if found == labelled(k, len(uids))]
        lost += [] if kept else [f"kill {i}, label {last}"]
        done = kept[0] if kept else last
    return [counted("the preference store after a kill of who labels: its integrity", 200, int(kills),
                    broken),
            counted(f"the same: what was acknowledged stands, of {done + 1:,} labels", 200, int(kills), lost)]


# ranks

def forked(job: dict) -> None:
    code, said = forks.run("ranks_launch:carry_out", job)
    if code:
        raise RuntimeError(said[-3000:])


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def ranks(folder: Path, only: str = ",".join(STOPPED)) -> Bars:
    """One process, two, one; and numbers that are none in one rank of two."""
    from safetensors.torch import load_file

    from postgrad.runs import Run
    from postgrad.training.loop import SKIPS_IN_A_ROW
    from tests.training.distributed import virtual_ranks_test as given
    shutil.rmtree(folder)
    folder.mkdir()
    given.files(folder)
    names = only.split(",")
    job = lambda name, run, *more: given.job(name, folder, run, *more)  # noqa: E731
    for name in names:
        forked(job(name, f"{name}-1", "virtual_ranks=2", "steps=3"))
        forked(job(name, f"{name}-turns", "virtual_ranks=2", "steps=3") | {"until": 1})
    spoils = [(name, rank, number) for name in ("sft", "grpo") if name in names for rank in (0, 1)
              for number in ("nan", "inf", "1e38")]
    ranks_launch.launch(2, [
        *({"run": str(folder / f"{name}-turns"), "until": 2} for name in names),
        *(job(name, f"{name}-{rank}-{number}", "steps=3", "keep=all") | {"spoils": [rank, [2], number]}
          for name, rank, number in spoils),
        job("sft", "ends", "steps=9") | {"spoils": [1, [*range(2, 10)], "nan"]}], folder,
        timeout=3600)
    for name in names:
        forked({"run": str(folder / f"{name}-turns")})
    other = [f"{name}: {found}" for name in names
             if (found := strikes.differences(strikes.facts(folder / f"{name}-1"), folder / f"{name}-turns"))]
    apart = max(abs(a - b) for name in names for a, b in zip(
        losses(folder / f"{name}-1"), losses(folder / f"{name}-turns"), strict=True))
    missed = []
    for name, rank, number in spoils:
        run = Run.open(folder / f"{name}-{rank}-{number}")
        one, two, three = (load_file(path / "model.safetensors") for path in run.checkpoints().values())
        same = lambda a, b: all(a[key].equal(b[key]) for key in a)  # noqa: E731
        events = [e for e in run.rows("events")[0] if e["kind"] == "skipped"]
        good = ([row["skipped"] for row in run.rows("metrics")[0]] == [0, 1, 0] and same(one, two)
                and not same(two, three) and all(x.isfinite().all() for x in three.values())
                and [e["step"] for e in events] == [2] and events[0]["data"]["ids"])
        missed += [] if good else [f"{name}, rank {rank}, {number}"]
    ends = Run.open(folder / "ends")
    state, last = ends.state(), [*ends.checkpoints().values()][-1]
    sound = (state["state"] == "failed" and f"{SKIPS_IN_A_ROW} steps in a row" in state["error"]
             and len(losses(folder / "ends")) == 1 + SKIPS_IN_A_ROW
             and all(x.isfinite().all() for x in load_file(last / "model.safetensors").values()))
    return [counted("one process, then two, then one over a run, against one left alone: the same bits", 4,
                    len(names), other),
            bar("the same: the loss of any step, the farthest", "<= 1e-6", f"{apart:g}", apart <= 1e-6),
            counted("nan, inf and spikes in the gradient of one rank of two: named at the step with the ids, "
                    "the weights unchanged, the next step taken", 12, len(spoils), missed),
            counted(f"{SKIPS_IN_A_ROW} steps in a row that are no number: the run ends with a sentence, its "
                    "last checkpoint sound", 1, 1, [] if sound else [state])]


# programs

def disguises() -> Iterator[tuple[str, Callable[[str], str]]]:
    """(how, source -> source): a program that does what it did, by another way."""
    def called(body: str) -> Callable[[str], str]:
        wrap = (f"\ndef _wrap(call):\n{body}\n"
                "for _name in ('attack', 'f'):\n"
                "    if type(globals().get(_name)).__name__ == 'function':\n"
                "        globals()[_name] = _wrap(globals()[_name])\n")
        return lambda source: source + wrap

    yield "as it is", lambda source: source
    yield "executed as text", lambda source: f"exec({source!r}, globals())"
    yield "packed", lambda source: ("import base64\nexec(base64.b64decode("
                                    f"{base64.b64encode(source.encode('utf-8', 'replace'))!r}), globals())")
    yield "as a module", lambda source: (
        "import sys, types\n_m = types.ModuleType('m')\nsys.modules['m'] = _m\n"
        f"exec({source!r}, _m.__dict__)\n"
        "globals().update({k: v for k, v in vars(_m).items() if k[:2] != '__'})")
    yield "in a generator", called("    def run(*a):\n        def made(): yield call(*a)\n"
                                   "        return next(made())\n    return run")
    yield "in a finally", called("    def run(*a):\n        try: raise ValueError\n"
                                 "        finally: return call(*a)\n    return run")
    yield "in a coroutine", called("    def run(*a):\n        async def made(): return call(*a)\n"
                                   "        try: made().send(None)\n"
                                   "        except StopIteration as end: return end.value\n    return run")


def jail(folder: Path, ways: str = "7") -> Bars:
    """Every hostile program and cheat in each disguise; references; and what a verdict costs."""
    from hostile.arena import CHEAT_SUITE, HONEST, arena, family, left_running
    from hostile.cheats import CHEATS
    from hostile.escapes import ESCAPES
    from hostile.references import references, spoilt

    from postgrad.rewards.sandbox import CodeJob, CodeJudge
    how = [*disguises()][:int(ways)]
    shutil.rmtree(folder)
    with CodeJudge(workers=2, seconds=LIMIT) as judge, arena(folder / "arena") as at:
        honest = {way: CodeJob(source=change(HONEST), suite=CHEAT_SUITE) for way, change in how}
        honest |= {f"an escape, {way}": at.job(change("def attack(place): return True"))
                   for way, change in how}
        spoilt_ways = [way for way, said in zip(honest, judge.outcomes([*honest.values()]), strict=True)
                       if said.kind != "pass"]
        before = family()
        jobs = {f"{name}, {way}": at.job(change(source))
                for way, change in how for name, source in ESCAPES.items()}
        jobs |= {f"cheat: {name}, {way}": CodeJob(source=change(source), suite=CHEAT_SUITE)
                 for way, change in how for name, source in CHEATS.items()}
        outcomes = dict(zip(jobs, judge.outcomes([*jobs.values()]), strict=True))
        harm, left = at.harm(), left_running(before)
    families = len(ESCAPES) + len(CHEATS)
    paid = [f"{name}: {said.kind}" for name, said in outcomes.items() if said.kind not in ("fail", "timeout")]
    slow = max(said.seconds for said in outcomes.values())
    bars = [counted(f"hostile programs and cheats, {families} families in {len(how)} disguises: paid, or "
                    "without a verdict", 1000, len(jobs), paid),
            counted("the same: disguises in which an honest program, or an attack that says it succeeded, "
                    "is not paid", 2 * len(how), len(honest), spoilt_ways),
            bar("the same: harm outside the jail, and processes left running", "0 of either",
                f"{len(harm)} {harm[:3]}, {len(left)}", not harm and not left),
            bar("the same: the slowest verdict", f"<= {LIMIT + LATE:g} s", f"{slow:.2f} s",
                slow <= LIMIT + LATE)]
    with CodeJudge(workers=2, seconds=20.0) as judge:
        for name, group in references().items():
            group = [job for job in group if not job.suite.unsupported]
            good = [said.kind for said in judge.outcomes(group)].count("pass")
            bad = [said.kind for said in judge.outcomes([spoilt(job) for job in group])].count("pass")
            bars += [bar(f"reference solutions of {name}: paid", ">= 99 %", f"{good} of {len(group)}",
                         good >= 0.99 * len(group)),
                     bar(f"the same of {name} with their answers changed: paid", f"0 of {len(group)}", bad,
                         not bad)]
    return bars + programs(folder)


# files

def files(folder: Path, every: str = "1", kinds: str = "model,gguf,run,data,settings,store") -> Bars:
    """Files of strangers through the real command, each in a child with little time and memory; and what may
    not stand in the package."""
    from hostile import data_files, gguf_files, model_files, run_files, store_files
    from hostile.drive import BUDGET, drive, small_run, warm

    from tests.whole import layers_test as grep
    warm()
    shutil.rmtree(folder / "run", ignore_errors=True)
    sound, bars = small_run(folder / "run"), list[dict]()
    groups: dict[str, list] = {}
    for home in (model_files, gguf_files, run_files, data_files, store_files):
        for case in home.cases():
            groups.setdefault(case.name.split(":")[0], []).append(case)
    wanted = {"model": 200, "gguf": 50, "run": 200, "data": 100, "settings": 40, "store": 50}
    for kind, least in wanted.items():
        if kind not in kinds.split(","):
            continue
        found = {case.name: drive(case, sound) for case in groups[kind][::int(every)]}
        lost = [f"{name}: {said.fault}" for name, said in found.items() if said.fault]
        slow = max(said.seconds for said in found.values())
        bars.append(counted(f"hostile files of the kind {kind}: a sentence or as they are, nothing executed "
                            f"or written outside, <= {BUDGET:g} s of processor time", least, len(found), lost,
                            f"; the slowest {slow:.1f} s"))
        if kind == "model":
            unnamed = [f"{name}: {said.said[:120]}" for name, said in found.items()
                       if said.code == 2 and not NAMES_A_FILE.match(said.said)]
            refused = sum(said.code == 2 for said in found.values())
            bars.append(counted("hostile model folders that are refused: the sentence names the folder and "
                                "its file, template or tokenizer, or the prompt that does not fit", 100,
                                refused, unnamed))
    strange = [f"{path.name}: {fault}" for path in grep.FILES
               for fault in set(grep.faults(grep.tree_of(path)))
               - grep.ALLOWED.get(path.relative_to(grep.HOME).as_posix(), set())]
    return [*bars, counted("modules without pickle, torch.load, eval, exec and trust_remote_code, but for "
                           f"{len(grep.ALLOWED) - 1} that are named with a reason", 100, len(grep.FILES),
                           strange)]


def lines(folder: Path) -> Bars:
    """JSONL files with one bad line, through the readers of four kinds of data."""
    from hostile.bad_rows import cases
    tried, odd, lost = list(cases()), 0, list[str]()
    for case in tried:
        fault, odd = case.fault(folder), odd + (case.bad == 0)
        lost += [f"{case.name}: {fault}"] if fault else []
    return [counted("malformed JSONL files: refused by line and reason, or all rows read; the bad row is "
                    "left out and counted where it may be skipped", 200, len(tried), lost,
                    f"; {odd} only look odd; those with a NUL byte in line 1 are refused whole")]


# servers

def apps(folder: Path) -> Iterator[tuple[str, object, str, dict, str]]:
    """(name, app, address, headers that let in, a page for who is in): the studio, and the endpoint with
    Tinker's routes, on this machine and for others."""
    from postgrad.models import find_model
    from postgrad.resolve.models import open_writer
    from postgrad.serving.app import create_app
    from postgrad.serving.decode_worker import ServedModel
    from postgrad.serving.tinker.routes import add_tinker
    from postgrad.serving.tinker.service import TinkerService
    from tests.studio import security_test as guard
    yield "studio", guard.app_over(folder), guard.HERE, {"cookie": guard.KNOWN, "x-postgrad": "1"}, "/"
    for name, token, address in (("endpoint here", None, "http://127.0.0.1:8000"),
                                 ("endpoint for others", guard.TOKEN, "http://10.0.0.3:8000")):
        net, chat = open_writer("tiny-chat")
        served = ServedModel.of(net.requires_grad_(False), chat, "small", rows=2, context=64, waiting=4)
        app = create_app(served, token=token)
        add_tinker(app, TinkerService(served, net, str(find_model("tiny-chat")), folder / name))
        yield name, app, address, {"authorization": f"Bearer {token}"} if token else {}, "/v1/models"


def strangers(name: str, known: dict) -> dict[str, dict]:
    """Headers of requests that are to be refused."""
    from tests.studio import security_test as guard
    if name == "endpoint for others":
        return {"no token": {}, "wrong token": {"authorization": f"Bearer {guard.TOKEN[:-1]}x"},
                "half a token": {"authorization": f"Bearer {guard.TOKEN[:-1]}"},
                "wrong key": {"x-api-key": "tml-a"}}
    asked = {"foreign host": {"host": "evil.example:8765"},
             "a host with ours in it": {"host": "127.0.0.1.evil.example"},
             "foreign origin": {"origin": "http://evil.example"}, "null origin": {"origin": "null"},
             "origin of another port": {"origin": "http://127.0.0.1:9999"},
             "cross-site form": {"origin": "http://evil.example", "sec-fetch-site": "cross-site",
                                 "content-type": "application/x-www-form-urlencoded"}}
    if name == "studio":
        asked |= {"no token": {"cookie": "other=1"}, "wrong token": {"cookie": guard.KNOWN[:-1] + "x"},
                  "a script of another site": {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}}
    return {what: known | headers for what, headers in asked.items()}


def servers(folder: Path) -> Bars:
    """Every route of every server's router, however it is asked by strangers; and paths that lead out."""
    from starlette.testclient import TestClient

    from tests.studio import security_test as guard
    from tests.studio.runs import hostile_test as crooked
    bars = []
    for name, app, address, known, door in apps(folder):
        routes, tried = sorted(set(guard.every_route(app.routes))), 0
        owner = TestClient(app, base_url=address, headers=known).get(door).status_code
        lost = [f"the owner: GET {door} {owner}"] * (owner != 200)
        for what, headers in strangers(name, known).items():
            asking = TestClient(app, base_url=address, headers=headers, raise_server_exceptions=False)
            for method, path in routes:
                method = "POST" if what == "cross-site form" else method
                status = asking.request(method, path, follow_redirects=False).status_code
                tried += 1
                lost += [] if status in REFUSED else [f"{what}: {method} {path} {status}"]
        bars.append(counted(f"{name}: {len(routes)} routes of the router, asked in "
                            f"{len(strangers(name, known))} ways by strangers: refused", 50, tried, lost))
    places: dict[str, tuple[int, Callable]] = {
        "the studio's static folder": (len(guard.STRINGS), guard.test_no_path_leaves_the_static_folder),
        "the runs folder, in every place of an address that names a run": (
            len(crooked.crooked()), crooked.test_500_crooked_paths_read_nothing_outside)}
    for what, (count, check) in places.items():
        with tempfile.TemporaryDirectory() as place:
            try:
                check(Path(place))
                lost = []
            except AssertionError as error:
                lost = [error]
        bars.append(counted(f"paths that lead out of {what}: nothing outside is read", 500, count, lost))
    return bars


# pages

def poisoned_store(path: Path, texts: list[str]) -> list[str]:
    """Pairs of which everything holds poison, ten each; -> their ids."""
    from postgrad.data.store import Item, Store
    uids = []
    with Store.open(path) as store:
        for ten in (texts[n: n + 10] for n in range(0, len(texts), 10)):
            item = Item.of(({"role": "user", "content": "\n".join(ten)},),
                           ("\n".join(ten), "\n".join(ten[::-1])), ten[5])
            store.add([item])
            uids.append(item.uid)
            for text in ten:
                store.label(item.uid, text.replace("\0", "").strip()[:100].strip(), "skip")
    return uids


def pages(folder: Path, every: str = "1") -> Bars:
    """Poison in a real browser, a long run's page, and a server that is killed beside its run."""
    from studio import chromium, long_run, opened, studio
    from studio_browser import STRANGE, TOKEN, Watched, serving
    from studio_small import poisoned

    from tests.studio.pages_test import PLACES
    shutil.rmtree(folder)
    runs = folder / "runs"
    texts = poisoned(runs)
    uids = poisoned_store(folder / "p.db", texts)
    addresses = [f"/runs/bad?step={step}" for step in range(1, len(texts) + 1)]
    addresses += ["/", "/runs", "/runs/compare?ids=bad", "/label/data"]
    addresses += [f"/label?labeller=ann&item={uid}" for uid in uids]
    addresses += [place.format(quote(text, safe=""))
                  for text, place in zip(texts, itertools.cycle(PLACES), strict=False)]
    addresses = addresses[::int(every)]
    long = folder / "long"
    long_run(long / "run", 10_000)
    with (long / "run" / "events.jsonl").open("a") as file:
        file.writelines(json.dumps({"time": time.time(), "step": step, "kind": "note",
                                    "text": f"event {step}", "data": {}}) + "\n" for step in range(1, 10_001))
    ran, noticed = [], 0
    with chromium() as browser:
        with serving(runs, folder / "p.db", TOKEN) as origin:
            page = Watched(browser, origin).page
            runs_here = lambda: page.evaluate("window.pwned") is not None or page.locator(STRANGE).count()  # noqa: E731
            for address in addresses:
                said = page.goto(address, wait_until="load")
                step = re.search(r"bad\?step=(\d+)", address)
                shown = not step or page.locator("#samples-body").get_attribute("data-step") == step[1]
                if said is None or said.status in REFUSED or not shown or runs_here():
                    ran.append(address)
            for text in texts:  # on a page that trusts them
                page.goto("about:blank")
                page.set_content(f"<main>{text}</main>")
                noticed += bool(runs_here())
        with studio(long, folder) as (url, _):
            page = browser.new_page()
            page.goto(url)
            took = opened(page, f"{url.partition('/start')[0]}/runs/run")
    middle = statistics.median(took)
    named = ["tests/studio/runs/browser_test.py::test_the_run_goes_on_when_the_server_is_killed"]
    least = 3 * len(texts) // 5
    return [bar("the strings of the next line on a page that takes them for markup: noticed",
                f">= {least} of {len(texts)}", noticed, noticed >= least),
            counted(f"{len(texts)} strings that would run as prompts, replies, names of runs and labellers, "
                    "and in addresses: pages of a real browser in which none runs", 200, len(addresses), ran),
            bar("a run of 10,000 steps and 10,000 events: until its page shows the last value", "< 1 s",
                f"{middle:.2f} s (median of {len(took)}; worst {max(took):.2f})", middle < 1),
            test_bar("the server is killed: the run goes on, the reopened page has its 12 steps, of each one "
                     "its samples", "0 lost of 12 steps", named, run_tests(folder, named))]


PARTS: dict[str, Callable] = {
    "signals": signals, "labels": labels, "ranks": ranks, "jail": jail, "answers": text, "files": files,
    "lines": lines, "servers": servers, "pages": pages}
