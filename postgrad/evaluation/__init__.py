"""How good a model is at a task, what more samples buy, how different its replies are, and whether another is
better.

examine   samples drawn and judged; pass@1 and pass@k with intervals, greedy accuracy, format rate, length
compute   against samples spent: pass@k, the majority vote, best-of-n; and diversity
compare   two models on the same problems: paired differences, a paired test, what was won and lost
text      perplexity on held-out text of the pretraining
"""

from postgrad.evaluation.compare import against_first, judged_by_all, paired
from postgrad.evaluation.compute import curve, diversity
from postgrad.evaluation.examine import (
    BLOCK,
    Drawn,
    draw,
    evaluate,
    figures,
    mean_of,
    passed,
    sample_all,
    score_samples,
    with_interval,
)

__all__ = ["BLOCK", "Drawn", "against_first", "curve", "diversity", "draw", "evaluate", "figures",
           "judged_by_all", "mean_of", "paired", "passed", "sample_all", "score_samples", "with_interval"]
