"""What a person sees in a terminal: a run while it is trained, progress, tables.

On a terminal `rich` draws; it is imported only there. Into a file or a pipe goes plain text without control
characters, one line for each tenth of the way. Text from a model is shown with its control characters made
visible: it can't steer a terminal.
"""

from postgrad.runs.display.live import Display, progress
from postgrad.runs.display.tables import print_rows
from postgrad.runs.display.text import clean, duration, figure, is_terminal, print_plain, sparkline, time_ago

__all__ = ["Display", "clean", "duration", "figure", "is_terminal", "print_plain", "progress", "sparkline",
           "print_rows", "time_ago"]
