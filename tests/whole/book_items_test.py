"""The list of what the book has to hold: every item that names a page is found there."""

from book_items import items, lost, pages


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

