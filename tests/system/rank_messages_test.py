"""What ranks exchange: every kind comes back as it was, and bytes that would run something are refused."""

import os
import pickle
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from postgrad.records import Prompt, Rollout, Scored, Verdict
from postgrad.system.rank_messages import LENGTH, decode_message, encode_message
from postgrad.training.stats import Mean, Stats

ROLLOUT = Rollout(prompt=Prompt.ask("2+3?", "5", row={"a": [1, None, 2.5]}), prompt_tokens=(1, 2),
                  tokens=(3,), logp=(-0.5,), text="5", finished=True, seed=7)


def test_plain_values_records_and_tensors_come_back():
    values = [None, True, "ö", 1e300, (1, [2, {"a": {3}}]), Path("runs/a"), Fraction(1, 3), np.arange(3.0),
              ROLLOUT, Scored(rollout=ROLLOUT, verdict=Verdict(score=1.0, parts={"a": 0.5}))]
    for value in values:
        back = decode_message(encode_message(value))
        assert np.array_equal(back, value) if isinstance(value, np.ndarray) else back == value
    stats = Stats({"loss": Mean(torch.tensor(3.0), 2.0)})
    assert decode_message(encode_message((torch.ones(2), stats)))[1].results() == stats.results()
    kinds = (torch.ones(2, 3).bfloat16().t(), torch.tensor(4), torch.zeros(0, dtype=torch.bool))
    shared = torch.arange(6)
    for one in (*kinds, shared[2:]):
        back = decode_message(encode_message({"x": one}))["x"]
        assert back.dtype == one.dtype and torch.equal(back, one)


class Runs:
    def __init__(self, function, *given):
        self.call = function, given

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("call", [
    (os.system, "touch OWNED"), (eval, "1/0"), (os.getenv, "HOME"), (__import__, "os"), (pickle.loads, b"N."),
    (torch.load, "x"), (np.load, "x"), (open, "OWNED", "w"), (print, "x"), (type, "A", (), {})])
def test_bytes_that_would_run_something_are_refused(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = bytes(LENGTH) + pickle.dumps(Runs(*call))
    with pytest.raises(ValueError, match=r"sent a .*and only plain values"):
        decode_message(data)
    assert not any(tmp_path.iterdir())


def test_the_modules_of_records_lend_nothing_else():
    for module, name in (("postgrad.records", "hashlib"), ("postgrad.records", "Prompt.ask"),
                         ("postgrad.training.stats", "torch"), ("postgrad.system.processes", "join_ranks"),
                         ("postgrad.training.batches.rollouts", "rollout_batches")):
        with pytest.raises(ValueError, match="only plain values"):
            decode_message(bytes(LENGTH) + f"c{module}\n{name}\n.".encode())


def test_damaged_bytes_are_refused_in_a_sentence():
    rng, sound = random.Random(0), encode_message({"x": torch.ones(4), "y": ROLLOUT})
    for _ in range(400):
        data = bytearray(sound[:rng.randrange(len(sound) + 1)] if rng.random() < 0.5 else sound)
        for _ in range(rng.randrange(1, 5) if data else 0):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            decode_message(bytes(data))
        except ValueError as refusal:
            assert "rank sent" in str(refusal)
