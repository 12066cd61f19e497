"""The glossary: every metric that can be logged is explained, and a slip of the pen is answered
with the right name."""

from __future__ import annotations

import pytest

from postgrad.data.tasks import load_task
from postgrad.runs.explain import METRICS, explain

ASKED = """loss reward reward_std pass@1 pass@8 greedy format length kl kl_k1 entropy clip_fraction
ratio_max mismatch approx_kl grad_norm lr flat_groups resampled truncated skipped tokens time/step
time/sample time/train value_loss explained_variance accuracy margin chosen rejected
errors repetition""".split()
ALSO = """lenient greedy_lenient value return baseline mean_length answers finished time/score
sampled memory""".split()
STEPS = "accuracy_right accuracy_wrong balanced_accuracy right_steps".split()
CORRECTED = "staleness time/wait mismatch_kl corrected_away effective_share".split()
TAUGHT = ["teacher_kl"]
REFLECTION = "turn_back restart recheck after_right worded wrong_language mixed_languages".split()
RLHF = "kl_reply kl_coefficient proxy chosen_share kl_bound ptx_loss disagreement ece".split()
EPISODES = ("turns", "new_rows")
DOCTOR = ("same_replies", "contradicted", "kl_share", "stop_trained")


def test_every_metric_is_explained_in_one_sentence():
    assert set(METRICS) == {*ASKED, *ALSO, *EPISODES, *STEPS, *CORRECTED, *TAUGHT, *RLHF, *REFLECTION,
                            *DOCTOR}
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.meaning.endswith(".") and ". " not in metric.meaning, f"{name}: one sentence"
        assert metric.healthy and metric.formula and metric.source
    assert len({metric.meaning for metric in METRICS.values()}) == len(METRICS)


@pytest.mark.parametrize(("typed", "meant"), [
    ("rewrad", "reward"), ("clipfraction", "clip_fraction"), ("clip-fraction", "clip_fraction"),
    ("Entropy", "entropy"), ("grad", "grad_norm"), ("pass1", "pass@1")])
def test_did_you_mean(typed, meant):
    with pytest.raises(ValueError, match=rf"no metric is called '{typed}'; did you mean .*{meant}"):
        explain(typed)


def test_nothing_near_gives_the_list():
    with pytest.raises(ValueError, match="there are: loss, reward"):
        explain("zzzzzz")


def test_families():
    assert "one of 64 samples" in explain("pass@64").meaning and "k = 64" in explain("pass@64").formula
    assert ("format" in explain("reward/format").meaning
            and "paid make the reward" in explain("reward/length(1,9)").healthy)
    for name in load_task("constraints").verify(load_task("constraints").prompts("train", 1, 0)[0], "").parts:
        assert ("not paid" in explain(f"reward/{name}").meaning) == ("lenient" in name)
    assert explain("pass@1") is METRICS["pass@1"]
    assert "pass@1 of the prompts of task words-es" in explain("reward/words-es/correct").meaning
    for name in (*REFLECTION, "length"):
        assert explain(f"a/b.jsonl/{name}").formula.endswith("of the prompts of task a/b.jsonl alone")
    assert str(explain("kl")).startswith("kl: How far")


def test_what_the_objectives_measure_is_explained():
    """The names that objectives and batches write into a step's row, read from their source."""
    import ast
    from pathlib import Path

    import postgrad

    rows = ("means", "stats", "facts", "row", "out")

    def keys(node):
        """The names in a dictionary, or in several joined by |."""
        if isinstance(node, ast.BinOp):
            return keys(node.left) | keys(node.right)
        return ({key.value for key in node.keys if isinstance(key, ast.Constant)}
                if isinstance(node, ast.Dict) else set())

    def written(node):
        """The names that a statement writes into a row."""
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_stats"):
            return set().union(*(keys(x.value) for x in ast.walk(node) if isinstance(x, ast.Return)))
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            return set()
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Subscript) and getattr(target.value, "id", "") in rows:
            return {target.slice.value} if isinstance(target.slice, ast.Constant) else set()
        return keys(node.value) if getattr(target, "id", "") in rows else set()

    home, found = Path(postgrad.__file__).parent, set()
    for name in ("training/objectives.py", "training/batches/rollouts.py",
                 "training/batches/selected.py", "training/batches/offline.py",
                 "recipes/reward.py", "recipes/process.py", "training/loop.py", "evaluation/evaluate.py"):
        for node in ast.walk(ast.parse((home / name).read_text())):
            found |= written(node)
    assert {"loss", "entropy", "reward", "kl", "mismatch", "mismatch_kl", "time/step", "lenient",
            "mean_length"} <= found
    for name in found - {"problems", "samples", "calibration"}:
        explain(name.removesuffix("_interval"))
