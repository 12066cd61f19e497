"""Defaults that fit the model: rules by numbers, the embedded models as ever, and a larger one."""

import json
import math
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from settings_text import override
from small import CHAT

import postgrad
from postgrad import methods
from postgrad.cli import main
from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import load_task
from postgrad.models import Config, Decoder, find_model, save_model
from postgrad.recipes import defaults, rollouts, sft
from postgrad.recipes.defaults import (
    ChosenDefaults,
    adapter_rank,
    default_rate,
    fill_defaults,
    memory_needs,
    model_size,
    pass_tokens,
    reply_tokens,
)
from postgrad.recipes.pipelines import expert_iteration
from postgrad.recipes.registry import config_class, recipe_module
from postgrad.resolve.models import read_config
from postgrad.runs import Run
from postgrad.system.settings import flat_settings
from postgrad.training.memory import SIZES, parameters, shape_of

SHAPE = Config(vocab_size=1024, hidden_size=1024, intermediate_size=4096, num_hidden_layers=1,
               num_attention_heads=8, num_key_value_heads=8, head_dim=128, max_position_embeddings=512,
               tie_word_embeddings=True)
SMALL = ["steps=2", "rollouts.prompts=4", "rollouts.prompts_per_step=2", "rollouts.group_size=2",
         "evaluation.problems=2", "evaluation.samples=2", "evaluation.every=1", "save_every=1"]


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    """A random model of some 18M parameters, nine times the embedded ones."""
    folder = tmp_path_factory.mktemp("larger") / "twenty"
    folder.mkdir()
    save_model(Decoder(SHAPE).start(torch.Generator().manual_seed(0)), folder)
    CHAT.save(folder)
    return folder


# the rules, by numbers

@pytest.mark.parametrize(("recipe", "size", "wanted"), [
    ("rollouts", 2e6, 3e-4), ("rollouts", 1e5, 3e-4), ("rollouts", 135e6, 1.5e-5), ("rollouts", 494e6, 6e-6),
    ("rollouts", 630e6, 5.1e-6), ("rollouts", 7e9, 9.1e-7), ("preference", 2e6, 1e-4),
    ("preference", 135e6, 5e-6), ("preference", 7e9, 3e-7), ("sft", 2e6, 1e-3), ("sft", 135e6, 1.2e-4),
    ("sft", 7e9, 1.7e-5), ("reward", 2e6, 1e-3), ("process", 2e6, 1e-4),
    ("process", 8e6, 5e-5), ("align", 2e6, 1e-4),
])
def test_rates_by_hand(recipe, size, wanted):
    assert default_rate(recipe, size) == wanted


def test_a_row_that_imitates_its_samples_bears_a_larger_rate():
    assert default_rate("rollouts", 200e6) == 1.1e-5 and default_rate("rollouts", 200e6,
                                                                      supervised=True) == 3e-5


def test_adapters_take_ten_times_the_rate_of_all_weights():
    for recipe in defaults.RATES:
        assert default_rate(recipe, 1e6, adapter=True) == default_rate(recipe, 1e6)  # as the embedded models
        for size in (2e7, 5e8, 7e9):
            assert default_rate(recipe, size, adapter=True) == pytest.approx(10 * default_rate(recipe, size),
                                                                             rel=1e-9)


def test_larger_models_never_get_larger_rates():
    sizes = [10**x for x in (6, 6.3, 7, 7.5, 8, 9, 10, 11)]
    for recipe in defaults.RATES:
        rates = [default_rate(recipe, size) for size in sizes]
        assert rates == sorted(rates, reverse=True) and rates[-1] > 0


@pytest.mark.parametrize(("task", "size", "positions", "wanted"), [
    (None, 2e6, 512, 64), (None, 5e7, 2048, 64), (None, 6e7, 2048, 256), (256, 2e6, 8192, 256),
    (96, 7e9, 4096, 96), (512, 2e6, 512, 256), (None, 1e9, 100, 50), (None, 1e9, math.inf, 256),
    (64, 1e6, 1, 1),
])
def test_the_tokens_of_a_reply_by_hand(task, size, positions, wanted):
    assert reply_tokens(task, size, positions) == wanted


@pytest.mark.parametrize(("recipe", "size", "fits", "wanted"), [
    ("rollouts", 1e9, True, 0), ("rollouts", 1.1e9, True, 16), ("preference", 7e9, True, 16),
    ("sft", 7e9, True, 32), ("reward", 7e9, True, 32), ("rollouts", 5e8, False, 16),
    ("process", 7e9, False, 0),
])
def test_the_rank_by_hand(recipe, size, fits, wanted):
    assert adapter_rank(recipe, size, fits) == wanted


def test_the_tokens_of_a_pass_leave_a_tenth_free():
    rooms = {20_000: 8192, 10_213.4: 8192, 10_213.3: 4096, 100: 1024}
    assert {room: pass_tokens(lambda tokens: 1000 + tokens, room) for room in rooms} == rooms


# configs

@pytest.mark.parametrize(("recipe", "row", "lr"), [
    ("sft", "sft", 1e-3), ("rollouts", "grpo", 3e-4), ("reward", "reward", 1e-3), ("rollouts", "ppo", 1e-4),
    ("preference", "dpo", 1e-4), ("preference", "kto", 1e-4), ("process", "outcome", 1e-4)])
def test_the_embedded_models_are_trained_as_ever(recipe, row, lr):
    task = "words" if recipe in ("sft", "rollouts", "process") else "questions"
    before = config_class(recipe)(task=task, method=methods.get_method(row))
    for model in ("tiny", "tiny-chat"):
        config, chosen = fill_defaults(replace(before, model=model))
        said = chosen.sentence
        values = flat_settings(config)
        assert (values["optim.lr"], values["optim.adapter.lora"]) == (lr, 0)
        assert values["optim.tokens_per_pass"] is None
        assert {v for k, v in values.items() if k.endswith("max_new_tokens")} <= {64, None}
        assert said.startswith(f"{model} has 2M parameters: ") and f"optim.lr={lr}" in said
        assert "\n" not in said
        again, chosen = fill_defaults(config)
        assert again is config and chosen == ChosenDefaults()  # chosen once


@pytest.mark.parametrize(("spec", "tokens"), [("grpo:hard", 96), ("grpo:countdown", 128), ("grpo:words", 64),
                                              ("process:hard", 96), ("grpo:arithmetic", 64)])
def test_a_task_says_how_long_its_replies_are(spec, tokens):
    values = flat_settings(fill_defaults(config_from_text(spec)[1])[0])
    homes = {"rollouts.max_new_tokens", "replies.max_new_tokens"} & values.keys()
    assert {values[home] for home in homes} == {tokens}
    if spec.startswith("grpo"):
        assert values["evaluation.max_new_tokens"] == tokens


def test_tasks_of_their_own_say_it_too(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("prompts = ['a?', 'b?', 'c?']\ntokens = 40\ndef verify(p, c): return 1.0\n".replace(
        "['a?', 'b?', 'c?']", "[{'question': q} for q in 'abc']"))
    config = fill_defaults(rollouts.RolloutConfig(task=str(file)))[0]
    assert config.rollouts.max_new_tokens == config.evaluation.max_new_tokens == 40
    file.write_text(file.read_text().replace("40", "'many'"))
    with pytest.raises(ValueError, match="mine.py, line 2: `tokens` must be a whole number"):
        load_task(file)


@pytest.mark.parametrize(("size", "device", "changes", "steps", "every"), [
    ("2M", "cuda", [], 40, 10), ("135M", "cpu", [], 40, 10), ("135M", "cuda", [], 400, 20),
    ("135M", "cuda", ["rollouts.collections=60"], 60, 10), ("135M", "cuda", ["steps=500"], 500, 25),
    ("7B", "cuda", ["save_every=3"], 400, 20)])
def test_runs_of_larger_models_on_a_gpu_are_longer(size, device, changes, steps, every, monkeypatch):
    monkeypatch.setattr(defaults, "read_config", lambda model: SHAPES[size])
    config = override(rollouts.RolloutConfig(task="words", device=device), changes)
    config, chosen = fill_defaults(config, gpu_memory=140e9)
    assert (config.steps, config.evaluation.every) == (steps, every)
    assert config.save_every == (3 if "save_every=3" in changes else every)
    assert ("steps=400 (by the size)" in chosen.sentence) == (steps == 400)


def test_what_is_named_stands():
    changes = ["lr=1e-2", "lora=3", "rollouts.max_new_tokens=7"]
    config, chosen = fill_defaults(override(rollouts.RolloutConfig(task="countdown"), changes))
    assert (config.optim.lr, config.optim.adapter.lora, config.rollouts.max_new_tokens) == (1e-2, 3, 7)
    assert config.evaluation.max_new_tokens == 7 and "optim.lr" not in chosen.sentence  # as the rollouts


# named settings: a task's, with any model

NAMED = [(recipe, name) for recipe in ("sft", "reward", "process", "preference", "rollouts")
         for name in recipe_module(recipe).SETTINGS]
SHAPES = {"2M": read_config("tiny"), "135M": replace(shape_of(135e6), vocab_size=49152), "7B": SIZES["7B"]}


@pytest.mark.parametrize("size", SHAPES)
@pytest.mark.parametrize(("recipe", "name"), NAMED)
def test_a_named_setting_leaves_to_the_rules_what_depends_on_the_model(recipe, name, size, monkeypatch):
    monkeypatch.setattr(defaults, "read_config", lambda model: SHAPES[model])
    task = load_task("words" if name == "gsm8k" else "questions" if name == "biased" else recipe_module(
        recipe).SETTINGS[name]().task)
    monkeypatch.setattr(defaults, "open_task", lambda name: replace(task, tokens=256) if name == "gsm8k"
                        else task)
    config = replace(recipe_module(recipe).SETTINGS[name](), model=size)
    filled, chosen = fill_defaults(config)
    count, positions, _ = model_size(size)
    rank = adapter_rank(recipe, count)
    found = {("rollouts", "guess"): 7e-4, ("rollouts", "animals"): 7e-4, ("rollouts", "questions"): 1e-4}
    rate = found.get((recipe, name)) if size == "2M" else None
    assert filled.optim.lr == (rate or default_rate(recipe, count, bool(rank)))
    assert filled.optim.adapter.lora == rank
    if config.reply_group:
        tokens = 256 if name == "gsm8k" else task.tokens
        assert filled.reply_limit == reply_tokens(tokens, count, positions)
    assert {"optim.lr", "optim.adapter.lora"} <= {choice.setting for choice in chosen.choices if choice.why}


def test_a_rate_that_was_found_with_a_model_is_that_model_s_alone(monkeypatch):
    smollm2 = Config(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                     num_attention_heads=9, num_key_value_heads=3, head_dim=64, max_position_embeddings=8192,
                     tie_word_embeddings=True)
    assert parameters(smollm2) == defaults.SMOLLM2
    wider = replace(smollm2, num_hidden_layers=31)
    shapes = {"models/smollm2": smollm2, "runs/sft": smollm2, "other": wider}
    monkeypatch.setattr(defaults, "read_config", lambda model: shapes[model])
    for model, changes, rate, why in (("models/smollm2", [], 5e-4, "found with SmolLM2-135M on this task"),
                                      ("runs/sft", [], 5e-4, "found with SmolLM2-135M on this task"),
                                      ("other", [], 1.2e-4, "by the size"),
                                      ("runs/sft", ["lora=8"], 1.2e-3, "by the size")):
        config = override(sft.sft_on_gsm8k(), [f"model={model}", *changes])
        filled, chosen = fill_defaults(config)
        assert filled.optim.lr == rate and f"optim.lr={rate} ({why})" in chosen.sentence
    assert fill_defaults(override(sft.sft_on_gsm8k(), ["lr=1e-5"]))[0].optim.lr == 1e-5
    # the pipeline's, which a sweep of SmolLM2 gave, and by the size for any other
    for model, rates in (("runs/sft", (5e-4, None, 1.2e-4)), ("other", (None, None, None))):
        config = expert_iteration.ExpertIterationConfig(model=model)
        assert tuple(vars(expert_iteration.stage_rates(config)).values()) == rates


def test_a_size_is_that_of_the_weights(larger, tmp_path):
    for folder in (find_model("tiny"), larger):
        size = model_size(folder)
        assert size.parameters == parameters(read_config(folder)) and size.positions == 512
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_positions": 64}))
    tensors = {"wte.weight": torch.zeros(5, 4), "wpe.weight": torch.zeros(64, 4)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert model_size(tmp_path) == (5 * 4 + 64 * 4, 64,
                                    None)  # an architecture that runs through transformers


def test_a_large_model_gets_an_adapter_and_its_rate(monkeypatch):
    monkeypatch.setattr(defaults, "read_config", lambda model: SIZES[model])
    config, said = fill_defaults(rollouts.RolloutConfig(task="words", model="7B"))
    assert config.optim.adapter.lora == 16
    assert config.optim.lr == default_rate("rollouts", parameters(SIZES["7B"]), adapter=True)
    assert config.rollouts.max_new_tokens == 256 and "optim.adapter.lora=16 (above 1B)" in said.sentence
    whole = fill_defaults(override(rollouts.RolloutConfig(task="words", model="7B"), ["lora=0"]))[0]
    assert whole.optim.adapter.lora == 0 and 10 * whole.optim.lr == pytest.approx(config.optim.lr)


def test_what_does_not_fit_the_gpu_gets_an_adapter_and_short_passes(monkeypatch):
    half = replace(SIZES["1B"], num_hidden_layers=8)  # some 0.75B
    monkeypatch.setattr(defaults, "read_config", lambda model: half)
    config = rollouts.RolloutConfig(task="words", model="half", device="cuda")
    roomy, _ = fill_defaults(config, gpu_memory=1e12)
    assert roomy.optim.adapter.lora == 0 and roomy.optim.tokens_per_pass is None
    tight = memory_needs(override(roomy, ["tokens_per_pass=2048"]), half).peak / 0.9
    shorter, said = fill_defaults(config, gpu_memory=tight)
    assert shorter.optim.adapter.lora == 0 and shorter.optim.tokens_per_pass == 2048
    assert "by the GPU's memory" in said.sentence
    assert memory_needs(shorter, half).peak <= 0.9 * tight * (1 + 1e-9)
    small, said = fill_defaults(config, gpu_memory=memory_needs(override(roomy, ["tokens_per_pass=1024"]),
                                                                half).peak)
    assert small.optim.adapter.lora == 16 and "all weights do not fit the GPU" in said.sentence
    assert small.optim.lr == default_rate("rollouts", parameters(half), adapter=True)


# the whole way

def test_a_larger_model_from_the_command_line(larger, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = ["steps=1", "rollouts.prompts_per_step=1", "rollouts.group_size=2", "evaluation.problems=1",
             "evaluation.samples=1", "evaluation.every=1"]
    line = ["train", "grpo", f"model={larger}", "--task", "words", *short]
    wanted = default_rate("rollouts", parameters(SHAPE))
    assert main([*line, "--show", "--json"]) == 0
    rows = {row["setting"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["optim.lr"]["value"] == wanted == 6.3e-5 and rows["optim.lr"]["open"]
    assert main([*line, "--run", "a"]) == 0
    out = capsys.readouterr().out
    assert out.count("parameters") == 1 and re.search(rf"optim.lr +{wanted} +by the size", out)
    quick = ["steps=1", "examples=2", "rows_per_step=2", "evaluation.every=0"]
    assert main(["train", "sft:words", *quick, "--run", "b", "--json"]) == 0
    told = capsys.readouterr()
    assert "parameters:" not in told.out + told.err
    saved = json.loads((tmp_path / "a" / "config.json").read_text())
    assert saved["optim"]["lr"] == wanted < 3e-4 and saved["optim"]["adapter"]["lora"] == 0
    assert saved["rollouts"]["max_new_tokens"] == saved["evaluation"]["max_new_tokens"] == 64
    assert Run.open("a").rows("metrics")[0][0]["lr"] == pytest.approx(wanted)


def test_going_on_chooses_nothing_anew(tmp_path, monkeypatch):
    def stop(step, row):
        raise KeyboardInterrupt

    settings = {key: int(value) for key, value in (change.split("=") for change in SMALL)}
    with pytest.raises(KeyboardInterrupt):
        postgrad.fit("tiny", "grpo", task="words", run=tmp_path / "run", display=False, callback=stop,
                     **settings)
    monkeypatch.setitem(defaults.RATES, "rollouts", (7.0, 0.0))
    run = postgrad.resume(tmp_path / "run", display=False)
    assert run.config["optim"]["lr"] == 3e-4 and run.metrics()[-1]["lr"] < 3e-4


def test_fit_says_what_was_chosen_unless_nobody_watches(tmp_path, capsys):
    settings = {"steps": 1, "examples": 4, "rows_per_step": 2}
    postgrad.fit("tiny", "sft", task="words", run=tmp_path / "a", display=False, **settings)
    assert capsys.readouterr().out == ""
    model = postgrad.load_model("tiny")  # handed in: it has no name yet when the choice is made
    run = postgrad.fit(model, "sft", task="words", run=tmp_path / "b", display=True, **settings)
    assert "optim.lr=0.001 (by the size)" in capsys.readouterr().out and run.config["optim"]["lr"] == 1e-3


def test_a_stage_that_stopped_goes_on_with_what_was_chosen(tmp_path, monkeypatch):
    from postgrad.recipes.pipelines.stages import Stage, StageTrackers
    from postgrad.recipes.sft import SFTConfig
    stage = Stage(name="sft", config=SFTConfig(task="words", steps=1, examples=4, rows_per_step=2))
    first = stage.run_step(tmp_path, StageTrackers(), "")
    first.status("stopped")
    monkeypatch.setitem(defaults.RATES, "sft", (7.0, 0.0))
    assert stage.run_step(tmp_path, StageTrackers(), "").config["optim"]["lr"] == 1e-3


def test_a_pipeline_s_rate_follows_the_model_too(monkeypatch):
    align = fill_defaults(config_from_text("align")[1])[0]
    assert (align.optim.lr, align.optim.adapter.lora) == (1e-4, 0)
    monkeypatch.setattr(defaults, "read_config", lambda model: SIZES[model])
    large = fill_defaults(config_from_text("align", ["model=7B"])[1])[0]
    assert large.optim.adapter.lora == 16
    assert large.optim.lr == default_rate("align", parameters(SIZES["7B"]), adapter=True)


def test_pretraining_has_no_rule():
    config = config_from_text("pretrain:smoke")[1]
    assert fill_defaults(config) == (config, ChosenDefaults())
