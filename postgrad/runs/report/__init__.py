"""Self-contained pages: about a training (what changed, the curves, answers before and after, how it was
measured), about a model on a task, and about two models on the same problems.

Geometry is computed here, markup is made by the templates with autoescape: completions are untrusted text
and stay text.
Left out on purpose: JavaScript, external files, smoothing of curves.

page       a training: the words, and the page made and written
curves     the geometry of its curves
measured   a measurement or a comparison, likewise
lines      the geometry of their figures
figures    numbers and times as text
templates  a template filled in and written
"""

from postgrad.runs.report.curves import draw_curve, extremes, thin, ticks
from postgrad.runs.report.figures import seconds, show
from postgrad.runs.report.measured import write_comparison, write_evaluation
from postgrad.runs.report.page import headline, stage_notes, write_report

__all__ = ["draw_curve", "extremes", "headline", "stage_notes", "seconds", "show", "thin", "ticks",
           "write_comparison",
           "write_evaluation", "write_report"]
