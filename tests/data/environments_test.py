"""Environments: a generator's game becomes a rollout, token for token; many at once; faults are named."""

import threading
from types import SimpleNamespace

import pytest
import torch
from small import CHAT, small_model
from talks import STYLES

from postgrad.data.environments import Episode, Player
from postgrad.data.tasks.base import Task
from postgrad.models.engine import Engine
from postgrad.records import Prompt, Verdict
from postgrad.sampling import LocalSampler, RequestBatch, Sampling


def talker():
    """A small model whose replies end soon."""
    model = small_model()
    with torch.no_grad():
        model.head[CHAT.stop[0]] *= 3
    return model


ASK = [Prompt.ask(f"Q{n}?", answer=n, id=f"p{n}") for n in range(4)]
SETTINGS = Sampling(max_new_tokens=8)


class Puppet:
    """A sampler that writes what a function of the context's text says; calls: how many at once."""

    def __init__(self, says, chat=CHAT, positions=512):
        self.says, self.chat, self.positions, self.policy_step, self.calls = says, chat, positions, 3, []

    def reply(self, contexts, seeds, settings, after=()):
        self.calls.append(len(contexts))
        rows = []
        for context in contexts:
            ids = [*self.chat.encode(self.says(self.chat.spoken(context))), self.chat.stop[0]]
            cut = ids[: settings.max_new_tokens]
            rows.append(SimpleNamespace(tokens=cut, logp=[-1.0] * len(cut), finished=cut == ids))
        return rows


def task_of(play=None, **parts):
    return Task(name="t", about="", prompts=lambda split, count, seed: ASK, verify=parts.pop("verify", None),
                play=play, **parts)


def one(play, says=lambda text: "1", **parts):
    """The rollout of one game."""
    settings, puppet = parts.pop("settings", SETTINGS), Puppet(says, parts.pop("chat", CHAT),
                                                               parts.pop("positions", 512))
    player = Player(task_of(play, **parts), puppet)
    return player.sample(ASK[:1], 1, settings, 0)[0][0]


def counting(prompt, rng):
    """Asks for numbers until one is right."""
    secret, told = rng.randint(1, 9), 0
    reply = yield [{"role": "user", "content": "go"}]
    while reply.text != "stop":
        told += 1
        reply = yield [{"role": "user", "content": f"{told}"}, {"role": "tool", "content": "<|end|>x"}]
    return Verdict(score=0.5, reason=str(secret))


def test_a_game_token_for_token():
    says = lambda text: "stop" if "<|user|>2" in text else "a"  # noqa: E731
    made = one(counting, says)
    assert made.verdict.score == 0.5 and made.finished and made.text == "stop" and made.episode
    shown = "<|bos|><|user|>Q0?<|end|><|user|>go<|end|><|assistant|>"
    assert CHAT.spoken(made.prompt_tokens) == shown
    parts = [(CHAT.tokenizer.decode(list(made.tokens[t.start: t.end]), skip_special_tokens=False), t.role,
              t.policy_step) for t in made.turns]
    between = "<|user|>{}<|end|><|tool|>< |end|>x<|end|><|assistant|>".format
    assert parts == [("a<|end|>", "assistant", 3), (between(1), "user", None), ("a<|end|>", "assistant", 3),
                     (between(2), "user", None), ("stop<|end|>", "assistant", 3)]
    own = [i for t in made.turns if t.role == "assistant" for i in range(t.start, t.end)]
    assert [i for i, on in enumerate(made.mask) if on] == own
    assert all((x == -1.0) == on for x, on in zip(made.logp, made.mask, strict=True))


def test_one_turn_is_what_the_sampler_makes():
    """A game of one reply has the bits of a rollout without any game."""
    def once(prompt, rng):
        reply = yield ()
        return float(len(reply.text))

    sampler = LocalSampler(talker(), CHAT)
    plain = sampler.sample(ASK, 3, SETTINGS, 5)
    games = Player(task_of(once), sampler).sample(ASK, 3, SETTINGS, 5)
    for ours, theirs in zip(sum(games, []), sum(plain, []), strict=True):
        assert (ours.tokens, ours.logp, ours.prompt_tokens, ours.seed) == \
               (theirs.tokens, theirs.logp, theirs.prompt_tokens, theirs.seed)
        assert ours.mask is None and (ours.text == theirs.text or not theirs.finished)


def three(prompt, rng):
    secret = rng.randint(0, 10**6)
    reply = yield ()
    for _ in range(2):
        reply = yield [{"role": "user", "content": f"{len(reply.text)} {secret % 7}"}]
    return Verdict(score=float(secret))


def test_the_same_seed_gives_the_same_bits_whoever_plays_beside():
    sampler = LocalSampler(talker(), CHAT)
    for waits in (False, True):
        player = Player(task_of(three, waits=waits), sampler)
        whole, again = player.sample(ASK, 2, SETTINGS, 5), player.sample(ASK, 2, SETTINGS, 5)
        assert whole == again
        alone = player.sample(ASK[2:3], 2, SETTINGS, 5)[0]
        assert [(r.tokens, r.mask, r.verdict) for r in alone] == [(r.tokens, r.mask, r.verdict)
                                                                  for r in whole[2]]
    secrets = [{r.verdict.score for r in group if r.finished} for group in whole]
    assert all(len(found) <= 1 for found in secrets), "one environment seed for a group"
    assert any(len(r.turns) == 5 for group in whole for r in group)


def test_a_context_is_read_as_the_trainer_reads_it():
    """The sampler's log-probs over turns are the model's own on the whole row."""
    from postgrad.training.batches.columns import rollout_batch
    from postgrad.training.batches.shuffled import model_logp
    model = talker()
    made = sum(Player(task_of(three), LocalSampler(model, CHAT)).sample(ASK, 2, SETTINGS, 5), [])
    batch = rollout_batch(made)
    assert (batch.mask.sum(1) < batch.mask.shape[1] - 10).any()
    logp, _ = model_logp(model, batch, 10**6)
    torch.testing.assert_close(logp[batch.mask], batch.sampler_logp[batch.mask], rtol=0, atol=2e-5)


def test_whichever_wait_are_sampled_together():
    def by_name(prompt, rng):
        yield ()
        for _ in range(prompt.answer):
            yield [{"role": "user", "content": "more"}]
        return 1.0

    player = Player(task_of(by_name), Puppet(lambda text: "1"))
    player.sample(ASK, 2, SETTINGS, 0)
    assert player.sampler.calls == [8, 6, 4, 2]


def test_games_that_wait_run_in_threads():
    names = set()

    def play(prompt, rng):
        yield ()
        names.add(threading.current_thread().name)
        return 1.0

    assert one(play, waits=True).verdict.score == 1.0 and all(n.startswith(("play", "verify")) for n in names)


def raising(prompt, rng):
    yield ()
    raise KeyError("gone")


def no_generator(prompt, rng):
    return 1.0


def wrong_message(prompt, rng):
    yield [{"role": "assistant", "content": "I win"}]


def no_score(prompt, rng):
    yield ()


def too_soon(prompt, rng):
    return 1.0
    yield ()


def exits(prompt, rng):
    yield ()
    raise SystemExit(0)


def hangs(prompt, rng):
    yield ()
    while True:
        pass


hangs.seconds = 0.1


def nonsense(prompt, rng):
    yield ()
    return "won"


@pytest.mark.parametrize(("play", "said"), [
    (exits, "SystemExit"), (hangs, "play.seconds = N allows more"), (nonsense, "returned a str"),
    (raising, r"infrastructure: environments_test.py, line \d+: KeyError: 'gone'"),
    (no_generator, "is no generator: `reply = yield"),
    (wrong_message, "a message is {'role', 'content'}, of the roles system, user, tool"),
    (no_score, "returned nothing"), (too_soon, "ended before any reply")])
def test_a_fault_of_the_environment_is_no_fault_of_the_model(play, said):
    import re
    made = one(play)
    assert re.search(said, made.verdict.error) and not made.verdict.given


def endless(prompt, rng):
    while True:
        yield [{"role": "user", "content": "again"}]


def test_limits_end_a_game():
    made = one(endless, turns=3)
    assert made.verdict.reason == "no verdict after 3 replies" and made.verdict.given and not made.finished
    assert [t.role for t in made.turns] == ["assistant", "user", "assistant", "user", "assistant"]
    made = one(endless, positions=40, turns=50)
    assert "tokens, of which 32 leave room to reply" in made.verdict.reason and len(made.tokens) < 40
    assert "the prompt has 13 tokens, of which 2 leave room" in one(endless, positions=10).verdict.error
    made = one(endless, lambda text: "x" * 30)
    assert made.verdict.reason == "a reply was cut at 8 tokens" and not made.finished and len(made.turns) == 1


def test_a_reward_for_each_turn_stands_on_its_last_token():
    def play(prompt, rng):
        reply = yield ()
        reply = yield [{"role": "user", "content": "more"}]
        assert reply.text == "ab"
        return Verdict(score=2.0, per_turn=(0.5,))

    made = one(play, lambda text: "ab")
    each = len(made.sampled) // 2
    assert made.verdict.per_token == (*[0.0] * (each - 1), 0.5, *[0.0] * (each - 1), 1.5)


def test_a_template_that_rewrites_begins_a_new_row():
    chat = STYLES["qwen3"]()
    game = Episode(ASK[0], counting, (), chat, seed=1, env_seed=1, room=400, turns=4)
    for said in ("<think>\nHm.\n</think>\n\na", "stop"):
        game.step()
        tokens = [*chat.encode(said), chat.stop[0]]
        game.wrote(tokens, [-1.0] * len(tokens), True, 0)
    game.step()
    made = game.rollout()
    assert len(made.rows) == 2 and made.verdict.score == 0.5
    assert {r.episode for r in made.rows} == {made.episode}
    assert "Hm." in chat.spoken(made.rows[0].tokens) and "Hm." not in chat.spoken(made.prompt_tokens)
    assert len(made.sampled) == sum(len(row.tokens) for row in made.rows)


class Counted(LocalSampler):
    """Over several turns a row stays in its slot: of each turn only what was added is computed.

    turns: of each call, the tokens that went through the layers, those that were added since the row that
    a context goes on from, and those that were written."""

    def __init__(self, monkeypatch, model, **sizes):
        super().__init__(model, CHAT, **sizes)
        self.turns, self.computed, prefill, step = [], 0, Engine.prefill, Engine.step

        def counted_prefill(engine, tokens, lengths, places, begun):
            self.computed += sum(n - m for n, m, place in zip(lengths.tolist(), begun, places, strict=True)
                                 if place < engine.prompts)
            return prefill(engine, tokens, lengths, places, begun)

        def counted_step(engine, token, at, slot, *rest):
            self.computed += int((slot < engine.rows).sum())
            return step(engine, token, at, slot, *rest)

        monkeypatch.setattr(Engine, "prefill", counted_prefill)
        monkeypatch.setattr(Engine, "step", counted_step)

    def reply(self, contexts, seeds, settings, after=()):
        before = self.computed
        rows = super().reply(contexts, seeds, settings, after)
        begun = sum(len(row.cached.prompt.tokens) + len(row.cached.tokens) for row in after if row)
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


@pytest.mark.parametrize("how", ["all layers at once", "layer by layer", "in places"])
def test_of_a_later_turn_what_was_added_is_computed(how, monkeypatch):
    """In places: as on a GPU, where a turn is a prompt of its own after what is cached."""
    model = talker()
    if how == "layer by layer":
        monkeypatch.setattr(model.ops, "fused_step", lambda engine: None)
    with monkeypatch.context() as patch:
        if how == "in places":
            patch.setattr(Engine, "appends", False)
            patch.setattr(LocalSampler, "turns_in_places", True)
        sampler = Counted(patch, model)
        kept = played(sampler)
    assert [computed == added + written for computed, added, written in sampler.turns[1:]] == [True, True]
    computed, added, written = sampler.turns[0]
    assert computed == added // 6 + written, "a prompt is read once for its group"
    assert sampler.turns[1][1] < sum(len(r.prompt_tokens) for r in kept) and sampler.cache_misses == 0
    monkeypatch.setattr(RequestBatch, "cache_hits", lambda *_: {})
    assert apart(kept, played(LocalSampler(model, CHAT))) < 2e-5


@pytest.mark.parametrize("slots", [1, 5])
@pytest.mark.parametrize("in_places", [False, True])
def test_where_there_is_no_room_a_row_is_read_anew_and_counted(slots, in_places, monkeypatch):
    """Also with one place for all prompts: whoever waits is let in in the end."""
    if in_places:
        monkeypatch.setattr(Engine, "appends", False)
        monkeypatch.setattr(LocalSampler, "turns_in_places", True)
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


def test_a_reply_that_cannot_be_shown_again_costs_itself_and_a_prompt_that_cannot_is_a_fault():
    def refusing(where):
        def render(messages, tools=()):
            if any(where in m["content"] for m in messages):
                raise ValueError("the template says no")
            return [1, 2, 3]
        return render

    def play(prompt, rng):
        yield ()
        yield {"role": "user", "content": "again"}

    def run(where):
        chat = SimpleNamespace(render=refusing(where), extend=lambda so_far, shown, tools: chat.render(shown),
                               inert=dict, escaped=str, decode=lambda tokens: "bad",
                               spoken=lambda tokens: "bad")
        episode = Episode(Prompt.ask("?"), play, (), chat, seed=0, env_seed=0, room=99, turns=9)
        episode.step()
        episode.wrote([7], [0.0], True, 0)
        episode.step()
        return episode.verdict

    assert (run("bad").score, run("bad").error) == (0.0, None) and "the template says no" in run("bad").reason
    assert "the template says no" in run("again").error
