"""The command as a newcomer meets it: bad input gets one sentence and code 2, and leaves nothing behind."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from postgrad.cli import main
from postgrad.methods import METHODS

BAD_TASK = """
prompts = [{"question": "a", "answer": "b"}]
def verify(prompt, completion): return completion == "b"
def gold(prompt): return "c"
"""
TASK_FILES = {  # each a task that cannot be used, and where it fails
    "at_import.py": "import nothing_of_the_kind\n",
    "in_prompts.py": "def prompts(): return {}['a']\ndef verify(p, c): return 1.0\n",
    "in_verify.py": "prompts = [{'question': 'a'}]\ndef verify(p, c): return p.nonsense\n",
    "in_gold.py": BAD_TASK.replace('return "c"', 'return 1 / 0'),
    "shape.jsonl": '{"text": "a", "label": 1}\n',
    "mbpp.jsonl": '{"question": "a", "answer": "1"}\n',
    "gsm8k/train.jsonl": '{"problem": "a", "solution": "1"}\n',
    "gsm8k/test.jsonl": '{"problem": "a", "solution": "1"}\n',
    "humaneval.jsonl": '{"task_id": "HumanEval/0", "entry_point": "f", "prompt": "def f(x):\\n", '
                       '"canonical_solution": "    return x\\n", "test": "def check(f):\\n    assert '
                       'f(1) == 1\\n"}\n',
}
WRONG = {
    "train gropo:words": "no recipe 'gropo'. Did you mean 'grpo'?",
    "train kto:words": "kto has no setting 'words'",
    "train grpo:wrods": "no setting 'wrods'. Did you mean 'words'?",
    "train grpo": "Name a setting",
    "train grpo:words optim.rl=1": "no setting 'optim.rl'. Did you mean 'optim.lr'?",
    "train grpo:words optim.lr=fast": "expected float",
    "train grpo:words optim.lr=0": "must be a positive number",
    "train grpo:words optim=1": "name one of optim.lr",
    "train grpo:words steps": "write KEY=VALUE",
    "train grpo:words steps=0": "must be at least 1",
    "train grpo:words rollouts.minibatches=5": "e.g. 4",
    "train grpo:words rollouts.group_size=1": "set it to 2 or more",
    "train grpo:words rollouts.max_new_tokens=600": "over the model's 512 positions",
    "train grpo:words method=dpo": "not trained by this recipe",
    "train grpo:words reward=tiny-chat": "is no reward model",
    "train grpo:words reward=nowhere": "no model at nowhere",
    "train dpo:questions beta=0": "beta is 0.0",
    "train dpo --task words": "no labelled pairs",
    "train dpo data=bad.jsonl": "bad.jsonl line 1",
    "train reward:questions beta=1": "no setting 'beta'",
    "train grpo:words model=nowhere": "no model at nowhere",
    "train grpo:words device=cuda:7": "no GPU",
    "train grpo --task missing.py": "no file 'missing.py'",
    "train grpo --task wrods": "did you mean 'words'?",
    "train grpo --task bad.py": "bad.py",
    "train grpo --task bad.py model=tiny": "the verifier pays 0 instead of 1 for the gold completion",
    "train grpo --task at_import.py": "at_import.py, line 1: ModuleNotFoundError",
    "train grpo --task in_prompts.py": "in_prompts.py, line 1: KeyError",
    "train grpo --task in_verify.py": "in_verify.py, line 2: AttributeError",
    "train grpo --task in_gold.py": "in_gold.py, line 4: ZeroDivisionError",
    "train grpo --task shape.jsonl": "shape.jsonl, line 1: expected one of question, prompt or messages",
    "train grpo --task mbpp:mbpp.jsonl": "mbpp.jsonl, line 1: expected a row of mbpp",
    "train grpo --task gsm8k:gsm8k": "train.jsonl, line 1: expected",
    "train grpo --task gsm8k:nowhere": "there is nothing at nowhere: write gsm8k:FOLDER",
    "train grpo --task humaneval:humaneval.jsonl": "has no train split",
    "eval tiny --task humanevil": "did you mean 'humaneval'?",
    "eval tiny --task gym:chain_summ(": "gym:chain_summ( is no generator",
    "train sft": "Name a setting",
    "train sft data=missing.jsonl": "no file missing.jsonl",
    "train sft data=bad.jsonl": "bad.jsonl line 2",
    "train grpo:words --run file/run": "choose a place you can write to",
    "resume nothing": "no run in",
    "resume .": "is not a run",
    "eval tiny --task words --problems 0": "at least 1",
    "eval nowhere --task words": "no model at nowhere",
    "chat nowhere --prompt hello": "no model at nowhere",
    "chat tiny --prompt hello --temperature -1": "temperature is -1",
    "methods gropo": "Did you mean 'grpo'?",
    "explain rewrd": "did you mean reward",
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "bad.py").write_text(BAD_TASK)
    (tmp_path / "gsm8k").mkdir()
    for name, text in TASK_FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n')
    return tmp_path


@pytest.mark.parametrize("line", WRONG)
def test_bad_input_gets_a_sentence_and_leaves_nothing(here, capsys, line):
    before = sorted(here.rglob("*"))
    code = main(line.split())
    said = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and said[0].startswith("postgrad: ") and WRONG[line] in "".join(said), said
    assert len(said) == 1 or said[0].endswith("rows are bad:"), "one sentence; several bad rows, a line each"
    assert sorted(here.rglob("*")) == before


def test_unknown_options_are_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "grpo:words", "--stepz", "3"])
    assert end.value.code == 2 and "--stepz" in capsys.readouterr().err


def test_light_commands_import_no_torch():
    code = ("import sys, postgrad; from postgrad.cli import main; main([]); main(['explain', 'kl']); "
            "assert 'torch' not in sys.modules and 'rich' not in sys.modules")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).returncode == 0


def test_methods_lists_every_row(capsys):
    assert main(["methods", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["name"] for r in rows] == list(METHODS) and all(r["paper"] for r in rows)
    assert main(["methods", "dapo"]) == 0
    assert "clipped_ratio(low=0.2, high=0.28)" in capsys.readouterr().out


def test_every_metric_of_a_run_is_explained(here, capsys):
    change = ("steps=2 rollouts.prompts=8 rollouts.prompts_per_step=2 rollouts.group_size=2 "
              "rollouts.max_new_tokens=12 evaluation.every=0")
    assert main(["train", "grpo:words", *change.split(), "--run", "runs/a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "done"
    row = json.loads((here / "runs/a/metrics.jsonl").read_text().splitlines()[0])
    for name in row.keys() - {"step"}:
        assert main(["explain", name]) == 0, name
    capsys.readouterr()
    assert main(["runs", "--json"]) == 0
    assert [r["name"] for r in json.loads(capsys.readouterr().out)] == ["a"]
    assert main(["eval", "runs/a", "--task", "arithmetic", "--problems", "3", "--samples", "2",
                 "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert 0 <= row["pass@1"] <= row["pass@2"] <= 1
    assert main(["chat", "runs/a", "--prompt", "What is 2+3?", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out)["replies"][0]["reply"], str)


def test_a_run_started_again_from_its_saved_config_is_the_same(here, capsys):
    change = "steps=2 examples=16 rows_per_step=4 seed=5"
    assert main(["train", "sft:words", *change.split(), "--run", "a", "--json"]) == 0
    assert main(["train", "sft:words", *change.split(), "--run", "b", "--json"]) == 0
    weights = [(here / name / "checkpoints/000002/model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]
    assert (json.loads((here / "a/config.json").read_text())
            == json.loads((here / "b/config.json").read_text()))


def test_the_demo_writes_its_figures_and_keeps_an_older_one(here, capsys, monkeypatch):
    from postgrad.recipes.pipelines import demo
    short = replace(demo.quick(0), sft_steps=2, rl_steps=2, problems=3, samples=2)
    monkeypatch.setattr(demo, "quick", lambda seed: replace(short, seed=seed))
    (here / "runs/demo").mkdir(parents=True)
    (here / "runs/demo/summary.json").write_text("the one before")
    assert main(["demo", "--quick"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("base", "sft", "rl", "pass@1", "Next:", "report.html"))
    summary = json.loads((here / "runs/demo/summary.json").read_text())
    assert [s["name"] for s in summary["stages"]] == ["base", "sft", "rl"]
    for stage in summary["stages"]:
        low, high = stage["pass@1_interval"]
        assert 0 <= low <= stage["pass@1"] <= high <= 1
        assert stage.keys() >= {"pass@2", "greedy", "mean_length", "seconds", "format"}
    assert (summary["seconds_total"] > 0
            and (here / "runs/demo-1/summary.json").read_text() == "the one before")
    assert "<svg" in (here / "runs/demo/report.html").read_text()
