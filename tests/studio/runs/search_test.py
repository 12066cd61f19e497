"""Samples of all steps: what fits, in which order, and as which file."""

import csv
import io
import json

import pytest
from studio_small import Texts, client, grow, make, sample

from postgrad.studio.runs import traces


def logged(root, steps=6):
    """Two prompts; at step s the first has scores 0 and s / 10, the second one cut answer without a score."""
    run = make(root / "a", 0, done=False)
    for step in range(1, steps + 1):
        rows = [sample(step, 0, prompt="How many?", text="none", score=0.0),
                sample(step, 1, prompt="How many?", text=f"<b>{step} Apples</b>", score=step / 10),
                sample(step, 2, prompt="Who?", text="me", reason="rambled") | {"finished": False,
                                                                              "score": "nan"}]
        run.log_samples(step, rows)
        run.log(step, {"reward": 0.5})
    return run


def search(web, **asked):
    answer = web.get("/runs/-/found", params={"run": "a"} | asked)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_what_fits_is_found_in_the_order_asked_for(tmp_path):
    logged(tmp_path)
    web = client(tmp_path)
    assert len(search(web)) == 18
    assert [row["step"] for row in search(web, q="apples")] == [1, 2, 3, 4, 5, 6]
    assert [row["score"] for row in search(web, q="apples", order="best")] == [.6, .5, .4, .3, .2, .1]
    assert [row["score"] for row in search(web, order="worst")][:7] == [0.0] * 6 + [0.1]
    assert search(web, order="worst")[-1]["score"] is None  # without a score comes last
    assert {row["text"] for row in search(web, finished="no")} == {"me"}
    assert len(search(web, q="rambled")) == 6 == len(search(web, prompt="Who?"))
    assert [row["step"] for row in search(web, low="0.25", high=".5")] == [3, 4, 5]
    assert [row["step"] for row in search(web, q="apples", **{"from": "2", "to": "4"})] == [2, 3, 4]
    assert search(web, order="last")[0]["step"] == 6
    rows = list(csv.DictReader(io.StringIO(web.get("/runs/-/found?run=a&format=csv&q=apples").text)))
    assert rows[5]["text"] == "<b>6 Apples</b>" and rows[5]["score"] == "0.6"


@pytest.mark.parametrize("asked", [{"low": "much"}, {"from": "-1"}, {"order": "x"}, {"finished": "maybe"},
                                   {"format": "exe"}])
def test_what_cannot_be_looked_for_is_a_sentence(tmp_path, asked):
    logged(tmp_path, 1)
    assert client(tmp_path).get("/runs/-/found", params={"run": "a"} | asked).status_code == 400


def test_a_prompt_is_followed_and_leads_to_its_steps(tmp_path):
    logged(tmp_path)
    web = client(tmp_path)
    page = Texts(web.get("/runs/-/search", params={"run": "a", "prompt": "How many?"}).text)
    assert "12 samples at 6 steps." in " ".join(page.text.split())
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a"]
    assert "/runs/a?step=2&group=0&sample=1#samples" in links
    there = Texts(web.get("/runs/a?step=2&group=0&sample=1").text)
    assert "<b>2 Apples</b>" in there.text
    (_, chart), = [e for e in page.elements if e[0] == "svg"]
    assert chart["aria-label"] == "mean score of this prompt's samples by step"


def test_the_index_follows_the_log_in_pieces_and_through_a_rewind(tmp_path, monkeypatch):
    run = logged(tmp_path)
    monkeypatch.setattr(traces, "SEARCHED", 1500)  # a few rows at a time
    index = traces.SampleIndex(run)
    assert len(index.refresh().found) == 18
    grow(run, 1)
    assert len(index.refresh().found) == 22
    run.rewind(3)
    grow(run, 1)
    again = index.refresh()
    assert [one.step for one in again.found] == sorted([1, 2, 3] * 3 + [4] * 4)
    assert [(one.group, one.place) for one in again.found if one.step == 2] == [(0, 0), (0, 1), (1, 0)]


def test_a_log_that_went_back_and_grew_past_its_old_end_is_read_anew(tmp_path):
    run = logged(tmp_path)
    index = traces.SampleIndex(run).refresh()
    assert len(index.found) == 18 and [*index.by_prompt()[0]] == ["How many?", "Who?"]
    run.rewind(1)
    grow(run, 12)  # it is longer than before when it is looked at again
    fresh = traces.SampleIndex(run).refresh()
    assert index.refresh().found == fresh.found and len(fresh.found) == 3 + 4 * 12
    assert index.by_prompt() == fresh.by_prompt() != ({}, None)


def test_prompts_are_found_at_their_steps_in_rows_of_any_kind(tmp_path, monkeypatch):
    run = logged(tmp_path)
    index, steps = traces.SampleIndex(run), [1, 2, 3, 4, 5, 6]
    assert index.by_prompt() == ({"How many?": steps, "Who?": steps}, None)
    with open(run.folder / "samples.jsonl", "ab") as log:
        log.write(b'{"prompt": "Who?", "step": 7}\n'  # another order
                  b'{"step": 8, "id": "\\"", "prompt": "a \\"b\\" \\u202e", "text": "x"}\n'
                  b'{"step": 9, "id": "", "prompt": "Who?"\n{"step": null, "prompt": "Who?"}\nno row\n'
                  b'{"step": 10, "id": "", "prompt": 7}\n'
                  b'{"step": 11, "id": "", "prompt": "Who?"}')  # not yet whole
    assert index.by_prompt()[0] == {"How many?": steps, "Who?": [*steps, 7], 'a "b" \ufffd': [8], "7": [10]}
    monkeypatch.setattr(traces, "SEARCHED", 1500)
    found, cut = traces.SampleIndex(run).by_prompt()
    assert cut is not None and 0 < cut < 6 and found["Who?"] == [*range(1, cut + 1)][:len(found["Who?"])]
