"""Values between processes that do not trust each other."""

import pytest

from postgrad.rewards.sandbox.codec import NotPlain, decode, encode

PRIME = 2**61 - 1  # ints that are equal modulo this share their hash


@pytest.mark.parametrize(
    "make",
    [
        lambda xs: b'{"s":[%s]}' % b",".join(xs),
        lambda xs: b'{"z":[%s]}' % b",".join(xs),
        lambda xs: b'{"d":[%s]}' % b",".join(b"[%s,1]" % x for x in xs),
    ],
)
def test_keys_that_share_a_hash_are_refused(make):
    alike = [b'{"i":"%s"}' % hex(i * PRIME).encode() for i in range(1, 4000)]
    with pytest.raises(NotPlain, match="share a hash"):
        decode(make(alike))
    assert len(decode(make([str(i).encode() for i in range(4000)]))) == 4000


def test_values_cross_as_they_are():
    value = {(1, -2): {3, 4.5}, "a": [frozenset({b"x"}), None, 1j, 2**80]}
    assert decode(encode(value)) == value
