"""Jinja templates as script, for pages without a server: a picture has one source.

A template becomes a function of its context that gives the page's text; a macro a function of its arguments.
Names are as in Jinja: what is set in a loop or a macro stays there, what is set under an if does not. The
subset is what the instruments' and the samples' templates use; all else is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from jinja2 import nodes

from postgrad.studio import pages, svg
from postgrad.studio.json_types import JsonDict
from postgrad.studio.script.expressions import js_literal, js_name
from postgrad.studio.script.python import Script

BINARY = {"Add": "py.add({}, {})", "Sub": "({} - {})", "Mul": "({} * {})", "Div": "({} / {})",
          "FloorDiv": "Math.floor({} / {})", "Mod": "py.mod({}, {})", "Pow": "({} ** {})",
          "And": "py.and(() => {}, () => {})", "Or": "py.or(() => {}, () => {})"}
COMPARE = {"eq": "py.eq({}, {})", "ne": "!py.eq({}, {})", "lt": "({} < {})", "lteq": "({} <= {})",
           "gt": "({} > {})", "gteq": "({} >= {})", "in": "py.has({1}, {0})", "notin": "!py.has({1}, {0})"}
TESTS = {"none": "({} === null)", "defined": "({} !== undefined)", "mapping": "py.isMapping({})"}
DRAWING = {"plot": "Plot", "spread": "spread", "ticks": "axis_ticks"}  # names in templates -> in svg
GLOBALS = {"range": "py.range", "zip": "py.zip", "namespace": "py.namespace"}


class Templates:
    """Templates that need each other: file -> script."""

    def __init__(self, script: Script):
        self.script = script
        self.made: dict[str, str] = {}
        self.macros: dict[str, dict[str, nodes.Macro]] = {}

    def text(self) -> str:
        return "\n".join(self.made.values())

    def use(self, file: str, constants: JsonDict | None = None) -> str:
        """The script's name of a template: a function of its context; with its macros as properties.

        constants: what the template can rely on, as `exported`; branches that it rules out are left out.
        """
        name = "t_" + "".join(c if c.isalnum() else "_" for c in file.removesuffix(".html"))
        if name not in self.made:
            self.made[name] = ""
            jinja = pages.jinja_environment()
            assert jinja.loader is not None
            tree = jinja.parse(jinja.loader.get_source(jinja, file)[0])
            self.macros[file] = {m.name: m for m in tree.body if isinstance(m, nodes.Macro)}
            body = TemplateWriter(self, constants or {}).root(tree)
            del self.made[name]
            self.made[name] = f"const {name} = {body};"
        return name


class TemplateWriter:
    """One template."""

    def __init__(self, templates: Templates, constants: JsonDict):
        self.templates, self.constants = templates, constants
        self.scopes: list[set[str]] = []
        self.signatures: dict[str, nodes.Macro] = {}

    def root(self, tree: nodes.Template) -> str:
        own = [m.name for m in tree.body if isinstance(m, nodes.Macro)]
        with self.scope():
            body = self.block(tree.body)
        return (f"(ctx = {{}}) => {{ let out = ''; {body} "
                f"return Object.assign(new py.Markup(out), {{ {', '.join(own)} }}); }}")

    @contextmanager
    def scope(self, names: Iterable[str] = ()) -> Iterator[None]:
        self.scopes.append(set(names))
        yield
        self.scopes.pop()

    def known(self, name: str) -> bool:
        return any(name in scope for scope in self.scopes)

    # statements

    def block(self, body: list[nodes.Node]) -> str:
        """The statements of one scope, the names that are set in it declared first."""
        fresh = sorted(names_set_in(body) - self.scopes[-1])
        self.scopes[-1] |= set(fresh)
        for macro in (n for n in body if isinstance(n, nodes.Macro)):
            self.signatures[macro.name] = macro
        declared = f"let {', '.join(map(js_name, fresh))}; " if fresh else ""
        return declared + self.statements(body)

    def statements(self, body: list[nodes.Node]) -> str:
        return "\n".join(filter(None, (self.statement(n) for n in body)))

    def statement(self, node: nodes.Node) -> str:
        match node:
            case nodes.Output():
                return "out += " + " + ".join(self.shown(n) for n in node.nodes) + ";"
            case nodes.Assign():
                return f"{self.target(node.target)} = {self(node.node)};"
            case nodes.If():
                return self.branches(node)
            case nodes.For():
                return self.loop(node)
            case nodes.Macro():
                return f"{js_name(node.name)} = {self.macro(node)};"
            case nodes.CallBlock():
                inner = self.macro(node)
                return f"out += py.out({self.expr_call(node.call, inner)});"
            case nodes.FromImport():
                return self.imported(node)
            case nodes.Include():
                return self.included(node)
        raise self.refuse(node)

    def shown(self, node: nodes.Node) -> str:
        return js_literal(node.data) if isinstance(node, nodes.TemplateData) else f"py.out({self(node)})"

    def branches(self, node: nodes.If) -> str:
        decided = self.decided(node.test)
        others = node.else_
        if node.elif_:
            first, *rest = node.elif_
            others = [nodes.If(first.test, first.body, rest, node.else_)]
        if decided is not None:
            return self.statements(node.body if decided else others)
        other = f" else {{ {self.statements(others)} }}" if others else ""
        return f"if (py.truth({self(node.test)})) {{ {self.statements(node.body)} }}{other}"

    def decided(self, test: nodes.Node) -> bool | None:
        """What a test comes to where it asks a constant; None where it does not."""
        match test:
            case nodes.Name() if test.name in self.constants and not self.known(test.name):
                return bool(self.constants[test.name])
            case nodes.Not():
                inner = self.decided(test.node)
                return None if inner is None else not inner
            case nodes.And():
                return False if False in (self.decided(test.left), self.decided(test.right)) else None
        return None

    def loop(self, node: nodes.For) -> str:
        with self.scope([*target_names(node.target), "loop"]):
            target = self.target(node.target)
            wanted = f".filter(({target}) => py.truth({self(node.test)}))" if node.test else ""
            body = self.block(node.body)
        otherwise = f" if (!$rows.length) {{ {self.statements(node.else_)} }}" if node.else_ else ""
        return (f"{{ const $rows = [...py.iter({self(node.iter)})]{wanted}; "
                f"for (let $i = 0; $i < $rows.length; $i++) {{ let {target} = $rows[$i]; "
                f"const loop = py.loop($rows, $i); {body} }}{otherwise} }}")

    def macro(self, node: nodes.Macro | nodes.CallBlock) -> str:
        args = [a.name for a in node.args]
        given = dict(zip(args[::-1], node.defaults[::-1], strict=False))
        with self.scope([*args, "caller"]):
            head = [js_name(a) + (f" = {self(given[a])}" if a in given else "") for a in args]
            body = self.block(node.body)
        return f"({', '.join([*head, 'caller'])}) => {{ let out = ''; {body} return new py.Markup(out); }}"

    def imported(self, node: nodes.FromImport) -> str:
        file = self.fixed(node.template)
        name = self.templates.use(file)
        names = [one if isinstance(one, tuple) else (one, one) for one in node.names]
        for one, own in names:
            self.signatures[own] = self.templates.macros[file][one]
        return f"({{ {', '.join(f'{one}: {own}' for one, own in names)} }} = py.macros({name}));"

    def included(self, node: nodes.Include) -> str:
        file = self.fixed(node.template)
        if node.ignore_missing and file not in pages.jinja_environment().list_templates():
            return ""
        name = self.templates.use(file, self.constants)
        seen = ", ".join(sorted({js_name(n) for scope in self.scopes for n in scope} - {"caller"}))
        return f"out += {name}({{ ...ctx, {seen} }});" if seen else f"out += {name}(ctx);"

    def fixed(self, node: nodes.Node) -> str:
        """The name of a template, which is known before there is a page."""
        match node:
            case nodes.Const():
                return str(node.value)
            case nodes.Concat():
                return "".join(self.fixed(n) for n in node.nodes)
            case nodes.Getattr(node=nodes.Name(name=name)):
                return str(getattr(self.constants[name], node.attr))
        raise self.refuse(node)

    # expressions

    def target(self, node: nodes.Node) -> str:
        match node:
            case nodes.Name():
                return js_name(node.name)
            case nodes.Tuple():
                return f"[{', '.join(self.target(n) for n in node.items)}]"
            case nodes.NSRef():
                return f"{js_name(node.name)}.{node.attr}"
        raise self.refuse(node)

    def __call__(self, node: nodes.Node) -> str:
        found = getattr(self, f"expr_{type(node).__name__.lower()}", None)
        kind = type(node).__name__
        if isinstance(node, nodes.BinExpr) and kind in BINARY:
            return BINARY[kind].format(self(node.left), self(node.right))
        if found is None:
            raise self.refuse(node)
        return str(found(node))

    def expr_const(self, node: nodes.Const) -> str:
        return js_literal(node.value)

    def expr_name(self, node: nodes.Name) -> str:
        if self.known(node.name):
            return js_name(node.name)
        if node.name in self.constants and isinstance(self.constants[node.name], bool):
            return js_literal(self.constants[node.name])
        if node.name in GLOBALS:
            return GLOBALS[node.name]
        if node.name in DRAWING:
            return self.templates.script.name(svg, DRAWING[node.name])
        return f"ctx.{node.name}"

    def expr_call(self, node: nodes.Call, caller: str = "") -> str:
        args = [self(a) for a in node.args]
        named = {k.key: self(k.value) for k in node.kwargs}
        if isinstance(node.node, nodes.Getattr):
            return f"py.call({', '.join([self(node.node.node), js_literal(node.node.attr), *args])})"
        function = self(node.node)
        if function == "py.namespace":
            return "({" + ", ".join(f"{k}: {v}" for k, v in named.items()) + "})"
        if named or caller:
            assert isinstance(node.node, nodes.Name)
            order = [a.name for a in self.signatures[node.node.name].args]
            args += [named.get(name, "undefined") for name in order[len(args):]]
        return f"{function}({', '.join([*args, *([caller] if caller else [])])})"

    def expr_filter(self, node: nodes.Filter) -> str:
        args = [self(a) for a in (node.node, *node.args) if a is not None]
        if node.kwargs:
            args.append("py.named({" + ", ".join(f"{k.key}: {self(k.value)}" for k in node.kwargs) + "})")
        return f"py.filters.{node.name}({', '.join(args)})"

    def expr_test(self, node: nodes.Test) -> str:
        return TESTS[node.name].format(self(node.node))

    def expr_getattr(self, node: nodes.Getattr) -> str:
        return f"py.get({self(node.node)}, {js_literal(node.attr)})"

    def expr_getitem(self, node: nodes.Getitem) -> str:
        if isinstance(node.arg, nodes.Slice):
            ends = (node.arg.start, node.arg.stop, node.arg.step)
            return f"py.slice({self(node.node)}, {', '.join(self(n) if n else 'null' for n in ends)})"
        return f"py.at({self(node.node)}, {self(node.arg)})"

    def expr_compare(self, node: nodes.Compare) -> str:
        sides = [self(node.expr), *(self(op.expr) for op in node.ops)]
        return "(" + " && ".join(COMPARE[op.op].format(a, b) for op, a, b in
                                 zip(node.ops, sides, sides[1:], strict=False)) + ")"

    def expr_not(self, node: nodes.Not) -> str:
        return f"!py.truth({self(node.node)})"

    def expr_neg(self, node: nodes.Neg) -> str:
        return f"(-{self(node.node)})"

    def expr_condexpr(self, node: nodes.CondExpr) -> str:
        other = self(node.expr2) if node.expr2 else "''"
        return f"(py.truth({self(node.test)}) ? {self(node.expr1)} : {other})"

    def expr_concat(self, node: nodes.Concat) -> str:
        return f"py.concat({', '.join(self(n) for n in node.nodes)})"

    def expr_tuple(self, node: nodes.Tuple | nodes.List) -> str:
        return f"[{', '.join(self(n) for n in node.items)}]"

    expr_list = expr_tuple

    def expr_dict(self, node: nodes.Dict) -> str:
        return "({" + ", ".join(f"[{self(p.key)}]: {self(p.value)}" for p in node.items) + "})"

    def refuse(self, node: nodes.Node) -> NotImplementedError:
        return NotImplementedError(f"line {node.lineno} of a template: there is no script for "
                                   f"{type(node).__name__}")


def target_names(target: nodes.Node) -> list[str]:
    return [n.name for n in ([target] if isinstance(target, nodes.Name) else target.find_all(nodes.Name))]


def names_set_in(body: list[nodes.Node]) -> set[str]:
    """The names that are set in a scope: under ifs too, but not in loops and macros, which are their own."""
    found: set[str] = set()
    for node in body:
        match node:
            case nodes.Assign() if not isinstance(node.target, nodes.NSRef):
                found |= set(target_names(node.target))
            case nodes.Macro():
                found.add(node.name)
            case nodes.FromImport():
                found |= {one[1] if isinstance(one, tuple) else one for one in node.names}
            case nodes.If():
                found |= names_set_in([*node.body, *node.elif_, *node.else_])
    return found
