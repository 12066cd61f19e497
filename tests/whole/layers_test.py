"""The table of layers, held against the imports: they go down only,
and peers on a layer never import each other."""

import ast
import functools
import os
import subprocess
import sys

import counts
import pytest
from paths import ROOT

HOME = ROOT / "postgrad"
ROOMS = ("system", "maths", "records", "methods", "runs", "models", "rewards", "sampling", "training", "data",
         "evaluation", "resolve", "serving", "recipes", "studio", "cli", "__main__")  # imports go down only
# the root imports nothing
LAYER = {name: number for number, name in enumerate(ROOMS)} | {"__init__": -1}
FILES = sorted(p for p in HOME.rglob("*.py") if not p.name.endswith("_test.py"))


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


def part(path):
    """The module or package of postgrad that a file belongs to."""
    return path.relative_to(HOME).parts[0].removesuffix(".py")


def imports(path):
    """Every module that a file imports, wherever in the file: ("postgrad.maths.kl", line)."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = ["postgrad", *path.relative_to(HOME).parent.parts]
            base = ".".join(here[: len(here) + 1 - node.level]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            names = [f".{alias.name}" for alias in node.names] if module == "postgrad" else [""]
            yield from ((module + name, node.lineno) for name in names)


@functools.cache
def imports_of(path):
    return list(imports(path))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(HOME)))
def test_imports_go_down_only(path):
    mine = part(path)
    assert mine in LAYER, (f"{path.name} has no layer: give {mine!r} a place in the table, here "
                           "and in DESIGN.md")
    for name, line in imports_of(path):
        if name.split(".")[0] != "postgrad" or name in ("postgrad.__version__", "postgrad.system.renamed"):
            continue
        other = name.split(".")[1] if "." in name else "__init__"
        assert other in LAYER, f"{path}:{line} imports {name}, which has no layer"
        assert other == mine or LAYER[other] < LAYER[mine], f"{path}:{line}: {mine} may not import {other}"


def test_the_table_names_what_exists():
    names = {part(p) for p in FILES}
    assert {"maths", "records", "training", "recipes"} <= names and len(FILES) > 40
    assert LAYER.keys() == names, "the table names what is there, and nothing else"
    declared = ast.parse((HOME / "__init__.py").read_text())
    lazy = next(n.value for n in ast.walk(declared)
                if isinstance(n, ast.Assign) and n.targets[0].id == "_HOMES")
    assert {home.partition(":")[0].split(".")[0] for home in ast.literal_eval(lazy).values()} <= names


def module_of(path):
    parts = ("postgrad", *path.relative_to(HOME).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def at_the_top(path, known):
    """The modules of the package that a file needs before it can be imported."""
    for node in tree_of(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("postgrad"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def test_no_module_needs_itself():
    known = {module_of(p) for p in FILES}
    needs = {module_of(p): set(at_the_top(p, known)) & known - {module_of(p)} for p in FILES}
    done = set()
    while ready := {name for name, others in needs.items() if name not in done and others <= done}:
        done |= ready
    assert done == known, f"these import each other: {sorted(known - done)}"


def test_no_circle_of_modules_with_imports_inside_functions():
    known = counts.modules()
    trees = {name: tree_of(path) for name, path in known.items()}
    assert counts.circles(known, trees) == []


def test_a_circle_inside_functions_is_found(tmp_path):
    known = {"postgrad.a": tmp_path / "a.py", "postgrad.b": tmp_path / "b.py"}
    trees = {"postgrad.a": ast.parse("def f():\n    from postgrad.b import g"),
             "postgrad.b": ast.parse("from postgrad import a")}
    assert counts.circles(known, trees) == ["postgrad.a", "postgrad.b"]


@pytest.mark.parametrize("path", [p for p in FILES if part(p) == "maths"], ids=lambda p: p.name)
def test_maths_needs_torch_and_numpy_alone(path):
    allowed = sys.stdlib_module_names | {"torch", "numpy", "postgrad"}
    assert {name.split(".")[0] for name, _ in imports_of(path)} <= allowed


@pytest.mark.parametrize("name", ["system", "runs", "runs.report", "runs.explain", "runs.doctor",
                                  "runs.ledger", "studio.exercises"])
def test_readers_of_runs_need_no_torch(name):
    code = (f"import sys, postgrad.{name}; print(*(m for m in ('torch', 'numpy', 'tokenizers') if m "
            "in sys.modules))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HOME.parent,
                          check=True)
    assert done.stdout.strip() == ""


HEAVY = ("torch._dynamo", "torch._inductor", "torch.distributed.fsdp", "torch.nn.attention.varlen", "sympy",
         "transformers", "huggingface_hub", "starlette", "tensorboard", "rich")


def test_a_plain_run_loads_no_compiler(tmp_path):
    """A short run should start at once: torch's compiler alone, with sympy, takes seconds to be loaded."""
    words = ("train grpo:words steps=2 prompts=4 prompts_per_step=2 group_size=2 rollouts.max_new_tokens=8 "
             "evaluation.problems=2 evaluation.every=1 device=cpu --run run --json").split()
    code = (f"import sys; from postgrad.cli import main; assert main({words}) == 0; "
            f"print(*(m for m in {HEAVY} if m in sys.modules))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
                          env=os.environ | {"PYTHONPATH": str(HOME.parent)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""


ALLOWED = {
    "maths/logprob.py": {"a next-token shift"},
    # the programs inside the jail, which no module of the package may import
    "rewards/sandbox/child.py": {"exec"},
    "studio/cells/jobs.py": {"exec"},
    # its own file without a name, which nobody else can open
    "system/disk_list.py": {"pickle"},
    "system/rank_messages.py": {"pickle"},  # names no class but those of its lists
}
PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def is_shift(node):
    """x[:, 1:] or x[:, :-1]: the next-token shift, which lives in maths/logprob.py alone."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple)
            and len(node.slice.elts) > 1):
        return False
    return [ast.unparse(x) for x in node.slice.elts[:2]] in ([":", "1:"], [":", ":-1"])


def faults(tree):
    """What may not stand in the package: shifts, and ways in which a file of somebody else's
    could run as code."""
    for node in ast.walk(tree):
        if is_shift(node):
            yield "a next-token shift"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("eval", "exec", "torch.load"):
            yield ast.unparse(node.func)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = ({alias.name.split(".")[0] for alias in node.names}
                     | {(getattr(node, "module", "") or "").split(".")[0]})
            yield from sorted(names & PICKLES)
            if getattr(node, "module", None) == "torch" and "load" in names:
                yield "torch.load"
        if isinstance(node, ast.keyword | ast.arg) and node.arg == "trust_remote_code":
            yield node.arg


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(HOME)))
def test_what_may_not_stand_in_the_package(path):
    assert set(faults(tree_of(path))) == ALLOWED.get(path.relative_to(HOME).as_posix(), set())


def test_what_runs_code_is_never_imported():
    programs = ("postgrad.rewards.sandbox.child", "postgrad.studio.cells.child")
    assert not [p for p in FILES for name, _ in imports_of(p) if name.startswith(programs)]


@pytest.mark.parametrize(("code", "wanted"), [
    ("x[:, 1:]", "a next-token shift"), ("f(y)[:, :-1].sum()", "a next-token shift"),
    ("x[:, : -1, None]", "a next-token shift"), ("x = eval(text)", "eval"), ("exec (code)", "exec"),
    ("torch.load(path)", "torch.load"), ("from torch import load", "torch.load"),
    ("import pickle", "pickle"), ("from pickle import loads", "pickle"),
    ("f(trust_remote_code=True)", "trust_remote_code"),
])
def test_a_fault_is_found(code, wanted):
    assert list(faults(ast.parse(code))) == [wanted]


@pytest.mark.parametrize("code", ["x[:, -1:]", "x[1:]", "x[:, 1]", "x[:, :1]", "model.eval()",
                                  "re.compile(x)", "json.load(f)"])
def test_what_only_looks_like_one(code):
    assert not list(faults(ast.parse(code)))
