"""Samples in the studio: groups worked out, browsed step by step, runs side by side."""

import math
import re
from types import SimpleNamespace

import pytest
import torch
from studio_small import Texts, client, make, sample

from postgrad.recipes import hooks
from postgrad.records import Prompt, Rollout, Scored, Turn, Verdict
from postgrad.runs import Run
from postgrad.studio.runs import compare, samples
from postgrad.training.stats import Stats


def test_the_group_is_worked_out_as_it_was_trained(tmp_path):
    rows = [sample(1, k, score=s, adv=a)
            for k, (s, a) in enumerate([(1, 1.0), (0, -1.0), (0, -1.0), (1, 1.0)])]
    (group,) = samples.prompt_groups(rows)
    assert (group["mean"], group["std"], group["flat"]) == (0.5, 0.5, False)
    told = samples.worked_advantages(group, "grpo", {})
    assert (told["adv"] == [1, -1, -1, 1] and told["gap"] == 0
            and told["function"].endswith("credit.group_zscore"))
    assert samples.worked_advantages(group, "dr_grpo", {})["adv"] == [0.5, -0.5, -0.5, 0.5]
    assert ("critic" in samples.worked_advantages(group, "ppo", {})["why"]
            and "compares" in samples.worked_advantages(group, "dpo", {})["why"])
    (flat_one,) = samples.prompt_groups([sample(1, k, score=1.0, adv=0.0) for k in range(4)])
    assert flat_one["flat"] and samples.worked_advantages(flat_one, "grpo", {})["adv"] == [0, 0, 0, 0]


def test_samples_come_in_the_order_of_their_numbers_and_colours_by_size(tmp_path):
    (group,) = samples.prompt_groups([sample(1, k) for k in (10, 9, 2)])
    assert [row["id"] for row in group["rows"]] == ["1/2", "1/9", "1/10"]
    row = sample(1, 0, adv=-1.0)
    largest = samples.colour_scale([row], "ratio")
    assert largest == pytest.approx(math.log(2))
    looks = [t["look"] for t in samples.token_strip(row, "ratio", largest)]
    assert looks == ["given", "up-0", "up-6", "down-6"]  # double and half weigh the same
    assert [t["look"] for t in samples.token_strip(row, "adv", 2.0)] == ["given", "down-3", "down-3",
                                                                         "down-3"]
    assert [t["look"] for t in samples.token_strip(row, "mask", 1.0)] == ["given"] + ["size-3"] * 3
    assert dict(samples.token_strip(row, "kl", 0.2)[3]["numbers"]) == {
        "mask": 1.0, "advantage": -1.0, "ratio": 0.5, "KL": 0.2, "entropy": 0.1}


def test_every_step_s_samples_can_be_browsed(tmp_path):
    make(tmp_path / "a", 30)
    web = client(tmp_path)
    for step in range(1, 31):
        text = web.get(f"/runs/-/samples?run=a&step={step}").text
        assert f'data-step="{step}"' in text and f"At step {step} its 4 answers earned 0.500" in text
    assert 'data-step="30"' in web.get("/runs/a").text  # the newest, unless another is asked for
    assert web.get("/runs/a?step=x").status_code == web.get("/runs/a?colour=red").status_code == 400


def test_pairs_of_samples_are_those_on_the_same_prompt():
    a, b = {"x": [1, 9], "only a": [2]}, {"x": [8], "only b": [2]}
    assert compare.shared_prompts({"a": a, "b": b}) == [(1, "x"), (9, "x")]
    assert compare.shared_prompts({"a": a, "b": {}}) == []


def test_two_runs_side_by_side_show_only_what_differs(tmp_path):
    make(tmp_path / "a", 3, config={"seed": 0, "optim": {"lr": 1e-3, "clip": 1.0}})
    make(tmp_path / "b", 4, config={"seed": 0, "optim": {"lr": 2e-3, "clip": 1.0}})
    page = Texts(client(tmp_path).get("/runs/compare?ids=a,b").text)
    assert ("optim.lr" in page.text and "0.002" in page.text and "optim.warmup" not in page.text
            and "seed" not in page.text)
    assert ("What is 2+2?" in page.text
            and page.data["charts"]["reward"]["series"][1]["values"] == [0.1, 0.2, 0.3, 0.4])
    assert client(tmp_path).get("/runs/compare?ids=a,nobody").status_code == 404


def test_an_episode_is_shown_turn_by_turn_with_what_was_masked_and_paid(tmp_path):
    row = sample(1, 0) | {"tokens": ["<b>go", ".", "lower", "3"], "prompt_tokens": ["Guess", "!"], "turns": [
        {"start": 0, "end": 2, "role": "assistant", "policy_step": 1, "reward": 0.1},
        {"start": 2, "end": 3, "role": "user", "policy_step": None, "reward": None},
        {"start": 3, "end": 4, "role": "assistant", "policy_step": 1, "reward": 0.9}]}
    row["columns"] = {"adv": [1.0, 1.0, 0.0, 1.0], "mask": [1.0, 1.0, 0.0, 1.0]}
    told = samples.episode_turns(row)
    assert [(t["who"], t["text"], t["tokens"], t["trained"], t["reward"]) for t in told] == [
        ("prompt", "Guess!", 2, 0, None), ("assistant", "<b>go.", 2, 2, 0.1), ("user", "lower", 1, 0, None),
        ("assistant", "3", 1, 1, 0.9)]
    assert samples.episode_turns(sample(1, 0)) == []
    assert samples.episode_turns(row | {"turns": [{"start": 9}, 3]}) == told[:1]
    run = make(tmp_path / "a", 1, done=False)
    run.log_samples(2, [row])
    page = client(tmp_path).get("/runs/-/samples?run=a&step=2").text
    assert "&lt;b&gt;go." in page and "1 token, shown, masked" in page and "reward 0.9" in page


def test_a_reward_stands_on_the_turn_that_earned_it():
    def row(spans, episode, **verdict):
        turns = tuple(Turn(start=a, end=b, role="assistant" if own else "user",
                           policy_step=0 if own else None) for a, b, own in spans)
        rollout = Rollout(prompt=Prompt.ask("q"), prompt_tokens=(1,), tokens=(5,) * spans[-1][1], text="",
                          logp=(0.0,) * spans[-1][1], finished=True, seed=0, turns=turns, episode=episode,
                          mask=tuple(own for a, b, own in spans for _ in range(a, b)))
        return Scored(rollout=rollout, verdict=Verdict(**verdict))
    spans = [(0, 2, True), (2, 3, False), (3, 5, True)]
    paid = {"score": 0.5, "per_token": (0.0, 0.25, 0.0, 0.125, 0.0, 0.125)}
    batch = SimpleNamespace(scored=[row(spans, "a", **paid), row([(0, 2, True)], "a", **paid),
                                    row(spans, "b", score=1.0), row(spans, "c", score=0.0, error="it broke")])
    told = [[turn["reward"] for turn in hooks.turn_rows(batch, i)] for i in range(4)]
    assert told == [[0.25, None, 0.125], [0.125], [0.0, None, 1.0], [None, None, None]]


def test_what_ranks_gathered_meets_what_the_device_has(monkeypatch):
    """Columns of several ranks are in main memory, the batch and the models are not."""
    device, here = torch.device("meta"), []
    rollout = Rollout(prompt=Prompt.ask("q"), prompt_tokens=(1,), tokens=(5, 6), text="", logp=(-1.0, -1.0),
                      finished=True, seed=0)
    batch = SimpleNamespace(mask=torch.ones(1, 3, device=device),
                            scored=[Scored(rollout=rollout, verdict=Verdict(score=1.0))])
    monkeypatch.setattr(hooks, "evaluate_objective",
                        lambda *_: Stats(columns={"logp": torch.zeros(1, 3, device=device)}))
    monkeypatch.setattr(hooks, "pick_rows", lambda batch, rows: batch)
    monkeypatch.setattr(hooks, "fetch_async", here.append)
    setup = SimpleNamespace(objective=None, optim=SimpleNamespace(tokens_per_pass=None))
    columns = {"logp": torch.zeros(1, 3), "adv": torch.ones(1, 3)}
    hooks.sample_rows(SimpleNamespace(batch=batch, stats=Stats(columns=columns), models=None), setup)
    assert [(x.device, x.shape) for x in here] == [(device, (8,))]  # logp, adv, mask, moved


def test_every_token_has_a_name(tmp_path):
    """White space is shown by marks, and a token without text is labelled."""
    run = Run.create(tmp_path / "a", recipe="grpo", config={}, steps=1)
    run.log(1, {"reward": 0.0})
    run.log_samples(1, [sample(1, 0) | {"tokens": ["\n", "", "  "]}])
    buttons = re.findall(r'<button type="button" class="tok[^"]*"([^>]*)>(.*?)</button>',
                         client(tmp_path).get("/runs/a").text, re.S)
    assert [inner.strip() for _, inner in buttons] == ["What", "↵", "", "␣␣"]
    assert ['aria-label="white space"' in attributes for attributes, _ in buttons] == [
        False, False, True, False]
