"""The doctor in the studio: a collapsed run is red in the list and on its page, with evidence and remedy."""

from multiprocessing.connection import Connection

from health_small import collapsed
from studio_small import Texts, client, grow, make

from postgrad.runs.doctor import diagnose
from postgrad.studio.runs import health, traces


def clinic(root):
    return health.Clinic(traces.Traces(root))


def test_a_run_whose_rewards_are_all_0_and_its_groups_flat_is_red(tmp_path):
    collapsed(tmp_path / "flat").status("done")
    collapsed(tmp_path / "fell", after=10).status("done")
    web = client(tmp_path)
    page = Texts(web.get("/runs/-/doctor?run=flat").text)
    (_, section), = [e for e in page.elements if e[0] == "section"]
    assert section["data-level"] == "bad" and section["data-word"] == "no signal"
    for words in ("100% of the groups score alike, at a reward of 0", "take easier problems"):
        assert words in page.text, words
    fell = clinic(tmp_path).look("fell")
    assert fell.level == "bad" and [a.name for a in fell.alerts] == ["reward"] and fell.alerts[0].step >= 11
    assert [name for name, _ in fell.diagnosis.findings] == ["reward collapse"]
    assert "lower optim.lr" in web.get("/runs/-/doctor?run=fell").text


def test_the_verdict_is_that_of_postgrad_doctor(tmp_path):
    run = collapsed(tmp_path / "a", after=10)
    assert clinic(tmp_path).look("a").diagnosis == diagnose(run)


def test_the_list_has_the_verdict_once_the_thread_has_looked(tmp_path):
    collapsed(tmp_path / "ill").status("done")
    make(tmp_path / "young", 3)
    web = client(tmp_path)
    web.get("/runs")
    thread = web.app.state.clinic.thread
    if thread:
        thread.join()
    page = Texts(web.get("/runs").text)
    assert ("a", {"class": "verdict bad", "href": "/runs/ill#doctor"}) in page.elements
    assert "no signal" in page.text and page.text.count("no signal") == 1
    assert "no signal" in Texts(web.get("/runs?q=signal").text).text  # it can be searched for
    assert "data-level=\"bad\"" in web.get("/runs/ill").text  # known, so the page has it at once


def test_it_looks_again_when_a_run_has_gone_on(tmp_path):
    run = make(tmp_path / "a", 40, done=False)
    it = clinic(tmp_path)
    first = it.look("a")
    assert it.look("a") is first and it.version == 1
    grow(run, 2)  # a twentieth is needed
    assert not it.due("a") and it.look("a") is first
    grow(run, 1)
    assert it.due("a") and it.look("a").diagnosis.steps == 43
    run.rewind(10)
    assert it.due("a") and it.look("a").diagnosis.steps == 10
    run.status("stopped")
    assert it.due("a") and it.look("a").diagnosis.state == "stopped" and not it.due("a")


def test_of_a_long_log_of_samples_steps_that_lie_evenly_are_read(tmp_path, monkeypatch):
    run = make(tmp_path / "a", 60)
    whole = health.run_chart(run).samples
    monkeypatch.setattr(health, "WHOLE", 100)
    monkeypatch.setattr(health, "STEPS", 7)
    some = health.run_chart(run).samples
    steps = sorted({row["step"] for row in some})
    assert len(steps) == 7 and (steps[0], steps[-1]) == (1, 60) and len(some) == 7 * 4 < len(whole)


def test_a_run_that_cannot_be_read_stops_nobody(tmp_path):
    make(tmp_path / "a", 3)
    make(tmp_path / "b", 3)
    (tmp_path / "a" / "run.json").write_text("[")
    it = clinic(tmp_path)
    it.ask(["a", "b"])
    if it.thread:
        it.thread.join()
    assert it.known("a") is None and it.known("b") is not None


def all_looked_at(it, names):
    it.ask(names)
    if it.thread:
        it.thread.join()
    return {name: it.known(name) for name in names}


def test_many_runs_are_looked_at_in_a_process_of_their_own(tmp_path, monkeypatch):
    collapsed(tmp_path / "ill", after=10).status("done")
    names = ["ill", *(make(tmp_path / name, 3).folder.name for name in "abc")]
    (tmp_path / "b" / "config.json").write_text("[")
    here = all_looked_at(clinic(tmp_path), names)
    monkeypatch.setattr(health, "FEW", 0)
    looked, examine = [], health.examine
    monkeypatch.setattr(health, "examine", lambda folder: looked.append(folder) or examine(folder))
    assert all_looked_at(clinic(tmp_path), names) == here and looked == []
    assert here["ill"].level == "bad" and here["b"] is None


def test_where_that_process_is_ended_the_runs_are_looked_at_all_the_same(tmp_path, monkeypatch):
    names = [make(tmp_path / name, 3).folder.name for name in "abc"]
    here = all_looked_at(clinic(tmp_path), names)
    monkeypatch.setattr(health, "FEW", 0)
    monkeypatch.setattr(health, "answer_folders", Connection.close)  # it ends at once
    assert all_looked_at(clinic(tmp_path), names) == here and None not in here.values()
