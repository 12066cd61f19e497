"""The sandbox under attack: what cannot get out, cheats that are not paid,
and the refusal where there is no jail."""

import importlib
import os

import pytest
from hostile import references as proof
from hostile.arena import CHEAT_SUITE, HONEST, arena, cheat_jobs, family, left_running, unjailed
from hostile.cheats import CHEATS
from hostile.escapes import ESCAPES, HARMLESS

from postgrad.rewards.sandbox import CodeJob, CodeJudge, jail, tier

selftest = importlib.import_module("postgrad.rewards.sandbox.selftest")
jailed = pytest.mark.skipif(tier() is None, reason=f"this machine builds no jail: {selftest._proof()[1]}")
LIMIT = 1.0


@pytest.fixture(scope="module")
def judge():
    with CodeJudge(workers=2, seconds=20.0) as made:
        yield made


def kinds(judge, sources, suite):
    return [outcome.kind
            for outcome in judge.outcomes([CodeJob(source=source, suite=suite) for source in sources])]


# what is hostile

@jailed
def test_hostile_programs_get_nowhere(tmp_path):
    assert len(ESCAPES) >= 60
    with CodeJudge(workers=2, seconds=LIMIT) as judge, arena(tmp_path / "arena") as at:
        kinds(judge, [HONEST] * 2, CHEAT_SUITE)
        before = family()
        outcomes = judge.outcomes([at.job(source) for source in ESCAPES.values()])
        assert at.harm() == [] and left_running(before) == set()
    said = dict(zip(ESCAPES, outcomes, strict=True))
    assert {name: outcome for name, outcome in said.items() if outcome.kind not in ("fail", "timeout")} == {}
    assert max(outcome.seconds for outcome in outcomes) <= LIMIT + 0.5


@pytest.mark.skipif(os.getuid() != 0, reason="some attacks need root outside the jail")
def test_the_attacks_are_attacks(tmp_path):
    blunt = []
    for number, name in enumerate(HARMLESS):
        with arena(tmp_path / str(number)) as at:
            if not unjailed(ESCAPES[name], at):
                blunt.append(name)
    assert blunt == []


@jailed
def test_cheats_are_not_paid(tmp_path):
    assert len(CHEATS) >= 20
    with CodeJudge(workers=2, seconds=LIMIT) as judge:
        assert kinds(judge, [HONEST] * 2, CHEAT_SUITE) == ["pass"] * 2
        outcomes = judge.outcomes(cheat_jobs())
    assert {name: o for name, o in zip(CHEATS, outcomes, strict=True)
            if o.kind not in ("fail", "timeout")} == {}
    assert max(outcome.seconds for outcome in outcomes) <= LIMIT + 0.5


# the tier

@jailed
def test_the_tier_is_named_and_every_attack_of_the_self_test_is_refused():
    assert tier().startswith("Landlock ") and len(selftest.ATTACKS) >= 10


@pytest.fixture
def unproved():
    selftest._proof.cache_clear()
    yield
    selftest._proof.cache_clear()


def test_without_landlock_code_is_refused_in_one_sentence(monkeypatch, unproved):
    def none():
        raise jail.NoJail(38, "Landlock: Function not implemented")

    monkeypatch.setattr(selftest.jail, "landlock_abi", none)
    assert tier() is None
    with pytest.raises(ValueError, match="code tasks are refused .*Landlock: Function not "
                                         "implemented.*: use Linux") as said:
        CodeJudge()
    assert str(said.value).count(". ") == 0


@jailed
@pytest.mark.parametrize("source", ["def attack(*a): return True", "import os\nos._exit(0)",
                                    "def attack(*a): return 3"])
def test_one_attack_that_is_not_refused_and_the_tier_is_not_used(monkeypatch, unproved, source):
    monkeypatch.setattr(selftest, "ATTACKS", {"get out": source})
    with pytest.raises(ValueError, match="the self-test could get out"):
        CodeJudge()


# the references

@jailed
@pytest.mark.skipif(not proof.DATA_IS_HERE,
                    reason="MBPP and HumanEval are not here: set POSTGRAD_DATA to their folder")
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.proof)])
def test_references_are_paid_and_wrong_answers_are_not(judge, every):
    for name, jobs in proof.references().items():
        jobs = [job for job in jobs[::every] if not job.suite.unsupported]
        paid = [outcome.kind for outcome in judge.outcomes(jobs)].count("pass")
        assert paid >= 0.99 * len(jobs), name
        assert "pass" not in [outcome.kind
                              for outcome in judge.outcomes([proof.spoilt(job) for job in jobs])], name
