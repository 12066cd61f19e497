"""Rows are open: constants can be set, a user's row is a row, a run keeps the row it was made with."""

import json
from dataclasses import replace
from typing import Annotated

import pytest
import torch
from settings_text import override
from small import CHAT, small_models, taught

import tests.training.batches.microbatch_test as micro
from postgrad import methods
from postgrad.cli import main
from postgrad.cli.settings import config_from_text
from postgrad.maths import preference, surrogate
from postgrad.methods import METHODS, change, constants_of, describe_row, row_difference, row_title
from postgrad.recipes.launch import resume_training
from postgrad.recipes.registry import PIPELINES, RECIPES, config_for, recipe_module, recipe_named
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.recipes.running import start_run
from postgrad.recipes.settings_rows import default_method_name, preview_config
from postgrad.records import Conversation, Pair
from postgrad.runs import Run
from postgrad.system.renamed import translate_row
from postgrad.system.settings import (
    FRACTION,
    describe_settings,
    flat_settings,
    settings_from_json,
    settings_to_json,
)
from postgrad.system.user_code import record
from postgrad.training import objectives
from postgrad.training.batches import PairBatches, SingleBatches
from postgrad.training.batches.columns import weigh_minibatch
from tests.recipes.every_recipe_test import small

FILE = '''
from functools import partial

import torch

from postgrad import method


def soft(logp, old_logp, adv, mask, *, tau):
    """-tanh(rho - 1) A / tau, and nothing is clipped."""
    ratio = torch.where(mask, logp - old_logp, 0.0).exp()
    return torch.where(mask, -torch.tanh((ratio - 1) / tau) * tau * adv, 0.0), torch.zeros_like(mask)


row = method("grpo", name="soft", about="a soft clip", paper="none", surrogate=partial(soft, tau=0.5))
'''


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "soft.py").write_text(FILE)
    return tmp_path / "soft.py"


# constants

def test_constants_are_what_can_be_set():
    assert constants_of(METHODS["dapo"]) == {
        "choose": "all", "correction": "none",
        "kl_in_reward": 0.0, "kl_in_loss": 0.0, "critic": False, "value_weight": 0.0, "value_clip": 0.0,
        "entropy": 0.0, "whiten": False, "resample_flat": True, "overlong": True, "mask_truncated": False,
        "truncated_penalty": 0.0, "scale_rewards": False, "epochs": 1, "minibatches": 16, "kl_stop": 0.0,
        "low": 0.2, "high": 0.28}
    assert {k: constants_of(METHODS["ppo"])[k] for k in ("gamma", "lam")} == {"gamma": 1.0, "lam": 0.95}
    wide = change(METHODS["dapo"], high=0.3)
    assert wide.surrogate.keywords == {"low": 0.2, "high": 0.3} and wide != METHODS["dapo"]
    assert change(wide, high=0.28) == METHODS["dapo"] and METHODS["dapo"].surrogate.keywords["high"] == 0.28
    assert row_title(wide, METHODS) == "dapo(high=0.3)" and row_title(METHODS["dapo"], METHODS) == "dapo"


@pytest.mark.parametrize(("change_", "words"), [
    ("method.hihg=0.3", "dapo has no constant 'hihg'. Did you mean 'high'"),
    ("method.high=wide", "method.high='wide': expected a number"),
    ("method.high=nan", "expects a number"), ("method.whiten=2", "expected true or false"),
    ("clip=0.3", "method.low and method.high, the clip of a policy row's ratio, or max_grad_norm"),
    ("learning_rate=1", "It is called lr here"), ("entropy_coef=1", "no setting 'entropy_coef'"),
])
def test_a_constant_that_is_none_is_a_sentence(change_, words):
    with pytest.raises(ValueError, match=words):
        config_from_text("dapo:words", [change_])


def test_the_short_form_is_taken_where_it_is_unique():
    _, config = config_from_text("dapo:words", ["high=0.3", "method.low=0.1", "lr=1e-4"])
    assert ((constants_of(config.method)["high"], constants_of(config.method)["low"], config.optim.lr)
            == (0.3, 0.1, 1e-4))
    # the constants are those of the row that is named
    _, config = config_from_text("grpo:words", ["method=ppo", "lam=0.9"])
    assert config.method.name == "ppo" and config.method.credit.keywords["lam"] == 0.9
    with pytest.raises(ValueError, match="'alpha' may be method.alpha or optim.adapter.alpha"):
        config_from_text("cpo:questions", ["alpha=2"])
    assert constants_of(config_from_text("dpo:questions", ["beta=0.2"])[1].method)["beta"] == 0.2


def test_a_name_in_two_functions_is_written_with_its_place():
    def twice(reward, mask, group_size, *, low=1.0):
        return reward * low
    row = change(METHODS["grpo"], name="twice", credit=twice)
    assert constants_of(row)["credit.low"] == 1.0 and constants_of(row)["surrogate.low"] == 0.2
    with pytest.raises(ValueError, match="has 'low' in two places, credit.low or surrogate.low"):
        change(row, low=0.1)
    assert constants_of(change(row, **{"credit.low": 2.0}))["credit.low"] == 2.0


def test_a_part_is_set_by_its_name_and_brings_its_constants():
    _, config = config_from_text("dapo:words", ["method.correction=tis", "method.cap=3",
                                               "method.choose=top_entropy"])
    row = config.method
    assert row.correction.keywords == {"cap": 3.0} and row.columns_of("choose") == ("entropy",)
    assert (constants_of(row)["correction"], constants_of(row)["share"]) == ("tis", 0.2)
    saved = json.loads(json.dumps(settings_to_json(config, record)))
    assert saved["method"] == {"name": "dapo", "choose": "top_entropy", "correction": "tis", "share": 0.2,
                               "cap": 3.0}
    assert settings_from_json(RolloutConfig, saved).method == row
    assert row_title(row, METHODS).startswith("dapo(choose=top_")
    assert change(row, correction="none", choose="all") == METHODS["dapo"]
    with pytest.raises(ValueError, match="method.correction='tsi': there is no such part. Did you mean"):
        config_from_text("dapo:words", ["method.correction=tsi"])
    with pytest.raises(ValueError, match="dapo has no constant 'cap'"):
        config_from_text("dapo:words", ["method.cap=3"])


def halved(sampler_logp, old_logp, mask, *, by=0.5):
    return torch.full_like(old_logp, by)


def test_a_correction_of_one_s_own_is_a_function():
    row = change(METHODS["grpo"], name="halved", correction=halved)
    assert (constants_of(row)["correction"], constants_of(row)["by"]) == ("halved", 0.5)
    models, batch = micro.step_of(METHODS["grpo"])
    row = change(row, kl_in_loss=0.0)
    step = weigh_minibatch(batch, row, micro.LONG)
    loss, seen = objectives.build_objective(row)(models, step)
    without, _ = objectives.build_objective(row)(models, replace(step, correction=None))
    torch.testing.assert_close(loss, 0.5 * without)
    assert seen.results()["effective_share"] == pytest.approx(1) and seen.results()["corrected_away"] == 0


def test_a_changed_row_comes_back_from_a_run():
    _, config = config_from_text("dapo:words", ["high=0.3"])
    saved = json.loads(json.dumps(settings_to_json(config, record)))
    assert saved["method"] == {"name": "dapo", "high": 0.3}
    again = settings_from_json(RolloutConfig, saved)
    assert again.method == config.method and describe_row(again.method) == describe_row(config.method)
    assert settings_to_json(config_from_text("dapo:words")[1], record)["method"] == "dapo"


# columns of preference rows

LENGTHS = '''
from postgrad import method
from postgrad.maths.preference import bradley_terry


def length_normalised(chosen, rejected, margin, *, chosen_length, rejected_length, beta=2.0):
    """DPO on the log-ratio per token.

        -log sigmoid(beta (log-ratio(w) / |w| - log-ratio(l) / |l|) - margin)
    """
    return bradley_terry(beta * chosen / chosen_length, beta * rejected / rejected_length, margin)


row = method("dpo", name="mine_per_token", about="DPO per token", paper="none", loss=length_normalised)
'''
PAIRS = [Pair(id=str(i), messages=({"role": "user", "content": "Hi"},), chosen="Hello" + "!" * i,
              rejected="What" + "?" * (i % 3)) for i in range(4)]


def loss_of(row, models):
    (batch, *_) = PairBatches(PAIRS, CHAT, row, models, per_step=4, steps=1, seed=0, max_tokens=64,
                              tokens_per_pass=10**9)
    return objectives.build_objective(row)(models, batch)[0], batch


def test_a_preference_loss_takes_lengths_and_log_probs():
    """Normalised by its lengths, DPO's loss on sums is its loss on means; the log-ratio is the difference of
    the summed log-probs."""
    models, seen = small_models(), {}

    def per_token(chosen, rejected, margin, *, chosen_length, rejected_length, chosen_logp, rejected_logp,
                  chosen_ref_logp, rejected_ref_logp):
        seen.update(chosen=chosen, ratio=chosen_logp - chosen_ref_logp, rejected=rejected,
                    other=rejected_logp - rejected_ref_logp)
        return preference.dpo(chosen / chosen_length, rejected / rejected_length, margin, beta=2.0)

    loss, batch = loss_of(change(METHODS["dpo"], name="mine", loss=per_token), models)
    means, _ = loss_of(change(METHODS["dpo"], name="means", score=preference.mean_logp, beta=2.0), models)
    torch.testing.assert_close(loss, means)
    torch.testing.assert_close(seen["chosen"], seen["ratio"])
    torch.testing.assert_close(seen["rejected"], seen["other"])
    assert batch.units == 4 and seen["chosen"].shape == (4, 1)


def test_a_score_takes_columns_and_singles_have_their_own():
    models = small_models()

    def per_token(logp, mask, *, lengths, ref_logp):
        assert ref_logp.shape == mask.shape
        return preference.sum_logp(logp, mask) / lengths

    loss, _ = loss_of(change(METHODS["dpo"], name="mine", score=per_token), models)
    torch.testing.assert_close(loss, loss_of(change(METHODS["dpo"], score=preference.mean_logp), models)[0])

    def scaled(score, label, baseline, *, reply_length, beta=1.0):
        return preference.kto(score / reply_length, label, baseline, beta=beta)

    singles = [Conversation(id=str(i), label=i % 2 == 0, messages=(
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a" * (i + 1)}))
        for i in range(4)]
    row = change(METHODS["kto"], name="scaled", loss=scaled, score=per_token)
    (batch, *_) = SingleBatches(singles, CHAT, row, models, per_step=4, steps=1, seed=0, max_tokens=64,
                                tokens_per_pass=10**9)
    assert objectives.build_objective(row)(models, batch)[0].isfinite().all()


def taking(*columns):
    return eval(f"lambda chosen, rejected, margin, *, {', '.join(columns)}: chosen")


@pytest.mark.parametrize(("name", "loss", "words"), [
    ("dpo", taking("chosen_lenght"), "its loss takes 'chosen_lenght' by keyword, which is no column of a "
                                     "batch. Did you mean 'chosen_length'"),
    ("dpo", taking("entropy"), "loss cannot take entropy"),
    ("dpo", taking("beta"), "A constant has a default"),
    ("dpo", taking("reply_length"), "reply_length is the tokens of a labelled reply, .* learns from pairs"),
    ("simpo", taking("chosen_ref_logp"), "takes chosen_ref_logp and has no reference: set reference=True"),
    ("reward", taking("chosen_logp"), "needs log-probs, and its scores are those of a scalar head"),
])
def test_a_column_that_a_preference_row_cannot_have(name, loss, words):
    with pytest.raises(ValueError, match=words):
        change(METHODS[name], name="mine", loss=loss)


def test_a_length_normalised_dpo_is_trained_from_one_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ln.py").write_text(LENGTHS)
    small = "steps=2 pairs.drawn=16 pairs.held_out=8 pairs.per_step=4 evaluation.every=0 beta=1.5"
    assert main(["train", "ln.py", "--task", "questions", *small.split(), "--run", "runs/ln", "--json"]) == 0
    kept = Run.open("runs/ln").info["row"]
    assert kept["wants"] == ["chosen_length", "rejected_length"] and kept["constants"]["beta"] == 1.5


def test_a_column_is_no_constant_and_the_other_way_round():
    """A keyword-only parameter with a default, or bound by partial, is a constant, whatever its name."""
    def bent(logp, old_logp, adv, mask, *, entropy=0.5):
        return -adv * logp * entropy, mask & False

    row = change(METHODS["grpo"], name="bent", surrogate=bent)
    assert row.columns_of("surrogate") == () and constants_of(row)["surrogate.entropy"] == 0.5
    assert METHODS["deepseek_v32"].columns_of("surrogate") == ("sampler_logp",)
    taken = {name: row.wanted for name, row in METHODS.items()}
    assert taken == taken | {
        "sft": set(), "dpo": set(), "grpo": set(), "rejection": {"best"}, "ppo": {"value"},
        "gdpo": {"parts", "part_weights"},
        "kl_cov": {"marked", "old_logp"}, "opd": {"teacher_logp", "old_logp", "teacher_kl"},
        "sdft": {"teacher_logp", "old_logp"}, "deepseek_v32": {"sampler_logp", "old_logp"}}


@pytest.mark.parametrize(("field", "words"), [
    ("kl", "It is called kl_estimator now"), ("surrogate_wants", "are its keyword-only parameters")])
def test_a_field_of_version_0_1_is_answered(field, words):
    with pytest.raises(ValueError, match=words):
        change(METHODS["grpo"], **{field: ()})


def test_the_row_of_a_run_of_version_0_1_is_read():
    now = describe_row(METHODS["reinforce_pp"])
    functions = {("kl" if place == "kl_estimator" else place): name
                 for place, name in now["functions"].items()}
    assert row_difference(translate_row({**now, "functions": functions}), now) == ""


# what describes a constant

def test_a_constant_of_a_user_s_function_is_described_by_its_annotation():
    def bent(logp, old_logp, adv, mask, *,
             slope: Annotated[float, FRACTION, "how steep it is", "never"] = 0.5, plain=1.0):
        return -slope * adv * logp, mask & False

    row = change(METHODS["grpo"], name="bent", surrogate=bent)
    assert row.words("slope") == ("how steep it is", "never")
    assert row.words("plain") == ("a constant of bent", "what it does is in that function's text")
    with pytest.raises(ValueError, match="method.slope is 2.0: it must be from 0 to 1"):
        change(row, slope=2.0)
    assert constants_of(change(row, plain=-2.0))["plain"] == -2.0


# every row

@pytest.mark.parametrize("name", METHODS)
def test_every_row_resolves_trains_and_shows(name, tmp_path):
    from postgrad.studio.runs.forms import form_sections, recipe_menu
    recipe, row = recipe_named(name)
    assert row is METHODS[name] and name in {entry["name"] for entry in recipe_menu()}
    setting = next(s for s in recipe_module(recipe).SETTINGS if s in ("words", "questions"))
    _, config = config_from_text(f"{name}:{setting}")
    shown = {field["key"] for group in form_sections(f"{name}:{setting}", {}) for field in group["fields"]}
    assert {f"method.{key}" for key in constants_of(row)} <= shown
    config = small(config, **{"steps": 1, "save_every": 1, "evaluation.every": 0, "rollouts.group_size": 3})
    config = taught(config, tmp_path)
    run = start_run(config, tmp_path / "run")
    assert (run.info["row"] == describe_row(config.row) and run.info["row"]["name"] == name
            and run.state()["state"] == "done")


# a user's row

def test_a_row_in_a_file_is_trained_by_its_name(file, tmp_path):
    recipe, config = config_from_text("soft.py", ["tau=0.7"], task="words")
    assert recipe == "rollouts" and config.method.name == "soft" and constants_of(config.method)["tau"] == 0.7
    config = small(config, save_every=1, **{"evaluation.every": 0})
    run = start_run(config, tmp_path / "run")
    assert run.config["method"] == {"name": "soft.py:soft", "tau": 0.7}
    assert run.info["row"]["functions"]["surrogate"].endswith(".soft") and run.info["row"]["texts"]
    file.write_text(FILE.replace("torch.tanh", "torch.sin"))
    with pytest.raises(ValueError,
                       match=r"the row soft has changed since this run began \(the text of surrogate\)"):
        resume_training(tmp_path / "run")
    file.write_text(FILE.replace("kl_in_loss", "kl_in_loss").replace('name="soft",',
                                                                     'name="soft", kl_in_loss=0.5,'))
    with pytest.raises(ValueError, match="kl_in_loss was 0.04 and is 0.5"):
        resume_training(tmp_path / "run")


@pytest.mark.parametrize(("text", "words"), [
    ("x = 1", "soft.py defines no row"), ("import nothing_here", "soft.py, line 1: ModuleNotFoundError"),
    (FILE.replace('name="soft"', 'name="dapo"'), "dapo is a row of the table: give yours another name"),
    (FILE + "\nother = method(row, name='hard')", "defines several rows: name one, e.g. soft.py:soft"),
])
def test_a_file_that_is_none(file, text, words):
    file.write_text(text)
    with pytest.raises(ValueError, match=words):
        config_from_text("soft.py", task="words")


def test_a_registered_row_goes_by_its_name():
    mine = methods.register(change(METHODS["nano"], name="mine_alone"))
    try:
        assert methods.get_method("mine_alone") is mine
        with pytest.raises(ValueError, match="grpo is a row of the table"):
            methods.register(change(METHODS["nano"], name="grpo"))
    finally:
        del METHODS["mine_alone"]


def test_what_differs_is_said_in_words():
    a, b = describe_row(METHODS["grpo"]), describe_row(change(METHODS["grpo"], kl_in_loss=0.1))
    assert row_difference(a, b) == "kl_in_loss was 0.04 and is 0.1" and row_difference(a, a) == ""
    other = describe_row(change(METHODS["grpo"], surrogate=surrogate.policy_gradient))
    assert "surrogate was postgrad.maths.surrogate.clipped_ratio and is" in row_difference(a, other)


def test_a_run_does_not_go_on_with_another_row_of_the_table(tmp_path, monkeypatch):
    config = small(RolloutConfig(task="words", method="dapo"), save_every=1, **{"evaluation.every": 0})
    start_run(config, tmp_path / "run")
    kept = Run.open(tmp_path / "run").rows("metrics")
    monkeypatch.setitem(METHODS, "dapo", change(METHODS["dapo"], high=0.4))
    with pytest.raises(ValueError,
                       match=r"the row dapo has changed since this run began \(high was 0.28 and is 0.4\)"):
        resume_training(tmp_path / "run")
    assert Run.open(tmp_path / "run").rows("metrics") == kept
    assert override(config, ["method.high=0.28"]).method.name == "dapo"


# handed in by name of its recipe

def test_a_row_that_is_handed_in_is_the_one_that_is_trained():
    wide = change(METHODS["grpo"], high=0.4)
    _, config = config_for("grpo:words", {"steps": 3, "method": wide})
    assert config.method is wide and config.steps == 3
    bare = {"task": "words", "method": METHODS["dapo"]}
    assert config_for("grpo", bare)[1].method is METHODS["dapo"]


@pytest.mark.parametrize(("spec", "given", "said"), [
    ("grpo:words", {"method": METHODS["dpo"]}, "'dpo' is not trained by this recipe"),
    ("r1", {"method": METHODS["grpo"]}, "r1 takes no method"), ("grpo:words", {"data": []}, "takes no data")])
def test_what_a_recipe_has_no_place_for_is_refused(spec, given, said):
    with pytest.raises(ValueError, match=said):
        config_for(spec, given)


# every number that can be set has a range: what is outside is refused with the setting's name

FREE = {"seed", "evaluation.seed"}  # any whole number
UNBOUNDED = {"optim.max_grad_norm"}  # inf: gradients are never cut
SIGNED = {"threshold", "entropy", "all_wrong"}  # constants that may be below 0
HOMES = [*RECIPES, *PIPELINES]


def numbers(config):
    """The settings of a config that take numbers, and so no words."""
    for row in describe_settings(config):
        if row.name.startswith("method.") or isinstance(row.value, bool):
            continue
        try:
            override(config, [f"{row.name}=words"])
        except ValueError as error:
            if "expected a whole number" in str(error) or "expected a number" in str(error):
                yield row.name


def refused(config, key, text):
    try:
        override(config, [f"{key}={text}"])
    except ValueError as error:
        return key.rpartition(".")[2] in str(error)
    return False


@pytest.mark.parametrize("recipe", HOMES)
def test_no_setting_takes_a_number_that_cannot_be(recipe):
    config = preview_config(default_method_name(recipe))[1]
    known = [*numbers(config)]
    expected = {"optim.lr", "optim.beta1", "steps", "collections", "seed"} & flat_settings(config).keys()
    assert expected <= {*known} <= flat_settings(config).keys() and len(known) > 3
    taken = [f"{key}={text}" for key in known for text in ("-1", "-0.5", "nan", "inf", "-inf")
             if not refused(config, key, text)
             and (key, text) not in {(k, "-1") for k in FREE} | {(k, "inf") for k in UNBOUNDED}]
    assert not taken


@pytest.mark.parametrize("change", ["beta1=2", "beta1=1", "beta2=1", "weight_decay=-0.1", "warmup=-1",
                                    "max_grad_norm=0", "evaluation.max_new_tokens=0", "save_every=0"])
def test_out_of_range_is_a_sentence(change):
    name, _, text = change.partition("=")
    with pytest.raises(ValueError, match=rf"{name} is {float(text)}|{name} is {text}: it must be "):
        config_from_text("grpo:words", [change])


@pytest.mark.parametrize("name", methods.METHODS)
def test_no_constant_of_a_row_takes_a_number_that_cannot_be(name):
    row = methods.get_method(name)
    for constant, value in methods.constants_of(row).items():
        if not isinstance(value, bool | str) and constant not in SIGNED:
            with pytest.raises(ValueError, match=rf"method.{constant} is -1(\.0)?: it must be "):
                methods.change(row, **{constant: -1})


def test_shares_end_at_one():
    for constant, value in (("gamma", 1.1), ("lam", 2.0)):
        with pytest.raises(ValueError, match=f"method.{constant} is {value}: it must be from 0 to 1"):
            methods.method("ppo", **{constant: value})
    assert methods.constants_of(methods.method("simpo", gamma=2.0))["gamma"] == 2.0
