"""Standard benchmarks: the lm-evaluation-harness on our sampler, our tasks as its files.

suite   the tasks as files that the harness reads, and a run of it on them
model   a model as the harness asks one; loaded where the harness is installed
"""

from postgrad.recipes.benchmarks.suite import bench, suite_tasks, write_suite

__all__ = ["bench", "suite_tasks", "write_suite"]
