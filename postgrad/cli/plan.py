"""`postgrad memory` and `plan`: GPU memory and seconds of a training, before it is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from postgrad.cli.options import Command, CommandOptions, options_from
from postgrad.cli.output import print_json, print_table
from postgrad.system.options import FootprintOptions
from postgrad.system.settings import COUNT, NOT_NEGATIVE, POSITIVE, setting

if TYPE_CHECKING:
    from postgrad.recipes.plan import Option

CARDS = (12, 24, 40, 80)  # GB
SHAPE = ("a size: 1B, 7B, 13B, 70B, or any other (8B, 350M) as a Llama of so many parameters; or tiny, "
         "a run, a model's folder or a hub id")
GB = 1e9
MOST_LAYOUTS = 6  # layouts in the table
NOTE = ("Arithmetic, held against what was measured on one H200; nothing past one GPU was measured, and "
        "links and disks are assumed (docs/scale.md).")


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(FootprintOptions, CommandOptions):
    model: str = setting(about=SHAPE, metavar="MODEL|SIZE", positional=True)
    method: str = setting("ppo,dpo,grpo", "methods, separated by commas", metavar="NAME,NAME")
    reward: str | None = setting(None, "source of the reward; default: a model where there is a critic",
                                 choices=("model", "verifier"))


def run_memory(options: MemoryOptions) -> None:
    from postgrad.recipes.plan import method_memory
    parameters, rows = method_memory(options.model, options.method.split(","),
                                     options_from(FootprintOptions, options), options.reward)
    if options.json:
        return print_json({"model": options.model, "parameters": parameters, "methods": rows})
    trained = f"LoRA of rank {options.lora}" if options.lora else "all weights trained"
    print_table([memory_line(row) for row in rows],
                title=f"{options.model}: {parameters / 1e9:.2f}B parameters, {trained}, "
                      f"{options.bits} bits, GB")
    return print("The peak is the larger of sampling and updating, which take turns. Leave a tenth "
                 "of a card free.")


def memory_line(row: Mapping[str, Any]) -> dict[str, str]:
    fits = next((f"{card} GB" for card in CARDS if row["peak"] <= card * GB), f"over {CARDS[-1]} GB")
    sizes = {part: f"{size / GB:.1f}" for part, size in row.items()
             if part not in ("method", "models", "sampling", "updating")}
    return {"method": row["method"], "models": ", ".join(row["models"]), **sizes, "fits": fits}


# plan

@dataclass(frozen=True, kw_only=True)
class PlanOptions(CommandOptions):
    model: str = setting(about=SHAPE, metavar="MODEL|SIZE", positional=True)
    gpus: str = setting("8xH100", "number and kind: H200, H100, A100, L40S, RTX4090, B200",
                        metavar="NxCARD")
    method: str = setting("grpo", "a method that samples", metavar="NAME")
    prompts: int = setting(64, "prompts of a step", within=COUNT, metavar="N")
    group: int = setting(8, "samples of each prompt", within=COUNT, metavar="N")
    prompt_tokens: int = setting(256, "tokens of a prompt", within=COUNT, metavar="N")
    reply_tokens: int = setting(512, "tokens of a reply, on average", within=COUNT, metavar="N")
    longest: int = setting(2048, "tokens of a reply, at most", within=COUNT, metavar="N")
    lengths: str = setting("geometric", "distribution of reply lengths", choices=("geometric", "equal"))
    lora: int = setting(0, "the rank of the adapters; 0 trains all weights", within=NOT_NEGATIVE,
                        metavar="RANK")
    sync: float = setting(1.0, "GB a second by which weights reach samplers of their own: a folder's",
                          within=POSITIVE, metavar="GB/S")
    async_depth: int | None = setting(None, "rollouts.async_depth; default: tries 0, 1, 2 and 4",
                                metavar="K")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reply_tokens > self.longest:
            raise ValueError(f"--reply-tokens {self.reply_tokens} is over --longest {self.longest}: the mean "
                             "cannot be longer than the longest.")


def run_plan(options: PlanOptions) -> None:
    from postgrad.recipes.plan import ReplyLengths, Work, plan_training
    work = Work(prompts=options.prompts, group=options.group, prompt=options.prompt_tokens,
                reply=options.reply_tokens)
    lengths = ReplyLengths(mean=options.reply_tokens, longest=options.longest, kind=options.lengths)
    parameters, method, layouts = plan_training(options.model, options.method, options.gpus, work, lengths,
                                                lora=options.lora, sync=options.sync * GB)
    layouts = [layout for layout in layouts if options.async_depth in (None, layout.ahead)]
    if not layouts:
        raise ValueError(f"{options.model} with {method} does not fit {options.gpus} in any way that is "
                         "known here: more GPUs, larger ones, or --lora RANK.")
    if options.json:
        return print_json({"model": options.model, "parameters": parameters, "gpus": options.gpus,
                           "options": [asdict(layout) | {"times": layout.times._asdict()}
                                       for layout in layouts]})
    best = layouts[0]
    print_table([plan_line(layout) for layout in layouts[:MOST_LAYOUTS]],
                title=f"{options.model}, {parameters / 1e9:.2f}B parameters, {method} on {options.gpus}: "
                      "seconds of a step, quickest first")
    print_table([{"GPU": phase, "part": part, "GB": f"{size / GB:.1f}"}
                 for phase, parts in (("training", best.training), ("sampling", best.sampling))
                 for part, size in (*parts.items(), ("in all", sum(parts.values())))],
                title="memory of a GPU, the first of these ways")
    return print("\n".join([*(f"Note: {note}." for note in best.notes), NOTE]))


def plan_line(layout: Option) -> dict[str, str]:
    parts = {name: f"{seconds:.2f}" for name, seconds in layout.parts.items()}
    return {"GPUs": layout.layout.words, "ahead": str(layout.ahead), **parts,
            "waits": f"{layout.times.waiting:.2f}", "step": f"{layout.times.step:.2f}"}


COMMANDS = (
    Command("memory", "estimate the GPU memory of a method: weights, gradients, optimizer, activations, KV "
            "cache", MemoryOptions, run_memory),
    Command("plan", "plan a training on many GPUs: layouts, memory, seconds of a step",
            PlanOptions, run_plan, """\
examples:
  postgrad plan 7B --gpus 8xH100
  postgrad plan 70B --gpus 64xH100 --method grpo --prompts 128 --group 16 --reply-tokens 1024"""),
)
