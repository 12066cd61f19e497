"""How close every row comes to the closed-form optimum ref exp(r/beta)/Z,
on a language that can be listed whole.

    python proofs/optimum.py     prints the table; about half a minute on one core
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/support"))

import tilted  # noqa: E402


def table(seed: int = 0) -> list[dict]:
    """One row per method and beta.

    tv: total variation, to pi* at the start and at the end, and to PPO's solution.

    theorem: whether pi* is the method's fixed point; the other rows show where GRPO goes
    with its KL in the loss.
    """
    rows = []
    for beta in tilted.BETAS:
        best, start = tilted.optimum(beta), tilted.REF.row_logp().exp()
        for name in tilted.rows_at(beta):
            end = tilted.solution(name, beta, seed)
            rows.append({
                "method": name, "beta": beta, "theorem": name in tilted.THEOREM,
                "tv_start": tilted.distance(start, best), "tv_end": tilted.distance(end, best),
                "tv_to_ppo": tilted.distance(end, tilted.solution("ppo", beta, seed)),
            })
    return rows


def main() -> None:
    print(f"{'method':<34}{'beta':>6}{'theorem':>9}{'tv_start':>10}{'tv_end':>10}{'tv_to_ppo':>11}")
    for row in table():
        says = "yes" if row["theorem"] else "no"
        print(f"{row['method']:<34}{row['beta']:>6}{says:>9}", end="")
        print(f"{row['tv_start']:>10.4f}{row['tv_end']:>10.4f}{row['tv_to_ppo']:>11.4f}")


if __name__ == "__main__":
    main()
