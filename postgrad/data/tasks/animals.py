"""A word game with feedback: an animal is thought of; a wrong guess is told its first letter, the next its
last too.

    user        Which animal?
    assistant   frog
    user        b..
    assistant   bird
    user        b..r
    assistant   bear
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from postgrad.data.tasks.base import Task, check_split, generator
from postgrad.data.tasks.games import Game, game_verdict, play_demonstrations
from postgrad.records import Conversation, Message, Prompt
from postgrad.rewards.base import shorten

NAMES = ("animals",)

ANIMALS = ("bear", "bird", "cat", "cow", "dog", "duck", "fish", "frog", "hen", "horse", "lion", "mouse")
GUESSES = 3
USES = 0.25  # how often the player of the demonstrations looks at what it was told
PROMPTS = {"train": 10_000, "validation": 1000, "test": 1000}


def prompts(split: str, count: int, seed: int) -> list[Prompt]:
    check_split(split)
    chosen = generator("animals", split, seed).sample(range(PROMPTS[split]), min(count, PROMPTS[split]))
    return [Prompt.ask("Which animal?", id=f"animals/{split}-{i}") for i in chosen]


def hints(animal: str) -> tuple[str, ...]:
    return f"{animal[0]}..", f"{animal[0]}..{animal[-1]}"


def play(prompt: Prompt, rng: random.Random) -> Game:
    secret, guesses = rng.choice(ANIMALS), list[str]()
    fits: list[bool] = []
    reply = yield ()
    for hint in (*hints(secret), ""):
        said = reply.text.strip().lower()
        if said == secret:
            return game_verdict(True, fits, f"{secret} at guess {len(fits) + 1}")
        if said not in ANIMALS:
            return game_verdict(False, fits, f"{shorten(said)!r} is no animal of the game", formed=False)
        told = all(said[at] == secret[at] for at in (0, -1)[: len(fits)])
        fits.append(told and said not in guesses)
        guesses.append(said)
        if hint:
            reply = yield [{"role": "user", "content": hint}]
    return game_verdict(False, fits, f"it was the {secret}")


def possible_animals(messages: Sequence[Message]) -> list[str]:
    """The animals that are still possible."""
    said = [m["content"] for m in messages if m["role"] == "assistant"]
    first, _, last = messages[-1]["content"].partition("..") if said else ("", "", "")
    return [a for a in ANIMALS if a not in said and a.startswith(first) and a.endswith(last)]


def gold(prompt: Prompt, messages: Sequence[Message]) -> str:
    """The first that is possible; two animals that begin and end alike would need a guess more."""
    return possible_animals(messages)[0]


def demonstrations(split: str, count: int, seed: int) -> list[Conversation]:
    """Games of a player who knows the animals and mostly forgets what it was told."""
    rng = generator("animals/player", split, seed)

    def player(prompt: Prompt, messages: Sequence[Message]) -> str:
        return rng.choice(possible_animals(messages) if rng.random() < USES else ANIMALS)

    return play_demonstrations(prompts(split, count, seed), play, player, rng)


def load(name: str) -> Task:
    return Task(name=name, about=f"guess an animal in {GUESSES} turns, told a letter after each",
                prompts=prompts, verify=None, play=play, gold=gold, demonstrations=demonstrations, tokens=8,
                turns=GUESSES)
