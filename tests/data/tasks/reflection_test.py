"""Chains that look back: what the checkers say of them, and what is counted of replies."""

import hashlib
import random

import pytest
from process_small import ASK, GOLD, rolled
from small import CHAT
from texts import hostile_texts

from postgrad.data.tasks import countdown, load_task, reflection
from postgrad.data.tasks import word_problems as wp
from postgrad.data.tasks.base import think
from postgrad.data.tasks.chain import KINDS, MARKS, RECHECK, RESTART, TURN_BACK
from postgrad.data.tasks.corpus_zero import random_tries, reflective_chain
from postgrad.records import Prompt

SEARCH = Prompt.ask("Use 3, 5 and 8, each once, with + - * / to make 16.", "3+5+8",
                    numbers=(3, 5, 8), target=16)


def read(steps):
    """Labels and what looks back: "01b11" for a wrong step, a turn back, three right ones."""
    letter = {"": "", TURN_BACK: "b", RESTART: "s", RECHECK: "c"}
    return "".join(f"{int(step.right)}{letter[step.kind]}" for step in steps)


@pytest.mark.parametrize(("thoughts", "answer", "labels"), [
    # a slip taken back: the wrong step stays wrong, all after it is right
    ("5+8=14, but wait, 5+8=13, 13-3=10, 10*2=20", 20, "01b111"),
    ("5+8=13, 13-3=11, wait, 13-3=10, 10*2=20", 20, "101b11"),
    ("5+8=14, no, 5+8=15, wait, 5+8=13, 10*2=20", 20, "001b11"),         # taken back at the second attempt
    ("5 plus 8 is 14, but wait, 5 plus 8 is 13, then 13 minus 3 is 10", 20, "01b11"),
    ("5 más 8 son 14, pero espera, 5 más 8 son 13, luego 10 por 2 son 20", 20, "01b11"),
    ("5+8=13, 13*2=26, but wait, 13-3=10, 10*2=20", 20, "101b11"),       # an event forgotten, and remembered
    # a fresh start drops more than the last step
    ("5+8=14, 14-3=11, from the start: 5+8=13, 13-3=10, 10*2=20", 20, "001s111"),
    ("5+8=13, 13-3=11, 11*2=22, desde el principio: 5+8=13, 13-3=10", 20, "1001s11"),
    ("5+8=14, from the start: 5+8=13, 13-3=10", 20, "01b11"),            # one step dropped is a turn back
    # a check looks at what is done
    ("5+8=13, now check: 13-8=5, 13-3=10, 10*2=20", 20, "11c111"),
    ("5+8=13, 13-3=10, 10*2=20, check: 5+8=13, 13-3=10, 10*2=20", 20, "1111c111"),
    ("5+8=13, ahora compruebo: 5+8=13, 13-3=10", 20, "11c11"),
    ("10*2=20, now check: 20/2=10", 20, "11c1"),
    ("5+8=13, now check: 13-8=6, 13-3=10", 20, "1000"),                  # a check that is false
    ("5+8=13, now check: 20/2=10", 20, "100"),                           # of what is not done yet
    ("5+8=14, now check: 13-8=5, 13-3=10", 20, "0000"),                  # finds nothing: the slip stands
    # the word alone makes nothing
    ("5+8=13, but wait, 13-3=10, 10*2=20", 20, "1111"),                  # goes on
    ("5+8=14, but wait, 13*2=26", 26, "000"),
    ("5+8=14, but wait", 20, "00"),
    ("5+8=13, but wait", 20, "11"),
    ("5+8=14, waiting, 5+8=13", 20, "0000"),                             # no mark
    ("5+8=14, 5+8=13, 13-3=10, 10*2=20", 20, "00000"),                   # not said to be taken back
    ("5+8=14, but wait, 5+8=13, 13-3=10, 10*2=20", 21, "01b110"),
])
def test_chains_that_look_back_by_hand(thoughts, answer, labels):
    assert read(wp.label_chain(ASK, think(thoughts, answer))) == labels


@pytest.mark.parametrize(("thoughts", "answer", "labels"), [
    ("3+5=8, 8+8=16", "3+5+8", "111"),
    ("3+5+8=16", "3+5+8", "11"),
    ("", "3+5+8", "1"),
    ("3+5=8, 8*8=64 no. 3*5=15, 15-8=7 no. 3+5=8, 8+8=16 yes", "3+5+8", "111b11b11"),
    ("3+5=8, 8*8=64 no.", "(3+5)*8", "110"),                             # given up: the answer is wrong
    ("3+5=9, 9+8=17 no. 3+5=8, 8+8=16 yes", "3+5+8", "001b11"),          # dropped with its try
    ("3+5=9, 9+8=17, 3+5=8, 8+8=16 yes", "3+5+8", "00000"),              # not dropped
    ("3+5=8, 8*8=64, 3*5=15", "3+5+8", "1100"),                          # a new try, not said to be one
    ("3+5=8, 8+8=16 no. 3*5=15, 15+8=23", "3*5+8", "101b10"),            # "no" is false
    ("3+5=8, 8*8=64 yes", "(3+5)*8", "100"),                             # "yes" is false
    ("5*3=15 no. 8-3=5, 5+5=10 no.", "3+5+8", "11b11"),                  # a try may end early
    ("no. no. 3+5=8, 8+8=16 yes", "3+5+8", "11111"),                     # nothing was tried before
    ("3+3=6, 6+8=14", "3+5+8", "000"),
    ("3=3", "3+5+8", "00"),
    ("8/3=2", "3+5+8", "00"),
    ("hm", "3+5+8", "00"),
])
def test_tries_by_hand(thoughts, answer, labels):
    assert read(countdown.label_tries(SEARCH, think(thoughts, answer))) == labels


def test_where_a_try_ends_and_why_a_step_is_wrong():
    text = think("3+5=8, 8*8=64 no. 3*5=15, 15-8=8", "3+5+8")
    steps = countdown.label_tries(SEARCH, text)
    assert [text[:step.end].rsplit(", ")[-1].rsplit(". ")[-1] for step in steps[:-1]] == [
        "<think>3+5=8", "8*8=64 no.", "3*5=15", "15-8=8"]
    assert steps[3].reason == "15-8 is 7, not 8" and steps[4].reason == "follows a wrong step"
    assert "'yes' is false: 16 is not made" in countdown.label_tries(SEARCH, think("3+5=8 yes", 3))[0].reason


def test_any_text_gets_tries():
    for text in hostile_texts(600):
        steps = countdown.label_tries(SEARCH, text)
        ends = [step.end for step in steps]
        assert ends == sorted(ends) and ends[-1] == len(text)
        assert not steps[-1].right or countdown.verify(SEARCH, text).score == 1


@pytest.mark.parametrize("name", ["words", "words-es", "words-hard"])
def test_every_chain_that_is_written_is_labelled_as_it_is_meant(name):
    task, rng = load_task(name), random.Random(1)
    for prompt in task.prompts("train", 150, 1):
        problem = wp.problem_of_prompt(prompt)
        count = len(problem.ops)
        languages = rng.choice([[""] * count, ["en"] * count, ["es"] * count,
                                rng.choices(["en", "es"], k=count)])
        for kind in ("", *KINDS):
            text = think(reflective_chain(rng, problem, languages, kind), prompt.answer)
            steps = task.steps(prompt, text)
            assert [step.kind for step in steps if step.kind] == ([kind] if kind else []), text
            wrong = [step for step in steps if not step.right]
            # a slip, and what goes on from it before a fresh start; nothing else is wrong
            assert len(wrong) in {TURN_BACK: (1,), RESTART: (1, 2)}.get(kind, (0,)), text
            assert steps[-1].right and steps[-2].right
            marks = [mark for own in MARKS.values() for mark in own.values() if mark in text]
            assert len(marks) == bool(kind)


def test_every_search_that_is_written_is_labelled_as_it_is_meant():
    task, rng = load_task("countdown"), random.Random(2)
    for prompt in task.prompts("train", 300, 2):
        numbers, target = list(prompt.meta["numbers"]), prompt.meta["target"]
        thoughts, answer = random_tries(rng, numbers, target, patience := rng.randint(1, 6))
        steps = task.steps(prompt, think(thoughts, answer))
        made = countdown.judge_expression(numbers, target, answer).score == 1
        assert all(step.right for step in steps[:-1]) and steps[-1].right == made, thoughts
        turns = sum(step.kind == TURN_BACK for step in steps)
        assert turns == max(thoughts.count(" no.") + thoughts.count(" yes") - 1, 0) < patience
        if made:
            assert steps[-2].solves and (patience == 1) != thoughts.endswith(" yes")


def test_labels_of_replies_that_do_not_look_back_are_what_they_were():
    """The hash is that of the checker that knew no marks."""
    rng, said = random.Random(0), hashlib.sha256()
    for name in ("words", "words-hard", "words-es"):
        task = load_task(name)
        for prompt in task.prompts("train", 200, 0):
            for style in ("direct", "skipped", "full", "english", "spanish"):
                text = list(wp.word_problem_reply(wp.problem_of_prompt(prompt), style, rng))
                for _ in range(rng.randrange(3)):
                    at = rng.randrange(len(text))
                    text[at] = rng.choice("0123456789,+-*/= ") if rng.random() < 0.8 else ""
                steps = task.steps(prompt, "".join(text))
                said.update(repr([(s.end, s.right, s.reason) for s in steps]).encode())
    assert said.hexdigest() == "45c554c92e7420bdd9e00268512a4daaa279d423d100bb752c5df0258037500a"


# What is counted

def test_measures_by_hand():
    task = load_task("words")
    found = reflection.measures(task, CHAT.places)
    replies = [rolled(text) for text in (
        GOLD, think("5+8=14, but wait, 5+8=13, 13-3=10, 10*2=20", 20), think("", 19),
        think("5 plus 8 is 13, then 13 minus 3 is 10", 20),
        think("5 más 8 son 13, luego 10 por 2 son 20", 20),
        think("5 plus 8 is 13, luego 13 menos 3 son 10", 20))]
    said = {name: measure(replies) for name, measure in found.items()}
    assert said["turn_back"] == [0, 1, 0, 0, 0, 0] and sum(said["restart"]) + sum(said["recheck"]) == 0
    assert said["worded"] == [0, 1, 0, 1, 1, 1]
    assert said["wrong_language"] == [0, 0, 1, 1] and said["mixed_languages"] == [0, 0, 0, 1]
    # after 10*2=20: </think> <answer> 2 0 </answer> and the stop token; a wrong answer was never right,
    # and one whose last step is unwritten is worked out with the answer
    assert said["after_right"] == [6, 6, 0, 6, 0]


def test_measures_of_a_mixture_are_those_of_its_parts_too():
    task = load_task("words+countdown")
    found = reflection.measures(task, CHAT.places)
    words, numbers = task.prompts("train", 2, 0)
    gold = [rolled(task.gold(prompt), prompt=prompt) for prompt in (words, numbers)]
    said = {name: measure(gold) for name, measure in found.items()}
    assert len(said["turn_back"]) == 2 and said["words/turn_back"] == said["countdown/turn_back"] == [0]
    assert said["words/length"] == [len(gold[0].tokens)] and said["countdown/length"] == [len(gold[1].tokens)]
    assert said["countdown/worded"] == [] and said["words/worded"] == [0]


def test_a_task_without_steps_is_measured_by_its_words_alone():
    assert set(reflection.measures(load_task("questions"), CHAT.places)) == {
        "worded", "wrong_language", "mixed_languages"}
