"""The lab: cells over HTTP and in a real browser; an edited function drives its instrument."""

import re
from html import unescape

import pytest
import torch
from starlette.testclient import TestClient
from studio_browser import browser, serving, tab  # noqa: F401

from postgrad.maths.preference import bradley_terry
from postgrad.studio.app import create_studio
from postgrad.studio.cells.catalogue import CELLS
from postgrad.studio.security import COOKIE

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=60_000)  # a busy machine takes its time to import torch
TOKEN = "the-token-of-the-owner-of-this-studio"
CELL = CELLS["bradley-terry"]
DOUBLED = CELL.source.replace("chosen - rejected", "2 * (chosen - rejected)")


def client_of(tmp_path, **more):
    app = create_studio(runs=tmp_path, token=TOKEN, hosts=("testserver",), store=tmp_path / "p.db", **more)
    return TestClient(app, cookies={COOKIE: TOKEN}, headers={"x-postgrad": "1"},
                      raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    client = client_of(tmp_path_factory.mktemp("lab"))
    yield client
    client.app.state.runner.close()


def test_every_cell_has_a_page_with_its_source_and_its_promises(client):
    index = client.get("/lab").text
    for cell in CELLS.values():
        assert f'href="/lab/{cell.name}"' in index
        text = unescape(client.get(f"/lab/{cell.name}").text)
        assert cell.source in text and f"{cell.path}:{cell.line}" in text
        assert all(sentence in text for _, sentence in cell.checks)
    assert client.get("/lab/nowhere").status_code == 404
    assert client.post("/cells/nowhere/run", data={"source": ""}).status_code == 404


def test_a_run_says_what_holds_and_what_does_not(client):
    answer = client.post("/cells/bradley-terry/run", data={"source": CELL.source.replace("\n", "\r\n")})
    assert answer.text.count('class="green"') == 5 and answer.headers["hx-trigger"] == "cell-run"
    assert "The library’s version" in answer.text
    answer = client.post("/cells/bradley-terry/run", data={"source": f"print('<b>')\n{DOUBLED}"}).text
    assert answer.count('class="red"') == 2 and answer.count('class="green"') == 3
    assert "&lt;b&gt;" in answer and "Your version" in answer and "instead of" in answer
    answer = client.post("/cells/bradley-terry/run", data={"source": "1 / 0"})
    assert "line 1: ZeroDivisionError" in answer.text and answer.headers["hx-trigger"] == "cell-run"


def test_an_edited_function_drives_the_instrument(client):
    def picture(source, **state):
        return client.post("/cells/bradley-terry/drive", data={"source": source} | state).text

    ours, yours = picture(CELL.source, chosen="1.5"), picture(DOUBLED, chosen="1.5")
    loss = lambda gap: bradley_terry(*torch.tensor([gap, 0.0, 0.0])).item()  # noqa: E731
    assert f"{loss(1.5):.3f}" in ours and 'data-yours="0"' in ours
    assert f"{loss(3.0):.4f}" in yours and 'data-yours="1"' in yours and "Your version" in yours
    assert f"{loss(3.0):.4f}" in picture(DOUBLED, chosen="3", rejected="1.5")
    # the library is as it was
    assert f"{loss(1.5):.3f}" in client.get("/instruments/bradley-terry/figure?chosen=1.5").text
    assert "No picture: line 1: ZeroDivisionError" in picture("1 / 0")
    odd = "def bradley_terry(chosen, rejected, margin):\n    return (chosen - rejected) * float('nan')\n"
    assert 'data-yours="1"' in picture(odd)
    assert client.post("/cells/ipo/drive", data={"source": ""}).status_code == 404
    assert client.post("/cells/bradley-terry/drive", data={"source": "", "nonsense": "1"}).status_code == 400


def test_what_a_figure_says_is_true_of_the_edited_function_too(client):
    def picture(source, **state):
        return client.post("/cells/bradley-terry/drive", data={"source": source} | state).text

    nothing = "Nothing that this figure says of the library’s version is true of yours."
    yours = picture(DOUBLED, chosen="1.5")
    assert nothing in yours and "σ(gap)" not in yours and "tex-math" not in yours
    assert "coin toss: 50.0 %" in picture(DOUBLED, chosen="1", rejected="1")  # which it still is
    assert nothing in picture(CELL.source.replace("-logsigmoid", "logsigmoid"), chosen="1", rejected="1")
    ours = picture(CELL.source, chosen="1.5")
    assert nothing not in ours and "σ(gap)" in ours and "tex-math" in ours


def test_what_was_stopped_is_not_run_once_more_for_the_picture(client):
    assert "ZeroDivisionError" in client.post("/cells/bradley-terry/run", data={"source": "2 / 0"}).text
    runner = client.app.state.runner
    wall, runner.wall = runner.wall, 0.0  # a second run would have no time at all
    try:
        drawn = client.post("/cells/bradley-terry/drive", data={"source": "2 / 0"}).text
    finally:
        runner.wall = wall
    assert "No picture: line 1: ZeroDivisionError" in drawn


def test_cells_are_refused_when_others_can_reach_the_server(tmp_path):
    client = client_of(tmp_path, loopback=False)
    assert "switched off" in client.get("/lab/bradley-terry").text
    for act in ("run", "drive"):
        answer = client.post(f"/cells/bradley-terry/{act}", data={"source": DOUBLED})
        assert answer.status_code == 403 and "switched off" in answer.text
    assert not hasattr(client.app.state, "runner")


# in a browser

@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    with serving(folder / "runs", folder / "p.db") as origin:
        yield origin


def greens(page, count):
    expect(page.locator(".checks .green")).to_have_count(count)


def test_broken_on_purpose_by_keyboard_and_restored(origin, tab):  # noqa: F811
    page = tab(origin)
    page.goto("/lab/bradley-terry")
    greens(page, 5)
    page.get_by_label("Source of postgrad.maths.preference.bradley_terry").last.focus()
    page.keyboard.press("Control+End")
    for _ in range(len(" - margin)")):
        page.keyboard.press("Backspace")
    page.keyboard.type(")")
    expect(page.locator(".checks .red")).to_have_count(1)
    expect(page.locator(".checks .red")).to_contain_text("A gap equal to the margin")
    expect(page.locator("[data-mark]")).to_be_visible()
    expect(page.locator(".picture")).to_have_attribute("data-yours", "1")
    page.reload()                                                             # what was typed is kept
    expect(page.locator(".checks .red")).to_have_count(1)
    page.get_by_role("button", name="Restore").click()
    greens(page, 5)
    expect(page.locator("[data-mark]")).to_be_hidden()
    expect(page.locator(".picture")).to_have_attribute("data-yours", "0")


def test_a_syntax_error_takes_the_old_picture_away(origin, tab):  # noqa: F811
    page = tab(origin)
    page.goto("/lab/bradley-terry")
    greens(page, 5)
    page.get_by_label("Source of postgrad.maths.preference.bradley_terry").last.focus()
    page.keyboard.press("Control+End")
    page.keyboard.type(")")
    expect(page.locator(".picture .error")).to_contain_text("SyntaxError")
    assert page.locator(".picture svg").count() == 0 and page.locator(".picture .insight").count() == 0
    page.get_by_role("button", name="Restore").click()
    greens(page, 5)
    expect(page.locator(".picture")).to_have_attribute("data-yours", "0")


def test_your_version_follows_the_sliders(origin, tab):  # noqa: F811
    page = tab(origin)
    page.goto("/lab/bradley-terry?chosen=1.5")
    greens(page, 5)
    page.get_by_label("Source of postgrad.maths.preference.bradley_terry").last.focus()
    page.keyboard.press("Control+End")
    page.keyboard.press("Shift+Home")
    page.keyboard.type("return -logsigmoid(2 * (chosen - rejected) - margin)")
    expect(page.locator(".picture")).to_have_attribute("data-yours", "1")
    page.get_by_label("Reward of the chosen answer").press("ArrowRight")
    expect(page.locator(".picture")).to_have_attribute("data-query", "chosen=1.6")
    loss = bradley_terry(*torch.tensor([3.2, 0.0, 0.0])).item()
    expect(page.locator(".picture svg .label", has_text=f"{loss:.4f}")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/lab/bradley-terry\?chosen=1\.6$"))


def test_four_spaces_and_a_way_out_by_keyboard(origin, tab):  # noqa: F811
    page = tab(origin)
    page.goto("/lab/k3")
    greens(page, 5)
    page.get_by_label("Source of postgrad.maths.kl.k3").last.focus()
    page.keyboard.press("Control+Home")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.keyboard.type("print(1)")
    assert "-> Tensor:\n    print(1)\n" in page.locator("#source-k3").input_value()
    expect(page.locator(".prints")).to_contain_text("1")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Run")).to_be_focused()
