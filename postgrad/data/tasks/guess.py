"""Guess the number: one from 1 to 10 is thought of, and each guess is told the numbers that are left.

    user        Guess: 1-10
    assistant   4
    user        5-10
    assistant   7

Four guesses are enough for whoever halves what is left; a little is paid for each that heeds what was told.
The number is the environment's secret, drawn from its seed: the prompt does not give it away, and a group
guesses the same one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from postgrad.data.tasks.base import Task, check_split, generator
from postgrad.data.tasks.games import Game, game_verdict, play_demonstrations
from postgrad.records import Conversation, Message, Prompt
from postgrad.rewards.base import shorten

NAMES = ("guess",)

LARGEST, GUESSES = 10, 4
PROMPTS = {"train": 10_000, "validation": 1000, "test": 1000}  # games, each with a number of its own


def prompts(split: str, count: int, seed: int) -> list[Prompt]:
    """Games differ in their numbers alone: the question is one."""
    check_split(split)
    chosen = generator("guess", split, seed).sample(range(PROMPTS[split]), min(count, PROMPTS[split]))
    return [Prompt.ask(f"Guess: 1-{LARGEST}", id=f"guess/{split}-{i}") for i in chosen]


def play(prompt: Prompt, rng: random.Random) -> Game:
    secret, low, high = rng.randint(1, LARGEST), 1, LARGEST
    fits: list[bool] = []
    reply = yield ()
    for guess in range(1, GUESSES + 1):
        said = reply.text.strip()
        if not (said.isascii() and said.isdigit() and len(said) < 4):
            return game_verdict(False, fits, f"{shorten(said)!r} is no number", formed=False)
        number = int(said)
        if number == secret:
            return game_verdict(True, fits, f"{secret} at guess {guess}")
        fits.append(low <= number <= high)
        low, high = (max(low, number + 1), high) if number < secret else (low, min(high, number - 1))
        if guess < GUESSES:
            reply = yield [{"role": "user", "content": f"{low}-{high}"}]
    return game_verdict(False, fits, f"it was {secret}")


def gold(prompt: Prompt, messages: Sequence[Message]) -> str:
    """The middle of what is left, which the last message says."""
    low, high = re.findall(r"\d+", messages[-1]["content"])
    return str((int(low) + int(high)) // 2)


def demonstrations(split: str, count: int, seed: int) -> list[Conversation]:
    """Games of a player who knows the form and guesses blindly."""
    rng = generator("guess/player", split, seed)

    def blind(prompt: Prompt, messages: Sequence[Message]) -> str:
        return str(rng.randint(1, LARGEST))

    return play_demonstrations(prompts(split, count, seed), play, blind, rng)


def load(name: str) -> Task:
    about = f"guess a number from 1 to {LARGEST} in {GUESSES} turns, told which are left"
    return Task(name=name, about=about, prompts=prompts, verify=None, play=play, gold=gold,
                demonstrations=demonstrations, tokens=8, turns=GUESSES)
