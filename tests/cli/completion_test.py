"""The completion script, sourced in a real bash."""

import shutil
import subprocess

import pytest

from postgrad.cli import COMMANDS, parser
from postgrad.cli.completion import bash_script, fish_script


@pytest.fixture(scope="module")
def script():
    return bash_script(parser())


def complete(script, folder, *words):
    """What bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _postgrad; echo \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "--norc", "-c", f"{script}\n{asked}"], cwd=folder, capture_output=True,
                          text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_recipes_settings_and_runs(script, tmp_path):
    for run in ("a", "demo/sft"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        (tmp_path / "runs" / run / "run.json").write_text("{}")
    assert complete(script, tmp_path, "postgrad", "tr") == ["train", "track"]
    assert complete(script, tmp_path, "postgrad", "train", "dr_") == ["dr_grpo"]
    assert complete(script, tmp_path, "postgrad", "train", "grpo", "optim.l") == ["optim.lr="]
    assert "group_size=" in complete(script, tmp_path, "postgrad", "train", "grpo", "gr")
    assert complete(script, tmp_path, "postgrad", "train", "--ta") == ["--task"]
    assert complete(script, tmp_path, "postgrad", "resume", "runs/") == ["runs/a", "runs/demo/sft"]


def test_every_command_is_in_every_script(script):
    words = script.split('words="')[2].split('"')[0].split()
    assert words == [command.name for command in COMMANDS]
    assert all(f"-a {command.name} " in fish_script(parser()) for command in COMMANDS)
