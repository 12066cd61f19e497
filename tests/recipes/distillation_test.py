"""Rows with a teacher: what it says of each token, who it may be, and what is learned from it."""

import json
import re
from dataclasses import replace

import pytest
import torch
import toy
from copyist import copyist, one_letter
from line_small import line
from settings_text import override
from small import CHAT, HELPED, PROMPTS, begins, build, small_model, small_models

import postgrad as pg
from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import load_task
from postgrad.maths import weights
from postgrad.maths.kl import exact_kl
from postgrad.methods import METHODS, change
from postgrad.recipes import rollouts
from postgrad.recipes.running import resume_run, start_run
from postgrad.recipes.teachers import ask_with_demonstration, asked_again
from postgrad.records import Conversation, Verdict
from postgrad.resolve.models import Model
from postgrad.runs import Run
from postgrad.runs.tracker import Tracker
from postgrad.system.throughput import repeatable
from postgrad.training import objectives
from tests.recipes.every_recipe_test import TASK
from tests.recipes.every_recipe_test import small as small_config
from tests.training.oracle_test import gradient_over_visited_states

OPD, SDFT = METHODS["opd"], METHODS["sdft"]


@pytest.fixture
def float64():
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(previous)


# the mean gradient, exactly

def summed(gamma):
    return replace(change(SDFT, gamma=gamma), shown=False, weigh=weights.sequence_sum)


def test_over_the_vocabulary_it_is_the_kl_at_the_states_that_are_visited_with_less_noise(float64):
    expected = gradient_over_visited_states(lambda table: exact_kl(table, toy.TEACHER[0]))
    whole, sampled = toy.measure(replace(OPD, weigh=weights.sequence_sum), 2), toy.measure(summed(0.0), 2)
    torch.testing.assert_close(whole.mean, -expected, rtol=0, atol=1e-14)
    assert whole.noise < sampled.noise / 2


@pytest.mark.parametrize("group_size", [1, 2, 3])
def test_with_all_that_follows_it_is_unbiased_for_the_reverse_kl(float64, group_size):
    exact = toy.exact_gradient(1.0, torch.zeros_like(toy.REWARD), toy.TEACHER)
    torch.testing.assert_close(toy.measure(summed(1.0), group_size).mean, exact, rtol=0, atol=1e-14)
    assert (toy.measure(summed(0.5), group_size).mean - exact).norm() > 1e-2


def test_each_token_by_itself_is_the_kl_at_the_states_that_are_visited(float64):
    expected = gradient_over_visited_states(lambda table: exact_kl(table, toy.TEACHER[0]))
    torch.testing.assert_close(toy.measure(summed(0.0), 2).mean, -expected, rtol=0, atol=1e-14)


def test_a_teacher_that_is_tilted_by_the_reward_teaches_what_the_reward_does(float64):
    """KL(pi || pi_0 exp(c r) / Z) = KL(pi || pi_0) - c E[r] + log Z: REINFORCE with its KL, times c."""
    exact = toy.exact_gradient(1.0, toy.EAGER * toy.REWARD, toy.POLICY)
    torch.testing.assert_close(toy.measure(summed(1.0), 2).mean, exact, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["opd", "sdft"])
@pytest.mark.parametrize("change", ["overlong=true", "scale_rewards=true", "truncated_penalty=0.5",
                                    "kl_in_reward=0.1"])
def test_what_only_changes_the_reward_is_refused_where_none_is_looked_at(name, change):
    setting = change.partition("=")[0]
    said = f"row {name}: its credit passes the reward over.*no effect: leave it out .{setting}"
    with pytest.raises(ValueError, match=said):
        config_from_text(f"{name}:words", [f"method.{change}"])
    config_from_text(f"{name}:words", ["method.kl_in_loss=0.1", "method.mask_truncated=true"])


def test_what_is_shown_is_shown_to_a_teacher_who_speaks_of_the_sampled_tokens():
    with pytest.raises(ValueError, match="for a row whose teacher is shown nothing"):
        replace(OPD, shown=True)
    with pytest.raises(ValueError, match="what is shown is shown to a teacher, and it has none"):
        replace(METHODS["grpo"], shown=True)


# the column

def test_the_teacher_reads_the_samples_at_their_temperature():
    models = small_models()
    batch = next(iter(line("opd", models=models, temperature=0.8)))
    expected, _ = models.teacher.logp(batch.tokens, batch.mask, 0.8)
    torch.testing.assert_close(batch.teacher_logp, expected, rtol=0, atol=1e-5)
    assert batch.adv[batch.mask].tolist() == (batch.teacher_logp - batch.old_logp)[batch.mask].tolist()
    assert not batch.adv[~batch.mask].any() and next(iter(line("grpo"))).teacher_logp is None


def test_after_a_demonstration_it_reads_the_same_reply():
    """The log-probs after the longer prompt stand in the columns of the sampled tokens; a row whose verdict
    failed has none."""
    models = small_models()

    def verify(prompt, text):
        return Verdict(score=0.0, error="infrastructure" if prompt.id == "p3" else None)

    batch = next(iter(line("sdft", models=models, verify=verify, prompts=PROMPTS[2:], at_once=40)))
    assert len(batch) == 8 and sum(not row.any() for row in batch.mask) == 2
    for i, s in enumerate(batch.scored):
        rollout, at = s.rollout, len(s.rollout.prompt_tokens)
        shown = CHAT.render(asked_again(rollout.prompt, "It is so.").messages)
        tokens = torch.tensor([[*shown, *rollout.tokens]])
        logp, _ = models.teacher.logp(tokens, torch.arange(tokens.shape[1])[None] >= len(shown))
        expected = logp[0, len(shown):] * (s.rollout.prompt.id != "p3")
        found = batch.teacher_logp[i, at: at + len(rollout.tokens)]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        assert not batch.teacher_logp[i][~batch.mask[i]].any()
    messages = asked_again(PROMPTS[2], "4").messages
    assert [m["content"] for m in messages] == ["What is 2+2?", "4", "What is 2+2?"]
    assert [m["role"] for m in messages] == ["user", "assistant", "user"]


def test_a_teacher_that_is_the_policy_teaches_nothing():
    models = small_models()
    models = replace(models, teacher=models.policy)
    batch = next(iter(line("opd", models=models)))
    assert not batch.adv.any() and batch.mask.any()
    loss, seen = objectives.build_objective(OPD)(models, batch)
    (loss * batch.weight).sum().backward()
    assert all(p.grad is None or p.grad.abs().max() < 1e-6 for p in models.policy.parameters())
    assert seen.results()["teacher_kl"] == pytest.approx(0.0, abs=1e-6)


def test_a_line_needs_its_teacher():
    models = replace(small_models(), teacher=None)
    with pytest.raises(ValueError, match="opd needs a teacher and there is none"):
        line("opd", models=models)


# who teaches

@pytest.fixture
def task(tmp_path):
    path = tmp_path / "letters.py"
    path.write_text(TASK)
    return str(path)


def config_of(task, **settings):
    row = settings.pop("method", OPD)
    config = rollouts.RolloutConfig(task=task, method=row)
    return small_config(config, save_every=1, **{"evaluation.every": 0}, **settings)


def start(config, folder):
    return start_run(config, folder)


@pytest.mark.parametrize(("row", "teacher", "words"), [
    ("opd", "none", "opd learns from a teacher, and none is named: say teacher=MODEL"),
    ("grpo", "tiny-chat", "grpo has no use for teacher=tiny-chat: it learns from no teacher"),
    ("rejection", "tiny-chat", "rejection has no use for teacher=tiny-chat"),
    ("sdft", "tiny-chat", "sdft has no use for teacher=tiny-chat: its teacher is the model itself"),
    ("opd", "nowhere", "no model at nowhere")])
def test_a_teacher_that_cannot_be_is_refused_before_a_folder_is_made(row, teacher, words, task, tmp_path):
    config = override(config_of(task, method=METHODS[row]), [f"teacher={teacher}"])
    with pytest.raises(ValueError, match=words):
        start(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_teacher_of_other_tokens_is_refused(task, tmp_path):
    folder = Model(net=small_model(), chat=CHAT, name="small").save(tmp_path / "other")
    path = folder / "tokenizer.json"
    raw = json.loads(path.read_text())
    known = raw["model"]["vocab"]
    known["a"], known["b"] = known["b"], known["a"]
    path.write_text(json.dumps(raw))
    with pytest.raises(ValueError, match="other has another tokenizer than the policy"):
        start(override(config_of(task), [f"teacher={folder}"]), tmp_path / "run")


def weights_of(run):
    return pg.load_model(str(run.folder)).net.state_dict()


def test_a_run_goes_on_with_the_teacher_it_began_with(task, tmp_path):
    """To the same bits, from inside a collection; another teacher is refused."""
    teacher = Model(net=small_model(4), chat=CHAT, name="small").save(tmp_path / "teacher")
    config = override(config_of(task, steps=4), [f"teacher={teacher}", "method.epochs=2"])
    whole = start(config, tmp_path / "whole")

    class Watch(Tracker):
        def on_step(self, step, metrics):
            if step == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start_run(config, tmp_path / "cut", trackers=[Watch()])
    cut = Run.open(tmp_path / "cut")
    assert list(cut.checkpoints())[-1] == 3 and cut.info["taught_by"] == whole.info["taught_by"]
    kept = (teacher / "model.safetensors").read_bytes()
    (teacher / "model.safetensors").write_bytes(kept[:-4] + b"\0\0\0\0")
    with pytest.raises(ValueError, match=r"the teacher .*teacher has changed since this run began"):
        resume_run(cut, config)
    (teacher / "model.safetensors").write_bytes(kept)
    again = resume_run(cut, config)
    rows = [[repeatable(row) for row in run.rows("metrics")[0]]
            for run in (again, whole)]
    assert rows[0] == rows[1] and all("teacher_kl" in row for row in rows[0])
    a, b = weights_of(again), weights_of(whole)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_teacher_from_python_is_known_by_its_weights(tmp_path):
    teacher = Model(net=small_model(4), chat=CHAT, name="mine")
    rows = [f"Say {n}." for n in range(12)]
    run = pg.fit("tiny", "opd", task=rows, teacher=teacher, run=tmp_path / "run", steps=1, display=False,
                 rollouts={"prompts_per_step": 2, "group_size": 1, "max_new_tokens": 4})
    assert run.config["teacher"]["name"] == "mine" and not run.evaluations()  # prompts alone: nobody judges
    assert {row["reason"] for row in run.samples()} == {"nobody judges"}
    with pytest.raises(ValueError, match="the teacher that was handed in is not the one this run began with"):
        pg.resume(run, steps=2, display=False, task=rows, teacher=replace(teacher, net=small_model(5)))
    longer = pg.resume(run, steps=2, display=False, task=rows, teacher=teacher)
    assert len(longer.metrics()) == 2


def test_prompts_alone_from_a_file(tmp_path):
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps({"question": f"Say {n}."}) + "\n" for n in range(12)))
    with pytest.raises(ValueError, match="the row needs an answer"):
        build(override(config_of(str(path), method=METHODS["grpo"]), []), begins("tiny"))
    parts = build(override(config_of(str(path)), ["teacher=tiny-chat"]), begins("tiny"))
    batch = next(iter(parts.batches))
    assert parts.evaluate is None and batch.adv[batch.mask].abs().mean() > 0.01
    with pytest.raises(ValueError, match="asked has neither gold nor demonstrations"):
        build(config_of(str(path), method=SDFT), begins("tiny"))


# demonstrations

def test_a_demonstration_is_the_gold_or_the_reply_that_the_task_has(tmp_path):
    words = load_task("words")
    prompt = words.prompts("train", 1, 0)[0]
    assert ask_with_demonstration(words, 0)(prompt).messages[-2]["content"] == words.gold(prompt)
    talk = Conversation(id="a", messages=(*prompt.messages, {"role": "assistant", "content": "It is 7."}))
    own = replace(words, gold=None, demonstrations=lambda split, *_: [talk] if split == "train" else [])
    assert ask_with_demonstration(own, 0)(prompt).messages[-2]["content"] == "It is 7."
    with pytest.raises(ValueError, match="has no demonstration: give every prompt of words one"):
        ask_with_demonstration(own, 0)(words.prompts("train", 9, 0)[8])


def test_where_a_demonstration_does_not_help_both_figures_are_said(tmp_path):
    _, config = config_from_text("sdft:words", ["evaluation.problems=24", "evaluation.samples=2"])
    with pytest.raises(ValueError, match=(
            r"shown a demonstration of each of 24 held-out problems of words, the model has a pass@1 of "
            r"\d+\.\d% in place of \d+\.\d% \(a gain of [+-]\d+\.\d% to [+-]\d+\.\d%\): that is no gain "
            "for certain, so it has nothing to teach itself")):
        start(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_that_it_helps_is_looked_at_once_and_kept(tmp_path):
    (tmp_path / "helped.py").write_text(HELPED)
    config = config_of(str(tmp_path / "helped.py"), method=SDFT, steps=2, **{"evaluation.problems": 8})
    run = start(config, tmp_path / "run")
    rows, held_out, event = [e for e in run.rows("events")[0] if e["kind"] == "data"]
    assert "a pass@1 of 100.0% in place of 0.0%" in event["text"]
    longer = replace(build(config, begins("tiny")).models, reward=None)
    assert longer.teacher is not None and longer.reference is None
    on_going = replace(begins("tiny"), checkpoint=run.latest())
    assert "100 rows of question" in rows["text"] and "held out" in held_out["text"]
    assert build(config, on_going).notes == (rows["text"], held_out["text"])


def test_a_model_that_is_shown_a_demonstration_teaches_itself(tmp_path):
    """Here the answer is always c, which it says as seldom as any letter: it learns that from itself."""
    model, task = copyist(), one_letter("c")
    run = pg.fit(model, "sdft", task=task, run=tmp_path / "run", steps=8, lr=5e-3, display=False,
                 rollouts={"prompts_per_step": 16, "group_size": 8, "max_new_tokens": 3},
                 evaluation={"every": 8, "problems": 20, "samples": 8})
    _, event = [e for e in run.rows("events")[0] if e["kind"] == "data"]  # the first: what is held out
    shown, plain = map(float, re.findall(r"([\d.]+)%", event["text"])[:2])
    assert shown > 90 > 40 > plain
    before, after = run.evaluations()
    assert before["pass@1"] < 0.4 and max(0.9, before["pass@1_interval"][1]) < after["pass@1"]
    far = [row["teacher_kl"] for row in run.metrics()]
    assert far[0] > 2 and far[-1] < 0.2 * far[0]
    with pytest.raises(ValueError, match="sdft has to see that demonstrations help, and nobody judges"):
        pg.fit(model, "sdft", task=replace(task, verify=None), run=tmp_path / "unjudged", display=False)
