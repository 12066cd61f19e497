"""One self-contained page about a training: what changed, the curves, answers before and after,
how it was measured.

Geometry is computed here, markup is made by report.html.jinja with autoescape: completions are untrusted text
and stay text.
Left out on purpose: JavaScript, external files, smoothing of curves.

page      the words, and the page made and written
curves    the geometry of the curves
figures   numbers and times as text
"""

from postgrad.report.curves import draw, extremes, thin, ticks
from postgrad.report.figures import seconds, show
from postgrad.report.page import headline, notes, write_report

__all__ = ["draw", "extremes", "headline", "notes", "seconds", "show", "thin", "ticks", "write_report"]
