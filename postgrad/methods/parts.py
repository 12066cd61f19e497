"""Parts of a row that are set by a name: method.correction=tis, method.choose=top_entropy.

A part is the fields of a row that belong together, the function and what it wants. Each stands beside any
policy row; its constants are set as the row's own (method.cap=3, after the part). A user's function is handed
in from Python, or stands in a row of their file.
"""

from __future__ import annotations

from functools import partial

from postgrad.maths import choice, correction

PARTS: dict[str, dict[str, dict[str, object]]] = {
    "choose": {
        "all": {"choose": None, "choose_wants": ()},
        "top_entropy": {"choose": partial(choice.top_entropy, share=0.2), "choose_wants": ("entropy",)},
    },
    "correction": {
        "none": {"correction": None},
        "tis": {"correction": partial(correction.truncated, cap=2.0)},
        "icepop": {"correction": partial(correction.banded, least=0.5, most=5.0)},
        "sequence": {"correction": partial(correction.sequence_banded, widest=3.0)},
    },
}
