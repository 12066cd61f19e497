"""What ranks send each other, as bytes that run nothing: plain values, the project's records, and tensors as
safetensors. Bytes that name any other class or function are refused, from any sender."""

from __future__ import annotations

import io
import pickle
from importlib import import_module
from typing import Any

RECORDS = ("postgrad.records", "postgrad.training.stats", "postgrad.training.batches.rollouts")
PLAIN = frozenset({
    ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "complex"), ("builtins", "bytearray"),
    ("builtins", "tuple"), ("builtins", "range"),
    ("collections", "OrderedDict"), ("collections", "Counter"), ("collections", "deque"),
    ("datetime", "datetime"), ("datetime", "date"), ("datetime", "timedelta"), ("datetime", "timezone"),
    ("decimal", "Decimal"), ("fractions", "Fraction"), ("types", "SimpleNamespace"),
    ("pathlib", "PosixPath"), ("pathlib", "WindowsPath"), ("pathlib", "PurePosixPath"),
    ("pathlib._local", "PosixPath"), ("pathlib._local", "WindowsPath"), ("pathlib._local", "PurePosixPath"),
    ("numpy", "ndarray"), ("numpy", "dtype"),
    *((f"numpy.{core}.{module}", name) for core in ("core", "_core") for module, name in (
        ("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer")))})
LENGTH = 8  # bytes of the length of the tensors


class Writer(pickle.Pickler):
    """Takes tensors out: they are named by their number."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: dict[str, Any] = {}

    def persistent_id(self, obj: Any) -> str | None:
        if not hasattr(obj, "is_cuda"):
            return None
        self.tensors[name := str(len(self.tensors))] = obj.detach().cpu().clone().contiguous()
        return name


class RefusedClass(ValueError):
    """A class or function that does not travel."""


class Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: dict[str, Any]):
        super().__init__(file)
        self.tensors = tensors

    def persistent_load(self, name: str) -> Any:
        return self.tensors[name]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in PLAIN or is_record(module, name):
            return getattr(import_module(module), name)
        raise RefusedClass(f"a rank sent a {module}.{name}, and only plain values, tensors and records "
                           "travel between ranks: put texts, numbers, lists and dicts into a prompt's meta "
                           "and a verdict.")


def is_record(module: str, name: str) -> bool:
    """Whether a name is a class, or a function that makes one, of the modules whose records travel."""
    found = getattr(import_module(module), name, None) if module in RECORDS and "." not in name else None
    own = getattr(found, "__module__", None) == module
    return own and (isinstance(found, type) or name == "rebuild_stats")


def encode_message(value: Any) -> bytes:
    from safetensors.torch import save
    writer = Writer(file := io.BytesIO())
    writer.dump(value)
    tensors = save(writer.tensors) if writer.tensors else b""
    return len(tensors).to_bytes(LENGTH, "big") + tensors + file.getvalue()


def decode_message(data: bytes) -> Any:
    """encode_message's value; a ValueError where the bytes are none, or name what does not travel."""
    from safetensors import SafetensorError
    from safetensors.torch import load
    end = LENGTH + int.from_bytes(data[:LENGTH], "big")
    try:
        return Reader(io.BytesIO(data[end:]), load(data[LENGTH:end]) if end > LENGTH else {}).load()
    except RefusedClass:
        raise
    except (pickle.UnpicklingError, ValueError, SafetensorError, EOFError, AttributeError, TypeError,
            LookupError, ImportError, MemoryError, OverflowError, RecursionError) as fault:
        raise ValueError(f"what a rank sent is damaged ({type(fault).__name__}: {fault}).") from None
