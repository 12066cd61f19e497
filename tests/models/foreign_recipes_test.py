"""Other architectures in the recipes, which are none the wiser: trained, resumed, saved, adapted."""

import json

import pytest
import torch
from foreign_small import CHAT, MASK, TOKENS, small_folders
from settings_text import override
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from postgrad.models import Adapted, Adapter, ScalarModel, load_model, load_scalar, save_model
from postgrad.models.chat import Chat
from postgrad.recipes import preference, rollouts, sft
from postgrad.recipes.running import resume_run, start_run
from postgrad.records import Prompt
from postgrad.runs import Run
from postgrad.runs.tracker import Tracker
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.settings import settings_from_json


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return small_folders(tmp_path_factory)


TASK = '''
prompts = [{"question": f"Say {n}.", "answer": str(n)} for n in range(20)]

def verify(prompt, completion):
    return min(sum(c.isalpha() for c in completion) / 50, 0.99)
'''


def small_run(folder, tmp_path, recipe):
    if recipe == "sft":
        return sft, override(sft.sft_on_words(),
                             ["steps=3", "examples=12", "rows_per_step=4", "save_every=1", f"model={folder}"])
    (tmp_path / "task.py").write_text(TASK)
    config = rollouts.RolloutConfig(task=str(tmp_path / "task.py"),
                                    method="ppo" if recipe == "ppo" else "grpo")
    return rollouts, override(config, ["steps=3", "save_every=1", "rollouts.prompts=6",
                                       "rollouts.prompts_per_step=2", "rollouts.group_size=2",
                                       "rollouts.max_new_tokens=8", "evaluation.every=0", f"model={folder}"])


@pytest.mark.parametrize(("recipe", "kind"), [("sft", "gpt2"), ("grpo", "cohere2"), ("ppo", "gpt_neox")])
def test_a_recipe_trains_it_and_goes_on_to_the_same_bits(recipe, kind, folders, tmp_path):
    home, config = small_run(folders(kind), tmp_path, recipe)
    whole = start_run(config, tmp_path / "whole")

    class Cut(Exception):
        pass

    class Watch(Tracker):
        def on_step(self, step, metrics):
            if step == 2:
                raise Cut

    with pytest.raises(Cut):
        start_run(config, tmp_path / "cut", trackers=[Watch()])
    run = Run.open(tmp_path / "cut")
    run = resume_run(run, settings_from_json(type(config), run.config))
    a, b, began = (load_model(x).state_dict() for x in (run.latest(), whole.latest(), folders(kind)))
    assert all(torch.equal(a[k], b[k]) for k in a) and any((a[k] - began[k]).abs().max() > 1e-4 for k in a)
    rows = whole.rows("metrics")[0]
    assert [row["skipped"] for row in rows] == [0, 0, 0]
    if recipe != "sft":
        assert max(row["mismatch"] for row in rows) < 2e-5  # the sampler's log-probs against the trainer's
    theirs = AutoModelForCausalLM.from_pretrained(whole.latest(), dtype=torch.float32)
    assert torch.equal(theirs(TOKENS).logits, load_model(whole.latest()).network(TOKENS).logits)
    torch.testing.assert_close(theirs(TOKENS).logits, load_model(whole.latest()).logits(TOKENS), rtol=0,
                               atol=1e-6)
    assert Chat.load(whole.latest()).stop == CHAT.stop


def test_preferences_with_a_reference(folders, tmp_path):
    config = override(preference.PreferenceConfig(task="questions"), [
        "steps=2", "pairs.drawn=8", "pairs.held_out=4", "pairs.per_step=4", f"model={folders('phi')}",
        "evaluation.every=0"])
    run = start_run(config, tmp_path / "run")
    # the policy is the reference at first
    assert run.rows("metrics")[0][0]["loss"] == pytest.approx(0.6931, abs=1e-3)


def test_a_reward_model_on_top_is_a_sequence_classifier(folders, tmp_path):
    model = ScalarModel(load_model(folders("gpt_neox")), 2, torch.Generator().manual_seed(0))
    save_model(model, tmp_path)
    lengths = torch.tensor([24, 15, 9])
    said, again = model.scores(TOKENS, lengths), load_scalar(tmp_path)
    assert torch.equal(again.scores(TOKENS, lengths), said) and again.heads == 2
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float32)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(theirs(TOKENS[row: row + 1, :length]).logits[0], said[row], rtol=0,
                                   atol=1e-5)
    with pytest.raises(ValueError, match="is a reward model, which scores text and writes none"):
        load_model(tmp_path)


def test_shards_and_another_dtype(folders, tmp_path):
    model = load_model(folders("gpt2"))
    save_model(model, tmp_path, dtype=torch.bfloat16, largest=60_000)
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 1
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    again = load_model(tmp_path)
    assert all(torch.equal(x.to(torch.bfloat16).float(), again.state_dict()[k])
               for k, x in model.state_dict().items())


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
    torch.testing.assert_close(model.logp(tokens, mask)[0][mask], torch.tensor(rollout.logp), rtol=0,
                               atol=2e-5)
    with pytest.raises(ValueError, match="is named q_proj: the model has c_attn, c_proj, c_fc"):
        Adapter(load_model(folders("gpt2")), rank=2, generator=torch.Generator(), targets=("q_proj",))
