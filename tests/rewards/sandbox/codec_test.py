"""Values of untrusted bytes: plain, and cheap to build."""

import pytest

from postgrad.rewards.sandbox.codec import COLLISIONS, TooBig, decode, encode

HASH = 2**61 - 1  # multiples of it have one hash


@pytest.mark.parametrize("value", [
    {1, 2, 3}, frozenset("abc"), {1: "a", (2, 3): {4.5}}, {True, 0}, {-1, -2}, set(range(5000)),
    {HASH * n for n in range(COLLISIONS)}, {"a": [{(): None}]}])
def test_what_was_encoded_is_decoded(value):
    assert decode(encode(value)) == value


@pytest.mark.parametrize("make", [
    set, frozenset, dict.fromkeys, lambda items: [set(items)], lambda items: {"a": frozenset(items)},
    lambda items: {(item, 0) for item in items}])
def test_many_values_of_one_hash_are_refused_before_they_are_compared(make):
    """40,000 of them took 17 s to compare."""
    value = encode(make([HASH * n for n in range(300)]))
    with pytest.raises(TooBig, match="with one hash"):
        decode(value)
