"""Configs from text in tests, KEY=VALUE as the command line takes them; and a small config with a group."""

from dataclasses import dataclass, field

from postgrad.recipes.registry import setting_hint
from postgrad.system.parse import parse_settings
from postgrad.system.settings import Settings, configurables_of, replace_settings


def override(config, texts):
    """override(config, ["optim.lr=1e-4"])"""
    changes = parse_settings(type(config), texts, configurables_of(config), setting_hint)
    return replace_settings(config, changes, setting_hint)


def merged(*texts):
    """Each setting once, as the command line wants them: a later one replaces an earlier one of its name."""
    return list({text.partition("=")[0]: text for text in texts}.values())


@dataclass(frozen=True, kw_only=True)
class Inner(Settings):
    rate: float
    on: bool = False

    def __post_init__(self):
        if not self.rate > 0:
            raise ValueError(f"inner.rate is {self.rate}: it must be above 0.")


@dataclass(frozen=True, kw_only=True)
class Outer(Settings):
    name: str = "x"
    count: int = 3
    share: float | None = None
    path: str | None = None
    low: int = 0
    high: int = 9
    inner: Inner = field(default_factory=lambda: Inner(rate=0.5))

    def __post_init__(self):
        if not self.low < self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}.")
