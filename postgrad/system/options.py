"""Options that a command shares with a recipe: read by the command line without torch.

Options are settings; those of one command alone stand in its file in cli/.
"""

from __future__ import annotations

from dataclasses import dataclass

from postgrad.system.settings import COUNT, Settings, setting

MODEL = ("tiny, tiny-chat, a run's folder (RUN@0: its start, RUN@best: its best checkpoint), a folder with a "
         "model or an adapter, or a hub id")
TEMPLATE = ("the chat template: chatml, llama3, plain (the contents alone) or a file; none: the model's own",
            "for a base model, which has none; control tokens that it lacks are added, to be trained")
RULES = "rules"  # the judge that checks rules by code
DEVICE = "cpu, cuda or mps"


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Settings):
    """A task's prompts, and how they are answered."""

    task: str = setting(about="the task: a name or a file", metavar="NAME|FILE")
    max_new_tokens: int | None = setting(None, "the most tokens of a reply; default: the task's, else by "
                                         "the model's size", "more where replies are cut")
    temperature: float = setting(1.0, "sampling temperature; 1 is the model's own distribution",
                                 "lower for likelier and more alike replies")
    seed: int = setting(0, "random seed of the prompts and the sampling", "to draw others")
    device: str = setting("cpu", DEVICE, "cuda for every model that is not embedded")


@dataclass(frozen=True, kw_only=True)
class SampleOptions(TaskOptions):
    """A model that answers a task's prompts."""

    model: str = setting(about=MODEL, positional=True)


@dataclass(frozen=True, kw_only=True)
class PickConfig(SampleOptions):
    """Which replies are kept, and of how many."""

    task: str = setting(about="the task, whose training prompts are used: a name or a file",
                        metavar="NAME|FILE")
    reward: str | None = setting(None, "reward models separated by commas, verifiers by name, or "
                                 "judge:MODEL; default: the task's verifier", "where the task has no "
                                 "verifier", metavar="RUN,RUN|VERIFIER|judge:MODEL")
    keep: str = setting("best", "the best reply to each prompt, or every reply that is `passing`",
                        "passing where a wrong reply should never be imitated", choices=("best", "passing"))
    threshold: float | None = setting(None, "the score that passes; default: the highest possible",
                                      "with a reward model it has to be named: its scores have no natural "
                                      "bar")
    prompts: int = setting(200, "number of prompts", "more for more data", COUNT)
    samples: int = setting(8, "replies to each prompt", "more: better replies, in proportion more sampling",
                           COUNT)
    most: int | None = setting(None, "the most passing replies of a prompt; default: all",
                               "4 or so where easy prompts would crowd out those that are seldom solved",
                               COUNT)
    distinct: str = setting("any", "which passing replies of a prompt are kept: any; one of each text; one "
                            "of each sequence of numbers",
                            "numbers where ways of calculating are to be imitated, and not wordings",
                            choices=("any", "text", "numbers"))


@dataclass(frozen=True, kw_only=True)
class RLAIFConfig(SampleOptions):
    """Whose replies are judged, by what and by whom."""

    task: str = setting(about="the task, whose training prompts are used: a name or a file",
                        metavar="NAME|FILE")
    constitution: str | None = setting(None, "rules of your own, in TOML; without it: the one that ships, "
                                       "polite and short replies", "for any other taste", metavar="FILE")
    judge: str = setting(RULES, "rules, by code, or a chat model that is asked",
                         "a model where rules cannot be checked by code", metavar="rules|MODEL")
    prompts: int = setting(200, "number of prompts", "more for more data")
    samples: int = setting(4, "replies to each prompt; all pairs of them are compared",
                           "more: more pairs of each prompt, of which more are ties")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompts < 1 or self.samples < 2:
            raise ValueError(f"prompts {self.prompts} and samples {self.samples}: expected at least 1 "
                             "prompt, and 2 samples to make a pair.")


@dataclass(frozen=True, kw_only=True)
class FootprintOptions(Settings):
    """How models are held and trained, as far as memory goes."""

    lora: int = setting(0, "the rank of the adapters; 0 trains all weights", metavar="RANK")
    bits: int = setting(16, "bits of a weight", choices=(32, 16, 4))
    tokens: int = setting(1024, "tokens of a row, prompt and reply")
    rows: int = setting(1, "rows, or pairs, of a micro-batch")
    samples: int = setting(16, "replies sampled at once")
    recompute: bool = setting(False, "gradient checkpointing, layer by layer")
