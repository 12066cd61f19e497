"""The page of a pipeline: its steps in order, how each stands, what was found; whatever is in the files."""

import json

from studio_small import Texts, client, make, poisons

from postgrad.studio.runs import live
from postgrad.studio.runs.samples import safe_text

STEPS = [{"kind": "measured", "name": "base", "needs": [], "settings": {"model": "tiny"}},
         {"kind": "run", "name": "sft", "needs": [], "settings": {"model": "tiny"}},
         {"kind": "data", "name": "kept", "needs": ["sft"], "settings": {}},
         {"kind": "run", "name": "rl", "needs": ["sft", "kept"], "settings": {}},
         {"kind": "measured", "name": "rl", "needs": ["rl"], "settings": {}}]


def pipeline(root, steps=STEPS, **more):
    folder = root / "mine"
    (folder / "measured").mkdir(parents=True)
    (folder / "kept").mkdir()
    told = {"recipe": "r1", "name": "r1", "config": {}, "command": "postgrad train r1", "steps": steps} | more
    (folder / "pipeline.json").write_text(json.dumps(told))
    (folder / "measured/base.json").write_text(json.dumps({"pass@1": 0.25, "reward": 0.5}))
    (folder / "kept/counts.json").write_text(json.dumps({"kept": 7}))
    (folder / "state.json").write_text(json.dumps({"seconds": {"run sft": 75.0}}))
    make(folder / "sft", 3)
    return folder


def test_steps_stand_in_order_with_state_figures_and_links(tmp_path):
    folder = pipeline(tmp_path)
    text = client(tmp_path).get("/runs/mine").text
    page = Texts(text)
    assert "3 of 5 steps are done" in page.text and f"postgrad resume {folder}" in page.text
    states = [attrs["class"] for tag, attrs in page.elements if "state " in attrs.get("class", "")]
    assert states == ["state done"] * 3 + ["state waiting"] * 2
    for words in ("pass@1 25\u00a0%, reward 0.50", "kept 7", "reward 0.30", "1 min 15 s", "sft, kept", "by"):
        assert words in page.text, words
    links = [attrs.get("href") for tag, attrs in page.elements if tag == "a"]
    assert "/runs/mine/sft" in links and "/runs/mine/rl" not in links
    run = client(tmp_path).get("/runs/mine/sft")
    assert run.status_code == 200 and 'href="/runs/mine"' in run.text
    assert 'href="/runs/mine"' in client(tmp_path).get("/runs").text


def test_tables_of_the_summary_are_shown(tmp_path):
    folder, before = pipeline(tmp_path), live.runs_signature(tmp_path)
    (folder / "summary.json").write_text(json.dumps({"tables": {"Quality": [
        {"model": "base", "pass@1": 0.125, "pass@1_interval": [0.1, 0.2], "n": 4, "range": [1.0, 2.0]}]}}))
    page = Texts(client(tmp_path).get("/runs/mine").text)
    for words in ("Quality", "0.125 (0.100 to 0.200)", "1.000 to 2.000", "\n4\n"):
        assert words in page.text, words
    assert "pass@1_interval" not in page.text and live.runs_signature(tmp_path) != before
    part = client(tmp_path).get("/runs/-/pipeline?run=mine")
    assert part.status_code == 200 and "<html" not in part.text and "0.125" in part.text
    assert client(tmp_path).get("/runs/-/pipeline?run=../x").status_code == 404
    assert client(tmp_path).get("/runs/-/pipeline?run=mine/sft").status_code == 404


def test_text_stays_text(tmp_path):
    bad = poisons()
    steps = [{"kind": kind, "name": text, "needs": [text], "settings": {}}
             for kind, text in zip(("run", "data", "measured", "<b>"), bad, strict=False)]
    steps = [*STEPS, *steps, 3, {"kind": ["x"], "name": None}]
    folder = pipeline(tmp_path, steps, name=bad[0], command=bad[1])
    (folder / "measured/rl.json").write_text(json.dumps({bad[2]: {"pass@1": 1.0}, "reward": bad[3]}))
    (folder / "summary.json").write_text(json.dumps({"tables": {bad[4]: [{bad[5]: bad[6]}], "x": 3}}))
    answer = client(tmp_path).get("/runs/mine")
    assert answer.status_code == 200
    page = Texts(answer.text)
    assert safe_text(bad[4]) in page.text and safe_text(bad[6]) in page.text
    plain = Texts(client(tmp_path).get("/about").text).elements
    assert ({tag for tag, _ in page.elements} - {tag for tag, _ in plain}
            <= {"table", "thead", "tbody", "tr", "th", "td", "bdi", "code", "h2", "div", "span", "progress"})


def test_broken_files_are_a_sentence(tmp_path):
    folder = pipeline(tmp_path)
    (folder / "measured/base.json").write_text("{")
    assert "not a JSON object" in client(tmp_path).get("/runs/mine").text
    (folder / "pipeline.json").write_text("[]")
    answer = client(tmp_path).get("/runs/mine")
    assert answer.status_code == 400 and "is not a JSON object" in answer.text
