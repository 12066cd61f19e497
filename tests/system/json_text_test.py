"""JSON that tries to be slow, deep or twofold."""

import json

import pytest

from postgrad.system.json_text import FieldTwice, nesting, strict_json


@pytest.mark.parametrize("text, words", [
    ("[" * 100_000, "nested over 200 deep"), ("[" * 201 + "]" * 201, "nested over 200 deep"),
    ('{"a":' * 5000 + "1" + "}" * 5000, "nested over 200 deep"), ('{"a": NaN}', "NaN is no JSON number"),
    ("[-Infinity]", "no JSON number"),
    ("[1e999]", "1e999 is larger than any number that is read"),
    ('{"a": 1, "a": 2}', "field 'a' stands twice"), ("9" * 5000, "number of over 4,300 digits"),
    ('[{"b": {"x": 1, "y": 2, "x": 3}}]', "field 'x' stands twice"), ("{'a': 1}", "Expecting"), ("", "Expe"),
    (b"\xff", "utf-8")])
def test_what_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        strict_json(text)


def test_half_of_a_surrogate_pair_is_no_text():
    assert strict_json('["\\ud83d\\ude00", "\\\\ud800"]') == ["\U0001f600", "\\ud800"]
    with pytest.raises(ValueError, match="surrogates"):
        strict_json('["\\ud800"]')


def test_keys_are_looked_through_once():
    """60,000 keys, of which the last comes twice: each key is met once, not each against all others."""
    class Counted(str):
        compared = 0

        def __eq__(self, other):
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    from postgrad.system.json_text import refuse_twice
    names = [*map(str, range(60_000)), "59999"]
    with pytest.raises(FieldTwice, match="59999"):
        refuse_twice([(Counted(name), 0) for name in names])
    assert Counted.compared < 10 * len(names)


def test_brackets_in_texts_do_not_count_and_escapes_end_no_text():
    text = json.dumps({"a": "[" * 1000 + '\\"' + "{" * 1000, "b": [["]"]]})
    assert nesting(text) == 3 and strict_json(text)["b"] == [["]"]]
    flat = json.dumps([[i] for i in range(500)])
    assert nesting(flat) == 2 and len(strict_json(flat)) == 500
    assert nesting('"' + "\\" * 99_999 + "[" * 300) <= 300  # a text that does not end takes no longer
