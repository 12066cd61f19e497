"""The reference: what its pages say of each public name is what Python itself knows of it;
torch stays out."""

import inspect
import re
import subprocess
import sys
from html import unescape

import pytest
from paths import ROOT
from starlette.testclient import TestClient

import postgrad
from postgrad.studio import reference
from postgrad.studio.app import create_studio
from postgrad.studio.security import COOKIE

TOKEN = "the-token-of-the-owner-of-this-studio"


@pytest.fixture
def client(tmp_path):
    app = create_studio(runs=tmp_path / "runs", token=TOKEN, hosts=("testserver",), store=tmp_path / "p.db")
    return TestClient(app, headers={"cookie": f"{COOKIE}={TOKEN}"}, raise_server_exceptions=False)


def plain(html):
    """A page's words, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


@pytest.mark.parametrize("name", postgrad.__all__)
def test_a_page_says_what_python_knows(name):
    thing, entry = getattr(postgrad, name), reference.reference_entry(name)
    if name == "METHODS":
        assert (entry.kind == "table"
                and entry.doc == inspect.cleandoc(sys.modules["postgrad.methods"].__doc__))
        return
    assert entry.kind == ("class" if inspect.isclass(thing) else "function")
    assert entry.doc == inspect.getdoc(thing) and entry.module == thing.__module__
    if entry.kind == "function":
        parts = inspect.signature(thing).parameters
        assert entry.signature.startswith(f"{name}(") and all(part in entry.signature for part in parts)
    else:
        members = {re.match(r"\w+", m.text)[0]: m for m in entry.methods}
        fields = set(getattr(thing, "__dataclass_fields__", ()))
        public = {n for n, value in inspect.getmembers(thing) if not n.startswith("_") and n not in fields
                  and (inspect.isroutine(value) or isinstance(value, property))}
        assert members.keys() == public and {re.match(r"\w+", f.text)[0] for f in entry.fields} >= fields
        for n, member in members.items():
            assert member.doc == (inspect.getdoc(getattr(thing, n)) or "") and "self" not in member.text


def test_the_first_page_names_all_of_them_and_links_lead_there(client):
    text = client.get("/reference").text
    assert re.findall(r'href="/reference/(\w+)"', text) == [e.name
                                                            for es in reference.names_by_module().values()
                                                            for e in es]
    assert sorted(re.findall(r'href="/reference/(\w+)"', text)) == postgrad.__all__
    assert 'href="/reference"' in client.get("/").text
    page = client.get("/reference/fit")
    assert page.status_code == 200 and "Trains a model, and returns the run." in plain(page.text)
    assert 'fit("tiny-chat", "dpo", data=pairs)' in plain(page.text)


def test_a_class_has_the_methods_of_its_bases(client):
    text = plain(client.get("/reference/Run").text)
    assert "model(step: int | str | None = None, device: str = 'cpu') -> Model" in text and "rows(" in text


def test_what_is_no_public_name_is_a_sentence(client):
    for name in ("nothing", "_HOMES", "<script>", "__version__"):
        answer = client.get(f"/reference/{name}")
        assert (answer.status_code == 404 and "no public name" in answer.text
                and "<script>alert" not in answer.text)


def test_code_among_words_is_set_as_code():
    assert reference.mark_code("As `fit` <b>: step: a number. run: none; steps: 1", "f(step, run)") == (
        "As <code>fit</code> &lt;b&gt;: step: a number. <code>run</code>: none; steps: 1")
    assert reference.mark_code("step: a number") == "step: a number"


def test_words_are_filled_and_lines_stand():
    doc = "One thing,\nin two lines.\n\n    f(x)\n        g(y)\n\nAt the end:\na  b  c"
    assert reference.doc_blocks(doc) == [("One thing, in two lines.", False), ("f(x)\n    g(y)", True),
                                         ("At the end:", False), ("a  b  c", True)]


def test_the_pages_need_no_torch():
    code = ("import sys\nfrom postgrad.studio import reference\n"
            "print(len([e.blocks for es in reference.names_by_module().values() for e in es]), 'torch' "
            "in sys.modules)")
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.split() == [str(len(postgrad.__all__)), "False"]
