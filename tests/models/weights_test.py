"""Model folders in one file or several, and the ways in which they are broken:
one sentence each, naming the file."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from small import CHAT, small_model
from transformers import AutoModelForCausalLM

from postgrad.models import load_model, save_model, weight_files
from postgrad.models.chat import Chat
from postgrad.models.weights import INDEX, SINGLE, list_weights


@pytest.fixture
def folder(tmp_path):
    """A small model in several files, of 5000 bytes at most unless a single tensor is larger."""
    save_model(small_model(), tmp_path, largest=5000)
    return tmp_path


def shards(folder):
    return sorted(folder.glob("model-*.safetensors"))


def test_several_files_are_as_one(folder):
    one = small_model().state_dict()
    files, index = shards(folder), json.loads((folder / INDEX).read_text())
    assert weight_files(folder) == files and len(files) == 3 and not (folder / SINGLE).exists()
    assert index["metadata"]["total_size"] == sum(v.nbytes for v in one.values())
    # one tensor is larger
    assert [sum(v.nbytes for v in load_file(f).values()) <= 5000 for f in files] == [False, True, True]
    again, theirs = load_model(folder), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = torch.arange(12)[None]
    assert all(torch.equal(again.state_dict()[k], v) for k, v in one.items())
    torch.testing.assert_close(theirs(tokens).logits, again.logits(tokens), rtol=0, atol=1e-4)


def test_a_folder_saved_again_keeps_no_old_file(folder):
    other = small_model(seed=7)
    save_model(other, folder)
    assert weight_files(folder) == [folder / SINGLE] and not shards(folder) and not (folder / INDEX).exists()
    assert torch.equal(load_model(folder).head, other.head)
    save_model(small_model(), folder, largest=5000)
    assert len(shards(folder)) == 3 and torch.equal(load_model(folder).head, small_model().head)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_dtype_survives_the_way_there_and_back(tmp_path, dtype):
    model = small_model()
    save_model(model, tmp_path, dtype=dtype, largest=5000)
    assert all(v.dtype == dtype for f in shards(tmp_path) for v in load_file(f).values())
    assert torch.equal(load_model(tmp_path).head, model.head.to(dtype).float())
    assert load_model(tmp_path, dtype=dtype).head.dtype == dtype


def test_a_missing_shard(folder):
    shards(folder)[1].unlink()
    with pytest.raises(ValueError,
                       match="index.json names model-00002-of-00003.safetensors, which is not in the folder"):
        load_model(folder)


def test_a_shard_that_is_not_the_indexs(folder):
    first, second, _ = shards(folder)
    second.write_bytes(first.read_bytes())
    with pytest.raises(
            ValueError,
            match=r"model-00002-of-00003.safetensors does not hold what .* unknown \['model.embed_tok"):
        load_model(folder)


def test_a_shard_cut_short(folder):
    path = shards(folder)[2]
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="model-00003-of-00003.safetensors cannot be read as safetensors"):
        load_model(folder)


def changed(folder, name, change):
    """The file that holds a tensor, rewritten with another in its place."""
    path = list_weights(folder)[name].path
    tensors = load_file(path)
    save_file(tensors | {name: change(tensors[name])}, path)


def test_a_tensor_of_another_shape_or_dtype(folder):
    changed(folder, "model.norm.weight", lambda x: x[:-1].clone())
    with pytest.raises(
            ValueError,
            match=r"model-00003-of-00003.safetensors: model.norm.weight is \[15\], .* expects \[16\]"):
        load_model(folder)
    changed(folder, "model.norm.weight", lambda x: torch.ones(16, dtype=torch.int8))
    with pytest.raises(ValueError, match="00003.safetensors: model.norm.weight is I8; weights are read as "
                                         "float32, bfloat16"):
        load_model(folder)


@pytest.mark.parametrize(("file", "words"), [
    ("../secret.safetensors", "only safetensors files in the same folder"),
    ("/etc/passwd", "only safetensors files in the same folder"),
    ("..\\x.safetensors", "only safetensors files in the same folder"),
    ("weights.bin", "only safetensors files in the same folder"),
    (3, "weight_map must give a file for each tensor"),
])
def test_an_index_stays_in_its_folder(folder, file, words):
    save_file({"model.norm.weight": torch.ones(16)}, folder.parent / "secret.safetensors")
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = file
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(ValueError, match=words):
        load_model(folder)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}'])
def test_an_index_that_is_none(folder, text):
    (folder / INDEX).write_text(text)
    with pytest.raises(ValueError, match="index.json"):
        load_model(folder)


def test_a_pickle_is_not_opened(folder):
    for path in (folder / INDEX, *shards(folder)):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(ValueError, match="pytorch_model.bin, a pickle, which is never opened"):
        load_model(folder)


def test_a_tied_head_that_is_stored_again(tmp_path):
    """A copy is fine, another head is a contradiction; stored rotary frequencies say nothing new."""
    model = small_model()
    save_model(model, tmp_path)
    tensors = load_file(tmp_path / SINGLE)
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    head = tensors["model.embed_tokens.weight"]
    save_file(tensors | extra | {"lm_head.weight": head.clone()}, tmp_path / SINGLE)
    assert torch.equal(load_model(tmp_path).head, model.head)
    save_file(tensors | {"lm_head.weight": head + 1}, tmp_path / SINGLE)
    with pytest.raises(ValueError,
                       match="model.safetensors: lm_head.weight differs from .* but config.json ties them"):
        load_model(tmp_path)


def test_a_tokenizer_without_a_chat_template(folder):
    CHAT.save(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": None}))
    with pytest.raises(ValueError, match="tokenizer_config.json has no chat_template"):
        Chat.load(folder)
