"""The plan against what was measured, and its clock against what can be counted."""

import json
import random

import pytest
from paths import ROOT
from plan_points import SMALL, points, sampling

from postgrad import methods
from postgrad.cli import main
from postgrad.recipes.plan import (
    CARDS,
    ReplyLengths,
    Work,
    cards_named,
    plan_options,
    sampling_seconds,
    simulate,
)
from postgrad.training.memory import SIZES, Setup

PAGE = ROOT / "docs/scale.md"


def test_the_plan_is_within_15_percent_of_what_was_measured_and_the_page_says_how_far_off():
    found = points()
    assert [point.what for point in found if abs(point.off) > 0.15] == []
    page = PAGE.read_text()
    assert [point.line for point in found if point.line not in page] == []


@pytest.mark.parametrize("ahead", [0, 1, 2, 4])
def test_the_clock_of_equal_collections_can_be_counted(ahead):
    """In step the parts add up; ahead, K + 1 collections share that time, and the longer one hides the
    shorter."""
    for sample, train in ((3.0, 2.0), (2.0, 3.0), (2.9, 3.0)):
        found = simulate(lambda rng, s=sample: s, train, 0.5, ahead)
        assert found.step == pytest.approx(max(sample, train, (sample + train + 0.5) / (ahead + 1)))
        assert found.step == pytest.approx(found.waiting + train)


def test_more_ahead_evens_out_collections_that_differ():
    steps = [simulate(lambda rng: rng.choice((1.0, 5.0)), 3.0, 0.0, ahead).step for ahead in (0, 1, 2, 4)]
    assert steps == sorted(steps, reverse=True) and steps[0] > 1.2 * steps[1] and steps[-1] >= 3.0


def test_rows_on_a_sampler_by_hand():
    """Two slots, lengths 3, 1, 2: the third begins when the second has ended."""
    seen = []

    def token(rows, at):
        seen.append((rows, at))
        return 1.0 + rows
    assert sampling_seconds([3, 1, 2], 2, token) == 3.0 * 3 and seen == [(2, 0.5), (2, 1.5)]
    assert sampling_seconds([4], 2, lambda rows, at: 2.0) == 8.0
    assert sampling(SMALL, [64] * 8) < sampling(SMALL, [64] * 512) < 64 * sampling(SMALL, [64] * 8)


def test_lengths_have_their_mean_and_their_end():
    drawn = ReplyLengths(mean=100, longest=400).draw(4000, random.Random(0))
    assert 92 < sum(drawn) / len(drawn) < 104 and max(drawn) == 400 and min(drawn) >= 1
    assert ReplyLengths(mean=7, longest=9, kind="equal").draw(3, random.Random(0)) == [7, 7, 7]


def ways(size, gpus, **work):
    count, card = cards_named(gpus)
    asked = Work(**dict(prompts=16, group=4, prompt=64, reply=64) | work)
    return plan_options(SIZES[size], methods.get_method("grpo"), count, card, asked,
                   ReplyLengths(mean=64, longest=128, kind="equal"), Setup(bits=16))


def test_what_does_not_fit_is_no_way_and_what_fits_does():
    assert ways("7B", "1xRTX4090") == [] and ways("70B", "8xH100") == []
    for size, gpus in (("1B", "1xH200"), ("7B", "8xH100")):
        found = ways(size, gpus)
        assert found == sorted(found, key=lambda option: option.times.step)
        room = 0.9 * cards_named(gpus)[1].memory
        for option in found:
            assert sum(option.training.values()) <= room and sum(option.sampling.values()) <= room
            layout = option.layout
            assert (layout.trainers if layout.together else layout.trainers + layout.samplers) \
                == cards_named(gpus)[0]
    wide = [option for option in ways("70B", "64xH100", group=1) if option.layout.tensor > 1]
    assert wide and all("vLLM's" in option.notes[0] for option in wide)


def test_more_ranks_divide_what_stands():
    one, two, four = (next(o for o in ways("1B", f"{n}xH200") if o.layout.together) for n in (1, 2, 4))
    assert four.training["optimizer"] == two.training["optimizer"] / 2 == one.training["optimizer"] / 4
    # divided layers are not compiled, and keep the gate's SiLU
    assert four.training["activations"] == two.training["activations"] > one.training["activations"]
    assert two.parts["sampling"] < one.parts["sampling"]


def test_the_command_says_it(capsys):
    small = ["plan", "1B", "--gpus", "2xH200", "--prompts", "8", "--group", "4", "--reply-tokens", "32",
             "--longest", "64"]
    assert main([*small, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["options"][0]["times"]["step"] <= said["options"][-1]["times"]["step"]
    assert main([*small, "--async-depth", "1"]) == 0
    out = capsys.readouterr().out
    assert "1 train, 1 sample" in out and "memory of a GPU" in out and "nothing past one GPU" in out
    for words, sentence in ((["--gpus", "8xH900"], "such as 8xH100"), (["--prompts", "0"], "at least 1"),
                            (["--method", "dpo"], "postgrad memory"),
                            (["--reply-tokens", "99"], "over --longest")):
        assert main([*small, *words]) == 2 and sentence in capsys.readouterr().err
    assert main(["plan", "70B", "--gpus", "2xA100"]) == 2 and "does not fit" in capsys.readouterr().err
    assert {"H100", "H200"} <= CARDS.keys()
