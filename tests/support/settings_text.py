"""Configs from text in tests: KEY=VALUE as the command line takes them."""

from postgrad.recipes.registry import setting_hint
from postgrad.system.parse import parse_settings
from postgrad.system.settings import configurables_of, replace_settings


def override(config, texts):
    """override(config, ["optim.lr=1e-4"])"""
    changes = parse_settings(type(config), texts, configurables_of(config), setting_hint)
    return replace_settings(config, changes, setting_hint)
