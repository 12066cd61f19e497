"""A reward model small enough to be trained while somebody waits: the head alone, on a body that stands still.

The features of an answer are tiny-chat's last hidden state at its last token, where a reward model's head reads. The loss is
the library's bradley_terry, a tie is half a win each way, and a weak prior keeps few labels from being believed without limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PRIOR = 0.01  # the weight of |w|^2 / 2; of 0.01, 0.1 and 1 what does best on unseen pairs after 16 to 40 labels
MODEL = "tiny-chat"


def features(answers: Sequence[tuple[str, str]]) -> Tensor:  # (question, answer) x N -> [N, D]
    """The hidden state at the end of each answer."""
    import torch

    from postgrad.chat import Chat
    from postgrad.models import find_model, load_model
    from postgrad.records import Prompt, pad_rows
    folder = find_model(MODEL)
    model, chat = load_model(folder), Chat.load(folder)
    rows = [chat.answer(Prompt.ask(question).messages, answer)[0] for question, answer in answers]
    ends = torch.tensor([len(row) - 1 for row in rows])
    with torch.no_grad():
        return model.hidden(pad_rows(rows))[torch.arange(len(rows)), ends].double()


def standardised(x: Tensor, like: Tensor) -> Tensor:  # [N, D], [M, D] -> [N, D]
    """In units of the spread of `like`, and short: a row has a length of about 1."""
    return (x - like.mean(0)) / like.std(0).clamp(min=1e-6) / like.shape[1] ** 0.5


def fit(a: Tensor, b: Tensor, labels: str) -> Tensor:  # [N, D], [N, D], "abt..." -> w [D]
    """The head that minimises the mean of -log sigmoid(w.winner - w.loser) + PRIOR |w|^2 / 2, by L-BFGS.

    a: the first answer is better, b: the second, t: a tie, half of the loss each way.
    """
    import torch

    from postgrad.maths.preference import bradley_terry
    if len(labels) != len(a) or set(labels) - set("abt"):
        raise ValueError(f"labels are {labels!r}: expected one of a, b and t for each of {len(a)} pairs.")
    w = torch.zeros(a.shape[1], dtype=a.dtype, requires_grad=True)
    if not labels:
        return w.detach()
    first = torch.tensor([{"a": 1.0, "b": 0.0, "t": 0.5}[label] for label in labels], dtype=a.dtype)
    zero = torch.zeros(len(labels), dtype=a.dtype)
    optim = torch.optim.LBFGS([w], max_iter=60, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def closure():
        optim.zero_grad()
        loss = first * bradley_terry(a @ w, b @ w, zero) + (1 - first) * bradley_terry(b @ w, a @ w, zero)
        total = loss.mean() + PRIOR / 2 * (w**2).sum()
        total.backward()
        return total

    optim.step(closure)
    return w.detach()


def accuracy(gap: Tensor, label: Tensor) -> float:  # [N], [N]
    """The share of pairs ranked as labelled: above 0 the first is better. A gap of exactly 0 or a tie (0) counts half."""
    import torch
    right = torch.where((gap == 0) | (label == 0), 0.5, ((gap > 0) == (label > 0)).double())
    return float(right.mean()) if len(right) else float("nan")
