"""Instrument 17, staleness: samples of an older policy, how far their ratios spread as the policy is updated,
and what truncation does. All means are sums over a small vocabulary; nothing is sampled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider, as_percent
from postgrad.studio.json_types import JsonDict, Values

LOGITS = (1.6, 1.0, 0.5, 0.0, -0.6, -1.2)  # of the policy that samples
REWARDS = (0.2, 0.9, 0.0, 1.0, 0.1, 0.4)
MOST, RATE = 16, 1.0  # updates, and the length of one


@dataclass(frozen=True)
class State:
    updates: int = 4
    tokens: int = 64
    cap: float = 2.0


CONTROLS = (
    Slider("updates", "Updates since the reply was sampled", 0, MOST, 1),
    ChoiceControl("tokens", "Tokens of a reply", (1, 16, 64, 256)),
    Slider("cap", "Limit C of a token’s weight", 1, 4, 0.5),
)


@cache
def policies() -> tuple[Values, ...]:
    """The log-probabilities after each number of updates along the exact gradient of the mean reward."""
    import torch

    logits, reward = (torch.tensor(x, dtype=torch.float64) for x in (LOGITS, REWARDS))
    found = [tuple(logits.log_softmax(-1).tolist())]
    for _ in range(MOST):
        logits = logits.detach().requires_grad_()
        (slope,) = torch.autograd.grad((logits.softmax(-1) * reward).sum(), logits)
        logits = logits + RATE * slope
        found.append(tuple(logits.detach().log_softmax(-1).tolist()))
    return tuple(found)


@cache
def weight_figures(updates: int, cap: float) -> JsonDict:
    """The weight of each token and its truncation, means under the policy that sampled."""
    import torch

    from postgrad.maths.correction import truncated

    old, new = (torch.tensor([policies()[n]], dtype=torch.float64) for n in (0, updates))
    mask = torch.ones_like(old, dtype=torch.bool)
    free, held = (truncated(old, new, mask, cap=limit)[0] for limit in (1e9, cap))
    chance = old[0].exp()
    second, first = (chance * free**2).sum().item(), (chance * held).sum().item()
    return {
        "weights": [round(x, 6) for x in free.tolist()], "held": [round(x, 6) for x in held.tolist()],
        "chances": [round(x, 6) for x in chance.tolist()], "second": second,
        "share": 1 / second, "kept": first, "held_share": first**2 / (chance * held**2).sum().item(),
        "kl": (new[0].exp() * (new - old)[0]).sum().item(),
    }


def compute(state: State) -> JsonDict:
    """Effective shares of tokens and of replies, now and along all updates."""
    here = weight_figures(state.updates, state.cap)
    rows = [weight_figures(n, state.cap) for n in range(MOST + 1)]
    return {
        "updates": state.updates, "tokens": state.tokens, "cap": state.cap,
        "weights": here["weights"], "held": here["held"], "chances": here["chances"],
        "second": round(here["second"], 8), "share": round(here["share"], 8),
        "reply": here["share"] ** state.tokens, "kept": round(here["kept"], 8),
        "held_share": round(here["held_share"], 8), "kl": round(here["kl"], 8) + 0.0,
        "cut": sum(x > state.cap for x in here["weights"]),
        "token_path": [[n, round(row["share"], 5)] for n, row in enumerate(rows)],
        "held_path": [[n, round(row["held_share"], 5)] for n, row in enumerate(rows)],
        "reply_path": [[n, round(row["share"] ** state.tokens, 5)] for n, row in enumerate(rows)],
    }


def insight(numbers: JsonDict) -> str:
    if not numbers["updates"]:
        return "On policy every weight is 1: each sample counts in full, whatever its length."
    when = "1 update" if numbers["updates"] == 1 else f"{numbers['updates']} updates"
    reply = ("" if numbers["tokens"] == 1 else
             f", and a whole reply of {numbers['tokens']} tokens {as_percent(numbers['reply'])}")
    cut = (f"The limit of {numbers['cap']:.1f} cuts {as_percent(1 - numbers['kept'])} of the weight"
           if numbers["cut"] else f"The limit of {numbers['cap']:.1f} cuts nothing")
    return (f"After {when} a sampled token is worth {as_percent(numbers['share'])} of a fresh one{reply}. "
            f"{cut}.")


INSTRUMENT = Instrument(
    name="staleness", number=17, title="Old samples lose their worth token by token, and replies all at once",
    functions=("postgrad.maths.correction.truncated",),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="How the importance weights of an older policy’s samples spread with each update, and what a "
          "limit does.",
)
