"""Options of commands that are more than a command line's: small dataclasses, read without torch.

`option` is a setting that is also a flag: max_new_tokens is --max-new-tokens. What the command line alone
needs stands in cli/options.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field

from postgrad.system.settings import Settings

MODEL = ("tiny, tiny-chat, a run's folder (RUN@20: at a step), a folder with a model or an adapter, or a "
         "hub id")
RULES = "rules"  # the judge that holds the rules by code
KEEP = ("best", "passing")
DISTINCT = ("any", "text", "numbers")


def option(default=MISSING, about: str = "", when: str = "", *, metavar: str | None = None,
           choices: Sequence | None = None, positional: bool = False):
    """A field that a command line can set. metavar: what stands for its value; positional: no flag."""
    said = {"about": about, "when": when, "parse": None, "metavar": metavar, "choices": choices,
            "positional": positional}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=said)
    return field(default=default, metadata=said)


@dataclass(frozen=True, kw_only=True)
class Asking(Settings):
    """A task's prompts, and how they are answered."""

    task: str = option(about="whose prompts are asked: a name or a file", metavar="NAME|FILE")
    max_new_tokens: int | None = option(None, "the most tokens of a reply; without it: as the task says, "
                                        "else by the model's size", "more where replies are cut")
    temperature: float = option(1.0, "of the sampling; 1 is the model's own distribution",
                                "lower for likelier and more alike replies")
    seed: int = option(0, "of the prompts and the sampling", "to draw others")
    device: str = option("cpu", "where it is computed: cpu or cuda",
                         "cuda for every model that is not embedded")


@dataclass(frozen=True, kw_only=True)
class Writing(Asking):
    """A model that answers a task's prompts."""

    model: str = option(about=MODEL, positional=True)


@dataclass(frozen=True, kw_only=True)
class PickConfig(Writing):
    """Which replies are kept, and of how many."""

    task: str = option(about="whose training prompts are asked: a name or a file", metavar="NAME|FILE")
    reward: str | None = option(None, "who judges: reward models with commas between, verifiers by name, or "
                                "judge:MODEL; without it: the task's verifier",
                                "where the task has no verifier", metavar="RUN,RUN|VERIFIER|judge:MODEL")
    keep: str = option("best", "the best reply to each prompt, or every reply that is `passing`",
                       "passing where a wrong reply should never be imitated", choices=KEEP)
    threshold: float | None = option(None, "the score that passes; without it: the best there is",
                                     "with a reward model it has to be named: its scores have no natural bar")
    prompts: int = option(200, "prompts that are asked", "more for more data")
    samples: int = option(8, "replies to each prompt", "more: better replies, in proportion more sampling")
    most: int | None = option(None, "of the replies that pass, at most so many to a prompt; without it: all",
                              "4 or so where easy prompts would crowd out those that are seldom solved")
    distinct: str = option("any", "of the replies to a prompt that pass, any; those of one text once; or "
                           "those with the same numbers in the same order once",
                           "numbers where ways of calculating are to be imitated, and not wordings",
                           choices=DISTINCT)

    def __post_init__(self):
        super().__post_init__()
        for name, known in (("keep", KEEP), ("distinct", DISTINCT)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected {' or '.join(known)}.")
        for name in ("prompts", "samples", "most"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} must be at least 1.")


@dataclass(frozen=True, kw_only=True)
class RLAIFConfig(Writing):
    """Whose replies are judged, by what and by whom."""

    task: str = option(about="whose training prompts are asked: a name or a file", metavar="NAME|FILE")
    constitution: str | None = option(None, "rules of your own, in TOML; without it: the one that ships, "
                                      "polite and short replies", "for any other taste", metavar="FILE")
    judge: str = option(RULES, "rules, by code, or a chat model that is asked",
                        "a model where rules cannot be checked by code", metavar="rules|MODEL")
    prompts: int = option(200, "prompts that are asked", "more for more data")
    samples: int = option(4, "replies to each prompt; all pairs of them are compared",
                          "more: more pairs of each prompt, of which more are ties")

    def __post_init__(self):
        super().__post_init__()
        if self.prompts < 1 or self.samples < 2:
            raise ValueError(f"prompts {self.prompts} and samples {self.samples}: expected at least 1 "
                             "prompt, and 2 samples to make a pair.")


@dataclass(frozen=True, kw_only=True)
class Held(Settings):
    """How models are held and trained, as far as their memory goes."""

    lora: int = option(0, "the rank of the adapters; 0 trains all weights", metavar="RANK")
    bits: int = option(16, "of the weights: 32, 16 or 4", choices=(32, 16, 4))
    tokens: int = option(1024, "tokens in a row, prompt and reply")
    rows: int = option(1, "rows, or pairs, in a forward and backward pass")
    samples: int = option(16, "replies that are written at once")
    recompute: bool = option(False, "activations are computed again in the backward pass, layer by layer")
