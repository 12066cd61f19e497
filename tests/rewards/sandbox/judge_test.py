"""The sandbox: values over a pipe, suites of tests, what is paid and what is not."""

import importlib
import os
import signal
import subprocess
import sys

import pytest
from hostile.arena import CHEAT_SUITE, HONEST, family, left_running

from postgrad.records import Prompt, Verdict
from postgrad.rewards import check_verifier
from postgrad.rewards.code import extract_code, humaneval, mbpp, passes_tests, suite_from_tests, whole_program
from postgrad.rewards.sandbox import Call, CodeJob, CodeJudge, Suite, tier
from postgrad.rewards.sandbox.codec import DEPTH, LONGEST, NotPlain, decode, encode
from postgrad.rewards.sandbox.judge import play_job
from postgrad.rewards.sandbox.worker import JailWorker

selftest = importlib.import_module("postgrad.rewards.sandbox.selftest")
jailed = pytest.mark.skipif(tier() is None, reason=f"this machine builds no jail: {selftest._proof()[1]}")


@pytest.fixture(scope="module")
def judge():
    with CodeJudge(workers=2, seconds=20.0) as made:
        yield made


def kinds(judge, sources, suite):
    jobs = [CodeJob(source=source, suite=suite) for source in sources]
    return [outcome.kind for outcome in judge.outcomes(jobs)]


# the codec

@pytest.mark.parametrize(("value", "data"), [
    ((1, {2}), b'{"t":[1,{"s":[2]}]}'), ({(1,): None}, b'{"d":[[{"t":[1]},null]]}'), ("\ud800", b'"\\ud800"'),
    (1 << 64, b'{"i":"0x10000000000000000"}'), (2 + 3j, b'{"c":[2.0,3.0]}'), (b"\x00", b'{"b":"00"}'),
    (-0.1, b"-0.1"),
])
def test_values_as_bytes_by_hand(value, data):
    assert encode(value) == data
    assert decode(data) == value and type(decode(data)) is type(value)


def test_what_arrives_has_exactly_the_plain_types():
    class Liar(int):
        def __eq__(self, other):
            return True
        __hash__ = int.__hash__

    got = decode(encode([Liar(3), True, 1, 1.0, frozenset({2})]))
    assert [type(x) for x in got] == [int, bool, int, float, frozenset]
    assert got[0] != 4


@pytest.mark.parametrize("data", [
    b"", b"{}", b"[", b'{"x":1}', b'{"t":1}', b'{"t":[],"s":[]}', b'{"s":[[1]]}', b'{"d":[[1]]}',
    b'{"d":[[[1],2]]}', b'{"c":["1",2]}', b'{"i":1}', b'{"i":"zz"}', b'{"b":"0"}', b"[" * 100_000,
    b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1), b"1" * 5000, b"\xff", b" " * (LONGEST + 1),
], ids=lambda data: repr(data[:12]))
def test_bytes_that_are_no_value(data):
    with pytest.raises(NotPlain):
        decode(data)


@pytest.mark.parametrize("value", [object(), int, print, range(3), iter([]), [open], "x" * LONGEST])
def test_values_that_cannot_cross(value):
    with pytest.raises(NotPlain):
        encode(value)


# suites

def test_names_that_the_tests_call():
    assert suite_from_tests("assert f(2) == 4").names == {"f": "f"}
    assert suite_from_tests("assert set(f(2)) == set([4])").names == {"f": "f"}
    assert suite_from_tests("assert sum(10, 15) == 6").names == {"sum": "sum"}
    close = suite_from_tests("assert math.isclose(area(1), 3.14, rel_tol=0.01)")
    assert close.names == {"area": "area"} and close.setup.startswith("import math")
    truth = suite_from_tests("assert not f(2)")
    assert truth.tests == "assert not f_is_true(2)" and truth.names["f_is_true"] == "bool f"
    two = suite_from_tests("x = g(3)\nassert f(x) == [y for y in x]", names=("f", "g"))
    assert two.names == {"f": "f", "g": "g"} and two.unsupported is None
    with pytest.raises(ValueError, match="nothing that a candidate could define"):
        suite_from_tests("assert True")


def test_a_name_that_the_tests_do_not_define_is_not_the_candidates():
    close = "assert isclose(area(1), 3.14)"
    assert "isclose" in suite_from_tests(close).unsupported and suite_from_tests(close).names == {}
    defined = suite_from_tests(close, reference="def area(x):\n    return 3.14 * x")
    assert defined.names == {"area": "area"} and "isclose" in defined.unsupported
    imported = suite_from_tests(close,
                                reference="from math import isclose, pi\ndef area(x):\n    return pi * x")
    assert imported.names == {"area": "area"} and imported.unsupported is None
    assert imported.setup.strip() == "from math import isclose"
    own = suite_from_tests(close, reference="def isclose(a, b): return True\ndef area(x): return 3")
    assert set(own.names) >= {"area"} and own.unsupported is None  # the task asks for both
    row = {"prompt": "def f(x):\n", "entry_point": "f", "test": "def check(g): assert isclose(g(1), 1)\n"}
    assert "isclose" in humaneval(row).unsupported


@jailed
def test_a_candidate_that_defines_what_the_tests_forgot_is_not_paid(judge):
    cheat = "def isclose(*a): return True\ndef area(x): return 0"
    tests = "assert isclose(area(1), 3.14)"
    assert kinds(judge, [cheat], suite_from_tests(tests)) == ["infrastructure"]
    reference = "from math import isclose\ndef area(x): return 3.14 * x"
    assert kinds(judge, [cheat, reference], suite_from_tests(tests, reference=reference)) == ["fail", "pass"]


class Scripted:
    """A channel that says what it is told to, notes who was written to, and is silent until the limit."""

    def __init__(self, name, notes, *answers):
        self.name, self.notes, self.answers = name, notes, iter(answers)

    def send(self, tag, body, deadline):
        self.notes.append(self.name)

    def receive(self, deadline):
        for answer in self.answers:
            return answer
        raise TimeoutError


@pytest.mark.parametrize(("candidate", "tester", "kind"), [
    ((), ((b"C", b"1"),), "timeout"),                                 # it loads until the limit
    (((b"L", b""),), ((b"C", b"1"),), "timeout"),                     # or answers too late
    (((b"L", b""), (b"V", b"4")), ((b"C", b"1"),), "timeout"),        # or leaves the tests no time
    ((), (), "infrastructure"), (((b"L", b""),), (), "infrastructure")])  # tests that never come to call it
def test_loading_until_the_limit_is_the_candidates_fault(candidate, tester, kind):
    notes, suite = [], Suite(tests="assert f(2) == 4", names={"f": "f"})
    channels = Scripted("candidate", notes, *candidate), Scripted("tester", notes, *tester)
    assert play_job(*channels, CodeJob(source="", suite=suite), 1.0).kind == kind
    assert notes[0] == "tester" and ("candidate" in notes) == (kind == "timeout")


@jailed
def test_a_source_that_never_ends_is_a_timeout():
    tests = ("assert f(2) == 4", "while True: pass\nassert f(2) == 4")
    suites = [Suite(tests=text, names={"f": "f"}) for text in tests]
    with CodeJudge(workers=1, seconds=0.3) as judge:
        said = [kinds(judge, ["while True: pass"], suite)[0] for suite in suites]
    assert said == ["timeout", "infrastructure"]  # the second never comes to call it


IMPORTS = """
import importlib, sys
def f(names):
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as error:
            missing.append(f"{name}: {error}")
    return missing
"""


@jailed
def test_what_imports_outside_imports_in_the_jail():
    """Every module of the standard library that this Python has, those that are linked with libraries too."""
    said = ("antigravity", "this", "idlelib", "turtledemo")  # which open a browser, print or need a screen
    names = sorted(name for name in sys.stdlib_module_names if name not in said)
    code = f"{IMPORTS}\nprint(*[said.partition(':')[0] for said in f({names!r})])"
    command = [getattr(sys, "_base_executable", sys.executable), "-s", "-S", "-c", code]
    outside = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    here = [name for name in names if name not in outside]
    assert {"base64", "zlib", "secrets", "hashlib", "zipfile"} <= set(here)
    with CodeJudge(workers=1, seconds=60.0, memory=2 << 30) as judge:
        assert judge.answers([Call(source=IMPORTS, name="f", args=(here,))])[0].value == []
        code = "import base64, zlib, secrets\ndef f(x): return base64.b64encode(zlib.compress(x))[:1]"
        assert kinds(judge, [code], suite_from_tests("assert f(b'a') == b'e'")) == ["pass"]


@pytest.mark.parametrize(("tests", "why"), [
    ("root = Node(1)\nassert height(root) == 1", "class Node"),
    ("try:\n    f(1)\nexcept ValueError:\n    x = 1", "exceptions do not cross"),
])
def test_tests_that_cannot_be_put_over_a_pipe_say_so(tests, why):
    assert why in suite_from_tests(tests).unsupported


def test_code_of_a_reply():
    assert extract_code("Sure:\n```python\na = 1\n```\nor\n```\na = 2\n```\n") == "a = 2\n"
    assert extract_code("a = 3") == "a = 3"
    assert extract_code("```python\nnever closed") == "```python\nnever closed"


def test_a_humaneval_completion_continues_or_defines_anew():
    row = {"prompt": "import math\n\ndef f(x):\n", "entry_point": "f"}
    assert whole_program(row, "    return x\n") == "import math\n\ndef f(x):\n    return x\n"
    anew = "def f(x):\n    return 1\n"
    assert whole_program(row, f"```python\n{anew}```") == f"import math\n\ndef f(x):\n\n\n{anew}"


# the judge

@jailed
def test_mbpp_and_humaneval_rows(judge):
    row = {"test_list": ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'"], "test_setup_code": ""}
    assert (kinds(judge, ["def add(a, b): return a + b", "def add(a, b): return 3"], mbpp(row))
            == ["pass", "fail"])
    row = {"prompt": 'def helper(x):\n    return x + 1\n\ndef f(x):\n    """twice"""\n', "entry_point": "f",
           "test": "def check(candidate):\n    for i in range(3):\n"
                   "        assert candidate(helper(i)) == 2 * i + 2\n"}
    verify = passes_tests(humaneval(row), judge, lambda text: whole_program(row, text))
    assert verify("    return 2 * x\n") == Verdict(score=1.0, reason="pass")
    assert verify("    return 2\n").reason == "fail: assert candidate(helper(i)) == 2 * i + 2"
    assert verify("") == verify("  ") != verify("    return 2 * x\n")


@jailed
def test_the_verifier_proves_itself_on_gold(judge):
    verify = passes_tests(suite_from_tests("assert f(2) == 4\nassert f('a') == 'aa'"), judge)
    prompt = Prompt.ask("Write f, which doubles.")
    assert check_verifier(lambda _, text: verify(text),
                          [(prompt, "```python\ndef f(x):\n    return x + x\n```")]) == 1
    with pytest.raises(ValueError, match="fail: assert f\\('a'\\) == 'aa'"):
        check_verifier(lambda _, text: verify(text), [(prompt, "def f(x): return 4")])


@jailed
def test_order_is_kept_and_judging_again_says_the_same(judge):
    sources = [f"def f(x): return {n % 3} if x == 2 else {{'b', 'a', 'c'}}.pop()" for n in range(12)]
    tests = Suite(tests="assert f(2) == 1", names={"f": "f"})
    first = kinds(judge, sources, tests)
    assert first == ["pass" if n % 3 == 1 else "fail" for n in range(12)] == kinds(judge, sources, tests)
    strings = CodeJob(source="def f(x): raise ValueError(list({'b', 'a', 'c', 'd'}))",
                      suite=suite_from_tests("assert f(1) == []"))
    once, *again = judge.outcomes([strings] * 4)
    assert "raised ValueError" in once.reason and again == [once] * 3


@jailed
def test_faults_that_are_not_the_candidates_are_infrastructure(judge):
    tried = judge.retried
    suites = [Suite(tests="assert 1", names={}), Suite(tests="assert nothing_such(1)", names={}),
              Suite(tests="1 +", names={}), Suite(tests="assert f(int) == 1", names={"f": "f"}),
              suite_from_tests("assert height(Node(1)) == 1"),
              Suite(tests="assert f(1) == 1\nassert f(int) == 1", names={"f": "f"})]
    verdicts = judge.verdicts([CodeJob(source="def f(x): return 1", suite=suite) for suite in suites])
    assert [bool(verdict.error) for verdict in verdicts] == [True] * 6
    assert judge.retried == tried + 5  # an unsupported suite is not tried at all


@jailed
def test_a_dead_zygote_is_replaced_and_the_job_judged():
    with CodeJudge(workers=1) as judge:
        before = family()
        assert kinds(judge, [HONEST], CHEAT_SUITE) == ["pass"]
        (zygote,) = left_running(before)
        os.kill(zygote, signal.SIGKILL)
        assert kinds(judge, [HONEST], CHEAT_SUITE) == ["pass"] and judge.retried == 1
    assert left_running(before) == set()


@jailed
def test_a_scorer_runs_in_the_jail_on_text_that_attacks_it(tmp_path):
    scorer = "def score(text, gold): return float(eval(text) == gold)"  # as some published scorers do
    write = f"open({str(tmp_path / 'x')!r}, 'w').write('12345')"
    attacks = [f"5 if __import__('os').system('touch {tmp_path}/x') == 0 else 0", write, "9 ** 9 ** 9 ** 9",
               "1 +"]
    with CodeJudge(seconds=1.0) as judge:
        made = judge.answers([Call(source=scorer, name="score", args=(text, 5))
                              for text in ["2 + 3", "6", *attacks]])
    assert [outcome.value for outcome in made[:2]] == [1.0, 0.0]
    assert [outcome.kind for outcome in made[:2]] == ["pass"] * 2
    assert ([outcome.value in (None, 0.0) for outcome in made[2:]] == [True] * 4
            and list(tmp_path.iterdir()) == [])
    assert made[4].kind == "timeout" and "SyntaxError" in made[5].reason


@jailed
def test_a_scorer_may_import_the_packages_that_are_named():
    source = "import mpmath\ndef score(text): return str(mpmath.sqrt(int(text)))[:5]"
    with CodeJudge(packages=["mpmath"], memory=1 << 30) as judge:
        assert judge.answers([Call(source=source, name="score", args=("2",))])[0].value == "1.414"
    with CodeJudge() as judge:
        (said,) = judge.answers([Call(source=source, name="score", args=("2",))])
    assert said.kind == "infrastructure" and "mpmath" in said.reason


@jailed
def test_a_call_has_one_child_and_a_job_two(monkeypatch):
    seen, fork = [], JailWorker.fork

    def counted(worker, count):
        channels = fork(worker, count)
        seen.append(len(left_running(before)) - 1)  # less the zygote
        return channels

    monkeypatch.setattr(JailWorker, "fork", counted)
    with CodeJudge(workers=1) as judge:
        before = family()
        assert judge.answers([Call(source="def f(x): return 2 * x", name="f", args=(3,))])[0].value == 6
        assert (kinds(judge, [HONEST], CHEAT_SUITE) == ["pass"] and seen == [1, 2]
                and len(left_running(before)) == 1)
    assert left_running(before) == set()
