"""Reasoning checked step by step: the labels, their tokens, the models that learn them, the rewards made of scores."""

import json
import random
from dataclasses import replace

import pytest
import torch
from small import CHAT, PROMPTS, begins, small_model, small_models
from tasks_test import hostile_texts

from postgrad.batches import Marked, RolloutBatches, Rollouts, StepBatches
from postgrad.batches.columns import rewards
from postgrad.batches.keep import held_batch, kept_batch
from postgrad.batches.steps import mark
from postgrad.cli import main
from postgrad.maths import credit
from postgrad.methods import METHODS
from postgrad.models import ScalarModel, load_scalar, save_model
from postgrad.models.checkpoint import _put_back, _take_out
from postgrad.objectives import build
from postgrad.opening import models as opening
from postgrad.recipes import process, rollouts, running
from postgrad.records import Prompt, Rollout, Scored, Step, Verdict
from postgrad.rewards.process import SO_FAR, ProcessJudge
from postgrad.run import Run
from postgrad.settings import override, unplain
from postgrad.tasks import TASKS, load_task
from postgrad.tasks import word_problems as wp
from postgrad.tasks.base import think

ASK = Prompt.ask("Ivy has 5 stamps. A friend gives Ivy 8. Ivy gives away 3. Ivy doubles the pile. How many stamps?", "20",
                 start=5, ops=(("+", 8), ("-", 3), ("*", 2)), language="en")
GOLD = "<think>5+8=13, 13-3=10, 10*2=20</think><answer>20</answer>"


# The labels

@pytest.mark.parametrize(("text", "labels", "reason"), [
    (GOLD, "1111", "20 is the answer"),
    (think("", 20), "1", "20 is the answer"),
    (think("", 19), "0", "19 is not the answer"),
    (think("13-3=10", 20), "11", ""),                            # steps left unwritten, as an average writer does
    (think("5+8=13, 10*2=20", 20), "111", ""),
    (think("5+8-3=10, 10*2=20", 20), "111", ""),                 # two in one
    (think("5+8=14, 14-3=11, 11*2=22", 22), "0000", "5+8 is 13, not 14"),
    (think("5+8=13, 13-3=11, 11*2=22", 22), "1000", "13-3 is 10, not 11"),
    (think("5+8=13, 13-3=11, 10*2=20", 20), "1000", "13-3 is 10, not 11"),  # a right answer does not mend it
    (think("5+8=13, 13*2=26", 26), "100", "13*2 is not what comes next"),   # an event forgotten
    (think("5+8=13, 5+8=13, 13-3=10", 20), "1000", "5+8 is not what comes next"),  # said twice
    (think("13-3=10, 5+8=13", 20), "100", "5+8 is not what comes next"),    # out of order
    (think("8+5=13", 20), "00", "8+5 is not what comes next"),
    (think("5+8-3*2=7", 20), "00", "5+8-3*2 is not what"),       # true, and yet not the problem's: left to right it is 20
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
    steps = wp.label_steps(ASK, text)
    assert "".join(str(int(step.right)) for step in steps) == labels
    assert steps[-1].end == len(text) and [s.end for s in steps] == sorted(s.end for s in steps)
    first_fault = next((step for step in steps if not step.right), steps[-1])
    assert reason in first_fault.reason


def test_where_steps_end():
    assert [GOLD[: step.end].rsplit("<think>")[-1].rsplit(", ")[-1] for step in wp.label_steps(ASK, GOLD)][:3] == [
        "5+8=13", "13-3=10", "10*2=20"]


@pytest.mark.parametrize("name", [name for name in TASKS if name.startswith("words")])
def test_every_style_is_right_and_one_changed_digit_is_found(name):
    task, rng = load_task(name), random.Random(0)
    for prompt in task.prompts("test", 60, 0):
        problem = wp.of_prompt(prompt)
        for style in ("direct", "skipped", "full", "english", "spanish"):
            steps = task.steps(prompt, wp.reply(problem, style, rng))
            assert all(step.right for step in steps), (prompt.question, steps)
        chain = wp.steps(problem.start, problem.ops)
        at = rng.randrange(len(chain))
        left, result = chain[at].split("=")
        chain[at] = f"{left}={int(result) + rng.choice([1, 2, 10])}"
        text = think(", ".join(chain), prompt.answer)
        assert [step.right for step in task.steps(prompt, text)] == [True] * at + [False] * (len(chain) + 1 - at)


def test_any_text_gets_steps():
    for text in hostile_texts(600):
        steps = wp.label_steps(ASK, text)
        ends, right = [step.end for step in steps], [step.right for step in steps]
        assert ends == sorted(ends) and ends[-1] == len(text)
        assert right == sorted(right, reverse=True)  # once wrong, always wrong
        assert not right[-1] or wp.number_in_form(ASK, text).score == 1


# Steps to tokens

def rolled(text, prompt=ASK, tokens=None, finished=True):
    tokens = [*(tokens or CHAT.encode(text)), *([CHAT.stop[0]] if finished else [])]
    return Rollout(prompt=prompt, prompt_tokens=tuple(CHAT.render(prompt.messages)), tokens=tuple(tokens),
                   logp=(-1.0,) * len(tokens), text=CHAT.decode(tokens), finished=finished, seed=0)


def test_a_step_is_read_at_its_last_token():
    for text in (GOLD, think("5 más 8 son 13, luego 10 por 2 son 20", 20), think("", 20), "<think>5+8=13, 13-", "é🙂=, 5+8=13"):
        for finished in (True, False):
            rollout = rolled(text, finished=finished)
            ends = [step.end for step in wp.label_steps(ASK, rollout.text)]
            places = CHAT.places(rollout.tokens, ends)
            assert places[-1] == len(rollout.tokens) - 1  # the answer's score is the reply's last, as a reward model reads it
            for end, place in zip(ends[:-1], places[:-1], strict=True):
                upto = [CHAT.decode(rollout.tokens[:n]) for n in (place, place + 1)]
                assert end == len(upto[1]) and (len(upto[0]) < end or place == places[-1]), (text, upto)


def test_the_tokens_are_those_that_were_sampled():
    split = [t for char in "5+8=13, 1" for t in CHAT.encode(char)]
    plus, merged = CHAT.encode(" plus")[0], CHAT.encode(" is")[0]
    rollout = rolled("", tokens=[*split, plus, merged])
    assert rollout.text == "5+8=13, 1 plus is"
    assert CHAT.places(rollout.tokens, [6, 10, 17]) == [5, 9, 11]  # 10 lies inside " plus"
    both = mark(rollout, [Step(end=6, right=True), Step(end=10, right=True), Step(end=11, right=False)], CHAT)
    at = len(rollout.prompt_tokens)
    assert both.marks == ((at + 5, True), (at + 9, False))  # two ends in one token: the later label


def test_the_loss_is_the_mean_over_the_steps_of_the_batch():
    model, rng = ScalarModel(small_model()), torch.Generator().manual_seed(0)
    model.score_head.weight.data.normal_(generator=rng)
    rollouts = [rolled(text) for text in (GOLD, think("5+8=14", 22), think("", 20))]
    rows = [mark(r, wp.label_steps(ASK, r.text), CHAT) for r in rollouts]
    batch = StepBatches(rows, per_step=3, steps=1, seed=0, max_tokens=512).batch(rows)
    with torch.no_grad():
        loss, stats = build(METHODS["process"])(type("M", (), {"policy": model}), batch)
        each = []
        for row in rows:
            score = model.token_scores(torch.tensor([row.tokens]))[0]
            each += [torch.log1p(torch.exp(-score[at] if right else score[at])) for at, right in row.marks]
    assert len(each) == 4 + 2 + 1 == batch.mask.sum()
    assert (loss * batch.weight).sum() == pytest.approx(float(sum(each) / 7), rel=1e-5)
    assert stats["accuracy_right"].count == 5 and stats["accuracy_wrong"].count == 2
    assert batch.facts["right_steps"] == pytest.approx(5 / 7)


def test_a_restored_line_goes_on_and_another_one_does_not():
    rows = [Marked(id=str(i), tokens=(1, 2, 3 + i), marks=((2, i % 2 == 0),)) for i in range(7)]
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
        make([Marked(id="x", tokens=(1, 2), marks=())])


# Scores to rewards

class Says:
    """A scalar model that says a chance at each place of a reply, wherever the steps are."""

    def __init__(self, chance):
        self.chance = chance

    def token_scores(self, tokens, packed=None):
        return torch.logit(torch.tensor([[self.chance(row[: t + 1]) for t in range(len(row))] for row in tokens.tolist()]))


def steps_of(rollout):
    return [step.end for step in wp.label_steps(rollout.prompt, rollout.text)]


def judged(text, chances, how):
    """A reply judged by a model that gives these chances at its steps, in order."""
    rollout = rolled(text)
    places = CHAT.places(rollout.tokens, steps_of(rollout))
    table = {len(rollout.prompt_tokens) + place + 1: c for place, c in zip(places, chances, strict=True)}
    (said,) = ProcessJudge(Says(lambda row: table.get(len(row), 0.5)), CHAT, steps_of, how=how)([rollout])
    return said, places


@pytest.mark.parametrize(("how", "score", "paid"), [
    ("min", 0.2, [-0.1, -0.7, 0.0, 0.0]), ("product", 0.9 * 0.2 * 0.8 * 0.5, [-0.1, -0.72, -0.036, -0.072]),
    ("last", 0.5, [-0.1, -0.7, 0.6, -0.3])])
def test_the_score_is_paid_as_it_falls(how, score, paid):
    said, places = judged(GOLD, [0.9, 0.2, 0.8, 0.5], how)
    assert said.score == pytest.approx(score) and len(places) == 4
    wanted = [0.0] * len(said.per_token)
    wanted[0] = 1.0
    for place, x in zip(places, paid, strict=True):
        wanted[place] += x
    assert said.per_token == pytest.approx(wanted, abs=1e-6) and sum(said.per_token) == pytest.approx(said.score)
    assert said.parts == {"steps": 4.0, "last": pytest.approx(0.5)}


@pytest.mark.parametrize("how", SO_FAR)
def test_more_right_steps_do_not_pay_more(how):
    """A judge that believes 0.97 of every step, and a reply that writes more and more of them."""
    scores = []
    for many in (0, 1, 3, 9):
        said, places = judged(think(", ".join(["5+8=13"] * many), 20), [0.97] * (many + 1), how)
        assert len(places) == many + 1 and said.score == pytest.approx(sum(said.per_token))
        scores.append(said.score)
        if how != "last":
            assert all(x <= 1e-6 for x in said.per_token[1:])  # no step earns, it can only cost
    assert max(scores) <= scores[0] + 1e-6


def test_a_judge_does_not_see_labels_and_names_its_ways():
    right, wrong = rolled(GOLD), rolled(GOLD.replace("8", "9"))
    assert steps_of(right) == steps_of(wrong)
    with pytest.raises(ValueError, match="how is 'mean'.*min, product, last"):
        ProcessJudge(None, CHAT, steps_of, how="mean")
    nothing = ProcessJudge(Says(lambda row: 0.5), CHAT, lambda r: [])([right])[0]
    assert nothing.score == 0 and set(nothing.per_token) == {0.0}


def line(method, verdicts, **changes):
    """A line over replies of three tokens, judged in turn by the verdicts."""
    def sample(prompts, group_size, seed, step):
        return [[Rollout(prompt=p, prompt_tokens=(1, 5), tokens=(7, 8, 2), logp=(-0.5,) * 3, text="78", finished=True, seed=i)
                 for i in range(group_size)] for p in prompts]

    settings = Rollouts(prompts_per_step=1, group_size=len(verdicts), max_new_tokens=4, **changes)
    return RolloutBatches(PROMPTS, sample=sample, judge=lambda rows: verdicts, models=small_models(), method=method,
                          settings=settings, steps=4, seed=0, tokens_per_pass=64)


def rewards_of(method, verdicts):
    seen = []

    def spy(reward, mask, group_size, **wanted):
        seen.append(reward)
        return method.credit(reward, mask, group_size, **wanted)

    (batch, *_) = line(replace(method, credit=spy), verdicts)
    return seen[0][:, 2:], batch


def test_a_verdict_may_spread_its_score_over_the_tokens():
    dense = Verdict(score=0.25, per_token=(1.0, -0.75, 0.0))
    plain, failed = Verdict(score=0.75), Verdict(score=0.0, error="infrastructure", per_token=(1.0, 0.0, 0.0))
    reward, batch = rewards_of(replace(METHODS["nano"]), [dense, plain, failed])
    assert reward.tolist() == [[1.0, -0.75, 0.0], [0.0, 0.0, 0.75], [0.0, 0.0, 0.0]]
    same, _ = rewards_of(METHODS["nano"], [Verdict(score=0.25), plain, failed])
    assert credit.group_centre(reward, torch.ones(3, 3).bool(), 3).equal(credit.group_centre(same, torch.ones(3, 3).bool(), 3))
    reward, _ = rewards_of(replace(METHODS["dapo"], resample_flat=False), [dense, plain])  # 3 of 4 tokens: no penalty yet
    assert reward.tolist() == [[1.0, -0.75, 0.0], [0.0, 0.0, 0.75]]
    long = replace(METHODS["dapo"], resample_flat=False)
    at_the_limit = rewards([Scored(rollout=s.rollout, verdict=dense) for s in batch.scored[:1]],
                           torch.tensor([[False, False, True, True, True]]), long, 3)
    assert at_the_limit.tolist() == [[0.0, 0.0, 1.0, -0.75, -1.0]]  # one less, on the last token


def test_gae_reads_the_row_as_it_is():
    dense = [Verdict(score=s, per_token=(1.0, s - 1.0, 0.0)) for s in (0.0, 1.0)]
    row = replace(METHODS["ppo"], whiten=False, kl_in_reward=0.0)
    _, batch = rewards_of(row, dense)
    value = batch.value[:, 2:]
    final = [-value[:, 2], torch.tensor([-1.0, 0.0]) + value[:, 2] - value[:, 1], 1 + value[:, 1] - value[:, 0]]
    by_seed = [int(s.rollout.seed) for s in batch.scored]
    assert by_seed == [0, 1]
    second = final[1] + 0.95 * final[0]
    assert torch.allclose(batch.adv[:, 2:], torch.stack([final[2] + 0.95 * second, second, final[0]], 1), atol=1e-6)


def test_a_held_batch_keeps_its_dense_rewards_over_a_checkpoint():
    dense = [Verdict(score=s, per_token=(1.0, s - 1.0, 0.0)) for s in (0.0, 1.0)]
    source = line(METHODS["nano"], dense, epochs=2)
    next(iter(source))
    tensors = {}
    plain = json.loads(json.dumps(_take_out([kept_batch(b) for b in source.waiting], "", tensors)))
    (back,) = [held_batch(b) for b in _put_back(plain, tensors)]
    assert back.scored[0].verdict == dense[0] and torch.equal(back.adv, source.waiting[0].adv)


# The models, end to end

def test_a_process_model_says_what_it_is_and_opens_in_transformers(tmp_path):
    from transformers import AutoModelForSequenceClassification
    model = ScalarModel(small_model(), head="process")
    model.score_head.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    save_model(model, tmp_path)
    back, tokens = load_scalar(tmp_path), torch.randint(6, 500, (2, 9), generator=torch.Generator().manual_seed(1))
    assert back.head == "process" and json.loads((tmp_path / "config.json").read_text())["postgrad"] == {"head": "process"}
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path, pad_token_id=0)
    with torch.no_grad():
        ours = back.token_scores(tokens)
        for n in (3, 9):  # read at a token, it is the score of the beginning up to there
            assert torch.allclose(ours[:, n - 1], back.score(tokens, torch.tensor([n, n])), atol=1e-6)
            assert torch.allclose(ours[:, n - 1], theirs(tokens[:, :n]).logits.squeeze(-1), atol=1e-5)


def test_figures_by_hand():
    hits = {"a": {True: [1.0, 1.0], False: [0.0]}, "b": {True: [0.0], False: [1.0, 1.0, 1.0]}}
    found = process.figures(hits)
    assert found["accuracy"] == pytest.approx(5 / 7) and found["right_steps"] == 3 / 7 and found["problems"] == 2
    assert (found["accuracy_right"], found["accuracy_wrong"]) == pytest.approx((2 / 3, 3 / 4))
    assert found["balanced_accuracy"] == pytest.approx(17 / 24)
    one_sided = process.figures({"a": {True: [1.0], False: []}, "b": {True: [0.0], False: []}})
    assert one_sided["balanced_accuracy"] == 0.5 and "accuracy_wrong" not in one_sided
    even = process.figures({str(i): {True: [float(i % 2)], False: []} for i in range(10)})  # one label each: the plain interval
    _, low, high = process.mean_interval([float(i % 2) for i in range(10)], (0, 1))
    assert even["balanced_accuracy_interval"] == pytest.approx([low, high])


SMALL = ("replies.problems=48 replies.samples=2 replies.per_step=16 steps=12 optim.lr=1e-3 evaluation.every=12 "
         "evaluation.problems=32 evaluation.samples=2 save_every=12").split()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("process")
    for method in ("process", "outcome"):
        assert main(["train", f"{method}:words", *SMALL, "--run", str(folder / method), "--json"]) == 0
    return folder


@pytest.mark.parametrize("method", ("process", "outcome"))
def test_it_learns_and_says_so(trained, method):
    before, after = Run.open(trained / method).rows("evals")[0]
    assert before["balanced_accuracy"] == 0.5 and after["balanced_accuracy_interval"][0] > 0.55
    assert load_scalar(opening.open_folder(trained / method)).head == method


@pytest.mark.parametrize("method", ["ppo", "grpo"])
def test_a_policy_trains_against_it(trained, method, tmp_path):
    changes = ("steps=2 rollouts.prompts=8 rollouts.prompts_per_step=2 rollouts.group_size=4 rollouts.max_new_tokens=40 "
               "evaluation.every=0 save_every=2").split()
    config = override(rollouts.RolloutConfig(task="words", method=method, reward=str(trained / "process")), changes)
    run = running.start("rollouts", config, rollouts.build, tmp_path / "run")
    rows, _ = run.rows("metrics")
    assert all(0 < row["reward"] < 1 and row["reward/steps"] >= 1 and row["grad_norm"] > 0 for row in rows)
    samples, _ = run.rows("samples")
    assert all(sample["reason"].startswith("steps 0.") for sample in samples)


def test_what_cannot_be_is_said(trained, tmp_path):
    with pytest.raises(ValueError, match="scores the steps of a reply, and task arithmetic has none"):
        rollouts.build(rollouts.RolloutConfig(task="arithmetic", reward=str(trained / "process")), begins("tiny-chat"))
    with pytest.raises(ValueError, match="task arithmetic cannot check the steps"):
        process.build(override(process.ProcessConfig(task="arithmetic"), SMALL), begins("tiny-chat"))
    with pytest.raises(ValueError, match="is a reward model, which scores text"):
        process.build(override(process.words(), [*SMALL, f"generator={trained / 'outcome'}"]), begins("tiny-chat"))
    with pytest.raises(ValueError, match="'dpo' is not trained by this recipe"):
        override(process.words(), ["method=dpo"])
    with pytest.raises(ValueError, match="replies.samples 0"):
        override(process.words(), ["replies.samples=0"])


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path):
    small = "steps=3 save_every=1 replies.problems=6 replies.samples=2 replies.per_step=4 evaluation.every=0".split()
    config = override(process.words(), small)
    whole = running.start("process", config, process.build, tmp_path / "whole")

    class Watch:
        def stepped(self, step, row, scored):
            if step == 2:
                raise KeyError("cut")

    with pytest.raises(KeyError):
        running.start("process", config, process.build, tmp_path / "cut", watch=Watch())
    run = Run.open(tmp_path / "cut")
    run = running.resume(run, unplain(type(config), run.config), process.build)
    a, b = (load_scalar(r.latest()).state_dict() for r in (run, whole))
    assert all(torch.equal(a[k], b[k]) for k in a) and a["score_head.weight"].any()
