"""The right answers of the book's questions, by calculations of their own: no function of the library."""

import json
import math
from pathlib import Path

RECORDED = Path(__file__).parent.parent / "postgrad" / "embedded" / "recordings" / "pipeline.json"
STAGES = {s["name"]: s["measured"] for s in json.loads(RECORDED.read_text())["stages"]}


def share(stage, task):
    found = STAGES[stage][task]
    return f"{100 * sum(found['right']) / (found['samples'] * found['problems']):.0f} %"


ANSWERS = {
    ("why", "bandit-steps"): "1",
    ("why", "what-rl-pays"): f"{share('sft', 'questions')} to {share('rl', 'questions')}: no change beyond "
    "what so few questions can show",
    ("why", "which-reward"): "Whether a function returns what its tests ask for",
    ("why", "explore"): f"Nothing: every sample has the same reward, {0 - 0} above what was expected",
    ("why", "baseline-bias"): f"Nothing: the bias is {sum((1, -0.5, -0.5)):g}",
    ("why", "sft-ceiling"): f"{share('sft', 'words')}: the loss is least where the model writes as the "
    "demonstrations do",
    ("why", "loop-difference"): "Only what is handed in: the batches and the objective",
    ("rewards", "gap-zero"): f"{1 / (1 + math.e**0):.1f} and log 2 = {math.log(2):.4f}",
    ("rewards", "accuracy-meaning"): "Little: the policy’s answers are no sample of the held-out pairs",
    (
        "rewards",
        "find-bias",
    ): "Put neutral sentences into the same answers, and look at the change of each score",
    ("rewards", "ensemble"): "A flaw that all members share",
    ("rewards", "loss-at-two"): f"{math.log(1 + math.exp(2)):.4f}",
    (
        "algorithms",
        "beta-extremes",
    ): "Very high: the reference. Very low: all probability on the answers with the highest reward",
    ("algorithms", "clip-ratio"): f"{min(4 * 1.0, max(0.8, min(4, 1.2)) * 1.0):.1f}",
    ("algorithms", "dpo-needs"): "Reward model: no. Sampling: no",
    ("algorithms", "grpo-critic"): "no: the other samples of the prompt say what was to be expected",
    ("algorithms", "models-in-memory"): "4, 2 and 2",
    ("algorithms", "dpo-probability"): f"{2 / (2 + 0.5):.1f}",
    ("algorithms", "kl-in-loss"): "Nothing: its gradient has mean zero",
    (
        "algorithms",
        "row-difference",
    ): "The credit, where the KL stands, how tokens are weighed, and the critic; the clip is the same",
    ("reasoning", "right-answer"): f"{(1 - 0.5) / math.sqrt(0.25):.0f}",
    ("reasoning", "flat-group"): f"Nothing: every advantage is {1 - 1}",
    ("reasoning", "one-sample"): "Its baseline is the mean of the group, and alone an answer is its own mean",
    ("reasoning", "amplify"): "Most of what RL solves at once was already within reach of the model’s "
                              "samples",
    ("reasoning", "divide"): "Those that are almost always or almost never solved",
}
