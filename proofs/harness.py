"""The harness of proofs and benchmarks: bars, recorded measurements, tests as bars, pages of docs/results.

A proof is a module with a Page of parts. A part is a function of the folder that returns bars, or bars and
tables. Its other parameters are set on the command line.

    python proofs/NAME.py [PART ...] [KEY=VALUE ...]  measures parts (none named: all), then writes the page;
                                                      folder=runs/proof-TOPIC records each part's result, and
                                                      a recorded part is not measured again
    python proofs/NAME.py write [folder=...]          writes the page alone: of a part that the folder does
                                                      not have, the bars and tables stay as they are
    python proofs/harness.py                          renders every page of docs/results from its JSON

A bar has a target that can be missed; a figure without one stands in a table. "yes" is said of a bar whose
code is, in git, what it was at the commit where it was measured; of others the page says "stale".
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

HOME = Path(__file__).resolve().parent.parent
sys.path[1:1] = [str(HOME / name) for name in ("", "proofs", "bench", "tools", "tests/support")]
RESULTS = HOME / "docs" / "results"
DATA = Path(os.environ.get("POSTGRAD_DATA", HOME.parent / "shared" / "data"))
TESTS = tomllib.loads((HOME / "proofs" / "tests.toml").read_text())
NOT_MEASURED, UNCOMMITTED = "not measured", " with uncommitted changes"
FIGURES = "Figures without a target"
QUANTITY = re.compile(r"(?<![A-Za-z])\d|\b(all|every|equal|same)\b")
EXCUSE = re.compile(r"\b(reported|listed|stated|explained|reason|tried|with (both )?(intervals|figures))\b")
Bars = list[dict]
Tables = dict[str, list[dict]]


def rooms(*names: str) -> tuple[str, ...]:
    """The folders of these rooms of the package."""
    return tuple(f"postgrad/{name}" for name in names)


COMPUTES = rooms("maths", "methods", "models", "sampling", "training")
TRAINS = (*COMPUTES, *rooms("rewards", "data", "evaluation", "recipes"))


def can_be_missed(target: str) -> bool:
    """Whether a target says how much, and leaves no way to hold without it."""
    return bool(QUANTITY.search(target)) and not EXCUSE.search(target)


def bar(name: str, target: str, measured: object, holds: object, command: str = "", *,
        earlier: list[dict] | None = None, seeds: list | None = None, paths: list[str] | None = None) -> dict:
    """One line of a page. command, seeds, paths: where they are not the part's or the page's own. earlier:
    targets that it had before, {"target", "by", "why"} each, the first one first."""
    if not can_be_missed(target):
        raise ValueError(f"{name}: {target!r} cannot be missed; a target is a number, and what has none is a "
                         "row of a table.")
    more = {"earlier": earlier, "seeds": seeds, "paths": paths}
    return {"name": name, "target": target, "measured": str(measured), "holds": bool(holds),
            "command": command} | {key: value for key, value in more.items() if value}


@dataclass(frozen=True)
class Page:
    """docs/results/TOPIC.*, and the parts that measure its bars.

    apart: parts that run only if named (they need a GPU, or another package's environment). paths: the files
    and folders that its figures depend on; a bar that pytest measures has its tests' rooms instead."""

    topic: str
    title: str
    parts: Mapping[str, Callable]
    seeds: list
    apart: tuple[str, ...] = ()
    paths: tuple[str, ...] = ("postgrad",)

    def measure(self, name: str, folder: Path, settings: Mapping[str, str]) -> None:
        """A part's bars and tables in folder/NAME.json, unless they are there."""
        path = folder / f"{name}.json"
        if not path.exists():
            (folder / name).mkdir(parents=True, exist_ok=True)
            part = self.parts[name]
            known = inspect.signature(part).parameters
            result = part(folder / name, **{k: v for k, v in settings.items() if k in known})
            bars, tables = result if isinstance(result, tuple) else (result, {})
            script = Path(sys.argv[0]).resolve().relative_to(HOME)
            bars = [row | {"command": row["command"] or f"python {script} {name}"} for row in bars]
            path.write_text(json.dumps({"commit": commit(), "machine": machine(), "bars": bars,
                                        "tables": tables}, indent=1) + "\n")
        show(json.loads(path.read_text())["bars"])

    def write(self, folder: Path) -> Bars:
        """The page of what the folder has; the rest stays as the page has it, with its commit and machine.
        folder/by_hand.json: bars that other machines gave, typed by hand."""
        path = RESULTS / f"{self.topic}.json"
        page = json.loads(path.read_text()) if path.exists() else {"bars": [], "tables": {}}
        files = {name: folder / f"{name}.json" for name in (*self.parts, "by_hand")}
        found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
        if not found:
            sys.exit(f"{folder} has nothing that was measured: name a part of {', '.join(self.parts)}.")
        if dirty := [name for name, part in found.items()
                     if any(UNCOMMITTED in row.get("commit", "") for row in (part, *part["bars"]))]:
            sys.exit(f"{', '.join(dirty)} of {folder} was measured with uncommitted changes: commit them, "
                     f"delete {folder / dirty[0]}.json and measure again.")
        where = Counter((part["commit"], json.dumps(part["machine"])) for part in found.values())
        (at, on), _ = where.most_common(1)[0]
        before, bars = {row["name"]: row for row in page["bars"]}, []
        for name in (*self.parts, "by_hand"):
            mine = found.get(name)
            origin = mine or page
            for row in mine["bars"] if mine else [row for row in page["bars"] if row.get("part") == name]:
                row = {"commit": origin["commit"], "machine": origin["machine"]} | row | {"part": name}
                if name == "by_hand":
                    row["by_hand"] = True
                bars.append(with_earlier(row, before.get(row["name"])))
        for row in bars:
            if row["machine"] == json.loads(on):
                del row["machine"]
        tables = {k: v for part in found.values() for k, v in part["tables"].items()}
        if self.parts.keys() - found.keys():  # else a table that no part has is of an earlier script
            tables = page["tables"] | tables
        print(write(self.topic, self.title, bars, seeds=self.seeds, tables=tables, on=json.loads(on), at=at,
                    paths=self.paths))
        return bars

    def main(self) -> None:
        words, settings = arguments()
        folder = Path(settings.pop("folder", HOME / "runs" / f"proof-{self.topic}")).resolve()
        if unknown := [word for word in words if word not in (*self.parts, "write")]:
            sys.exit(f"{unknown[0]} is no part of {self.topic}: {', '.join(self.parts)}, or write.")
        if (not words or "write" in words) and UNCOMMITTED in commit():
            sys.exit("A page is not made from a tree with uncommitted changes: commit them, then run this "
                     "again.")
        for name in words or [name for name in self.parts if name not in self.apart]:
            if name != "write":
                self.measure(name, folder, settings)
        if not words or "write" in words:
            sys.exit(not all(row["holds"] for row in self.write(folder)))


def with_earlier(row: dict, before: dict | None) -> dict:
    """The bar with the earlier targets of the page's; a target that changed without a word is refused."""
    if before is None:
        return row
    earlier = row.get("earlier") or before.get("earlier") or []
    if before["target"] != row["target"] and before["target"] not in [old["target"] for old in earlier]:
        sys.exit(f"{row['name']}: its target was {before['target']!r} and is {row['target']!r}: say who "
                 "changed it and why, bar(..., earlier=[{'target', 'by', 'why'}]).")
    return row | {"earlier": earlier} if earlier else row


def write(topic: str, title: str, bars: Bars, *, seeds: list, tables: Tables, on: dict | None = None,
          at: str | None = None, paths: tuple[str, ...] = ("postgrad",)) -> Path:
    """docs/results/TOPIC.json and its page. on, at: the machine and the commit, where they are not these."""
    path, at = RESULTS / f"{topic}.json", at or commit()
    if UNCOMMITTED in at:
        sys.exit(f"{at}: a page is not made from a tree with uncommitted changes.")
    path.write_text(json.dumps({"title": title, "commit": at, "date": time.strftime("%Y-%m-%d"),
                                "seeds": seeds, "machine": on or machine(), "paths": list(paths),
                                "bars": [{"commit": at} | row for row in bars], "tables": tables},
                               indent=1) + "\n")
    return render(path)


def arguments() -> tuple[list[str], dict[str, str]]:
    """The words of the command line, and its KEY=VALUE settings; --help prints the script's docstring."""
    if {"-h", "--help"} & {*sys.argv[1:]}:
        sys.exit(sys.modules["__main__"].__doc__)
    return ([word for word in sys.argv[1:] if "=" not in word],
            dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word))


def show(bars: Bars) -> None:
    for row in bars:
        print(f"{'holds' if row['holds'] else 'FAILS'}  {row['name']}: {row['measured']} ({row['target']})",
              flush=True)


def once(path: Path, measure: Callable, *args, **how):
    """The JSON of a file; measure(*args, **how) is written there unless it exists."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(measure(*args, **how), indent=1) + "\n")
    return json.loads(path.read_text())


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def best(*works: Callable[[], object], rounds: int = 5, clock: Callable[[], float] = time.perf_counter,
         wait: Callable[[], object] = lambda: None) -> list[float]:
    """The shortest time of each work, in turn, after a round of warming up. wait: ends a GPU's work."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 1):
        for work, mine in zip(works, times, strict=True):
            wait()
            began = clock()
            work()
            wait()
            mine.append(clock() - began)
    return [min(mine[1:]) for mine in times]


# processes

def environment(home: Path = HOME, **more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(home), "OMP_NUM_THREADS": "1"} | more


def python(*words: object, cwd: Path = HOME, check: bool = True, env: Mapping[str, str] | None = None) -> str:
    """What a child of this Python prints."""
    done = subprocess.run([sys.executable, *map(str, words)], cwd=cwd, text=True, capture_output=True,
                          env=env or environment(cwd))
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr[-3000:]}")
    return done.stdout


def postgrad(*words: object, **how) -> dict:
    """What `postgrad WORDS --json` says."""
    return json.loads(python("-m", "postgrad", *words, "--json", **how).splitlines()[-1])


def is_done(run: Path) -> bool:
    """Whether a training came to its end."""
    path = run / "status.json"
    return path.exists() and json.loads(path.read_text())["state"] == "done"


def train(folder: Path, spec: str, *changes: str):
    """The run of `postgrad train SPEC CHANGES --run FOLDER` in this process; one that is done is opened."""
    from postgrad import Run
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes.launch import start_training
    if not is_done(folder):
        shutil.rmtree(folder, ignore_errors=True)
        recipe, config = config_from_text(spec, changes)
        start_training(recipe, config, folder, command=" ".join(["postgrad train", spec, *changes]))
    return Run.open(folder)


def pipeline(folder: Path, spec: str, *changes: str) -> dict:
    """The summary of `postgrad train SPEC CHANGES --run FOLDER`; a pipeline begun there is resumed."""
    if not (folder / "summary.json").exists():
        begun = (folder / "pipeline.json").exists()
        words = ["resume", folder] if begun else ["train", spec, *changes, "--run", folder]
        subprocess.run([sys.executable, "-m", "postgrad", *map(str, words)], check=True, cwd=HOME)
    return json.loads((folder / "summary.json").read_text())


@contextmanager
def started(words: list, ready: Callable[[], object] | None = None, **how) -> Iterator[subprocess.Popen]:
    """A process beside this one, until the block ends; ready: is waited for, OSErrors meanwhile ignored."""
    process = subprocess.Popen(list(map(str, words)), **{"env": environment()} | how)
    try:
        ends = time.monotonic() + 600
        while ready and time.monotonic() < ends:
            assert process.poll() is None, f"{words} ended with {process.returncode}"
            try:
                if ready():
                    break
            except OSError:
                pass
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def served(*words: object, cwd: Path | None = None, **env: str) -> Iterator[str]:
    """The address that `postgrad WORDS --json` prints, while it runs."""
    with started([sys.executable, "-m", "postgrad", *words, "--json"], stdout=subprocess.PIPE, text=True,
                 env=environment(**env), cwd=cwd) as process:
        yield json.loads(process.stdout.readline())["url"]


@contextmanager
def shared_gpu() -> Iterator[dict[str, str]]:
    """The environment of processes that compute on the GPU at once rather than in turns: NVIDIA's MPS, where
    it is there and the caller has not started it."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield {}
        return
    with tempfile.TemporaryDirectory() as pipes:
        env = {"CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": pipes}
        subprocess.run([control, "-d"], check=True, env=os.environ | env)
        try:
            yield env
        finally:
            subprocess.run([control], input="quit\n", text=True, check=True, env=os.environ | env)


def answers(url: str) -> bool:
    """Whether a server on this machine answers."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5):
        return True


def own_python(place: Path, packages: list[str], behind: bool = True) -> Path:
    """The Python of an environment with these packages, created unless it exists; behind: it also sees this
    Python's packages."""
    import sysconfig
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        if behind:
            seen = next((place / "lib").glob("python3*/site-packages")) / "zz_behind.pth"
            seen.write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def copy_tree(to: Path) -> None:
    """Copies the files of the working tree that git tracks or would track."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=HOME, capture_output=True,
                            text=True, check=True).stdout.splitlines()
    for name in listed:
        if (HOME / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(HOME / name, to / name)


# tests as bars

def counted(report: Path) -> dict[str, tuple[int, int, int]]:
    """file::name of a test -> how many of its cases ran, failed, and were skipped."""
    counts: dict[str, tuple[int, int, int]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        tags = {child.tag for child in case}
        file = case.get("classname", "").replace(".", "/") + ".py"
        name = f"{file}::{case.get('name', '').partition('[')[0]}"
        ran, wrong, skipped = counts.get(name, (0, 0, 0))
        skip = "skipped" in tags
        counts[name] = ran + (not skip), wrong + bool(tags & {"failure", "error"}), skipped + skip
    return counts


def run_tests(folder: Path, names: list[str], report: str = "") -> dict[str, tuple[int, int, int]]:
    """The counts of these tests, those marked long too; report: of an earlier run."""
    path = Path(report) if report else folder / "tests.xml"
    if not path.exists():
        python("-m", "pytest", "-q", "-n", "2", "-m", "", f"--junitxml={path}", *names, check=False,
               env=environment(POSTGRAD_BROWSER="1"))
    return counted(path)


def test_bar(name: str, target: str, words: list[str], counts: Mapping[str, tuple[int, int, int]]) -> dict:
    """Whether the tests pass in whose file::name the words stand; every word has to name one that ran, and a
    target of ">= N, all" that many."""
    named = {word: [count for test, count in counts.items() if word in test] for word in words}
    ran, failed, skipped = (sum(count[i] for found in named.values() for count in found) for i in range(3))
    absent = [word for word, found in named.items() if not sum(ran for ran, *_ in found)]
    rest = f"; none ran that is named {', '.join(absent)}" if absent else ""
    command = " ".join(words) if all("/" in word for word in words) else f"-k '{' or '.join(words)}'"
    least = re.match(r">= (\d+)\b(?! %)", target)
    return bar(name, target, f"{ran - failed} of {ran} tests pass, {skipped} skipped{rest}",
               not failed and not absent and ran >= int(least[1] if least else 0), f"pytest {command}")


def bars_of_tests(topic: str, counts: Mapping[str, tuple[int, int, int]]) -> Bars:
    """The bars of a topic of proofs/tests.toml; its notes stand behind what was measured."""
    listed = TESTS[topic]
    bars = [test_bar(name, listed.get("targets", {}).get(name, listed["target"]), words, counts)
            for name, words in listed["bars"].items()]
    notes = listed.get("notes", {})
    return [row | {"measured": "; ".join(filter(None, (row["measured"], notes.get(row["name"]))))}
            for row in bars]


def tests(topic: str) -> Callable[..., Bars]:
    """The part of a page whose bars are the tests that proofs/tests.toml lists."""
    listed = TESTS[topic]

    def tested(folder: Path, report: str = "") -> Bars:
        names = listed.get("run") or sorted({word for words in listed["bars"].values() for word in words})
        return bars_of_tests(topic, run_tests(folder, names, report))

    return tested


# where and when

def machine() -> dict:
    import torch
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.machine())
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version(),
            "torch": torch.__version__} | gpu


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(HOME), *words], capture_output=True, text=True,
                          check=True).stdout.strip()


def commit() -> str:
    """The commit of these files; of a copy whose history does not have it, what POSTGRAD_COMMIT says. What
    pages say does not count as a change."""
    named = os.environ.get("POSTGRAD_COMMIT")
    try:
        if named and changed_since(named, ()) is None:
            return named
        changed = git("status", "--porcelain", "--", ".", ":!docs/results")
        return git("rev-parse", "--short", "HEAD") + (UNCOMMITTED if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return named or "a copy without its history"


@cache
def changed_since(at: str, paths: tuple[str, ...]) -> bool | None:
    """Whether files under the paths differ from those of a commit; None where git does not have it."""
    try:
        git("cat-file", "-e", f"{at}^{{commit}}")
        return bool(git("diff", "--name-only", at, "--", *paths))
    except (OSError, subprocess.CalledProcessError):
        return None


# pages

def depends_on(row: dict, page: dict) -> tuple[str, ...]:
    """The paths of a bar: its own, the tests that it names and the rooms they mirror, or the page's."""
    if "paths" in row:
        return tuple(row["paths"])
    if row["command"].startswith("make "):
        return "postgrad", "tests"
    files = re.findall(r"[\w/]+_test\.py", row["command"]) if row["command"].startswith("pytest") else []
    rooms = {f"postgrad/{Path(file).parts[1]}" for file in files if "/" in file}
    rooms = {room if (HOME / room).is_dir() else "postgrad" for room in rooms}
    return (*sorted(rooms), *files) if rooms else tuple(page["paths"])


def standing(row: dict, page: dict) -> str:
    """What a page says of a bar: yes, no, not measured, or what it was before its code changed."""
    if row["measured"] == NOT_MEASURED:
        return NOT_MEASURED
    held, changed = "yes" if row["holds"] else "**no**", changed_since(row["commit"], depends_on(row, page))
    if changed is None:
        return f"not known ({held} then)"
    return f"stale ({held} then)" if changed else held


def settled(text: str) -> str:
    """A page without what later commits change in it."""
    return re.sub(r"\| (?:stale|not known) \((\S+) then\) \|", r"| \1 |", text)


def rendered(path: Path) -> str:
    """The page of a JSON file, as Markdown."""
    r = json.loads(path.read_text())
    m = r["machine"]
    more = "".join(f"; {name}: {what}" for name, what in m.items()
                   if name not in ("cpu", "cores", "python", "torch"))
    seeds = ", ".join(map(str, r["seeds"]))
    lines = [f"# {r['title']}", "",
             f"Measured on {r['date']} at commit {r['commit']}, "
             f"{f'one seed ({seeds})' if len(r['seeds']) == 1 else f'seeds {seeds}'}, on "
             f"{m['cores']} cores ({m['cpu']}), Python {m['python']}, torch {m['torch']}{more}. Made from "
             f"`{path.name}` by `make docs`. A line is stale once the code that it depends on "
             f"({', '.join(r['paths'])}, or the rooms of its tests) has changed.", ""]
    lines += grid([{"what": row["name"], "target": target_text(row), "measured": measured_text(row, r),
                    "holds": standing(row, r), "command": f"`{row['command']}`"} for row in r["bars"]])
    for heading, rows in r["tables"].items():
        lines += ["", f"## {heading}", "", *grid(rows)]
    return "\n".join(lines) + "\n"


def target_text(row: dict) -> str:
    return row["target"] + "".join(f"; before: {old['target']} (changed by {old['by']}: {old['why']})"
                                   for old in row.get("earlier", ()))


def measured_text(row: dict, page: dict) -> str:
    """The figure, and what sets it apart from the page's others."""
    apart = [f"at commit {row['commit']}"] if row["commit"] != page["commit"] else []
    if on := row.get("machine"):
        apart.append(on["cpu"] if on.get("gpu", "") in on["cpu"] else f"{on['gpu']}, {on['cpu']}")
    apart += [f"one seed: {row['seeds'][0]}"] if len(row.get("seeds", ())) == 1 else []
    apart += ["typed by hand"] if row.get("by_hand") else []
    return row["measured"] + (f" ({', '.join(apart)})" if apart and row["measured"] != NOT_MEASURED else "")


def render(path: Path) -> Path:
    page = path.with_suffix(".md")
    page.write_text(rendered(path))
    return page


def grid(rows: list[dict]) -> list[str]:
    if not rows:
        return ["(none)"]
    names = list(rows[0])
    text = lambda x: f"{x:.4g}" if isinstance(x, float) else str(x).replace("|", "\\|")  # noqa: E731
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names),
            *("| " + " | ".join(text(row.get(n, "")) for n in names) + " |" for row in rows)]


def percent(value: float, interval: list[float] | None = None) -> str:
    return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})" if interval else f"{value:.1%}"


if __name__ == "__main__":
    for found in sorted(RESULTS.glob("*.json")):
        print(render(found))
