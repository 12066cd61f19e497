"""Tasksets of verifiers (0.4, its v1): env:verifiers:NAME, env:verifiers:NAME(setting=value).

Prompts are the taskset's; its `@vf.reward` methods and judges score each reply in this process. A taskset
that needs a harness, a runtime, an interception server, tools or an Env of its own is refused.
"""

from __future__ import annotations

import inspect
from itertools import islice
from typing import Any

from postgrad.data.rows import DataRow, read_messages
from postgrad.data.tasks.adapters import await_value, import_needed
from postgrad.data.tasks.base import Task, parse_keyword_call
from postgrad.data.tasks.listed import no_prompts, split_task
from postgrad.records import Message, Prompt, Verdict

INSTALL = "verifiers>=0.4"
ROWS = 1000  # of an unbounded taskset


def load(source: str) -> Task:
    name, settings = parse_taskset(source)
    vf = import_needed("verifiers.v1", f"env:verifiers:{name}", INSTALL)
    loaders = import_needed("verifiers.v1.utils.loaders", f"env:verifiers:{name}", INSTALL)
    try:
        config = loaders.taskset_config_type(name).model_validate({"id": name, **settings})
        taskset = loaders.load_taskset(config)
        tasks = list(islice(taskset, None if taskset.bounded else ROWS))
    except Exception as error:  # noqa: BLE001 - whatever a taskset raises
        reason = " ".join(str(error).split())
        raise ValueError(f"env:verifiers:{source} cannot be opened: {reason}") from error
    if not tasks:
        raise ValueError(f"env:verifiers:{source} has no tasks.")
    if why := unsupported_needs(vf, loaders, name, taskset, tasks[0]):
        raise ValueError(f"env:verifiers:{source} {why}, and only replies are scored here: take one whose "
                         "rewards need the trace alone.")
    scoring = TasksetScorer(vf, tasks)
    task = Task(name=f"env:verifiers:{name}", about=inspect.getdoc(type(taskset)) or name,
                prompts=no_prompts, verify=scoring, waits=bool(tasks[0].config.judges))
    return split_task(task, scoring.prompts, name=name)


def parse_taskset(source: str) -> tuple[str, DataRow]:
    """parse_taskset("my-env(split='test')") -> ("my-env", {"split": "test"}); values are literals."""
    name, bracket, arguments = source.partition("(")
    settings = parse_keyword_call(f"f({arguments}" if bracket else "f()")
    if settings is None:
        raise ValueError(f"env:verifiers:{source:.80} cannot be read: write env:verifiers:NAME or "
                         "env:verifiers:NAME(setting=value).")
    return name.strip(), settings[1]


def unsupported_needs(vf: Any, loaders: Any, name: str, taskset: Any, task: Any) -> str:
    """Why a taskset cannot be scored by replies alone; "" if it can."""
    kind, hooks = type(task), [*task.hooks("reward"), *(j.score for j in task.plugged_judges())]
    runtime = [inspect.signature(hook).parameters.get("runtime") for hook in hooks]
    needs = {
        "has an Env of its own": loaders.environment_class(name) is not loaders.SingleAgentEnv,
        "needs a container": kind.NEEDS_CONTAINER or task.data.image,
        "has tools": taskset.toolsets(taskset.config) or kind.toolsets(taskset.config.task),
        "sets up a runtime": kind.setup is not vf.Task.setup or kind.finalize is not vf.Task.finalize,
        "has rewards that need a runtime": any(p is not None and p.default is p.empty for p in runtime),
        "has no prompt": task.data.prompt is None,
    }
    return " and ".join(why for why, needed in needs.items() if needed)


class TasksetScorer:
    """The prompts of a taskset, and verdicts on replies."""

    def __init__(self, vf: Any, tasks: list[Any]):
        self.vf = vf
        self.trace = import_needed("verifiers.v1.trace", "scoring", INSTALL)
        self.state_cls = import_needed("verifiers.v1.state", "scoring", INSTALL).state_cls
        self.tasks = {f"{task.data.id or task.data.name or task.data.idx}": task for task in tasks}
        if len(self.tasks) < len(tasks):
            self.tasks = {str(task.data.idx): task for task in tasks}
        self.prompts = [self._prompt(name, task.data) for name, task in self.tasks.items()]

    def _prompt(self, name: str, data: Any) -> Prompt:
        asked = [{"role": "user", "content": data.prompt}] if isinstance(data.prompt, str) else \
            [message.model_dump(include={"role", "content"}) for message in data.prompt]
        before = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        return Prompt(id=name, messages=read_messages([*before, *asked], f"task {name}"),
                      answer=getattr(data, "answer", None))

    def __call__(self, prompt: Prompt, text: str) -> Verdict:
        task = self.tasks[prompt.id]
        trace = self._trace(task, [*prompt.messages, {"role": "assistant", "content": text}])
        await_value(task.score(trace))
        paid = {name: reward for name, reward in trace.rewards.items() if reward is not None}
        return Verdict(score=float(trace.reward), parts={name: float(r.score) for name, r in paid.items()},
                       weights={name: float(r.weight) for name, r in paid.items()}, absent=not paid)

    def _trace(self, task: Any, messages: list[Message]) -> Any:
        """The trace of a conversation; the model wrote its last message."""
        last = len(messages) - 1
        nodes = [{"parent": i - 1 if i else None, "message": message, "sampled": i == last}
                 for i, message in enumerate(messages)]
        about = self.trace.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        agent = self.trace.AgentInfo(config=self.vf.AgentConfig())
        return self.trace.Trace(task=about, agent=agent, nodes=nodes, state=self.state_cls(type(task))(),
                                is_completed=True, ok=True)
