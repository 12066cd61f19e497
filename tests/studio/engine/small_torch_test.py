"""The small torch against torch: the same expression, the same value, dtype, shape and gradient."""

import subprocess
import sys

import pytest
import torch
from paths import ROOT

from postgrad.studio.engine.bundle import bundled_files
from postgrad.studio.engine.small_torch import install

install("small_torch")
small = sys.modules["small_torch"]

# x, y: [2, 3] floats; p: chances; i: [2, 3] whole numbers; m: a mask; v: [4]; none of them at a corner
VALUES = {"x": [[0.5, -1.25, 2.0], [1.5, 0.3, -0.7]], "y": [[0.2, 0.9, -0.4], [2.2, -1.1, 0.6]],
          "p": [[0.2, 0.5, 0.3], [0.1, 0.6, 0.3]], "v": [0.3, -0.2, 1.7, 0.9]}
EXPRESSIONS = """
x + y; x - 2; 3 - x; x * y; x / y; 1 / x; x ** 2; x.abs() ** 0.5; 2 ** x; -x; x % 2; x.detach() // 0.3
x @ y.T; v @ v; x @ x[0]; x.exp(); p.log(); p.sqrt(); x.sigmoid(); x.tanh(); x.expm1(); p.log1p(); x.abs()
x.sign(); x.square(); x.relu(); torch.nn.functional.logsigmoid(x); torch.nn.functional.softplus(x)
torch.nn.functional.pad(x, (1, 2)); x.floor(); torch.nn.functional.cross_entropy(x, torch.tensor([2, 0]))
torch.nn.functional.one_hot(torch.tensor([1, 0, 2]), 3); torch.xlogy(p, p); torch.logaddexp(x, y)
torch.maximum(x, y); torch.minimum(x, y); x.clamp(-0.5, 1.0); x.clamp(min=0.4); x.sum(); x.sum(1)
x.sum(0, keepdim=True); x.mean(); x.mean(-1); x.std(); x.std(1, correction=0); x.var(0, unbiased=False)
x.std(unbiased=False); x.prod(1); x.logsumexp(1); x.softmax(-1); x.log_softmax(0); x.max(); x.max(1).values
x.max(1).indices; x.min(0).values; x.amax(1, keepdim=True); x.amin(0); x.argmax(); x.argmax(1); x.argmin(0)
x.cumsum(1); x.cumprod(1); x.norm(); x.median(1).values; v.median(); v.quantile(0.3)
x.quantile(0.5, dim=1, keepdim=True); x.kthvalue(2, 1).values; x.sort(1).values
x.sort(1, descending=True).indices; v.argsort(); v.topk(2).values; x.flip(1); x.roll(1, 1); x.T; x.t()[0]
x[0]; x[:, 1:]; x[..., -1]; x[None]; x[:, None, :]; x[[1, 0], [0, 2]]; x[x > 0]; x[:, [2, 0]]; x[1, 2]
x[torch.tensor([1, 1])]; x.reshape(3, 2); x.view(-1); x.flatten(); x.unsqueeze(1); x[:1].squeeze(0)
x.expand(2, 2, 3); x.repeat(2, 1); x.repeat_interleave(2, 0); x.unbind(1)[1]; x.split([1, 2], 1)[1]
x.chunk(2, 1)[0]; x.permute(1, 0); x.transpose(0, 1); x.gather(1, torch.tensor([[0], [2]]))
x.scatter(1, torch.tensor([[0], [2]]), 9.0); x.index_select(1, torch.tensor([2, 0]))
x.scatter_add(1, torch.tensor([[0, 0], [2, 1]]), y[:, :2]); x.masked_fill(x > 0, 0.5)
torch.where(x > 0, x, y); torch.where(x > 0, x, 0.0); torch.cat([x, y], 1); torch.stack([x, y], 1)
torch.tril(x); torch.outer(v, v); torch.diff(v); torch.linalg.vecdot(x, y); torch.arange(5)
torch.arange(1, 2, 0.25); torch.linspace(0, 1, 5); torch.eye(2); torch.zeros(2, 3); torch.ones(2).bool()
torch.full((2,), 3); torch.full_like(x, 2.0); torch.zeros_like(x, dtype=torch.bool)
torch.tensor([1, 2]) / 2; torch.tensor(3) * x; torch.tensor([1, 2]) * 0.5; torch.tensor([True, False]).sum()
torch.tensor([1, 2]) + True; (x > 0) & (y > 0); ~(x > 0); (x > 0) | (y > 0); x == x; x != y; x >= 0.5
(x > 0).any(1); (x > 0).all(); (x > 0).nonzero(); (x > 0).int(); x.long(); x.double()
torch.tensor([0.1, 0.2]); torch.tensor([0.1]) + 0.2
torch.tensor(0.1, dtype=torch.float64) + torch.tensor([0.2]); torch.tensor([1, 2]).float().mean()
torch.isfinite(torch.tensor([1.0, torch.inf, torch.nan])); torch.tensor([0.0]).log()
torch.tensor([1.0]) / 0; torch.tensor([torch.nan, torch.inf, 1.0]).nan_to_num(); torch.tensor([-1.0]).sqrt()
x.new_zeros(2); torch.rand(5, generator=g); torch.rand(3, generator=g, dtype=torch.float64)
torch.randint(7, (6,), generator=g); torch.randint(2, 9, (6,), generator=g); torch.randn(7, generator=g)
torch.randn(37, generator=g); torch.randperm(9, generator=g)
torch.multinomial(p, 6, replacement=True, generator=g); torch.tensor([[1, 2], [3, 4]]).cumsum(0)
torch.tensor([3, 1]).max(); torch.bincount(torch.tensor([0, 2, 2])); (x * 10).round()
x.to(torch.float64).sum()
"""
EACH = [e.strip() for line in EXPRESSIONS.strip().split("\n") for e in line.split(";")]


def value_of(torch, expression, dtype, gradients):
    """A value, and the gradients of its sum by x, y, p and v."""
    names = {name: torch.tensor(data, dtype=getattr(torch, dtype), requires_grad=gradients)
             for name, data in VALUES.items()}
    value = eval(expression, {"torch": torch, "g": torch.Generator().manual_seed(7)} | names)
    slopes = []
    if gradients and value.requires_grad:
        slopes = torch.autograd.grad((value * value).sum(), list(names.values()), allow_unused=True)
    return value, slopes


@pytest.mark.parametrize("expression", EACH)
def test_it_says_what_torch_says(expression):
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-6)):
        for gradients in (False, True):
            ours, our_slopes = value_of(small, expression, dtype, gradients)
            theirs, slopes = value_of(torch, expression, dtype, gradients)
            assert (tuple(ours.shape), str(ours.dtype)) == (tuple(theirs.shape), str(theirs.dtype))
            within = 1e-6 if theirs.dtype == torch.float32 else tolerance
            assert torch.allclose(torch.tensor(ours.tolist(), dtype=torch.float64), theirs.detach().double(),
                                  within, within, equal_nan=True), (ours, theirs)
            assert ours.requires_grad == theirs.requires_grad
            for one, other in zip(our_slopes, slopes, strict=True):
                assert (one is None) == (other is None)
                assert one is None or torch.allclose(torch.tensor(one.tolist(), dtype=other.dtype), other,
                                                     tolerance, tolerance, equal_nan=True), (one, other)


THREE_STEPS = """
for _ in range(3):
    o.zero_grad(); ((x - y) ** 2).sum().backward(); o.step()
value = x"""
STEPS = {
    "views share their numbers": "x[0][1] = 5; x[:, 2] += 1; x.T[0] *= 2; value = x",
    "what was computed before keeps its gradient": "z = x * 1; w = z + 2; z[0] = y[0]; value = w * w + z",
    "a slice that is assigned has its source's gradient":
        "z = torch.zeros_like(x); z[:, 0] = y[:, 1]; value = (z * x).sum()",
    "numbers that are added in place": "z = x * 2; z += y; z *= x; value = z",
    "no gradient is kept": "import contextlib\nwith torch.no_grad(): z = x * 2\nvalue = z * y",
    "detached": "value = (x.detach() * y).exp()",
    "data": "x.data -= 0.5 * y.data; value = x * x",
    "descent": "o = torch.optim.SGD([x], 0.1, momentum=0.9)" + THREE_STEPS,
    "Adam": "o = torch.optim.Adam([x], 0.1)" + THREE_STEPS,
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_what_changes_in_place(steps):
    found = []
    for which in (small, torch):
        leaf = {"x": "x[" not in steps, "y": True}
        names = {name: which.tensor(data, dtype=which.float64, requires_grad=leaf.get(name, False))
                 for name, data in VALUES.items()} | {"torch": which}
        exec(steps, names)
        value = names["value"]
        leaves = [names[n] for n in "xy" if names[n].requires_grad]
        slopes = which.autograd.grad(value.sum(), leaves, allow_unused=True) if value.requires_grad else []
        found.append([value.tolist(), *(s if s is None else s.tolist() for s in slopes)])
    assert len(found[0]) == len(found[1])
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.tensor(ours).sub(torch.tensor(theirs)).abs().max() < 1e-9


@pytest.mark.parametrize("code", ["torch.fft", "torch.tensor(1.0).svd()", "torch.nn.Linear(2, 3)",
                                  "torch.zeros(2).half()", "torch.optim.LBFGS", "torch.tensor([1.0]).numpy()",
                                  "torch.zeros(1).cuda()"])
def test_what_it_has_not_says_where_there_is_one(code):
    with pytest.raises(AttributeError, match=r"small torch has no .*postgrad studio"):
        eval(code, {"torch": small})


@pytest.mark.parametrize(("code", "kind"), [
    ("torch.zeros(2) + torch.zeros(3)", RuntimeError),
    ("torch.zeros(2, 3) @ torch.zeros(2, 3)", RuntimeError),
    ("torch.zeros(2)[5]", IndexError), ("torch.zeros(2, 2).sum(3)", IndexError),
    ("bool(torch.zeros(2))", RuntimeError),
    ("torch.zeros(2).reshape(3)", RuntimeError), ("torch.zeros(2).item()", RuntimeError),
    ("torch.tensor([1, 2]).mean()", RuntimeError), ("torch.tensor([[1], [1, 2]])", ValueError),
    ("torch.ones(2, requires_grad=True).backward()", RuntimeError),
    ("torch.ones(2).sum().backward()", RuntimeError),
    ("torch.ones(2, requires_grad=True).add_(1)", RuntimeError)])
def test_what_torch_refuses_it_refuses(code, kind):
    for which in (small, torch):
        with pytest.raises(kind):
            eval(code, {"torch": which})


MATHS = """
import sys, types
sys.path.insert(0, sys.argv[1])
import torch

def assert_close(got, wanted, rtol=1.3e-6, atol=1e-5, **_):
    got, wanted = (x if isinstance(x, torch.Tensor) else torch.tensor(x) for x in (got, wanted))
    assert got.shape == wanted.shape and torch.allclose(got, wanted, rtol, atol, equal_nan=True), got

torch.testing = sys.modules["torch.testing"] = types.SimpleNamespace(assert_close=assert_close)
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--tb=line", "--rootdir",
                      *sys.argv[1:]]))
"""


def test_the_tests_of_the_maths_pass_on_it(tmp_path):
    """All that need no numpy; those that fail ask for something it says it has not, and never get another
    number."""
    for name, text in bundled_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    tests = [path for path in (ROOT / "postgrad" / "maths").glob("*_test.py")
             if path.stem not in ("noise_test", "packing_test")]
    for path in tests:
        (tmp_path / "postgrad" / "maths" / path.name).write_text(path.read_text())
    done = subprocess.run([sys.executable, "-c", MATHS, str(tmp_path), str(tmp_path / "postgrad" / "maths")],
                          capture_output=True, text=True, cwd=tmp_path)
    errors = [line for line in done.stdout.splitlines() if line.startswith("E   ")]
    assert all("small torch has no" in line for line in errors), "\n".join(errors)
    failed, passed = (int(word) for word in done.stdout.splitlines()[-1].replace(" failed,", "").split()[:2])
    assert failed == len(errors) and passed > 30 * failed, done.stdout[-2000:]
