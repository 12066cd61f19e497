"""A torn last entry is cut off; every sound one is read again."""

import pytest

from postgrad.serving.tinker.journal import Journal, Operation

FIRST, SECOND = (Operation(kind="optim_step", seq=i, body=b"{}" * i) for i in (1, 2))


def test_entries_outlive_the_process_that_wrote_them(tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.append(FIRST)
    journal.append(SECOND)
    assert Journal(tmp_path / "journal").operations == [FIRST, SECOND]
    journal.drop_until(1)
    journal.append(Operation(kind="optim_step", seq=3, body=b"", refusal="no."))
    assert [(x.seq, x.refusal) for x in Journal(tmp_path / "journal").operations] == [(2, ""), (3, "no.")]


@pytest.mark.parametrize("cut", range(1, len(SECOND.entry()) + 1, 7))
def test_a_torn_entry_is_cut_off_and_the_next_one_stands_in_its_place(tmp_path, cut):
    path = tmp_path / "journal"
    path.write_bytes(FIRST.entry() + SECOND.entry()[:-cut])
    journal = Journal(path)
    assert journal.operations == [FIRST]
    journal.append(SECOND)
    assert Journal(path).operations == [FIRST, SECOND]


@pytest.mark.parametrize("at", range(len(SECOND.entry())))
def test_a_changed_byte_ends_what_is_believed(tmp_path, at):
    path, entry = tmp_path / "journal", bytearray(SECOND.entry())
    entry[at] ^= 1
    path.write_bytes(FIRST.entry() + bytes(entry))
    assert Journal(path).operations == [FIRST]


@pytest.mark.parametrize("at", range(len(FIRST.entry())))
def test_damage_before_a_sound_entry_is_an_error_and_changes_nothing(tmp_path, at):
    path, entry = tmp_path / "journal", bytearray(FIRST.entry())
    entry[at] ^= 1
    path.write_bytes(before := bytes(entry) + SECOND.entry())
    with pytest.raises(ValueError, match="entry 1 of .*journal is damaged, and operation 2 after it is not"):
        Journal(path)
    assert path.read_bytes() == before
