"""Prefixes that stand in the prompt cache: which are found, what is computed after them, what it gives."""

import pytest
import torch
from serve_small import client, idle, post, served

from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.sampling import Request, RequestBatch, Sampling, prefixes
from postgrad.sampling.prefixes import BLOCK, Prefixes, block_hashes, common_length

GREEDY = Sampling(max_new_tokens=6, temperature=0)
DRAW = torch.Generator().manual_seed(0)


def tokens_of(count):
    return torch.randint(3, 1000, (count,), generator=DRAW).tolist()


SYSTEM = tokens_of(3 * BLOCK)


@pytest.fixture(scope="module")
def model():
    return load_model("tiny").requires_grad_(False)


def batch_of(model, **sizes):
    return RequestBatch(model, Chat.load(find_model("tiny")), **{
        "rows": 4, "max_prompt_tokens": 256, "max_new_tokens": 256, "positions": 256} | sizes)


def add(batch, prompt, caching="turns", sampling=GREEDY, count=1):
    """Sequences of a request, to their end, and how many tokens were computed for them."""
    before, how = batch.computed_tokens, {"sampling": sampling, "caching": caching, "raw_logprobs": True}
    rows = batch.add(prompt, [Request(seed=i, **how) for i in range(count)])
    while batch.busy:
        batch.step()
    return rows, batch.computed_tokens - before


def sampled_tokens(rows):
    return [[(s.token, s.logp) for s in row.sampled] for row in rows]


def test_the_longest_prefix_is_found_by_its_blocks():
    known, tokens = Prefixes(), tokens_of(4 * BLOCK)
    known.put(1, tokens[: 2 * BLOCK], 2 * BLOCK)
    known.put(2, [*tokens[: 3 * BLOCK + 5], 0], BLOCK + 3)
    find = lambda rest, exact: known.find(rest, block_hashes(rest), exact)  # noqa: E731
    assert find(tokens, False) == (2, 3 * BLOCK + 5) and find(tokens, True) == (1, 2 * BLOCK)
    assert find(tokens[: BLOCK + 1], True) == (2, BLOCK + 1)  # the newest of two
    assert find([1, *tokens], False) is None and find(tokens[: BLOCK - 1], False) is None
    known.drop(2)
    assert find(tokens, False) == (1, 2 * BLOCK)
    known.clear()
    assert find(tokens, False) is None and not known.places


def test_a_hash_is_only_a_hint(monkeypatch, model):
    """Where all blocks have one hash, tokens decide: another prompt finds what it shares, and no more."""
    monkeypatch.setattr(prefixes, "block_hash", lambda before, block: 7)
    a, b = [*SYSTEM, *tokens_of(40)], tokens_of(3 * BLOCK)
    known = Prefixes()
    known.put(0, b, len(b))
    assert known.find(a, block_hashes(a), False) is None
    batch = batch_of(model)
    add(batch, b)
    rows, computed = add(batch, a)
    assert rows[0].prompt.begun == 0 and computed == len(a) + 5
    assert sampled_tokens(rows) == sampled_tokens(add(batch_of(model), a)[0])


@pytest.mark.parametrize("rest", [1, 7, BLOCK, 45])
def test_a_shared_system_prompt_is_computed_once_and_changes_no_bit(model, rest):
    batch, warm = batch_of(model), Sampling(max_new_tokens=6)
    first, second = [*SYSTEM, *tokens_of(30)], [*SYSTEM, *tokens_of(rest)]
    add(batch, first, "prompts")
    rows, computed = add(batch, second, "prompts", warm, count=3)
    shared = common_length(first, second)
    assert {row.prompt.begun for row in rows} == {shared} and computed == len(second) - shared + 3 * 5
    assert sampled_tokens(rows) == sampled_tokens(add(batch_of(model), second, "none", warm, count=3)[0])


def test_prompts_that_come_together_share_what_they_begin_with(model):
    batch = batch_of(model)
    prompts = [[*SYSTEM, *tokens_of(9)] for _ in range(4)]
    rows = [batch.add(p, [Request(sampling=GREEDY, raw_logprobs=True)])[0] for p in prompts]
    while batch.busy:
        batch.step()
    assert [row.prompt.begun for row in rows] == [0, *[len(SYSTEM)] * 3]
    for row, prompt in zip(rows, prompts, strict=True):
        assert sampled_tokens([row]) == sampled_tokens(add(batch_of(model), prompt, "none")[0])


def test_a_turn_goes_on_after_the_reply(model):
    """Eight turns compute what is in the last one; their log-probs are those of a pass over all."""
    batch, context, computed = batch_of(model), tokens_of(20), 0
    for turn in range(8):
        (row,), more = add(batch, context)
        computed += more
        assert row.prompt.begun == (0 if turn == 0 else len(context) - 6)
        own = [s.logp for s in batch.score([*context, *row.tokens])][-6:]
        batch.decoded_tokens -= len(context) + 6  # the score's
        assert [s.logp for s in row.sampled] == pytest.approx(own, abs=2e-5)
        context = [*context, *row.tokens, *tokens_of(5)]
    assert computed == len(context) - 5 - 1  # the last token goes through no layer


def test_generate_goes_on_after_prefills_alone(model):
    batch, prompt = batch_of(model), tokens_of(2 * BLOCK)
    (row,), _ = add(batch, prompt)
    later = [*prompt, *row.tokens, *tokens_of(5)]
    rows, _ = add(batch, later, "prompts")
    assert rows[0].prompt.begun == len(prompt)
    assert sampled_tokens(rows) == sampled_tokens(add(batch_of(model), later, "none")[0])
    rows, _ = add(batch, later, "turns")  # what the last one left is a prefill's, of more tokens
    assert rows[0].prompt.begun == len(later) - 1
    assert add(batch, later, "none")[0][0].prompt.begun == 0


def test_new_weights_forget_every_prefix(model):
    net = load_model("tiny").requires_grad_(False)
    batch, prompt = batch_of(net), [*SYSTEM, *tokens_of(10)]
    add(batch, prompt)
    (under_way,) = batch.add([*SYSTEM, 5, 6], [Request(sampling=GREEDY, caching="turns")])
    batch.step()
    for p in net.parameters():
        p.mul_(1.05)
    batch.update_weights(1)
    while batch.busy:
        batch.step()
    assert len(under_way.weight_versions) == 2 and not batch.scheduler.prefixes.stored  # it leaves nothing
    rows, computed = add(batch, prompt)
    assert rows[0].prompt.begun == 0 and computed == len(prompt) + 5
    assert sampled_tokens(rows) == sampled_tokens(add(batch_of(net), prompt)[0])


def test_the_prefix_that_was_used_longest_ago_makes_way(model):
    batch = batch_of(model, rows=1)  # two places
    assert batch.engine.prompts == 2
    a, b, c = (tokens_of(2 * BLOCK) for _ in range(3))
    begun = lambda prompt: add(batch, [*prompt, 5])[0][0].prompt.begun  # noqa: E731
    assert [begun(x) for x in (a, b)] == [0, 0]
    assert begun(a) == len(a) and begun(c) == 0  # in the place of b
    assert begun(a) == len(a) + 1 - 1 and begun(b) == 0 and begun(c) == 0


def test_who_is_dropped_leaves_its_prompt_alone(model):
    batch, prompt = batch_of(model), tokens_of(2 * BLOCK)
    (row,) = batch.add(prompt, [Request(sampling=GREEDY, caching="turns")])
    batch.step()
    batch.step()
    batch.abort(row)
    (again,), _ = add(batch, [*prompt, *row.tokens, 5])
    assert again.prompt.begun == len(prompt)
    scheduler = batch.scheduler
    assert sorted(scheduler.free_places) == list(range(batch.engine.prompts)) and not batch.busy


def test_the_endpoint_computes_a_conversation_once_and_says_so():
    what = served(rows=4, context=512)
    with client(what) as web:
        said, usage = [{"role": "user", "content": "Tom has 3 pears and buys 4 more. How many now?"}], {}
        for turn in range(8):
            reply = post(web, "/v1/chat/completions", messages=said, max_tokens=24, seed=turn)
            before, usage = usage, reply["usage"]
            details = usage["prompt_tokens_details"]
            assert details["cached_tokens"] == (before["total_tokens"] - 1 if before else 0)
            said += [{"role": "assistant", "content": reply["choices"][0]["message"]["content"]},
                     {"role": "user", "content": "Are you sure?"}]
        assert what.worker.batch.computed_tokens == usage["total_tokens"] - 1
        salted = {"token_ids": tokens_of(40), "cache_salt": "mine", "sampling_params": {"max_tokens": 2}}
        replies = [post(web, "/inference/v1/generate", **salted) for _ in range(2)]
        assert [r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in replies] == [0, 0]
    assert idle(what)
