"""Settings explain themselves: a sentence and a when for each, in --show, explain, the form and the page."""

import inspect
import json
from dataclasses import fields

import pytest

from postgrad import methods
from postgrad.cli import main, reference
from postgrad.cli.settings import INDEX, config_from_text
from postgrad.recipes.pipelines.demo import DemoConfig
from postgrad.recipes.registry import CONFIGS, PIPELINES, RECIPES, config_class
from postgrad.recipes.settings_rows import (
    TO_BE_NAMED,
    default_method_name,
    preview_config,
    setting_rows,
    settings_index,
)
from postgrad.system.settings import Settings, describe_settings, flat_settings, is_group
from postgrad.system.user_code import load_file

HOMES = [*RECIPES, *PIPELINES]


@pytest.mark.parametrize("recipe", HOMES)
def test_no_setting_without_a_sentence_and_a_when(recipe):
    config = preview_config(default_method_name(recipe))[1]
    rows = setting_rows(config)
    assert [row["setting"] for row in rows] == list(flat_settings(config))
    lacking = [row["setting"] for row in rows if not row["about"].strip() or not row["when"].strip()]
    assert not lacking
    for row in rows:
        assert not row["about"].endswith(".") and not row["when"].endswith("."), row["setting"]  # clauses
    for f in fields(config):
        if is_group(kind := type(getattr(config, f.name))):
            assert kind.__doc__ and not kind.__doc__.startswith(kind.__name__ + "("), f.name


def test_the_demo_s_settings_have_sentences_too():
    assert not [row.name for row in describe_settings(DemoConfig()) if not row.about or not row.when]


PARTED = {f"{field}={part}": methods.method("grpo", **{field: part})
          for field, options in methods.PARTS.items() for part in options}


@pytest.mark.parametrize("name", [*methods.METHODS, *PARTED])
def test_every_constant_of_every_row_has_its_own_words(name):
    row = PARTED[name] if name in PARTED else methods.get_method(name)
    for constant in methods.constants_of(row):
        about, when = row.words(constant)
        assert about and when, f"{name}.{constant}"
        assert not about.startswith("a constant of"), \
            f"{name}.{constant}: annotate the parameter, {constant}: Annotated[float, RANGE, ABOUT, WHEN]"


def test_a_constant_of_a_user_s_function_is_named_as_such(tmp_path):
    text = "def bent(logp, old_logp, adv, *, slope=0.5):\n    return -(logp - old_logp) * adv * slope\n"
    (tmp_path / "mine.py").write_text(text)
    row = methods.method("grpo", name="mine", surrogate=load_file(tmp_path / "mine.py", "row").bent)
    assert row.words("slope")[0] == "a constant of bent"
    assert row.words("kl_in_loss") == methods.METHODS["grpo"].words("kl_in_loss")


def test_one_name_in_two_rows_may_mean_two_things():
    assert methods.get_method("ppo").words("lam") != methods.get_method("orpo").words("lam")
    assert methods.get_method("ppo").words("gamma") != methods.get_method("simpo").words("gamma")
    meanings = [row for row in settings_index() if row["setting"] == "method.high"]
    homes = [set(row["defaults"]) for row in meanings]
    clipped = "ppo grpo turn_grpo dr_grpo dapo reinforce_pp lite_ppo gdpo sdft deepseek_v32"
    assert homes == [{*clipped.split()}, {"gspo"}, {"cispo", "scalerl"}, {"dppo"}, {"gmpo"}]


@pytest.mark.parametrize("spec", ["grpo", "sft", "dpo", "kto", "reward", "process", "align", "pretrain"])
def test_show_needs_no_task(spec, capsys):
    assert main(["train", spec, "--show", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(row.keys() == {"setting", "value", "open", "about", "when"} for row in rows)
    values = {row["setting"]: row["value"] for row in rows}
    if spec not in ("align", "pretrain"):
        assert values["task"] == TO_BE_NAMED and values["method"] == spec
    assert main(["train", spec, "--show"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["setting", "value", "what", "it", "is"] and "optim.lr" in out


def test_show_has_what_was_named_and_what_stands_for_the_open(capsys):
    changes = ["method=ppo", "steps=7", "method.high=0.3"]
    assert main(["train", "grpo", *changes, "--task", "words", "--show", "--json"]) == 0
    rows = {row["setting"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["task"]["value"], rows["steps"]["value"], rows["method.high"]["value"]) == ("words", 7, 0.3)
    assert rows["kl.coef"]["value"] == 0.02 and rows["kl.coef"]["open"]  # PPO's own
    assert rows["optim.tokens_per_pass"]["value"] == 2048 and not rows["kl.target"]["open"]
    assert main(["train", "grpo", "kl=0.5", "lora=4", "--show", "--json"]) == 0
    rows = {row["setting"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["kl.coef"]["value"], rows["kl.coef"]["open"]) == (0.5, False)
    assert rows["optim.adapter.alpha"]["value"] == 8.0 and rows["optim.adapter.alpha"]["open"]


@pytest.mark.parametrize(("name", "settings", "home", "default"), [
    ("group_size", ["rollouts.group_size"], "rollouts", 8),
    ("rollouts.group_size", ["rollouts.group_size"], "rollouts", 8),
    ("optim.lr", ["optim.lr"], "sft", 1e-3), ("method.lam", ["method.lam"] * 2, "orpo", 0.1),
    ("rows_per_step", ["rows_per_step"] * 2, "sft", 64), ("beta1", ["optim.beta1"], "align", 0.9),
])
def test_explain_knows_settings(name, settings, home, default, capsys):
    assert main(["explain", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["setting"] for row in found["settings"]] == settings
    assert found["settings"][0]["defaults"][home] == default
    assert main(["explain", name]) == 0
    out = capsys.readouterr().out
    assert found["settings"][0]["about"] in out and "when to change it" in out and f"{home} {default}" in out


@pytest.mark.parametrize("name", ["lr", "kl", "entropy", "reward"])
def test_a_name_that_is_metric_and_setting_is_both(name, capsys):
    assert main(["explain", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == name and found["meaning"] and found["settings"][0]["setting"] in (
        name, f"optim.{name}", f"method.{name}", f"{name}.coef")
    assert main(["explain", name]) == 0
    out = capsys.readouterr().out
    assert out.index("healthy") < out.index("when to change it")


def test_explain_answers_a_slip_of_the_pen(capsys):
    assert main(["explain", "group_siz"]) == 2
    said = capsys.readouterr().err
    assert "no metric, method or setting is called 'group_siz'; did you mean group_size" in said


FLAGS = {
    "--device cuda": "write device=cuda.", "--steps 3": "write steps=3.", "--lr 1e-4": "write lr=1e-4.",
    "--model X": "write model=X.", "--learning_rate 1e-4": "write lr=1e-4.",
    "--optim.lr 1": "write optim.lr=1.",
    "--learning-rate=1e-4": "write lr=1e-4.", "--num_generations 4": "write group_size=4.",
    "--max_completion_length 9": "write rollouts.max_new_tokens=9.",
    "--batch_size 4": "prompts_per_step=16 and group_size=8",
}


@pytest.mark.parametrize("flags", FLAGS)
def test_a_flag_from_elsewhere_is_answered_with_the_setting(flags, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = flags.split()
    for words in (["grpo:words", *given], [*given, "grpo:words"], ["grpo:words", *given, "steps=3"]):
        assert main(["train", *words]) == 2
        said = capsys.readouterr().err.strip().splitlines()
        assert len(said) == 1 and FLAGS[flags] in said[0], said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("change", "words"), [
    ("learning_rate=1e-4", "It is called lr here"), ("num_generations=4", "It is called group_size here"),
    ("beta=0.1", "The weight of the KL to the start is kl.coef"), ("batch_size=4", "A step is so many"),
    ("max_completion_length=9", "rollouts.max_new_tokens"),
    ("clip=0.3", "may be method.low and method.high, the clip of a policy row's ratio, or max_grad_norm"),
])
def test_a_name_from_elsewhere_is_answered_with_ours(change, words):
    with pytest.raises(ValueError, match=words):
        config_from_text("grpo:words", [change])


def test_beta_is_the_row_s_own_where_it_has_one():
    assert methods.constants_of(config_from_text("dpo:questions", ["beta=0.3"])[1].method)["beta"] == 0.3


def test_the_pages_made_from_the_code_are_up_to_date():
    remedy = "run make docs"
    docs = INDEX.parents[2] / "docs"
    for name, text in reference.pages().items():
        assert (docs / name).read_text(encoding="utf-8") == text, f"docs/{name} is out of date: {remedy}"
    assert INDEX.read_text(encoding="utf-8") == reference.index_text(), f"{INDEX.name}: {remedy}"


def test_the_page_has_every_setting_and_constant():
    page = reference.settings_page()
    for row in settings_index():
        assert f"`{row['setting']}`" in page and row["when"].replace("|", "\\|") in page


def every_settings(known=Settings):
    for found in known.__subclasses__():
        yield found
        yield from every_settings(found)


def test_every_config_and_every_option_keeps_its_ranges():
    """One with checks of its own also makes those that its fields name."""
    import postgrad.cli  # noqa: F401
    for recipe in CONFIGS:
        config_class(recipe)
    checking = [found for found in every_settings() if "__post_init__" in vars(found)]
    assert len(checking) > 15
    assert not [found.__name__ for found in checking if found.__module__.startswith("postgrad.")
                and "super().__post_init__()" not in inspect.getsource(found.__post_init__)]
