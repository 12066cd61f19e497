"""A model for the lm-evaluation-harness: likelihoods of texts, and replies, by our own sampler."""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from postgrad.maths.noise import seed_of
from postgrad.models.chat import Chat
from postgrad.records import Message
from postgrad.resolve.models import Network
from postgrad.runs.rows import JsonMapping
from postgrad.sampling import LocalSampler, RequestBatch, Sampling

OWN = {"until", "do_sample", "temperature", "max_gen_toks", "max_tokens", "top_p", "top_k"}


class HarnessModel(LM):
    def __init__(self, net: Network, chat: Chat):
        super().__init__()
        self.net, self.chat, self.sampler = net.requires_grad_(False), chat, LocalSampler(net, chat)
        self.context = self.sampler.positions
        self.batch = RequestBatch(net, chat, rows=1, max_prompt_tokens=self.context, max_new_tokens=1)

    # chats

    def apply_chat_template(self, chat_history: Sequence[Message], add_generation_prompt: bool = True,
                            **_: object) -> str:
        return self.chat.text_of(chat_history, reply=add_generation_prompt)

    @property
    def tokenizer_name(self) -> str:
        return ""

    def chat_template(self, chat_template: bool | str = False) -> str:
        return self.chat.template

    # what is measured

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        replies: list[str] = [""] * len(requests)
        alike: dict[Sampling, list[int]] = {}
        for i, request in enumerate(requests):
            alike.setdefault(sampling_from_request(request.args[1]), []).append(i)
        for settings, numbers in alike.items():
            contexts = [self.chat.encode(requests[i].args[0]) for i in numbers]
            for i, context in zip(numbers, contexts, strict=True):
                if len(context) + settings.max_new_tokens > self.context:
                    raise ValueError(f"problem {requests[i].doc_id} has {len(context)} tokens; with "
                                     f"{settings.max_new_tokens} of a reply that is over the model's "
                                     f"{self.context}: ask for shorter replies.")
            seeds = [seed_of(0, i) for i in numbers]
            for i, row in zip(numbers, self.sampler.reply(contexts, seeds, settings), strict=True):
                replies[i] = cut_at_stop(self.chat.decode(row.tokens), settings.stop)
        return replies

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        return [self.scored(*self.encoded(*request.args)) for request in requests]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        first = self.chat.id(self.chat.bos or self.chat.eos)
        return [sum(self.scored(*make_disjoint_window(window))[0] for window in get_rolling_token_windows(
            token_list=self.chat.encode(request.args[0]), prefix_token=first, max_seq_len=self.context - 1,
            context_len=1)) for request in requests]

    def encoded(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """The tokens of both, encoded as one text; trailing blanks of the context go to the continuation."""
        stripped = context.rstrip()
        tokens = self.chat.encode(context + continuation)
        before = self.chat.encode(stripped) or [self.chat.id(self.chat.bos or self.chat.eos)]
        return before, tokens[len(before):] if stripped else tokens

    def scored(self, before: Sequence[int], after: Sequence[int]) -> tuple[float, bool]:
        """The log-prob of the tokens `after`, and whether each is the likeliest."""
        tokens = [*before, *after][-self.context:]
        scored = self.batch.score(tokens, 1)[len(tokens) - 1 - len(after):]
        return sum(c.logp for c in scored), all(c.top[0][0] == c.token for c in scored)


def sampling_from_request(asked: JsonMapping) -> Sampling:
    if other := sorted(asked.keys() - OWN):
        raise ValueError(f"the task asks for {', '.join(other)} in generation_kwargs, which is not honoured.")
    until = asked.get("until") or ()
    warm = asked.get("do_sample", False) and asked.get("temperature", 1.0) or 0.0
    return Sampling(max_new_tokens=asked.get("max_gen_toks", asked.get("max_tokens", 256)), temperature=warm,
                    top_p=asked.get("top_p", 1.0), top_k=asked.get("top_k", 0),
                    stop=(until,) if isinstance(until, str) else tuple(filter(None, until)))


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop text."""
    ends = [at for word in stop if (at := text.find(word)) >= 0]
    return text[: min(ends)] if ends else text
