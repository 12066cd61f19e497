"""postgrad: post-training for language models, by gradient.

The public names are loaded when first used, so that `import postgrad` stays instant (torch is imported only where needed).
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "Prompt": "records", "Conversation": "records", "Pair": "records", "Rollout": "records", "Verdict": "records",
    "Scored": "records", "Batch": "records",
    "Task": "tasks", "load_task": "tasks",
    "load_model": "models", "METHODS": "methods", "train": "loop", "Run": "run", "evaluate": "evaluate",
}
__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'postgrad' has no name {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(f"postgrad.{_HOMES[name]}"), name)


def __dir__():
    return __all__ + ["__version__"]
