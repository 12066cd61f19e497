"""Wrong answers as students write them: (exercise, what went wrong in words, the answer). Written after the
graders, in styles of their own (torch, numpy, comprehensions), without regard to the planted mistakes."""

STUDENTS = (
    # Bradley-Terry
    ("bradley-terry", "adds the gradient instead of subtracting it", """
import torch
def fit(pairs, items, rate, steps):
    r = torch.zeros(items, requires_grad=True)
    w, l = zip(*pairs)
    for _ in range(steps):
        loss = -torch.nn.functional.logsigmoid(r[list(w)] - r[list(l)]).mean()
        g, = torch.autograd.grad(loss, r)
        r = (r + rate * g).detach().requires_grad_()
    return r
"""),
    ("bradley-terry", "sums the losses", """
import torch
def fit(pairs, items, rate, steps):
    r = torch.zeros(items, requires_grad=True)
    w, l = map(list, zip(*pairs))
    opt = torch.optim.SGD([r], lr=rate)
    for _ in range(steps):
        opt.zero_grad()
        loss = -torch.nn.functional.logsigmoid(r[w] - r[l]).sum()
        loss.backward()
        opt.step()
    return r.detach()
"""),
    ("bradley-terry", "forgets zero_grad, so gradients pile up", """
import torch
def fit(pairs, items, rate, steps):
    r = torch.zeros(items, requires_grad=True)
    w, l = map(list, zip(*pairs))
    opt = torch.optim.SGD([r], lr=rate)
    for _ in range(steps):
        (-torch.nn.functional.logsigmoid(r[w] - r[l]).mean()).backward()
        opt.step()
    return r.detach()
"""),
    ("bradley-terry", "Adam instead of plain descent", """
import torch
def fit(pairs, items, rate, steps):
    r = torch.zeros(items, requires_grad=True)
    w, l = map(list, zip(*pairs))
    opt = torch.optim.Adam([r], lr=rate)
    for _ in range(steps):
        opt.zero_grad()
        (-torch.nn.functional.logsigmoid(r[w] - r[l]).mean()).backward()
        opt.step()
    return r.detach()
"""),
    ("bradley-terry", "one step too few", """
import math
def fit(pairs, items, rate, steps):
    r = [0.0] * items
    for _ in range(1, steps):
        g = [0.0] * items
        for w, l in pairs:
            p = 1 / (1 + math.exp(r[w] - r[l]))
            g[w] -= p
            g[l] += p
        for i in range(items):
            r[i] -= rate * g[i] / len(pairs)
    return r
"""),
    ("bradley-terry", "squared error on the gap in place of the logistic loss", """
def fit(pairs, items, rate, steps):
    r = [0.0] * items
    for _ in range(steps):
        g = [0.0] * items
        for w, l in pairs:
            e = (r[w] - r[l]) - 1
            g[w] += 2 * e / len(pairs)
            g[l] -= 2 * e / len(pairs)
        r = [x - rate * y for x, y in zip(r, g)]
    return r
"""),
    # the audit
    ("bias-audit", "compares the edit with the padded edit of the first answer", """
import numpy as np
def audit(score, answers, edits, pad):
    sd = np.std([score(a) for a in answers])
    out = {}
    for name, f in edits.items():
        n = max(0, len(f(answers[0]).split()) - len(answers[0].split()))
        whole = np.mean([score(f(a)) - score(a) for a in answers]) / sd
        out[name] = (whole, np.mean([score(f(a)) - score(pad(a, n)) for a in answers]) / sd)
    return out
"""),
    ("bias-audit", "sample standard deviation from statistics.stdev", """
from statistics import mean, stdev
def audit(score, answers, edits, pad):
    s = stdev([score(a) for a in answers])
    out = {}
    for k, f in edits.items():
        d = [score(f(a)) - score(a) for a in answers]
        e = [score(f(a)) - score(pad(a, max(0, len(f(a).split()) - len(a.split())))) for a in answers]
        out[k] = [mean(d) / s, mean(e) / s]
    return out
"""),
    ("bias-audit", "divides by the spread of the differences", """
import numpy as np
def audit(score, answers, edits, pad):
    out = {}
    for k, f in edits.items():
        d = np.array([score(f(a)) - score(a) for a in answers])
        n = [max(0, len(f(a).split()) - len(a.split())) for a in answers]
        e = np.array([score(f(a)) - score(pad(a, k)) for a, k in zip(answers, n)])
        out[k] = [d.mean() / (d.std() + 1e-9), e.mean() / (e.std() + 1e-9)]
    return out
"""),
    # log-probs
    ("log-probs", "no shift", """
import torch
def log_probs(logits, tokens, mask):
    lp = torch.tensor(logits).log_softmax(-1)
    return lp.gather(-1, torch.tensor(tokens)[:, None]).squeeze(-1) * torch.tensor(mask)
"""),
    ("log-probs", "softmax over dim 0", """
import torch
def log_probs(logits, tokens, mask):
    lp = torch.tensor(logits).log_softmax(0)
    out = [0.0]
    for t in range(1, len(tokens)):
        out.append(lp[t - 1, tokens[t]].item() if mask[t] else 0.0)
    return out
"""),
    ("log-probs", "drops the first place, so the list is one short", """
import torch
def log_probs(logits, tokens, mask):
    lp = torch.tensor(logits).log_softmax(-1)
    return [lp[t - 1, tokens[t]].item() if mask[t] else 0.0 for t in range(1, len(tokens))]
"""),
    ("log-probs", "naive softmax, then log", """
import numpy as np
def log_probs(logits, tokens, mask):
    out = [0.0]
    for t in range(1, len(tokens)):
        e = np.exp(logits[t - 1])
        out.append(np.log(e[tokens[t]] / e.sum()) if mask[t] else 0.0)
    return out
"""),
    ("log-probs", "log base 2", """
import math
def log_probs(logits, tokens, mask):
    out = [0.0] * len(tokens)
    for t in range(1, len(tokens)):
        x = logits[t - 1]
        m = max(x)
        if mask[t]:
            out[t] = math.log2(math.exp(x[tokens[t]] - m) / sum(math.exp(v - m) for v in x) + 1e-300)
    return out
"""),
    ("log-probs", "leaves out the masked places instead of a 0", """
import torch
def log_probs(logits, tokens, mask):
    lp = torch.tensor(logits).log_softmax(-1)
    return [lp[t - 1, tokens[t]].item() for t in range(1, len(tokens)) if mask[t]]
"""),
    # GAE
    ("gae", "bootstraps with the last value", """
import numpy as np
def gae(rewards, values, gamma, lam):
    v = np.append(values, values[-1])
    a, out = 0.0, []
    for t in range(len(rewards) - 1, -1, -1):
        a = rewards[t] + gamma * v[t + 1] - v[t] + gamma * lam * a
        out.insert(0, a)
    return out
"""),
    ("gae", "returns the list backwards", """
def gae(rewards, values, gamma, lam):
    out, a, nxt = [], 0.0, 0.0
    for r, v in zip(reversed(rewards), reversed(values)):
        a = r + gamma * nxt - v + gamma * lam * a
        nxt = v
        out.append(a)
    return out
"""),
    ("gae", "normalises the advantages at the end", """
import numpy as np
def gae(rewards, values, gamma, lam):
    v = [*values, 0.0]
    a, out = 0.0, [0.0] * len(rewards)
    for t in reversed(range(len(rewards))):
        a = rewards[t] + gamma * v[t + 1] - v[t] + gamma * lam * a
        out[t] = a
    out = np.array(out)
    return (out - out.mean()) / (out.std() + 1e-8)
"""),
    ("gae", "uses this token's advantage in the recursion with (1 - lam)", """
def gae(rewards, values, gamma, lam):
    v = [*values, 0.0]
    a, out = 0.0, [0.0] * len(rewards)
    for t in reversed(range(len(rewards))):
        a = (1 - lam) * (rewards[t] + gamma * v[t + 1] - v[t]) + gamma * lam * a
        out[t] = a
    return out
"""),
    # the clipped surrogate
    ("clipped-surrogate", "only the clipped term", """
import torch
def surrogate(logp, old_logp, adv, eps):
    r = torch.exp(torch.tensor(logp) - torch.tensor(old_logp))
    return -torch.clamp(r, 1 - eps, 1 + eps) * torch.tensor(adv)
"""),
    ("clipped-surrogate", "min of the losses: the sign was taken inside", """
import torch
def surrogate(logp, old_logp, adv, eps):
    r = torch.exp(torch.tensor(logp) - torch.tensor(old_logp))
    a = torch.tensor(adv)
    return torch.min(-r * a, -torch.clamp(r, 1 - eps, 1 + eps) * a)
"""),
    ("clipped-surrogate", "returns the mean", """
import torch
def surrogate(logp, old_logp, adv, eps):
    r = torch.exp(torch.tensor(logp) - torch.tensor(old_logp))
    a = torch.tensor(adv)
    return -torch.min(r * a, torch.clamp(r, 1 - eps, 1 + eps) * a).mean()
"""),
    ("clipped-surrogate", "clips the log-ratio by eps", """
import torch
def surrogate(logp, old_logp, adv, eps):
    d = torch.tensor(logp) - torch.tensor(old_logp)
    a = torch.tensor(adv)
    return -torch.min(d.exp() * a, d.clamp(-eps, eps).exp() * a)
"""),
    # KL
    ("kl-estimators", "k3 with the ratio upside down", """
import torch
def kl(logp, ref_logp):
    d = torch.tensor(logp) - torch.tensor(ref_logp)
    return d.mean(), 0.5 * d.pow(2).mean(), (d.exp() - 1 - d).mean()
"""),
    ("kl-estimators", "square of the mean in k2", """
import numpy as np
def kl(logp, ref_logp):
    d = np.array(logp) - np.array(ref_logp)
    return d.mean(), d.mean() ** 2 / 2, (np.exp(-d) - 1 + d).mean()
"""),
    ("kl-estimators", "returns lists per token", """
import numpy as np
def kl(logp, ref_logp):
    d = np.array(logp) - np.array(ref_logp)
    return d, d ** 2 / 2, np.exp(-d) - 1 + d
"""),
    # DPO
    ("dpo", "reference subtracted on one side only", """
import math
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    x = beta * ((chosen - ref_chosen) - rejected)
    s = 1 / (1 + math.exp(min(x, 700)))
    loss = max(-x, 0) + math.log1p(math.exp(-abs(x)))
    return loss, -beta * s, beta * s
"""),
    ("dpo", "naive sigmoid and log", """
import math
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    x = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    s = 1 / (1 + math.exp(-x))
    return -math.log(s), -beta * (1 - s), beta * (1 - s)
"""),
    ("dpo", "gradient without the doubt", """
import math
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    x = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    return max(-x, 0) + math.log1p(math.exp(-abs(x))), -beta, beta
"""),
    ("dpo", "only the loss", """
import torch
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    x = torch.tensor(beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))
    return -torch.nn.functional.logsigmoid(x)
"""),
    ("dpo", "detached: no gradient comes back", """
import torch
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    c, r = torch.tensor(chosen, requires_grad=True), torch.tensor(rejected, requires_grad=True)
    x = beta * ((c.detach() - ref_chosen) - (r - ref_rejected))
    loss = -torch.nn.functional.logsigmoid(x)
    loss.backward()
    return loss, 0.0 if c.grad is None else c.grad, r.grad
"""),
    # group advantages
    ("group-advantages", "torch.std with its default correction", """
import torch
def advantages(rewards, group):
    r = torch.tensor(rewards).view(-1, group)
    return ((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-6)).flatten()
"""),
    ("group-advantages", "view the wrong way round", """
import torch
def advantages(rewards, group):
    r = torch.tensor(rewards).view(group, -1)
    return ((r - r.mean(0)) / (r.std(0, correction=0) + 1e-6)).flatten()
"""),
    ("group-advantages", "a large epsilon", """
import numpy as np
def advantages(rewards, group):
    r = np.array(rewards).reshape(-1, group)
    return ((r - r.mean(1, keepdims=True)) / (r.std(1, keepdims=True) + 0.1)).ravel()
"""),
    ("group-advantages", "divides by zero in numpy: nan", """
import numpy as np
def advantages(rewards, group):
    r = np.array(rewards).reshape(-1, group)
    return ((r - r.mean(1, keepdims=True)) / r.std(1, keepdims=True)).ravel()
"""),
    ("group-advantages", "returns a nested list", """
import numpy as np
def advantages(rewards, group):
    r = np.array(rewards).reshape(-1, group)
    return (r - r.mean(1, keepdims=True)) / (r.std(1, keepdims=True) + 1e-8)
"""),
    ("group-advantages", "min-max instead of z-score", """
def advantages(rewards, group):
    out = []
    for i in range(0, len(rewards), group):
        g = rewards[i:i + group]
        lo, hi = min(g), max(g)
        out += [(2 * (r - lo) / (hi - lo) - 1) if hi > lo else 0.0 for r in g]
    return out
"""),
    # the verifier
    ("verifier", "case-insensitive search anywhere", """
import re
def verify(text, gold):
    m = re.search(r"answer:\\s*(-?\\d+)", text, re.I)
    return 1.0 if m and int(m.group(1)) == gold else 0.0
"""),
    ("verifier", "strips to digits", """
def verify(text, gold):
    last = text.strip().split("\\n")[-1]
    if not last.startswith("Answer:"):
        return 0.0
    digits = "".join(c for c in last if c in "-0123456789")
    try:
        return float(int(digits) == gold)
    except ValueError:
        return 0.0
"""),
    ("verifier", "findall, last claim wins", """
import re
def verify(text, gold):
    found = re.findall(r"^\\s*Answer: ([+-]?[0-9]{1,18})\\s*$", text, re.M)
    return float(bool(found) and int(found[-1]) == gold)
"""),
    ("verifier", "splitlines()[-1] on an empty text", """
import re
def verify(text, gold):
    last = text.strip().splitlines()[-1].strip()
    m = re.fullmatch(r"Answer: ([+-]?[0-9]{1,18})", last)
    return float(m is not None and int(m[1]) == gold and text.count("Answer:") == 1)
"""),
    # pass@k
    ("pass-at-k", "with replacement", """
def pass_at_k(n, c, k):
    p = c / n
    q = 1.0
    for _ in range(k):
        q *= 1 - p
    return 1 - q
"""),
    ("pass-at-k", "off by one in the product", """
def pass_at_k(n, c, k):
    if n - c < k:
        return 1.0
    p = 1.0
    for i in range(k - 1):
        p *= (n - c - i) / (n - i)
    return 1 - p
"""),
    ("pass-at-k", "special case the wrong way round", """
from math import comb
def pass_at_k(n, c, k):
    if n - c <= k:
        return 1.0
    return 1 - comb(n - c, k) / comb(n, k)
"""),
    # GRPO
    ("simple-grpo", "gradient flows through the baseline of each answer's own mean of words", """
import torch
def grpo(theta, sample, reward, group, rate, steps):
    th = torch.tensor(theta, dtype=torch.float64)
    for _ in range(steps):
        th = th.detach().requires_grad_()
        answers = sample(th.tolist(), group)
        R = torch.tensor([reward(a) for a in answers], dtype=torch.float64)
        A = R - R.mean()
        lp = th.log_softmax(-1)
        J = sum(a * torch.stack([lp[t, w] for t, w in enumerate(ans)]).mean() for a, ans in zip(A, answers))
        (J / group).backward()
        th = th + rate * th.grad
    return th
"""),
    ("simple-grpo", "softmax over the wrong axis", """
import torch
def grpo(theta, sample, reward, group, rate, steps):
    th = torch.tensor(theta, dtype=torch.float64)
    for _ in range(steps):
        th = th.detach().requires_grad_()
        answers = sample(th.tolist(), group)
        R = torch.tensor([reward(a) for a in answers], dtype=torch.float64)
        lp = th.log_softmax(0)
        J = sum((r - R.mean()) * lp[t, w] for r, ans in zip(R, answers) for t, w in enumerate(ans))
        (J / sum(map(len, answers))).backward()
        th = th + rate * th.grad
    return th
"""),
    ("simple-grpo", "probabilities in place of log-probabilities", """
import torch
def grpo(theta, sample, reward, group, rate, steps):
    th = torch.tensor(theta, dtype=torch.float64)
    for _ in range(steps):
        th = th.detach().requires_grad_()
        answers = sample(th.tolist(), group)
        R = torch.tensor([reward(a) for a in answers], dtype=torch.float64)
        p = th.softmax(-1)
        J = sum((r - R.mean()) * p[t, w] for r, ans in zip(R, answers) for t, w in enumerate(ans))
        (J / sum(map(len, answers))).backward()
        th = th + rate * th.grad
    return th
"""),
    ("simple-grpo", "minimises -J with the sign lost", """
import torch
def grpo(theta, sample, reward, group, rate, steps):
    th = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    opt = torch.optim.SGD([th], lr=rate)
    for _ in range(steps):
        answers = sample(th.tolist(), group)
        R = torch.tensor([reward(a) for a in answers], dtype=torch.float64)
        lp = th.log_softmax(-1)
        loss = sum((r - R.mean()) * lp[t, w] for r, ans in zip(R, answers) for t, w in enumerate(ans))
        opt.zero_grad()
        (loss / sum(map(len, answers))).backward()
        opt.step()
    return th.detach()
"""),
    # the row
    ("new-row", "median without keepdim, broadcast across prompts", """
from functools import partial
import torch
from postgrad import method
from postgrad.maths.surrogate import clipped_ratio
from postgrad.maths.weights import token_mean
def credit(reward, mask, group_size):
    r = reward.sum(1)
    g = r.view(-1, group_size)
    med = g.quantile(0.5, dim=1).repeat(group_size)
    return (r - med)[:, None] * mask
def row():
    return method("grpo", name="median", credit=credit, surrogate=partial(clipped_ratio, low=0.2, high=0.28),
                  weigh=token_mean, kl_in_loss=0.0)
"""),
    ("new-row", "reward only on the last token: not spread over the answer", """
from functools import partial
import torch
from postgrad import method
from postgrad.maths.surrogate import clipped_ratio
from postgrad.maths.weights import token_mean
def credit(reward, mask, group_size):
    g = reward.sum(1).view(-1, group_size)
    adv = (g - g.quantile(0.5, 1, keepdim=True)).view(-1, 1)
    return torch.where(reward != 0, adv, 0.0)
def row():
    return method("grpo", name="median", credit=credit, surrogate=partial(clipped_ratio, low=0.2, high=0.28),
                  weigh=token_mean, kl_in_loss=0.0)
"""),
    # hacking
    ("reward-hacking", "probabilities times exp, no protection", """
import numpy as np
def hack(reference, proxy, gold, betas):
    q, r, g = map(np.array, (reference, proxy, gold))
    pts = []
    for b in betas:
        p = q * np.exp(r / b)
        p = p / p.sum()
        pts.append((np.sum(p * np.log(p / q)), p @ r, p @ g))
    return pts, betas[int(np.argmax([x[2] for x in pts]))]
"""),
    ("reward-hacking", "cure by proxy less KL", """
import torch
def hack(reference, proxy, gold, betas):
    q, r, g = (torch.tensor(x, dtype=torch.float64) for x in (reference, proxy, gold))
    pts = []
    for b in betas:
        lp = (q.log() + r / b).log_softmax(0)
        p = lp.exp()
        pts.append(((p * (lp - q.log())).sum().item(), (p @ r).item(), (p @ g).item()))
    best = max(range(len(betas)), key=lambda i: pts[i][1] - pts[i][0])
    return pts, betas[best]
"""),
    # curves
    ("broken-run", "reward up is healthy, down is turned", """
def diagnose(curves):
    r = curves["reward"]
    if r[-1] > r[0] + 0.05:
        return "healthy"
    return "turned" if r[-1] < r[0] else "starved"
"""),
    ("broken-run", "low entropy at the end is the rate", """
def diagnose(curves):
    if max(curves["reward"]) == 0:
        return "starved"
    if curves["entropy"][-1] < 0.6:
        return "rate"
    if curves["accuracy"][-1] > curves["accuracy"][0]:
        return "healthy"
    return "hacked" if curves["reward"][-1] > curves["reward"][0] else "turned"
"""),
    ("broken-run", "KL above 1 is hacked", """
def diagnose(curves):
    if curves["kl"][-1] > 1:
        return "hacked"
    if curves["flat"][-1] > 0.9:
        return "starved"
    return "turned"
"""),
)

# Which of them made one of the known mistakes, and how what they are told begins; of the others no known one
# may be named.
NAMED = {
    "adds the gradient instead of subtracting it": "You went up the loss",
    "sums the losses": "You summed over the pairs",
    "compares the edit with the padded edit of the first answer": "You padded every answer by as many",
    "sample standard deviation from statistics.stdev": "Your spread divides by n - 1",
    "no shift": "You read a token's log-probability at its own place",
    "softmax over dim 0": "You normalised over the places",
    "naive softmax, then log": "It overflows",
    "bootstraps with the last value": "You took the last value as the value after the end",
    "only the clipped term": "You took the clipped term alone",
    "min of the losses: the sign was taken inside": "You took the larger of the two",
    "k3 with the ratio upside down": "Your k3 has the ratio the wrong way round",
    "naive sigmoid and log": "It overflows",
    "torch.std with its default correction": "You divided the sum of squares by G - 1",
    "view the wrong way round": "You took every G-th reward as a group",
    "divides by zero in numpy: nan": "You divided by 0",
    "with replacement": "You drew with replacement",
    "gradient flows through the baseline of each answer's own mean of words": "You gave each answer its own "
                                                                              "mean",
    "minimises -J with the sign lost": "You went down the objective",
    "probabilities times exp, no protection": "It overflows",
    "low entropy at the end is the rate": "You took low entropy at the end",
}

# Planted mistakes again, made in right answers of another style (OTHERWISE of exercises_test.py): exercise,
# the change, and how what is told begins.
RESTYLED = (
    ("group-advantages", "r.std(1, keepdims=True)", "r.std()", "You divided by the standard deviation of "
                                                               "the batch"),
    ("group-advantages", "r.std(1, keepdims=True)", "r.std(1, ddof=1, keepdims=True)", "You divided the sum "
                                                                                       "of sq"),
    ("group-advantages", "r.std(1, keepdims=True)", "r.var(1, keepdims=True)", "You divided by the variance"),
    ("group-advantages", " / (r.std(1, keepdims=True) + 1e-8)", "", "You did not divide by the standard "
                                                                    "deviation"),
    ("group-advantages", "(r - r.mean(1, keepdims=True))", "r", "You did not subtract the mean"),
    ("group-advantages", "r - r.mean(1, keepdims=True)", "r.mean(1, keepdims=True) - r", "The sign is "
                                                                                         "turned round"),
    ("clipped-surrogate", "torch.maximum", "torch.minimum", "You took the larger of the two"),
    ("clipped-surrogate", "torch.tensor(logp) - torch.tensor(old_logp)", "torch.tensor(old_logp) - "
                                                                         "torch.tensor(logp)",
     "Your ratio is pi_old / pi"),
    ("clipped-surrogate", "clamp(1 - eps, 1 + eps)", "clamp(-eps, eps)", "You clipped to -eps and eps"),
    ("clipped-surrogate", "clamp(1 - eps, 1 + eps)", "clamp(max=1 + eps)", "You clipped above only"),
    ("clipped-surrogate", ".exp()", "", "Your ratio is a difference of logs"),
    ("clipped-surrogate", "torch.maximum(-ratio * a, -ratio.clamp(1 - eps, 1 + eps) * a)", "-ratio * a",
     "You did not clip at all"),
    ("dpo", "((c - ref_chosen) - (r - ref_rejected))", "(c - r)", "You left the reference out"),
    ("dpo", "-F.logsigmoid(beta", "-F.logsigmoid(-beta", "You swapped chosen and rejected"),
    ("dpo", "beta * ((c", "((c", "You left beta out"),
    ("dpo", "c.grad, r.grad", "c.grad / beta, r.grad / beta", "Your gradient lacks the factor beta"),
    ("dpo", "c.grad, r.grad", "-c.grad, -r.grad", "The signs of the derivatives"),
    ("log-probs", "[:-1].gather(1, torch.tensor(tokens)[1:, None])", "[1:].gather(1, "
                                                                     "torch.tensor(tokens)[1:, None])",
     "You read a token's log-probability at its own place"),
    ("log-probs", " * torch.tensor(mask)", "", "You did not use the mask"),
    ("log-probs", "torch.log_softmax(torch.tensor(logits), -1)", "torch.tensor(logits)", "You returned raw "
                                                                                         "logits"),
    ("log-probs", "torch.log_softmax", "torch.softmax", "You returned probabilities"),
    ("simple-grpo", "scores - scores.mean()", "scores", "There is no baseline"),
    ("simple-grpo", "theta + rate", "theta - rate", "You went down the objective"),
    ("simple-grpo", ".mean()).backward()", ".sum()).backward()", "You did not divide by the number of words"),
    ("simple-grpo", "scores - scores.mean()", "(scores - scores.mean()) / (scores.std(correction=0) + 1e-6)",
     "You divided by the standard deviation as well"),
    ("simple-grpo", "scores - scores.mean()", "(scores - scores.mean()).clamp(min=0)", "You kept only the "
                                                                                       "answers above"),
    ("simple-grpo", "in enumerate(answer)]", "in enumerate(answer[:-1])]", "You left the last word out"),
    ("kl-estimators", "np.subtract(logp, ref_logp)", "np.subtract(ref_logp, logp)", "Your d is ref_logp - "
                                                                                    "logp"),
    ("kl-estimators", "d ** 2 / 2", "d ** 2", "Your k2 lacks the half"),
    ("kl-estimators", "np.expm1(-d) + d", "np.exp(-d) + d", "Your k3 lacks the -1"),
    ("kl-estimators", "d.mean(), (d", "abs(d).mean(), (d", "You took absolute values"),
    ("pass-at-k", "    if n - c < k", "    return 1 - (1 - c / n) ** k\n    if n - c < k", "You drew with "
                                                                                           "replacement"),
    ("pass-at-k", "1.0 - np.prod", "np.prod", "You gave the chance that all k are wrong"),
)
