"""The sampling fields of a request body, the same in every route."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from postgrad.sampling import Request, Sampling
from postgrad.serving.decode_worker import ServedModel
from postgrad.serving.request_body import RequestBody

MOST_TOP, MOST_STOP = 20, 16
# values of fields that change nothing, which clients send
NEUTRAL: dict[str, tuple[object, ...]] = {
    "frequency_penalty": (0,), "presence_penalty": (0,), "repetition_penalty": (1,), "logit_bias": ({},),
    "best_of": (1,), "min_tokens": (0,), "suffix": ("",), "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"), "store": (False,), "prompt_logprobs": (), "user": (),
    "skip_special_tokens": (True,), "include_stop_str_in_output": (False,), "use_beam_search": (False,)}


@dataclass(frozen=True, kw_only=True)
class SamplingFields:
    """n, temperature, top_p, top_k, min_p, seed, stop, stop_token_ids and ignore_eos of a request."""

    n: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]

    @classmethod
    def read(cls, body: RequestBody, served: ServedModel) -> SamplingFields:
        top_k = body.take("top_k", int, 0, low=-1)
        seed = body.take("seed", int, None, low=-2**63, high=2**63 - 1)
        ends = served.check_tokens(body.take("stop_token_ids", list, []), "stop_token_ids")
        natural = () if body.take("ignore_eos", bool, False) else served.chat.stop
        return cls(n=body.take("n", int, 1, low=1, high=served.worker.most),
                   temperature=body.take("temperature", float, 1.0, low=0, high=100),
                   top_p=body.take("top_p", float, 1.0, low=1e-6, high=1), top_k=max(top_k, 0),
                   min_p=body.take("min_p", float, 0.0, low=0, high=0.999999),
                   seed=secrets.randbits(62) if seed is None else seed,
                   stop=body.texts("stop", MOST_STOP), stop_token_ids=tuple(dict.fromkeys((*natural, *ends))))

    def requests(self, new: int, prompt: int = 0, *, raw_logprobs: bool = False, top_logprobs: int = 0,
                 stream: bool = False) -> list[Request]:
        """n requests for prompt number `prompt` of a call, of up to `new` tokens. The first reply to the
        first prompt has the seed as it was given, the others seeds derived from it."""
        sampling = Sampling(max_new_tokens=new, temperature=self.temperature, top_k=self.top_k,
                            top_p=self.top_p, min_p=self.min_p, stop=self.stop)
        first = Request(sampling=sampling, seed=self.seed, stop_token_ids=self.stop_token_ids,
                        raw_logprobs=raw_logprobs, top_logprobs=top_logprobs, stream=stream)
        return [first.nth(i) for i in range(prompt * self.n, (prompt + 1) * self.n)]
