"""Wrong answers by somebody who had not read the graders, continued: see exercises_strangers.py."""

TWO = (
    ("gae", "beyond the last token the last value is used again, instead of 0", """
def gae(rewards, values, gamma, lam):
    T = len(rewards)
    adv = [0.0] * T
    last = 0.0
    for t in range(T - 1, -1, -1):
        nxt = values[t + 1] if t + 1 < T else values[-1]
        last = rewards[t] + gamma * nxt - values[t] + gamma * lam * last
        adv[t] = last
    return adv
"""),
    ("gae", "gamma is missing before the next value: right only where gamma is 1", """
def gae(rewards, values, gamma, lam):
    vs = list(values) + [0]
    run, out = 0, []
    for t in reversed(range(len(rewards))):
        run = rewards[t] + vs[t + 1] - vs[t] + gamma * lam * run
        out.insert(0, run)
    return out
"""),
    ("gae", "the advantages are kept in an array of the values' type: integer values cut them to integers",
     """
import numpy as np
def gae(rewards, values, gamma, lam):
    values = np.array(values)
    adv = np.zeros_like(values)
    run = 0.0
    for t in range(len(rewards))[::-1]:
        ahead = values[t + 1] if t < len(rewards) - 1 else 0.0
        run = rewards[t] + gamma * ahead - values[t] + gamma * lam * run
        adv[t] = run
    return adv.tolist()
"""),
    ("gae", "A reward that is not 0 is taken for the end of the answer: what comes after it is not looked at",
     """
def gae(rewards, values, gamma, lam):
    adv = [0.0] * len(rewards)
    nxt_v = nxt_a = 0.0
    for t in reversed(range(len(rewards))):
        if rewards[t] != 0:
            nxt_v = nxt_a = 0.0
        delta = rewards[t] + gamma * nxt_v - values[t]
        adv[t] = delta + gamma * lam * nxt_a
        nxt_v, nxt_a = values[t], adv[t]
    return adv
"""),
    ("gae", "written with powers of gamma * lambda that are divided out again: 0/0 where either is 0", """
import numpy as np
def gae(rewards, values, gamma, lam):
    r, v = np.array(rewards, float), np.array(values, float)
    delta = r + gamma * np.append(v[1:], 0) - v
    disc = (gamma * lam) ** np.arange(len(r))
    return list(np.cumsum((delta * disc)[::-1])[::-1] / disc)
"""),
    ("gae", "the caller's rewards are overwritten by the advantages: a second call with them "
     "gives other numbers", """
def gae(rewards, values, gamma, lam):
    for t in range(len(rewards) - 1, -1, -1):
        last = t == len(rewards) - 1
        rewards[t] += (0 if last else gamma * values[t + 1]) - values[t]
        rewards[t] += 0 if last else gamma * lam * rewards[t + 1]
    return rewards
"""),
    ("clipped-surrogate", "there is no min: the clipped term alone, which shuts the way back", """
import numpy as np
def surrogate(logp, old_logp, adv, eps):
    ratio = np.exp(np.array(logp) - np.array(old_logp))
    return (-np.clip(ratio, 1 - eps, 1 + eps) * np.array(adv)).tolist()
"""),
    ("clipped-surrogate", "A second clip, dual-clip PPO's: a loss with a negative advantage never "
     "passes 3 |A|", """
from math import exp
def surrogate(logp, old_logp, adv, eps):
    res = []
    for l, o, a in zip(logp, old_logp, adv):
        r = exp(l - o)
        obj = min(r * a, max(1 - eps, min(r, 1 + eps)) * a)
        if a < 0:
            obj = max(obj, 3 * a)
        res.append(-obj)
    return res
"""),
    ("clipped-surrogate", "the log of the ratio is clipped to -eps..eps, instead of the ratio to "
     "1 - eps..1 + eps", """
import torch
def surrogate(logp, old_logp, adv, eps):
    d = torch.tensor(logp, dtype=torch.float64) - torch.tensor(old_logp, dtype=torch.float64)
    a = torch.tensor(adv, dtype=torch.float64)
    return (-torch.min(d.exp() * a, d.clamp(-eps, eps).exp() * a)).tolist()
"""),
    ("clipped-surrogate", "only the upper bound is there: a ratio below 1 - eps is never held for "
     "a negative advantage", """
import math
def surrogate(logp, old_logp, adv, eps):
    ratios = [math.exp(a - b) for a, b in zip(logp, old_logp)]
    return [-min(r * A, min(r, 1 + eps) * A) for r, A in zip(ratios, adv)]
"""),
    ("clipped-surrogate", "the min is taken of the ratios, before the advantage: with a negative "
     "one it is the wrong side", """
import numpy as np
def surrogate(logp, old_logp, adv, eps):
    ratio = np.exp(np.subtract(logp, old_logp))
    safe = np.minimum(ratio, np.clip(ratio, 1 - eps, 1 + eps))
    return [float(x) for x in -safe * adv]
"""),
    ("kl-estimators", "k3 is taken of the mean difference, and k2 is its square: the mean comes "
     "before the function", """
from math import exp
def kl(logp, ref_logp):
    d = sum(a - b for a, b in zip(logp, ref_logp)) / len(logp)
    return d, d * d / 2, exp(-d) - 1 + d
"""),
    ("kl-estimators", "each token is weighted by its probability, though the samples are already drawn by it",
     """
import numpy as np
def kl(logp, ref_logp):
    lp, ref = np.array(logp, float), np.array(ref_logp, float)
    d, p = lp - ref, np.exp(lp)
    p = p / p.sum()
    return [float((p * x).sum()) for x in (d, d**2 / 2, np.exp(-d) - 1 + d)]
"""),
    ("kl-estimators", "k3 is cut at 10 on each token, as some training code does against outliers", """
import torch
def kl(logp, ref_logp):
    d = torch.tensor(logp, dtype=torch.float64) - torch.tensor(ref_logp, dtype=torch.float64)
    k3 = ((-d).exp() - 1 + d).clamp(-10, 10)
    return d.mean().item(), (d * d / 2).mean().item(), k3.mean().item()
"""),
    ("kl-estimators", "the sums are halved: right for two tokens, as in the example, and for no other number",
     """
import math
def kl(logp, ref_logp):
    k1 = k2 = k3 = 0
    for a, b in zip(logp, ref_logp):
        d = a - b
        k1 += d / 2
        k2 += d * d / 4
        k3 += (math.exp(-d) - 1 + d) / 2
    return k1, k2, k3
"""),
    ("kl-estimators", "k3 is that of the other direction: exp(d) - 1 - d", """
import numpy as np
def kl(logp, ref_logp):
    log_ratio = np.subtract(logp, ref_logp)
    return log_ratio.mean(), (log_ratio ** 2).mean() / 2, (np.exp(log_ratio) - 1 - log_ratio).mean()
"""),
    ("dpo", "the derivatives use sigmoid(gap) in place of sigmoid(-gap): they agree at a gap of 0 only", """
import math
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    gap = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    loss = math.log1p(math.exp(-gap)) if gap > 0 else -gap + math.log1p(math.exp(gap))
    s = 1 / (1 + math.exp(-gap)) if gap > 0 else math.exp(gap) / (1 + math.exp(gap))
    return loss, -beta * s, beta * s
"""),
    ("dpo", "the gap is cut to -30..30 against overflow: a loss of 400 is reported as 30", """
import numpy as np
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    gap = np.clip(beta * (chosen - ref_chosen - rejected + ref_rejected), -30, 30)
    sig = 1 / (1 + np.exp(-gap))
    return float(-np.log(sig)), float(-beta * (1 - sig)), float(beta * (1 - sig))
"""),
    ("dpo", "the loss is stable, the derivative is not: exp(gap) overflows for a long answer", """
from math import exp, log1p
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    gap = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    loss = max(-gap, 0.0) + log1p(exp(-abs(gap)))
    g = beta / (1 + exp(gap))
    return loss, -g, g
"""),
    ("dpo", "A small number under the log keeps it finite: the loss never passes 23", """
import math
def sigmoid(x):
    return 0.0 if x < -700 else 1 / (1 + math.exp(-x))
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    margin = beta * (chosen - rejected - (ref_chosen - ref_rejected))
    p = sigmoid(margin)
    return -math.log(p + 1e-10), -beta * (1 - p), beta * (1 - p)
"""),
    ("dpo", "the chain rule's beta is missing: the derivatives are by the gap, not by the log-probabilities",
     """
import torch
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    gap = torch.tensor(beta * ((chosen - ref_chosen) - (rejected - ref_rejected)), dtype=torch.float64)
    loss = torch.nn.functional.softplus(-gap, threshold=1e9)
    doubt = torch.sigmoid(-gap).item()
    return loss.item(), -doubt, doubt
"""),
    ("dpo", "beta is applied to the policy's gap only, not to the reference's", """
import math
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    gap = beta * (chosen - rejected) - (ref_chosen - ref_rejected)
    e = math.exp(-abs(gap))
    p = e / (1 + e) if gap >= 0 else 1 / (1 + e)
    return max(0, -gap) + math.log1p(e), -beta * p, beta * p
"""),
    ("group-advantages", "the flat group is found by std == 0: rounding leaves a tiny std for "
     "three rewards of 0.1", """
def advantages(rewards, group):
    out = []
    for i in range(0, len(rewards), group):
        g = rewards[i:i + group]
        mean = sum(g) / group
        std = (sum((x - mean) ** 2 for x in g) / group) ** 0.5
        out += [0.0 if std == 0 else (x - mean) / std for x in g]
    return out
"""),
    ("group-advantages", "the result takes the rewards' type: with whole-number rewards the "
     "advantages are cut to whole numbers", """
import numpy as np
def advantages(rewards, group):
    r = np.array(rewards)
    adv = np.zeros_like(r)
    for s in range(0, len(r), group):
        g = r[s:s + group]
        if g.std() > 1e-12:
            adv[s:s + group] = (g - g.mean()) / g.std()
    return adv.tolist()
"""),
    ("group-advantages", "the groups are taken as every n-th reward, not as neighbours", """
import numpy as np
def advantages(rewards, group):
    r = np.array(rewards, float).reshape(group, -1)
    d = r - r.mean(axis=0)
    s = r.std(axis=0)
    return np.where(s > 1e-9, d / np.maximum(s, 1e-9), 0).reshape(-1).tolist()
"""),
    ("group-advantages", "the mean absolute deviation stands for the standard deviation; they "
     "agree when half the rewards are 1", """
def advantages(rewards, group):
    res = []
    for k in range(len(rewards) // group):
        part = rewards[k * group:(k + 1) * group]
        m = sum(part) / group
        spread = sum(abs(p - m) for p in part) / group
        res.extend([(p - m) / spread if spread > 1e-9 else 0.0 for p in part])
    return res
"""),
    ("group-advantages", "A group with a spread under 0.01 is called flat, so rewards in a small "
     "unit teach nothing", """
from statistics import mean, pstdev
def advantages(rewards, group):
    adv = []
    for i in range(0, len(rewards), group):
        g = rewards[i:i + group]
        m, s = mean(g), pstdev(g)
        adv += [(x - m) / s for x in g] if s > 0.01 else [0.0] * group
    return adv
"""),
    ("group-advantages", "flatness is asked of the whole batch, so one flat group among others becomes 0/0",
     """
import numpy as np
def advantages(rewards, group):
    if len(set(rewards)) == 1:
        return [0.0] * len(rewards)
    r = np.array(rewards, dtype=float).reshape(-1, group)
    z = (r - r.mean(1, keepdims=True)) / r.std(1, keepdims=True)
    return z.ravel().tolist()
"""),
)
