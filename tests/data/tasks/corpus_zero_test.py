"""The text of tiny-zero: of the train split only, right but for slips that are taken back, in two languages;
and its control, the same without what looks back."""

import hashlib
import re
from collections import Counter
from dataclasses import replace

import pytest
from small import CHAT

from postgrad.data.tasks import corpus, corpus_zero, countdown, split_of, word_problems
from postgrad.data.tasks.chain import KINDS, TURN_BACK
from postgrad.recipes import pretrain
from postgrad.records import Prompt
from postgrad.rewards.format import split_reply
from tests.data.tasks.corpus_test import read_word_problem

COUNT = 8000
DOCUMENTS = list(corpus_zero.zero_documents(3, 0, COUNT))
CONTROL = list(corpus_zero.control_documents(3, 0, COUNT))
NUMBER = re.compile(r"\d+")
OPERATION = re.compile(r"([-+*/])(\d+)")


def asked(doc):
    """The prompt of a chat that poses a problem; None of any other document."""
    question = "" if isinstance(doc, str) else doc[0]["content"]
    if found := re.fullmatch(r"Use (\d+), (\d+) and (\d+), each once, with .* to make (\d+)\.", question):
        *numbers, target = map(int, found.groups())
        return Prompt.ask(question, numbers=tuple(numbers), target=target)
    if question.startswith(tuple(word_problems.PEOPLE)):
        key, answer = read_word_problem(question)
        start, rest = re.match(r"(\d+)(.*)", key).groups()
        return Prompt.ask(question, str(answer), start=int(start), key=key,
                          ops=tuple((op, int(n)) for op, n in OPERATION.findall(rest)),
                          language="es" if "¿" in question else "en")
    return None


def labelled(prompt, text):
    label = countdown.label_tries if "target" in prompt.meta else word_problems.label_chain
    return label(prompt, text)


def read(docs):
    """(prompt, reply, steps) of every chat that poses a problem and is answered in the form."""
    found = []
    for doc in docs:
        if (prompt := asked(doc)) and not isinstance(split_reply(doc[-1]["content"]), str):
            found.append((prompt, doc[-1]["content"], labelled(prompt, doc[-1]["content"])))
    return found


def test_every_problem_and_every_try_is_of_the_train_split():
    for doc in DOCUMENTS:
        if (prompt := asked(doc)) is None:
            continue
        if "key" in prompt.meta:
            assert split_of(prompt.meta["key"]) == "train"
            continue
        numbers, reply = list(prompt.meta["numbers"]), doc[-1]["content"]
        assert split_of(countdown.countdown_key(numbers, prompt.meta["target"])) == "train"
        ends = re.findall(r"=(\d+) (?:no|yes)", reply)
        assert all(split_of(countdown.countdown_key(numbers, int(end))) == "train" for end in ends)


def test_chains_are_right_but_for_slips_that_are_taken_back():
    for prompt, reply, steps in read(DOCUMENTS):
        kinds = [step.kind for step in steps if step.kind]
        if "target" in prompt.meta:
            assert all(step.right for step in steps[:-1]) and set(kinds) <= {TURN_BACK}, reply
        else:
            wrong = sum(not step.right for step in steps)
            assert steps[-1].right and len(kinds) <= 1 and (kinds or not wrong) and wrong <= 2, reply


def test_the_control_is_the_same_text_without_what_looks_back():
    changed = 0
    for doc, same in zip(DOCUMENTS, CONTROL, strict=True):
        if (prompt := asked(doc)) is None:
            assert doc == same
            continue
        changed += doc != same
        assert doc[0] == same[0]
        assert not any(step.kind for step in labelled(prompt, same[-1]["content"]))
        if "key" in prompt.meta:
            assert NUMBER.findall(doc[-1]["content"])[-1] == NUMBER.findall(same[-1]["content"])[-1]
    assert 0.11 < changed / COUNT < 0.13  # a small share of the documents


def test_shares():
    kinds, parts, languages = Counter(), Counter(), Counter()
    for prompt, reply, steps in read(DOCUMENTS):
        part = "countdown" if "target" in prompt.meta else prompt.meta["language"]
        parts[part] += 1
        kinds.update((part, kind) for kind in {step.kind for step in steps})
        if part == "es":
            languages["en"] += " is " in reply and " son " not in reply
            languages["es"] += " son " in reply and " is " not in reply
    assert all(parts[part] > 400 for part in ("en", "es", "countdown"))
    for kind in KINDS:  # each way of looking back, in both languages, in few replies
        assert all(0 < kinds[part, kind] / parts[part] < 0.06 for part in ("en", "es"))
    assert 0.40 < kinds["countdown", TURN_BACK] / parts["countdown"] < 0.47  # most try once
    assert languages["en"] > languages["es"] > 10
    chats = Counter("target" in prompt.meta for prompt in map(asked, DOCUMENTS) if prompt is not None)
    assert parts["countdown"] / chats[True] == pytest.approx(corpus_zero.FORMED_COUNTDOWN, abs=0.03)
    assert (parts["en"] + parts["es"]) / chats[False] == pytest.approx(corpus_zero.FORMED, abs=0.03)


def test_a_document_is_the_same_whatever_the_partition():
    assert DOCUMENTS[100:120] == list(corpus_zero.zero_documents(3, 100, 20))
    assert sum(corpus_zero.MIXTURE.values()) == pytest.approx(1.0)
    assert set(corpus_zero.MIXTURE) - set(corpus.KINDS) == set(corpus_zero.OWN)


def test_the_text_of_tiny_is_what_it_was():
    """The hash is that of the text which made the embedded weights."""
    text = repr(list(corpus.documents(0, 0, 3000))).encode()
    assert (hashlib.sha256(text).hexdigest()
            == "e4f3376faa1f5ecf4ef71333c316aed150f17ee6e1b9e26224b7e63df24cb6f5")


def test_the_recipe_reads_the_text_that_is_named():
    config = replace(pretrain.smoke(), documents=300, workers=1)
    read = {name: pretrain.encode_corpus(CHAT, replace(config, corpus=name)) for name in pretrain.CORPORA}
    for name, documents in pretrain.CORPORA.items():
        first = next(doc for doc in documents(0, 0, 300) if isinstance(doc, str))
        assert first in CHAT.tokenizer.decode(read[name].tolist(), skip_special_tokens=True)
    assert len({tokens.tobytes() for tokens in read.values()}) == 3
    assert pretrain.zero().corpus == "zero" and pretrain.control().corpus == "zero-control"
    assert replace(pretrain.control(), corpus="zero") == pretrain.zero()  # they differ in nothing else
    with pytest.raises(ValueError, match="corpus is 'none': expected tiny, zero or zero-control"):
        replace(pretrain.smoke(), corpus="none")
