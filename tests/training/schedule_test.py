"""How many updates a collection serves: the row's schedule, what is dropped, where it stops,
how long a run is."""

import pytest
import torch
from line_small import by_id, line, scripted
from settings_text import merged, override
from small import PROMPTS, FixedReward, begins, build

from postgrad.cli.settings import config_from_text
from postgrad.maths.credit import scale_rewards
from postgrad.methods import METHODS, change
from postgrad.models import load_model
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.running import start_run
from postgrad.records import Verdict
from postgrad.runs import Run
from postgrad.training.stats import resolve_deferred

POLICY = {name: row for name, row in METHODS.items() if row.kind == "policy"}
SHAPE = ["rollouts.prompts_per_step=4", "rollouts.group_size=4", "rollouts.max_new_tokens=12",
         "evaluation.every=0", "rollouts.prompts=16"]


@pytest.mark.parametrize("name", [name for name, row in POLICY.items()
                                  if "teacher_kl" not in row.wanted])  # exact, whoever sampled
def test_a_row_says_whether_it_uses_a_ratio(name):
    """Its surrogate's gradient depends on the old policy or does not."""
    row, adv, mask = POLICY[name], torch.tensor([[1.0, -1.0]]), torch.ones(1, 2, dtype=torch.bool)
    columns = {"marked": ~mask, "sampler_logp": torch.full((1, 2), -1.0)}
    wanted = {column: columns[column] for column in row.columns_of("surrogate")}
    grads = []
    for old in (-1.0, -1.00005):  # so little that no clip acts
        logp = torch.full((1, 2), -1.0, requires_grad=True)
        row.surrogate(logp, torch.full((1, 2), old), adv, mask, **wanted)[0].sum().backward()
        grads.append(logp.grad)
    assert torch.equal(*grads) != row.ratio


@pytest.mark.parametrize("name", [name for name, row in POLICY.items() if not row.ratio])
def test_without_a_ratio_a_second_update_is_refused(name):
    for schedule in ({"epochs": 4}, {"minibatches": 2}):
        with pytest.raises(ValueError, match=f"{name} has no ratio to the policy that sampled"):
            change(POLICY[name], **schedule)


def test_rows_draw_the_same_samples_whatever_their_schedule():
    lengths = {}
    for name, row in POLICY.items():
        _, config = config_from_text(f"{name}:words", [])
        config, _ = fill_defaults(config)
        lengths[name] = config.steps
        assert config.steps == 40 * row.updates(16) and config.evaluation.every == config.steps / 4
    assert [lengths[name] for name in ("grpo", "ppo", "dapo", "gspo")] == [40, 160, 640, 160]
    _, few = config_from_text("dapo:words", ["prompts_per_step=3", "collections=5"])
    assert fill_defaults(few)[0].steps == 15  # a minibatch holds one prompt at least
    _, said = config_from_text("dapo:words", ["steps=7"])
    assert fill_defaults(said)[0].steps == 7


def test_a_pass_leaves_no_group_out():
    seen = list(line("grpo", steps=6, epochs=2, minibatches=3, prompts_per_step=5))
    for epoch in (seen[:3], seen[3:]):
        assert sorted(len(b) // 2 for b in epoch) == [1, 2, 2]
        assert len({i.split("/")[0] for b in epoch for i in b.ids}) == 5


def test_the_clip_acts_in_a_run(tmp_path):
    """With the row's own schedule the policy leaves its samples, and PPO's ratio leaves 1."""
    _, config = config_from_text("ppo:words", merged(*SHAPE, "steps=4", "optim.lr=0.003",
                                                   "rollouts.max_new_tokens=48"))
    run = start_run(config, tmp_path / "run")
    ratio, clipped = run.curve("ratio_max")[1], run.curve("clip_fraction")[1]
    assert ratio[0] == pytest.approx(1, abs=1e-3) and max(ratio) > 1.2 and max(clipped) > 0


# flat groups

def half_flat():
    """Prompts in turn: right and wrong, or right twice."""
    said = {p.question: ["1", "0"] if i % 2 else ["1", "1"] for i, p in enumerate(PROMPTS)}
    options = scripted(["1", "0"])
    options["sample"].script = said
    return options


def test_flat_groups_that_are_left_over_are_dropped():
    kept = next(iter(line("dapo", **scripted(["1", "0"]), resample_limit=0)))
    assert len(kept) == 8
    (batch,) = line("dapo", **half_flat(), steps=1, prompts_per_step=4, resample_limit=0)
    groups = {}
    for s in batch.scored:
        groups.setdefault(s.rollout.prompt.id, set()).add(s.verdict.score)
    assert 0 < len(groups) < 4 and all(scores == {0.0, 1.0} for scores in groups.values())
    assert batch.weight.sum() == pytest.approx(1) and batch.facts["flat_groups"] == 1 - len(groups) / 4
    assert resolve_deferred(batch.facts)["reward"] > 0.5  # of all that was drawn


def test_a_row_that_keeps_flat_groups_keeps_them():
    (batch,) = line("grpo", **half_flat(), steps=1, prompts_per_step=4)
    assert len(batch) == 8


def test_where_all_groups_are_flat_nothing_is_updated_and_the_run_goes_on(tmp_path):
    task = tmp_path / "flat.py"
    task.write_text("prompts = [{'question': f'What is {i} + 1?', 'answer': i} for i in range(40)]\n"
                    "def verify(prompt, text):\n    return 0.0\n")
    _, config = config_from_text("dapo", [f"task={task}", "model=tiny", *SHAPE, "steps=7",
                                          "resample_limit=1"])
    run = start_run(config, tmp_path / "run")
    assert run.summary()["state"] == "done" and run.curve("skipped")[1] == [1.0] * 7
    before, after = (load_model(x).state_dict() for x in ("tiny", run.checkpoints()[7]))
    assert all(torch.equal(before[name], after[name]) for name in before)


# stopping on a collection, cut replies, scale

def test_a_collection_is_left_after_an_update_that_went_too_far():
    several = line("ppo", epochs=4, steps=9)
    several.method = change(several.method, kl_stop=0.05)
    batches = iter(several)
    first = next(batches).ids
    several.after({"approx_kl": 0.01})
    assert next(batches).ids == first and len(several.waiting) == 2
    several.after({"approx_kl": 0.2})
    assert not several.waiting and next(batches).ids != first


def test_replies_that_were_cut_are_compared_with_and_not_learned_from():
    def cut(**changes):
        made = line("dr_grpo", steps=1, group_size=4, max_new_tokens=6)
        made.method = change(made.method, **changes)
        return next(iter(made))

    plain, masked, fined = cut(), cut(mask_truncated=True), cut(truncated_penalty=0.5)
    unfinished = [not s.rollout.finished for s in plain.scored]
    assert any(unfinished) and not all(unfinished)
    assert masked.mask.any(1).tolist() == [not u for u in unfinished]
    assert by_id(masked, "adv") == by_id(plain, "adv") and not masked.weight[~masked.mask].any()
    for at in range(0, len(plain), 4):
        score = [s.verdict.score - 0.5 * u for s, u in zip(plain.scored[at: at + 4], unfinished[at: at + 4],
                                                           strict=True)]
        for i in range(4):
            first = fined.adv[at + i][fined.mask[at + i]][0]
            assert first == pytest.approx(score[i] - sum(score) / 4, abs=1e-6)


def test_rewards_are_scaled_as_zieglers_code_does():
    reward = torch.tensor([[0.0, 4.0, 9.0], [2.0, 2.0, 0.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
    got = scale_rewards(reward, mask)  # 0, 4, 2, 2, 0: mean 1.6, variance 2.24
    want = [(r - 1.6) / 2.24**0.5 + 1.6 for r in (0.0, 4.0, 2.0, 2.0, 0.0)]
    assert got[mask].tolist() == pytest.approx(want, abs=1e-6) and got[0, 2] == 9
    level = torch.full((2, 3), 0.7)
    assert torch.equal(scale_rewards(level, mask), level)


# rejection

@pytest.mark.parametrize(("reward", "best"), [("number+think", 2.0), ("0.5*number", 0.5), (None, 1.0)])
def test_rejection_keeps_what_reaches_the_tasks_best(reward, best):
    _, config = config_from_text("rejection:words", [*SHAPE, *([f"reward={reward}"] if reward else [])])
    batches = build(config, begins("tiny-chat")).batches
    assert batches.best == best
    batches.reward = FixedReward(lambda rows: [Verdict(score=best * (i % 4 == 0) + 0.4 * best * (i % 4 == 1))
                                               for i in range(len(rows))])
    batch = next(iter(batches))
    assert batch.facts["chosen_share"] == 0.25 and {s.verdict.score for s in batch.scored} == {best}


def test_rejection_by_a_reward_model_names_what_does_that(tmp_path):
    _, config = config_from_text("reward:questions", ["steps=2", "pairs.drawn=20", "pairs.held_out=4",
                                             "evaluation.every=0"])
    start_run(config, tmp_path / "judge")
    _, config = config_from_text("rejection:questions", [*SHAPE, f"reward={tmp_path / 'judge'}"])
    with pytest.raises(ValueError, match="a reward model's has no best: train best_of_n"):
        build(config, begins("tiny-chat"))


# the KL of an evaluation

def test_an_evaluation_of_the_start_finds_no_distance(tmp_path):
    _, config = config_from_text("grpo:words", [*SHAPE, "steps=1", "rollouts.temperature=0.7"])
    config = override(config, ["evaluation.every=1", "evaluation.problems=4", "evaluation.samples=2"])
    start_run(config, tmp_path / "run")
    rows, _ = Run.open(tmp_path / "run").rows("evals")
    assert rows[0]["step"] == 0 and abs(rows[0]["kl_reply"]) < 1e-3


# what is logged

def test_repetition_is_logged_as_it_is_explained():
    from postgrad.maths.diversity import repetition
    assert repetition([1, 2, 3]) == 0 and repetition([1, 2, 3, 4, 5]) == 0
    assert repetition([7] * 8) == pytest.approx(1 - 1 / 5)
    assert 0 <= resolve_deferred(next(iter(line("grpo"))).facts)["repetition"] <= 1
