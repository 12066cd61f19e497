"""Recipes: a config dataclass and a short build each.

registry     recipes by name, and the config of a name and its settings
running      one run from its start to its end, and going on after a stop
launch       the same for runs and pipelines, by name
base         what every recipe shares
fit          training from Python; measuring: evaluation from Python
"""
