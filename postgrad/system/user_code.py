"""The user's own Python: loads files, hashes functions that are handed in so that a change is noticed, and
parses source without running it."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from threading import Lock
from types import CodeType, ModuleType
from typing import Any, Protocol, cast

_PARSING = Lock()
GIVEN = "given"  # the key of a record of an object that has no name


def parse_source(text: str | bytes) -> ast.Module:
    """The syntax tree of a module. One at a time: in Python 3.11 `ast.parse` fails in two threads at once."""
    with _PARSING:
        return ast.parse(text)


def source_lines(thing: Any) -> tuple[list[str], int]:
    """As `inspect.getsourcelines`, which parses the file of a class."""
    with _PARSING:
        return inspect.getsourcelines(thing)


class HasStateDict(Protocol):
    def state_dict(self) -> Mapping[str, Any]: ...


class CodeNotRead(ValueError):
    """A file of the user's is named where no code is run."""


_readable: ContextVar[frozenset[Path] | None] = ContextVar("readable", default=None)  # None: every file


@contextmanager
def without_user_code(known: Iterable[Path] = ()) -> Iterator[None]:
    """A block in which no file of the user's is loaded but the known ones: CodeNotRead names it."""
    token = _readable.set(frozenset(path.resolve() for path in known))
    try:
        yield
    finally:
        _readable.reset(token)


class _Fresh(SourceFileLoader):
    """Compiles the file each time: the bytecode cache, keyed by the second, misses an edit right after a
    load."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError("no cache")


def load_file(path: Path, kind: str) -> ModuleType:
    """The module of a user's file. kind: what it should define, "task" or "row"."""
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}: give the path of a Python file that "
                         f"defines a {kind}.")
    if (readable := _readable.get()) is not None and path.resolve() not in readable:
        raise CodeNotRead(f"{path} is code, which is read when the run is started and not before: what it "
                          "needs is checked then.")
    name = f"postgrad_{kind}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Fresh(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses, pickling and inspect look for what the file defines
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{error_location(path, error)}: mend the {kind} file, which must run "
                         "without error.") from error
    return module


def error_location(path: Path, error: BaseException) -> str:
    """An exception in one line, "my_task.py, line 7: KeyError: 'x'": the last line inside the user's file."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line = error.lineno
    else:
        inside = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                  if frame.filename == str(path)]
        line = inside[-1] if inside else None
    text = " ".join(str(error).split())
    text = text if len(text) <= 200 else text[:199] + "…"
    return (f"{path.name}{f', line {line}' if line else ''}: "
            f"{type(error).__name__}{f': {text}' if text else ''}")


# records of objects without a name

def function_name(function: Callable[..., object]) -> str:
    """module.name of a function, or of the class of a callable object."""
    plain = function.func if isinstance(function, partial) else function
    plain = plain if hasattr(plain, "__qualname__") else type(plain)
    return f"{plain.__module__}.{plain.__qualname__}"


def text_hash(function: Callable[..., object]) -> str:
    """A hash of a function's source and closure; of its bytecode where the source is not its own, as of a
    lambda."""
    plain = inspect.unwrap(function.func if isinstance(function, partial) else function)
    plain = plain if inspect.isroutine(plain) or inspect.isclass(plain) else type(plain)
    return hashlib.sha256(repr((_text(plain), _closure(plain))).encode()).hexdigest()


def function_hash(function: Callable[..., object]) -> str:
    """As `text_hash`, with bound state: the arguments of a partial, the fields of an object."""
    inside = inspect.unwrap(function)
    held = (inside.args, inside.keywords) if isinstance(inside, partial) else \
        () if inspect.isfunction(inside) else _fields(getattr(inside, "__self__", inside))
    return hashlib.sha256(f"{text_hash(function)}{_state(held)}".encode()).hexdigest()


def _text(plain: Callable[..., object]) -> str:
    code = getattr(plain, "__code__", None)
    try:
        if getattr(plain, "__name__", "") != "<lambda>":
            return "".join(source_lines(plain)[0])
    except (OSError, TypeError):  # from a prompt, or built in: no file
        return repr(_code(code)) if code else function_name(plain)
    return repr(_code(code)) if code else function_name(plain)


def _code(code: CodeType) -> tuple[object, ...]:
    """Bytecode without the addresses in its repr."""
    inside = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code.hex(), code.co_names, inside


def _closure(plain: Callable[..., object]) -> str:
    cells = getattr(plain, "__closure__", None) or ()
    return _state([cell.cell_contents for cell in cells])


def _fields(value: object) -> object:
    return vars(value) if hasattr(value, "__dict__") and not isinstance(value, type | ModuleType) else ()


def _state(value: object, depth: int = 4) -> str:
    """A value as text that is the same in every process: numbers and strings as they are, functions by their
    hash, other objects by their class."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if depth and isinstance(value, Mapping):
        return str([(_state(k, depth - 1), _state(v, depth - 1)) for k, v in value.items()])
    if depth and isinstance(value, list | tuple | set | frozenset):
        held = [_state(x, depth - 1) for x in value]
        return str(sorted(held) if isinstance(value, set | frozenset) else held)
    if depth and inspect.isfunction(value) and not value.__closure__:
        return text_hash(value)
    return type(value).__qualname__


def record(value: object) -> object:
    """An object without a name, as JSON: what it is, and a hash.

    record(my_reward) -> {"given": "function", "name": "mine.my_reward", "sha256": ...}; of a list its length
    and the hash of its rows; of several functions a record each. An object's own method `record` comes first.
    """
    if hasattr(value, "record"):
        return value.record()
    if isinstance(value, str | Path):
        return str(value)
    if hasattr(value, "state_dict"):
        return {GIVEN: "model", "name": type(value).__name__, "sha256": weights_hash(value)}
    if callable(value) and not hasattr(value, "sample"):
        return {GIVEN: "function", "name": function_name(value), "sha256": function_hash(value)}
    for method, kind in {"sample": "sampler", "score": "reward"}.items():
        if hasattr(value, method):
            return {GIVEN: kind, "name": function_name(type(value)), "sha256": text_hash(type(value))}
    if isinstance(value, Mapping):
        return {GIVEN: "reward", "name": "a weighted sum",
                "parts": [[record(k), v] for k, v in value.items()]}
    if isinstance(value, list | tuple) and any(
            callable(x) or hasattr(x, "state_dict") or hasattr(x, "score") for x in value):
        return {GIVEN: "reward", "name": "a list", "parts": [record(x) for x in value]}
    count, digest = rows_hash(cast(Iterable[object], value))
    return {GIVEN: "rows", "name": f"{count} rows", "sha256": digest}


def weights_hash(model: HasStateDict) -> str:
    """A hash of a model's tensors."""
    import torch
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + bytes(tensor.detach().cpu().contiguous().view(torch.uint8).numpy()))
    return digest.hexdigest()


def rows_hash(rows: Iterable[object]) -> tuple[int, str]:
    """The number of rows, and a hash of their contents."""
    digest, count = hashlib.sha256(), 0
    for row in rows:
        digest.update(json.dumps(_plain(row), sort_keys=True, default=repr).encode() + b"\n")
        count += 1
    return count, digest.hexdigest()


def _plain(row: object) -> object:
    if is_dataclass(row) and not isinstance(row, type):
        return {f.name: _plain(value) for f in fields(row) if f.compare
                and ((value := getattr(row, f.name)) or "hashed" not in f.metadata)}
    if isinstance(row, Mapping):
        return {str(key): _plain(value) for key, value in row.items()}
    return [_plain(x) for x in row] if isinstance(row, list | tuple) else row


def is_record(value: object) -> bool:
    return isinstance(value, Mapping) and GIVEN in value
