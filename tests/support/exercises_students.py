"""Wrong answers as students write them: (exercise, what went wrong in words, the answer). Written after the
graders, in styles of their own (torch, numpy, comprehensions), without regard to the planted mistakes."""

from exercises_students_more import MORE

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
    *MORE,
)
