"""A sampler that replays fixed completions: the test double."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postgrad.models.chat import Chat
from postgrad.records import Prompt, Rollout, Sampling


class ScriptedSampler:
    """ScriptedSampler(chat, {"What is 2+3?": ["5", "6"]}): sample i of a question is its completion i
    (cycling)."""

    def __init__(self, chat: Chat, script: Mapping[str, Sequence[str]]):
        self.chat, self.script = chat, script

    def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int) -> list[list[Rollout]]:
        return [[self._rollout(p, i, sampling, seed) for i in range(n)] for p in prompts]

    def _rollout(self, prompt: Prompt, i: int, sampling: Sampling, seed: int) -> Rollout:
        lines = self.script[prompt.question]
        tokens = [*self.chat.encode(lines[i % len(lines)]), self.chat.stop[0]][: sampling.max_new_tokens]
        return Rollout(prompt=prompt, prompt_tokens=tuple(self.chat.render(prompt.messages)),
                       tokens=tuple(tokens), logp=(0.0,) * len(tokens), text=self.chat.decode(tokens),
                       finished=tokens[-1] in self.chat.stop, seed=seed)
