"""The decoder: transformers' numbers, rows that do not feel each other, the engine, the heads."""

import json

import pytest
import torch
from decoders import SIZES, config_of, random_model
from transformers import LlamaForCausalLM

from postgrad.maths.packing import pack
from postgrad.models import Decoder, ScalarModel, find_model, load_model, save_model


def random_tokens(*shape, seed=1, words=53):
    return torch.randint(0, words, shape, generator=torch.Generator().manual_seed(seed))


def same(ours, theirs, tolerance=1e-5):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def gradients(model, logits, seed=2):
    """The gradient of a random function of all logits."""
    draw = torch.Generator().manual_seed(seed)
    model.zero_grad()
    (logits * torch.randn(logits.shape, generator=draw)).mean().backward()
    return {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", SIZES)
def test_logits_and_gradients_are_those_of_transformers(name, tmp_path):
    ours = random_model(name)
    save_model(ours, tmp_path)
    theirs = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    tokens = random_tokens(3, 40)
    a, b = ours.logits(tokens), theirs(tokens).logits
    assert b.std() > 0.3
    same(a, b)
    mine, wanted = gradients(ours, a), gradients(theirs, b)
    assert mine.keys() == wanted.keys() and len(mine) == 2 * 9 + 2 + (not ours.config.tie_word_embeddings)
    for key in wanted:
        assert wanted[key].abs().max() > 1e-5, key
        scale = wanted[key].abs().max()
        same(mine[key] / scale, wanted[key] / scale)


@pytest.mark.parametrize("name", SIZES)
def test_a_folder_goes_to_transformers_and_comes_back(name, tmp_path):
    ours, (there, back) = random_model(name), (tmp_path / "there", tmp_path / "back")
    there.mkdir()
    save_model(ours, there)
    again = load_model(there)
    assert again.config == ours.config and all(p.requires_grad for p in again.parameters())
    assert all(torch.equal(p, again.state_dict()[key]) for key, p in ours.state_dict().items())
    LlamaForCausalLM.from_pretrained(there, dtype=torch.float32).save_pretrained(back)
    returned = load_model(back)  # a folder as transformers writes it
    assert returned.config == ours.config
    assert all(torch.equal(p, returned.state_dict()[key]) for key, p in ours.state_dict().items())


def test_the_embedded_model_is_that_of_transformers():
    ours = load_model("tiny")
    theirs = LlamaForCausalLM.from_pretrained(find_model("tiny"), dtype=torch.float32)
    tokens = random_tokens(2, 200, words=1024)
    a, b = ours.logits(tokens), theirs(tokens).logits
    same(a, b)
    mine, wanted = gradients(ours, a), gradients(theirs, b)
    for key in wanted:
        same(mine[key] / wanted[key].abs().max(), wanted[key] / wanted[key].abs().max())


def test_bfloat16_weights_stay_near_float32(tmp_path):
    ours = random_model("plain")
    save_model(ours, tmp_path, dtype=torch.bfloat16)
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == "bfloat16"
    rounded = load_model(tmp_path)
    half = load_model(tmp_path, dtype=torch.bfloat16)
    tokens = random_tokens(2, 12)
    assert rounded.head.dtype == torch.float32 and torch.equal(rounded.head, ours.head.bfloat16().float())
    a, b = rounded.logits(tokens), half.logits(tokens)
    assert b.dtype == torch.bfloat16 and 0 < (a - b.float()).abs().max() < 0.1


def test_a_row_does_not_feel_its_neighbours_or_its_padding():
    model, tokens, lengths = random_model(), random_tokens(4, 24), [24, 9, 17, 2]
    for i, n in enumerate(lengths):
        tokens[i, n:] = 0
    together = model.hidden(tokens)
    for i, n in enumerate(lengths):
        same(together[i, :n], model.hidden(tokens[i : i + 1, :n])[0])
    other = tokens.clone()
    other[1, 9:], other[3] = 52, 7  # other padding, another neighbour
    changed = model.hidden(other)
    assert torch.equal(changed[1, :9], together[1, :9]) and not torch.equal(changed[1, 9:], together[1, 9:])
    assert torch.equal(changed[0], together[0])


def test_attention_looks_back_only_and_at_everything_before():
    model, tokens = random_model(), random_tokens(1, 10)
    before = model.hidden(tokens)
    for t in range(10):
        other = tokens.clone()
        other[0, t] = (tokens[0, t] + 1) % 53
        moved = (model.hidden(other) - before)[0].abs().amax(-1) > 0
        assert moved.tolist() == [s >= t for s in range(10)]


def test_rows_that_share_a_prompt_are_as_apart():
    """Values and gradients of rows packed together, prompts computed once, against every row by itself."""
    model, tokens = random_model(), random_tokens(7, 20)
    # two groups, and two rows alone
    lengths, prompts = torch.tensor([20, 9, 14, 6, 17, 3, 12]), [5, 5, 5, 4, 4, 2, 7]
    tokens[1:3, :5], tokens[4, :4] = tokens[0, :5], tokens[3, :4]
    columns = torch.arange(20)
    mask = (columns >= torch.tensor(prompts)[:, None]) & (columns < lengths[:, None])
    packed = pack(lengths, tokens, mask)
    assert len(packed.cells) == int(lengths.sum()) - 2 * 5 - 4 and len(packed.spans.start) == 7 + 2
    logp, entropy = model.logp(tokens, mask, packed=packed)
    whole = torch.autograd.grad((logp.sin() + entropy**2).sum(), list(model.parameters()))
    total = 0.0
    for i, n in enumerate(lengths.tolist()):
        one, spread = model.logp(tokens[i: i + 1, :n], mask[i: i + 1, :n])
        same(logp[i, :n], one[0])
        same(entropy[i, :n], spread[0])
        total = total + (one.sin() + spread**2).sum()
    for a, b in zip(whole, torch.autograd.grad(total, list(model.parameters())), strict=True):
        same(a / b.abs().max(), b / b.abs().max())
    same(model.hidden(tokens, packed)[2, :14], model.hidden(tokens[2:3, :14])[0])


@pytest.mark.parametrize("name", ["plain", "grouped"])
def test_the_engine_is_the_plain_pass(name):
    """Prompts of several lengths read once, samples of theirs written token by token in
    slots of any order."""
    model, lengths, owner = random_model(name), torch.tensor([5, 2, 9]), torch.tensor([2, 0, 2, 1])
    tokens = random_tokens(3, 9)
    replies = random_tokens(4, 8, seed=3)
    engine = model.engine(rows=4, prompts=3, read=9, new=8)
    slot, at = torch.tensor([3, 0, 1, 2]), torch.zeros(4, dtype=torch.long)
    first = engine.prefill(tokens, lengths, [1, 2, 0])
    place = torch.tensor([1, 2, 0])[owner]
    for i, n in enumerate(lengths):
        same(first[i], model.hidden(tokens[i: i + 1, :n])[0, -1])
    whole = [model.hidden(torch.cat([tokens[p, :lengths[p]], replies[r]])[None])[0]
             for r, p in enumerate(owner)]
    for t in range(8):
        step = engine.step(replies[:, t], at + t, slot, place, lengths[owner])
        for r, p in enumerate(owner):
            same(step[r], whole[r][lengths[p] + t])


def test_a_head_of_one_number():
    """value: column t is read before token t is known.

    score: read at the last real token, whatever the padding.
    """
    model, tokens, lengths = ScalarModel(random_model()), random_tokens(3, 12), torch.tensor([12, 5, 9])
    assert not model.value(tokens).any() and not model.score(tokens, lengths).any()  # a new head says 0
    model.score_head.weight.data = random_tokens(1, 32, seed=9) / 53 - 0.5
    read = model.body.hidden(tokens) @ model.score_head.weight[0]
    value = model.value(tokens)
    assert not value[:, 0].any()
    for t in range(1, 12):
        same(value[:, t], read[:, t - 1])
    same(model.score(tokens, lengths), torch.stack([read[0, 11], read[1, 4], read[2, 8]]))
    assert read.std() > 0.1


def test_too_long_is_a_sentence():
    model = random_model()
    model.hidden(random_tokens(1, 40))
    with pytest.raises(ValueError, match="41 tokens do not fit the model's 40 positions"):
        model.hidden(random_tokens(1, 41))
    with pytest.raises(ValueError, match="41 tokens do not fit"):
        model.engine(rows=1, prompts=1, read=20, new=22)


def test_fresh_weights_are_a_function_of_the_generator():
    one, two, three = (Decoder(config_of()).start(torch.Generator().manual_seed(s)) for s in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.head, three.head)
    deep = (one.model.layers[0].self_attn.o_proj.weight.std()
            / one.model.layers[0].self_attn.q_proj.weight.std())
    assert deep.item() == pytest.approx(0.5, rel=0.1)  # 1 / sqrt(2 * 2 layers)
