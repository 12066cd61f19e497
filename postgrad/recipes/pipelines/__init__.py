"""Several runs that build on each other, in one folder.

stages         what a pipeline is: a list of stages, kept replies and measurements
carry          carrying one out, and going on with it
quality        the true quality of policies, which several of them measure
judging        a judge who may check one step, of which oversight asks
demo, instruct, align, overoptimise, oversight, r1_zero, r1, expert_iteration   those that ship; own: a user's
               file
"""
