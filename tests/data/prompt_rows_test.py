"""Rows of prompts as people have them: repeated, with further columns, broken, in splits of their own."""

import json

import pytest

import postgrad
from postgrad.cli import main
from postgrad.data.rows import BadRows
from postgrad.data.tasks import load_task
from postgrad.data.tasks.listed import task_notes
from postgrad.resolve.tasks import SplitRows, open_task
from postgrad.runs import Run

SMALL = {"steps": 1, "prompts": 4, "prompts_per_step": 2, "group_size": 2, "rollouts": {"max_new_tokens": 4},
         "evaluation": {"every": 0}, "display": False}


def rows(count):
    return [{"question": f"What is {n}+1?", "answer": str(n + 1)} for n in range(count)]


def write(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def test_repeated_prompts_are_asked_as_often_as_they_stand_and_stay_in_one_split(tmp_path):
    twice = [*rows(60), *rows(30)]
    task = load_task(write(tmp_path / "q.jsonl", *twice))
    parts = {split: task.prompts(split, 99, 0) for split in ("train", "validation", "test")}
    assert sum(map(len, parts.values())) == 90 and task.meta["repeats"] == 0
    assert len({p.id for part in parts.values() for p in part}) == 90
    texts = [{p.question for p in part} for part in parts.values()]
    assert sum(map(len, texts)) == 60, "no question is in two splits"
    assert "30 rows: the prompt stands before too, and is asked as often as it stands" in task_notes(task)[0]
    once = load_task(write(tmp_path / "q.jsonl", *rows(60)))
    for split, part in parts.items():
        assert {p.question for p in once.prompts(split, 99, 0)} == {p.question for p in part}


def test_all_other_columns_reach_the_reward_by_name(tmp_path):
    seen = {}

    def judge(prompts, completions, question, level, **columns):
        seen.update(prompts=prompts, question=question, level=level, **columns)
        return [1.0] * len(completions)

    table = [{"prompt": f"Solve {n}", "question": f"q{n}", "messages": None, "level": n} for n in range(4)]
    postgrad.fit("tiny-chat", "grpo", task=table, reward=judge, run=tmp_path / "run", **SMALL)
    assert [f"Solve {q[1:]}" for q in seen["question"]] == seen["prompts"]
    assert [f"q{n}" for n in seen["level"]] == seen["question"]
    note = task_notes(open_task(table, judge))[0]
    assert note.startswith("rows: 4 rows of prompt (4 turns); columns used: prompt; handed to the reward by "
                           "name: question, level")


def test_bad_rows_of_a_task_are_left_out_and_counted(tmp_path, capsys):
    good = rows(8)
    path = write(tmp_path / "q.jsonl", *good[:3], "{broken", {"answer": "5"}, *good[3:],
                 {"question": "What colour?", "answer": "blue"}, {"question": "b"})
    words = ["train", "grpo", "--task", path, "steps=1", "prompts=4", "prompts_per_step=2", "group_size=2",
             "rollouts.max_new_tokens=4", "evaluation.every=0", "--run", str(tmp_path / "run")]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "q.jsonl, line 4 is not JSON" in said and "skip_bad=true" in said
    assert main([*words, "skip_bad=true"]) == 0
    said = "4 of 12 rows are bad and left out, the first: q.jsonl, line 4 is not JSON"
    assert said in capsys.readouterr().err
    assert any(said in row["text"] for row in Run.open(tmp_path / "run").rows("events")[0])


@pytest.mark.parametrize("suffix", [".py", ".csv", ".json", "rows"])
def test_rows_of_every_kind_are_skipped(suffix, tmp_path):
    bad, path = BadRows(skip=True), tmp_path / f"q{suffix}"
    if suffix == ".py":
        path.write_text("prompts = [{'question': 'a', 'answer': 1}, {'x': 1}, 3, 'b', 'c', 'd']\n"
                        "def verify(prompt, text): return 1.0\n")
    elif suffix == ".csv":
        path.write_text("question,answer\na,1\nb,2\nc,3\nd\ne,f,g\n")
    elif suffix == ".json":
        path.write_text(json.dumps([*rows(4), 3, [4]]))
    given = [*rows(4), {"x": 1}, {"answer": 2}] if suffix == "rows" else str(path)
    task = open_task(given, bad=bad)
    assert bad.count == 2 and len(task.with_holdout(0).prompts("train", 99, 0)) == bad.rows - 2
    assert any("2 of" in note for note in task_notes(task))


def test_splits_of_a_table_are_the_tasks(tmp_path):
    datasets = pytest.importorskip("datasets")
    table = datasets.DatasetDict(train=datasets.Dataset.from_list(rows(20)),
                                 test=datasets.Dataset.from_list(rows(24)[19:]))
    task = open_task(SplitRows({name: table[name] for name in table}))
    assert {p.question for p in task.prompts("test", 99, 0)} == {row["question"] for row in rows(24)[19:]}
    assert task.prompts("validation", 99, 0) and task.meta["sizes"]["train"] == 19 == len(
        task.prompts("train", 99, 0)), "what is asked in the test split is not trained"
    run = postgrad.fit("tiny-chat", "grpo", task=table, run=tmp_path / "run", **SMALL)
    assert run.info["task"] == "rows"
    assert postgrad.resume(run.folder, steps=2, task=table, display=False).rows("metrics")[0]
    with pytest.raises(ValueError, match="task"):
        postgrad.resume(run.folder, steps=3, task=datasets.DatasetDict(train=table["train"]), display=False)
    with pytest.raises(ValueError, match="of a table with splits give one"):
        postgrad.fit("tiny-chat", "grpo", task={"train": rows(3), "extra": rows(3)}, **SMALL)


def test_a_task_file_may_have_any_format(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(rows(9)).to_parquet(tmp_path / "q.parquet")
    first = load_task(write(tmp_path / "q.jsonl", *rows(9)))
    assert load_task(str(tmp_path / "q.parquet")).prompts("train", 99, 0) == first.prompts("train", 99, 0)
    assert load_task(f"text:{tmp_path / 'q.parquet'}").meta["verifier"] == "text"


def test_a_file_without_answers_is_judged_by_the_reward_and_its_columns(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"What is {n}+1?", "question": f"raw {n}", "solution": "1"})
                            + "\n" for n in range(4)))
    (tmp_path / "judge.py").write_text("def reward(prompt, text):\n"
                                       "    return float(prompt.meta['solution'] in text)\n")
    words = ["train", "grpo", "--task", str(path), "steps=1", "prompts_per_step=2", "group_size=2",
             "rollouts.max_new_tokens=4", "evaluation.every=0", "--run", str(tmp_path / "run")]
    assert main([*words, f"reward={tmp_path / 'judge.py'}"]) == 0

    def judge(completions, question, solution, **columns):
        assert all(text.startswith("raw ") for text in question) and {*solution} == {"1"}
        return [1.0 for _ in completions]

    run = postgrad.fit("tiny-chat", "grpo", task=path, reward=judge, run=tmp_path / "own", **SMALL)
    assert run.metrics()[-1]["reward"] == 1.0


def test_a_reward_of_ones_own_judges_numbers_words_and_nothing_in_one_file(tmp_path):
    path = tmp_path / "mixed.jsonl"
    write(path, {"prompt": "2+3?", "answer": "5"}, {"prompt": "Capital of France?", "answer": "Paris"},
          {"prompt": "Say hi"})
    task = open_task(path, lambda prompt, text: float(len(text) < 9))
    assert {p.answer for p in task.with_holdout(0).prompts("train", 9, 0)} == {"5", "Paris", None}
    with pytest.raises(ValueError, match="line 3: the row needs an answer"):
        open_task(path)


def test_a_name_of_the_hub_without_its_prefix_is_told(tmp_path):
    for words in ({"method": "sft", "data": "someone/chats"}, {"method": "grpo", "task": "someone/sums"}):
        name = words.get("data") or words["task"]
        with pytest.raises(ValueError, match=f"a data set of the hub is named hub:{name}"):
            postgrad.fit("tiny-chat", **words, run=tmp_path / "run", display=False)
    with pytest.raises(ValueError, match=r"no file rows/chats.jsonl: give the path of a JSONL file\.$"):
        postgrad.fit("tiny-chat", "sft", data="rows/chats.jsonl", run=tmp_path / "run", display=False)
