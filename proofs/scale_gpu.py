"""Past one process on one GPU, measured: two ranks that share it, a divided model, weights handed over in its
memory, sampling beside training.

    python proofs/scale_gpu.py FOLDER [PART ...] [--small]     ranks, shard, ipc, ahead, instep

Each part takes about a minute and a half and leaves FOLDER/gpu-PART.json, which `proofs/scale.py FOLDER
write` takes up; one that fails prints its error, and the next goes on. What a part works on is in a folder of
its own that is removed. Without a network: embedded models, and random weights of a 135M shape. --small is
for trying the script on a CPU: tiny shapes, weights through a folder, meaningless figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / name) for name in ("", "tests", "proofs", "tools", "bench")]

import beside_gpu  # noqa: E402
import results  # noqa: E402
from beside_gpu import ENV, STEPS, TRAININGS, Setting, command, last_words  # noqa: E402
from ranks_launch import carry_out, free_port  # noqa: E402
from results import bar  # noqa: E402


def trained(s: Setting, jobs: list[dict], world: int, how: str = "work") -> str:
    """The jobs one after another in so many ranks, or in one process; what went wrong, "" where nothing
    did."""
    path = s.folder / f"jobs-{len(list(s.folder.glob('jobs-*')))}.json"
    path.write_text(json.dumps(jobs))
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(world), "--master-port",
                str(free_port())] if world > 1 else []
    done = subprocess.run([sys.executable, *launcher, __file__, how, str(path)], env=ENV, timeout=240,
                          capture_output=True, text=True)
    print(done.stderr[-3000:], file=sys.stderr, flush=True)
    return "" if done.returncode == 0 else last_words(done.stderr)


def job(s: Setting, name: str, run: str, *changes: str) -> dict:
    spec, *words = TRAININGS[name]
    return {"train": spec, "run": str(s.folder / run), "changes": [
        *words, f"steps={STEPS}", "save_every=4", f"device={s.device}", "compile=false", *changes]}


def work(path: str) -> None:
    for each in json.loads(Path(path).read_text()):
        carry_out(each)


def work_divided(path: str) -> None:
    """The jobs in one process whose models are divided among one rank, itself: the way of FSDP2, and NCCL on
    a GPU, which `shard=true` takes with several."""
    import torch
    import torch.distributed as dist

    from postgrad.system.processes import group
    from postgrad.training.optim import OptimSettings
    store = dist.HashStore()
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=dist.PrefixStore("work", store), rank=0, world_size=1)
    group._group = group.Group(dist.PrefixStore("postgrad", store), 0, 1, nccl="nccl" in backend)
    OptimSettings.divides = property(lambda self: self.shard)  # type: ignore[assignment,method-assign]
    work(path)


# comparing runs

def weights(run: Path) -> dict:
    from safetensors.torch import load_file
    return load_file(max((run / "checkpoints").iterdir()) / "model.safetensors")


def apart(first: Path, second: Path, model: str = "tiny-chat") -> str:
    """How far the weights of two runs are from one another; both in bfloat16 where one was saved so."""
    import torch

    from postgrad.models.load import EMBEDDED
    a, b, began = weights(first), weights(second), weights_at(EMBEDDED[model])
    if any(a[name].dtype != b[name].dtype for name in a):
        a, b = ({name: x.bfloat16() for name, x in found.items()} for found in (a, b))
    if all(torch.equal(a[name], b[name]) for name in a):
        return "equal bit for bit"

    def norm(x: dict, y: dict) -> float:
        return float(sum((x[n].double() - y[n].double()).square().sum() for n in x)) ** 0.5
    whole = float(sum(x.double().square().sum() for x in a.values())) ** 0.5
    return (f"relative difference {norm(a, b) / whole:.1e}, of what {STEPS} steps changed "
            f"{norm(a, b) / norm(a, began):.1e}")


def is_done(run: Path) -> bool:
    """Whether a training came to its end, so that its checkpoint is whole."""
    path = run / "status.json"
    return path.exists() and json.loads(path.read_text())["state"] == "done"


def weights_at(folder: Path) -> dict:
    from safetensors.torch import load_file
    return load_file(folder / "model.safetensors")


def relative(text: str) -> float:
    return 0.0 if text.startswith("equal") else float(text.split()[2].rstrip(","))


# the parts

def ranks(s: Setting) -> list[dict]:
    """Two ranks on one GPU against one process with two lanes, and that against itself."""
    one = trained(s, [job(s, n, f"{n}-{k}", "virtual_ranks=2") for n in TRAININGS for k in ("1", "again")], 1)
    two = trained(s, [job(s, n, f"{n}-2") for n in TRAININGS], 2)
    if one or two:
        return [bar("two ranks that share one H200 (gloo)", f"{STEPS} steps each of SFT and GRPO",
                    one or two, False, command("ranks"))]
    out = []
    for name in TRAININGS:
        first, again, second = (s.folder / f"{name}-{kind}" for kind in ("1", "again", "2"))
        found, itself = apart(first, second), apart(first, again)
        reason = "" if found.startswith("equal") else f"; one process against itself: {itself}"
        out.append(bar("two ranks of torchrun on one H200 (gloo) against one process with two lanes: "
                       f"{name}, {STEPS} steps, bf16",
                       "equal bits, or no further apart than two runs of one process",
                       found + reason, relative(found) <= max(1e-6, 2 * relative(itself)), command("ranks")))
    return out


def shard(s: Setting) -> list[dict]:
    """A divided model against a whole one, in float32 and bfloat16, in one rank by NCCL; two ranks that share
    the GPU are refused."""
    out = []
    precisions = {"fp32": 1e-5, "bf16": 1e-2}
    whole = trained(s, [job(s, "sft", f"whole-{p}", f"precision={p}",
                            "virtual_ranks=2") for p in precisions], 1)
    assert not whole, whole
    divided = [job(s, "sft", f"divided-{p}", f"precision={p}", "shard=true") for p in precisions]
    fault = trained(s, divided, 1, "work-divided")
    for precision, limit in precisions.items():
        run = s.folder / f"divided-{precision}"
        found = apart(s.folder / f"whole-{precision}", run) if is_done(run) else fault or "it did not end"
        out.append(bar(f"shard=true on one H200, 1 rank (nccl), against the model whole: sft, {STEPS} steps, "
                       f"{precision}", f"within {limit:g} relative", found,
                       is_done(run) and relative(found) <= limit, command("shard")))
    fault = trained(s, [divided[0] | {"run": str(s.folder / "shared")}], 2)
    out.append(bar("shard=true, 2 ranks that share one H200 (gloo)", "refused with a sentence that says why",
                   fault or "it was not refused", "shard=true wants a GPU for each rank" in fault,
                   command("shard")))
    return out


MEASURES: dict[str, Callable[[Setting], list[dict]]] = {
    "ranks": ranks, "shard": shard, **beside_gpu.PARTS}


def main(folder: Path, *words: str) -> int:
    small, parts = "--small" in words, [word for word in words if word != "--small"]
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in parts or MEASURES:
        began = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory() as place:
                bars = MEASURES[name](Setting(Path(place), small))
        except Exception:  # printed, and the next part goes on
            failed.append(name)
            print(f"{name} failed:\n{traceback.format_exc()}", flush=True)
            continue
        print(json.dumps({"part": name, "seconds": round(time.perf_counter() - began, 1), "bars": bars},
                         indent=1), flush=True)
        made = {"commit": results.commit(), "bars": bars}
        (folder / f"gpu-{name}.json").write_text(json.dumps(made, indent=1))
    return int(bool(failed))


if __name__ == "__main__":
    if sys.argv[1] in ("work", "work-divided"):
        {"work": work, "work-divided": work_divided}[sys.argv[1]](sys.argv[2])
    else:
        sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
