"""The runs of the workshop: one to begin with, and what is changed in each of the others. A run is settings
of `postgrad train`, nothing else; recordings/workshop.json has what tools/recordings.py recorded of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType

RECIPE = "nano:words"
SMALL = MappingProxyType({
    "steps": "30", "rollouts.prompts_per_step": "8", "optim.lr": "1e-4", "evaluation.every": "5",
    "evaluation.problems": "100", "evaluation.samples": "1", "save_every": "30"})


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One run. says: what is special about it. changes: settings besides SMALL, as they are typed."""

    name: str
    says: str
    recipe: str = RECIPE
    changes: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        return {**SMALL, **self.changes}

    @property
    def differs(self) -> str:
        """What is typed otherwise than for the first run."""
        return " ".join([*([self.recipe] if self.recipe != RECIPE else []),
                         *(f"{k}={v}" for k, v in self.changes.items())])

    @property
    def command(self) -> str:
        return " ".join(["postgrad train", self.recipe, *(f"{k}={v}" for k, v in self.settings.items())])


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question that runs answer. variants: beside the first run, which is drawn with all of them."""

    name: str
    title: str
    asks: str
    variants: tuple[Variant, ...]


FIRST = Variant(name="nano", says="nano, groups of eight, paid for right answers")
GRPO = Variant(name="grpo", says="grpo: z-score, ratio and clip, KL in the loss", recipe="grpo:words")
EXPERIMENTS = {e.name: e for e in (
    Experiment(name="first", title="Train it", asks="How many of the held-out problems will it solve with "
               "one try after the last step?", variants=(FIRST, GRPO)),
    Experiment(name="group", title="Group size", asks="With the same number of answers a step, which group "
               "does best?", variants=(
                   Variant(name="group-2", says="groups of 2, of 32 problems",
                           changes={"rollouts.prompts_per_step": "32", "rollouts.group_size": "2"}),
                   Variant(name="group-32", says="groups of 32, of 2 problems",
                           changes={"rollouts.prompts_per_step": "2", "rollouts.group_size": "32"}))),
    Experiment(name="reward", title="Another reward", asks="What does the share of right answers do when "
               "something else is paid for?", variants=(
                   Variant(name="reward-form", says="paid for the form, whatever the answer",
                           changes={"reward": "think"}),
                   Variant(name="reward-short", says="paid for replies of a single word",
                           changes={"reward": "length(1,1)"}))),
    Experiment(name="kl", title="A leash", asks="What does a KL to the start do to the climb?", variants=(
        Variant(name="kl", says="a KL of weight 1 in the loss", changes={"kl.coef": "1"}),)),
    Experiment(name="rate", title="Too fast", asks="What happens at a learning rate that is far too high?",
               variants=(Variant(name="rate", says="a hundred times the rate",
                                 changes={"optim.lr": "1e-2"}),)),
)}
VARIANTS = {v.name: v for e in EXPERIMENTS.values() for v in e.variants}
