"""Ranks 0, 31 and 63 of a world of 64, on torch's fake backend."""

import fake_ranks
import pytest

LONG = [pytest.param(name, marks=pytest.mark.long) for name in fake_ranks.RECIPES if name != "dpo"]


@pytest.mark.parametrize("name", ["dpo", *LONG])
def test_64_ranks_exchange_the_same_things_in_the_same_order(name, tmp_path):
    fake_ranks.begin(tmp_path)
    changes = [[], *([["shard=true"]] if name in fake_ranks.SHARDED else [])]
    jobs = [fake_ranks.job(name, tmp_path, *words) for words in changes]
    found = fake_ranks.reports(fake_ranks.WORLD, jobs, tmp_path, fake_ranks.RANKS)
    for whole, *sharded in found.values():
        assert whole["steps"] == 2
        assert name in fake_ranks.BRANCH or ["summed their gradients"] in whole["collectives"]
        for report in sharded:  # weights, gradients and moments
            assert report["steps"] == 2 and report["held"] * fake_ranks.WORLD == whole["held"]
    first, *others = found.values()
    for number, report in enumerate(first):
        assert name in fake_ranks.BRANCH or all(rows[number]["collectives"] == report["collectives"]
                                                for rows in others)
