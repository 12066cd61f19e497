"""Several runs that build on each other, in one folder.

stages    what a pipeline is: stages, data and measurements in order; runs and resumes one
quality   the true quality of policies, which align and instruct measure
parts     figures of a model on each part of a mixture of tasks, which r1_zero and r1 measure
own       a file that defines `pipeline`
demo, instruct, align, r1_zero, r1, expert_iteration   the built-in ones; examples/labs has two more
"""
