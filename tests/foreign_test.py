"""Other architectures through transformers: their own numbers, our own decoder's for Llama, and the recipes none the wiser."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    LlamaForCausalLM,
    MambaConfig,
    PhiConfig,
)

from postgrad.chat import Chat
from postgrad.maths.logprob import logp_of_logits
from postgrad.models import Adapted, Adapter, ScalarModel, find_model, foreign, load_model, load_scalar, save_model
from postgrad.models.foreign import Foreign
from postgrad.packing import pack
from postgrad.recipes import base, grpo, preference, sft
from postgrad.recipes.config import override, unplain
from postgrad.records import Prompt
from postgrad.run import Run
from postgrad.sampler import LocalSampler, Sampling

TINY = find_model("tiny-chat")
CHAT = Chat.load(TINY)
ENDS = {"bos_token_id": CHAT.id(CHAT.bos), "eos_token_id": CHAT.stop[0], "pad_token_id": CHAT.id(CHAT.pad)}
SIZES = dict(vocab_size=1024, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
             max_position_embeddings=160, **ENDS)
KINDS = {  # learned positions and Conv1D; partly rotated parallel layers; a cap, a window and shared heads; a bias on the head
    "gpt2": lambda: GPT2Config(vocab_size=1024, n_positions=160, n_embd=32, n_layer=2, n_head=2, **ENDS),
    "gpt_neox": lambda: GPTNeoXConfig(**SIZES),
    "gemma2": lambda: Gemma2Config(**SIZES, num_key_value_heads=1, head_dim=16, sliding_window=6, final_logit_softcapping=3.0),
    "phi": lambda: PhiConfig(**SIZES),
    "mamba": lambda: MambaConfig(vocab_size=1024, hidden_size=16, num_hidden_layers=1, state_size=4, **ENDS),
}
TOKENS = torch.randint(0, 1024, (3, 24), generator=torch.Generator().manual_seed(0))
TOKENS[1, :6] = TOKENS[0, :6]  # a prompt that two rows share
MASK = (torch.arange(24) > 5) & (torch.arange(24) < torch.tensor([[24], [15], [9]]))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder for each kind, made when it is asked for: random weights, far from uniform, and tiny-chat's tokenizer."""
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            torch.manual_seed(3)
            theirs = AutoModelForCausalLM.from_config(KINDS[kind]())
            with torch.no_grad():
                for p in theirs.parameters():
                    p.mul_(6.0 if p.dim() > 1 else 1.0)
            theirs.save_pretrained(made[kind])
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(TINY / name, made[kind])
        return made[kind]

    return folder


def gradients(loss, model):
    model.zero_grad()
    loss.backward()
    return {name.removeprefix("network."): p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_and_gradients_are_those_of_transformers(kind, folders):
    ours, theirs = load_model(folders(kind)), AutoModelForCausalLM.from_pretrained(folders(kind), dtype=torch.float32)
    assert isinstance(ours, Foreign) and ours.config.vocab_size == 1024
    logits = theirs(TOKENS).logits
    torch.testing.assert_close(ours.logits(TOKENS), logits, rtol=0, atol=1e-5)
    assert logits.std() > 0.3
    logp, entropy = ours.logp(TOKENS, MASK, 0.8, packed=pack(MASK.sum(1) + 6, TOKENS, MASK))  # the shared prompt laid out once
    wanted = torch.where(MASK, logp_of_logits(logits / 0.8, TOKENS), 0.0)
    torch.testing.assert_close(logp, wanted, rtol=0, atol=1e-5)
    spread = torch.distributions.Categorical(logits=logits.detach() / 0.8).entropy()
    assert torch.allclose(entropy.detach()[MASK], spread[:, :-1][MASK[:, 1:]], atol=1e-4)
    mine, yours = gradients((logp * MASK).sum() / MASK.sum(), ours), gradients((wanted * MASK).sum() / MASK.sum(), theirs)
    assert mine.keys() == yours.keys()
    for name in yours:
        torch.testing.assert_close(mine[name], yours[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sampled_has_the_probability_that_training_gives_it(kind, folders):
    """Prompts of several lengths, five rows at once of twelve: rows leave (one token in twelve ends one), others take their
    slots."""
    model = load_model(folders(kind)).requires_grad_(False)
    prompts = [Prompt.ask(text) for text in ("Hi", "What is 2+3?", "Tom has 12 apples and eats one. How many are left?")]
    chat = Chat(CHAT.tokenizer, CHAT.template, bos=CHAT.bos, eos=CHAT.eos, pad=CHAT.pad, ends=range(0, 1024, 12))
    groups = LocalSampler(model, chat, rows_at_once=5).sample(prompts, 4, Sampling(max_new_tokens=20), seed=1)
    rollouts = [r for group in groups for r in group]
    assert len({len(r.tokens) for r in rollouts}) > 3
    for r in rollouts:
        tokens = torch.tensor([[*r.prompt_tokens, *r.tokens]])
        mask = torch.arange(tokens.shape[1])[None] >= len(r.prompt_tokens)
        torch.testing.assert_close(model.logp(tokens, mask)[0][mask], torch.tensor(r.logp), rtol=0, atol=2e-5)
    again = LocalSampler(model, chat).sample(prompts, 4, Sampling(max_new_tokens=20), seed=1)
    assert [r.tokens for group in again for r in group] == [r.tokens for r in rollouts]


def test_llama_is_what_our_own_decoder_makes_of_it():
    ours, theirs = load_model(TINY), Foreign(LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32))
    mine, yours = ours.logp(TOKENS, MASK), theirs.logp(TOKENS, MASK)
    torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-5)
    a, b = gradients(mine[0].sum() / MASK.sum(), ours), gradients(yours[0].sum() / MASK.sum(), theirs)
    assert a.keys() == b.keys() and all(torch.allclose(a[k], b[k], rtol=1e-4, atol=1e-5) for k in a)
    prompts = [Prompt.ask(text) for text in ("What is 2+3?", "Tom has 12 apples.")]
    said = [LocalSampler(model.requires_grad_(False), CHAT).sample(prompts, 3, Sampling(max_new_tokens=24), seed=0)
            for model in (ours, theirs)]
    assert [[r.text for r in group] for group in said[0]] == [[r.text for r in group] for group in said[1]]


def test_half_precision_is_close():
    model = Foreign(LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32))
    whole = model.logp(TOKENS, MASK)[0]
    model.precision = torch.bfloat16
    half = model.logp(TOKENS, MASK)[0]
    assert 1e-4 < (half - whole).abs().max() < 0.3 and half.dtype == torch.float32


def test_weights_in_half_precision_are_what_transformers_makes_of_them():
    ours, theirs = (LlamaForCausalLM.from_pretrained(TINY, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    assert torch.equal(Foreign(ours).to(torch.bfloat16).logits(TOKENS), theirs(TOKENS).logits)


TASK = '''
prompts = [{"question": f"Say {n}.", "answer": str(n)} for n in range(20)]

def verify(prompt, completion):
    return min(sum(c.isalpha() for c in completion) / 50, 0.99)
'''


def small_run(folder, tmp_path, recipe):
    if recipe == "sft":
        return sft, override(sft.words(), ["steps=3", "examples=12", "rows_per_step=4", "save_every=1", f"model={folder}"])
    (tmp_path / "task.py").write_text(TASK)
    config = grpo.GRPOConfig(task=str(tmp_path / "task.py"), method="ppo" if recipe == "ppo" else "grpo")
    return grpo, override(config, ["steps=3", "save_every=1", "rollouts.prompts=6", "rollouts.prompts_per_step=2",
                                   "rollouts.group_size=2", "rollouts.max_new_tokens=8", "evaluation.every=0",
                                   f"model={folder}"])


@pytest.mark.parametrize(("recipe", "kind"), [("sft", "gpt2"), ("grpo", "gemma2"), ("ppo", "gpt_neox")])
def test_a_recipe_trains_it_and_goes_on_to_the_same_bits(recipe, kind, folders, tmp_path):
    home, config = small_run(folders(kind), tmp_path, recipe)
    whole = base.start(recipe, config, home.build, tmp_path / "whole")

    class Cut(Exception):
        pass

    class Watch:
        def stepped(self, step, row, scored):
            if step == 2:
                raise Cut

    with pytest.raises(Cut):
        base.start(recipe, config, home.build, tmp_path / "cut", watch=Watch())
    run = Run.open(tmp_path / "cut")
    run = base.resume(run, unplain(type(config), run.config), home.build)
    a, b, began = (load_model(x).state_dict() for x in (run.latest(), whole.latest(), folders(kind)))
    assert all(torch.equal(a[k], b[k]) for k in a) and any((a[k] - began[k]).abs().max() > 1e-4 for k in a)
    rows = whole.rows("metrics")[0]
    assert [row["skipped"] for row in rows] == [0, 0, 0]
    if recipe != "sft":
        assert max(row["mismatch"] for row in rows) < 2e-5  # the sampler's log-probs against the trainer's
    theirs = AutoModelForCausalLM.from_pretrained(whole.latest(), dtype=torch.float32)
    assert torch.equal(theirs(TOKENS).logits, load_model(whole.latest()).network(TOKENS).logits)
    torch.testing.assert_close(theirs(TOKENS).logits, load_model(whole.latest()).logits(TOKENS), rtol=0, atol=1e-6)
    assert Chat.load(whole.latest()).stop == CHAT.stop


def test_preferences_with_a_reference(folders, tmp_path):
    config = override(preference.PreferenceConfig(task="questions"), [
        "steps=2", "pairs.drawn=8", "pairs.held_out=4", "pairs.per_step=4", f"model={folders('phi')}", "evaluation.every=0"])
    run = base.start("dpo", config, preference.build, tmp_path / "run")
    assert run.rows("metrics")[0][0]["loss"] == pytest.approx(0.6931, abs=1e-3)  # the policy is the reference at first


def test_a_reward_model_on_top_is_a_sequence_classifier(folders, tmp_path):
    model = ScalarModel(load_model(folders("gpt_neox")), 2, torch.Generator().manual_seed(0))
    save_model(model, tmp_path)
    lengths = torch.tensor([24, 15, 9])
    said, again = model.scores(TOKENS, lengths), load_scalar(tmp_path)
    assert torch.equal(again.scores(TOKENS, lengths), said) and again.heads == 2
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float32)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(theirs(TOKENS[row: row + 1, :length]).logits[0], said[row], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="is a reward model, which scores text and writes none"):
        load_model(tmp_path)


def test_shards_and_another_dtype(folders, tmp_path):
    model = load_model(folders("gpt2"))
    save_model(model, tmp_path, dtype=torch.bfloat16, largest=60_000)
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 1
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    again = load_model(tmp_path)
    assert all(torch.equal(x.to(torch.bfloat16).float(), again.state_dict()[k]) for k, x in model.state_dict().items())


def test_adapters_on_top(folders, tmp_path):
    body = load_model(folders("phi"))
    model = Adapted(body, Adapter(body, rank=2, generator=torch.Generator().manual_seed(0)))
    for b in model.adapter.B.values():
        b.data.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(1))
    logp, plain = model.logp(TOKENS, MASK)[0], load_model(folders("phi")).logp(TOKENS, MASK)[0]
    assert (logp - plain).abs().max() > 0.01 and torch.equal(Adapted(body, None).logp(TOKENS, MASK)[0], plain)
    save_model(model, tmp_path)
    torch.testing.assert_close(load_model(tmp_path).logp(TOKENS, MASK)[0], logp, rtol=0, atol=1e-4)
    (rollout,), = LocalSampler(model, CHAT).sample([Prompt.ask("Hi")], 1, Sampling(max_new_tokens=6), seed=0)
    tokens = torch.tensor([[*rollout.prompt_tokens, *rollout.tokens]])
    mask = torch.arange(tokens.shape[1])[None] >= len(rollout.prompt_tokens)
    torch.testing.assert_close(model.logp(tokens, mask)[0][mask], torch.tensor(rollout.logp), rtol=0, atol=2e-5)
    with pytest.raises(ValueError, match="no linear layer"):  # GPT-2's are Conv1D
        Adapter(load_model(folders("gpt2")), rank=2, generator=torch.Generator(), targets=("c_attn",))


def test_it_says_once_that_it_is_slower(folders, monkeypatch, capsys):
    monkeypatch.setattr(foreign, "TOLD", set())
    load_model(folders("gpt2")), load_model(folders("gpt2"))
    said = capsys.readouterr().err
    assert said == ("postgrad: gpt2 runs through transformers, slower than llama, mistral, qwen2, qwen3, "
                    "olmo2, which have a decoder here.\n")


def changed(folder, to, **changes):
    shutil.copytree(folder, to)
    path = to / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return to


@pytest.mark.parametrize(("changes", "said"), [
    (dict(attn_implementation="somebody/kernels"), "attn_implementation is 'somebody/kernels'; only eager and sdpa"),
    (dict(text_config={"experts_implementation": "x/y"}), "experts_implementation is 'x/y'; only eager and sdpa"),
    (dict(quantization_config={"bits": 8}), "quantization_config is {'bits': 8}; only None"),
    (dict(model_type="nosuch", auto_map={"AutoModelForCausalLM": "evil.Model"}), "'nosuch', which is no language model that"),
    (dict(model_type="bert-of-mine"), "no language model that transformers has code for; llama"),
    (dict(model_type="clip"), "'clip', which is no language model"), (dict(model_type=7), "model_type is 7"),
    (dict(n_embd=64), "transformers cannot open it as GPT2LMHeadModel"), (dict(n_layer=3), "does not fit config.json: missing"),
    (dict(n_layer=1), "does not fit config.json: missing [], unknown"), (dict(n_head=5), "transformers cannot open it as GPT2"),
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
    home = Path(foreign.__file__).parent.parent
    assert not [p.name for p in home.rglob("*.py") if p.parent.name != "models" and "Foreign" in p.read_text()]
    code = "import sys, postgrad.models; postgrad.models.load_model('tiny'); print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=home.parent, env=dict(os.environ))
    assert done.stdout.strip() == "False", done.stderr
