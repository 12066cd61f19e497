"""The loss of a step is one sum, however it is cut: bit for bit in float64, for every row of the table."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from toy import every_choice

from postgrad.maths.weights import token_mean
from postgrad.methods import METHODS
from postgrad.methods.row import row_functions
from postgrad.records import Batch
from postgrad.system.user_code import function_name
from postgrad.training import objectives
from postgrad.training.stats import Stats

UNITS, LONG, WORDS = 8, 23, 5
D = torch.float64


class Tables:
    """A policy, critic and scalar head in which every row has entries of its own;
    column 0 holds the row's number."""

    def __init__(self, rows, draw):
        self.words = torch.randn(rows, LONG, WORDS, generator=draw, dtype=D).requires_grad_()
        self.values = torch.randn(rows, LONG, generator=draw, dtype=D).requires_grad_()

    def logp(self, tokens, mask, temperature=1.0, packed=None):
        every = torch.log_softmax(self.words[tokens[:, 0], : tokens.shape[1]] / temperature, -1)
        chosen = every.gather(-1, (tokens % WORDS)[..., None]).squeeze(-1)
        return torch.where(mask, chosen, 0.0), torch.where(mask, -(every.exp() * every).sum(-1), 0.0)

    def choices(self, tokens, mask, packed=None):
        return every_choice(self.words[tokens[:, 0], : tokens.shape[1]], mask)

    def value(self, tokens, packed=None):
        return self.values[tokens[:, 0], : tokens.shape[1]]

    token_scores = value

    def scores(self, tokens, lengths, packed=None):
        return self.values[tokens[:, 0], lengths - 1][:, None]


def step_of(method):
    """Models and a batch with rows of very different lengths, off policy,
    with every column that a row may ask for."""
    draw = torch.Generator().manual_seed(3)
    by_mark = method.source in ("steps", "outcomes")
    per_unit = 2 if method.kind == "preference" and method.source != "singles" and not by_mark else 1
    rows = UNITS * per_unit
    lengths = torch.tensor([3, 23, 7, 4, 17, 5, 2, 11] * per_unit)
    columns = torch.arange(LONG)[None]
    mask = (columns >= 1 + torch.arange(rows)[:, None] % 3) & (columns < lengths[:, None])
    tokens = torch.randint(0, WORDS, (rows, LONG), generator=draw)
    tokens[:, 0] = torch.arange(rows)
    models = SimpleNamespace(policy=Tables(rows, draw), critic=None, teacher=None)
    models.critic = models.policy
    logp = models.policy.logp(tokens, mask)[0].detach()
    shifted = {name: logp + 0.3 * torch.randn(rows, LONG, generator=draw, dtype=D)
               for name in ("old_logp", "ref_logp", "teacher_logp")}
    random = {name: torch.randn(rows, LONG, generator=draw, dtype=D) for name in ("adv", "value", "returns")}
    by_token = {name: torch.where(mask, x, 0.0) for name, x in (shifted | random).items()}
    by_unit = {name: torch.randn(UNITS, generator=draw, dtype=D) for name in ("margin", "baseline")}
    weigh = getattr(method, "weigh", token_mean)
    weigh = partial(weigh, group_size=4) if method.kind == "policy" and method.columns_of("weigh") else weigh
    by_pair = method.kind == "preference" and not by_mark
    weight = torch.rand(UNITS, generator=draw, dtype=D) if by_pair else weigh(mask, LONG).to(D)
    models.teacher = Tables(rows, draw)
    label = torch.tensor([1.0, -1.0] * (UNITS // 2), dtype=D)
    batch = Batch(
        ids=tuple(map(str, range(rows))), tokens=tokens, mask=mask, lengths=lengths, weight=weight,
        rows_per_unit=per_unit, label=label[:, None].expand(rows, LONG) * mask if by_mark else label,
        sampler_logp=logp, marked=mask & (tokens % 3 == 0), **by_token, **by_unit,
    )
    return models, batch


def passes(method, models, batch, tokens_per_pass):
    """Terms loss * weight by (row or unit, column), the gradients, and the merged statistics of one step."""
    objective, stats, terms, at = objectives.build_objective(method, 0.8), Stats(), {}, 0
    parts = list(batch.split(tokens_per_pass))
    for micro in parts:
        loss, seen = objective(models, micro)
        term = loss * micro.weight
        terms |= {(at + i, t): x for i, row in enumerate(term.view(len(term), -1).tolist())
                  for t, x in enumerate(row) if x}
        at += len(term)
        term.sum().backward()
        stats.add(seen)
    grads = [x.grad.clone() if x.grad is not None else torch.zeros_like(x)
             for x in (models.policy.words, models.policy.values)]
    models.policy.words.grad = models.policy.values.grad = None
    return len(parts), terms, grads, stats


def of_maths(method):
    """Whether its functions are those of maths/. Another function may have a sigmoid of a vector, whose last
    bit depends on where in the vector an element stands."""
    functions = row_functions(method).values()
    return all(function_name(function).startswith("postgrad.maths.") for function in functions)


@pytest.mark.parametrize("name", METHODS)
def test_any_split_is_the_whole_bit_for_bit(name):
    method = METHODS[name]
    models, batch = step_of(method)
    count, terms, grads, stats = passes(method, models, batch, 10**9)
    assert count == 1 and len(terms) >= UNITS // 2 and any(g.any() for g in grads)
    counts = set()
    for tokens_per_pass in (1, 20, 47, 90, 200):
        parts, split_terms, split_grads, split_stats = passes(method, models, batch, tokens_per_pass)
        counts.add(parts)
        if of_maths(method):  # every term, to the last bit
            assert split_terms == terms
            assert math.fsum(split_terms.values()) == math.fsum(terms.values())
            assert all(torch.equal(a, b) for a, b in zip(split_grads, grads, strict=True))
        assert split_terms == pytest.approx(terms, rel=1e-14, abs=1e-16)
        assert all(torch.allclose(a, b, rtol=1e-13) for a, b in zip(split_grads, grads, strict=True))
        assert split_stats.results() == pytest.approx(stats.results(), rel=1e-12)
        for column, rows in stats.columns.items():
            for whole, part in zip(rows, split_stats.columns[column], strict=True):
                assert torch.equal(whole[: len(part)], part) and not whole[len(part) :].any()
    assert len(counts) >= 3  # the sizes did cut the batch differently


def test_a_mean_of_means_is_not_the_token_mean():
    method = METHODS["sft"]
    models, batch = step_of(method)
    objective = objectives.build_objective(method)
    whole = (objective(models, batch)[0] * batch.weight).sum().item()
    parts = list(batch.split(50))
    exact = sum((objective(models, part)[0] * part.weight).sum().item() for part in parts)
    # weights taken again for each micro-batch
    own = [replace(part, weight=token_mean(part.mask, LONG)) for part in parts]
    of_means = sum((objective(models, part)[0] * part.weight).sum().item() for part in own) / len(own)
    assert exact == pytest.approx(whole, rel=1e-12)
    assert abs(of_means - whole) > 0.002
