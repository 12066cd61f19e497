"""Bad and over-long rows of a file: all of them are named at once, by file and line, or left out or cut and
counted."""

import json
import re

import pytest
from hostile import bad_rows
from small import CHAT, TALKS, gsm8k_folder, small_model

from postgrad.cli import main
from postgrad.data.preferences import read_pairs, read_singles
from postgrad.data.rows import BadRows, read_conversations
from postgrad.data.tasks import load_task
from postgrad.data.tasks.listed import task_notes
from postgrad.recipes.row_reader import RowReader, RowSettings
from postgrad.records import Conversation, Pair, Prompt
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.user_code import rows_hash
from postgrad.training.batches.offline import TokenLimit

LONG = "very " * 600


def chat(question="Hi", answer="Hello!"):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


GOOD = {
    "sft": lambda n: chat(f"What is {n}?", f"{n}."),
    "dpo": lambda n: {"prompt": f"What is {n}?", "chosen": f"{n}.", "rejected": "No."},
    "reward": lambda n: {"prompt": f"What is {n}?", "chosen": f"{n}.", "rejected": "No."},
    "kto": lambda n: {"prompt": f"What is {n}?", "completion": f"{n}.", "label": n % 2 == 0},
}
SMALL = {"sft": ["rows_per_step=2"], "dpo": ["pairs.per_step=2"], "reward": ["pairs.per_step=2"],
         "kto": ["pairs.per_step=2"]}


def train(method, path, run, *words):
    return main(["train", method, f"data={path}", "steps=1", "save_every=1", "evaluation.every=0",
                 "holdout=0", *SMALL[method], *words, "--run", str(run)])


@pytest.mark.parametrize("method", GOOD)
def test_all_faults_of_a_file_are_listed_by_line(method, tmp_path, capsys):
    good = [GOOD[method](n) for n in range(4)]
    path = write(tmp_path / "data.jsonl", good[0], "{broken", good[1], "[1]", "", {"txt": "x"}, *good[2:])
    assert train(method, path, tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert f"{path}: 3 of 7 rows are bad:" in said
    for line, what in ((2, "is not JSON"), (4, "is a list"), (6, "")):
        assert re.search(rf"^  {re.escape(path)} line {line}.*{what}", said, re.M)
    assert said.rstrip().endswith("leave it out with skip_bad=true.") and not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", GOOD)
def test_bad_rows_are_skipped_counted_and_said(method, tmp_path, capsys):
    path = write(tmp_path / "data.jsonl", *(GOOD[method](n) for n in range(6)), "{broken", {"txt": "x"})
    assert train(method, path, tmp_path / "run", "skip_bad=true") == 0
    said = f"{path}: 2 of 8 rows are bad and left out, the first: {path} line 7 is not JSON"
    assert said in capsys.readouterr().err
    assert any(row["text"].startswith(said) for row in Run.open(tmp_path / "run").rows("events")[0])


@pytest.mark.parametrize("method", GOOD)
def test_rows_that_the_template_has_no_place_for_are_bad_rows(method, tmp_path, capsys):
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    odd = [GOOD[method](n) | {"tools": tools} for n in range(6, 8)]
    path = write(tmp_path / "data.jsonl", *(GOOD[method](n) for n in range(6)), *odd)
    assert train(method, path, tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert f"{path} line 7 has tools, and the model's chat template has no place for them" in said
    assert "(skip_bad=true)" in said
    assert train(method, path, tmp_path / "run", "skip_bad=true") == 0
    said = capsys.readouterr().err
    assert f"{path}: 2 of 8 rows are bad and left out, the first: {path} line 7 has" in said
    assert Run.open(tmp_path / "run").info["data"]["bad"] == 2
    assert train(method, write(tmp_path / "odd.jsonl", *odd), tmp_path / "none", "skip_bad=true") == 2
    assert re.search(r"2 of 2 rows are bad:\n.* line 1 has tools.*\(and 1 more like it\)",
                     capsys.readouterr().err)


CORPUS = [case for case in bad_rows.cases() if not case.whole]


@pytest.mark.parametrize("form", bad_rows.READERS)
def test_a_malformed_file_is_refused_by_line_and_its_row_left_out_and_counted(form, tmp_path):
    """The lines of 100 MB are tried by `python proofs/reliability.py lines`."""
    mine = [case for case in CORPUS if case.form == form]
    assert len(mine) >= 50 and {case.name: why for case in mine if (why := case.fault(tmp_path))} == {}


def test_the_first_twenty_are_shown_and_all_are_counted(tmp_path):
    rows = [{"txt": n} for n in range(1001)]
    for read in (read_conversations, read_pairs, read_singles):
        with pytest.raises(ValueError, match=r"of 1,001 rows are bad, the first 20 of them:\n") as caught:
            read(write(tmp_path / "c.jsonl", *rows))
        assert str(caught.value).count("\n") == 1 and "(and 19 more like it)" in str(caught.value)


def test_one_fault_is_its_own_sentence_and_none_left_is_an_error(tmp_path, capsys):
    path = write(tmp_path / "c.jsonl", chat(), {"txt": "x"})
    assert train("sft", path, tmp_path / "run") == 2
    assert capsys.readouterr().err.strip().splitlines()[-1] == (
        f"postgrad: {path} line 2: expected 'messages', 'conversations', 'prompt' and 'completion', "
        "'instruction' and 'output', or 'text'; found txt. Mend what is bad, "
        "or leave it out with skip_bad=true.")
    path = write(tmp_path / "d.jsonl", {"txt": "x"}, {"txt": "y"})
    assert train("sft", path, tmp_path / "run", "skip_bad=true") == 2
    assert "2 of 2 rows are bad" in capsys.readouterr().err


@pytest.mark.parametrize("rows", [[chat(), 3, {"txt": 1}], [chat(), {"messages": []}, {"txt": 1}]])
def test_rows_that_were_handed_in_are_listed_too(rows):
    with pytest.raises(ValueError, match=r"data: 2 of 3 rows are bad:\n  data\[1\].*\n  data\[2\]"):
        read_conversations(rows)


def test_a_task_file_lists_its_faults(tmp_path):
    path = tmp_path / "q.jsonl"
    good = {"question": "2+3?", "answer": "5"}
    for rows, said in (
        ((good, "{x", "[1]"), "2 of 3 rows are bad:\n  Q2 is not JSON.*\n  Q3 is a list"),
        ((good | {"id": 1}, {"answer": 1}, {"question": "b"}, {"question": "c", "answer": 3, "id": 1}),
         "3 of 4 rows are bad:\n  Q2: .*\n  Q3: .*\n  Q4 has the id"),
        ((good, {"question": "b", "answer": "blue"}, {"question": "c", "answer": "red"}),
         "2 of 3 rows are bad:\n  Q2: the gold answer 'blue'.*\n  Q3: .*'red'.*\nFor answers that are no"),
    ):
        write(path, *rows)
        with pytest.raises(ValueError, match=said.replace("Q", "q.jsonl, line ")):
            load_task(str(path))


def test_labels_to_import_list_their_faults(tmp_path, capsys):
    path = write(tmp_path / "p.jsonl", GOOD["dpo"](1), {"prompt": "x"}, "{broken")
    words = ["label", "import", path, "--labeller", "ann", "--store", str(tmp_path / "s.db")]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "2 of 3 rows are bad" in said and "skip_bad" not in said, "import has no such setting"


# rows that are too long

@pytest.mark.parametrize("method", GOOD)
def test_long_rows_are_named_by_file_and_line(method, tmp_path, capsys):
    rows = [GOOD[method](n) for n in range(4)]
    for n in (1, 3):
        rows[n] = json.loads(json.dumps(rows[n]).replace("What is", f"{LONG} What is"))
    path = write(tmp_path / "data.jsonl", *rows)
    assert train(method, path, tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert re.search(r"2 of 4 rows are over the limit of 512 tokens:", said)
    for line in (2, 4):
        assert re.search(rf" {re.escape(path)} line {line} has [\d,]+ tokens[,.]", said)
    assert "truncate=drop, left or right" in said


@pytest.mark.parametrize("method", GOOD)
@pytest.mark.parametrize(("truncate", "said"), [
    ("drop", "1 of 6 rows are left out, for they have too many tokens"),
    ("left", "1 of 6 rows are cut at the start, for they are over the limit of 512 tokens")])
def test_long_rows_are_dropped_or_cut_and_counted(method, truncate, said, tmp_path, capsys):
    rows = [GOOD[method](n) for n in range(5)]
    rows.append(json.loads(json.dumps(GOOD[method](5)).replace("What is", f"{LONG} What is")))
    path = write(tmp_path / "data.jsonl", *rows)
    assert train(method, path, tmp_path / "run", f"truncate={truncate}") == 0
    assert f"{path}: {said}" in capsys.readouterr().err


def test_where_tokens_are_cut():
    tokens, mask = list(range(10)), [False] * 6 + [True] * 4
    left, right = TokenLimit(7, "left"), TokenLimit(7, "right")
    assert left.fit("a", [(tokens, mask)]) == [(tokens[3:], mask[3:])]
    assert right.fit("a", [(tokens, mask)]) == [(tokens[:7], mask[:7])]
    assert left.fit("a", [(tokens[:7], mask[:7])]) == [(tokens[:7], mask[:7])]
    assert (left.units, left.cut) == (2, 1)
    pair = left.fit("b", [(tokens, mask), (tokens[:9], mask[:9])])
    assert pair == [(tokens[3:], mask[3:]), (tokens[3:9], mask[3:9])], "both rows lose the same of the prompt"
    assert right.note("f") == ("f: 1 of 1 rows are cut at the end, for they are over the limit of 7 tokens",)
    short = TokenLimit(6, "right")
    short.fit("f line 2", [(tokens, mask)])
    with pytest.raises(ValueError, match="f line 2 has 10 tokens, over the limit of 6.*nothing is left"):
        short.settle()
    many = TokenLimit(6)
    for n in range(50):
        many.fit(f"f line {n}", [(tokens, mask)])
    with pytest.raises(ValueError, match="50 of 50 rows .* tokens: ") as caught:
        many.settle()
    assert str(caught.value).count(" has ") == 20


def test_settings_of_rows_say_what_they_take():
    with pytest.raises(ValueError, match="truncate is 'middle': expected refuse, drop, left or right"):
        RowSettings(truncate="middle")
    reading = RowReader(RowSettings(truncate="drop"), None)
    assert reading.fitting(TALKS, CHAT, 20) == TALKS[:5] and reading.long == 2
    assert RowReader(RowSettings(), None).fitting(TALKS, CHAT, 20) == TALKS


def test_a_long_prompt_is_named_by_file_and_line(tmp_path, capsys):
    path = write(tmp_path / "q.jsonl", *({"question": f"{LONG if n % 10 == 3 else ''}{n}+1?", "answer": n + 1}
                                         for n in range(30)))
    small = ["steps=1", "save_every=1", "rollouts.prompts_per_step=2", "rollouts.group_size=2",
             "rollouts.max_new_tokens=4", "evaluation.problems=40", "evaluation.samples=2"]
    assert main(["train", "grpo", "--task", path, *small, "--run", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "over the model's 512 positions" in said
    assert re.search(r"q.jsonl, line (4|14|24) has \d+ tokens", said)
    words = [*small, "evaluation.every=1", "truncate=drop", "--run", str(tmp_path / "run")]
    assert main(["train", "grpo", "--task", path, *words]) == 0
    assert "prompts do not fit the model with their reply, and are left out" in capsys.readouterr().err
    assert main(["train", "grpo", "--task", path, "truncate=left"]) == 2
    assert "rollouts.truncate is 'left': expected refuse or drop" in capsys.readouterr().err


def test_every_long_prompt_is_named():
    sampler = LocalSampler(small_model(), CHAT)
    prompts = [Prompt(id=str(n), messages=({"role": "user", "content": "x " * (60 if n % 2 else 2)},),
                      where=f"q.jsonl, line {n}") for n in range(60)]
    with pytest.raises(ValueError, match="30 of 60 prompts are over .* positions: ") as caught:
        sampler.check(prompts, Sampling(max_new_tokens=40))
    assert "q.jsonl, line 1 has " in str(caught.value) and str(caught.value).count(" has ") == 20
    with pytest.raises(ValueError, match="max_new_tokens 128 with any prompt is over the model's 128"):
        sampler.check(prompts, Sampling(max_new_tokens=128))


def test_where_a_record_stands_is_no_part_of_what_it_is():
    for kind, fields in ((Prompt, {"messages": ()}), (Conversation, {"messages": ()}),
                         (Pair, {"messages": (), "chosen": "a", "rejected": "b"})):
        here, there = (kind(id="1", **fields, where=where) for where in ("a.jsonl line 1", ""))
        assert here == there and rows_hash([here]) == rows_hash([there])
        assert here.place == "a.jsonl line 1" and there.place.endswith(" 1")


# published data sets, by name

MATHS = [{"problem": f"{n}+1?", "solution": rf"It is \boxed{{{n + 1}}}."} for n in range(9)]
MBPP = [{"task_id": n, "text": f"Write f{n}.", "code": f"def f{n}():\n    return {n}",
         "test_list": [f"assert f{n}() == {n}"]} for n in (601, 602, 511, 11)]


def published(folder, name, *bad):
    """The data set in a folder, with bad rows; what names it as a task."""
    if name == "gsm8k":
        gsm8k_folder(folder)
        file = folder / "train.jsonl"
    else:
        file = folder / f"{name}.jsonl"
        write(file, *(MATHS if name == "math" else MBPP))
    with file.open("a") as lines:
        lines.writelines((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in bad)
    return f"{name}:{folder if name == 'gsm8k' else file}", file.name


@pytest.mark.parametrize(("name", "bad"), [
    ("gsm8k", ["{broken", {"question": "x"}]), ("mbpp", ["{broken", {"task_id": 700}]),
    ("math", ["{broken", {"problem": "x", "solution": "none"}, {"problem": "y", "answer": r"\frac{"}])])
def test_a_published_set_leaves_its_bad_rows_out_and_counts_them(name, bad, tmp_path):
    task, file = published(tmp_path, name, *bad)
    with pytest.raises(ValueError, match=rf"{file}, line \d+ is not JSON.*skip_bad=true"):
        load_task(task, BadRows.of_run(False))
    opened = load_task(task, BadRows.of_run(True))
    assert re.match(rf"{name}: {len(bad)} of \d+ rows are bad and left out, the first: {file}",
                    opened.meta["notes"][0])
    clean = tmp_path / "clean"
    clean.mkdir()
    asked = {prompt.question for prompt in load_task(published(clean, name)[0]).prompts("train", 99, 0)}
    assert {prompt.question for prompt in opened.prompts("train", 99, 0)} == asked


def test_each_part_of_a_mixture_says_what_it_leaves_out(tmp_path):
    good = [{"question": f"{n}+1?", "answer": n + 1} for n in range(4)]
    parts = [write(tmp_path / name, *good, "{broken") for name in ("a.jsonl", "b.jsonl")]
    task = load_task("+".join(parts), BadRows.of_run(True))
    said = [note for note in task_notes(task) if "left out" in note]
    assert [note.split(",")[0] for note in said] == [
        f"{name}: 1 of 5 rows are bad and left out" for name in ("a", "b")]


def test_a_task_among_the_data_says_what_it_leaves_out(tmp_path, capsys):
    task, file = published(tmp_path, "gsm8k", "{broken")
    chats = write(tmp_path / "chats.jsonl", *(chat(f"What is {n}?") for n in range(4)))
    assert train("sft", f"{chats},{task}", tmp_path / "run", "skip_bad=true") == 0
    assert f"1 of 101 rows are bad and left out, the first: {file}, line 81" in capsys.readouterr().err
