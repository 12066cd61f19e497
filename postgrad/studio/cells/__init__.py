"""Cells: a function of the library that a reader may edit, with the invariants it must keep.

catalogue   which functions, their source as it stands in the file, the sentences of their invariants; no
            torch
checks/     the invariants themselves, with torch: imported on the far side only
jobs        what a run does, wherever it runs
runner      a process with torch imported that runs an edited cell in a jail
child       the program of that process; imported by nobody
"""
