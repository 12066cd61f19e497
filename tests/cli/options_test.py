"""Flags come from dataclasses: types, defaults, choices and sentences are theirs; no torch is imported."""

import argparse
import ast
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

import postgrad.cli
from postgrad.cli import COMMANDS, evaluate, main, parser, reference
from postgrad.cli.options import CommandOptions, add_options, options_from
from postgrad.cli.plan import MemoryOptions
from postgrad.evaluation.edits import PROBES
from postgrad.system.options import FootprintOptions, PickConfig
from postgrad.system.settings import Settings, setting

ALL = [*(c for c in COMMANDS if not c.actions), *(a for c in COMMANDS for a in c.actions)]


@dataclass(frozen=True, kw_only=True)
class Some(Settings):
    place: str = setting(about="where", positional=True)
    several: list[str] = setting([], "more places", positional=True)
    how_many: int = setting(3, "100 % of them")
    share: float | None = setting(None, "a share; without it: all")
    name: str = setting(about="who", metavar="NAME")
    loud: bool = setting(False, "a switch")
    word: list[str] = setting([], "may be said twice")
    kind: str = setting("a", "one of two; a is the default", choices=("a", "b"))


def read(*words, cls=Some):
    made_here = argparse.ArgumentParser(exit_on_error=False)
    add_options(made_here, cls)
    return options_from(cls, made_here.parse_args(words))


def test_a_field_is_an_argument():
    assert read("x", "--name", "me") == Some(place="x", name="me")
    given = read("x", "y", "z", "--how-many", "7", "--share", "0.5", "--name", "me", "--loud", "--word", "a",
                 "--word", "b", "--kind", "b")
    assert given == Some(place="x", several=["y", "z"], how_many=7, share=0.5, name="me", loud=True,
                         word=["a", "b"], kind="b")
    assert Some(place="x", name="y").several is not Some(place="x", name="y").several


@pytest.mark.parametrize("words", [["--name", "me"], ["x"], ["x", "--name", "me", "--how-many", "few"],
                                   ["x", "--name", "me", "--kind", "c"], ["x", "--name", "me", "--nonsense"]])
def test_what_is_wrong_is_refused(words, capsys):
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        read(*words)


def test_the_help_is_the_sentence_and_the_default():
    made_here = argparse.ArgumentParser()
    add_options(made_here, Some)
    text = " ".join(made_here.format_help().split())
    assert "100 % of them (default: 3)" in text and "a share; without it: all" in text
    assert "a is the default" in text and "(default: a)" not in text and "(default: None)" not in text


@pytest.mark.parametrize("command", ALL, ids=lambda c: c.name)
def test_every_flag_has_a_sentence(command):
    assert command.about and not command.about.endswith(".")
    for f in fields(command.options):
        assert f.metadata["about"] and not f.metadata["about"].endswith("."), f"{command.name}: {f.name}"


def test_every_command_is_carried_out_by_something():
    assert len({command.run for command in ALL}) == len(ALL)
    assert all(issubclass(command.options, CommandOptions) for command in ALL)


def test_what_is_written_in_two_places_is_the_same():
    assert evaluate.PROBES.split(",") == list(PROBES)
    assert {f.name for f in fields(FootprintOptions)} < {f.name for f in fields(MemoryOptions)}
    args = parser().parse_args(["pick", "tiny", "--task", "words", "--out", "x"])
    assert options_from(PickConfig, args) == PickConfig(model="tiny", task="words")


@pytest.mark.parametrize(("line", "words"), [
    ("pick tiny --task words --out x --samples 0", "--samples is 0: it must be at least 1"),
    ("pick tiny --task words --out x --keep passing --reward runs/r",
     "say which score passes with --threshold"),
    ("rlaif tiny --task words --out x --samples 1", "2 samples to make a pair"),
    ("audit tiny --count 1", "--count is 1: it must be at least 2"),
    ("eval tiny --task words --samples 0", "--samples is 0"),
])
def test_a_dataclass_checks_its_flags(line, words, capsys):
    assert main(line.split()) == 2
    assert words in capsys.readouterr().err


def test_the_parser_needs_no_torch():
    code = ("import sys, postgrad.system.options, postgrad.cli; postgrad.cli.parser().format_help(); "
            "print(*(m for m in ('torch', 'numpy', 'rich', 'tokenizers') if m in sys.modules))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_no_function_of_the_command_line_is_long():
    for path in Path(postgrad.cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 42, f"{path.name}: {node.name}"


def test_the_page_of_commands_has_every_flag():
    page = reference.commands_page()
    for command in ALL:
        for f in fields(command.options):
            place = f.metadata["metavar"] or f.name
            shown = place if f.metadata["positional"] else f"`--{f.name.replace('_', '-')}"
            assert shown.replace("|", "\\|").lower() in page.lower(), f"{command.name}: {f.name}"


def test_measuring_takes_the_task_s_tokens(monkeypatch):
    """countdown says 128, arithmetic nothing: 64 of a small model; a flag stands."""
    from postgrad.recipes import measuring
    seen, draw = [], measuring.draw_samples

    def drawn(*args, settings, **more):
        seen.append(settings.max_new_tokens)
        return draw(*args, settings=settings, **more)

    monkeypatch.setattr(measuring, "draw_samples", drawn)
    for words in (["countdown"], ["arithmetic"], ["countdown", "--max-new-tokens", "9"]):
        assert main(["eval", "tiny", "--problems", "1", "--json", "--task", *words]) == 0
    assert seen == [128, 64, 9]
