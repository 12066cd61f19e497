"""A training in several ranks is the training of one: the same bits at any number of processes."""

import json
import os
import re
import socket
import subprocess
from dataclasses import replace
from functools import partial

import kills
import pytest
import torch
from ranks_launch import carry_out, launch
from remote_small import begin, sampler_of
from safetensors.torch import load_file
from small import CHAT, small_model
from torch.distributed import HashStore

from postgrad.cli.settings import config_from_text
from postgrad.models import save_model
from postgrad.recipes.launch import start_training
from postgrad.recipes.running import check_sharding
from postgrad.system import processes
from postgrad.training.distributed.virtual_ranks import SINGLE_RANK, VirtualRanks
from postgrad.training.optim import Optim

TASK = '''
import zlib

prompts = [{"question": f"Say {n}.", "answer": str(n)} for n in range(9)]

def verify(prompt, completion):
    """Right, or in quarters by the text alone."""
    return 1.0 if completion == gold(prompt) else zlib.crc32(completion.encode()) % 4 / 5

def gold(prompt):
    return f"I say {prompt.answer}."
'''
CUT = ("save_every=1", "optim.lr=1e-3", "tokens_per_pass=20", "max_grad_norm=0.01")
SAMPLED = ("rollouts.prompts_per_step=4", "rollouts.group_size=4", "rollouts.max_new_tokens=4",
           "evaluation.every=0")
RECIPES = {
    "sft": ("rows_per_step=8", "data=talks.jsonl"),
    "reward": ("pairs.per_step=8", "data=pairs.jsonl", "lora=0"),
    "dpo": ("pairs.per_step=8", "data=pairs.jsonl", "lora=2"),
    "ppo": (*SAMPLED, "task=task.py", "method.minibatches=2"),
    "grpo": (*SAMPLED, "task=task.py", "evaluation.every=2", "evaluation.problems=1", "evaluation.samples=1"),
    "dapo": (*SAMPLED, "task=task.py", "rollouts.prompts_per_step=8", "method.minibatches=2"),
}
TURNS = ("sft", "ppo")
THIN = ("sft", "reward", "ppo")  # with adapters; dpo has them anyway
AHEAD = ("rollouts.async_depth=1", "steps=4")
ONCE = ("tokens_per_pass=70", "max_grad_norm=1000")  # one pass a rank, and no gradient is cut


def files(folder):
    """A small model, a task and data in a folder of their own."""
    home = folder / "model"
    home.mkdir()
    save_model(small_model(), home)
    CHAT.save(home)
    (folder / "task.py").write_text(TASK)
    talks = [{"messages": [{"role": "user", "content": f"Count to {n}."},
                           {"role": "assistant", "content": " ".join(map(str, range(n)))}]}
             for n in range(1, 21)]
    pairs = [{"prompt": f"Say {n}.", "chosen": f"{n}!", "rejected": "No. " * (n % 3 + 1)} for n in range(20)]
    for name, rows in (("talks", talks), ("pairs", pairs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def job(name, folder, run, *changes):
    words = [word.replace("=talks", f"={folder}/talks").replace("=pairs.", f"={folder}/pairs.")
             .replace("=task.py", f"={folder}/task.py") for word in RECIPES[name]]
    steps = f"steps={3 if name in TURNS else 2}"
    return {"train": name, "run": str(folder / run),
            "changes": [*words, *CUT, f"model={folder}/model", steps, *changes]}


def counting_passes(patch, steps):
    """From here on the passes of every optimizer step of this process are counted."""
    gather, take_sum, passes = Optim.gather, Optim.take_sum, []
    patch.setattr(Optim, "gather", lambda optim: passes.append(1) or gather(optim))
    patch.setattr(Optim, "take_sum",
                  lambda optim: steps.append(len(passes)) or passes.clear() or take_sum(optim))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Every recipe in one rank with two lanes, in two ranks, and in turns: one, two, one."""
    folder, steps = tmp_path_factory.mktemp("ranks"), []
    files(folder)
    with pytest.MonkeyPatch.context() as patch:
        counting_passes(patch, steps)
        for name in RECIPES:
            carry_out(job(name, folder, f"{name}-1", "virtual_ranks=2"))
    assert min(steps) >= 4, steps
    in_turns = [str(folder / f"{name}-turns") for name in TURNS]
    for name in TURNS:
        carry_out(job(name, folder, f"{name}-turns", "virtual_ranks=2") | {"until": 1})
    carry_out(job("grpo", folder, "three-1", "virtual_ranks=3", "steps=1"))
    carry_out(job("grpo", folder, "once-1", "virtual_ranks=2", *ONCE))
    for name in THIN:
        carry_out(job(name, folder, f"{name}-thin-1", "virtual_ranks=2", "lora=2"))
    carry_out(job("grpo", folder, "ahead-1", "virtual_ranks=2", *AHEAD))
    carry_out(job("grpo", folder, "ahead-turns", "virtual_ranks=2", *AHEAD) | {"until": 1})
    carry_out(job("grpo", folder, "ahead-once-1", "virtual_ranks=2", *AHEAD, *ONCE))
    weights = begin(folder / "weights", str(folder / "model"))
    with sampler_of(weights) as one, sampler_of(weights) as other:
        launch(2, [job("grpo", folder, "ahead-2", *AHEAD), {"run": str(folder / "ahead-turns"), "until": 3},
                   job("grpo", folder, "ahead-once-2", *AHEAD, "shard=true", *ONCE),
                   job("grpo", folder, "ahead-served", *AHEAD, f"sampler={one},{other}",
                       f"weights={weights}")], folder, torch.get_num_threads())
    carry_out({"run": str(folder / "ahead-turns")})
    launch(2, [*(job(name, folder, f"{name}-2") for name in RECIPES),
               *({"run": run, "until": 2} for run in in_turns),
               job("grpo", folder, "three-2", "virtual_ranks=3", "steps=1"),
               job("sft", folder, "sft-divided", "shard=true") | {"until": 2},
               job("ppo", folder, "ppo-divided", "shard=true"),
               job("grpo", folder, "once-2", "shard=true", *ONCE),
               *(job(name, folder, f"{name}-divided", "shard=true", "recompute=true")
                 for name in ("reward", "dpo")),
               *(job(name, folder, f"{name}-thin-divided", "shard=true", "recompute=true", "lora=2")
                 for name in THIN),
               job("sft", folder, "dies") | {"dies": 2}], folder, torch.get_num_threads())
    for run in (*in_turns, str(folder / "sft-divided")):
        carry_out({"run": run})
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_two_ranks_are_one(trained, name):
    alone = kills.facts(trained / f"{name}-1")
    assert kills.differences(alone, trained / f"{name}-2") == []
    assert all(row["grad_norm"] > 0.01 for row in alone["metrics"])  # every gradient was cut
    assert json.loads((trained / f"{name}-2/config.json").read_text())["optim"]["virtual_ranks"] == 2


@pytest.mark.parametrize("name", TURNS)
def test_one_rank_then_two_then_one(trained, name):
    run = trained / f"{name}-turns"
    assert kills.differences(kills.facts(trained / f"{name}-1"), run) == []
    events = [json.loads(line)["text"] for line in (run / "events.jsonl").read_text().splitlines()]
    assert [text for text in events if "resumed" in text] == ["resumed after step 1", "resumed after step 2"]


def test_lanes_that_do_not_divide_among_the_ranks(trained):
    assert kills.differences(kills.facts(trained / "three-1"), trained / "three-2") == []
    assert kills.facts(trained / "three-1")["weights"] != kills.facts(trained / "grpo-1")["weights"]


@pytest.mark.parametrize("run", ["ahead-2", "ahead-turns", "ahead-served"])
def test_ranks_that_sample_ahead_are_one(trained, run):
    """In a thread of each, over two samplers, and in turns: one rank, two, one."""
    alone = kills.facts(trained / "ahead-1")
    assert kills.differences(alone, trained / run) == []
    assert [row["staleness"] for row in alone["metrics"]] == [0, 1, 1, 1]


def last_weights(run):
    return load_file(max((run / "checkpoints").iterdir()) / "model.safetensors")


@pytest.mark.parametrize("name", (*TURNS, "reward"))
def test_models_that_are_divided_among_the_ranks(trained, name):
    """sft is gone on with by one process, whole."""
    alone, divided = (last_weights(trained / f"{name}-{kind}") for kind in ("1", "divided"))
    assert alone.keys() == divided.keys()
    for key, x in alone.items():
        assert (x - divided[key]).abs().max() <= 1e-6 * x.abs().max(), key


@pytest.mark.parametrize("name", ("dpo", *(f"{name}-thin" for name in THIN)))
def test_adapters_on_a_model_that_is_divided_have_the_same_bits(trained, name):
    """Whole on every rank, summed lane after lane: dpo, sft, a reward model, a policy with its critic."""
    alone, divided = (last_weights(trained / f"{name}-{kind}") for kind in ("1", "divided"))
    assert alone.keys() == divided.keys() and all(torch.equal(x, divided[key]) for key, x in alone.items())
    adapters = [load_file(max((trained / f"{name}-{kind}/checkpoints").iterdir())
                          / "adapter/adapter_model.safetensors") for kind in ("1", "divided")]
    assert all(torch.equal(x, adapters[1][key]) for key, x in adapters[0].items())


def test_with_one_pass_a_rank_a_divided_model_has_the_same_bits(trained):
    for name in ("once", "ahead-once"):
        alone, divided = (kills.facts(trained / f"{name}-{ranks}") for ranks in (1, 2))
        assert alone["weights"] == divided["weights"] and alone["samples"] == divided["samples"]


def test_a_rank_that_dies_is_named_and_the_run_goes_on_without_it(trained):
    said = json.loads((trained / "dies/status.json").read_text())
    assert said["state"] == "failed"
    assert re.fullmatch(r"Lost: rank 1 \(process \d+ on \S+\) died while the ranks agreed to go on: "
                        r"go on with `postgrad resume`, with any number of processes\.", said["error"])
    carry_out({"run": str(trained / "dies")})
    assert kills.differences(kills.facts(trained / "sft-1"), trained / "dies") == []


def two_groups():
    store = torch.distributed.HashStore()
    return processes.Group(store, 0, 2), processes.Group(store, 1, 2)


def test_a_rank_that_is_late_is_named_with_where_it_was_seen():
    here, late = two_groups()
    late.tell("at", "3 gathered rollouts")
    here.waits = 4
    said = processes.who_is_late(here, "summed their gradients", 60)
    assert said == (f"rank 1 (process {os.getpid()} on {socket.gethostname()}) did not come within 60 s to "
                    "where the ranks summed their gradients; last seen where the ranks gathered rollouts: "
                    "look at that process, or allow more with POSTGRAD_TIMEOUT=SECONDS.")


def test_a_rank_that_hangs_where_the_others_wait_is_named(monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.0)
    here, hangs = two_groups()
    hangs.tell("at", "4 gathered rollouts")
    here.waits = 4
    assert processes.who_is_late(here, "gathered rollouts", 60).startswith("rank 1 (")


def test_a_rank_that_failed_has_the_word():
    here, failed = two_groups()
    failed.tell("failed", "the disk is full.")
    assert processes.who_is_gone(here, "gathered rollouts") == "the disk is full."


def test_ranks_elsewhere_are_known_by_missing_nobody(monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.0)
    store = torch.distributed.HashStore()
    here, gone, other = (processes.Group(store, rank, 3) for rank in range(3))
    gone.tell("who", "node-b 12")
    other.tell("missing", "gathered rollouts")
    assert processes.who_is_gone(here, "gathered rollouts").startswith("rank 1 (process 12 on node-b) died")


def test_rank_0_is_named_though_the_store_dies_with_it(monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.1)
    _, here = two_groups()
    ended = subprocess.Popen(["true"])
    ended.wait()
    here.leader = f"{socket.gethostname()} {ended.pid}"
    monkeypatch.setattr(processes, "_group", here)
    monkeypatch.setattr(here, "store", None)

    def fail(*_):
        raise RuntimeError("connection reset")

    monkeypatch.setattr(here, "tell", fail)
    monkeypatch.setattr(here, "read", fail)
    for ask in (partial(processes.gather, 1, "gathered rollouts"), processes.check_others):
        with pytest.raises(processes.Lost, match=rf"^rank 0 \(process {ended.pid} on \S+\) died while the "
                                                 "ranks .*, and with it their store: go on with `postgrad"):
            ask()
    here.leader = f"{socket.gethostname()} {os.getpid()}"  # it lives: torchrun's own process kept the store
    assert processes.who_is_gone(here, "x").startswith("the store of the ranks is gone with the process or")


def test_a_signal_tells_a_death_from_a_wish_to_stop(monkeypatch):
    here, other = two_groups()
    monkeypatch.setattr(processes, "_group", here)
    processes.check_others()  # all are alive: somebody wishes the run to stop
    ended = subprocess.Popen(["true"])
    other.tell("who", f"{socket.gethostname()} {ended.pid}")
    ended.wait()
    with pytest.raises(ValueError, match=rf"^rank 1 \(process {ended.pid} on .*\) died"):
        processes.check_others()
    other.tell("left", "")
    processes.check_others()


def test_one_process_waits_for_nobody():
    assert processes.gather(3, "") == [3] and processes.agreed(lambda: 4, "") == 4
    assert processes.says_first("what")
    assert (processes.rank(), processes.world(), processes.leads(), processes.started()) == (0, 1, True, 1)


def test_work_is_dealt_to_lanes_and_comes_back_in_order():
    said = []
    assert VirtualRanks(2).map(lambda x: said.append(x) or -x, range(5), "") == [0, -1, -2, -3, -4]
    assert said == [0, 2, 4, 1, 3]  # lane after lane
    assert SINGLE_RANK.map(str, range(3), "") == ["0", "1", "2"]
    turns = []
    VirtualRanks(3).map(str, range(2), "", lambda: turns.append(1))
    assert len(turns) == 2  # a lane without an item has no turn


def test_what_has_one_name_stays_in_one_lane():
    assert VirtualRanks(2).deal("abcab") == [[0, 2, 3], [1, 4]]
    assert SINGLE_RANK.deal("aab") == [[0, 1, 2]]


def test_a_sum_goes_lane_after_lane_and_takes_what_is_there():
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    like = [one, one, one]
    first = VirtualRanks(2).add([None, None, None], [one.clone(), None, None], like, "")
    assert first == [one, None, None]
    assert VirtualRanks(2).add(first, [two, two, None], like, "") == [torch.tensor([3.0]), two, None]


def test_ranks_that_share_a_gpu_are_counted(monkeypatch):
    for ranks, gpus, said in ((2, 1, "2 ranks and 1 GPU here"), (9, 8, "9 ranks and 8 GPUs here"), (1, 1, ""),
                              (8, 8, ""), (2, 0, "")):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        assert processes.too_few_gpus() == said


def test_a_model_is_not_divided_among_ranks_that_share_a_gpu(tmp_path, monkeypatch):
    """Refused before anything is read or made; on a CPU, and without shard, they go on."""
    monkeypatch.setattr(processes, "_group", processes.Group(HashStore(), 0, 2))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    recipe, config = config_from_text("sft", ["model=nowhere", "shard=true", "device=cuda", "task=words"])
    with pytest.raises(ValueError, match="shard=true wants a GPU for each rank, and there are 2 ranks and 1 "
                                         "GPU here: start no more ranks than GPUs"):
        start_training(recipe, config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    for change in ({"device": "cpu"}, {"optim": replace(config.optim, shard=False)}):
        check_sharding(replace(config, **change))
