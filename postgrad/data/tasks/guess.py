"""Guessing games with feedback. The secret is drawn from the environment's seed: the prompt does not reveal
it, and the rollouts of a group guess the same one. A right guess scores 1, a later guess that agrees with the
feedback so far HEED.

guess, four guesses, each answered by    animals, three guesses; the first wrong one reveals the first
the numbers that remain:                 letter, the second the last one too:
    user        Guess: 1-10                  user        Which animal?
    assistant   4                            assistant   frog
    user        5-10                         user        b..
    assistant   7                            assistant   bear
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import NamedTuple

from postgrad.data.tasks.base import Task, generator
from postgrad.data.tasks.games import play_game
from postgrad.models.chat.tools import ModelReply
from postgrad.records import Conversation, Message, Prompt, Verdict
from postgrad.rewards.base import shorten

NAMES = ("animals", "guess")

ANIMALS = ("bear", "bird", "cat", "cow", "dog", "duck", "fish", "frog", "hen", "horse", "lion", "mouse")
LARGEST = 10
HEED = 0.1      # a game full of such guesses scores far less than a right one
ATTENTIVE = 0.25  # how often the demonstrations of `animals` use the feedback
PROMPTS = {"train": 10_000, "validation": 1000, "test": 1000}  # games, each with a secret of its own

Game = Generator[Sequence[Message], ModelReply, Verdict]


class GameRules(NamedTuple):
    """gold(prompt, messages): a player who wins. novice(rng, messages): the player to imitate."""

    about: str
    question: str
    guesses: int
    play: Callable[[Prompt, random.Random], Game]
    gold: Callable[[Prompt, Sequence[Message]], str]
    novice: Callable[[random.Random, Sequence[Message]], str]


def game_verdict(won: bool, fits: Sequence[bool], reason: str, *, formed: bool = True) -> Verdict:
    """fits: for each wrong guess, whether it agreed with the feedback so far."""
    rewards = tuple(HEED * (i > 0 and fit) for i, fit in enumerate(fits))
    return Verdict(score=1.0 if won else sum(rewards), per_turn=rewards, reason=reason,
                   parts={"correct": float(won), "format": float(formed)})


def play_guess(prompt: Prompt, rng: random.Random) -> Game:
    secret, low, high = rng.randint(1, LARGEST), 1, LARGEST
    fits: list[bool] = []
    reply = yield ()
    for guess in range(1, GAMES["guess"].guesses + 1):
        text = reply.text.strip()
        if not (text.isascii() and text.isdigit() and len(text) < 4):
            return game_verdict(False, fits, f"{shorten(text)!r} is no number", formed=False)
        number = int(text)
        if number == secret:
            return game_verdict(True, fits, f"{secret} at guess {guess}")
        fits.append(low <= number <= high)
        low, high = (max(low, number + 1), high) if number < secret else (low, min(high, number - 1))
        if guess < GAMES["guess"].guesses:
            reply = yield [{"role": "user", "content": f"{low}-{high}"}]
    return game_verdict(False, fits, f"it was {secret}")


def bisect(prompt: Prompt, messages: Sequence[Message]) -> str:
    """The middle of the numbers that remain."""
    low, high = re.findall(r"\d+", messages[-1]["content"])
    return str((int(low) + int(high)) // 2)


def play_animals(prompt: Prompt, rng: random.Random) -> Game:
    secret, guesses = rng.choice(ANIMALS), list[str]()
    fits: list[bool] = []
    reply = yield ()
    for hint in (f"{secret[0]}..", f"{secret[0]}..{secret[-1]}", ""):
        guess = reply.text.strip().lower()
        if guess == secret:
            return game_verdict(True, fits, f"{secret} at guess {len(fits) + 1}")
        if guess not in ANIMALS:
            return game_verdict(False, fits, f"{shorten(guess)!r} is no animal of the game", formed=False)
        fits.append(guess not in guesses and all(guess[at] == secret[at] for at in (0, -1)[: len(fits)]))
        guesses.append(guess)
        if hint:
            reply = yield [{"role": "user", "content": hint}]
    return game_verdict(False, fits, f"it was the {secret}")


def possible_animals(messages: Sequence[Message]) -> list[str]:
    """The animals that agree with the feedback so far."""
    guesses = [m["content"] for m in messages if m["role"] == "assistant"]
    first, _, last = messages[-1]["content"].partition("..") if guesses else ("", "", "")
    return [a for a in ANIMALS if a not in guesses and a.startswith(first) and a.endswith(last)]


def guess_animal(rng: random.Random, messages: Sequence[Message]) -> str:
    return rng.choice(possible_animals(messages) if rng.random() < ATTENTIVE else ANIMALS)


GAMES = {
    "animals": GameRules("guess an animal in 3 turns, told a letter after each", "Which animal?", 3,
                         play_animals, lambda prompt, messages: possible_animals(messages)[0], guess_animal),
    "guess": GameRules(f"guess a number from 1 to {LARGEST} in 4 turns, told which are left",
                       f"Guess: 1-{LARGEST}", 4, play_guess, bisect,
                       lambda rng, messages: str(rng.randint(1, LARGEST))),
}


def prompts(split: str, count: int, seed: int, *, name: str) -> list[Prompt]:
    rng = generator(name, split, seed)
    return [Prompt.ask(GAMES[name].question, id=f"{name}/{split}-{i}")
            for i in rng.sample(range(PROMPTS[split]), min(count, PROMPTS[split]))]


def demonstrations(split: str, count: int, seed: int, *, name: str) -> list[Conversation]:
    """Games of the novice, who knows the form and mostly guesses blindly."""
    rng, rules = generator(f"{name}/player", split, seed), GAMES[name]
    conversations = []
    for i, prompt in enumerate(prompts(split, count, seed, name=name)):
        messages, _ = play_game(prompt, rules.play, lambda _, messages: rules.novice(rng, messages),
                                random.Random(rng.random()))
        conversations.append(Conversation(id=f"{prompt.id}#{i}", messages=tuple(messages)))
    return conversations


def load(name: str) -> Task:
    rules = GAMES[name]
    return Task(name=name, about=rules.about, prompts=partial(prompts, name=name), verify=None,
                play=rules.play, gold=rules.gold, demonstrations=partial(demonstrations, name=name), tokens=8,
                turns=rules.guesses)
