"""Single ranks of a large world, on torch's fake backend, which sends nothing: an exchange returns this
rank's part in the place of each other's.

    python tests/support/fake_ranks.py WORLD JOBS.json RANK...    the jobs of ranks_launch, in each rank

What the other ranks would have sampled, or forwarded without a gradient, is computed here; of a backward pass
this rank's first result stands for theirs. So control flow, shapes and memory are a rank's own, and numbers
are not. JOBS.json.RANK has of each job the collectives in their order, bytes held, and seconds.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import torch
from ranks_launch import carry_out
from small import CHAT
from torch.distributed import HashStore
from torch.utils._python_dispatch import TorchDispatchMode

from postgrad.models import Config, Decoder, save_model
from postgrad.models.weights import is_sharded
from postgrad.system import processes
from postgrad.training.distributed import virtual_ranks
from postgrad.training.optim import Optim
from postgrad.training.stats import Stats

WORLD, RANKS = 64, (0, 31, 63)
PAIRS = ("pairs.per_step=64", "pairs.drawn=64", "pairs.held_out=8")
REPLIES = ("replies.problems=32", "replies.samples=2", "replies.per_step=64", "replies.max_new_tokens=24",
           "generator=tiny-chat", "evaluation.every=0")
SAMPLED = ("rollouts.prompts=64", "rollouts.prompts_per_step=64", "rollouts.group_size=2",
           "rollouts.max_new_tokens=4", "evaluation.every=0", "on_look=off")
RECIPES = {
    "sft": ("sft:words", "rows_per_step=64", "examples=64"),
    **{name: (f"{name}:questions", *PAIRS) for name in ("reward", "dpo", "kto")},
    **{name: (f"{name}:words", *REPLIES) for name in ("process", "outcome")},
    **{name: (f"{name}:words", *SAMPLED) for name in ("grpo", "ppo", "dapo", "online_dpo", "best_of_n")},
    "opd": ("opd:words", *SAMPLED, "teacher=tiny-chat"),
    "pretrain": ("pretrain:smoke", "rows_per_step=64", "row_length=16"),
}
SHARDED = ("sft", "dpo", "ppo")
BRANCH = ("dapo", "online_dpo")  # on rewards of all ranks, which are not sent here: what is trained differs
TRAINED = "gathered the statistics of the step"
map_own, clip, waiting = virtual_ranks.VirtualRanks.map_own, Optim.clip, processes.waiting


class Collectives(TorchDispatchMode):
    """Lists what is exchanged: the names that `processes.waiting` has, and torch's operations with the types
    and shapes of their tensors. Messages of plain values, which are as long as what they say, have none."""

    def __init__(self):
        super().__init__()
        self.listed = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace == "c10d":
            tensors = [x for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
            self.listed.append([op.name(), *(f"{x.dtype} {list(x.shape)}" for x in tensors[-1:]
                                             if x.dtype != torch.uint8)])
        return op(*args, **kwargs or {})


def stand_in(result, micro):
    """The result of a backward pass as that of another micro-batch."""
    loss, stats = result
    return loss, Stats(stats, {name: torch.zeros(micro.mask.shape) for name in stats.columns})


def map_with_others(lanes, work, every, what, after, blank):
    def filled(own, what):
        processes.gather(own, what)
        if what == TRAINED:
            first = next(iter(own.values())) if own else work(blank(every[0]))
            return [own.get(i) or stand_in(first, every[i]) for i in range(len(every))]
        return [own[i] if i in own else work(every[i]) for i in range(len(every))]

    with patch.object(virtual_ranks, "gather_in_order", filled):
        return map_own(lanes, work, every, what, after, blank)


def held(optim):
    """Bytes of this rank's weights, gradients and moments of what is trained."""
    tensors = [x.to_local() if is_sharded(x) else x for p in optim.stepped
               for x in (p, p.grad, *optim.adam.state.get(p, {}).values()) if isinstance(x, torch.Tensor)]
    return sum(x.numel() * x.itemsize for x in tensors)


def report(job, rank):
    """Carries out a job as this rank."""
    seen, sizes, began = Collectives(), [], time.process_time()

    def recorded_wait(what):
        seen.listed.append([what])
        return waiting(what)

    def weighed(optim):
        norm = clip(optim)
        sizes.append(held(optim))
        return norm

    with (patch.object(virtual_ranks.VirtualRanks, "map_own", map_with_others), seen,
          patch.object(processes, "waiting", recorded_wait), patch.object(Optim, "clip", weighed)):
        carry_out(job | {"run": f"{job['run']}-{rank}"})
    return {"collectives": seen.listed, "held": sizes[-1], "steps": len(sizes),
            "seconds": round(time.process_time() - began, 2)}


def be_rank(rank, world):
    from torch.testing._internal.distributed.fake_pg import FakeStore
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    processes._group = processes.Group(HashStore(), rank, world)


def begin(folder):
    """A model whose every dimension 64 divides."""
    (home := folder / "model").mkdir()
    save_model(Decoder(Config(vocab_size=1024, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=4, head_dim=16,
                              max_position_embeddings=256, tie_word_embeddings=True))
               .start(torch.Generator().manual_seed(0)), home)
    CHAT.save(home)
    return home


def job(name, folder, *changes):
    """Two steps of a recipe, with a pass for each of the ranks at least."""
    spec, *words = RECIPES[name]
    model = [] if spec.startswith("pretrain") else [f"model={folder / 'model'}"]
    return {"train": spec, "run": str(folder / "-".join([name, *changes]).replace("=", "-")),
            "changes": [*words, *model, "steps=2", "save_every=9", "optim.lr=1e-3", "tokens_per_pass=16",
                        *changes]}


def reports(world, jobs, folder, ranks):
    """What each of these ranks reports of each job: {rank: [report]}."""
    (path := folder / "jobs.json").write_text(json.dumps(jobs))
    here = Path(__file__).parent
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{here.parent.parent}:{here}"}
    done = subprocess.run([sys.executable, __file__, str(world), str(path), *map(str, ranks)], env=env,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {rank: json.loads(Path(f"{path}.{rank}").read_text()) for rank in ranks}


def main():
    import torch._dynamo  # noqa: F401  loaded once, before the fork

    world, path, *ranks = sys.argv[1:]
    children = []
    for rank in map(int, ranks):
        if not (child := os.fork()):
            be_rank(rank, int(world))
            Path(f"{path}.{rank}").write_text(json.dumps(
                [report(job, rank) for job in json.loads(Path(path).read_text())]))
            return 0
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main())
