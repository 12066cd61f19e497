"""What holds for the whole session of tests."""

import gc


def pytest_collection_finish(session):
    """The tests and what they import live to the end: no collection of garbage looks through them again."""
    gc.collect()
    gc.freeze()
