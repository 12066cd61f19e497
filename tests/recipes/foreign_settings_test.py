"""Names of other libraries: every argument of TRL's configs is answered, with settings that there are."""

import dataclasses

import pytest
from paths import ROOT

import postgrad as pg
from postgrad.cli.settings import config_from_text
from postgrad.methods import METHODS
from postgrad.recipes import foreign_settings
from postgrad.recipes.registry import RECIPES, config_class, has_setting, setting_names

PAGE = ROOT / "docs" / "coming-from-trl.md"


def trl_configs():
    trl = pytest.importorskip("trl", reason="TRL's dataclasses are the oracle: pip install -e '.[test]'")
    kinds = (trl.SFTConfig, trl.DPOConfig, trl.GRPOConfig, trl.RewardConfig)
    return {kind.__name__: {f.name for f in dataclasses.fields(kind)} for kind in kinds}


def test_every_argument_of_trls_configs_has_its_row_and_no_other():
    """Inherited ones too, each in the group of the configs that have it."""
    configs = trl_configs()
    answered = {name for group in foreign_settings.TRL.values() for name in group}
    assert answered == set().union(*configs.values())
    for title, group in foreign_settings.TRL.items():
        for name in group:
            homes = [config for config, names in configs.items() if name in names]
            expected = {4: "In all four configs", 1: homes[0]}.get(len(homes), "In two or three of them")
            assert title == expected, (name, homes)


def test_every_setting_that_is_named_exists():
    known = {name for recipe in RECIPES for name in setting_names(config_class(recipe))}
    for name, (ours, _) in foreign_settings.OTHER_NAMES.items():
        assert all(has_setting(known, setting) for setting in ours.split()), (name, ours)


def test_an_argument_with_the_same_name_means_the_same():
    """What is accepted under TRL's name is one of these; another that a recipe comes to have is looked at
    first."""
    known = {key.split(".")[-1] for recipe in RECIPES for key in setting_names(config_class(recipe))}
    same = {"seed", "weight_decay", "max_grad_norm", "temperature", "beta", "top_p", "top_k", "min_p"}
    other = {"scale_rewards"}  # refused without its group
    assert {name for group in foreign_settings.TRL.values() for name in group} & known == same | other


@pytest.mark.parametrize("name", sorted(foreign_settings.OTHER_NAMES))
def test_the_answer_is_one_sentence(name):
    answer = foreign_settings.foreign_answer(name)
    assert answer.endswith(".") and "\n" not in answer and len(answer) < 250
    assert ". " not in answer.replace("...", "")


def test_the_page_has_every_name():
    page = PAGE.read_text()
    for name in foreign_settings.OTHER_NAMES:
        answer = foreign_settings.foreign_answer(name).replace("|", r"\|")
        assert f"| `{name}` | {answer} |" in page, name


@pytest.mark.parametrize(("spec", "setting", "words"), [
    ("grpo:words", "learning_rate=1e-5", "no setting 'learning_rate'. It is called lr here: lr=1e-4."),
    ("grpo:words", "lerning_rate=1e-5", "Did you mean 'learning_rate'? It is called lr here: lr=1e-4."),
    ("grpo:words", "report_to=wandb", "--track FILE|NAME"),
    ("grpo:words", "logging_steps=1", "Every step is logged"),
    ("sft:words", "deepspeed=zero3.json", "torchrun"),
    ("sft:words", "packing=true", "tokens_per_pass"),
    ("sft:words", "peft_config=lora.json", "lora=16"),
    ("grpo:words", "use_vllm=true", "sampler=vllm"),
    ("sft:words", "max_length=512", "It is called rows.max_tokens here."),
    ("dpo:questions", "max_length=512", "It is called pairs.max_tokens here."),
    ("grpo:words", "max_length=512", "It is called rollouts.max_new_tokens here."),
    ("sft:words", "num_generations=4", "samples of each prompt, which sft does not have."),
    ("grpo:words", "per_device_train_batch_size=8", "prompts_per_step=16"),
    ("grpo:words", "scale_rewards=false", "dr_grpo"),
])
def test_the_command_line_answers(spec, setting, words):
    with pytest.raises(ValueError) as error:
        config_from_text(spec, [setting])
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("method", "argument", "words"), [
    ("grpo", {"report_to": "wandb"}, "trackers=[...] in Python"),
    ("sft", {"train_dataset": [{"prompt": "a", "completion": "b"}]}, "Rows are data=..."),
    ("grpo", {"args": None}, "arguments of fit, lr=1e-4"),
    ("grpo", {"reward_funcs": [len], "task": "words"}, "It is called reward here"),
])
def test_fit_answers(method, argument, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as error:
        pg.fit("tiny-chat", method, **argument)
    assert words in str(error.value) and not list(tmp_path.iterdir())


def test_names_of_rows_in_the_answers_are_rows():
    for row in ("cdpo", "dr_grpo", "dapo", "cispo", "ipo", "simpo", "gspo", "gdpo", "lite_ppo",
                "deepseek_v32", "sapo", "kl_cov"):
        assert row in METHODS


@pytest.mark.parametrize(("truncate", "words"), [
    ("refuse", "over the limit of 16"), ("right", "cut at the end, for they are over the limit of 16")])
def test_max_length_has_a_home(truncate, words, tmp_path):
    """rows.max_tokens: a limit below the model's own context; right keeps the first 16 tokens."""
    rows = [{"prompt": "Hi", "completion": "Yes."}] * 3 + [{"prompt": "Hi", "completion": "Yes, " * 60}]

    def train():
        return pg.fit("tiny-chat", "sft", data=rows, run=tmp_path / "run", steps=1, display=False,
                      rows={"max_tokens": 16, "truncate": truncate})
    if truncate == "refuse":
        with pytest.raises(ValueError, match=words):
            train()
    else:
        assert any(words in row["text"] for row in train().rows("events")[0])
