import pytest

from postgrad.maths.schedule import SCHEDULES, constant_schedule, cosine_schedule, linear_schedule


def test_by_hand():
    assert [constant_schedule(s, 10, 4) for s in (1, 2, 4, 5, 10)] == [0.25, 0.5, 1, 1, 1]
    assert [linear_schedule(s, 4, 0) for s in (1, 2, 3, 4, 5)] == [1, 0.75, 0.5, 0.25, 0]
    assert [linear_schedule(s, 6, 2) for s in range(1, 7)] == [0.5, 1, 1, 0.75, 0.5, 0.25]
    assert cosine_schedule(1, 4, 0, floor=0.1) == 1
    assert cosine_schedule(3, 4, 0, floor=0.1) == pytest.approx(0.55)
    assert cosine_schedule(5, 4, 0, floor=0.1) == pytest.approx(0.1) == cosine_schedule(99, 4, 0, floor=0.1)


@pytest.mark.parametrize("schedule", SCHEDULES.values())
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (1, 1), (7, 0), (7, 3), (7, 7), (7, 20)])
def test_every_step_moves_the_weights(schedule, steps, warmup):
    factors = [schedule(s, steps, warmup) for s in range(1, steps + 1)]
    assert all(0 < f <= 1 for f in factors)
    peak = factors.index(max(factors))
    assert (factors[: peak + 1] == sorted(factors[: peak + 1])
            and factors[peak:] == sorted(factors[peak:], reverse=True))
