"""A user's own tasks: a .py file and a .jsonl file, and what is wrong with them in one sentence."""

import json
import re

import pytest

from postgrad.data.tasks import SPLITS, load_task
from postgrad.rewards import check_verifier

ANY = "\ndef verify(p, c): return 1\n"
GOOD = '''"""Sums.

More."""
prompts = [{"question": f"What is {a}+{b}?", "answer": str(a + b)} for a in range(10) for b in range(10)]

def verify(prompt, completion):
    return prompt.answer == completion

def gold(prompt):
    return prompt.answer
'''


def write(tmp_path, text, name="my_task.py"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_users_file_is_a_task(tmp_path):
    task = load_task(write(tmp_path, GOOD))
    assert (task.name, task.about, task.meta["shared_splits"]) == ("my_task", "Sums.", False)
    parts = {split: {p.id for p in task.prompts(split, 1000, 0)} for split in SPLITS}
    assert (sum(map(len, parts.values())) == len(set.union(*parts.values())) == 100
            and len(parts["train"]) > 60)
    prompt = task.prompts("train", 1, 0)[0]
    assert task.verify(prompt, task.gold(prompt)).score == 1.0 and task.verify(prompt, "no").score == 0.0
    assert task.demonstrations is None


def test_an_edited_file_is_read_again(tmp_path):
    for word in ("aaa", "bbb", "ccc"):  # the same size, within the same second
        assert (
            load_task(write(tmp_path, f"name = '{word}'\nprompts = [{{'question': 'a'}}]{ANY}")).name == word)
    assert not (tmp_path / "__pycache__").exists()


def test_prompts_may_be_functions_and_prompt_records(tmp_path):
    head = "from postgrad import Prompt, Verdict\nname = 'mine'\nbest = 2\n"
    tail = ("\ndef verify(prompt, completion): return Verdict(score=2.0 * (completion == 'x'))\n"
            "def gold(prompt): return 'x'\n")
    task = load_task(write(tmp_path, head + "def prompts(split): return [Prompt.ask(f'{split} {i}') for "
                           "i in range(4)]" + tail))
    assert task.name == "mine" and task.best == 2.0
    assert {p.question.split()[0] for p in task.prompts("test", 9, 0)} == {"test"}
    task = load_task(write(tmp_path,
                           head + "def prompts(): yield from (Prompt.ask(f'{i}') for i in range(3))" + tail))
    assert [len(task.prompts(split, 9, 0)) for split in SPLITS] == [1, 1, 1]
    task = load_task(write(tmp_path, head + "prompts = [{'messages': [{'role': 'user', 'content': "
                           "'a'}], 'k': 1}]" + tail))
    assert task.meta["shared_splits"] and "cannot be split" in task.meta["warning"]
    assert (task.prompts("train", 9, 0) == task.prompts("test", 9, 0)
            and task.prompts("train", 9, 0)[0].meta == {"k": 1})


@pytest.mark.parametrize("count", range(3, 30))
def test_small_lists_give_every_split_something(tmp_path, count):
    text = f"prompts = [{{'question': str(i)}} for i in range({count})]\ndef verify(p, c): return 0.5\n"
    task = load_task(write(tmp_path, text))
    parts = [{p.id for p in task.prompts(split, 99, 0)} for split in SPLITS]
    assert all(parts) and sum(map(len, parts)) == len(set.union(*parts)) == count


def test_users_demonstrations_go_to_the_split_of_their_prompt(tmp_path):
    more = "demonstrations = [{'question': p['question'], 'reply': p['answer']} for p in prompts]\n"
    more += "demonstrations.append({'question': '?', 'reply': '!'})\n"
    task = load_task(write(tmp_path, GOOD + more))
    total = 0
    for split in SPLITS:
        asked = {p.question for p in task.prompts(split, 999, 0)}
        shown = {c.messages[0]["content"] for c in task.demonstrations(split, 999, 0)}
        assert shown - {"?"} == asked and ("?" in shown) == (split == "train")
        total += len(shown)
    assert total == 101


@pytest.mark.parametrize(("text", "message"), [
    ("x = 1\nprompts = [\n", r"my_task\.py, line 2: SyntaxError"),
    ("x = 1\n\ny = 1 / 0\n", r"my_task\.py, line 3: ZeroDivisionError"),
    ("import nothing_of_the_kind\n", r"my_task\.py, line 1: ModuleNotFoundError.*nothing_of_the_kind"),
    ("raise SystemExit(3)\n", r"my_task\.py, line 1: SystemExit"),
    (ANY, r"my_task\.py, line 1: .*no `prompts`"),
    ("prompts = [{'question': 'a'}]\n", r"my_task\.py, line 1: .*no `verify`"),
    (GOOD.replace("prompts = [", "prompts = [] and ["), r"my_task\.py, line 4: `prompts` gave an empty list"),
    ("prompts = 'abc'" + ANY, r"line 1: `prompts` gave str"),
    ("\ndef prompts(split, count): return []" + ANY, r"line 2: `prompts` takes 2 arguments"),
    ("def prompts():\n    return {}['a']" + ANY, r"line 2: KeyError: 'a'"),
    ("def prompts(split): return []" + ANY, r"line 1: `prompts` gave an empty list for the split 'train'"),
    ("def prompts(split): return ['a']" + ANY, r"line 1: prompts\('train'\)\[0\]: .*this is str"),
    ("def prompts(split): return [{'question': 'a'}]" + ANY, "every question of the split train is asked in"),
    ("prompts = [{'question': 'a'}, {'question': ''}]" + ANY, r"prompts\[1\]: the question must be a text"),
    ("prompts = [{'text': 'a'}]" + ANY, r"prompts\[0\]: expected one of question.*among text"),
    ("prompts = [{'messages': [{'role': 'assistant', 'content': 'a'}]}]" + ANY,
     "last message must be the user's"),
    ("prompts = [{'messages': [{'role': 'me', 'content': 'a'}]}]" + ANY, "role must be one of"),
    ("prompts = [{'question': q, 'id': 1} for q in 'ab']" + ANY,
     r"prompts\[1\] has the id '1' of .*prompts\[0\], and asks something else"),
    ("prompts = [{'question': 'a'}]\nverify = 3\n", r"line 2: `verify` must be a function"),
    ("prompts = [{'question': 'a'}]\nname = 3" + ANY, r"line 2: `name` must be a text"),
    ("prompts = [{'question': 'a'}]\nbest = 'x'" + ANY, r"line 2: `best` must be a number"),
    ("prompts = [{'question': 'a'}]\ndef verify(p, c):\n    return p.nonsense\n",
     r"line 3: AttributeError.*nonsense"),
    ("prompts = [{'question': 'a'}]\ndef verify(p, c): return None\n",
     r"returned nothing \(None\): it has to return"),
    ("prompts = [{'question': 'a'}]\ndef verify(c): return 1.0\n",
     r"line 2: verify\(c\) cannot be called with \(prompt, text\): give it these two arguments"),
    ("prompts = [{'question': 'a'}]\ndef verify(): return 1.0\n", r"line 2: verify\(\) cannot be called"),
    ("prompts = [{'question': 'a'}]\ndef verify(p, c): return 'yes'\n", r"returned a str: it has to return"),
    (GOOD.replace("== completion", "== completion + '0'"),
     r"line 6: the verifier pays 0 instead of 1 for the gold"),
    (GOOD.replace("prompt.answer == completion", "True"),
     r"line 6: the verifier pays the full 1 for the garbage"),
    (GOOD.replace("    return prompt.answer\n", "    return 5\n"), r"line 9: `gold` returned int"),
    (GOOD.replace("    return prompt.answer\n", "    return 1 / 0\n"),
     r"line 10: ZeroDivisionError.*`gold` failed"),
    (GOOD + "demonstrations = [3]\n", r"line 11: demonstrations\[0\]: a demonstration is"),
])
def test_a_bad_file_is_refused_in_one_sentence_with_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_task(write(tmp_path, text))
    first, *others = str(caught.value).splitlines()
    assert not others or first.endswith("rows are bad:"), "several faults stand a line each"


def test_a_failing_verifier_is_an_error_and_no_reward(tmp_path):
    text = "prompts = [{'question': 'a'}]\ndef verify(p, c):\n    return {'': 0.0, 'nan': float('nan')}[c]\n"
    task = load_task(write(tmp_path, text))
    prompt = task.prompts("train", 1, 0)[0]
    assert task.verify(prompt, "").error is None
    assert re.match(r"infrastructure: my_task\.py, line 3: KeyError", task.verify(prompt, "x").error)
    assert "the score nan" in task.verify(prompt, "nan").error


def rows(*lines):
    return "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)


def test_a_jsonl_file_is_a_task(tmp_path):
    made = [{"question": f"{a}+1?",
             "answer": f"{a} and one.\n{a}+1 = <<{a}+1={a + 1}>>{a + 1}\n#### {a + 1:,}"}
            for a in range(990, 1030)]
    task = load_task(write(tmp_path, b"\xef\xbb\xbf" + rows(*made).replace("\n", "\r\n").encode(),
                           "sums.jsonl"))
    prompts = [p for split in SPLITS for p in task.prompts(split, 99, 0)]
    assert len(prompts) == 40 and check_verifier(task.verify, [(p, task.gold(p)) for p in prompts]) == 40
    prompt = next(p for p in prompts if p.answer == "1,000")
    said = ("It is 1000.", "<answer>1000.0</answer>", "<answer>1000.0</answer> or 3", "1001", "", "one")
    assert [task.verify(prompt, text).score for text in said] == [1, 1, 0, 0, 0, 0]
    shown = {c.messages[-1]["content"] for split in SPLITS for c in task.demonstrations(split, 99, 0)}
    assert "<think>999 and one.\n999+1 = 1000</think><answer>1,000</answer>" in shown


def test_a_jsonl_file_with_answers_in_words(tmp_path):
    made = [{"prompt": f"{i}?", "answer": "Blue Sky", "id": i} for i in range(3)]
    task = load_task(f"text:{write(tmp_path, rows(*made), 'w.jsonl')}")
    prompt = task.prompts("test", 1, 0)[0]
    said = ("blue  sky", "<answer>Blue Sky</answer>", "blue", "", "not blue sky")
    assert [task.verify(prompt, text).score for text in said] == [1, 1, 0, 0, 0]
    assert task.demonstrations is None


OK = {"question": "a", "answer": 1}


@pytest.mark.parametrize(("text", "message"), [
    (rows(OK, '{"question": "b", "ans'), r"t\.jsonl, line 2 is not JSON"),
    (rows(OK, "", "[1]"), r"t\.jsonl, line 3 is a list; each line must be"),
    (rows(OK).encode() + b"\n\xff\xfe", r"line 2 is not JSON.*can't decode byte 0xff in position 0"),
    (rows(OK, '{"question": "b", "answer": NaN}'), "line 2 is not JSON.*: NaN"),
    (rows(OK, '{"question": "b\\ud83d", "answer": 2}'), r"line 2 is not JSON.*: .*'\\ud83d'.*surrogates"),
    (rows('{"question": "b", "answer": 1, "answer": 2}'), "line 1 is not JSON.*field 'answer' stands twice"),
    (rows(OK, {"question": "b"}), "line 2: the row needs an answer"),
    (rows(OK, {"question": "b", "answer": "blue"}),
     r"line 2: the gold answer 'blue' is not a number.*text:FILE.jsonl"),
    (rows(OK, {"question": "b", "answer": [1]}), "line 2: the row needs an answer"),
    (rows(OK, {"answer": 1}), "line 2: expected one of question"),
    (rows(OK, {"question": 5, "answer": 1}), "line 2: the question must be a text"),
    (rows({**OK, "id": 1}, {"id": 1, "question": "b", "answer": 1}),
     r"line 2 has the id '1' of t\.jsonl, line 1, and asks something else"),
    (rows(OK, '{"question": "' + "a" * 10**6 + '", "answer": 1}'), "line 2 is longer than"),
    ("[" * 10**5, "line 1 is not JSON"),
    (b"\x00\x00", "t.jsonl is a binary file, with a NUL byte in line 1: expected JSONL"),
    ("", r"t\.jsonl holds no rows"),
    ("\n\n", r"t\.jsonl holds no rows"),
])
def test_a_bad_jsonl_file_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_task(write(tmp_path, text, "t.jsonl"))


def test_an_unknown_verifier_gets_a_hint(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'number'"):
        load_task(f"numbr:{write(tmp_path, rows(OK), 't.jsonl')}")
