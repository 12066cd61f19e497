"""What holds for the whole session of tests."""

import gc
import os


def opened(number: int) -> None:
    os.fstat(number)


def pytest_configure():
    """A sync is for a power cut, which no test makes; two short trainings would wait a second for theirs.
    What is to be synced still has to be open."""
    os.fsync = opened


def pytest_collection_finish(session):
    """The tests and what they import live to the end: no collection of garbage looks through them again."""
    gc.collect()
    gc.freeze()
