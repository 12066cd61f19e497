"""Files and folders that nobody vouches for: refused in a sentence, or shown, never obeyed.

Each through the real command in a child with little time and memory, a few of each kind unless a proof runs
all; and one place for each rule.
"""

import json
import os
from itertools import chain

import pytest
from hostile import data_files, gguf_files, model_files, run_files, store_files
from hostile.drive import drive, small_run, warm
from hostile.template_bombs import BOMBS
from run_small import logged, make, put
from studio_small import client

from postgrad.models.chat.template import compile_template
from postgrad.runs import Run, list_runs

HOMES = (run_files, model_files, gguf_files, data_files, store_files)
CASES = {case.name: case for case in chain.from_iterable(home.cases() for home in HOMES)}
QUICK = (
    "run: events.jsonl is a link", "run: lock is a link to nothing", "run: checkpoints is a link to a folder",
    "run: checkpoints was moved out", "run: .status.json.tmp is a link", "run: run.json is endless",
    "run: metrics.jsonl is a terabyte", "run: samples.jsonl is a terabyte",
    "run: metrics.jsonl has a line of brackets", "run: run.json: created is 'x'",
    "run: config.json: steps is []", "run: a manifest with {'files': []}", "run: state.json of nothing",
    "run: pipeline.json of brackets", "model: config.json: num_hidden_layers is 10000000",
    "model: config.json: head_dim is 'x'", "model: config.json: cohere2 with 10^8 layers",
    "model: an adapter with layers of numbers",
    "model: tokenizer.json with a normalizer that doubles 40 times",
    "model: tokenizer.json with padding to 10^9",
    "model: generation_config.json: eos_token_id -1", "gguf: an array of 2^60 numbers",
    "gguf: arrays nested 10,000 deep", "gguf: {'attention.head_count': 0}",
    "data: rows of a ranking of 5,000 (label import)", "data: rows of a csv (train dpo)",
    "data: a gzip of blank lines (eval tiny-chat)",
    "store: items without an end (label stats)", "store: a trigger on labels (label import)",
    "store: a labeller of bytes (label export)", "settings: a schema that is a terabyte (train grpo)",
    "settings: a constitution of deep names (rlaif tiny-chat)")


def named(part: str):
    return next(case for name, case in CASES.items() if name == part or name.replace("store: a store of ",
                "store: ").replace("store: a store with ", "store: ") == part)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    warm()
    return small_run(tmp_path_factory.mktemp("sound") / "run")


def test_there_are_many_of_every_kind():
    assert len(CASES) >= 600 and {name.split(":")[0] for name in CASES} >= {"run", "model", "gguf", "data",
                                                                           "store", "settings"}


def cases():
    quick = [named(part).name for part in QUICK]
    return [*quick, *(pytest.param(name, marks=pytest.mark.proof) for name in CASES if name not in quick)]


@pytest.mark.parametrize("part", cases())
def test_a_hostile_file_is_a_sentence(part, run):
    outcome = drive(named(part), run)
    assert not outcome.fault, f"{outcome.fault} {outcome.strayed}: {outcome.said}"


def test_the_command_itself_in_a_process_of_its_own(run):
    outcome = drive(named("run: events.jsonl is a link"), run, fresh=True)
    assert outcome.code == 2 and not outcome.strayed and "events.jsonl is a link" in outcome.said


# one place for each rule

@pytest.mark.parametrize("name", ["events.jsonl", "lock", "checkpoints", "checkpoints/000001", "start"])
def test_nothing_is_written_or_deleted_through_a_link(tmp_path, name):
    with logged(make(tmp_path / "run"), 1).locked() as run:
        run.save(1, put("one"))
    there = tmp_path / "there"
    if (path := run.folder / name).exists():
        path.rename(there)
    else:
        there.mkdir()
    path.symlink_to(there)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for write in (Run.open(run.folder).resume, lambda: Run.open(run.folder).event("a", "b"),
                  lambda: Run.open(run.folder).rewind(0)):
        with pytest.raises(ValueError, match="is a link"):
            write()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_pipe_in_a_run_keeps_nobody_waiting(tmp_path):
    run = make(tmp_path / "run")
    run.status("done")
    (run.folder / "metrics.jsonl").unlink()
    os.mkfifo(run.folder / "metrics.jsonl")
    assert [row["state"] for row in list_runs(tmp_path)] == ["broken"]
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        Run.open(run.folder).resume()


def test_one_bad_run_breaks_no_list(tmp_path):
    make(tmp_path / "good").status("done")
    for name, file, text in (("deep", "run.json", "[" * 100_000), ("dated", "run.json", '{"created": "x"}'),
                             ("rows", "metrics.jsonl", "[" * 100_000 + "\n"), ("null", "status.json", "[]")):
        make(tmp_path / name).status("done")
        (tmp_path / name / file).write_text(text)
    states = {row["name"]: row["state"] for row in list_runs(tmp_path)}
    assert states == {"good": "done", "deep": "broken", "dated": "done", "rows": "done", "null": "unknown"}
    web = client(tmp_path)
    for page in ("/", "/runs"):
        assert web.get(page).status_code == 200 and "good" in web.get(page).text


@pytest.mark.parametrize("what", sorted(BOMBS))
def test_a_template_that_asks_for_too_much_ends(what, monkeypatch):
    """Each by a limit, most at once; what is harmless is rendered."""
    monkeypatch.setattr("postgrad.models.chat.template.SECONDS", 0.3)
    try:
        text = compile_template(BOMBS[what])(messages=[{"role": "user", "content": "hi"}],
                                             add_generation_prompt=True)
        assert len(text.text) <= 10**7
    except ValueError as error:
        assert len(str(error)) < 600 and "\n" not in str(error)


def test_a_long_conversation_is_not_too_much():
    talk = [{"role": ("user", "assistant")[i % 2], "content": "word " * 2000} for i in range(400)]
    source = ("{% for m in messages %}{% if loop.first or messages[loop.index0 - 1].role != m.role %}"
              "<|{{ m.role }}|>{{ m.content.strip().replace('word', 'world') | trim ~ '<|end|>' }}{% endif %}"
              "{% set rest = messages[loop.index:] %}{% endfor %}{{ rest | length }}")
    assert len(compile_template(source)(messages=talk).text) > 4 * 10**6


def test_padding_and_truncation_of_a_tokenizer_change_no_text(tmp_path):
    import shutil

    from postgrad.models import find_model
    from postgrad.models.chat import Chat
    shutil.copytree(find_model("tiny-chat"), tmp_path / "m")
    plain = Chat.load(tmp_path / "m").encode("What is 2 + 3? " * 9)
    raw = json.loads((tmp_path / "m" / "tokenizer.json").read_text())
    raw |= {"padding": {"strategy": {"Fixed": 500}, "direction": "Right", "pad_to_multiple_of": None,
                        "pad_id": 0, "pad_type_id": 0, "pad_token": "x"},
            "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}}
    (tmp_path / "m" / "tokenizer.json").write_text(json.dumps(raw))
    assert Chat.load(tmp_path / "m").encode("What is 2 + 3? " * 9) == plain
