"""The pretraining text: right at every step, of the train split only,
and the same however it is cut into pieces."""

import random
import re
from collections import Counter
from itertools import pairwise

import pytest

from postgrad.data.tasks import corpus, countdown, questions, split_of, word_problems
from postgrad.rewards.expression import expression_value, parse_expression
from postgrad.rewards.format import extract_answer

DOCUMENTS = list(corpus.documents(7, 0, 6000))
STEP = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)")
SPOKEN = re.compile(r"(\d+) (plus|minus|times|divided by|más|menos|por|entre) (\d+) (?:is|son) (\d+)")
SIGN = {"plus": "+", "minus": "-", "times": "*", "divided by": "/", "más": "+", "menos": "-", "por": "*",
        "entre": "/"}
GAIN = re.compile(
    r"gives (?!away)\w+ (\d+)|(?:finds|buys|gets|wins) (\d+)|le da (\d+)|(?:encuentra|compra|gana) (\d+)")
LOSE = re.compile(r"(?:gives away|loses|sells|takes) (\d+)|(?:regala|pierde|vende|lleva) (\d+)")


def read_word_problem(text):
    """An independent reader: the text of a word problem -> its key and its answer."""
    first, *events = re.split(r"(?<=[.?]) ", text)[:-1]
    number = int(re.search(r"\d+", first).group())
    key = str(number)
    for event in events:
        if gain := GAIN.search(event):
            op, n = "+", int(next(filter(None, gain.groups())))
        elif lose := LOSE.search(event):
            op, n = "-", int(next(filter(None, lose.groups())))
        else:
            op, n = ("/", 2) if re.search("half|mitad", event) else ("*", 3) if "tripl" in event else ("*", 2)
        assert op != "/" or number % 2 == 0
        number = {"+": number + n, "-": number - n, "*": number * n, "/": number // n}[op]
        assert 0 <= number <= word_problems.LARGEST, text
        key += f"{op}{n}"
    return key, number


def posed(doc):
    """The problems that a document poses, as (question, answer or None), from the document's text alone."""
    if not isinstance(doc, str):
        turns = [turn["content"] for turn in doc if turn["role"] != "system"]
        return [(question, extract_answer(reply) or reply)
                for question, reply in zip(turns[::2], turns[1::2], strict=True)]
    if found := re.fullmatch(r"Proble(?:m|ma): (.*?)(?:\n(?:Steps|Pasos): .*)?\n(?:Answer|Respuesta): (.*)",
                             doc, re.DOTALL):
        return [found.groups()]
    if doc.startswith("Q: "):
        return re.findall(r"Q: (.*)\nA: (.*)", doc)
    return [(f"What is {line.split('=')[0]}?", line.split("=")[1]) for line in doc.split("\n")
            if STEP.fullmatch(line)]


def text_of(doc):
    return doc if isinstance(doc, str) else "\n".join(turn["content"] for turn in doc)


def test_every_problem_is_of_the_train_split_and_answered_right():
    seen = Counter()
    for doc in DOCUMENTS:
        for question, answer in posed(doc):
            if question in questions.BY_QUESTION:
                seen["questions"] += 1
                assert split_of(question) == "train", question
            elif question.startswith("What is "):
                seen["arithmetic"] += 1
                expression = question[8:-1]
                assert split_of(expression) == "train", question
                assert expression_value(parse_expression(expression)) == int(answer), (question, answer)
            elif question.startswith("Use "):
                seen["countdown"] += 1
                *numbers, target = map(int, re.findall(r"\d+", question))
                assert split_of(countdown.countdown_key(numbers, target)) == "train", question
                assert countdown.judge_expression(tuple(numbers), target,
                                                  answer).score == 1.0, (question, answer)
            else:
                seen["words"] += 1
                key, right = read_word_problem(question)
                assert split_of(key) == "train", question
                assert right == int(answer), (question, answer)
    assert all(seen[kind] > 200 for kind in ("questions", "arithmetic", "countdown", "words")), seen


def test_a_failed_try_at_countdown_is_no_problem_held_out():
    tries = 0
    for doc in DOCUMENTS:
        for question, _ in posed(doc):
            if question.startswith("Use "):
                *numbers, target = map(int, re.findall(r"\d+", question))
                for attempt in re.findall(r"=(\d+) no\.", text_of(doc)):
                    tries += 1
                    assert (int(attempt) != target
                            and split_of(countdown.countdown_key(numbers, int(attempt))) == "train"), doc
    assert tries > 50


def test_every_step_is_right():
    checked = 0
    for doc in DOCUMENTS:
        text = text_of(doc)
        for a, op, b, c in STEP.findall(text) + [(a, SIGN[op], b, c) for a, op, b, c in SPOKEN.findall(text)]:
            checked += 1
            assert expression_value((op, int(a), int(b))) == int(c), text
    assert checked > 10_000


@pytest.mark.parametrize("cuts", [[0, 200], [0, 1, 2, 77, 200], list(range(0, 201, 20))])
def test_the_same_documents_whatever_the_partition(cuts):
    pieces = [doc for start, stop in pairwise(cuts) for doc in corpus.documents(7, start, stop - start)]
    assert pieces == DOCUMENTS[:200]


def test_another_seed_is_another_text_and_documents_seldom_repeat():
    assert list(corpus.documents(8, 0, 50)) != DOCUMENTS[:50]
    assert len({text_of(doc) for doc in DOCUMENTS}) > 0.95 * len(DOCUMENTS)


def test_the_mixture_is_what_it_says():
    assert sum(corpus.MIXTURE.values()) == pytest.approx(1.0) and set(corpus.MIXTURE) == set(corpus.KINDS)
    chats = sum(not isinstance(doc, str) for doc in DOCUMENTS) / len(DOCUMENTS)
    assert chats == pytest.approx(corpus.MIXTURE["chat_questions"] + corpus.MIXTURE["chat_reasoned"],
                                  abs=0.02)


def test_all_difficulties_all_facts_and_few_words():
    lengths = Counter(len(re.findall(r"[-+*/]", read_word_problem(q)[0])) for doc in DOCUMENTS
                      for q, _ in posed(doc) if isinstance(doc, str) and doc.startswith("Problem")
                      and not q.startswith(("What", "Use")))
    assert set(lengths) == set(range(1, 7)) and min(lengths.values()) > 100
    text = corpus.sample_text(20_000, 1)
    assert len(set(re.findall(r"[^\W\d_]+", text))) < 500
    rng = random.Random(0)
    told = " ".join(corpus.facts_stated(rng) for _ in range(2000))
    # knowledge is stated for every split, asked only of train
    assert all(fact.sentence in told for fact in questions.FACTS)
