"""The guided tours: every stop stands at something that is there, and a tour takes about ten minutes."""

import re

import pytest
from book_small import client

from postgrad.studio import instruments
from postgrad.studio.book import chapters, inline, tours

TOURS = {name: tours.chapter_tour(name) for name in chapters.NUMBERS}


@pytest.mark.parametrize("name", TOURS)
def test_a_tour_takes_about_ten_minutes(name):
    found, stops = chapters.chapter(name), TOURS[name]
    assert 6 <= len(stops) <= 14
    assert 8 <= tours.tour_minutes(found) <= 12
    assert [stop.first for stop in stops] == sorted(stop.first for stop in stops)  # in the order of reading
    page = found.layers["intuition"]
    drawn = {block.argument for stop in stops for block in page[stop.first: stop.last + 1]
             if block.kind in tours.FIGURES}
    assert len(drawn) >= 4 and sum(bool(stop.ask) for stop in stops) >= 2
    for stop in stops:
        sentences = re.findall(r"[.?!:](?= |$)", inline.plain_text(stop.says))
        assert 1 <= len(sentences) <= 5 and len(inline.plain_text(stop.says).split()) <= 60


@pytest.mark.parametrize("name", [name for name, stops in TOURS.items() if any(s.figure for s in stops)])
def test_a_stop_sets_the_controls_that_its_figure_has(name):
    """The state is the figure's own and leaves it the controls that it has: the page can set them."""
    page, moved = chapters.chapter(name).layers["intuition"], 0
    for stop in TOURS[name]:
        if stop.figure:
            start = next(b.argument.partition("?")[2] for b in page[stop.first: stop.last + 1]
                         if b.kind == "instrument")
            begun = tours.pose_of(stop.figure, start, "")
            assert [control for control, _ in stop.pose] == [control for control, _ in begun]
            assert stop.pose or not instruments.instrument_named(stop.figure).shown(
                instruments.instrument_named(stop.figure).state())
            moved += stop.pose != begun
    assert moved >= 1


def test_a_stop_that_leads_nowhere_is_named():
    found, says = chapters.chapter("why"), {"says": "Look."}
    for row, said in (({"at": "no such words"}, "why, stop 1: 0 blocks of the page have 'no such words'"),
                      ({"at": "the"}, r"why, stop 1: \d+ blocks"),
                      ({"at": "pipeline", "to": "token-mdp"}, "ends before it begins"),
                      ({"at": "imitated", "state": "k=1"}, "a state and none to set"),
                      ({"at": "token-mdp", "state": "speed=1"}, "token-mdp has no control 'speed'"),
                      ({"at": "pipeline", "figure": "pipeline"}, "has 'figure'")):
        with pytest.raises(ValueError, match=said):
            tours.read_stop(row | says, "why, stop 1", found, {})
    with pytest.raises(LookupError, match="'nothing' that is not computed"):
        tours.read_stop({"at": "imitated", "says": "{{nothing}}"}, "why, stop 1", found, {})


def test_a_page_marks_its_stops(tmp_path):
    studio = client(tmp_path)
    for name, stops in TOURS.items():
        found = chapters.chapter(name)
        text = studio.get(found.address).text
        numbers = [str(n) for n in range(1, len(stops) + 1)]
        for mark in ("data-stop", "data-stop-end"):
            assert sorted(re.findall(rf'{mark}="(\d+)"', text), key=int) == numbers
        assert text.count("<li data-figure=") == sum(bool(stop.figure) for stop in stops)
        assert f'data-tour="{round(tours.tour_minutes(found))}"' in text
        other = studio.get(found.layer_address("mathematics")).text
        assert f'href="{found.address}?tour=1"' in other and "data-stop" not in other
