"""Messages to tokens and back: the one place that knows templates, special tokens and stop tokens.

A `Chat` is a tokenizer with its chat template, read from `tokenizer.json`, `tokenizer_config.json`,
`chat_template.jinja` and `generation_config.json`, all of them untrusted.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from postgrad.models.chat.detokenize import ByteTable
from postgrad.models.chat.template import compile_template
from postgrad.system.files import error_text, is_fault, load_json, read_text

LARGEST = 2**28  # bytes of a tokenizer.json
GROWTH = 64      # times that a text may become longer on its way to tokens or back
MANY = 16        # replies from which on a byte table or threads pay


class Chat:
    """Chat.load(folder).render(messages) -> tokens

    ends: ids of further tokens that end a turn beside eos, as generation_config.json lists them (Llama 3 has
    <|end_of_text|> beside <|eot_id|>, Qwen <|endoftext|> beside <|im_end|>).
    """

    def __init__(self, tokenizer: Tokenizer, template: str, *, bos: str | None, eos: str, pad: str | None,
                 ends: Sequence[int] = ()):
        self.tokenizer = tokenizer
        self.template = template
        self.bos = bos
        self.eos = eos
        self.pad = pad
        self.ends = tuple(ends)
        self._render = compile_template(template)
        self._pieces: dict[int, str] = {}

    @classmethod
    def load(cls, folder: Path | str) -> Chat:
        folder = Path(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if not (folder / name).is_file():
                raise ValueError(f"{folder} has no {name}: a model folder needs it to turn text into tokens.")
        try:
            raw, tokens, generation = (read_json_object(folder / f"{name}.json") for name in
                                       ("tokenizer_config", "special_tokens_map", "generation_config"))
            tokenizer = read_tokenizer(folder / "tokenizer.json")
            names = {k: token_text(k, v)
                     for k in ("bos_token", "eos_token", "pad_token") if (v := raw.get(k) or tokens.get(k))}
        except (OSError, ValueError) as error:
            raise ValueError(f"{folder}: tokenizer.json, tokenizer_config.json or a file beside them cannot "
                             f"be read ({error_text(error)}): the folder is damaged, get it "
                             "again.") from error
        template = read_template(folder, raw)
        if not names.get("eos_token"):
            raise ValueError(f"{folder}/tokenizer_config.json names no eos_token: without one no reply "
                             "would ever end.")
        ends = generation.get("eos_token_id")
        ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
        if unknown := [i for i in ends if type(i) is not int or not 0 <= i < 2**32
                       or tokenizer.id_to_token(i) is None]:
            raise ValueError(f"{folder}/generation_config.json says that token {unknown[0]!r:.60} ends a "
                             "reply, and the tokenizer has no such token: mend its eos_token_id.")
        return cls(tokenizer, template, bos=names.get("bos_token"), eos=names["eos_token"],
                   pad=names.get("pad_token"), ends=ends)

    def save(self, folder: Path | str) -> None:
        """Writes the files that `load` reads; generation_config.json gets the stop tokens."""
        folder = Path(folder)
        self.tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": self.bos, "eos_token": self.eos,
            "pad_token": self.pad, "clean_up_tokenization_spaces": False, "chat_template": self.template},
                                                                 indent=1))
        ids = {key: i for key, name in {"bos_token_id": self.bos, "pad_token_id": self.pad}.items()
               if name and (i := self.tokenizer.token_to_id(name)) is not None}
        path = folder / "generation_config.json"
        path.write_text(json.dumps(read_json_object(path) | {"eos_token_id": list(self.stop), **ids},
                                   indent=1))

    @cached_property
    def stop(self) -> tuple[int, ...]:
        """Stop tokens of an assistant's turn, eos first."""
        return tuple(dict.fromkeys((self.id(self.eos), *self.ends)))

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest token id."""
        return 1 + max(self.tokenizer.get_vocab().values(), default=-1)

    def id(self, token: str) -> int:
        found = self.tokenizer.token_to_id(token)
        if found is None:
            raise ValueError(f"the tokenizer has no token {token!r}.")
        return found

    def text_of(self, messages: Sequence[Mapping[str, Any]], *, reply: bool,
                tools: Sequence[Mapping[str, object]] = ()) -> str:
        """The rendered template; reply: with the generation prompt. tools: JSON schemas (`tool_schema`)."""
        named = {"bos_token": self.bos, "eos_token": self.eos, "pad_token": self.pad}
        return self._render(messages=[dict(m) for m in messages], add_generation_prompt=reply, documents=None,
                            tools=[dict(tool) for tool in tools] or None,
                            **{name: token for name, token in named.items() if token})

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of a reply without special tokens; <think> and <answer> are text."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)

    def decode_all(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The texts of replies; many at once by a byte table where the tokenizer allows one, else in
        threads."""
        if len(rows) < MANY:
            return [self.decode(row) for row in rows]
        if self._spelling:
            return self._spelling.texts(rows)
        return self.tokenizer.decode_batch([list(row) for row in rows], skip_special_tokens=True)

    def spell(self, rows: Sequence[Sequence[int]]) -> list[bytes] | None:
        """The bytes of unfinished replies, by the byte table; None where the tokenizer has none."""
        return self._spelling.spelled(rows) if self._spelling else None

    @cached_property
    def _spelling(self) -> ByteTable | None:
        return ByteTable.of(self.tokenizer)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token's text by itself, special tokens by name."""
        for token in set(tokens).difference(self._pieces):
            self._pieces[token] = self.tokenizer.decode([token], skip_special_tokens=False)
        return [self._pieces[token] for token in tokens]

    def places(self, tokens: Sequence[int], ends: Sequence[int]) -> list[int]:
        """The index of the last token of a reply's text up to each character offset.

        "2+3=5" and a stop token: places(tokens, [3, 5]) -> [2, 5], as the stop token adds no text. A token
        that spans an end belongs to it. Nothing is tokenised again.
        """
        written = list(accumulate((len(self.decode(tokens[: i + 1])) for i in range(len(tokens))), max))
        return [bisect_right(written, written[bisect_left(written, end)]) - 1 for end in ends]

    def render(self, messages: Sequence[Mapping[str, Any]],
               tools: Sequence[Mapping[str, object]] = ()) -> list[int]:
        """The tokens of a prompt, generation prompt included."""
        return self.encode(self.text_of(messages, reply=True, tools=tools))

    def extend(self, tokens: Sequence[int], messages: Sequence[Mapping[str, Any]],
               tools: Sequence[Mapping[str, object]] = ()) -> list[int] | None:
        """The tokens so far, unchanged, plus those of the messages since, generation prompt included.

        messages: the whole conversation, sampled turns as `spoken` returns them. None where the template
        renders earlier turns differently from the tokens (older thoughts left out, say); white space does
        not count.
        """
        whole, ended = self.text_of(messages, reply=True, tools=tools), tokens[-1] in self.stop
        end = next((i for i, text in zip(self.stop, self.stop_texts, strict=True) if text in whole), None)
        # a turn may have ended with another stop token than the template's
        so_far = [end if end is not None and token in self.stop else token for token in tokens]
        at = prefix_end(self.tokenizer.decode(so_far[:-1] if ended else so_far, skip_special_tokens=False),
                        whole)
        rest = "" if at is None else whole[at:].lstrip() if ended else whole[at:]
        if at is None or ended and not rest.startswith(self.stop_texts):
            return None
        coded = self.encode(rest)
        return [*tokens, *coded[1 if ended else 0:]]

    def spoken(self, tokens: Sequence[int]) -> str:
        """A sampled turn as message content: special tokens by name, without the final stop token."""
        ended = bool(tokens) and tokens[-1] in self.stop
        return self.tokenizer.decode(list(tokens[:-1] if ended else tokens), skip_special_tokens=False)

    def escaped(self, text: str) -> str:
        """Untrusted text with a space inside each special token's name, so that it cannot end or begin a
        turn."""
        while found := [name for name in self.controls if name in text]:
            for name in found:
                text = text.replace(name, f"{name[:1]} {name[1:]}" if len(name) > 1 else " ")
        if set(self.controls.values()) & set(self.encode(text)):
            raise ValueError("a text holds a control token under another spelling, so it is not shown to the "
                             f"model: {text[:60]!r}")
        return text

    @cached_property
    def controls(self) -> dict[str, int]:
        """Special tokens: name -> id."""
        special = {token.content: i for i, token in self.tokenizer.get_added_tokens_decoder().items()
                   if token.special}
        return special | {text: i for text, i in zip(self.stop_texts, self.stop, strict=True)}

    @cached_property
    def stop_texts(self) -> tuple[str, ...]:
        return tuple(str(self.tokenizer.id_to_token(i)) for i in self.stop)

    def conversation(self, messages: Sequence[Mapping[str, Any]], *, last: bool = False,
                     tools: Sequence[Mapping[str, object]] = ()) -> tuple[list[int], list[bool]]:
        """Tokens and mask: True on assistant turns (with `last`: the last one) but those of weight 0, stop
        token included.

        The text is tokenised once; an assistant's turn is the span that its message adds to the text.
        """
        whole, stops = self.text_of(messages, reply=False, tools=tools), self.stop_texts
        spans = []
        turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        for i in turns[-1:] if last else turns:
            if messages[i].get("weight") != 0:
                before = self.text_of(messages[:i], reply=True, tools=tools)
                after = self.text_of(messages[: i + 1], reply=False, tools=tools)
                if not (whole.startswith(before) and after.startswith(before)
                        and whole.startswith(after.rstrip())):
                    raise ValueError("the chat template rewrites earlier turns when later ones follow, so "
                                     "the assistant's tokens cannot be told apart: use single-turn "
                                     "conversations or another template.")
                ends = [at + len(stop) for stop in stops if (at := after.rfind(stop, len(before))) >= 0]
                # the template may have trimmed the content
                spans.append((len(before), max(ends, default=len(after))))
        if not spans:
            raise ValueError("a conversation without an assistant's turn has nothing to learn from.")
        coded = self.tokenizer.encode(whole, add_special_tokens=False)
        mask = [any(a <= start and end <= b for a, b in spans) and end > start
                for start, end in coded.offsets]
        return coded.ids, mask

    def document(self, text: str) -> tuple[list[int], list[bool]]:
        """A text with bos and eos; the mask is True on all tokens but the first."""
        tokens = self.encode(f"{self.bos or ''}{text}{self.eos}")
        return tokens, [i > 0 for i in range(len(tokens))]

    def answer(self, messages: Sequence[Mapping[str, Any]], reply: str) -> tuple[list[int], list[bool]]:
        """A prompt with one reply; the mask is True on that reply alone.

        It ends with the stop token, as a sampled reply does, so that a scalar head reads labelled answers and
        samples at the same token.
        """
        tokens, mask = self.conversation([*messages, {"role": "assistant", "content": reply}], last=True)
        end = len(mask) - mask[::-1].index(True) if any(mask) else len(mask)
        return tokens[:end], mask[:end]


def prefix_end(before: str, whole: str) -> int | None:
    """Where this prefix ends in a text, white space ignored; None where the text does not start with it."""
    if whole.startswith(before):
        return len(before)
    at = 0
    for letter in before:
        if letter.isspace():
            continue
        while at < len(whole) and whole[at].isspace():
            at += 1
        if whole[at: at + 1] != letter:
            return None
        at += 1
    return at


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; {} where there is no file."""
    try:
        found = load_json(path) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name}: {error_text(error)}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return found


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a file, with padding and truncation off."""
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path.name} has over {LARGEST:,} bytes")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except BaseException as error:  # the library raises plain Exception, and where it panics BaseException
        if is_fault(error):
            raise ValueError(f"{path.name}: {error_text(error)}") from None
        raise
    tokenizer.no_padding()
    tokenizer.no_truncation()
    for part in (tokenizer.normalizer, tokenizer.decoder):
        if part is not None and text_growth(json.loads(part.__getstate__())) > GROWTH:
            raise ValueError(f"{path.name}: it makes a text more than {GROWTH} times as long")
    return tokenizer


def text_growth(part: object) -> float:
    """By how much a normalizer or decoder may lengthen a text, from what it replaces and prepends."""
    if isinstance(part, list):
        return math.prod(map(text_growth, part))
    if not isinstance(part, dict):
        return 1
    own = 1.0
    if part.get("type") == "Replace":
        pattern, content = part.get("pattern") or {}, len(part.get("content") or "")
        own = max(1, content / max(1, len(pattern["String"]))) if "String" in pattern else 1 + content
    elif part.get("type") == "Prepend":
        own = max(1, len(part.get("prepend") or "") / 4)
    return own * math.prod(text_growth(value) for value in part.values() if isinstance(value, list | dict))


def token_text(name: str, value: object) -> str:
    """The text of a special token, given as a string or as an object with `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise ValueError(f"{name} is {value!r:.60}, and must be a text")
    return text


def read_template(folder: Path, raw: Mapping[str, Any]) -> str:
    """The chat template: chat_template.jinja, or tokenizer_config.json's, the default of several."""
    file = folder / "chat_template.jinja"
    template = read_text(file) if file.is_file() else raw.get("chat_template")
    if isinstance(template, list):
        listed = [x for x in template if isinstance(x, dict) and x.get("name") == "default"]
        template = listed[0].get("template") if listed else None
    if not isinstance(template, str):
        raise ValueError(f"{folder}/tokenizer_config.json has no chat_template: add one in a file "
                         "chat_template.jinja beside it, or use the model's instruct or chat version, which "
                         "has one (a base model has none).")
    return template
