"""Every recipe runs: each named setting three small steps on the embedded model,
each method of the family end to end."""

import importlib
import json
import math
import pkgutil

import pytest
import torch
from settings_text import override
from small import begins, build, gsm8k_folder, taught

import postgrad.recipes
from postgrad.methods import METHODS, change
from postgrad.models import load_model
from postgrad.recipes import rollouts, sft
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.running import resume_run, start_run
from postgrad.resolve import models as opening
from postgrad.runs import Run, number
from postgrad.runs.tracker import Tracker
from postgrad.system.settings import flat_settings, settings_from_json
from postgrad.system.throughput import repeatable

RECIPES = {m.name: importlib.import_module(f"postgrad.recipes.{m.name}")
           for m in pkgutil.iter_modules(postgrad.recipes.__path__)}
NAMED = [(name, setting) for name, module in RECIPES.items() for setting in getattr(module, "SETTINGS", {})
         if (name, setting) != ("pretrain", "tiny") and hasattr(module, "build")]
SMALL = {  # what makes any recipe's setting small, where it has such a key
    "steps": 3, "model": "tiny", "save_every": 3, "rollouts.prompts": 12, "examples": 24, "rows_per_step": 4,
    "rollouts.prompts_per_step": 2, "rollouts.group_size": 2, "rollouts.max_new_tokens": 12,
    "rollouts.resample_limit": 1,
    "pairs.drawn": 24, "pairs.held_out": 12, "pairs.per_step": 4, "head.heads": 2,
    "evaluation.every": 3, "evaluation.problems": 2, "evaluation.samples": 2,
    "workers": 1, "documents": 600, "replies.problems": 6, "replies.samples": 2, "replies.per_step": 4,
}
TASK = '''
from zlib import crc32

prompts = [{"question": f"Say {n}.", "answer": str(n)} for n in range(40)]

def verify(prompt, completion):
    """More letters, more score: any two replies differ."""
    letters = min(sum(c.isalpha() for c in completion) / 50, 0.98)
    return letters + crc32(completion.encode()) / 2**32 / 100
'''


def small(config, **more):
    changes = {k: v for k, v in (SMALL | more).items() if k in flat_settings(config)}
    return override(config, [f"{k}={v}" for k, v in changes.items()])


def check_rows(run, steps=3):
    rows, _ = run.rows("metrics")
    assert [row["step"] for row in rows] == list(range(1, steps + 1))
    for row in rows:
        bad = {k: v for k, v in row.items() if not math.isfinite(number(v))}
        assert (not bad and row["skipped"] == 0
                and {"loss", "grad_norm", "lr", "tokens", "time/step"} <= row.keys())
    assert run.state()["state"] == "done" and not run.alive()
    return rows


def moved(run, model="tiny"):
    """How far the last checkpoint is from the model the run began with."""
    before, after = load_model(model).state_dict(), load_model(run.latest()).state_dict()
    assert before.keys() == after.keys()
    return max((after[k] - before[k]).abs().max().item() for k in before)


def check_samples(run, groups, group_size):
    """Rows of samples: a number for each token in each column."""
    rows, _ = run.rows("samples")
    assert {row["step"] for row in rows} == {1, 2, 3} and len(rows) == 3 * groups * group_size
    for row in rows:
        assert len(row["tokens"]) == len(row["token_ids"]) > 0
        assert {"logp", "entropy", "ratio", "adv", "mask"} <= row["columns"].keys()
        assert set(row["columns"]["mask"]) == {1.0} and row["prompt"] in "".join(row["prompt_tokens"])
        for name, values in row["columns"].items():
            assert len(values) == len(row["tokens"]) and all(math.isfinite(number(v)) for v in values), name
        assert all(x <= 0 for x in row["columns"]["logp"]) and any(x < 0 for x in row["columns"]["logp"])
        if METHODS[run.info["method"]].compares:  # a critic or a teacher judges each token, a group the reply
            assert row["columns"]["adv"] == pytest.approx([row["adv"]] * len(row["tokens"]), abs=1e-4)
        assert row["prompt"] and isinstance(row["score"], int | float) and row["finished"] in (True, False)
    return rows


LONG = [("pretrain", "zero"), ("pretrain", "control")]  # `smoke` with other documents


@pytest.mark.parametrize(("recipe", "setting"), [
    pytest.param(*named, marks=[pytest.mark.long] if named in LONG else []) for named in NAMED])
def test_a_named_setting_runs(recipe, setting, tmp_path):
    named = RECIPES[recipe].SETTINGS[setting]()
    tools = flat_settings(named).get("model") == "tiny-tools"  # its template takes tools
    model = "tiny-tools" if tools else "tiny"
    config = small(named, model=model)
    # a real model on real data: here a small one on data of the same shape
    if config.__dict__.get("task") == "gsm8k":
        config = override(config, [f"task=gsm8k:{gsm8k_folder(tmp_path)}"])
    run = start_run(config, tmp_path / "run",
                        command=f"postgrad train {recipe}:{setting}")
    check_rows(run)
    assert settings_from_json(type(config), run.config) == fill_defaults(config)[0]
    if config.__dict__.get("evaluation"):
        evals, _ = run.rows("evals")
        assert [e["step"] for e in evals] == [0, 3]  # before the first step, and after the last
        for row in evals:
            name = {"reward": "accuracy", "process": "balanced_accuracy"}.get(recipe, "pass@1")
            low, high = row[f"{name}_interval"]
            assert 0 <= low <= row[name] <= high <= 1
            assert recipe == "reward" or (row["problems"] == 2 and row.get("samples", 2) == 2)
    assert list(run.checkpoints()) == [3]
    if recipe == "sft":
        assert moved(run, model) > 1e-4


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "letters.py"
    path.write_text(TASK)
    return str(path)


KINDS = ("grpo", "ppo", "dapo", "kl_cov", "opd", "sdft", "nano")  # what rows of this source can want


@pytest.mark.parametrize("method", [
    pytest.param(name, marks=[] if name in KINDS else [pytest.mark.long])
    for name, row in METHODS.items() if row.source == "rollouts"])
def test_each_method_of_the_family_moves_the_weights(method, task, tmp_path):
    row = change(METHODS[method], epochs=1, minibatches=1)
    config = small(rollouts.RolloutConfig(task=task, method=row),
                   **{"rollouts.group_size": 3, "evaluation.every": 0})
    config = taught(config, tmp_path)
    run = start_run(config, tmp_path / "run")
    rows = check_rows(run)
    assert moved(run) > 1e-5 and all(row["grad_norm"] > 0 for row in rows)
    assert all(0 < row["reward"] < 1 and row["mismatch"] < 1e-4 for row in rows)
    assert ("kl" in rows[0]) == (config.row.needs_reference)
    if "kl" in rows[0]:
        assert abs(rows[0]["kl"]) < 1e-6 < rows[2]["kl"]  # the policy starts at the reference and leaves it
    check_samples(run, groups=2, group_size=3)


def test_the_column_of_log_probs_is_that_of_the_model(task, tmp_path):
    config = small(rollouts.RolloutConfig(task=task, method="nano"), **{"evaluation.every": 0})
    run = start_run(config, tmp_path / "run")
    model, chat = opening.open_model("tiny")
    for row in (r for r in run.rows("samples")[0] if r["step"] == 1):
        prompt = chat.render([{"role": "user", "content": row["prompt"]}])
        tokens = torch.tensor([[*prompt, *row["token_ids"]]])
        logp = model.logp(tokens,
                          torch.arange(tokens.shape[1])[None] >= len(prompt))[0][0, len(prompt) :].tolist()
        assert row["columns"]["logp"] == pytest.approx(logp, abs=2e-5)
        assert row["tokens"] == chat.pieces(row["token_ids"]) and row["text"] == chat.decode(row["token_ids"])


def test_a_filtered_rollout_counts_by_the_probability_that_the_filter_keeps(task, tmp_path):
    """By transformers' own filters: what they keep of the policy's distribution is the token's weight."""
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    filters = {"top_k": 6, "top_p": 0.8, "min_p": 0.05}
    config = small(rollouts.RolloutConfig(task=task, method="grpo"), **{"evaluation.every": 0}, steps=1,
                   **{f"rollouts.{name}": value for name, value in filters.items()})
    parts = build(config, begins("tiny"))
    assert [note for note in parts.notes if "top_k=6, top_p=0.8, min_p=0.05; trained is the full" in note]
    (batch,) = parts.batches
    with torch.no_grad():
        logits = parts.models.policy.logits(batch.tokens)[:, :-1].flatten(0, 1)
    kept = logits
    for part in (TopKLogitsWarper(6), TopPLogitsWarper(0.8), MinPLogitsWarper(0.05)):
        kept = part(None, kept)
    mass = torch.where(kept.isfinite(), logits.softmax(-1), 0).sum(-1).view(len(batch), -1)
    assert torch.allclose(batch.correction[:, 1:][batch.mask[:, 1:]], mass[batch.mask[:, 1:]], atol=1e-4)
    assert 0.3 < float(batch.correction[batch.mask].min()) < 0.95
    best = small(rollouts.RolloutConfig(task=task, method="best_of_n"), **{"rollouts.top_p": 0.8})
    assert rollouts.filter_note(best) == (
        "rollouts are sampled with top_p=0.8; trained is the full distribution, on the samples as they are")


def test_a_rollout_knows_the_step_it_was_made_for(task):
    config = small(rollouts.RolloutConfig(task=task, method="grpo"),
                   **{"method.epochs": 2, "evaluation.every": 0})
    parts = build(config, begins("tiny"))
    assert [{s.rollout.policy_step for s in batch.scored} for batch in parts.batches] == [{1}, {1}, {3}]


def test_kl_is_what_the_config_asks_for():
    def coefficients(method, kl):
        row = rollouts.RolloutConfig(task="words", method=method, kl=rollouts.KL(coef=kl)).row
        return row.kl_in_reward, row.kl_in_loss

    assert coefficients("grpo", None) == (0.0, 0.04) and coefficients("rloo", None) == (0.03, 0.0)
    assert coefficients("grpo", 0.5) == (0.0, 0.5) and coefficients("rloo", 0.5) == (0.5, 0.0)
    assert coefficients("grpo", 0.0) == (0.0, 0.0) and coefficients("nano", 0.1) == (0.0, 0.1)
    online = rollouts.RolloutConfig(task="words", method="online_dpo", kl=rollouts.KL(coef=0.4)).row
    assert online.loss.keywords["beta"] == 0.4  # DPO's beta is the weight of its KL


def test_your_own_conversations(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"Say {n}.", "completion": f"I say {n}."}) + "\n"
                            for n in range(9)))
    config = small(override(sft.sft_on_words(), ["task=none", f"data={path}"]))
    run = start_run(config, tmp_path / "run")
    rows = check_rows(run)
    assert moved(run) > 1e-4 and rows[2]["loss"] < rows[0]["loss"]


NOISY = {"optim.adapter.lora": 2, "optim.adapter.dropout": 0.3, "optim.moments": 8,
         "optim.adapter.modules_to_save": "embed_tokens", "optim.recompute": True, "neftune": 5.0}


@pytest.mark.parametrize("recipe", ["sft", "rollouts", "sft with noise"])
def test_a_stopped_run_goes_on_to_the_same_bits(recipe, task, tmp_path):
    twice = change(METHODS["ppo"], epochs=2)
    config = rollouts.RolloutConfig(task=task, method=twice) if recipe == "rollouts" else sft.sft_on_words()
    config = small(config, save_every=1, **{"evaluation.every": 0}, **(NOISY if "noise" in recipe else {}))
    whole = start_run(config, tmp_path / "whole")

    class Cut(Exception):
        pass

    class Watch(Tracker):
        def on_step(self, step, metrics):
            if step == 2:  # after the rows of step 2, before its checkpoint
                raise Cut

    with pytest.raises(Cut):
        start_run(config, tmp_path / "cut", trackers=[Watch()])
    run = Run.open(tmp_path / "cut")
    assert run.state()["state"] == "failed" and list(run.checkpoints()) == [1]
    run = resume_run(run, settings_from_json(type(config), run.config))
    check_rows(run)
    events = run.rows("events")[0]
    said = [*["data", "data"] * (recipe == "rollouts"), "length"]  # once each: rows, held out
    assert [e["kind"] for e in events] == [*said, "resumed"]
    assert len({e["text"] for e in events}) == len(events)
    ours, theirs = ([repeatable(row) for row in r.rows("metrics")[0]]
                    for r in (run, whole))
    assert ours == theirs and run.rows("samples") == whole.rows("samples")
    a, b = (load_model(r.latest()).state_dict() for r in (run, whole))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_a_run_does_not_go_on_from_other_weights(task, tmp_path):
    config = small(rollouts.RolloutConfig(task=task), save_every=1, **{"evaluation.every": 0})
    first = start_run(config, tmp_path / "first")
    second = override(config, [f"model={tmp_path / 'first'}"])
    later = start_run(second, tmp_path / "second")
    assert later.info["begins_with"] == opening.fingerprint(first.latest()) != first.info["begins_with"]
    path, kept = first.latest() / "model.safetensors", later.rows("metrics")
    # damaged, so that an older checkpoint is the newest sound one
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(ValueError, match="the model this run began with has changed"):
        resume_run(Run.open(tmp_path / "second"), second)
    assert later.rows("metrics") == kept


def test_faults_are_found_before_a_folder_is_made(task, tmp_path):
    config = small(rollouts.RolloutConfig(task=task))
    for said, words in (("model=nowhere", "no model at nowhere"),
                        ("task=wrods", "no task 'wrods': did you mean 'words'"),
                        ("rollouts.group_size=1", "grpo compares the samples of a group"),
                        ("rollouts.max_new_tokens=600", "over the model's 512 positions")):
        with pytest.raises(ValueError, match=words):
            start_run(override(config, [said]), tmp_path / "run")
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"id": "b", "prompt": "Say it.", "completion": "word " * 600}) + "\n")
    with pytest.raises(ValueError, match="long.jsonl line 1 has 1,810 tokens, over the limit of 512"):
        start_run(small(override(sft.sft_on_words(), ["task=none", f"data={long}"])), tmp_path / "run")
    assert not (tmp_path / "run").exists()
