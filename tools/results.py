"""Result files: docs/results/TOPIC.json, written by the script that measured,
and the Markdown page made from it.

python tools/results.py        makes every page anew from its JSON
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent.parent
RESULTS = HERE / "docs" / "results"
NOT_MEASURED, AT = "not measured", " (at commit "


def bar(name: str, target: str, measured: str, holds: bool, command: str) -> dict:
    return {"name": name, "target": target, "measured": measured, "holds": bool(holds), "command": command}


def kept(topic: str, bars: list[dict]) -> list[dict]:
    """Bars that were not measured this time stay as the page has them, and say with which commit, on which
    processor they were."""
    path = RESULTS / f"{topic}.json"
    page = json.loads(path.read_text()) if path.exists() else {"bars": []}
    there = {row["name"]: row for row in page["bars"] if row["measured"] != NOT_MEASURED}

    def told(row: dict) -> dict:
        if AT in row["measured"]:
            return row
        return row | {"measured": f"{row['measured']}{AT}{page['commit']}, {page['machine']['cpu']})"}

    return [told(there[row["name"]]) if row["measured"] == NOT_MEASURED and row["name"] in there else row
            for row in bars]


def in_place(bars: list[dict], name: str, new: list[dict]) -> list[dict]:
    """The bars whose names begin so replaced by new ones, where they stood."""
    first = next(i for i, row in enumerate(bars) if row["name"].startswith(name))
    return [*bars[:first], *new, *(row for row in bars[first:] if not row["name"].startswith(name))]


def kept_rows(topic: str, tables: dict[str, list[dict]]) -> dict[str, list[dict]]:
    """The same of tables that have no rows this time."""
    path = RESULTS / f"{topic}.json"
    there = json.loads(path.read_text())["tables"] if path.exists() else {}
    return {heading: rows or there.get(heading, []) for heading, rows in tables.items()}


def machine() -> dict:
    import torch

    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if "model name" in line), platform.machine())
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version(),
            "torch": torch.__version__}


def commit() -> str:
    """The commit of these files; of a copy without its history, what POSTGRAD_COMMIT says."""
    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(HERE), *words], capture_output=True, text=True,
                              check=True).stdout.strip()
    try:
        return git("rev-parse", "--short", "HEAD") + (" with uncommitted changes"
                                                      if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("POSTGRAD_COMMIT", "a copy without its history")


def write(topic: str, title: str, bars: list[dict], *, seeds: list[int], tables: dict[str, list[dict]],
          on: dict | None = None, at: str | None = None) -> Path:
    """tables: heading -> rows, shown below the bars.

    on, at: the machine and the commit, where they are not these.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    body = {
        "title": title,
        "commit": at or commit(),
        "date": time.strftime("%Y-%m-%d"),
        "seeds": seeds,
        "machine": on or machine(),
        "bars": bars,
        "tables": tables,
    }
    path = RESULTS / f"{topic}.json"
    path.write_text(json.dumps(body, indent=1) + "\n")
    return render(path)


def tested(path: Path, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """How many tests of each file and function ran, and how many of them failed; skipped ones did not run.

    path: where pytest writes what it found; a file that is there is taken as it is.
    """
    if not path.exists():
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", f"--junitxml={path}", *names]
        subprocess.run(command, cwd=HERE, env=os.environ | {"OMP_NUM_THREADS": "1"})
    counts: dict[str, tuple[int, int]] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        tags = {child.tag for child in case}
        file = case.get("classname", "").replace(".", "/") + ".py"
        for name in (file, f"{file}::{case.get('name', '').partition('[')[0]}"):
            ran, wrong = counts.get(name, (0, 0))
            counts[name] = ran + ("skipped" not in tags), wrong + bool(tags & {"failure", "error"})
    return counts


def end(bars: list[dict], out: Path | None) -> NoReturn:
    """The end of a proof: its bars on the screen, in a file where one is named, and as its exit code."""
    text = json.dumps(bars, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")
    sys.exit(not all(row["holds"] for row in bars))


def render(path: Path) -> Path:
    r = json.loads(path.read_text())
    m = r["machine"]
    more = "".join(f"; {name}: {what}" for name, what in m.items()
                   if name not in ("cpu", "cores", "python", "torch"))
    lines = [
        f"# {r['title']}",
        "",
        f"Measured on {r['date']} at commit {r['commit']}, seeds {', '.join(map(str, r['seeds']))}, on "
        f"{m['cores']} cores ({m['cpu']}), Python {m['python']}, torch {m['torch']}{more}. Made from "
        f"`{path.name}` by `python tools/results.py`.",
        "",
    ]
    lines += grid(
        [
            {
                "what": b["name"],
                "target": b["target"],
                "measured": b["measured"],
                "holds": "yes" if b["holds"] else "**no**",
                "command": f"`{b['command']}`",
            }
            for b in r["bars"]
        ]
    )
    for heading, rows in r["tables"].items():
        lines += ["", f"## {heading}", ""] + grid(rows)
    page = path.with_suffix(".md")
    page.write_text("\n".join(lines) + "\n")
    return page


def grid(rows: list[dict]) -> list[str]:
    if not rows:
        return ["(none)"]
    names = list(rows[0])
    show = lambda x: f"{x:.4g}" if isinstance(x, float) else str(x).replace("|", "\\|")  # noqa: E731
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)] + [
        "| " + " | ".join(show(row.get(n, "")) for n in names) + " |" for row in rows
    ]


if __name__ == "__main__":
    for found in sorted(RESULTS.glob("*.json")):
        print(render(found))
