"""Predict first: the number of each instrument is one of its figure's, and moves with its controls."""

import pytest
from studio_positions import positions
from studio_small import client

from postgrad.studio.instruments import INSTRUMENTS
from postgrad.studio.instruments.prediction import MEASURES, measured

GAMES = {"preference-labeller", "bandit", "ledger"}  # which keep a score, or whose states are other models


def test_every_instrument_but_the_games_can_be_predicted():
    assert set(INSTRUMENTS) - set(MEASURES) == GAMES and not set(MEASURES) - set(INSTRUMENTS)


@pytest.mark.parametrize("name", MEASURES)
def test_the_number_is_there_and_moves(name):
    instrument = INSTRUMENTS[name]
    states = (positions(instrument, mixed=4) if name != "grpo" else  # its sliders are members of a tuple
              [instrument.state(), instrument.state(rewards=(0.0,) * 7 + (1.0,))])
    found = [measured(name, instrument.compute(state)) for state in states]
    assert len({one["words"] for one in found}) == 1 and len({one["value"] for one in found}) > 1


def test_a_page_asks_for_it(tmp_path):
    studio = client(tmp_path)
    answer = studio.get("/instruments/bradley-terry/measure", params={"chosen": 0, "rejected": 0})
    assert answer.json() == {"words": "the probability that the first wins", "value": 0.5}
    assert studio.get("/instruments/bandit/measure").status_code == 204
    assert "data-predict" in studio.get("/instruments/bradley-terry").text
    assert "data-predict" not in studio.get("/instruments/bandit").text
