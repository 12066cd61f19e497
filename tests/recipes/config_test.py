"""The configs of recipes: what they refuse, and the same config back from a run."""

import importlib
import json
import math
import pkgutil
from dataclasses import fields

import pytest
from settings_text import override

import postgrad.recipes
from postgrad.cli.settings import config_from_text
from postgrad.methods import METHODS, Method, constants_of
from postgrad.models import Adapters
from postgrad.recipes import registry
from postgrad.recipes.registry import PIPELINES
from postgrad.recipes.rollouts import BATCH_SOURCES, KL, RolloutConfig
from postgrad.recipes.sft import SFTConfig
from postgrad.runs import dumps
from postgrad.system.settings import Settings, flat_settings, settings_from_json, settings_to_json
from postgrad.training.optim import OptimSettings

RECIPES = {m.name: importlib.import_module(f"postgrad.recipes.{m.name}")
           for m in pkgutil.iter_modules(postgrad.recipes.__path__)}
NAMED = [(name, setting) for name, module in RECIPES.items() for setting in getattr(module, "SETTINGS", {})]


def test_a_setting_may_be_named_without_its_group():
    config = override(RolloutConfig(task="words"), ["lr=1e-5", "kl=0", "group_size=4"])
    assert (config.optim.lr, config.kl.coef, config.rollouts.group_size) == (1e-5, 0.0, 4)
    words = ["lora=8", "alpha=4", "targets=q_proj, v_proj", "optim.adapter.bits=4"]
    adapter = override(config, words).optim.adapter
    assert adapter == Adapters(lora=8, alpha=4.0, targets="q_proj, v_proj", bits=4)
    assert adapter.names == ("q_proj", "v_proj")
    own = override(SFTConfig(task="words"), ["task=none", "data=mine.jsonl"])
    assert (own.task, own.data) == (None, "mine.jsonl")


def test_the_configs_of_recipes_refuse_what_cannot_be():
    for change, words in (
        ("method=dpo", "method 'dpo' is not trained by this recipe: it learns from pairs"),
        ("method=grop", "there is no method 'grop'. Did you mean 'grpo'"),
        ("kl=-1", "kl.coef is -1.0: it must be a number of 0 or more"), ("kl.coef=nan", "kl.coef is nan"),
        ("steps=0", "steps is 0"), ("target=0", "kl.target is 0.0"),
        ("reward_ensemble=most", "reward_ensemble is 'most': expected mean, min"),
        ("ptx=-1", "ptx.coef is -1.0"),
        ("max_new_tokens=3", "may be evaluation.max_new_tokens or rollouts.max_new_tokens"),
        ("minibatches=0", "method.minibatches is 0: it must be at least 1"),
        ("epochs=1.5", "epochs is 1.5"),
        ("rollouts.temperature=0", "samples of a group must differ"), ("optim.lr=-1", "optim.lr is -1.0"),
        ("optim.schedule=cosin", "optim.schedule is 'cosin'"),
        ("evaluation.every=-1", "evaluation.every is -1"),
    ):
        with pytest.raises(ValueError, match=words):
            override(RolloutConfig(task="words"), [change])
    for change, words in (
        ("task=none", "either task=NAME"), ("data=x.jsonl", "either task=NAME"),
        ("rows_per_step=0", "at least 1"), ("method=dpo", "it learns from pairs, write `postgrad train dpo`"),
        ("method=grpo", "it learns from rollouts"),
    ):
        with pytest.raises(ValueError, match=words):
            override(SFTConfig(task="words"), [change])


@pytest.mark.parametrize(("recipe", "setting"), NAMED)
def test_a_named_setting_comes_back_from_a_run(recipe, setting):
    config = RECIPES[recipe].SETTINGS[setting]()
    written = json.loads(dumps(settings_to_json(config)))  # as a run folder holds it
    again = settings_from_json(type(config), written)
    assert again == config and settings_to_json(again) == settings_to_json(config)
    assert flat_settings(again).keys() == flat_settings(config).keys()
    changed = {k: v for k, v in flat_settings(config).items()
               if isinstance(v, int | float | str) and not isinstance(v, bool)}
    # what is printed can be typed
    assert override(config, [f"{k}={v}" for k, v in changed.items()]) == config
    with pytest.raises(ValueError, match="the saved config has 'bogus', which this version of"):
        settings_from_json(type(config), written | {"bogus": 1})


def test_floats_come_back_to_the_last_bit():
    config = RolloutConfig(task="words", kl=KL(coef=0.1 + 0.2), optim=OptimSettings(lr=math.pi * 1e-5))
    again = settings_from_json(RolloutConfig, json.loads(dumps(settings_to_json(config))))
    assert (again.kl.coef, again.optim.lr) == (config.kl.coef, config.optim.lr)
    with pytest.raises(ValueError, match="'lrr', which this version of OptimSettings"):
        settings_from_json(RolloutConfig, settings_to_json(config) | {"optim": {"lrr": 1.0}})


@pytest.mark.parametrize(("recipe", "setting"), NAMED)
def test_flat_is_the_config_by_dotted_keys(recipe, setting):
    config = RECIPES[recipe].SETTINGS[setting]()
    for key, value in flat_settings(config).items():
        found = config
        group, _, name = key.rpartition(".")
        for part in group.split(".") if group else ():
            found = getattr(found, part)
        found = constants_of(found)[name] if isinstance(found, Method) else getattr(found, name)
        assert found == value and not isinstance(value, Settings)
    assert {k.split(".")[0] for k in flat_settings(config)} == {f.name for f in fields(config)}


def test_every_recipe_and_method_can_be_named():
    for recipe, setting in NAMED:
        row = getattr(RECIPES[recipe].SETTINGS[setting](), "method", None)
        name, config = config_from_text(f"{row.name if row else recipe}:{setting}")
        assert name == recipe and config == RECIPES[recipe].SETTINGS[setting]()
        assert type(config).__name__ == (registry.RECIPES | PIPELINES)[recipe]
    for method in [name for name, row in METHODS.items() if row.source in BATCH_SOURCES]:
        recipe, config = config_from_text(f"{method}:words", ["optim.lr=1e-4"])
        assert ((recipe, config.method.name, config.task, config.optim.lr)
                == ("rollouts", method, "words", 1e-4))
    for spec, words in (("grpoo:words", "Did you mean 'grpo'"),
                        ("grpo:wrods", "has no setting 'wrods'. Did you mean 'words'"),
                        ("grpo", "grpo of what")):
        with pytest.raises(ValueError, match=words):
            config_from_text(spec)
