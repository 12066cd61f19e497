"""Whole trainers of TRL and whole runs of ours on the same rows or rollouts: the gradients of two steps, and
the weights after them, are the same to 1e-5 in float32.

Where TRL's defaults are other than ours, the test sets one of the two, and says so. On TRL's side for all:
float32 for bfloat16, no activation checkpointing. On ours for all: AdamW's beta2 0.999 for 0.99, a linear
schedule without warmup.
"""

import pytest
import torch
from against import against
from both_sides import Kept, folder_of, furthest, moved, ours, scorer_of, trl

import postgrad as pg
from postgrad.maths import credit


def said(role, text):
    return [{"role": role, "content": text}]


TALKS = [{"prompt": said("user", f"Say {n}."), "completion": said("assistant",
                                                                  f"I say {n}, {'again ' * (n % 4)}.")}
         for n in range(12)]
PAIRS = [{"prompt": said("user", f"Say {n}."), "chosen": said("assistant",
                                                              f"{n}, {'very ' * (n % 3)}gladly."),
          "rejected": said("assistant", f"No {n}{'!' * (n % 5)}")} for n in range(12)]
PROMPTS = [{"prompt": said("user", f"Say {n}.")} for n in range(5)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
        pytest.importorskip("trl", reason="TRL is the other side of these tests: pip install -e '.[test]'")
        yield folder_of("tiny-chat", tmp_path_factory.mktemp("models") / "tiny-chat")


@pytest.fixture(scope="module")
def scorer(model):
    return scorer_of("tiny-chat", model.parent / "scorer")


def agree(mine, theirs):
    """Every gradient, and every weight after the two steps.
    AdamW makes steps as long as the learning rate out
    of gradients that are rounding error, so single weights may part by a part of it:
    all in all the two go the
    same way to 1 in 1000."""
    (a, after), (b, other) = mine, theirs
    assert len(a.steps) == len(b.steps) == 2
    for left, right in zip(a.steps, b.steps, strict=True):
        largest = max(float(x.abs().max()) for x in left.values())
        assert furthest(left, right) < min(1e-5, 1e-4 * largest)
    assert furthest(after, other) < 1e-5 < moved(a.begins, after)
    off = sum((after[k] - other[k]).square().sum() for k in after)
    way = sum((after[k] - a.begins[k]).square().sum() for k in after)
    assert torch.sqrt(off / way) < 1e-3


@against("TRL", sft="two steps of its trainer and of ours give the same gradients and weights")
def test_sft(model, tmp_path):
    """As it stands: TRL trains the completion alone where a row has a prompt, as we train the assistant's
    turns."""
    agree(ours(model, "sft", tmp_path, data=TALKS, rows_per_step=12), trl("SFT", model, tmp_path, TALKS, {}))


@pytest.mark.parametrize(("rows", "settings"), [
    (TALKS, {"completion_only_loss": False}),
    ([{"messages": row["prompt"] + row["completion"]} for row in TALKS], {})])
def test_sft_on_prompts_too(rows, settings, model, tmp_path):
    agree(ours(model, "sft", tmp_path, data=rows, rows_per_step=12, turns="prompts"),
          trl("SFT", model, tmp_path, rows, settings))
    marked = [{"messages": [said("user", "Hi")[0], *said("assistant", "a"), *said("user", "b"),
                            {"role": "assistant", "content": "c", "weight": 0}]}]
    with pytest.raises(ValueError, match="has a turn of weight 0, and turns=prompts trains every token"):
        ours(model, "sft", tmp_path / "marked", data=marked, turns="prompts")


@against("TRL", dpo="two steps of its trainer and of ours give the same gradients and weights")
def test_dpo(model, tmp_path):
    """As it stands: beta 0.1, sigmoid."""
    agree(ours(model, "dpo", tmp_path, data=PAIRS, pairs={"per_step": 12}),
          trl("DPO", model, tmp_path, PAIRS, {}))


@against("TRL", reward="two steps of its trainer and of ours, with head.centre as its "
         "center_rewards_coefficient, give the same gradients and weights")
def test_reward(scorer, tmp_path):
    """Our head draws scores towards 0 by default (head.centre 0.01), TRL's center_rewards_coefficient is
    None: both ways."""
    ways = {"plain": ({"centre": 0.0}, {}), "centred": ({"centre": 0.01},
                                                        {"center_rewards_coefficient": 0.01})}
    for name, (head, settings) in ways.items():
        place = tmp_path / name
        agree(ours(scorer, "reward", place, data=PAIRS, pairs={"per_step": 12}, head=head),
              trl("Reward", scorer, place, PAIRS, settings))


def trl_zscore(reward, mask, group_size):
    """TRL's advantages: divided by the sample's standard deviation plus 1e-4, where ours has the
    population's."""
    total = reward.sum(1).view(-1, group_size)
    score = (total - total.mean(1, keepdim=True)) / (total.std(1, keepdim=True) + 1e-4)
    return score.reshape(-1, 1) * mask


def variety(completions, **columns):
    """A reward function as TRL's users write it; both sides call the same one."""
    return [len(set(reply[0]["content"])) / 40 for reply in completions]


# of DAPO's row, what TRL's loss_type="dapo" does not have
PLAIN = {"resample_flat": False, "overlong": False, "high": 0.2, "minibatches": 1}


@pytest.mark.parametrize(("row", "settings"), [
    # TRL's own defaults: DAPO's token mean, clip 0.2 both ways, no KL, advantages over the sample's std
    # + 1e-4.
    (lambda: pg.method("dapo", name="trl_grpo", credit=trl_zscore, **PLAIN), {}),
    # GRPO's paper: mean of sequence means, k3 KL 0.04 in the loss, without the ratio that TRL puts into it
    # by default.
    (lambda: pg.method("grpo", name="trl_paper", credit=trl_zscore),
     {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False}),
    # Dr. GRPO's row as it stands: no std, so nothing to differ in.
    (lambda: pg.METHODS["dr_grpo"], {"loss_type": "dr_grpo", "scale_rewards": "none"}),
], ids=["defaults", "paper", "dr_grpo"])
@against("TRL", grpo="its defaults are no row: DAPO's token mean with a clip of 0.2 both ways, no KL, and "
         "the sample's std; with beta its KL has the ratio in it, unless use_bias_correction_kl is off. Set "
         "so, two steps of both give the same gradients and weights",
         dr_grpo="two steps of its trainer and of ours give the same gradients and weights")
def test_grpo(row, settings, model, tmp_path):
    """TRL is given what our run sampled; rewards, advantages, loss and update are its own."""
    kept, group = Kept(), 4
    task = pg.make_task(PROMPTS, lambda prompt, text: 0.0)
    whole = task.with_holdout(0.0)  # what a run without evaluations trains
    asked = [{"prompt": list(p.messages)} for p in whole.prompts("train", 8, 0)]
    assert len(asked) == len(PROMPTS)
    mine = ours(model, row(), tmp_path, task=task, reward=pg.from_trl(variety), prompts_per_step=len(asked),
                group_size=group, rollouts={"max_new_tokens": 16}, trackers=[kept])
    assert len(kept.steps) == 2 and all(len(step) == group * len(asked) for step in kept.steps)
    theirs = trl("GRPO", model, tmp_path, asked, {"num_generations": group, "max_completion_length": 16,
                                                  **settings,
                                                  "per_device_train_batch_size": group * len(asked)},
                 reward_funcs=variety, rollout_func=kept)
    agree(mine, theirs)


def test_the_two_standard_deviations():
    """The one place where GRPO as it stands differs: sqrt(G / (G - 1)) for a group of G, but for TRL's
    1e-4."""
    reward, mask = torch.tensor([[1.0], [0.0], [0.0], [0.5]]), torch.ones(4, 1, dtype=torch.bool)
    ratio = credit.group_zscore(reward, mask, 4) / trl_zscore(reward, mask, 4)
    torch.testing.assert_close(ratio, torch.full((4, 1), (4 / 3) ** 0.5), atol=1e-3, rtol=0)
