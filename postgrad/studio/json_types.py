"""Types of what comes from JSON files and goes to templates; the reader of a value checks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonDict = dict[str, Any]
JsonMapping = Mapping[str, Any]
JsonList = list[Any]
Values = tuple[Any, ...]
