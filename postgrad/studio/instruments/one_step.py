"""Instrument 24, one recorded step under all rows: how each pulls at each token of the same replies, by the
trainer's own objective on the same log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import MINUS
from postgrad.studio.recordings import recording

if TYPE_CHECKING:
    from torch import Tensor

    from postgrad.methods.row import Policy

REPLIES, MOST = 6, 34
BUDGET = 64  # max_new_tokens of the run, by which a fixed length divides


@dataclass(frozen=True)
class State:
    reply: int = 1
    token: int = 1


CONTROLS = (
    ChoiceControl("reply", "Reply", tuple((i, str(i)) for i in range(1, REPLIES + 1))),
    Slider("token", "Token", 1, MOST, 1),
)


def step_columns() -> dict[str, Tensor]:
    """Log-probabilities, reward and mask of the group, [replies, tokens]."""
    import torch

    from postgrad.maths.credit import place_reward

    replies = recording("step")["replies"]
    width = max(len(one["tokens"]) for one in replies)
    columns = {name: torch.zeros(len(replies), width, dtype=torch.float64)
               for name in ("logp", "old_logp", "ref_logp")}
    mask = torch.zeros(len(replies), width, dtype=torch.bool)
    for i, one in enumerate(replies):
        mask[i, : len(one["tokens"])] = True
        for name, column in columns.items():
            column[i, : len(one["tokens"])] = torch.tensor(one[name], dtype=torch.float64)
    score = torch.tensor([one["score"] for one in replies], dtype=torch.float64)
    return columns | {"mask": mask, "reward": place_reward(score, mask)}


def fitting_rows() -> dict[str, Policy]:
    """The rows that need no more than replies, rewards and these log-probabilities: no critic, no teacher, no
    column that the step does not have."""
    from postgrad.methods import METHODS
    from postgrad.methods.row import Policy

    return {name: row for name, row in METHODS.items()
            if isinstance(row, Policy) and not row.critic and row.wanted <= {"sampler_logp", "group_size"}
            and row.name != "turn_grpo"}  # which is grpo where there is one turn


@cache
def pulls() -> dict[str, list[list[float]]]:
    """Of each row, weight times -d loss / d log pi of every token of the group."""
    import torch

    from postgrad.maths.credit import kl_penalty, whiten
    from postgrad.records import Batch
    from postgrad.training.objectives import policy_objective

    columns = step_columns()
    mask, group = columns["mask"], len(columns["mask"])

    class Recorded:
        """A policy that has these log-probabilities."""

        def __init__(self, logp: Tensor):
            self.column = logp

        def logp(self, *_: object, **__: object) -> tuple[Tensor, Tensor]:
            return self.column, torch.zeros_like(self.column)

    out = {}
    for name, row in fitting_rows().items():
        reward = columns["reward"]
        if row.kl_in_reward > 0:
            reward = kl_penalty(reward, columns["old_logp"], columns["ref_logp"], mask, row.kl_in_reward)
        adv = row.credit(reward, mask, group)
        if row.whiten:
            adv = whiten(adv, mask)
        logp = columns["logp"].clone().requires_grad_()
        batch = Batch(ids=tuple(map(str, range(group))), tokens=mask.long(), mask=mask, lengths=mask.sum(1),
                      weight=torch.ones_like(logp), adv=adv, old_logp=columns["old_logp"],
                      ref_logp=columns["ref_logp"], sampler_logp=columns["old_logp"])
        weighing = {"group_size": group} if "group_size" in row.wanted else {}
        plain = replace(row, entropy=0.0, correction=None)
        loss, _ = policy_objective(plain, 1.0, cast(Any, SimpleNamespace(policy=Recorded(logp))), batch)
        ((loss * row.weigh(mask, BUDGET, **weighing)).sum()).backward()
        assert logp.grad is not None
        out[name] = [[round(x, 9) + 0.0 for x in line] for line in (-logp.grad).tolist()]
    return out


def compute(state: State) -> JsonDict:
    data, columns = recording("step"), step_columns()
    at = state.reply - 1
    reply = data["replies"][at]
    place = min(state.token, len(reply["tokens"])) - 1
    rows, here = [], []
    for name, lines in pulls().items():
        most = max(abs(x) for line in lines for x in line) or 1.0
        shares = [round(x / most, 3) + 0.0 for x in lines[at][: len(reply["tokens"])]]
        rows.append([name, shares])
        here.append(shares[place])
    gap = (columns["logp"] - columns["old_logp"])[at]
    return {
        "reply": state.reply, "token": place + 1, "text": reply["text"], "tokens": reply["tokens"],
        "score": reply["score"], "question": data["question"], "command": data["command"],
        "behind": data["behind"], "word": reply["tokens"][place], "ratio": gap[place].exp().item(),
        "scores": [one["score"] for one in data["replies"]], "rows": rows, "count": len(rows),
        "up": sum(x > 0 for x in here), "down": sum(x < 0 for x in here),
        "still": sum(x == 0 for x in here), "here": here,
    }


def insight(numbers: JsonDict) -> str:
    word = f"“{numbers['word']}”" if numbers["word"].strip() else "a space"
    says = (f"Reply {numbers['reply']} was paid {numbers['score']:.0f}. At token {numbers['token']}, {word}, "
            f"with a ratio of {numbers['ratio']:.2f}, ")
    parts = [f"{n} of {numbers['count']} rows {what}" for n, what in (
        (numbers["up"], "push up"), (numbers["down"], "push down"), (numbers["still"], "do nothing")) if n]
    return f"{says}{', '.join(parts)}.".replace("-", MINUS)


INSTRUMENT = Instrument(
    name="one-step", number=24, title="How does each row pull at the same tokens?",
    functions=("postgrad.training.objectives.policy_objective",),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="One recorded group of replies, and the pull of every row of the table at every token of them.",
)
