"""The options of `postgrad plan` and `postgrad memory`: what a shape asks of GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from postgrad.system.options import Held, option
from postgrad.system.settings import Settings

SHAPE = "1B, 7B, 13B or 70B; or tiny, a run, a model's folder or a hub id"


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(Held):
    model: str = option(about=SHAPE, metavar="MODEL|SIZE", positional=True)
    method: str = option("ppo,dpo,grpo", "rows of the table", metavar="NAME,NAME")
    reward: str | None = option(None, "who judges; without it: a model where there is a critic",
                                choices=("model", "verifier"))


@dataclass(frozen=True, kw_only=True)
class PlanOptions(Settings):
    model: str = option(about=SHAPE, metavar="MODEL|SIZE", positional=True)
    gpus: str = option("8xH100", "how many of which: H200, H100, A100, L40S, RTX4090, B200", metavar="NxCARD")
    method: str = option("grpo", "a row of the table that samples", metavar="NAME")
    prompts: int = option(64, "prompts of a step", metavar="N")
    group: int = option(8, "samples of each prompt", metavar="N")
    prompt_tokens: int = option(256, "tokens of a prompt", metavar="N")
    reply_tokens: int = option(512, "tokens of a reply, on average", metavar="N")
    longest: int = option(2048, "tokens of a reply, at most", metavar="N")
    lengths: str = option("geometric", "how replies differ in length", choices=("geometric", "equal"))
    lora: int = option(0, "the rank of the adapters; 0 trains all weights", metavar="RANK")
    ahead: int | None = option(None, "rollouts.async_depth; without it: 0, 1, 2 and 4 are tried", metavar="K")

    def __post_init__(self):
        super().__post_init__()
        for name in ("prompts", "group", "prompt_tokens", "reply_tokens", "longest"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(self, name)} must be at least 1.")
        if self.reply_tokens > self.longest:
            raise ValueError(f"--reply-tokens {self.reply_tokens} is over --longest {self.longest}: the mean "
                             "cannot be longer than the longest.")
        if self.lora < 0:
            raise ValueError(f"--lora {self.lora} must be 0 or more.")
