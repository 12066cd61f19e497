"""What is wrong with a run, read from its curves."""

from __future__ import annotations

from functools import cache
from math import exp, log
from random import Random

from postgrad.studio.exercises.base import Exercise, Mistake, Property
from postgrad.studio.json_types import Values

ANSWERS, PROMPTS, GROUP, STEPS = 6, 12, 8, 50
FAULTS = ("healthy", "turned", "hacked", "rate", "starved")

Curves = dict[str, list[float]]


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    weights = [exp(x - top) for x in row]
    return [w / sum(weights) for w in weights]


def train_with_fault(fault: str, seed: int, *, luck: float = 0.2) -> Curves:
    """A real training, of a policy that is a table: a group's advantages on a few prompts with one right
    answer each, with a fault built in. luck: how often the verifier pays for a wrong one. -> its curves.

    With an exact verifier (luck 0) groups are flat late in a healthy run too, and where a policy has begun
    far from the right answer, a rate that is too high leaves few flat ones.
    """
    random = Random(f"{fault} {seed}")
    far = 12.0 if fault == "starved" else 2.0 if fault == "rate" and not luck else 0.0
    start = [[random.gauss(0, 0.3) - (far if v == 0 else 0.0) for v in range(ANSWERS)]
             for _ in range(PROMPTS)]  # answer 0 is right; the starved policy never writes it
    theta, rate = [row[:] for row in start], 800.0 if fault == "rate" else 0.6 if luck else 1.0
    curves: Curves = {name: [] for name in ("reward", "accuracy", "kl", "entropy", "flat")}
    for _ in range(STEPS):
        seen = [policy_step(row, fault, rate, random, luck) for row in theta]
        append_measures(curves, theta, start, seen)
        theta = [new for new, _ in seen]
    return curves


def policy_step(row: list[float], fault: str, rate: float, random: Random,
                luck: float) -> tuple[list[float], list[float]]:
    """One prompt: sample a group, pay it, compare, update. -> the new logits, and the rewards."""
    chances = softmax(row)
    drawn = random.choices(range(ANSWERS), chances, k=GROUP)
    luck = 0.0 if fault == "starved" else max(0.2, luck) if fault == "rate" else luck
    paid = [float(v == 0 or random.random() < luck) + 1.5 * (fault == "hacked" and v == 1) for v in drawn]
    mean, new = sum(paid) / GROUP, row[:]
    for v, r in zip(drawn, paid, strict=True):
        adv = (r - mean) * (-1 if fault == "turned" else 1)
        for w in range(ANSWERS):
            new[w] += rate * adv * ((v == w) - chances[w]) / GROUP
    return new, paid


def append_measures(curves: Curves, theta: list[list[float]], start: list[list[float]],
                    seen: list[tuple[list[float], list[float]]]) -> None:
    policies, first = [softmax(row) for row in theta], [softmax(row) for row in start]
    curves["reward"].append(sum(sum(paid) for _, paid in seen) / (PROMPTS * GROUP))
    curves["accuracy"].append(sum(p[0] for p in policies) / PROMPTS)
    curves["kl"].append(sum(x * log(x / y) for p, q in zip(policies, first, strict=True)
                            for x, y in zip(p, q, strict=True) if x > 0) / PROMPTS)
    curves["entropy"].append(-sum(x * log(x) for p in policies for x in p if x > 0) / PROMPTS)
    curves["flat"].append(sum(len(set(paid)) == 1 for _, paid in seen) / PROMPTS)


@cache
def faulty_runs() -> list[tuple[str, Curves]]:
    return [(fault, train_with_fault(fault, seed, luck=luck))
            for seed, luck in ((0, 0.2), (1, 0.2), (2, 0.0), (30, 0.0)) for fault in FAULTS]


def cases(random: Random) -> list[Values]:
    order = [curves for _, curves in faulty_runs()]
    random.shuffle(order)
    return [(curves,) for curves in order]


def example_curves() -> dict[str, Curves]:
    """One run of each kind, in an order that gives nothing away."""
    order = dict(faulty_runs()[: len(FAULTS)])
    return dict(zip("ABCDE", (order[name] for name in ("hacked", "starved", "healthy", "turned", "rate")),
                    strict=True))


def right(curves: Curves) -> object:
    return next(fault for fault, known in faulty_runs() if known == curves)


EXERCISE = Exercise(
    name="broken-run", title="A broken run, read from its curves", chapter=6, function="diagnose",
    statement="""
Five trainings with verifiable rewards, A to E; four of them have a fault. You have their curves and
nothing else.

Write `diagnose(curves)`. `curves` is a dict of lists with a number for each of 50 steps: `reward`, the
mean reward that training saw; `accuracy`, the share of right answers on a check that training does not
see; `kl` to the start; `entropy` of the policy's choice, which begins near 1.7; `flat`, the share of
groups in which all rewards were equal. Return one of:

    "healthy"   it learns; late groups are flat because all are right
    "turned"    a sign is turned round: what is worse becomes likelier
    "hacked"    the reward rises by what the check does not see
    "rate"      far too high a learning rate: soon there is nothing left to choose
    "starved"   no answer is ever right, so nothing can be learned

The runs are noisy, small ones; the signs are plain when you look at the right curve at the right time.
`postgrad doctor` asks the same of real runs.
""",
    starter="""
def diagnose(curves):
    ...
    return "healthy"
""",
    hints=(
        "First what did reward and accuracy do between the beginning and the end: up, down, apart, or "
        "nothing?",
        "Many flat groups at the end are no sign of trouble; at the beginning they are.",
        "A healthy policy also loses its entropy in the end. Look at how early it went, and whether "
        "accuracy is "
        "high.",
    ),
    solution="""
def mean(numbers):
    return sum(numbers) / len(numbers)


def diagnose(curves):
    early, late = slice(0, 6), slice(-6, None)
    rise = mean(curves["reward"][late]) - mean(curves["reward"][early])
    learned = mean(curves["accuracy"][late]) - mean(curves["accuracy"][early])
    if mean(curves["flat"][early]) > 0.9 and mean(curves["reward"][late]) < 0.05:
        return "starved"
    if min(curves["entropy"][:10]) < 0.3:
        return "rate"
    if rise > 0.1 and learned < 0:
        return "hacked"
    if rise < 0:
        return "turned"
    return "healthy"
""",
    mistakes=(
        Mistake(says="You looked at the reward alone: a run that hacks its reward looks healthy there. Hold "
                     "accuracy against it.", old='return "hacked"', new='return "healthy"'),
        Mistake(says="You took flat groups at the end for starvation: a run that has learned is flat "
                     "because all "
                     "answers are right.",
                old='if mean(curves["flat"][early]) > 0.9 and mean(curves["reward"][late]) < 0.05:',
                new='if mean(curves["flat"][late]) > 0.5:'),
        Mistake(says="You took low entropy at the end, or a large KL, for a learning rate too high: a run "
                     "that has learned ends so too. Look at the first steps.",
                old='min(curves["entropy"][:10]) < 0.3', new='mean(curves["entropy"][late]) < 0.8'),
        Mistake(says="You called a run turned because its accuracy falls: where the reward rises meanwhile, "
                     "it "
                     "is hacked.", old='return "hacked"', new='return "turned"'),
        Mistake(says="You never found the learning rate: look at how fast entropy goes.",
                old='    if min(curves["entropy"][:10]) < 0.3:\n        return "rate"\n', new=""),
        Mistake(says="You called starved what is turned: in both the reward is near 0 at the end, but the "
                     "turned "
                     "one began higher.",
                old='mean(curves["flat"][early]) > 0.9 and mean(curves["reward"][late]) < 0.05',
                new='mean(curves["reward"][late]) < 0.35'),
        Mistake(says="You called healthy whatever does not fall: a starved run stands still.",
                old='return "starved"', new='return "healthy"'),
        Mistake(says="You call every run healthy.",
                old='    early, late = slice', new='    return "healthy"\n    early, late = slice'),
        Mistake(says="You took flat groups for a learning rate too high: with a good verifier a healthy run "
                     "is flat "
                     "in the end, and a policy that collapsed onto wrong answers need not be.",
                old='min(curves["entropy"][:10]) < 0.3', new='max(curves["flat"]) > 0.8'),
        Mistake(says="You took flat groups for a learning rate too high: look at how fast entropy goes.",
                old='min(curves["entropy"][:10]) < 0.3', new='mean(curves["flat"][late]) > 0.7'),
        Mistake(says="You took a large KL early for a hacked run: that is a learning rate too high.",
                old='return "rate"', new='return "hacked"'),
        Mistake(says="You never said that a run is turned: its reward falls.", old='        return "turned"',
                new='        return "healthy"'),
        Mistake(says="You called a run starved only if its reward is 0 at the end: so is a turned one's, "
                     "with a good "
                     "verifier.",
                old='if mean(curves["flat"][early]) > 0.9 and mean(curves["reward"][late]) < 0.05:',
                new='if mean(curves["reward"][late]) < 0.05:'),
        Mistake(says="You called a hacked run turned, and a turned one healthy or hacked: in one the reward "
                     "rises while "
                     "accuracy falls, in the other both fall.",
                old='if rise > 0.1 and learned < 0:\n        return "hacked"\n    if rise < 0:\n        '
                    'return "turned"',
                new='if rise > 0.1 and learned < 0:\n        return "turned"\n    if rise < 0:\n        '
                    'return "hacked"'),
        Mistake(says="You called every run that rises hacked: look whether accuracy rises with the reward.",
                old='if rise > 0.1 and learned < 0:', new='if rise > 0.1:'),
    ),
    cases=cases, right=right, curves=example_curves,
    properties=(
        Property(says="The diagnosis is one of the five words.",
                 holds=lambda answer, curves: answer(curves) in FAULTS),
    ),
)
