"""What was acknowledged is done, once and in its order: through a kill of the server, a restart, and beside
other clients."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tinker import types
from tinker_small import ADAM, KEY, WORDS, imitation, service_client, tinker_server

from postgrad.resolve.models import open_writer
from postgrad.runs import Run
from postgrad.serving.tinker.journal import Operation

FEW = types.SamplingParams(max_tokens=4)


@pytest.fixture(scope="module")
def data():
    chat = open_writer("tiny-chat")[1]
    return [imitation(chat, WORDS[i: i + 2]) for i in range(0, len(WORDS), 2)]


def loop(client, data, between=lambda: None):
    """Three steps of a client, and samples from what they made. between: called where a gradient waits for
    its step."""
    training, seen = client.create_lora_training_client("small", rank=2, seed=3).result(), []
    for i, batch in enumerate(data):
        seen.append(training.forward_backward(batch, "cross_entropy").result().metrics["loss:sum"])
        if i == 1:
            between()
        seen.append(training.optim_step(ADAM).result().metrics["grad_norm"])
    sampler = training.save_weights_and_get_sampling_client().result()
    prompt = types.ModelInput.from_ints(data[0][0].model_input.to_ints()[:4])
    sampled = sampler.sample(prompt, 2, FEW).result().sequences
    last = training.forward(data[0], "cross_entropy").result()
    return (seen, [s.tokens for s in sampled], [s.logprobs for s in sampled],
            [x["logprobs"].data for x in last.loss_fn_outputs])


def serve(runs, port):
    """A server in a process of its own, once it listens; and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "postgrad", "serve", "tiny-chat", "--tinker", "--name", "small", "--rows", "4",
         "--runs", str(runs), "--port", str(port), "--context", "128", "--json"], stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"})
    return process, json.loads(process.stdout.readline())["tinker"]


def test_a_killed_server_goes_on_to_the_same_bits(tmp_path, data):
    with tinker_server(tmp_path / "free") as (address, _):
        port = int(address.rpartition(":")[2])
    process, address = serve(tmp_path / "runs", port)
    try:
        def kill():
            nonlocal process
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process, _ = serve(tmp_path / "runs", port)

        killed = loop(service_client(address), data, kill)
        assert killed == loop(service_client(address), data)
    finally:
        process.kill()
        process.wait()
    runs = [Run.open(path.parent) for path in sorted((tmp_path / "runs").glob("tinker-*/run.json"))]
    assert len(runs) == 2 and [run.curve("loss")[0] for run in runs] == [[1, 2, 3]] * 2


def test_a_restart_opens_the_newest_checkpoint_and_sends_old_results_again(tmp_path, data):
    """Between two servers the model is closed with a checkpoint. A sample is drawn again: the same bits."""
    answers = []
    for part in (0, 1):
        with tinker_server(tmp_path / "runs") as (address, service):
            web = httpx.Client(base_url=address, headers={"X-API-Key": KEY}, timeout=60)
            if not part:
                client = service_client(address)
                training = client.create_lora_training_client("small", rank=2, seed=3).result()
                for batch in data[:2]:
                    training.forward_backward(batch, "cross_entropy").result()
                    training.optim_step(ADAM).result()
                model, prompt = training.model_id, types.ModelInput.from_ints([5, 6, 7])
                sampler = training.save_weights_and_get_sampling_client().result()
                before = sampler.sample(prompt, 2, FEW).result().sequences
                asked = before[0].sequence_id.rpartition(":")[0]
            got = [web.post("/api/v1/retrieve_future", json={"request_id": f"{model}:{i}"})
                   for i in (1, 2, 4)]
            got.append(web.post("/api/v1/retrieve_future", json={"request_id": asked}, timeout=60))
            answers.append([answer.content for answer in got])
            assert [answer.status_code for answer in got] == [200] * 4
            folder = service.folder(model)
    assert answers[0] == answers[1]
    assert [*Run.open(folder).checkpoints()] == [2] and Run.open(folder).state()["state"] == "stopped"


def test_a_damaged_journal_is_a_sentence_and_stays_as_it_is(tmp_path):
    with tinker_server(tmp_path / "runs") as (address, service):
        training = service_client(address).create_lora_training_client("small", rank=2, seed=3).result()
        journal = service.folder(training.model_id) / "tinker" / "journal"
    journal.write_bytes(b"?" + Operation(kind="optim_step", seq=1, body=b"{}").entry()[1:]
                        + Operation(kind="optim_step", seq=2, body=b"{}").entry())
    before = journal.read_bytes()
    with tinker_server(tmp_path / "runs") as (address, _):
        web = httpx.Client(base_url=address, headers={"X-API-Key": KEY}, timeout=60)
        got = web.post("/api/v1/retrieve_future", json={"request_id": f"{training.model_id}:1"})
        assert got.status_code == 500
        assert "cannot go on: entry 1 of" in got.text and "the last checkpoint" in got.text
    assert journal.read_bytes() == before


def test_clients_at_once_get_what_each_gets_alone(tmp_path, data):
    with tinker_server(tmp_path / "runs") as (address, _):
        orders = [data, data[::-1], data[1:]]
        alone = [loop(service_client(address), order) for order in orders]
        with ThreadPoolExecutor(3) as pool:
            at_once = [*pool.map(lambda order: loop(service_client(address), order), orders)]
    assert at_once == alone


def test_operations_are_done_in_the_order_of_their_numbers(tmp_path, data):
    with tinker_server(tmp_path / "runs") as (address, _):
        training = service_client(address).create_lora_training_client("small", rank=2, seed=3).result()
        web = httpx.Client(base_url=address, headers={"X-API-Key": KEY}, timeout=60)

        def step(seq, lr):
            asked = {"model_id": training.model_id, "seq_id": seq, "adam_params": {"learning_rate": lr}}
            return web.post("/api/v1/optim_step", json=asked)

        assert [step(seq, 0.1 * seq).status_code for seq in (3, 2)] == [200, 200]
        assert step(2, 0.5).status_code == 400 and step(2, 0.2).status_code == 200
        assert step(1, 0.1).status_code == 200 and step(0, 0.1).status_code == 400
        got = [web.post("/api/v1/retrieve_future", json={"request_id": f"{training.model_id}:{seq}"}).json()
               for seq in (1, 2, 3)]
        assert [x["metrics"]["lr"] for x in got] == pytest.approx([0.1, 0.2, 0.3])
        assert [x["metrics"]["skipped"] for x in got] == [1.0] * 3  # no gradient came before them


def test_a_model_that_makes_room_for_others_is_opened_again_with_its_gradient(tmp_path, data, monkeypatch):
    monkeypatch.setattr("postgrad.serving.tinker.service.MOST_MODELS", 1)
    with tinker_server(tmp_path / "runs") as (address, service):
        client = service_client(address)
        first, *others = [client.create_lora_training_client("small", rank=2, seed=3).result()
                          for _ in range(3)]
        assert [*service.queues] == [others[-1].model_id]
        losses = [first.forward_backward(data[0], "cross_entropy").result().metrics["loss:sum"]]
        assert [*service.queues] == [first.model_id]
        others[0].forward(data[0], "cross_entropy").result()
        stepped = first.optim_step(ADAM).result()
        again = others[1].forward_backward(data[0], "cross_entropy").result().metrics["loss:sum"]
        assert stepped.metrics["skipped"] == 0.0 and again == losses[0]
        assert others[1].optim_step(ADAM).result().metrics["grad_norm"] == stepped.metrics["grad_norm"]
