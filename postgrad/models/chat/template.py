"""Chat templates, rendered in a sandbox and within limits: they come from somebody else's folder.

What a template may do is what `transformers` offers there. Each step of it is measured: its operands and its
result may be so large and no larger, what it makes in all is counted, and so is its processor time. So a
loop without an end, a text multiplied by a billion or a list that doubles ends with a sentence.
Left out on purpose: what is rendered (`chat`).
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

SOURCE = 50_000           # characters of a template
LARGEST = 10**7           # of a value: characters, and SLOT for each place in a list
SLOT = 64
AT_ONCE, IN_ALL = 10**8, 5 * 10**8  # characters that a single step may make, and all of them together
BITS = 10_000             # of a whole number
SECONDS = 0.5             # of processor time
# what makes more than it is given
GROWS = {"*", "%", "center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes", "replace", "join", "format",
         "format_map", "translate", "indent", "wordwrap", "tojson"}


class TemplateLimit(TemplateError):
    """The template asks for more than any conversation needs."""

    def __init__(self, what: str):
        super().__init__(f"it asks for {what}, more than any conversation needs")


# how large a value is

def value_size(value: object) -> int:
    """The characters in a value and SLOT for each place in its lists, all the way down; counting ends soon
    after LARGEST."""
    total, inside = 0, [value]
    while inside and total <= LARGEST:
        x = inside.pop()
        if isinstance(x, str | bytes):
            total += len(x)
        elif isinstance(x, Mapping | Namespace):
            held = x._Namespace__attrs if isinstance(x, Namespace) else x  # type: ignore[attr-defined]
            total += 2 * SLOT * len(held)
            inside += [*held.keys(), *held.values()]
        elif isinstance(x, list | tuple | set | frozenset):
            total += SLOT * (1 + len(x))
            inside += x
        elif isinstance(x, int) and x.bit_length() > BITS:
            raise TemplateLimit("a number of thousands of digits")
    return total


def growth_factor(x: object) -> int:
    """What a value counts for where it says how much is made: a number as it is, anything else by its
    weight."""
    return abs(x) if isinstance(x, int) else value_size(x)


def _measured(kind: str) -> Callable:
    """How jinja writes a kind of expression, with its value measured."""
    plain = getattr(CodeGenerator, f"visit_{kind}")

    def visit(self, node, frame, **options) -> None:
        if getattr(node, "ctx", "load") != "load":  # a place to put something
            return plain(self, node, frame, **options)
        self.write("environment.measured(")
        plain(self, node, frame, **options)
        self.write(")")
    return visit


class MeasuredCode(CodeGenerator):
    """Python code of a template that has each value measured where it comes about."""

    visit_Compare, visit_Getitem = _measured("Compare"), _measured("Getitem")
    visit_List, visit_Tuple, visit_Dict = _measured("List"), _measured("Tuple"), _measured("Dict")

    def visit_Concat(self, node: nodes.Concat, frame, **options) -> None:
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_For(self, node: nodes.For, frame, **options) -> None:
        each = nodes.EnvironmentAttribute("each")
        node.iter = nodes.Call(each, [node.iter], [], None, None, lineno=node.lineno,
                               environment=self.environment)
        super().visit_For(node, frame, **options)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox with limits, each thread's rendering by itself."""

    code_generator_class = MeasuredCode
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self):
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=self.measured,
                         extensions=[GenerationTag, "jinja2.ext.loopcontrols"])
        self.spent = threading.local()
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _refuse,
                         "strftime_now": lambda form: datetime.now().strftime(form)}
        self.filters |= {"tojson": _json}
        self.filters = {name: self.watched(name, plain) for name, plain in self.filters.items()}

    def begin(self) -> None:
        self.spent.end, self.spent.made = time.thread_time() + SECONDS, 0

    def measured(self, value):
        """The value, if it is not too large and neither time nor room is used up."""
        if value_size(value) > LARGEST:
            raise TemplateLimit(f"a value of over {LARGEST:,} characters")
        places = {str: 1, list: 8, tuple: 8}.get(type(value), 0)
        self.spent.made = getattr(self.spent, "made", 0) + (places * len(value) if places else 1)
        if self.spent.made > IN_ALL:
            raise TemplateLimit(f"over {IN_ALL:,} characters")
        if time.thread_time() > getattr(self.spent, "end", math.inf):
            raise TemplateLimit(f"over {SECONDS} s of processor time")
        return value

    def each(self, values: Iterable) -> Iterator:
        for value in values:
            yield self.measured(value)

    def joined(self, parts: Sequence) -> str:
        if sum(map(value_size, parts)) > LARGEST:
            raise TemplateLimit(f"a text of over {LARGEST:,} characters")
        return self.measured("".join(map(str, parts)))

    def foresee(self, name: str, first: object, rest: Sequence) -> None:
        """Before a step: what it is given is not too large, and neither is what it will make of it."""
        if any(value_size(x) > LARGEST for x in (first, *rest)):
            raise TemplateLimit(f"a value of over {LARGEST:,} characters")
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

    def call_binop(self, context, operator, left, right):
        self.foresee(operator, left, [right])
        return self.measured(super().call_binop(context, operator, left, right))

    def call(__self, __context, __obj, *args, **named):  # noqa: B902 (its parent's names: any other may be given)
        plain = getattr(__obj, "__wrapped__", __obj)  # str.format is wrapped by the sandbox
        held = getattr(plain, "__self__", None)
        if isinstance(held, str | bytes | int):
            __self.foresee(plain.__name__, held, [*args, *named.values()])
        return __self.measured(super().call(__context, __obj, *args, **named))

    def watched(self, name: str, plain: Callable) -> Callable:
        """A filter that is measured; where it is handed the context, that comes before the value."""
        ahead = 1 if hasattr(plain, "jinja_pass_arg") else 0

        @wraps(plain)
        def measured(*args, **named):
            if len(args) > ahead:
                self.foresee(name, args[ahead], [*args[ahead + 1:], *named.values()])
            return self.measured(plain(*args, **named))
        return measured


class GenerationTag(Extension):
    """{% generation %}: the mark that some templates put around an assistant's words.

    What is inside stands as it is.
    """

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_through"), [], [], body).set_lineno(line)

    def _through(self, caller):
        return caller()


class TemplateRefused(ValueError):
    """What a template itself says of messages that it does not take."""


def _refuse(message):
    raise TemplateRefused(f"the chat template says: {str(message)[:500]}")


def _json(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """`tojson` as templates expect it: jinja's own escapes <, > and & for HTML."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def compile_template(source: str) -> Callable[..., str]:
    """A function of the names that a template uses; every fault of it is a ValueError."""
    if len(source) > SOURCE:
        raise ValueError(f"the chat template has {len(source):,} characters, and {SOURCE:,} are read.")
    environment = TemplateEnvironment()
    try:
        template = environment.from_string(source)
    except (TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise ValueError(f"the chat template does not parse: {_line(error)}") from error

    def render(**named) -> str:
        environment.begin()
        try:
            return environment.measured(template.render(**named))
        except TemplateRefused:
            raise
        except Exception as error:  # a template may go wrong in any way
            raise ValueError(f"the chat template cannot be rendered: {_line(error)}") from error
    return render


def _line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
