"""Wrong answers by somebody who had read the statements and not the graders, all of them written down before
the first was judged: (exercise, what is wrong in words, the answer)."""

from exercises_strangers_four import FOUR
from exercises_strangers_three import THREE
from exercises_strangers_two import TWO

STRANGERS = (
    ("bradley-terry", "the rewards are changed after each pair, so later pairs of a step see "
     "rewards that have already moved", """
from math import exp
def fit(pairs, items, rate, steps):
    r = [0.0] * items
    for _ in range(steps):
        for w, l in pairs:
            push = rate * (1 - 1 / (1 + exp(r[l] - r[w]))) / len(pairs)
            r[w] += push
            r[l] -= push
    return r
"""),
    ("bradley-terry", "the gradient is never set back to zero, so each step adds the gradients of "
     "all steps before it", """
import torch
def fit(pairs, items, rate, steps):
    r = torch.zeros(items, dtype=torch.float64, requires_grad=True)
    win = torch.tensor([p[0] for p in pairs])
    lose = torch.tensor([p[1] for p in pairs])
    for _ in range(steps):
        loss = -torch.nn.functional.logsigmoid(r[win] - r[lose]).mean()
        loss.backward()
        with torch.no_grad():
            r -= rate * r.grad
    return r.tolist()
"""),
    ("bradley-terry", "the loop ends as soon as the gradient is small, though all steps were asked for", """
import numpy as np
def fit(pairs, items, rate, steps):
    pairs = np.array(pairs)
    w, l = pairs[:, 0], pairs[:, 1]
    r = np.zeros(items)
    for _ in range(steps):
        s = 1 / (1 + np.exp(r[w] - r[l])) / len(pairs)
        g = np.zeros(items)
        np.add.at(g, w, -s)
        np.add.at(g, l, s)
        if np.abs(g).max() < 0.02:
            break
        r = r - rate * g
    return r.tolist()
"""),
    ("bradley-terry", "fancy indexing with += counts an item once in a step, however many pairs it stands in",
     """
import numpy as np
def fit(pairs, items, rate, steps):
    w, l = np.array(pairs).T
    r = np.zeros(items)
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(r[w] - r[l])))
        g = np.zeros(items)
        g[w] += -(1 - p)
        g[l] += 1 - p
        r -= rate * g / len(pairs)
    return list(r)
"""),
    ("bradley-terry", "items are taken from the pairs, so an item that no pair names is missing "
     "from the list", """
from math import exp
def fit(pairs, items, rate, steps):
    r = {i: 0.0 for pair in pairs for i in pair}
    for _ in range(steps):
        g = dict.fromkeys(r, 0.0)
        for w, l in pairs:
            d = 1 / (1 + exp(r[w] - r[l]))
            g[w] += d / len(pairs)
            g[l] -= d / len(pairs)
        r = {i: r[i] + rate * g[i] for i in r}
    return [r[i] for i in sorted(r)]
"""),
    ("bradley-terry", "each item's gradient is divided by the number of pairs it stands in, not "
     "by the number of all pairs", """
import math
def fit(pairs, items, rate, steps):
    rewards = [0.0] * items
    seen = [sum(i in p for p in pairs) for i in range(items)]
    for _ in range(steps):
        grad = [0.0] * items
        for winner, loser in pairs:
            miss = 1 / (1 + math.exp(rewards[winner] - rewards[loser]))
            grad[winner] -= miss
            grad[loser] += miss
        rewards = [r - rate * g / max(n, 1) for r, g, n in zip(rewards, grad, seen)]
    return rewards
"""),
    ("bias-audit", "the spread is the sample's standard deviation, with n - 1", """
import statistics
def audit(score, answers, edits, pad):
    sd = statistics.stdev(score(a) for a in answers)
    found = {}
    for name, edit in edits.items():
        n = [max(0, len(edit(a).split()) - len(a.split())) for a in answers]
        whole = statistics.mean((score(edit(a)) - score(a)) / sd for a in answers)
        beyond = statistics.mean((score(edit(a)) - score(pad(a, k))) / sd for a, k in zip(answers, n))
        found[name] = (whole, beyond)
    return found
"""),
    ("bias-audit", "A negative number of words is handed to pad where the edit takes words away; "
     "it should be 0", """
import numpy as np
def audit(score, answers, edits, pad):
    base = np.array([score(a) for a in answers])
    out = {}
    for name, f in edits.items():
        new = [f(a) for a in answers]
        s = np.array([score(e) for e in new])
        padded = np.array([score(pad(a, len(e.split()) - len(a.split()))) for a, e in zip(answers, new)])
        out[name] = (float((s - base).mean() / base.std()), float((s - padded).mean() / base.std()))
    return out
"""),
    ("bias-audit", "all answers are padded by the mean number of added words, not each by its own", """
from statistics import mean, pstdev
def audit(score, answers, edits, pad):
    spread = pstdev([score(a) for a in answers])
    found = {}
    for name, edit in edits.items():
        n = round(mean(len(edit(a).split()) - len(a.split()) for a in answers))
        n = max(n, 0)
        found[name] = (mean(score(edit(a)) - score(a) for a in answers) / spread,
                       mean(score(edit(a)) - score(pad(a, n)) for a in answers) / spread)
    return found
"""),
    ("bias-audit", "scores are kept in a dict by text, so equal answers count once in the spread", """
from statistics import fmean, pstdev
def audit(score, answers, edits, pad):
    known = {a: score(a) for a in answers}
    spread = pstdev(known.values())
    found = {}
    for name, edit in edits.items():
        whole, beyond = [], []
        for a in answers:
            e = edit(a)
            more = max(0, len(e.split()) - len(a.split()))
            whole.append(score(e) - known[a])
            beyond.append(score(e) - score(pad(a, more)))
        found[name] = (fmean(whole) / spread, fmean(beyond) / spread)
    return found
"""),
    ("bias-audit", "words are counted with split(\" \"), so double spaces and line breaks are "
     "counted wrongly", """
def audit(score, answers, edits, pad):
    def avg(x):
        return sum(x) / len(x)
    b = [score(a) for a in answers]
    sd = avg([(x - avg(b)) ** 2 for x in b]) ** .5
    res = {}
    for k, f in edits.items():
        w = [score(f(a)) - score(a) for a in answers]
        y = [score(f(a)) - score(pad(a, max(0, len(f(a).split(" ")) - len(a.split(" "))))) for a in answers]
        res[k] = (avg(w) / sd, avg(y) / sd)
    return res
"""),
    ("bias-audit", "the padding is added to the edited answer, so beyond is what the padding does to it", """
from statistics import mean, pstdev
def audit(score, answers, edits, pad):
    spread = pstdev(map(score, answers))
    found = {}
    for name, edit in edits.items():
        whole, beyond = [], []
        for answer in answers:
            edited = edit(answer)
            n = max(0, len(edited.split()) - len(answer.split()))
            whole.append((score(edited) - score(answer)) / spread)
            beyond.append((score(edited) - score(pad(edited, n))) / spread)
        found[name] = mean(whole), mean(beyond)
    return found
"""),
    ("log-probs", "the first token's number is taken from logits[-1], the last row, when the mask allows it",
     """
import math
def log_probs(logits, tokens, mask):
    out = []
    for t in range(len(tokens)):
        row = logits[t - 1]
        top = max(row)
        lse = top + math.log(sum(math.exp(x - top) for x in row))
        out.append((row[tokens[t]] - lse) if mask[t] else 0.0)
    return out
"""),
    ("log-probs", "the log is taken after the softmax, so an unlikely token's probability "
     "underflows to log(0)", """
import numpy as np
def log_probs(logits, tokens, mask):
    x = np.array(logits, dtype=float)
    p = np.exp(x - x.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    out = [0.0]
    for t in range(1, len(tokens)):
        out.append(float(np.log(p[t - 1, tokens[t]])) if mask[t] else 0.0)
    return out
"""),
    ("log-probs", "one maximum over all rows is taken off, so a row far below it underflows", """
import numpy as np
def log_probs(logits, tokens, mask):
    x = np.asarray(logits, float)
    x = x - x.max()
    logp = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    got = [0.0] + [logp[t, tokens[t + 1]] for t in range(len(tokens) - 1)]
    return [float(g) if m else 0.0 for g, m in zip(got, mask)]
"""),
    ("log-probs", "the mask of the place before is used: the mask moves with the logits", """
import torch
def log_probs(logits, tokens, mask):
    lp = torch.log_softmax(torch.tensor(logits, dtype=torch.float64), -1)[:-1]
    picked = lp.gather(1, torch.tensor(tokens)[1:, None]).squeeze(1)
    picked = picked * torch.tensor(mask)[:-1]
    return [0.0] + picked.tolist()
"""),
    ("log-probs", "logits are cut at 700 against overflow, which changes the probabilities", """
from math import exp, log
def log_probs(logits, tokens, mask):
    res = [0] * len(tokens)
    for t in range(1, len(tokens)):
        if not mask[t]:
            continue
        row = [min(x, 700) for x in logits[t - 1]]
        res[t] = row[tokens[t]] - log(sum(exp(x) for x in row))
    return res
"""),
    ("log-probs", "the answer is taken for one piece that ends at the first False after it: "
     "tokens after a tool reply get 0", """
import math
def log_probs(logits, tokens, mask):
    out = [0.0] * len(tokens)
    if True not in mask:
        return out
    t = list(mask).index(True)
    while t < len(tokens) and mask[t]:
        if t > 0:
            row = logits[t - 1]
            m = max(row)
            out[t] = row[tokens[t]] - m - math.log(sum(math.exp(v - m) for v in row))
        t += 1
    return out
"""),
    *TWO,
    *THREE,
    *FOUR,
)
