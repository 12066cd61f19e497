"""Wrong answers by somebody who had not read the graders, continued: see exercises_strangers.py."""

HEAD = """
from functools import partial
import torch
from postgrad import method
from postgrad.maths.surrogate import clipped_ratio
from postgrad.maths.weights import token_mean
"""
TAIL = """
def row():
    return method("grpo", name="median", credit=median_centre, weigh=token_mean, kl_in_loss=0.0,
                  surrogate=partial(clipped_ratio, low=0.2, high=0.28))
"""

FOUR = (
    ("new-row", "torch's median of an even number is the lower of the two in the middle, not their mean",
     HEAD + """
def median_centre(reward, mask, group_size):
    s = reward.sum(1).view(-1, group_size)
    adv = s - s.median(dim=1, keepdim=True).values
    return adv.view(-1, 1) * mask
""" + TAIL),
    ("new-row", "the groups are read as columns: lines that stand apart are put together", HEAD + """
def median_centre(reward, mask, group_size):
    s = (reward * mask).sum(-1).reshape(group_size, -1)
    med = torch.quantile(s, 0.5, dim=0)
    return (s - med).reshape(-1)[:, None] * mask
""" + TAIL),
    ("new-row", "begins with DAPO's row, which also samples flat groups anew and limits the length",
     HEAD + """
def median_centre(reward, mask, group_size):
    s = reward.sum(1).view(-1, group_size)
    adv = s - s.quantile(0.5, dim=1, keepdim=True)
    return torch.where(mask, adv.view(-1, 1), 0.0)
def row():
    return method("dapo", name="median", credit=median_centre)
"""),
    ("new-row", "the bounds are the wrong way round: low 0.28, high 0.2", HEAD + """
def median_centre(reward, mask, group_size):
    s = reward.sum(1).view(-1, group_size)
    adv = s - s.quantile(0.5, dim=1, keepdim=True)
    return torch.where(mask, adv.view(-1, 1), 0.0)
def row():
    return method("grpo", name="median", credit=median_centre, weigh=token_mean, kl_in_loss=0,
                  surrogate=partial(clipped_ratio, high=0.2, low=0.28))
"""),
    ("new-row", "the credit stands on the last sampled token only, not on every one", HEAD + """
def median_centre(reward, mask, group_size):
    s = reward.sum(1).view(-1, group_size)
    adv = (s - s.quantile(0.5, dim=1, keepdim=True)).view(-1)
    out = torch.zeros_like(reward)
    last = mask.shape[1] - 1 - mask.int().flip(1).argmax(1)
    out[torch.arange(len(out)), last] = adv
    return torch.where(mask, out, 0.0)
""" + TAIL),
    ("new-row", "the median is that of the other lines of the group, without the line itself", HEAD + """
def median_centre(reward, mask, group_size):
    total = reward.sum(1)
    out = torch.zeros_like(reward)
    for i in range(len(total)):
        start = i // group_size * group_size
        others = [total[j] for j in range(start, start + group_size) if j != i]
        base = torch.stack(others).quantile(0.5) if others else total[i]
        out[i] = total[i] - base
    return out * mask
""" + TAIL),
    ("new-row", "the mean over the sampled tokens is taken for the line's sum: a long line is paid less",
     HEAD + """
def median_centre(reward, mask, group_size):
    s = (reward * mask).sum(1) / mask.sum(1).clamp(min=1)
    s = s.reshape(-1, group_size)
    med = s.sort(1).values[:, [(group_size - 1) // 2, group_size // 2]].mean(1, keepdim=True)
    return torch.where(mask, (s - med).reshape(-1, 1), 0.0)
""" + TAIL),
    ("reward-hacking", "the best mean gold starts at -1: where all are worse than that, no beta is the cure",
     """
import math
def hack(reference, proxy, gold, betas):
    points, cure, best = [], None, -1
    for b in betas:
        top = max(proxy)
        w = [q * math.exp((r - top) / b) for q, r in zip(reference, proxy)]
        pi = [x / sum(w) for x in w]
        kl = sum(p * math.log(p / q) for p, q in zip(pi, reference) if p > 0)
        g = sum(p * x for p, x in zip(pi, gold))
        points.append((kl, sum(p * x for p, x in zip(pi, proxy)), g))
        if g > best:
            best, cure = g, b
    return points, cure
"""),
    ("reward-hacking", "the reference is left out of the policy; it is seen only where the "
     "reference is not uniform", """
import numpy as np
def hack(reference, proxy, gold, betas):
    q, r, g = (np.array(x, float) for x in (reference, proxy, gold))
    pts = []
    for b in betas:
        p = np.exp((r - r.max()) / b)
        p /= p.sum()
        ok = p > 0
        pts.append((float((p[ok] * np.log(p[ok] / q[ok])).sum()), float(p @ r), float(p @ g)))
    return pts, betas[int(np.argmax([x[2] for x in pts]))]
"""),
    ("reward-hacking", "the betas are sorted from large to small, so the triples do not stand in "
     "the order given", """
import math
def hack(reference, proxy, gold, betas):
    points = []
    betas = sorted(betas, reverse=True)
    for beta in betas:
        x = [math.log(q) + r / beta for q, r in zip(reference, proxy)]
        z = max(x) + math.log(sum(math.exp(i - max(x)) for i in x))
        pi = [math.exp(i - z) for i in x]
        points.append((sum(p * (i - z - math.log(q)) for p, i, q in zip(pi, x, reference)),
                       sum(p * r for p, r in zip(pi, proxy)), sum(p * g for p, g in zip(pi, gold))))
    return points, betas[max(range(len(betas)), key=lambda i: points[i][2])]
"""),
    ("reward-hacking", "0 log 0 is NaN: the probability of an answer underflows and numpy "
     "multiplies 0 by minus infinity", """
import numpy as np
def hack(reference, proxy, gold, betas):
    ref, proxy, gold = map(np.array, (reference, proxy, gold))
    points = []
    for beta in betas:
        pi = ref * np.exp((proxy - proxy.max()) / beta)
        pi = pi / pi.sum()
        kl = np.sum(pi * np.log(pi / ref))
        points.append((kl, (pi * proxy).sum(), (pi * gold).sum()))
    return points, max(zip(betas, points), key=lambda z: z[1][2])[0]
"""),
    ("reward-hacking", "the exponent is cut at 500: with a small beta all good answers become alike", """
from math import exp, log
def hack(reference, proxy, gold, betas):
    out = []
    for b in betas:
        w = [q * exp(max(-500, min(500, r / b))) for q, r in zip(reference, proxy)]
        p = [x / sum(w) for x in w]
        out.append((sum(x * log(x / q) for x, q in zip(p, reference) if x),
                    sum(x * r for x, r in zip(p, proxy)), sum(x * g for x, g in zip(p, gold))))
    best = max(o[2] for o in out)
    return out, betas[[o[2] for o in out].index(best)]
"""),
    ("reward-hacking", "the cure is the largest beta, which is the best in the example but not "
     "where training helps gold at first", """
import torch
def hack(reference, proxy, gold, betas):
    ref, r, g = (torch.tensor(x, dtype=torch.float64) for x in (reference, proxy, gold))
    points = []
    for beta in betas:
        lp = torch.log_softmax(ref.log() + r / beta, 0)
        p = lp.exp()
        points.append(((p * (lp - ref.log())).sum().item(), (p * r).sum().item(), (p * g).sum().item()))
    return points, max(betas)
"""),
    ("broken-run", "A low entropy at the end is called too high a rate, though a good run ends there too", """
def diagnose(curves):
    if max(curves["accuracy"]) < 0.01:
        return "starved"
    if curves["entropy"][-1] < 0.5:
        return "rate"
    up = curves["reward"][-1] - curves["reward"][0]
    if up < 0.05:
        return "turned"
    return "healthy" if curves["accuracy"][-1] > curves["accuracy"][0] else "hacked"
"""),
    ("broken-run", "A falling accuracy is called turned before the reward is looked at, so a "
     "hacked run is never found", """
def diagnose(curves):
    avg = lambda x: sum(x) / len(x)
    acc, rew = curves["accuracy"], curves["reward"]
    if avg(curves["flat"]) > 0.95 and avg(rew) < 0.01:
        return "starved"
    if curves["entropy"][10] < 0.1:
        return "rate"
    if avg(acc[-10:]) < avg(acc[:5]):
        return "turned"
    if avg(rew[-10:]) - avg(rew[:5]) > avg(acc[-10:]) - avg(acc[:5]) + 0.3:
        return "hacked"
    return "healthy"
"""),
    ("broken-run", "flat groups are called starved whatever the reward is: late groups that are "
     "all right count too", """
import numpy as np
def diagnose(curves):
    c = {k: np.array(v) for k, v in curves.items()}
    if c["flat"][-10:].mean() > 0.4:
        return "starved"
    if c["entropy"][:10].min() < 0.2:
        return "rate"
    if c["accuracy"][-5:].mean() > c["accuracy"][:5].mean():
        return "healthy"
    return "hacked" if c["reward"][-5:].mean() > c["reward"][:5].mean() + 0.1 else "turned"
"""),
    ("broken-run", "compares with the first rewards of the five runs shown: another run with "
     "another seed is not known", """
SHOWN = {0.542: "hacked", 0.0: "starved", 0.344: "healthy", 0.302: "turned", 0.385: "rate"}
def diagnose(curves):
    first = curves["reward"][0]
    return SHOWN[min(SHOWN, key=lambda k: abs(k - first))]
"""),
    ("broken-run", "A large KL at the end is called too high a rate: good and hacked runs go as far", """
def diagnose(curves):
    start = {k: sum(v[:5]) / 5 for k, v in curves.items()}
    end = {k: sum(v[-5:]) / 5 for k, v in curves.items()}
    if end["reward"] < 0.02:
        return "starved"
    if end["kl"] > 1.2:
        return "rate"
    if end["reward"] < start["reward"]:
        return "turned"
    if end["accuracy"] < start["accuracy"]:
        return "hacked"
    return "healthy"
"""),
    ("broken-run", "starved is asked of the accuracy's end alone: turned and hacked runs end near 0 as well",
     """
def diagnose(curves):
    if curves["accuracy"][-1] < 0.05:
        return "starved"
    if min(curves["entropy"][:10]) < 0.3:
        return "rate"
    if sum(curves["reward"][-10:]) < sum(curves["reward"][:10]):
        return "turned"
    if curves["accuracy"][-1] < curves["accuracy"][0]:
        return "hacked"
    return "healthy"
"""),
)
