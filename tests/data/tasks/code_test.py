"""MBPP and HumanEval as tasks: rows of their shape everywhere, the published files where they are."""

import json

import pytest
from paths import DATA

from postgrad.data.tasks import SPLITS, code, load_task
from postgrad.records import Prompt
from postgrad.rewards.base import check_verifier
from postgrad.rewards.sandbox import Suite, selftest, tier

jailed = pytest.mark.skipif(tier() is None, reason="this machine has no sandbox that holds")


def row(number, **more):
    return {"task_id": number, "text": f"Write a function to add {number}.",
            "code": f"def add(x):\r\n    return x + {number}",
            "test_list": [f"assert add(1) == {number + 1}", f"assert add(0) == {number}"],
            "test_setup_code": "", "challenge_test_list": [f"assert add(-3) == {number - 3}"], **more}


HUMANEVAL = [
    {"task_id": f"HumanEval/{i}", "entry_point": "add", "prompt": f"def add(x):\n    '''Add {i} to x.'''\n",
     "canonical_solution": f"    return x + {i}\n", "test": f"def check(f):\n    assert f(1) == {i + 1}\n"}
    for i in range(5)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def mbpp(tmp_path):
    return load_task(
        f"mbpp:{write(tmp_path / 'mbpp.jsonl', map(row, (1, 10, 11, 510, 511, 600, 601, 602, 974)))}")


@jailed
def test_the_published_splits_by_task_id(mbpp):
    found = {split: sorted(p.id for p in mbpp.prompts(split, 99, 0)) for split in SPLITS}
    assert found == {"train": ["mbpp/601", "mbpp/602", "mbpp/974"], "validation": ["mbpp/511", "mbpp/600"],
                     "test": ["mbpp/11", "mbpp/510"]}


@jailed
def test_the_tests_of_the_list_are_shown_and_the_challenge_is_not(mbpp):
    prompt = next(p for p in mbpp.prompts("test", 9, 0) if p.id == "mbpp/11")
    assert "assert add(1) == 12\nassert add(0) == 11" in prompt.question and "-3" not in prompt.question
    shown = mbpp.demonstrations("test", 9, 0)
    assert any(c.messages[-1]["content"] == "```python\ndef add(x):\n    return x + 11\n```" for c in shown)
    table = "def add(x): return {1: 12, 0: 11}.get(x)"
    assert mbpp.verify(prompt, code.fenced(table)).parts == {"correct": 0.0, "lenient": 0.0, "format": 1.0}


RIGHT = "def add(x): return x + 11"


@jailed
@pytest.mark.parametrize(("text", "strict", "lenient"), [
    (f"```python\n{RIGHT}\n```", 1, 1), (f"Here:\n```python\n{RIGHT}\n```\nDone.", 1, 1), (RIGHT, 0, 1),
    (f"```\n{RIGHT}\n```", 0, 1), (f"```python\npass\n```\n```\n{RIGHT}\n```", 0, 1),
    (f"```python\n{RIGHT}", 0, 0), ("```python\ndef add(x): return 12\n```", 0, 0),
    ("```python\nimport os; os._exit(0)\n```", 0, 0), ("", 0, 0),
    (f"```python\n{RIGHT}\n```\n```python\nadd = None\n```", 0, 0)])
def test_strict_and_lenient_side_by_side(mbpp, text, strict, lenient):
    prompt = next(p for p in mbpp.prompts("test", 9, 0) if p.id == "mbpp/11")
    said = mbpp.verify(prompt, text)
    assert ((said.score, said.parts["correct"], said.parts["lenient"], said.error)
            == (strict, strict, lenient, None))


@jailed
def test_humaneval_is_a_test_set(tmp_path):
    task = load_task(f"humaneval:{write(tmp_path / 'h.jsonl', HUMANEVAL)}")
    assert (task.meta["sizes"] == {"train": 0, "validation": 0, "test": 5} and task.demonstrations is None
            and task.waits)
    for split in ("train", "validation"):
        with pytest.raises(ValueError,
                           match=f"humaneval has no {split} split: it is published as a test set"):
            task.prompts(split, 5, 0)
    prompts = task.prompts("test", 5, 0)
    assert check_verifier(task.verify, [(p, task.gold(p)) for p in prompts]) == 5
    body = f"```python\n    return x + {prompts[0].meta['row']['task_id'][-1]}\n```"
    assert task.verify(prompts[0], body).score == 1  # the rest of the function alone


@jailed
def test_suites_that_cannot_be_judged_are_left_out_and_counted(tmp_path):
    rows = [row(601), row(602, test_list=["assert add(int) == 3"]),
            row(603, test_list=["assert add(Node(1)) == 3"])]
    task = load_task(f"mbpp:{write(tmp_path / 'm.jsonl', rows)}")
    assert task.meta["unsupported"] == 2 and task.meta["sizes"]["train"] == 1


@jailed
@pytest.mark.parametrize(("rows", "said"), [
    ([{"question": "a"}], "line 1: expected a row of mbpp with task_id, code, test_list"),
    ([row(601), row(602, test_list="assert 1")], "line 2: .*test_list is missing or of another type"),
    ([row(601, test_list=["assert add(1) =="])], "line 1: its tests cannot be used"),
    ([row(601), row(601, text="Another text.", prompt="Another text.")], "line 2 has the id 'mbpp/601' of"),
    ([row(2000)], "mbpp/2000 is none of MBPP's tasks"),
])
def test_files_of_another_shape_are_refused(tmp_path, rows, said):
    with pytest.raises(ValueError, match=said) as caught:
        load_task(f"mbpp:{write(tmp_path / 'm.jsonl', rows)}")
    assert "\n" not in str(caught.value)


def test_without_a_sandbox_code_tasks_are_refused_when_they_are_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(selftest, "_proof", lambda: (None, "no Landlock"))
    monkeypatch.setattr(code, "code_sandbox", code.code_sandbox.__wrapped__)  # as in a new process
    with pytest.raises(ValueError, match="code tasks are refused because this machine has no sandbox"):
        load_task(f"mbpp:{write(tmp_path / 'm.jsonl', [row(601)])}")


@jailed
def test_a_fault_of_the_tests_is_an_error_and_no_reward(mbpp):
    suite = Suite(tests="nothing_of_the_kind\nassert add(1) == 12", names={"add": "add"})
    said = mbpp.verify(Prompt.ask("?", row=row(11), suite=suite), code.fenced(RIGHT))
    assert said.score == 0 and "the tests are broken: NameError" in said.error


@jailed
@pytest.mark.skipif(not (DATA / "mbpp").is_dir(), reason="MBPP and HumanEval are not here")
@pytest.mark.parametrize(("name", "sizes", "repeats", "unsupported"), [
    ("mbpp", (369, 89, 499), 3, 4), ("mbpp-sanitized", (120, 42, 257), 1, 0),
    ("humaneval", (0, 0, 164), 0, 0)])
def test_the_published_rows_pay_their_references(name, sizes, repeats, unsupported):
    task = load_task(f"{name}:{DATA / name.partition('-')[0]}")
    assert tuple(task.meta["sizes"].values()) == sizes
    assert (task.meta["repeats"], task.meta["unsupported"]) == (repeats, unsupported)
    some = [p for split in SPLITS if task.meta["sizes"][split] for p in task.prompts(split, 12, 0)]
    assert [task.verify(p, task.gold(p)).score for p in some] == [1.0] * len(some)
