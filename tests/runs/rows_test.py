"""The rows of a run: cut back, torn, read by cursor or by step, strict JSON."""

from __future__ import annotations

import json
import math
import random

import pytest
from run_small import logged, make, put

from postgrad.runs import LOGS, Run, dumps, json_value, number, rows


def test_a_rewind_keeps_exactly_the_rows_up_to_the_step(tmp_path):
    run = make(tmp_path / "run")
    run.event("process", "no step: stays")
    run.log_eval(0, {"pass@1": 0.1})
    for step in range(1, 6):
        run.log(step, {"loss": 0.1 * step})
        run.log_samples(step, [{"id": "a", "text": "x\u2028é"}, {"id": "b", "text": "nan"}])
        run.log_eval(step, {"pass@1": 0.2})
        run.event("skipped", "s", step=step)
        run.save(step, put("x"), keep=9)
    before = {name: (run.folder / f"{name}.jsonl").read_bytes().splitlines(keepends=True) for name in LOGS}
    for name in LOGS:  # a kill tore the next row
        with open(run.folder / f"{name}.jsonl", "ab") as file:
            file.write(b'{"step": 2, "lo')
    lost = run.rewind(3)
    assert lost == {"metrics": 3, "evals": 3, "samples": 5, "events": 3}
    after = {name: (run.folder / f"{name}.jsonl").read_bytes().splitlines(keepends=True) for name in LOGS}
    assert after == {"metrics": before["metrics"][:3], "evals": before["evals"][:4],
                     "samples": before["samples"][:6], "events": before["events"][:4]}
    assert run.next_step == 4 and list(run.checkpoints()) == [1, 2, 3]
    run.log(4, {"loss": 9.0})
    assert run.curve("loss") == ([1, 2, 3, 4], [0.1, 0.2, 0.1 * 3, 9.0])
    assert run.rewind(-1)["evals"] == 4 and run.rows("evals")[0] == [] and run.next_step == 1
    assert [row["text"] for row in run.rows("events")[0]] == ["no step: stays"]


@pytest.mark.parametrize("rows", [[1, 2, 2, 3], [1, 3], [2, 3], [1, 2], [1, 3, 2]])
def test_a_rewind_refuses_metrics_with_holes_or_repeats(tmp_path, rows):
    run = make(tmp_path / "run")
    text = "".join(f'{{"step": {s}}}\n' for s in rows)
    (run.folder / "metrics.jsonl").write_text(text)
    with pytest.raises(ValueError, match="each step from 1 to 3 once"):
        run.rewind(3)
    assert (run.folder / "metrics.jsonl").read_text() == text


@pytest.mark.parametrize("tail", [b"{", b'{"step": 3, "loss": 0.', b'{"step": 3, "loss": 0.5}',
                                  b"\x00" * 70000, b"\xff\xfe{"])
def test_a_torn_tail_is_not_read_and_not_written_onto(tmp_path, tail):
    run = logged(make(tmp_path / "run"), 2)
    run.close()
    with open(run.folder / "metrics.jsonl", "ab") as file:
        file.write(tail)
    run = Run.open(run.folder)
    rows, cursor = run.rows("metrics")
    assert [row["step"] for row in rows] == [1, 2] and run.next_step == 3
    assert cursor == (run.folder / "metrics.jsonl").stat().st_size - len(tail)
    run.log(3, {"loss": 7.0})
    assert run.rows("metrics", after=cursor)[0] == [{"step": 3, "loss": 7.0}]


def test_rows_come_by_cursor_each_once(tmp_path):
    run, reader = make(tmp_path / "run"), Run.open(tmp_path / "run")
    seen, cursor = [], 0
    for step in range(1, 8):
        run.log(step, {"loss": step})
        if step % 3 == 0:
            rows, cursor = reader.rows("metrics", after=cursor)
            seen += [row["step"] for row in rows]
    assert seen == [1, 2, 3, 4, 5, 6]
    assert reader.rows("metrics", after=cursor)[0] == [{"step": 7, "loss": 7}]
    end = reader.rows("metrics")[1]
    assert reader.rows("metrics", after=end) == ([], end)
    run.rewind(2)
    rows, cursor = reader.rows("metrics", after=end)
    assert [row["step"] for row in rows] == [1, 2], "behind a rewind the reader begins again"
    assert reader.rows("metrics", after=cursor + 1000)[1] == cursor


def test_damaged_lines_are_left_out_and_their_neighbours_stay(monkeypatch):
    lines = [b'{"step": 1}', b'{"step": 2, "x": 0.', b'{"step": 3}', b'7', b'{"x": 1}', b'{"step": -1}',
             b'{"step": 4}, {"step": 5}', b'{"step": 6', b'"x": 1}', b"\xff", b'{"step": 7, "x": NaN}']
    logs = (lines, lines[6:9], lines[:1])
    whole = [[row for line in some if (row := rows.parse_row(line))] for some in logs]
    assert [row["step"] for row in whole[0]] == [1, 3, 7]
    for together in (1, 2, 3, 500):
        monkeypatch.setattr(rows, "TOGETHER", together)
        found = [rows.parse_rows(some) for some in logs]
        assert str(found) == str(whole)


def test_one_step_of_a_log_is_what_reading_all_of_it_finds(tmp_path):
    run, rng = make(tmp_path / "run"), random.Random(0)
    assert run.at("samples", 3) == ([], None, None)
    texts = [{"text": "x" * rng.choice([0, 3, 70, 9000]), "n": n} for n in range(120)]
    steps = sorted(rng.randrange(5, 90) for _ in texts)
    for step, row in zip(steps, texts, strict=True):
        run.log_samples(step, [row])
    with open(run.folder / "samples.jsonl", "ab") as file:
        file.write(b'{"step": 99, "te')  # a torn line is not there yet
    every, _ = run.rows("samples")
    known = sorted(set(steps))
    for step in range(95):
        found = max((s for s in known if s <= step), default=known[0])
        before, after = [s for s in known if s < found], [s for s in known if s > found]
        wanted = ([r for r in every if r["step"] == found], max(before, default=None),
                  min(after, default=None))
        assert run.at("samples", step) == wanted


def test_one_step_of_a_long_log_is_found_without_reading_it(tmp_path, monkeypatch):
    run = make(tmp_path / "run")
    run.log_samples(1, [{"text": "a" * 500}])
    path = run.folder / "samples.jsonl"
    line = path.read_bytes()
    path.write_bytes(b"".join(line.replace(b'"step": 1', b'"step": %d' % s) for s in range(1, 20_001)))
    seen = []
    monkeypatch.setattr("postgrad.runs.rows.first_line",
                        lambda *a, real=rows.first_line: seen.append(a) or real(*a))
    (row,), before, after = run.at("samples", 12_345)
    assert (row["step"], before, after) == (12_345, 12_344, 12_346)
    assert len(seen) < 150  # three searches by halving ten megabytes, and a few lines each


def test_not_finite_numbers_stay_strict_json_and_readable(tmp_path):
    run = make(tmp_path / "run")
    values = [math.nan, math.inf, -math.inf, 0.1 + 0.2, -0.0]
    for step, value in enumerate(values, 1):
        run.log(step, {"loss": value})
    lines = (run.folder / "metrics.jsonl").read_text().splitlines()

    def never(name):
        raise AssertionError(name)

    assert ([json.loads(line, parse_constant=never)["loss"] for line in lines]
            == ["nan", "inf", "-inf", 0.1 + 0.2, -0.0])
    got = run.curve("loss")[1]
    assert math.isnan(got[0]) and got[1:] == values[1:]
    assert run.summary()["series"] == [0.1 + 0.2, -0.0]
    assert math.isnan(number(None)) and math.isnan(number("word"))


def test_what_is_no_json_is_refused_before_anything_is_written(tmp_path):
    run = make(tmp_path / "run")
    with pytest.raises(ValueError, match="function"):
        run.log(1, {"loss": lambda: 0})
    with pytest.raises(AssertionError, match="step 2 came where step 1"):
        run.log(2, {})
    with pytest.raises(AssertionError, match="logged as step 1"):
        run.log(1, {"step": 5})
    with pytest.raises(AssertionError, match="where step 1 is next"):
        run.save(4, put("x"))
    assert run.rows("metrics") == ([], 0)
    numpy = pytest.importorskip("numpy")
    assert (json_value({"a": numpy.float32(0.5), 3: (numpy.array([1.0, math.inf]), {2})})
            == {"a": 0.5, "3": [[1.0, "inf"], [2]]})
    assert dumps({"text": "\ud800\n"}) == '{"text": "\\ud800\\n"}', (
        "a lone surrogate from a model can be written")


@pytest.mark.parametrize("name", ["metrics", "evals", "samples"])
def test_a_flipped_bit_of_a_log_is_said_when_the_run_goes_on(tmp_path, name):
    """Each bit of the rows up to the checkpoint; the rows behind it are dropped by the resume."""
    run = make(tmp_path / "run")
    for step in (1, 2, 3):
        logged(run, step)
        run.log_samples(step, [{"id": "a", "text": f"text {step}"}])
        run.log_eval(step, {"pass@1": 0.5})
        if step == 2:
            run.save(2, put("two"))
    run.close()
    path = run.folder / f"{name}.jsonl"
    raw = path.read_bytes()
    rows = [line for line in raw.splitlines(keepends=True) if json.loads(line)["step"] <= 2]
    size = sum(map(len, rows))
    for bit in range(0, 8 * size, 97):
        bad = bytearray(raw)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        again = Run.open(run.folder)
        assert again.newest().name == "000002"
        (sentence,) = again.changed_logs
        assert f"{name}.jsonl has other contents" in sentence
        assert again.rows("events")[0][-1]["text"] == sentence
        again.close()
    path.write_bytes(raw)
    again = Run.open(run.folder)
    assert again.resume().name == "000002" and again.changed_logs == []
    assert {row["step"] for row in again.rows(name)[0]} == {1, 2}
