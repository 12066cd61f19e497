"""A user's own row and correction, from the docs (docs/your-own-row.md), in one file: shown, diffed, trained.
Its commands run in docs_test; here is what they have to say."""

import math
import shlex

import pytest
import torch
from doc_blocks import ROOT, blocks

import postgrad as pg
from postgrad.cli import main
from postgrad.methods import COLUMNS, constants_of, get_method

PAGE = ROOT / "docs" / "your-own-row.md"
BLOCKS = blocks(PAGE)
SMALL = ("steps=2 rollouts.prompts=8 rollouts.prompts_per_step=2 rollouts.group_size=2 "
         "rollouts.max_new_tokens=12 evaluation.every=0").split()


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in BLOCKS if block.mark == "file"]
    (tmp_path / block.words).write_text(block.text)
    return block.words


def test_the_page_is_short_and_names_every_column(file):
    assert len(open(file).read().splitlines()) <= 30
    text = (ROOT / "docs" / "python.md").read_text()
    assert all(f"`{name}`" in text for name in COLUMNS)
    assert get_method(file).words("tau") == ("how far the ratio bends", "lower holds the policy nearer")


def test_its_functions_by_hand(file):
    row, mask = get_method(f"{file}:soft"), torch.ones(1, 1, dtype=torch.bool)
    logp = torch.tensor([[math.log(2.0)]], requires_grad=True)
    loss, _ = row.surrogate(logp, torch.zeros(1, 1), torch.tensor([[3.0]]), mask)  # rho 2, A 3, tau 0.5
    assert loss.item() == pytest.approx(-1.5 * math.tanh(2.0))
    weight = row.correction(torch.tensor([[math.log(0.25)]]), torch.zeros(1, 1), mask)  # w = 4, its root 2
    assert weight.item() == pytest.approx(2.0)
    assert row.correction(torch.tensor([[-9.0]]), torch.zeros(1, 1), mask).item() == 2.0  # capped


def test_it_is_diffed_as_the_page_shows(file, capsys):
    shown = next(block.text for block in BLOCKS if block.language == "text")
    (line,) = [c for b in BLOCKS for c in b.commands if c.startswith("postgrad diff")]
    assert main(shlex.split(line)[1:]) == 0 and capsys.readouterr().out == shown


def test_it_is_shown(file, capsys):
    assert main(["methods", f"{file}:soft"]) == 0
    said = capsys.readouterr().out
    assert "surrogate  soft(tau=0.5)  soft.py:9" in said
    assert "correction  square_root(cap=2)  soft.py:20" in said
    assert "    weight = min(sqrt(pi_old / mu), cap)" in said and "next to it: grpo (" in said
    assert "departs from its paper: No paper: tau and cap are guesses." in said
    assert main(["explain", file]) == 0 and "soft(tau=0.5)" in capsys.readouterr().out


def test_a_file_of_several_rows_is_listed(file, tmp_path, capsys):
    with (tmp_path / file).open("a") as text:
        text.write('harder = method(row, name="harder", tau=0.1)\n')
    assert main(["methods", file]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["method", "soft", "harder"]
    assert main(["methods", f"{file}:harder"]) == 0 and "soft(tau=0.1)" in capsys.readouterr().out
    assert main(["diff", "grpo", file]) == 2 and "name one, e.g. soft.py:soft" in capsys.readouterr().err


def test_it_is_trained(file, capsys):
    (line,) = [c for b in BLOCKS for c in b.commands if c.startswith("postgrad train")]
    assert main([*shlex.split(line)[1:], *SMALL, "--json"]) == 0
    run = pg.Run.open("runs/soft")
    kept, last = run.info["row"], run.metrics()[-1]
    assert kept["constants"]["tau"] == 0.7 and kept["texts"].keys() >= {"surrogate", "correction"}
    assert kept["functions"]["correction"].endswith(".square_root")
    assert last["effective_share"] == pytest.approx(1, abs=1e-3) and last["corrected_away"] == 0
    assert len(run.metrics()) == 2 and constants_of(get_method(file))["tau"] == 0.5
