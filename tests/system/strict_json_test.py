"""JSON from others, read strictly."""

import pytest
from postgrad.system.strict_json import repeated_name, strict_json


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "the field 'a' stands twice"),
        ("[NaN]", "NaN is no JSON number"),
        ('{"a": 1e999}', "1e999 is larger"),
        ('{"a": -Infinity}', "no JSON number"),
        (r'{"a": "\ud800"}', "surrogates"),
        ('{"a": {"b": 1, "b": 1}}', "'b' stands twice"),
        ("{", "Expecting"),
    ],
)
def test_what_is_not_said_once_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        strict_json(text)
    assert strict_json(r'{"a": [1, 2.5, "\u00e9"]}') == {"a": [1, 2.5, "é"]}


def test_a_repeated_key_is_looked_for_once_through():
    """60,000 keys: each is compared with its own first place alone."""

    class Name(str):
        compared = 0

        def __eq__(self, other):
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    pairs = [(Name(f"k{i}"), i) for i in range(60_000)]
    assert repeated_name([*pairs, pairs[-1]]) == "k59999" and Name.compared < 200_000
