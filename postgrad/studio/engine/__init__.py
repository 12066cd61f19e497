"""Cells and exercises in a page without a server: Python itself, compiled for browsers (Pyodide), runs the
library's own files over a small torch.

small_torch  what the library uses of torch, in plain Python
bundle       the library's files that a page's Python is given
package      Pyodide's distribution, from a file or folder that somebody fetched: checked, packed as scripts
run          in the page's Python: a job in, its answers out
"""
