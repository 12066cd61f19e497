"""Model-dependent defaults: what a config leaves open follows from the model's size and the task.

Open are the learning rate, adapter or all weights, the tokens of a reply, the tokens of a pass, and for rows
that sample the length of the run. What the user names stands; a named setting (grpo:gsm8k) names what its
task asks for, and leaves these open. The chosen values are saved with the run, so that resuming chooses
nothing.

rate      a power law through what was measured. GRPO learns with 3e-4 at 2M parameters (1e-3 destroys the
          policy) and with 1.5e-5 at 135M, DPO with 1e-4 and 5e-6 (docs/results/real-models.md): a factor of
          20 over a factor of 67 in size, an exponent of 0.71. At 0.63B that is 5.1e-6, where 5e-6 was seen to
          learn; at 7B 9e-7 and 3e-7, where DeepSeekMath has 1e-6 (arXiv:2402.03300) and Zephyr's DPO 5e-7
          (arXiv:2310.16944). SFT and scalar heads bear more: an exponent of 0.5, which at 7B gives SFT
          1.7e-5, where Zephyr's has 2e-5. Up to EMBEDDED parameters the rate is constant: the embedded models
          and smaller ones. A row with several updates per collection takes a third: PPO, DAPO, GSPO and CISPO
          end higher with 1e-4 than with 3e-4, which destroys CISPO (examples/experiments/schedules.py).
          FOUND: rates that a sweep of one model on one task gave; they are that model's alone.
adapters  take ten times the rate of all weights (Schulman et al. 2025, LoRA Without Regret), from ten times
          EMBEDDED on; below, a factor that grows with the size from 1. They are chosen above LARGE
          parameters, and where all weights do not fit the GPU. Rank 16 where rewards or preferences teach,
          which carry few bits, 32 where texts do and for reward models.
replies   as long as the task says; else 64 tokens, and 256 from TALKATIVE parameters on, for such models
          explain themselves: of an instruct model's replies to GSM8K 8 % were finished within 64 tokens, 57 %
          within 300. At most half of the model's positions, so that a prompt fits too.
length    40 collections, on a GPU 400 from TALKATIVE parameters on: after 40 an embedded model is at its
          best, and SmolLM2-135M has learned nothing of GSM8K (docs/results/truth.md). A row with several
          updates per collection gets as many more steps, so that all rows draw the same samples. Evaluations
          and checkpoints come every ten collections, and 20 times at most.
pass      8,192 tokens on a GPU, halved until the estimate of memory/ leaves a tenth of the GPU free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from postgrad.data.rows import SUFFIXES
from postgrad.data.tasks import Task
from postgrad.models.cuda_graphs import MOST
from postgrad.models.families import Config, read_config_json
from postgrad.models.weights import list_weights
from postgrad.recipes.base import ModelDefaults, RunConfig
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.resolve.models import Trained, open_folder, read_config
from postgrad.resolve.tasks import open_task
from postgrad.sampling import Sampling
from postgrad.system.hub import is_dataset
from postgrad.system.settings import Settings, replace_settings
from postgrad.training.memory import Memory, Setup, cache, estimate, parameters, sampler_bytes

EMBEDDED, TALKATIVE, LARGE = 2e6, 5e7, 1e9  # parameters
STEEP, GENTLE = 0.71, 0.5
RATES = {"sft": (1e-3, GENTLE), "reward": (1e-3, GENTLE), "process": (1e-4, GENTLE),
         "preference": (1e-4, STEEP), "rollouts": (3e-4, STEEP), "align": (1e-4, STEEP)}
SMOLLM2 = 134_515_008  # parameters of SmolLM2-135M
# (recipe, task): (the model's parameters, its name, the rate that was found there with all weights)
FOUND = {("rollouts", "guess"): (EMBEDDED, "the embedded models", 7e-4),
         ("rollouts", "animals"): (EMBEDDED, "the embedded models", 7e-4),
         ("rollouts", "questions"): (EMBEDDED, "the embedded models", 1e-4),
         ("sft", "gsm8k"): (SMOLLM2, "SmolLM2-135M", 5e-4)}
RANKS = {"sft": 32, "reward": 32}
RANK = 16
WHOLE = ("process",)  # recipes that train all weights, always
PASSES = (8192, 4096, 2048, 1024)  # tokens, on a GPU
SHORT, LONG = 40, 400  # collections
TEN, TWENTY = 10, 20  # collections between two evaluations and two checkpoints; of these at most, past TEN
FREE = 0.1  # of the GPU, for what the estimate leaves out
TO_BE_NAMED = "to be named"  # in place of a task that has to be named before a run can start
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


class ModelSize(NamedTuple):
    """What the rules need of a model. shape: None where the architecture runs through transformers."""

    parameters: float
    positions: float
    shape: Config | None = None


def model_size(model: str | Path) -> ModelSize:
    """From config.json, all that is fetched of a hub id; of other architectures from the weights' headers."""
    try:
        shape = read_config(model)
    except ValueError:
        return size_of_weights(open_folder(model))
    return ModelSize(parameters(shape), shape.max_position_embeddings, shape)


def size_of_weights(folder: Path) -> ModelSize:
    listed = list_weights(folder)
    raw = read_config_json(folder / "config.json")
    ends = (raw.get(name) for name in POSITIONS)
    return ModelSize(sum(math.prod(stored.shape) for stored in listed.values()),
                     next((n for n in ends if isinstance(n, int) and n > 0), math.inf))


# the rules

def default_rate(recipe: str, size: float, adapter: bool = False, supervised: bool = False,
                 several: bool = False, law: tuple[float, float] | None = None) -> float:
    """default_rate("rollouts", 135e6) -> 1.5e-05, to two digits. supervised: the row learns texts, in any
    recipe. several: it makes more than one update per collection. law: in place of the recipe's."""
    first, exponent = law or RATES[recipe]
    first = first / 3 if several else first
    larger = max(1.0, size / EMBEDDED)
    rate = first * larger ** -(GENTLE if supervised else exponent) * (min(10.0, larger) if adapter else 1.0)
    return float(f"{rate:.1e}")


def reply_tokens(task: int | None, size: float, positions: float) -> int:
    """The most tokens of a reply. task: what the task says of its replies."""
    wanted = task or (256 if size > TALKATIVE else 64)
    return int(max(1, min(wanted, positions // 2)))


def adapter_rank(recipe: str, size: float, fits: bool = True) -> int:
    """0: all weights. fits: training all weights fits the GPU."""
    if recipe in WHOLE or (size <= LARGE and fits):
        return 0
    return RANKS.get(recipe, RANK)


def pass_tokens(peak: Callable[[int], float], gpu_memory: float) -> int:
    """The most tokens of a pass whose peak fits the GPU; the fewest where none does."""
    return next((tokens for tokens in PASSES if peak(tokens) <= (1 - FREE) * gpu_memory), PASSES[-1])


def reply_sampling(task: Task, model: Trained, max_new_tokens: int | None = None,
                   temperature: float = 1.0) -> Sampling:
    """How an opened model samples replies to a task. max_new_tokens None: by the rule."""
    if max_new_tokens is None:
        size = sum(p.numel() for p in model.parameters())
        max_new_tokens = reply_tokens(task.tokens, size, model.config.max_position_embeddings)
    return Sampling(max_new_tokens=max_new_tokens, temperature=temperature)


# a config

def memory_needs(config: RunConfig, shape: Config) -> Memory:
    """The memory of a run: a pass as full as it may be, and the KV cache of all its replies."""
    method = config.row
    optim, on_gpu = config.optim, config.device.startswith("cuda")
    half = on_gpu and optim.precision != "fp32"
    tokens = max(1, optim.per_pass(on_gpu) // (2 if method.source.endswith("pairs") else 1))
    bits = optim.adapter.bits if half or optim.adapter.bits == 4 else 32
    setup = Setup(lora=optim.adapter.lora or 0, bits=bits, single=not half, tokens=tokens,
                  moments=optim.moments, on_gpu=on_gpu,
                  compiled=optim.compile is not False, graphs=MOST, recompute=optim.recompute,
                  reward_model=bool(config.inputs.reward), teacher=teacher_shape(config))
    needs = estimate(shape, method, setup)
    if not needs.cache or not isinstance(config, RolloutConfig):
        return needs
    r = config.rollouts
    rows = min(r.max_concurrent, r.prompts_per_step * r.group_size)
    sampling = replace(setup, tokens=r.budget, samples=rows)
    return replace(needs, cache=cache(shape, sampling), sampler=sampler_bytes(shape, sampling),
                   release=r.release)


def teacher_shape(config: RunConfig) -> Config | None:
    """The shape of the teacher; None where there is none, or its architecture runs through transformers."""
    if (teacher := config.inputs.teacher) is None:
        return None
    shape = model_size(teacher).shape if isinstance(teacher, str) else teacher.net.config
    return shape if isinstance(shape, Config) else None


def gpu_bytes(device: str) -> float | None:
    """The memory of a GPU; None on a CPU, whose memory other programs share."""
    if not device.startswith("cuda") or not torch.cuda.is_available():
        return None
    return float(torch.cuda.get_device_properties(torch.device(device)).total_memory)


class DefaultChoice(NamedTuple):
    """why: the reason, in words; "" where it goes without saying."""

    setting: str
    value: object
    why: str


class ChosenDefaults(NamedTuple):
    """The defaults that were filled in for a model. size: its parameters, in words."""

    model: str = ""
    size: str = ""
    choices: tuple[DefaultChoice, ...] = ()

    @property
    def sentence(self) -> str:
        words = ", ".join(f"{name}={value} ({why})" for name, value, why in self.choices)
        return f"{self.model} has {self.size} parameters: {words}" if words else ""


S = TypeVar("S", bound=Settings)
M = TypeVar("M", bound=ModelDefaults)


def fill_defaults(config: S, origin: Path | None = None,
                  gpu_memory: float | None = None) -> tuple[S, ChosenDefaults]:
    """(the config with its model-dependent defaults filled in, which they are).

    origin: the folder of a model that has no name of its own. gpu_memory: in bytes; None: that of the device.
    """
    if isinstance(config, ModelDefaults) and has_open_defaults(config):
        return choose_defaults(config, origin, gpu_memory)
    return config, ChosenDefaults()


def try_fill_defaults(config: S) -> tuple[S, str]:
    """(config, sentence) of `fill_defaults`; where the model or the task is missing, the config as it is, and
    the reason."""
    try:
        filled, chosen = fill_defaults(config)
        return filled, chosen.sentence
    except (ValueError, OSError) as error:
        return config, f"what is open (none) is chosen when the run starts: {error}"


def has_open_defaults(config: ModelDefaults) -> bool:
    """Whether any rule has something to choose."""
    length = isinstance(config, RolloutConfig) and None in (config.steps, config.save_every,
                                                            config.evaluation.every)
    replies = bool(config.reply_group) and config.reply_limit is None
    return None in (config.optim.lr, config.optim.adapter.lora) or replies or length or samples_evaluations(
        config)


def choose_defaults(config: M, origin: Path | None, gpu_memory: float | None) -> tuple[M, ChosenDefaults]:
    size = model_size(origin or config.model)
    gpu_memory = gpu_bytes(config.device) if gpu_memory is None else gpu_memory
    choices: list[DefaultChoice] = []
    for rule in (choose_length, choose_replies, choose_weights, choose_rate):
        chosen = [*rule(config, size, gpu_memory)]
        config = replace_settings(config, {choice.setting: choice.value for choice in chosen})
        choices += [choice for choice in chosen if choice.why]
    name = origin.name if origin else config.model
    return config, ChosenDefaults(name, parameter_text(size.parameters), tuple(choices))


def choose_length(config: ModelDefaults, size: ModelSize,
                  gpu_memory: float | None) -> Iterator[DefaultChoice]:
    """Steps, and the steps between two evaluations and two checkpoints."""
    if not isinstance(config, RolloutConfig):
        return
    updates, named = config.updates_per_collection, config.rollouts.collections
    long = named is None and config.device.startswith("cuda") and size.parameters > TALKATIVE
    steps = config.steps or (named or (LONG if long else SHORT)) * updates
    if config.steps is None:
        why = f"{updates} of each of {steps // updates} collections" if updates > 1 else "by the size" * long
        yield DefaultChoice("steps", steps, why)
    for name, own in (("evaluation.every", config.evaluation.every), ("save_every", config.save_every)):
        if own is None:
            yield DefaultChoice(name, max(TEN, steps // updates // TWENTY) * updates, "")


def choose_replies(config: ModelDefaults, size: ModelSize,
                   gpu_memory: float | None) -> Iterator[DefaultChoice]:
    """The most tokens of a reply: in rollouts, labelled replies and evaluations."""
    named, evaluated = config.reply_limit, samples_evaluations(config)
    by_task = task_reply_tokens(config) if named is None and (config.reply_group or evaluated) else None
    tokens = named or reply_tokens(by_task, size.parameters, size.positions)
    why = "as in the rollouts" if named else "as the task says" if by_task else "by the size"
    if config.reply_group and named is None:
        yield DefaultChoice(f"{config.reply_group}.max_new_tokens", tokens, why)
    if evaluated:
        yield DefaultChoice("evaluation.max_new_tokens", tokens, why)


def samples_evaluations(config: ModelDefaults) -> bool:
    """Whether evaluations sample replies whose limit is open."""
    return (isinstance(config, RunConfig) and config.recipe in ("sft", "preference", "rollouts")
            and (config.task is not None and config.evaluation.every != 0
                 or config.inputs.eval_task is not None)
            and config.evaluation.max_new_tokens is None)


def task_reply_tokens(config: ModelDefaults) -> int | None:
    """The tokens of a reply that the config's task states, or that of its evaluations where nothing else is
    sampled; None where it is still to be named, or is rows."""
    task = config.task if isinstance(config, RunConfig) else None
    if isinstance(config, RunConfig) and not config.reply_group and config.inputs.eval_task is not None:
        task = config.inputs.eval_task
    if not isinstance(task, str | Path | Task) or task == TO_BE_NAMED or (
            str(task).endswith(SUFFIXES) or is_dataset(task)):
        return None
    return open_task(task).tokens


def choose_weights(config: ModelDefaults, size: ModelSize,
                   gpu_memory: float | None) -> Iterator[DefaultChoice]:
    """Adapter or all weights, and on a GPU the tokens of a pass."""
    memory = math.inf if gpu_memory is None else gpu_memory

    def peak(tokens: int, rank: int) -> float:
        if memory == math.inf or not isinstance(config, RunConfig) or size.shape is None:
            return 0.0
        changes = {"optim.tokens_per_pass": tokens, "optim.adapter.lora": rank}
        return memory_needs(replace_settings(config, changes), size.shape).peak

    rank = config.optim.adapter.lora
    if rank is None:
        rank = adapter_rank(config.recipe, size.parameters, peak(PASSES[-1], 0) <= (1 - FREE) * memory)
        large = (f"above {parameter_text(LARGE)}" if size.parameters > LARGE else
                 "all weights do not fit the GPU")
        yield DefaultChoice("optim.adapter.lora", rank, large if rank else "all weights")
    tokens = pass_tokens(lambda tokens: peak(tokens, rank), memory)
    if config.optim.tokens_per_pass is None and tokens != PASSES[0]:
        yield DefaultChoice("optim.tokens_per_pass", tokens, "by the GPU's memory")


def choose_rate(config: ModelDefaults, size: ModelSize, gpu_memory: float | None) -> Iterator[DefaultChoice]:
    if config.optim.lr is None and (found := found_rate(config, size.parameters)):
        model, rate = found
        yield DefaultChoice("optim.lr", rate, f"found with {model} on this task")
    elif config.optim.lr is None:
        several = isinstance(config, RolloutConfig) and config.updates_per_collection > 1
        supervised = isinstance(config, RunConfig) and config.method.kind == "supervised"
        rate = default_rate(config.recipe, size.parameters, bool(config.optim.adapter.lora), supervised,
                            several, config.rate_law)
        yield DefaultChoice("optim.lr", rate, "by the size, a third for several updates" if several else
                            "by the size")


def found_rate(config: ModelDefaults, size: float) -> tuple[str, float] | None:
    """(model, rate) of FOUND, where it was found with this model on this task."""
    task = config.task if isinstance(config, RunConfig) else None
    name = (task.name if isinstance(task, Task) else str(task)).partition(":")[0]
    parameters, model, rate = FOUND.get((config.recipe, name), (math.nan, "", 0.0))
    same = size <= EMBEDDED if parameters == EMBEDDED else size == parameters
    return (model, rate) if same and not config.optim.adapter.lora else None


def parameter_text(size: float) -> str:
    """1967808 -> "2M", 1.2e9 -> "1.2B"."""
    millions = size / 1e6
    if size >= 1e9:
        return f"{size / 1e9:.3g}B"
    return f"{millions:.2g}M" if millions < 10 else f"{millions:.0f}M"
