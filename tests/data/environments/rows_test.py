"""Over several turns a row stays in its slot: of each turn only what was added is computed."""

import pytest
import torch
from small import CHAT

from postgrad.data.environments import Player
from postgrad.models.engine import Engine
from postgrad.sampling import LocalSampler
from tests.data.environments.player_test import ASK, SETTINGS, talker, task_of, three


class Counted(LocalSampler):
    """turns: of each call, the tokens that went through the layers, those that were added since the row that
    a context goes on from, and those that were written."""

    def __init__(self, monkeypatch, model, **sizes):
        super().__init__(model, CHAT, **sizes)
        self.turns, self.computed, prefill, step = [], 0, Engine.prefill, Engine.step

        def counted_prefill(engine, tokens, lengths, places):
            self.computed += sum(n for n, place in zip(lengths.tolist(), places, strict=True)
                                 if place < engine.prompts)
            return prefill(engine, tokens, lengths, places)

        def counted_step(engine, token, at, slot, *rest):
            self.computed += int((slot < engine.rows).sum())
            return step(engine, token, at, slot, *rest)

        monkeypatch.setattr(Engine, "prefill", counted_prefill)
        monkeypatch.setattr(Engine, "step", counted_step)

    def reply(self, contexts, seeds, settings, after=()):
        before = self.computed
        rows = super().reply(contexts, seeds, settings, after)
        begun = sum(len(row.cached.tokens) for row in after if row)
        self.turns.append((self.computed - before, sum(map(len, contexts)) - begun,
                           sum(len(row.tokens) for row in rows)))
        return rows


def played(sampler, group_size=6, play=three):
    return sum(Player(task_of(play), sampler).sample(ASK, group_size, SETTINGS, 5), [])


def apart(one, other):
    """The same games, token for token; -> how far their log-probs are apart, at most."""
    assert [(r.tokens, r.mask, r.verdict) for r in one] == [(r.tokens, r.mask, r.verdict) for r in other]
    return max(abs(a - b) for r, s in zip(one, other, strict=True)
               for a, b in zip(r.logp, s.logp, strict=True))


@pytest.mark.parametrize("at_once", [True, False], ids=["all layers at once", "layer by layer"])
def test_of_a_later_turn_what_was_added_is_computed(at_once, monkeypatch):
    model = talker()
    if not at_once:
        monkeypatch.setattr(model.ops, "fused_step", lambda engine: None)
    with monkeypatch.context() as patch:
        sampler = Counted(patch, model)
        kept = played(sampler)
    assert [computed == added + written for computed, added, written in sampler.turns[1:]] == [True, True]
    computed, added, written = sampler.turns[0]
    assert computed == added // 6 + written, "a prompt is read once for its group"
    assert sampler.turns[1][1] < sum(len(r.prompt_tokens) for r in kept) and sampler.cache_misses == 0
    monkeypatch.setattr(Engine, "appends", False)
    assert apart(kept, played(LocalSampler(model, CHAT))) < 2e-5


@pytest.mark.parametrize("slots", [1, 5])
def test_where_there_is_no_room_a_row_is_read_anew_and_counted(slots):
    """Also with one place for all prompts: whoever waits is let in in the end."""
    wide = played(LocalSampler(talker(), CHAT), 2)
    sampler = LocalSampler(talker(), CHAT, max_concurrent=slots)
    narrow = played(sampler, 2)
    assert apart(wide, narrow) < 2e-5 and 0 < sampler.cache_misses
    assert apart(narrow, played(sampler, 2)) == 0.0, "the same call gives the same bits"


def test_a_row_that_begins_otherwise_is_read_anew():
    """Who was not the last to write, or whose beginning is rewritten."""
    sampler = LocalSampler(talker(), CHAT)
    contexts = [CHAT.render(ASK[i].messages) for i in (0, 1)]
    first = sampler.reply(contexts, [1, 2], SETTINGS)
    longer = [[*c, *row.tokens, 5, 6] for c, row in zip(contexts, first, strict=True)]
    assert sampler.reply([longer[0], [7, *longer[1]]], [3, 4], SETTINGS, first) and sampler.cache_misses == 1
    sampler.reply(longer, [3, 4], SETTINGS, first)
    assert sampler.cache_misses == 3, "rows of the call before the last have left"


def test_new_weights_are_seen_from_the_first_turn_on():
    model = talker()
    sampler = LocalSampler(model, CHAT)
    before = played(sampler)
    with torch.no_grad():
        model.head.mul_(1.1)
    after = played(sampler)
    assert after == played(LocalSampler(model, CHAT)) and after != before
