"""The sampler: what it says it sampled from is what it sampled from,
and a row is a function of its prompt and its seed."""

import gc
import pickle
import threading
import weakref
from dataclasses import FrozenInstanceError, replace
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaForCausalLM

from postgrad.data.tasks import load_task
from postgrad.models import Config, Decoder, find_model, load_model
from postgrad.models.chat import Chat
from postgrad.models.engine import Engine
from postgrad.recipes.plan import SLOTS
from postgrad.records import Prompt, Rollout, Verdict
from postgrad.rewards.base import VerifierReward
from postgrad.sampling import LocalSampler, Sampling, ScriptedSampler
from postgrad.sampling.request_batch import RequestBatch
from postgrad.training.batches.rollouts import Rollouts

SHORT = Prompt.ask("Hi", id="hi")
PROMPTS = [*load_task("words").prompts("test", 20, 0), *load_task("arithmetic").prompts("test", 12, 0), SHORT,
           Prompt.ask("Écris 数.", id="odd", system="Be brief."),
           Prompt.ask("Tom has 3 pears. " * 12, id="long"), Prompt.ask("", id="none")]


@pytest.fixture(scope="module")
def model():
    return load_model("tiny").requires_grad_(False)


@pytest.fixture(scope="module")
def chat():
    return Chat.load(find_model("tiny"))


@pytest.fixture(scope="module")
def sampler(model, chat):
    return LocalSampler(model, chat)


@pytest.fixture(scope="module")
def theirs():
    return LlamaForCausalLM.from_pretrained(find_model("tiny"), dtype=torch.float32).eval()


def rows_of(groups):
    return [(r.tokens, r.prompt.id) for group in groups for r in group]


def trainer_logp(model, rollout, temperature):
    tokens = torch.tensor([[*rollout.prompt_tokens, *rollout.tokens]])
    mask = torch.arange(tokens.shape[1])[None] >= len(rollout.prompt_tokens)
    return model.logp(tokens, mask, temperature)[0][mask]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.6])
def test_the_log_probs_are_the_trainers(model, sampler, temperature):
    groups = sampler.sample(PROMPTS[:12], 4, Sampling(max_new_tokens=24, temperature=temperature), seed=3)
    for rollout in (r for group in groups for r in group):
        assert len(rollout.logp) == len(rollout.tokens)
        torch.testing.assert_close(torch.tensor(rollout.logp), trainer_logp(model, rollout, temperature),
                                   rtol=0, atol=2e-5)


def test_the_same_seed_the_same_tokens(sampler):
    settings = Sampling(max_new_tokens=16)
    first, again, other = (sampler.sample(PROMPTS[:6], 3, settings, seed) for seed in (5, 5, 6))
    assert first == again and rows_of(first) != rows_of(other)
    assert len({r.seed for group in first for r in group}) == 18 and len({r.tokens for r in first[0]}) > 1
    assert [r.prompt.id for r in first[2]] == [PROMPTS[2].id] * 3


def test_a_row_does_not_depend_on_its_neighbours(model, chat, sampler):
    settings = Sampling(max_new_tokens=20)
    together = sampler.sample(PROMPTS, 3, settings, seed=1)
    wanted = {r.seed: (r.tokens, r.logp) for group in together for r in group}
    backwards = sampler.sample(PROMPTS[::-1], 3, settings, seed=1)
    blocks = LocalSampler(model, chat, max_concurrent=7).sample(PROMPTS, 3, settings, seed=1)
    larger = sampler.sample(PROMPTS[:5], 6, settings, seed=1)
    alone = [sampler.sample([p], 1, settings, seed=1)[0] for p in PROMPTS]
    assert rows_of(blocks) == rows_of(together) == rows_of(backwards[::-1])
    assert rows_of(group[:3] for group in larger) == rows_of(together[:5])
    bits = sampler._batch.engine.independent  # with the C kernels; else log-probs of few round otherwise
    assert all(wanted[g[0].seed][: 1 + bits] == (g[0].tokens, g[0].logp)[: 1 + bits] for g in alone)


def test_other_settings_of_the_same_length_keep_the_engine(model, chat):
    """So that what samples for training and for an evaluation in turn packs its weights, and no more."""
    sampler, warm = LocalSampler(model, chat), Sampling(max_new_tokens=20)
    first = sampler.sample(PROMPTS, 2, warm, seed=1)
    batch, cold = sampler._batch, Sampling(max_new_tokens=20, temperature=0.5, stop=("e",))
    few = sampler.sample(PROMPTS[:9], 2, cold, seed=1)
    assert few == LocalSampler(model, chat).sample(PROMPTS[:9], 2, cold, seed=1) and sampler._batch is batch
    assert sampler.sample(PROMPTS, 2, warm, seed=1) == first and sampler._batch is batch
    sampler.sample(PROMPTS[:9], 2, Sampling(max_new_tokens=10), seed=1)
    assert sampler._batch is not batch


@pytest.mark.parametrize("few", [1, 5, 24])
def test_what_c_chooses_in_one_call_is_what_is_chosen_step_by_step(model, chat, few):
    """Also where a row has no distribution: the same sentence, and nothing is noted."""
    sampler, settings = LocalSampler(model, chat), Sampling(max_new_tokens=20, temperature=0.7)
    at_once = sampler.sample(PROMPTS[:few], 2, settings, seed=1)
    decoder = sampler._batch
    if decoder.fused_samplers[settings] is None:
        pytest.skip("no C kernels here")
    for fused in (decoder.fused_samplers[settings], None):
        decoder.fused_samplers[settings] = fused
        assert sampler.sample(PROMPTS[:few], 2, settings, seed=1) == at_once
        decoder.compact([], decoder.size)
        with torch.no_grad(), pytest.raises(ValueError, match="row 1 of the logits has no distribution"):
            decoder.hidden[1] = torch.nan
            decoder.advance(2)
        assert not decoder.count.any()


def test_a_prompt_asked_twice_gets_further_samples(sampler):
    settings = Sampling(max_new_tokens=8)
    (a, other, b), (whole,) = (sampler.sample(prompts, n, settings, 1) for prompts, n in (
        ([PROMPTS[0], PROMPTS[1], PROMPTS[0]], 2), ([PROMPTS[0]], 4)))
    assert [r.tokens for r in (*a, *b)] == [r.tokens for r in whole]
    assert len({r.seed for r in whole}) == 4 and other[0].prompt is PROMPTS[1]


def test_greedy_is_transformers_token_for_token(sampler, chat, theirs):
    assert len(PROMPTS) >= 36
    lengths = set()
    for (rollout,) in sampler.sample(PROMPTS, 1, Sampling(max_new_tokens=24, temperature=0.0), seed=0):
        prompt = torch.tensor([rollout.prompt_tokens])
        out = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                              max_new_tokens=24, eos_token_id=chat.stop[0], pad_token_id=0)
        assert out[0, prompt.shape[1] :].tolist() == list(rollout.tokens), rollout.prompt.id
        assert set(rollout.logp) == {0.0}  # a choice without chance
        lengths.add(len(rollout.tokens))
    assert len(lengths) > 5


def test_the_stop_token_is_included_and_ends_the_row(sampler, chat):
    groups = sampler.sample(PROMPTS[:10], 6, Sampling(max_new_tokens=16), seed=4)
    rollouts = [r for group in groups for r in group]
    assert {r.finished for r in rollouts} == {True, False}
    for r in rollouts:
        assert not set(r.tokens[:-1]) & set(chat.stop)
        assert r.finished == (r.tokens[-1] in chat.stop) and (r.finished or len(r.tokens) == 16)
        assert r.text == chat.decode(r.tokens) and "<|end|>" not in r.text
        assert r.prompt_tokens == tuple(chat.render(r.prompt.messages))


def test_rows_leave_and_others_take_their_slots(model, chat, monkeypatch):
    """Few slots for many rows: no step is run with more rows than slots, and they are kept busy;
    the tokens are the same."""
    sizes, out, step = {}, {}, Engine.step
    for slots in (512, 11):
        seen = sizes.setdefault(slots, [])
        monkeypatch.setattr(Engine, "step", lambda e, token, at, slot, *a, seen=seen: (
            seen.append(int((slot < e.rows).sum())) or step(e, token, at, slot, *a)))
        out[slots] = LocalSampler(model, chat, max_concurrent=slots).sample(PROMPTS[:10], 4,
                                                                          Sampling(max_new_tokens=30), seed=9)
    # rows did leave
    assert sizes[512][0] == 40 and sizes[512] == sorted(sizes[512], reverse=True) and len(set(sizes[512])) > 5
    assert max(sizes[11]) == 11 and sizes[11].count(11) > 0.6 * len(sizes[11])
    assert sum(sizes[11]) == sum(sizes[512]) == sum(len(r.tokens) for g in out[11] for r in g)
    for a, b in zip((r for g in out[11] for r in g), (r for g in out[512] for r in g), strict=True):
        assert (a.tokens, a.logp, a.text, a.finished) == (b.tokens, b.logp, b.text, b.finished)


def test_a_step_becomes_a_graph(model, chat, monkeypatch):
    """On a GPU, by sizes: the first one as it is, then all others by its graph."""
    rows = LocalSampler(model, chat)._batch_for([[1] * 16], 16, Sampling(max_new_tokens=8))
    rows.settings, seen = Sampling(max_new_tokens=8), []
    monkeypatch.setattr(rows, "advance", seen.append)

    def capture(key, part):
        rows.graphs[key] = SimpleNamespace(replay=lambda: seen.append(f"{key[-1]} by a graph"))

    monkeypatch.setattr(rows, "capture", capture)
    rows.device = SimpleNamespace(type="cuda")
    for n, times in ((13, 1), (16, 4), (5, 2), (12, 3), (8, 0)):
        rows.advance_collection(n, times)
    assert seen == [16, *["16 by a graph"] * 4, 8, "8 by a graph", *["16 by a graph"] * 3]


def test_rows_that_end_together_are_spelled_before(model, chat, monkeypatch):
    """As on a GPU, whose last steps are under way meanwhile; the rollouts are the same."""
    settings = Sampling(max_new_tokens=27, temperature=30.0)  # no row ends by itself
    wanted = LocalSampler(model, chat).sample(PROMPTS[:6], 4, settings, seed=1)
    begun, spell = [], Chat.spell
    monkeypatch.setattr(RequestBatch, "pace", (4, 1))
    monkeypatch.setattr(Chat, "spell", lambda mine, rows: begun.extend(map(len, rows)) or spell(mine, rows))
    found = LocalSampler(model, chat).sample(PROMPTS[:6], 4, settings, seed=1)
    assert begun == [12] * 24 and found == wanted
    assert all(r.tokens.begun[0] == 12 and r.text == chat.decode(r.tokens) for g in found for r in g)


def test_of_rows_that_end_late_only_their_own_is_brought_along(model, chat, monkeypatch):
    """Others have ended before them, so they stand in other columns than slots."""
    settings, brought = Sampling(max_new_tokens=48, temperature=3.0), []
    wanted = LocalSampler(model, chat).sample(PROMPTS[:8], 4, settings, seed=2)
    monkeypatch.setattr(RequestBatch, "pace", (4, 1))
    fetch = RequestBatch.fetch
    monkeypatch.setattr(RequestBatch, "fetch", lambda mine, look, which, wide: (
        brought.extend((len(x), [look.sequences[i].slot for i in which] == which) for x in look.written[:1])
        or fetch(mine, look, which, wide)))
    assert LocalSampler(model, chat).sample(PROMPTS[:8], 4, settings, seed=2) == wanted
    assert brought and all(rows < 32 and not same for rows, same in brought)


def test_a_rollout_made_at_once_is_one_like_others():
    said = dict(prompt=PROMPTS[0], prompt_tokens=(1, 2), tokens=(3,), logp=(-0.5,), text="x", finished=True,
                seed=4)
    made, usual = Rollout.made(**said), Rollout(**said)
    assert made == usual and repr(made) == repr(usual) and pickle.loads(pickle.dumps(made)) == usual
    assert replace(made, text="y") == replace(usual, text="y") and (made.mask, made.rows) == (None, (usual,))
    with pytest.raises(FrozenInstanceError):
        made.text = "y"


def test_as_many_slots_are_the_default_everywhere(model, chat):
    assert LocalSampler(model, chat).max_concurrent == Rollouts().max_concurrent == SLOTS


def test_what_is_given_back_is_free_at_once(model, chat):
    """Nothing of it waits for the garbage collector: a GPU's memory is needed for what comes next."""
    sampler = LocalSampler(model, chat)
    gc.disable()
    try:
        sampler.sample(PROMPTS[:4], 4, Sampling(max_new_tokens=8), seed=0)
        held = [weakref.ref(x) for x in (sampler._batch, sampler._batch.engine)]
        sampler.release()
        assert [x() for x in held] == [None, None]
    finally:
        gc.enable()


def test_a_stop_string_ends_a_row_where_it_is_complete(sampler, chat):
    free = [r for g in sampler.sample(PROMPTS[:10], 4, Sampling(max_new_tokens=30), seed=9) for r in g]
    held = [r for g in sampler.sample(PROMPTS[:10], 4, Sampling(max_new_tokens=30, stop=("=", "er")), seed=9)
            for r in g]
    cut = 0
    for a, b in zip(free, held, strict=True):
        assert b.tokens == a.tokens[: len(b.tokens)]
        assert not any(stop in chat.decode(b.tokens[:-1]) for stop in ("=", "er"))
        if "=" in a.text or "er" in a.text:
            assert b.finished and ("=" in b.text or "er" in b.text)
            cut += len(b.tokens) < len(a.tokens)
        else:
            assert (b.tokens, b.finished) == (a.tokens, a.finished)
    assert cut > 3
    pieces = "".join(sampler.stream(PROMPTS[0], Sampling(max_new_tokens=30, stop=("e",)), seed=9))
    assert pieces.count("e") <= 1 or pieces.index("e") >= len(pieces) - 8
    with pytest.raises(ValueError, match="as a tuple"):
        Sampling(stop="</answer>")


def test_a_slow_verifier_works_beside_the_sampling(model, chat):
    """The third row ends only when the first one's verdict is there,
    and that one needs the second's to have begun."""
    together, judged = threading.Barrier(2, timeout=30), threading.Event()

    def verify(prompt, text):
        if prompt.id in (PROMPTS[0].id, PROMPTS[1].id):
            together.wait()
            judged.set()
        return Verdict(score=float(len(text)))

    def ended(rollout):
        reward.prefetch(rollout)
        assert rollout.prompt is not PROMPTS[2] or judged.wait(30)

    reward, sampler = VerifierReward(verify, waits=True), LocalSampler(model, chat, max_concurrent=1)
    sampler.ended = ended
    rollouts = [g[0] for g in sampler.sample(PROMPTS[:6], 1, Sampling(max_new_tokens=6), seed=2)]
    assert (judged.is_set() and [v.score for v in reward.score(rollouts)] == [len(r.text) for r in rollouts]
            and not reward.started)
    alone = VerifierReward(lambda prompt, text: Verdict(score=float(len(text))))
    assert [v.score for v in alone.score(rollouts)] == [len(r.text) for r in rollouts]


def test_a_call_that_was_broken_off_leaves_no_row_behind(model, chat):
    """On a GPU the columns behind the rows run along: what they hold must belong to no one."""
    sampler = LocalSampler(model, chat)
    settings = Sampling(max_new_tokens=12)
    fresh = LocalSampler(model, chat)

    def fails(rollout):
        raise RuntimeError("no verdict")

    sampler.ended = fails
    with pytest.raises(RuntimeError, match="no verdict"):
        sampler.sample(PROMPTS[:8], 4, settings, 0)
    decoder = sampler._batch
    assert (decoder.slot < decoder.rows).any()  # rows that were being written
    rest = slice(2, None)
    sampler.ended = lambda r: seen.append(bool((decoder.slot[rest] == decoder.rows).all()
                                               and decoder.done[rest].all()))
    seen: list[bool] = []
    after = sampler.sample(PROMPTS[:1], 2, settings, 0)
    assert sampler._batch is decoder and all(seen) and len(seen) == 2
    assert rows_of(after) == rows_of(fresh.sample(PROMPTS[:1], 2, settings, 0))


def test_the_slots_are_kept_and_see_new_weights(chat):
    model = load_model("tiny").requires_grad_(False)
    sampler, settings = LocalSampler(model, chat), Sampling(max_new_tokens=8)
    before = rows_of(sampler.sample(PROMPTS[:4], 2, settings, 0))
    decoder = sampler._batch
    for p in model.parameters():
        p.mul_(1.5)
    after = rows_of(sampler.sample(PROMPTS[:4], 2, settings, 0))
    assert sampler._batch is decoder and after != before
    assert after == rows_of(LocalSampler(model, chat).sample(PROMPTS[:4], 2, settings, 0))


def test_too_long_a_prompt_is_a_sentence(sampler):
    long = Prompt.ask("word " * 600, id="long/1")
    words = (r"prompt long/1 has \d+ tokens; with max_new_tokens 8 that is over the model's 512 "
             r"positions: shorten")
    with pytest.raises(ValueError, match=words):
        sampler.sample([PROMPTS[0], long], 2, Sampling(max_new_tokens=8), seed=0)
    with pytest.raises(ValueError, match=words):
        next(sampler.stream(long, Sampling(max_new_tokens=8), seed=0))


def test_the_last_position_may_be_used(sampler):
    small = Config(**{**vars(sampler.model.config), "max_position_embeddings": 24})
    model = Decoder(small).start(torch.Generator().manual_seed(0)).requires_grad_(False)
    room = 24 - len(sampler.chat.render(SHORT.messages))
    ((full,),) = LocalSampler(model, sampler.chat).sample([SHORT], 1, Sampling(max_new_tokens=room), seed=0)
    assert len(full.tokens) == room
    with pytest.raises(ValueError, match="over the model's 24 positions"):
        LocalSampler(model, sampler.chat).sample([SHORT], 1, Sampling(max_new_tokens=room + 1), seed=0)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 3.0])
def test_the_pieces_of_a_stream_join_to_the_text(sampler, temperature):
    """At temperature 3 the tokens are often half a character, also the last one."""
    settings, cut = Sampling(max_new_tokens=24, temperature=temperature), 0
    for seed in range(12):
        pieces = list(sampler.stream(PROMPTS[seed], settings, seed))
        ((rollout,),) = sampler.sample([PROMPTS[seed]], 1, settings, seed)
        assert "".join(pieces) == rollout.text
        cut += rollout.text.endswith("\ufffd")
    assert cut if temperature == 3.0 else len(pieces) > 3


def test_the_policy_step_is_noted(model, chat):
    sampler = LocalSampler(model, chat)
    sampler.policy_step = 7
    assert sampler.sample(PROMPTS[:1], 1, Sampling(max_new_tokens=2), 0)[0][0].policy_step == 7
    assert sampler.sample([], 4, Sampling(), 0) == []


def test_the_scripted_sampler(chat):
    ask, other = Prompt.ask("What is 2+3?"), Prompt.ask("And?")
    scripted = ScriptedSampler(chat, {"What is 2+3?": ["5", "I say 6"], "And?": [""]})
    groups = scripted.sample([ask, other], 3, Sampling(max_new_tokens=3), seed=8)
    assert [[r.text for r in group] for group in groups] == [["5", "I say ", "5"], ["", "", ""]]
    assert [r.finished for r in groups[0]] == [True, False, True] and groups[1][0].tokens == chat.stop
    assert groups[0][0].tokens == (*chat.encode("5"), *chat.stop) and groups[0][0].prompt is ask
    assert all(len(r.logp) == len(r.tokens) and r.prompt_tokens == tuple(chat.render(r.prompt.messages))
               for r in groups[0])
    many = Chat(chat.tokenizer, chat.template, bos=chat.bos, eos=chat.eos, pad=chat.pad,
                ends=[chat.id(chat.bos)])
    assert (ScriptedSampler(many, {"And?": ["5"]}).sample([other], 1, Sampling(), 0)[0][0].tokens
            == groups[0][0].tokens)


def test_an_engine_keeps_its_own_table_of_angles():
    """A captured graph reads it by its address; the model's is made anew, and the old one freed,
    for a longer row."""
    sizes = {"vocab_size": 1024, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
             "head_dim": 8}
    model = Decoder(Config(num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=4096,
                           **sizes))
    engine = model.engine(rows=2, prompts=2, read=8, new=8)
    places = [x.data_ptr() for x in (engine.cos, engine.sin)]
    kept = engine.cos.clone()
    first = model.angles(16)
    assert not {x.data_ptr() for x in first} & set(places)
    assert model.angles(2000)[0].shape[1] > first[0].shape[1]
    first[0].fill_(7.0)  # as whoever gets the freed memory next would
    engine.refresh()
    assert [x.data_ptr() for x in (engine.cos, engine.sin)] == places and torch.equal(engine.cos, kept)
