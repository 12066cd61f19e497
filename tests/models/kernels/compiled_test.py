"""The C kernels as a library: where they cannot be compiled plain torch is used, with a sentence."""

import pytest

from postgrad.models.kernels import cpu

pytestmark = pytest.mark.skipif(cpu.c_library() is None, reason="no C compiler on this machine")


@pytest.fixture
def fresh():
    """The library looked for anew, and as it was at the end."""
    cpu.c_library.cache_clear()
    yield
    cpu.c_library.cache_clear()


def test_without_a_compiler_there_is_one_warning_and_no_library(monkeypatch, fresh):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("POSTGRAD_KERNELS", raising=False)
    with pytest.warns(UserWarning,
                      match="no compiled kernels, so plain torch is used.*no C compiler found") as seen:
        assert cpu.c_library() is None and cpu.c_library() is None
    assert len(seen) == 1


def test_a_compiler_that_fails_is_quoted(monkeypatch, fresh, tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] && echo odd 1.0 && exit 0\n"
                        "echo cpu.c: too hard >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.warns(UserWarning, match="plain torch is used, which is slower: cpu.c: too hard"):
        assert cpu.c_library() is None
    assert not list(tmp_path.glob("postgrad/*"))  # nothing half made is left


def test_plain_can_be_asked_for(monkeypatch, fresh):
    monkeypatch.setenv("POSTGRAD_KERNELS", "plain")
    assert cpu.c_library() is None


def test_every_c_function_is_declared_to_ctypes():
    names = {"add_norm", "place", "attend", "pick", "norm", "norm_backward", "rotate", "gate",
             "gate_backward", "attention", "attention_backward", "decode", "note", "pack", "panel", "product",
             "move_up", "choose", "gelu", "reshape"}
    assert {name for _, name, _ in cpu.c_signatures(cpu.c_source())} == names
    with pytest.raises(TypeError, match="argument"):
        cpu.call_c("gate", 1, 2)
