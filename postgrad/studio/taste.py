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
STEPS = 12    # of Newton's method; the gradient is 0 to rounding after about eight
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


def standardised(x: Tensor, like: Tensor) -> Tensor:  # [..., D], [M, D] -> [..., D]
    """In units of the spread of `like`, and short: a row has a length of about 1."""
    return (x - like.mean(0)) / like.std(0).clamp(min=1e-6) / like.shape[1] ** 0.5


def fit(a: Tensor, b: Tensor, labels: str) -> Tensor:  # [N, D], [N, D], "abt..." -> w [D]
    """The head that minimises the mean of -log sigmoid(w.winner - w.loser) + PRIOR |w|^2 / 2, by Newton's method.

    a: the first answer is better, b: the second, t: a tie, half of the loss each way. A pair's loss depends on w through its
    gap alone, so autograd's slope and curvature in the gaps are all that a step needs; and the best head lies in the span of
    the differences a - b, so it is looked for there: with few labels, in few dimensions.
    """
    import torch

    from postgrad.maths.preference import bradley_terry
    if len(labels) != len(a) or set(labels) - set("abt"):
        raise ValueError(f"labels are {labels!r}: expected one of a, b and t for each of {len(a)} pairs.")
    span, _ = torch.linalg.qr((a - b).T)  # [D, min(N, D)]
    x, w = (a - b) @ span, torch.zeros(span.shape[1], dtype=a.dtype)
    first = torch.tensor([{"a": 1.0, "b": 0.0, "t": 0.5}[label] for label in labels], dtype=a.dtype)
    zero, prior = torch.zeros_like(first), PRIOR * torch.eye(len(w), dtype=a.dtype)
    for _ in range(STEPS if labels else 0):
        gap = (x @ w).requires_grad_()
        loss = first * bradley_terry(gap, zero, zero) + (1 - first) * bradley_terry(zero, gap, zero)
        (slope,) = torch.autograd.grad(loss.mean(), gap, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), gap)
        pull = x.T @ slope.detach() + PRIOR * w
        w = w - torch.linalg.solve(x.T @ (curvature[:, None] * x) + prior, pull)
    return span @ w


def accuracy(gap: Tensor, label: Tensor) -> float:  # [N], [N]
    """The share of pairs ranked as labelled: above 0 the first is better. A gap of exactly 0 or a tie (0) counts half."""
    import torch
    right = torch.where((gap == 0) | (label == 0), 0.5, ((gap > 0) == (label > 0)).double())
    return float(right.mean()) if len(right) else float("nan")
