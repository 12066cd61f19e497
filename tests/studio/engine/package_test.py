"""The package `pyodide` is checked before it becomes part of a site."""

import gzip
import io
import json
import random
import re
import tarfile
import zipfile

import pytest

from postgrad.cli import main
from postgrad.studio.engine.package import (
    SUMS,
    engine_scripts,
    packed_text,
    read_engine,
    waiting_memory,
    without_compression,
)


def test_it_says_what_is_no_such_package(tmp_path):
    (tmp_path / "a.tgz").write_bytes(b"no archive")
    for path in (tmp_path / "missing", tmp_path / "a.tgz", tmp_path):
        with pytest.raises(ValueError, match=r"is not the package `pyodide`, .*`npm pack pyodide@[\d.]+`"):
            read_engine(path)


def test_another_version_is_refused_by_the_file_that_differs(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    for name in SUMS:
        (folder / name).write_bytes(b"other")
    with pytest.raises(ValueError, match="pyodide.mjs has another sha256"):
        engine_scripts(tmp_path)
    with tarfile.open(tmp_path / "p.tgz", "w:gz") as archive:
        for name in SUMS:
            info = tarfile.TarInfo(f"package/{name}")
            info.size = 5
            archive.addfile(info, io.BytesIO(b"other"))
    with pytest.raises(ValueError, match="pyodide.mjs has another sha256"):
        engine_scripts(tmp_path / "p.tgz")


def test_the_command_refuses_before_it_writes(tmp_path, capsys):
    assert main(["studio", "export", str(tmp_path / "site"), "--engine", str(tmp_path / "none.tgz")]) == 2
    assert re.search("none.tgz is not the package `pyodide`", capsys.readouterr().err)
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("size", [0, 1, 6, 7, 8, 3000])
def test_a_packed_text_has_seven_bits_a_character_and_no_byte_is_lost(size):
    data = random.Random(size).randbytes(size)
    text = packed_text(data)
    assert text[0] == text[-1] == '"' and not set(text[1:-1]) & set('\0\n\r"\\')
    sevens = [[0, 10, 13, 34, 92][ord(c) - 128] if ord(c) >= 128 else ord(c) for c in text[1:-1]]
    bits = "".join(f"{x:07b}" for x in sevens)
    packed = bytes(int(bits[i: i + 8], 2) for i in range(0, len(bits) - 7, 8))
    assert gzip.decompress(packed) == data
    assert size < 1000 or len(text.encode()) < 1.2 * len(packed)  # base64: 1.33


def test_the_zip_that_compresses_better_has_the_same_files():
    given = io.BytesIO()
    with zipfile.ZipFile(given, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a.py", "b/c.py"):
            archive.writestr(name, json.dumps(list(range(99))) + name)
    made = without_compression(given.getvalue())
    with zipfile.ZipFile(given) as before, zipfile.ZipFile(io.BytesIO(made)) as after:
        assert {n: before.read(n) for n in before.namelist()} == {n: after.read(n) for n in after.namelist()}
    assert made == without_compression(made) and len(made) > len(given.getvalue())


def test_without_node_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"there is no `node`.*install Node\.js"):
        waiting_memory({}, b"")
