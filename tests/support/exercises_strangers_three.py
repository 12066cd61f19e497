"""Wrong answers by somebody who had not read the graders, continued: see exercises_strangers.py."""

THREE = (
    ("verifier", "mentions of \"Answer:\" inside a line count as claims: a right reply that "
     "speaks of \"my Answer:\" is refused", r"""
import re
def verify(text, gold):
    if text.count("Answer:") != 1:
        return 0.0
    lines = [s.strip() for s in text.split("\n") if s.strip()]
    m = re.fullmatch(r"Answer: ([+-]?[0-9]{1,18})", lines[-1])
    return 1.0 if m and int(m.group(1)) == gold else 0.0
"""),
    ("verifier", "int() reads more than digits: underscores, inner spaces and digits of other "
     "scripts are paid for", r"""
def verify(text, gold):
    lines = [x.strip() for x in text.split("\n") if x.strip()]
    if not lines or not lines[-1].startswith("Answer: "):
        return 0.0
    if sum(x.startswith("Answer:") for x in lines) > 1:
        return 0.0
    word = lines[-1][len("Answer: "):]
    try:
        return float(len(word.lstrip("+-")) <= 18 and int(word) == gold)
    except ValueError:
        return 0.0
"""),
    ("verifier", "only claims with a number are counted, so \"Answer: it depends\" before the "
     "last line goes unseen", r"""
import re
CLAIM = re.compile(r"^\s*Answer: ([+-]?[0-9]{1,18})\s*$", re.M)
def verify(text, gold):
    claims = CLAIM.findall(text)
    if len(claims) != 1:
        return 0.0
    last = text.strip().split("\n")[-1]
    return float(CLAIM.fullmatch(last) is not None and int(claims[0]) == gold)
"""),
    ("verifier", "\"Up to 18 digits\" is read as none or more: a sign alone is handed to int and "
     "raises an error", """
import re
def verify(text, gold):
    lines = [l.strip() for l in text.splitlines()]
    lines = [l for l in lines if l]
    if not lines:
        return 0.0
    m = re.fullmatch("Answer: ([+-]?[0-9]{0,18})", lines[-1])
    if m is None or len([l for l in lines if l.startswith("Answer:")]) > 1:
        return 0.0
    return 1.0 if int(m[1]) == gold else 0.0
"""),
    ("verifier", "the number is compared as a float: two numbers of 17 digits that differ by 1 are the same",
     r"""
import re
def verify(text, gold):
    lines = [l.strip() for l in text.split("\n") if l.strip()]
    if sum(l.startswith("Answer:") for l in lines) != 1:
        return 0.0
    m = re.fullmatch(r"Answer: ([+-]?[0-9]{1,18})", lines[-1])
    return float(bool(m) and abs(float(m[1]) - gold) < 1e-6)
"""),
    ("verifier", "lines that begin with \"Answer\" without a colon count as claims too, such as "
     "\"Answers can differ.\"", r"""
import re
def verify(text, gold):
    rows = [r.strip() for r in text.split("\n") if r.strip() != ""]
    claims = [r for r in rows if r.startswith("Answer")]
    if len(claims) != 1 or claims[0] != rows[-1]:
        return 0.0
    hit = re.fullmatch(r"Answer: ([-+]?[0-9]{1,18})", claims[0])
    return 1.0 if hit and int(hit[1]) == gold else 0.0
"""),
    ("verifier", "any number of digits is read: 25 of them are paid for, and very many raise an error in int",
     r"""
import re
def verify(text, gold):
    lines = [l.strip() for l in text.split("\n") if l.strip()]
    if sum(l.startswith("Answer:") for l in lines) != 1:
        return 0.0
    m = re.fullmatch(r"Answer: ([+-]?[0-9]+)", lines[-1])
    return 1.0 if m and int(m.group(1)) == gold else 0.0
"""),
    ("pass-at-k", "drawn with putting back: the biased estimate from the share of right answers", """
def pass_at_k(n, c, k):
    return 1 - (1 - c / n) ** k
"""),
    ("pass-at-k", "Factorials of a negative number where fewer than k answers are wrong: an error "
     "instead of 1", """
from math import factorial as f
def pass_at_k(n, c, k):
    wrong = n - c
    return 1 - f(wrong) * f(n - k) / (f(wrong - k) * f(n))
"""),
    ("pass-at-k", "fewer right answers than k gives 0, as if all k had to be right", """
from math import comb
def pass_at_k(n, c, k):
    if c < k:
        return 0.0
    return 1.0 - comb(n - c, k) / comb(n, k)
"""),
    ("pass-at-k", "estimated by drawing 2000 times: near the value, and never the value", """
import random
def pass_at_k(n, c, k):
    box = [1] * c + [0] * (n - c)
    return sum(any(random.sample(box, k)) for _ in range(2000)) / 2000
"""),
    ("pass-at-k", "the gamma function overflows beyond 170 answers", """
from math import gamma
def choose(a, b):
    return gamma(a + 1) / gamma(b + 1) / gamma(a - b + 1) if b <= a else 0.0
def pass_at_k(n, c, k):
    return 1 - choose(n - c, k) / choose(n, k)
"""),
    ("pass-at-k", "one factor too few in the product: the last draw is not counted", """
import numpy as np
def pass_at_k(n, c, k):
    if n - c < k:
        return 1.0
    return float(1 - np.prod(1 - k / np.arange(n - c + 2, n + 1)))
"""),
    ("simple-grpo", "the word 0 that ends an answer is skipped, so the length is never learned", """
import math
def grpo(theta, sample, reward, group, rate, steps):
    for _ in range(steps):
        answers = sample(theta, group)
        rs = [reward(a) for a in answers]
        base, n = sum(rs) / group, sum(map(len, answers))
        new = [row[:] for row in theta]
        for a, r in zip(answers, rs):
            for t, w in enumerate(a):
                if w == 0:
                    break
                z = sum(math.exp(x) for x in theta[t])
                for v, x in enumerate(theta[t]):
                    new[t][v] += rate * (r - base) * ((v == w) - math.exp(x) / z) / n
        theta = new
    return theta
"""),
    ("simple-grpo", "the table moves while the step's gradient is still being summed: later words "
     "see changed probabilities", """
import numpy as np
def grpo(theta, sample, reward, group, rate, steps):
    th = [np.array(row, float) for row in theta]
    for _ in range(steps):
        answers = sample([row.tolist() for row in th], group)
        rs = np.array([reward(a) for a in answers], float)
        adv = rs - rs.mean()
        N = sum(len(a) for a in answers)
        for a, A in zip(answers, adv):
            for t, w in enumerate(a):
                p = np.exp(th[t] - th[t].max())
                g = -p / p.sum()
                g[w] += 1
                th[t] += rate * A * g / N
    return [row.tolist() for row in th]
"""),
    ("simple-grpo", "each answer is divided by its own length and the group, so words of short "
     "answers count for more", """
import torch
def grpo(theta, sample, reward, group, rate, steps):
    for _ in range(steps):
        answers = sample(theta, group)
        rs = [reward(a) for a in answers]
        mean = sum(rs) / len(rs)
        th = [torch.tensor(row, dtype=torch.float64, requires_grad=True) for row in theta]
        J = sum((r - mean) * sum(th[t].log_softmax(0)[w] for t, w in enumerate(a)) / len(a)
                for a, r in zip(answers, rs)) / group
        J.backward()
        theta = [(x + rate * (0 if x.grad is None else x.grad)).tolist() for x in th]
    return theta
"""),
    ("simple-grpo", "the baseline is the mean of all rewards so far, not of this step's group: "
     "right in the first step only", """
import math
def grpo(theta, sample, reward, group, rate, steps):
    seen = []
    for _ in range(steps):
        answers = sample(theta, group)
        rewards = [reward(a) for a in answers]
        seen += rewards
        base = sum(seen) / len(seen)
        words = sum(len(a) for a in answers)
        probs = [[math.exp(x) / sum(map(math.exp, row)) for x in row] for row in theta]
        grad = [[0.0] * len(row) for row in theta]
        for a, r in zip(answers, rewards):
            for t, w in enumerate(a):
                for v, p in enumerate(probs[t]):
                    grad[t][v] += (r - base) * ((1.0 if v == w else 0.0) - p) / words
        theta = [[x + rate * g for x, g in zip(r1, r2)] for r1, r2 in zip(theta, grad)]
    return theta
"""),
    ("simple-grpo", "answers whose advantage is 0 are left out of N as well, so the step is too "
     "long when there are any", """
import numpy as np
def grpo(theta, sample, reward, group, rate, steps):
    for _ in range(steps):
        answers = sample(theta, group)
        r = np.array([reward(a) for a in answers], float)
        kept = [(a, x) for a, x in zip(answers, r - r.mean()) if x != 0]
        N = sum(len(a) for a, _ in kept)
        step = [np.zeros(len(row)) for row in theta]
        for a, x in kept:
            for t, w in enumerate(a):
                p = np.exp(theta[t]) / np.exp(theta[t]).sum()
                step[t] += x * (np.eye(len(p))[w] - p) / N
        theta = [(np.array(row) + rate * s).tolist() for row, s in zip(theta, step)]
    return theta
"""),
    ("simple-grpo", "always samples by the table it was given at first, not by the one it has learned", """
import numpy as np
def grpo(theta, sample, reward, group, rate, steps):
    th = [np.array(row, dtype=float) for row in theta]
    for _ in range(steps):
        answers = sample(theta, group)
        rs = [reward(a) for a in answers]
        A = np.array(rs) - np.mean(rs)
        N = sum(len(a) for a in answers)
        g = [np.zeros_like(row) for row in th]
        for a, x in zip(answers, A):
            for t, w in enumerate(a):
                p = np.exp(th[t] - th[t].max())
                g[t] -= x * p / p.sum() / N
                g[t][w] += x / N
        th = [row + rate * d for row, d in zip(th, g)]
    return [row.tolist() for row in th]
"""),
)
