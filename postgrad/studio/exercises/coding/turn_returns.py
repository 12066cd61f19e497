"""Credit over the turns of an episode, made of segments."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from postgrad.studio.exercises.base import AGAIN, Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values

Segments = list[tuple[bool, int, float]]


def cases(random: Random) -> Iterator[Values]:
    yield [(False, 2, 0.0), (True, 1, 0.0), (False, 1, 0.5), (True, 2, 1.0)], 0.5
    yield [(False, 3, 0.0), (True, 2, 1.0)], 0.9
    yield [(True, 1, 1.0), (True, 2, -1.0), (False, 1, 0.0), (False, 2, 2.0), (True, 1, 0.0)], 0.8
    yield [(False, 1, 0.0), (True, 2, 0.3), (False, 2, 0.0), (True, 1, 0.7), (False, 1, 1.0)], 1.0
    yield [(False, 1, 0.0), (True, 2, 0.3), (False, 2, -0.2), (True, 1, 0.7), (False, 1, 1.0)], 0.0
    for turns in (2, 3, 4):
        rows: Segments = [(False, random.randint(1, 3), 0.0)]
        for _ in range(turns):
            rows.append((True, random.randint(1, 4), round(random.gauss(0, 1), 2)))
            rows += [(False, random.randint(1, 3), round(random.gauss(0, 1), 2))
                     for _ in range(random.randint(0, 2))]
        yield rows, random.choice((0.5, 0.9, 0.95))


def right(segments: Segments, gamma: float) -> object:
    """By the definition: for each token, over all turns that are not before its own."""
    turn_of, turn = [], -1
    for sampled, _, _ in segments:
        turn += sampled
        turn_of.append(turn)
    return [sum(gamma ** (turn_of[j] - turn_of[i]) * segments[j][2] for j in range(len(segments))
                if turn_of[j] >= turn_of[i]) if sampled else 0.0
            for i, (sampled, tokens, _) in enumerate(segments) for _ in range(tokens)]


def shown_tokens_get_nothing(answer: Answer, segments: Segments, gamma: float) -> bool:
    marks = [sampled for sampled, tokens, _ in segments for _ in range(tokens)]
    found = answer(segments, gamma)
    return len(found) == len(marks) and all(sampled or x == 0
                                            for sampled, x in zip(marks, found, strict=True))


def whole_reward_without_discount(answer: Answer, segments: Segments, gamma: float) -> bool:
    first = next(sum(n for _, n, _ in segments[:i]) for i, row in enumerate(segments) if row[0])
    return near(answer(segments, 1.0)[first], sum(reward for *_, reward in segments), 1e-4)


def length_is_no_time(answer: Answer, segments: Segments, gamma: float) -> bool:
    """Longer turns are no more turns."""
    def by_segment(rows: Segments) -> list[float]:
        found, at = answer(rows, gamma), 0
        ends = []
        for _, tokens, _ in rows:
            ends.append(found[at])
            at += tokens
        return ends
    longer = [(sampled, tokens + 3, reward) for sampled, tokens, reward in segments]
    return near(by_segment(longer), by_segment(segments), 1e-4)


EXERCISE = Exercise(
    name="turn-returns", title="Credit over the turns of an episode", chapter=9, function="returns",
    statement="""
An agent writes, is shown what came of it, and writes again. Its episode is a list of segments in turn:
tokens that the policy sampled, and tokens that it was shown.

Write `returns(segments, gamma)`. Each segment is (sampled, tokens, reward): whether the policy wrote it,
how many tokens it has, and what was paid when it ended. A turn is a sampled segment together with the
shown ones that follow it, and its reward r the sum of theirs: what a tool's reply pays belongs to the
turn that called it. With K turns the return of turn k is

    G[k] = r[k] + gamma * G[k + 1]          G[K] = 0

Return a number for each token of the whole episode: the return of its turn where the policy sampled it, 0
where it was shown. gamma counts turns, not tokens. A shown segment before the first turn pays nothing.

    returns([(False, 2, 0), (True, 1, 0), (False, 1, 0.5), (True, 2, 1)], 0.5) -> [0, 0, 1, 0, 1, 1]
""",
    starter="""
def returns(segments, gamma):
    ...
""",
    hints=(
        "Walk from the last segment to the first, carrying what is to come.",
        "What shown segments pay is gathered until the sampled one before them: there the turn is whole.",
        "At a sampled segment: G = its reward + what was gathered + gamma * the G of the turn after.",
    ),
    solution="""
def returns(segments, gamma):
    found = []
    after = gathered = 0.0
    for sampled, tokens, reward in reversed(segments):
        gathered += reward
        if sampled:
            after = gathered + gamma * after
            gathered = 0.0
        found += [after if sampled else 0.0] * tokens
    return found[::-1]
""",
    mistakes=(
        Mistake(says="You gave shown tokens credit too: the policy did not choose them, so they get 0.",
                old="[after if sampled else 0.0] * tokens", new="[after] * tokens"),
        Mistake(says="You discounted by tokens: gamma counts turns, however long they are.",
                old="gamma * after", new="gamma ** tokens * after"),
        Mistake(says="You discounted by segments: a shown segment is no turn of its own.",
                old="""        gathered += reward
        if sampled:
            after = gathered + gamma * after
            gathered = 0.0
""", new="        after = reward + gamma * after\n"),
        Mistake(says="You left out what shown segments pay: it belongs to the turn before them.",
                old="gathered += reward", new="gathered += reward if sampled else 0.0"),
        Mistake(says="You gave each turn its own reward only: a turn also answers for what comes later.",
                old="gathered + gamma * after", new="gathered"),
        Mistake(says="You did not discount: a later turn counts gamma times as much.",
                old="gamma * after", new="after"),
        Mistake(says="You discounted a turn's own reward too: gamma counts the turns between.",
                old="gathered + gamma * after", new="gamma * (gathered + after)"),
        Mistake(says="You gave every turn the episode's whole reward: what was paid before a turn is none "
                     "of its doing.", old="    return found[::-1]",
                new="    total = sum(r for *_, r in segments)\n"
                    "    return [total if s else 0.0 for s, n, _ in segments for _ in range(n)]"),
        Mistake(says="You gave every turn the last reward alone.", old="    return found[::-1]",
                new="    return [segments[-1][2] if s else 0.0 for s, n, _ in segments for _ in range(n)]"),
        Mistake(says="You divided a turn's return among its tokens: each token gets all of it.",
                old="[after if sampled else 0.0] * tokens",
                new="[after / tokens if sampled else 0.0] * tokens"),
        Mistake(says="You gave the credit to a turn's last token only: each of its tokens gets it.",
                old="[after if sampled else 0.0] * tokens",
                new="[after if sampled else 0.0] + [0.0] * (tokens - 1)"),
        Mistake(says="You returned one number a segment: asked for is one a token.",
                old="[after if sampled else 0.0] * tokens", new="[after if sampled else 0.0]"),
        Mistake(says="You returned the tokens from the last to the first.", old="found[::-1]", new="found"),
        Mistake(says="You walked forwards: a turn answers for what comes after it, not before.",
                old="in reversed(segments):", new="in segments:"),
        Mistake(says="You gave what a shown segment pays to the turn after it: it is the call before that "
                     "earned it.", old="""        gathered += reward
        if sampled:
            after = gathered + gamma * after
            gathered = 0.0
""", new="""        if not sampled:
            after += reward
            continue_ = True
        else:
            after = reward + gamma * after
"""),
        Mistake(says="You let what was gathered pile up: after a turn it begins at 0 again.",
                old="            gathered = 0.0\n", new=""),
        Mistake(says="You left the sampled segments' own rewards out.",
                old="gathered += reward", new="gathered += 0.0 if sampled else reward"),
        Mistake(says="The sign of what is to come is turned round.", old="gathered + gamma",
                new="gathered - gamma"),
        Mistake(says="The shown tokens got the returns, and the policy's own nothing.",
                old="[after if sampled else 0.0]", new="[0.0 if sampled else after]"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="Every token has a number, and one that was shown has 0.",
                 holds=shown_tokens_get_nothing),
        Property(says="Without discount the first turn answers for everything that was paid.",
                 holds=whole_reward_without_discount),
        Property(says="Longer segments change no return.", holds=length_is_no_time),
        AGAIN,
    ),
)
