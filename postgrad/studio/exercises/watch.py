"""What an answer does besides computing: the library it uses, the processes and sockets it asks for.

An answer may not use the library that judges it, beyond what its exercise allows: neither by an import, nor
through a module that is loaded already, nor as a copy. All three are seen here for every exercise alike.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from postgrad.system.user_code import parse_source

PACKAGE = Path(__file__).parents[2]
INSIDE = f"{PACKAGE}/"
DOORS = (f"{INSIDE}studio/exercises/", f"{INSIDE}__init__.py")  # what an answer is handed; imports
ANSWER = "<answer>"
LONG = 30  # nodes of a function's body: shorter ones are alike by chance
OUTSIDE = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile",
           "os.kill", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "subprocess.Popen", "pty.spawn",
           "shutil.rmtree", "socket.__new__", "socket.connect", "socket.bind", "urllib.Request")


class OutsideCall(PermissionError):
    """An answer asked for a process, a socket or a change of files."""


class Watch:
    """library: the functions of the library that the answer called, by full name; outside: the lines at
    which it asked for processes, sockets or files."""

    def __init__(self, allowed: tuple[str, ...]):
        self.allowed = allowed
        self.library: list[str] = []
        self.outside: list[int] = []

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Notes a function of the library that the answer calls, itself or through the standard library."""
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(INSIDE) or path.startswith(DOORS):
            return
        before = frame.f_back
        while before is not None and before.f_code.co_filename != ANSWER:
            if before.f_code.co_filename.startswith(INSIDE):
                return  # the library calls itself, or the judge calls it
            before = before.f_back
        name = full_name(path, frame.f_code.co_qualname)
        if before is not None and name not in self.allowed and name not in self.library and "<" not in name:
            self.library.append(name)


_WATCHES: list[Watch] = []  # the one that is on, last


def audit(event: str, _: object) -> None:
    """Python's own hook, before it does what is asked: os.system, for one, raises nothing in a jail."""
    if _WATCHES and event in OUTSIDE and (line := running_line()):
        _WATCHES[-1].outside.append(line)
        raise OutsideCall(event)


@cache
def install_audit() -> None:
    sys.addaudithook(audit)


def running_line() -> int:
    """The line of the answer that is running, or 0; what an import does is not the answer's doing."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != ANSWER:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return 0
        frame = frame.f_back
    return frame.f_lineno if frame else 0


@contextmanager
def watching(watch: Watch, *, calls: bool) -> Iterator[None]:
    """calls: those of the library too, which costs time at every call that an answer makes."""
    install_audit()
    before = sys.getprofile()
    _WATCHES.append(watch)
    if calls:
        sys.setprofile(watch.profile)
    try:
        yield
    finally:
        sys.setprofile(before)
        _WATCHES.pop()


def full_name(path: str, name: str) -> str:
    """postgrad.maths.kl.k3, of a file and a name in it."""
    return ".".join((*Path(path).relative_to(PACKAGE.parent).with_suffix("").parts, name))


def imported_library(source: str, allowed: tuple[str, ...]) -> tuple[str, int] | None:
    """What of the library an answer names, and at which line: by an import, or as a text."""
    tree = parse_source(source)
    words = {id(node.body[0].value) for node in ast.walk(tree)
             if isinstance(node, ast.Module | ast.FunctionDef) and node.body
             and isinstance(node.body[0], ast.Expr)}  # a docstring may name it
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt | ast.expr):
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
            names = [node.value]
        for name in names:
            if (name == PACKAGE.name or name.startswith(f"{PACKAGE.name}.")) and name not in allowed:
                return name[:80], node.lineno
    return None


def copied_function(source: str, allowed: tuple[str, ...]) -> tuple[str, int] | None:
    """A function of the answer that is one of the library's but for names, and its line."""
    own = {form: node.lineno for node in ast.walk(parse_source(source)) if isinstance(node, ast.FunctionDef)
           if (form := plain_form(node))}
    known = library_forms() if own else {}
    return next(((known[form], line) for form, line in own.items()
                 if form in known and known[form] not in allowed), None)


@cache
def library_forms() -> dict[str, str]:
    """Plain form -> full name, of the functions of the library's maths."""
    found = {}
    for path in sorted((PACKAGE / "maths").glob("*.py")):
        if path.stem.endswith("_test"):
            continue
        for node in parse_source(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and (form := plain_form(node)):
                found[form] = full_name(str(path), node.name)
    return found


def plain_form(function: ast.FunctionDef) -> str:
    """A function's body without names of its own, docstring and types; "" where it is short."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    names = {arg.arg: f"v{i}" for i, arg in enumerate((*function.args.posonlyargs, *function.args.args,
                                                       *function.args.kwonlyargs))}
    nodes = [node for statement in body for node in ast.walk(statement)]
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.id, f"v{len(names)}")
    if len(nodes) < LONG:
        return ""

    class Rename(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:  # noqa: N802
            return ast.Name(id=names.get(node.id, node.id), ctx=node.ctx)

        def visit_arg(self, node: ast.arg) -> ast.AST:
            return ast.arg(arg=names.get(node.arg, node.arg))

    text = ast.unparse(ast.Module(body=body, type_ignores=[]))
    return "\n".join(ast.dump(Rename().visit(node)) for node in parse_source(text).body)
