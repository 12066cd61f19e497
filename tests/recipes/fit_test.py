"""The Python door: the issue's lines run, and every argument of `fit` is an object or a name."""

import io
import json
import math
import pkgutil

import pytest
import torch
from doors import LABELLED, PAIRS, QUESTIONS, SMALL, TALKS, facts, fit, letters

import postgrad as pg
from postgrad.data.preferences import read_pairs, read_singles
from postgrad.data.rows import read_conversations

ROW_FILE = '''
from postgrad import method
from postgrad.maths import surrogate

def halved(logp, old_logp, adv, mask):
    """Half of the policy gradient."""
    loss, *rest = surrogate.policy_gradient(logp, old_logp, adv, mask)
    return (loss * 0.5, *rest)

half = method("nano", name="half", surrogate=halved)
'''


def table(rows):
    return pytest.importorskip("datasets").Dataset.from_list(rows)


def jsonl(folder, rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def check(run, steps=2):
    assert run.state()["state"] == "done"
    assert [row["step"] for row in run.metrics()] == list(range(1, steps + 1))
    assert all(math.isfinite(row["loss"]) for row in run.metrics())


def test_the_lines_of_the_door(tmp_path, monkeypatch, capsys):
    """Names; own prompts and an own function; objects; and what a run gives back."""
    monkeypatch.chdir(tmp_path)
    evaluated = {"evaluation": {"every": 2, "problems": 2, "samples": 2}}
    named = pg.fit("tiny-chat", "grpo", task="words", run="runs/words", lr=3e-4, **SMALL | evaluated)
    mine = pg.fit("tiny-chat", "grpo", task=QUESTIONS, reward=letters, run="runs/mine", **SMALL)
    model, task = pg.load_model("tiny-chat"), pg.make_task(QUESTIONS, letters)
    objects = pg.fit(model, pg.method("dapo", high=0.3), task=task, run="runs/variant", **SMALL)
    pairs = pg.fit("tiny-chat", "dpo", data=PAIRS, display=False, steps=2, pairs={"per_step": 4})
    for run in (named, mine, objects, pairs):
        check(run)
    assert isinstance(pairs, pg.Run) and pairs.folder.name == "dpo-1"
    assert [e["step"] for e in named.evaluations()] == [0, 2] and 0 <= named.evaluations()[1]["pass@1"] <= 1
    assert {s["step"] for s in named.samples()} == {1, 2} and all(0 < s["score"] < 1 for s in mine.samples())
    assert isinstance(named.model(), pg.Model)
    assert named.chat("What is 2+3?") == named.model().reply("What is 2+3?")
    with monkeypatch.context() as patch:  # no terminal: the input ends after a line
        patch.setattr("sys.stdin", io.StringIO("What is 2+3?\n"))
        assert named.chat() is None
    assert f"{named.folder.name}: {named.chat('What is 2+3?')}" in capsys.readouterr().out
    few = {"problems": 3, "samples": 2, "max_new_tokens": 8}
    row = pg.evaluate(named, task="words", **few)
    assert row["problems"] == 3 and row["task"] == "words" and "pass@2" in row
    first, second = pg.compare("tiny-chat", named, task="words", **few)
    assert second["pass@1"] == row["pass@1"] and first["pass@1_gain"] == first["reward_gain"] == 0


@pytest.mark.parametrize("kind", ["task", "texts", "dicts", "prompts", "table", "messages", "generator",
                                  "file", "path", "name"])
def test_a_task(kind, tmp_path):
    rows = [{"question": q, "answer": "5", "level": n} for n, q in enumerate(QUESTIONS)]
    prompts = [pg.Prompt.ask(row["question"], "5") for row in rows]
    given = {"task": pg.make_task(rows, letters), "texts": QUESTIONS, "dicts": rows, "prompts": prompts,
             "table": table(rows), "generator": (q for q in QUESTIONS),
             "messages": [{"prompt": [{"role": "user", "content": q}]} for q in QUESTIONS],
             "file": str(jsonl(tmp_path, rows)), "path": jsonl(tmp_path, rows), "name": "arithmetic"}[kind]
    run = fit(tmp_path, "nano", task=given, reward=None if kind == "task" else letters)
    check(run)
    asked = {s["prompt"] for s in run.samples()}
    assert asked <= set(QUESTIONS) or kind == "name"
    assert isinstance(run.config["task"], str) == (kind in ("file", "path", "name"))
    if kind not in ("task", "file", "path", "name"):
        assert run.config["task"] | {"sha256": 0} == {"given": "rows", "name": "12 rows", "sha256": 0}


@pytest.mark.parametrize("kind", ["records", "dicts", "table", "file"])
@pytest.mark.parametrize(("method", "rows", "read"), [
    ("sft", TALKS, read_conversations), ("dpo", PAIRS, read_pairs), ("reward", PAIRS, read_pairs),
    ("kto", LABELLED, read_singles)])
def test_data(method, rows, read, kind, tmp_path):
    """Whichever way rows are handed in, the same numbers come out."""
    data = {"records": read(rows), "dicts": rows, "table": table(rows),
            "file": str(jsonl(tmp_path, rows))}[kind]
    small = {"rows_per_step": 4} if method == "sft" else {"pairs": {"per_step": 4}}
    run = fit(tmp_path, method, "as-dicts", data=rows, **small)
    other = run if kind == "dicts" else fit(tmp_path, method, data=data, **small)
    check(other)
    assert facts(run) == facts(other)
    name = run.config["data"]["name"]
    assert name == f"{len(rows)} rows"


@pytest.mark.parametrize("kind", ["name", "row", "changed", "file", "registered"])
def test_a_method(kind, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(ROW_FILE)
    own = pg.method(pg.METHODS["nano"], name=f"own_{kind}")
    if kind == "registered":
        assert pg.register(own) is own and pg.METHODS[own.name] is own
    given = {"name": "nano", "row": pg.METHODS["nano"],
             "changed": pg.method("dapo", high=0.3, resample_flat=False),
             "file": str(file), "registered": own.name}[kind]
    try:
        run = fit(tmp_path, given, task=QUESTIONS, reward=letters)
    finally:
        pg.METHODS.pop(own.name, None)
    check(run)
    saved = {"name": "nano", "row": "nano", "changed": {"name": "dapo", "high": 0.3, "resample_flat": False},
             "file": f"{file}:half"}
    assert run.config["method"] == saved.get(kind, run.config["method"])
    assert run.info["row"]["constants"].get("high") == (0.3 if kind == "changed" else None)
    if kind == "file":
        assert run.info["method"] == "half" and run.info["row"]["functions"]["surrogate"].endswith(".halved")
        assert list(run.info["row"]["texts"]) == ["surrogate"]


def test_rows_are_of_three_kinds():
    assert isinstance(pg.METHODS["sft"], pg.Supervised) and isinstance(pg.METHODS["dpo"], pg.Preference)
    assert isinstance(pg.METHODS["grpo"], pg.Policy)


def test_a_model_by_name_by_run_and_as_an_object(tmp_path):
    """One that is handed in stays as it is, and is kept in the run as `start`, which RUN@0 opens."""
    named = fit(tmp_path, "nano", "a", task=QUESTIONS, reward=letters)
    model = pg.load_model("tiny-chat")
    before = {k: x.clone() for k, x in model.net.state_dict().items()}
    given = fit(tmp_path, "nano", "b", model, task=QUESTIONS, reward=letters)
    assert facts(named) == facts(given) and given.config["model"] == str(tmp_path / "b" / "start")
    assert all(x.equal(model.net.state_dict()[k]) for k, x in before.items())
    start = given.model(step=0).net.state_dict()
    assert all(x.equal(start[k]) for k, x in before.items())
    on = fit(tmp_path, "nano", "c", given, task=QUESTIONS, reward=letters)
    assert on.config["model"] == str(given.folder) and on.info["begins_with"] != given.info["begins_with"]
    assert facts(on)[0] != facts(given)[0]


def test_a_run_with_its_start_can_be_moved(tmp_path):
    run = fit(tmp_path, "nano", model=pg.load_model("tiny-chat"), task="arithmetic", save_every=1)
    moved = run.folder.rename(tmp_path / "elsewhere")
    assert pg.Run.open(moved).model(step=0).reply("What is 2+3?", max_new_tokens=4) == \
        pg.load_model("tiny-chat").reply("What is 2+3?", max_new_tokens=4)
    check(pg.resume(moved, display=False))


def test_a_model_saves_samples_and_replies(tmp_path):
    model = pg.load_model("tiny-chat")
    (first, second), = model.sample([pg.Prompt.ask("What is 2+3?")], 2, max_new_tokens=6)
    assert isinstance(first, pg.Rollout) and len(second.tokens) == len(second.logp)
    again = pg.load_model(model.save(tmp_path / "mine"))
    assert again.reply("Hi", max_new_tokens=6) == model.reply("Hi", max_new_tokens=6)
    with pytest.raises(ValueError, match="is not empty: give another folder"):
        model.save(tmp_path / "mine")


def test_public_names_are_not_hidden_by_modules():
    """`import postgrad.evaluation` must not put a module where a function was: no public name is a
    submodule's."""
    modules = {m.name for m in pkgutil.iter_modules(pg.__path__)}
    assert not modules & set(pg.__all__)
    for name in pg.__all__:
        assert getattr(pg, name) is getattr(pg, name) and type(getattr(pg, name)).__name__ != "module"
    assert set(pg.__all__) <= set(dir(pg))
    with pytest.raises(AttributeError, match="has no name 'fitt'"):
        pg.fitt  # noqa: B018


def test_a_model_of_transformers_is_trained_with_the_weights_that_it_has(tmp_path, monkeypatch):
    """It was changed after it was loaded; the run starts from the change, and leaves the object as it is."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    pg.load_model("tiny-chat").save("tiny")
    model = transformers.AutoModelForCausalLM.from_pretrained("tiny", dtype=torch.float32)
    with torch.no_grad():
        model.model.norm.weight += 0.25
    before = {name: x.clone() for name, x in model.state_dict().items()}
    run = pg.fit(model, "sft", data=[{"prompt": "Hi", "completion": "Yes."}], steps=1, run="run",
                 display=False)
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        torch.testing.assert_close(run.model(step=0).net.logits(tokens), model(tokens).logits,
                                   rtol=1e-5, atol=2e-5)  # of logits up to 6, by another order of sums
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    model.config.name_or_path = ""
    with pytest.raises(ValueError, match="its tokenizer is not known"):
        pg.fit(model, "sft", data=[{"prompt": "Hi", "completion": "Yes."}], steps=1)
