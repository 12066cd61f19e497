"""The self-test of a device, on the CPU; and sampling without float64, which MPS does not have."""

import json

import pytest
import torch
from small import PROMPTS
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from postgrad.cli import main
from postgrad.maths import noise
from postgrad.models.kernels import plain
from postgrad.recipes import device_check
from postgrad.records import Sampling
from postgrad.resolve.models import open_writer
from postgrad.sampling import LocalSampler, request_batch


def test_the_cpu_agrees_with_itself_and_a_fault_is_reported(capsys, monkeypatch):
    assert main(["env", "--check", "cpu"]) == 0
    report = json.loads(capsys.readouterr().out)["check"]
    assert report["agrees"] and report["training"] == 0 and report["sampling"] < 1e-5
    assert len(report["grpo"]) == 2 and all(row["grad_norm"] > 0 for row in report["grpo"])
    monkeypatch.setattr(device_check, "two_steps", lambda *how: [{"loss": 1.0, "grad_norm": 1.0}])
    monkeypatch.setattr(device_check, "sampled_gap", lambda device: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # no fault of a device
        device_check.check_device_numbers("cpu")

    def lacks(device):
        raise NotImplementedError("aten::searchsorted is not there")
    monkeypatch.setattr(device_check, "sampled_gap", lacks)
    report = device_check.check_device_numbers("cpu")
    assert not report["agrees"] and "aten::searchsorted is not there" in report["fault"]


def test_mps_is_refused_where_it_is_not_there(capsys, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert main(["env", "--check", "mps"]) == 2 and "no MPS here" in capsys.readouterr().err


class NoFloat64(TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **kwargs or {})
        for x in torch.utils._pytree.tree_leaves(out):
            assert not isinstance(x, torch.Tensor) or x.dtype != torch.float64, op.name()
        return out


def test_sampling_needs_no_float64(monkeypatch):
    for module in (noise, plain, request_batch):
        monkeypatch.setattr(module, "widest", Tensor.float)
    monkeypatch.setattr("postgrad.models.engine.kernels_for", lambda *how: plain)
    model, chat = open_writer("tiny-chat")
    with NoFloat64():
        groups = LocalSampler(model, chat).sample(PROMPTS[:2], 2, Sampling(max_new_tokens=6), 0)
    assert all(len(row.tokens) == len(row.logp) > 0 for group in groups for row in group)
    u = noise.uniform(torch.arange(10_000), torch.zeros(10_000, dtype=torch.int64))
    assert u.dtype == torch.float32 and 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.02
