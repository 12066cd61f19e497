"""What a run gained and lost, for its page: from ledger.json in its folder, and from the one of the pipeline
that it is a stage of. Read only."""

from __future__ import annotations

from pathlib import Path

from postgrad.runs import ledger
from postgrad.studio.samples import clean

MOST = 12  # models of one ledger that are shown


def ledgers(folder: Path, root: Path) -> list[dict]:
    """The run's own, then its pipeline's, each with a table for every model against the first; one that
    cannot be read is a sentence."""
    above = [("the pipeline", folder.parent)] if folder.parent.resolve() != root.resolve() else []
    found = []
    for what, place in [("this run", folder), *above]:
        try:
            book = ledger.read(place)
            if book and len(book["entries"]) > 1:
                found.append({"of": what, "fault": "", "problems": book["problems"],
                              "samples": book["samples"], "tables": tables(book)})
        except (ValueError, OSError) as error:
            found.append({"of": what, "fault": clean(str(error)), "tables": []})
    return found


def tables(book: dict) -> list[dict]:
    """Newest first."""
    first, *others = book["entries"]
    return [{"first": clean(first["name"]), "name": clean(entry["name"]),
             "says": [clean(text) for text in ledger.sentences(lines)],
             "rows": [{key or "verdict": clean(text) for key, text in ledger.shown(line).items()}
                      for line in lines]}
            for entry in others[::-1][:MOST] for lines in [ledger.lines(first, entry)]]
