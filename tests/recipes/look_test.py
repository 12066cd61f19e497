"""The look before the first step: each concern by hand-made replies, runs that take it, and its offers."""

import json
import shutil
from dataclasses import replace

import pytest
from kills import timeless
from settings_text import override
from small import CHAT

from postgrad.cli import main
from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import load_task
from postgrad.models import find_model
from postgrad.models.chat import Chat
from postgrad.recipes import look as looks
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.look import (
    data_concerns,
    form_sft,
    is_worth_a_look,
    probe_figures,
    reply_concerns,
    take_look,
    template_concerns,
)
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.recipes.running import build_setup, model_source, start_run
from postgrad.records import Prompt, Rollout, Scored, Verdict
from postgrad.runs import Run

WORDS = load_task("words")
SMALL = ["steps=2", "rollouts.prompts=16", "rollouts.prompts_per_step=2", "rollouts.group_size=2",
         "evaluation.problems=2", "evaluation.samples=2", "evaluation.every=2", "save_every=2"]


def reply(text="a", *, correct=0.0, lenient=None, finished=True, error=None, tokens=None):
    tokens = list(range(100, 120)) if tokens is None else tokens
    rollout = Rollout(prompt=Prompt.ask("?"), prompt_tokens=[1], tokens=tokens, text=text,
                      logp=[0.0] * len(tokens), finished=finished, seed=0)
    parts = {"correct": correct, "lenient": correct if lenient is None else lenient}
    verdict = Verdict(score=correct, parts=parts, error=error, reason="no <think>")
    return Scored(rollout=rollout, verdict=verdict)


def groups_of(*replies):
    """Eight groups of eight: the replies over and over, each with a text of its own."""
    rows = [replies[i % len(replies)] for i in range(64)]
    rows = [replace(s, rollout=replace(s.rollout, text=f"{s.rollout.text}{i}")) for i, s in enumerate(rows)]
    return [rows[i: i + 8] for i in range(0, 64, 8)]


def named(groups, task=WORDS, limit=64, positions=512, paid=True):
    return {c.name: c for c in reply_concerns(task, groups, limit, positions, paid)}


# what is named, by hand

def test_replies_of_which_some_are_right_are_not_accused():
    for share in ([0, 0, 0, 1.0], [0, 1.0], [0] * 7 + [1.0], [1.0] * 7 + [0]):
        assert named(groups_of(*(reply(correct=c) for c in share))) == {}


@pytest.mark.parametrize(("cut", "positions", "wanted"), [
    (1 / 4, 512, None), (3 / 8, 512, 128), (5 / 8, 512, 256), (5 / 8, 320, 160), (5 / 8, 128, 0)])
def test_a_limit_that_cuts_over_a_quarter_is_lengthened(cut, positions, wanted):
    """A share of c at L tokens becomes c^2 at 2 L where each token ends a reply as likely as the last."""
    rows = [reply(correct=float(i % 2), finished=i >= 8 * cut) for i in range(8)]
    found = named(groups_of(*rows), positions=positions).get("cut replies")
    if wanted is None:
        assert found is None
    else:
        assert dict(found.offer) == ({"rollouts.max_new_tokens": wanted, "evaluation.max_new_tokens": wanted}
                                     if wanted else {})
        assert f"{round(64 * cut)} of 64 replies are cut at 64 tokens" in found.evidence


def test_replies_that_go_round_in_circles_need_no_longer_limit():
    rows = [reply(correct=float(i % 2), finished=i < 4, tokens=[5, 6] * 16) for i in range(8)]
    found = named(groups_of(*rows))["cut replies"]
    assert "32 of them in a loop" in found.evidence and dict(found.offer) == {"sft": 20}


def test_right_answers_in_a_form_that_is_not_paid():
    rows = [reply(lenient=1.0)] + [reply()] * 6  # a seventh
    found = named(groups_of(*rows))["form is not paid"]
    assert "10 of 64 replies are right and 0 are paid" in found.evidence and "(no <think>)" in found.evidence
    assert dict(found.offer) == {"sft": 20}
    assert "form is not paid" not in named(groups_of(*rows), paid=False)  # another judge pays
    paid = [reply(correct=1.0), reply(lenient=1.0), reply(), reply()]  # half of them are
    assert "form is not paid" in named(groups_of(*paid))
    mostly = [reply(correct=1.0)] * 3 + [reply(lenient=1.0)] + [reply()] * 4
    assert named(groups_of(*mostly)) == {}
    nothing_to_show = replace(WORDS, gold=None, demonstrations=None)
    bare = named(groups_of(*rows), nothing_to_show)["form is not paid"]
    assert dict(bare.offer) == {} and "postgrad train sft data=" in bare.remedy


def test_groups_without_a_difference():
    found = named(groups_of(reply()))
    assert list(found) == ["flat groups"] and "every reply gets 0" in found["flat groups"].evidence
    assert dict(found["flat groups"].offer) == {"sft": 20}
    assert list(named(groups_of(reply(correct=1.0)))) == ["no headroom"]
    same = [[reply()] * 8 for _ in range(8)]
    assert "nearly the same text" in named(same)["no headroom"].evidence
    stray = [*same[:6], *([reply(), reply(correct=1.0)] * 4,) * 2]  # six of eight groups are flat
    assert "6 of 8 groups are flat" in named(stray)["no headroom"].evidence
    assert named([*same[:5], *stray[6:], stray[7]]) == {}
    by_group = groups_of(*[reply(correct=1.0)] * 8, *[reply()] * 8)
    assert "one score within each group" in named(by_group)["flat groups"].evidence
    assert dict(named(by_group)["flat groups"].offer) == {}  # the form is known
    one = [*groups_of(reply())[:7], groups_of(reply(), reply(correct=1.0))[0]]
    assert named(one) == {}


def test_verdicts_that_fail():
    broken = reply(error="infrastructure: boom")
    found = named(groups_of(broken, reply(), reply(correct=1.0), reply()))
    assert list(found) == ["verifier fails"] and "16 of 64" in found["verifier fails"].evidence
    assert list(named(groups_of(broken))) == ["verifier fails"]
    assert named(groups_of(*[reply(), reply(correct=1.0)] * 15, broken, reply())) == {}  # two of 64


def test_figures_by_hand():
    rows = groups_of(*[reply(correct=1.0)] * 8, *[reply(lenient=1.0), reply(finished=False)] * 4)
    greedy = [reply(correct=1.0)] * 2 + [reply()] * 6
    found = probe_figures(WORDS, rows, greedy, 64)
    assert {name: found[name] for name in ("replies", "groups", "flat", "errors", "cut", "pass@1", "pass@k",
                                           "greedy", "lenient", "length", "least", "most")} == {
        "replies": 64, "groups": 8, "flat": 8, "errors": 0, "cut": 1 / 4, "pass@1": 1 / 2, "pass@k": 1 / 2,
        "greedy": 1 / 4, "lenient": 3 / 4, "length": 20.0, "least": 0.0, "most": 1.0}
    assert probe_figures(WORDS, rows, greedy, 64, paid=False)["pass@1"] is None


@pytest.mark.parametrize(("counts", "sampled", "names"), [
    ((100, 0, 64, 0), True, []), ((100, 10, 64, 1), True, []), ((0, 0, 0, 0), True, []),
    ((100, 90, 64, 0), False, []), ((100, 11, 64, 0), True, ["duplicated prompts"]),
    ((100, 0, 64, 2), True, ["leaked split"]),
    ((100, 50, 64, 64), True, ["leaked split", "duplicated prompts"])])
def test_splits_and_duplicates(counts, sampled, names):
    data = dict(zip(("prompts", "repeated", "evaluated", "leaked"), counts, strict=True))
    assert [c.name for c in data_concerns(data, sampled)] == names


# templates

OWN = CHAT.template
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
HEADS = "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
OPENED = "{% if add_generation_prompt %}<|assistant|>{% endif %}"


@pytest.mark.parametrize(("template", "words"), [
    (OWN, None), (HEADS + OPENED, None),
    (HEADS + "{% if add_generation_prompt %}<|assistant|><think>{% endif %}", None),  # a thought is opened
    (CHATML, "<|im_end|>, <|im_start|>, and the tokenizer has no such token"),
    (HEADS, "the assistant's reply follows"),  # no generation prompt
    (HEADS.replace("<|end|>", "") + OPENED, "the model's stop tokens are <|end|>"),
    ("{{ raise_exception('no') }}", "cannot render"),
])
def test_a_template_there_and_back(template, words):
    chat = Chat(CHAT.tokenizer, template, bos=CHAT.bos, eos=CHAT.eos, pad=CHAT.pad, ends=CHAT.ends)
    found = [*template_concerns(chat)]
    assert {c.name for c in found} == ({"wrong template"} if words else set())
    assert words is None or any(words in c.evidence for c in found)


@pytest.mark.parametrize("model", ["tiny", "tiny-chat", "tiny-zero", "tiny-tools"])
def test_the_embedded_models_templates_are_sound(model):
    assert not [*template_concerns(Chat.load(find_model(model)))]


# runs

def outcome(folder):
    """Every row of metrics and evaluations without times, and the weights."""
    rows = {name: [timeless(row, folder) for row in Run.open(folder).rows(name)[0]]
            for name in ("metrics", "evals")}
    return rows | {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.safetensors")}


def small(*changes, spec="grpo:words"):
    return fill_defaults(config_from_text(spec, [*SMALL, *changes])[1])[0]


def test_a_look_changes_nothing_of_the_run(tmp_path):
    runs = {mode: start_run(small(f"on_look={mode}"), tmp_path / mode) for mode in ("off", "warn")}
    off, warn = (outcome(tmp_path / mode) for mode in runs)
    assert off == warn and any(name.endswith("model.safetensors") for name in off)
    assert "look" not in runs["off"].info and runs["warn"].info["look"]["figures"]["replies"] == 64
    texts = [row["text"] for row in runs["warn"].rows("events")[0] if row["kind"] == "look"]
    assert texts[0].startswith("before the first step, 64 probe replies: ")


def test_short_runs_take_no_look_unless_it_is_named():
    config = fill_defaults(RolloutConfig(task="words"))[0]
    assert is_worth_a_look(config)  # 40 x 16 x 8 replies
    assert not is_worth_a_look(override(config, ["steps=4"]))  # 512, fewer than ten times the probes
    assert is_worth_a_look(override(config, ["steps=4", "on_look=warn"]))
    assert not is_worth_a_look(override(config, ["on_look=off"]))


def test_one_yes_takes_every_offer(tmp_path, monkeypatch):
    monkeypatch.setattr(looks, "FORM_STEPS", 2)
    asked = []
    config = small("on_look=ask", "rollouts.max_new_tokens=4", "evaluation.max_new_tokens=4")
    monkeypatch.setattr(looks, "WORTH", 0)
    run = start_run(config, tmp_path / "run", ask=lambda question: asked.append(question) or True)
    assert len(asked) == 1 and asked[0].endswith("? [y/N] ") and "63 of 64 replies are cut" in asked[0]
    form = Run.open(tmp_path / "run-form")
    assert form.info["method"] == "sft" and form.info["steps"] == 2 and form.config["model"] == "tiny-chat"
    assert run.config["model"] == str(tmp_path / "run-form") and run.config["on_look"] == "warn"
    assert run.config["rollouts"]["max_new_tokens"] == run.config["evaluation"]["max_new_tokens"] == 16
    told = [row["text"] for row in run.rows("events")[0] if row["kind"] == "look"]
    assert ("taken: rollouts.max_new_tokens=16, evaluation.max_new_tokens=16, 2 steps of SFT on gold replies "
            "first") in told and sum(text.startswith("before the first step") for text in told) == 2
    no = start_run(config, tmp_path / "no", ask=lambda question: False)
    assert no.config["model"] == "tiny-chat" and no.config["rollouts"]["max_new_tokens"] == 4


@pytest.mark.parametrize(("tokens", "taken"), [(4, 16), (12, 12)])
def test_offers_are_taken_where_nobody_can_be_asked_and_no_group_has_a_gradient(tokens, taken, tmp_path,
                                                                                monkeypatch):
    """Of 4 tokens no reply is right; of 12 some are, and a longer limit is offered all the same."""
    monkeypatch.setattr(looks, "FORM_STEPS", 2)
    monkeypatch.setattr(looks, "WORTH", 0)
    run = start_run(small("on_look=ask", f"rollouts.max_new_tokens={tokens}"), tmp_path / "run")
    assert run.config["rollouts"]["max_new_tokens"] == taken
    assert (run.info["look"]["figures"]["flat"] == 8) == (taken > tokens)
    assert any(row["text"].startswith("cut replies: ") for row in run.rows("events")[0])


def test_a_verifier_that_judges_nothing_is_no_flat_run():
    flat = {"groups": 8, "flat": 8, "replies": 64}
    assert looks.Look(concerns=(), figures=flat | {"errors": 3}).all_flat
    assert not looks.Look(concerns=(), figures=flat | {"errors": 64}).all_flat
    assert not looks.Look(concerns=(), figures={}).all_flat


def test_fix_takes_the_offers_without_a_question(tmp_path, monkeypatch):
    monkeypatch.setattr(looks, "FORM_STEPS", 2)
    run = start_run(small("on_look=fix", "rollouts.max_new_tokens=12"), tmp_path / "run",
                    ask=lambda question: pytest.fail("asked"))
    assert run.config["rollouts"]["max_new_tokens"] == 24


def test_the_sft_that_shows_the_form_is_on_gold():
    config = fill_defaults(RolloutConfig(task="words", seed=3))[0]
    sft = form_sft(config, WORDS)
    assert (sft.steps, sft.rows_per_step, len(sft.data)) == (20, 32, 640)
    prompts = WORDS.prompts("train", 640, 3)
    assert [row.messages[-1]["content"] for row in sft.data] == [WORDS.gold(p) for p in prompts]
    assert all(WORDS.verify(p, WORDS.gold(p)).score == 1 for p in prompts[:20])
    game = form_sft(config, load_task("guess"))  # its gold is a player: demonstrations stand for it
    assert len(game.data) > 8


# the command

def test_doctor_before_says_one_screen(capsys):
    words = ["grpo:words", "rollouts.prompts=64"]
    assert main(["doctor", "--before", *words]) == 0
    out = capsys.readouterr().out
    assert out.startswith("grpo:words before its first step (") and "optim.lr=0.0003 (by the size)" in out
    for start in ("replies ", "reward ", "prompts    64, 0 repeat another; 64 evaluated, 0 ", "memory ",
                  "to come    40 steps, 6,400 replies", "prompt     '<|bos|><|user|>", "reply      '"):
        assert f"\n{start}" in out
    assert out.endswith("\nNothing wrong was found.\n") and len(out.splitlines()) < 25
    assert main(["doctor", "--before", *words, "rollouts.max_new_tokens=8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "cut replies" in [c["name"] for c in found["concerns"]] and found["figures"]["limit"] == 8
    assert found["stop"] == ["<|end|>"]


def test_doctor_before_looks_at_other_trainings_too(capsys, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(find_model("tiny"), model)
    path = model / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": HEADS}))
    assert main(["doctor", "--before", "sft:words", f"model={model}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [c["name"] for c in found["concerns"]] == ["wrong template"] and "replies" not in found["figures"]
    assert main(["doctor", "--before", "r1"]) == 2
    assert "r1 is no single training" in capsys.readouterr().err
    assert main(["doctor", "runs/x", "steps=3"]) == 2
    assert "postgrad doctor --before" in capsys.readouterr().err


def test_the_question_is_asked_where_somebody_sits(monkeypatch):
    from postgrad.cli.train import ask_person
    assert ask_person(False) is None  # pytest's input is no terminal
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    assert ask_person(True) is None
    for answer, wanted in (("y", True), (" YES ", True), ("", False), ("n", False)):
        monkeypatch.setattr("builtins.input", lambda question, answer=answer: answer)
        assert ask_person(False)("well? ") is wanted


def test_a_game_s_prompts_may_be_alike():
    config = fill_defaults(config_from_text("grpo:guess")[1])[0]
    found = {c.name for c in take_look(config, build_setup(config, model_source(config))).concerns}
    assert not found & {"leaked split", "duplicated prompts"}
