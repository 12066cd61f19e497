"""2. The preference labeller: pairs of real answers, one key a label, and a small reward model that is
trained anew after each on the labels so far. Every fourth label is kept back to test it; 200 pairs of other
questions, whose true quality is known in code, say how well it ranks what nobody labelled."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache

from postgrad.studio.instruments.base import Instrument
from postgrad.studio.recordings import FOLDER, recorded

KEYS = {"a": "First is better", "b": "Second is better", "t": "Tie", "s": "Skip"}
KEPT = 4        # every so many labels, one is kept back
SHOWN = 5       # unseen pairs whose scores are shown, each of another question


@dataclass(frozen=True)
class State:
    labels: str = ""


def settle(state: State) -> State:
    """Labels of items that are there, in letters that mean something."""
    strange = set(state.labels) - set(KEYS)
    if strange:
        raise ValueError("labels has a letter for each pair: a or b (better), t (tie) or s (skip); not "
                         f"{min(strange)!r}.")
    return State(state.labels[: len(recorded("pairs")["to_label"])])


@lru_cache(maxsize=1)
def vectors() -> tuple:
    """The features of both answers of each pair, as reward_head.features made them: to label [N, 2, D],
    unseen [M, 2, D]."""
    from safetensors.torch import load_file

    from postgrad.studio.reward_head import standardised
    found = {name: x.double() for name, x in load_file(FOLDER / "features.safetensors").items()}
    like = found["to_label"].flatten(0, 1)
    return standardised(found["to_label"], like), standardised(found["unseen"], like)


def used(labels: str) -> list[int]:
    """The items that are trained on: labelled, not skipped, not kept back."""
    return [i for i, label in enumerate(labels) if label != "s" and not kept_back(i)]


@lru_cache(maxsize=512)
def trained(labels: str):
    """The head after these labels."""
    from postgrad.studio.reward_head import fit, share
    x, _ = vectors()
    return fit(x[used(labels), 0], x[used(labels), 1], share([labels[i] for i in used(labels)]))


@lru_cache(maxsize=512)
def on_unseen(labels: str) -> float:
    """How often the head ranks an unseen pair as the true quality does."""
    if labels and len(labels) - 1 not in used(labels):
        return on_unseen(labels[:-1])  # the last label changed nothing
    import torch

    from postgrad.studio.reward_head import accuracy
    _, y = vectors()
    quality = torch.tensor([item["quality"] for item in recorded("pairs")["unseen"]])
    return accuracy((y[:, 0] - y[:, 1]) @ trained(labels), quality[:, 0] - quality[:, 1])


def kept_back(i: int) -> bool:
    return i % KEPT == KEPT - 1


def annotator(items: list[dict], *, noise: float, length_bias: float) -> str:
    """The labels of the task's own simulated annotator: quality, a liking for long replies, and errors."""
    rng, out = random.Random("annotator"), ""
    for item in items:
        a, b = (q + length_bias * len(text.split())
                for q, text in zip(item["quality"], item["answers"], strict=True))
        u = rng.uniform(1e-9, 1 - 1e-9)
        out += "a" if a - b + noise * math.log(u / (1 - u)) > 0 else "b"
    return out


def others(items: list[dict], labels: str) -> dict[str, str]:
    """Somebody else labels what is left: one who knows the true quality, the task's annotator,
    one who looks at the length."""
    from postgrad.tasks.questions import ANNOTATORS
    longer = "".join("a" if len(item["answers"][0]) > len(item["answers"][1]) else "b" for item in items)
    truth = "".join("a" if item["quality"][0] > item["quality"][1] else "b" for item in items)
    return {"by the true quality": labels + truth[len(labels):],
            "by the task’s annotator, who errs": labels
                                                 + annotator(items, **ANNOTATORS["questions"])[len(labels):],
            "by length, the longer wins": labels + longer[len(labels):]}


def last_pair(labels: str) -> dict | None:
    """The last label that was trained on, worked: rewards, probability, loss, by the head that came of it."""
    import torch

    from postgrad.maths.preference import bradley_terry
    if not used(labels):
        return None
    i, zero = used(labels)[-1], torch.zeros((), dtype=torch.float64)
    a, b = (vectors()[0][i] @ trained(labels)).unbind()
    first, second = bradley_terry(a, b, zero), bradley_terry(b, a, zero)
    loss = {"a": first, "b": second, "t": (first + second) / 2}[labels[i]]
    return {"number": i + 1, "label": labels[i], "a": float(a), "b": float(b), "p": float((-first).exp()),
            "loss": float(loss)}


def judged(item: dict, scores: list[float]) -> dict:
    right = (scores[0] > scores[1]) == (item["quality"][0] > item["quality"][1])
    return {**item, "scores": scores, "right": right}


def compute(state: State) -> dict:
    import torch

    from postgrad.studio.reward_head import accuracy
    data, labels = recorded("pairs"), state.labels
    items, at = data["to_label"], len(labels)
    counted = [i for i, label in enumerate(labels) if label != "s"]
    back = [i for i in counted if kept_back(i)]
    numbers = {
        "labels": labels, "at": at, "count": len(items), "item": items[at] if at < len(items) else None,
        "says": KEYS, "next": {key: labels + key for key in KEYS} if at < len(items) else {},
        "undo": labels[:-1] if labels else None, "others": others(items, labels) if at < len(items) else {},
        "kept_back": at < len(items) and kept_back(at), "given": len(counted),
        "trained_on": len(counted) - len(back), "held_out": len(back), "held_out_accuracy": None, "curve": [],
        "accuracy": None, "unseen": [], "unseen_pairs": len(data["unseen"]), "worked": None,
    }
    if not counted:
        return numbers
    x, y = vectors()
    w = trained(labels)
    if back:
        sign = torch.tensor([{"a": 1, "b": -1, "t": 0}[labels[i]] for i in back])
        numbers["held_out_accuracy"] = accuracy((x[back, 0] - x[back, 1]) @ w, sign)
    first = list({item["question"]: i for i, item in reversed(list(enumerate(data["unseen"])))}.values())[
        -SHOWN:]
    return numbers | {
        "curve": [(n, on_unseen(labels[:n])) for n in range(at + 1)], "accuracy": on_unseen(labels),
        "worked": last_pair(labels),
        "unseen": [judged(data["unseen"][i], (y[i] @ w).tolist()) for i in sorted(first)],
    }


def insight(numbers: dict) -> str:
    if not numbers["given"]:
        return ("How good an answer is, on a scale, is hard to say; which of two is better is easy. Press "
                "a, b or t: a reward model is trained after each label.")
    n, share = numbers["trained_on"], 100 * numbers["accuracy"]
    found = (f"After {n} {'label' if n == 1 else 'labels'} the model ranks {share:.0f} % of "
             f"{numbers['unseen_pairs']} unseen pairs as the true quality does")
    if n < 8:
        return f"{found}: so few are a first guess, and a coin is right in 50 %."
    if share < 55:
        return f"{found}. It has learned these labels, and they are about something else than quality."
    return (f"{found}, against 50 % of a coin: a few dozen comparisons already carry over to questions that "
            "nobody labelled.")


INSTRUMENT = Instrument(
    name="preference-labeller", number=2, title="Which is better? A few dozen answers make a reward model",
    functions=("postgrad.maths.preference.bradley_terry", "postgrad.studio.reward_head.fit",
               "postgrad.studio.reward_head.features"),
    state=State, controls=(), compute=compute, insight=insight, settle=settle,
    about="Real answers of the package’s model to simple questions; the reward model trains as you label.",
)
