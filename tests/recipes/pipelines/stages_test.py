"""What a pipeline is: steps that build on each other, done once, cut anywhere and gone on with; one's own."""

import json

import pytest
from pipeline_small import Cut, Cutting, cut_everywhere, left_in

import postgrad as pg
from postgrad.cli import main
from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import load_task
from postgrad.evaluation import evaluate_task
from postgrad.maths.noise import seed_of
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.launch import resume_training, start_training
from postgrad.recipes.pipelines.stages import StageTrackers, run_pipeline, save_plan
from postgrad.recipes.registry import config_class, recipe_module
from postgrad.recipes.running import start_run
from postgrad.resolve.models import open_chat, open_model
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.settings import replace_settings

SFT = {"steps": 2, "examples": 16, "rows_per_step": 4, "save_every": 1}
RL = {"steps": 2, "save_every": 1, "prompts": 8, "prompts_per_step": 2, "group_size": 2,
      "rollouts.max_new_tokens": 8, "evaluation.every": 0}
EXAM = {"problems": 3, "samples": 2, "max_new_tokens": 8}


def small():
    return pg.Pipeline(name="mine", steps=[
        pg.stage("sft", "sft:words", **SFT),
        pg.measure("sft", "{sft}", "words", **EXAM),
        pg.keep("kept", model="{sft}", task="questions", samples=2, prompts=4, max_new_tokens=8),
        pg.stage("again", "sft", data="{kept}/conversations.jsonl", model="{sft}", steps=1, rows_per_step=4),
        pg.stage("rl", "grpo:words", model="{again}", **RL),
        pg.measure("rl", "{rl}", "words", **EXAM),
    ])


def test_steps_build_on_each_other_and_the_summary_has_a_row_for_each_measurement(tmp_path):
    summary = small().run(tmp_path / "a")
    runs = {name: Run.open(tmp_path / "a" / name) for name in ("sft", "again", "rl")}
    assert runs["again"].info["model"] == str(tmp_path / "a/sft")
    assert runs["rl"].info["model"] == str(tmp_path / "a/again")
    lines = (tmp_path / "a/kept/conversations.jsonl").read_text().splitlines()
    assert summary["data"]["kept"]["kept"] == len(lines) == runs["again"].info["data"]["prompts"] == 4
    (rows,) = summary["tables"].values()
    assert [(row["model"], row["made by"]) for row in rows] == [("sft", "sft"), ("rl", "grpo")]
    assert rows[0]["pass@1"] == summary["measured"]["sft"]["pass@1"] and summary["minutes"] > 0


def test_cut_anywhere_it_goes_on_to_the_same_bits(tmp_path):
    small().run(tmp_path / "whole")
    cuts = cut_everywhere(lambda stages: run_pipeline(small(), tmp_path / "cut", stages=stages))
    assert cuts == ["sft begins", "sft 1", "sft 2", "measuring sft", "kept", "again begins", "again 1",
                    "rl begins", "rl 1", "rl 2", "measuring rl"]
    assert left_in(tmp_path / "cut") == left_in(tmp_path / "whole")


def test_what_is_done_is_not_done_again(tmp_path):
    with pytest.raises(Cut):
        run_pipeline(small(), tmp_path / "a", stages=Cutting(6))
    seen = Cutting()
    run_pipeline(small(), tmp_path / "a", stages=seen)
    assert seen.seen[0] == "again begins"
    again = Cutting()
    run_pipeline(small(), tmp_path / "a", stages=again)
    assert again.seen == []


def test_half_written_files_of_a_killed_process_are_swept_away(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / ".pipeline.json.tmp-7").write_text("{")
    with pytest.raises(Cut):
        run_pipeline(small(), folder, stages=Cutting(5))
    (folder / ".kept-x").mkdir()
    (folder / "measured/.rl.json.tmp-9").write_text("{")
    small().run(folder)
    assert not [p for p in folder.rglob(".*") if p.parent.name in ("a", "measured")]


@pytest.mark.parametrize(("steps", "words"), [
    ([pg.stage("rl", "grpo:words", model="{sft}")], r"step rl is given \{sft\}, and no step before it"),
    ([pg.stage("sft", "sft:words"), pg.stage("rl", "grpo:words", model="{stf}")], "Did you mean 'sft'"),
    ([pg.stage("sft", "sft:words"), pg.stage("sft", "sft:words")], "two steps are called 'sft'"),
    ([pg.stage("measured", "sft:words")], "two steps are called 'measured'"),
    ([pg.stage("a/b", "sft:words")], "cannot name a run"),
    ([pg.stage("1", "sft:words")], "'1' cannot name a step: begin with a letter"),
])
def test_a_pipeline_that_cannot_be_is_a_sentence(steps, words):
    with pytest.raises(ValueError, match=words):
        pg.Pipeline(name="x", steps=steps)


def test_braces_of_a_pattern_name_no_step(tmp_path):
    reward = r"regex(\d{3})"
    made = pg.Pipeline(name="x", steps=[pg.stage("rl", "grpo:words", reward=reward, **RL)])
    made.run(tmp_path / "a")
    assert Run.open(tmp_path / "a/rl").config["reward"] == reward


def test_another_pipeline_in_the_folder_is_refused(tmp_path):
    with pytest.raises(Cut):
        run_pipeline(small(), tmp_path / "a", stages=Cutting(1))
    other = small().changed({"rl.steps": 3})
    with pytest.raises(ValueError, match="holds a pipeline with other steps"):
        other.run(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/mine.txt").write_text("")
    with pytest.raises(ValueError, match="is not empty"):
        small().run(tmp_path / "b")
    with pytest.raises(ValueError, match="'lr.steps' names no stage of mine: .* Did you mean 'rl'"):
        small().changed({"lr.steps": 3})
    with pytest.raises(ValueError, match=r"go on there, with pipeline.run\("):
        resume_training(tmp_path / "a")


OWN = """
import postgrad as pg

pipeline = pg.Pipeline(name="", steps=[
    pg.stage("sft", "sft:words", steps=2, examples=16, rows_per_step=4),
    pg.measure("sft", "{sft}", "words", problems=2, samples=2, max_new_tokens=8),
])
"""


def test_a_pipeline_of_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    assert main(["train", "mine.py", "sft.steps=1", "sft.seed=3", "--run", "a", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["recipe"] == "mine" and Run.open("a/sft").info["steps"] == 1
    assert Run.open("a/sft").config["seed"] == 3
    assert main(["resume", "a"]) == 0
    assert "What was measured" in capsys.readouterr().out
    (tmp_path / "mine.py").write_text(OWN.replace("steps=2", "steps=2, lr=1e-5"))
    assert main(["resume", "a"]) == 2
    assert "holds a pipeline with other steps" in capsys.readouterr().err
    (tmp_path / "mine.py").write_text("pipeline = 3\n")
    assert main(["train", "mine.py"]) == 2
    assert "pipeline is a int: make it with postgrad.Pipeline" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "said"), [
    ("SETTINGS = {}\ndef pipeline(config): ...\n", "SETTINGS names the configs of pipeline(config)"),
    ("SETTINGS = {'full': dict}\ndef pipeline(config): ...\n", "SETTINGS makes a dict"),
    ("def pipeline(config): ...\n", "pipeline is a function"),
])
def test_a_file_with_settings_that_cannot_be_is_a_sentence(text, said, tmp_path, capsys):
    (tmp_path / "lab.py").write_text(text)
    assert main(["train", str(tmp_path / "lab.py"), "rl.steps=2", "--json"]) == 2
    assert said in capsys.readouterr().err


def test_a_function_handed_in_goes_on_too(tmp_path):
    made = pg.Pipeline(name="own reward", steps=[pg.stage(
        "rl", "grpo", task=["Say a.", "Say b."], reward=lambda prompt, text: float(len(text)), **RL)])
    with pytest.raises(Cut):
        run_pipeline(made, tmp_path / "a", stages=Cutting(2))
    made.run(tmp_path / "a")
    assert Run.open(tmp_path / "a/rl").summary()["state"] == "done"


def by_hand(folder, stages):
    """The runs of a pipeline without it: each started by its recipe, one after another."""
    for name, config in stages:
        config, _ = fill_defaults(config)
        start_run(config, folder / name)


def without_log_sums(value):
    """A manifest without the sums of the logs, which have times, and without its own."""
    return ({key: part for key, part in value.items() if key not in ("logs", "sha256")}
            if isinstance(value, dict) else value)


def test_align_is_what_its_stages_are_by_themselves(tmp_path):
    """The figures of the pipeline, to the digit, from nothing but recipes and `evaluate`."""
    changes = "pairs=16 reward_steps=2 collections=1 problems=4 samples=1 methods=simpo".split()
    config, _ = fill_defaults(config_from_text("align", changes)[1])
    summary = start_training("align", config, tmp_path / "a")
    drawn = ["steps=2", "pairs.drawn=16", "pairs.held_out=3"]
    exam = ["evaluation.every=1", "evaluation.problems=4", "evaluation.samples=4"]
    by_hand(tmp_path / "b", [
        ("reward", config_from_text("reward:questions", drawn)[1]),
        ("simpo", replace_settings(config_from_text("simpo:questions", [*drawn, *exam])[1],
                                   {"optim": config.optim}))])
    for name in ("reward", "simpo"):
        ours, theirs = (left_in(tmp_path / place / name) for place in "ab")
        for file in ("metrics.jsonl", "evals.jsonl", *(f for f in ours if f.startswith("checkpoints/"))):
            a, b = (without_log_sums(left[file]) for left in (ours, theirs))
            assert a == b, (name, file)
    task = load_task("questions")
    prompts = [p for split in ("validation", "test") for p in task.prompts(split, 4, 0)][:4]
    model, chat = open_model(tmp_path / "b/simpo")
    found = evaluate_task(task, LocalSampler(model, chat), prompts, samples=1, greedy=False,
                     settings=Sampling(max_new_tokens=task.tokens or 64), seed=seed_of(0, "align"))
    (row,) = (p for p in summary["policies"] if p["name"] == "simpo")
    assert (row["true"], row["interval"]) == (found["reward"], found["reward_interval"])


@pytest.mark.parametrize("name", ["r1-zero", "r1", "expert-iteration", "instruct", "align"])
def test_a_template_is_that_of_a_copy_which_every_step_begins_with(name, tmp_path):
    task = "questions" if name in ("instruct", "align") else "words"
    config = replace_settings(config_class(name)(), {"model": "tiny", "task": task, "template": "chatml"})
    plain = recipe_module(name).pipeline(replace_settings(config, {"template": None}))
    steps = recipe_module(name).pipeline(config).from_template(config, "tiny").steps
    models = [getattr(getattr(step, "config", step), "model", None) for step in plain.steps]
    assert "tiny" in models
    assert [getattr(getattr(step, "config", step), "model", None) for step in steps[1:]] == [
        "{start}" if model == "tiny" else model for model in models]
    if name == "r1-zero":
        steps[0].run_step(tmp_path, StageTrackers(), "")
        chat = open_chat(tmp_path / "start")
        tokens = chat.render([{"role": "user", "content": "Hi"}])
        assert "<|im_start|>user\nHi" in chat.tokenizer.decode(tokens, skip_special_tokens=False)
        assert open_model(str(tmp_path / "start"))[0].config.vocab_size >= len(chat.tokenizer.get_vocab())


def test_a_pipeline_that_began_before_a_setting_was_there_goes_on(tmp_path):
    config = config_class("r1-zero")(problems=4)
    pipeline = pg.Pipeline(name="r1-zero", steps=[])
    save_plan(pipeline, tmp_path / "p", "r1-zero", config, "")
    plan = json.loads((tmp_path / "p" / "pipeline.json").read_text())
    del plan["config"]["template"]
    (tmp_path / "p" / "pipeline.json").write_text(json.dumps(plan))
    save_plan(pipeline, tmp_path / "p", "r1-zero", config, "")
    with pytest.raises(ValueError, match="other settings"):
        save_plan(pipeline, tmp_path / "p", "r1-zero", replace_settings(config, {"template": "chatml"}), "")
