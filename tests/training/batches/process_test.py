"""Steps and their labels, and the tokens at which a process model reads them."""

import random
from dataclasses import replace

import pytest
import torch
from process_small import ASK, GOLD, rolled
from small import CHAT, small_model
from texts import hostile_texts

from postgrad.data.tasks import TASKS, load_task
from postgrad.data.tasks import word_problems as wp
from postgrad.data.tasks.base import think
from postgrad.methods import METHODS
from postgrad.models import ScalarModel
from postgrad.records import Step
from postgrad.training.batches import LabelledReply, StepBatches
from postgrad.training.batches.offline import label_reply
from postgrad.training.objectives import build_objective


@pytest.mark.parametrize(("text", "labels", "reason"), [
    (GOLD, "1111", "20 is the answer"),
    (think("", 20), "1", "20 is the answer"),
    (think("", 19), "0", "19 is not the answer"),
    # steps left unwritten, as an average writer does
    (think("13-3=10", 20), "11", ""),
    (think("5+8=13, 10*2=20", 20), "111", ""),
    (think("5+8-3=10, 10*2=20", 20), "111", ""),                 # two in one
    (think("5+8=14, 14-3=11, 11*2=22", 22), "0000", "5+8 is 13, not 14"),
    (think("5+8=13, 13-3=11, 11*2=22", 22), "1000", "13-3 is 10, not 11"),
    (think("5+8=13, 13-3=11, 10*2=20", 20), "1000", "13-3 is 10, not 11"),  # a right answer does not mend it
    (think("5+8=13, 13*2=26", 26), "100", "13*2 is not what comes next"),   # an event forgotten
    (think("5+8=13, 5+8=13, 13-3=10", 20), "1000", "5+8 is not what comes next"),  # said twice
    (think("13-3=10, 5+8=13", 20), "100", "5+8 is not what comes next"),    # out of order
    (think("8+5=13", 20), "00", "8+5 is not what comes next"),
    # true, and yet not the problem's: left to right it is 20
    (think("5+8-3*2=7", 20), "00", "5+8-3*2 is not what"),
    (think("5+8-3*2=20", 20), "00", "5+8-3*2 is 7, not 20"),
    (think("5+8=13, hm", 20), "100", "'hm' is no step"),
    (think("5/0=1", 20), "00", "a division by zero"),
    (think("5 plus 8 is 13, then 13 minus 3 is 10, then 10 times 2 is 20", 20), "1111", ""),
    (think("5 más 8 son 13, luego 10 por 2 son 20", 20), "111", ""),
    ("<think>5+8=13\n13-3=10\nAnswer: 20", "1100", "'Answer: 20' is no step"),
    ("<think>5+8=13, 13-", "100", "'13-' is no step"),           # cut short: what there is, and no answer
    ("5+8=13</think><answer>20</answer>", "10", "no <think>"),
    ("", "0", "no <think>"),
])
def test_steps_by_hand(text, labels, reason):
    steps = wp.label_chain(ASK, text)
    assert "".join(str(int(step.right)) for step in steps) == labels
    assert steps[-1].end == len(text) and [s.end for s in steps] == sorted(s.end for s in steps)
    first_fault = next((step for step in steps if not step.right), steps[-1])
    assert reason in first_fault.reason


def test_where_steps_end():
    assert [GOLD[: step.end].rsplit("<think>")[-1].rsplit(", ")[-1]
            for step in wp.label_chain(ASK, GOLD)][:3] == [
                "5+8=13", "13-3=10", "10*2=20"]


@pytest.mark.parametrize("name", [name for name in TASKS if name.startswith("words")])
def test_every_style_is_right_and_one_changed_digit_is_found(name):
    task, rng = load_task(name), random.Random(0)
    for prompt in task.prompts("test", 60, 0):
        problem = wp.problem_of_prompt(prompt)
        for style in ("direct", "skipped", "full", "english", "spanish"):
            steps = task.steps(prompt, wp.word_problem_reply(problem, style, rng))
            assert all(step.right for step in steps), (prompt.question, steps)
        chain = wp.chain_steps(problem.start, problem.ops)
        at = rng.randrange(len(chain))
        left, result = chain[at].split("=")
        chain[at] = f"{left}={int(result) + rng.choice([1, 2, 10])}"
        text = think(", ".join(chain), prompt.answer)
        assert ([step.right for step in task.steps(prompt, text)]
                == [True] * at + [False] * (len(chain) + 1 - at))


def test_any_text_gets_steps():
    for text in hostile_texts(600):
        steps = wp.label_chain(ASK, text)
        ends, right = [step.end for step in steps], [step.right for step in steps]
        assert ends == sorted(ends) and ends[-1] == len(text)
        assert right == sorted(right, reverse=True)  # once wrong, always wrong
        assert not right[-1] or wp.number_in_form(ASK, text).score == 1


def test_a_step_is_read_at_its_last_token():
    for text in (GOLD, think("5 más 8 son 13, luego 10 por 2 son 20", 20), think("", 20),
                 "<think>5+8=13, 13-", "é🙂=, 5+8=13"):
        for finished in (True, False):
            rollout = rolled(text, finished=finished)
            ends = [step.end for step in wp.label_chain(ASK, rollout.text)]
            places = CHAT.places(rollout.tokens, ends)
            # the answer's score is the reply's last, as a reward model reads it
            assert places[-1] == len(rollout.tokens) - 1
            for end, place in zip(ends[:-1], places[:-1], strict=True):
                upto = [CHAT.decode(rollout.tokens[:n]) for n in (place, place + 1)]
                assert end == len(upto[1]) and (len(upto[0]) < end or place == places[-1]), (text, upto)


def test_the_tokens_are_those_that_were_sampled():
    split = [t for char in "5+8=13, 1" for t in CHAT.encode(char)]
    plus, merged = CHAT.encode(" plus")[0], CHAT.encode(" is")[0]
    rollout = rolled("", tokens=[*split, plus, merged])
    assert rollout.text == "5+8=13, 1 plus is"
    assert CHAT.places(rollout.tokens, [6, 10, 17]) == [5, 9, 11]  # 10 lies inside " plus"
    both = label_reply(rollout, [Step(end=6, right=True), Step(end=10, right=True), Step(end=11,
                                                                                         right=False)], CHAT)
    at = len(rollout.prompt_tokens)
    assert both.marks == ((at + 5, True), (at + 9, False))  # two ends in one token: the later label


def test_the_loss_is_the_mean_over_the_steps_of_the_batch():
    model, rng = ScalarModel(small_model()), torch.Generator().manual_seed(0)
    model.score_head.weight.data.normal_(generator=rng)
    rollouts = [rolled(text) for text in (GOLD, think("5+8=14", 22), think("", 20))]
    rows = [label_reply(r, wp.label_chain(ASK, r.text), CHAT) for r in rollouts]
    batch = StepBatches(rows, per_step=3, steps=1, seed=0, max_tokens=512).batch(rows)
    with torch.no_grad():
        loss, stats = build_objective(METHODS["process"])(type("M", (), {"policy": model}), batch)
        each = []
        for row in rows:
            score = model.token_scores(torch.tensor([row.tokens]))[0]
            each += [torch.log1p(torch.exp(-score[at] if right else score[at])) for at, right in row.marks]
    assert len(each) == 4 + 2 + 1 == batch.mask.sum()
    assert (loss * batch.weight).sum() == pytest.approx(float(sum(each) / 7), rel=1e-5)
    assert stats["accuracy_right"].count == 5 and stats["accuracy_wrong"].count == 2
    assert batch.facts["right_steps"] == pytest.approx(5 / 7)


def test_a_restored_line_goes_on_and_another_one_does_not():
    rows = [LabelledReply(id=str(i), tokens=(1, 2, 3 + i), marks=((2, i % 2 == 0),)) for i in range(7)]
    make = lambda rows: StepBatches(rows, per_step=3, steps=5, seed=1, max_tokens=8)  # noqa: E731
    whole, first, second = list(make(rows)), make(rows), make(rows)
    run = iter(first)
    seen = [next(run), next(run)]
    second.restore(first.state())
    assert [b.ids for b in [*seen, *second]] == [b.ids for b in whole]
    with pytest.raises(ValueError, match="not those that this run began with"):
        make([replace(rows[0], marks=((2, False),)), *rows[1:]]).restore(first.state())
    with pytest.raises(ValueError, match="reply 0 has 3 tokens with its prompt, over the model's 2"):
        StepBatches(rows, per_step=1, steps=1, seed=0, max_tokens=2)
    with pytest.raises(ValueError, match="reply x has no labelled step"):
        make([LabelledReply(id="x", tokens=(1, 2), marks=())])
