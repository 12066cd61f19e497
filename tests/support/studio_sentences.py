"""What the sentences of the instruments that are formulas say, by their words, calculated anew in plain
Python: (pattern, whether it is true of the state)."""

import math
from itertools import combinations
from statistics import fmean, pstdev

N = r"([−+]?\d+(?:\.\d+)?(?:e[−+]?\d+)?)"
P = r"((?:over |under )?\d+(?:\.\d+)?) %"


def value_of(text):
    return float(text.replace("−", "-"))


def shows(text, value):
    """Whether a number in words is this value, rounded as it is written."""
    mantissa, _, power = text.replace("−", "-").partition("e")
    unit = 10.0 ** (-len(mantissa.partition(".")[2]) + int(power or 0))
    return abs(value_of(text) - value) <= 0.5 * unit + 1e-9


def shows_share(text, share):
    """Whether a per cent in words is this share; "over" and "under" keep it from all and nothing."""
    word, _, edge = text.rpartition(" ")
    if word:
        return value_of(edge) <= 100 * share < 100 if word == "over" else 0 < 100 * share <= value_of(edge)
    return shows(text, 100 * share) and (value_of(text) not in (0, 100) or share in (0, 1))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def softmax(logits):
    weight = [math.exp(x - max(logits)) for x in logits]
    return [w / sum(weight) for w in weight]


# what each sentence says, by its words: (pattern, whether it is true of the state)

def pair_gap(s):
    return s.chosen - s.rejected


BRADLEY_TERRY = [
    (rf"Equal rewards are a coin toss: 50\.0 %, and the loss is log 2 = {N}\.",
     lambda s, loss: abs(pair_gap(s)) < 1e-9 and shows(loss, math.log(2))),
    (rf"The model has this pair the wrong way round, {P} for the answer that people chose: it is pushed with "
     rf"{N} of the full force\.",
     lambda s, p, push: (pair_gap(s) < 0 and shows_share(p, sigmoid(pair_gap(s)))
                         and shows(push, sigmoid(-pair_gap(s))))),
    (rf"The pair is settled \({P}\): {P} of the full push is left\.",
     lambda s, p, push: shows_share(p, sigmoid(pair_gap(s))) and shows_share(push, sigmoid(-pair_gap(s)))),
    (rf"{N} on both rewards changed nothing: the gap is {N} with it and without, and so is the chance of "
     rf"{P}\.", lambda s, shift, gap, p: (shows(shift, s.shift) and s.shift and shows(gap, pair_gap(s))
                                          and shows_share(p, sigmoid(pair_gap(s))))),
    (rf"A gap of {N} means {P} for the chosen answer; {N} of the full push is left\.",
     lambda s, gap, p, push: (shows(gap, pair_gap(s)) and shows_share(p, sigmoid(pair_gap(s)))
                              and shows(push, sigmoid(-pair_gap(s))))),
]


def slope(s):
    """The clipped objective's slope on log pi, between two ratios close by; None at an edge of the clip."""
    def objective(ratio):
        return min(ratio * s.advantage, min(max(ratio, 1 - s.low), 1 + s.high) * s.advantage)
    near = 1e-7
    left, right = (objective(s.ratio * (1 + sign * near)) for sign in (-1, 1))
    sides = (objective(s.ratio) - left) / near, (right - objective(s.ratio)) / near
    return sum(sides) / 2 if abs(sides[0] - sides[1]) < 1e-4 else None


def slope_is(s, wanted):
    found = slope(s)
    return found is None or abs(found - wanted) < 1e-5


PPO_CLIP = [
    (r"An advantage of 0 says nothing: the objective is 0 with the clip and without, and so is the "
     r"gradient\.",
     lambda s: s.advantage == 0),
    (rf"This token has been made (likelier|rarer) by enough: its ratio of {N} counts as {N}, and the "
     rf"gradient, which would be {N}, is exactly 0\.",
     lambda s, deed, ratio, edge, would: (
         shows(ratio, s.ratio) and (deed == "likelier") == (s.ratio > 1) and slope_is(s, 0)
         and shows(edge, 1 + s.high if deed == "likelier" else 1 - s.low)
         and shows(would, s.ratio * s.advantage))),
    (rf"The ratio of {N} is outside the clip, and yet the gradient is whole, {N}: it has gone the wrong way, "
     r"and the minimum lets a mistake be undone\.",
     lambda s, ratio, gradient: (
         shows(ratio, s.ratio) and not 1 - s.low <= s.ratio <= 1 + s.high
         and shows(gradient, s.ratio * s.advantage) and slope_is(s, s.ratio * s.advantage)
         and (s.ratio - 1) * s.advantage < 0)),
    (rf"Within {N} and {N} the clip does nothing: both objectives are the ratio times the advantage, and so "
     rf"is the gradient on log π, {N}\.",
     lambda s, low, high, gradient: (
         shows(low, 1 - s.low) and shows(high, 1 + s.high)
         and 1 - s.low - 1e-6 <= s.ratio <= 1 + s.high + 1e-6
         and shows(gradient, s.ratio * s.advantage) and slope_is(s, s.ratio * s.advantage))),
]


def group(s):
    mean, std = fmean(s.rewards), pstdev(s.rewards)
    adv = [(r - mean) / ((std or 1) if s.std else 1) for r in s.rewards]
    return mean, std, adv, softmax([s.step * a / s.size for a in adv])


def above(s, count, size, mean):
    return (int(count) == sum(r > fmean(s.rewards) + 1e-9 for r in s.rewards) and int(size) == s.size
            and shows(mean, fmean(s.rewards)))


def goes(s, answer, before, after):
    """The answer is (one of) the best, and its probability goes so."""
    i, (_, _, adv, probabilities) = int(answer) - 1, group(s)
    return (adv[i] >= max(adv) - 1e-9 and shows(before, 100 / s.size) and shows(after, 100 * probabilities[i])
            and probabilities[i] > 1 / s.size)


JUDGED = rf"An answer is judged against its own group: (\d+) of (\d+) (?:is|are) above the mean of {N}"
SUM = r"The advantages sum to 0: what one gains, the others lose together\."
GRPO = [
    (rf"(\d+) answers to one problem, drawn by the same model\. Nobody has judged them yet; let each be as "
     rf"likely as the others, {N} %\.", lambda s, size, p: int(size) == s.size and shows(p, 100 / s.size)),
    (rf"A reward for each, from {N} to {N}; the mean is {N}\. Only the distance from it will count\.",
     lambda s, low, high, mean: (shows(low, min(s.rewards)) and shows(high, max(s.rewards))
                                 and shows(mean, fmean(s.rewards)))),
    (rf"No signal: all (\d+) rewards are {N}, so every advantage is 0, the gradient is 0, and the "
     r"probabilities stay as they were\. DAPO draws such a group again\.",
     lambda s, size, reward: (int(size) == s.size and len(set(s.rewards)) == 1
                              and shows(reward, s.rewards[0]))),
    (rf"{JUDGED}\. {SUM}", lambda s, *said: above(s, *said) and abs(sum(group(s)[2])) < 1e-9),
    (rf"Without the std an advantage is the plain distance from the mean: answer (\d+) has {N}, with it {N}; "
     rf"answer (\d+) goes from {N} % to {N} %\.",
     lambda s, one, plain, divided, *said: (
         not s.std and one == said[0] and goes(s, *said)
         and shows(plain, s.rewards[int(one) - 1] - group(s)[0])
         and shows(divided, (s.rewards[int(one) - 1] - group(s)[0]) / group(s)[1]))),
    (rf"{JUDGED}, and answer (\d+) goes from {N} % to {N} %\. {SUM}",
     lambda s, *said: above(s, *said[:3]) and goes(s, *said[3:]) and abs(sum(group(s)[2])) < 1e-9),
]

REF = (0.4, 0.3, 0.2, 0.1)


def at(s, moved):
    """(policy, KL, mean reward, PPO's objective, DPO's mean loss) on the path of policies."""
    reward = (s.a, s.b, s.c, s.d)
    policy = softmax([math.log(q) + moved * r / s.beta for q, r in zip(REF, reward, strict=True)])
    ratio = [math.log(p / q) for p, q in zip(policy, REF, strict=True)]
    kl = sum(p * x for p, x in zip(policy, ratio, strict=True))
    mean = sum(p * r for p, r in zip(policy, reward, strict=True))
    losses = []
    for i, j in combinations(range(4), 2):
        says, label = sigmoid(s.beta * (ratio[i] - ratio[j])), sigmoid(reward[i] - reward[j])
        losses.append(-label * math.log(says) - (1 - label) * math.log(1 - says))
    return policy, kl, mean, mean - s.beta * kl, fmean(losses)


def surer(s, says, label, best, worst):
    r = {"A": s.a, "B": s.b, "C": s.c, "D": s.d}
    gap = r[best] - r[worst]
    return (r[best] == max(r.values()) and r[worst] == min(r.values()) and shows(label, sigmoid(gap))
            and shows(says, sigmoid(s.moved * gap)) and sigmoid(s.moved * gap) > sigmoid(gap))


def worth(s):
    """beta log Z"""
    weights = zip(REF, (s.a, s.b, s.c, s.d), strict=True)
    return s.beta * math.log(sum(q * math.exp(r / s.beta) for q, r in weights))


def equal_rewards(s):
    return len({s.a, s.b, s.c, s.d}) == 1


DPO_PPO = [
    (r"Four equal rewards: nothing to prefer\. The reference is the optimum, and every label is a coin "
     r"toss\.",
     equal_rewards),
    (rf"At the reference every implied reward is 0, so DPO’s loss is log 2 = {N}: neither machine has "
     r"begun\.",
     lambda s, loss: s.moved == 0 and shows(loss, math.log(2)) and shows(loss, at(s, 0)[4])),
    (rf"Both machines stop here: PPO’s advantages are all 0, DPO predicts every label as often as it occurs, "
     rf"and β log\(π/ref\) is the reward minus β log Z = {N}\.",
     lambda s, z: s.moved == 1 and shows(z, worth(s)) and abs(at(s, 1)[3] - worth(s)) < 1e-9),
    (rf"Between the reference and the optimum: PPO can still gain {N}, and DPO’s loss is {N} above its "
     r"least\.",
     lambda s, gain, above: (0 < s.moved < 1 and shows(gain, at(s, 1)[3] - at(s, s.moved)[3])
                             and shows(above, at(s, s.moved)[4] - at(s, 1)[4])
                             and value_of(gain) > 0 and value_of(above) > 0)),
    (rf"Too far: since the optimum the KL has cost PPO {N} and the reward bought {N}\. DPO is surer than the "
     rf"labels are: {N} against {N} for ([A-D]) over ([A-D])\.",
     lambda s, cost, bought, *said: (
         s.moved > 1 and shows(cost, s.beta * (at(s, s.moved)[1] - at(s, 1)[1]))
         and shows(bought, at(s, s.moved)[2] - at(s, 1)[2]) and at(s, s.moved)[3] < at(s, 1)[3]
         and surer(s, *said))),
]
