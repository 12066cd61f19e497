"""Normalisation as data: how much each token counts in the step's loss, (loss * weight).sum().

Fixed once per optimizer step.

    (mask [B, T], budget) -> weight [B, T]        budget: the most tokens a row may have been given; only
                                                  fixed_length uses it. prompt_mean takes group_size too
A row with an empty mask is not there: it gets no weight, and the others are weighed as if the batch had
been made without it.
"""

from __future__ import annotations

from torch import Tensor


def _rows(mask: Tensor) -> Tensor:
    """How many rows have something to train; at least 1, so that an empty batch has weight 0 and no NaN."""
    return mask.any(1).sum().clamp(min=1)


def token_mean(mask: Tensor, budget: int) -> Tensor:
    """1/N for each of the N tokens of the batch: long rows count for more (DAPO 2503.14476;
    supervised fine-tuning)."""
    return mask / mask.sum().clamp(min=1)


def sequence_mean(mask: Tensor, budget: int) -> Tensor:
    """1/(B |y_i|): the mean of sequence means.

    Every row counts the same, a token of a long row for less (GRPO 2402.03300).
    """
    return mask / (mask.sum(1, keepdim=True).clamp(min=1) * _rows(mask))


def prompt_mean(mask: Tensor, budget: int, *, group_size: int) -> Tensor:
    """1/(P n_p), n_p the tokens of all replies to a prompt: the mean of the P prompts' token means (ScaleRL
    2510.13786).

    Every prompt counts the same, and within it a token of every reply. With one prompt it is token_mean, with
    one reply a prompt sequence_mean.
    """
    tokens = mask.sum(1).reshape(-1, group_size).sum(1)
    there = (tokens > 0).sum().clamp(min=1)
    return mask / (tokens.clamp(min=1) * there).repeat_interleave(group_size)[:, None]


def fixed_length(mask: Tensor, budget: int) -> Tensor:
    """1/(B budget): every token of every row counts the same whatever the lengths are (Dr. GRPO
    2503.20783)."""
    return mask / (_rows(mask) * budget)


def sequence_sum(mask: Tensor, budget: int) -> Tensor:
    """1/B: the mean over rows of the sum over tokens, as in grad log pi(y) = sum_t grad log pi(y_t).

    budget x fixed_length.
    """
    return mask / _rows(mask)
