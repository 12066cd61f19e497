"""The pages of exercises: over HTTP, and in a real browser by keyboard alone."""

import json

import pytest
from studio_browser import axe, browser, serving, tab  # noqa: F401
from studio_small import client as client_of

from postgrad.studio.cells.runner import Runner
from postgrad.studio.exercises import EXERCISES, QUESTIONS, progress
from postgrad.studio.exercises.base import AnswerVerdict

expect = pytest.importorskip("playwright.sync_api").expect
EXERCISE = EXERCISES["pass-at-k"]
BIASED = "pass_at_k = lambda n, c, k: 1 - (1 - c / n) ** k"
RIGHT = "from math import comb\npass_at_k = lambda n, c, k: 1 - comb(n - c, k) / comb(n, k)"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def graded(monkeypatch):
    """The jail's word is given by the test; nothing is started."""
    said = []
    monkeypatch.setattr(Runner, "warm", lambda self, **_: None)
    monkeypatch.setattr(Runner, "grade", lambda self, exercise, source: said.pop())
    return said


def test_every_exercise_has_a_page_and_no_solution_on_it(tmp_path, graded):
    with client_of(tmp_path) as client:
        index = client.get("/exercises").text
        for exercise in EXERCISES.values():
            assert f'href="/exercises/{exercise.name}"' in index
            text = client.get(f"/exercises/{exercise.name}").text
            assert text.count("<details>") == 3 and "A model solution" not in text
        assert client.get("/exercises/nowhere").status_code == 404
        assert client.post("/exercises/nowhere/check", data={"source": ""}).status_code == 404
        assert client.post("/exercises/questions/nowhere", data={"answer": ""}).status_code == 404


def test_a_solved_one_shows_the_model_solution_and_counts(tmp_path, graded):
    with client_of(tmp_path) as client:
        graded.append(AnswerVerdict(passed=False, says="You <b>erred</b>.", example="f()",
                                    checks=(("a", False),)))
        text = client.post("/exercises/pass-at-k/check", data={"source": "x"}).text
        assert "You &lt;b&gt;erred" in text and 'class="red"' in text and "comb" not in text
        assert "1 try" in client.get("/exercises").text
        graded.append(AnswerVerdict(passed=True, says="Right."))
        text = client.post("/exercises/pass-at-k/check", data={"source": EXERCISE.solution}).text
        assert "from math import comb" in text and progress.load_progress().solved["pass-at-k"]["tries"] == 2
        assert f"1 of {len(EXERCISES)} solved" in client.get("/exercises").text
        assert "from math import comb" in client.get("/exercises/pass-at-k").text
        kept = json.loads(client.get("/exercises/export").text)
        assert kept["solved"]["pass-at-k"]["answer"] == EXERCISE.solution


def test_a_model_answer_follows_an_own_one(tmp_path):
    question = QUESTIONS["several-completions"]
    with client_of(tmp_path) as client:
        page = client.get("/exercises/questions").text
        assert all(q.name in page and q.answer not in page for q in QUESTIONS.values())
        short = client.post(f"/exercises/questions/{question.name}", data={"answer": "dunno"}).text
        assert "Write an answer of your own first" in short and question.answer[:30] not in short
        long = client.post(f"/exercises/questions/{question.name}", data={"answer": "<i>to compare</i> them "
                                                                                    "all"})
        assert question.answer[:30] in long.text and "&lt;i&gt;" in long.text
    assert progress.load_progress().written == {question.name: "<i>to compare</i> them all"}


def test_checking_is_for_this_machine_alone(tmp_path):
    with client_of(tmp_path, loopback=False) as client:
        assert "switched off" in client.get("/exercises/pass-at-k").text
        assert client.post("/exercises/pass-at-k/check", data={"source": "x"}).status_code == 403


def test_exported_pages_hold_nobodys_progress(tmp_path):
    kept = progress.Progress()
    kept.tried("pass-at-k", "SECRET", True)
    kept.written["beta"] = "MINE"
    progress.save_progress(kept)
    with client_of(tmp_path) as client:
        still = {"x-postgrad-export": "1"}
        for path in ("/exercises", "/exercises/pass-at-k", "/exercises/questions"):
            text = client.get(path, headers=still).text
            assert not any(word in text for word in ("SECRET", "MINE", "solved", "<form"))
        assert "postgrad exercise check" in client.get("/exercises/pass-at-k", headers=still).text


def fits(page, width):
    return page.evaluate("document.documentElement.scrollWidth") <= width and axe(page) == []


def answered(page, text):
    """What is said of an answer that was typed and checked by keyboard."""
    page.locator(".cm-content").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type(text)
    page.keyboard.press("Control+Enter")
    return page.locator(".says")


def test_wrong_then_right_by_keyboard(tmp_path, tab):  # noqa: F811
    with serving(tmp_path / "runs", tmp_path / "p.db") as origin:
        wide, narrow = tab(origin), tab(origin, width=390, dark=True)
        wide.goto("/exercises/pass-at-k")
        expect(answered(wide, BIASED)).to_have_text(EXERCISE.mistakes[0].says, timeout=60_000)
        assert fits(wide, 1280)
        narrow.goto("/exercises/pass-at-k")
        narrow.get_by_text("A hint", exact=True).press("Enter")
        expect(narrow.get_by_text("Count the opposite")).to_be_visible()
        expect(narrow.get_by_text("Another hint")).to_be_visible()
        expect(narrow.get_by_text("There are C(n - c, k) ways")).to_be_hidden()
        expect(answered(narrow, RIGHT)).to_contain_text("Right", timeout=60_000)
        expect(narrow.get_by_label("A model solution")).to_contain_text("comb(n - c, k)")
        assert fits(narrow, 390)
        narrow.goto("/exercises")
        expect(narrow.locator(".progress")).to_contain_text(f"1 of {len(EXERCISES)} solved")
        assert fits(narrow, 390)
        narrow.goto("/exercises/questions")
        narrow.get_by_label("Your answer").first.fill("A reward names no better answer, it only judges one.")
        narrow.keyboard.press("Tab")
        narrow.keyboard.press("Enter")
        expect(narrow.locator(".shown-answer")).to_contain_text(QUESTIONS["no-supervised-loss"].answer[:40])
        assert fits(narrow, 390)


def test_progress_is_exported(tmp_path, graded, tab):  # noqa: F811
    """A reader with something to show saves it as a file, by keyboard, and the file says what was done."""
    kept = progress.Progress()
    kept.tried("pass-at-k", RIGHT, True)
    kept.written["beta"] = "At a high beta nothing is learned."
    progress.save_progress(kept)
    with serving(tmp_path / "runs", tmp_path / "p.db") as origin:
        page = tab(origin)
        page.goto("/exercises")
        expect(page.locator(".progress")).to_contain_text(f"1 of {len(EXERCISES)} solved")
        with page.expect_download() as saved:
            page.get_by_role("link", name="Export").press("Enter")
        assert saved.value.suggested_filename == "exercises.json"
        found = json.loads(saved.value.path().read_text())
    assert found == kept.record() and found["solved"]["pass-at-k"]["answer"] == RIGHT
    assert found["written"]["beta"].startswith("At a high beta")
