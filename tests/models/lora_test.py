"""Adapters: none is the base bit for bit, merged says the same, only they train, four models share a body."""

import pytest
import torch
from small import CHAT, small_model

from postgrad.models import (
    Adapted,
    Adapter,
    Adapters,
    Decoder,
    ScalarModel,
    load_model,
    load_scalar,
    save_model,
)
from postgrad.records import Prompt
from postgrad.sampling import LocalSampler, Sampling

TOKENS = torch.randint(0, 1024, (3, 30), generator=torch.Generator().manual_seed(0))
MASK = torch.arange(30)[None].expand(3, 30) > 4


def adapted(body=None, rank=4, steps=3, seed=1, **options):
    """The tiny model through an adapter, after a few steps of making some tokens likelier."""
    body = body or load_model("tiny")
    model = Adapted(body, Adapter(body, rank=rank, generator=torch.Generator().manual_seed(seed), **options))
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        adam.zero_grad()
        (-model.logp(TOKENS, MASK)[0].sum() / MASK.sum()).backward()
        adam.step()
    return model


@pytest.fixture(scope="module")
def base():
    return load_model("tiny")


def test_a_new_adapter_changes_nothing(base):
    assert torch.equal(adapted(steps=0).hidden(TOKENS), base.hidden(TOKENS))


def test_the_body_alone_is_the_base_bit_for_bit(base):
    model = adapted()
    reference = Adapted(model.body, None)
    on = model.hidden(TOKENS)
    assert (on - base.hidden(TOKENS)).abs().max() > 0.01
    assert torch.equal(reference.hidden(TOKENS), base.hidden(TOKENS))
    assert torch.equal(reference.logp(TOKENS, MASK)[0], base.logp(TOKENS, MASK)[0])
    with pytest.raises(ValueError, match="do not fit"):
        model.hidden(torch.zeros(1, 1000, dtype=torch.int64))
    assert model.body.active_adapter is None and torch.equal(model.hidden(TOKENS), on)


def test_merged_says_what_the_active_adapter_says(tmp_path, base):
    model = adapted()
    save_model(model, tmp_path)
    plain = load_model(tmp_path)
    assert isinstance(plain, Decoder) and plain.state_dict().keys() == base.state_dict().keys()
    torch.testing.assert_close(plain.logp(TOKENS, MASK)[0], model.logp(TOKENS, MASK)[0], rtol=1e-6, atol=1e-5)
    scalar = ScalarModel(model)
    scalar.score_head.weight.data.normal_(generator=torch.Generator().manual_seed(2))
    save_model(scalar, tmp_path)
    lengths = torch.tensor([30, 12, 7])
    said = scalar.score(TOKENS, lengths)
    torch.testing.assert_close(load_scalar(tmp_path).score(TOKENS, lengths), said, rtol=1e-5, atol=1e-5)


def test_one_layer_by_hand():
    """W x + (alpha / rank) B A x, and the merged weight, on numbers that are all of order 1."""
    body = torch.nn.ModuleDict({"q_proj": torch.nn.Linear(3, 2, bias=False)})
    body["q_proj"].weight.data = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 1.0]])
    adapter = Adapter(body, rank=1, alpha=3.0, generator=torch.Generator().manual_seed(0))
    adapter.A["q_proj"].data, adapter.B["q_proj"].data = (torch.tensor([[1.0, 0.0, -1.0]]),
                                                          torch.tensor([[2.0], [1.0]]))
    x, model = torch.tensor([[1.0, 1.0, 2.0]]), Adapted(body, adapter)
    with model.active():
        assert body["q_proj"](x).tolist() == [[9.0 + 3.0 * 2.0 * -1.0, 1.0 + 3.0 * 1.0 * -1.0]]
    assert body["q_proj"](x).tolist() == [[9.0, 1.0]]
    assert model.merged()["q_proj.weight"].tolist() == [[7.0, 2.0, -3.0], [3.0, -1.0, -2.0]]


def test_dora_by_hand():
    """Rows (3, 4) and (0, 1) with B A = ((1, 0), (0, 0)), m doubled in the first row: (4, 4) scaled to norm
    10; what it computes is the merged weight's, bias apart, and a new one changes nothing."""
    body = torch.nn.ModuleDict({"q_proj": torch.nn.Linear(2, 2)})
    body["q_proj"].weight.data = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    body["q_proj"].bias.data = torch.tensor([1.0, -1.0])
    adapter = Adapter(body, rank=1, alpha=1.0, dora=True, generator=torch.Generator().manual_seed(0))
    x, model = torch.tensor([[1.0, 2.0]]), Adapted(body, adapter)
    with model.active():
        assert body["q_proj"](x).tolist() == [[12.0, 1.0]]
    adapter.A["q_proj"].data = torch.tensor([[1.0, 0.0]])
    adapter.B["q_proj"].data = torch.tensor([[1.0], [0.0]])
    assert adapter.norms["q_proj"].tolist() == [5.0, 1.0]
    adapter.norms["q_proj"].data[0] = 10.0
    merged = model.merged()["q_proj.weight"]
    torch.testing.assert_close(merged, torch.tensor([[50**0.5, 50**0.5], [0.0, 1.0]]))
    with model.active():
        torch.testing.assert_close(body["q_proj"](x), x @ merged.T + body["q_proj"].bias)


def test_only_the_adapter_trains(base):
    model = adapted()
    assert len(model.adapter.A) == 4 * 7 and not any(p.requires_grad for p in model.body.parameters())
    assert {name.split(".")[1] for name in model.state_dict()} == {"A", "B"}
    assert all(torch.equal(p, base.state_dict()[name]) for name, p in model.body.state_dict().items())
    assert all(b.abs().max() > 0 for b in model.adapter.B.values())  # each of them did train


def test_two_adapters_on_one_body_do_not_meet():
    first = adapted()
    before = first.hidden(TOKENS)
    second = adapted(first.body, seed=2)
    assert second.body is first.body and torch.equal(first.hidden(TOKENS), before)
    assert (second.hidden(TOKENS) - before).abs().max() > 0.01
    critic = ScalarModel(Adapted(first.body, Adapter(first.body, rank=2, generator=torch.Generator())))
    critic.score_head.weight.data.fill_(0.1)
    grads = [p.grad.clone() for p in first.parameters()]
    (critic.value(TOKENS) ** 2).sum().backward()  # a pass of one adapter moves no other
    assert all(p.grad is not None for p in critic.parameters())
    assert all(torch.equal(p.grad, g) for p, g in zip(first.parameters(), grads, strict=True))


def test_the_sampler_samples_through_the_adapter():
    body = small_model()
    model = Adapted(body, Adapter(body, rank=2, generator=torch.Generator().manual_seed(0)))
    for b in model.adapter.B.values():
        b.data.normal_(generator=torch.Generator().manual_seed(3))
    ask, settings = [Prompt.ask("Hi", id="1")], Sampling(max_new_tokens=12)
    (row,), = LocalSampler(model, CHAT).sample(ask, 1, settings, 0)
    tokens = torch.tensor([[*row.prompt_tokens, *row.tokens]])
    mask = torch.arange(tokens.shape[1])[None] >= len(row.prompt_tokens)
    said = model.logp(tokens, mask)[0][mask]
    torch.testing.assert_close(said, torch.tensor(row.logp), rtol=1e-4, atol=1e-4)
    assert (Adapted(body, None).logp(tokens, mask)[0][mask] - said).abs().max() > 0.1


def test_faults_are_sentences(base):
    draw = torch.Generator()
    with pytest.raises(ValueError, match="LoRA rank is 0: it must be at least 1"):
        Adapter(base, rank=0, generator=draw)
    with pytest.raises(ValueError, match="no linear layer is named query: the model has q_proj, k_proj, "
                                         "v_proj, o_proj, gate_"):
        Adapter(base, rank=2, generator=draw, targets=("query", "q_proj"))
    for wrong, said in (({"lora": -1}, "lora is -1"), ({"lora": 2, "alpha": 0.0}, "alpha is 0.0"),
                        ({"bits": 4}, "but lora is 0"),
                        ({"lora": 2, "bits": 8}, "bits is 8: a frozen model is held in 4"),
                        ({"targets": "q_proj"}, "but lora is 0"),
                        ({"lora": 1, "targets": ","}, "names no layer")):
        with pytest.raises(ValueError, match=said):
            Adapters(**wrong)
