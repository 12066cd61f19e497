"""What replies are made of: tokens by name, log-probs in the two forms that clients read, counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from postgrad.models.chat import Chat
from postgrad.sampling import Chosen, Row
from postgrad.sampling.text import Text

LOWEST = -9999.0  # in place of minus infinity, which JSON has no number for


def usage(prompt: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def reply_text(chat: Chat, row: Row) -> str:
    """A reply's text, without the stop text that ended it."""
    return row.text.whole if row.text else chat.decode(row.tokens)


def token_name(chat: Chat, token: int) -> str:
    """A token's own text; by its number where that is only a part of a character."""
    (piece,) = chat.pieces([token])
    return f"token_id:{token}" if "\ufffd" in piece else piece


def number(logp: float) -> float:
    return max(logp, LOWEST)


def chat_logprobs(chat: Chat, chosen: Sequence[Chosen]) -> dict:
    """As chat completions have them: {"content": [{"token", "logprob", "bytes", "top_logprobs"}, ...]}."""
    return {"content": [one_logprob(chat, c.token, c.logp)
                        | {"top_logprobs": [one_logprob(chat, *pair) for pair in c.top]}
                        for c in chosen], "refusal": None}


def one_logprob(chat: Chat, token: int, logp: float) -> dict:
    name = token_name(chat, token)
    whole = not name.startswith("token_id:")
    return {"token": name, "logprob": number(logp), "bytes": list(name.encode()) if whole else None}


def generate_logprobs(chosen: Sequence[Chosen]) -> dict:
    """The same, with tokens by their numbers."""
    def one(token: int, logp: float) -> dict:
        return {"token": f"token_id:{token}", "logprob": number(logp)}

    return {"content": [one(c.token, c.logp) | {"top_logprobs": [one(*pair) for pair in c.top]}
                        for c in chosen]}


def completion_logprobs(chat: Chat, chosen: Sequence[Chosen | int], start: int = 0, echoed: int = 0) -> dict:
    """As completions have them: four lists, a place a token. A bare number is a token of which nothing is
    known, the first one of an echoed prompt. start: where in the text the first one begins; echoed: how many
    are of the prompt, whose control tokens are shown."""
    tokens = [c if isinstance(c, int) else c.token for c in chosen]
    offsets = []
    for part, decode in ((tokens[:echoed], partial(chat.tokenizer.decode, skip_special_tokens=False)),
                         (tokens[echoed:], chat.decode)):
        text = Text(decode)
        for token in part:
            offsets.append(start + len(text.whole))
            text.add(token)
        text.end()
        start += len(text.whole)
    known = [None if isinstance(c, int) else c for c in chosen]
    return {"tokens": [token_name(chat, t) for t in tokens],
            "token_logprobs": [number(c.logp) if c else None for c in known],
            "top_logprobs": [by_name(chat, c) if c else None for c in known] if any(
                c.top for c in known if c) else None,
            "text_offset": offsets}


def by_name(chat: Chat, chosen: Chosen) -> dict[str, float]:
    """The chosen token first, then the likeliest; two of the same text are told apart by number."""
    found: dict[str, float] = {}
    for token, logp in {chosen.token: chosen.logp, **dict(chosen.top)}.items():
        name = token_name(chat, token)
        found[f"token_id:{token}" if name in found else name] = number(logp)
    return found
