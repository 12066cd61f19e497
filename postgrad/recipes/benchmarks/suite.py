"""Standard benchmarks: EleutherAI's lm-evaluation-harness, in this process, on local files.

A suite is a folder that the harness reads: for each task its rows, a .yaml (one user message, zero-shot,
greedy), and a scoring function, the task's own strict verifier. So the harness's figure is that of `postgrad
eval` on the same problems, and the same folder serves `lm_eval --include_path` against `postgrad serve`.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from postgrad.data.tasks import Task
from postgrad.maths.intervals import wilson
from postgrad.recipes.defaults import reply_sampling
from postgrad.records import Prompt
from postgrad.resolve.models import Network, open_writer
from postgrad.resolve.tasks import open_task
from postgrad.rewards.base import guarded
from postgrad.runs.rows import JsonDict, JsonMapping

SMALL = ("words", "arithmetic", "countdown")  # and gsm8k, where its rows are
GSM8K = ("data/gsm8k", "../shared/data/gsm8k")
OFFLINE = ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE")  # local files are all that a suite of ours needs
READING = '''"""How replies are judged: by the task's own verifier."""
from postgrad.recipes.benchmarks.suite import score_reply


def process_results(doc, results):
    return {"strict": score_reply(doc, results[0])}
'''


def check_lm_eval() -> None:
    if find_spec("lm_eval") is None:
        raise ValueError("this needs the package lm-eval: pip install 'postgrad[bench]'.")


def suite_tasks(words: str) -> list[str]:
    """The tasks of a suite: "small", or names with commas between."""
    if words != "small":
        return [word.strip() for word in words.split(",") if word.strip()]
    return [*SMALL, *(f"gsm8k:{folder}" for folder in GSM8K if (Path(folder) / "test.jsonl").is_file())][:4]


def write_suite(folder: Path, names: Sequence[str], *, problems: int, seed: int, tokens: int | None = None,
                model: Network | None = None) -> dict[str, str]:
    """Writes the files of a suite; -> the harness's name of each task. tokens: the most of a reply; None: the
    task's, else by the model's size."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reading.py").write_text(READING)
    called = {}
    for name in names:
        task = open_task(name)
        stem = re.sub(r"[^\w-]", "_", task.name)
        called[name] = f"postgrad_{stem}"
        rows = [{"task": absolute_source(name), "problems": problems, "seed": seed, "number": i,
                 "question": question_of(task, prompt)}
                for i, prompt in enumerate(task.prompts("test", problems, seed))]
        path = (folder / f"{stem}.jsonl").resolve()
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        most = tokens or task.tokens or (reply_sampling(task, model).max_new_tokens if model else 256)
        (folder / f"{stem}.yaml").write_text(task_yaml(called[name], path, most))
    return called


def task_yaml(name: str, rows: Path, tokens: int) -> str:
    """JSON is YAML, but for the tag of a function."""
    fields = {"task": name, "dataset_path": "json", "test_split": "test", "output_type": "generate_until",
            "dataset_kwargs": {"data_files": {"test": str(rows)}, "cache_dir": str(rows.parent / "cache")},
            "doc_to_text": "{{question}}", "doc_to_target": "", "num_fewshot": 0, "metadata": {"version": 1},
            "metric_list": [{"metric": "strict", "aggregation": "mean", "higher_is_better": True}],
            "generation_kwargs": {"until": [], "do_sample": False, "temperature": 0.0,
                                  "max_gen_toks": tokens}}
    lines = [f"{key}: {json.dumps(value)}" for key, value in fields.items()]
    return "\n".join([*lines, "process_results: !function reading.process_results", ""])


def absolute_source(name: str) -> str:
    """gsm8k:data -> gsm8k:/home/.../data, so that it is found from any folder."""
    kind, colon, source = name.partition(":")
    return f"{kind}:{Path(source).expanduser().resolve()}" if colon and Path(source).exists() else name


def question_of(task: Task, prompt: Prompt) -> str:
    """The user message of a prompt; others are refused."""
    task.of_one_reply("the harness")
    if task.verify is None or [m["role"] for m in prompt.messages] != ["user"]:
        raise ValueError(f"task {task.name} can't be a benchmark here: it needs prompts of one user message, "
                         "and a verifier.")
    return prompt.question


@cache
def suite_problems(task: str, problems: int, seed: int) -> tuple[Task, list[Prompt]]:
    opened = open_task(task)
    return opened, opened.prompts("test", problems, seed)


def score_reply(doc: JsonMapping, reply: str) -> float:
    """1 where the task's verifier pays a reply in full. A verifier that fails stops the benchmark."""
    task, prompts = suite_problems(doc["task"], doc["problems"], doc["seed"])
    assert task.verify is not None
    verdict = guarded(task.verify)(prompts[doc["number"]], reply)
    if verdict.error:
        raise ValueError(f"problem {doc['number']} of {task.name} can't be judged: {verdict.error}")
    return float(verdict.score >= task.best)


def bench(model: str, *, suite: str = "small", problems: int = 200, seed: int = 0,
          max_new_tokens: int | None = None, include: str | None = None, device: str = "cpu") -> JsonDict:
    """A model on a suite, by the harness: {"model", "harness", "tasks": [{"task", "metric", "value",
    "interval", "problems"}], "seconds"}. include: a folder with task files of the harness; lm_eval:NAME in
    the suite is one of these, or one that ships with the harness."""
    check_lm_eval()
    began = time.perf_counter()
    net, chat = open_writer(model, device)
    names = suite_tasks(suite)
    theirs = [name for name in names if name.startswith("lm_eval:")]
    for variable in ("TQDM_DISABLE", "HF_DATASETS_DISABLE_PROGRESS_BARS", *OFFLINE[: 0 if theirs else 2]):
        os.environ.setdefault(variable, "1")
    import lm_eval
    from lm_eval.tasks import TaskManager

    from postgrad.recipes.benchmarks.model import HarnessModel
    with tempfile.TemporaryDirectory(prefix="postgrad-bench-") as folder:
        ours = write_suite(Path(folder), [n for n in names if n not in theirs], problems=problems, seed=seed,
                           tokens=max_new_tokens, model=net)
        manager = TaskManager(include_path=[folder, *([include] if include else [])],
                              include_defaults=bool(theirs))
        report = lm_eval.simple_evaluate(
            HarnessModel(net, chat), tasks=[*ours.values(), *(n.partition(":")[2] for n in theirs)],
            task_manager=manager, apply_chat_template=True, bootstrap_iters=0, log_samples=False,
            limit=problems if theirs else None)
    rows = [{"task": task, **figure} for task, results in report["results"].items()
            for figure in harness_figures(results, report["n-samples"].get(task, {}).get("effective", 0))]
    return {"model": model, "harness": f"lm-eval {lm_eval.__version__}", "tasks": rows,
            "seconds": time.perf_counter() - began}


def harness_figures(results: JsonMapping, count: int) -> list[JsonDict]:
    """The figures of one task; a share with its interval."""
    figures = []
    for key, value in results.items():
        metric, _, filter_name = key.partition(",")
        if not isinstance(value, float | int) or metric.endswith("_stderr") or not filter_name:
            continue
        figures.append({"metric": metric, "value": float(value), "problems": count,
                        "interval": list(wilson(value, count)) if count and 0 <= value <= 1 else None})
    return figures
