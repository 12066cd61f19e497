"""Pictures of every page, at 1280 and 390 px, light and dark: what the router knows, filled in with
instruments and runs.

    python tools/screenshots.py FOLDER [--runs runs] [--only /label]
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import TimeoutError, sync_playwright
from starlette.routing import Route

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tests/support")]

from studio_browser import TOKEN, serving  # noqa: E402

from postgrad.studio.app import all_routes  # noqa: E402
from postgrad.studio.home import newest_runs  # noqa: E402
from postgrad.studio.instruments import INSTRUMENTS  # noqa: E402
from postgrad.studio.security import start_url  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PARTS = ("/label/live", "/label/made", "/label/data/export", "/exercises/export",  # fragments and files
         "/instruments/preference-labeller/dpo")


def addresses(runs: list[str]) -> list[str]:
    """Every page for people: routes without parameters, each instrument, these runs,
    the first two compared, an error."""
    plain = sorted({r.path for r in all_routes()
                    if isinstance(r, Route) and "GET" in (r.methods or ()) and "{" not in r.path})
    found = [p for p in plain if "/-/" not in p and p not in PARTS]
    found += ([f"/instruments/{name}" for name in INSTRUMENTS]
              + ["/reference/Run", "/reference/fit", "/exercises/group-advantages", "/nowhere"])
    if "/runs" in plain:
        found += [f"/runs/{name}" for name in runs] + [f"/runs/compare?ids={','.join(runs[:2])}"
                                                       for _ in runs[1:2]]
    return found


def settle(page) -> None:
    """Until nothing is being fetched; a page with a live stream never comes to rest,
    and is taken after two seconds."""
    try:
        page.wait_for_load_state("networkidle", timeout=2000)
    except TimeoutError:
        return


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path)
    words.add_argument("--runs", type=Path, default=Path("runs"))
    words.add_argument("--store", type=Path, default=None)
    words.add_argument("--only", default="", help="addresses that begin with this")
    args = words.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with serving(args.runs, args.store) as origin, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width in (1280, 390):
            for theme in ("light", "dark"):
                context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 860})
                page = context.new_page()
                page.goto(start_url(origin, TOKEN))
                # which brings torch in: the gallery need not wait for it
                page.goto(f"{origin}/instruments/bradley-terry")
                for address in addresses([row["name"] for row in newest_runs(args.runs, 3)]):
                    if address.startswith(args.only):
                        page.goto(origin + address, wait_until="load")
                        page.evaluate("document.fonts.ready")
                        settle(page)
                        name = re.sub(r"[^A-Za-z0-9]+", "-", address).strip("-") or "home"
                        page.screenshot(path=args.folder / f"{name}-{width}-{theme}.png", full_page=True)
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
