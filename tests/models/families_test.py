"""Each family of decoders against `transformers`, eager attention, float32;
and against itself padded, packed and cached."""

import json

import pytest
import torch
from family_models import ADDED, FAMILIES, gradients, make, reopened
from small import CHAT, PROMPTS
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from postgrad.maths.packing import pack
from postgrad.models import (
    Adapted,
    Adapter,
    Config,
    Decoder,
    ScalarModel,
    families,
    load_model,
    load_scalar,
    save_model,
)
from postgrad.records import pad_rows
from postgrad.sampling import LocalSampler, Sampling

every = pytest.mark.parametrize("pair", FAMILIES, indirect=True)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Each family made once."""
    made, before = {}, dict(families.FAMILIES)
    families.FAMILIES.update(ADDED)

    def once(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("family")
            made[name] = *make(name, folder), folder
        return made[name]
    yield once
    families.FAMILIES.clear()
    families.FAMILIES.update(before)


@pytest.fixture
def pair(request, pairs):
    return pairs(request.param)


def random_tokens(*shape, seed=1):
    return torch.randint(0, 1024, shape, generator=torch.Generator().manual_seed(seed))


def same(ours, theirs, tolerance=1e-5):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


@every
def test_logits_and_gradients_are_those_of_transformers(pair):
    ours, theirs, _ = pair
    tokens, draw = random_tokens(2, 100), torch.Generator().manual_seed(2)
    a, b = ours.logits(tokens), theirs(tokens).logits
    assert b.std() > 0.3
    same(a, b, 1e-5 if theirs.config.model_type == "olmo2" else 2e-5)
    pull = torch.randn(a.shape, generator=draw)
    mine, wanted = gradients(ours, a, pull), gradients(theirs, b, pull)
    assert mine.keys() == wanted.keys()
    for key, g in wanted.items():
        assert g.abs().max() > 1e-7, key
        same(mine[key] / g.abs().max(), g / g.abs().max(), 1e-4)


@every
def test_a_saved_folder_says_the_same_in_transformers(pair, tmp_path):
    ours, theirs, folder = pair
    save_model(ours, tmp_path)
    again, tokens = reopened(tmp_path), random_tokens(2, 60)
    assert type(again) is type(theirs)
    assert torch.equal(again(tokens).logits, theirs(tokens).logits)
    assert load_model(tmp_path).config == ours.config == Config.read(folder / "config.json")
    assert again.config.pad_token_id == 0 and again.config.eos_token_id == theirs.config.eos_token_id


@every
def test_padding_on_either_side_changes_nothing(pair):
    """Rows of a batch are as alone, and as transformers has them with padding on the left and a mask."""
    ours, theirs, _ = pair
    rows = [random_tokens(n, seed=n).tolist() for n in (30, 11, 17)]
    alone = [ours.logits(torch.tensor([r]))[0] for r in rows]
    right = ours.logits(pad_rows(rows))
    left = torch.stack([torch.tensor([0] * (30 - len(r)) + r) for r in rows])
    real = torch.stack([torch.arange(30) >= 30 - len(r) for r in rows]).long()
    wanted = theirs(left, attention_mask=real, position_ids=(real.cumsum(1) - 1).clamp_min(0)).logits
    for i, r in enumerate(rows):
        same(right[i, : len(r)], alone[i])
        same(wanted[i, 30 - len(r):], alone[i], 2e-5)


@every
def test_rows_that_share_a_prompt_are_as_apart(pair):
    model, tokens = pair[0], torch.cat([random_tokens(1, 40, seed=n) for n in range(4)])
    tokens[1:3, :19] = tokens[0, :19]
    mask = torch.arange(40)[None] >= torch.tensor([19, 19, 19, 8])[:, None]
    packed = pack(torch.tensor([40, 33, 21, 40]), tokens,
                  mask & (torch.arange(40) < torch.tensor([40, 33, 21, 40])[:, None]))
    assert len(packed.cells) == 40 + 33 + 21 + 40 - 2 * 19
    together = model.hidden(tokens, packed)
    for i, n in enumerate((40, 33, 21, 40)):
        same(together[i, :n], model.hidden(tokens[i: i + 1, :n])[0])


@every
def test_the_sampler_says_what_the_trainer_says(pair):
    """Prompts of several lengths and samples of theirs through the cache, longer than any window."""
    model, settings = pair[0], Sampling(max_new_tokens=24, temperature=1.0)
    groups = LocalSampler(model, CHAT).sample(PROMPTS[:3], 2, settings, seed=5)
    for rollout in (r for group in groups for r in group):
        n, tokens = len(rollout.prompt_tokens), torch.tensor([rollout.prompt_tokens + rollout.tokens])
        logp, _ = model.logp(tokens, torch.arange(tokens.shape[1])[None] >= n)
        same(torch.tensor(rollout.logp), logp[0, n:].detach())
    assert max(len(r.tokens) for group in groups for r in group) > 8


@every
def test_greedy_is_transformers_token_for_token(pair):
    (model, theirs, _), settings = pair, Sampling(max_new_tokens=16, temperature=0.0)
    for (rollout,) in LocalSampler(model, CHAT).sample(PROMPTS[:3], 1, settings, 0):
        prompt = torch.tensor([rollout.prompt_tokens])
        out = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                              max_new_tokens=16, eos_token_id=CHAT.stop[0], pad_token_id=0)
        assert out[0, prompt.shape[1]:].tolist() == list(rollout.tokens)


def seen_by_last(model, length):
    """Which tokens the last one's hidden state depends on."""
    tokens = random_tokens(1, length)
    before = model.hidden(tokens)[0, -1]
    moved = [model.hidden(tokens.index_fill(1, torch.tensor([t]), 1023))[0, -1] for t in range(length)]
    return [t for t in range(length) if not torch.equal(moved[t], before)]


def test_a_window_is_as_wide_as_it_says(pairs):
    """Two layers of 7 tokens, oneself among them, reach 12 back;
    with a layer that sees everything, all the way."""
    assert seen_by_last(pairs("mistral")[0], 20) == list(range(7, 20))
    assert seen_by_last(pairs("mistral, no window")[0], 20) == list(range(20))
    assert seen_by_last(pairs("qwen 2, windows")[0], 20) == list(range(20))


def test_a_reward_model_keeps_its_family(pairs, tmp_path):
    model = ScalarModel(load_model(pairs("qwen 3")[2]), 2)
    save_model(model, tmp_path)
    assert (json.loads((tmp_path / "config.json").read_text())["architectures"]
            == ["Qwen3ForSequenceClassification"])
    tokens, lengths = random_tokens(2, 9), torch.tensor([9, 4])
    assert torch.equal(load_scalar(tmp_path).scores(tokens, lengths), model.scores(tokens, lengths))


@pytest.mark.parametrize("name", ["qwen 2", "olmo 2", "olmo 2, biases", "gemma 3", "phi 4 mini", "granite 3"])
def test_an_adapter_is_merged_and_sampled_through(name, pairs, tmp_path):
    body = load_model(pairs(name)[2])
    draw = torch.Generator().manual_seed(3)
    model = Adapted(body, Adapter(body, rank=2, generator=draw))
    for b in model.adapter.B.values():
        b.data.normal_(0, 0.1, generator=draw)
    save_model(model, tmp_path)
    tokens = random_tokens(1, 12)
    wanted = model.logits(tokens).detach()
    assert (wanted - pairs(name)[0].logits(tokens)).abs().max() > 0.1
    same(reopened(tmp_path)(tokens).logits, wanted, 5e-5)
    ((rollout,),) = LocalSampler(model, CHAT).sample(PROMPTS[:1], 1, Sampling(max_new_tokens=12), 0)
    n, tokens = len(rollout.prompt_tokens), torch.tensor([rollout.prompt_tokens + rollout.tokens])
    logp, _ = model.logp(tokens, torch.arange(tokens.shape[1])[None] >= n)
    same(torch.tensor(rollout.logp), logp[0, n:].detach())


@pytest.mark.parametrize("name", ["gemma 2", "granite 3"])
def test_an_adapter_of_a_head_whose_logits_are_changed_is_refused(name, pairs):
    with pytest.raises(ValueError, match="are scaled or capped, which an adapter of the head"):
        Adapter(load_model(pairs(name)[2]), rank=2, generator=torch.Generator(), head=True)


def test_fresh_biases_are_zero_and_norms_one(pairs):
    for name in ("qwen 2", "qwen 3", "olmo 2, biases", "gemma 2"):
        for key, p in (
                Decoder(pairs(name)[0].config).start(torch.Generator().manual_seed(0)).named_parameters()):
            assert p.dim() == 2 or (p == ("norm" in key and "gemma" not in name)).all(), key


@pytest.mark.parametrize("kind", [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, Olmo2Config,
                                  Gemma2Config, Gemma3TextConfig, SmolLM3Config, Phi3Config, GraniteConfig])
def test_what_a_config_may_leave_out(kind, tmp_path):
    """A file that says no more than the sizes means what the family's class in transformers means by it."""
    sizes = dict(vocab_size=9, hidden_size=64, intermediate_size=8, num_hidden_layers=30,
                 num_attention_heads=32, pad_token_id=0)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind.model_type, **sizes}))
    ours, theirs = Config.read(tmp_path / "config.json"), kind.from_pretrained(tmp_path)
    for key in ("rms_norm_eps", "num_key_value_heads", "max_position_embeddings", "tie_word_embeddings"):
        assert getattr(ours, key) == getattr(theirs, key), key
    rope, a = theirs.rope_parameters, ours.architecture
    assert (ours.head_dim == getattr(theirs, "head_dim", 2)
            and ours.rope_theta == rope.get("full_attention", rope)["rope_theta"])
    assert a.local_theta == rope.get("sliding_attention", {}).get("rope_theta")
    assert a.window == getattr(theirs, "sliding_window", None)
    windows = getattr(theirs, "layer_types", None) or ["sliding_attention"] * (30 * (kind is MistralConfig))
    assert list(a.window_layers) == [i for i, x in enumerate(windows) if x == "sliding_attention"]
    rotated = getattr(theirs, "no_rope_layers", [])
    assert list(a.unrotated_layers) == [i for i, x in enumerate(rotated) if not x]
    assert all(a.number(key) == getattr(theirs, key) for key in a.family.numbers)
