"""A tracker of your own: the best evaluation so far, written where a dashboard can read it.

    python examples/own_tracker.py
    postgrad train grpo:words --track examples/own_tracker.py
"""

import json
from pathlib import Path

import postgrad as pg


class BestSoFar(pg.Tracker):
    def on_start(self, config):
        self.file, self.best = Path("best.json"), {"pass@1": -1.0}

    def on_eval(self, step, figures):
        if figures["pass@1"] > self.best["pass@1"]:
            self.best = {"step": step, "pass@1": figures["pass@1"]}
            self.file.write_text(json.dumps(self.best))

    def on_end(self, state, error):
        print(f"{state}: best at step {self.best['step']}")


tracker = BestSoFar  # what --track looks for: a class, a function that makes one, or an object

if __name__ == "__main__":
    pg.fit("tiny-chat", "grpo", task="words", steps=4, evaluation={"every": 2, "problems": 16},
           trackers=[BestSoFar()])
