"""Standard benchmarks: the harness's figures on our files are those of `postgrad eval`."""

import json
from importlib.util import find_spec

import pytest
import torch

import postgrad as pg
from postgrad.cli import main
from postgrad.recipes.benchmarks import suite as bench
from postgrad.resolve.models import open_writer

HARNESS = pytest.mark.skipif(find_spec("lm_eval") is None, reason="needs lm-eval (pip install lm-eval)")


@pytest.fixture(scope="module")
def opened():
    return open_writer("tiny-chat")


@HARNESS
def test_the_harness_says_what_eval_says(capsys):
    assert main(["bench", "tiny-chat", "--suite", "words,arithmetic", "--problems", "30", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["harness"].startswith("lm-eval 0.4")
    for row, name in zip(found["tasks"], ("words", "arithmetic"), strict=True):
        said = pg.evaluate("tiny-chat", name, problems=30, samples=1, display=False)
        assert (row["task"], row["metric"], row["problems"]) == (f"postgrad_{name}", "strict", 30)
        assert row["value"] == pytest.approx(said["greedy"], abs=1e-12)
        assert row["interval"][0] < row["value"] < row["interval"][1]


@HARNESS
def test_likelihoods_are_the_trainers(opened):
    from lm_eval.api.instance import Instance

    from postgrad.recipes.benchmarks.model import HarnessModel
    net, chat = opened
    model = HarnessModel(net, chat)
    asked = Instance("loglikelihood", {}, ("Tom has 3 pears. ", "He eats 2."), 0)
    before, after = model.encoded(*asked.args)
    assert chat.tokenizer.decode([*before, *after]) == "Tom has 3 pears. He eats 2."
    tokens = torch.tensor([[*before, *after]])
    mask = torch.arange(tokens.shape[1])[None] >= len(before)
    (logp, greedy), = model.loglikelihood([asked])
    assert logp == pytest.approx(net.logp(tokens, mask)[0][mask].sum().item(), abs=1e-4) and not greedy
    (whole,) = model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, ("Tom has 3 pears.",), 0)])
    first, rest = [chat.id(chat.bos or chat.eos)], chat.encode("Tom has 3 pears.")
    assert whole == pytest.approx(model.scored(first, rest)[0], abs=1e-4)


def test_a_suite_is_files_that_anybody_can_read(tmp_path, capsys):
    assert main(["bench", "tiny-chat", "--suite", "words", "--problems", "4", "--files", str(tmp_path)]) == 0
    assert "postgrad_words" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "words.jsonl").read_text().splitlines()]
    task = pg.load_task("words")
    prompts = task.prompts("test", 4, 0)
    assert [row["question"] for row in rows] == [prompt.question for prompt in prompts]
    assert [bench.score_reply(row, task.gold(p)) for row, p in zip(rows, prompts, strict=True)] == [1.0] * 4
    assert bench.score_reply(rows[0],
                             "no") == 0 and "!function reading" in (tmp_path / "words.yaml").read_text()


@pytest.mark.parametrize(("words", "wanted"), [
    (["--suite", "guess"], "plays over several turns"), (["--problems", "0"], "--problems is 0"),
    (["--suite", "nowhere"], "nowhere"),
])
def test_what_is_no_benchmark_is_refused(words, wanted, tmp_path, capsys):
    assert main(["bench", "tiny-chat", "--files", str(tmp_path / "files"), *words]) != 0
    assert wanted in capsys.readouterr().err


def test_without_the_harness_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    assert main(["bench", "tiny-chat"]) != 0
    assert "pip install 'postgrad[bench]'" in capsys.readouterr().err
