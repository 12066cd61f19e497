"""A pipeline of a Python file that defines `pipeline = Pipeline(...)`.

    postgrad train my_pipeline.py rl.steps=20
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from postgrad.recipes.pipelines.stages import Pipeline
from postgrad.system.settings import Settings, setting
from postgrad.system.user_code import load_file


@dataclass(frozen=True, kw_only=True)
class OwnConfig(Settings):
    """A file with a pipeline, and changed settings of its stages."""

    recipe: ClassVar[str] = "own"
    file: str = setting(about="a Python file that defines `pipeline`", when="for a pipeline of your own")
    changes: Mapping[str, object] = setting(about="settings of its stages: {'rl.steps': 20}",
                                            when="to try another value without another file", group=dict)


def pipeline(config: OwnConfig) -> Pipeline:
    return load_pipeline(Path(config.file)).changed(config.changes)


def load_pipeline(path: Path) -> Pipeline:
    value = load_file(path, "pipeline").pipeline
    if not isinstance(value, Pipeline):
        raise ValueError(f"{path}: pipeline is a {type(value).__name__}: make it with postgrad.Pipeline, or "
                         "add SETTINGS, the configs of pipeline(config).")
    return replace(value, name=value.name or path.stem)
