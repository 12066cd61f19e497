"""The command `postgrad diff`: two rows of the table side by side."""

from __future__ import annotations

from collections.abc import Sequence

from postgrad.cli.output import say_json, table


def diff(args) -> int:
    from postgrad.methods import get_method
    from postgrad.methods.pages import compare_rows
    rows = get_method(args.first), get_method(args.second)
    names = tuple(row.name for row in rows)
    found = compare_rows(*rows)
    if args.json:
        say_json({"methods": list(names), "same": not found,
                  "differences": [difference._asdict() for difference in found]})
    elif not found:
        print(f"{names[0]} and {names[1]} are the same row." if names[0] != names[1] else
              f"{names[0]} is {names[1]}: the same row.")
    else:
        print_differences(names, found)
    return 0


def print_differences(names: tuple[str, str], found: Sequence) -> None:
    """Functions and words a line each, then constants and facts as a table."""
    width = max(map(len, (*names, "both")))
    for difference in (d for d in found if d.kind in ("function", "words")):
        print(difference.part)
        for name, text in zip(("both", *names), lines_of(difference), strict=True):
            if text:
                print(f"  {name:<{width}}  {text}")
    numbers = [d for d in found if d.kind in ("constant", "fact")]
    if numbers:
        print()
        table([{"": d.part, names[0]: shown(d.first), names[1]: shown(d.second)} for d in numbers])


def lines_of(difference) -> tuple[str, str, str]:
    """What both rows have in common, "" where nothing, then what each of them has."""
    values = difference.first, difference.second
    if difference.kind == "words":
        return "", *(value or "none" for value in values)
    if None not in values and formula(values[0]) == formula(values[1]):
        return formula(values[0]), *(with_constants(value) for value in values)
    return "", *(f"{with_constants(value)}: {formula(value)}" if value else "none" for value in values)


def formula(told: dict) -> str:
    return "   ".join([told["says"], *told["formulas"]])


def with_constants(told: dict) -> str:
    from postgrad.methods.row import format_call
    return format_call(told["function"], told["constants"])


def shown(value) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
