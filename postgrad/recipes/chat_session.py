"""A chat with one model or several: prompts, history, and replies as they are sampled."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from postgrad.data.environments import Episode, check_tools, max_turns, play_with_tools
from postgrad.data.tasks import SPLITS, Task, load_task
from postgrad.maths.noise import seed_of
from postgrad.records import Message, Prompt, Verdict
from postgrad.resolve.models import open_writer
from postgrad.resolve.stages import ModelStage
from postgrad.rewards.base import guarded
from postgrad.sampling import LocalSampler, Sampling

Problem = Prompt  # a question of a task, with its answer


@dataclass
class ChatModel:
    """One model in the chat, and its history: questions and its own replies."""

    name: str
    made_by: str
    sampler: LocalSampler
    turns: list[Message] = field(default_factory=list)

    @property
    def heading(self) -> str:
        return f"{self.made_by}: {self.name}" if self.made_by else self.name


@dataclass
class ChatReply:
    """One reply while it is sampled.

    problem: the task's problem, where the question is one. turns: where tools or an environment answer, the
    messages between the question and the last reply.
    """

    model: ChatModel
    prompt: Prompt
    problem: Prompt | None = None
    text: str = ""
    ended: str = "stopped"  # "end", "length", or by Ctrl-C
    verdict: Verdict | None = None
    turns: list[Message] = field(default_factory=list)

    @property
    def transcript(self) -> str:
        """The turns and the reply."""
        earlier = [f"[{t['role']}] {t['content']}" if t["role"] != "assistant" else t["content"]
                   for t in self.turns]
        return "\n".join([*earlier, self.text])

    def as_json(self) -> dict[str, object]:
        v = self.verdict
        verdict: dict[str, object] = ({} if v is None else {"error": v.error} if v.error
                                      else {"score": v.score, "reason": v.reason})
        made_by = {"made_by": self.model.made_by} if self.model.made_by else {}
        return {"model": self.model.name, **made_by, "reply": self.text, "ended": self.ended, **verdict,
                **({"turns": self.turns} if self.turns else {})}


class ChatSession:
    """The models, their sampling, and the conversation. turns: a question follows those before it; else each
    is a conversation of its own."""

    def __init__(self, models: list[ChatModel], settings: Sampling, *, task: Task | None = None,
                 system: str | None = None, samples: int = 1, turns: bool = False, seed: int = 0):
        self.models, self.settings, self.task, self.system = models, settings, task, system
        self.samples, self.turns, self.seed, self.number = samples, turns, seed, 0

    def problem(self, number: int) -> Prompt:
        """A test problem of the task, counted from 1."""
        if self.task is None:
            raise ValueError("a problem of which task? Name it with --task.")
        problems = self.task.prompts("test", number, 0) if number > 0 else []
        if number > len(problems) or number < 1:
            raise ValueError(f"task {self.task.name} has no test problem {number}: they count from 1"
                             + (f" to {len(problems)}." if problems else "."))
        return problems[number - 1]

    def find_problem(self, question: str) -> Prompt | None:
        """The task's problem with this text, if it is among the first thousand of a split."""
        if self.task is None:
            return None
        return next((p for split in SPLITS for p in self.task.prompts(split, 1000, 0)
                     if p.question == question), None)

    def replies(self, question: str, problem: Prompt | None = None) -> list[list[ChatReply]]:
        """[sample][model], to be sampled."""
        problem, self.number = problem or self.find_problem(question), self.number + 1
        asked: Sequence[Message] = problem.messages if problem else ({"role": "user", "content": question},)
        if self.system:
            asked = ({"role": "system", "content": self.system}, *(m for m in asked if m["role"] != "system"))
        rows = [(model, self.with_history(model, asked)) for model in self.models]
        return [[ChatReply(model, Prompt(id=f"chat/{self.number}/{i}", messages=messages), problem)
                 for model, messages in rows] for i in range(self.samples)]

    def with_history(self, model: ChatModel, asked: Sequence[Message]) -> tuple[Message, ...]:
        """The question after the history; its oldest turns are dropped where the context is full."""
        positions, before = model.sampler.model.config.max_position_embeddings, len(model.turns)
        system = [m for m in asked if m["role"] == "system"]
        rest = [m for m in asked if m["role"] != "system"]
        messages = (*system, *model.turns, *rest)
        while (model.turns
               and len(model.sampler.chat.render(messages)) + self.settings.max_new_tokens > positions):
            del model.turns[:2]
            messages = (*system, *model.turns, *rest)
        if lost := (before - len(model.turns)) // 2:
            print(f"({model.name} forgets the oldest {lost} of {before // 2} turns: it has "
                  f"{positions} positions)",
                  file=sys.stderr)
        return messages

    def sample(self, reply: ChatReply) -> Iterator[str]:
        """Streams the reply and scores it at its end; an episode where the task has tools or plays."""
        if self.task is not None and (self.task.tools or reply.problem and self.task.play):
            yield from self.play(reply, self.task)
        else:
            yield from self.stream(reply)

    def play(self, reply: ChatReply, task: Task) -> Iterator[str]:
        """An episode as in training, turn by turn; messages of the environment stand between the replies."""
        sampler = reply.model.sampler
        prompt = replace(reply.problem, messages=reply.prompt.messages) if reply.problem else reply.prompt
        seed = seed_of(self.seed, reply.prompt.id, 0)
        verify = task.verify if reply.problem and task.verify else unjudged
        game = Episode(prompt, task.play or play_with_tools(verify), task.tools, sampler.chat, seed=seed,
                       env_seed=seed_of(self.seed, "environment", prompt.id, 0),
                       room=sampler.positions - self.settings.max_new_tokens, turns=max_turns(task))
        finished, shown, row = True, len(prompt.messages), None
        game.step()
        while game.verdict is None:
            for message in game.messages[shown:]:
                yield f"\n[{message['role']}] {message['content']}\n"
            reply.turns += game.messages[shown:]
            (row,) = sampler.reply([game.context], [game.turn_seed], self.settings, [row])
            game.wrote(list(row.tokens), list(row.logp), row.finished, 0)
            reply.text, finished, shown = game.replies[-1].text, row.finished, len(game.messages)
            reply.turns.append(game.messages[-1])
            yield reply.text
            if game.verdict is None:
                game.step()
        reply.turns = reply.turns[:-1] if len(reply.turns) > 1 else []
        reply.ended = "end" if finished else "length"
        if reply.problem or game.verdict.error:
            reply.verdict = game.verdict

    def stream(self, reply: ChatReply) -> Iterator[str]:
        finished = False

        def pieces() -> Iterator[str]:
            nonlocal finished
            finished = yield from reply.model.sampler.stream(reply.prompt, self.settings, self.seed)

        for piece in pieces():
            reply.text += piece
            yield piece
        reply.ended = "end" if finished else "length"
        if reply.problem and self.task is not None and self.task.verify:
            reply.verdict = guarded(self.task.verify)(reply.problem, reply.text)

    def remember(self, rows: list[list[ChatReply]]) -> None:
        for reply in rows[0] if self.turns else []:
            if reply.text:
                reply.model.turns += [reply.prompt.messages[-1], {"role": "assistant", "content": reply.text}]


def open_session(models: Sequence[ModelStage], *, max_new_tokens: int, temperature: float, top_k: int,
                 top_p: float, min_p: float, stop: tuple[str, ...], task: str | None = None,
                 system: str | None = None, samples: int = 1, turns: bool = False, seed: int = 0,
                 device: str = "cpu", template: str | None = None) -> ChatSession:
    """A session with models by name. template: in place of their own."""
    settings = Sampling(max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p,
                        min_p=min_p, stop=stop)
    loaded = load_task(task) if task else None
    opened = [ChatModel(stage.name, stage.made_by, LocalSampler(*open_writer(stage.name, device, template)))
              for stage in models]
    for model in opened:
        if loaded:
            check_tools(loaded, model.sampler.chat)
    return ChatSession(opened, settings, task=loaded, system=system, samples=samples, turns=turns, seed=seed)


def unjudged(prompt: Prompt, text: str) -> Verdict:
    """The verifier of a question that is no problem of the task."""
    return Verdict(score=0.0)
