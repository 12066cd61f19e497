"""The extras, their packages, the machine and the commit are those of this installation."""

import importlib.metadata
import os
import subprocess
import tomllib

import pytest
from paths import ROOT

from postgrad.system import installation


def test_every_extra_is_described_here_and_in_the_docs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert list(installation.EXTRAS) and set(installation.EXTRAS) == set(project["optional-dependencies"])
    page = (ROOT / "docs" / "install.md").read_text()
    assert [name for name in installation.EXTRAS if f"`{name}`" not in page] == []


def test_an_extra_names_the_packages_that_are_missing(monkeypatch):
    lines = ["torch>=2", 'gguf>=0.17; extra == "gguf"', 'nowhere-to-be-had[x]>=1,<2; extra == "bench"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    extras = installation.extras()
    assert extras["bench"] == {"adds": installation.EXTRAS["bench"], "installed": False,
                               "missing": ["nowhere-to-be-had"], "install": "pip install 'postgrad[bench]'"}
    assert extras["gguf"]["installed"] and list(installation.core_packages()) == ["torch"]


def test_a_checkout_that_is_not_installed_says_so(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)
    monkeypatch.setattr(importlib.metadata, "requires", missing)
    with pytest.raises(ValueError, match="not installed"):
        installation.extras()


def test_a_run_keeps_its_machine_and_the_commit_of_its_code(tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    assert installation.code_commit(str(tmp_path)) is None
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    installation.code_commit.cache_clear()
    assert head.startswith(installation.code_commit(str(tmp_path)))
    (tmp_path / "x").write_text("1")
    subprocess.run([*git, "add", "x"], check=True)
    installation.code_commit.cache_clear()
    assert installation.code_commit(str(tmp_path)).endswith("-dirty")
    facts = installation.machine_facts()
    assert facts.keys() == {"platform", "cpu", "cores", "gpus"} and facts["cores"] == os.cpu_count()
