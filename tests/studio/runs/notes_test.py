"""A run's name, tags and note from its page: in the list, searched for, archived."""

from studio_small import Texts, client, make, poisons

from postgrad.runs.notes import read_note


def test_a_note_is_written_shown_and_found(tmp_path):
    run, _ = make(tmp_path / "a", 1), make(tmp_path / "b", 1)
    web = client(tmp_path)
    given = {"run": "a", "name": " the  baseline ", "tags": "paper, v2", "note": "two\r\nlines"}
    assert web.post("/runs/-/note", data=given).headers["hx-redirect"] == "/runs/a"
    note = read_note(run.folder)
    assert (note.name, note.tags, note.note, note.archived) == ("the baseline", ("paper", "v2"), "two\nlines",
                                                                False)
    page = Texts(web.get("/runs/a").text)
    assert "the baseline" in page.text and "two\nlines" in page.text
    assert "/runs/b" not in web.get("/runs?q=paper").text and "the baseline" in web.get("/runs?q=v2").text
    web.post("/runs/-/note", data=given | {"archived": "1"})
    assert "/runs/a" not in web.get("/runs").text and "Archived (1)" in web.get("/runs").text
    assert "/runs/a" in web.get("/runs?archived=1").text and "/runs/b" not in web.get("/runs?archived=1").text


def test_what_is_no_note_is_refused_and_poison_stays_text(tmp_path):
    make(tmp_path / "a", 1)
    web = client(tmp_path)
    for wrong in ({"run": "../a"}, {"run": "none"}, {"tags": "<script>"}, {"name": "x" * 101}):
        assert web.post("/runs/-/note", data={"run": "a", "name": "x"} | wrong).status_code == 400, wrong
    for text in poisons()[:20]:
        web.post("/runs/-/note", data={"run": "a", "name": text[:100], "note": text})
        for address in ("/runs", "/runs/a"):
            assert [tag for tag, attrs in Texts(web.get(address).text).elements if any(
                key.startswith("on") for key in attrs)] == []
