"""The decoder against `transformers`, and against itself: alone or in a batch, padded, packed, cached."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from postgrad.models import Config, Decoder, ScalarModel, find_model, load_model, save_model
from postgrad.packing import pack

SIZES = {
    "plain": dict(num_attention_heads=4, num_key_value_heads=4, head_dim=8, tie_word_embeddings=False),
    "tied": dict(num_attention_heads=4, num_key_value_heads=4, head_dim=8, tie_word_embeddings=True),
    "grouped": dict(num_attention_heads=8, num_key_value_heads=2, head_dim=6, tie_word_embeddings=False, rope_theta=500.0),
    "one key head, tied": dict(num_attention_heads=4, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True),
    "wide heads": dict(num_attention_heads=2, num_key_value_heads=1, head_dim=40, tie_word_embeddings=False, rms_norm_eps=1e-2),
}


def config_of(name="grouped", **changes):
    return Config(**dict(vocab_size=53, hidden_size=32, intermediate_size=48, num_hidden_layers=2, max_position_embeddings=40)
                  | SIZES[name] | changes)


def random_model(name="grouped", seed=0, **changes):
    """Large weights, and norms that are not one: a part left out or misplaced shows."""
    model, draw = Decoder(config_of(name, **changes)), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) * 0.15 + (1.0 if p.dim() == 1 else 0.0))
    return model


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
    ours, theirs = load_model("tiny"), LlamaForCausalLM.from_pretrained(find_model("tiny"), dtype=torch.float32)
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
    rounded, half, tokens = load_model(tmp_path), load_model(tmp_path, dtype=torch.bfloat16), random_tokens(2, 12)
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
    lengths, prompts = torch.tensor([20, 9, 14, 6, 17, 3, 12]), [5, 5, 5, 4, 4, 2, 7]  # two groups, and two rows alone
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
    """Prompts of several lengths read once, samples of theirs written token by token in slots of any order."""
    model, lengths, owner = random_model(name), torch.tensor([5, 2, 9]), torch.tensor([2, 0, 2, 1])
    tokens = random_tokens(3, 9)
    replies = random_tokens(4, 8, seed=3)
    engine = model.engine(rows=4, prompts=3, read=9, new=8)
    slot, at = torch.tensor([3, 0, 1, 2]), torch.zeros(4, dtype=torch.long)
    first = engine.prefill(tokens, lengths, [1, 2, 0])
    place = torch.tensor([1, 2, 0])[owner]
    for i, n in enumerate(lengths):
        same(first[i], model.hidden(tokens[i: i + 1, :n])[0, -1])
    whole = [model.hidden(torch.cat([tokens[p, :lengths[p]], replies[r]])[None])[0] for r, p in enumerate(owner)]
    for t in range(8):
        step = engine.step(replies[:, t], at + t, slot, place, lengths[owner])
        for r, p in enumerate(owner):
            same(step[r], whole[r][lengths[p] + t])


def test_a_head_of_one_number():
    """value: column t is read before token t is known. score: read at the last real token, whatever the padding."""
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
    deep = one.model.layers[0].self_attn.o_proj.weight.std() / one.model.layers[0].self_attn.q_proj.weight.std()
    assert deep.item() == pytest.approx(0.5, rel=0.1)  # 1 / sqrt(2 * 2 layers)


def written(tmp_path, **changes):
    """A config.json with these keys changed, or left out where the value is None."""
    raw = config_of("grouped").written() | changes
    path = tmp_path / "config.json"
    path.write_text(json.dumps({k: v for k, v in raw.items() if v is not None}))
    return path


@pytest.mark.parametrize(("changes", "words"), [
    (dict(model_type="gemma3"), "config.json: model_type is 'gemma3'; the decoder reads llama, mistral, qwen2, qwen3"),
    (dict(model_type=None), "model_type is None"),
    (dict(rope_scaling={"rope_type": "llama3", "factor": 8.0}), "rotary scaling 'llama3' needs low_freq_factor"),
    (dict(rope_scaling={"type": "linear", "factor": 0}), "'linear' needs factor as a number above 0, not 0"),
    (dict(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4}), "rotary scaling 'yarn' is not supported; default, linear"),
    (dict(rope_parameters={"full_attention": {"rope_theta": 1e4}}), "rope_parameters differ by layer type"),
    (dict(partial_rotary_factor=0.5), "partial_rotary_factor is 0.5"),
    (dict(quantization_config={"bits": 4}), r"quantization_config is {'bits': 4}"),
    (dict(layer_types=["sliding_attention"] * 2), "layer_types is .* does not go with 2 layers of 'llama'"),
    (dict(model_type="mistral", sliding_window=0), "sliding_window is 0; it must be a whole number above 0, or null"),
    (dict(model_type="qwen2", layer_types=["full_attention", "sliding_attention"]), "and a sliding window of None"),
    (dict(model_type="qwen3", max_window_layers="2"), "max_window_layers is '2'"),
    (dict(mlp_bias=True), "mlp_bias is True"),
    (dict(hidden_act="gelu"), "hidden_act is 'gelu'"),
    (dict(num_key_value_heads=3), "8 attention heads cannot share 3 key-value heads"),
    (dict(head_dim=5), "head_dim is 5; rotary positions need an even number"),
    (dict(hidden_size=None), "hidden_size is None"),
])
def test_a_config_that_is_not_understood_is_refused(changes, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        Config.read(written(tmp_path, **changes))


def test_what_a_config_may_leave_out(tmp_path):
    left_out = written(tmp_path, rms_norm_eps=None, head_dim=None, num_key_value_heads=None, rope_theta=None,
                       max_position_embeddings=None, tie_word_embeddings=None, num_attention_heads=4)
    theirs, ours = LlamaConfig.from_pretrained(tmp_path), Config.read(left_out)
    assert (ours.rms_norm_eps, ours.head_dim, ours.num_key_value_heads) == (theirs.rms_norm_eps, theirs.head_dim, 4)
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    nested = written(tmp_path, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 77.0})
    assert Config.read(nested).rope_theta == 77.0


def test_a_config_that_is_no_json(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama",')
    with pytest.raises(ValueError, match="config.json cannot be read as JSON"):
        Config.read(path)


@pytest.fixture
def folder(tmp_path):
    save_model(random_model("tied"), tmp_path)
    return tmp_path


def test_a_model_that_is_not_there(folder, tmp_path):
    with pytest.raises(ValueError, match="no model at nowhere: expected tiny"):
        load_model("nowhere")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="has no model.safetensors and no model.safetensors.index.json"):
        load_model(folder)


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_file_that_was_cut_short(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="model.safetensors cannot be read as safetensors"):
        load_model(folder)


def test_a_file_whose_header_lies(folder):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        load_model(folder)


def test_weights_that_do_not_fit_the_config(folder):
    tensors = {k: v.clone() for k, v in load_model(folder).state_dict().items()}
    norm = tensors.pop("model.norm.weight")
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"missing \['model.norm.weight'\], unknown \[\]"):
        load_model(folder)
    save_file(tensors | {"model.norm.weight": norm, "lm_head.bias": norm.clone()}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"missing \[\], unknown \['lm_head.bias'\]"):
        load_model(folder)
    save_file(tensors | {"model.norm.weight": norm[:-1].clone()}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.norm.weight is \[31\], config.json expects \[32\]"):
        load_model(folder)
