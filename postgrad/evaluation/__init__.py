"""Evaluates models: how good one is at a task, what more samples buy, whether another is better.

evaluate     samples with verdicts; pass@1 and pass@k with intervals, greedy accuracy, format rate, length
compute      against samples spent: pass@k, the majority vote, best-of-n; and diversity
compare      models on the same problems: paired differences, a paired test, what was won and lost
perplexity   of held-out pretraining text
overoptimisation   where the true reward turns over as a policy is trained against a proxy
audit, edits what a reward model pays for besides quality, by controlled edits of answers
"""

from postgrad.evaluation.compare import against_first, judged_by_all, paired_test
from postgrad.evaluation.compute import compute_curve, diversity
from postgrad.evaluation.evaluate import (
    BLOCK,
    ScoredSamples,
    draw_samples,
    evaluate_task,
    mean_of,
    passed,
    sample_all,
    score_samples,
    task_figures,
    with_interval,
)

__all__ = ["BLOCK", "ScoredSamples", "against_first", "compute_curve", "diversity", "draw_samples",
           "evaluate_task", "judged_by_all", "mean_of", "paired_test", "passed", "sample_all",
           "score_samples",
           "task_figures", "with_interval"]
