"""3. The algorithm explorer: PPO, DPO and GRPO side by side: what they hold in memory, by the estimator of
`postgrad memory`, and what their rows in the table of methods say of data, critic, reward and anchor."""

from __future__ import annotations

import math
from dataclasses import dataclass

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Remark, Slider, Toggle, first_true
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import num

NAMES = ("ppo", "dpo", "grpo")
CARDS = (12, 24, 40, 80)
RANK = 16
GB = 1e9
STEPS = {  # the way of one batch; a step's kind is the model that is busy
    "ppo": (("sample", "policy"), ("score", "reward"), ("value each token", "critic"),
            ("compare", "reference"), ("update both", "policy")),
    "dpo": (("pairs", "data"), ("compare", "reference"), ("update", "policy")),
    "grpo": (("sample G", "policy"), ("verify", "data"), ("z-score the group", "data"),
             ("compare", "reference"), ("update", "policy")),
}


@dataclass(frozen=True)
class State:
    size: str = "7B"
    trained: str = "full"
    bits: int = 16
    tokens: int = 1024
    samples: int = 16
    recompute: bool = False


CONTROLS = (
    ChoiceControl("size", "Model size", ("1B", "7B", "13B", "70B")),
    ChoiceControl("trained", "Trained", (("full", "all weights"), ("lora", f"LoRA, rank {RANK}"))),
    ChoiceControl("bits", "Weights that stand still", ((16, "bf16"), (4, "4-bit"))),
    Slider("tokens", "Tokens in a row", 256, 4096, 256),
    Slider("samples", "Replies written at once", 1, 64, 1),
    Toggle("recompute", "Activations", ("recomputed", "kept")),
)


def method_facts(name: str) -> JsonDict:
    """What the table of methods says of a row, in words."""
    from postgrad.methods import METHODS, constants_of
    from postgrad.training.memory import held, samples
    row = METHODS[name]
    online, critic = samples(row), getattr(row, "critic", False)
    in_reward, in_loss = (getattr(row, f"kl_in_{part}", 0.0) for part in ("reward", "loss"))
    anchor = (f"KL in the reward, {in_reward:g}" if in_reward else
              f"KL in the loss, {in_loss:g}" if in_loss else
              f"in the loss itself, beta {constants_of(row)['beta']:g}")
    return {
        "Models in memory": ", ".join(held(row, critic)),
        "Data": "prompts" if online else "labelled pairs",
        "Where answers come from": "its own samples, online" if online else "a file, offline",
        "Critic": "yes, trained beside it" if critic else "none: the group is the baseline" if online
                  else "none",
        "Reward": "a reward model" if critic else "a verifier" if online else "implicit: beta log(pi / ref)",
        "Explores": "yes" if online else "no",
        "Anchor": anchor,
    }


def memory_parts(name: str, size: str, rank: int, bits: int, tokens: int, recompute: bool) -> JsonDict:
    """The bytes of a method's parts and of each model's weights; of the KV cache and of what else the sampler
    holds, those of every reply that is written at once, and those that are there anyway."""
    from postgrad.methods import METHODS
    from postgrad.training.memory import SIZES, Setup, estimate
    one, two = (estimate(SIZES[size], METHODS[name],
                         Setup(lora=rank, bits=bits, tokens=tokens, samples=samples, recompute=recompute,
                               reward_model=getattr(METHODS[name], "critic", False))) for samples in (1, 2))
    return {"models": one.models, "gradients": one.gradients, "optimizer": one.optimizer,
            "activations": one.activations, "stays": one.stays,
            **{part: {"each": two_of - one_of, "anyway": 2 * one_of - two_of} for part, one_of, two_of in
               (("cache", one.cache, two.cache), ("sampler", one.sampler, two.sampler))}}


def parameter_counts(size: str, rank: int, bits: int) -> JsonDict:
    """Weights of a model, those that are trained, its width, and the bytes that each trained one takes."""
    from postgrad.training.memory import SIZES, Setup, adapter, each_trained, parameters
    shape = SIZES[size]
    return {"all": parameters(shape), "trained": adapter(shape, rank) if rank else parameters(shape),
            "width": shape.hidden_size, "bytes": each_trained(Setup(lora=rank, bits=bits))}


def phase_parts(made: JsonDict, share: dict[str, float]) -> dict[str, list[tuple[str, str, float]]]:
    """The phases of a step, each as (part, model, GB): weights by model, what is trained by the model that is
    trained; activations and cache are nobody's weights."""
    weights = [("weights", role, size / GB) for role, size in made["models"].items() if size]

    def of(part: str, size: float) -> list[tuple[str, str, float]]:
        return [(part, role, size * part_of / GB) for role, part_of in share.items() if size]

    def trained(sizes: JsonDict) -> list[tuple[str, str, float]]:
        work = sizes["activations"] / GB
        return [*of("gradients", sizes["gradients"]), *([("activations", "work", work)] if work else [])]

    stands = [*weights, *of("optimizer", made["optimizer"])]
    update = [*stands, *trained(made)]
    sample = [*stands, *trained(made["stays"]), *[(part, "work", made[part] / GB)
                                                   for part in ("cache", "sampler") if made[part]]]
    return {"sample": sample, "update": update} if made["cache"] else {"update": update}


def method_numbers(name: str, state: State, rank: int, count: JsonDict) -> JsonDict:
    made = memory_parts(name, state.size, rank, state.bits, state.tokens, state.recompute)
    made = made | {part: made[part]["anyway"] + made[part]["each"] * state.samples
                   for part in ("cache", "sampler")}
    trained = {role: count["trained"] + (role == "critic") * count["width"]
               for role in made["models"] if role in ("policy", "critic")}
    phases = phase_parts(made, {role: part / sum(trained.values()) for role, part in trained.items()})
    sizes = {phase: sum(size for _, _, size in parts) for phase, parts in phases.items()}
    peak = max(sizes.values())
    return {"name": name, "phases": phases, "peak": peak, "models": list(made["models"]),
            "steps": STEPS[name], "trained": list(trained), "busiest": max(sizes, key=sizes.__getitem__),
            "facts": method_facts(name), "card": next((c for c in CARDS if peak <= c), None),
            "cards": math.ceil(peak / 80)}


def compute(state: State) -> JsonDict:
    rank = RANK if state.trained == "lora" else 0
    count = parameter_counts(state.size, rank, state.bits)
    methods = [method_numbers(name, state, rank, count) for name in NAMES]
    return {"methods": methods, "size": state.size, "parameters": count["all"] / 1e9, "rank": rank,
            "bits": state.bits, "trainable": count["trained"] / 1e9, "most": max(m["peak"] for m in methods),
            "bytes": count["bytes"]}


WORDS = {"weights": "weights", "optimizer": "AdamW’s state", "gradients": "gradients",
         "activations": "activations", "cache": "the KV cache", "sampler": "the sampler’s own copy"}


def needs_text(n: JsonDict) -> str:
    """What PPO and GRPO need, and what most of it is."""
    ppo, _, grpo = n["methods"]
    return " and ".join(f"{m['name'].upper()} needs {num(m['peak'], 1 if m['peak'] < 100 else 0)} GB, "
                        f"{largest_part(m)[1]:.0f} % of it {WORDS[largest_part(m)[0]]}" for m in (ppo, grpo))


def largest_part(method: JsonDict) -> tuple[str, float]:
    """The largest part of a method's peak, and how much of the peak it is, in per cent."""
    total: dict[str, float] = {}
    for part, _, size in method["phases"][method["busiest"]]:
        total[part] = total.get(part, 0.0) + size
    part = max(total, key=total.__getitem__)
    return part, 100 * total[part] / method["peak"]


insight = first_true(
    Remark(lambda n: n["rank"] and all(m["models"][0] == "policy" for m in n["methods"]),
           lambda n: f"With adapters {100 * n['trainable'] / n['parameters']:.2f} % as many weights have "
                     f"gradients and optimizer state, and all models share one body: {needs_text(n)}."),
    Remark(lambda n: not n["rank"] and "critic" not in n["methods"][2]["models"]
           and n["methods"][0]["peak"] > n["methods"][2]["peak"],
           lambda n: f"Trained in full, {needs_text(n)}. GRPO has no critic to train and no reward model to "
                     f"hold: {100 * n['methods'][2]['peak'] / n['methods'][0]['peak']:.0f} % of PPO’s peak."),
)


INSTRUMENT = Instrument(
    name="algorithms", number=3, title="Three algorithms, and what each must hold in memory",
    functions=("postgrad.training.memory.parts.estimate", "postgrad.training.memory.passes.layers",
               "postgrad.training.memory.parts.held"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="PPO, DPO and GRPO at 1B to 70B: weights, gradients, optimizer, activations and cache "
          "against real cards.",
)
