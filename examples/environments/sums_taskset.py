"""A taskset of verifiers v1: sums of two numbers, paid for the answer, and a little for the form."""

import re

import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class SumsConfig(vf.TasksetConfig):
    most: int = 30


class SumsData(vf.TaskData):
    answer: str


class SumsTask(vf.Task[SumsData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def correct(self, trace) -> float:
        found = re.findall(r"<answer>(.*?)</answer>", trace.last_reply)
        return float(bool(found) and found[-1] == self.data.answer)

    @vf.reward(weight=0.1)
    async def form(self, trace) -> float:
        return float(bool(re.fullmatch(r"<think>[^<]*</think><answer>[^<]*</answer>", trace.last_reply)))

    @vf.metric
    async def length(self, trace) -> float:
        return float(len(trace.last_reply))


class SumsTaskset(vf.Taskset[SumsTask, SumsConfig]):
    """Sums of two numbers."""

    def load(self):
        for a in range(2, self.config.most):
            for b in range(2, self.config.most):
                yield SumsTask(SumsData(prompt=f"What is {a}+{b}?", answer=str(a + b)), self.config.task)
