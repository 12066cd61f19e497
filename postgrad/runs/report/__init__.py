"""Self-contained HTML pages: a training, a model on a task, models compared on the same problems.

Geometry is computed here; markup is made by templates with autoescape, since completions are untrusted text.
Left out on purpose: JavaScript, external files, smoothing of curves.
"""

from postgrad.runs.report.figures import extremes, seconds, show, thin, ticks
from postgrad.runs.report.measured import write_comparison, write_evaluation
from postgrad.runs.report.training import draw_curve, headline, stage_notes, write_report

__all__ = ["draw_curve", "extremes", "headline", "stage_notes", "seconds", "show", "thin", "ticks",
           "write_comparison", "write_evaluation", "write_report"]
