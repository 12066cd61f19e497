"""Several runs that build on each other, in one folder.

stages    what a pipeline is: stages, data and measurements in order; runs and resumes one
measured  figures that several of them share: true quality, and a mixture of tasks part by part
own       a file that defines `pipeline`
demo, instruct, align, r1_zero, r1, expert_iteration   the built-in ones; examples/labs has two more
"""
