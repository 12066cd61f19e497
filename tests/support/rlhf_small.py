"""Small runs of the recipes of RLHF."""

import pytest
from settings_text import override

from postgrad.recipes.running import resume_run, start_run
from postgrad.runs import Run
from postgrad.runs.tracker import Tracker
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

    class Watch(Tracker):
        def on_step(self, step, metrics):
            if step == cut:
                raise Cut

    if not cut:
        return start_run(config, folder)
    with pytest.raises(Cut):
        start_run(config, folder, trackers=[Watch()])
    return resume_run(Run.open(folder), config)
