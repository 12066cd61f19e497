"""Names of version 0.1 are answered with today's, and its saved configs are translated."""

import importlib

import pytest

from postgrad.system import renamed


@pytest.mark.parametrize(("old", "new"), [("chat", "models.chat"), ("run", "runs"),
                                          ("display", "runs.display"),
                                          ("models.sharded", "training.distributed.sharding")])
def test_an_old_module_is_answered_with_the_new_one(old, new):
    with pytest.raises(ModuleNotFoundError, match=rf"postgrad\.{old} is now postgrad\.{new}\.$"):
        importlib.import_module(f"postgrad.{old}")


@pytest.mark.parametrize("new", renamed.MODULES.values())
def test_every_new_module_exists(new):
    assert importlib.util.find_spec(f"postgrad.{new}")


def test_a_saved_config_is_translated(monkeypatch):
    monkeypatch.setattr(renamed, "SETTINGS", {"anchor.kl": "kl.coef",
                                              "rollouts.ahead": "rollouts.async_depth"})
    old = {"anchor": {"kl": 0.1}, "rollouts": {"ahead": 2, "prompts": 8}, "steps": 3}
    assert renamed.translate_config(old) == {"kl": {"coef": 0.1}, "steps": 3,
                                             "rollouts": {"async_depth": 2, "prompts": 8}}
    assert old["anchor"] == {"kl": 0.1} and renamed.renamed_setting("kl") == "kl.coef"
    assert renamed.renamed_setting("ahead") == "rollouts.async_depth"
    assert renamed.renamed_setting("steps") == ""
