"""Remote samplers: the same bits as in one process, and no word of a sampler that is wrong is used."""

import json
import re
import shutil
import threading
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from doors import facts, fit
from remote_small import begin, sampler_of, saying
from settings_text import override
from small import CHAT, PROMPTS
from wire_fuzz import spoilt

import postgrad as pg
from postgrad.recipes.rollouts import rollouts_on_words as config
from postgrad.recipes.samplers import open_sampler
from postgrad.resolve.handles import start_folder
from postgrad.resolve.models import open_writer
from postgrad.resolve.weights import WeightsFolder, current_weights, name_weights
from postgrad.sampling import LocalSampler, RemoteSampler, SamplerFault, Sampling, WeightVersion, remote
from postgrad.sampling.remote import RemoteRow, SpotCheck, check_logprobs, choose_spot_checks
from postgrad.sampling.scheduler import MIN_ROWS
from postgrad.sampling.sequences import FinishedSequence

HOW = Sampling(max_new_tokens=12)
# MIN_ROWS rows a draw: without the C kernels the run in process computes fewer in another size
SMALL = {"task": "words", "prompts_per_step": 4, "group_size": MIN_ROWS // 4,
         "rollouts": {"max_new_tokens": 12}, "steps": 2, "save_every": 2}


def equal(a, b):
    """Two runs have the same metrics, samples and weights."""
    first, second = (open_writer(run.folder)[0].state_dict() for run in (a, b))
    return (facts(a) == facts(b) and a.rows("samples")[0] == b.rows("samples")[0]
            and all(torch.equal(first[k], second[k]) for k in first))


def remote_settings(folder, *addresses, **more):
    return {"remote": {"sampler": ",".join(addresses), "weights": str(folder), **more}}


def test_rows_of_the_endpoint_have_the_bits_of_the_sampler_in_process(tmp_path):
    """However few stand beside one another, with the C kernels; without, where 16 or more are asked for."""
    net, chat = open_writer("tiny-chat")
    local = LocalSampler(net, chat)
    with sampler_of(begin(tmp_path / "w"), rows=3) as one, sampler_of(tmp_path / "w") as other:
        for prompts, group, addresses in ((1, 1, [one]), (2, 8, [one, other])):
            there = RemoteSampler(addresses, chat, positions=256, vocabulary=net.config.vocab_size)
            there.await_weights(current_weights(tmp_path / "w")[1])
            there.policy_step = local.policy_step = 7
            first, second = (s.sample(PROMPTS[:prompts], group, HOW, 5) for s in (there, local))
            if prompts * group >= MIN_ROWS or local._batch.engine.independent:
                assert first == second
            assert [r.tokens for g in first for r in g] == [r.tokens for g in second for r in g]


def test_a_run_over_the_endpoint_equals_one_in_process(tmp_path):
    here = fit(tmp_path, name="here", **SMALL)
    with sampler_of(begin(tmp_path / "w")) as one, sampler_of(tmp_path / "w") as other:
        there = fit(tmp_path, name="there", **SMALL, **remote_settings(tmp_path / "w", one, other))
    assert equal(here, there)
    assert not [path for path in (tmp_path / "w").iterdir() if path.name.startswith(".")]


WANTED = WeightVersion(4, "4-0123456789ab")


def reply(tokens=(7, 8, CHAT.stop[0]), end="stop", logp=-0.5, step=4, name=WANTED.name, **more):
    """A whole answer, with what is wrong in it."""
    content = [{"token": f"token_id:{t}", "logprob": logp} for t in tokens]
    return {"choices": [{"token_ids": list(tokens), "finish_reason": end, "logprobs": {"content": content},
                         "weight_versions": [[0, step]], **more}], "policy_step": step, "weights": name}


def listed(*logp):
    """The same as our sampler answers a training."""
    said = reply()
    del said["choices"][0]["logprobs"]
    return said | {"choices": [said["choices"][0] | {"logp": list(logp)}]}


def asked(answer, names=True):
    """What a row becomes whose sampler answers so."""
    def said(path, body):
        return {"policy_step": 4, "weights": WANTED.name} if path == "/health" else answer
    with saying(said) as address:
        sampler = RemoteSampler([address], CHAT, positions=256, vocabulary=512, names=names)
        sampler.weights = WANTED
        try:
            return sampler.sample(PROMPTS[:1], 1, HOW, 0)[0][0]
        except SamplerFault as fault:
            assert address in str(fault) and ("asked at " in str(fault) or "no JSON" in str(fault))
            return str(fault)


def test_a_whole_answer_of_the_right_weights_is_a_rollout():
    made = asked(reply())
    assert made.tokens == (7, 8, CHAT.stop[0]) and made.finished and made.logp == (-0.5,) * 3
    assert asked(listed(-0.5, -0.25, 0.0)).logp == (-0.5, -0.25, 0.0)
    assert not asked(reply([7] * 12, "length")).finished
    assert asked(reply(step=0, name=""), names=False).tokens  # vLLM does not name its weights


# what vLLM 0.32.0 said of three tokens of SmolLM2, but for the fields that are null
VLLM = {
    "request_id": "generate-tokens-9e06b8f45eee952e", "model": "/models/smollm2", "created": 1794868295,
    "usage": {"prompt_tokens": 3, "total_tokens": 6, "completion_tokens": 3}, "output_mode": "tokens",
    "choices": [{
        "index": 0, "finish_reason": "length", "stop_reason": None, "token_ids": [442, 520, 306],
        "weight_versions": [{"version": "default", "start": 0, "end": 3}],
        "logprobs": {"content": [
            {"token_id": 442, "logprob": -5.3397952052612305, "rank": 13,
             "top_logprobs": [{"token_id": 442, "logprob": -5.3397952052612305, "rank": 13}]},
            {"token_id": 520, "logprob": -2.1953210830688477, "rank": 2,
             "top_logprobs": [{"token_id": 520, "logprob": -2.1953210830688477, "rank": 2}]},
            {"token_id": 306, "logprob": -2.881721019744873, "rank": 1,
             "top_logprobs": [{"token_id": 306, "logprob": -2.881721019744873, "rank": 1}]}]}}]}


def test_what_vllm_answers_is_a_rollout():
    sampler = RemoteSampler(["http://127.0.0.1:1"], CHAT, positions=256, vocabulary=49152, names=False)
    (choice,) = VLLM["choices"]
    written = sampler.check_row(VLLM, choice, RemoteRow(0, [1, 2, 3], 1), replace(HOW, max_new_tokens=3))
    assert written.tokens == [442, 520, 306] and not written.finished
    assert written.logp == [-5.3397952052612305, -2.1953210830688477, -2.881721019744873]
    with pytest.raises(ValueError, match="3 other tokens"):
        sampler.check_row(VLLM, choice | {"token_ids": [442, 520, 307]}, RemoteRow(0, [1, 2, 3], 1),
                        replace(HOW, max_new_tokens=3))


@pytest.mark.parametrize("answer, words", [
    (reply(step=3), "of steps \\[3\\], and '4-0123456789ab' of step 4"),
    (reply(name="4-ffffffffffff"), "weights '4-ffffffffffff' of steps"),
    (reply(weight_versions=[[0, 4], [2, 5]]), "of steps \\[4, 5\\]"),
    (reply(logp=float("nan")), "NaN is no JSON number"),
    (reply(logp=0.5), "log-probs hold what is none"),
    (reply(logp=None), "log-probs hold what is none"),
    (reply([7, 8], "length"), "2 tokens ends by 'length'"),
    (reply([7, 8], "stop"), "no whole reply"),
    (reply([7, 8], "abort"), "no whole reply"),
    (reply([CHAT.stop[0], 8], "stop"), "no whole reply"),
    (reply([]), "no list of tokens"),
    (reply([7, 512], "length"), "no list of tokens"),
    (reply(logprobs={"content": []}), "0 other tokens"),
    (listed(-0.5), "1 other tokens"),
    (listed(-0.5, None, -0.5), "log-probs hold what is none"),
    ({"choices": []}, "has 0 rows, and 1 were asked for"),
    ([1], "lacks"),
    (b"[" * 100_000, "nested over"), (b'{"choices": 1, "choices": 2}', "stands twice"),
    (reply(logp=10**400), "log-probs hold|out of form"), (reply([10**400]), "no list of tokens"),
    (reply(logp="0.5"), "log-probs hold"), (reply(logp=True), "log-probs hold|ends by"),
    (reply(weight_versions=[[0, 10**400]]), "were asked for|out of form"),
    (reply(weight_versions=7), "lacks|out of form"), (reply(logprobs=[1]), "lacks"),
    (reply(logprobs={"content": [{"token": 5, "logprob": -1}] * 3}), "out of form"),
    ({"choices": {"0": 1}}, "lacks"), ({"choices": [None]}, "lacks"), (b"9" * 5000, "no JSON"),
])
def test_a_sampler_that_says_something_wrong_is_named(answer, words):
    said = asked(answer)
    assert isinstance(said, str) and re.search(words, said), said


def test_whatever_a_sampler_answers_is_a_sound_row_or_a_sentence():
    answers = iter([spoilt(answer, seed) for seed in range(200)
                    for answer in (reply(), listed(-1.0, -2.0, 0.0))])
    kinds = Counter()
    with saying(lambda path, body: next(answers)) as address:
        for _ in range(400):
            sampler = RemoteSampler([address], CHAT, positions=256, vocabulary=512, timeout=5.0)
            sampler.weights = WANTED
            try:
                made = sampler.sample(PROMPTS[:1], 1, HOW, 0)[0][0]
            except SamplerFault as fault:
                kinds[address in str(fault)] += 1
                continue
            kinds["row"] += 1
            assert 0 < len(made.tokens) == len(made.logp) <= HOW.max_new_tokens
            assert all(type(token) is int and 0 <= token < 512 for token in made.tokens)
            assert all(type(x) is float and -1e30 < x <= 0 for x in made.logp)
    assert kinds[True] > 200 and kinds[False] == 0


def test_whatever_the_file_of_newest_weights_says_is_a_folder_in_it_or_a_sentence(tmp_path):
    (tmp_path / "4-0123456789ab").mkdir()
    for seed in range(300):
        (tmp_path / "newest.json").write_bytes(spoilt({"step": 4, "name": "4-0123456789ab"}, seed))
        try:
            assert current_weights(tmp_path)[0] == tmp_path / "4-0123456789ab"
        except ValueError as refusal:
            assert str(refusal)


def test_a_sampler_that_hangs_or_breaks_off_is_named_when_the_limit_is_over():
    release = threading.Event()
    for answer, words in ((lambda *_: release.wait(5), "did not answer"), (lambda *_: None, "closed"),
                          (lambda *_: b'{"choices": [{"tok', "no JSON")):
        with saying(answer) as address:
            sampler = RemoteSampler([address], CHAT, positions=256, vocabulary=512, timeout=0.2)
            with pytest.raises(SamplerFault, match=f"(?s){address}.*{words}"):
                sampler.sample(PROMPTS[:1], 2, HOW, 0)
            release.set()
    with saying(lambda *_: {"policy_step": 3, "weights": "3-0123456789ab"}) as address:
        sampler = RemoteSampler([address], CHAT, positions=256, vocabulary=512, timeout=0.2)
        with pytest.raises(SamplerFault, match=f"{address} did not give weights 4-0123.* within 0.2 s"):
            sampler.await_weights(WANTED)
    with pytest.raises(SamplerFault, match="refused"):
        sampler = RemoteSampler(["http://127.0.0.1:9"], CHAT, positions=256, vocabulary=512, timeout=0.2)
        sampler.await_weights(WANTED)


def test_headers_that_never_end_are_left_at_the_limit():
    """A byte a second, each within the time that one read may take."""
    clock = SimpleNamespace(now=0.0)

    class Dribbling:
        def settimeout(self, seconds):
            assert 0 < seconds == 10 - clock.now
            clock.now += 1

        def makefile(self, mode, buffering=-1):
            return SimpleNamespace(readinto=self.one, close=lambda: None)

        def one(self, buffer):
            buffer[:1] = b"H"
            return 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote.time, "monotonic", lambda: clock.now)
        answer = remote.TimedResponse(Dribbling(), until=10.0)
        with pytest.raises(TimeoutError):
            answer.begin()
    assert clock.now == 10


def test_which_rows_are_compared_is_not_known_before_they_are_given():
    """By the run's seed and the replies: the same again, others of other seeds and replies, each as often."""
    rows = [FinishedSequence(i, [i, 5], [-0.5, -0.25], True) for i in range(16)]
    first = [row.number for row in choose_spot_checks(rows, "7 3")]
    assert first == [row.number for row in choose_spot_checks(rows, "7 3")] and len(set(first)) == 2
    drawn = Counter(row.number for seed in range(400) for row in choose_spot_checks(rows, f"{seed} 3"))
    assert len(drawn) == 16 and max(drawn.values()) < 3 * min(drawn.values())
    assert any(first != [row.number for row in choose_spot_checks(
        [*rows[:15], FinishedSequence(15, [k], [-1.0], True)], "7 3")] for k in range(5))
    assert len(choose_spot_checks(rows[:1], "7 3")) == 1


def test_links_out_of_a_folder_of_weights_are_not_followed(tmp_path):
    chat, net = CHAT, open_writer("tiny-chat")[0]
    place = WeightsFolder(tmp_path / "w", chat)
    weights = place.write(net, 1)
    outside = tmp_path / "outside"
    shutil.move(tmp_path / "w" / weights.name, outside)
    (tmp_path / "w" / weights.name).symlink_to(outside)
    (tmp_path / "w" / "newest.json").write_text(json.dumps(weights.__dict__))
    with pytest.raises(ValueError, match="names '1-.*no folder of weights in it"):
        current_weights(tmp_path / "w")
    (tmp_path / "w" / "0-0123456789ab").symlink_to(outside)
    place.show(weights)  # what is a link is not removed, nor what it leads to
    assert (outside / "model.safetensors").exists() and (tmp_path / "w" / "0-0123456789ab").is_symlink()
    (tmp_path / "w" / weights.name).unlink()
    shutil.move(outside, tmp_path / "w" / weights.name)
    assert current_weights(tmp_path / "w")[1] == weights
    (tmp_path / "w" / weights.name / "extra").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="extra is a link"):
        current_weights(tmp_path / "w")


@pytest.mark.parametrize("name", ["..", "../w", "", "/etc", "0-0123456789ab/..", "1", 5, None,
                                  "0-0123456789aZ", "0-0123456789ab\n"])
def test_weights_begin_nowhere_else(tmp_path, name):
    (tmp_path / "0-0123456789ab").mkdir()
    (tmp_path / "2-0123456789ab.json").write_text(json.dumps({"begins": name}))
    with pytest.raises(ValueError):
        start_folder(tmp_path / "2-0123456789ab.json")


def test_a_sampler_that_comes_back_is_asked_again():
    """A row that was lost with a sampler is written again by its seed."""
    seeds = []

    def answer(path, body):
        seeds.extend(body["sampling_params"]["seeds"])
        return reply() if len(seeds) > 2 else None
    with saying(answer) as address:
        sampler = RemoteSampler([address], CHAT, positions=256, vocabulary=512)
        sampler.weights = WANTED
        assert sampler.sample(PROMPTS[:1], 1, HOW, 0)[0][0].finished and len(set(seeds)) == 1


def test_other_weights_under_the_right_name_are_noticed_and_nothing_is_trained_on(tmp_path):
    """As far off as a step of training is."""
    def spoil(net):
        with torch.no_grad():
            for p in net.parameters():
                p += 3e-4 * torch.sign(p)
    begin(tmp_path / "w")
    with sampler_of(tmp_path / "w", spoil=spoil) as address, \
            pytest.raises(SamplerFault, match=f"sampler {address} has other weights than those of step 0"):
        fit(tmp_path, **SMALL, **remote_settings(tmp_path / "w", address))
    run = pg.Run.open(tmp_path / "run")
    assert run.metrics() == [] and address in run.state()["error"]


def test_the_kept_rows_are_held_against_the_limit():
    rows = [SpotCheck("http://a:1", "", [1], [5, 6], [-1.0, -2.0]),
            SpotCheck("http://b:2", "", [1], [5], [-1.0])]
    again = [[-1.1, -2.0], [-1.0]]
    with pytest.raises(SamplerFault, match="http://a:1 .* off by 0.05 on average over 2 tokens, and 0.04"):
        check_logprobs(rows, again, 3, 0.04)
    check_logprobs(rows, again, 3, 0.06)


def test_a_folder_of_weights_has_whole_models_and_few(tmp_path):
    net, chat = open_writer("tiny-chat")
    place = WeightsFolder(tmp_path / "w", chat, keep=2)
    first = place.write(net, 0)
    assert first == name_weights(net, 0) and first.name.startswith("0-")
    with pytest.raises((ValueError, OSError)):
        current_weights(tmp_path / "w")  # nothing is shown yet
    for step in range(1, 5):
        with torch.no_grad():
            net.head[0, 0] += 1
        weights = place.write(net, step)
        place.show(weights)
        found, said = current_weights(tmp_path / "w")
        assert said == weights and torch.equal(open_writer(found)[0].head, net.head)
    assert sorted(path.name.split("-")[0] for path in (tmp_path / "w").iterdir()) == ["3", "4", "newest.json"]
    swapped = net.head.detach().clone()
    with torch.no_grad():  # the same numbers in other places are other weights
        net.head[[0, 1]] = swapped[[1, 0]]
    assert name_weights(net, 4) != weights


def test_vllm_is_told_to_read_the_weights_and_its_log_probs_say_that_it_did(tmp_path):
    """It is asked in vLLM's words, and does not name its weights."""
    net, chat = open_writer("tiny-chat")
    told = []

    def answer(path, body):
        told.append((path, body))
        if path == "/collective_rpc":
            return {"results": [None]}
        return reply([7] * 12, "length", step=0, name="")
    with saying(answer) as address:
        how = [f"sampler={address}", f"weights={tmp_path / 'w'}", "weight_sync=vllm"]
        sampler, source = open_sampler(override(config(), how), net, chat)
        source.keep(3)()
        sampler.sample(PROMPTS[:1], 1, HOW, 0)
        with pytest.raises(SamplerFault, match=f"{address} has other weights than those of step 3"):
            source.check(3, 0)
    (path, body), (_, asked_for) = told
    assert path == "/collective_rpc" and body["method"] == "reload_weights"
    assert torch.equal(open_writer(body["kwargs"]["weights_path"])[0].head, net.head)
    params = asked_for["sampling_params"]
    assert (params["seed"], params["max_tokens"], params["logprobs"], params["top_k"]) == (
        sampler_seed(), 12, 1, -1)


def sampler_seed():
    return LocalSampler(*open_writer("tiny-chat")).sample(PROMPTS[:1], 1, HOW, 0)[0][0].seed


@pytest.mark.parametrize("settings, words", [
    (["sampler=http://127.0.0.1:1"], "sampler= and weights= go together"),
    (["sampler=ftp://a", "weights=w"], "write http://HOST:PORT"),
    (["sampler=http://a:1/v1", "weights=w"], "write http://HOST:PORT"),
    (["async_depth=1", "device=cuda"], "needs a sampler of its own"),
    (["weight_sync=nccl"], "expected folder, ipc or vllm")])
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        override(config(), settings)


def test_a_correction_is_on_where_other_weights_or_another_engine_write():
    assert config().row.correction is None
    ours = ["sampler=http://a:1", "weights=w"]
    assert override(config(), ours).row.correction is None
    for changes in (["async_depth=1"], [*ours, "weight_sync=vllm"]):
        assert override(config(), changes).row.correction.keywords == {"cap": 2.0}
    stale = override(config(), ["async_depth=2", "method.correction=icepop"])
    assert stale.row.correction.keywords["least"] == 0.5
    assert override(config(), ["async_depth=2", "method=best_of_n"]).row.kind == "supervised"
