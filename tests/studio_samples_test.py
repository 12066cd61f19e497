"""Samples in the studio: groups worked out, browsed step by step, runs side by side."""

import math

import pytest
from studio_small import Texts, client, make, sample

from postgrad.studio import pairing, samples


def test_the_group_is_worked_out_as_it_was_trained(tmp_path):
    rows = [sample(1, k, score=s, adv=a)
            for k, (s, a) in enumerate([(1, 1.0), (0, -1.0), (0, -1.0), (1, 1.0)])]
    (group,) = samples.groups(rows)
    assert (group["mean"], group["std"], group["flat"]) == (0.5, 0.5, False)
    told = samples.worked(group, "grpo", {})
    assert (told["adv"] == [1, -1, -1, 1] and told["gap"] == 0
            and told["function"].endswith("credit.group_zscore"))
    assert samples.worked(group, "dr_grpo", {})["adv"] == [0.5, -0.5, -0.5, 0.5]
    assert ("critic" in samples.worked(group, "ppo", {})["why"]
            and "compares" in samples.worked(group, "dpo", {})["why"])
    (flat_one,) = samples.groups([sample(1, k, score=1.0, adv=0.0) for k in range(4)])
    assert flat_one["flat"] and samples.worked(flat_one, "grpo", {})["adv"] == [0, 0, 0, 0]


def test_samples_come_in_the_order_of_their_numbers_and_colours_by_size(tmp_path):
    (group,) = samples.groups([sample(1, k) for k in (10, 9, 2)])
    assert [row["id"] for row in group["rows"]] == ["1/2", "1/9", "1/10"]
    row = sample(1, 0, adv=-1.0)
    largest = samples.scale([row], "ratio")
    assert largest == pytest.approx(math.log(2))
    looks = [t["look"] for t in samples.strip(row, "ratio", largest)]
    assert looks == ["given", "up-0", "up-6", "down-6"]  # double and half weigh the same
    assert [t["look"] for t in samples.strip(row, "adv", 2.0)] == ["given", "down-3", "down-3", "down-3"]
    assert [t["look"] for t in samples.strip(row, "mask", 1.0)] == ["given"] + ["size-3"] * 3
    assert dict(samples.strip(row, "kl", 0.2)[3]["numbers"]) == {
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
    assert pairing.shared({"a": a, "b": b}) == [("x", [1, 8]), ("x", [9, 8])]
    assert pairing.shared({"a": a, "b": {}}) == []


def test_two_runs_side_by_side_show_only_what_differs(tmp_path):
    make(tmp_path / "a", 3, config={"seed": 0, "optim": {"lr": 1e-3, "clip": 1.0}})
    make(tmp_path / "b", 4, config={"seed": 0, "optim": {"lr": 2e-3, "clip": 1.0}})
    page = Texts(client(tmp_path).get("/runs/compare?ids=a,b").text)
    assert ("optim.lr" in page.text and "0.002" in page.text and "optim.warmup" not in page.text
            and "seed" not in page.text)
    assert ("What is 2+2?" in page.text
            and page.data["charts"]["reward"]["series"][1]["values"] == [0.1, 0.2, 0.3, 0.4])
    assert client(tmp_path).get("/runs/compare?ids=a,nobody").status_code == 404
