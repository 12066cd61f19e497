"""Right on real models, and honest about it (issue 36): what was measured.

    python proofs/truth.py [PART ...]      doctor: planted faults and healthy runs, forty minutes on one core
"""

from __future__ import annotations

from harness import Page
from planted import doctor

PAGE = Page("truth", "Right on real models, and honest about it", {"doctor": doctor}, [31, 32, 33])

if __name__ == "__main__":
    PAGE.main()
