"""Predict first: the one number of an instrument whose change a reader foretells before the figure shows it.

Games that keep a score of their own (the labeller, the bandit) and the ledger, whose states are other models,
have none.
"""

from __future__ import annotations

from collections.abc import Callable

from postgrad.studio.json_types import JsonDict

MEASURES: dict[str, tuple[str, Callable[[JsonDict], float | None]]] = {
    "pipeline": ("the share of right replies", lambda n: n["right"] / n["tries"]),
    "algorithms": ("the memory of the largest of the methods", lambda n: n["most"]),
    "grpo": ("the spread of the rewards", lambda n: n["std"]),
    "reward-hacking": ("the true quality", lambda n: n["here"]["true"]),
    "bradley-terry": ("the probability that the first wins", lambda n: n["probability"]),
    "dpo-ppo": ("the KL from the reference", lambda n: n["kl"]),
    "ppo-clip": ("the gradient", lambda n: n["gradient"]),
    "test-time": ("the share of solved problems", lambda n: n["here"][n["chooser"]]),
    "pass-at-k": ("pass@k of the model after RL", lambda n: n["rl"][0]),
    "kl-estimators": ("the KL", lambda n: n["kl"]),
    "gae": ("the noise of the advantage", lambda n: n["noise"]),
    "language-mixing": ("the share of replies thought out in words", lambda n: n["here"]["worded"]),
    "mismatch": ("what the samples are worth", lambda n: n["worth"]),
    "divergences": ("how much of the teacher is covered", lambda n: n["covered"]),
    "staleness": ("what a token is worth", lambda n: n["share"]),
    "layouts": ("the seconds of the fastest step", lambda n: n["best"]["step"]),
    "turn-credit": ("the credit of the first turn", lambda n: n["turns"][0]["credit"]),
    "telling-apart": ("how many evaluations see the difference", lambda n: n["told"]),
    "token-mdp": ("the probability of the next token", lambda n: n["chance"]),
    "tilt": ("the distance of the optimum", lambda n: n["kl"]),
    "one-step": ("the number of rows that push up", lambda n: n["up"]),
}


def measured(name: str, numbers: JsonDict) -> JsonDict | None:
    """{"words", "value"} of these numbers; None where the instrument has nothing to predict."""
    if name not in MEASURES:
        return None
    words, of = MEASURES[name]
    value = of(numbers)
    return {"words": words, "value": None if value is None else round(float(value), 6)}
