"""Python's expressions as script; its statements are those of `python.Function`."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import math
import textwrap
from types import ModuleType
from typing import Any

BUILTINS = ("abs", "all", "any", "bool", "dict", "enumerate", "float", "int", "isinstance", "len", "list",
            "map", "max", "min", "next", "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple",
            "zip")
BINARY = {ast.Add: "py.add({}, {})", ast.Sub: "({} - {})", ast.Mult: "({} * {})", ast.Div: "({} / {})",
          ast.FloorDiv: "Math.floor({} / {})", ast.Mod: "py.mod({}, {})", ast.Pow: "({} ** {})",
          ast.BitOr: "py.merge({}, {})"}
COMPARE = {ast.Eq: "py.eq({}, {})", ast.NotEq: "!py.eq({}, {})", ast.Lt: "({} < {})", ast.LtE: "({} <= {})",
           ast.Gt: "({} > {})", ast.GtE: "({} >= {})", ast.In: "py.has({1}, {0})",
           ast.NotIn: "!py.has({1}, {0})", ast.Is: "({} === {})", ast.IsNot: "({} !== {})"}
RESERVED = {"default", "new", "this", "var", "let", "const", "function", "switch", "case", "delete", "typeof",
            "void", "static", "super", "enum", "export", "catch", "do", "throw", "extends", "eval", "package",
            "arguments", "class", "await", "interface", "private", "public", "protected", "null", "true",
            "false", "instanceof"}


def js_literal(value: Any) -> str:
    """A value as script. What is not finite has no place in JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")


def js_name(name: str) -> str:
    return f"{name}_" if name in RESERVED else name


class Expressions:
    """What is known where an expression stands: the local names, and what is imported there."""

    def __init__(self, script: Any, module: ModuleType, outer: Expressions | None = None):
        self.script, self.module = script, module
        self.locals: set[str] = set(outer.locals) if outer else set()
        self.imports: dict[str, Any] = dict(outer.imports) if outer else {}

    def parameters(self, args: ast.arguments, skip: int = 0) -> str:
        """skip: as many are not written, for a method has `self` otherwise."""
        names = [*args.args, *args.kwonlyargs]
        defaults = dict(zip([a.arg for a in args.args][::-1], args.defaults[::-1], strict=False))
        defaults |= {a.arg: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d}
        self.locals |= {a.arg for a in names} | ({args.vararg.arg} if args.vararg else set())
        parts = [js_name(a.arg) + (f" = {self(defaults[a.arg])}" if a.arg in defaults else "")
                 for a in names[skip:]]
        return ", ".join([*parts, *([f"...{js_name(args.vararg.arg)}"] if args.vararg else [])])

    def target(self, node: ast.expr) -> str:
        match node:
            case ast.Name():
                return js_name(node.id)
            case ast.Tuple() | ast.List():
                return f"[{', '.join(self.target(n) for n in node.elts)}]"
            case ast.Starred():
                return f"...{self.target(node.value)}"
            case ast.Subscript():
                return f"{self(node.value)}[{self(node.slice)}]"
        raise self.refuse(node)

    def truth(self, node: ast.expr) -> str:
        return f"py.truth({self(node)})"

    def __call__(self, node: ast.expr) -> str:
        found = getattr(self, f"expr_{type(node).__name__.lower()}", None)
        if found is None:
            raise self.refuse(node)
        return str(found(node))

    def expr_constant(self, node: ast.Constant) -> str:
        return js_literal(node.value)

    def expr_name(self, node: ast.Name) -> str:
        if node.id in self.locals:
            return js_name(node.id)
        found = self.lookup(node.id)
        if found is None:
            raise self.refuse(node)
        return found

    def lookup(self, name: str) -> str | None:
        if name in self.imports:
            return str(self.script.use(self.imports[name], self.module, name))
        if hasattr(self.module, name):
            return str(self.script.name(self.module, name))
        return f"py.{name}" if name in BUILTINS else None

    def value(self, node: ast.expr) -> Any:
        """What a name or a dotted name means in Python, if it is no local's; None where that is not known."""
        if isinstance(node, ast.Name) and node.id not in self.locals:
            return self.imports.get(node.id, getattr(self.module, node.id, getattr(builtins, node.id, None)))
        if isinstance(node, ast.Attribute) and isinstance(home := self.value(node.value), ModuleType):
            return getattr(home, node.attr)
        return None

    def expr_attribute(self, node: ast.Attribute) -> str:
        home = self.value(node.value)
        if isinstance(home, ModuleType):
            return (f"py.math.{node.attr}" if home is math
                    else self.script.use(getattr(home, node.attr), home, node.attr))
        if node.attr == "__getitem__":
            return f"py.item({self(node.value)})"
        return f"py.get({self(node.value)}, {js_literal(node.attr)})"

    def expr_call(self, node: ast.Call) -> str:
        args = [self.argument(a) for a in node.args]
        named = {k.arg: self(k.value) for k in node.keywords if k.arg}
        if isinstance(node.func, ast.Attribute) and self.value(node.func) is None:
            if named:
                raise self.refuse(node)
            return f"py.call({', '.join([self(node.func.value), js_literal(node.func.attr), *args])})"
        callee, function = self.value(node.func), self(node.func)
        if named and function.startswith("py."):
            pairs = ", ".join(f"{name}: {value}" for name, value in named.items())
            return f"{function}({', '.join([*args, f'py.named({{{pairs}}})'])})"
        return f"{function}({', '.join([*args, *self.placed(callee, len(args), named, node)])})"

    def placed(self, callee: Any, taken: int, named: dict[str, str], node: ast.Call) -> list[str]:
        """Named arguments in the places that the function has for them."""
        if not named:
            return []
        if callee is None:
            raise self.refuse(node)
        order = list(inspect.signature(callee).parameters)[taken:]
        last = max(map(order.index, named))
        return [named.get(name, "undefined") for name in order[:last + 1]]

    def argument(self, node: ast.expr) -> str:
        return f"...py.iter({self(node.value)})" if isinstance(node, ast.Starred) else self(node)

    def expr_lambda(self, node: ast.Lambda) -> str:
        inner = type(self)(self.script, self.module, self)
        return f"(({inner.parameters(node.args)}) => ({inner(node.body)}))"

    def expr_ifexp(self, node: ast.IfExp) -> str:
        return f"({self.truth(node.test)} ? {self(node.body)} : {self(node.orelse)})"

    def expr_boolop(self, node: ast.BoolOp) -> str:
        kind = "py.and" if isinstance(node.op, ast.And) else "py.or"
        return f"{kind}({', '.join(f'() => {self(v)}' for v in node.values)})"

    def expr_unaryop(self, node: ast.UnaryOp) -> str:
        return (f"!{self.truth(node.operand)}" if isinstance(node.op, ast.Not)
                else f"({'-' if isinstance(node.op, ast.USub) else '+'}{self(node.operand)})")

    def expr_binop(self, node: ast.BinOp) -> str:
        if type(node.op) not in BINARY:
            raise self.refuse(node)
        return BINARY[type(node.op)].format(self(node.left), self(node.right))

    def expr_compare(self, node: ast.Compare) -> str:
        sides = [self(n) for n in (node.left, *node.comparators)]
        return "(" + " && ".join(COMPARE[type(op)].format(a, b) for op, a, b in
                                 zip(node.ops, sides, sides[1:], strict=False)) + ")"

    def expr_joinedstr(self, node: ast.JoinedStr) -> str:
        return "[" + ", ".join(self(n) for n in node.values) + "].join('')"

    def expr_formattedvalue(self, node: ast.FormattedValue) -> str:
        how = self(node.format_spec) if node.format_spec else "''"
        return f"py.{'repr' if node.conversion == ord('r') else 'format'}({self(node.value)}, {how})"

    def expr_list(self, node: ast.List | ast.Tuple | ast.Set) -> str:
        return f"[{', '.join(self.argument(n) for n in node.elts)}]"

    expr_tuple = expr_list

    def expr_set(self, node: ast.Set) -> str:
        return f"py.set({self.expr_list(node)})"

    def expr_dict(self, node: ast.Dict) -> str:
        pairs = zip(node.keys, node.values, strict=True)
        return "({" + ", ".join(f"[{self(k)}]: {self(v)}" if k else f"...{self(v)}" for k, v in pairs) + "})"

    def expr_subscript(self, node: ast.Subscript) -> str:
        if isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            parts = ", ".join(self(n) if n else "null" for n in ends)
            return f"py.slice({self(node.value)}, {parts})"
        return f"py.at({self(node.value)}, {self(node.slice)})"

    def expr_namedexpr(self, node: ast.NamedExpr) -> str:
        return f"({js_name(node.target.id)} = {self(node.value)})"

    def each(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp, element: str) -> str:
        """A generator over the clauses of a comprehension."""
        inner = type(self)(self.script, self.module, self)
        stores = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        first = self(node.generators[0].iter)
        inner.locals |= stores
        opened, closed = "", ""
        for i, clause in enumerate(node.generators):
            over = "first" if i == 0 else inner(clause.iter)
            tests = "".join(f"if (!{inner.truth(t)}) continue; " for t in clause.ifs)
            opened += f"for ({inner.target(clause.target)} of py.iter({over})) {{ {tests}"
            closed += " }"
        names = ", ".join(map(js_name, sorted(stores)))
        parts = [inner(getattr(node, name)) for name in element.split()]
        made = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
        return f"(function* (first) {{ let {names}; {opened}yield {made};{closed} }})({first})"

    def expr_generatorexp(self, node: ast.GeneratorExp) -> str:
        return self.each(node, "elt")

    def expr_listcomp(self, node: ast.ListComp) -> str:
        return f"[...{self.each(node, 'elt')}]"

    def expr_setcomp(self, node: ast.SetComp) -> str:
        return f"py.set({self.each(node, 'elt')})"

    def expr_dictcomp(self, node: ast.DictComp) -> str:
        return f"py.dict({self.each(node, 'key value')})"

    def refuse(self, node: ast.AST) -> NotImplementedError:
        words = textwrap.shorten(ast.unparse(node), 80)
        return NotImplementedError(f"{self.module.__name__}: there is no script for {words!r}")
