"""Data, task files and settings that are not what they seem."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hostile.drive import Case, Place
from hostile.run_files import DEEP, NEST, endless, foldered, piped, sparse, written

SFT = ("train", "sft", "data=bad.jsonl", "steps=1", "--json", "--run", "out")
DPO = ("train", "dpo", "data=bad.jsonl", "steps=1", "--json", "--run", "out")
KTO = ("train", "kto", "data=bad.jsonl", "steps=1", "--json", "--run", "out")
EVAL = (
    "eval",
    "tiny-chat",
    "--task",
    "bad.jsonl",
    "--problems",
    "1",
    "--samples",
    "1",
    "--max-new-tokens",
    "2",
)
IMPORT = ("label", "import", "bad.jsonl", "--store", "new.db", "--labeller", "ann")
READERS = (SFT, DPO, KTO, EVAL, IMPORT)


def spoilt(change: Callable[[Path, Place], object], at: Place) -> None:
    change(at.inside, at)


def rows() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    texts = {
        "brackets": DEEP,
        "nested objects": NEST,
        "a list": "[1]",
        "a number": "1" * 5000,
        "a text": '"x"',
        "nothing": "",
        "blank lines": "\n" * 10**6,
        "bytes": b"\xff\xfe{}",
        "nul": b"\0" * 10**6,
        "half a character": '{"question": "\\ud83d", "answer": "1"}',
        "one key twice": '{"question": "a", "question": "b"}',
        "nan": '{"question": "x", "answer": NaN}',
        "a number beyond a float": '{"question": "x", "answer": 1e999, "prompt": "x", "chosen": "a", '
        '"rejected": "b", "margin": 1e999}',
        "a line of 40 MB": '{"question": "' + "x" * 40_000_000,
        "brackets in a field": '{"prompt": ' + "[" * 90_000 + "]" * 90_000 + "}",
        "fields of numbers": '{"question": 1, "answer": 2, "messages": 3, "prompt": 4, "chosen": 5, '
        '"rejected": 6, "label": 7}',
        "fields of lists": '{"question": [], "answer": [], "prompt": [[]], "chosen": [[]], '
        '"rejected": [{}], "label": []}',
        "messages of numbers": '{"messages": [1, 2]}',
        "messages of lists": '{"messages": [{"role": [], "content": {}}], "label": true}',
        "a role of objects": '{"messages": [{"role": {}, "content": "x"}], "label": {}}',
        "an id of a megabyte": json.dumps({"id": "x" * 10**6, "prompt": "a", "chosen": "b", "rejected": "c"}),
        "an id of lists": '{"id": [[1]], "question": "x", "answer": "1", "prompt": "a", '
        '"completion": "b", "label": 1}',
        "a ranking of 5,000": json.dumps(
            {"prompt": "x", "answers": [f"a{i}" for i in range(5000)], "ranking": list(range(5000))}
        ),
        "answers of 5,000": json.dumps({"prompt": "x", "answers": [f"a{i}" for i in range(5000)]}),
        "ranks of nan": '{"prompt": "x", "answers": ["a", "b"], "ranks": [1, NaN]}',
        "ranks of true": '{"prompt": "x", "answers": ["a", "b"], "ranks": [true, false]}',
        "a byte order mark inside": "{}\n\ufeff{}",
        "separators": '{"question": "a\u2028b", "answer": "1"}\u2028',
        "100,000 empty objects": "{}\n" * 100_000,
        "a csv": "question,answer\n1,2\n",
    }
    for at, (what, text) in enumerate(texts.items()):
        for turn, words in enumerate(READERS):
            if (at + turn) % 2 == 0:
                yield f"rows of {what}", partial(written, "bad.jsonl", text), words
    for kind, change in (
        ("endless", endless),
        ("a pipe", piped),
        ("a terabyte", sparse),
        ("a folder", foldered),
    ):
        for words in (SFT, EVAL, IMPORT):
            yield f"rows that are {kind}", partial(change, "bad.jsonl"), words


def packed(data: bytes, inside: Path, _) -> None:
    """As the two splits of a task that reads them."""
    for split in ("train", "test"):
        (inside / "bad").mkdir(exist_ok=True)
        (inside / "bad" / f"{split}.jsonl.gz").write_bytes(data)


def bomb(piece: bytes, times: int) -> bytes:
    """Many members of one file, each a megabyte of the piece."""
    return gzip.compress(piece * (2**20 // len(piece))) * times


def archives() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    ask = (
        "eval",
        "tiny-chat",
        "--task",
        "gsm8k:bad",
        "--problems",
        "1",
        "--samples",
        "1",
        "--max-new-tokens",
        "2",
    )
    for what, data in {
        "blank lines": bomb(b"\n", 4000),
        "zeros": bomb(b"\0", 4000),
        "spaces": bomb(b" ", 4000),
        "empty objects": bomb(b"{}\n", 4000),
        "long lines": bomb(b" " * 900_000 + b"\n", 4000),
        "rows": bomb(b'{"question": "a", "answer": "#### 1"}\n', 4000),
        "half a file": gzip.compress(b"{}\n" * 1000)[:-9],
        "no gzip": b"x" * 100,
        "nothing": b"",
        "a broken sum": gzip.compress(b"{}\n")[:-8] + b"\0" * 8,
        "a name of nul": b"\x1f\x8b\x08\x08" + b"\0" * 40,
        "empty members": gzip.compress(b"") * 200_000,
    }.items():
        yield f"a gzip of {what}", partial(packed, data), ask
    for what, data in {
        "nothing": b"",
        "text": b"PAR1" + b"x" * 100 + b"PAR1",
        "a footer of 2^31": b"PAR1\xff\xff\xff\x7fPAR1",
    }.items():
        yield f"a parquet of {what}", partial(split_into, "parquet", data), ask
    yield "a parquet of 10^8 rows", repeated, ask
    for what, data in {
        "brackets": DEEP,
        "an object": "{}",
        "numbers": "[1, 2]",
        "bytes": b"\xff",
        "nested": NEST,
    }.items():
        yield f"a .json of {what}", partial(split_into, "json", data), ask
    yield "a .json of a terabyte", partial(json_sparse), ask
    yield "a csv", partial(written, "bad.csv", "a,b\n"), ("eval", "tiny-chat", "--task", "bad.csv")
    yield (
        "a csv to imitate",
        partial(written, "bad.csv", "a,b\n"),
        ("train", "sft", "data=bad.csv", "--json", "--run", "out"),
    )


def split_into(suffix: str, data: str | bytes, inside: Path, at: Place) -> None:
    for split in ("train", "test"):
        written(f"bad/{split}.{suffix}", data, inside, at)


def json_sparse(inside: Path, at: Place) -> None:
    for split in ("train", "test"):
        sparse(f"bad/{split}.json", inside, at)


def repeated(inside: Path, _) -> None:
    """One row a hundred million times, in a few kilobytes: columns of runs over a dictionary."""
    import pyarrow as pa
    from pyarrow import parquet

    (inside / "bad").mkdir()
    kind = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("question", kind), ("answer", kind)])
    block = pa.DictionaryArray.from_arrays(pa.array([0] * 10**6, pa.int32()), pa.array(["x" * 1000]))
    table = pa.Table.from_arrays([block, block], schema=schema)
    for split in ("train", "test"):
        with parquet.ParquetWriter(inside / "bad" / f"{split}.parquet", schema, compression="zstd") as out:
            for _ in range(20):
                out.write_table(table)


# task files and settings


def settings() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    ask = (
        "eval",
        "tiny-chat",
        "--task",
        "bad.py",
        "--problems",
        "1",
        "--samples",
        "1",
        "--max-new-tokens",
        "2",
    )
    row = ("train", "bad.py", "task=words", "steps=1", "--json", "--run", "out")
    verify = "def verify(prompt, text): return 1.0\n"
    for what, text in {
        "brackets": DEEP,
        "nul": b"\0" * 100,
        "bytes": b"\xff\xfe",
        "nothing": "",
        "deep minus": "x = " + "-" * 50_000 + "1",
        "an exit": "raise SystemExit(3)",
        "a long sum": "x = " + "+".join(["1"] * 50_000),
        "a list of itself": verify + "prompts = []\nprompts.append(prompts)",
        "deep recursion": "def f(): f()\nf()",
        "prompts of lists": verify + "prompts = [[], {}]",
        "prompts of themselves": verify + "row = {}\nrow['question'] = row\nprompts = [row]",
        "a name of lists": verify + "prompts = [{'question': 'x'}]\nname = []",
        "best of nan": verify + "prompts = [{'question': 'x'}]\nbest = float('nan')",
        "best beyond a float": verify + "prompts = [{'question': 'x'}]\nbest = 10**400",
        "tokens of true": verify + "prompts = [{'question': 'x'}]\ntokens = 10**30",
        "no verify": "prompts = [{'question': 'x'}]",
        "a verify that exits": "def verify(p, t): raise SystemExit\nprompts = [{'question': 'x'}]",
    }.items():
        yield f"a task file of {what}", partial(written, "bad.py", text), ask
        if what in ("brackets", "nul", "nothing", "an exit", "deep recursion", "deep minus"):
            yield f"a row file of {what}", partial(written, "bad.py", text), row
    rlaif = ("rlaif", "tiny-chat", "--task", "words", "--constitution", "bad.toml", "--out", "out")
    for what, text in {
        "brackets": "a = " + DEEP,
        "deep names": "a" + ".a" * 50_000 + " = 1",
        "bytes": b"\xff",
        "a number": "rule = 3",
        "rules of numbers": "rule = [1]",
        "nested tables": "[" + ".".join(["a"] * 20_000) + "]",
        "a rule of lists": "[[rule]]\nname = []\nrule = {}",
        "a weight of nan": "[[rule]]\nname='a'\nrule='b'\nweight=nan",
        "dates": "rule = 1979-05-27",
        "inline tables": "a = " + "{a=" * 50_000,
    }.items():
        yield f"a constitution of {what}", partial(written, "bad.toml", text), rlaif
    for kind, change in (("endless", endless), ("a pipe", piped), ("a terabyte", sparse)):
        yield f"a constitution that is {kind}", partial(change, "bad.toml"), rlaif
        yield f"a schema that is {kind}", partial(change, "bad.json"), schema_of()
        yield f"a rubric that is {kind}", partial(change, "rubric.txt"), graded()
    for what, text in {
        "brackets": DEEP,
        "a list": "[]",
        "a reference": '{"$ref": "http://x"}',
        "bytes": b"\xff",
        "nested": NEST,
    }.items():
        yield f"a schema of {what}", partial(written, "bad.json", text), schema_of()
    yield "a rubric of bytes", partial(written, "rubric.txt", b"\xff\xfe"), graded()


def schema_of() -> tuple[str, ...]:
    return ("train", "grpo", "task=words", "reward=json(bad.json)", "steps=1", "--json", "--run", "out")


def graded() -> tuple[str, ...]:
    return (
        "train",
        "grpo",
        "task=words",
        "reward=judge:tiny-chat:rubric.txt",
        "steps=1",
        "--json",
        "--run",
        "out",
    )


def cases() -> Iterator[Case]:
    for group, name in ((rows, "data"), (archives, "data"), (settings, "settings")):
        for what, change, words in group():
            yield Case(f"{name}: {what} ({words[0]} {words[1]})", partial(spoilt, change), words)
