"""Rows that come and go: what one writes is a function of its prompt and its seed, whoever is beside it."""

import pytest
import torch
from foreign_small import small_folders

from postgrad.data.tasks import load_task
from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.records import Prompt
from postgrad.resolve.models import open_model
from postgrad.sampling import LocalSampler, Request, RequestBatch, Sampling
from postgrad.sampling.detokenizer import IncrementalDetokenizer

PROMPTS = [*load_task("words").prompts("test", 16, 0), Prompt.ask("Hi", id="hi")]


@pytest.fixture(scope="module")
def model():
    return load_model("tiny").requires_grad_(False)


@pytest.fixture(scope="module")
def chat():
    return Chat.load(find_model("tiny"))


def batch_of(model, chat, **sizes):
    return RequestBatch(model, chat, **{"rows": 17, "max_prompt_tokens": 200, "max_new_tokens": 64} | sizes)


def all_free(batch):
    scheduler = batch.scheduler
    return (not batch.busy and sorted(scheduler.free_slots) == list(range(batch.rows))
            and sorted(scheduler.free_places) == list(range(batch.engine.prompts)))


def run(batch, then=lambda step: None):
    """Until nobody is left; `then` is called after each step."""
    steps = 0
    while batch.busy:
        batch.step()
        steps += 1
        then(steps)
    return steps


def test_a_row_has_the_same_bits_alone_and_among_sixteen_others(model, chat):
    """Each with settings of its own, some coming and going while it is written."""
    how = [Sampling(max_new_tokens=3 + i, temperature=(1.0, 0.7, 0.0)[i % 3], top_p=(1.0, 0.9)[i % 2],
                    top_k=(0, 20)[i % 5 == 1]) for i in range(17)]
    asks = [(chat.render(p.messages), [Request(sampling=s, seed=90 + i, stop_token_ids=chat.stop,
                                               raw_logprobs=i % 4 == 0, top_logprobs=i % 3)])
            for i, (p, s) in enumerate(zip(PROMPTS, how, strict=True))]
    alone = []
    for ask in asks:
        batch = batch_of(model, chat)
        (row,) = batch.add(*ask)
        run(batch)
        alone.append(row)
    batch, rows = batch_of(model, chat, rows=9), {}

    def arrive(step):
        for i in range(17):
            if i not in rows and step >= i // 2:
                rows[i], = batch.add(*asks[i])

    arrive(0)
    run(batch, arrive)
    assert len(rows) == 17
    for i, row in enumerate(alone):
        assert rows[i].sampled == row.sampled and rows[i].finish_reason == row.finish_reason, i
    assert all_free(batch)


def test_a_row_has_the_same_bits_among_others_that_are_chosen_for_alike(model, chat):
    """Which have columns of their own until one comes that is not, and leave none behind."""
    how = {11: Sampling(max_new_tokens=3, top_k=5)}
    asks = [(chat.render(p.messages), [Request(sampling=how.get(i, Sampling(max_new_tokens=9)), seed=i,
                                               stop_token_ids=chat.stop, top_logprobs=2 * (i == 12))])
            for i, p in enumerate(PROMPTS)]
    alone = []
    for ask in asks:
        batch = batch_of(model, chat)
        alone += batch.add(*ask)
        run(batch)
    batch, rows = batch_of(model, chat, rows=40), []
    for _ in range(2):
        rows += [row for ask in asks[:11] for row in batch.add(*ask)]
    seen = []

    def arrive(step):
        seen.append(len(batch.active) if batch.settings else 0)
        if step == 4:
            batch.abort(rows[3])
        if step in (6, 12):
            rows.extend(row for ask in asks[11:] for row in batch.add(*ask))
            rows.extend(batch.add(*asks[0]))

    arrive(0)
    run(batch, arrive)
    expected = [*alone[:11], *alone[:11], *alone[11:], alone[0], *alone[11:], alone[0]]
    for row, by_itself in zip(rows, expected, strict=True):
        assert row.sampled == by_itself.sampled[: len(row.sampled)]
        assert row.finish_reason == ("abort" if row is rows[3] else by_itself.finish_reason)
    assert {0, 21, 22} <= {*seen} and all_free(batch)


def test_it_writes_what_the_batch_sampler_writes(model, chat):
    settings = Sampling(max_new_tokens=24)
    groups = LocalSampler(model, chat).sample(PROMPTS[:8], 4, settings, seed=5)
    batch = batch_of(model, chat, rows=32)
    rows = [batch.add(chat.render(g[0].prompt.messages),
                      [Request(sampling=settings, seed=r.seed, stop_token_ids=chat.stop) for r in g])
            for g in groups]
    run(batch)
    assert batch.computed_tokens == (sum(len(g[0].prompt_tokens) for g in groups)
                              + sum(len(r.tokens) - 1 for g in groups for r in g))  # a prompt is read once
    for group, mine in zip(groups, rows, strict=True):
        for rollout, row in zip(group, mine, strict=True):
            assert tuple(row.tokens) == rollout.tokens and (row.finish_reason == "stop") == rollout.finished
            assert [c.logp for c in row.sampled] == pytest.approx(rollout.logp, abs=1e-5)


@pytest.mark.parametrize("kind", ["own", "foreign"])
def test_what_a_row_is_shown_is_added_to_its_slot(kind, model, chat, tmp_path_factory):
    """In the second turn as many tokens are computed as were added and written,
    and the log-probs are those of the whole row."""
    if kind == "foreign":
        model, chat = open_model(small_folders(tmp_path_factory)("gpt2"))
        model.requires_grad_(False)
    batch, prompt = batch_of(model, chat, rows=3, max_prompt_tokens=40, max_new_tokens=40), [5, 9, 7]
    (row,), (other,) = (batch.add(p, [Request(sampling=Sampling(max_new_tokens=n), seed=n, keep=k)])
                        for p, n, k in ((prompt, 6, True), ([8, 8], 30, False)))
    while row.finish_reason is None:
        batch.step()
    assert len(row.tokens) == 6 and len(batch.active) == 1
    batch.abort(other)
    before, shown = batch.computed_tokens, [11, 12, 13, 14, 15]
    batch.extend(row, shown, Request(sampling=Sampling(max_new_tokens=4), seed=6))
    assert batch.computed_tokens - before == len(shown) + 1  # with the last one of the first turn
    run(batch)
    assert batch.computed_tokens - before == len(shown) + 4  # the last one written is not needed any more
    assert row.tokens[6:11] == shown and len(row.sampled) == 10
    assert sorted(batch.scheduler.free_slots) == [0, 1, 2]
    whole = torch.tensor([[*prompt, *row.tokens]])
    mask = torch.ones_like(whole, dtype=torch.bool)
    mask[0, : len(prompt)] = mask[0, len(prompt) + 6: len(prompt) + 11] = False
    torch.testing.assert_close(torch.tensor([c.logp for c in row.sampled]), model.logp(whole, mask)[0][mask],
                               rtol=0, atol=2e-5)


def test_who_is_dropped_frees_a_slot_at_once(model, chat):
    batch = batch_of(model, chat, rows=2, max_new_tokens=200)
    request = Request(sampling=Sampling(max_new_tokens=100), seed=1)
    first, second, third = (batch.add([5 + i], [request])[0] for i in range(3))
    pair = batch.add([9], [request, Request(sampling=Sampling(max_new_tokens=3), seed=2)])
    batch.step()
    assert third.slot is None and not third.tokens
    batch.abort(first)
    batch.abort(pair[0])  # while it waits
    batch.step()
    assert third.slot is not None and first.finish_reason == "abort" and len(first.tokens) == 1
    batch.abort(second)
    batch.abort(third)
    run(batch)
    assert len(pair[1].tokens) == 3 and all_free(batch)


def test_the_scores_of_a_text_are_the_trainers(model, chat):
    batch, tokens = batch_of(model, chat), chat.render(PROMPTS[0].messages)
    for n in (2, 5, len(tokens)):
        row = torch.tensor([tokens[:n]])
        mask = torch.arange(n)[None] > 0
        wanted = model.logp(row, mask)[0][mask]
        scored = batch.score(tokens[:n], top=3)
        torch.testing.assert_close(torch.tensor([c.logp for c in scored]), wanted, rtol=0, atol=1e-5)
        assert [c.token for c in scored] == tokens[1:n] and all(len(c.top) == 3 for c in scored)
        assert all(c.top[0][1] >= c.logp for c in scored)
    assert batch.score(tokens[:1]) == []


def test_rows_go_on_with_new_weights_and_say_from_where(chat):
    model = load_model("tiny").requires_grad_(False)
    batch = batch_of(model, chat)
    (row,) = batch.add([5, 6], [Request(sampling=Sampling(max_new_tokens=6), seed=1)])
    batch.step()
    batch.step()
    for p in model.parameters():
        p.mul_(1.1)
    batch.update_weights(7)
    run(batch)
    assert row.weight_versions == [(0, 0), (2, 7)]


def test_a_prompt_that_was_read_ahead_is_read_again_by_new_weights(chat):
    model = load_model("tiny").requires_grad_(False)
    batch = batch_of(model, chat, rows=1)
    short, later = (Request(sampling=Sampling(max_new_tokens=n), seed=1) for n in (3, 9))
    batch.add([5, 6], [short])
    (row,) = batch.add([7, 8, 9], [later])
    batch.step()
    assert row.prompt.place is not None and row.slot is None
    for p in model.parameters():
        p.mul_(1.1)
    batch.update_weights(7)
    run(batch)
    fresh = batch_of(model, chat, rows=1)
    (wanted,) = fresh.add([7, 8, 9], [later])
    run(fresh)
    assert row.sampled == wanted.sampled and row.weight_versions == [(0, 7)] and all_free(batch)


def test_what_has_no_place_is_a_sentence(model, chat):
    batch = batch_of(model, chat)
    for prompt, new, words in (([1] * 201, 2, "has 201 tokens, and 1 to 200"), ([], 2, "has 0 tokens"),
                               ([1], 65, "65 tokens after a prompt of 1 .* 64 have room")):
        with pytest.raises(ValueError, match=words):
            batch.add(prompt, [Request(sampling=Sampling(max_new_tokens=new))])
    full = batch_of(model, chat, rows=1, max_prompt_tokens=512, max_new_tokens=512)  # of 512 positions
    with pytest.raises(ValueError, match="13 tokens after a prompt of 500 .* 12 have room"):
        full.add([1] * 500, [Request(sampling=Sampling(max_new_tokens=13))])
    (row,) = full.add([1] * 500, [Request(sampling=Sampling(max_new_tokens=12))])
    run(full)
    assert len(row.tokens) == 12


@pytest.mark.parametrize("stop", [(), ("=",), ("er", " 1")])
def test_pieces_join_to_the_text_before_a_stop(model, chat, stop):
    batch, cut = batch_of(model, chat), 0
    for temperature in (1.0, 3.0):
        for prompt in PROMPTS[:4]:
            settings = Sampling(max_new_tokens=24, temperature=temperature, stop=stop)
            (row,) = batch.add(chat.render(prompt.messages),
                               [Request(sampling=settings, seed=3, stop_token_ids=chat.stop, stream=True)])
            pieces: list[str] = []
            while batch.busy:
                pieces += [sampled[-1].text for _, sampled in batch.step()]
            text = chat.decode(row.tokens)
            ends = [text.index(s) for s in stop if s in text]
            assert "".join(pieces) == text[: min(ends, default=len(text))]
            assert not ends or row.finish_reason == "stop"
            cut += bool(ends)
    assert cut > 1 or not stop


def test_no_piece_shows_the_beginning_of_a_stop_text():
    text = IncrementalDetokenizer(lambda tokens: "".join(map(chr, tokens)), ["</s>"])
    pieces = [text.add(ord(c)) for c in "a</b></s>z"]
    assert "".join(pieces) + text.end() == "a</b>" and text.stopped
    assert pieces[:3] == ["", "", ""] and pieces[3] == "a"


@pytest.mark.parametrize("pace", [(4, 1), (4, 0), (3, 1)])
def test_bursts_give_the_tokens_of_single_steps(pace, model, chat, monkeypatch):
    """As on a GPU: several tokens to a look, the next ones under way; requests of other lengths, stops and
    texts come while others are decoded, one leaves."""
    def tokens():
        batch, asked, pieces = batch_of(model, chat, rows=3), [], {}
        lengths = [24, 5, 17, 1, 24, 9, 2, 13]
        for i, n in enumerate(lengths):
            stop = ("e",) if i == 4 else ()
            asked += batch.add(chat.render(PROMPTS[i % 4].messages), [Request(
                sampling=Sampling(max_new_tokens=n, temperature=1.0, stop=stop), seed=i, stream=i % 2 == 0,
                stop_token_ids=chat.stop if i % 3 else ())])
        gone = batch.add([5, 9], [Request(sampling=Sampling(max_new_tokens=24), seed=9)])[0]
        for turn in range(99):
            if turn == 4:
                batch.abort(gone)
            for sequence, sampled in batch.step() if batch.busy else ():
                assert sampled and sampled[-1] is sequence.sampled[-1]
                pieces.setdefault(sequence, []).extend(s.text for s in sampled)
        assert not batch.busy and sorted(batch.scheduler.free_slots) == [0, 1, 2]
        return [(s.tokens, [t.logp for t in s.sampled], s.finish_reason, "".join(pieces[s])) for s in asked]

    expected = tokens()
    monkeypatch.setattr(RequestBatch, "pace", property(lambda _: pace))
    assert tokens() == expected
