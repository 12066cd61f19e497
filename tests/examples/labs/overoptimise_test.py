"""The over-optimisation lab: its settings by name, and the curves that it writes."""

import json

import pytest
from paths import ROOT

from postgrad.cli import main
from postgrad.cli.settings import config_from_text
from postgrad.methods import METHODS
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.registry import config_for

LAB = str(ROOT / "examples" / "labs" / "overoptimise.py")


def test_the_lab_writes_its_curves(tmp_path, capsys):
    change = ("members=2 train_steps=2 proxies.pairs=16 kls=0,0.5 steps=2 best_of=4 prompts_per_step=2 "
              "group_size=2 rollouts.max_new_tokens=8 problems=2 evaluation.samples=2 evaluation.every=1")
    assert main(["train", LAB, *change.split(), "--run", str(tmp_path / "lab")]) == 0
    shown = capsys.readouterr().out
    assert "ppo-kl-0.5" in shown and "Best of n" in shown
    curves = json.loads((tmp_path / "lab/curves.json").read_text())
    assert [p["name"] for p in curves["policies"]] == ["ppo-kl-0", "ppo-kl-0.5", "ppo-ensemble"]
    for policy in curves["policies"]:
        assert [p["step"] for p in policy["points"]] == [0, 1, 2] and abs(policy["points"][0]["kl"]) < 1e-4
        assert policy["points"][-1]["kl"] != 0
    assert [p["n"] for p in curves["best_of_n"]] == [1, 2, 4]
    proxy = [p["proxy"] for p in curves["best_of_n"]]
    assert proxy == sorted(proxy)  # more to choose from is never worse by the measure that chooses
    assert main(["train", LAB, "kls=a,b", "--json"]) == 2
    assert "expected weights with commas between" in capsys.readouterr().err


def test_a_row_is_handed_in_and_the_rate_follows_the_size():
    assert config_for(LAB, {"method": METHODS["grpo"]})[1].method is METHODS["grpo"]
    assert fill_defaults(config_from_text(LAB)[1])[0].optim.lr == 1.5e-4
    assert config_from_text(f"{LAB}:quick", ["optim.lr=1e-3"])[1].optim.lr == 1e-3
    with pytest.raises(ValueError, match="has no setting 'quik'. Did you mean 'quick'"):
        config_from_text(f"{LAB}:quik")


def test_the_old_name_names_the_file(tmp_path, monkeypatch, capsys):
    assert main(["train", "overoptimise:quick", "--json"]) == 2
    assert "write `postgrad train examples/labs/overoptimise.py` there" in capsys.readouterr().err
    plan = {"recipe": "overoptimise", "config": {}, "command": "", "steps": []}
    (tmp_path / "pipeline.json").write_text(json.dumps(plan))
    monkeypatch.chdir(tmp_path)
    assert main(["resume", str(tmp_path)]) == 2
    assert "no file 'examples/labs/overoptimise.py'" in capsys.readouterr().err
