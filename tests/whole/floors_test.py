"""What the speed benchmarks reckon with: floors by hand,
and models that stop as often as they are told to."""

import pytest
import torch
from shapes import (
    SPECIAL,
    Rates,
    decode_floor,
    expected,
    forward_flops,
    matrices,
    new_chat,
    new_model,
    parameters,
    questions,
    shape,
    train_floor,
)

from postgrad.records import Prompt

SMALL = shape(1, 4, 2, 1, 8, 10)  # a head of 2; attention 4*2*(2+1+1+2) = 48, MLP 3*4*8 = 96, embedding 40


def test_by_hand():
    assert matrices(SMALL) == 144 and parameters(SMALL) == 196  # three norms of 4
    # 5 tokens in sequences of 6: 2*144 + 4*1*2*2*3 = 336 a token; 2 of them meet the head: 2*2*40
    assert forward_flops(SMALL, 5, 2, 6) == 5 * 336 + 160
    rates = Rates(flops=1840.0, bytes=1.0, item=4)
    assert train_floor(SMALL, rates, 5, 2, 6) == 3.0 and train_floor(SMALL, rates, 5, 2, 6, looks=1) == 4.0
    # one prompt of 2 tokens, two samples of 2: the prompt's pass, then a step that reads 196 weights
    # and 2 + 2 slots of 4
    free = Rates(flops=float("inf"), bytes=4.0, item=4)
    assert decode_floor(SMALL, free, 1, 2, 2, 2) == 196 + 16


def test_lengths():
    assert expected(0.5, 2) == 1.5 and expected(0.0, 48) == 48
    assert expected(1 / 128, 100_000) == pytest.approx(128)


@pytest.mark.parametrize("chance", [0.0, 0.05])
def test_a_model_stops_as_often_as_it_is_told_to(chance):
    model = new_model(shape(2, 32, 4, 2, 64, 200), chance)
    tokens = torch.randint(len(SPECIAL), 200, (16, 40), generator=torch.Generator().manual_seed(1))
    said, pad = (
        model.logits(tokens).softmax(-1)[..., [SPECIAL.index(x) for x in ("<|end|>", "<|pad|>")]].unbind(-1))
    assert pad.max() < 1e-15
    assert (said.max() < 1e-15 if chance == 0
            else 0.8 * chance < said.mean() < 1.25 * chance and said.max() < 2 * chance)


def test_prompts_have_the_length_that_was_asked_for():
    chat = new_chat(64)
    assert {len(chat.render(Prompt.ask(q).messages)) for q in questions(20, 16, 64)} == {16}
