"""Messages to tokens and back: the only place that knows templates, special tokens and stop tokens.

A `Chat` is a tokenizer with its chat template, read from the usual files (`tokenizer.json`, `tokenizer_config.json`). The
template is rendered in a sandbox: it comes from somebody else's folder.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from postgrad.records import Message


def _refuse(message):
    raise ValueError(f"the chat template says: {message}")


class Chat:
    """Chat.load(folder).render(messages) -> tokens"""

    def __init__(self, tokenizer: Tokenizer, template: str, *, bos: str | None, eos: str, pad: str | None):
        self.tokenizer, self.template, self.bos, self.eos, self.pad = tokenizer, template, bos, eos, pad
        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        env.globals["raise_exception"] = _refuse
        try:
            self._compiled = env.from_string(template)
        except TemplateError as error:
            raise ValueError(f"the chat template does not parse: {error}") from error

    @classmethod
    def load(cls, folder: Path | str) -> Chat:
        folder = Path(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if not (folder / name).is_file():
                raise ValueError(f"{folder} has no {name}: a model folder needs it to turn text into tokens.")
        try:
            raw = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the tokenizers library raises plain Exception
            raise ValueError(f"{folder}: tokenizer.json or tokenizer_config.json cannot be read ({error}): "
                             "the folder is damaged, get it again.") from error
        template = raw.get("chat_template")
        if template is None and (folder / "chat_template.jinja").is_file():
            template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        if not isinstance(template, str):
            raise ValueError(f"{folder}/tokenizer_config.json has no chat_template: add one, or use a model that has it.")
        names = {k: (v["content"] if isinstance(v, dict) else v) for k, v in raw.items()
                 if k in ("bos_token", "eos_token", "pad_token")}
        if not names.get("eos_token"):
            raise ValueError(f"{folder}/tokenizer_config.json names no eos_token: without one no reply would ever end.")
        return cls(tokenizer, template, bos=names.get("bos_token"), eos=names["eos_token"], pad=names.get("pad_token"))

    def save(self, folder: Path | str) -> None:
        folder = Path(folder)
        self.tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": self.bos, "eos_token": self.eos, "pad_token": self.pad,
            "clean_up_tokenization_spaces": False, "chat_template": self.template}, indent=1))

    @cached_property
    def stop(self) -> tuple[int, ...]:
        """The tokens that end an assistant's turn."""
        return (self.id(self.eos),)

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.get_vocab_size()

    def id(self, token: str) -> int:
        found = self.tokenizer.token_to_id(token)
        if found is None:
            raise ValueError(f"the tokenizer has no token {token!r}.")
        return found

    def text_of(self, messages: Sequence[Message], *, reply: bool) -> str:
        """The template's text; with `reply`, up to where the assistant begins to write."""
        try:
            return self._compiled.render(messages=[dict(m) for m in messages], add_generation_prompt=reply,
                                         bos_token=self.bos or "", eos_token=self.eos)
        except (TemplateError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            raise ValueError(f"the chat template cannot be rendered: {error}") from error

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of a reply: control tokens such as the end of turn are left out; <think> and <answer> are text."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token's own text, control tokens by name, for the token strip."""
        return [self.tokenizer.decode([t], skip_special_tokens=False) for t in tokens]

    def places(self, tokens: Sequence[int], ends: Sequence[int]) -> list[int]:
        """For each end in the text of a reply, the last of its tokens that belongs to the text so far.

        "2+3=5" and a stop token: places(tokens, [3, 5]) -> [2, 5], as the stop token adds no text. A token that goes on past an
        end belongs to it whole. The tokens are taken as they are, never made anew from the text.
        """
        written = list(accumulate((len(self.decode(tokens[: i + 1])) for i in range(len(tokens))), max))
        return [bisect_right(written, written[bisect_left(written, end)]) - 1 for end in ends]

    def render(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a prompt, up to where the assistant begins to write."""
        return self.encode(self.text_of(messages, reply=True))

    def conversation(self, messages: Sequence[Message], *, last: bool = False) -> tuple[list[int], list[bool]]:
        """Tokens and mask: True on what an assistant wrote (with `last`: in its last turn), its end-of-turn token included.

        The text is tokenised once, as a whole; an assistant's turn is the span that its message adds to the text.
        """
        whole = self.text_of(messages, reply=False)
        spans = []
        for i, message in enumerate(messages):
            if message["role"] == "assistant":
                before, after = self.text_of(messages[:i], reply=True), self.text_of(messages[: i + 1], reply=False)
                if not (whole.startswith(before) and after.startswith(before) and whole.startswith(after.rstrip())):
                    raise ValueError("the chat template rewrites earlier turns when later ones follow, so the assistant's "
                                     "tokens cannot be told apart: use single-turn conversations or another template.")
                end = after.rfind(self.eos, len(before))  # the template may have trimmed the content
                spans.append((len(before), end + len(self.eos) if end >= 0 else len(after)))
        if not spans:
            raise ValueError("a conversation without an assistant's turn has nothing to learn from.")
        spans = spans[-1:] if last else spans
        coded = self.tokenizer.encode(whole, add_special_tokens=False)
        mask = [any(a <= start and end <= b for a, b in spans) and end > start for start, end in coded.offsets]
        return coded.ids, mask

    def document(self, text: str) -> tuple[list[int], list[bool]]:
        """A plain text from its first token to the end token, all of it trained but the first."""
        tokens = self.encode(f"{self.bos or ''}{text}{self.eos}")
        return tokens, [i > 0 for i in range(len(tokens))]

    def answer(self, messages: Sequence[Message], reply: str) -> tuple[list[int], list[bool]]:
        """A prompt with one reply: True on the reply alone, whatever an assistant said before."""
        return self.conversation([*messages, {"role": "assistant", "content": reply}], last=True)
