"""3. The algorithm explorer: PPO, DPO and GRPO side by side: what they hold in memory, by the estimator of
`postgrad memory`, and what their rows in the table of methods say of data, critic, reward and anchor."""

from __future__ import annotations

import math
from dataclasses import dataclass

from postgrad.studio.instruments.base import Choice, Instrument, Slider, Toggle
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


def compute(state: State) -> dict:
    from postgrad.memory import GB, SIZES, TRAINED, Setup, adapter, each_trained, estimate, parameters
    from postgrad.methods import METHODS
    shape, rank = SIZES[state.size], RANK if state.trained == "lora" else 0
    methods = []
    for name in NAMES:
        row = METHODS[name]
        made = estimate(shape, row,
                        Setup(lora=rank, bits=state.bits, tokens=state.tokens, samples=state.samples,
                              recompute=state.recompute, reward_model=getattr(row, "critic", False)))
        stands = [("weights", made.weights / GB), ("optimizer", made.optimizer / GB)]
        phases = [("update",
                   [*stands, ("gradients", made.gradients / GB), ("activations", made.activations / GB)])]
        if made.cache:
            phases.insert(0, ("sample", [*stands, ("cache", made.cache / GB)]))
        methods.append({
            "name": name, "phases": phases, "peak": made.peak / GB, "models": list(made.models),
            "steps": STEPS[name], "trained": [role for role in made.models if role in TRAINED],
            "facts": facts(row), "card": next((c for c in CARDS if made.peak <= c * GB), None),
            "cards": math.ceil(made.peak / (80 * GB))})
    return {"methods": methods, "size": state.size, "parameters": parameters(shape) / 1e9, "rank": rank,
            "bits": state.bits, "trainable": (adapter(shape, rank) if rank else parameters(shape)) / 1e9,
            "most": max(m["peak"] for m in methods), "bytes": each_trained(Setup(lora=rank, bits=state.bits))}


def insight(numbers: dict) -> str:
    ppo, _, grpo = numbers["methods"]
    both = " and ".join(f"{m['name'].upper()} needs {num(m['peak'], 1 if m['peak'] < 100 else 0)} GB"
                        for m in (ppo, grpo))
    if numbers["rank"]:
        share = 100 * numbers["trainable"] / numbers["parameters"]
        return (f"With adapters only {share:.1f} % as many weights have gradients and optimizer state, and "
                f"all models share one body: {both}. What is left is weights, activations and cache.")
    return (f"Trained in full, {both}: GRPO has no critic to train and no reward model to hold. Most of "
            "either is not weights but AdamW’s state, 12 bytes for every weight that is trained.")



INSTRUMENT = Instrument(
    name="algorithms", number=3, title="Three algorithms, and what each must hold in memory",
    functions=("postgrad.memory.estimate", "postgrad.memory.layers", "postgrad.memory.held"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="PPO, DPO and GRPO at 1B to 70B: weights, gradients, optimizer, activations and cache "
          "against real cards.",
)
