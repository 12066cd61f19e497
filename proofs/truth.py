"""Right on real models, and honest about it (issue 36): what was measured.

    python proofs/truth.py [PART ...]      doctor: planted faults and healthy runs, forty minutes on one core
                                           guard: runaways, warned of and slowed down; thirty minutes
                                           look: a default run from nothing, by one yes; ten minutes
                                           probes: ten planted conditions, ten healthy runs; two minutes
                                           defaults, rates, arms: default commands, other values; on a GPU
                                           gsm8k: SmolLM2-135M, three seeds; on a GPU, 25 minutes
"""

from __future__ import annotations

from harness import Page
from defaults import arms, defaults, gsm8k, rates
from look import look, probes
from planted import doctor, guard

PAGE = Page("truth", "Right on real models, and honest about it",
            {"doctor": doctor, "guard": guard, "look": look, "probes": probes, "defaults": defaults,
             "rates": rates, "arms": arms, "gsm8k": gsm8k},
            [34, 35, 36, 37, 52, 41, 42, 43, 48, 54, 55, 56, 60, 61, 20, 21, 22],
            apart=("defaults", "rates", "arms", "gsm8k"))

if __name__ == "__main__":
    PAGE.main()
