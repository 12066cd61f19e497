"""What `postgrad env` says is what is installed."""

import importlib.metadata
import json

import torch

from postgrad.cli import main


def test_the_versions_are_those_of_the_packages(capsys):
    assert main(["env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["packages"]["torch"] == importlib.metadata.version("torch")
    assert facts["cpu"]["threads"] == torch.get_num_threads()
    assert main(["env"]) == 0
    assert facts["packages"]["numpy"] in capsys.readouterr().out
