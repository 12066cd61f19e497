"""What people write on a run stays with its folder, and disturbs nobody."""

import pytest
from studio_small import make

from postgrad.runs import Run
from postgrad.runs.notes import NOTES, RunNote, read_note, split_tags, write_note


def test_a_note_is_read_as_it_was_written_and_an_empty_one_is_gone(tmp_path):
    run = make(tmp_path / "a", 2, done=False)  # its lock is held: a note needs none
    note = RunNote(name="baseline, longer", tags=("paper", "v2"), note="seed 3\ndiverged", archived=True)
    write_note(run.folder, note)
    assert read_note(run.folder) == note and Run.open(run.folder).rows("metrics")[0]
    write_note(run.folder, RunNote())
    assert read_note(run.folder) == RunNote() and not (run.folder / NOTES).exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"name": null, "tags": 3, "archived": "yes"}'])
def test_a_file_that_is_no_note_is_an_empty_one(tmp_path, text):
    (tmp_path / NOTES).write_text(text)
    assert read_note(tmp_path) == RunNote()


def test_what_cannot_be_a_note_is_a_sentence_and_a_link_is_not_followed(tmp_path):
    assert split_tags(" paper,best  paper ") == ("paper", "best")
    for bad in ({"tags": ("a b",)}, {"name": "x" * 101}, {"name": "a\nb"}, {"tags": ("<b>",)},
                {"tags": tuple("abcdefghijklmnopqrstuvwxyz")}):
        with pytest.raises(ValueError, match="tag|name"):
            RunNote(**bad)
    (tmp_path / "outside").write_text("{}")
    (tmp_path / NOTES).symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="is a link"):
        write_note(tmp_path, RunNote(name="x"))
    assert (tmp_path / "outside").read_text() == "{}" and read_note(tmp_path) == RunNote()
