"""Configs from text in tests: KEY=VALUE as the command line takes them."""

from postgrad.recipes import known_elsewhere
from postgrad.system.parse import parse_settings
from postgrad.system.settings import configurables_of, replace_settings


def override(config, texts):
    """override(config, ["optim.lr=1e-4"])"""
    changes = parse_settings(type(config), texts, configurables_of(config), known_elsewhere)
    return replace_settings(config, changes, known_elsewhere)
