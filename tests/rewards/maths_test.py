"""Verifiers by name: what each pays by hand, maths against math-verify itself, sums, and what is refused."""

import importlib.util
import json
import math
import re
import subprocess
import sys

import pytest
from paths import ROOT
from small import CHAT

from postgrad.cli import main
from postgrad.data.tasks import load_task
from postgrad.evaluation import evaluate_task
from postgrad.recipes.base import check_task
from postgrad.records import Prompt
from postgrad.rewards import maths, schema, text
from postgrad.rewards.base import check_verifier
from postgrad.rewards.format import boxed, find_boxed, find_marked
from postgrad.rewards.named import NAMED, read_spec
from postgrad.rewards.sandbox import judge
from postgrad.rewards.unequal import estimate_value
from postgrad.sampling import Sampling, ScriptedSampler

ASK = Prompt.ask("?", "72")


@pytest.mark.parametrize(("reply", "answer"), [
    ("<think>1</think><answer> 5 </answer>", "5"), (r"so \boxed{\frac{1}{2}} it is", r"\frac{1}{2}"),
    ("a\n#### 5\nbye", "5"), ("The answer is 5. I hope so.", "5"), ("Answer: 5", "5"),
    (r"The answer is \boxed{7}.", "7"), ("7 or 8", None), (r"\boxed{1} no, \boxed{2}", "2"),
    (r"\boxed{1", None), ("<answer>1", None), (r"\boxed{\{1\}}", r"\{1\}"), ("", None),
    (r"<answer>the answer is \boxed{3}</answer>", "3"), ("the ANSWER IS: 3</answer>", "3"),
    (r"\boxed{1} #### 2", "2")])
def test_the_answer_that_a_reply_marks(reply, answer):
    assert find_marked(reply) == answer


def test_one_box():
    replies = (r"\boxed{1}", "1", r"\boxed{1}\boxed{1}", r"\boxed{ }", r"\boxed{1")
    assert [boxed(reply).score for reply in replies] == [1, 0, 0, 0, 0]
    assert find_boxed(r"\boxed{a{b}c}") == "a{b}c"


@pytest.mark.parametrize(("gold", "answer", "equal"), [  # settled here: no jail is asked
    ("1/2", "0.5", 1), (r"\frac{1}{2}", ".5", 1), (r"\dfrac12", "50%", 1), ("1/3", "0.333", 0),
    ("1/3", "0.3333333333333333", 0),
    ("50%", "50", 1), (r"50\%", "0.5", 1), ("50", "50%", 0), ("1,000", "$1000$", 1), (r"\$5", "5.", 1),
    ("14", "1 4", 0), ("5", "6", 0),
    ("1234", "1, 234", 0), (r"\text{East}", "east", 1), (r"\text{East}", "west", 0),
    (r"2\sqrt{3}", r"3\sqrt{2}", 0), (r"\pi", "3.14159265", 0), (r"\pi", "22/7", 0), ("x^2-1", "(x-1)^2", 0),
    ("(1,2)", r"\{1,2\}", 0), ("[1,2)", "[1,2]", 0), ("(1,2)", "3", 0), ("x=3", "4", 0), ("5", "x < 5", 0),
    ("5", "9^{9^{9^9}}", 0), ("5", "9^{999*999}", 0), ("5", "(9!)!", 0), ("5", "__import__('os')", 0),
    ("5", "\u0665", 0), ("5", "5\x00", 1), ("5", "(" * 99 + "5" + ")" * 99, 0), ("5", "5" * 100_000, 0),
    ("5", r"\write18{5}", 0), (r"2\sqrt{3}", r"(\log_{2}(\infty))^{2}", 0), ("5", "2e9", 0), ("5", "", 0),
    ("x=3", "x=2", 0), ("x=3", "y=3", 0), ("x=3", "1=1", 0), ("5", "0=5", 0), ("50%", "(2=0.5)", 0),
    ("x", "7=x", 0), ("50%", "0.5%", 0), (r"2\sqrt{3}", r"\log_{2}(10^{999})", 0), ("(1,2)", "7!", 0),
    ("5", r"5-[0,1)", 0), ("1", "100^{y}^{-0}", 0)])
def test_cheap_comparison_by_hand(gold, answer, equal, monkeypatch):
    maths.check_golds([gold])
    monkeypatch.setattr(maths.JAIL, "each", lambda calls: pytest.fail(f"the jail was asked for {calls}"))
    maths.compare_answers.cache_clear()
    assert maths.compare_answers(gold, answer).score == equal


EQUAL = [(r"\sqrt{8}", r"2\sqrt{2}"), (r"\{1,2\}", r"\{2,1\}"), ("x=3", "3"), ("x<3", r"(-\infty,3)"),
         ("x^2+2x+1", "(x+1)^2"), (r"2\pi", r"\pi+\pi"), (r"\frac{\sqrt{3}}{2}", r"\sqrt{3}/2"),
         ("12", r"\sqrt{144}"), (r"10\text{ cm}", "10"), ("5", "4+1=5"), ("x=3", "X=3"), ("x=3", "(x-3)=0"),
         ("24", "4!"), ("10^{390}", r"\frac{10^{400}}{10^{10}}")]
OTHER = [("x=3", "y=3"), ("x<3", r"x\le 3"), (r"\{1,2\}", r"\{1,3\}"), ("(1,2)", "(2,1)"), ("3+2i", "3-2i"),
         (r"\{1,2\}", r"\{1,2,3\}"),
         (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
         (r"[1,\infty)", r"(1,\infty)")]


def test_formulas_agree_with_math_verify():
    """The oracle is the package itself, here with texts of our own, which need no jail."""
    from math_verify import parse, verify
    for gold, answer in EQUAL + OTHER:
        theirs = verify(*(parse(f"${x}$", parsing_timeout=None) for x in (gold, answer)),
                        timeout_seconds=None)
        assert maths.compare_answers(gold,
                                     answer).score == theirs == ((gold, answer) in EQUAL), (gold, answer)


@pytest.mark.parametrize("gold", [r"\frac{", "", "  ", r"\frac{1}{0}", "0/0", "9^{9^{9^9}}", r"\foo{3}",
                                  "((((((1))))))", "\x00", "$$"])
def test_gold_that_cannot_be_read_is_never_right(gold):
    with pytest.raises(ValueError, match="no mathematical answer that can be compared"):
        maths.check_golds(["5", gold])
    for reply in (gold, f"<answer>{gold}</answer>", "", "5", r"\boxed{}"):
        with pytest.raises(ValueError, match="the gold answer"):
            maths.judge_maths(Prompt.ask("?", gold), reply)


def test_a_gold_that_the_jail_loses_is_an_error(monkeypatch):
    monkeypatch.setattr(maths.JAIL, "each",
                        lambda calls: [judge.Outcome(kind="pass", value=None)] * len(calls))
    monkeypatch.setattr(maths, "_SOUND", {"x=3"})
    maths.compare_answers.cache_clear()
    said = maths.compare_answers("x=3", "2x=6")
    maths.compare_answers.cache_clear()
    assert said.score == 0 and "lost the gold answer" in said.error


def test_where_the_package_or_the_jail_is_missing(monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ValueError,
                           match=r"needs the package math_verify: .* 'postgrad\[math\]', or use .* number"):
            maths.check_golds(["5"])
    monkeypatch.setattr(judge, "missing_sandbox", lambda: "Landlock is off")
    with pytest.raises(ValueError, match="no.* that holds .Landlock is off.*: use Linux"):
        read_spec("regex(^a)")
    assert read_spec("number")(ASK, "72").score == 1


def test_math_verify_is_never_imported_here():
    code = ("import sys, postgrad.rewards.maths as m; print(m.compare_answers('5', '5').score, 'math_verify' "
            "in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
         cwd=ROOT)
    assert done.stdout.split() == ["1.0", "False"]


@pytest.mark.parametrize(("formula", "value"), [
    (r"\frac{1}{2}+\sqrt{4}", 2.5), ("-2^{2}", -4), ("2(3+4)", 14), (r"2\pi", 2 * math.pi),
    (r"\log_{2}(8)", 3), ("|1-4|", 3), (r"\sqrt[3]{27}", 3), ("1/2x", None), (r"1\frac{1}{2}", None),
    ("x^23", None), ("e", None), ("1/0", None), ("(1", None), ("1,2", None), ("9^{999}", math.inf),
    (r"\log_{9}(9^{999})", 999), (r"\log_{2}(0)", None),
    ("7!", 5040), (r"\frac{n!}{(n-1)!}-n", 0), ("2^3!", None), ("3!!", None), (r"\binom{7}{2}", 21),
    (r"\binom{x}{2}", None), ("10^{400}/10^{399}", None), ("10^{-400}", None),
    (r"\log_{2}(0.5^{4000})", -4000), (r"\log_{2}(", None), (r"\infty-\infty", None), (r"\sqrt{-1}", None),
    ("", None), ("1 4", None), (r"\frac{1}", None)])
def test_estimates_by_hand(formula, value):
    assert estimate_value(formula) == (value if value is None else pytest.approx(value, abs=1e-12))


@pytest.mark.parametrize(("spec", "reply", "score", "lenient"), [
    ("number", "<answer>72.0</answer>", 1, 1), ("number", "It is 72 eggs", 0, 1),
    ("number", "#### 72 eggs", 0, 1), ("number", "72", 1, 1),
    ("number", "<answer>71</answer> 72", 0, 0), ("number(lenient)", "It is 72 eggs", 1, 1),
    ("text", "The answer is 72.", 1, 1), ("text", "about 72", 0, 1), ("text", "172", 0, 0),
    ("maths", r"\boxed{\frac{144}{2}}", 1, 1), ("maths", "I say $72$ eggs", 0, 1),
    ("maths(lenient)", "I say $72$ eggs", 1, 1), ("maths", "", 0, 0)])
def test_strict_is_paid_and_lenient_is_kept(spec, reply, score, lenient):
    said = read_spec(spec)(ASK, reply)
    assert (said.score, said.parts["correct"], said.parts["lenient"]) == (score, score, lenient)


def test_a_sum_by_hand():
    verify = read_spec("0.8*number + 0.1*think+0.1*length(1,3,words)")
    assert (verify.best == pytest.approx(1.0) and not verify.waits
            and verify.kinds == {"answer", "form", "style"})
    said = verify(ASK, "<think>a b c</think><answer>72</answer>")
    assert said.score == pytest.approx(0.9)
    assert said.parts == {"number": 1, "think": 1, "length(1,3,words)": 0, "correct": 1, "lenient": 1}
    assert "length(1,3,words): 4 words" in said.reason
    assert verify(ASK, "72").score == pytest.approx(0.9) and verify(ASK, "73 or 72").parts["lenient"] == 1


@pytest.mark.parametrize(("spec", "message"), [
    ("numbr", "did you mean 'number'"), ("number+", "cannot be read at ''"),
    ("number think", "put . between"), ("0*number", "other than 0"),
    ("1.2.3*number", "other than 0"), ("number+number", "names number twice"),
    ("length", r"write length\(LOW,HIGH"), ("number(", "does not close"),
    ("length(5)", "expected two bounds"), ("length(9,1)", "expected 0 <= low"),
    ("regex([)", "no regular expression"), ("regex(a*)", "found in an empty text"),
    ("language(xx)", "choose one of"), ("think(5)", "takes no argument"),
    ("number(loose)", "it is .lenient."), ("json(nowhere.json)", "cannot be read")])
def test_what_cannot_be_read_is_named(spec, message):
    with pytest.raises(ValueError, match=message):
        read_spec(spec)


def test_a_pattern_runs_under_a_limit():
    verify = read_spec(r"regex(^(a+)+\)$)")  # backtracks for ever on what does not match
    assert verify.waits and verify(ASK, "aaa)").score == 1
    said = verify(ASK, "a" * 40)
    assert said.score == 0 and said.error is None and "time limit" in said.reason


def test_languages_by_hand():
    def share(name, reply):
        return text.language_verifier(name)(reply).score
    assert (share("en", "<think>the cat is on the mat</think>") == 1
            and share("es", "el gato está en la casa") == 1)
    assert (share("fr", "le chat est dans la maison") == 1
            and share("de", "die Katze ist nicht auf der Matte") == 1)
    assert share("es", "the cat is on the mat") == 0 and share("en", "lorem ipsum") == 0.5
    assert share("en", "the cat and el gato los las") == pytest.approx(2 / 5)
    # words of both tell nothing
    assert share("fr", "un homme entre en ville") == share("es", "un hombre entre en casa") == 0.5
    assert share("en", "5 plus 8 is 13, then 13 minus 3 is 10") == 1  # "plus" is of two languages
    assert share("de", "was will man sagen") == 1 and share("es", "se dice") == 0.5
    assert (share("zh", "\u4f60\u597dab") == 0.5 and share("ru", "\u0434\u0430") == 1
            and share("en", "the \u4f60") == 0.75)


def test_arithmetic_has_no_language_and_filler_words_do_not_pay():
    spec = read_spec("0.9*number+0.1*language(en)")
    bare, wordy, wrong = (spec(ASK, reply) for reply in (
        "<think>70+2=72</think><answer>72</answer>",
        "<think>it is 2 and 70 of it</think><answer>72</answer>",
        "<think>70+2=71</think><answer>71</answer>"))
    assert (bare.score, wordy.score, wrong.score) == (pytest.approx(1.0), pytest.approx(1.0), 0.0)
    assert "language(en)" not in bare.parts and wordy.parts["language(en)"] == bare.parts["correct"] == 1
    alone = read_spec("language(en)")(ASK, "70+2=72")
    assert (alone.score, alone.absent, alone.error) == (0, True, None)
    spoken = spec(ASK, "<think>el total de 70 y 2</think><answer>72</answer>")
    assert spoken.score == pytest.approx(0.9)  # the language is there to judge, and it is another


def test_json_and_schemas(tmp_path):
    plain = schema.json_reply()
    good = ('{"a": [1, 2]}', '```json\n{"a": 1}\n```', "<think>hm</think><answer>[1]</answer>")
    # strings left open: minutes for a search that tries each
    bad = ("", "{a: 1}", "NaN", "[" * 40 + "]" * 40, "[" * 10**5, '"' + "a" * 10**5 + '"', "\n" * 10**5,
           '{"a": 1} and so on', '\\"' * 50_000, '"' + '\\"' * 49_000 + "\\")
    assert [plain(x).score for x in good] == [1, 1, 1] and [plain(x).score for x in bad] == [0] * len(bad)
    file = tmp_path / "schema.json"
    made = {"type": "object", "required": ["a"],
            "properties": {"a": {"$ref": "#/$defs/n"}, "s": {"pattern": "^(x+)+$"}},
            "$defs": {"n": {"type": "integer"}}}
    file.write_text(json.dumps(made))
    verify = read_spec(f"json({file})")
    said = [verify(ASK, x) for x in ('{"a": 1}', '{"a": "1"}', "{}", '{"a": 1, "s": "' + "x" * 40 + '!"}')]
    assert ([v.score for v in said] == [1, 0, 0, 0] and "$.a: '1' is not of type" in said[1].reason
            and "limit" in said[3].reason)
    for other, message in (({"$ref": "http://example.org/s.json"}, "outside itself"),
                           ({"type": "objekt"}, "no JSON schema")):
        file.write_text(json.dumps(other))
        with pytest.raises(ValueError, match=message):
            read_spec(f"json({file})")


def rows(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_file_judged_by_a_sum(tmp_path):
    file = rows(tmp_path / "q.jsonl",
                *({"question": f"{a}/2?", "answer": rf"\frac{{{a}}}{{2}}"} for a in range(20)))
    task = load_task(f"maths+0.2*think+0.1*boxed:{file}")
    check_task(task)
    assert task.best == pytest.approx(1.3) and task.waits
    prompt = task.prompts("train", 1, 0)[0]
    assert task.gold(prompt) == rf"<think></think><answer>\boxed{{{prompt.answer}}}</answer>"
    assert check_verifier(task.verify, [(prompt, task.gold(prompt))], best=1.3) == 1


def test_gold_of_a_file_is_checked_by_line(tmp_path):
    good, bad = {"question": "a", "answer": r"\sqrt{2}"}, {"question": "b", "answer": r"\sqrt{"}
    with pytest.raises(ValueError, match=r"q\.jsonl, line 2: the gold answer"):
        load_task(f"maths:{rows(tmp_path / 'q.jsonl', good, bad)}")
    styled = load_task(
        f"text+0.1*length(3,9):{rows(tmp_path / 'r.jsonl', {'question': 'a', 'answer': 'no'})}")
    assert styled.gold is None  # nobody knows a whole reply; where a row has one, it must be paid
    whole = {"question": "a", "answer": "no", "reply": "answer: no"}
    told = load_task(f"text+0.1*length(3,9):{rows(tmp_path / 's.jsonl', whole)}")
    with pytest.raises(ValueError, match="pays 1 instead of 1.1"):
        check_task(told)
    free = load_task(f"length(1,9):{rows(tmp_path / 'f.jsonl', {'question': 'a'})}")
    assert free.gold is None and free.verify(free.prompts("train", 1, 0)[0], "yes").score == 1


def test_evaluation_shows_both_readings(tmp_path):
    file = rows(tmp_path / "q.jsonl", *({"question": f"q{i}", "answer": i} for i in range(1, 4)))
    task = load_task(f"number:{file}")
    prompts = [p for split in ("train", "validation", "test") for p in task.prompts(split, 9, 0)]
    said = {"q1": ["#### 1", "so 1"], "q2": ["it is 2", "two"], "q3": ["3", "4"]}
    row = evaluate_task(task, ScriptedSampler(CHAT, said), prompts, samples=2, settings=Sampling(), seed=0,
                   greedy=False)
    assert ((row["pass@1"], row["lenient"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
            and "reward/lenient" not in row)
    assert list(row)[:3] == ["pass@1", "pass@1_interval", "lenient"]


def test_the_command_lists_them(capsys):
    assert main(["verifiers", "--json"]) == 0
    assert ([re.match(r"\w+", row["verifier"])[0] for row in json.loads(capsys.readouterr().out)]
            == list(NAMED))
