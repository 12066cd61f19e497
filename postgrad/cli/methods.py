"""`postgrad methods`, `diff`, `verifiers` and `explain`: algorithms, verifiers, metrics and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table
from postgrad.cli.settings import explain_settings, find_settings, known_settings
from postgrad.system.settings import setting, setting_text

if TYPE_CHECKING:
    from postgrad.methods import Method
    from postgrad.methods.pages import Difference



@dataclass(frozen=True, kw_only=True)
class MethodsOptions(CommandOptions):
    method: str | None = setting(None, "show one method in full: its name, or FILE.py:NAME; FILE.py lists "
                                 "its methods", positional=True)


def run_methods(options: MethodsOptions) -> None:
    print_methods(options.method, options.json)


def print_methods(name: str | None, as_json: bool) -> None:
    from postgrad.methods import METHODS, rows_named
    rows = rows_named(name) if name else list(METHODS.values())
    if as_json:
        print_json([method_fields(row) for row in rows])
    elif name and len(rows) == 1:
        print_method(rows[0])
    else:
        print_table([{"method": row.name, "batches": row.source, "what is particular": row.about,
                      "paper": row.paper} for row in rows])


def method_fields(row: Method) -> dict[str, object]:
    """The fields of a row of the table; functions by name, with the constants bound to them."""
    from postgrad.methods.row import format_call

    def field_value(x: object) -> object:
        if isinstance(x, partial):
            return format_call(x.func.__name__, x.keywords)
        return getattr(x, "__name__", repr(x)) if callable(x) else x

    return {f.name: field_value(getattr(row, f.name)) for f in fields(row)}


def print_method(row: Method) -> None:
    """Its functions with their formulas and places, its constants, its departures and its neighbours."""
    from postgrad.methods import METHODS
    from postgrad.methods.pages import method_page
    from postgrad.methods.row import format_call
    about = method_page(row, METHODS)
    print(f"{about.name}: {about.about}\nlearns from {about.source}\npaper: {about.paper or 'none'}")
    for part in about.parts:
        print(f"\n{part.field}  {format_call(part.function, part.constants)}  {part.file}:{part.line}")
        for piece in part.pieces:
            print(f"  {'  ' * (piece.kind == 'formula')}{piece.text}")
    for name, text in about.wants.items():
        print(f"\nwants {name}: {text}")
    if on := [constant for constant in about.constants if constant.on]:
        print()
        print_table([{"constant": c.name, "value": setting_text(c.value), "what it is": c.about} for c in on])
    for head, text in (("off", ", ".join(c.name for c in about.constants if not c.on)),
                       ("departs from its paper", about.departures),
                       ("next to it", ", ".join(f"{n.name} ({len(n.differences)} differences)"
                                                for n in about.neighbours))):
        if text:
            print(f"\n{head}: {text}")


# diff

@dataclass(frozen=True, kw_only=True)
class DiffOptions(CommandOptions):
    first: str = setting(about="a method by name, or FILE.py", metavar="METHOD", positional=True)
    second: str = setting(about="another", metavar="METHOD", positional=True)


def run_diff(options: DiffOptions) -> None:
    from postgrad.methods import get_method
    from postgrad.methods.pages import compare_rows
    rows = get_method(options.first), get_method(options.second)
    names = rows[0].name, rows[1].name
    differences = compare_rows(*rows)
    if options.json:
        return print_json({"methods": list(names), "same": not differences,
                           "differences": [difference._asdict() for difference in differences]})
    if differences:
        return print_differences(names, differences)
    return print(f"{names[0]} and {names[1]} are the same row." if names[0] != names[1] else
                 f"{names[0]} is {names[1]}: the same row.")


def print_differences(names: tuple[str, str], differences: Sequence[Difference]) -> None:
    """Functions and words a line each, then constants and facts as a table."""
    width = max(map(len, (*names, "both")))
    for difference in (d for d in differences if d.kind in ("function", "words")):
        print(difference.part)
        for name, text in zip(("both", *names), difference_lines(difference), strict=True):
            if text:
                print(f"  {name:<{width}}  {text}")
    if numbers := [d for d in differences if d.kind in ("constant", "fact")]:
        print()
        print_table([{"": d.part, names[0]: fact_words(d.first), names[1]: fact_words(d.second)}
                     for d in numbers])


def difference_lines(difference: Difference) -> tuple[str, str, str]:
    """What both rows have in common, "" where nothing, then what each of them has."""
    first, second = difference.first, difference.second
    if difference.kind == "words":
        return "", str(first or "none"), str(second or "none")
    if isinstance(first, Mapping) and isinstance(second, Mapping) and formula_line(first) == formula_line(
            second):
        return formula_line(first), call_line(first), call_line(second)
    return "", function_line(first), function_line(second)


def function_line(function: object) -> str:
    return (f"{call_line(function)}: {formula_line(function)}" if isinstance(function, Mapping) and function
            else "none")


def formula_line(function: Mapping[str, Any]) -> str:
    return "   ".join([function["says"], *function["formulas"]])


def call_line(function: Mapping[str, Any]) -> str:
    from postgrad.methods.row import format_call
    return format_call(function["function"], function["constants"])


def fact_words(value: object) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# verifiers

def run_verifiers(options: CommandOptions) -> None:
    from postgrad.resolve.rewards import describe_verifiers
    rows = describe_verifiers()
    return print_json(rows) if options.json else print_table(rows)


# explain

@dataclass(frozen=True, kw_only=True)
class ExplainOptions(CommandOptions):
    name: str | None = setting(None, "default: list all metrics", metavar="METRIC|METHOD|SETTING",
                               positional=True)


def run_explain(options: ExplainOptions) -> None:
    """A metric, a method or a setting. Metrics come first; a setting of the same name is shown beside."""
    from postgrad.runs.explain import METRICS, explain
    if options.name is None:
        meanings = {name: metric.meaning for name, metric in METRICS.items()}
        return (print_json(meanings) if options.json else
                print_table([{"metric": name, "meaning": text} for name, text in meanings.items()]))
    settings = find_settings(options.name)
    try:
        metric = asdict(explain(options.name))
    except ValueError:
        from postgrad.methods import METHODS
        if settings and options.name not in METHODS:
            return (print_json({"name": options.name, "settings": settings}) if options.json
                    else explain_settings(settings))
        return explain_method(options.name, METRICS, options.json)
    if options.json:
        return print_json(metric | ({"settings": settings} if settings else {}))
    print_table([{"": key, options.name: text} for key, text in metric.items()
                 if key not in ("name", "limit")])
    return explain_settings(settings)


def explain_method(name: str, metrics: Iterable[str], as_json: bool) -> None:
    """A method of the table or of a file; else what is near the name, among metrics, methods and settings."""
    from postgrad.methods import METHODS
    from postgrad.system.plugins import is_file_spec
    if name in METHODS or is_file_spec(name):
        return print_methods(name, as_json)
    from postgrad.recipes.foreign_settings import OTHER_NAMES, foreign_answer
    if name in OTHER_NAMES:
        raise ValueError(f"{name!r} is another library's name. {foreign_answer(name)}")
    settings = [row["setting"] for row in known_settings()]
    names = dict.fromkeys([*metrics, *METHODS, *(key.rpartition(".")[2] for key in settings), *settings])
    near = get_close_matches(name.lower().replace("-", "_"), names, 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"metrics are: {', '.join(metrics)}"
    raise ValueError(f"no metric, method or setting is called {name!r}; {hint}")


COMMANDS = (
    Command("methods", "list the algorithms with their papers, or show one in full", MethodsOptions,
            run_methods),
    Command("diff", "compare two methods: what differs, with formulas",
            DiffOptions, run_diff),
    Command("verifiers", "list the verifiers by name, which can be used alone or in a weighted sum",
            run=run_verifiers,
            epilog="--task 'number+0.2*think:FILE.jsonl' rewards the right number with 1 and the form "
            "with 0.2."),
    Command("explain", "explain a metric, a method or a setting: what it means, what is healthy, when to "
            "change it", ExplainOptions, run_explain),
)
