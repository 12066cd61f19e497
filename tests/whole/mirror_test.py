"""A module's test is found by its path: tests/ROOM/x_test.py is for postgrad/ROOM/x.py or the package x."""

import tomllib

from paths import ROOT, TESTS

REASONS = tomllib.loads((TESTS / "whole" / "mirror.toml").read_text())


def mirrors(test):
    """Whether a module or package of that path exists; a/b/b_test.py is for the package a/b."""
    place = ROOT / "postgrad" / test.removesuffix("_test.py")
    return (place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()
            or place.name == place.parent.name and (place.parent / "__init__.py").is_file())


def test_every_test_file_mirrors_a_module_or_is_listed_with_a_reason():
    files = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*_test.py")}
    rooms = {path for path in files if path.split("/")[0] not in ("whole", "support")}
    others = {path for path in rooms if not mirrors(path)}
    assert others == REASONS.keys(), f"rename, or list in mirror.toml: {sorted(others ^ REASONS.keys())}"
    assert all(REASONS.values())
