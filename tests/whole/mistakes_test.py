"""Every mistake of the corpus gets one sentence with its cause and its remedy (assets/mistakes.toml, written
before the messages)."""

import pytest
from mistakes import MISTAKES, faults, make_mistake, make_place


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_a_sentence(name, made, tmp_path):
    code, said = make_mistake(MISTAKES[name], made, tmp_path / "here")
    found = faults(MISTAKES[name], code, said)
    assert not found, said


def test_the_corpus_is_large_enough():
    assert len(MISTAKES) >= 150
    assert sum("python" in mistake for mistake in MISTAKES.values()) >= 50
