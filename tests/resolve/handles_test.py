"""Weights in the memory of one GPU: the file that tells where they are, who takes them, which copies are
kept. A table of this process stands for CUDA, which alone can tell what another process shares."""

import json
from base64 import b64encode

import pytest
import torch
from remote_small import begin, sampler_of, saying
from settings_text import override
from small import CHAT
from wire_fuzz import spoilt

from postgrad.cli import main
from postgrad.models import Adapters
from postgrad.models.lora import with_adapter
from postgrad.recipes.samplers import RemoteSettings
from postgrad.resolve import handles
from postgrad.resolve.handles import SharedWeights, start_folder, take_weights
from postgrad.resolve.models import open_writer
from postgrad.resolve.weights import current_weights, name_weights
from postgrad.sampling import RemoteSampler, WeightVersion
from postgrad.sampling.remote import SamplerFault
from postgrad.serving.weight_updates import PushedWeights
from postgrad.training.batches.async_collector import AsyncCollector, Collection
from tests.sampling.remote_test import SMALL, config, equal, fit, remote_settings
from tests.whole.async_collection_test import goes_far


@pytest.fixture
def memory(monkeypatch):
    """What is shared, by its handle."""
    table = {}

    def share(piece):
        handle = b64encode(f"piece {len(table)}".encode()).decode()
        table[handle] = piece
        return {"handle": handle, "size": len(piece), "offset": 0, "counter": "", "number": 0}
    monkeypatch.setattr(handles, "share_memory", share)
    monkeypatch.setattr(handles, "open_memory", lambda place, device: table[place["handle"]])
    monkeypatch.setattr(RemoteSettings, "check_device", lambda self, device: None)
    return table


def moved(net):
    with torch.no_grad():
        net.head[0, 0] += 1


def same(taken, net):
    there = net.state_dict()
    return taken.keys() == there.keys() and all(torch.equal(taken[name], there[name]) for name in there)


def test_the_first_weights_are_a_folder_and_later_ones_a_file_that_tells_where_they_are(tmp_path, memory):
    net, chat = open_writer("tiny-chat")
    place = SharedWeights(tmp_path / "w", chat)
    first = place.write(net, 0)
    place.show(first)
    newer = PushedWeights(tmp_path / "w", "cpu", "")
    assert current_weights(tmp_path / "w")[0].is_dir() and same(newer().weights, net)
    for step in range(1, 6):
        moved(net)
        weights = place.write(net, step)
        assert weights == name_weights(net, step)
        place.show(weights)
        path, said = current_weights(tmp_path / "w")
        assert path.suffix == ".json" and said == weights and path.stat().st_size < 20_000
        found = newer()
        assert found.name == weights.name and found.step == step and same(found.weights, net)
        moved(net)  # what was taken is the taker's own
        assert not same(found.weights, net) and newer() is None
    assert start_folder(path).name == first.name
    assert sorted(p.name.split("-")[0] for p in (tmp_path / "w").iterdir()) == ["0", "4", "5", "newest.json"]
    assert len(memory) == 1  # one copy, filled anew


def test_a_dtype_of_two_bytes_and_a_tensor_of_one_number_come_as_they_are(memory):
    there = {"a": torch.randn(3, 5).bfloat16(), "b": torch.tensor(7.0), "c": torch.randn(257)}
    copy = handles.GPUCopy(there)
    copy.fill(there)
    found = handles.tensor_views(copy.memory, json.loads(json.dumps(copy.tensors)))
    assert all(found[name].dtype == x.dtype and torch.equal(found[name], x) for name, x in there.items())


def test_an_adapter_goes_merged(tmp_path, memory):
    body, chat = open_writer("tiny-chat")
    net = with_adapter(body, Adapters(lora=2), torch.Generator().manual_seed(0))
    place = SharedWeights(tmp_path / "w", chat)
    place.show(place.write(net, 0))
    with torch.no_grad():
        for b in net.adapter.B.values():
            b += 0.1
    place.show(place.write(net, 1))
    found = take_weights(current_weights(tmp_path / "w")[0], "cpu")
    merged = net.merged()
    assert all(torch.equal(found[name], merged[name]) for name in merged) and found.keys() == {*merged}
    assert not torch.equal(merged["model.layers.0.self_attn.q_proj.weight"],
                           body.state_dict()["model.layers.0.self_attn.q_proj.weight"])


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_copy_is_filled_anew_only_when_nobody_reads_it(tmp_path, memory, ahead):
    """Every collection finds the weights that it was begun with, however late its thread comes to them."""
    net, chat = open_writer("tiny-chat")
    place = SharedWeights(tmp_path / "w", chat, copies=ahead + 1)
    heads, seen = {}, []

    class Source:
        def keep(self, step):
            weights = place.write(net, step)
            heads[step] = net.head.detach().clone()
            return lambda: place.show(weights)

        def check(self, step, behind):
            return None

    def collect(number, step):
        path, said = current_weights(tmp_path / "w")
        found = open_writer(path)[0].state_dict() if path.is_dir() else take_weights(path, "cpu")
        seen.append(said.step)
        head = next(x for x in found.values() if x.shape == heads[step].shape)
        assert said.step == step and torch.equal(head, heads[step])
        return Collection([], [], {}, step)

    line = AsyncCollector(ahead, collect, Source())
    for step in range(8):
        line.take(step, 8 - step)
        moved(net)
    assert seen == [max(0, step - ahead) for step in range(8)] and len(memory) == min(ahead + 1, 7)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_run_whose_weights_go_this_way_equals_one_through_folders(tmp_path, memory, ahead):
    how = {"rollouts": {**SMALL["rollouts"], "async_depth": ahead}, "steps": 5}
    runs = []
    for way in ("folder", "ipc"):
        with sampler_of(begin(tmp_path / way)) as address:
            runs.append(fit(tmp_path, name=f"run-{way}", **(SMALL | how),
                            **remote_settings(tmp_path / way, address, weight_sync=way)))
        assert current_weights(tmp_path / way)[0].is_dir() == (way == "folder")
    assert equal(*runs) and len(memory) == ahead + 1


def test_rows_are_held_against_the_copy_that_wrote_them(tmp_path, memory):
    goes_far(tmp_path / "sound", "weight_sync=ipc", "remote.max_logp_gap=1e-3")
    with pytest.raises(SamplerFault, match="has other weights than those of step [123].* off by 0.2"):
        goes_far(tmp_path / "other", "weight_sync=ipc", off=0.2)


def test_a_server_that_starts_late_has_the_weights_of_the_moment(tmp_path, memory, monkeypatch, capsys):
    net, chat = open_writer("tiny-chat")
    place = SharedWeights(tmp_path / "w", chat)
    first = place.write(net, 0)
    moved(net)
    latest = place.write(net, 3)
    place.show(latest)
    made = []
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: made.append(self.config.app.state.served))
    assert main(["serve", str(tmp_path / "w"), "--port", "0"]) == 0
    (served,) = made
    assert (served.weights, served.version) == (latest.name, 3)
    assert torch.equal(served.worker.batch.model.head, net.head)
    memory.clear()  # the training is gone: what it began with is served, and later ones are looked for
    assert main(["serve", str(tmp_path / "w"), "--port", "0"]) == 0
    assert (made[-1].weights, made[-1].version) == (first.name, 0)
    assert "cannot be taken over" in (said := capsys.readouterr().err) and "has ended" in said


def test_what_is_no_such_file_is_refused_in_a_sentence(tmp_path, memory):
    net, chat = open_writer("tiny-chat")
    place = SharedWeights(tmp_path / "w", chat)
    place.write(net, 0)
    moved(net)
    path = tmp_path / "w" / f"{place.write(net, 1).name}.json"
    sound = json.loads(path.read_text())
    name = next(iter(sound["tensors"]))
    for changed, words in (
            (sound | {"gpu": "ab-12"}, "on GPU ab-12, and this server is on a CPU: start it with --device"),
            (sound | {"place": {}}, "cannot be taken over \\('handle'\\)"),
            (sound | {"tensors": {name: sound["tensors"][name] | {"start": 10**9}}}, "lies outside"),
            (sound | {"tensors": {name: sound["tensors"][name] | {"dtype": "Q4"}}}, "cannot be taken over"),
            ([1], "on GPU None")):
        path.write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=words):
            take_weights(path, "cpu")
    with pytest.raises(ValueError, match="does not say where"):
        start_folder(path)


def test_whatever_a_file_of_shared_weights_says_is_taken_within_the_memory_or_a_sentence(tmp_path, memory):
    net, chat = open_writer("tiny-chat")
    place = SharedWeights(tmp_path / "w", chat)
    place.write(net, 0)
    moved(net)
    path = tmp_path / "w" / f"{place.write(net, 1).name}.json"
    sound = json.loads(path.read_text())
    sound["tensors"] = dict([*sound["tensors"].items()][:2])
    taken = 0
    for seed in range(60):
        path.write_bytes(spoilt(sound, seed))
        for reads in (lambda: take_weights(path, "cpu"), lambda: start_folder(path)):
            try:
                taken += reads() is not None
            except ValueError as refusal:
                assert str(refusal)
    assert 0 < taken < 120


def test_a_sampler_on_another_gpu_is_named_at_once():
    wanted = WeightVersion(0, "0-0123456789ab")
    for gpu, words in (("", "is on a CPU"), ("cd-34", "is on cd-34")):
        with saying(lambda *_, gpu=gpu: {"policy_step": 0, "weights": wanted.name, "gpu": gpu}) as address:
            there = RemoteSampler([address], CHAT, positions=256, vocabulary=512, gpu="ab-12")
            with pytest.raises(SamplerFault, match=f"{address} {words}, and .*on GPU ab-12"):
                there.await_weights(wanted)


@pytest.mark.parametrize("settings, words", [
    (["sampler=http://127.0.0.1:1", "weights=w", "weight_sync=ipc"],
     "and device is cpu: leave weight_sync out"),
    (["sampler=http://10.0.0.7:8000", "weights=w", "weight_sync=ipc", "device=cuda"],
     "http://10.0.0.7:8000 is none"),
    (["weight_sync=nccl"], "expected folder, ipc or vllm")])
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        override(config(), settings)
    assert override(config(), ["sampler=http://localhost:1", "weights=w", "weight_sync=ipc", "device=cuda"])
