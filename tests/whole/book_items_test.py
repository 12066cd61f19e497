"""The list of what the book has to hold: every item that names a page is found there, and every test that
the book's proof counts on exists."""

import re

from book_items import items, lost, pages
from book_tests import INTERACTIONS, SENTENCES, TERMS
from paths import TESTS


def test_every_listed_item_stands_where_it_is_listed():
    page, listed = pages(), items()
    assert len(listed) > 200
    assert [(item.name, gone) for item in listed if item.places and (gone := lost(item, page))] == []


def test_what_is_not_there_is_not_found():
    page = pages()
    item = items()[0]
    for words in ("no such words", "::instrument nothing", "::check nothing", "::cell nothing", "#nothing"):
        assert lost(item._replace(places={"1": [words]}), page) == [f"1: {words}"]
    assert lost(item._replace(places={"7": ["chapters"]}), page) == ["7: chapters"]
    assert lost(item._replace(places={}), page) == ["no page has it"]


def test_the_tests_that_are_counted_exist():
    names = {f"tests/{path.relative_to(TESTS).as_posix()}::{name}" for path in TESTS.rglob("*_test.py")
             for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}
    words = {word for some in (*INTERACTIONS.values(), SENTENCES, TERMS) for word in some}
    assert {word for word in words if not any(word in name for name in names)} == set()
