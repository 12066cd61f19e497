"""postgrad: post-training for language models, by gradient.

The public names are loaded when first used, so that `import postgrad` stays instant (torch is
imported only where needed).
"""

import os
import sys
from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "Prompt": "records", "Conversation": "records", "Pair": "records", "Rollout": "records",
    "Verdict": "records", "Scored": "records", "Batch": "records",
    "fit": "recipes.fit", "resume": "recipes.fit", "evaluate": "recipes.measuring",
    "compare": "recipes.measuring", "score": "recipes.audit:score_answers",
    "Run": "recipes.fit", "Tracker": "runs.tracker", "register_tracker": "runs.tracker",
    "METHODS": "methods", "Policy": "methods", "Preference": "methods",
    "Supervised": "methods", "method": "methods", "register": "methods",
    "Task": "data.tasks", "load_task": "data.tasks", "make_task": "resolve.tasks",
    "register_task": "data.tasks", "register_reward": "rewards.named", "register_family": "models.families",
    "register_sampler": "resolve.samplers", "Sampler": "sampling", "Sampling": "records",
    "from_trl": "rewards.function:TRLReward", "RemoteJudge": "rewards.remote_judge",
    "Model": "resolve.models",
    "load_model": "resolve.models:open_named_model",
    "train": "training.loop", "Pipeline": "recipes.pipelines.stages", "stage": "recipes.pipelines.stages",
    "keep": "recipes.pipelines.stages", "measure": "recipes.pipelines.stages",
}
__all__ = sorted(_HOMES)


class _OldModules:
    """Answers the import of a module of version 0.1 with its present name (system/renamed.py)."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.startswith("postgrad.") and not name.startswith("postgrad.system"):
            from postgrad.system.renamed import renamed_module
            if new := renamed_module(name):
                raise ModuleNotFoundError(f"{name} is now {new}.", name=name)


# OpenMP's threads sleep while they wait for one another, unless the user has chosen. Spinning, the default,
# takes the time that the thread they wait for needs where another process has its core. Results are the same.
# Before torch is imported, which reads it once.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
sys.meta_path.append(_OldModules)  # asked when the module is found nowhere else


def __getattr__(name: str) -> object:
    if name.endswith(("Trainer", "Config")) and name not in _HOMES:
        raise AttributeError(f"module 'postgrad' has no name {name!r}: a trainer with its config is one "
                             "call, fit(model, method, data=..., lr=...); docs/coming-from-trl.md has each "
                             "argument.")
    if name not in _HOMES:
        raise AttributeError(f"module 'postgrad' has no name {name!r}; it has: {', '.join(__all__)}")
    module, _, inside = _HOMES[name].partition(":")
    return getattr(import_module(f"postgrad.{module}"), inside or name)


def __dir__() -> list[str]:
    return __all__ + ["__version__"]
