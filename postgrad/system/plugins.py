"""Names that installed packages add: methods, tasks, rewards, samplers, trackers, model families.

A package declares an entry point of the group `postgrad.plugins`:

    [project.entry-points."postgrad.plugins"]
    mine = "my_package.postgrad_plugin"      # a module that registers when it is imported
    more = "my_package:register_all"         # or a function of no arguments that registers

    import postgrad
    postgrad.register_task("reverse", load_reverse)
    postgrad.register_reward("polite", polite)

Plugins are loaded once, when a name is asked for that is not known without them: `import postgrad` and --help
load none. A plugin that fails is named on stderr; the others are loaded.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from threading import RLock
from typing import Generic, TypeVar

from postgrad.system.user_code import load_file

GROUP = "postgrad.plugins"
T = TypeVar("T")
_NAMES = re.compile(r"^NAMES = (\(.*?\))$", re.MULTILINE | re.DOTALL)


class _Loaded:
    """Whether this process has loaded the plugins, or is about to."""

    done = False
    busy = False
    lock = RLock()


def load_plugins() -> None:
    """Loads every installed plugin, the first time it is called."""
    with _Loaded.lock:
        if _Loaded.done:
            return
        _Loaded.done = _Loaded.busy = True  # before they are loaded: a plugin may ask for names itself
        for entry in entry_points(group=GROUP):
            _load_plugin(entry)
        _Loaded.busy = False


def loading_plugins() -> bool:
    """Whether a plugin is being loaded: what it registers is there in every process."""
    return _Loaded.busy


def _load_plugin(entry: EntryPoint) -> None:
    try:
        plugin = entry.load()
        if callable(plugin):
            plugin()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises
        owner = f" of {entry.dist.name} {entry.dist.version}" if entry.dist else ""
        print(f"the plugin {entry.name}{owner} ({entry.value}) is left out: it raised "
              f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)


def _is_name(text: str) -> bool:
    return text.replace("-", "_").isidentifier()


class Registry(Generic[T]):
    """The names of one seam that are added from outside. kind: what they name, e.g. "task"."""

    def __init__(self, kind: str, built_in: frozenset[str] = frozenset()):
        self.kind, self.built_in = kind, built_in
        self.entries: dict[str, T] = {}

    def register(self, name: str, value: T) -> T:
        """Adds a name for as long as the process lives; one that is built in is refused."""
        if not _is_name(name):
            raise ValueError(f"a {self.kind} cannot be called {name!r}: use letters, digits, - and _.")
        if name in self.built_in:
            raise ValueError(f"there is a built-in {self.kind} {name!r}: give yours another name.")
        self.entries[name] = value
        return value

    def find(self, name: str) -> T | None:
        """What a name stands for; None for one that nobody has registered."""
        if name not in self.entries and _is_name(name):
            load_plugins()
        return self.entries.get(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Every name, those of plugins too."""
        load_plugins()
        return iter(sorted(self.entries))


def is_file_spec(name: str) -> bool:
    """Whether a name has the form FILE.py or FILE.py:NAME."""
    return name.endswith(".py") or ".py:" in name


def load_from_file(spec: str, kind: str) -> object:
    """What FILE.py:NAME defines; for FILE.py alone, what it calls by its kind, e.g. `reward`."""
    file, _, name = spec.partition(".py:")
    path = Path(f"{file.removesuffix('.py')}.py").expanduser()
    module, name = load_file(path, kind), name or kind
    if not hasattr(module, name):
        raise ValueError(f"{path} defines no `{name}`: write {path}:NAME, or call what it defines `{name}`.")
    return getattr(module, name)


def declared_names(folder: Path) -> dict[str, str]:
    """name -> module, from the line `NAMES = ("a", "b")` of each module in a folder. None is imported."""
    files = [*folder.glob("*.py"), *folder.glob("*/__init__.py")]
    modules = {path.stem if path.parent == folder else path.parent.name: path for path in files}
    found = ((name, _NAMES.search(path.read_text("utf-8"))) for name, path in sorted(modules.items()))
    return {name: module for module, match in found if match for name in ast.literal_eval(match[1])}
