"""Small runs of the recipes of RLHF."""

import pytest
from settings_text import override

from postgrad import recipes
from postgrad.recipes import running
from postgrad.runs import Run
from postgrad.system.settings import flat_settings

SMALL = {"steps": 3, "save_every": 1, "rollouts.prompts": 6, "rollouts.prompts_per_step": 2,
         "rollouts.group_size": 3, "rollouts.max_new_tokens": 8, "pairs.drawn": 16, "pairs.held_out": 8,
         "pairs.per_step": 4, "evaluation.every": 3, "evaluation.problems": 2, "evaluation.samples": 2,
         "head.heads": 2, "seed": 3}


def small(config, *changes):
    return override(config, [*(f"{k}={v}" for k, v in SMALL.items() if k in flat_settings(config)), *changes])


def trained(recipe, config, folder, cut=None):
    class Cut(Exception):
        pass

    class Watch:
        def stepped(self, step, row, scored):
            if step == cut:
                raise Cut

        def examined(self, step, row):
            pass

    home = recipes.module(recipe)
    if not cut:
        return running.start(recipe, config, home.build, folder)
    with pytest.raises(Cut):
        running.start(recipe, config, home.build, folder, watch=Watch())
    return running.resume(Run.open(folder), config, home.build)
