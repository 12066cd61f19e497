"""The quick form of every pipeline, by its command, from the first line to the summary that is printed."""

from pathlib import Path

import pytest

from postgrad.cli import main
from postgrad.recipes.registry import PIPELINES, recipe_module

ROOT = Path(__file__).resolve().parents[2]
LABS = [str(ROOT / "examples" / "labs" / name) for name in ("oversight.py", "overoptimise.py")]
FEWER = {"r1": ["problems=2", "samples=2", "gathered.chains=8", "gathered.prompts=8", "gathered.pairs=16"],
         LABS[1]: ["steps=2", "best_of=2", "kls=0", "proxies.members=1", "proxies.pairs=40",
                   "proxies.train_steps=2", "rollouts.prompts_per_step=4", "evaluation.every=1",
                   "evaluation.problems=2", "evaluation.samples=2"]}  # its quick form takes ten minutes
QUICK = [name for name in (*PIPELINES, *LABS) if "quick" in recipe_module(name).SETTINGS]


def test_the_quick_forms_are_these():
    assert {Path(name).stem for name in QUICK} == {"r1-zero", "r1", "expert-iteration", "oversight",
                                                  "overoptimise"}


@pytest.mark.parametrize("name", QUICK, ids=lambda name: Path(name).stem)
def test_a_quick_form_runs_to_its_summary(name, tmp_path, capsys):
    assert main(["train", f"{name}:quick", *FEWER.get(name, []), "--run", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert "minutes. Runs and figures:" in said.out + said.err
    assert (tmp_path / "run" / "summary.json").is_file()
