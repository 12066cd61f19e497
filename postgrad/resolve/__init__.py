"""Names become objects: models, tasks, rewards, stages. Whatever has a name can also be handed in.

models    a folder, a hub id, a run or RUN@STEP -> a model with its tokens
tasks     a name, a file, rows -> a Task
rewards   a name, a function, a reward model, several of them -> a judge
sources   files, tasks and rows -> what is imitated, each with its share
stages    the way that led to a model
"""
