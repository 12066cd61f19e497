"""What a rank takes of memory where a model is divided among several, measured: the part memory of
proofs/scale.py, minutes on one core."""

from __future__ import annotations

import ctypes
import json
import resource
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / name) for name in ("", "tests/support", "proofs", "tools")]

from ranks_launch import carry_out  # noqa: E402
from results import bar  # noqa: E402
from torchrun import torchrun  # noqa: E402

PR_SET_THP_DISABLE = 41  # of prctl


def weigh(path: str) -> None:
    """A training in this rank, and how much memory it took at most above what importing takes: before the
    checkpoint is written, and with it."""
    from postgrad.recipes import hooks
    from postgrad.system import processes
    peaks, saved_after = [], hooks.saved_after

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def watched(*args) -> bool:
        peaks.append(peak())
        return saved_after(*args)

    import torch._dynamo
    import torch.distributed.fsdp  # noqa: F401
    if path.endswith("-4k.json"):
        ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    hooks.saved_after = watched
    processes.join()
    before = peak()
    carry_out(json.loads(Path(path).read_text()))
    Path(f"{path}.{processes.rank()}").write_text(json.dumps([peaks[-1] - before, peak() - before]))


def memory(folder: Path) -> list[dict]:
    """The peak of a rank where the model is divided between two, against one process."""
    import torch
    from small import CHAT

    from postgrad.models import Config, Decoder, save_model
    model = Decoder(Config(vocab_size=1024, hidden_size=1024, intermediate_size=2816, num_hidden_layers=24,
                           num_attention_heads=16, num_key_value_heads=16, head_dim=64,
                           max_position_embeddings=256, tie_word_embeddings=True))
    count = sum(p.numel() for p in model.start(torch.Generator().manual_seed(0)).parameters())
    (home := folder / "model").mkdir()
    save_model(model, home)
    CHAT.save(home)
    found = {}
    for world, shard, pages in ((1, "false", "4k"), (2, "true", "4k"), (1, "false", "2m"), (2, "true", "2m")):
        path = folder / f"job-{world}-{pages}.json"
        path.write_text(json.dumps({"train": "sft:words", "run": str(path.with_suffix("")), "changes": [
            f"model={home}", "steps=2", "rows_per_step=4", "examples=64", "lora=0", f"shard={shard}",
            "tokens_per_pass=64", "save_every=9"]}))
        process = torchrun(__file__, str(path), world=world)
        _, said = process.communicate()
        assert process.returncode == 0, said
        peaks = [json.loads(Path(f"{path}.{rank}").read_text()) for rank in range(world)]
        found[world, pages] = [max(peak) / 1e9 for peak in zip(*peaks, strict=True)]

    def compared(pages: str, what: int) -> str:
        one, two = found[1, pages][what], found[2, pages][what]
        return f"{two / one:.2f}: {two:.2f} of {one:.2f} GB"

    named = f"{count / 1e6:.0f}M parameters divided between two (sft)"
    target, command = "at most 0.6 of one process, above what importing takes", \
        "python proofs/scale.py FOLDER memory"
    return [bar(f"peak memory of a rank, {named}, its checkpoint written", target, compared("2m", 1),
                found[2, "2m"][1] <= 0.6 * found[1, "2m"][1], command),
            bar("the same, before a checkpoint is written", target, f"{compared('2m', 0)}; in pages of 4 kB, "
                f"which tensors fill, {compared('4k', 0)}", found[2, "2m"][0] <= 0.6 * found[1, "2m"][0],
                command)]


PARTS = {"memory": memory}


if __name__ == "__main__":
    weigh(sys.argv[1])
