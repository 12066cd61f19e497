"""Fields of a request that say how tokens are chosen, the same in every call."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from postgrad.maths.noise import seed_of
from postgrad.sampling import Request, Sampling
from postgrad.serving.body import Body
from postgrad.serving.served import Served

MOST_TOP, MOST_STOP = 20, 16
# what clients send that asks for nothing
NEUTRAL = {
    "frequency_penalty": (0,), "presence_penalty": (0,), "repetition_penalty": (1,), "logit_bias": ({},),
    "best_of": (1,), "min_tokens": (0,), "suffix": ("",), "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"), "store": (False,), "prompt_logprobs": (), "user": (),
    "skip_special_tokens": (True,), "include_stop_str_in_output": (False,), "use_beam_search": (False,)}


@dataclass(frozen=True, kw_only=True)
class Choosing:
    """How the replies of a request are written: `requests(3, ...)` are those of three of them."""

    count: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    stop: tuple[str, ...]
    ends: tuple[int, ...]

    @classmethod
    def read(cls, body: Body, served: Served) -> Choosing:
        top_k = body.take("top_k", int, 0, low=-1)
        seed = body.take("seed", int, None, low=-2**63, high=2**63 - 1)
        ends = served.check_tokens(body.take("stop_token_ids", list, []), "stop_token_ids")
        natural = () if body.take("ignore_eos", bool, False) else served.chat.stop
        return cls(count=body.take("n", int, 1, low=1, high=served.worker.most),
                   temperature=body.take("temperature", float, 1.0, low=0, high=100),
                   top_p=body.take("top_p", float, 1.0, low=1e-6, high=1), top_k=max(top_k, 0),
                   min_p=body.take("min_p", float, 0.0, low=0, high=0.999999),
                   seed=secrets.randbits(62) if seed is None else seed,
                   stop=body.texts("stop", MOST_STOP), ends=tuple(dict.fromkeys((*natural, *ends))))

    def requests(self, new: int, prompt: int = 0, **wanted) -> list[Request]:
        """Of prompt number `prompt` of a call. The first reply to the first one is written by the seed as it
        was given, the others by seeds made from it."""
        settings = Sampling(max_new_tokens=new, temperature=self.temperature, top_k=self.top_k,
                            top_p=self.top_p, min_p=self.min_p, stop=self.stop)
        numbers = range(prompt * self.count, (prompt + 1) * self.count)
        return [Request(settings=settings, seed=seed_of(self.seed, i) if i else self.seed, ends=self.ends,
                        **wanted) for i in numbers]
