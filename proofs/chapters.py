"""The chapters: which paragraphs lead to a derivation and a line, and how far apart their figures stand.

Parts of proofs/book.py: `joins` needs nothing, `distances` a browser.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from harness import Bars, bar

from postgrad.studio.book import chapters, joins

LEAST = 1500  # px of intuition without a figure, at most
# bound to data or controls: instruments, experiments, cells, drawn charts, and tables of computed values
FIGURES = ("figure.instrument, .workshop, py-cell, .cell, figure.drawn, figure.timeline-drawn, "
           "table.grid:has(caption), table.grid:has(.value)")
GAPS = """(figures) => {
  const ends = (e) => {
    const { top, bottom } = e.getBoundingClientRect();
    return [top + scrollY, bottom + scrollY];
  };
  const first = ends(document.querySelector('main > .layers'))[1];
  const last = ends(document.querySelector('#exercises'))[0];
  const drawn = [...document.querySelectorAll(figures)].map(ends).sort((a, b) => a[0] - b[0]);
  let reached = first, most = 0;
  for (const [top, bottom] of [...drawn, [last, last]]) {
    most = Math.max(most, top - reached);
    reached = Math.max(reached, bottom);
  }
  return most;
}"""


def linked(folder: Path) -> Bars:
    """Paragraphs with a number, a formula or the name of a method, and where they lead."""
    from claims import claims
    found = [(chapter, pieces) for chapter in chapters.all_chapters() for *_, pieces in claims(chapter)]
    led = [pieces for _, pieces in found if any(p.kind == "join" for p in pieces)]
    every = [join for name in chapters.NUMBERS for join in joins.chapter_joins(name).values()]
    served = Counter((join.chapter, join.anchor, join.step) for join in every if join.derivation)
    lines = Counter((join.file, next(line.number for line in join.lines if line.marked)) for join in every)
    most = max((served + lines).values())
    return [bar("Intuition: paragraphs with a number, a formula or a method that lead to derivation and code",
                "all", f"{len(led)} of {len(found)}", len(led) == len(found)),
            bar("Intuition: paragraphs that one target serves, every target there", "<= 3",
                f"{most} at most, {len(served)} derivations or steps, {len(lines)} lines",
                most <= 3 and sum(served.values()) == len(every))]


def distances(folder: Path) -> Bars:
    """The longest way without a figure, at 1280 x 800."""
    from studio import chromium
    from studio_browser import COOKIE, TOKEN, serving
    furthest = {}
    with serving(folder / "runs", folder / "p.db") as origin, chromium() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 800}, base_url=origin)
        context.add_cookies([{"name": COOKIE, "value": TOKEN, "url": origin}])
        page = context.new_page()
        for chapter in chapters.all_chapters():
            page.goto(chapter.address)
            page.locator(".figure-place").first.wait_for(state="detached")
            for place in page.locator(".figure-place").all():
                place.wait_for(state="detached")
            furthest[chapter.number] = page.evaluate(GAPS, FIGURES)
    number = max(furthest, key=lambda n: furthest[n])
    return [bar("Intuition at 1280 x 800: px without a figure bound to data or controls", f"<= {LEAST}",
                f"{furthest[number]:.0f} at most (chapter {number})", furthest[number] <= LEAST)]
