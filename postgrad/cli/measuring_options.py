"""The options of the commands that measure: eval, compare, ledger, bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from postgrad.cli.options import SPLITS
from postgrad.system.options import MODEL, Asking, Writing, option
from postgrad.system.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Measuring(Asking):
    """The problems of a measurement, and where its page goes."""

    problems: int = option(200, "problems that are asked")
    samples: int = option(8, "replies to each problem; 64 and more for what more samples buy")
    split: str = option("test", "the part of the task that is asked", choices=SPLITS)
    html: str | None = option(None, "write a page with figures here", metavar="FILE.html")

    def __post_init__(self):
        super().__post_init__()
        if min(self.problems, self.samples) < 1:
            raise ValueError(f"--problems {self.problems} and --samples {self.samples} must be at least 1.")
        if self.html is not None and not Path(self.html).resolve().parent.is_dir():
            raise ValueError(f"--html {self.html}: there is no folder "
                             f"{Path(self.html).parent}; make it first.")


@dataclass(frozen=True, kw_only=True)
class EvalOptions(Measuring, Writing):
    reward: str | None = option(None, "reward or process models that choose the best of several samples, "
                                "with commas between; each has a curve of its own", metavar="RUN,RUN")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Measuring):
    model: list[str] = option(about=f"two models or more, each against the first: {MODEL}", metavar="MODEL",
                              positional=True)

    def __post_init__(self):
        super().__post_init__()
        if len(self.model) < 2:
            raise ValueError(f"compare needs two models, and {self.model[0]} is one: name another, e.g. "
                             f"`postgrad compare tiny-chat {self.model[0]} --task {self.task}`.")


@dataclass(frozen=True, kw_only=True)
class LedgerOptions(Settings):
    run: str = option(about="the folder of a run or of a pipeline", metavar="RUN", positional=True)
    panel: str | None = option(None, "standard (words, arithmetic, countdown, questions, constraints, "
                               "words-es, and text: the perplexity of held-out pretraining text), or names "
                               "with commas between; without it: as the run has it, else standard",
                               metavar="standard|NAME,NAME")
    problems: int | None = option(None, "problems of each task; without it: as the run has it, else 50")
    samples: int | None = option(None, "replies to each problem; without it: as the run has it, else 4")
    seed: int | None = option(None, "of the problems and the sampling; without it: as the run has it, else 0")
    all: bool = option(False, "every checkpoint that the run has kept, not only the first and the last")
    device: str = option("cpu", "where it is computed: cpu or cuda")


@dataclass(frozen=True, kw_only=True)
class BenchOptions(Settings):
    model: str = option(about=MODEL, positional=True)
    suite: str = option("small", "small (words, arithmetic, countdown, and gsm8k where data/gsm8k has its "
                        "rows), or tasks with commas between: ours by name or file, the harness's own as "
                        "lm_eval:NAME", metavar="small|NAME,NAME")
    problems: int = option(200, "test problems of each task")
    max_new_tokens: int | None = option(None, "the most tokens of a reply; without it: as the task says, "
                                        "else by the model's size")
    include: str | None = option(None, "task files of the harness's own kind, for lm_eval:NAME",
                                 metavar="FOLDER")
    files: str | None = option(None, "write the suite's task files there and stop: for `lm_eval "
                               "--include_path` against `postgrad serve`", metavar="FOLDER")
    seed: int = option(0, "of the problems")
    device: str = option("cpu", "where it is computed: cpu or cuda")

    def __post_init__(self):
        super().__post_init__()
        if self.problems < 1:
            raise ValueError(f"--problems {self.problems} must be at least 1.")
