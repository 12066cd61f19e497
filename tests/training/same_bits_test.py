"""Nothing in a step of training depends on which thread comes first."""

from types import SimpleNamespace

import pytest
import torch
from foreign_small import small_folders
from small import small_model

from postgrad.maths.packing import pack, take_rows
from postgrad.methods import METHODS
from postgrad.models import ScalarModel
from postgrad.resolve.models import open_model
from postgrad.training import objectives
from tests.training.batches.microbatch_test import step_of

# backward passes that threads add up together, in the order in which they come
UNORDERED = {"IndexBackward0", "TakeBackward0", "IndexPutBackward0", "PutBackward0"}


def backward_of(*tensors):
    """The names of all functions in the backward pass of these."""
    waiting, seen = [x.grad_fn for x in tensors], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [before for before, _ in node.next_functions]
    return {node.name() for node in seen}


def rows():
    """Rows of three groups that each share a prompt."""
    tokens = torch.randint(6, 500, (6, 9), generator=torch.Generator().manual_seed(0))
    tokens[1::2, :4] = tokens[::2, :4]
    mask = (torch.arange(9) >= 4).expand(6, 9)
    return tokens, mask, torch.full((6,), 9)


def test_rows_are_taken_as_by_an_index_and_the_gradient_has_one_order():
    index = torch.tensor([[0, 2, 2], [1, 2, 0]])
    for shape in ((3,), (3, 4)):
        x = torch.randn(*shape, generator=torch.Generator().manual_seed(1), requires_grad=True)
        y = take_rows(x, index)
        assert torch.equal(y, x[index]) and not backward_of(y) & UNORDERED
        y.sum().backward()
        assert x.grad.view(3, -1)[:, 0].tolist() == [2, 1, 3]


@pytest.mark.parametrize("kind", ["own", "foreign"])
def test_what_a_model_says_has_a_gradient_of_one_order(kind, tmp_path_factory):
    model = small_model() if kind == "own" else open_model(small_folders(tmp_path_factory)("gpt2"))[0]
    tokens, mask, lengths = rows()
    packed = pack(lengths, tokens, mask)
    judge = ScalarModel(model)
    said = (*model.logp(tokens, mask, packed=packed), model.hidden(tokens), judge.scores(tokens, lengths),
            judge.token_scores(tokens, packed), judge.value(tokens, packed))
    assert not backward_of(*said) & UNORDERED


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_of_every_row_has_a_gradient_of_one_order(name):
    method = METHODS[name]
    _, batch = step_of(method)
    judge = ScalarModel(small_model())
    scores = getattr(method, "score", "none") is None
    models = SimpleNamespace(policy=judge if scores else small_model(), critic=judge, teacher=small_model())
    for micro in batch.split(64):
        loss, _ = objectives.build_objective(method, 0.8)(models, micro)
        assert not backward_of((loss * micro.weight).sum()) & UNORDERED
