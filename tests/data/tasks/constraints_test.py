"""Constraints on the form of a reply: each kind by hand, what is strict and what is loose,
and gold for all of them."""

from dataclasses import replace

import pytest

from postgrad.data.tasks import SPLITS, load_task
from postgrad.data.tasks.constraints import REQUESTS, verify
from postgrad.rewards.constraints import KINDS, gold_for, is_kept, is_kept_loosely, language_of

PLAIN = "It is a short reply of eight words."

BY_HAND = [
    ("language", "Spanish", "El perro es de la casa.", True), ("language", "Spanish", PLAIN, False),
    ("language", "French", "Le chien est dans la maison.", True),
    ("language", "German", "Der Hund ist nicht im Haus.", True),
    ("sentences", 2, "One is here now. Is two?", True),
    ("sentences", 2, "One is 3.5 of it. Two! Three...", False), ("at least", 20, "word " * 20, True),
    ("at least", 20, "word " * 19, False),
    ("at most", 10, "word " * 10, True), ("at most", 10, "word " * 11, False),
    ("paragraphs", 2, "one two\nthree four\n \nfive", True), ("paragraphs", 2, "one two\nthree four", False),
    ("include", ("river", "lamp"), "A River by the lamp.", True),
    ("include", ("river", "lamp"), "Rivers by the lamp here.", False),
    ("avoid", ("but", "so"), "Butter is also very nice.", True),
    ("avoid", ("but", "so"), "All is well, but late.", False),
    ("ending", "Ask me for more.", "This is it.\nask me for more.  ", True),
    ("ending", "Ask me for more.", PLAIN, False), ("opening", "In short,", "in short, this is it.", True),
    ("opening", "In short,", "This is, in short, it.", False),
    ("placeholders", 2, "Dear [name], on [date] then", True),
    ("placeholders", 2, "Dear [name] on [] date then", False),
    ("bullets", 2, "List:\n* one two\n- three four", True),
    ("bullets", 2, "* one two\n*three\nfour five", False),
    ("parts", "******", "one two\n******\nthree four", True),
    ("parts", "******", "same one ****** same one", False),
    ("title", "<<a good day>>", "<<My day>>\nIt was good.", True),
    ("title", "<<a good day>>", "<My day> It was good.", False), ("no commas", "", PLAIN, True),
    ("no commas", "", "One, two and three four.", False),
    ("lower", "", PLAIN.lower(), True), ("lower", "", PLAIN, False),
    ("upper", "", "ALL OF THIS IS 1 BIG.", True), ("upper", "", "ALL OF THIS Is.", False),
    ("json", "", '```json\n{"a": "one two three four"}\n```', True),
    ("json", "", 'Here: {"a": "one two three"}', False), ("quoted", "", '"All of it is here."', True),
    ("quoted", "", '"All" of it "is" here.', False),
]


@pytest.mark.parametrize(("kind", "value", "text", "keeps"), BY_HAND)
def test_by_hand(kind, value, text, keeps):
    assert is_kept(text, (kind, value)) is keeps


def test_every_kind_is_tried_by_hand_both_ways_and_has_gold_for_every_value():
    for kind, made in KINDS.items():
        assert {keeps for name, _, _, keeps in BY_HAND if name == kind} == {True, False}, kind
        assert all(gold_for(((kind, value),)) for value in made.values)
    assert {name for name, *_ in BY_HAND} == set(KINDS)


@pytest.mark.parametrize(("rule", "text", "loosely"), [
    (("json", ""), 'Sure! Here it is:\n{"a": "one two three four"}', True),         # without the first line
    (("lower", ""), "all of it is lower case\nHope this helps!", True),               # without the last
    (("quoted", ""), 'Sure:\n"all of it is here"\nBye', True),                        # without both
    (("opening", "In short,"), "**In short,** this is the reply", True),              # without stars
    (("quoted", ""), 'Sure:\n*"all of it is here"*\nBye', True),                      # without both and stars
    (("json", ""), 'one\ntwo\n{"a": "one two three four"}', False),
    (("lower", ""), "One Two\nThree Four\nFive Six", False)])
def test_the_eight_loose_readings(rule, text, loosely):
    assert not is_kept(text, rule) and is_kept_loosely(text, rule) is loosely


def test_rules_that_stand_against_each_other_have_no_gold():
    assert (gold_for((("upper", ""), ("lower", ""))) is None
            and gold_for((("at least", 80), ("at most", 10))) is None)
    assert gold_for((("json", ""), ("quoted", ""))) is None
    assert gold_for((("sentences", 4), ("lower", ""), ("language", "German"))) is not None


def test_parts_count_prompts_and_instructions():
    prompt = load_task("constraints-hard").prompts("train", 1, 0)[0]
    prompt = replace(prompt, meta={"rules": (("lower", ""), ("no commas", "")), "gold": ""})
    names = ("correct", "lenient", "instruction", "instruction_lenient")
    for text, parts in (("all of it is fine", (1, 1, 1, 1)), ("All, of it is fine", (0, 0, 0, 0)),
                        ("Sure\nall, of it is fine", (0, 0, 0, 0.5)),
                        ("Sure\nall of it is fine", (0, 1, 0.5, 1))):
        said = verify(prompt, text)
        assert said.parts == dict(zip(names, parts, strict=True)) and said.score == parts[0]
    assert verify(prompt, "All of it, here").reason.startswith("not kept: Use lower case")


def test_the_requests_are_disjoint_and_the_counts_are_as_named():
    assert len(set().union(*REQUESTS.values())) == sum(map(len, REQUESTS.values())) == 300
    for split in SPLITS:
        assert {len(p.meta["rules"]) for p in load_task("constraints").prompts(split, 200, 0)} == {1}
        hard = load_task("constraints-hard").prompts(split, 200, 0)
        assert ({len(p.meta["rules"]) for p in hard} == {2, 3}
                and {k for p in hard for k, _ in p.meta["rules"]} == set(KINDS))


def test_no_language_where_it_is_unclear():
    assert (language_of("") is None and language_of("zzz yyy xxx") is None
            and language_of("la de que un") is None)
