"""A reward model small enough to be trained while somebody waits:
the head alone, on a body that stands still.

The features of an answer are tiny-chat's last hidden state at its last token, where a reward model's head
reads. The loss is the library's bradley_terry, a tie is half a win each way, and a weak prior keeps few
labels from being believed without limit. The preference labeller and the live reward model of /label
both train by `fit`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from postgrad.maths.preference import bradley_terry
from postgrad.records import Message, Prompt

# the weight of |w|^2 / 2; of 0.01, 0.1 and 1 what does best on unseen pairs after 16 to 40 labels
PRIOR = 0.01
STEPS = 12    # of Newton's method, at most; the gradient is 0 to rounding after about eight
MODEL = "tiny-chat"


class FeatureReader:
    """What the embedded model makes of an answer. It stands still, so an answer is read once."""

    def __init__(self, model: str = MODEL):
        from postgrad.resolve.models import open_named_model
        opened = open_named_model(model)
        self.model, self.chat = opened.net, opened.chat

    @torch.no_grad()
    def read(self, messages: Sequence[Message], answers: Sequence[str]) -> Tensor | None:  # -> [answers, D]
        """The hidden state at the end of each answer; None where one is too long for the model."""
        rows = [self.chat.answer(messages, text)[0] for text in answers]
        if max(map(len, rows)) > self.model.config.max_position_embeddings:
            return None
        return torch.stack([self.model.hidden(torch.tensor([row]))[0, -1] for row in rows]).double()


def answer_features(answers: Sequence[tuple[str, str]]) -> Tensor:  # (question, answer) x N -> [N, D]
    """The hidden state at the end of each answer."""
    reader = FeatureReader()
    found = [reader.read(Prompt.ask(question).messages, [answer]) for question, answer in answers]
    return torch.cat([states for states in found if states is not None])


def standardised(x: Tensor, like: Tensor) -> Tensor:  # [..., D], [M, D] -> [..., D]
    """In units of the spread of `like`, and short: a row has a length of about 1."""
    return (x - like.mean(0)) / like.std(0).clamp(min=1e-6) / math.sqrt(like.shape[1])


def win_share(labels: Sequence[str]) -> Tensor:  # "abt..." -> [N]
    """How much of each pair the first answer has won: a all, b nothing, t (a tie) half."""
    if set(labels) - {"a", "b", "t"}:
        raise ValueError(f"labels are {''.join(labels)!r}: expected one of a, b and t for each pair.")
    return torch.tensor([{"a": 1.0, "b": 0.0, "t": 0.5}[label] for label in labels], dtype=torch.float64)


def fit_head(a: Tensor, b: Tensor, first: Tensor) -> Tensor:  # [N, D], [N, D], [N] -> w [D]
    """The head that minimises the mean of -log sigmoid(w.winner - w.loser) + PRIOR |w|^2 / 2,
    by Newton's method.

    first: how much of each pair the first answer has won (`share`). A pair's loss depends on w through its
    gap alone, so autograd's slope and curvature in the gaps are all that a step needs; and the best head lies
    in the span of the differences a - b, so it is looked for there: with few labels, in few dimensions.
    """
    if not len(a) == len(b) == len(first):
        raise ValueError(f"{len(a)} and {len(b)} answers have {len(first)} labels: expected one "
                         "for each pair.")
    span, _ = torch.linalg.qr((a - b).T)  # [D, min(N, D)]
    x, w = (a - b) @ span, torch.zeros(span.shape[1], dtype=a.dtype)
    zero, prior = torch.zeros_like(first), PRIOR * torch.eye(len(w), dtype=a.dtype)
    for _ in range(STEPS if len(first) else 0):
        gap = (x @ w).requires_grad_()
        loss = first * bradley_terry(gap, zero, zero) + (1 - first) * bradley_terry(zero, gap, zero)
        (slope,) = torch.autograd.grad(loss.mean(), gap, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), gap)
        pull = x.T @ slope.detach() + PRIOR * w
        if pull.abs().max() < 1e-12:
            break
        w = w - torch.linalg.solve(x.T @ (curvature[:, None] * x) + prior, pull)
    head: Tensor = span @ w
    return head


def ranking_accuracy(gap: Tensor, label: Tensor) -> float:  # [N], [N]
    """The share of pairs ranked as labelled: above 0 the first is better.

    A gap of exactly 0 or a tie (0) counts half.
    """
    right = torch.where((gap == 0) | (label == 0), 0.5, ((gap > 0) == (label > 0)).double())
    return float(right.mean()) if len(right) else float("nan")
