"""The studio's bars: its tests in a real browser, and its timings; docs/results/studio.*

    python proofs/studio.py             needs chromium and a quiet machine; about eight minutes
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("bench", "tools"))]

import studio_speed  # noqa: E402
from results import bar, write  # noqa: E402

MUST = (  # what issue 6 asks for -> the tests that show it: a file, and words in their names
    ("Every page and instrument opens in a real browser, no console error, no request to another host",
     "pages", ("every_page_opens",)),
    ("A control of every instrument moved by keyboard, against the library function", "",
     ("moved_by_keyboard", "control_of_each_moved", "a_reward_by_keyboard", "model_size_by_keyboard",
      "tries_by_keyboard", "labels_by_keyboard")),
    ("A label survives kill -9 of the server", "label_browser", ("survives_kill_9",)),
    ("A live run's curve grows while it trains; stopped and resumed from the page", "runs_browser",
     ("started_watched_stopped_and_resumed", "rows_appear_as_they_are_logged")),
    ("Two runs compared", "runs_browser", ("two_runs_have_one_cursor",)),
    ("The dark theme", "pages", ("theme_follows_the_system", "every_page_opens")),
    ("390 px without sideways scroll; axe-core finds nothing serious (wide and light, narrow and dark)",
     "pages", ("every_page_opens",)),
    ("Every route of the router x no token, wrong token, foreign Host, foreign Origin, "
     "cross-site form: refused",
     "guard", ("every_route_refuses", "a_form_of_another_site")),
    ("500 path-traversal strings: nothing read outside the folders", "",
     ("no_path_leaves_the_static_folder", "crooked", "link_out_of_the_static_folder")),
    ("100 XSS strings as prompts, completions, names of runs and labellers, addresses: none runs in "
     "a real browser",
     "", ("100_poisons",)),
    ("Kill the server: the run goes on, and the reopened page shows every step", "runs_browser",
     ("goes_on_when_the_server_is_killed",)),
    ("What runs code is refused where other machines can reach the port", "",
     ("other_machines", "others_can_reach")),
    ("The export opens as files, without a server", "alive", ("opens_as_files",)),
)


def proofs() -> tuple[list[dict], list[dict]]:
    """The studio's tests, run once: a bar for each thing that they show, and the time of each file."""
    report = Path(tempfile.mkdtemp(prefix="studio-tests-")) / "junit.xml"
    files = sorted(str(p.relative_to(HERE)) for p in (HERE / "tests/studio").glob("*_test.py"))
    subprocess.run([sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *files], cwd=HERE,
                   check=False, env=os.environ | {"OMP_NUM_THREADS": "1", "POSTGRAD_BROWSER": "1"})
    cases = [(c.get("classname").rpartition(".")[2], c.get("name"), float(c.get("time")), not len(c))
             for c in ET.parse(report).iter("testcase")]  # noqa: S314
    bars = []
    for name, where, words in MUST:
        shown = [(file, test, held) for file, test, _, held in cases
                 if where in file and any(w in test for w in words)]
        held = sum(h for *_, h in shown)
        absent = [w for w in words if not any(w in test for _, test, _ in shown)]
        missing = f"; no test is named {', '.join(absent)}" if absent else ""
        tested = " ".join(sorted({f"tests/{file}.py" for file, *_ in shown}))
        bars.append(bar(name, "all pass", f"{held} of {len(shown)} tests pass{missing}",
                        held == len(shown) and not absent, f"pytest {tested} -k '{' or '.join(words)}'"))
    times: dict[str, list] = {}
    for file, _, seconds, held in cases:
        times.setdefault(file, []).append((seconds, held))
    rows = [{"file": f"tests/{file}.py", "tests": len(seen), "passed": sum(h for _, h in seen),
             "seconds": sum(s for s, _ in seen)} for file, seen in times.items()]
    return bars, rows


def main() -> None:
    found = studio_speed.timings()
    studio_speed.show(found)
    tested, files = proofs()
    shots = len(list((HERE / "docs" / "images").glob("studio-*.png")))
    bars = [*tested, *studio_speed.speed_bars(found),
            bar("Screenshots of every page by a script, the best in the README", "yes",
                f"{shots} in docs/images",
                shots >= 3, "python tools/screenshots.py FOLDER")]
    write("studio", "The studio", bars, seeds=[0],
          tables={**studio_speed.tables(found), "Tests, one process": files})
    for b in bars:
        print(studio_speed.line(b))


if __name__ == "__main__":
    main()
