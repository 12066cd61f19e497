"""The instruments of chapters 7 to 10: what they compute by hand, every sentence at every place of the
controls, and their pages."""

import math
import random
import re

import numpy as np
import pytest
from studio_positions import numbers_in, places, positions
from studio_small import client

from postgrad.studio.book import blocks, chapters
from postgrad.studio.instruments import (
    INSTRUMENTS,
    bandit,
    divergences,
    layouts,
    one_step,
    staleness,
    telling_apart,
    tilt,
    token_mdp,
    turn_credit,
)
from postgrad.studio.recordings import recording

STANDS = {"divergences": ("teacher", "intuition"), "staleness": ("systems", "intuition"),
          "layouts": ("systems", "intuition"), "turn-credit": ("agents", "intuition"),
          "telling-apart": ("measuring", "intuition"), "token-mdp": ("why", "intuition"),
          "bandit": ("why", "intuition"), "tilt": ("algorithms", "intuition"),
          "one-step": ("algorithms", "intuition")}


def said_everywhere(name, mixed=12):
    instrument = INSTRUMENTS[name]
    for state in positions(instrument, mixed):
        numbers = instrument.compute(state)
        yield state, numbers, instrument.insight(numbers)


# 16: two divergences

def kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def test_sentences_of_divergences_hold_everywhere():
    for state, numbers, said in said_everywhere("divergences"):
        p, q = numbers["teacher"], numbers["student"]
        assert sum(p) == pytest.approx(1, abs=1e-4) and sum(q) == pytest.approx(1, abs=1e-4)
        outside = sum(b for a, b in zip(p, q, strict=True) if a < 0.01)
        assert numbers["outside"] == pytest.approx(outside, abs=1e-4)
        covered = sum(a for a, b in zip(p, q, strict=True) if b >= 0.01)
        assert numbers["covered"] == pytest.approx(covered, abs=1e-4)
        if min(p) > 1e-5 and min(q) > 1e-4:  # the numbers are rounded
            assert numbers_in(said)[-2:] == pytest.approx([kl(p, q), kl(q, p)], abs=0.01)
        assert (f"{state.step} steps on the {state.direction} KL" in said) == bool(state.step)


def test_the_push_is_the_gradient_by_hand():
    """Forward p - q, reverse q (KL - log q/p); both sum to 0 over the vocabulary."""
    for direction in divergences.DIRECTIONS:
        found = divergences.compute(divergences.State(direction=direction, step=10))
        p, q = found["teacher"], found["student"]
        whole = kl(q, p)
        for a, b, push in zip(p, q, found["push"], strict=True):
            wanted = a - b if direction == "forward" else b * (whole - math.log(b / a)) if b > 1e-5 else 0.0
            assert push == pytest.approx(wanted, abs=2e-4)
        assert sum(found["push"]) == pytest.approx(0, abs=1e-4)


def test_training_lowers_what_it_trains_and_the_two_end_apart():
    ends = {}
    for direction in divergences.DIRECTIONS:
        for centre in (2, 6, 14, 18):
            losses = [loss for _, loss in divergences.compute(
                divergences.State(direction=direction, centre=centre))["losses"]]
            assert losses[-1] < losses[0] and losses[-1] < 2
        ends[direction] = divergences.compute(divergences.State(direction=direction))
    assert ends["forward"]["covered"] > 0.95 and ends["forward"]["outside"] > 0.2
    assert ends["reverse"]["covered"] < 0.65 and ends["reverse"]["outside"] < 0.05


# 17: staleness

def test_sentences_of_staleness_hold_everywhere():
    for state, numbers, said in said_everywhere("staleness"):
        mu, w = numbers["chances"], numbers["weights"]
        assert sum(p * x for p, x in zip(mu, w, strict=True)) == pytest.approx(1, abs=1e-4)
        second = sum(p * x * x for p, x in zip(mu, w, strict=True))
        assert numbers["share"] == pytest.approx(1 / second, rel=1e-4)
        assert numbers["reply"] == pytest.approx(second ** -state.tokens, rel=0.05)
        if not state.updates:
            assert "On policy" in said and set(w) == {1.0}
            continue
        assert numbers_in(said)[1] == pytest.approx(100 * numbers["share"], abs=0.06)
        kept = sum(p * min(x, state.cap) for p, x in zip(mu, w, strict=True))
        assert numbers["kept"] == pytest.approx(kept, abs=1e-4)
        assert ("cuts nothing" in said) == all(x <= state.cap for x in w)
        assert ("whole reply" in said) == (state.tokens > 1)


def test_old_samples_only_lose_and_a_limit_helps():
    paths = staleness.compute(staleness.State(cap=1.5))
    for name in ("token_path", "reply_path"):
        worth = [y for _, y in paths[name]]
        assert worth[0] == 1 and worth == sorted(worth, reverse=True)
    assert all(held[1] >= free[1] - 1e-9
               for held, free in zip(paths["held_path"], paths["token_path"], strict=True))


# 18: layouts

def test_sentences_of_layouts_hold_everywhere():
    for _, numbers, said in said_everywhere("layouts"):
        rows, turn, apart = numbers["rows"], numbers["turn"], numbers["apart"]
        assert numbers["best"]["step"] == min(row["step"] for row in rows)
        assert all(0 <= row["waiting"] <= row["step"] for row in rows)
        assert all(row["together"] or row["ahead"] == numbers["depth"] for row in rows)
        if turn and apart:
            assert apart["step"] == min(row["step"] for row in rows if not row["together"])
            than = "faster than" if apart["step"] < turn["step"] else "slower than"
            assert than in said and apart["words"] in said
            wanted = [apart["step"], apart["waiting"], turn["step"], turn["waiting"]]
            assert [float(x) for x in re.findall(r"(\d+\.\d) s", said)] == pytest.approx(wanted, abs=0.051)


def test_layouts_are_those_of_the_command():
    """`postgrad plan` with the same settings has the same steps."""
    from postgrad.recipes.plan import ReplyLengths, Work, plan_training

    work = Work(prompts=64, group=8, prompt=256, reply=256)
    _, _, options = plan_training("1B", "grpo", "8xH100", work,
                                  ReplyLengths(mean=256, longest=1024, kind="equal"))
    found = layouts.compute(layouts.State(reply=256, lengths="equal", depth=2))["rows"]
    wanted = {o.layout.words: round(o.times.step, 3) for o in options if o.layout.together or o.ahead == 2}
    assert {row["words"]: row["step"] for row in found} == wanted


# 19: credit over turns

def test_sentences_of_turn_credit_hold_everywhere():
    rows = recording("episodes")["rows"]
    for state, numbers, said in said_everywhere("turn-credit"):
        row = rows[state.episode - 1]
        credits = [turn["credit"] for turn in numbers["turns"]]
        assert len(credits) == len(row["turns"]) and f"scores {row['score']:.1f}" in said
        if state.method == "episode":
            assert len(set(credits)) == 1 and "whatever was said" in said
        if "the most" in said:
            place, words, most, at, _, least = re.search(
                r"Turn (\d), “(.+?)”, is given the most, (.+?), and turn (\d), “(.+?)”, the least, (.+)\.",
                said).groups()
            assert credits[int(place) - 1] == max(credits) and credits[int(at) - 1] == min(credits)
            assert row["turns"][int(place) - 1]["said"] == words
            assert numbers_in(f"{most} {least}") == pytest.approx([max(credits), min(credits)], abs=0.006)


def test_credit_by_hand():
    """Scores against their mean and spread; the changes of the value, which sum to score less value."""
    rows = recording("episodes")["rows"]
    scores = [row["score"] for row in rows]
    mean = sum(scores) / len(scores)
    spread = math.sqrt(sum((x - mean) ** 2 for x in scores) / len(scores))
    for k, row in enumerate(rows, start=1):
        whole = turn_credit.compute(turn_credit.State(method="episode", episode=k))["turns"]
        assert whole[0]["credit"] == pytest.approx((row["score"] - mean) / spread, abs=1e-5)
        found = turn_credit.compute(turn_credit.State(episode=k, lam=0.0))["turns"]
        values = [*row["values"], 0.0]
        by_hand = [row["rewards"][i] + values[i + 1] - values[i] for i in range(len(found))]
        assert [turn["credit"] for turn in found] == pytest.approx(by_hand, abs=1e-5)
        assert sum(by_hand) == pytest.approx(row["score"] - row["values"][0])
        all_the_way = turn_credit.compute(turn_credit.State(episode=k, lam=1.0))["turns"]
        assert all_the_way[0]["credit"] == pytest.approx(row["score"] - row["values"][0], abs=1e-5)


def test_a_good_turn_is_blamed_with_its_episode():
    """What the title says, in the recorded group."""
    blamed = 0
    for k in range(1, turn_credit.EPISODES + 1):
        whole = turn_credit.compute(turn_credit.State(method="episode", episode=k))["turns"]
        blamed += any(turn["credit"] < 0 < turn["change"] for turn in whole)
    assert blamed


def test_the_recorded_episodes_are_games():
    """Each is replayed by the game itself: the same answers, the same score."""
    from postgrad.data.tasks import load_task
    from postgrad.models.chat.tools import ModelReply
    from postgrad.records import Prompt

    class Secret(random.Random):
        def randint(self, a, b):
            return 1

    kept = recording("episodes")
    assert len(kept["rows"]) == turn_credit.EPISODES and kept["command"].startswith("postgrad train")
    for row in kept["rows"]:
        game = load_task("guess").play(Prompt.ask(kept["question"]), Secret(0))
        next(game)
        for turn in row["turns"][:-1]:
            assert game.send(ModelReply(text=turn["said"]))[0]["content"] == turn["answered"]
        with pytest.raises(StopIteration) as end:
            game.send(ModelReply(text=row["turns"][-1]["said"]))
        assert end.value.value.score == pytest.approx(row["score"])
        assert sum(row["rewards"]) == pytest.approx(row["score"])


# 20: telling two models apart

def test_sentences_of_telling_apart_hold_everywhere():
    kinds = set()
    for state, numbers, said in said_everywhere("telling-apart"):
        rows = numbers["intervals"]
        assert len(rows) == 40 and all(low <= mean <= high for mean, low, high, _ in rows)
        told = sum(low > 0 or high < 0 for _, low, high, _ in rows)
        least, most = min(row[0] for row in rows), max(row[0] for row in rows)
        between = numbers_in(re.search(r"between (.+) points", said)[1])
        assert between == pytest.approx([100 * least, 100 * most], abs=0.06)
        assert f"{told} of the 40 see" in said and f"{state.problems} problems" in said
        first, second = telling_apart.recorded_pairs()[state.models]["shares"]
        truth = sum(second) / len(second) - sum(first) / len(first)
        assert numbers["missed"] == sum(not low <= truth <= high for _, low, high, _ in rows)
        if state.models == "same":
            assert truth == 0 and "The truth is 0," in said
        else:
            assert numbers_in(said.partition("The truth is")[2])[0] == pytest.approx(100 * truth, abs=0.06)
            assert f"about {numbers['needed']} problems" in said
        kinds.add(state.models)
    assert kinds == set(telling_apart.PAIRS)


def test_a_longer_evaluation_begins_with_the_shorter_one_and_intervals_shrink():
    """Its width falls about as the square root, and pairs and samples narrow it."""
    def width(**state):
        return telling_apart.compute(telling_apart.State(**state))["width"]

    assert width(problems=40) / width(problems=160) == pytest.approx(2, rel=0.1)
    assert width(samples=8) < 0.6 * width(samples=1)
    assert width(samples=8, paired=True) < 0.85 * width(samples=8, paired=False)


def test_the_problems_needed_are_those_of_the_spread():
    """Of one sample of each problem: s^2 = the variance of d over the problems, and that of two samples."""
    first, second = telling_apart.recorded_pairs()["near"]["shares"]
    n = len(first)
    gaps = [b - a for a, b in zip(first, second, strict=True)]
    mean = sum(gaps) / n
    spread = sum((g - mean) ** 2 for g in gaps) / n + sum(
        a * (1 - a) + b * (1 - b) for a, b in zip(first, second, strict=True)) / n
    needed = telling_apart.evaluations("near", 1, True)["needed"]
    assert needed == pytest.approx((1.96 + 0.842) ** 2 * spread / mean**2, rel=0.12)  # of 8,000 draws


# 21: the token MDP

def test_sentences_of_the_token_mdp_hold_everywhere():
    for state, numbers, said in said_everywhere("token-mdp"):
        steps = recording("token_mdp")["replies"][token_mdp.KINDS[state.reply]]["steps"]
        assert numbers["rewards"] == [0.0] * (len(steps) - 1) + [numbers["score"]]
        assert set(numbers["returns"]) == {numbers["score"]}
        if state.view == "answer":
            assert numbers["whole"] == pytest.approx(math.prod(one["chance"] for one in steps), abs=1e-6)
            assert f"of {len(steps)} tokens" in said
        elif numbers["at"] == len(steps):
            assert numbers["reason"] in said and f"reward of {numbers['score']:.0f}" in said
        else:
            taken = steps[numbers["at"]]
            best = max(taken["likeliest"], key=lambda one: one[1])[0]
            assert f"Action {numbers['at'] + 1} of {len(steps)}" in said
            assert ("the likeliest" in said) is (best == taken["token"])


# 22: the bandit

def test_both_players_draw_the_same_answers_and_the_sentence_adds_up():
    levers, rng = bandit.recorded_levers(), random.Random(3)
    for explores in (0, 10, 30, 100):
        mine = "".join(rng.choice(bandit.LEVERS) for _ in range(rng.randint(1, bandit.MOST)))
        numbers = bandit.compute(bandit.State(explores=explores, mine=mine))
        for player in (numbers["you"], numbers["machine"]):
            paid = [sum(levers[i][: player["pulls"][i]]) for i in range(4)]
            assert sum(paid) == player["paid"] == player["path"][-1][1] and sum(player["pulls"]) == len(mine)
        you, machine = numbers["you"]["paid"], numbers["machine"]["paid"]
        said = bandit.insight(numbers)
        assert f"you have {you}, the machine {machine}" in said
        assert ("level" in said) is (you == machine)
        assert (f"by {abs(you - machine)}" in said) is (you != machine)
    assert bandit.settle(bandit.State(mine="AXB" + "C" * 99)).mine == "AB" + "C" * 28


def test_the_machine_exploits_unless_it_explores():
    greedy = bandit.compute(bandit.State(explores=0, mine="A" * 30))["machine"]
    assert bandit.best_lever([3, 1, 0, 1], [1, 1, 0, 0]) == 1
    assert bandit.best_lever([1, 1, 0, 1], [0] * 4) == 2
    always = bandit.compute(bandit.State(explores=100, mine="A" * 30))["machine"]
    assert all(always["pulls"]) and max(always["pulls"]) < max(greedy["pulls"])


# 23: the tilt

def test_the_optimum_is_the_best_of_its_distance_and_z_cancels():
    for state, numbers, said in said_everywhere("tilt"):
        rewards = tilt.REWARDS[state.rewards]
        weights = [q * math.exp(r / state.beta) for q, r in zip(tilt.REFERENCE, rewards, strict=True)]
        assert numbers["optimum"] == pytest.approx([w / sum(weights) for w in weights])
        assert numbers["kl"] == pytest.approx(tilt.kl_of(numbers["optimum"]))
        ahead = numbers["mean_reward"] - state.shift
        for x, y in numbers["round"]:
            c = y * 2 / math.sqrt(3)
            p = (1 - x - c / 2, x - c / 2, c)
            assert sum(a * r for a, r in zip(p, rewards, strict=True)) <= ahead + 1e-3
        assert numbers["gap_before"] == pytest.approx(numbers["gap_after"]) and said
        assert numbers["z"] == pytest.approx(sum(weights) * math.exp(state.shift / state.beta))


# 24: one step under all rows

def test_the_pulls_are_those_of_the_formulas():
    """Against hand-written gradients of three rows, on the recorded log-probabilities."""
    columns, found = one_step.step_columns(), one_step.pulls()
    mask, logp, old = (columns[name] for name in ("mask", "logp", "old_logp"))
    reward = columns["reward"].sum(1)
    centred, count = reward - reward.mean(), mask.sum()
    nano = (centred[:, None] * mask / count).tolist()
    assert np.allclose(found["nano"], nano, atol=1e-8)
    ratio = (logp - old).exp()
    adv = (centred / reward.std(unbiased=False))[:, None].expand_as(ratio)
    free = ratio * adv <= ratio.clamp(0.8, 1.28) * adv
    assert np.allclose(found["dapo"], (free * ratio * adv * mask / count).tolist(), atol=1e-8)
    assert set(found) == set(one_step.fitting_rows()) and len(found) > 12


def test_sentences_of_one_step_hold_everywhere():
    for state, numbers, said in said_everywhere("one-step"):
        here = [shares[numbers["token"] - 1] for _, shares in numbers["rows"]]
        for words, hits in (("push up", [x for x in here if x > 0]),
                            ("push down", [x for x in here if x < 0]),
                            ("do nothing", [x for x in here if x == 0])):
            assert (f"{len(hits)} of {len(here)} rows {words}" in said) is bool(hits)
        assert f"Reply {state.reply} was paid {numbers['score']:.0f}" in said


# pages

@pytest.mark.parametrize("name", STANDS)
def test_every_end_of_every_control_can_be_drawn(tmp_path, name):
    studio, instrument = client(tmp_path), INSTRUMENTS[name]
    for control in instrument.shown(instrument.settle(instrument.state())):
        values = places(control)
        for value in (values if not hasattr(control, "low") else (values[0], values[-1])):
            sent = int(value) if isinstance(value, bool) else value
            answer = studio.get(f"/instruments/{name}/figure", params={control.name: sent})
            assert answer.status_code == 200, (control.name, value)
            assert not re.search(r"\bnan\b", answer.text.lower()), (control.name, value)
            assert 'class="below">' in answer.text and "tex-math" in answer.text
    assert studio.get(f"/instruments/{name}/small").text.count("<svg") == 1


@pytest.mark.parametrize("name", STANDS)
def test_each_stands_in_its_chapter(name):
    chapter, layer = STANDS[name]
    page = list(blocks.walk_blocks(chapters.chapter(chapter).layers[layer]))
    (at,) = (i for i, b in enumerate(page) if b.kind == "instrument" and b.argument.partition("?")[0] == name)
    assert page[at - 1].kind == "p", f"a sentence leads to {name}"
