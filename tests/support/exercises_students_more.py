"""Further wrong answers of exercises_students.py, from there on where a policy is trained."""

MORE = (
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
