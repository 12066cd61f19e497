"""Adapters: off is the base bit for bit, merged is on, and nothing but adapters trains."""

import pytest
import torch

from postgrad.models import load_model
from postgrad.models.lora import TARGETS, adapters, adapters_off, add_lora, merge

TOKENS = torch.randint(0, 1024, (3, 30), generator=torch.Generator().manual_seed(0))
MASK = torch.arange(30)[None].expand(3, 30) > 4


def adapted(rank=4, train=True, **options):
    """The tiny model with adapters, after three steps of making some tokens likelier."""
    model = add_lora(load_model("tiny"), rank=rank, generator=torch.Generator().manual_seed(1), **options)
    if train:
        adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        for _ in range(3):
            adam.zero_grad()
            (-model.logp(TOKENS, MASK)[0].sum() / MASK.sum()).backward()
            adam.step()
    return model


@pytest.fixture(scope="module")
def base():
    return load_model("tiny")


def test_a_new_adapter_changes_nothing(base):
    assert torch.equal(adapted(train=False).hidden(TOKENS), base.hidden(TOKENS))


def test_off_is_the_base_bit_for_bit(base):
    model = adapted()
    on = model.hidden(TOKENS)
    assert (on - base.hidden(TOKENS)).abs().max() > 0.01
    with adapters_off(model) as same:
        assert same is model and torch.equal(model.hidden(TOKENS), base.hidden(TOKENS))
        assert torch.equal(model.logp(TOKENS, MASK)[0], base.logp(TOKENS, MASK)[0])
    assert torch.equal(model.hidden(TOKENS), on)
    with pytest.raises(RuntimeError), adapters_off(model):
        raise RuntimeError("a fault inside the block")
    assert torch.equal(model.hidden(TOKENS), on)


def test_merged_is_on(base):
    model = adapted().double()
    on = model.hidden(TOKENS)
    plain = merge(model)
    assert plain is model and not adapters(plain)
    assert {k: v.shape for k, v in plain.state_dict().items()} == {k: v.shape for k, v in base.state_dict().items()}
    torch.testing.assert_close(plain.hidden(TOKENS), on, rtol=1e-10, atol=1e-10)
    single = adapted()
    on = single.logp(TOKENS, MASK)[0]
    torch.testing.assert_close(merge(single).logp(TOKENS, MASK)[0], on, rtol=1e-6, atol=1e-5)


def test_one_layer_by_hand():
    """W x + (alpha / rank) B A x, and the merged weight within 1e-6, on numbers that are all of order 1."""
    layer = torch.nn.ModuleDict({"q_proj": torch.nn.Linear(3, 2, bias=False)})
    add_lora(layer, rank=1, alpha=3.0, generator=torch.Generator().manual_seed(0))
    lora = layer["q_proj"]
    lora.base.weight.data = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 1.0]])
    lora.lora_A.data, lora.lora_B.data = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([[2.0], [1.0]])
    x = torch.tensor([[1.0, 1.0, 2.0]])
    assert lora(x).tolist() == [[9.0 + 3.0 * 2.0 * -1.0, 1.0 + 3.0 * 1.0 * -1.0]]
    merge(layer)
    assert layer["q_proj"].weight.tolist() == [[7.0, 2.0, -3.0], [3.0, -1.0, -2.0]]
    assert layer["q_proj"](x).tolist() == [[3.0, -2.0]]


def test_only_adapters_train(base):
    model = adapted()
    assert len(adapters(model)) == 4 * len(TARGETS)
    names = {name for name, p in model.named_parameters() if p.requires_grad}
    assert names == {name for name, _ in model.named_parameters() if name.endswith(("lora_A", "lora_B"))}
    assert all(p.grad is None for name, p in model.named_parameters() if name not in names)
    frozen = {name.replace(".base.", "."): p for name, p in model.state_dict().items() if "lora_" not in name}
    assert frozen.keys() == base.state_dict().keys()
    assert all(torch.equal(frozen[name], p) for name, p in base.state_dict().items())
    assert all(a.lora_B.abs().max() > 0 for a in adapters(model))  # each of them did train


def test_targets_and_the_generator():
    model = adapted(rank=2, train=False, targets=("q_proj", "v_proj"))
    assert len(adapters(model)) == 8 and all(a.lora_A.shape == (2, 192) for a in adapters(model))
    one, two = (adapters(adapted(rank=2, train=False))[0].lora_A for _ in range(2))
    assert torch.equal(one, two)


def test_faults_are_sentences(base):
    draw = torch.Generator()
    with pytest.raises(ValueError, match="LoRA rank is 0: it must be at least 1"):
        add_lora(load_model("tiny"), rank=0, generator=draw)
    with pytest.raises(ValueError, match="no linear layer is named query: name layers that the model has"):
        add_lora(load_model("tiny"), rank=2, generator=draw, targets=("query",))
