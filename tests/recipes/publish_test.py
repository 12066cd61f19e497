"""`postgrad push`: a run's model on a double of the hub, and its card as huggingface_hub reads it."""

import hashlib
import json

import pytest
from hub_double import hub_of
from huggingface_hub import ModelCard, constants
from safetensors.torch import load_file

from postgrad.cli import main
from postgrad.models import load_model
from postgrad.runs import Run

SMALL = ("steps=2 save_every=2 rollouts.prompts_per_step=2 rollouts.group_size=2 rollouts.max_new_tokens=8 "
         "evaluation.every=2 evaluation.problems=2 evaluation.samples=2 lora=2 seed=3").split()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "words-3"
    assert main(["train", "grpo:arithmetic", *SMALL, "--run", str(folder), "--json"]) == 0
    return Run.open(folder)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_tests")
    sets = {}
    with hub_of(sets, tmp_path / "cache", monkeypatch) as address:
        monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", address, raising=False)
        yield sets


def test_the_card_is_read_by_the_hub_s_own_reader(run, capsys):
    assert main(["push", str(run.folder), "me/words", "--dry-run", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    card, evaluation = ModelCard(made["card"]), run.rows("evals")[0][-1]
    assert (card.data.license, card.data.base_model, card.data.library_name) == ("apache-2.0", "tiny-chat",
                                                                                 "transformers")
    results = {result.metric_type: result for result in card.data.eval_results}
    passed = results["pass@1"]
    assert passed.metric_value == evaluation["pass@1"] and passed.dataset_split == "validation"
    assert passed.metric_args == {"interval": evaluation["pass@1_interval"], "level": 0.95}
    assert passed.dataset_args == {"problems": 2, "samples": 2} and passed.dataset_name == "arithmetic"
    for words in ("| seed | 3 |", run.info["command"], run.info["begins_with"], "(r_i - mean(r)) / std(r)",
                  "One run with one seed", "high 0.2", "Licence: apache-2.0"):
        assert words in card.text
    assert made["dry_run"] and sorted(made["files"]) == ["README.md", "config.json", "generation_config.json",
                                                         "model.safetensors", "tokenizer.json",
                                                         "tokenizer_config.json"]


def test_what_is_uploaded_is_the_model(run, hub, tmp_path, capsys):
    assert main(["push", str(run.folder), "me/words", "--json"]) == 0
    made, files = json.loads(capsys.readouterr().out), hub["me/words"]
    assert made["url"].endswith("/me/words") and sorted(files) == sorted(made["files"])
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        if name != "README.md":
            assert f"| {name} | {len(data):,} | {hashlib.sha256(data).hexdigest()} |" in made["card"]
    assert files["README.md"].decode() == made["card"]
    trained = load_file(run.verify(2) / "model.safetensors")
    assert load_model(tmp_path).state_dict()["model.norm.weight"].equal(trained["model.norm.weight"].float())
    assert main(["push", str(run.folder), "me/thin", "--adapter"]) == 0
    assert sorted(hub["me/thin"]) == ["README.md", "adapter_config.json", "adapter_model.safetensors"]
    assert "https" not in capsys.readouterr().out


@pytest.mark.parametrize(("words", "sentence"), [
    (["not-a-repo"], "'not-a-repo' is no repository of the hub: expected OWNER/NAME"),
    (["you/words"], r"the hub refused you/words (403"),
    (["me/words", "--license", "nonsense"], "no such license"),
])
def test_what_is_refused(run, hub, capsys, words, sentence):
    assert main(["push", str(run.folder), *words]) == 2
    assert sentence in capsys.readouterr().err and not hub.get("me/words")


def test_a_base_without_a_licence_and_no_run(run, hub, tmp_path, monkeypatch, capsys):
    assert main(["export", str(run.folder), "--out", str(tmp_path / "own")]) == 0
    (tmp_path / "own/README.md").unlink()
    more = ["train", "grpo:arithmetic", *SMALL, "evaluation.every=0", f"model={tmp_path / 'own'}"]
    assert main([*more, "--run", str(tmp_path / "second"), "--json"]) == 0
    capsys.readouterr()
    assert main(["push", str(tmp_path / "second"), "me/words"]) == 2
    assert "is not known here: say it with --license" in capsys.readouterr().err
    (tmp_path / "own/README.md").write_text("---\nlicense: mit\n---\n")
    assert main(["push", str(tmp_path / "second"), "me/words", "--dry-run", "--json"]) == 0
    card = ModelCard(json.loads(capsys.readouterr().out)["card"])
    assert card.data.license == "mit" and "It was not evaluated" in card.text
    assert main(["push", "tiny-chat", "me/words"]) == 2 and "tiny-chat is no run" in capsys.readouterr().err
    assert main(["push", f"{run.folder}@0", "me/words"]) == 2
    assert "is the model that the run began with" in capsys.readouterr().err
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    assert main(["push", str(run.folder), "me/words"]) == 2
    assert "nobody is logged in to the hub" in capsys.readouterr().err and not hub
