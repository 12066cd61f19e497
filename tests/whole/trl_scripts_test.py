"""docs/coming-from-trl.md: both scripts of each trainer run on the embedded model, and stand in the page as
they are here."""

import re
import runpy

import pytest
from paths import ROOT

import postgrad as pg
from postgrad.models import load_model, load_scalar

HOME = ROOT
SCRIPTS, PAGE = HOME / "examples" / "trl", HOME / "docs" / "coming-from-trl.md"
KINDS = ("grpo", "dpo", "sft", "reward")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where the scripts are run: a folder with the embedded model in Hugging Face's layout."""
    pytest.importorskip("trl", reason="TRL is the other side of these scripts: pip install -e '.[test]'")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    pg.load_model("tiny-chat").save("models/tiny-chat")
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_both_scripts_run(kind, place):
    """Each makes three steps and leaves a model that opens here."""
    theirs = runpy.run_path(str(SCRIPTS / f"{kind}_trl.py"))["trainer"]
    assert theirs.state.global_step == 3
    mine = runpy.run_path(str(SCRIPTS / f"{kind}_postgrad.py"))["run"]
    assert mine.state()["state"] == "done" and len(mine.metrics()) == 3
    load = load_scalar if kind == "reward" else load_model
    for made in (place / "models" / f"{kind}-trl", mine.latest()):
        before, after = (dict(load(x).state_dict()) for x in (place / "models" / "tiny-chat", made))
        assert max((after[k] - before[k]).abs().max() for k in before) > 1e-4


def lines_of(path):
    """The lines of a program that are neither empty nor its docstring."""
    _, _, program = path.read_text().partition('"""\n')
    return [line for line in program.splitlines() if line.strip()]


@pytest.mark.parametrize("kind", KINDS)
def test_ours_are_short(kind):
    mine, theirs = (lines_of(SCRIPTS / f"{kind}_{side}.py") for side in ("postgrad", "trl"))
    assert len(mine) <= 12 and len(mine) < len(theirs)


def test_the_page_has_the_scripts_as_they_are():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    kept = {re.sub(r"\s+", " ", block.strip()) for block in blocks}
    for path in sorted(SCRIPTS.glob("*.py")):
        program = path.read_text().partition('"""\n')[2]
        assert re.sub(r"\s+", " ", program.strip()) in kept, path.name
