"""A list on disk is the list: its items, its slices, and a training on it, resumed too."""

import random

import pytest

import postgrad
from postgrad.runs import Run
from postgrad.system import disk_list
from postgrad.system.disk_list import DiskList, select


def test_a_list_on_disk_is_the_list(monkeypatch):
    monkeypatch.setattr(disk_list, "IN_MEMORY", 3)
    items = [{"n": n, "text": "x" * random.Random(n).randrange(200)} for n in range(50)]
    kept = DiskList(items[:2])
    assert kept.as_list() == items[:2] and kept.file is None
    for item in items[2:]:
        kept.append(item)
    assert kept.as_list() is kept and len(kept) == 50 and list(kept) == items
    assert kept[-1] == items[-1] and kept[40:3:-7] == items[40:3:-7]
    kept.append({"n": 50})
    assert kept[50] == {"n": 50} and kept[49] == items[49]
    with pytest.raises(IndexError):
        kept[51]
    some = select(kept, [7, 2, 40])
    assert list(some) == [items[7], items[2], items[40]] and some[::2] == [items[7], items[40]]
    assert select(items, [7]) == [items[7]]


SFT = [{"messages": [{"role": "user", "content": f"What is {n}+{n}?"},
                     {"role": "assistant", "content": f"{2 * n}"}]} for n in range(40)]
DPO = [{"prompt": f"What is {n}+{n}?", "chosen": f"{2 * n}", "rejected": "No."} for n in range(40)]


@pytest.mark.parametrize(("method", "rows"), [("sft", SFT), ("dpo", DPO)])
def test_a_stream_larger_than_memory_is_trained_to_the_same_bits(method, rows, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    small = {"rows_per_step": 4} if method == "sft" else {"pairs": {"per_step": 4}}
    small |= {"steps": 4, "save_every": 2, "display": False}
    whole = postgrad.fit("tiny-chat", method, data=rows, run=tmp_path / "list", **small)
    monkeypatch.setattr(disk_list, "IN_MEMORY", 5)
    stream = datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=2)
    streamed = postgrad.fit("tiny-chat", method, data=stream, run=tmp_path / "stream", **small)
    halved = postgrad.fit("tiny-chat", method, data=(row for row in rows), run=tmp_path / "half",
                          **{**small, "steps": 2}, optim={"schedule": "constant"})
    with pytest.raises(ValueError, match="data"):
        postgrad.resume(halved.folder, steps=4, data=rows[:-1], display=False)
    losses = [[row["loss"] for row in Run.open(run.folder).rows("metrics")[0]] for run in (whole, streamed)]
    assert losses[0] == losses[1] and len(losses[0]) == 4
    resumed = postgrad.resume(halved.folder, steps=4, data=stream, display=False)
    constant = postgrad.fit("tiny-chat", method, data=rows, run=tmp_path / "constant", **small,
                            optim={"schedule": "constant"})
    assert ([row["loss"] for row in Run.open(resumed.folder).rows("metrics")[0]]
            == [row["loss"] for row in Run.open(constant.folder).rows("metrics")[0]])


@pytest.mark.parametrize(("method", "rows"), [("sft", SFT), ("dpo", DPO)])
def test_splits_of_a_table_are_trained_and_evaluated(method, rows, tmp_path):
    datasets = pytest.importorskip("datasets")
    table = datasets.DatasetDict(train=datasets.Dataset.from_list(rows[:30]),
                                 test=datasets.Dataset.from_list(rows[30:]))
    small = {"steps": 1, "save_every": 1, "display": False, "evaluation": {"every": 1}}
    run = postgrad.fit("tiny-chat", method, data=table, run=tmp_path / "run", **small)
    counts = run.info["data"]
    assert (counts["rows"], counts["evaluated"], counts["leaked"]) == (30, 10, 0)
    again = postgrad.fit("tiny-chat", method, data=rows[:30], eval_data=rows[30:], run=tmp_path / "two",
                         **small)
    assert again.evaluations()[-1]["loss"] == run.evaluations()[-1]["loss"]
    assert postgrad.resume(run.folder, steps=2, data=table, display=False).rows("metrics")[0]
    with pytest.raises(ValueError, match="data has a split to evaluate, and eval_data is given too"):
        postgrad.fit("tiny-chat", method, data=table, eval_data=rows, run=tmp_path / "three", **small)
