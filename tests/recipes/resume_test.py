"""Runs from objects: what is kept of them, and going on with the same objects to the same bits and with no
others."""

import inspect

import pytest
import torch
from doors import PAIRS, QUESTIONS, facts, fit, letters

import postgrad as pg
from postgrad.cli import main
from postgrad.maths import surrogate


class Cut(Exception):
    pass


def cut_at_two(step, row):
    """A callback: after the rows of step 2, before its checkpoint."""
    if step == 2:
        raise Cut("here")


def other_letters(prompt, text):
    return min(sum(c.isalpha() for c in text) / 60, 0.99)


def gentle(logp, old_logp, adv, mask, *, by=0.5):
    """The policy gradient, times a constant."""
    loss, *rest = surrogate.policy_gradient(logp, old_logp, adv, mask)
    return (loss * by, *rest)


def fierce(logp, old_logp, adv, mask, *, by=0.5):
    loss, *rest = surrogate.policy_gradient(logp, old_logp, adv, mask)
    return (loss * by * 2, *rest)


def cut(folder, method, **given):
    """(a run that was left alone, the same one cut short)"""
    whole = fit(folder, method, "whole", steps=3, save_every=1, **given)
    with pytest.raises(Cut):
        fit(folder, method, "cut", steps=3, save_every=1, callback=cut_at_two, **given)
    run = pg.Run.open(folder / "cut")
    assert run.state()["state"] == "failed" and run.state()["error"] == "Cut: here"
    assert list(run.checkpoints()) == [1]
    return whole, run


def same(run, whole):
    assert facts(run) == facts(whole) and run.state()["state"] == "done"
    a, b = (r.model().net.state_dict() for r in (run, whole))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_rows_and_a_function(tmp_path, capsys):
    given = {"task": QUESTIONS, "reward": letters}
    whole, run = cut(tmp_path, "rloo", **given)
    assert run.config["reward"]["name"] == "doors.letters" and run.config["task"]["name"] == "12 rows"
    for missing, words in (({}, "given its (task|reward) in Python"),
                           ({"task": QUESTIONS}, "given its reward in Python")):
        with pytest.raises(ValueError, match=rf"{words} .*go on with postgrad.resume\(.*=\.\.\.\)"):
            pg.resume(run, display=False, **missing)
    assert main(["resume", str(run.folder)]) == 2
    said = capsys.readouterr().err.strip()
    assert "go on with postgrad.resume(" in said and "\n" not in said
    for changed, what in (({"reward": other_letters}, "the reward"), ({"task": QUESTIONS[1:]}, "the task"),
                          ({"task": [*QUESTIONS[1:], "Say 99."]}, "the task"),
                          ({"reward": [letters]}, "the reward")):
        with pytest.raises(ValueError, match=f"{what} that was handed in is not the one this run began with"):
            pg.resume(run, display=False, **given | changed)
    with pytest.raises(ValueError, match="this run found its method by name .*: leave method out"):
        pg.resume(run, display=False, method="rloo", **given)
    assert list(run.checkpoints()) == [1] and run.state()["state"] == "failed"  # nothing was touched
    same(pg.resume(run, display=False, **given), whole)


def test_a_row_with_a_function_of_its_own(tmp_path):
    row = pg.method("nano", name="gentle", surrogate=gentle)
    whole, run = cut(tmp_path, row, task=QUESTIONS, reward=letters)
    given = {"task": QUESTIONS, "reward": letters}
    kept = run.info["row"]
    assert kept["constants"]["by"] == 0.5 and kept["functions"]["surrogate"].endswith(".gentle")
    with pytest.raises(ValueError, match="given its method in Python"):
        pg.resume(run, display=False, **given)
    for changed, what in ((pg.method(row, by=0.6), r"\(by was 0.5 and is 0.6\)"),
                          (pg.method(row, surrogate=fierce), "the text of surrogate"),
                          (pg.method(row, weigh=pg.METHODS["grpo"].weigh),
                           "weigh was .*token_mean and is .*sequence_mean")):
        with pytest.raises(ValueError, match=f"the row gentle has changed since this run began .*{what}"):
            pg.resume(run, display=False, method=changed, **given)
    same(pg.resume(run, display=False, method=row, **given), whole)


def test_a_row_of_a_file_is_found_again_and_refused_once_it_has_changed(tmp_path):
    file = tmp_path / "mine.py"
    text = inspect.getsource(gentle).replace("gentle", "mine").replace("by=0.5", "by=2.0")
    text = f"from postgrad import method\nfrom postgrad.maths import surrogate\n\n\n{text}\n\n"
    text += "row = method('nano', name='mine', surrogate=mine)\n"
    file.write_text(text)
    whole, run = cut(tmp_path, str(file), task="arithmetic")
    for old, new, words in (("by=2.0", "by=3.0", "by was 2.0 and is 3.0"),
                            ("loss * by", "loss * by * by", "the text of sur")):
        file.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=f"the row mine has changed since this run began .*{words}"):
            pg.resume(run, display=False)
    file.write_text(text)
    assert main(["resume", str(run.folder), "--json"]) == 0
    same(pg.Run.open(run.folder), whole)


def test_pairs_and_a_model(tmp_path):
    model = pg.load_model("tiny-chat")
    whole, run = cut(tmp_path, "dpo", model=model, data=PAIRS, pairs={"per_step": 4})
    with pytest.raises(ValueError, match="the data that was handed in is not the one"):
        pg.resume(run, display=False, data=[*PAIRS[1:], PAIRS[0]])
    same(pg.resume(run, display=False, data=PAIRS), whole)


def test_an_edited_config_is_refused_and_put_back_goes_on(tmp_path):
    given = {"task": "words", "lr": 3e-4}
    whole, run = cut(tmp_path, "grpo", **given)
    place = run.folder / "config.json"
    before = place.read_text()
    for old, new, named in (("0.0003", "0.43", "optim.lr 0.43, 0.0003 at the start"),
                            ('"seed": 0', '"seed": 1', "seed 1, 0 at the start")):
        assert old in before
        place.write_text(before.replace(old, new))
        with pytest.raises(ValueError, match=f"config.json was edited since the run began .{named}"):
            pg.resume(run.folder, display=False)
    place.write_text(before)
    same(pg.resume(run.folder, display=False), whole)


def test_the_constants_of_a_changed_row(tmp_path, capsys):
    """In the run, on the studio's page that compares, and in the card of what is exported."""
    from starlette.testclient import TestClient

    from postgrad.studio.app import create_studio
    evaluated = {"evaluation": {"every": 2, "problems": 2, "samples": 2}}
    fit(tmp_path, pg.method("dapo", high=0.31), "wide", task="arithmetic", **evaluated)
    fit(tmp_path, "dapo", "plain", task="arithmetic", kl={"coef": 0.07})
    constants = {name: pg.Run.open(tmp_path / name).info["row"]["constants"] for name in ("wide", "plain")}
    assert (constants["wide"]["high"], constants["plain"]["high"]) == (0.31, 0.28)
    assert constants["plain"]["kl_in_loss"] == 0.07  # as the run was trained, whatever set it
    app = create_studio(runs=tmp_path, token="x" * 32, hosts=("testserver",))
    page = TestClient(app, cookies={"postgrad": "x" * 32}).get("/runs/compare?ids=wide,plain").text
    assert "method.high" in page and "0.31" in page and "0.28" in page and "method.low<" not in page
    assert main(["export", str(tmp_path / "wide"), "--out", str(tmp_path / "out")]) == 0
    card = front_matter((tmp_path / "out" / "README.md").read_text())
    assert (card["base_model"], card["tags"], card["method"]) == ("tiny-chat", ["postgrad", "dapo"], "dapo")
    assert card["constants"]["high"] == 0.31 and card["steps"] == 2 and card["task"] == "arithmetic"
    assert card["evaluation"]["pass@1"] == pg.Run.open(tmp_path / "wide").evaluations()[-1]["pass@1"]
    assert main(["export", str(tmp_path / "wide@0"), "--out", str(tmp_path / "start")]) == 0
    assert not (tmp_path / "start" / "README.md").exists()  # what the run began with is not the run's work
    capsys.readouterr()


def front_matter(text):
    yaml = pytest.importorskip("yaml")
    assert text.startswith("---\n")
    return yaml.safe_load(text.split("---\n")[1])
