"""Tasks: every registered one, tested by being registered; and tasks from a user's own files."""

import json
import random
import re

import pytest

from postgrad.records import Prompt
from postgrad.rewards import check
from postgrad.rewards.expression import value
from postgrad.tasks import SPLITS, TASKS, load_task, questions, split_of, word_problems
from postgrad.tasks.base import think

STEP = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)")
REASONED = [name for name in TASKS if not name.startswith(("questions", "constraints"))]
SHOWN = [name for name in TASKS if load_task(name).demonstrations]  # constraints have gold replies, and none to imitate


def hostile_texts(count=2000, seed=5):
    """Texts that a model, or somebody behind it, might write: tags, digits, operators, code and odd characters at random."""
    rng = random.Random(seed)
    pieces = ["<think>", "</think>", "<answer>", "</answer>", "9" * 500, "9", "0", "1/0", "**", "//", "(" * 40, ")" * 40, "+",
              "-", "*", "/", "(", ")", "^", "{", "\\frac{1}{2}", "__import__('os').system('id')", "eval(", "lambda:0", "%s",
              "{0}", "\x00", "\ud800", "\u202e", "٣", "²", "½", "１２", "∞", "é", "🙂", "\u200b", "\n", "\t", " ", "nan", "inf",
              "1e999", "0x1F", "Hello!", "meat", "true", "None", ",", ".", "<", "=", "-" * 300, "1," * 100, "İ", "ß"]
    made = ["", "9" * 10**5, "(" * 10**5, "<answer>" * 10**4, think("", "9" * 10**5), think("", "(" * 5000 + "1" + ")" * 5000),
            think("9" * 10**5, "1+" * 10**4 + "1"), think("", "9**9**9**9"), "a " * 10**5]
    while len(made) < count:
        inside = "".join(rng.choices(pieces, k=rng.randint(1, 12)))
        made.append(think(inside, "".join(rng.choices(pieces, k=rng.randint(0, 6)))) if rng.random() < 0.5 else inside)
    return made


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("split", SPLITS)
def test_gold_is_paid_and_garbage_is_not(name, split):
    task = load_task(name)
    prompts = task.prompts(split, 300, 1)
    assert len(prompts) >= (300 if not name.startswith("questions") else 20)
    assert check(task.verify, [(prompt, task.gold(prompt)) for prompt in prompts], best=task.best) == len(prompts)


@pytest.mark.parametrize("name", TASKS)
def test_prompts_are_distinct_disjoint_and_fixed_by_the_seed(name):
    task = load_task(name)
    ids = {split: {prompt.id for prompt in task.prompts(split, 400, 3)} for split in SPLITS}
    texts = {split: {prompt.question for prompt in task.prompts(split, 400, 4)} for split in SPLITS}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not ids[one] & ids[other] and not texts[one] & texts[other]
    prompts = task.prompts("train", 100, 3)
    assert len({prompt.id for prompt in prompts}) == len({prompt.question for prompt in prompts}) == 100
    assert prompts == task.prompts("train", 100, 3) and prompts != task.prompts("train", 100, 4)
    with pytest.raises(ValueError, match=r"'dev'.*train, validation, test"):
        task.prompts("dev", 1, 0)


@pytest.mark.parametrize("name", TASKS)
def test_what_makes_a_problem_decides_its_split(name):
    """The key is read from the question itself, not from the id."""
    for split in SPLITS:
        for prompt in load_task(name).prompts(split, 150, 9):
            numbers = [int(n) for n in re.findall(r"\d+", prompt.question)]
            if name.startswith("words"):
                meta = prompt.meta
                assert [meta["start"], *(n for op, n in meta["ops"] if op in "+-")] == numbers
                key = word_problems.key(meta["start"], meta["ops"])
            elif name.startswith("countdown"):
                key = f"{sorted(numbers[:-1])}->{numbers[-1]}"
            elif name.startswith("constraints"):
                key = prompt.question.partition(".")[0] + "."
            else:
                key = prompt.question if name.startswith("questions") else prompt.question[8:-1]
            assert split_of(key) == split


@pytest.mark.parametrize("name", SHOWN)
def test_demonstrations_stay_in_their_split_and_are_varied(name):
    task = load_task(name)
    questions_of = {split: {p.question for p in task.prompts(split, 400, 2)} for split in SPLITS}
    for split in SPLITS:
        shown = task.demonstrations(split, 400, 2)
        assert len(shown) == 400 and len({c.id for c in shown}) == 400
        assert {c.messages[0]["content"] for c in shown} <= questions_of[split]
        assert len({c.messages[-1]["content"] for c in shown}) > 50
        assert shown == task.demonstrations(split, 400, 2)


@pytest.mark.parametrize("name", ["words", "words-es", "arithmetic", "countdown"])
def test_a_right_answer_out_of_form_is_seen_and_not_paid(name):
    task = load_task(name)
    prompt = task.prompts("train", 1, 0)[0]
    readings = [[task.verify(prompt, text).parts[part] for part in ("correct", "lenient", "format")]
                for text in (task.gold(prompt), "hm " + task.gold(prompt), think("", "no"), "")]
    assert readings == [[1, 1, 1], [0, 1, 0], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("name", REASONED)
def test_every_step_of_gold_and_demonstrations_is_right_and_so_is_the_answer(name):
    task = load_task(name)
    prompts = {prompt.question: prompt for prompt in task.prompts("train", 300, 6)}
    texts = [(prompt, task.gold(prompt)) for prompt in prompts.values()]
    texts += [(prompts[c.messages[0]["content"]], c.messages[-1]["content"]) for c in task.demonstrations("train", 300, 6)]
    for prompt, text in texts:
        assert task.verify(prompt, text).parts["correct"] == 1.0, text
        for a, op, b, c in STEP.findall(text):
            assert value((op, int(a), int(b))) == int(c), text


def test_the_average_writer_has_the_shares_it_says():
    task = load_task("words")
    shown = [(c.messages[0]["content"], c.messages[-1]["content"]) for c in task.demonstrations("train", 3000, 0)]
    golds = {p.question: task.gold(p) for p in task.prompts("train", 3000, 0)}
    full = sum(golds[question] == text for question, text in shown)
    direct = sum(text.startswith("<think></think>") for _, text in shown)
    assert direct / 3000 == pytest.approx(word_problems.WRITER["direct"], abs=0.03)
    assert full / 3000 == pytest.approx(word_problems.WRITER["full"], abs=0.03)


def test_the_problem_of_the_notes_in_every_style():
    made = word_problems.Problem(5, (("+", 8), ("-", 3), ("*", 2)), "...")
    rng = random.Random(0)
    assert word_problems.reply(made, "full", rng) == "<think>5+8=13, 13-3=10, 10*2=20</think><answer>20</answer>"
    assert word_problems.reply(made, "direct", rng) == "<think></think><answer>20</answer>"
    assert word_problems.reply(made, "english", rng) == (
        "<think>5 plus 8 is 13, then 13 minus 3 is 10, then 10 times 2 is 20</think><answer>20</answer>")
    assert word_problems.reply(made, "spanish", rng) == (
        "<think>5 más 8 son 13, luego 13 menos 3 son 10, luego 10 por 2 son 20</think><answer>20</answer>")
    skipped = {word_problems.reply(made, "skipped", rng) for _ in range(200)}
    assert len(skipped) == 6  # the proper non-empty subsets of three steps
    assert "<think>5+8=13, 10*2=20</think><answer>20</answer>" in skipped


@pytest.mark.parametrize(("name", "counts"), [
    ("words", {2, 3, 4}), ("words-easy", {1, 2}), ("words-hard", {4, 5, 6}), ("words-es", {2, 3, 4}),
])
def test_levels_and_values_in_range(name, counts):
    seen = set()
    for prompt in load_task(name).prompts("train", 500, 0):
        number = prompt.meta["start"]
        assert 2 <= number <= word_problems.LARGEST
        for op, n in prompt.meta["ops"]:
            assert op != "/" or number % 2 == 0
            number = {"+": number + n, "-": number - n, "*": number * n, "/": number // n}[op]
            assert 0 <= number <= word_problems.LARGEST
        seen.add(len(prompt.meta["ops"]))
        assert str(number) == prompt.answer
    assert seen == counts


@pytest.mark.parametrize("name", REASONED)
def test_near_misses_are_not_paid(name):
    task = load_task(name)
    for prompt in task.prompts("test", 50, 0):
        gold = task.gold(prompt)
        steps, answer = re.fullmatch(r"<think>(.*)</think><answer>(.*)</answer>", gold).groups()
        inside = (f"{answer}1", f"1{answer}", f"{answer} or 7", "", f"{answer}=1", f"({answer}", f"{answer}.", f"{answer}+0")
        misses = [*(think(steps, text) for text in inside), answer, f"<answer>{answer}</answer>", gold + "!", gold + gold,
                  gold.replace("</think>", ""), think(answer, ""), gold.upper()]
        assert [task.verify(prompt, miss).score < 0.5 for miss in misses] == [True] * len(misses)


def test_countdown_takes_any_right_expression_and_no_trick():
    task = load_task("countdown")
    prompt = Prompt.ask("Use 3, 5 and 8, each once, with + - * / to make 16.", "3+5+8", numbers=(3, 5, 8), target=16)
    assert all(task.verify(prompt, think("", text)).score == 1.0 for text in ("3+5+8", "8 + 5 + 3", "(8+3)+5", "8*(5-3)"))
    for text in ("16", "8+8", "3+5+8+0", "3+5+8+3-3", "3+5", "35-8-8", "8*2",
                 "3+5+8=16", "3*5+8", "8/(5-5)", "3+5+8;", "-3+5+8", "3+5+8.0"):
        assert task.verify(prompt, think("", text)).score == 0.0, text


def test_the_language_of_thought_counts_in_spanish():
    task = load_task("words-es")
    prompt = task.prompts("test", 1, 0)[0]
    made, rng = word_problems.of_prompt(prompt), random.Random(0)
    scores = {style: task.verify(prompt, word_problems.reply(made, style, rng)).score
              for style in ("spanish", "english", "full", "direct")}
    assert scores == pytest.approx({"spanish": 1.0, "english": 0.8, "full": 1.0, "direct": 1.0})
    half = word_problems.reply(made, "spanish", rng).replace("son", "is")
    assert 0.8 < task.verify(prompt, half).score < 1.0


@pytest.mark.parametrize("name", TASKS)
def test_verifiers_are_total(name):
    task = load_task(name)
    prompts = task.prompts("train", 5, 0)
    for i, text in enumerate(hostile_texts()):
        said = task.verify(prompts[i % len(prompts)], text)
        assert said.error is None and said.reason and len(said.reason) < 300
        assert said.score < task.best or name.startswith("constraints")  # which any text of the right form keeps


@pytest.mark.parametrize("name", [name for name in REASONED if not name.startswith("countdown")])
def test_a_broken_gold_answer_raises(name):
    with pytest.raises(ValueError, match="gold answer"):
        load_task(name).verify(Prompt.ask("What?", "many"), think("", "7"))


def test_true_quality_orders_the_styles():
    rng, means = random.Random(0), {}
    prompts = [Prompt.ask(fact.question) for fact in questions.FACTS]
    for style in questions.STYLES:
        said = [questions.quality(prompt, questions.reply(questions.BY_QUESTION[prompt.question], style, rng))
                for prompt in prompts * 4]
        assert all((s.parts["correct"] > 0) == (style != "wrong") for s in said)
        assert all(s.parts["invented"] == s.parts["repetition"] == 0 for s in said)
        assert all((s.parts["rude"] < 0) == (style == "rude") for s in said)
        assert all((s.parts["filler"] < 0) == (style == "padded") for s in said)
        means[style] = sum(s.score for s in said) / len(said)
    assert means["polite"] == pytest.approx(2.2) and means["terse"] == pytest.approx(1.2)
    assert means["terse"] > 0.5 > max(means["padded"], means["rude"], means["wrong"])
    mean = sum(share * means[style] for style, share in questions.WRITER.items())
    assert sum(questions.WRITER.values()) == pytest.approx(1.0) and 0.0 < mean < 0.4


def test_true_quality_sees_through_hacking():
    prompt = Prompt.ask("What does a dog eat?")

    def score(text):
        return questions.quality(prompt, text).score

    best = score("Hello! A dog eats meat. I hope this helps!")
    assert best == pytest.approx(2.2)
    for worse in ("Hello! A dog eats meat.", "A dog eats meat. I hope this helps!", "Hello! Meat or grass. I hope this helps!",
                  "Hello! A dog eats meat. A dog eats meat. I hope this helps!",
                  "Hello! A dog eats meat frumiously. I hope this helps!", "Hello! Fool. A dog eats meat. I hope this helps!",
                  "Hello! That is a very good question. A dog eats meat. I hope this helps!"):
        assert score(worse) < best - 0.2, worse
    assert score("Hello there! A " + "good to " * 35) < -2.5
    assert score("") == pytest.approx(-0.8) and score("grass fish corn meat cheese") < 0
    assert score("That is a very good question. " * 30) == -3.0


def test_enough_questions_to_ask():
    assert len(questions.BY_QUESTION) == len(questions.FACTS) >= 150
    assert all(len(questions.BY_SPLIT[split]) >= 15 for split in SPLITS)


def test_a_mistyped_name_gets_a_hint():
    with pytest.raises(ValueError, match="did you mean 'countdown'"):
        load_task("cuontdown")
    with pytest.raises(ValueError, match=r"no file 'nowhere\.py'"):
        load_task("nowhere.py")
    with pytest.raises(ValueError, match="did you mean 'gsm8k'"):
        load_task("gsm8:data/gsm8k")


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
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 100 and len(parts["train"]) > 60
    prompt = task.prompts("train", 1, 0)[0]
    assert task.verify(prompt, task.gold(prompt)).score == 1.0 and task.verify(prompt, "no").score == 0.0
    assert task.demonstrations is None


def test_an_edited_file_is_read_again(tmp_path):
    for word in ("aaa", "bbb", "ccc"):  # the same size, within the same second
        assert load_task(write(tmp_path, f"name = '{word}'\nprompts = [{{'question': 'a'}}]{ANY}")).name == word
    assert not (tmp_path / "__pycache__").exists()


def test_prompts_may_be_functions_and_prompt_records(tmp_path):
    head = "from postgrad import Prompt, Verdict\nname = 'mine'\nbest = 2\n"
    tail = "\ndef verify(prompt, completion): return Verdict(score=2.0 * (completion == 'x'))\ndef gold(prompt): return 'x'\n"
    task = load_task(write(tmp_path, head + "def prompts(split): return [Prompt.ask(f'{split} {i}') for i in range(4)]" + tail))
    assert task.name == "mine" and task.best == 2.0
    assert {p.question.split()[0] for p in task.prompts("test", 9, 0)} == {"test"}
    task = load_task(write(tmp_path, head + "def prompts(): yield from (Prompt.ask(f'{i}') for i in range(3))" + tail))
    assert [len(task.prompts(split, 9, 0)) for split in SPLITS] == [1, 1, 1]
    task = load_task(write(tmp_path, head + "prompts = [{'messages': [{'role': 'user', 'content': 'a'}], 'k': 1}]" + tail))
    assert task.meta["shared_splits"] and "cannot be split" in task.meta["warning"]
    assert task.prompts("train", 9, 0) == task.prompts("test", 9, 0) and task.prompts("train", 9, 0)[0].meta == {"k": 1}


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
    ("def prompts(split): return [{'question': 'a'}]" + ANY, r"prompts\('validation'\)\[0\] has the id"),
    ("prompts = [{'question': 'a'}, {'question': ''}]" + ANY, r"prompts\[1\]: the question must be a text"),
    ("prompts = [{'text': 'a'}]" + ANY, r"prompts\[0\]: expected one of question.*among text"),
    ("prompts = [{'messages': [{'role': 'assistant', 'content': 'a'}]}]" + ANY, "last message must be the user's"),
    ("prompts = [{'messages': [{'role': 'me', 'content': 'a'}]}]" + ANY, "needs a role"),
    ("prompts = [{'question': 'a'}] * 2" + ANY, r"prompts\[1\] has the id .* of .*prompts\[0\]"),
    ("prompts = [{'question': 'a'}]\nverify = 3\n", r"line 2: `verify` must be a function"),
    ("prompts = [{'question': 'a'}]\nname = 3" + ANY, r"line 2: `name` must be a text"),
    ("prompts = [{'question': 'a'}]\nbest = 'x'" + ANY, r"line 2: `best` must be a number"),
    ("prompts = [{'question': 'a'}]\ndef verify(p, c):\n    return p.nonsense\n", r"line 3: AttributeError.*nonsense"),
    ("prompts = [{'question': 'a'}]\ndef verify(p, c): return None\n", "no Verdict, float or bool"),
    (GOOD.replace("== completion", "== completion + '0'"), r"line 6: the verifier pays 0 instead of 1 for the gold"),
    (GOOD.replace("prompt.answer == completion", "True"), r"line 6: the verifier pays the full 1 for the garbage"),
    (GOOD.replace("    return prompt.answer\n", "    return 5\n"), r"line 9: `gold` returned int"),
    (GOOD.replace("    return prompt.answer\n", "    return 1 / 0\n"), r"line 10: ZeroDivisionError.*`gold` failed"),
    (GOOD + "demonstrations = [3]\n", r"line 11: demonstrations\[0\]: a demonstration is"),
])
def test_a_bad_file_is_refused_in_one_sentence_with_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_task(write(tmp_path, text))
    assert "\n" not in str(caught.value)


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
    made = [{"question": f"{a}+1?", "answer": f"{a} and one.\n{a}+1 = <<{a}+1={a + 1}>>{a + 1}\n#### {a + 1:,}"}
            for a in range(990, 1030)]
    task = load_task(write(tmp_path, b"\xef\xbb\xbf" + rows(*made).replace("\n", "\r\n").encode(), "sums.jsonl"))
    prompts = [p for split in SPLITS for p in task.prompts(split, 99, 0)]
    assert len(prompts) == 40 and check(task.verify, [(p, task.gold(p)) for p in prompts]) == 40
    prompt = next(p for p in prompts if p.answer == "1,000")
    said = ("It is 1000.", "<answer>1000.0</answer> or 3", "1001", "", "one")
    assert [task.verify(prompt, text).score for text in said] == [1, 1, 0, 0, 0]
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
    (rows(OK, '{"question": "b", "ans'), r"t\.jsonl, line 2: not JSON"),
    (rows(OK, "", "[1]"), r"t\.jsonl, line 3: a list where"),
    (rows(OK).encode() + b"\n\xff\xfe", r"line 2: not UTF-8 at byte 0"),
    (rows(OK, '{"question": "b", "answer": NaN}'), "line 2: NaN"),
    (rows(OK, '{"question": "b\\ud83d", "answer": 2}'), r"line 2: half a character, '\\ud83d'"),
    (rows('{"question": "b", "answer": 1, "answer": 2}'), "line 1: the field 'answer' stands twice"),
    (rows(OK, {"question": "b"}), "line 2: the row needs an answer"),
    (rows(OK, {"question": "b", "answer": "blue"}), r"line 2: the gold answer 'blue' is not a number.*text:FILE.jsonl"),
    (rows(OK, {"question": "b", "answer": [1]}), "line 2: the row needs an answer"),
    (rows(OK, {"answer": 1}), "line 2: expected one of question"),
    (rows(OK, {"question": 5, "answer": 1}), "line 2: the question must be a text"),
    (rows(OK, OK), r"line 2 has the id .* of t\.jsonl, line 1"),
    (rows(OK, '{"question": "' + "a" * 10**6 + '", "answer": 1}'), "line 2: longer than"),
    ("[" * 10**5, "line 1: "),
    (b"\x00\x00", "line 1: not JSON"),
    ("", r"t\.jsonl holds no rows"),
    ("\n\n", r"t\.jsonl holds no rows"),
])
def test_a_bad_jsonl_file_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_task(write(tmp_path, text, "t.jsonl"))


def test_an_unknown_verifier_gets_a_hint(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'number'"):
        load_task(f"numbr:{write(tmp_path, rows(OK), 't.jsonl')}")
