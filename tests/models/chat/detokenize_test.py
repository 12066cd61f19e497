"""Tokens to text by a table, against the tokenizers library."""

import random

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as Decoder
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import ByteLevel

from postgrad.models.chat import Chat
from postgrad.models.chat.detokenize import BYTES, ByteTable
from postgrad.models.load import EMBEDDED


def rows(count, vocab, seed=0):
    """Rows of any length, now and then a number that is no token."""
    draw = random.Random(seed)
    return [[draw.randrange(vocab + 3) for _ in range(draw.randrange(40))] for _ in range(count)]


def test_each_byte_has_the_character_of_the_library():
    assert {chr(character) for character in BYTES} == set(ByteLevel.alphabet())


@pytest.mark.parametrize("name", ["tiny", "tiny-tools"])
def test_the_texts_of_embedded_tokenizers(name):
    chat = Chat.load(EMBEDDED[name])
    replies = rows(2000, chat.vocab_size)  # random bytes: much of it is no text
    assert chat._spelling and any("\ufffd" in text for text in chat.decode_all(replies))
    assert chat.decode_all(replies) == [chat.decode(row) for row in replies]


def test_tokens_that_were_added_are_what_they_say():
    """Control tokens are left out; others stay, also with characters that stand for no byte."""
    tokenizer = Tokenizer(WordLevel({"a": 0, "Ġb": 1, "Ċ": 2, "Ã": 3, "©": 4}, unk_token="a"))
    tokenizer.decoder = Decoder()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.add_tokens([AddedToken("<think>"), AddedToken("→ x")])
    spelling = ByteTable.of(tokenizer)
    assert spelling.texts([[0, 1, 5, 6, 2, 3, 4, 7, 99]]) == ["a b<think>\né→ x"]
    replies = rows(500, 8, seed=1)
    assert spelling.texts(replies) == [tokenizer.decode(row, skip_special_tokens=True) for row in replies]
    assert spelling.texts([[], [1], [99], [5]]) == ["", " b", "", ""] and spelling.texts([]) == []


def test_other_tokenizers_have_no_table():
    assert ByteTable.of(Tokenizer(WordLevel({"a": 0}, unk_token="a"))) is None
