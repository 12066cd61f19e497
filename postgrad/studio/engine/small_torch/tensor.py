"""The tensor and its gradients."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ContextDecorator
from itertools import accumulate, product, repeat
from operator import index as as_index
from typing import Any

from postgrad.studio.engine.small_torch.numbers import (
    BINARY,
    BITS,
    COMPARE,
    FLOATS,
    HERE,
    SAME,
    TESTS,
    UNARY,
    Numbers,
    Size,
    axis_of,
    bfloat16,
    bool_,
    bounded,
    common_shape,
    device,
    dtype,
    exp_of,
    finfo,
    float16,
    float32,
    float64,
    grid_places,
    inf,
    int32,
    int64,
    lines_along,
    logsumexp_of,
    nan,
    promote_types,
    shape_without,
    sizes_of,
    sorting_key,
    spread_places,
    strides_of,
)

Pull = Callable[[Numbers], Sequence[Numbers | None]]  # the gradient of the result -> those of the parents


class Node:
    """Where a value came from: its parents' nodes, and how a gradient goes to them; or the leaf itself."""

    def __init__(self, parents: Sequence[Node | None] = (), pull: Pull | None = None,
                 leaf: Tensor | None = None):
        self.parents, self.pull, self.leaf = parents, pull, leaf


class Gradients(ContextDecorator):
    on = True

    def __init__(self, wanted: bool):
        self.wanted = wanted

    def __enter__(self) -> None:
        self.before, Gradients.on = Gradients.on, self.wanted

    def __exit__(self, *_: object) -> None:
        Gradients.on = self.before


def no_grad() -> Gradients:
    return Gradients(False)


def enable_grad() -> Gradients:
    return Gradients(True)


set_grad_enabled, inference_mode = Gradients, no_grad


def _gradients(outputs: Sequence[Tensor], given: Sequence[Numbers],
               leaves: list[Node] | None = None) -> dict[int, Numbers]:
    """The gradient at every node that leads to the outputs, by the node's id; those that are leaves, too."""
    order: list[Node] = []
    seen: set[int] = set()
    waiting: list[tuple[Node, bool]] = [(o._node, False) for o in outputs if o._node]
    while waiting:
        node, ready = waiting.pop()
        if ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            waiting += [(node, True), *((p, False) for p in node.parents if p)]
    at: dict[int, Numbers] = {}

    def add(node: Node, values: Numbers) -> None:
        known = at.get(id(node))
        at[id(node)] = values if known is None else [a + b for a, b in zip(known, values, strict=True)]
    for output, values in zip(outputs, given, strict=True):
        if output._node:
            add(output._node, values)
    for node in reversed(order):
        if leaves is not None and node.leaf is not None:
            leaves.append(node)
        if node.pull and id(node) in at:
            for parent, pulled in zip(node.parents, node.pull(at[id(node)]), strict=True):
                if parent is not None and pulled is not None:
                    add(parent, pulled)
    return at


def _seeds(outputs: Sequence[Tensor], given: Any) -> list[Numbers]:
    given = [None] * len(outputs) if given is None else [given] if isinstance(given, Tensor) else list(given)
    for output, own in zip(outputs, given, strict=True):
        if output._node is None:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
        if own is None and output.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
    return [[1.0] if own is None else own._values for own in given]


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, allow_unused: bool = False) -> tuple[Tensor | None, ...]:
    if create_graph:
        raise AttributeError(HERE.format("second derivatives"))
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if any(x._node is None for x in inputs):
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    at = _gradients(outputs, _seeds(outputs, grad_outputs))
    if not allow_unused and any(id(x._node) not in at for x in inputs):
        raise RuntimeError("One of the differentiated Tensors appears to not have been used in the graph. "
                           "Set allow_unused=True if this is the desired behavior.")
    return tuple(Tensor(at[id(x._node)], x.shape, x.dtype) if id(x._node) in at else None for x in inputs)


class Function:
    """The library has some for long vocabularies; none of them is on the way of a cell."""

    @classmethod
    def apply(cls, *_: object) -> Any:
        raise AttributeError(HERE.format("autograd.Function"))


def kind_of(values: Sequence[Any]) -> dtype:
    """The dtype that several values, tensors and numbers, are computed in."""
    best: list[dtype | None] = [None, None, None]  # of tensors with dimensions, of those without, of numbers
    for x in values:
        if isinstance(x, Tensor):
            rank, kind = 0 if x.shape else 1, x.dtype
        else:
            rank, kind = 2, bool_ if isinstance(x, bool) else int64 if isinstance(x, int) else float32
        known = best[rank]
        best[rank] = kind if known is None or known is kind else promote_types(known, kind)
    found: dtype | None = None
    for one in best:
        if one is not None and (found is None or one.kind > found.kind):
            found = one
    assert found is not None
    return found


_Open: Any = object  # operators and many methods come from the tables below


class Tensor(_Open):
    """_store: numbers, which views share; _at: this one's places there, None for all of them in order."""

    def __init__(self, values: Numbers, shape: Sequence[int], kind: dtype, parents: Sequence[Tensor] = (),
                 pull: Pull | None = None, at: Sequence[int] | None = None):
        self._store, self._at, self.shape, self.dtype = values, at, Size(shape), kind
        tracked = Gradients.on and kind.kind == 2 and any(p._node for p in parents)
        self._node: Node | None = Node([p._node for p in parents], pull) if tracked else None
        self._leaf = not tracked
        self.grad: Tensor | None = None

    # what it is

    @property
    def _values(self) -> Numbers:
        return self._store if self._at is None else [self._store[i] for i in self._at]

    def _write(self, values: Numbers) -> None:
        for place, value in zip(range(len(values)) if self._at is None else self._at,
                                self.dtype.rounded(values), strict=True):
            self._store[place] = value

    ndim = property(lambda self: len(self.shape))
    device = property(lambda self: device())
    requires_grad = property(lambda self: self._node is not None,
                             lambda self, wanted: self.requires_grad_(wanted))
    is_leaf = property(lambda self: self._leaf)
    data = property(lambda self: self.detach(), lambda self, new: self._adopt(new))
    T = property(lambda self: self.permute(*range(self.ndim)[::-1]))
    mT = property(lambda self: self.transpose(-1, -2))  # noqa: N815
    is_cuda, is_cpu = False, True

    def _adopt(self, new: Tensor) -> None:
        self._store, self._at, self.shape, self.dtype = new._store, new._at, new.shape, new.dtype

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(HERE.format(f"Tensor.{name}"))

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return math.prod(self.shape)

    def is_floating_point(self) -> bool:
        return self.dtype.kind == 2

    def requires_grad_(self, wanted: bool = True) -> Tensor:
        if wanted and self.dtype.kind != 2:
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        if self._leaf:
            self._node = (self._node or Node(leaf=self)) if wanted else None
        return self

    def detach(self) -> Tensor:
        return Tensor(self._store, self.shape, self.dtype, at=self._at)

    def clone(self) -> Tensor:
        return Tensor(list(self._values), self.shape, self.dtype, (self,), lambda g: [g])

    def contiguous(self) -> Tensor:
        return self

    cpu = pin_memory = contiguous

    def numpy(self) -> Any:
        raise AttributeError(HERE.format("numpy"))

    def backward(self, gradient: Tensor | None = None, retain_graph: bool | None = None) -> None:
        leaves: list[Node] = []
        at = _gradients([self], _seeds([self], None if gradient is None else [gradient]), leaves)
        for node in leaves:
            leaf = node.leaf
            if leaf is not None and id(node) in at:
                new = Tensor(at[id(node)], leaf.shape, leaf.dtype)
                leaf.grad = new if leaf.grad is None else (leaf.grad + new).detach()

    def to(self, *where: Any, dtype: Any = None, device: Any = None, copy: bool = False) -> Tensor:
        for one in where:
            dtype = one.dtype if isinstance(one, Tensor) else one if isinstance(one, _DTYPE) else dtype
        if dtype is None or dtype is self.dtype:
            return self.clone() if copy else self
        values = list(map(float, self._values)) if dtype.kind == 2 else self._values
        return Tensor(dtype.rounded(values), self.shape, dtype, (self,), lambda g: [self.dtype.rounded(g)])

    def type_as(self, other: Tensor) -> Tensor:
        return self.to(other.dtype)

    def item(self) -> Any:
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self._values[0]

    def tolist(self) -> Any:
        def nest(values: Numbers, shape: Sequence[int]) -> Any:
            if not shape:
                return values[0]
            step = math.prod(shape[1:])
            return [nest(values[i * step: (i + 1) * step], shape[1:]) for i in range(shape[0])]
        return nest(self._values, self.shape)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return as_index(self.item())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind())

    def __hash__(self) -> int:
        return id(self)

    def __contains__(self, x: object) -> bool:
        return x in self._values

    def __format__(self, how: str) -> str:
        return format(self.item(), how) if self.numel() == 1 else repr(self)

    def __deepcopy__(self, _: object) -> Tensor:
        return Tensor(list(self._values), self.shape, self.dtype).requires_grad_(self.requires_grad)

    def __repr__(self) -> str:
        def rounded(x: Any) -> Any:
            return ([rounded(v) for v in x] if isinstance(x, list)
                    else _Plain(f"{x:.4f}" if isinstance(x, float) else x))
        tail = "" if self.dtype in (float32, int64, bool_) else f", dtype={self.dtype}"
        return f"tensor({rounded(self.tolist())}{tail}{', requires_grad=True' if self._node else ''})"

    # another view of the same numbers

    def _take(self, places: Sequence[int], shape: Sequence[int], *, view: bool = False) -> Tensor:
        size = self.numel()

        def pull(g: Numbers) -> list[Numbers]:
            back = [0.0] * size
            for place, value in zip(places, g, strict=True):
                back[place] += value
            return [back]
        if view:
            own = places if self._at is None else [self._at[i] for i in places]
            return Tensor(self._store, shape, self.dtype, (self,), pull, at=own)
        values = self._values
        return Tensor([values[i] for i in places], shape, self.dtype, (self,), pull)

    def reshape(self, *size: Any) -> Tensor:
        shape = list(sizes_of(size))
        if -1 in shape:
            rest = -math.prod(shape)
            shape[shape.index(-1)] = self.numel() // rest if rest else 0
        if math.prod(shape) != self.numel():
            raise RuntimeError(f"shape '{list(sizes_of(size))}' is invalid for input of size {self.numel()}")
        return Tensor(self._store, shape, self.dtype, (self,), lambda g: [g], at=self._at)

    view = reshape

    def view_as(self, other: Tensor) -> Tensor:
        return self.reshape(other.shape)

    reshape_as = view_as

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        first, last = axis_of(start_dim, self.ndim), axis_of(end_dim, self.ndim)
        middle = math.prod(self.shape[first: last + 1])
        return self.reshape(*self.shape[:first], middle, *self.shape[last + 1:])

    ravel = flatten

    def squeeze(self, dim: int | None = None) -> Tensor:
        dims = range(self.ndim) if dim is None else [axis_of(dim, self.ndim)]
        return self.reshape(tuple(n for d, n in enumerate(self.shape) if d not in dims or n != 1))

    def unsqueeze(self, dim: int) -> Tensor:
        dim = axis_of(dim, self.ndim + 1)
        return self.reshape((*self.shape[:dim], 1, *self.shape[dim:]))

    def permute(self, *dims: Any) -> Tensor:
        order = [axis_of(d, self.ndim) for d in sizes_of(dims)]
        steps = strides_of(self.shape)
        axes = [tuple(k * steps[d] for k in range(self.shape[d])) for d in order]
        return self._take(grid_places(axes), [self.shape[d] for d in order], view=True)

    def transpose(self, a: int, b: int) -> Tensor:
        order = list(range(self.ndim))
        a, b = axis_of(a, self.ndim), axis_of(b, self.ndim)
        order[a], order[b] = b, a
        return self.permute(*order)

    def t(self) -> Tensor:
        return self.T

    def expand(self, *size: Any) -> Tensor:
        sizes = sizes_of(size)
        own = (1,) * (len(sizes) - self.ndim) + self.shape
        shape = tuple(n if m == -1 else m for n, m in zip(own, sizes, strict=True))
        if common_shape(own, shape) != shape:
            raise RuntimeError(f"The shape {list(self.shape)} cannot be expanded to {list(sizes)}")
        return self._take(spread_places(tuple(self.shape), shape), shape, view=True)

    def expand_as(self, other: Tensor) -> Tensor:
        return self.expand(other.shape)

    broadcast_to = expand

    def repeat(self, *size: Any) -> Tensor:
        found, times = self, sizes_of(size)
        for _ in range(len(times) - self.ndim):
            found = found.unsqueeze(0)
        for dim, count in enumerate(times):
            found = cat([found] * count, dim) if count else found.narrow(dim, 0, 0)
        return found

    tile = repeat

    def repeat_interleave(self, repeats: Any, dim: int | None = None) -> Tensor:
        x = self.flatten() if dim is None else self
        dim = 0 if dim is None else dim
        each = repeats.tolist() if isinstance(repeats, Tensor) else [repeats] * x.shape[dim]
        return x.index_select(dim, [i for i, n in enumerate(each) for _ in range(n)])

    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        return self[(slice(None),) * axis_of(dim, self.ndim) + (slice(start, start + length),)]

    def select(self, dim: int, index: int) -> Tensor:
        return self[(slice(None),) * axis_of(dim, self.ndim) + (index,)]

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        return tuple(self.select(dim, i) for i in range(self.shape[dim]))

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
        total = self.shape[dim]
        if isinstance(sizes, int):
            sizes = [min(sizes, total - i) for i in range(0, total, sizes)] or [0]
        if sum(sizes) != total:
            raise RuntimeError(f"split sizes {list(sizes)} do not add up to {total}")
        return tuple(self.narrow(dim, end - n, n) for n, end in zip(sizes, accumulate(sizes), strict=True))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        return self.split(-(-self.shape[dim] // chunks) or 1, dim)

    def flip(self, *dims: Any) -> Tensor:
        key: list[Any] = [slice(None)] * self.ndim
        for d in sizes_of(dims):
            key[axis_of(d, self.ndim)] = list(range(self.shape[d]))[::-1]
        found = self
        for d, one in enumerate(key):
            found = found.index_select(d, one) if isinstance(one, list) else found
        return found

    def roll(self, shifts: int, dims: int | None = None) -> Tensor:
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        count = self.shape[dims]
        return self.index_select(dims, [(i - shifts) % count for i in range(count)])

    def diagonal(self) -> Tensor:
        return self[range(min(self.shape)), range(min(self.shape))]

    # indices

    def _index(self, key: Any) -> tuple[Sequence[int], tuple[int, ...], bool]:
        """The places that a key names, their shape, and whether they are a view."""
        parts: list[Any] = []
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, list | range) or hasattr(part, "tolist") and not isinstance(part, Tensor):
                part = tensor(list(part) if isinstance(part, range) else part)
            if isinstance(part, Tensor) and part.dtype is bool_:
                parts += part.nonzero().unbind(1) if part.shape else [None, 0 if part else slice(0)]
            else:
                parts.append(part)
        used = sum(p is not None and p is not Ellipsis for p in parts)
        if used > self.ndim:
            raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
        if not any(p is Ellipsis for p in parts):
            parts.append(Ellipsis)
        at = next(i for i, p in enumerate(parts) if p is Ellipsis)
        parts[at: at + 1] = [slice(None)] * (self.ndim - used)
        advanced = [p for p in parts if isinstance(p, Tensor)]
        shape = common_shape(*(tuple(p.shape) for p in advanced)) if advanced else ()
        offsets, start, d = [0] * math.prod(shape), 0, 0
        axes: list[Any] = []  # (offsets, shape) of each part of the result; None for the tensors'
        steps = strides_of(self.shape)
        for part in parts:
            if part is None:
                axes.append(((0,), (1,)))
                continue
            size, step = self.shape[d], steps[d]
            d += 1
            if isinstance(part, slice):
                if part.step is not None and part.step < 1:
                    raise ValueError("step must be greater than zero")
                found = range(*part.indices(size))
                axes.append(([i * step for i in found], (len(found),)))
                continue
            if isinstance(part, Tensor):
                numbers = part.expand(shape)._values
                if not axes or axes[-1] is not None:
                    axes.append(None)
            else:
                numbers = [as_index(part)]
            if outside := [i for i in numbers if not -size <= i < size]:
                raise IndexError(f"index {outside[0]} is out of bounds for dimension {d - 1} with size "
                                 f"{size}")
            if isinstance(part, Tensor):
                offsets = [a + i % size * step for a, i in zip(offsets, numbers, strict=True)]
            else:
                start += numbers[0] % size * step
        if axes.count(None):
            place = axes.index(None) if axes.count(None) == 1 else 0
            axes = [a for a in axes if a is not None]
            axes.insert(place, (offsets, shape))
        return (grid_places([a for a, _ in axes], start), tuple(n for _, s in axes for n in s), not advanced)

    def __getitem__(self, key: Any) -> Tensor:
        places, shape, view = self._index(key)
        return self._take(places, shape, view=view)

    def __setitem__(self, key: Any, value: Any) -> None:
        places, shape, _ = self._index(key)
        self._assign(places, tensor_of(value).to(self.dtype).expand(shape))

    def _assign(self, places: Sequence[int], new: Tensor) -> None:
        """These places become new's, in place and in the gradient."""
        old = self._node
        self._check_in_place(new)
        for place, value in zip(places, new._values, strict=True):
            self._store[place if self._at is None else self._at[place]] = value
        if Gradients.on and (old or new._node):
            taken = set(places)
            self._node, self._leaf = Node([old, new._node], lambda g: [
                [0.0 if i in taken else v for i, v in enumerate(g)], [g[i] for i in places]]), False

    def _check_in_place(self, new: Tensor) -> None:
        if Gradients.on and self._leaf and self._node:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")

    def _become(self, new: Tensor) -> Tensor:
        """new's values, in place."""
        self._check_in_place(new)
        if tuple(new.shape) != tuple(self.shape):
            raise RuntimeError(f"output with shape {list(self.shape)} doesn't match the shape "
                               f"{list(new.shape)}")
        self._write(new._values)
        if new._node:
            self._node, self._leaf = new._node, False
        return self

    def index_select(self, dim: int, index: Any) -> Tensor:
        return self[(slice(None),) * axis_of(dim, self.ndim) + (tensor_of(index).long(),)]

    def _along(self, dim: int, index: Tensor) -> list[int]:
        """The places of gather and scatter: index's own place, at `index` along `dim`."""
        dim, steps = axis_of(dim, self.ndim), strides_of(self.shape)
        coordinates = product(*map(range, index.shape))
        return [sum((i % self.shape[dim] if d == dim else c) * steps[d] for d, c in enumerate(at))
                for at, i in zip(coordinates, index._values, strict=True)]

    def gather(self, dim: int, index: Tensor) -> Tensor:
        if any(not 0 <= i < self.shape[dim] for i in index._values):
            raise RuntimeError("index out of bounds in gather")
        return self._take(self._along(dim, index), index.shape)

    def scatter(self, dim: int, index: Tensor, src: Any = None, value: Any = None) -> Tensor:
        given = tensor_of(value if src is None else src).to(self.dtype)
        new = given if given.shape else given.expand(index.shape)
        found = self.clone()
        found._assign(self._along(dim, index), new[tuple(map(slice, index.shape))])
        return found

    def scatter_add(self, dim: int, index: Tensor, src: Tensor) -> Tensor:
        places, values = self._along(dim, index), list(self._values)
        src = src[tuple(map(slice, index.shape))]
        for place, value in zip(places, src._values, strict=True):
            values[place] += value
        return Tensor(self.dtype.rounded(values), self.shape, self.dtype, (self, src),
                      lambda g: [g, [g[i] for i in places]])

    def index_add(self, dim: int, index: Tensor, source: Tensor) -> Tensor:
        shape = [-1 if d == axis_of(dim, self.ndim) else 1 for d in range(self.ndim)]
        return self.scatter_add(dim, index.reshape(shape).expand(source.shape), source)

    def masked_fill(self, mask: Tensor, value: Any) -> Tensor:
        return where(mask, tensor_of(value).to(self.dtype), self)

    def masked_select(self, mask: Tensor) -> Tensor:
        return self[mask]

    def nonzero(self, as_tuple: bool = False) -> Any:
        rows = [at for at, v in zip(product(*map(range, self.shape)), self._values, strict=True) if v]
        found = Tensor([i for row in rows for i in row], (len(rows), self.ndim), int64)
        return found.unbind(1) if as_tuple else found

    def bincount(self, minlength: int = 0) -> Tensor:
        values = self._values
        return tensor([values.count(i) for i in range(max(minlength, max(values, default=-1) + 1))],
                      dtype=int64)

    # reductions

    def _dims(self, dim: Any) -> tuple[int, ...]:
        dims = range(self.ndim) if dim is None else dim if isinstance(dim, tuple | list) else (dim,)
        return tuple(sorted(axis_of(d, self.ndim) for d in dims)) if self.ndim else ()

    def _reduce(self, dim: Any, keepdim: bool, reduce: Callable[[Numbers], Any], slopes: Callable[
            [Numbers, Any], Numbers] | None, kind: dtype) -> Tensor:
        """slopes: (a line's values, what came of it) -> the derivative by each of them."""
        dims, values = self._dims(dim), list(self._values)
        lines = lines_along(tuple(self.shape), dims)
        found = kind.rounded([reduce([values[i] for i in line]) for line in lines])

        def pull(g: Numbers) -> list[Numbers]:
            back = [0.0] * len(values)
            for line, one, came in zip(lines, g, found, strict=True):
                assert slopes is not None
                for i, slope in zip(line, slopes([values[i] for i in line], came), strict=True):
                    back[i] = one * slope
            return [back]
        return Tensor(list(found), shape_without(self.shape, dims, keepdim), kind,
                      (self,) if slopes else (), pull)

    def sum(self, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        x = self if dtype is None else self.to(dtype)
        return x._reduce(dim, keepdim, math.fsum if x.dtype is float64 else sum,
                         lambda row, _: [1.0] * len(row), x.dtype if x.dtype.kind == 2 else int64)

    def mean(self, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        if (dtype or self.dtype).kind != 2:
            raise RuntimeError(f"mean(): could not infer output dtype. Input dtype must be either a floating "
                               f"point or complex dtype. Got: {self.dtype}")
        count = math.prod(self.shape[d] for d in self._dims(dim))
        return self.sum(dim, keepdim, dtype).div(count)

    def var(self, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
            correction: float | None = None) -> Tensor:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        count = math.prod(self.shape[d] for d in self._dims(dim))
        less = count - (int(unbiased) if correction is None else correction)
        apart = self - self.mean(dim, keepdim=True) if dim is not None else self - self.mean()
        return (apart * apart).sum(dim, keepdim) / max(0, less)

    def std(self, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
            correction: float | None = None) -> Tensor:
        return self.var(dim, unbiased, keepdim, correction).sqrt()

    def prod(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        return self._reduce(dim, keepdim, math.prod, lambda row, _: [
            math.prod(row[:i] + row[i + 1:]) for i in range(len(row))],
            self.dtype if self.dtype.kind == 2 else int64)

    def all(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        return self._reduce(dim, keepdim, all, None, bool_)

    def any(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        return self._reduce(dim, keepdim, any, None, bool_)

    def logsumexp(self, dim: Any, keepdim: bool = False) -> Tensor:
        return self._floating()._reduce(dim, keepdim, logsumexp_of, lambda row, whole: [
            exp_of(v - whole) for v in row], self._floating().dtype)

    def _floating(self) -> Tensor:
        return self if self.dtype.kind == 2 else self.float()

    def log_softmax(self, dim: int, dtype: Any = None) -> Tensor:
        x = self._floating().to(dtype)
        return x - x.logsumexp(dim, keepdim=True)

    def softmax(self, dim: int, dtype: Any = None) -> Tensor:
        return self.log_softmax(dim, dtype).exp()

    def amax(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        return self._reduce(dim, keepdim, lambda row: max(row, key=sorting_key), _shared_slope, self.dtype)

    def amin(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        return self._reduce(dim, keepdim, lambda row: nan if any(v != v for v in row) else min(row),
                            _shared_slope, self.dtype)

    def _best(self, dim: int | None, keepdim: bool, best: Callable[[Numbers], int]) -> Tensor:
        return self.detach()._reduce(dim, keepdim, best, None, int64)

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        return self._best(dim, keepdim, lambda row: max(range(len(row)), key=lambda i: sorting_key(row[i])))

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        return self._best(dim, keepdim, lambda row: min(range(len(row)), key=row.__getitem__))

    def _with_indices(self, index: Tensor, dim: int, keepdim: bool) -> Any:
        values = self.gather(dim, index)
        return Picked(values, index) if keepdim else Picked(values.squeeze(dim), index.squeeze(dim))

    def max(self, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, Tensor):
            return self.maximum(dim)
        return self.amax() if dim is None else self._with_indices(self.argmax(dim, True), dim, keepdim)

    def min(self, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, Tensor):
            return self.minimum(dim)
        return self.amin() if dim is None else self._with_indices(self.argmin(dim, True), dim, keepdim)

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
        dim = axis_of(dim, self.ndim)
        values, found = self._values, [0] * self.numel()
        for line in lines_along(tuple(self.shape), (dim,)):
            row = [values[i] for i in line]
            order = sorted(range(len(row)), key=lambda i: sorting_key(row[i]), reverse=descending)
            for place, i in zip(line, order, strict=True):
                found[place] = i
        return Tensor(found, self.shape, int64)

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
        index = self.argsort(dim, descending)
        return Picked(self.gather(dim, index), index)

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        values, index = self.sort(dim, descending=largest)
        return Picked(values.narrow(dim, 0, k), index.narrow(dim, 0, k))

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> Any:
        return self._with_indices(self.argsort(dim).narrow(dim, k - 1, 1), dim, keepdim)

    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return self.flatten().median(0).values
        return self.kthvalue((self.shape[dim] + 1) // 2, dim, keepdim)

    def quantile(self, q: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
        x = self.flatten() if dim is None else self
        axis = 0 if dim is None else dim
        if isinstance(q, Tensor | list) and not (isinstance(q, Tensor) and not q.shape):
            return stack([self.quantile(float(one), dim, keepdim) for one in q])
        ordered, place = x.sort(axis).values, float(q) * (x.shape[axis] - 1)
        low = min(int(place), max(x.shape[axis] - 2, 0))
        first = ordered.narrow(axis, low, 1)
        last = ordered.narrow(axis, min(low + 1, x.shape[axis] - 1), 1)
        found = first + (last - first) * (place - low)
        return found if keepdim and dim is not None else found.squeeze(axis)

    def cumsum(self, dim: int) -> Tensor:
        lines = lines_along(tuple(self.shape), self._dims(dim))
        values = self._values
        kind = self.dtype if self.dtype.kind == 2 else int64

        def along(numbers: Numbers, step: int) -> Numbers:
            found = [0 * v for v in numbers]
            for line in lines:
                sums = accumulate(numbers[i] for i in line[::step])
                for place, value in zip(line[::step], sums, strict=True):
                    found[place] = value
            return found
        return Tensor(kind.rounded(along(values, 1)), self.shape, kind, (self,), lambda g: [along(g, -1)])

    def cumprod(self, dim: int) -> Tensor:
        parts = self.unbind(dim)
        return stack(list(accumulate(parts, lambda a, b: a * b)), dim)

    def norm(self, p: float = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
        return (self.abs() ** p).sum(dim, keepdim) ** (1 / p)

    def unique(self) -> Tensor:
        return tensor(sorted(set(self._values)), dtype=self.dtype)

    # numbers

    def nan_to_num(self, nan: float = 0.0) -> Tensor:
        low, top = finfo(self.dtype).min, finfo(self.dtype).max
        return pointwise(lambda v: nan if v != v else min(max(v, low), top), (self,),
                    (lambda v, _: float(math.isfinite(v)),))

    def clamp(self, min: Any = None, max: Any = None) -> Tensor:
        if isinstance(min, Tensor) or isinstance(max, Tensor):
            low = self if min is None else self.maximum(min)
            return low if max is None else low.minimum(max)
        low, high = -inf if min is None else min, inf if max is None else max
        return pointwise(lambda v: bounded(v, low, high), (self,), (lambda v, _: float(low <= v <= high),),
                    kind_of([self, *(b for b in (min, max) if b is not None)]))

    clip = clamp

    def clamp_min(self, low: Any) -> Tensor:
        return self.clamp(min=low)

    def clamp_max(self, high: Any) -> Tensor:
        return self.clamp(max=high)

    def round(self, decimals: int = 0) -> Tensor:
        return pointwise(lambda v: round(v, decimals) if math.isfinite(v) else v, (self,), (lambda *_: 0.0,))

    def equal(self, other: Tensor) -> bool:
        return self.shape == other.shape and self._values == other._values

    def __matmul__(self, other: Tensor) -> Tensor:
        a, b = self, other
        if not (a.ndim and b.ndim):
            raise RuntimeError("both arguments to matmul need to be at least 1D")
        if a.dtype is not b.dtype:
            raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
        wide_a, wide_b = a if a.ndim > 1 else a.unsqueeze(0), b if b.ndim > 1 else b.unsqueeze(1)
        if wide_a.shape[-1] != wide_b.shape[-2]:
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({list(a.shape)} and "
                               f"{list(b.shape)})")
        found = (wide_a.unsqueeze(-1) * wide_b.unsqueeze(-3)).sum(-2)
        found = found if a.ndim > 1 else found.squeeze(-2)
        return found if b.ndim > 1 else found.squeeze(-1)

    matmul = mm = mv = bmm = dot = __matmul__

    def __invert__(self) -> Tensor:
        return pointwise(lambda v: not v if self.dtype is bool_ else ~v, (self,), None, self.dtype)

    def __rpow__(self, other: Any) -> Tensor:
        return tensor_of(other) ** self

    def __rmatmul__(self, other: Tensor) -> Tensor:
        return other @ self

    def new_zeros(self, *size: Any, dtype: Any = None) -> Tensor:
        return full(sizes_of(size), 0, dtype=dtype or self.dtype)

    def new_ones(self, *size: Any, dtype: Any = None) -> Tensor:
        return full(sizes_of(size), 1, dtype=dtype or self.dtype)

    def new_full(self, size: Any, value: Any, dtype: Any = None) -> Tensor:
        return full(size, value, dtype=dtype or self.dtype)

    def new_tensor(self, data: Any, dtype: Any = None) -> Tensor:
        return tensor(data, dtype=dtype or self.dtype)


class _Plain(str):
    def __repr__(self) -> str:
        return str(self)


_DTYPE = dtype
Picked = namedtuple("Picked", "values indices")


def _shared_slope(row: Numbers, best: Any) -> Numbers:
    """The slope of a largest or smallest: shared by all that are equal to it."""
    return [float(v == best) / row.count(best) for v in row] if best == best else [nan] * len(row)


def tensor_of(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else tensor(x)


def pointwise(f: Callable[..., Any], xs: Sequence[Any], slopes: Sequence[Callable[..., float]] | None,
         kind: dtype | None = None) -> Tensor:
    """f at each place, of tensors and numbers. slopes: the derivative by each argument, of (*arguments,
    result); None for none. kind: of the result, that of the arguments if not said."""
    kind = kind_of(xs) if kind is None else kind
    shapes = {tuple(x.shape) for x in xs if isinstance(x, Tensor)}
    shape = shapes.pop() if len(shapes) == 1 else common_shape(*shapes)
    maps: list[tuple[int, ...] | None] = []
    columns: list[Iterable[Any]] = []
    for x in xs:
        if isinstance(x, Tensor):
            places = None if x.shape == shape else spread_places(tuple(x.shape), shape)
            values = x._values
            if kind.kind == 2 and x.dtype.kind < 2:  # whole numbers count as the floats they are rounded to
                values = kind.rounded(list(map(float, values)))
            columns.append(values if places is None else [values[i] for i in places])
        else:
            places = None
            columns.append(repeat(kind.rounded([float(x)])[0] if kind.kind == 2 else x))
        maps.append(places)
    found = kind.rounded(list(map(f, *columns)))
    if not (slopes and Gradients.on and any(isinstance(x, Tensor) and x._node for x in xs)):
        return Tensor(found, shape, kind)
    columns = [list(c) if isinstance(c, list) else c for c in columns]  # as they are now
    parents = [x if isinstance(x, Tensor) else Tensor([x], (), float64) for x in xs]
    result = list(found)

    def pull(g: Numbers) -> list[Numbers | None]:
        back: list[Numbers | None] = []
        for x, places, slope in zip(parents, maps, slopes, strict=True):
            if not x._node:
                back.append(None)
                continue
            own = [one * s if s else 0.0 for one, s in zip(g, map(slope, *columns, result), strict=False)]
            if places is not None:
                total = [0.0] * x.numel()
                for place, value in zip(places, own, strict=True):
                    total[place] += value
                own = total
            back.append(x.dtype.rounded(own))
        return back
    return Tensor(found, shape, kind, parents, pull)


def float_kind(xs: Sequence[Any]) -> dtype:
    kind = kind_of(xs)
    return kind if kind.kind == 2 else float32


def define_methods() -> dict[str, Callable[..., Any]]:
    """The functions of the tables of numbers.py, as methods and as functions."""
    made: dict[str, Callable[..., Any]] = {}
    for name, (f, slope) in UNARY.items():
        made[name] = lambda x, f=f, s=slope: pointwise(f, (x,), (s,), float_kind((x,)))
    for name, (f, slope) in SAME.items():
        made[name] = lambda x, f=f, s=slope: pointwise(f, (x,), (s,))
    for name, test in TESTS.items():
        made[name] = lambda x, f=test: pointwise(f, (x,), None, bool_)
    for name, (f2, *slopes) in BINARY.items():
        made[name] = lambda a, b, f=f2, s=slopes: pointwise(f, (a, b), s)
    for name, (f2, *slopes) in FLOATS.items():
        made[name] = lambda a, b, f=f2, s=slopes: pointwise(f, (a, b), s, float_kind((a, b)))
    for name, f2 in COMPARE.items():
        made[name] = lambda a, b, f=f2: pointwise(f, (a, b), None, bool_)
    for name, f2 in BITS.items():
        made[name] = lambda a, b, f=f2: pointwise(f, (a, b), None)
    made |= {"true_divide": made["div"], "divide": made["div"], "multiply": made["mul"],
             "subtract": made["sub"], "negative": made["neg"], "fmod": made["remainder"]}
    for name, function in made.items():
        setattr(Tensor, name, function)
    for short, name in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "mod": "remainder",
                        "floordiv": "floor_divide", "and": "bitwise_and", "or": "bitwise_or",
                        "xor": "bitwise_xor"}.items():
        function = made[name]
        setattr(Tensor, f"__{short}__", function)
        setattr(Tensor, f"__r{short}__", lambda a, b, f=function: f(b, a))
        setattr(Tensor, f"__i{short}__", lambda a, b, f=function: a._become(f(a, b)))
    for short in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Tensor, f"__{short}__", made[short])
    setattr(Tensor, "__pow__", made["pow"])  # noqa: B010
    setattr(Tensor, "__neg__", made["neg"])  # noqa: B010
    setattr(Tensor, "__abs__", made["abs"])  # noqa: B010
    for name in ("add", "sub", "mul", "div", "clamp", "exp", "abs", "masked_fill", "scatter", "scatter_add",
                 "index_add", "sqrt", "neg"):
        setattr(Tensor, f"{name}_", lambda x, *given, name=name, **named: x._become(
            getattr(x, name)(*given, **named)))
    setattr(Tensor, "zero_", lambda x: x._become(zeros_like(x)))  # noqa: B010
    setattr(Tensor, "fill_", lambda x, v: x._become(full_like(x, v)))  # noqa: B010
    setattr(Tensor, "copy_", lambda x, y: x._become(y.expand(x.shape)))  # noqa: B010
    for name, kind in {"float": float32, "double": float64, "int": int32, "long": int64, "bool": bool_,
                       "half": float16, "bfloat16": bfloat16}.items():
        setattr(Tensor, name, lambda x, kind=kind: x.to(kind))
    for name in ("sum", "mean", "std", "var", "prod", "all", "any", "logsumexp", "log_softmax", "softmax",
                 "amax", "amin", "argmax", "argmin", "max", "min", "argsort", "sort", "topk", "kthvalue",
                 "median", "quantile", "cumsum", "cumprod", "clamp", "clip", "round", "flip", "roll",
                 "gather", "scatter", "scatter_add", "index_select", "masked_select", "nonzero", "bincount",
                 "reshape",
                 "squeeze", "unsqueeze", "permute", "transpose", "flatten", "unbind", "split", "chunk",
                 "matmul", "mm", "mv", "bmm", "dot", "equal", "nan_to_num", "norm", "clone", "detach",
                 "numel", "repeat_interleave", "unique", "t", "masked_fill", "index_add", "tile",
                 "broadcast_to"):
        made[name] = lambda x, *given, name=name, **named: getattr(x, name)(*given, **named)
    return made


# what the methods above make tensors with

def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    values: Numbers = []

    def shape_of(x: Any) -> tuple[int, ...]:
        if isinstance(x, Tensor):
            values.extend(x._values)
            return tuple(x.shape)
        if hasattr(x, "tolist"):
            x = x.tolist()
        if isinstance(x, list | tuple | range):
            shapes = {shape_of(one) for one in x}
            if len(shapes) > 1:
                raise ValueError("expected sequences of equal length")
            return (len(x), *(shapes.pop() if shapes else ()))
        if not isinstance(x, int | float):
            raise TypeError(f"not a sequence of numbers: {type(x).__name__}")
        values.append(x)
        return ()
    shape = shape_of(data)
    if dtype is None:
        dtype = data.dtype if isinstance(data, Tensor) else (
            bool_ if values and all(isinstance(v, bool) for v in values)
            else int64 if values and all(isinstance(v, int) for v in values) else _first_kind(data))
    found = Tensor(dtype.rounded(list(map(float, values)) if dtype.kind == 2 else list(values)), shape, dtype)
    return found.requires_grad_() if requires_grad else found


def _first_kind(data: Any) -> dtype:
    """The dtype of floats: that of the tensors among them, else float32."""
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return data.dtype if isinstance(data, Tensor) and data.dtype.kind == 2 else float32


def full(size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None,
         requires_grad: bool = False) -> Tensor:
    shape = sizes_of(size if isinstance(size, tuple | list) else (size,))
    dtype = dtype or kind_of([fill_value])
    found = Tensor(dtype.rounded([float(fill_value) if dtype.kind == 2 else fill_value] * math.prod(shape)),
                   shape, dtype)
    return found.requires_grad_() if requires_grad else found


def zeros_like(x: Tensor, dtype: Any = None, device: Any = None) -> Tensor:
    return full_like(x, 0, dtype)


def full_like(x: Tensor, fill_value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return full(x.shape, fill_value, dtype=dtype or x.dtype)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    tensors = list(tensors)
    kind = tensors[0].dtype
    for x in tensors[1:]:
        kind = promote_types(kind, x.dtype)
    parts = [x.to(kind) for x in tensors if tuple(x.shape) != (0,)] or [tensors[0]]
    dim = axis_of(dim, parts[0].ndim)
    rest = {(*x.shape[:dim], *x.shape[dim + 1:]) for x in parts}
    if len(rest) > 1:
        raise RuntimeError(f"Sizes of tensors must match except in dimension {dim}")
    shape = list(parts[0].shape)
    shape[dim] = sum(x.shape[dim] for x in parts)
    values, sources, start = [0.0] * math.prod(shape), [], 0
    steps = strides_of(tuple(shape))
    for x in parts:
        axes = [tuple((k + (start if d == dim else 0)) * steps[d] for k in range(n))
                for d, n in enumerate(x.shape)]
        places = grid_places(axes)
        for place, value in zip(places, x._values, strict=True):
            values[place] = value
        sources.append(places)
        start += x.shape[dim]
    return Tensor(values, shape, kind, parts, lambda g: [[g[i] for i in places] for places in sources])


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    tensors = list(tensors)
    if len({tuple(x.shape) for x in tensors}) > 1:
        raise RuntimeError("stack expects each tensor to be equal size")
    return cat([x.unsqueeze(axis_of(dim, x.ndim + 1)) for x in tensors], axis_of(dim, tensors[0].ndim + 1))


def where(condition: Tensor, a: Any = None, b: Any = None) -> Any:
    if a is None:
        return condition.nonzero(as_tuple=True)
    kind = kind_of([a, b])
    return pointwise(lambda c, x, y: x if c else y, (condition, a, b),
                (lambda *_: 0.0, lambda c, *_: float(bool(c)), lambda c, *_: float(not c)), kind)


FUNCTIONS = define_methods()
