"""A run that was killed and resumed equals one that was left alone, bit for bit.

The run that is left alone is a process of its own, and so is one of each kind that is stopped and resumed;
the others are forked (tests/support/forks.py). `make proof` tries many more moments.
"""

import signal

import forks
import kills
import pytest


@pytest.fixture(scope="module", params=["sft", "grpo"])
def alone(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    calls = kills.left_alone(request.param, folder / "alone")
    return request.param, calls, kills.facts(folder / "alone")


@pytest.fixture
def forked(monkeypatch):
    """forked() -> from here on `kills` forks its processes."""
    return lambda: monkeypatch.setattr(kills, "spawn", lambda args, *, at=0, number=signal.SIGKILL:
                                       forks.run("kills:child", at, int(number), args))


def test_a_training_on_a_cpu_does_not_load_the_compiler(alone):
    """Which takes two seconds of every start."""
    assert not alone[1]["compiler"]


def test_a_kill_inside_a_save_and_one_in_training(alone, tmp_path, forked):
    recipe, calls, expected = alone
    if recipe != "sft":
        forked()
    saves = calls["inside_save"]  # of a thread: its calls come some earlier or later, so one amid a save
    inside = max((n for n in saves if n > calls["calls"] // 2),
                 key=lambda n: sum(abs(n - other) <= 8 for other in saves))
    row = kills.try_kill(recipe, tmp_path / "saving", expected, at=inside)
    assert (row["exit"], row["inside_save"], row["differences"]) == (-signal.SIGKILL, True, [])
    forked()
    between = next(n for n in range(calls["calls"] // 2, 0, -1) if n not in calls["inside_save"])
    row = kills.try_kill(recipe, tmp_path / "training", expected, at=between)
    assert (row["exit"], row["differences"]) == (-signal.SIGKILL, [])


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_a_signal_saves_and_leaves_within_a_step(alone, tmp_path, number, forked):
    recipe, calls, expected = alone
    if (recipe, number) != ("sft", signal.SIGTERM):
        forked()
    run = tmp_path / "stopped"
    code, said = kills.spawn(kills.train_args(recipe, run), at=calls["calls"] // 3, number=number)
    assert code == 128 + number, said
    assert [p.name for p in (run / "checkpoints").iterdir() if p.name.isdigit()], "no checkpoint was written"
    steps = kills.facts(run)["metrics"]
    assert int(kills.facts(run)["last"]) == steps[-1]["step"] < expected["metrics"][-1]["step"]
    kills.finish(recipe, run)
    assert kills.differences(expected, run) == []
