"""A model that is divided among ranks: what one of them reads, and how the whole is written."""

import gc
import weakref
from collections.abc import Mapping
from functools import partial

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from small import small_model

from postgrad.models import load_model, save_model, weights
from postgrad.models.weights import local_rows
from postgrad.training.distributed.sharding import shard_decoder


class Counted:
    """A safetensors file that counts the numbers that are read of it."""

    def __init__(self, read, *args, **options):
        self.read, self.file = read, safe_open(*args, **options)

    def __enter__(self):
        self.inside = self.file.__enter__()
        return self

    def __exit__(self, *fault):
        return self.file.__exit__(*fault)

    def keys(self):
        return self.inside.keys()

    def counting(self, x):
        self.read.append(x.numel())
        return x

    def get_tensor(self, name):
        return self.counting(self.inside.get_tensor(name))

    def get_slice(self, name):
        rows, counting = self.inside.get_slice(name), self.counting

        class Rows:
            get_dtype, get_shape = rows.get_dtype, rows.get_shape

            def __getitem__(self, which):
                return counting(rows[which])

        return Rows()


@pytest.fixture
def second_of_three():
    """This process as rank 1 of 3, the others only pretended."""
    from torch.testing._internal.distributed.fake_pg import FakeStore
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=3)
    yield
    torch.distributed.destroy_process_group()


def test_a_rank_reads_its_part_of_a_model_and_no_more(second_of_three, tmp_path, monkeypatch):
    save_model(whole := small_model(), tmp_path)
    read = []
    monkeypatch.setattr(weights, "safe_open", partial(Counted, read))
    model = load_model(tmp_path, divide=partial(shard_decoder, half=False))
    tensors = dict(whole.named_parameters())
    for name, p in model.named_parameters():
        part, rows = local_rows(p)
        assert p.requires_grad and torch.equal(part, tensors[name][rows]), name
        assert rows.start == -(-len(p) // 3)
    assert sum(read) == sum(local_rows(p)[0].numel() for p in model.parameters())
    assert sum(read) < 0.4 * sum(p.numel() for p in tensors.values())


def test_a_file_is_written_with_one_tensor_at_a_time(tmp_path):
    kinds = (torch.uint8, torch.float32, torch.bfloat16, torch.bool, torch.int64)
    made = []

    class Made(Mapping):
        """Tensors that are made when they are asked for, and gone before the next is."""

        def __getitem__(self, name):
            gc.collect()
            assert all(x() is None for x in made), "a tensor is still held"
            x = self.like(name).clone()
            made.append(weakref.ref(x))
            return x

        def like(self, name):
            return torch.arange(int(name), int(name) + 3).to(kinds[int(name)])

        def __iter__(self):
            return iter("01234")

        def __len__(self):
            return 5

    weights.write_tensors(Made(), tmp_path / "x.safetensors")
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == {*"01234"}
    assert all(torch.equal(x, Made().like(name)) and x.dtype == kinds[int(name)] for name, x in found.items())
