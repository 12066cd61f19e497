"""Messages to tokens and back: the one place that knows templates, special tokens and stop tokens.

Text is never structure: whatever stands in a message, a tool or a tool's result stays text when it is
rendered. A `Chat` is a tokenizer with its chat template, read from `tokenizer.json`, `tokenizer_config.json`,
`chat_template.jinja` and `generation_config.json`, all of them untrusted.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from os.path import commonprefix
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from postgrad.models.chat.detokenize import ByteTable
from postgrad.models.chat.inert import BROKEN, LONE, ROLES, SpokenText, map_texts, texts_in
from postgrad.models.chat.template import BOS, CONTROL, Rendering, compile_template, named_template
from postgrad.system.files import error_text, is_fault, load_json, read_text

LARGEST = 2**28  # bytes of a tokenizer.json
GROWTH = 64      # times that a text may become longer on its way to tokens or back
ATTEMPTS = 8        # passes in which control tokens in a text are broken up
MOST_ESCAPES = 4096  # texts whose escaped form is remembered
LONGEST_NAME = 64   # characters of a control token that may be joined from pieces
MANY = 16        # replies from which on a byte table or threads pay
THOUGHT = re.compile(r"<[^<>]*(?:think|thought|channel|reason)[^<>]*>|\[THINK\]", re.IGNORECASE)


class Chat:
    """Chat.load(folder).render(messages) -> tokens

    ends: ids of further tokens that end a turn beside eos, as generation_config.json lists them (Llama 3 has
    <|end_of_text|> beside <|eot_id|>, Qwen <|endoftext|> beside <|im_end|>). added: tokens that the tokenizer
    got for the template, which the model does not know. where: what begins a sentence about the template or
    the tokenizer, as "NAME: " of the folder.
    """

    added: tuple[str, ...] = ()

    def __init__(self, tokenizer: Tokenizer, template: str, *, bos: str | None, eos: str, pad: str | None,
                 ends: Sequence[int] = (), where: str = ""):
        self.tokenizer = tokenizer
        self.template = template
        self.bos = bos
        self.eos = eos
        self.pad = pad
        self.ends = tuple(ends)
        self.where = where
        self._render = compile_template(template, where)
        self._pieces: dict[int, str] = {}
        self._escapes: dict[str, str] = {}
        self._frames: dict[tuple[str, ...], int] = {}

    @classmethod
    def load(cls, folder: Path | str, template: str | None = None) -> Chat:
        """template: in place of the folder's, as `with_template` takes it."""
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
        source = "" if template else read_template(folder, raw)
        if not names.get("eos_token"):
            raise ValueError(f"{folder}/tokenizer_config.json names no eos_token: without one no reply "
                             "would ever end.")
        ends = generation.get("eos_token_id")
        ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
        if unknown := [i for i in ends if type(i) is not int or not 0 <= i < 2**32
                       or tokenizer.id_to_token(i) is None]:
            raise ValueError(f"{folder}/generation_config.json says that token {unknown[0]!r:.60} ends a "
                             "reply, and the tokenizer has no such token: mend its eos_token_id.")
        chat = cls(tokenizer, source, bos=names.get("bos_token"), eos=names["eos_token"],
                   pad=names.get("pad_token"), ends=ends, where=f"{folder.resolve().name}: ")
        return chat.with_template(template) if template else chat

    def with_template(self, name: str) -> Chat:
        """This tokenizer with another template: chatml, llama3, plain (the contents alone, eos after the
        assistant's), or a file. Control tokens that it writes and the tokenizer lacks are added; the one that
        ends the assistant's turn becomes eos."""
        source, letter = named_template(name), "\ue000"
        if name == "plain" and (not self.bos or self.id(self.bos) not in self.tokenizer.encode("").ids):
            source = source.removeprefix(BOS)  # as the tokenizer itself encodes a text
        tokenizer = Tokenizer.from_str(self.tokenizer.to_str())
        chat = Chat(tokenizer, source, bos=self.bos, eos=self.eos, pad=self.pad, ends=self.ends)
        text = chat.text_of([{"role": "user", "content": "?"}, {"role": "assistant", "content": letter}],
                            reply=False)
        written = [*dict.fromkeys(CONTROL.findall(source + text))]
        missing = [token for token in written if chat.encode(token) != [tokenizer.token_to_id(token)]]
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in missing])
        _, found, rest = text.partition(letter)
        end = max((token for token in (*written, *self.controls) if rest.lstrip().startswith(token)), key=len,
                  default=None)
        if not found or end is None:
            raise ValueError(f"template={name} writes no control token after the assistant's content, so "
                             "that no reply would end: put {{ eos_token }} there.")
        chat = Chat(tokenizer, source, bos=self.bos, eos=end, pad=self.pad, ends=self.stop)
        chat.added = tuple(token for token in missing if chat.id(token) >= self.vocab_size)
        return chat

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
            raise ValueError(f"{self.where}the tokenizer has no token {token!r}.")
        return found

    def text_of(self, messages: Sequence[Mapping[str, Any]], *, reply: bool,
                tools: Sequence[Mapping[str, object]] = ()) -> str:
        """The rendered template; reply: with the generation prompt. tools: JSON schemas (`tool_schema`)."""
        return self.rendering(messages, reply=reply, tools=tools).text

    def rendering(self, messages: Sequence[Mapping[str, Any]], *, reply: bool,
                  tools: Sequence[Mapping[str, object]] = ()) -> Rendering:
        """`text_of` with where each message's text stands. The one door: no text of a message or a tool
        becomes a control token, by itself (`inert`) or joined to what the template or another text writes
        beside it."""
        messages, tools = [self.inert(m) for m in messages], [self.inert(tool) for tool in tools]
        whole = self._rendered(messages, reply, tools)
        if not any(self._is_risky(text) for text in texts_in([messages, tools])):
            return whole
        parted = [map_texts(one, self._parted) for one in (messages, tools)]
        apart = self._rendered(parted[0], reply, parted[1])
        return whole if self._count_controls(whole.text) == self._count_controls(apart.text) else apart

    def _rendered(self, messages: Sequence[Mapping[str, Any]], reply: bool,
                  tools: Sequence[Mapping[str, object]]) -> Rendering:
        named = {"bos_token": self.bos, "eos_token": self.eos, "pad_token": self.pad}
        return self._render(messages=[with_thoughts(m) for m in messages], add_generation_prompt=reply,
                            documents=None,
                            tools=[dict(tool) for tool in tools] or None,
                            **{name: token for name, token in named.items() if token})

    def _is_risky(self, text: str) -> bool:
        """Whether a text may be part of a control token that something beside it completes."""
        begins, ends, inside = self._pieces_of_names
        bare = text.strip()
        return bool(bare) and (bare.endswith(begins) or bare.startswith(ends) or bare in inside)

    def _parted(self, text: str) -> str:
        return f"{BROKEN}{text}{BROKEN}" if self._is_risky(text) else text

    def _count_controls(self, text: str) -> int:
        return sum(token in self._control_ids for token in self.encode(text))

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self.controls.values())

    @cached_property
    def _pieces_of_names(self) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
        """Proper beginnings, proper ends and inner parts of the control tokens' names."""
        names = [name for name in self.controls if 1 < len(name) <= LONGEST_NAME]
        return (tuple({name[:k] for name in names for k in range(1, len(name))}),
                tuple({name[k:] for name in names for k in range(1, len(name))}),
                frozenset(name[a:b] for name in names for a in range(1, len(name))
                          for b in range(a + 1, len(name))))

    def left_out(self, messages: Sequence[Mapping[str, Any]],
                 tools: Sequence[Mapping[str, object]] = ()) -> str:
        """What the template has no place for, of tools, tool_calls and reasoning_content; "" for none: the
        text is the same without it. Thoughts of earlier turns may be left out by the template's rules."""
        def same(other: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, object]]) -> bool:
            try:
                return self.text_of(other, reply=False, tools=tools) == text
            except ValueError:
                return False

        calls = any(m.get("tool_calls") for m in messages)
        text = self.text_of(messages, reply=False, tools=tools) if tools or calls else ""
        if tools and same(messages, ()):
            return "tools"
        if calls and same([{k: v for k, v in m.items() if k != "tool_calls"} for m in messages], tools):
            return "tool_calls"
        thoughts = any(m.get("reasoning_content") for m in messages)
        return "reasoning_content" if thoughts and not self._shows_thoughts else ""

    @cached_property
    def _shows_thoughts(self) -> bool:
        talk = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
        thought = [talk[0], talk[1] | {"reasoning_content": "\ue000"}]
        return "\ue000" in self.text_of(thought, reply=False)

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

    def most_tokens(self, messages: Sequence[Mapping[str, Any]]) -> float:
        """At least as many tokens as `render` gives, in a hundredth of its time: those of the first prompt
        with the same roles, and twice the bytes of these texts. Infinite for what is not plain ASCII."""
        texts: list[Any] = [message.get("content") for message in messages]
        if not all(isinstance(text, str) and text.isascii() and len(message) == 2
                   and not (self.controls and self._names.search(text))
                   for text, message in zip(texts, messages, strict=True)):
            return math.inf
        roles = tuple(str(message.get("role")) for message in messages)
        if roles not in self._frames:
            self._frames[roles] = len(self.render(messages))
        return self._frames[roles] + 2 * sum(map(len, texts))

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
        """Untrusted text with a space inside each control token's name, under any spelling that the tokenizer
        takes for it, so that it cannot end or begin a turn; U+FFFD where a space does not help, and for half
        of a surrogate pair. A reply of this model in its own turn (SpokenText) stays as it is."""
        if isinstance(text, SpokenText):
            return str(text)
        if text not in self._escapes:
            if len(self._escapes) >= MOST_ESCAPES:
                self._escapes.clear()
            self._escapes[text] = self._escaped(text)
        return self._escapes[text]

    def _escaped(self, whole: str) -> str:
        text = LONE.sub(BROKEN, whole)
        for attempt in range(ATTEMPTS):
            spans = [match.span() for match in self._names.finditer(text)] if self.controls else []
            if not spans:
                coded = self.tokenizer.encode(text, add_special_tokens=False)
                spans = [span for token, span in zip(coded.ids, coded.offsets, strict=True)
                         if token in self._control_ids]
            if not spans:
                return text
            for start, end in reversed(spans):
                name = text[start:end]
                apart = f"{name[:1]} {name[1:]}" if len(name) > 1 else " "
                if name in apart or attempt >= ATTEMPTS // 2:
                    apart = BROKEN
                text = text[:start] + apart + text[end:]
        raise ValueError("a text can't be shown to the model, as this tokenizer takes part of it for a "
                         f"control token however it is written: {whole[:60]!r}")

    @cached_property
    def _names(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self.controls, key=len, reverse=True))))

    def inert(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message, or a tool's schema, in which no text is a control token."""
        return {key: value if key == "role" and value in ROLES else map_texts(value, self.escaped)
                for key, value in message.items()}

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
        """Tokens and mask: True on the assistant's turns (with `last`: on the last one), stop token included,
        except those of {"weight": 0}.

        The whole is rendered and tokenised once. A turn is what the template's {% generation %} marks, and
        without marks what the template writes for the message, after the generation prompt and up to the stop
        token and the white space after it. Control tokens in messages are text.
        """
        turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if not turns:
            raise ValueError("a conversation without an assistant's turn has nothing to learn from.")
        if odd := [m["weight"] for m in messages if m.get("weight") not in (None, 0, 1)]:
            raise ValueError(f"a message has weight {odd[0]!r:.40}, and a weight is 0 (not trained) or 1: "
                             "round it, or leave it out.")
        turns = [i for i in (turns[-1:] if last else turns) if messages[i].get("weight") != 0]
        if not turns:
            raise ValueError("every assistant's turn has weight 0, so there is nothing to learn from: give "
                             "one weight 1, or leave the conversation out.")
        shown = [{key: value for key, value in m.items() if key != "weight"} for m in messages]
        whole = self.rendering(shown, reply=False, tools=tools)
        coded = self.tokenizer.encode(whole.text, add_special_tokens=False)
        if whole.marks:
            marked = marked_spans(whole, [i for i, m in enumerate(shown) if m["role"] == "assistant"])
            spans = [span for i in turns for span in marked.get(i, ())]
            mask = [any(start < b and end > a for a, b in spans) for start, end in coded.offsets]
        else:
            spans = [span for i in turns for span in self._turn(whole, shown, i, tools)]
            mask = [any(a <= start and end <= b for a, b in spans) and end > start
                    for start, end in coded.offsets]
        return coded.ids, mask

    def _turn(self, whole: Rendering, messages: Sequence[Mapping[str, Any]], turn: int,
              tools: Sequence[Mapping[str, object]]) -> list[tuple[int, int]]:
        """What an assistant's message adds to the text: its parts without the header, up to the stop token
        and the white space after it, which TRL trains too."""
        text = whole.text
        spans = whole.spans_of(turn) or self._changed(text, messages, turn, tools)
        first, end = spans[0]
        spans[0] = (first + self._header(text[first:end], messages[:turn], tools), end)
        if turn == len(messages) - 1 and not self._plain(text[spans[-1][1]:]):
            spans[-1] = (spans[-1][0], len(text))  # a template may end the last turn after its loop
        start, end = spans[-1]
        ends = [at + len(stop) for stop in self.stop_texts if (at := text.rfind(stop, start, end)) >= 0]
        ends += [len(bare)] if (bare := text[:end].rstrip()).endswith(tuple(self.controls)) else []
        stopped = max([at for at in ends if at > start], default=end)
        spans[-1] = (start, min(end, stopped + len(text[stopped:]) - len(text[stopped:].lstrip())))
        # a template may write a tool's result in the turn of the call
        for after in range(turn + 1, len(messages)):
            if messages[after]["role"] != "tool":
                break
            if not whole.spans_of(after):
                spans = cut_out(spans, self._removed(text, messages, after, tools))
        return spans

    def _header(self, text: str, before: Sequence[Mapping[str, Any]],
                tools: Sequence[Mapping[str, object]]) -> int:
        """The length of the generation prompt at the start of a turn; an opened thought is not part of it."""
        asked = next((i + 1 for i, m in enumerate(before) if m["role"] == "user"), 0)
        for end in dict.fromkeys((len(before), asked)):
            closed, opened = (self.text_of(before[:end], reply=reply, tools=tools) for reply in (False, True))
            start = len(commonprefix([closed, opened]))
            header = THOUGHT.split(opened[start - self._inside(opened, start):])[0]
            for head in (header, header.strip()):
                at = text.find(head)
                if head and at >= 0 and not text[:at].strip():
                    return at + len(head)
        return 0

    def _changed(self, text: str, messages: Sequence[Mapping[str, Any]], turn: int,
                 tools: Sequence[Mapping[str, object]]) -> list[tuple[int, int]]:
        """The part of the text that changes with a message's content, and the stop token after it: for a
        template that does not loop over the messages themselves."""
        other = [dict(m) for m in messages]
        other[turn]["content"] = "\ue000"
        start, end = differing(text, self.text_of(other, reply=False, tools=tools))
        after = len(text) - len(text[end:].lstrip())
        stop = next((stop for stop in self.controls if text.startswith(stop, after)), "")
        return [(start, after + len(stop) if stop else end)]

    def _removed(self, text: str, messages: Sequence[Mapping[str, Any]], message: int,
                 tools: Sequence[Mapping[str, object]]) -> tuple[int, int]:
        """The part of the text that a message adds, by a rendering without it."""
        rest = [m for i, m in enumerate(messages) if i != message]
        start, end = differing(text, self.text_of(rest, reply=False, tools=tools))
        back = self._inside(text, start)
        return start - back, end - back

    def _inside(self, text: str, at: int) -> int:
        """How far behind an offset the control token begins that it stands in; 0 where it stands in none."""
        return max((k for name in self.controls for k in range(1, min(len(name), at + 1))
                    if text.startswith(name, at - k)), default=0)

    def _plain(self, text: str) -> str:
        """A text without control tokens and surrounding white space."""
        for name in self.controls:
            text = text.replace(name, "")
        return text.strip()

    def document(self, text: str) -> tuple[list[int], list[bool]]:
        """A text with bos and eos; the mask is True on all tokens but the first. A document is read as it is,
        control tokens included: its owner has rendered it."""
        tokens = self.encode(f"{self.bos or ''}{text}{self.eos}")
        return tokens, [i > 0 for i in range(len(tokens))]

    def answer(self, messages: Sequence[Mapping[str, Any]], reply: str) -> tuple[list[int], list[bool]]:
        """A prompt with one reply; the mask is True on that reply alone.

        It ends with the stop token, as a sampled reply does, so that a scalar head reads labelled answers and
        samples at the same token.
        """
        return self.until_stop(*self.conversation([*messages, {"role": "assistant", "content": reply}],
                                                  last=True))

    def until_stop(self, tokens: list[int], mask: list[bool]) -> tuple[list[int], list[bool]]:
        """Up to the last stop token that is trained: the white space after it is never sampled."""
        end = len(mask) - mask[::-1].index(True) if any(mask) else len(mask)
        stop = max((i + 1 for i in range(end) if mask[i] and tokens[i] in self.stop), default=end)
        end = end if self.decode(tokens[stop:end]).strip() else stop
        return tokens[:end], mask[:end]


def with_thoughts(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with its thoughts under the names that templates read, as `transformers` gives them."""
    names = ("reasoning_content", "thinking", "reasoning")
    thought = next((message[name] for name in names if message.get(name) is not None), None)
    return dict(message) if thought is None else {"thinking": thought, **message,
                                                  "reasoning_content": thought}


def differing(text: str, other: str) -> tuple[int, int]:
    """Start and end of the part of a text that another text has differently."""
    start = len(commonprefix([text, other]))
    return start, len(text) - len(commonprefix([text[start:][::-1], other[start:][::-1]]))


def cut_out(spans: Sequence[tuple[int, int]], hole: tuple[int, int]) -> list[tuple[int, int]]:
    """cut_out([(0, 9)], (3, 5)) -> [(0, 3), (5, 9)]"""
    return [(a, b) for start, end in spans
            for a, b in ((start, min(end, hole[0])), (max(start, hole[1]), end)) if a < b]


def marked_spans(whole: Rendering, turns: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """The {% generation %} marks by the assistant's message that they stand in; one that stands in none
    (after the loop, or in a macro) is of the last message begun before."""
    spans: dict[int, list[tuple[int, int]]] = {}
    begun = [(at, i) for at, i in whole.writers if i in turns]
    for mark in whole.marks:
        turn = whole.writer(mark[0])
        if turn not in turns:
            turn = next((i for at, i in reversed(begun) if at <= mark[0]), turns[-1])
        assert turn is not None
        spans.setdefault(turn, []).append(mark)
    return spans


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
        raise ValueError(f"{folder}/tokenizer_config.json has no chat_template, as a base model has "
                         "none: name one with template=chatml, llama3, plain or FILE, or use the model's "
                         "instruct or chat version.")
    return template
