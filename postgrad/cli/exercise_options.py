"""The options of `postgrad exercise`."""

from __future__ import annotations

from dataclasses import dataclass

from postgrad.cli.options import Command
from postgrad.system.options import option
from postgrad.system.settings import Settings


@dataclass(frozen=True, kw_only=True)
class OneOptions(Settings):
    exercise: str = option(about="its number or its name", metavar="N", positional=True)


@dataclass(frozen=True, kw_only=True)
class StartOptions(OneOptions):
    file: str | None = option(None, "the file to write; without it: the exercise's name", metavar="FILE.py")


@dataclass(frozen=True, kw_only=True)
class CheckOptions(OneOptions):
    file: str = option(about="your answer", metavar="FILE.py", positional=True)


@dataclass(frozen=True, kw_only=True)
class HintOptions(OneOptions):
    step: int = option(1, "how many hints to show: 1, 2 or 3")


@dataclass(frozen=True, kw_only=True)
class AskOptions(Settings):
    question: str | None = option(None, "its name; without it: all questions", metavar="NAME",
                                  positional=True)
    answer: str | None = option(None, "your own answer; then the model answer is shown", metavar="TEXT")


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Settings):
    out: str = option(about="where to write", metavar="FILE.json", positional=True)


ACTIONS = (
    Command("list", "what there is to do, and what you have solved"),
    Command("start", "the task, and a file to write your answer into", StartOptions),
    Command("check", "your answer, judged: right, or what is wrong with it", CheckOptions,
            "The answer runs in a jail, without files and network. Exit status 0 where it is right, 1 where "
            "not."),
    Command("hint", "a hint; there are three", HintOptions),
    Command("ask", "the questions; a model answer after your own", AskOptions),
    Command("export", "your progress and your answers as a JSON file", ExportOptions),
)
