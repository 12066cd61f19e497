"""Every number that can be set has a range: what is outside is refused with the setting's name."""

import pytest
from settings_text import override

from postgrad import methods
from postgrad.cli.settings import config_from_text
from postgrad.recipes.registry import PIPELINES, RECIPES
from postgrad.recipes.settings_rows import default_method_name, preview_config
from postgrad.system.settings import describe_settings, flat_settings

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
