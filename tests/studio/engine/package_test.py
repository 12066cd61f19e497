"""The package `pyodide` is checked before it becomes part of a site."""

import io
import re
import tarfile

import pytest

from postgrad.cli import main
from postgrad.studio.engine.package import SUMS, engine_scripts, read_engine


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
