"""Instrument 21, the token MDP: a recorded reply as an episode, state by state, or as a bandit's one pull."""

from __future__ import annotations

from dataclasses import dataclass

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider, as_percent
from postgrad.studio.json_types import JsonDict
from postgrad.studio.recordings import recording

KINDS = {"right": 0, "wrong": 1}
VIEWS = {"token": "token by token", "answer": "as one action"}
MOST = 30  # tokens of a recorded reply, at most


@dataclass(frozen=True)
class State:
    reply: str = "right"
    view: str = "token"
    step: int = 1


STOPS = ("the prompt", *(f"{k} token{'s' if k > 1 else ''} written" for k in range(1, MOST + 1)))
CONTROLS = (
    ChoiceControl("reply", "Reply", tuple((key, key) for key in KINDS)),
    ChoiceControl("view", "The action is", (("token", "a token"), ("answer", "the answer"))),
    Slider("step", "State", 0, MOST, 1, stops=STOPS),
)


def compute(state: State) -> JsonDict:
    """The episode up to a state: its tokens, those that may come next, rewards and returns."""
    import torch

    from postgrad.maths.credit import place_reward, reward_to_go
    from postgrad.maths.preference import sum_logp

    data = recording("token_mdp")
    reply = data["replies"][KINDS[state.reply]]
    steps = reply["steps"]
    logp = torch.tensor([[one["chance"] for one in steps]], dtype=torch.float64).log()
    mask = torch.ones_like(logp, dtype=torch.bool)
    reward = place_reward(torch.tensor([reply["score"]], dtype=torch.float64), mask)
    returns = reward_to_go(reward, mask, 1)
    at = min(state.step, len(steps))
    whole = sum_logp(logp, mask).exp().item()
    coming = steps[at]["likeliest"] if at < len(steps) else []
    taken = steps[at] if at < len(steps) else None
    shown = [[text, chance, taken is not None and text == taken["token"]] for text, chance in coming]
    if taken and not any(mine for *_, mine in shown):
        shown = [*shown[:-1], [taken["token"], taken["chance"], True]]
    return {
        "view": state.view, "reply": state.reply, "question": data["question"], "model": data["model"],
        "vocabulary": data["vocabulary"], "tokens": [one["token"] for one in steps], "at": at,
        "length": len(steps), "taken": taken and taken["token"], "chance": taken and taken["chance"],
        "coming": shown, "rewards": reward[0].tolist(), "returns": returns[0].tolist(),
        "score": reply["score"], "reason": reply["reason"], "whole": round(whole, 8),
        "path": [[k, round(x, 6)] for k, x in enumerate([0.0, *logp[0].cumsum(0).tolist()])],
        "likeliest": coming[0] if coming else None,
    }


def shown_token(text: str) -> str:
    return f"“{text}”" if text.strip() else "a space"


def insight(numbers: JsonDict) -> str:
    length, score = numbers["length"], f"{numbers['score']:.0f}"
    if numbers["view"] == "answer":
        return (f"One state, one action: the whole answer of {length} tokens, which the model writes with a "
                f"probability of {as_percent(numbers['whole'], 2)}. One reward, {score}. Nothing says which "
                "token it was for.")
    if numbers["at"] == length:
        return (f"The episode ends after {length} tokens with a reward of {score}: {numbers['reason']}. Each "
                "state before it had the same return, and no reward of its own.")
    token, chance = shown_token(numbers["taken"]), as_percent(numbers["chance"])
    best, most = numbers["likeliest"]
    if best != numbers["taken"]:
        return (f"Action {numbers['at'] + 1} of {length}: {token}, drawn with a probability of {chance}; "
                f"{shown_token(best)} had {as_percent(most)}. The next state is this one with the token "
                "appended.")
    return (f"Action {numbers['at'] + 1} of {length}: {token}, the likeliest of {numbers['vocabulary']} "
            f"tokens with {chance}. The next state is this one with the token appended.")


INSTRUMENT = Instrument(
    name="token-mdp", number=21, title="Is an answer one action, or one action a token?",
    functions=("postgrad.maths.credit.place_reward", "postgrad.maths.credit.reward_to_go",
               "postgrad.maths.preference.sum_logp"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="A recorded reply as an episode: the state, what the model might have written next, the reward.",
)
