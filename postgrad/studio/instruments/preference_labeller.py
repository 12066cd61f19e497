"""2. The preference labeller: pairs of real answers, one key a label, and a small reward model that is
trained again after each on the labels so far. 200 pairs of other questions, whose true quality is known in
code, say how well it ranks what nobody labelled. Beside it a trial of ranking against rating, on the reader
(`trial`), and DPO on the labels (`studio.label_dpo`)."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from postgrad.studio.instruments import trial
from postgrad.studio.instruments.base import Instrument, Remark, as_percent, first_true
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.pages import num
from postgrad.studio.recordings import FOLDER, recording

if TYPE_CHECKING:
    from torch import Tensor

KEYS = {"a": "First is better", "b": "Second is better", "t": "Tie", "s": "Skip"}
SHOWN = 5       # unseen pairs whose scores are shown, each of another question
ENOUGH = 30     # labels that DPO is trained on


@dataclass(frozen=True)
class State:
    """labels: a letter for each pair. trial: what was answered so far; answer and seconds: the newest of it,
    which `settle` joins to it."""

    labels: str = ""
    trial: str = ""
    answer: str = ""
    seconds: float = 0.0


def settle(state: State) -> State:
    """Labels of items that are there, in letters that mean something."""
    strange = [letter for letter in state.labels if letter not in KEYS]
    if strange:
        raise ValueError("labels has a letter for each pair: a or b (better), t (tie) or s (skip); not "
                         f"{min(strange)!r}.")
    done = trial.with_answer(state.trial, state.answer, state.seconds)
    return State(state.labels[: len(recording("pairs")["to_label"])], done)


@lru_cache(maxsize=1)
def answer_vectors() -> Values:
    """The features of both answers of each pair, as reward_head.features made them: to label [N, 2, D],
    unseen [M, 2, D]."""
    from safetensors.torch import load_file

    from postgrad.studio.label.reward_head import standardised
    found = {name: x.double() for name, x in load_file(FOLDER / "features.safetensors").items()}
    like = found["to_label"].flatten(0, 1)
    return standardised(found["to_label"], like), standardised(found["unseen"], like)


def trained_items(labels: str) -> list[int]:
    """The items that are trained on: labelled and not skipped."""
    return [i for i, label in enumerate(labels) if label != "s"]


@lru_cache(maxsize=512)
def head_after(labels: str) -> Tensor:
    """The head after these labels."""
    from postgrad.studio.label.reward_head import fit_head, win_share
    x, _ = answer_vectors()
    return fit_head(x[trained_items(labels), 0], x[trained_items(labels), 1],
                    win_share([labels[i] for i in trained_items(labels)]))


@lru_cache(maxsize=512)
def unseen_accuracy(labels: str) -> float:
    """How often the head ranks an unseen pair as the true quality does."""
    if labels and len(labels) - 1 not in trained_items(labels):
        return unseen_accuracy(labels[:-1])  # the last label changed nothing
    import torch

    from postgrad.studio.label.reward_head import ranking_accuracy
    _, y = answer_vectors()
    quality = torch.tensor([item["quality"] for item in recording("pairs")["unseen"]])
    return ranking_accuracy((y[:, 0] - y[:, 1]) @ head_after(labels), quality[:, 0] - quality[:, 1])


def simulated_labels(items: list[JsonDict], *, noise: float, length_bias: float) -> str:
    """The labels of the task's own simulated annotator: quality, a liking for long replies, and errors."""
    rng, out = random.Random("annotator"), ""
    for item in items:
        a, b = (q + length_bias * len(text.split())
                for q, text in zip(item["quality"], item["answers"], strict=True))
        u = rng.uniform(1e-9, 1 - 1e-9)
        out += "a" if a - b + noise * math.log(u / (1 - u)) > 0 else "b"
    return out


@cache
def labelled_by() -> dict[str, str]:
    """The labels of somebody else: one who knows the true quality, the task's annotator, one who looks at the
    length."""
    from postgrad.data.tasks.questions import LENGTH_BIAS, NOISE
    items = recording("pairs")["to_label"]
    longer = "".join("a" if len(item["answers"][0]) > len(item["answers"][1]) else "b" for item in items)
    truth = "".join("a" if item["quality"][0] > item["quality"][1] else "b" for item in items)
    erring = simulated_labels(items, noise=NOISE, length_bias=LENGTH_BIAS["questions"])
    return {"by the true quality": truth, "by the task’s annotator, who errs": erring,
            "by length, the longer wins": longer}


def others_labels(labels: str) -> dict[str, str]:
    """Somebody else labels the rest."""
    return {who: labels + given[len(labels):] for who, given in labelled_by().items()}


@cache
def quality_in_words() -> str:
    """What the true quality of an answer is made of."""
    from postgrad.data.tasks import questions as q
    prices = {"filler": "a phrase of filler", "rude": "an insult", "invented": "a word that does not exist",
              "repetition": "a repetition", "length": f"a word beyond {q.FREE_WORDS}"}
    costs = ", ".join(f"{words} {num(-q.PRICES[name][0], 2)}" for name, words in prices.items())
    rude = q.RIGHT - q.PRICES["rude"][0]
    assert rude > q.WRONG, "the last clause would be false"
    return (f"a right answer {q.RIGHT:+g}, a wrong one {num(q.WRONG, 1)}, a greeting {q.GREETS:+g}, a polite "
            f"close {q.CLOSES:+g}, {costs}. So a right answer with an insult, {num(rude, 1)}, is worth more "
            "than a plain wrong one")


def last_pair(labels: str) -> JsonDict | None:
    """The last label that was trained on, worked: rewards, probability, loss, by the head that came of it."""
    import torch

    from postgrad.maths.preference import bradley_terry
    if not trained_items(labels):
        return None
    i, zero = trained_items(labels)[-1], torch.zeros((), dtype=torch.float64)
    a, b = (answer_vectors()[0][i] @ head_after(labels)).unbind()
    first, second = bradley_terry(a, b, zero), bradley_terry(b, a, zero)
    loss = {"a": first, "b": second, "t": (first + second) / 2}[labels[i]]
    return {"number": i + 1, "label": labels[i], "a": float(a), "b": float(b), "p": float((-first).exp()),
            "loss": float(loss)}


def judged_pair(item: JsonDict, scores: list[float]) -> JsonDict:
    alike = (scores[0] > scores[1]) == (item["quality"][0] > item["quality"][1])
    return {**item, "scores": scores, "alike": alike}


def label_gaps(labels: str) -> list[float]:
    """How much better the head that came of the labels finds the first answer of each pair to label."""
    x, _ = answer_vectors()
    gaps: list[float] = ((x[:, 0] - x[:, 1]) @ head_after(labels)).tolist()
    return gaps


def unseen_scores(labels: str, unseen: int) -> list[float]:
    """What the head says of both answers of an unseen pair."""
    scores: list[float] = (answer_vectors()[1][unseen] @ head_after(labels)).tolist()
    return scores


def label_table(items: list[JsonDict], labels: str) -> list[JsonDict]:
    """What was labelled, the newest first: the answer that won and the one that lost, and what the head that
    came of it says of the pair."""
    gaps, rows = label_gaps(labels), []
    for i, label in enumerate(labels):
        win, lose = items[i]["answers"] if label != "b" else items[i]["answers"][::-1]
        says = 1 / (1 + math.exp(-gaps[i] if label != "b" else gaps[i]))
        rows.append({"number": i + 1, "label": KEYS[label], "question": items[i]["question"], "win": win,
                     "lose": lose, "says": says if label in "ab" else None})
    return rows[::-1]


def compute(state: State) -> JsonDict:
    data, labels = recording("pairs"), state.labels
    items, at = data["to_label"], len(labels)
    left, given = at < len(items), len(trained_items(labels))
    numbers: JsonDict = {
        "labels": labels, "at": at, "count": len(items), "item": items[at] if left else None,
        "says": KEYS, "next": {key: labels + key for key in KEYS} if left else {},
        "undo": labels[:-1] if labels else None, "others": others_labels(labels) if left else {},
        "given": given, "curve": [], "accuracy": None, "unseen": [], "unseen_pairs": len(data["unseen"]),
        "worked": None, "quality": quality_in_words(), "table": [], "enough": ENOUGH,
        "trial": trial.trial_state(state.trial, items),
    }
    if not given:
        return numbers
    first = list({item["question"]: i for i, item in reversed(list(enumerate(data["unseen"])))}.values())[
        -SHOWN:]
    return numbers | {
        "curve": [(n, unseen_accuracy(labels[:n])) for n in range(at + 1)],
        "accuracy": unseen_accuracy(labels),
        "worked": last_pair(labels), "table": label_table(items, labels),
        "unseen": [judged_pair(data["unseen"][i], unseen_scores(labels, i)) for i in sorted(first)],
    }


def accuracy_text(n: JsonDict) -> str:
    labels = "label" if n["given"] == 1 else "labels"
    return (f"After {n['given']} {labels} the model ranks {as_percent(n['accuracy'])} of "
            f"{n['unseen_pairs']} unseen pairs as their true quality does")


insight = first_true(
    Remark(lambda n: not n["given"],
           lambda n: "Which of the two is better? Press a, b or t: a reward model is trained after each "
                     "label."),
    Remark(lambda n: n["given"] < 8,
           lambda n: f"{accuracy_text(n)}: so few are a first guess, and a coin is right in 50 %."),
    Remark(lambda n: n["accuracy"] < 0.55,
           lambda n: f"{accuracy_text(n)}, and a coin 50 %: what it has learned of these labels is hardly "
                     "that quality."),
    Remark(lambda n: n["accuracy"] >= 0.55,
           lambda n: f"{accuracy_text(n)}, against 50 % of a coin: the labels carry over to questions that "
                     "nobody labelled."),
)


INSTRUMENT = Instrument(
    name="preference-labeller", number=2, title="Which is better? A few dozen answers make a reward model",
    functions=("postgrad.maths.preference.bradley_terry", "postgrad.studio.label.reward_head.fit_head",
               "postgrad.studio.label.reward_head.answer_features"),
    state=State, controls=(), compute=compute, insight=insight, settle=settle,
    about="Real answers of the package’s model to simple questions; the reward model trains as you label.",
)
