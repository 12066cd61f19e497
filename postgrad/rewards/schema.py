"""Replies that are JSON: they parse, and obey a schema. Size and depth have caps.

A schema's patterns run on a model's text, so a schema is checked in the jail, within a wall limit; a $ref out
of the schema is refused, and nothing is ever fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from postgrad.records import Verdict
from postgrad.rewards.base import JudgeText, error_verdict, shorten
from postgrad.rewards.format import find_answer
from postgrad.rewards.sandbox import Jailed
from postgrad.rewards.text import strict_pattern
from postgrad.rewards.visible import outside_thoughts, visible
from postgrad.system.files import error_text as one_line
from postgrad.system.files import load_json
from postgrad.system.json_text import refuse_twice, strict_json

LONGEST, DEPTH = 100_000, 32  # characters, brackets in brackets

# one left open goes to the end: no quote is tried twice
_STRING = re.compile(r'"(?:[^"\\]|\\.?)*+(?:"|\Z)', re.DOTALL)

SOURCE = '''
from jsonschema.validators import validator_for


def fault(schema, value):
    found = validator_for(schema)(schema).iter_errors(value)
    faults = sorted(found, key=lambda fault: len(fault.absolute_path), reverse=True)
    return f"{faults[0].json_path}: {faults[0].message}"[:200] if faults else ""


def broken(schema):
    try:
        validator_for(schema).check_schema(schema)
        return ""
    except Exception as fault:
        return str(fault).splitlines()[0]
'''
SCHEMA = Jailed("json(SCHEMA)", SOURCE, package="jsonschema", extra="json",
                warm="fault({'type': 'object'}, {'a': 1})",
                instead="use json, which asks only that a reply parses")


def parse_json(text: str) -> tuple[object, str]:
    """(the value, "") of a JSON text, or (None, why it is none)."""
    if len(text) > LONGEST:
        return None, f"longer than {LONGEST:,} characters"
    depth = 0
    for char in _STRING.sub("", text):
        depth += (char in "[{") - (char in "]}")
        if depth > DEPTH:
            return None, f"nested over {DEPTH} deep"
    try:
        return strict_json(text), ""
    except (ValueError, RecursionError) as wrong:
        return None, f"not JSON: {shorten(str(wrong))}"


def read_schema(path: str) -> object:
    """A schema from its file; raises ValueError where it is none, or refers to something outside itself."""
    try:
        schema = load_json(Path(path).expanduser())
        refs = list(_refs(schema))
    except (OSError, ValueError, RecursionError) as wrong:
        raise ValueError(f"json({path}): the schema cannot be read ({one_line(wrong)}): give a file with a "
                         "JSON schema.") from None
    for ref in refs:
        if not (isinstance(ref, str) and ref.startswith("#")):
            raise ValueError(f"json({path}): the schema refers to {ref!r:.60}, outside itself: only "
                             "references that begin with # are followed, and nothing is fetched.")
    outcome = SCHEMA("broken", schema)
    if outcome.kind != "pass" or outcome.value:
        raise ValueError(f"json({path}) is no JSON schema: {outcome.value or outcome.reason}.")
    return strict_patterns(schema)


def strict_patterns(schema: object) -> object:
    """A schema with its patterns as JSON Schema means them (ECMA 262): $ is the end of a text, \\d is 0-9."""
    if isinstance(schema, list):
        return [strict_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, object] = {}
    for key, value in schema.items():
        if key == "pattern" and isinstance(value, str):
            out[key] = strict_pattern(value)
        elif key == "patternProperties" and isinstance(value, dict):
            out[key] = {strict_pattern(name): strict_patterns(inside) for name, inside in value.items()}
        else:
            out[key] = value if key in ("const", "enum", "default", "examples") else strict_patterns(value)
    return out


def visible_values(value: object) -> object:
    """A JSON value without invisible characters in its texts; ValueError where two keys look the same."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [visible_values(item) for item in value]
    if not isinstance(value, dict):
        return value
    return refuse_twice([(visible(key), visible_values(inside)) for key, inside in value.items()])


def _refs(node: object) -> Iterator[object]:
    for key, value in (node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list)
                       else ()):
        if key in ("$ref", "$dynamicRef", "$recursiveRef"):
            yield value
        else:
            yield from _refs(value)


def _unfenced(text: str) -> str:
    """The text between a ```json line and a ``` line; without these, the text."""
    first, _, rest = text.partition("\n")
    return rest[:-3] if first.strip() in ("```", "```json") and rest.endswith("\n```") else text


def json_reply(schema_file: str = "") -> JudgeText:
    """1 where the <answer> outside thoughts, else the whole reply, is JSON (a ``` fence allowed) and obeys
    the schema, as a reader sees its texts."""
    schema = read_schema(schema_file) if schema_file else None

    def verify(text: str) -> Verdict:
        answer = find_answer(outside_thoughts(text))
        value, why = parse_json(_unfenced((text if answer is None else answer).strip()))
        try:
            value = visible_values(value)
        except ValueError as wrong:
            why = str(wrong)
        if not why and schema is not None:
            outcome = SCHEMA("fault", schema, value)
            if outcome.kind == "infrastructure":
                return error_verdict(outcome.reason)
            why = shorten(str(outcome.value), 120) if outcome.kind == "pass" else outcome.reason
        return Verdict(score=float(not why), reason=why or "in form")

    return verify
