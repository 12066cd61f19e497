"""Log-probs and token counts in the formats of OpenAI's and vLLM's routes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from postgrad.models.chat import Chat
from postgrad.sampling import RequestSequence, SampledToken
from postgrad.sampling.detokenizer import IncrementalDetokenizer

LOWEST = -9999.0  # in place of minus infinity, which JSON has no number for


def token_usage(prompt: int, sampled: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def reply_text(chat: Chat, sequence: RequestSequence) -> str:
    """A reply's text, without the stop text that ended it."""
    return sequence.detokenizer.text if sequence.detokenizer else chat.decode(sequence.tokens)


def token_name(chat: Chat, token: int) -> str:
    """A token's own text; by its number where that is only a part of a character."""
    (piece,) = chat.pieces([token])
    return f"token_id:{token}" if "\ufffd" in piece else piece


def json_number(logp: float) -> float:
    return max(logp, LOWEST)


def chat_logprobs(chat: Chat, chosen: Sequence[SampledToken]) -> dict[str, Any]:
    """As chat completions have them: {"content": [{"token", "logprob", "bytes", "top_logprobs"}, ...]}."""
    return {"content": [one_logprob(chat, c.token, c.logp)
                        | {"top_logprobs": [one_logprob(chat, *pair) for pair in c.top]}
                        for c in chosen], "refusal": None}


def one_logprob(chat: Chat, token: int, logp: float) -> dict[str, Any]:
    name = token_name(chat, token)
    valid = not name.startswith("token_id:")
    return {"token": name, "logprob": json_number(logp), "bytes": list(name.encode()) if valid else None}


def generate_logprobs(chosen: Sequence[SampledToken]) -> dict[str, Any]:
    """The same, with tokens by their numbers."""
    def one(token: int, logp: float) -> dict[str, Any]:
        return {"token": f"token_id:{token}", "logprob": json_number(logp)}

    return {"content": [one(c.token, c.logp) | {"top_logprobs": [one(*pair) for pair in c.top]}
                        for c in chosen]}


def completion_logprobs(chat: Chat, sampled: Sequence[SampledToken | int], start: int = 0,
                        echoed: int = 0) -> dict[str, Any]:
    """As completions have them: four lists, an item a token. A bare int is a token without a log-prob, the
    first of an echoed prompt. start: where in the text the first token begins; echoed: how many are of the
    prompt, whose control tokens are shown."""
    tokens = [c if isinstance(c, int) else c.token for c in sampled]
    offsets = []
    for part, decode in ((tokens[:echoed], partial(chat.tokenizer.decode, skip_special_tokens=False)),
                         (tokens[echoed:], chat.decode)):
        detokenizer = IncrementalDetokenizer(decode)
        for token in part:
            offsets.append(start + len(detokenizer.text))
            detokenizer.add(token)
        detokenizer.end()
        start += len(detokenizer.text)
    known = [None if isinstance(c, int) else c for c in sampled]
    return {"tokens": [token_name(chat, t) for t in tokens],
            "token_logprobs": [json_number(c.logp) if c else None for c in known],
            "top_logprobs": [logprobs_by_text(chat, c) if c else None for c in known] if any(
                c.top for c in known if c) else None,
            "text_offset": offsets}


def logprobs_by_text(chat: Chat, chosen: SampledToken) -> dict[str, float]:
    """The chosen token first, then the likeliest; two of the same text are told apart by number."""
    found: dict[str, float] = {}
    for token, logp in {chosen.token: chosen.logp, **dict(chosen.top)}.items():
        name = token_name(chat, token)
        found[f"token_id:{token}" if name in found else name] = json_number(logp)
    return found
