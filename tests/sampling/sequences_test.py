"""What nobody has to look at yet: tokens and log-probs in arrays, seeds not yet made, rows on a device."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import torch
from small import CHAT, PROMPTS, small_model

from postgrad.maths.noise import seed_of
from postgrad.maths.packing import concat_rows, to_cpu
from postgrad.records import Rollout
from postgrad.sampling import LocalSampler, Sampling
from postgrad.sampling.sequences import ArrayTuple
from postgrad.sampling.token_sampler import RowSeeds
from postgrad.training.batches.checkpointing import dump_rollout, pick_rows
from postgrad.training.batches.columns import rollout_batch


def test_numbers_of_a_sampler_are_a_tuple_to_all_who_look():
    array = np.array([0.1, -2.5, 3.0], np.float32)
    numbers, plain = ArrayTuple(array[:2]), (float(np.float32(0.1)), -2.5)
    assert numbers == plain and plain == numbers and numbers == ArrayTuple(array[:2].copy())
    assert numbers != ArrayTuple(array) and numbers != plain[:1] and hash(numbers) == hash(plain)
    assert [*numbers] == [*plain] and numbers[-1] == -2.5 and numbers[:1] == plain[:1] and len(numbers) == 2
    assert (1.0,) + numbers + (2.0,) == (1.0, *plain, 2.0) and repr(numbers) == repr(plain)
    assert type(pickle.loads(pickle.dumps(numbers))) is tuple
    assert concat_rows([numbers, numbers], np.float32).tolist() == [*plain, *plain]
    assert concat_rows([numbers, plain], np.float32).tolist() == [*plain, *plain]  # beside others


def test_rollouts_of_a_sampler_are_kept_and_made_into_rows_as_those_of_tuples():
    (group,) = LocalSampler(small_model(), CHAT).sample(PROMPTS[:1], 4, Sampling(max_new_tokens=6), 0)
    assert all(isinstance(x, ArrayTuple) for r in group for x in (r.tokens, r.logp))
    plain = [replace(r, tokens=tuple(r.tokens), logp=tuple(r.logp)) for r in group]
    assert plain == group and [dump_rollout(r) for r in group] == [dump_rollout(r) for r in plain]
    assert all(type(dump_rollout(r)[name]) is tuple for r in group for name in ("tokens", "logp"))
    mine, theirs = rollout_batch(group), rollout_batch(plain)
    for name in ("tokens", "mask", "lengths", "sampler_logp"):
        assert torch.equal(getattr(mine, name), getattr(theirs, name))
    assert [r.text for r in group] == [CHAT.decode(r.tokens) for r in plain]


def test_the_seeds_of_a_call_are_made_when_a_row_begins():
    seeds = RowSeeds(3, ["a", "b", "a"], 2)
    assert len(seeds) == 6 and "made" not in vars(seeds)
    assert [*seeds] == [seed_of(3, name, i) for name, i in
                        (("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2), ("a", 3))]


def test_rows_that_were_sent_are_packed_and_picked_without_asking_the_device():
    rows = [Rollout(prompt=PROMPTS[0], prompt_tokens=(1, 5, 9), tokens=(7, 2, i), logp=(-0.1, -0.7, 0.0),
                    text="", finished=True, seed=0) for i in range(4)]
    batch = rollout_batch(rows)
    away = batch.to("meta")  # has no numbers that could be read
    for mine, there in ((batch, away), (pick_rows(batch, [3, 1]), pick_rows(away, [3, 1]))):
        for known, micro in zip(mine.split(6), there.split(6), strict=True):
            assert micro.tokens.is_meta and micro.tokens.shape == known.tokens.shape
            assert to_cpu(micro.packed.cells).tolist() == known.packed.cells.tolist()
            assert to_cpu(micro.packed.chosen).tolist() == known.packed.chosen.tolist()


def test_rollouts_become_rows_with_their_own_masks():
    one = Rollout(prompt=PROMPTS[0], prompt_tokens=(1, 5, 9), tokens=(7, 2), logp=(-0.1, -0.7), text="",
                  finished=True, seed=0)
    more = replace(one, prompt_tokens=(1, 5), tokens=(7, 8, 2), logp=(-0.5, 0.0, -0.25),
                   mask=(True, False, True))
    batch = rollout_batch([one, more])
    assert batch.tokens.tolist() == [[1, 5, 9, 7, 2], [1, 5, 7, 8, 2]] and batch.lengths.tolist() == [5, 5]
    assert batch.mask.int().tolist() == [[0, 0, 0, 1, 1], [0, 0, 1, 0, 1]]
    assert torch.equal(batch.sampler_logp, torch.tensor([[0, 0, 0, -0.1, -0.7], [0, 0, -0.5, 0, -0.25]]))
    assert batch.weight.dtype == torch.float32 and torch.equal(batch.weight.bool(), batch.mask)
