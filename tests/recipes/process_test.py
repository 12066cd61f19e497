"""Process and outcome models end to end: they learn, judge a policy, and are resumed."""

import json

import pytest
import torch
from settings_text import override
from small import begins, build, small_model

from postgrad.cli import main
from postgrad.models import ScalarModel, load_scalar, save_model
from postgrad.recipes import process, rollouts
from postgrad.recipes.running import resume_run, start_run
from postgrad.resolve import models as opening
from postgrad.runs import Run
from postgrad.runs.tracker import Tracker
from postgrad.system.settings import settings_from_json


def test_a_process_model_says_what_it_is_and_opens_in_transformers(tmp_path):
    from transformers import AutoModelForSequenceClassification
    model = ScalarModel(small_model(), head="process")
    model.score_head.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    save_model(model, tmp_path)
    back = load_scalar(tmp_path)
    tokens = torch.randint(6, 500, (2, 9), generator=torch.Generator().manual_seed(1))
    assert (back.head == "process"
            and json.loads((tmp_path / "config.json").read_text())["postgrad"] == {"head": "process"})
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path, pad_token_id=0)
    with torch.no_grad():
        ours = back.token_scores(tokens)
        for n in (3, 9):  # read at a token, it is the score of the beginning up to there
            assert torch.allclose(ours[:, n - 1], back.score(tokens, torch.tensor([n, n])), atol=1e-6)
            assert torch.allclose(ours[:, n - 1], theirs(tokens[:, :n]).logits.squeeze(-1), atol=1e-5)


def test_figures_by_hand():
    hits = {"a": {True: [1.0, 1.0], False: [0.0]}, "b": {True: [0.0], False: [1.0, 1.0, 1.0]}}
    found = process.label_figures(hits)
    assert (found["accuracy"] == pytest.approx(5 / 7) and found["right_steps"] == 3 / 7
            and found["problems"] == 2)
    assert (found["accuracy_right"], found["accuracy_wrong"]) == pytest.approx((2 / 3, 3 / 4))
    assert found["balanced_accuracy"] == pytest.approx(17 / 24)
    one_sided = process.label_figures({"a": {True: [1.0], False: []}, "b": {True: [0.0], False: []}})
    assert one_sided["balanced_accuracy"] == 0.5 and "accuracy_wrong" not in one_sided
    # one label each: the plain interval
    even = process.label_figures({str(i): {True: [float(i % 2)], False: []} for i in range(10)})
    _, low, high = process.mean_interval([float(i % 2) for i in range(10)], (0, 1))
    assert even["balanced_accuracy_interval"] == pytest.approx([low, high])


SMALL = ("replies.problems=48 replies.samples=2 replies.per_step=16 steps=12 optim.lr=1e-3 "
         "evaluation.every=12 evaluation.problems=32 evaluation.samples=2 save_every=12").split()


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
    changes = ("steps=2 rollouts.prompts=8 rollouts.prompts_per_step=2 rollouts.group_size=4 "
               "rollouts.max_new_tokens=40 evaluation.every=0 save_every=2").split()
    config = override(rollouts.RolloutConfig(task="words", method=method, reward=str(trained / "process")),
                      changes)
    run = start_run(config, tmp_path / "run")
    rows, _ = run.rows("metrics")
    assert all(0 < row["reward"] < 1 and row["reward/steps"] >= 1 and row["grad_norm"] > 0 for row in rows)
    samples, _ = run.rows("samples")
    assert all(sample["reason"].startswith("steps 0.") for sample in samples)


def test_what_cannot_be_is_said(trained, tmp_path):
    with pytest.raises(ValueError, match="scores the steps of a reply, and task arithmetic has none"):
        build(rollouts.RolloutConfig(task="arithmetic", reward=str(trained / "process")),
                       begins("tiny-chat"))
    with pytest.raises(ValueError, match="task arithmetic cannot check the steps"):
        build(override(process.ProcessConfig(task="arithmetic"), SMALL), begins("tiny-chat"))
    with pytest.raises(ValueError, match="is a reward model, which scores text"):
        build(override(process.process_on_words(), [*SMALL, f"generator={trained / 'outcome'}"]),
                      begins("tiny-chat"))
    with pytest.raises(ValueError, match="'dpo' is not trained by this recipe"):
        override(process.process_on_words(), ["method=dpo"])
    with pytest.raises(ValueError, match="replies.samples is 0"):
        override(process.process_on_words(), ["replies.samples=0"])


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path):
    small = ("steps=3 save_every=1 replies.problems=6 replies.samples=2 replies.per_step=4 "
             "evaluation.every=0".split())
    config = override(process.process_on_words(), small)
    whole = start_run(config, tmp_path / "whole")

    class Watch(Tracker):
        def on_step(self, step, metrics):
            if step == 2:
                raise KeyError("cut")

    with pytest.raises(KeyError):
        start_run(config, tmp_path / "cut", trackers=[Watch()])
    run = Run.open(tmp_path / "cut")
    run = resume_run(run, settings_from_json(type(config), run.config))
    a, b = (load_scalar(r.latest()).state_dict() for r in (run, whole))
    assert all(torch.equal(a[k], b[k]) for k in a) and a["score_head.weight"].any()
