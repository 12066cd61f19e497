"""The tasks of the package: gold is paid, garbage is not, splits are disjoint, demonstrations are right."""

import random
import re

import pytest
from texts import hostile_texts

from postgrad.data.tasks import SPLITS, TASKS, load_task, questions, split_of, word_problems
from postgrad.data.tasks.base import think
from postgrad.records import Prompt
from postgrad.rewards import check_verifier
from postgrad.rewards.expression import expression_value

STEP = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)")
REASONED = [name for name in TASKS if name.startswith(("words", "arithmetic", "countdown"))]
KEYED = [*REASONED, *(name for name in TASKS if name.startswith(("questions", "constraints")))]
# constraints have gold replies, and none to imitate
ONE_REPLY = [name for name in TASKS if not load_task(name).play]  # games: environments_test.py
SHOWN = [name for name in ONE_REPLY if load_task(name).demonstrations]


@pytest.mark.parametrize("name", ONE_REPLY)
@pytest.mark.parametrize("split", SPLITS)
def test_gold_is_paid_and_garbage_is_not(name, split):
    task = load_task(name)
    prompts = task.prompts(split, 300, 1)
    assert len(prompts) >= (300 if not name.startswith("questions") else 20)
    assert (check_verifier(task.verify, [(prompt, task.gold(prompt)) for prompt in prompts], best=task.best)
            == len(prompts))


@pytest.mark.parametrize("name", ONE_REPLY)
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


@pytest.mark.parametrize("name", KEYED)
def test_what_makes_a_problem_decides_its_split(name):
    """The key is read from the question itself, not from the id."""
    for split in SPLITS:
        for prompt in load_task(name).prompts(split, 150, 9):
            numbers = [int(n) for n in re.findall(r"\d+", prompt.question)]
            if name.startswith("words"):
                meta = prompt.meta
                assert [meta["start"], *(n for op, n in meta["ops"] if op in "+-")] == numbers
                key = word_problems.word_problem_key(meta["start"], meta["ops"])
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
    texts += [(prompts[c.messages[0]["content"]], c.messages[-1]["content"])
              for c in task.demonstrations("train", 300, 6)]
    for prompt, text in texts:
        assert task.verify(prompt, text).parts["correct"] == 1.0, text
        for a, op, b, c in STEP.findall(text):
            assert expression_value((op, int(a), int(b))) == int(c), text


def test_the_average_writer_has_the_shares_it_says():
    task = load_task("words")
    shown = [(c.messages[0]["content"], c.messages[-1]["content"])
             for c in task.demonstrations("train", 3000, 0)]
    golds = {p.question: task.gold(p) for p in task.prompts("train", 3000, 0)}
    full = sum(golds[question] == text for question, text in shown)
    direct = sum(text.startswith("<think></think>") for _, text in shown)
    assert direct / 3000 == pytest.approx(word_problems.WRITER["direct"], abs=0.03)
    assert full / 3000 == pytest.approx(word_problems.WRITER["full"], abs=0.03)


def test_the_problem_of_the_notes_in_every_style():
    made = word_problems.Problem(5, (("+", 8), ("-", 3), ("*", 2)), "...")
    rng = random.Random(0)
    assert (word_problems.word_problem_reply(made, "full", rng)
            == "<think>5+8=13, 13-3=10, 10*2=20</think><answer>20</answer>")
    assert word_problems.word_problem_reply(made, "direct", rng) == "<think></think><answer>20</answer>"
    assert word_problems.word_problem_reply(made, "english", rng) == (
        "<think>5 plus 8 is 13, then 13 minus 3 is 10, then 10 times 2 is 20</think><answer>20</answer>")
    assert word_problems.word_problem_reply(made, "spanish", rng) == (
        "<think>5 más 8 son 13, luego 13 menos 3 son 10, luego 10 por 2 son 20</think><answer>20</answer>")
    skipped = {word_problems.word_problem_reply(made, "skipped", rng) for _ in range(200)}
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
        inside = (f"{answer}1", f"1{answer}", f"{answer} or 7", "", f"{answer}=1", f"({answer}", f"{answer}.",
                  f"{answer}+0")
        misses = [*(think(steps, text) for text in inside), answer, f"<answer>{answer}</answer>", gold + "!",
                  gold + gold, gold.replace("</think>", ""), think(answer, ""), gold.upper()]
        assert [task.verify(prompt, miss).score < 0.5 for miss in misses] == [True] * len(misses)


def test_countdown_takes_any_right_expression_and_no_trick():
    task = load_task("countdown")
    prompt = Prompt.ask("Use 3, 5 and 8, each once, with + - * / to make 16.", "3+5+8", numbers=(3, 5, 8),
                        target=16)
    assert all(task.verify(prompt, think("", text)).score == 1.0
               for text in ("3+5+8", "8 + 5 + 3", "(8+3)+5", "8*(5-3)"))
    for text in ("16", "8+8", "3+5+8+0", "3+5+8+3-3", "3+5", "35-8-8", "8*2",
                 "3+5+8=16", "3*5+8", "8/(5-5)", "3+5+8;", "-3+5+8", "3+5+8.0"):
        assert task.verify(prompt, think("", text)).score == 0.0, text


def test_the_language_of_thought_counts_in_spanish():
    task = load_task("words-es")
    prompt = task.prompts("test", 1, 0)[0]
    made, rng = word_problems.problem_of_prompt(prompt), random.Random(0)
    scores = {style: task.verify(prompt, word_problems.word_problem_reply(made, style, rng)).score
              for style in ("spanish", "english", "full", "direct")}
    assert scores == pytest.approx({"spanish": 1.0, "english": 0.8, "full": 1.0, "direct": 1.0})
    half = word_problems.word_problem_reply(made, "spanish", rng).replace("son", "is")
    assert 0.8 < task.verify(prompt, half).score < 1.0


@pytest.mark.parametrize("name", ONE_REPLY)
def test_verifiers_are_total(name):
    task = load_task(name)
    prompts = task.prompts("train", 5, 0)
    for i, text in enumerate(hostile_texts()):
        said = task.verify(prompts[i % len(prompts)], text)
        assert said.error is None and said.reason and len(said.reason) < 300
        # which any text of the right form keeps
        assert said.score < task.best or name.startswith("constraints")


@pytest.mark.parametrize("name", [name for name in REASONED if not name.startswith("countdown")])
def test_a_broken_gold_answer_raises(name):
    with pytest.raises(ValueError, match="gold answer"):
        load_task(name).verify(Prompt.ask("What?", "many"), think("", "7"))


def test_true_quality_orders_the_styles():
    rng, means = random.Random(0), {}
    prompts = [Prompt.ask(fact.question) for fact in questions.FACTS]
    for style in questions.STYLES:
        said = [questions.reply_quality(
                    prompt, questions.question_reply(questions.BY_QUESTION[prompt.question], style, rng))
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
        return questions.reply_quality(prompt, text).score

    best = score("Hello! A dog eats meat. I hope this helps!")
    assert best == pytest.approx(2.2)
    for worse in ("Hello! A dog eats meat.", "A dog eats meat. I hope this helps!",
                  "Hello! Meat or grass. I hope this helps!",
                  "Hello! A dog eats meat. A dog eats meat. I hope this helps!",
                  "Hello! A dog eats meat frumiously. I hope this helps!",
                  "Hello! Fool. A dog eats meat. I hope this helps!",
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
