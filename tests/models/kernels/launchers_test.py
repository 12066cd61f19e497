"""How Triton's launchers are compiled: by our own command, which needs no GPU to be tried."""

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from postgrad.models.kernels import launchers

SOURCE = """
#include <Python.h>
#include "far.h"
static PyObject *launch(PyObject *self, PyObject *args) { return PyLong_FromLong(FAR); }
static PyMethodDef methods[] = {{"launch", launch, METH_VARARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "launcher", 0, -1, methods};
PyMODINIT_FUNC PyInit_launcher(void) { return PyModule_Create(&module); }
"""


@pytest.fixture
def build(monkeypatch):
    """Triton's settings of how to build."""
    knobs = SimpleNamespace(impl=None, backend_dirs=set())
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(knobs=SimpleNamespace(build=knobs)))
    launchers.build_quickly.cache_clear()
    yield knobs
    launchers.build_quickly.cache_clear()


def test_a_launcher_is_built(build, tmp_path):
    launchers.build_quickly()
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    (far / "far.h").write_text("#define FAR 7")
    (near / "launcher.c").write_text(SOURCE)
    made = build.impl("launcher", str(near / "launcher.c"), str(near), [], [str(far)], ["m"])
    spec = importlib.util.spec_from_file_location("launcher", made)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.launch() == 7


def test_another_way_to_build_stays(build):
    build.impl = print
    launchers.build_quickly()
    assert build.impl is print


def test_an_older_triton_builds_as_it_does(monkeypatch, build):
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace())
    launchers.build_quickly()
