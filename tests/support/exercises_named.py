"""What students are to be told of their wrong answers (exercises_students.py)."""

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
