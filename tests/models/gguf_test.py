"""GGUF files against transformers' own reading of them, and `postgrad fetch` without a network."""

import hashlib
import json
import os
import struct
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from transformers import AutoModelForCausalLM, Qwen2Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter

from postgrad.cli import main
from postgrad.models import Config, load_model
from postgrad.models import gguf as gguf_files
from postgrad.models.chat import Chat
from postgrad.models.families import FAMILIES, Architecture
from postgrad.models.gguf import MANY_TEXTS, check_header, convert_gguf, pre_tokenizer_for
from postgrad.models.layer import stored_tensors

gguf = pytest.importorskip("gguf", reason="the extra postgrad[gguf] is not installed")
TEMPLATE = ("{% for m in messages %}<|s|>{{ m.content }}<|e|>{% endfor %}{% if add_generation_prompt %}"
            "<|s|>{% endif %}")
ALPHABET = sorted(ByteLevel.alphabet())
# "12" is never made: digits stand alone
WORDS = ["<|s|>", "<|e|>", *ALPHABET, "Ġt", "Ġth", "12", "he", "<note>"]
MERGES = ["Ġ t", "Ġt h", "1 2", "h e"]


def write(path, kind="llama", *, tied=True, eight_bits=False, split="smollm", words=WORDS, **more):
    """A tiny file with random weights, two layers, as llama.cpp's converter lays it out."""
    out, draw = gguf.GGUFWriter(path, kind), np.random.default_rng(len(kind))
    facts = dict(block_count=2, context_length=64, embedding_length=64, feed_forward_length=96) | more
    for key, value in facts.items():
        out.add_uint32(f"{kind}.{key}",
                       value) if isinstance(value, int) else out.add_string(f"{kind}.{key}", value)
    out.add_head_count(4)
    out.add_head_count_kv(2)
    out.add_rope_freq_base(500.0)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(split)
    out.add_token_list(words)
    out.add_token_types([3, 3] + [1] * (len(words) - 3) + [4])
    out.add_token_merges(MERGES)
    out.add_bos_token_id(0)
    out.add_eos_token_id(1)
    out.add_chat_template(TEMPLATE)

    def add(name, *shape):
        x = (draw.standard_normal(shape) * 0.2 + ("norm" in name)).astype(np.float32)
        q8 = gguf.GGMLQuantizationType.Q8_0
        if eight_bits and len(shape) == 2:
            out.add_tensor(f"{name}.weight", gguf.quantize(x, q8), raw_dtype=q8)
        else:
            out.add_tensor(name if name.endswith("bias") else f"{name}.weight", x)

    add("token_embd", len(words), 64)
    add("output_norm", 64)
    if not tied:
        add("output", len(words), 64)
    head = more.get("attention.key_length", 16)
    for i in range(2):
        sizes = dict(attn_norm=(64,), ffn_norm=(64,), attn_q=(4 * head, 64), attn_k=(2 * head, 64),
                     attn_v=(2 * head, 64), attn_output=(64, 4 * head), ffn_gate=(96, 64), ffn_up=(96, 64),
                     ffn_down=(64, 96))
        if kind == "qwen2":
            sizes |= {"attn_q.bias": (64,), "attn_k.bias": (32,), "attn_v.bias": (32,)}
        if kind == "qwen3":
            sizes |= {"attn_q_norm": (head,), "attn_k_norm": (head,)}
        for name, shape in sizes.items():
            add(f"blk.{i}.{name}", *shape)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


@pytest.mark.parametrize(("kind", "more"), [
    ("llama", {}), ("llama", dict(tied=False, eight_bits=True)), ("qwen2", {}),
    ("qwen3", {"attention.key_length": 128, "attention.value_length": 128}),  # transformers takes no other
])
def test_a_file_is_what_transformers_makes_of_it(kind, more, tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    convert_gguf(write(tmp_path / "x.gguf", kind, **more), made)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="x.gguf", dtype=torch.float32)
    again, ours = AutoModelForCausalLM.from_pretrained(made, dtype=torch.float32), load_model(made)
    tokens = torch.randint(0, len(WORDS), (2, 40), generator=torch.Generator().manual_seed(0))
    wanted = theirs(tokens).logits
    assert type(again) is type(theirs) and wanted.std() > 0.3
    torch.testing.assert_close(ours.logits(tokens), wanted, rtol=0, atol=2e-5)
    torch.testing.assert_close(again(tokens).logits, wanted, rtol=0, atol=2e-5)


def test_the_tokenizer_comes_along(tmp_path):
    convert_gguf(write(tmp_path / "x.gguf"), tmp_path)
    chat = Chat.load(tmp_path)
    assert chat.pieces(chat.render([{"role": "user", "content": "the the 12<note>"}])) == [
        "<|s|>", "t", "he", " th", "e", " ", "1", "2", "<note>", "<|e|>", "<|s|>"]
    assert chat.stop == (1,) and chat.decode(chat.encode("<|s|>the 12 é<note>\n<|e|>")) == "the 12 é<note>\n"


TEXTS = ["Don't SHE'LL go  on\r\n\n x1234.5e-6", " a\tb \u3000 c",
         "naïve café e\u0301 数学1２3 🙂!!\n?", "  ", "can't've 12345 67"]


@pytest.mark.parametrize("kind", ["qwen2", "llama-bpe"])
def test_words_are_split_as_transformers_splits_them(kind):
    if kind == "qwen2":
        theirs = Qwen2Tokenizer(vocab={c: i for i, c in enumerate(ALPHABET)}, merges=[])._tokenizer
    else:  # Llama 3's, which transformers makes of a tiktoken file
        theirs = Tokenizer(BPE())
        theirs.pre_tokenizer = Sequence([Split(Regex(TikTokenConverter().pattern), "isolated"),
                                         ByteLevel(False, True, False)])
    for text in TEXTS:
        assert pre_tokenizer_for(kind).pre_tokenize_str(text) == theirs.pre_tokenizer.pre_tokenize_str(text)


@pytest.mark.parametrize(("split", "pieces"), [("qwen2", "1|2|3|4| th|e"), ("llama-bpe", "12|3|4| the")])
def test_other_splittings(split, pieces, tmp_path):
    """Digits stand alone with Qwen, and in threes with Llama 3, which takes a word that it has without
    looking at merges."""
    words = [*WORDS[:-1], "Ġthe", "<note>"]
    convert_gguf(write(tmp_path / "x.gguf", split=split, words=words), tmp_path)
    chat = Chat.load(tmp_path)
    assert chat.pieces(chat.encode("1234 the")) == pieces.split("|")
    assert (chat.encode("e\u0301") == chat.encode("é")) is (split == "qwen2")  # normalised


@pytest.mark.parametrize(("more", "words"), [
    (dict(kind="gemma3"), "its architecture is 'gemma3'; llama, qwen2, qwen3 are read"),
    (dict(split="tekken"),
     "its tokenizer is 'gpt2' with the splitting 'tekken'; read are 'gpt2' with smollm, llama"),
    ({"rope.scaling.type": "yarn"}, "llama.rope.scaling.type is 'yarn', which is not supported"),
    ({"rope.dimension_count": 8}, "llama.rope.dimension_count is 8, a head's size 16"),
    (dict(expert_count=4), "llama.expert_count is 4"),
])
def test_what_is_not_understood_is_refused(more, words, tmp_path):
    with pytest.raises(ValueError, match=f"x.gguf: {words}"):
        convert_gguf(write(tmp_path / "x.gguf", **more), tmp_path)


def test_a_tensor_that_the_decoder_has_not(tmp_path, monkeypatch):
    """Qwen2's biases, read as a family that has none."""
    monkeypatch.setitem(FAMILIES, "qwen2", replace(FAMILIES["qwen2"], bias_on_qkv=False))
    with pytest.raises(ValueError, match="x.gguf: its tensor blk.0.attn_q.bias is not one that this decoder"):
        convert_gguf(write(tmp_path / "x.gguf", "qwen2"), tmp_path)


@pytest.mark.parametrize("kind", [kind for kind, family in FAMILIES.items() if family.gguf_arch])
def test_names_are_those_of_the_package(kind):
    """Hugging Face's names through the package's own table, for every family that GGUF has."""
    named = FAMILIES[kind].gguf_arch
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == named)
    table = gguf.get_tensor_name_map(arch, 2)
    config = Config(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=2, head_dim=4,
                    num_attention_heads=2, num_key_value_heads=1,
                    architecture=Architecture(model_type=kind, qkv_bias=True, o_bias=True))
    for tensor in stored_tensors(config):
        assert table.get_name(tensor.name, try_suffixes=(".weight", ".bias")) == tensor.gguf, tensor.name


@pytest.mark.parametrize("keep", [0, 3, 40, 900])
def test_a_file_that_was_cut_short(tmp_path, keep):
    path = write(tmp_path / "x.gguf")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="x.gguf cannot be read as GGUF"):
        convert_gguf(path, tmp_path)


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel with a tiny model in it, known by the name "small"."""
    source, path = write(tmp_path / "x.gguf"), tmp_path / "small.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(source, "small/x.gguf")
    packed = gguf_files.WheelModel(title="Small", licence="none", package="no-such-package-postgrad",
                                   version="1", member="small/x.gguf",
                                   sha256=hashlib.sha256(source.read_bytes()).hexdigest())
    monkeypatch.setitem(gguf_files.MODELS, "small", packed)
    return path


@pytest.mark.parametrize("out", [[], ["--out", "new/deep/got"]])
def test_a_fetch_that_fails_leaves_no_folder(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.gguf").write_bytes(b"GGUF and no more")
    assert main(["fetch", "model.gguf", *out]) == 2
    assert [place.name for place in tmp_path.iterdir()] == ["model.gguf"]


def test_fetch_makes_a_folder_that_loads(wheel, tmp_path, capsys):
    assert main(["fetch", "small", "--wheel", str(wheel), "--out", str(tmp_path / "got"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == str(tmp_path / "got")
    assert (load_model(tmp_path / "got").config.vocab_size == len(WORDS)
            and Chat.load(tmp_path / "got").eos == "<|e|>")
    assert main(["fetch", "small", "--wheel", str(wheel), "--out", str(tmp_path / "got")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["got", "small.whl", "x.gguf"]


def test_a_file_that_is_here_becomes_a_folder(tmp_path, capsys):
    path, made = write(tmp_path / "x.gguf"), tmp_path / "made"
    assert main(["fetch", str(path), "--out", str(made)]) == 0
    assert capsys.readouterr().out == f"x.gguf is in {made}\n  postgrad chat {made}\n"
    assert main(["chat", str(made), "--prompt", "the", "--max-new-tokens", "3"]) == 0
    capsys.readouterr()
    path.write_bytes(path.read_bytes()[:900])
    for words, said in (([str(path), "--out", str(tmp_path / "y")], "x.gguf cannot be read as GGUF"), (
            [str(path), "--wheel", "z.whl"], "--wheel z.whl is for the models that come in one"), (
            ["nosuch.gguf"], "there is no file nosuch.gguf"),
                        ([str(path), "--out", str(made)], "exists already")):
        assert main(["fetch", *words]) == 2 and said in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made", "x.gguf"]


def test_another_file_under_the_same_name_is_refused(wheel, tmp_path):
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small/x.gguf", b"something else")
    with pytest.raises(ValueError, match="the sha256 of small/x.gguf is .* do not use this file"):
        gguf_files.fetch_model("small", tmp_path / "got", wheel=wheel)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other", b"")
    with pytest.raises(ValueError, match="small.whl is not a wheel with small/x.gguf in it"):
        gguf_files.fetch_model("small", tmp_path / "got", wheel=wheel)
    assert not (tmp_path / "got").exists()


def test_no_network_says_what_to_do(wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(ValueError,
                       match="no-such-package-postgrad==1 could not be downloaded .* --wheel FILE"):
        gguf_files.fetch_model("small", tmp_path / "got")
    with pytest.raises(ValueError, match="no model is called 'large' here; there is smollm2"):
        gguf_files.fetch_model("large", tmp_path / "got")


def test_without_the_extra(wheel, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match=r"needs the package gguf: pip install 'postgrad\[gguf\]'"):
        gguf_files.fetch_model("small", tmp_path / "got", wheel=wheel)


@pytest.mark.parametrize("text", [b"", b"a"])
def test_a_file_of_very_many_texts_is_refused_before_the_package_reads_it(text, tmp_path):
    """A million texts took it over a minute."""
    def written(text):
        return struct.pack("<Q", len(text)) + text

    count = 101 if text == b"" else MANY_TEXTS + 1
    path = tmp_path / "many.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + written(b"tokenizer.ggml.tokens")
                     + struct.pack("<IIQ", 9, 8, count) + written(text) * count)
    with pytest.raises(ValueError, match="over 524,288 texts, or 100 empty ones"):
        check_header(path)
