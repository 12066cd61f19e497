"""Other architectures through transformers: their own numbers, and our own decoder's for Llama."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from foreign_small import CHAT, KINDS, MASK, TINY, TOKENS, small_folders
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from postgrad.maths.logprob import logp_of_logits
from postgrad.maths.packing import pack
from postgrad.models import hf_model, load_model
from postgrad.models.chat import Chat
from postgrad.models.families import FAMILIES
from postgrad.models.hf_model import HFModel
from postgrad.records import Prompt
from postgrad.sampling import LocalSampler, Sampling


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return small_folders(tmp_path_factory)


def gradients(loss, model):
    model.zero_grad()
    loss.backward()
    return {name.removeprefix("network."): p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_and_gradients_are_those_of_transformers(kind, folders):
    ours = load_model(folders(kind))
    theirs = AutoModelForCausalLM.from_pretrained(folders(kind), dtype=torch.float32)
    assert isinstance(ours, HFModel) and ours.config.vocab_size == 1024
    logits = theirs(TOKENS).logits
    torch.testing.assert_close(ours.logits(TOKENS), logits, rtol=0, atol=1e-5)
    assert logits.std() > 0.3
    # the shared prompt laid out once
    logp, entropy = ours.logp(TOKENS, MASK, 0.8, packed=pack(MASK.sum(1) + 6, TOKENS, MASK))
    wanted = torch.where(MASK, logp_of_logits(logits / 0.8, TOKENS), 0.0)
    torch.testing.assert_close(logp, wanted, rtol=0, atol=1e-5)
    spread = torch.distributions.Categorical(logits=logits.detach() / 0.8).entropy()
    assert torch.allclose(entropy.detach()[MASK], spread[:, :-1][MASK[:, 1:]], atol=1e-4)
    mine = gradients((logp * MASK).sum() / MASK.sum(), ours)
    yours = gradients((wanted * MASK).sum() / MASK.sum(), theirs)
    assert mine.keys() == yours.keys()
    for name in yours:
        torch.testing.assert_close(mine[name], yours[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sampled_has_the_probability_that_training_gives_it(kind, folders):
    """Prompts of several lengths, five rows at once of twelve: rows leave (one token in twelve ends one),
    others take their slots."""
    model = load_model(folders(kind)).requires_grad_(False)
    prompts = [Prompt.ask(text)
               for text in ("Hi", "What is 2+3?", "Tom has 12 apples and eats one. How many are left?")]
    chat = Chat(CHAT.tokenizer, CHAT.template, bos=CHAT.bos, eos=CHAT.eos, pad=CHAT.pad,
                ends=range(0, 1024, 12))
    sampler = LocalSampler(model, chat, max_concurrent=5)
    groups = sampler.sample(prompts, 4, Sampling(max_new_tokens=20), seed=1)
    rollouts = [r for group in groups for r in group]
    assert len({len(r.tokens) for r in rollouts}) > 3
    for r in rollouts:
        tokens = torch.tensor([[*r.prompt_tokens, *r.tokens]])
        mask = torch.arange(tokens.shape[1])[None] >= len(r.prompt_tokens)
        torch.testing.assert_close(model.logp(tokens, mask)[0][mask], torch.tensor(r.logp), rtol=0, atol=2e-5)
    again = LocalSampler(model, chat).sample(prompts, 4, Sampling(max_new_tokens=20), seed=1)
    assert [r.tokens for group in again for r in group] == [r.tokens for r in rollouts]


def test_llama_is_what_our_own_decoder_makes_of_it():
    ours, theirs = load_model(TINY), HFModel(LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32))
    mine, yours = ours.logp(TOKENS, MASK), theirs.logp(TOKENS, MASK)
    torch.testing.assert_close(mine, yours, rtol=1e-5, atol=2e-5)
    a, b = gradients(mine[0].sum() / MASK.sum(), ours), gradients(yours[0].sum() / MASK.sum(), theirs)
    assert a.keys() == b.keys() and all(torch.allclose(a[k], b[k], rtol=1e-4, atol=1e-5) for k in a)
    prompts = [Prompt.ask(text) for text in ("What is 2+3?", "Tom has 12 apples.")]
    said = [LocalSampler(model.requires_grad_(False), CHAT).sample(prompts, 3, Sampling(max_new_tokens=24),
                                                                   seed=0) for model in (ours, theirs)]
    assert [[r.text for r in group] for group in said[0]] == [[r.text for r in group] for group in said[1]]


def test_half_precision_is_close():
    model = HFModel(LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32))
    whole = model.logp(TOKENS, MASK)[0]
    model.precision = torch.bfloat16
    half = model.logp(TOKENS, MASK)[0]
    assert 1e-4 < (half - whole).abs().max() < 0.3 and half.dtype == torch.float32


def test_weights_in_half_precision_are_what_transformers_makes_of_them():
    ours, theirs = (LlamaForCausalLM.from_pretrained(TINY, dtype=dtype)
                    for dtype in (torch.float32, torch.bfloat16))
    assert torch.equal(HFModel(ours).to(torch.bfloat16).logits(TOKENS), theirs(TOKENS).logits)


def test_it_says_once_that_it_is_slower(folders, monkeypatch, capsys):
    monkeypatch.setattr(hf_model, "REPORTED", set())
    load_model(folders("gpt2")), load_model(folders("gpt2"))
    said = capsys.readouterr().err
    assert said == (f"postgrad: gpt2 runs through transformers, slower than {', '.join(FAMILIES)}, which "
                    "have a decoder here.\n")


def changed(folder, to, **changes):
    shutil.copytree(folder, to)
    path = to / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return to


@pytest.mark.parametrize(("changes", "said"), [
    (dict(attn_implementation="somebody/kernels"),
     "attn_implementation is 'somebody/kernels'; only eager and sdpa"),
    (dict(text_config={"experts_implementation": "x/y"}),
     "experts_implementation is 'x/y'; only eager and sdpa"),
    (dict(quantization_config={"bits": 8}), "quantization_config is {'bits': 8}; only None"),
    (dict(model_type="nosuch", auto_map={"AutoModelForCausalLM": "evil.Model"}),
     "'nosuch', which is no language model that"),
    (dict(model_type="bert-of-mine"), "no language model that transformers has code for; llama"),
    (dict(model_type="clip"), "'clip', which is no language model"), (dict(model_type=7), "model_type is 7"),
    (dict(n_embd=64), "transformers cannot open it as GPT2LMHeadModel"),
    (dict(n_layer=3), "does not fit config.json: missing"),
    (dict(n_layer=1), "does not fit config.json: missing [], unknown"),
    (dict(n_head=5), "transformers cannot open it as GPT2"),
    (dict(n_layer="two"), "config.json cannot be read as gpt2"),
])
def test_what_is_refused(changes, said, folders, tmp_path):
    folder = changed(folders("gpt2"), tmp_path / "made", **changes)
    (folder / "evil.py").write_text("raise SystemExit('a folder has run its code')")
    with pytest.raises(ValueError) as raised:
        load_model(folder)
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_too_long_a_text(folders):
    with pytest.raises(ValueError, match="200 tokens do not fit the model's 160 positions"):
        load_model(folders("gpt2")).logits(torch.zeros(1, 200, dtype=torch.int64))


def test_nobody_else_knows_the_difference():
    home = Path(hf_model.__file__).parent.parent
    assert not [p.name for p in home.rglob("*.py")
                if p.parent.name != "models" and "HFModel" in p.read_text()]
    code = ("import sys, postgrad.models; postgrad.models.load_model('tiny'); print('transformers' "
            "in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=home.parent,
                          env=dict(os.environ))
    assert done.stdout.strip() == "False", done.stderr
