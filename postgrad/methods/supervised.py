"""The rows that imitate."""

from __future__ import annotations

from functools import partial

from postgrad.maths import select, weights
from postgrad.methods.row import Supervised

SUPERVISED = (
    Supervised(
        name="sft", source="conversations",
        weigh=weights.token_mean, select=None,
        paper="Ouyang et al. 2022, InstructGPT, arXiv:2203.02155",
        about="negative log-likelihood of the assistant's tokens",
    ),
    # The paper picks at test time; imitating what was picked is RAFT's step (Dong et al.
    # 2023, arXiv:2304.06767).
    Supervised(
        name="best_of_n", source="rollouts to conversations",
        weigh=weights.token_mean, select=select.best_of_group, kl_bound=select.best_of_n_kl,
        paper="Stiennon et al. 2020, arXiv:2009.01325",
        about="sample n, imitate the best, even where the best is poor",
    ),
    # R1 keeps the correct samples of its second stage, then filters for readability: that filter is the
    # verifier's affair here.
    Supervised(
        name="rejection", source="rollouts to conversations",
        weigh=weights.token_mean, select=partial(select.passing, threshold=1.0),
        paper="DeepSeek-AI 2025, R1 (v1) section 2.3.3, arXiv:2501.12948",
        about="sample n, imitate every sample that passes",
    ),
)
