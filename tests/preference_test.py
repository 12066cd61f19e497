"""Pairs: their files, their batches, the reward model and the DPO family end to end."""

import json
import math

import pytest
import torch
from small import CHAT, small_model, small_models

from postgrad.batches import PairBatches
from postgrad.cli import main
from postgrad.data.preferences import contradictions, read_pairs
from postgrad.methods import METHODS
from postgrad.models import Models, ScalarModel, load_model, load_scalar, save_model
from postgrad.recipes.preference import FAMILY
from postgrad.records import Pair
from postgrad.tasks import load_task
from postgrad.tasks.questions import quality

ASK = ({"role": "user", "content": "Hi"},)
PAIRS = [Pair(id=str(i), messages=ASK, chosen="Hello" + "!" * i, rejected="What" + "?" * (i % 3)) for i in range(7)]


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_common_shapes_read_alike(tmp_path):
    user, good, bad = ({"role": r, "content": c} for r, c in (("user", "Hi"), ("assistant", "Hello"), ("assistant", "What?")))
    path = write(tmp_path / "p.jsonl", {"prompt": "Hi", "chosen": "Hello", "rejected": "What?", "margin": 2, "id": "one"},
                 {"prompt": [user], "chosen": [good], "rejected": [bad]},
                 {"chosen": [user, good], "rejected": [user, bad]})
    pairs = read_pairs(path)
    assert {(p.messages, p.chosen, p.rejected) == (pairs[0].messages, "Hello", "What?") for p in pairs} == {True}
    assert [p.id for p in pairs] == ["one", "2", "3"] and [p.margin for p in pairs] == [2.0, 0.0, 0.0]
    assert pairs[0].messages == (user,)


def test_a_tie_is_half_a_win_each_way(tmp_path):
    first, second = read_pairs(write(tmp_path / "p.jsonl", {"prompt": "Hi", "chosen": "a", "rejected": "b", "tie": True}))
    assert (first.chosen, first.rejected, first.weight) == ("a", "b", 0.5)
    assert (second.chosen, second.rejected, second.weight) == ("b", "a", 0.5)


@pytest.mark.parametrize("row, words", [
    ({"prompt": "Hi", "chosen": "a"}, "'rejected' is missing or empty"),
    ({"prompt": "Hi", "chosen": "", "rejected": "b"}, "'chosen' is missing or empty"),
    ({"prompt": "Hi", "chosen": "a", "rejected": "a"}, "are the same text"),
    ({"prompt": "", "chosen": "a", "rejected": "b"}, "the prompt is empty"),
    ({"prompt": "Hi", "chosen": "a", "rejected": "b", "margin": "much"}, "margin is 'much'"),
    ({"chosen": [{"role": "user", "content": "Hi"}], "rejected": [{"role": "user", "content": "Ho"}]}, "must end with an"),
    ({"chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]}, "same prompt"),
    ({"prompt": "Hi", "chosen": 3, "rejected": "b"}, "messages must be a list"),
])
def test_a_bad_line_is_named(tmp_path, row, words):
    path = write(tmp_path / "p.jsonl", {"prompt": "Hi", "chosen": "a", "rejected": "b"}, row)
    with pytest.raises(ValueError, match=f"p.jsonl line 2.*{words}"):
        read_pairs(path)


def test_repeats_and_contradictions_are_counted():
    a, b, c = (Pair(id=i, messages=ASK, chosen=x, rejected=y) for i, x, y in ("1xy", "2yx", "3xy"))
    assert contradictions([a, b, c]) == {"pairs": 3, "repeated": 1, "contradicted": 1}
    assert contradictions([a]) == {"pairs": 1, "repeated": 0, "contradicted": 0}


def line(method, models, **changes):
    settings = {"pairs_per_step": 3, "steps": 5, "seed": 1, "room": 64, "tokens_per_pass": 64, **changes}
    return PairBatches(PAIRS, CHAT, METHODS[method], models, **settings)


def test_the_reference_looks_at_every_row():
    models = small_models()
    for batch in line("dpo", models, steps=2):
        expected, _ = models.reference.logp(batch.tokens, batch.mask)
        assert torch.allclose(batch.ref_logp, expected, atol=1e-6) and batch.ref_logp[batch.mask].min() < 0
        assert batch.weight.tolist() == pytest.approx([1 / 3] * 3)


def test_a_restored_line_goes_on():
    models = Models(policy=None)
    whole, first, second = list(line("simpo", models)), line("simpo", models), line("simpo", models)
    run = iter(first)
    seen = [next(run), next(run)]
    second.restore(first.state())
    assert [b.ids for b in [*seen, *second]] == [b.ids for b in whole]


def test_what_cannot_be_trained_is_said():
    with pytest.raises(ValueError, match="dpo compares with a reference model"):
        line("dpo", Models(policy=None))
    with pytest.raises(ValueError, match=r"pair 6: its chosen answer makes \d+ tokens, over the model's 12"):
        line("simpo", Models(policy=None), room=12)


def test_annotators_mostly_agree_with_the_truth_and_like_length():
    pairs = load_task("questions").preferences("train", 2000, 0)
    prompt = {q.question: q for q in load_task("questions").prompts("train", 1000, 0)}

    def gap(pair, measure):
        ask = prompt[pair.messages[-1]["content"]]
        return measure(ask, pair.chosen) - measure(ask, pair.rejected)

    true = [gap(p, lambda a, t: quality(a, t).score) for p in pairs]
    agree = sum(g > 0 for g in true) / sum(g != 0 for g in true)
    assert 0.8 < agree < 0.9
    wrong = [gap(p, lambda a, t: len(t.split())) for p, g in zip(pairs, true, strict=True) if g < 0]
    assert sum(w > 0 for w in wrong) > 0.6 * len(wrong)  # where they err, they err towards the longer reply
    assert pairs == load_task("questions").preferences("train", 2000, 0)


def test_a_reward_model_opens_in_transformers_and_comes_back(tmp_path):
    from transformers import AutoModelForSequenceClassification
    model = ScalarModel(small_model())
    model.score_head.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    save_model(model, tmp_path)
    tokens = torch.randint(6, 500, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours = model.score(tokens, torch.tensor([9, 9]))
        assert torch.equal(load_scalar(tmp_path).score(tokens, torch.tensor([9, 9])), ours)
        theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path, pad_token_id=0)(tokens).logits.squeeze(-1)
    assert torch.allclose(ours, theirs, atol=1e-5) and ours.abs().min() > 1e-3
    with pytest.raises(ValueError, match="is a reward model"):
        load_model(tmp_path)


@pytest.mark.parametrize("method", FAMILY)
def test_every_method_learns_the_preferences(method, tmp_path):
    change = ("steps=12 pairs.drawn=200 pairs.per_step=16 optim.lr=3e-4 evaluation.every=12 evaluation.problems=2 "
              "evaluation.samples=1")
    assert main(["train", f"{method}:questions", *change.split(), "--run", str(tmp_path / "run"), "--json"]) == 0
    rows = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    before, after = (json.loads(x) for x in (tmp_path / "run/evals.jsonl").read_text().splitlines())
    assert after["accuracy"] > before["accuracy"] + 0.05 and after["margin"] > before["margin"]
    if method in ("dpo", "reward"):  # policy = reference, or a head at zero: nothing is preferred yet
        assert rows[0]["loss"] == pytest.approx(math.log(2), abs=1e-5) and before["accuracy"] == 0.5
