"""Python functions as script, for pages without a server: what an instrument says and decides has one source.

`Script().name(module, "insight")` translates a function and whatever it uses. A constant becomes its value, a
function its own translation, unless static/python.js knows it (`KNOWN`) or its values are `given`. The subset
is what the instruments' sentences, controls and charts are written in; all else is refused by name.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from statistics import median
from types import FunctionType, ModuleType
from typing import Any

from postgrad.studio.json_types import Values
from postgrad.studio.pages import num
from postgrad.studio.script.expressions import BINARY, Expressions, js_literal, js_name
from postgrad.system.user_code import parse_source

KNOWN = {num: "py.num", math: "py.math", dataclasses.replace: "py.replace", median: "py.median",
         pairwise: "py.pairwise"}

@cache
def module_tree(module: ModuleType) -> ast.Module:
    return parse_source(inspect.getsource(module))


class Script:
    """Translations that need each other, in the order in which a browser can read them."""

    def __init__(self, given: dict[Any, list[Values]] | None = None, twins: dict[Any, str] | None = None):
        """given: function -> the arguments that it may be asked for, where Python finds the answers
        beforehand and they are shipped. twins: function -> what does the same in script."""
        self.given, self.twins = given or {}, KNOWN | (twins or {})
        self.made: dict[str, str] = {}  # name in the script -> its definition

    def text(self) -> str:
        return "\n".join(self.made.values())

    def name(self, module: ModuleType, name: str) -> str:
        """The script's name for what a module calls so."""
        return self.use(getattr(module, name), module, name)

    def use(self, value: Any, module: ModuleType, name: str) -> str:
        value = inspect.unwrap(value) if callable(value) else value
        if isinstance(value, ModuleType) or callable(value):
            known = next((text for thing, text in self.twins.items() if thing is value), None)
            if known:
                return known
        if isinstance(value, FunctionType | type) and value.__name__ != "<lambda>" and "<locals>" not in (
                value.__qualname__):
            module, name = sys.modules[value.__module__], value.__name__
        ours = f"{module.__name__.removeprefix('postgrad.').replace('.', '_')}__{name}"
        if ours not in self.made:
            self.made[ours] = ""  # it may call itself
            text = self.definition(value, module, name)
            del self.made[ours]
            self.made[ours] = f"const {ours} = {text};"
        return ours

    def definition(self, value: Any, module: ModuleType, name: str) -> str:
        if callable(value) and value in self.given:
            answers = {js_literal(list(args)): value(*args) for args in self.given[value]}
            return f"py.table({js_literal(answers)})"
        if not callable(value) and not holds_records(value):
            return js_literal(value)
        found = [n for n in module_tree(module).body if getattr(n, "name", None) == name
                 or name in [getattr(t, "id", None) for t in getattr(n, "targets", [])]]
        if not found:
            raise LookupError(f"{module.__name__}.{name} has no source that could become script")
        return Function(self, module).define(found[-1])


class Function(Expressions):
    """One function's translation: its local names, and what it imports."""

    # definitions

    def define(self, node: ast.stmt) -> str:
        if isinstance(node, ast.Assign):
            return self(node.value)
        if isinstance(node, ast.ClassDef):
            return self.record(node)
        if isinstance(node, ast.FunctionDef):
            text = self.function(node.args, node.body)
            cached = any("cache" in ast.dump(d) for d in node.decorator_list)
            return f"py.cache({text})" if cached else text
        raise self.refuse(node)

    def function(self, args: ast.arguments, body: list[ast.stmt], skip: int = 0) -> str:
        inner = Function(self.script, self.module, self)
        head = inner.parameters(args, skip)
        return f"({head}) => {{ {inner.block(body)} }}"

    def record(self, node: ast.ClassDef) -> str:
        """A dataclass: its fields in order, its methods and properties."""
        fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
        names = [ast.unparse(f.target) for f in fields]
        head = ", ".join(js_name(name) + (f" = {self(f.value)}" if f.value else "")
                         for name, f in zip(names, fields, strict=True))
        kept = " ".join(f"this.{name} = {js_name(name)};" for name in names)
        parts = [f"constructor({head}) {{ {kept} }}"]
        for method in (n for n in node.body if isinstance(n, ast.FunctionDef)):
            inner = Function(self.script, self.module, self)
            given = inner.parameters(method.args, skip=1)
            kind = "get " if any(getattr(d, "id", "") == "property" for d in method.decorator_list) else ""
            parts.append(f"{kind}{method.name}({given}) {{ const self = this; {inner.block(method.body)} }}")
        return f"py.record(class {{ {' '.join(parts)} }})"

    # statements

    def block(self, body: list[ast.stmt]) -> str:
        """The statements of a function, its own names declared first."""
        stores = (n for part in body for n in own_nodes(part) if isinstance(n, ast.Name)
                  and isinstance(n.ctx, ast.Store))
        fresh = sorted({n.id for n in stores} - self.locals)
        self.locals |= set(fresh) | {n.name for n in body if isinstance(n, ast.FunctionDef)}
        declared = f"let {', '.join(map(js_name, fresh))}; " if fresh else ""
        return declared + " ".join(self.statement(n) for n in body)

    def statement(self, node: ast.stmt) -> str:
        match node:
            case ast.Return():
                return f"return {self(node.value) if node.value else 'null'};"
            case ast.Assign():
                return " ".join(f"{self.target(t)} = {self(node.value)};" for t in node.targets)
            case ast.AnnAssign():
                return f"{self.target(node.target)} = {self(node.value)};" if node.value else ""
            case ast.AugAssign():
                value = BINARY[type(node.op)].format(self(as_load(node.target)), self(node.value))
                return f"{self.target(node.target)} = {value};"
            case ast.If():
                other = f" else {{ {self.statements(node.orelse)} }}" if node.orelse else ""
                return f"if ({self.truth(node.test)}) {{ {self.statements(node.body)} }}{other}"
            case ast.For():
                return (f"for ({self.target(node.target)} of py.iter({self(node.iter)})) "
                        f"{{ {self.statements(node.body)} }}")
            case ast.Expr(value=ast.Constant()) | ast.Assert() | ast.Pass():
                return ""
            case ast.Expr():
                return f"{self(node.value)};"
            case ast.Continue():
                return "continue;"
            case ast.Raise(exc=ast.Call(args=[what, *_])):
                return f"throw new Error({self(what)});"
            case ast.FunctionDef():
                return f"const {js_name(node.name)} = {self.define(node)};"
            case ast.ImportFrom() | ast.Import():
                return self.imported(node)
        raise self.refuse(node)

    def statements(self, body: list[ast.stmt]) -> str:
        return " ".join(self.statement(n) for n in body)

    def imported(self, node: ast.ImportFrom | ast.Import) -> str:
        for name in node.names:
            module = str(node.module) if isinstance(node, ast.ImportFrom) else name.name
            home = import_module(module)
            found = home if isinstance(node, ast.Import) else getattr(home, name.name, None)
            self.imports[name.asname or name.name] = found or import_module(f"{module}.{name.name}")
        return ""


def holds_records(value: Any) -> bool:
    """Whether a constant is made of records, whose methods a page may want."""
    return isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value))


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """A statement and its parts, but nothing of the functions and comprehensions in it."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.SetComp
                  | ast.DictComp):
        return
    for child in ast.iter_child_nodes(node):
        yield from own_nodes(child)


def as_load(node: ast.expr) -> ast.expr:
    (statement,) = parse_source(ast.unparse(node)).body
    assert isinstance(statement, ast.Expr)
    return statement.value
