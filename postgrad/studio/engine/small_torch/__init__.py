"""A small torch in plain Python: what maths/, the cells and the exercises use of it, with gradients, for
pages that run without a server.

Values, shapes, dtypes, promotion, broadcasting, views and random numbers are torch's (tests hold them against
it); speed is not. Whatever it has no answer for raises an AttributeError that says so.
Left out on purpose: devices, second derivatives, hooks, modules, sparse and complex tensors.

numbers    dtypes, places in shapes, functions of single numbers and their slopes
tensor     Tensor, its gradients and its methods
functions  functions of tensors, random numbers, torch.nn.functional, torch.optim
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from postgrad.studio.engine.small_torch import functions, numbers, tensor

FUNCTIONS = tensor.FUNCTIONS
DEFINED = vars(numbers) | vars(tensor) | vars(functions)
PUBLIC: dict[str, Any] = {name: DEFINED[name] for name in (
    "Tensor", "Size", "Generator", "dtype", "device", "finfo", "inf", "nan", "pi", "e", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "promote_types", "no_grad", "enable_grad",
    "set_grad_enabled", "inference_mode", "default_generator", "manual_seed", "tensor", "as_tensor", "full",
    "zeros", "ones", "full_like", "zeros_like", "ones_like", "empty", "empty_like", "arange", "linspace",
    "eye", "is_tensor", "cat", "concat", "concatenate", "stack", "where", "allclose", "outer", "diff", "tril",
    "triu", "rand", "randn", "randint", "randperm", "multinomial")} | {
    "bool": numbers.bool_, "int": numbers.int32, "long": numbers.int64, "float": numbers.float32,
    "double": numbers.float64} | FUNCTIONS
MODULES: dict[str, dict[str, Any]] = {
    "autograd": {"grad": tensor.grad, "Function": tensor.Function},
    "cuda": {"is_available": lambda: False, "synchronize": lambda: None},
    "linalg": {"vecdot": functions.vecdot, "norm": lambda x, ord=2, dim=None: x.norm(ord, dim)},
    "nn": {"Parameter": lambda x, requires_grad=True: x.detach().clone().requires_grad_(requires_grad)},
    "nn.functional": {name: DEFINED[name] for name in (
        "logsigmoid", "softplus", "pad", "one_hot", "nll_loss", "cross_entropy", "mse_loss", "kl_div",
        "binary_cross_entropy_with_logits")} | {name: FUNCTIONS[name] for name in (
            "softmax", "log_softmax", "sigmoid", "relu", "tanh")},
    "optim": {"Optimizer": functions.Optimizer, "SGD": functions.SGD, "Adam": functions.Adam},
}


def install(name: str = "torch") -> None:
    """Makes `import torch` give this one."""
    made = {path: ModuleType(f"{name}.{path}".rstrip(".")) for path in ("", *MODULES)}
    for path, module in made.items():
        module.__dict__.update(MODULES.get(path, PUBLIC), __path__=[])
        module.__dict__["__getattr__"] = lambda missing, path=path: _refuse(".".join(filter(None, (
            "torch", path, missing))))
        sys.modules[module.__name__] = module
    for path, module in made.items():
        above, _, last = path.rpartition(".")
        if path:
            setattr(made[above], last, module)


def _refuse(name: str) -> Any:
    if name.rpartition(".")[2].startswith("__"):
        raise AttributeError(name)
    raise AttributeError(numbers.HERE.format(name))
