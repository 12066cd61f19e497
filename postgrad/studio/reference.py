"""/reference: every public name of the package with its signature and docstring, read from the source.

No torch here.

A name is looked up where `postgrad` finds it, through the imports of its module to the file that defines it.
A class shows its fields and public methods, those of its bases in the package included.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import postgrad
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import full_page
from postgrad.system.user_code import parse_source

PACKAGE = Path(postgrad.__file__).parent
# a line of a docstring that is set as it stands: indented, or in columns
LIKE_TABLE = re.compile(r"^\s|\S {2,}\S")


class DocBlock(NamedTuple):
    """A part of a docstring: words to be filled into lines, or lines that stand as they are."""

    text: str
    as_it_stands: bool


class Member(NamedTuple):
    """A field or a method of a class."""

    text: str
    doc: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A public name. kind: function, class or table."""

    name: str
    kind: str
    module: str
    file: str
    signature: str
    doc: str
    fields: tuple[Member, ...] = ()
    methods: tuple[Member, ...] = ()

    @property
    def summary(self) -> str:
        """The first sentence."""
        first = " ".join(self.doc.split("\n\n")[0].split())
        return re.split(r"(?<=\.)\s", first)[0]

    @property
    def blocks(self) -> list[DocBlock]:
        return doc_blocks(self.doc)


def doc_blocks(doc: str) -> list[DocBlock]:
    """A docstring as words and as lines that stand.

    "Words.\\n\\n f(x)" -> [("Words.", False), ("f(x)", True)]
    """
    out: list[DocBlock] = []
    for paragraph in doc.split("\n\n"):
        runs: list[tuple[bool, list[str]]] = []
        for line in paragraph.splitlines():
            stands = bool(LIKE_TABLE.search(line))
            if not runs or runs[-1][0] != stands:
                runs.append((stands, []))
            runs[-1][1].append(line)
        out += [DocBlock(inspect.cleandoc("\n" + "\n".join(lines)) if stands else " ".join(lines), stands)
                for stands, lines in runs]
    return out


def mark_code(words: str, names: str = "") -> Markup:
    """Words with what is code in them set as such: `between backticks`, and "step: ..."

    where a step is among the names.
    """
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words)))
    known = "|".join(map(re.escape, sorted(set(re.findall(r"\w+", names)), key=len, reverse=True))) or r"(?!)"
    return Markup(re.sub(rf"(^|[.;] |</code>, )({known}): ", r"\1<code>\2</code>: ", text))


@cache
def parse_module(name: str) -> tuple[str, ast.Module]:
    """The file of a module, from the package's folder, and its tree.

    module_of("postgrad.data.tasks") -> tasks/__init__.py
    """
    parts = name.split(".")[1:]
    path = PACKAGE.joinpath(*parts).with_suffix(".py") if parts else PACKAGE / "__init__.py"
    path = path if path.is_file() else PACKAGE.joinpath(*parts, "__init__.py")
    return path.relative_to(PACKAGE.parent).as_posix(), parse_source(path.read_text())


def find_definition(module: str, name: str) -> tuple[str, ast.stmt]:
    """Where a name is defined, and its statement, through the imports of its module."""
    for node in parse_module(module)[1].body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return module, node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(getattr(target, "id", None) == name for target in targets):
            return module, node
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("postgrad"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find_definition(str(node.module), alias.name)
    raise LookupError(f"{module} has no {name!r}")


def signature_text(node: ast.FunctionDef, name: str = "") -> str:
    """fit(model: Source, method: str = 'grpo', *, task=None) -> Run; a method without its self."""
    given = node.args.posonlyargs + node.args.args
    defaults = [None] * (len(given) - len(node.args.defaults)) + node.args.defaults
    words = [argument_text(*pair) for pair in zip(given, defaults, strict=True)
             if pair[0].arg not in ("self", "cls")]
    if node.args.vararg or node.args.kwonlyargs:
        words.append(f"*{argument_text(node.args.vararg, None) if node.args.vararg else ''}")
    words += [argument_text(*pair) for pair in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
    words += [f"**{argument_text(node.args.kwarg, None)}"] if node.args.kwarg else []
    back = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name or node.name}({', '.join(words)}){back}"


def argument_text(given: ast.arg, default: ast.expr | None) -> str:
    """step: int | None = None"""
    words = given.arg + (f": {ast.unparse(given.annotation)}" if given.annotation else "")
    return words if default is None else f"{words}{' = ' if given.annotation else '='}{ast.unparse(default)}"


def class_and_bases(module: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """A class and its bases in the package, nearest first."""
    yield node
    for base in node.bases:
        try:
            home, above = find_definition(module, ast.unparse(base))
        except LookupError:  # a class of somebody else's
            continue
        if isinstance(above, ast.ClassDef):
            yield from class_and_bases(home, above)


def class_members(module: str, node: ast.ClassDef) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
    """The fields and the public methods, each once."""
    fields: dict[str, Member] = {}
    methods: dict[str, Member] = {}
    for cls in class_and_bases(module, node):
        for part in cls.body:
            if isinstance(part, ast.AnnAssign) and not (field := ast.unparse(part.target)).startswith("_"):
                fields.setdefault(field, Member(ast.unparse(part), ""))
            elif isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                plain = any(ast.unparse(d) in ("property", "cached_property") for d in part.decorator_list)
                known = methods.get(part.name, Member(part.name if plain else signature_text(part), ""))
                methods[part.name] = Member(known.text, known.doc or ast.get_docstring(part) or "")
    return tuple(fields.values()), tuple(methods.values())


@cache
def reference_entry(name: str) -> Entry:
    home, _, inside = postgrad._HOMES[name].partition(":")
    module, node = find_definition(f"postgrad.{home}", inside or name)
    about: JsonDict = {"name": name, "module": module, "file": parse_module(module)[0]}
    if isinstance(node, ast.FunctionDef):
        return Entry(**about, kind="function", signature=signature_text(node, name),
                     doc=ast.get_docstring(node) or "")
    if isinstance(node, ast.ClassDef):
        fields, methods = class_members(module, node)
        made = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
        return Entry(**about, kind="class", doc=ast.get_docstring(node) or "", fields=fields, methods=methods,
                     signature=signature_text(made, name).partition(" -> ")[0] if made else "")
    kind = f"{name}: {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else name
    return Entry(**about, kind="table", signature=kind,
                 doc=ast.get_docstring(parse_module(f"postgrad.{home}")[1]) or "")


@cache
def names_by_module() -> dict[str, list[Entry]]:
    """The public names by the module where `postgrad` finds them, in the order of its table."""
    out: dict[str, list[Entry]] = {}
    for name, home in postgrad._HOMES.items():
        out.setdefault("postgrad." + home.partition(":")[0], []).append(reference_entry(name))
    return out


def about_module(name: str) -> str:
    doc = ast.get_docstring(parse_module(name)[1]) or ""
    return " ".join(doc.split("\n\n")[0].split())


def reference_index(request: Request) -> Response:
    return full_page(request, "reference/index.html",
                     about={name: about_module(name) for name in names_by_module()},
                     groups=names_by_module(), marked=mark_code)


def reference_page(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in postgrad.__all__:
        raise HTTPException(404, f"postgrad has no public name {name[:60]!r}.")
    return full_page(request, "reference/name.html", entry=reference_entry(name), blocks=doc_blocks,
                     marked=mark_code)


routes = [Route("/reference", reference_index, name="reference"),
          Route("/reference/{name}", reference_page, name="reference-name")]
