"""Pairs: their files, their batches, the reward model and the DPO family end to end."""

import json
import math

import pytest
import torch
from small import CHAT, small_model, small_models

from postgrad.cli import main
from postgrad.data.preferences import (
    preference_report,
    preference_sentence,
    read_pairs,
    read_singles,
    split_rows,
    split_tie,
)
from postgrad.data.tasks import load_task
from postgrad.data.tasks.questions import reply_quality
from postgrad.methods import METHODS
from postgrad.models import Models, ScalarModel, load_model, load_scalar, save_model
from postgrad.recipes.registry import recipe_for
from postgrad.records import Conversation, Pair
from postgrad.training.batches import PairBatches

ASK = ({"role": "user", "content": "Hi"},)
PAIRS = [Pair(id=str(i), messages=ASK, chosen="Hello" + "!" * i, rejected="What" + "?" * (i % 3))
         for i in range(7)]


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_common_shapes_read_alike(tmp_path):
    user, good, bad = ({"role": r, "content": c}
                       for r, c in (("user", "Hi"), ("assistant", "Hello"), ("assistant", "What?")))
    path = write(tmp_path / "p.jsonl",
                 {"prompt": "Hi", "chosen": "Hello", "rejected": "What?", "margin": 2, "id": "one"},
                 {"prompt": [user], "chosen": [good], "rejected": [bad]},
                 {"chosen": [user, good], "rejected": [user, bad]})
    pairs = read_pairs(path)
    assert {(p.messages, p.chosen, p.rejected) == (pairs[0].messages, "Hello", "What?")
            for p in pairs} == {True}
    assert [p.id for p in pairs] == ["one", "2", "3"] and [p.margin for p in pairs] == [2.0, 0.0, 0.0]
    assert pairs[0].messages == (user,)


def test_a_tie_is_half_a_win_each_way(tmp_path):
    first, second = read_pairs(write(tmp_path / "p.jsonl",
                                     {"prompt": "Hi", "chosen": "a", "rejected": "b", "tie": True}))
    assert (first.chosen, first.rejected, first.weight) == ("a", "b", 0.5)
    assert (second.chosen, second.rejected, second.weight) == ("b", "a", 0.5)


def says(text):
    return [{"role": "assistant", "content": text}]


def three(**more):
    return {"prompt": "Hi", "answers": ["x", "y", "z"], **more}


@pytest.mark.parametrize("row", [three(ranking=[2, 0, 1]), three(ranks=[2, 3, 1]), three(ranks=[0.5, 9, -1])])
def test_a_ranking_of_three_is_three_pairs(tmp_path, row):
    pairs = read_pairs(write(tmp_path / "p.jsonl", row))
    assert [(p.chosen, p.rejected, p.weight) for p in pairs] == [("z", "x", 0.5), ("z", "y", 0.5),
                                                                 ("x", "y", 0.5)]
    assert all(p.messages == ASK for p in pairs)
    assert len({p.id for p in pairs}) == 3 and not any(p.tie for p in pairs)


def test_every_ranked_answer_weighs_as_one_in_a_pair(tmp_path):
    answers, ranks = list("vwxyz"), [1, 2, 2, 3, 3]
    pairs = read_pairs(write(tmp_path / "p.jsonl", {"prompt": "Hi", "answers": answers, "ranks": ranks}))
    assert sum(p.tie for p in pairs) == 4 and len(pairs) == 10 + 2  # 10 pairs, two of them ties in two halves
    for text in answers:
        assert sum(p.weight for p in pairs if text in (p.chosen, p.rejected)) == pytest.approx(1)
    won = {text: sum(p.weight for p in pairs if p.chosen == text) for text in answers}
    assert won == pytest.approx({"v": 1.0, "w": 0.625, "x": 0.625, "y": 0.125, "z": 0.125})
    two, = read_pairs(write(tmp_path / "q.jsonl", {"prompt": "Hi", "answers": ["x", "y"], "ranking": [1, 0]}))
    assert (two.chosen, two.rejected, two.weight) == ("y", "x", 1.0)


@pytest.mark.parametrize("row, words", [
    ({"prompt": "Hi", "chosen": "a"}, "'rejected' is missing or empty"),
    ({"prompt": "Hi", "chosen": "", "rejected": "b"}, "'chosen' is missing or empty"),
    ({"prompt": "Hi", "chosen": "a", "rejected": "a"}, "are the same text"),
    ({"prompt": "", "chosen": "a", "rejected": "b"}, "the prompt is empty"),
    ({"prompt": "Hi", "chosen": "a", "rejected": "b", "margin": "much"}, "margin is 'much'"),
    ({"prompt": "Hi", "chosen": "a", "rejected": "b", "margin": 10**400}, "margin is 1000"),
    ({"prompt": "Hi", "chosen": "a", "rejected": "b", "tie": "yes"}, "tie is 'yes'"),
    ({"prompt": "Hi", "chosen": "a", "rejected": "b", "tie": True, "margin": 1}, "a tie with margin"),
    ({"prompt": 3, "chosen": "a", "rejected": "b"}, "prompt: messages must be a list"),
    ({"chosen": "a", "rejected": "b"}, "there is no prompt"),
    ({"prompt": "Hi", "chosen": "a", "rejected": " "}, "rejected is empty"),
    ({"prompt": "Hi", "rejected": says("b")}, "'chosen' is missing or empty"),
    ({"chosen": [*ASK], "rejected": [*ASK]}, "end with an assistant's"),
    ({"chosen": [*ASK, *says("a")], "rejected": [*says("b")]}, "same prompt"),
    ({"prompt": "Hi", "chosen": 3, "rejected": "b"}, "messages must be a list"),
    (three(), "need either 'ranking'"),
    (three(ranking=[0, 1, 2], ranks=[1, 2, 3]), "need either 'ranking'"),
    (three(ranking=[0, 1, 3]), "must name each of the 3 answers once"),
    (three(ranking=[0, 1, 1]), "must name each of the 3 answers once"),
    (three(ranking=[0, 1]), "must name each of the 3 answers once"),
    (three(ranking=[True, False, 2]), "is no list of numbers"),
    (three(ranking="012"), "is no list of numbers"),
    (three(ranks=[1, 2]), "for 3 answers"),
    (three(ranks=[1, 2, math.nan]), "NaN is no JSON number"),
    (three(ranking=[0, 1, 2], margin=1), "a ranking has no margin"),
    ({"prompt": "Hi", "answers": ["x"], "ranking": [0]}, "two or more"),
    ({"prompt": "Hi", "answers": ["x", ""], "ranking": [0, 1]}, "answer 1 is empty"),
    ({"prompt": "Hi", "answers": ["x", "y", "x"], "ranking": [0, 1, 2]}, "answers 0 and 2 are the same text"),
])
def test_a_bad_line_is_named(tmp_path, row, words):
    path = write(tmp_path / "p.jsonl", {"prompt": "Hi", "chosen": "a", "rejected": "b"}, row)
    with pytest.raises(ValueError, match=f"p.jsonl line 2.*{words}"):
        read_pairs(path)


@pytest.mark.parametrize("read", [read_pairs, read_singles])
def test_an_empty_file_is_said(tmp_path, read):
    (tmp_path / "p.jsonl").write_text("\n\n")
    with pytest.raises(ValueError, match="p.jsonl has no rows"):
        read(tmp_path / "p.jsonl")


def test_singles_in_their_shapes(tmp_path):
    said = {"role": "assistant", "content": "Hello"}
    rows = [{"messages": [*ASK, said], "label": True}, {"prompt": "Hi", "completion": "Hello", "label": 1},
            {"prompt": ASK, "completion": [said], "label": True, "messages": None},
            {"prompt": "Hi", "completion": "Hello", "label": 0, "id": "bad"}]
    singles = read_singles(write(tmp_path / "s.jsonl", *rows))
    assert all(s.messages == (*ASK, said) for s in singles)
    assert [(s.id, s.label) for s in singles] == [("1", True), ("2", True), ("3", True), ("bad", False)]


@pytest.mark.parametrize("row, words", [
    ({"prompt": "Hi", "completion": "a"}, "the label is missing"),
    ({"prompt": "Hi", "completion": "a", "label": None}, "the label is missing"),
    ({"prompt": "Hi", "completion": "a", "label": "good"}, 'label is "good"'),
    ({"prompt": "Hi", "completion": "a", "label": 2}, "label is 2"),
    ({"prompt": "Hi", "completion": "", "label": True}, "completion is empty"),
    ({"prompt": "Hi", "chosen": "a", "rejected": "b", "label": True},
     "found chosen, label, prompt, rejected"),
    ({"completion": "a", "label": True}, "there is no prompt"),
    ({"messages": [{"role": "assistant", "content": "a"}], "label": True}, "there is no prompt"),
    ({"messages": ASK, "label": True}, "end with an assistant's"),
])
def test_a_bad_single_is_named(tmp_path, row, words):
    path = write(tmp_path / "s.jsonl", {"prompt": "Hi", "completion": "a", "label": False}, row)
    with pytest.raises(ValueError, match=f"s.jsonl line 2.*{words}"):
        read_singles(path)


def test_singles_of_one_kind_are_refused(tmp_path):
    rows = [{"prompt": "Hi", "completion": text, "label": True} for text in "ab"]
    with pytest.raises(ValueError, match="s.jsonl: all 2 labels are true; .* needs both"):
        read_singles(write(tmp_path / "s.jsonl", *rows))


def pair(id, chosen, rejected, ask="Hi"):
    return Pair(id=id, messages=({"role": "user", "content": ask},), chosen=chosen, rejected=rejected)


def test_repeats_and_contradictions_are_counted():
    found = preference_report([pair(*p) for p in ("1xy", "2yx", "3xy", "4xz")])
    assert found == {"judgements": 4, "ties": 0, "prompts": 1, "repeated": 1, "repeats": [["1", "3"]],
                     "contradicted": 1, "contradictions": [["1", "2"]]}
    assert (preference_sentence(found) == "4 judgements on 1 prompts, 1 repeated (1 and 3), 1 labelled both "
            "ways (1 and 2)")
    many = preference_report([pair(str(i), *("xy" if i % 2 else "yx")) for i in range(20)])
    assert ((many["repeated"], many["contradicted"]) == (18, 10)
            and len(many["repeats"]) == len(many["contradictions"]) == 5)
    sentence = preference_sentence(many)
    assert "10 labelled both ways (0 and 1, " in sentence and "...)" in sentence


def test_a_tie_is_one_judgement_and_contradicts_nothing(tmp_path):
    found = preference_report([*split_tie(pair("1", "x", "y")), pair("2", "x", "y"),
                               *split_tie(pair("3", "y", "x")),
                               pair("4", "x", "y", ask="Ho")])
    assert (found["judgements"], found["ties"], found["prompts"], found["contradicted"]) == (4, 2, 2, 0)
    assert found["repeated"] == 1
    ranking = read_pairs(write(tmp_path / "p.jsonl", three(ranks=[1, 2, 3]), three(ranks=[2, 1, 2])))
    assert (found := preference_report(ranking))["ties"] == 1  # the ranking's own weights of 1/2 make none
    assert found["contradictions"] == [["1:0,1", "2:1,0"]]


def test_singles_are_reported_alike():
    single = [Conversation(id=i, messages=(*ASK, {"role": "assistant", "content": "x"}), label=label)
              for i, label in (("1", True), ("2", False), ("3", True))]
    found = preference_report(single)
    assert (found["judgements"], found["prompts"], found["repeats"]) == (3, 1, [["1", "3"]])
    assert [set(two) for two in found["contradictions"]] == [{"1", "2"}]


def test_a_prompt_is_never_on_both_sides():
    asks = [str(n) for n in range(60)]
    pairs = [p for ask in asks
             for p in [*split_tie(pair(f"{ask}t", "x", "y", ask)), pair(ask, "y", "z", ask)]]
    train, held = split_rows(pairs)
    sides = [{p.messages[0]["content"] for p in side} for side in (train, held)]
    assert not sides[0] & sides[1] and [len(s) for s in sides] == [54, 6] and len(held) == 18
    assert train + held == sorted(pairs, key=lambda p: p in held) and [p for p in pairs if p in held] == held
    again, same = split_rows(pairs[::-1], 0.1)
    assert {p.id for p in same} == {p.id for p in held} and len(again) == len(train)
    assert len(split_rows(pairs, 1 / 3)[1]) == 20 * 3
    few = [p for p in pairs if int(p.messages[0]["content"]) < 19]
    assert split_rows(few) == (few, [])
    assert split_rows(pairs, 0.0) == (pairs, []) and len(split_rows(pairs, 0.5, most=4)[1]) == 4 * 3


def line(method, models, **changes):
    settings = {"per_step": 3, "steps": 5, "seed": 1, "max_tokens": 64, "tokens_per_pass": 64, **changes}
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
    with pytest.raises(ValueError, match=r"pair 6 has \d+ tokens, over the limit of 12"):
        line("simpo", Models(policy=None), max_tokens=12)


def test_annotators_mostly_agree_with_the_truth_and_like_length():
    pairs = load_task("questions").preferences("train", 2000, 0)
    prompt = {q.question: q for q in load_task("questions").prompts("train", 1000, 0)}

    def gap(pair, measure):
        ask = prompt[pair.messages[-1]["content"]]
        return measure(ask, pair.chosen) - measure(ask, pair.rejected)

    true = [gap(p, lambda a, t: reply_quality(a, t).score) for p in pairs]
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
        theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path,
                                                                    pad_token_id=0)(tokens).logits.squeeze(-1)
    assert torch.allclose(ours, theirs, atol=1e-5) and ours.abs().min() > 1e-3
    with pytest.raises(ValueError, match="is a reward model"):
        load_model(tmp_path)


SIZES = {  # a head that starts at zero takes longer than a policy
    "reward": "steps=12 pairs.drawn=200 pairs.held_out=120 pairs.per_step=16 evaluation.every=12",
    "preference": "steps=8 pairs.drawn=120 pairs.held_out=60 pairs.per_step=12 evaluation.every=8",
}


@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if recipe_for(row) in SIZES])
def test_every_method_learns_the_preferences(method, tmp_path):
    change = f"{SIZES[recipe_for(METHODS[method])]} optim.lr=3e-4 evaluation.problems=2 evaluation.samples=1"
    assert main(["train", f"{method}:questions", *change.split(), "--run", str(tmp_path / "run"),
                 "--json"]) == 0
    rows = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    before, after = (json.loads(x) for x in (tmp_path / "run/evals.jsonl").read_text().splitlines())
    assert after["accuracy"] > before["accuracy"] + 0.05 and after["margin"] > before["margin"]
    if method in ("dpo", "reward"):  # policy = reference, or a head at zero: nothing is preferred yet
        assert rows[0]["loss"] == pytest.approx(math.log(2), abs=1e-5) and before["accuracy"] == 0.5
