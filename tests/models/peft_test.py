"""Adapters in peft's layout, with peft itself as the oracle in both directions; and models out of runs."""

import json

import pytest
import torch
from foreign_small import small_folders
from safetensors.torch import load_file, save_file
from settings_text import override
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, Qwen3MoeConfig

from postgrad.cli import main
from postgrad.models import (
    Adapter,
    ScalarModel,
    find_model,
    folder_with_file,
    load_model,
    load_scalar,
    model_files,
    save_model,
)
from postgrad.models.chat import Chat
from postgrad.models.hf_model import HFModel
from postgrad.models.lora import parameter_key
from postgrad.models.pass_noise import PassNoise, dropout, noisy_pass
from postgrad.models.peft import ADAPTER, ADAPTER_CONFIG, adapter_tensors, merge_adapter, write_adapter
from postgrad.recipes import sft
from postgrad.recipes.running import start_run
from postgrad.records import Prompt, Sampling
from postgrad.resolve import models as opening
from postgrad.sampling import LocalSampler
from tests.models.lora_test import TOKENS, adapted

peft = pytest.importorskip("peft", reason="peft is the other side of these tests: pip install -e '.[test]'")
LoraConfig, PeftModel, get_peft_model = peft.LoraConfig, peft.PeftModel, peft.get_peft_model
TINY = find_model("tiny")
CLOSE = {"rtol": 0, "atol": 2e-5}  # weights that are merged are rounded once more


folder = pytest.fixture(scope="module")(small_folders)


def theirs(kind=AutoModelForCausalLM, folder=TINY):
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def test_peft_opens_our_adapter(tmp_path):
    model = adapted(alpha=3.0, targets=("q_proj", "v_proj", "down_proj"))
    write_adapter(model, tmp_path / "adapter", str(TINY))
    save_model(model, tmp_path)
    merged = load_model(tmp_path).logits(TOKENS)
    with torch.no_grad():
        said = PeftModel.from_pretrained(theirs(), tmp_path / "adapter")(TOKENS).logits
    torch.testing.assert_close(said, merged, **CLOSE)
    torch.testing.assert_close(load_model(tmp_path / "adapter").logits(TOKENS), merged, **CLOSE)
    assert (merged - load_model(TINY).logits(TOKENS)).abs().max() > 0.1


@pytest.mark.parametrize("options", [
    {}, {"target_modules": ["q_proj", "down_proj"], "lora_alpha": 16}, {"use_rslora": True},
    {"use_dora": True}, {"use_dora": True, "use_rslora": True},
    {"layers_to_transform": [1, 3]}, {"rank_pattern": {"v_proj": 2}}])
def test_we_open_what_peft_has_made(options, tmp_path):
    config = LoraConfig(**{"r": 5, "lora_alpha": 7, "task_type": "CAUSAL_LM", "init_lora_weights": False,
                           "target_modules": ["q_proj", "v_proj"], **options})
    torch.manual_seed(0)  # peft draws the matrices from the global generator
    model = get_peft_model(theirs(), config)
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        said = model.double()(TOKENS).logits  # in float32 the two decoders by themselves differ by about 1e-5
    torch.testing.assert_close(load_model(tmp_path, dtype=torch.float64).logits(TOKENS), said, **CLOSE)
    assert (said - load_model(TINY).logits(TOKENS)).abs().max() > 0.1


@pytest.mark.parametrize("options", [{"rslora": True}, {"dora": True}, {"dora": True, "rslora": True}])
def test_rslora_and_dora_compute_what_peft_does(options, tmp_path):
    """Logits and every gradient of the adapter, after steps that moved all of its parameters."""
    model = adapted(alpha=3.0, targets=("q_proj", "down_proj"), **options)
    write_adapter(model, tmp_path, str(TINY))
    peft_model = PeftModel.from_pretrained(theirs(), tmp_path, is_trainable=True)
    said, ours = peft_model(TOKENS).logits, model.logits(TOKENS)
    torch.testing.assert_close(ours, said, **CLOSE)
    torch.testing.assert_close(load_model(tmp_path).logits(TOKENS), said, **CLOSE)
    same_gradients(model, ours, peft_model, said)


class OurMask(torch.nn.Module):
    """In the place of peft's dropout: what it would draw, drawn by ours."""

    def __init__(self, path, model, noise):
        super().__init__()
        self.drawn_by = model.adapter.dropout, noise, model.adapter.seed, path

    def forward(self, x):
        return dropout(x.flatten(0, 1), *self.drawn_by).view_as(x)


@pytest.mark.parametrize("dora", [False, True])
def test_dropout_is_where_peft_has_it(dora, tmp_path):
    model = adapted(alpha=3.0, targets=("q_proj", "down_proj"), dropout=0.4, dora=dora)
    write_adapter(model, tmp_path, str(TINY))
    peft_model = PeftModel.from_pretrained(theirs(), tmp_path, is_trainable=True).train()
    noise = PassNoise(3, ("a", "b", "c"), torch.full((3,), 30), None)
    for path, layer in peft_model.named_modules():
        if hasattr(layer, "lora_dropout"):
            assert layer.lora_dropout["default"].p == 0.4
            layer.lora_dropout["default"] = OurMask(parameter_key(path.removeprefix("base_model.model.")),
                                                    model, noise)
    plain = model.logits(TOKENS)
    with noisy_pass([model.body], noise):
        ours = model.logits(TOKENS)
        with torch.no_grad():
            assert torch.equal(model.logits(TOKENS), plain)  # old log-probs and evaluations
    said = peft_model(TOKENS).logits
    torch.testing.assert_close(ours, said, **CLOSE)
    assert (ours - plain).abs().max() > 0.1
    same_gradients(model, ours, peft_model, said)


@pytest.mark.parametrize(("kind", "options"), [
    ("gpt2", {}), ("gpt2", {"dora": True}), ("gpt2", {"modules_to_save": ("lm_head",)}),
    ("gpt_neox", {"modules_to_save": ("lm_head", "final_layer_norm")}),
    ("gpt_neox", {"modules_to_save": ("embed_in", "dense")})])
def test_conv1d_and_modules_to_save_through_transformers(kind, options, folder, tmp_path):
    """Equal logits in training, in the saved folder, in the adapter's and in peft's; GPT-2's head is tied."""
    base = folder(kind)
    model = adapted(load_model(base), **options)
    write_adapter(model, tmp_path / "adapter", str(base))
    save_model(model, tmp_path / "merged")
    peft_model = PeftModel.from_pretrained(theirs(folder=base), tmp_path / "adapter", is_trainable=True)
    said, ours = peft_model(TOKENS).logits, model.logits(TOKENS)
    for logits in (ours, *(load_model(tmp_path / name).logits(TOKENS) for name in ("merged", "adapter"))):
        torch.testing.assert_close(logits, said, rtol=1e-4, atol=1e-4)
    assert (said - load_model(base).logits(TOKENS)).abs().max() > 0.1
    if kind != "gpt2" or "modules_to_save" not in options:  # peft trains tied weights apart
        same_gradients(model, ours, peft_model, said)
    peft_model.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(load_model(tmp_path / "again").logits(TOKENS), said, rtol=1e-4, atol=1e-4)


def test_modules_to_save_of_a_decoder(tmp_path):
    """The tied embedding is trained as one: in sampling, the saved folder and peft; the body stays."""
    model = adapted(modules_to_save=("embed_tokens", "norm"))
    assert {name.split("/")[-2] for name in model.adapter.whole} == {"embed_tokens", "norm"}
    assert all(torch.equal(p, load_model(TINY).state_dict()[name])
               for name, p in model.body.state_dict().items())
    write_adapter(model, tmp_path / "adapter", str(TINY))
    (tmp_path / "merged").mkdir()
    save_model(model, tmp_path / "merged")
    assert json.loads((tmp_path / "adapter" / ADAPTER_CONFIG).read_text())["modules_to_save"] == [
        "lm_head", "model.embed_tokens", "model.norm"]
    said = PeftModel.from_pretrained(theirs(), tmp_path / "adapter")(TOKENS).logits
    for logits in (model.logits(TOKENS),
                   *(load_model(tmp_path / name).logits(TOKENS) for name in ("merged", "adapter"))):
        torch.testing.assert_close(logits, said, **CLOSE)
    chat = Chat.load(TINY)
    (row,), = LocalSampler(model, chat).sample([Prompt.ask("Hi", id="1")], 1, Sampling(max_new_tokens=12), 0)
    tokens = torch.tensor([[*row.prompt_tokens, *row.tokens]])
    mask = torch.arange(tokens.shape[1])[None] >= len(row.prompt_tokens)
    torch.testing.assert_close(model.logp(tokens, mask)[0][mask], torch.tensor(row.logp), rtol=0, atol=1e-4)
    tensors = load_file(tmp_path / "adapter" / ADAPTER)
    tensors["base_model.model.lm_head.weight"] += 1
    save_file(tensors, tmp_path / "adapter" / ADAPTER)
    with pytest.raises(ValueError, match="was trained apart from the weight that it is tied to"):
        load_model(tmp_path / "adapter")
    with pytest.raises(ValueError, match="modules_to_save names lm_haed: the model's modules with w"):
        adapted(steps=0, modules_to_save=("lm_haed",))


def test_experts_are_named_or_refused(capsys):
    sizes = dict(vocab_size=64, hidden_size=16, intermediate_size=8, moe_intermediate_size=8, num_experts=4,
                 num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=8)
    body = HFModel(AutoModelForCausalLM.from_config(Qwen3MoeConfig(**sizes)))
    draw = torch.Generator()
    assert {path.split(".")[-1] for path in Adapter(body, rank=2, generator=draw).paths} == {
        "q_proj", "k_proj", "v_proj", "o_proj"}
    assert "the experts get no adapter and stay as they are (network.model.l" in capsys.readouterr().err
    Adapter(body, rank=2, generator=draw, targets=("q_proj",))
    assert not capsys.readouterr().err
    with pytest.raises(ValueError, match="down_proj are weights of experts, one tensor for all of them"):
        Adapter(body, rank=2, generator=draw, targets=("q_proj", "down_proj"))


def same_gradients(model, ours, peft_model, said):
    weigh = torch.randn(1024, generator=torch.Generator().manual_seed(4)) / 1024
    model.zero_grad()
    for logits in (said, ours):
        (logits * weigh).sum().backward()
    grads = {name.replace(".default", "").removesuffix(".weight"): p.grad
             for name, p in peft_model.named_parameters() if p.requires_grad}
    grads = {name.replace(".modules_to_save", ""): grad for name, grad in grads.items()}
    mine = {name.removesuffix(".weight"): p.grad for name, p in adapter_tensors(model).items()}
    assert mine.keys() == grads.keys()
    for name, grad in mine.items():
        assert (grad - grads[name]).norm() < 1e-4 * grads[name].norm(), name


def test_a_reward_model_s_adapter_carries_its_head(tmp_path):
    scalar = ScalarModel(adapted())
    scalar.score_head.weight.data.normal_(0, 0.05, generator=torch.Generator().manual_seed(2))
    write_adapter(scalar, tmp_path, str(TINY))
    model = PeftModel.from_pretrained(AutoModelForSequenceClassification.from_pretrained(
        TINY, num_labels=1, dtype=torch.float32, pad_token_id=0).eval(), tmp_path)
    rows = TOKENS.clamp_min(1)  # no padding among them
    with torch.no_grad():
        said = model(rows).logits[:, 0]
    lengths = torch.full((len(rows),), rows.shape[1])
    torch.testing.assert_close(load_scalar(tmp_path).score(rows, lengths), said, **CLOSE)
    torch.testing.assert_close(scalar.score(rows, lengths), said, **CLOSE)
    with pytest.raises(ValueError, match="is a reward model, which scores text"):
        load_model(tmp_path)


@pytest.mark.parametrize(("changes", "words"), [
    ({"use_dora": True}, "lora_magnitude_vector is None, and DoRA has"),
    ({"use_qalora": True}, "asks for QALoRA; read are plain LoRA adapters"),
    ({"bias": "all"}, r"trained biases \(all\)"),
    ({"alpha_pattern": {"q_proj": 3}}, "an alpha for each layer"), ({"peft_type": "IA3"}, "a IA3 adapter"),
    ({"modules_to_save": ["lm_head"]}, "lacks lm_head, which adapter_config.json"),
    ({"init_lora_weights": "pissa"}, "a start by pissa"),
    ({"base_model_name_or_path": None}, "base_model_name_or_path is None"),
    ({"lora_alpha": None}, "cannot be read as peft's"),
    ({"base_model_name_or_path": "nowhere"}, "no model at nowhere")])
def test_what_is_not_read_is_said(changes, words, tmp_path):
    write_adapter(adapted(steps=0), tmp_path, "tiny")
    said = json.loads((tmp_path / ADAPTER_CONFIG).read_text())
    (tmp_path / ADAPTER_CONFIG).write_text(json.dumps(said | changes))
    with pytest.raises(ValueError, match=words):
        load_model(tmp_path)


@pytest.mark.parametrize(("change", "words"), [
    (lambda t: t | {"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(1)},
     "embedding_A is no LoRA matrix"),
    (lambda t: {k.replace("layers.0", "layers.9"): v for k, v in t.items()},
     "layers.9.mlp.down_proj.lora_A.weight is no LoRA"),
    (lambda t: {k: v[:, :-1].contiguous() if "k_proj.lora_A" in k else v for k, v in t.items()},
     "do not fit its weight"),
    (lambda t: {k: v for k, v in t.items() if "k_proj.lora_B" not in k}, r"k_proj are \[4, 192\] and None")])
def test_a_file_that_does_not_fit_is_said(change, words, tmp_path):
    write_adapter(adapted(steps=0), tmp_path, "tiny")
    save_file(change(load_file(tmp_path / ADAPTER)), tmp_path / ADAPTER)
    with pytest.raises(ValueError, match=words):
        load_model(tmp_path)
    (tmp_path / ADAPTER).unlink()
    with pytest.raises(ValueError, match="has adapter_config.json but no adapter_model.safetensors"):
        load_model(tmp_path)


def test_adapters_on_adapters_are_merged_in_turn_and_none_stands_on_itself(tmp_path):
    low, high = tmp_path / "low", tmp_path / "high"
    write_adapter(adapted(targets=("q_proj",)), low, str(TINY))
    write_adapter(adapted(targets=("down_proj",)), high, str(low))
    body = load_model(TINY)
    merge_adapter(body, low)
    merge_adapter(body, high)
    torch.testing.assert_close(load_model(high).logits(TOKENS), body.logits(TOKENS), **CLOSE)
    assert folder_with_file(high, "tokenizer.json") == TINY
    assert model_files(high) == [high / ADAPTER, high / ADAPTER_CONFIG, low / ADAPTER, low / ADAPTER_CONFIG,
                                    TINY / "model.safetensors"]
    said = json.loads((low / ADAPTER_CONFIG).read_text())
    for name in (low, high):
        (low / ADAPTER_CONFIG).write_text(json.dumps(said | {"base_model_name_or_path": str(name)}))
        for act in (load_model, model_files, lambda folder: folder_with_file(folder, "tokenizer.json")):
            with pytest.raises(ValueError, match="which stands on this adapter itself"):
                act(high)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = override(sft.SFTConfig(task="words", rows_per_step=4, examples=32, steps=2),
                      ["lora=2", "targets=q_proj,o_proj", "alpha=8"])
    return start_run(config, tmp_path_factory.mktemp("runs") / "run")


def test_a_run_is_exported(run, tmp_path, capsys):
    assert main(["export", str(run.folder), "--out", str(tmp_path / "model"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["README.md", "config.json",
                                                            "generation_config.json",
                                                            "model.safetensors", "tokenizer.json",
                                                            "tokenizer_config.json"]
    merged = load_model(run.folder / "checkpoints" / "000002").logits(TOKENS)
    assert torch.equal(load_model(tmp_path / "model").logits(TOKENS), merged)
    with torch.no_grad():
        said = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)(TOKENS).logits
    torch.testing.assert_close(said, merged, rtol=0, atol=1e-4)
    assert main(["export", str(run.folder), "--out", str(tmp_path / "half"), "--dtype", "bf16"]) == 0
    assert all(x.dtype == torch.bfloat16 for x in load_file(tmp_path / "half" / "model.safetensors").values())
    assert main(["export", str(run.folder), "--out", str(tmp_path / "half")]) == 2
    assert "half exists already" in capsys.readouterr().err


def test_an_adapter_is_exported_and_is_a_model(run, tmp_path, capsys):
    assert main(["export", str(run.folder), "--out", str(tmp_path / "thin"), "--adapter"]) == 0
    assert sorted(p.name for p in (tmp_path / "thin").iterdir()) == ["README.md", ADAPTER_CONFIG, ADAPTER]
    assert '\nlibrary_name: peft\n' in (tmp_path / "thin" / "README.md").read_text()
    model, chat = opening.open_model(tmp_path / "thin")
    merged = load_model(run.folder / "checkpoints" / "000002")
    torch.testing.assert_close(model.logits(TOKENS), merged.logits(TOKENS), **CLOSE)
    assert chat.render([{"role": "user", "content": "Hi"}]) == opening.open_model("tiny-chat")[1].render(
        [{"role": "user", "content": "Hi"}])
    said = json.loads((tmp_path / "thin" / ADAPTER_CONFIG).read_text())
    assert (said["r"], said["lora_alpha"], said["target_modules"]) == (2, 8, ["o_proj", "q_proj"])
    assert (len({opening.fingerprint(x) for x in (tmp_path / "thin", find_model("tiny-chat"), run.latest())})
            == 3)
    assert main(["export", "tiny", "--out", str(tmp_path / "none"), "--adapter"]) == 2
    assert ("tiny has no adapter: it was trained whole" in capsys.readouterr().err
            and not (tmp_path / "none").exists())
    again = override(sft.SFTConfig(task="words", model=str(tmp_path / "thin"), examples=32),
                     ["lora=2", "steps=1", "rows_per_step=4"])
    # an adapter is a model to train on like any other
    on_top = start_run(again, tmp_path / "again")
    assert opening.read_config(on_top.latest() / "adapter") == merged.config
    apart, whole = (load_model(x).logits(TOKENS) for x in (on_top.latest() / "adapter", on_top.latest()))
    torch.testing.assert_close(apart, whole, **CLOSE)
