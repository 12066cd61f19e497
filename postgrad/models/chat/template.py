"""Chat templates, which are untrusted, rendered in a sandbox with limits.

A template may use what `transformers` offers. Every operation is measured: the size of operands and result,
the size of all results, and the number of steps. So an endless loop, a text multiplied by a billion or a
list that doubles ends with an error, after the same step on every processor.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from jinja2 import Template, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from postgrad.system.files import read_text

T = TypeVar("T")
SOURCE = 50_000           # characters of a template
LARGEST = 10**7           # of a value: characters, and SLOT for each place in a list
SLOT = 64
AT_ONCE, IN_ALL = 10**8, 5 * 10**8  # characters that a single step may make, and all of them together
BITS = 10_000             # of a whole number
STEPS, STEP = 200_000, 300  # operations of a rendering; STEP characters of operands count as one more
SECONDS = 1.5             # of processor time: for what a single operation does that STEPS does not see
# what makes more than it is given
GROWS = {"*", "%", "center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes", "replace", "join", "format",
         "format_map", "translate", "indent", "wordwrap", "tojson"}

BOS = "{{ bos_token }}"
# for base models, which have none
NAMED = {
    "chatml": "{% for message in messages %}<|im_start|>{{ message.role }}{{ '\\n' }}{{ message.content }}"
              "<|im_end|>{{ '\\n' }}{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant{{ '\\n' }}{% endif %}",
    "llama3": BOS + "{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>"
              "{{ '\\n\\n' }}{{ message.content | trim }}<|eot_id|>{% endfor %}"
              "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}"
              "{% endif %}",
    "plain": BOS + "{% for message in messages %}{{ message.content }}{% if message.role == 'assistant' %}"
             "{{ eos_token }}{% elif message.role == 'system' %}{{ '\\n\\n' }}{% endif %}{% endfor %}"}
# what a template of the user's is searched for, to add it to the tokenizer
CONTROL = re.compile(r"<\|[^|<>{}'\"\s]{1,40}\|>|<｜[^｜<>{}'\"\s]{1,40}｜>|<(?:start|end)_of_\w{1,40}>")


class TemplateLimit(TemplateError):
    """The template exceeds a limit."""

    def __init__(self, what: str):
        super().__init__(f"it asks for {what}, more than any conversation needs")


def value_size(value: object) -> int:
    """The characters in a value, plus SLOT for each list element, recursively; stops soon after LARGEST."""
    if type(value) is str:
        return len(value)
    if value is None or type(value) is bool:
        return 0
    total, inside = 0, [value]
    while inside and total <= LARGEST:
        x = inside.pop()
        if isinstance(x, str | bytes):
            total += len(x)
        elif isinstance(x, Mapping | Namespace):
            held = x._Namespace__attrs if isinstance(x, Namespace) else x
            total += 2 * SLOT * len(held)
            inside += [*held.keys(), *held.values()]
        elif isinstance(x, list | tuple | set | frozenset):
            total += SLOT * (1 + len(x))
            inside += x
        elif isinstance(x, int) and x.bit_length() > BITS:
            raise TemplateLimit("a number of thousands of digits")
    return total


def growth_factor(x: object) -> int:
    """By how much an operand multiplies the result: a number by itself, anything else by its size."""
    return abs(x) if isinstance(x, int) else value_size(x)


def _measured(kind: str) -> Callable[..., None]:
    """Jinja's code for a kind of expression, with its value measured."""
    plain = getattr(CodeGenerator, f"visit_{kind}")

    def visit(self: CodeGenerator, node: nodes.Node, frame: Frame, **options: Any) -> None:
        if getattr(node, "ctx", "load") != "load":  # a place to put something
            plain(self, node, frame, **options)
            return
        self.write("environment.measured(")
        plain(self, node, frame, **options)
        self.write(")")
    return visit


class MeasuredCode(CodeGenerator):
    """Generates Python code that measures each value."""

    visit_Compare, visit_Getitem = _measured("Compare"), _measured("Getitem")
    visit_List, visit_Tuple, visit_Dict = _measured("List"), _measured("Tuple"), _measured("Dict")

    def visit_Concat(self, node: nodes.Concat, frame: Frame, **options: Any) -> None:
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_For(self, node: nodes.For, frame: Frame, **options: Any) -> None:
        def call(name: str, *given: Any) -> nodes.Call:
            return nodes.Call(nodes.EnvironmentAttribute(name), list(given), [], None, None,
                              lineno=node.lineno, environment=self.environment)

        node.iter = call("each", node.iter)
        if node.recursive or not isinstance(node.target, nodes.Name):
            super().visit_For(node, frame, **options)
            return
        item = nodes.Name(node.target.name, "load", lineno=node.lineno, environment=self.environment)
        node.body = [nodes.ExprStmt(call("writes", item), lineno=node.lineno), *node.body]
        self.visit(nodes.ExprStmt(call("loop_begins"), lineno=node.lineno), frame)
        super().visit_For(node, frame, **options)
        self.visit(nodes.ExprStmt(call("loop_ends"), lineno=node.lineno), frame)


class Rendering(NamedTuple):
    """A rendered template with where its text comes from.

    marks: start and end of each {% generation %}. writers: (offset, message or None): from this offset on,
    the template's loop writes this message, or none.
    """

    text: str
    marks: list[tuple[int, int]]
    writers: list[tuple[int, int | None]]

    def spans_of(self, message: int) -> list[tuple[int, int]]:
        """Start and end of the texts that the template writes for a message, adjacent ones joined."""
        spans: list[tuple[int, int]] = []
        ends = [at for at, _ in self.writers[1:]] + [len(self.text)]
        for (start, writer), end in zip(self.writers, ends, strict=True):
            if writer == message and end > start:
                joined = bool(spans) and spans[-1][1] == start
                spans[-1:] = [(spans[-1][0], end)] if joined else [*spans[-1:], (start, end)]
        return spans

    def writer(self, at: int) -> int | None:
        """The message whose text stands at an offset."""
        return next((message for start, message in reversed(self.writers) if start <= at), None)


class Spent(threading.local):
    """What a rendering has used of its limits. end: of its processor time."""

    made, steps, end = 0, 0, math.inf
    messages: dict[int, int]
    length: int
    marks: list[Any]
    writers: list[tuple[int, int | None]]
    outer: list[int | None]


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox with limits per rendering and thread."""

    code_generator_class = MeasuredCode
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=self.measured,
                         extensions=[GenerationTag, "jinja2.ext.loopcontrols"])
        self.spent = Spent()
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _refuse,
                         "strftime_now": lambda form: datetime.now().strftime(str(form))}
        self.filters |= {"tojson": _json}
        self.filters = {name: self.watched(name, plain) for name, plain in self.filters.items()}

    def begin(self) -> None:
        self.spent.end, self.spent.made, self.spent.steps = time.thread_time() + SECONDS, 0, 0

    def trace(self, template: Template, named: Mapping[str, object]) -> Rendering:
        """The template rendered piece by piece, so that the length so far is known wherever a loop or a mark
        begins."""
        messages = named.get("messages")
        self.spent.messages = {id(m): i for i, m in enumerate(messages)} if isinstance(messages, list) else {}
        self.spent.length, self.spent.marks, self.spent.writers, self.spent.outer = 0, [], [(0, None)], []
        parts = []
        for part in template.generate(**named):
            parts.append(part)
            self.spent.length += len(part)
        return Rendering(self.measured("".join(parts)), self.spent.marks, self.spent.writers)

    def loop_begins(self) -> None:
        self.spent.outer.append(self.spent.writers[-1][1])

    def writes(self, item: object) -> None:
        """Notes that a loop's body begins, with a message or with anything else."""
        if isinstance(item, dict) and (message := self.spent.messages.get(id(item))) is not None:
            self.spent.writers.append((self.spent.length, message))

    def loop_ends(self) -> None:
        if (outer := self.spent.outer.pop()) != self.spent.writers[-1][1]:
            self.spent.writers.append((self.spent.length, outer))

    def measured(self, value: T) -> T:
        """The value; TemplateLimit where it is too large, or steps or the total are used up."""
        spent, kind, size = self.spent, type(value), 1
        if kind is str or kind is list or kind is tuple:
            size = len(cast("Sized", value)) * (1 if kind is str else 8)
        self.spend(size if kind is str else value_size(value), size)
        spent.made += size
        if spent.made > IN_ALL:
            raise TemplateLimit(f"over {IN_ALL:,} characters")
        if time.thread_time() > spent.end:
            raise TemplateLimit(f"over {SECONDS} s of processor time")
        return value

    def spend(self, largest: int, work: int) -> None:
        """Counts an operation that reads or makes `work` characters; TemplateLimit where its largest value is
        too large, or the steps are used up."""
        if largest > LARGEST:
            raise TemplateLimit(f"a value of over {LARGEST:,} characters")
        spent = self.spent
        spent.steps += 1 + work // STEP
        if spent.steps > STEPS:
            raise TemplateLimit(f"over {STEPS:,} steps")

    def each(self, values: Iterable[T]) -> Iterator[T]:
        for value in values:
            yield self.measured(value)

    def joined(self, parts: Sequence[object]) -> str:
        if sum(map(value_size, parts)) > LARGEST:
            raise TemplateLimit(f"a text of over {LARGEST:,} characters")
        return self.measured("".join(map(str, parts)))

    def foresee(self, name: str, first: object, rest: Sequence[object]) -> None:
        """Checks the operands of an operation, and the size of its result, before it runs."""
        sizes = [value_size(x) for x in (first, *rest)]
        self.spend(max(sizes), sum(sizes))
        numbers = all(isinstance(x, int | float) for x in (first, *rest))
        if name == "**" and numbers and any(growth_factor(x) * growth_factor(first).bit_length() > BITS
                                            for x in rest):
            raise TemplateLimit("a number of thousands of digits")
        if name not in GROWS or numbers and name in "*%":  # two numbers make one
            return
        within = [x for arg in rest for x in (arg if isinstance(arg, tuple) else (arg,))]
        if name in ("%", "format", "format_map"):
            within += [int(digits[:12]) for digits in re.findall(r"\d+", str(first))]
        if max(1, growth_factor(first)) * max(map(growth_factor, within), default=1) > AT_ONCE:
            raise TemplateLimit(f"over {AT_ONCE:,} characters at once")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.foresee(operator, left, [right])
        return self.measured(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any,  # noqa: B902 (its parent's names:
             **named: Any) -> Any:                                # any other may be a template's)
        plain = getattr(__obj, "__wrapped__", __obj)  # str.format is wrapped by the sandbox
        held = getattr(plain, "__self__", None)
        if held is __self:  # what this class adds to a loop
            return __obj(*args)
        if isinstance(held, str | bytes | int):
            __self.foresee(plain.__name__, held, [*args, *named.values()])
        return __self.measured(super().call(__context, __obj, *args, **named))

    def watched(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A measured filter; one that takes the context has it before the value."""
        ahead = 1 if hasattr(plain, "jinja_pass_arg") else 0

        @wraps(plain)
        def measured(*args: Any, **named: Any) -> Any:
            if len(args) > ahead:
                self.foresee(name, args[ahead], [*args[ahead + 1:], *named.values()])
            return self.measured(plain(*args, **named))
        return measured


class GenerationTag(Extension):
    """{% generation %}: marks what is trained in some templates; its content is rendered unchanged."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_through"), [], [], body).set_lineno(line)

    def _through(self, caller: Callable[[], str]) -> str:
        text = caller()
        spent = cast(TemplateEnvironment, self.environment).spent
        spent.marks.append((spent.length, spent.length + len(text)))
        return text


class TemplateRefused(ValueError):
    """The template itself rejects the messages (raise_exception)."""


def _refuse(message: object) -> None:
    raise TemplateRefused(f"the chat template says: {str(message)[:500]}")


def _json(x: object, ensure_ascii: bool = False, indent: int | None = None,
          separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    """`tojson` without jinja's HTML escapes."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def named_template(name: str) -> str:
    """The source of a template: chatml, llama3, plain, or a file."""
    if name in NAMED:
        return NAMED[name]
    if not Path(name).is_file():
        raise ValueError(f"template={name}: there is no such template and no such file; expected "
                         f"{', '.join(NAMED)}, or a file with a chat template in Jinja.")
    return read_text(Path(name))


def compile_template(source: str, where: str = "") -> Callable[..., Rendering]:
    """A function that renders a template with the given variables; every fault is a ValueError, whose
    sentence begins with `where`."""
    if len(source) > SOURCE:
        raise ValueError(f"{where}the chat template has {len(source):,} characters, and {SOURCE:,} are read.")
    environment = TemplateEnvironment()
    try:
        template = environment.from_string(source)
    except (TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise ValueError(f"{where}the chat template does not parse: {_line(error)}") from error

    def render(**named: object) -> Rendering:
        environment.begin()
        try:
            return environment.trace(template, named)
        except TemplateRefused as error:
            raise TemplateRefused(f"{where}{error}") from None
        except Exception as error:  # a template may go wrong in any way
            raise ValueError(f"{where}the chat template cannot be rendered: {_line(error)}") from error
    return render


def _line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
