"""Base models, which have no chat template: template=NAME|FILE in training, chat, eval and serve."""

import json
import shutil
from types import SimpleNamespace

import peft
import pytest
import torch
from doors import LABELLED, PAIRS, QUESTIONS, TALKS, fit, letters
from foreign_small import small_folders
from small import change_tokens
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

import postgrad as pg
from postgrad.cli import main
from postgrad.models import find_model
from postgrad.models.chat import Chat
from postgrad.recipes.serve import open_served
from postgrad.records import Conversation, Pair
from postgrad.training.batches.offline import TokenLimit, encode_conversation, encode_pair
from tests.recipes.resume_test import cut, same

TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+3?"},
        {"role": "assistant", "content": "It is 5."}, {"role": "user", "content": "où 数?"},
        {"role": "assistant", "content": "🙂 15"}]
GEMMA = ("{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + m.role + '\\n' + m.content }}"
         "<end_of_turn>{{ '\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}<start_of_turn>assistant{{ '\\n' }}{% endif %}")


def make_base(folder, model="tiny"):
    """A model without a chat template."""
    shutil.copytree(find_model(model), folder)
    change_tokens(folder, chat_template="leave out")
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("models") / "base")


def spans(chat, tokens, mask):
    text = "".join(piece if on else "\0" for piece, on in zip(chat.pieces(tokens), mask, strict=True))
    return [part for part in text.split("\0") if part]


@pytest.mark.parametrize(("name", "added", "end"), [
    ("chatml", ("<|im_start|>", "<|im_end|>"), "<|im_end|>"),
    ("llama3", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), "<|eot_id|>"),
    ("plain", (), "<|end|>"), ("FILE", ("<start_of_turn>", "<end_of_turn>"), "<end_of_turn>")])
def test_tokens_and_turns(name, added, end, base, tmp_path):
    file = tmp_path / "own.jinja"
    file.write_text(GEMMA)
    chat = Chat.load(base, str(file) if name == "FILE" else name)
    assert chat.added == added and chat.eos == end
    assert chat.stop == tuple(map(chat.id, dict.fromkeys([end, "<|end|>"])))
    tokens, mask = chat.answer(TALK[1:2], "It is 5.")
    assert spans(chat, tokens, mask) == [f"It is 5.{end}"]
    assert all(tokens.count(chat.id(token)) for token in added)
    chat.save(tmp_path)
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for talk in (TALK, TALK[1:2], TALK[1:]):
        for reply in (True, False):
            wanted = theirs.apply_chat_template(talk, add_generation_prompt=reply)["input_ids"]
            assert chat.encode(chat.text_of(talk, reply=reply)) == wanted
    again = Chat.load(tmp_path)
    assert again.stop == chat.stop and again.conversation(TALK) == chat.conversation(TALK)
    assert Chat.load(tmp_path, name if name != "FILE" else str(file)).added == ()  # they are there


@pytest.mark.parametrize("begins", [True, False])
def test_plain_is_what_trl_makes_of_texts(begins, base, tmp_path):
    """With and without a tokenizer that begins each text with bos."""
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    shutil.copytree(base, tmp_path / "base")
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    if begins:
        tokenizer.post_processor = TemplateProcessing(
            single="<|bos|> $A", special_tokens=[("<|bos|>", tokenizer.token_to_id("<|bos|>"))])
        tokenizer.save(str(tmp_path / "base" / "tokenizer.json"))
    chat = Chat.load(tmp_path / "base", "plain")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "base")
    rows = [{"prompt": f"What is {n} + {n}?\n", "completion": f"It is {2 * n}."} for n in (1, 20, 300)]
    args = trl.SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_length=None)
    fake = SimpleNamespace(_tokenizer=theirs, chat_template=None, completion_only_loss=True)
    made = trl.SFTTrainer._prepare_dataset(fake, datasets.Dataset.from_list(rows), theirs, args, False, None,
                                           "train")
    for row, wanted in zip(rows, made, strict=True):
        messages = ({"role": "user", "content": row["prompt"]},
                    {"role": "assistant", "content": row["completion"]})
        tokens, mask = encode_conversation(Conversation(id="c", messages=messages), chat)
        assert tokens == wanted["input_ids"] and (tokens[0] == chat.id("<|bos|>")) == begins
        assert mask == [label != -100 for label in wanted["labels"]]
    pairs = [{"prompt": row["prompt"], "chosen": row["completion"], "rejected": "No."} for row in rows]
    args = trl.DPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_length=None)
    made = trl.DPOTrainer._prepare_dataset(SimpleNamespace(_tokenizer=theirs),
                                           datasets.Dataset.from_list(pairs), theirs, args, "train")
    for row, wanted in zip(pairs, made, strict=True):
        pair = Pair(id="p", messages=({"role": "user", "content": row["prompt"]},), chosen=row["chosen"],
                    rejected=row["rejected"])
        sides = encode_pair(pair, chat, TokenLimit(4096))
        assert [list(side.tokens) for side in sides] == [
            wanted["prompt_ids"] + wanted[f"{side}_ids"] for side in ("chosen", "rejected")]


def test_new_tokens_are_trained_saved_and_reopened(base, tmp_path, capsys):
    run = fit(tmp_path, "sft", model=str(base), data=TALKS, template="chatml", steps=4, save_every=4)
    assert "template=chatml adds the tokens <|im_start|>, <|im_end|>" in capsys.readouterr().err
    assert run.config["template"] == "chatml" and run.config["model"] == str(base)
    before, after = run.model(0), run.model()
    size = pg.load_model("tiny").chat.vocab_size
    for name in ("model.embed_tokens.weight", *(["lm_head.weight"] if hasattr(after.net, "lm_head") else [])):
        old, new = (model.net.state_dict()[name] for model in (before, after))
        assert len(old) == len(new) == size + 2
        mean = old[:size].mean(0).expand(2, -1)
        torch.testing.assert_close(old[size:], mean, rtol=4e-3, atol=1e-5)  # stored as bfloat16
        assert (new[size:] - old[size:]).abs().min(1).values.max() > 0 and not torch.equal(new[-1], new[-2])
    folder = run.latest()
    theirs, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(TALK, add_generation_prompt=False)["input_ids"]
    assert ids == after.chat.conversation(TALK)[0]
    tokens = torch.tensor([ids])
    torch.testing.assert_close(after.net.logits(tokens), theirs(tokens).logits, rtol=0, atol=3e-5)
    assert tokenizer.eos_token == after.chat.eos == "<|im_end|>"


@pytest.mark.parametrize("given", [{"method": "sft", "data": TALKS}, {"method": "dpo", "data": PAIRS},
                                   {"method": "grpo", "task": QUESTIONS, "reward": letters}],
                         ids=lambda given: given["method"])
def test_going_on_to_the_same_bits(given, base, tmp_path):
    method, given = given["method"], {name: value for name, value in given.items() if name != "method"}
    whole, run = cut(tmp_path, method, model=str(base), template="chatml", **given)
    same(pg.resume(run, display=False, **given), whole)
    assert not [*tmp_path.glob(".*")]


@pytest.mark.parametrize(("method", "given"), [
    ("reward", {"data": PAIRS}), ("kto", {"data": LABELLED}), ("outcome", {"task": "arithmetic"})])
def test_the_other_recipes(method, given, base, tmp_path):
    small = {} if method != "outcome" else {"replies": {"problems": 4, "samples": 2}}
    run = fit(tmp_path, method, model=str(base), template="llama3", **given, **small)
    assert run.state()["state"] == "done" and Chat.load(run.folder / "start").eos == "<|eot_id|>"


def test_adapters_train_the_embeddings_of_new_tokens_or_are_refused(base, tmp_path):
    with pytest.raises(ValueError, match="template=chatml adds the tokens .* an adapter does not train: "
                                         "add modules_to_save=embed_tokens, train all weights with lora=0, "
                                         "or take template=plain"):
        fit(tmp_path, "sft", model=str(base), data=TALKS, template="chatml", lora=4)
    assert not [*tmp_path.iterdir()]
    trained = fit(tmp_path, "sft", "chatml", model=str(base), data=TALKS, template="chatml", lora=4,
                  modules_to_save="embed_tokens")
    before, after = (trained.model(step).net.model.embed_tokens.weight for step in (0, None))
    assert (before != after)[-2:].any(1).all()
    (adapter,) = (trained.folder / "checkpoints").glob("*/adapter")
    tokens = torch.tensor([trained.model().chat.conversation(TALK)[0]])
    theirs = peft.AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32)
    torch.testing.assert_close(theirs(tokens).logits, trained.model().net.logits(tokens), rtol=0, atol=1e-4)
    run = fit(tmp_path, "sft", model=str(base), data=TALKS, template="plain", lora=4)
    (adapter,) = (run.folder / "checkpoints").glob("*/adapter")
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == str(
        (run.folder / "start").resolve())
    tokens = torch.tensor([run.model().chat.conversation(TALK)[0]])
    torch.testing.assert_close(pg.load_model(adapter).net.logits(tokens), run.model().net.logits(tokens))


@pytest.mark.parametrize("kind", ["gpt2", "phi"])
def test_other_architectures(kind, tmp_path_factory, tmp_path):
    """gpt2 ties its head to the embeddings, phi has a bias on it."""
    folder = make_base(tmp_path / "base", small_folders(tmp_path_factory)(kind))
    model = pg.load_model(folder, template="chatml")
    model.save(tmp_path / "saved")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    tokens = torch.tensor([model.chat.conversation(TALK)[0]])
    assert model.net.config.vocab_size == theirs.config.vocab_size == tokens.max() + 1 == 1026
    torch.testing.assert_close(model.net.logits(tokens), theirs(tokens).logits, rtol=0, atol=1e-5)
    again = pg.load_model(tmp_path / "saved")
    torch.testing.assert_close(again.net.logits(tokens), model.net.logits(tokens))


def test_a_model_of_transformers(base, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(base)
    run = fit(tmp_path, "sft", model=model, data=TALKS, template="chatml")
    assert run.model().chat.eos == "<|im_end|>"


def test_without_training(base, capsys):
    """chat, eval and serve; what a run was trained with stays."""
    for words in (["chat", str(base), "--prompt", "2+3?", "--template", "plain", "--json"],
                  ["eval", str(base), "--task", "arithmetic", "--problems", "2", "--samples", "2",
                   "--template", "chatml", "--json"]):
        assert main(words) in (0, None)
        json.loads(capsys.readouterr().out)
    assert main(["chat", str(base), "--prompt", "2+3?"]) == 2
    assert "template=chatml, llama3, plain or FILE" in capsys.readouterr().err
    settings = {"name": None, "rows": 2, "context": 64, "queue": 2, "record": None, "every": 1.0,
                "device": "cpu"}
    served = open_served(str(base), template="plain", **settings).served
    assert served.chat.encode(served.chat.text_of(TALK[1:2], reply=True)) == served.chat.encode("2+3?")


@pytest.mark.parametrize(("template", "said"), [
    ("chatlm", "template=chatlm: there is no such template and no such file; expected chatml, llama3, plain"),
    ("{% for m in messages %}{{ m.content }}{% endfor %}", "writes no control token after the assistant's"),
    ("{% for m in messages %}", "the chat template does not parse")])
def test_a_template_that_cannot_be_taken(template, said, base, tmp_path):
    if "{" in template:
        (tmp_path / "own.jinja").write_text(template)
        template = str(tmp_path / "own.jinja")
    with pytest.raises(ValueError, match=said):
        Chat.load(base, template)
