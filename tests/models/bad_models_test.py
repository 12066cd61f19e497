"""A model that cannot be used is one sentence at the command line,
before anything is trained or any folder is made."""

import builtins
import json
import shutil

import huggingface_hub
import pytest
import torch
from httpx import Request, Response
from huggingface_hub.errors import LocalEntryNotFoundError, RevisionNotFoundError
from safetensors.torch import load_file, save_file
from small import small_model

from postgrad.cli import main
from postgrad.models import ScalarModel, find_model, load_model, save_model
from postgrad.models.chat import Chat
from postgrad.models.families import FAMILIES

TINY = find_model("tiny-chat")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A sound model folder; the test spoils it. The command runs beside it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(TINY, tmp_path / "bad")
    return tmp_path / "bad"


def config(folder, **changes):
    path = folder / "config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in raw.items() if v != "leave out"}))


def shards(folder):
    model = load_model(folder)
    save_model(model, folder, largest=2_000_000)
    return sorted(folder.glob("model-*.safetensors"))


def missing_shard(folder):
    shards(folder)[1].unlink()


def short_shard(folder):
    path = shards(folder)[0]
    path.write_bytes(path.read_bytes()[:-1000])


def cut_short(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def of_dtype(dtype):
    def spoil(folder):
        tensors = load_file(folder / "model.safetensors")
        save_file({k: v.to(dtype) for k, v in tensors.items()}, folder / "model.safetensors")
    return spoil


def no_template(folder):
    raw = json.loads((folder / "tokenizer_config.json").read_text())
    del raw["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(raw))


def more_tokens(folder):
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["added_tokens"].append({**raw["added_tokens"][-1], "id": 1024, "content": "<|one more|>"})
    (folder / "tokenizer.json").write_text(json.dumps(raw))


def only_a_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def reward_model(folder):
    save_model(ScalarModel(small_model()), folder)


SPOILT = {
    "a missing shard": (missing_shard, "names model-00002-of-",
                        "which is not in the folder: get the missing file"),
    "a shard cut short": (short_shard, "model-00001-of-", "cannot be read as safetensors"),
    "a file cut short": (cut_short, "model.safetensors cannot be read as safetensors", "get the file again"),
    "int8": (of_dtype(torch.int8), "is I8; weights are read as float32, bfloat16, float16",
             "must be dequantised first"),
    "fp8": (of_dtype(torch.float8_e4m3fn), "is F8_E4M3; weights are read as", "must be dequantised first"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors and no model.",
                   ""),
    "only a pickle": (only_a_pickle, "pytorch_model.bin, a pickle, which is never opened here",
                      "save the model as"),
    "no chat template": (no_template, "has no chat_template, as a base model", "template=chatml"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.json", ""),
    "a tokenizer that is larger": (more_tokens, "the tokenizer has 1025 tokens, the model 1024",
                                   "not of one model"),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read as JSON", ""),
    "another JSON": (lambda f: (f / "config.json").write_text("[]"), "config.json holds no JSON object", ""),
    "no config": (lambda f: (f / "config.json").unlink(),
                  "no model at bad: expected tiny, tiny-chat, tiny-tools, tiny-zero, a run, or", "hub id"),
    "quantised": (lambda f: config(f, quantization_config={"quant_method": "gptq"}), "quantization_config is",
                  "only None"),
    "an unknown architecture": (lambda f: config(f, model_type="nosuch"),
                                "'nosuch', which is no language model", "llama"),
    "another layer": (lambda f: config(f, num_hidden_layers=9), "does not fit config.json: missing", ""),
    "another width": (lambda f: config(f, vocab_size=2048), "config.json expects [2048,", ""),
    "a reward model": (reward_model, "is a reward model, which scores text and writes none",
                       "name a language model"),
}


def check(words, capsys, tmp_path, *said):
    """The command ends with 2 and one line on stderr, and leaves nothing behind."""
    before = sorted(tmp_path.rglob("*"))
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert err.startswith("postgrad: ") and err.count("\n") == 1 and err.endswith(".\n") and len(err) < 500
    assert all(part in err for part in said), err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", SPOILT)
def test_one_sentence_before_any_training(name, folder, tmp_path, capsys):
    spoil, *said = SPOILT[name]
    spoil(folder)
    check(["train", "grpo:words", "model=bad", "--json"], capsys, tmp_path, *said)


@pytest.mark.parametrize("recipe", ["sft:words", "reward:questions", "dpo:questions", "ppo:words"])
@pytest.mark.parametrize("name", ["a missing shard", "no chat template", "a tokenizer that is larger"])
def test_in_every_recipe(recipe, name, folder, tmp_path, capsys):
    spoil, *said = SPOILT[name]
    spoil(folder)
    check(["train", recipe, "model=bad", "--json"], capsys, tmp_path, *said)


@pytest.mark.parametrize("words", [
    ["eval", "bad", "--task", "words"], ["chat", "bad", "--prompt", "hi"], ["audit", "bad"],
    ["label", "make", "--model", "bad", "--task", "words", "--store", "none/x.db"],
    ["pick", "bad", "--task", "words", "--out", "x.jsonl"], ["rlaif", "bad", "--task", "words", "--out", "x"],
    ["train", "ppo:words", "reward=bad", "--json"]])
def test_in_every_command(words, folder, tmp_path, capsys):
    if words[0] == "label":
        (tmp_path / "none").mkdir()
    no_template(folder)
    check(words, capsys, tmp_path, "has no chat_template, as a base model has none: name one")


def test_without_transformers(folder, tmp_path, capsys, monkeypatch):
    config(folder, model_type="gemma3")
    real = builtins.__import__

    def refuse(name, *args, **options):
        if name.split(".")[0] == "transformers":
            raise ImportError("no module named transformers")
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    check(["train", "grpo:words", "model=bad", "--json"], capsys, tmp_path,
          "'gemma3', which runs through transformers: pip install 'postgrad[hf]', or name a model of "
          f"{', '.join(FAMILIES)}, which need no more.")


def test_memory_has_no_figures_for_others(folder, tmp_path, capsys):
    config(folder, model_type="gpt2")
    check(["memory", "bad"], capsys, tmp_path, "model_type is 'gpt2'; the decoder reads llama",
          "figures of memory")


def test_a_gguf_file_is_converted_first(folder, tmp_path, capsys):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    check(["train", "grpo:words", "model=x.gguf", "--json"], capsys, tmp_path,
          "x.gguf is a GGUF file: convert it once, `postgrad fetch x.gguf --out FOLDER`, and "
          "name the folder.")


RESPONSE = Response(404, request=Request("GET", "https://example.org"))


@pytest.mark.parametrize(("error", "said"), [
    (LocalEntryNotFoundError("no connection"),
     "the model some/model is not in the cache on this machine and the hub"),
    (RevisionNotFoundError("404", response=RESPONSE), "has no revision ''"),
    (OSError("disk full"), "(disk full)")])
def test_the_hub_gives_nothing(error, said, folder, tmp_path, capsys, monkeypatch):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    check(["train", "grpo:words", "model=some/model", "--json"], capsys, tmp_path, said,
          "or name tiny, tiny-chat, tiny-tools, tiny-zero, a run, or a folder with config.json and "
          "model.safetensors on this machine.")


@pytest.fixture
def hub(monkeypatch):
    """A hub that has tiny-chat under every name, and what was asked of it."""
    asked = []

    def fetch(id, **options):
        asked.append((id, options))
        return str(TINY)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    return asked


def test_a_hub_id_is_a_model(folder, tmp_path, capsys, hub):
    changes = ["steps=1", "rollouts.prompts=2", "rollouts.prompts_per_step=1", "rollouts.group_size=2",
               "rollouts.max_new_tokens=4", "evaluation.every=0"]
    assert main(["train", "grpo:words", "model=some/model@v2", *changes, "--run", "out", "--json"]) == 0
    assert Chat.load(tmp_path / "out" / "checkpoints" / "000001").stop
    assert ({(id, options["revision"], options["repo_type"]) for id, options in hub}
            == {("some/model", "v2", "model")})
    assert hub[0][1]["allow_patterns"] == ["config.json", "adapter_config.json"]  # its size, for the defaults
    whole = max((options["allow_patterns"] for _, options in hub), key=len)
    assert {name.split(".")[-1] for name in whole} == {"json", "safetensors", "jinja"}
    assert main(["memory", "some/model", "--json"]) == 0 and hub[-1] == (
        "some/model", {"repo_type": "model", "allow_patterns": ["config.json", "adapter_config.json"],
                       "revision": None})


def test_weights_that_are_gone_when_a_run_goes_on(folder, tmp_path, capsys):
    assert main(["train", "sft:words", "model=bad", "steps=1", "examples=4", "rows_per_step=2", "--run",
                 "out", "--json"]) == 0
    (folder / "model.safetensors").unlink()
    capsys.readouterr()
    check(["resume", "out", "steps=2", "--json"], capsys, tmp_path,
          "there is no bad/model.safetensors: put it back")


def test_of_an_adapter_on_the_hub_only_the_shape_is_fetched(tmp_path, capsys, monkeypatch):
    asked = []
    files = {"some/adapter": {"peft_type": "LORA", "base_model_name_or_path": "some/base", "lora_alpha": 4}}

    def fetch(id, allow_patterns, **options):
        asked.append((id, allow_patterns))
        if id in files:
            (tmp_path / "adapter_config.json").write_text(json.dumps(files[id]))
        return str(tmp_path if id in files else TINY)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert main(["memory", "some/adapter", "--json"]) == 0
    assert asked == [(id, ["config.json", "adapter_config.json"]) for id in ("some/adapter", "some/base")]


def test_what_is_on_this_machine_wins(folder, tmp_path, capsys, hub):
    (tmp_path / "some").mkdir()
    folder.rename(tmp_path / "some" / "model")
    assert find_model("some/model") == (tmp_path / "some" / "model").relative_to(tmp_path)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "run.json").write_text("{}")
    check(["train", "grpo:words", "model=runs/oen", "--json"], capsys, tmp_path,
          "no model at runs/oen: expected tiny")
    shutil.rmtree(tmp_path / "some" / "model")
    (tmp_path / "some" / "model").mkdir()
    check(["eval", "some/model", "--task", "words"], capsys, tmp_path,
          "no model at some/model: expected tiny")
    assert hub == []
