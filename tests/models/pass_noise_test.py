"""Noise of a training pass: NEFTune's is transformers' own, by each row's length; dropout: peft_test.py."""

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.integrations.neftune import neftune_post_forward_hook

from postgrad.maths.packing import pack
from postgrad.models import find_model, load_model, pass_noise
from postgrad.models.hf_model import HFModel
from postgrad.models.pass_noise import PassNoise, add_neftune, noisy_pass

ALPHA, TOKENS = 5.0, torch.randint(0, 1024, (2, 20), generator=torch.Generator().manual_seed(0))


def theirs():
    return AutoModelForCausalLM.from_pretrained(find_model("tiny"), dtype=torch.float32)


def noise_of(rows=2):
    lengths = torch.full((rows,), 20)
    return PassNoise(1, tuple(map(str, range(rows))), lengths, pack(lengths))


@pytest.mark.parametrize("opened", [lambda: load_model("tiny"), lambda: HFModel(theirs())])
def test_neftune_adds_what_transformers_does(opened, monkeypatch):
    monkeypatch.setattr(pass_noise, "uniform", lambda _, counter: torch.rand(
        counter.shape, generator=torch.Generator().manual_seed(7)))
    model, network = opened(), theirs().train()
    add_neftune(model, ALPHA, seed=0)
    layer = network.get_input_embeddings()
    layer.neftune_noise_alpha = ALPHA
    layer.register_forward_hook(neftune_post_forward_hook)
    torch.manual_seed(7)
    said = network(TOKENS).logits
    plain = model.logits(TOKENS)
    with noisy_pass([model], noise_of()):
        ours = model.logits(TOKENS)
        with torch.no_grad():
            assert torch.equal(model.logits(TOKENS), plain)
    torch.testing.assert_close(ours, said, rtol=0, atol=1e-4)
    assert (ours - plain).abs().max() > 0.1 and torch.equal(model.logits(TOKENS), plain)


def test_noise_is_by_the_length_of_a_row_and_drawn_by_step_rows_and_seed():
    model, lengths = load_model("tiny"), torch.tensor([20, 5])
    add_neftune(model, ALPHA, seed=0)
    layer, seen = model.model.embed_tokens, {}
    packed = pack(lengths)
    words = TOKENS.flatten()[packed.cells]
    for step, ids in ((1, ("a", "b")), (1, ("a", "b")), (2, ("a", "b")), (1, ("a", "c"))):
        with noisy_pass([model], PassNoise(step, ids, lengths, packed)):
            drawn = (layer(words) - layer.weight[words]).detach()
        assert (step, ids) not in seen or torch.equal(seen[step, ids], drawn)
        seen[step, ids] = drawn
        for part, length in ((drawn[:20], 20), (drawn[20:], 5)):
            most = ALPHA / (length * model.config.hidden_size) ** 0.5
            assert 0.95 * most < part.abs().max() <= 1.0001 * most
    assert len({float(x.sum()) for x in seen.values()}) == 3
