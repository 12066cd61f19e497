"""The models in a chat: what each of them is asked, what it remembers,
and its replies as they are written."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace


@dataclass
class Voice:
    """One model in the chat, and the turns that it remembers:
    a question and its own reply, again and again."""

    name: str
    made_by: str
    sampler: object
    turns: list = field(default_factory=list)

    @property
    def heading(self) -> str:
        return f"{self.made_by}: {self.name}" if self.made_by else self.name


@dataclass
class Reply:
    """One reply while it is written.

    problem: what the verifier judges it by, where the question is one of the task's. turns: where tools or an
    environment answer, what was said between the question and the last reply.
    """

    voice: Voice
    prompt: object
    problem: object = None
    text: str = ""
    ended: str = "stopped"  # "end", "length", or by Ctrl-C
    verdict: object = None
    turns: list = field(default_factory=list)

    @property
    def whole(self) -> str:
        """All that was said after the question."""
        earlier = [f"[{t['role']}] {t['content']}" if t["role"] != "assistant" else t["content"]
                   for t in self.turns]
        return "\n".join([*earlier, self.text])

    def said(self) -> dict:
        """As JSON."""
        v = self.verdict
        verdict = ({} if v is None else {"error": v.error} if v.error
                   else {"score": v.score, "reason": v.reason})
        made = {"made_by": self.voice.made_by} if self.voice.made_by else {}
        return {"model": self.voice.name, **made, "reply": self.text, "ended": self.ended, **verdict,
                **({"turns": self.turns} if self.turns else {})}


class Session:
    """The models, how they choose their words, and what was asked so far."""

    def __init__(self, voices: list[Voice], settings, *, task=None, system: str | None = None,
                 samples: int = 1, turns: bool = False, seed: int = 0):
        self.voices, self.settings, self.task, self.system = voices, settings, task, system
        self.samples, self.turns, self.seed, self.number = samples, turns, seed, 0

    def problem(self, number: int):
        """A test problem of the task, counted from 1."""
        if self.task is None:
            raise ValueError("a problem of which task? Name it with --task.")
        found = self.task.prompts("test", number, 0) if number > 0 else []
        if number > len(found) or number < 1:
            raise ValueError(f"task {self.task.name} has no test problem {number}: they count from 1"
                             + (f" to {len(found)}." if found else "."))
        return found[number - 1]

    def known(self, question: str):
        """The task's own problem with these words, if it is among the first thousand of a split."""
        if self.task is None:
            return None
        from postgrad.data.tasks import SPLITS
        return next((p for split in SPLITS for p in self.task.prompts(split, 1000, 0)
                     if p.question == question), None)

    def replies(self, question: str, problem=None) -> list[list[Reply]]:
        """[sample][voice], all still to be written."""
        from postgrad.records import Prompt
        problem, self.number = problem or self.known(question), self.number + 1
        asked = problem.messages if problem else ({"role": "user", "content": question},)
        if self.system:
            asked = ({"role": "system", "content": self.system}, *(m for m in asked if m["role"] != "system"))
        rows = [(voice, self.remembered(voice, asked)) for voice in self.voices]
        return [[Reply(voice, Prompt(id=f"chat/{self.number}/{i}", messages=messages), problem)
                 for voice, messages in rows] for i in range(self.samples)]

    def remembered(self, voice: Voice, asked: Sequence) -> tuple:
        """The question after the turns before it: the oldest are given up where the model has
        no place for all."""
        positions, before = voice.sampler.model.config.max_position_embeddings, len(voice.turns)
        system = [m for m in asked if m["role"] == "system"]
        rest = [m for m in asked if m["role"] != "system"]
        messages = (*system, *voice.turns, *rest)
        while (voice.turns
               and len(voice.sampler.chat.render(messages)) + self.settings.max_new_tokens > positions):
            del voice.turns[:2]
            messages = (*system, *voice.turns, *rest)
        if lost := (before - len(voice.turns)) // 2:
            print(f"({voice.name} forgets the oldest {lost} of {before // 2} turns: it has "
                  f"{positions} positions)",
                  file=sys.stderr)
        return messages

    def write(self, reply: Reply) -> Iterator[str]:
        """The reply, piece by piece; at its end it is judged. With a task that has tools, or on a problem of
        one that plays, their answers stand between the replies."""
        if self.task is not None and (self.task.tools or reply.problem and self.task.play):
            yield from self.play(reply)
        else:
            yield from self.stream(reply)

    def play(self, reply: Reply) -> Iterator[str]:
        """An episode as training plays it, turn by turn."""
        from postgrad.data.environments import Episode, turns_of, using_tools
        from postgrad.maths.noise import seed_of
        sampler, task = reply.voice.sampler, self.task
        prompt = replace(reply.problem, messages=reply.prompt.messages) if reply.problem else reply.prompt
        seed = seed_of(self.seed, reply.prompt.id, 0)
        game = Episode(prompt, task.play or using_tools(task.verify if reply.problem else ended), task.tools,
                       sampler.chat, seed=seed, env_seed=seed_of(self.seed, "environment", prompt.id, 0),
                       room=sampler.positions - self.settings.max_new_tokens, turns=turns_of(task))
        whole, told, row = True, len(prompt.messages), None
        game.step()
        while game.verdict is None:
            for message in game.messages[told:]:
                yield f"\n[{message['role']}] {message['content']}\n"
            reply.turns += game.messages[told:]
            (row,) = sampler.reply([game.context], [game.turn_seed], self.settings, [row])
            game.wrote(list(row.tokens), list(row.logp), row.finished, 0)
            reply.text, whole, told = game.replies[-1].text, row.finished, len(game.messages)
            reply.turns.append(game.messages[-1])
            yield reply.text
            if game.verdict is None:
                game.step()
        reply.turns = reply.turns[:-1] if len(reply.turns) > 1 else []
        reply.ended = "end" if whole else "length"
        if reply.problem or game.verdict.error:
            reply.verdict = game.verdict

    def stream(self, reply: Reply) -> Iterator[str]:
        whole = False

        def pieces():
            nonlocal whole
            whole = yield from reply.voice.sampler.stream(reply.prompt, self.settings, self.seed)

        for piece in pieces():
            reply.text += piece
            yield piece
        reply.ended = "end" if whole else "length"
        if reply.problem and self.task.verify:
            from postgrad.rewards.base import guarded
            reply.verdict = guarded(self.task.verify)(reply.problem, reply.text)

    def keep(self, rows: list[list[Reply]]) -> None:
        for reply in rows[0] if self.turns else []:
            if reply.text:
                reply.voice.turns += [reply.prompt.messages[-1], {"role": "assistant", "content": reply.text}]


def ended(prompt, text: str):
    """Of a question that nobody judges."""
    from postgrad.records import Verdict
    return Verdict(score=0.0)
