"""Instruments 1 to 4: what they compute against the library and by hand, and their pages.

The recordings are held against the models that made them.
"""

import math
import re

import pytest
import torch
from safetensors.torch import load_file
from starlette.testclient import TestClient
from studio_browser import TOKEN
from studio_instruments import D, ones

from postgrad import methods
from postgrad.maths.credit import group_centre, group_zscore
from postgrad.maths.preference import bradley_terry
from postgrad.studio.app import create_studio
from postgrad.studio.instruments import INSTRUMENTS, algorithms, grpo, pipeline
from postgrad.studio.instruments import preference_labeller as labeller
from postgrad.studio.instruments.base import ChoiceControl, Slider, Toggle
from postgrad.studio.label.reward_head import PRIOR, answer_features, fit_head, ranking_accuracy, win_share
from postgrad.studio.recordings import FOLDER, recording
from postgrad.studio.security import start_url
from postgrad.system.sockets import LOOPBACK
from postgrad.training.memory import GB, SIZES, Setup, estimate

NAMES = ("pipeline", "preference-labeller", "algorithms", "grpo")


def group(*rewards, **state):
    return grpo.compute(grpo.State(size=len(rewards), rewards=rewards, **state))


# 4: the GRPO explorer

def test_advantages_by_hand():
    found = group(1.0, 0.0, 0.0, 1.0)
    assert (found["mean"], found["std"], found["advantages"]) == (0.5, 0.5, [1, -1, -1, 1])
    one = group(1.0, *[0.0] * 7)
    assert one["advantages"] == [pytest.approx(math.sqrt(7))] + [pytest.approx(-1 / math.sqrt(7))] * 7
    assert group(1.0, 0.0, 0.0, 1.0, std=False)["advantages"] == [0.5, -0.5, -0.5, 0.5]


@pytest.mark.parametrize("std", [True, False])
@pytest.mark.parametrize("size", grpo.SIZES)
def test_the_step_is_the_gradient_s(size, std):
    """On a uniform softmax the gradient in the logits is -A/G, as the advantages sum to 0."""
    state = grpo.settle(grpo.State(size=size, std=std, step=3.0, rewards=(0.3, 0.9)))
    found, reward = grpo.compute(state), torch.tensor(state.rewards, dtype=D)[:, None]
    adv = (group_zscore if std else group_centre)(reward, ones(size), size)[:, 0]
    assert found["advantages"] == pytest.approx(adv.tolist())
    assert (found["after"] == pytest.approx((3.0 * adv / size).softmax(0).tolist())
            and sum(found["after"]) == pytest.approx(1))


def test_one_reward_moves_every_advantage():
    a, b = group(0.2, 0.4, 0.9, 0.0)["advantages"], group(0.7, 0.4, 0.9, 0.0)["advantages"]
    assert all(abs(x - y) > 0.05 for x, y in zip(a, b, strict=True)) and sum(b) == pytest.approx(0)


def test_equal_rewards_are_no_signal():
    found = group(*[0.7] * 8)
    assert (found["flat"] and found["advantages"] == [0] * 8 and found["gradient"] == [0] * 8
            and found["after"] == [1 / 8] * 8)
    assert "No signal" in grpo.insight(found) and "No signal" not in grpo.insight(group(*[0.7] * 7, 0.75))


def test_a_group_gets_as_many_rewards_as_it_has_answers():
    grown = grpo.settle(grpo.State(size=16, rewards=(0.25,)))
    assert (grown.rewards == (0.25, *grpo.recorded_verdicts(16)[1:])
            and len(grpo.settle(grpo.State(size=4)).rewards) == 4)
    assert len(grpo.controls(grown)) == 4 + 16


# 3: the algorithm explorer

@pytest.mark.parametrize(("state", "setup"), [
    (algorithms.State(), {}), (algorithms.State(size="70B", trained="lora", bits=4), {"lora": 16, "bits": 4}),
    (algorithms.State(size="1B", tokens=4096, samples=64, recompute=True),
     {"tokens": 4096, "samples": 64, "recompute": True}),
])
def test_bars_are_the_estimator_s(state, setup):
    found = algorithms.compute(state)
    for row in found["methods"]:
        made = estimate(SIZES[state.size], methods.get_method(row["name"]),
                        Setup(**setup, reward_model=row["name"] == "ppo"))
        assert row["peak"] == pytest.approx(made.peak / GB)
        totals = {phase: sum(size for _, _, size in parts) for phase, parts in row["phases"].items()}
        assert row["peak"] == pytest.approx(totals[row["busiest"]]) == pytest.approx(max(totals.values()))
        assert list(totals) == (["update"] if row["name"] == "dpo" else ["sample", "update"])
        weights = {role: size for part, role, size in row["phases"]["update"] if part == "weights"}
        assert weights == {role: pytest.approx(size / GB) for role, size in made.models.items() if size}
        sampling = {part: size for part, _, size in row["phases"].get("sample", ())}
        assert [sampling.get(part, 0) for part in ("cache", "sampler")] == pytest.approx(
            [made.cache / GB, made.sampler / GB])
        trained = {role for part, role, _ in row["phases"]["update"] if part in ("optimizer", "gradients")}
        assert trained == ({"policy", "critic"} if row["name"] == "ppo" else {"policy"})


@pytest.mark.parametrize(("state", "cache"), [
    # 2 x 32 layers x 4096 x 2 bytes x 256 tokens; 70B has 8 key-value heads: 2 x 80 x 1024 x 2 bytes
    (algorithms.State(trained="lora", tokens=256, samples=1), 256 * 512 * 1024 / GB),
    (algorithms.State(size="70B", trained="lora"), 16 * 1024 * 320 * 1024 / GB)])
def test_what_is_called_kv_cache_is_keys_and_values(state, cache):
    for row in algorithms.compute(state)["methods"][::2]:
        drawn = {part: size for part, _, size in row["phases"]["sample"]}
        assert drawn["cache"] == pytest.approx(cache)
        assert 100 * cache / row["peak"] < 5


def test_the_table_says_what_the_rows_say():
    ppo, dpo, row = (m["facts"] for m in algorithms.compute(algorithms.State())["methods"])
    assert [len(f["Models in memory"].split(", ")) for f in (ppo, dpo, row)] == [4, 2, 2]
    assert (ppo["Anchor"], row["Anchor"]) == ("KL in the reward, 0.02", "KL in the loss, 0.04")
    assert ([f["Explores"] for f in (ppo, dpo, row)] == ["yes", "no", "yes"]
            and dpo["Data"] == "labelled pairs")


# 1: the pipeline

def test_figures_are_taken_from_the_counts():
    stage = recording("pipeline")["stages"][2]["measured"]["words"]
    first = pipeline.compute(pipeline.State(k=1))["figures"]["rl"][0]
    assert (first["mean"] == pytest.approx(sum(stage["right"]) / (8 * 200))
            and first["low"] < first["mean"] < first["high"])
    eighth = pipeline.compute(pipeline.State(k=8))["figures"]["rl"][0]
    assert eighth["mean"] == sum(c > 0 for c in stage["right"]) / 200


def test_one_prompt_by_hand():
    found = pipeline.compute(pipeline.State(stage="sft", k=4))
    # C(6, 4) / C(8, 4)
    assert (found["right"], found["tries"], found["chance"]) == (2, 8, pytest.approx(1 - 15 / 70))
    assert (found["earlier"] == "base" and "4 %" not in pipeline.as_percent(0.997)
            and pipeline.as_percent(0.997) == "99.7 %")


def test_what_the_sentences_claim_is_in_the_figures():
    base, sft, rl = (pipeline.compute(pipeline.State())["figures"][s] for s in pipeline.STAGES)
    assert sft[1]["low"] > base[1]["high"] and rl[0]["low"] > sft[0]["high"] > sft[0]["low"] > base[0]["high"]
    for i in (2, 3):  # what nobody paid for: intervals that meet
        assert rl[i]["low"] <= sft[i]["high"] and sft[i]["low"] <= rl[i]["high"]


@pytest.mark.parametrize(("stage", "model"), [("base", "tiny"), ("sft", "tiny-chat")])
def test_recorded_answers_are_what_the_models_say(stage, model):
    from postgrad.records import Prompt
    from postgrad.resolve.models import open_model
    from postgrad.sampling import LocalSampler, Sampling
    rows = recording("pipeline")["prompts"]
    greedy = Sampling(max_new_tokens=64, temperature=0.0)
    said = LocalSampler(*open_model(model)).sample([Prompt.ask(r["question"]) for r in rows], 1, greedy, 0)
    assert [r.text for (r,) in said] == [row["answers"][stage][0]["text"] for row in rows]


# 2: the labeller

def random_pairs(n=12, width=5, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, dtype=D, generator=draw), torch.randn(n, width, dtype=D, generator=draw)


def test_a_fit_ends_where_the_losses_pull_as_hard_as_the_prior():
    a, b = random_pairs()
    w = fit_head(a, b, win_share("abab" * 3)).requires_grad_()
    won, lost = (torch.stack([(x, y)[i % 2] for i, (x, y) in enumerate(zip(*two, strict=True))])
                 for two in ((a, b), (b, a)))
    loss = bradley_terry(won @ w, lost @ w, torch.zeros(12, dtype=D)).mean()
    torch.testing.assert_close(torch.autograd.grad(loss, w)[0], -PRIOR * w, atol=1e-6, rtol=0)


def test_a_tie_is_half_a_win_each_way():
    a, b = random_pairs()
    assert fit_head(a, b, win_share("t" * 12)).abs().max() < 1e-6
    twice = [torch.cat([x, x]) for x in (a, b)]
    both_ways = fit_head(*twice, win_share("a" * 12 + "b" * 6 + "a" * 6))
    torch.testing.assert_close(fit_head(a, b, win_share("t" * 6 + "a" * 6)), both_ways, atol=1e-5, rtol=0)


def test_sides_don_t_matter():
    a, b = random_pairs()
    torch.testing.assert_close(fit_head(a, b, win_share("aabtbbabtaab")),
                               fit_head(b, a, win_share("bbataabatbba")))
    with pytest.raises(ValueError, match="one for each pair"):
        fit_head(a, b, win_share("aabb"))
    with pytest.raises(ValueError, match="one of a, b and t"):
        win_share("abx")


def test_accuracy_by_hand():
    gap = torch.tensor([1.0, -2.0, 0.0, 3.0])
    assert ranking_accuracy(gap, torch.tensor([1, 1, 1, 0])) == pytest.approx((1 + 0 + 0.5 + 0.5) / 4)


def test_a_few_dozen_labels_suffice_and_length_is_another_taste():
    rest = labeller.others_labels("")
    truth = labeller.compute(labeller.State(rest["by the true quality"]))
    assert truth["given"] == 40 == len(truth["table"]) and truth["accuracy"] > 0.68
    longer = labeller.compute(labeller.State(rest["by length, the longer wins"]))
    assert sum(row["says"] > 0.5 for row in longer["table"]) >= 32 and longer["accuracy"] < 0.58
    assert len({pair["question"] for pair in truth["unseen"]}) == 5


def test_what_is_unseen_was_not_labelled_and_what_is_skipped_teaches_nothing():
    data = recording("pairs")
    assert not {p["question"] for p in data["unseen"]} & {p["question"] for p in data["to_label"]}
    skipped = labeller.compute(labeller.State("ssss"))
    assert skipped["given"] == 0 and skipped["at"] == 4 and skipped["accuracy"] is None
    assert torch.equal(labeller.head_after("abb"), labeller.head_after("abbs"))


def test_recorded_features_are_the_model_s():
    pairs = recording("pairs")["unseen"][:3]
    live = answer_features([(p["question"], answer) for p in pairs for answer in p["answers"]]).view(3, 2, -1)
    stored = load_file(FOLDER / "features.safetensors")["unseen"][:3].double()
    torch.testing.assert_close(live, stored, atol=0.01, rtol=2e-3)


def test_one_accuracy_is_shown_and_what_quality_is(client):
    page = client.get("/instruments/preference-labeller?labels=abba").text
    figures = set(re.findall(r"(\d+\.\d) %", page.split('class="below"')[0]))
    assert len(figures) == 1 and "ept back" not in page and "ranked right" not in page
    assert "a right answer +1.2, a wrong one −0.8" in page and "an insult −1.50" in page
    for pair in recording("pairs")["unseen"][:1]:
        assert all(f"quality {q:.2f}".replace("-", "−") in page for q in pair["quality"])


def test_the_last_pair_worked():
    found = labeller.compute(labeller.State("bat"))["worked"]
    a, b = torch.tensor(found["a"], dtype=D), torch.tensor(found["b"], dtype=D)
    zero = torch.zeros((), dtype=D)
    assert found["label"] == "t" and found["number"] == 3
    assert found["loss"] == pytest.approx(float(bradley_terry(a, b, zero) + bradley_terry(b, a, zero)) / 2)


# pages

@pytest.fixture
def client(tmp_path):
    app = create_studio(runs=tmp_path, token=TOKEN, hosts=LOOPBACK)
    with TestClient(app, base_url="http://127.0.0.1", cookies={}) as made:
        made.get(start_url("", TOKEN))
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_can_be_drawn(client, name):
    instrument = INSTRUMENTS[name]
    for control in instrument.shown(instrument.settle(instrument.state())):
        values = {Slider: lambda c: [c.low, c.high], Toggle: lambda c: [0, 1],
                  ChoiceControl: lambda c: [v for v, _ in c.pairs()][:6]}
        for value in values[type(control)](control):
            answer = client.get(f"/instruments/{name}/figure?{control.name}={value}")
            assert answer.status_code == 200 and "insight" in answer.text, answer.text
    assert client.get(f"/instruments/{name}").status_code == 200


@pytest.mark.parametrize(("address", "said"), [
    ("preference-labeller?labels=abx", "not &#39;x&#39;"), ("grpo?size=5", "4, 8, 16, 32"),
    ("algorithms?size=8B", "1B, 7B, 13B, 70B"), ("pipeline?k=x", "is a number"),
])
def test_a_bad_address_gets_a_sentence(client, address, said):
    answer = client.get(f"/instruments/{address}")
    assert answer.status_code == 400 and said in answer.text
