"""GGUF files out: read again by our own reader, weights, tokenizer and greedy text; and by the package's."""

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

from postgrad.cli import main
from postgrad.models import load_model
from postgrad.models.chat import Chat
from postgrad.models.gguf import convert_gguf
from postgrad.models.gguf_write import split_name, write_gguf
from postgrad.models.load import EMBEDDED
from postgrad.resolve.models import open_named_model

gguf = pytest.importorskip("gguf", reason="the extra postgrad[gguf] is not installed")
QUESTIONS = ["Tom has 15 cakes. A friend gives Tom 12. How many cakes?", "What is 3 + 4?", "naïve  1234\n?"]


def read_back(file, place):
    place.mkdir()
    convert_gguf(file, place)
    return load_model(place), Chat.load(place)


def rounded(model):
    """The model with its matrices rounded to 16 bits."""
    for x in model.parameters():
        if x.dim() == 2:
            x.data = x.data.half().float()
    return model


def greedy(folder, question):
    return open_named_model(str(folder), "cpu").reply(question, max_new_tokens=24, temperature=0.0)


def test_f16_is_the_rounded_model(tmp_path, capsys):
    assert main(["export", "tiny-chat", "--out", str(tmp_path / "m.gguf"), "--gguf", "f16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["m.gguf"]
    ours, chat = read_back(tmp_path / "m.gguf", tmp_path / "again")
    base = rounded(load_model("tiny-chat"))
    assert all(torch.equal(x, y) for x, y in zip(ours.parameters(), base.parameters(), strict=True))
    theirs = Chat.load(EMBEDDED["tiny-chat"])
    for text in QUESTIONS:
        messages = [{"role": "user", "content": text}]
        assert chat.render(messages) == theirs.render(messages) and chat.stop == theirs.stop
    assert main(["export", "tiny-chat", "--out", str(tmp_path / "half"), "--dtype", "fp16"]) == 0
    for text in QUESTIONS:
        assert greedy(tmp_path / "again", text) == greedy(tmp_path / "half", text) != ""


@pytest.mark.parametrize(("kind", "bits", "worst"), [("q8_0", 8.5, 0.006), ("q4_0", 5.2, 0.12)])
def test_fewer_bits(kind, bits, worst, tmp_path):
    assert main(["export", "tiny-chat", "--out", str(tmp_path / "m.gguf"), "--gguf", kind]) == 0
    ours, base = read_back(tmp_path / "m.gguf", tmp_path / "again")[0], load_model("tiny-chat")
    for x, y in zip(ours.parameters(), base.parameters(), strict=True):
        assert (x - y).abs().max() <= worst * y.abs().max()
    size = sum(x.numel() for x in base.parameters())
    assert (tmp_path / "m.gguf").stat().st_size * 8 / size < bits + 0.3  # and the tokenizer


@pytest.mark.parametrize("kind", ["llama", *(pytest.param(kind, marks=pytest.mark.long)
                                             for kind in ("qwen2", "qwen3"))])
def test_every_family_against_transformers(kind, tmp_path):
    """Random weights of a family, written by us, opened by transformers."""
    torch.manual_seed(1)
    tokenizer = EMBEDDED["tiny-chat"]
    sizes = dict(vocab_size=1030, hidden_size=64, intermediate_size=96, num_hidden_layers=2, head_dim=16,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    if kind == "qwen3":
        sizes["head_dim"] = 128  # transformers takes no other from a GGUF file
    config = AutoConfig.for_model(kind, **sizes, initializer_range=0.2, tie_word_embeddings=False)
    model = AutoModelForCausalLM.from_config(config).float()
    model.save_pretrained(tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "model" / name).write_bytes((tokenizer / name).read_bytes())
    write_gguf(tmp_path / "model", tmp_path / "x.gguf", "f16", "x")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="x.gguf", dtype=torch.float32)
    tokens = torch.randint(0, 1000, (2, 40), generator=torch.Generator().manual_seed(0))
    ours = load_model(tmp_path / "model")
    wanted = rounded(ours).logits(tokens)
    assert wanted.std() > 0.3
    torch.testing.assert_close(theirs(tokens).logits, wanted, rtol=0, atol=5e-5)


def test_an_adapter_alone(tmp_path, capsys):
    """B A with llama.cpp's scale, in its order of rows, is what training added."""
    run = tmp_path / "run"
    assert main(["train", "sft:words", "steps=2", "rows_per_step=2", "examples=4", "evaluation.every=0",
                 "lora=4", "alpha=12", "lr=0.01", "save_every=2", "--run", str(run), "--json"]) == 0
    for words in (["m.gguf"], ["a.gguf", "--adapter"]):
        assert main(["export", str(run), "--gguf", "f16", "--out", str(tmp_path / words[0]), *words[1:]]) == 0
    assert main(["export", "tiny", "--gguf", "f16", "--out", str(tmp_path / "b.gguf")]) == 0
    files = {name: gguf.GGUFReader(tmp_path / f"{name}.gguf") for name in "mab"}
    facts = {key: field.contents() for key, field in files["a"].fields.items()}
    assert (facts["general.type"], facts["adapter.type"]) == ("adapter", "lora")
    assert facts["adapter.lora.alpha"] == 12
    m, a, b = ({t.name: t.data.astype(np.float32) for t in files[name].tensors} for name in "mab")
    names = {name.removesuffix(".lora_a") for name in a if name.endswith("a")}
    assert len(names) == 4 * 7
    for name in names:
        update = 3 * a[f"{name}.lora_b"] @ a[f"{name}.lora_a"]
        np.testing.assert_allclose(b[name] + update, m[name], atol=2e-3)
    assert max(np.abs(m[name] - b[name]).max() for name in names) > 0.01
    capsys.readouterr()


@pytest.mark.parametrize(("words", "sentence"), [
    (["tiny", "--out", "m", "--gguf", "f16"], "--gguf writes one file, and --out is m: name FILE.gguf"),
    (["tiny", "--out", "m.gguf", "--gguf", "q8_0", "--adapter"], "an adapter's matrices are written as f16"),
    (["tiny", "--out", "m.gguf", "--gguf", "q8_0", "--dtype", "fp16"], "leave --dtype out"),
])
def test_what_is_refused(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["export", *words]) == 2
    assert sentence in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_what_a_file_cannot_hold_is_refused(tmp_path, capsys):
    raw = json.loads(Tokenizer.from_file(str(EMBEDDED["tiny"] / "tokenizer.json")).to_str())
    assert split_name(raw) == "smollm"
    with pytest.raises(ValueError, match="none whose splitting has a name here"):
        split_name(raw | {"pre_tokenizer": {"type": "Whitespace"}})
    folder = tmp_path / "model"
    assert main(["export", "tiny", "--out", str(folder)]) == 0
    config = json.loads((folder / "config.json").read_text())
    for change, sentence in (({"model_type": "mistral"}, "'mistral'; llama, qwen2, qwen3 are written"),
                             ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "are not supported")):
        (folder / "config.json").write_text(json.dumps(config | change))
        assert main(["export", str(folder), "--out", str(tmp_path / "m.gguf"), "--gguf", "f16"]) == 2
        assert sentence in capsys.readouterr().err and not (tmp_path / "m.gguf").exists()
