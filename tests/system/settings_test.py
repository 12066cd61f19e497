"""Settings are Python values, checked by type and range whenever a config is made."""

from dataclasses import dataclass

import numpy as np
import pytest
from settings_text import Inner, Outer

from postgrad.system.settings import (
    SHARE,
    Settings,
    SettingTypeError,
    default_settings,
    replace_settings,
    setting,
    settings_from_json,
    settings_to_json,
)


@dataclass(frozen=True, kw_only=True)
class Tried(Settings):
    prefix = "tried."
    count: int = setting(1)
    rate: float | None = setting(None, within=SHARE)
    on: bool = setting(False)
    name: str = setting("a", choices=("a", "b"))
    layers: tuple[int, ...] = setting((0,))
    anything: object = setting(None)


@pytest.mark.parametrize(("name", "value", "stands"), [
    ("count", np.int64(3), 3), ("rate", 0, 0.0), ("rate", np.float32(0.5), 0.5), ("rate", None, None),
    ("on", True, True), ("name", "b", "b"), ("layers", [1, 2], (1, 2)), ("anything", [1e-4], [1e-4]),
])
def test_a_value_of_its_type_is_taken(name, value, stands):
    found = getattr(Tried(**{name: value}), name)
    assert found == stands and type(found) is type(stands)


@pytest.mark.parametrize(("name", "value", "words"), [
    ("count", 1.0, "tried.count is 1.0, a float: expected a whole number."),
    ("count", True, "tried.count is True, a bool: expected a whole number."),
    ("rate", [0.5], "tried.rate is [0.5], a list: expected a number or None."),
    ("rate", "0.5", "tried.rate is '0.5', a str: expected a number or None."),
    ("on", 1, "tried.on is 1, an int: expected True or False."),
    ("name", None, "tried.name is None, a NoneType: expected text."),
    ("layers", ["x"], "tried.layers is ['x'], a list: expected a list, each item a whole number."),
])
def test_another_type_is_one_sentence(name, value, words):
    for make in (lambda: Tried(**{name: value}), lambda: replace_settings(Tried(), {name: value})):
        with pytest.raises(SettingTypeError) as error:
            make()
        assert str(error.value).removeprefix("tried.") == words.removeprefix("tried.")
    assert isinstance(error.value, TypeError) and isinstance(error.value, ValueError)


def test_ranges_and_choices_are_sentences():
    with pytest.raises(ValueError, match="tried.rate is 1.0: it must be from 0 to below 1"):
        Tried(rate=1)
    with pytest.raises(ValueError, match="tried.name is 'c': expected a or b"):
        Tried(name="c")


def test_a_group_is_a_dict_or_an_object():
    wanted = Inner(rate=2.0, on=True)
    for changes in ({"inner": {"rate": 2, "on": True}}, {"inner": wanted}, {"rate": 2.0, "inner.on": True},
                    {"inner": Inner(rate=2.0), "on": True}):
        assert replace_settings(Outer(), changes).inner == wanted
    with pytest.raises(ValueError, match="'inner' is a group of settings: name one of inner.rate, inner.on"):
        replace_settings(Outer(), {"inner": 3})
    with pytest.raises(SettingTypeError, match="inner is Outer.*: expected Inner or a dict of its settings"):
        replace_settings(Outer(), {"inner": Outer()})
    with pytest.raises(ValueError, match=r"there is no setting 'inner.rat'. Did you mean 'inner.rate'\?"):
        replace_settings(Outer(), {"inner": {"rat": 3}})


def test_defaults_and_the_way_through_json():
    assert default_settings(Outer)["inner.rate"] == 0.5 and default_settings(Outer)["count"] == 3
    config = replace_settings(Outer(), {"inner": {"rate": 0.25}, "share": 1e-4})
    assert settings_from_json(Outer, settings_to_json(config)) == config
    with pytest.raises(ValueError, match="has 'many' for 'count' of Outer, which cannot be its value"):
        settings_from_json(Outer, {"count": "many"})
