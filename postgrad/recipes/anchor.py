"""What keeps a policy near where it began."""

from __future__ import annotations

from dataclasses import dataclass

from postgrad.maths.ensemble import RULES
from postgrad.system.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class Anchor(Settings):
    """What keeps the policy near where it began, and honest towards its reward."""

    kl: float | None = setting(None, "the weight of the KL to the start; none: as the method's row has it; "
                               "0: no reference", "more where the true quality falls while the reward rises; "
                               "0 saves a model in memory, and is usual against a verifier that cannot be "
                               "gamed")
    target: float | None = setting(None, "a KL per reply, in nats, to which the weight is steered; none: the "
                                   "weight stands", "where no fixed weight suits the whole run, 5 to 10 say; "
                                   "needs a row with a KL")
    gain: float = setting(0.1, "how fast the weight is steered: a collection changes it by a fifth of this "
                          "at most", "with target alone: more steers sooner and less steadily")
    ptx: float = setting(0.0, "the weight of imitating texts beside the rollouts (PPO-ptx)",
                         "where the model forgets what it could do before; policy methods alone")
    texts: str | None = setting(None,
                                "a JSONL file of conversations for that; none: the embedded pretraining text",
                                "with ptx, for every model that is not embedded")
    measure: bool = setting(False, "the KL to the start is examined even where it has no weight",
                            "to plot quality against the distance from the start; costs the memory of a "
                            "reference")
    ensemble: str = setting("mean", "how the scores of several reward models or heads become one: mean, min, "
                            "penalised", "min or penalised where the policy finds the faults of one member")

    def __post_init__(self):
        super().__post_init__()
        if self.kl is not None and not 0 <= self.kl < float("inf"):
            raise ValueError(f"anchor.kl is {self.kl}: it must be 0 or more, or none for the method's own.")
        if self.target is not None and not 0 < self.target < float("inf") or not 0 < self.gain <= 1:
            raise ValueError(f"anchor.target {self.target} and anchor.gain {self.gain}: the target must be "
                             "above 0 (or none), the gain above 0 and at most 1.")
        if not 0 <= self.ptx < float("inf"):
            raise ValueError(f"anchor.ptx is {self.ptx}: it must be 0 or more.")
        if self.ensemble not in RULES:
            raise ValueError(f"anchor.ensemble is {self.ensemble!r}: expected one of {', '.join(RULES)}.")
