"""A suite of `postgrad bench --files` as a task of inspect-ai: the same question, greedy, the same reading.

The replies are written out and judged by postgrad afterwards: inspect-ai has an environment without it.
"""

import json
import os

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Score, mean, scorer
from inspect_ai.solver import generate

with open(os.environ["ROWS"]) as file:
    ROWS = [json.loads(line) for line in file]


def as_written(content):
    """The reply as the model wrote it: inspect-ai takes <think>...</think> out of the text."""
    if isinstance(content, str):
        return content
    return "".join(f"<think>{part.reasoning}</think>" if part.type == "reasoning" else part.text
                   for part in content)


@scorer(metrics=[mean()])
def written():
    async def score(state, target):
        with open(os.environ["REPLIES"], "a") as out:
            out.write(json.dumps([state.metadata["number"], as_written(state.output.message.content)]) + "\n")
        return Score(value=1.0)
    return score


@task
def suite():
    samples = [Sample(input=row["question"], target="", metadata={"number": row["number"]}) for row in ROWS]
    return Task(dataset=samples, solver=generate(), scorer=written(),
                config=GenerateConfig(temperature=0.0, max_tokens=int(os.environ["TOKENS"])))
