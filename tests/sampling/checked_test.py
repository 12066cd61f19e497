"""The sampler seam: a sampler by object, by file and by a registered name, its rows checked."""

from dataclasses import replace

import pytest
from doc_blocks import blocks
from doors import fit
from paths import ROOT
from small import CHAT, PROMPTS

import postgrad as pg
from postgrad.cli import main
from postgrad.records import Sampling
from postgrad.resolve.models import open_writer
from postgrad.resolve.samplers import SAMPLERS, make_sampler
from postgrad.sampling import LocalSampler, SamplerFault, ScriptedSampler
from postgrad.sampling.checked import CheckedSampler

(PAGE,) = [block for block in blocks(ROOT / "docs" / "your-own-sampler.md") if block.words == "mine.py"]
SMALL = {"task": "words", "prompts_per_step": 2, "group_size": 2, "rollouts": {"max_new_tokens": 8},
         "steps": 2}
HOW = Sampling(max_new_tokens=8)


class Wrapped:
    """The sampler in process, as a sampler of somebody's own. change: what becomes of each rollout."""

    def __init__(self, policy, chat, change=lambda rollout: rollout):
        self.inside, self.change, self.steps = LocalSampler(policy, chat), change, []

    def update_weights(self, policy, step):
        self.inside.model = policy
        self.steps.append(step)

    def sample(self, prompts, n, sampling, seed):
        return [[self.change(r) for r in group] for group in self.inside.sample(prompts, n, sampling, seed)]


def test_an_object_a_file_and_a_registered_name_train_alike(tmp_path, monkeypatch):
    monkeypatch.setitem(SAMPLERS.entries, "wrapped", Wrapped)
    (tmp_path / "mine.py").write_text("from tests.sampling.checked_test import Wrapped as sampler\n")
    own = Wrapped(*open_writer("tiny-chat"))
    runs = [fit(tmp_path, name=f"run-{i}", **SMALL, sampler=sampler)
            for i, sampler in enumerate((own, str(tmp_path / "mine.py"), "wrapped"))]
    assert own.steps == [0, 1]
    first, *others = [run.rows("samples")[0] for run in runs]
    assert all(samples == first for samples in others)


def test_the_page_of_samplers_trains_from_the_command_line(tmp_path):
    assert PAGE.text.count("\n") < 36 and "class Mine" in PAGE.text
    (tmp_path / "mine.py").write_text(PAGE.text)
    assert main(["train", "grpo:words", f"sampler={tmp_path / 'mine.py'}", "steps=1", "prompts_per_step=2",
                 "group_size=2", "rollouts.max_new_tokens=6", "--run", str(tmp_path / "run")]) == 0
    assert len(pg.Run.open(tmp_path / "run").metrics()) == 1


def test_a_run_with_an_object_goes_on_with_the_same_class(tmp_path):
    own = Wrapped(*open_writer("tiny-chat"))
    run = fit(tmp_path, **SMALL, sampler=own)
    with pytest.raises(ValueError, match="given its sampler in Python .*Wrapped"):
        pg.resume(run.folder, steps=3, display=False)
    assert pg.resume(run.folder, steps=3, sampler=own, display=False).metrics()[-1]["step"] == 3


def checked(change):
    net, chat = open_writer("tiny-chat")
    return CheckedSampler(Wrapped(net, chat, change), chat, positions=256, vocabulary=net.config.vocab_size,
                          policy_logp=lambda rows: [[-1.0] * len(row.tokens) for row in rows])


@pytest.mark.parametrize("change, words", [
    (lambda r: replace(r, logp=r.logp[:-1]), "other tokens than"),
    (lambda r: replace(r, logp=(float("nan"),) * len(r.tokens)), "log-probs hold what is none"),
    (lambda r: replace(r, tokens=(7, 8), logp=(-1.0, -1.0)), "no whole reply"),
    (lambda r: replace(r, tokens=(99999,), logp=(-1.0,)), "no list of tokens"),
    (lambda r: replace(r, prompt=PROMPTS[1]), "in the group of"),
    (lambda r: replace(r, prompt_tokens=()), "0 prompt tokens"),
    (lambda r: None, "NoneType")])
def test_a_wrong_rollout_is_refused_with_the_samplers_name(change, words):
    with pytest.raises(SamplerFault, match=f"sampler Wrapped: .*{words}.* Nothing of it is trained on"):
        checked(change).sample(PROMPTS[:1], 2, HOW, 0)


def test_log_probs_that_a_sampler_does_not_give_are_the_trainers(capsys):
    sampler = checked(lambda r: replace(r, logp=()))
    for _ in range(2):
        ((first, second),) = sampler.sample(PROMPTS[:1], 2, HOW, 0)
        assert set(first.logp) == set(second.logp) == {-1.0} and len(first.logp) == len(first.tokens)
    assert capsys.readouterr().err.count("gives no log-probs") == 1 and not sampler.spot_checks[0]


def test_a_sampler_of_other_weights_ends_the_run(tmp_path):
    own = Wrapped(*open_writer("tiny-chat"), lambda r: replace(r, logp=tuple(x - 0.5 for x in r.logp)))
    with pytest.raises(SamplerFault, match="sampler Wrapped has other weights than those of step 0"):
        fit(tmp_path, **SMALL, sampler=own)


@pytest.mark.parametrize("settings, words", [
    ({"sampler": "nobody"}, "write http://HOST:PORT"),
    ({"sampler": ScriptedSampler(CHAT, {}), "weights": "w"}, "leave weights and weight_sync out")])
def test_settings_that_cannot_work_are_refused(tmp_path, settings, words):
    with pytest.raises(ValueError, match=words):
        fit(tmp_path, **SMALL, **settings)


def test_an_evaluation_takes_a_sampler():
    model = pg.load_model("tiny-chat")
    asked = {"problems": 4, "samples": 2, "max_new_tokens": 8, "display": False}
    own = Wrapped(model.net, model.chat, lambda r: replace(r, logp=()))
    there, here = pg.evaluate(model, "words", sampler=own, **asked), pg.evaluate(model, "words", **asked)
    assert {**there, "seconds": 0} == {**here, "seconds": 0}
    with pytest.raises(ValueError, match="plays over several turns"):
        pg.evaluate(model, "guess", sampler=own, **asked)


def test_what_is_no_sampler_is_a_sentence(tmp_path):
    for text, words in (("sampler = 3", "is int"), ("def sampler(policy, chat):\n    return 3", "makes int")):
        (tmp_path / "bad.py").write_text(text)
        with pytest.raises(ValueError, match=words):
            make_sampler(str(tmp_path / "bad.py"), *open_writer("tiny-chat"))
