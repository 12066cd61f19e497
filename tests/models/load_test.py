"""Folders of models that cannot be read: configs not understood, files cut short or that lie."""

import json
import struct

import pytest
from decoders import config_of, random_model
from safetensors.torch import save_file
from transformers import LlamaConfig

from postgrad.models import Config, load_model, save_model


def written(tmp_path, **changes):
    """A config.json with these keys changed, or left out where the value is None."""
    raw = config_of("grouped").to_hf() | changes
    path = tmp_path / "config.json"
    path.write_text(json.dumps({k: v for k, v in raw.items() if v is not None}))
    return path


@pytest.mark.parametrize(("changes", "words"), [
    (dict(model_type="gemma3"),
     "config.json: model_type is 'gemma3'; the decoder reads llama, mistral, qwen2, qwen3"),
    (dict(model_type=None), "model_type is None"),
    (dict(rope_scaling={"rope_type": "llama3", "factor": 8.0}),
     "rotary scaling 'llama3' needs low_freq_factor"),
    (dict(rope_scaling={"type": "linear", "factor": 0}), "'linear' needs factor as a number above 0, not 0"),
    (dict(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4}),
     "rotary scaling 'yarn' needs factor as a number above 0, not None"),
    (dict(rope_scaling={"rope_type": "spiral"}), "rotary scaling 'spiral' is not supported; default, linear"),
    (dict(model_type="phi3", rope_scaling={"type": "su", "short_factor": [1.0], "long_factor": "x"}),
     "'longrope' needs long_factor as a list of numbers above 0, not 'x'"),
    (dict(model_type="granite", residual_multiplier=-1), "residual_multiplier is -1; it must be a number"),
    (dict(model_type="smollm3", no_rope_layers=[1]), r"no_rope_layers is \[1\]; it has a 1 or a 0 for each"),
    (dict(model_type="qwen3_moe", num_experts=4), "num_experts_per_tok is 8, and there are 4 experts"),
    (dict(model_type="qwen3_moe"), "num_experts is None; it must be a whole number above 0"),
    (dict(rope_parameters={"full_attention": {"rope_theta": 1e4}}), "rope_parameters differ by layer type"),
    (dict(partial_rotary_factor=0.5), "partial_rotary_factor is 0.5; llama rotates whole heads"),
    (dict(quantization_config={"bits": 4}), r"quantization_config is {'bits': 4}"),
    (dict(layer_types=["sliding_attention"] * 2), "layer_types is .* does not go with 2 layers of 'llama'"),
    (dict(model_type="mistral", sliding_window=0),
     "sliding_window is 0; it must be a whole number above 0, or null"),
    (dict(model_type="qwen2", layer_types=["full_attention", "sliding_attention"]),
     "and a sliding window of None"),
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
    assert ((ours.rms_norm_eps, ours.head_dim, ours.num_key_value_heads)
            == (theirs.rms_norm_eps, theirs.head_dim, 4))
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
    save_file(tensors | {"model.norm.weight": norm, "lm_head.bias": norm.clone()},
              folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"missing \[\], unknown \['lm_head.bias'\]"):
        load_model(folder)
    save_file(tensors | {"model.norm.weight": norm[:-1].clone()}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.norm.weight is \[31\], config.json expects \[32\]"):
        load_model(folder)
