"""3. The algorithm explorer: PPO, DPO and GRPO side by side: what they hold in memory, by the estimator of
`postgrad memory`, and what their rows in the table of methods say of data, critic, reward and anchor."""

from __future__ import annotations

import math
from dataclasses import dataclass

from postgrad.studio.instruments.base import Choice, Claim, Instrument, Slider, Toggle, first_true
from postgrad.studio.pages import num

NAMES = ("ppo", "dpo", "grpo")
CARDS = (12, 24, 40, 80)
RANK = 16
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
    Choice("size", "Model size", ("1B", "7B", "13B", "70B")),
    Choice("trained", "Trained", (("full", "all weights"), ("lora", f"LoRA, rank {RANK}"))),
    Choice("bits", "Weights that stand still", ((16, "bf16"), (4, "4-bit"))),
    Slider("tokens", "Tokens in a row", 256, 4096, 256),
    Slider("samples", "Replies written at once", 1, 64, 1),
    Toggle("recompute", "Activations", ("recomputed", "kept")),
)


def facts(row) -> dict:
    """What the table of methods says of a row, in words."""
    from postgrad.memory import held, samples
    from postgrad.methods import constants
    online, critic = samples(row), getattr(row, "critic", False)
    anchor = (f"KL in the reward, {row.kl_in_reward:g}" if getattr(row, "kl_in_reward", 0) else
              f"KL in the loss, {row.kl_in_loss:g}" if getattr(row, "kl_in_loss", 0) else
              f"in the loss itself, beta {constants(row)['beta']:g}")
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


def split(made, share: dict[str, float]) -> dict[str, list[tuple[str, str, float]]]:
    """The phases of a step, each as (part, model, GB): weights by model, what is trained by the model that is
    trained; activations and cache are nobody's weights."""
    from postgrad.memory import GB
    weights = [("weights", role, size / GB) for role, size in made.models.items() if size]

    def of(part: str, total: float) -> list[tuple[str, str, float]]:
        return [(part, role, total * part_of / GB) for role, part_of in share.items()]

    stands = [*weights, *of("optimizer", made.optimizer)]
    update = [*stands, *of("gradients", made.gradients), ("activations", "work", made.activations / GB)]
    sample = [*stands, ("cache", "work", made.cache / GB)]
    return {"sample": sample, "update": update} if made.cache else {"update": update}


def compute(state: State) -> dict:
    from postgrad.memory import GB, SIZES, TRAINED, Setup, adapter, each_trained, estimate, parameters
    from postgrad.methods import METHODS
    shape, rank = SIZES[state.size], RANK if state.trained == "lora" else 0
    trainable = adapter(shape, rank) if rank else parameters(shape)
    methods = []
    for name in NAMES:
        row = METHODS[name]
        made = estimate(shape, row,
                        Setup(lora=rank, bits=state.bits, tokens=state.tokens, samples=state.samples,
                              recompute=state.recompute, reward_model=getattr(row, "critic", False)))
        trained = {role: trainable + (role == "critic") * shape.hidden_size
                   for role in made.models if role in TRAINED}
        phases = split(made, {role: count / sum(trained.values()) for role, count in trained.items()})
        methods.append({
            "name": name, "phases": phases, "peak": made.peak / GB, "models": list(made.models),
            "steps": STEPS[name], "trained": list(trained),
            "busiest": max(phases, key=lambda phase: sum(size for _, _, size in phases[phase])),
            "facts": facts(row), "card": next((c for c in CARDS if made.peak <= c * GB), None),
            "cards": math.ceil(made.peak / (80 * GB))})
    return {"methods": methods, "size": state.size, "parameters": parameters(shape) / 1e9, "rank": rank,
            "bits": state.bits, "trainable": trainable / 1e9, "most": max(m["peak"] for m in methods),
            "bytes": each_trained(Setup(lora=rank, bits=state.bits))}


WORDS = {"weights": "weights", "optimizer": "AdamW’s state", "gradients": "gradients",
         "activations": "activations", "cache": "the cache of keys and values"}


def needs(n: dict) -> str:
    """What PPO and GRPO need, and what most of it is."""
    ppo, _, grpo = n["methods"]
    return " and ".join(f"{m['name'].upper()} needs {num(m['peak'], 1 if m['peak'] < 100 else 0)} GB, "
                        f"{largest(m)[1]:.0f} % of it {WORDS[largest(m)[0]]}" for m in (ppo, grpo))


def largest(method: dict) -> tuple[str, float]:
    """The largest part of a method's peak, and how much of the peak it is, in per cent."""
    total: dict[str, float] = {}
    for part, _, size in method["phases"][method["busiest"]]:
        total[part] = total.get(part, 0.0) + size
    part = max(total, key=total.__getitem__)
    return part, 100 * total[part] / method["peak"]


insight = first_true(
    Claim(lambda n: n["rank"] and all(m["models"][0] == "policy" for m in n["methods"]),
          lambda n: f"With adapters {100 * n['trainable'] / n['parameters']:.2f} % as many weights have "
                    f"gradients and optimizer state, and all models share one body: {needs(n)}."),
    Claim(lambda n: not n["rank"] and "critic" not in n["methods"][2]["models"]
          and n["methods"][0]["peak"] > n["methods"][2]["peak"],
          lambda n: f"Trained in full, {needs(n)}. GRPO has no critic to train and no reward model to hold: "
                    f"{100 * n['methods'][2]['peak'] / n['methods'][0]['peak']:.0f} % of PPO’s peak."),
)


INSTRUMENT = Instrument(
    name="algorithms", number=3, title="Three algorithms, and what each must hold in memory",
    functions=("postgrad.memory.estimate", "postgrad.memory.layers", "postgrad.memory.held"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="PPO, DPO and GRPO at 1B to 70B: weights, gradients, optimizer, activations and cache "
          "against real cards.",
)
