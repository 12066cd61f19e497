"""/label: preferences between two answers, and a reward model that is trained on them meanwhile.

web              one pair at a time                       table    every pair: filter, edit, import, export
workers          the side processes, as the server sees them
reward_process   the program that trains the reward model, with cross-validation
reward_head      a linear reward head on frozen features: the loss and its minimum
"""
