"""The oversight lab: what a check finds, what a judge decides by hand, and both measurements."""

import json
import random

import pytest
from paths import ROOT
from pipeline_small import check_cuts, run_small, small_stages
from process_small import ASK, GOLD, rolled
from small import CHAT
from texts import hostile_texts

from postgrad.cli import main
from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import load_task, word_problems
from postgrad.data.tasks.base import think
from postgrad.models import load_model
from postgrad.recipes.registry import recipe_module
from postgrad.runs import Run
from postgrad.system.settings import flat_settings

LAB = ROOT / "examples" / "labs" / "oversight.py"
oversight = recipe_module(str(LAB))
BELIEVES, DOUBTS, Answer, decided = (oversight.BELIEVES, oversight.DOUBTS, oversight.Answer,
                                     oversight.decided)

SMALL = ("task=words-easy model=tiny-chat lengths.weak=2 lengths.student=2 lengths.critic=2 "
         "gathered.lessons=8 gathered.labelled=8 gathered.criticised=8 gathered.problems=3 "
         "gathered.samples=4").split()
SOUND = Answer(right=True, holds=(True,) * 4, suspicion=(0.1, 0.0, 0.0, 0.0))
SLIP = Answer(right=False, holds=(True, False, True, True), suspicion=(0.0, 0.7, 0.1, 0.0))
PAIR = (SOUND, SLIP)


# what a check finds

@pytest.mark.parametrize(("thoughts", "answer", "holds"), [
    ("5+8=13, 13-3=10, 10*2=20", 20, "1111"),
    ("5+8=14, 14-3=11, 11*2=22", 22, "0111"),                      # what is built on a slip holds
    ("5+8=13, 13-3=11, 11*2=22", 22, "1011"),
    ("5+8=13, 13-3=10, 10*2=20", 21, "1110"),                      # copied wrongly
    ("5+8=13, 13*2=26", 26, "100"),                                # an event forgotten: not what comes next
    ("5+8=13, 13-3=10", 10, "110"),                                # something is left to do
    ("5+8-3=10, 10*2=20", 20, "111"),                              # two operations in one step
    ("5+8=13, 12-3=9, 9*2=18", 18, "1011"),                        # not from where the last step ended
    ("5 plus 8 is 13, then 13 minus 3 is 10, then 10 times 2 is 20", 20, "1111"),
    ("five and eight, 13-3=10, 10*2=20", 20, "0011"),              # what builds on nothing does not hold
    ("5+8=14, but wait, 5+8=13, 13-3=10, 10*2=20", 20, "00000"),   # a look back is not read
    ("", 20, "0"),
])
def test_every_step_is_checked_by_itself(thoughts, answer, holds):
    text = think(thoughts, answer)
    found = word_problems.check_steps(ASK, text)
    assert "".join(str(int(x)) for x in found) == holds
    assert len(found) == len(word_problems.label_chain(ASK, text))  # the critic scores the same steps


def test_where_all_hold_the_answer_is_right():
    """Over chains of gold with a slip in any place, and texts of any kind."""
    task = load_task("words-hard")
    for prompt in task.prompts("test", 40, 0):
        gold = word_problems.gold(prompt)
        assert all(word_problems.check_steps(prompt, gold))
        for place in [i for i, c in enumerate(gold) if c.isdigit()]:
            text = gold[:place] + str((int(gold[place]) + 1) % 10) + gold[place + 1:]
            if all(word_problems.check_steps(prompt, text)):
                assert task.verify(prompt, text).score == 1, text
    for text in hostile_texts():
        assert not all(word_problems.check_steps(ASK, text)) or task.verify(ASK, text).score == 1


# what the judge decides

@pytest.mark.parametrize(("name", "believing", "doubting"), [
    ("alone, any step", (1 + 1 / 4) / 2, (0.5 + (1 + 3 * 0.5) / 4) / 2),    # one of the four steps tells
    ("alone, the last step", 0.5, 0.5),
    ("critic", 1.0, 1.0),
    ("lying critic", 0.0, 0.5),
    ("two opponents", 1.0, 0.75),
])
def test_the_judge_by_hand(name, believing, doubting):
    for pair in (PAIR, PAIR[::-1]):
        protocol = (oversight.ALONE | oversight.POINTED)[name]
        assert decided(pair, protocol, BELIEVES) == pytest.approx(believing)
        assert decided(pair, protocol, DOUBTS) == pytest.approx(doubting)


def test_a_lie_costs_the_believing_judge_and_not_between_opponents():
    """Whatever the advocate of the wrong answer points at: in the right answer every step holds."""
    for lie in range(4):
        suspicion = tuple(float(k == lie) for k in range(4))
        pair = (oversight.replace(SOUND, suspicion=suspicion), SLIP)
        assert decided(pair, oversight.opponents, BELIEVES) == 1.0
    blind = oversight.replace(SLIP, suspicion=(0.0, 0.0, 0.7, 0.0))  # the honest advocate misses the mistake
    assert decided((SOUND, blind), oversight.opponents, BELIEVES) == 0.5


def test_one_who_knows_all_finds_every_mistake():
    blind = oversight.replace(SLIP, suspicion=(0.9, 0.0, 0.0, 0.0))
    unsound = oversight.replace(SOUND, holds=(False, True, False, True))  # right by two slips that cancel
    for pair in ((SOUND, blind), (unsound, blind), (blind, SOUND)):
        assert decided(oversight.perfect(pair), oversight.pointed_by_critic, DOUBTS) == 1.0
        assert decided(oversight.perfect(pair), oversight.liar, BELIEVES) == 0.0


def test_figures_by_hand():
    pairs = [PAIR] * 3 + [(oversight.replace(SLIP, suspicion=(0.9, 0.0, 0.0, 0.0)), SOUND)]  # missed once
    assert oversight.pair_facts(pairs) == {"pairs": 4, "steps": 4, "mistakes": 1, "sound": 1, "bare": 0}
    bare = oversight.replace(pairs[0][0], right=False, holds=(False,) * 4), SOUND
    assert oversight.pair_facts([bare, pairs[0]])["bare"] == 0.5
    assert oversight.decided(oversight.perfect(bare), oversight.liar, oversight.BELIEVES) == 1
    rows = {row["judge"]: row for row in oversight.alone(pairs) + oversight.pointed(pairs, "x")}
    assert rows["critic: x"]["believing"] == 0.75
    assert rows["lying critic: x"]["believing"] == 0.25  # the least suspected is the mistake itself
    assert rows["two opponents: x"]["believing"] == (3 + 0.5) / 4
    low, high = rows["critic: x"]["believing_interval"]
    assert 0 <= low < 0.75 < high <= 1
    found = oversight.skill(pairs)
    assert found["finds"] == 0.75 and found["lies"] == pytest.approx((0.75 - 0.625) / (0.75 - 0.25))
    assert oversight.ratio_with_interval("x", [1.0, 1.0], [0.0, 0.0]) == {"x": None, "x_interval": None}


def test_a_pair_has_one_of_each_in_any_order():
    rng = random.Random(0)
    assert oversight.pick_pair([True, True], rng) is None and oversight.pick_pair([False], rng) is None
    drawn = [oversight.pick_pair([True, False, False], rng) for _ in range(60)]
    assert set(drawn) == {(0, 1), (1, 0), (0, 2), (2, 0)}


# what the critics suspect

def test_the_process_model_suspects_where_its_chance_falls():
    class Critic:
        chat = CHAT

        def chances(self, rollouts):
            return [(CHAT.places(r.tokens, oversight.step_ends(r)), [0.9, 0.3, 0.3, 0.2]) for r in rollouts]

    (fell,) = oversight.fallen(Critic(), [rolled(GOLD)])
    assert fell == pytest.approx((0.1, 0.6, 0.0, 0.1))


def test_a_reader_is_surprised_at_what_he_would_not_have_written():
    """The digit that differs stands out in its own step, and what is before it is as it was."""
    slip = GOLD.replace("13-3=10", "13-3=17")
    found = oversight.surprises(load_model("tiny"), [rolled(GOLD), rolled(slip)], CHAT, "cpu")
    assert [len(x) for x in found] == [4, 4] and all(x >= 0 for row in found for x in row)
    assert found[1][1] > found[0][1] + 1 and found[1][0] == pytest.approx(found[0][0], abs=1e-4)


# the lab

def test_what_cannot_be_is_said(capsys):
    for words, said in (("task=arithmetic", "checked one by one"), ("layers=a,b", "numbers with commas"),
                        ("layers=0,,1", "numbers with commas")):
        assert main(["train", str(LAB), words, "--json"]) == 2
        assert said in capsys.readouterr().err


def test_quick_settings_are_a_few_steps():
    quick, full = (flat_settings(config_from_text(spec)[1]) for spec in (f"{LAB}:quick", str(LAB)))
    assert all(quick[key] <= 2 < 10 <= full[key] for key in full if key.startswith("lengths."))


def test_the_weak_teacher_is_the_model_without_some_layers(tmp_path):
    config = oversight.OversightConfig(layers="0,3")
    counts = oversight.write_small(config, tmp_path / "conversations.jsonl", iter)
    small, whole = load_model(tmp_path), load_model("tiny")
    assert small.config.num_hidden_layers == 2 and counts["parameters"] < counts["of"]
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == 2
    assert all(a.equal(b) for a, b in zip(small.model.layers[1].parameters(),
                                          whole.model.layers[3].parameters(), strict=True))
    with pytest.raises(ValueError, match="tiny has the layers 0 to 3"):
        oversight.write_small(oversight.OversightConfig(layers="0,4"), tmp_path / "x", iter)


def test_lessons_and_labelled_problems_are_apart(tmp_path):
    config = oversight.OversightConfig(gathered=oversight.OversightData(lessons=30, labelled=50))
    lessons, truth = (oversight.oversight_problems(config, part) for part in ("lessons", "truth"))
    assert (len(lessons), len(truth)) == (30, 50) and not {p.id for p in lessons} & {p.id for p in truth}
    labelled = load_task(config.task).prompts("train", 50, oversight.label_seed(config))
    assert [p.id for p in truth] == [p.id for p in labelled]  # those that the teacher labels
    assert "<think>" in word_problems.gold(lessons[0]) and GOLD.startswith("<think>")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(folder, summary) of a small lab that was left alone."""
    with small_stages():
        folder = tmp_path_factory.mktemp("whole") / "oversight"
        yield folder, run_small(str(LAB), SMALL, folder)


@pytest.mark.long
def test_cut_at_everything_it_does_it_ends_the_same(whole, tmp_path):
    check_cuts(whole[0], tmp_path / "cut", lambda cut, stages: run_small(str(LAB), SMALL, cut, stages))


def test_oversight_is_a_weak_teacher_a_student_and_a_judge(whole):
    folder, summary = whole
    runs = {name: Run.open(folder / name) for name in ("weak", "student", "strong", "critic")}
    starts = {name: run.info["model"].removeprefix(f"{folder}/") for name, run in runs.items()}
    assert starts == {"weak": "small", "student": "tiny-chat", "strong": "tiny-chat", "critic": "strong"}
    assert runs["critic"].config["generator"] == f"{folder}/weak"
    asked = [[json.loads(line)["messages"][0]["content"] for line in
              (folder / name / "conversations.jsonl").read_text().splitlines()]
             for name in ("lessons", "labels", "truth")]
    assert asked[1] == asked[2] and not set(asked[0]) & set(asked[1])  # the same problems, and others
    judged, learned, gap = summary["tables"].values()
    assert summary["judge"]["pairs"] > 0 and len(judged) == 11
    assert all(0 <= row[judge] <= 1 for row in judged for judge in ("believing", "doubting"))
    assert [row["model"] for row in learned] == ["base", "weak", "student", "strong"]
    assert gap[0]["recovered"] == summary["recovered"]["recovered"]
