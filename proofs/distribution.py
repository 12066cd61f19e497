"""What is handed out: wheel, source distribution, the image's steps, workflows, notebooks, skills. Parts of
proofs/ecosystem.py."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import HOME, Bars, bar

# isort: split
from doc_blocks import Block, blocks

SKILLS = sorted((HOME / "skills").glob("*/SKILL.md"))


def output(*words: object, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=check)


def wheel(folder: Path) -> Bars:
    """The image's steps in an empty environment without the checkout: the demo learns there."""
    prefix, place = folder / "prefix", folder / "place"
    place.mkdir(exist_ok=True)
    output("sh", HOME / "tools/image.sh", HOME, prefix, cwd=place)
    demo = json.loads(output(prefix / "bin/postgrad", "demo", "--quick", "--json", cwd=place).stdout)
    first, *_, last = demo["stages"]
    return [bar("tools/image.sh in an empty environment, then postgrad demo --quick; no image was built",
                "pass@1 rises", f"{first['pass@1']:.1%} -> {last['pass@1']:.1%}",
                last["pass@1"] > first["pass@1"])]


def sdist(folder: Path) -> Bars:
    """A wheel made from the source distribution has the files of one made from the checkout."""
    output(sys.executable, "-m", "venv", folder / "builder", cwd=folder)
    python = folder / "builder/bin/python"
    output(python, "-m", "pip", "install", "-q", "build", cwd=folder)
    output(python, "-m", "build", "-q", "--outdir", folder / "dist", HOME, cwd=folder)  # the wheel from it
    output(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder / "tree", HOME, cwd=folder)
    names = [set(output(python, "-m", "zipfile", "-l", next((folder / name).glob("*.whl")), cwd=folder)
                 .stdout.split()) for name in ("dist", "tree")]
    files = [{name for name in each if name.startswith("postgrad/")} for each in names]
    return [bar("files of a wheel made from the source distribution and of one made from the checkout",
                "the same", f"{len(files[0])} and {len(files[1])}, {len(files[0] ^ files[1])} differ",
                files[0] == files[1] and len(files[0]) > 400)]


def workflows(folder: Path) -> Bars:
    """GitHub's own schemas, as check-jsonschema carries them."""
    output(sys.executable, "-m", "venv", folder / "checker", cwd=folder)
    python = folder / "checker/bin/python"
    output(python, "-m", "pip", "install", "-q", "check-jsonschema", "cffconvert", cwd=folder)
    files = sorted((HOME / ".github/workflows").glob("*.yml"))
    bad = [path.name for path in files if output(
        folder / "checker/bin/check-jsonschema", "--builtin-schema", "vendor.github-workflows", path,
        cwd=folder, check=False).returncode]
    citation = output(folder / "checker/bin/cffconvert", "--validate", "-i", HOME / "CITATION.cff",
                      cwd=folder, check=False).returncode
    return [bar("workflows by GitHub's schema, and CITATION.cff by cffconvert", "0 faults",
                f"{len(files)} workflows, {len(bad)} faults; citation {'valid' if not citation else 'bad'}",
                not bad and not citation and len(files) >= 3)]


def run_skill_block(block: Block, place: Path) -> list[Any]:
    """Writes the file of a block, or runs its commands and returns what they print, parsed as JSON."""
    if block.mark == "file":
        (place / block.words).write_text(block.text)
    if block.mark or block.language != "sh":
        return []
    postgrad = Path(sys.executable).parent / "postgrad"
    return [json.loads(line) for command in block.commands
            for line in output(postgrad, *shlex.split(command)[1:], cwd=place).stdout.splitlines()]


def skills(folder: Path) -> Bars:
    """The fenced commands of every SKILL.md as they stand, with no command of this script's own; only JSON is
    read."""
    printed: dict[str, list[Any]] = {}
    for path in SKILLS:
        place = folder / path.parent.name
        place.mkdir(exist_ok=True)
        printed[path.parent.name] = [value for block in blocks(path)
                                     for value in run_skill_block(block, place)]
    rows: Any = printed["train-on-a-task"][-1]
    count = sum(len(values) for values in printed.values())
    fenced = sum(len(re.findall(r"^postgrad ", block.text, re.M)) for path in SKILLS
                 for block in blocks(path))
    second = rows[1]
    low, high = second["pass@1_gain_interval"]
    return [bar("commands of the skills that ran and printed JSON alone", "all", f"{count} of {fenced}",
                count == fenced),
            bar("the skill's task, trained and compared by its own commands: gain in pass@1 on held-out "
                "prompts", "95 % lower bound above 0",
                f"{second['pass@1_gain']:.1%} ({low:.1%} to {high:.1%})", low > 0)]


PARTS = {"wheel": wheel, "sdist": sdist, "workflows": workflows, "skills": skills}
