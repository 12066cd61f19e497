"""The runs of the book's workshop, recorded: what its pages show until a reader has started a run.

    python tools/workshop.py FOLDER     trains what FOLDER does not have yet, about a minute a run on one
                                        core, and writes postgrad/models/embedded/recordings/workshop.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
OUT = HERE / "postgrad" / "models" / "embedded" / "recordings" / "workshop.json"


def record(folder: Path) -> dict:
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes.launch import start_training
    from postgrad.runs import Run
    from postgrad.studio.book.experiments import VARIANTS
    from postgrad.studio.book.workshop import followed_run
    found = {}
    for variant in VARIANTS.values():
        place = folder / variant.name
        if not (place / "run.json").exists():
            print(variant.command, flush=True)
            name, config = config_from_text(variant.recipe, [f"{k}={v}" for k, v in variant.settings.items()])
            start_training(name, config, place, command=variant.command)
        found[variant.name] = {"command": variant.command, **followed_run(Run.open(place))}
    return {"made by": "python tools/workshop.py FOLDER", "runs": found}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    text = json.dumps(record(Path(sys.argv[1])), ensure_ascii=False, indent=0) + "\n"
    OUT.write_text(text, encoding="utf-8")
    print(f"{OUT.relative_to(HERE)}: {len(text)} bytes")
