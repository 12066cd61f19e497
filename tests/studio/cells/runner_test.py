"""Cells: the real source, invariants that go red when it is broken, and a runner that nothing outlives."""

import importlib
import inspect
import json
import os
from pathlib import Path

import pytest

from postgrad.studio.cells.catalogue import CELLS
from postgrad.studio.cells.runner import OUTPUT, CellsRefused, Runner, parse_result

CELL = CELLS["bradley-terry"]


@pytest.fixture(scope="module")
def runner():
    runner = Runner(wall=2.0)
    runner.warm()
    yield runner
    runner.close()


def children(pid):
    """The processes below this one, with their own children."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(child)]
    return found


@pytest.mark.parametrize("name", CELLS)
def test_the_source_is_the_functions_own(name):
    cell, module = CELLS[name], importlib.import_module(CELLS[name].module)
    for function in cell.names:
        assert inspect.getsource(getattr(module, function)).rstrip() in cell.source
    assert inspect.getsourcelines(getattr(module, cell.names[0]))[1] == cell.line
    assert len(cell.checks) >= 2 and all(sentence.endswith(".") for _, sentence in cell.checks)


@pytest.mark.parametrize("name", CELLS)
def test_the_library_keeps_its_invariants(runner, name):
    cell = CELLS[name]
    result = runner.check(cell, cell.source)
    assert list(result.checks) == [check for check, _ in cell.checks] and result.fault == ""
    assert {check: said for check, (ok, said) in result.checks.items() if not ok} == {}


@pytest.mark.parametrize(("name", "old", "new", "red"), [
    ("bradley-terry", "- rejected - margin", "- rejected", {"a_margin_asks_for_more"}),
    ("bradley-terry", "-logsigmoid", "logsigmoid",
     {"equal_rewards_cost_log_two", "probabilities_of_both_orders_sum_to_one", "the_gradient_is_the_doubt",
      "a_margin_asks_for_more"}),
    ("dpo", "beta * chosen, beta * rejected", "chosen, rejected", {"bradley_terry_of_the_implicit_reward"}),
    ("ipo", ") ** 2", ")", {"zero_at_its_target", "wider_than_the_target_costs"}),
    ("group-zscore", "std.clamp(min=FLAT)", "std", {"no_signal_from_equals"}),
    ("group-zscore", "adv / std.clamp(min=FLAT)", "adv", {"half_right", "one_of_eight", "shift_and_scale"}),
    ("leave-one-out", "adv * size / (size - 1).clamp(min=1)", "adv",
     {"one_of_three", "a_scaled_centre", "own_reward_stays_out_of_the_baseline"}),
    ("gae", "torch.where(sampled, adv, 0.0)", "adv", {"nothing_outside_the_mask"}),
    ("clip", "torch.minimum(free, held)", "held", {"clip_leaves_the_way_back_open"}),
    ("k3", "logp - ref_logp", "ref_logp - logp", {"its_mean_is_the_kl", "worked_number"}),
    ("logp", "align(logp)", "logp", {"read_one_place_earlier", "nothing_predicts_the_first"}),
    ("sequence-mean", "(mask.sum(1, keepdim=True).clamp(min=1) * _rows(mask))", "mask.sum()",
     {"every_row_counts_the_same"}),
    ("pass-at-k", "math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))", "(1 - c / n) ** k",
     {"counted_by_hand"}),
    ("token-reward", "kl_penalty(paid, now, ref, mask, beta)", "paid",
     {"each_token_pays_for_itself", "the_sum_is_the_answers"}),
    ("ppo-loss", "-torch.xlogy", "torch.xlogy", {"the_bonus_is_largest_where_nothing_is_decided"}),
    ("ppo-loss", "clip=clip)\n", "clip=float('inf'))\n", {"a_value_past_its_clip_gains_nothing"}),
    ("sharpen", "reward - beta * (p / ref).log()", "reward", {"with_a_kl_it_ends_at_the_closed_form"}),
    ("simplified", "group_centre(reward[taken], mask, group)", "reward[taken]",
     {"a_group_of_one_teaches_nothing", "a_bonus_for_everybody_changes_nothing"}),
])
def test_broken_on_purpose_the_right_ones_turn_red(runner, name, old, new, red):
    cell = CELLS[name]
    assert old in cell.source
    result = runner.check(cell, cell.source.replace(old, new))
    assert {check for check, (ok, _) in result.checks.items() if not ok} == red
    assert len(result.checks) == len(cell.checks) and result.fault == ""


@pytest.mark.parametrize(("source", "said"), [
    ("while True: pass", "stopped after 2 seconds: an endless loop?"),
    ("import os\nwhile True: os.fork()", "line 2: cells have no network, no files"),
    ("import threading\nwhile True: threading.Thread(target=input).start()",
     "line 2: RuntimeError: can't start new thread"),
    ("import subprocess; subprocess.run(['sleep', '60'])", "line 1: cells have no network, no files"),
    ("for _ in range(1000): print('x' * 10**6)", "stopped: it printed more than 64 kB"),
    ("print('x' * 2**31)", "line 1: MemoryError"),
    ("import ctypes; ctypes.string_at(0)", "the process crashed (SIGSEGV)"),
    ("import sys; sys.exit(3)", "the cell called sys.exit(3)"),
    ("import os; os._exit(4)", "the process ended by itself with status 4"),
    ("import os; print(dict(os.environ)); open('/proc/self/environ').read()",
     "line 1: cells have no network, no files"),
    ("import socket; socket.socket()", "line 1: cells have no network, no files"),
    ("open('/tmp/written', 'w')", "line 1: cells have no network, no files"),
    ("open('/etc/passwd')", "line 1: cells have no network, no files"),
    ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", "line 1: cells have no network, no files"),
    ("import os; os.write(4, b'nonsense\\n')", "the cell wrote among the answers"),
    ("def bradley_terry(", "line 1: SyntaxError: '(' was never closed"),
    ("1 / 0", "line 1: ZeroDivisionError: division by zero"),
    ("", "NameError: the cell no longer defines bradley_terry"),
], ids=lambda x: x[:30])
def test_whatever_a_cell_does_is_an_answer(runner, source, said):
    runner.check(CELL, CELL.source)  # the zygote is up
    before = children(os.getpid())
    result = runner.check(CELL, source)
    if not runner.facts["jailed"] and "no network" in said:
        pytest.skip(f"no jail on this machine: {runner.facts['tier']}")
    assert result.fault.startswith(said) and result.checks == {} and len(result.output) <= OUTPUT
    assert children(os.getpid()) == before, "something was left running"
    assert runner.check(CELL, CELL.source).fault == ""  # and the next one runs


def test_the_environment_is_empty_and_prints_come_back(runner, monkeypatch):
    monkeypatch.setenv("SECRET", "hidden")
    result = runner.check(CELL, "import os\nprint(dict(os.environ), 'ä')\n" + CELL.source)
    assert result.output == "{} ä\n" and result.fault == ""


def test_what_was_found_before_a_stop_is_kept(runner):
    late = "calls = 0\n" + CELL.source.replace("return", "global calls; calls += 1\n    while calls > 1: "
                                               "pass\n    return")
    result = runner.check(CELL, late)
    assert (result.checks == {"equal_rewards_cost_log_two": (True, "")}
            and result.fault.startswith("stopped after 2 seconds"))


def test_a_zygote_that_dies_is_replaced():
    runner = Runner()
    assert runner.check(CELL, CELL.source).fault == ""
    runner._process.kill()
    runner._process.wait()
    assert runner.check(CELL, CELL.source).fault == ""
    last = runner._process
    runner.close()
    assert last.returncode is not None


def test_root_without_a_jail_is_refused(runner, monkeypatch):
    runner.check(CELL, CELL.source)
    monkeypatch.setattr(runner, "facts", {"jailed": False, "root": True, "tier": "no Landlock"})
    with pytest.raises(CellsRefused,
                       match="root on a machine without a jail .no Landlock.. Start it as an ordinary user"):
        runner.check(CELL, CELL.source)


def test_a_book_is_no_cell(runner):
    with pytest.raises(ValueError, match="the cell is 70000 bytes long, of at most 65536"):
        runner.check(CELL, "#" * 70000)


HASH = 2**61 - 1  # multiples of it have one hash
NUMBERS = json.dumps({"s": [{"i": hex(HASH * n)} for n in range(4, 30_000)]})


@pytest.mark.parametrize("line", [
    "[" * 100_000, '{"a":' * 50_000, json.dumps({"numbers": NUMBERS}),
    json.dumps({"numbers": '{"d":[[{"s":[1]},2]]}'}), json.dumps({"numbers": 5}), '{"done": 1, "done": 2}',
    '{"plot": [[1], [NaN]]}', json.dumps({"plot": [[10**400], [1]]}),
    json.dumps({"plot": [[0.5] * 2001] * 2}),
    '{"plot": 7}', "7", "[]", '{"check": 1}', '{"verdict": {"passed": true}}', '{"verdict": []}',
    json.dumps({"verdict": {"passed": 1, "says": "", "example": "", "mistake": None, "checks": [],
                            "output": ""}}),
    json.dumps({"verdict": {"passed": True, "says": "", "example": "", "mistake": [], "checks": [],
                            "output": ""}}), "9" * 5000, "\u00e9".encode("latin-1").decode("latin-1")],
    ids=range(19))
def test_hostile_answers_of_a_cell_are_its_fault_and_take_no_time(line):
    result = parse_result(line.encode() + b"\n", "", "", 0, 0.1)
    assert result.fault.startswith("the cell wrote among the answers") and result.verdict is None


def test_no_more_is_drawn_than_a_cell_may_plot():
    lines = b'{"plot": [[1, 2], [3, 4]]}\n' * 50 + b'{"done": true}\n'
    result = parse_result(lines, "", "", 0, 0.1)
    assert result.fault == "" and result.plots == [[[1, 2], [3, 4]]] * 4
