"""reasoning-gym's generators as tasks: their scorers read what a model wrote,
so they run in the jail alone."""

import sys
from dataclasses import replace
from fractions import Fraction

import pytest

from postgrad.data.tasks import SPLITS, gym, load_task
from postgrad.data.tasks.base import parse_keyword_call, think
from postgrad.rewards.sandbox import Jailed, tier

jailed = pytest.mark.skipif(tier() is None, reason="this machine has no sandbox that holds")


@pytest.fixture
def package():
    return pytest.importorskip("reasoning_gym",
                               reason="reasoning-gym is not here: pip install 'postgrad[gym]'")


@pytest.mark.parametrize(("source", "wanted"), [
    ("chain_sum", ("chain_sum", {})), ("chain_sum()", ("chain_sum", {})),
    (" a( b = 2, c=[1, 'x'] ) ", ("a", {"b": 2, "c": [1, "x"]})),
    ("a(b=-1.5,d=True)", ("a", {"b": -1.5, "d": True}))])
def test_a_source_is_a_name_and_literals(source, wanted):
    assert parse_keyword_call(source) == wanted


@pytest.mark.parametrize("source", ["chain sum", "a(1)", "a(b=c)", "a(**b)", "a.b(c=1)", "a(", "1", "(" * 300,
                                    "a(b=__import__('os'))"])
def test_anything_else_is_refused(source):
    with pytest.raises(ValueError, match="is no generator: write gym:NAME") as caught:
        gym.find_generator(source)
    assert "\n" not in str(caught.value)


def test_without_the_package_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ValueError, match=r"pip install 'postgrad\[gym\]'"):
        load_task("gym:chain_sum")
    with pytest.raises(ValueError, match="write gym:NAME"):
        load_task("gym:")


@pytest.mark.parametrize(("answer", "fine"), [
    ("40*(94 - 90) + 83 - 74", True), ("x*asin(3*x) + sqrt(1 - 9*x**2)/3 + C", True), ("2^3 = 8", True),
    ("__import__('os').system('id')", False), ("exec(chr(112)+chr(114))", False), ("S('e'+'x')", False),
    ("(lambda: 0)()", False), ('f"{101:c}"', False), (r"S('\145\166')", False), ("open(1)", False),
    ("x.subs", False), ("[].append", False), ("eval(1)", False), ("__", False), ("\N{SQUARE LOG}(1)", False),
    ("\N{FULLWIDTH LATIN SMALL LETTER E}xec(1)", False)])
def test_a_formula_holds_no_code(answer, fine):
    assert gym.harmless(answer, "formula") is fine and gym.harmless(answer, "")


@pytest.mark.parametrize(("answer", "fine"), [
    ("[[1, 2], [3, 4]]", True), ('["A", "B"]', True), ("_ Q _ _\nQ _ _ _", True), ("[exec][0](1)", False),
    ("[print]", False), ("[x for x in 'a']", False), ("(1, 2)", False)])
def test_a_list_calls_nothing(answer, fine):
    assert gym.harmless(answer, "list") is fine


def test_an_unknown_generator_or_setting_gets_a_suggestion(package):
    for source, said in (("chainsum", "did you mean 'chain_sum'"),
                         ("chain_sum(min_term=2)", "did you mean 'min_terms'"),
                         ("countdown(min_numbers=99)", "cannot be made: max_numbers must be"),
                         ("composite", "cannot be made")):
        with pytest.raises(ValueError, match=said) as caught:
            load_task(f"gym:{source}")
        assert "\n" not in str(caught.value)


@jailed
@pytest.mark.parametrize("name",
                         ["chain_sum(min_terms=2,max_terms=4)", "countdown(min_numbers=3,max_numbers=3)",
                          "n_queens", "ab", "simple_integration", "tower_of_hanoi"])
def test_gold_is_paid_and_splits_are_disjoint(package, name):
    task = load_task(f"gym:{name}")
    parts = {split: task.prompts(split, 10, 1) for split in SPLITS}
    asked = [p.question for split in SPLITS for p in parts[split]]
    assert len(set(asked)) == len(asked) >= 25 and parts["test"] == task.prompts("test", 10, 1)
    assert all(task.verify(p, task.gold(p)).parts == {"correct": 1, "lenient": 1, "format": 1, "partial": 1}
               for split in SPLITS for p in parts[split])


def test_a_generator_with_few_questions_still_shares_none(package):
    of = gym.find_generator("coin_flip")
    few = replace(of, make=lambda name, **_: [{"question": f"{i % 12}?", "answer": "1"}
                                              for i in range(gym.CHUNK)])
    parts = [{p.id for p in gym.prompts(split, 99, 0, of=few)} for split in SPLITS]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 12
    one = replace(of, make=lambda name, **_: [{"question": "1?", "answer": "1"}] * gym.CHUNK)
    with pytest.raises(ValueError, match="has no problem for the split"):
        [gym.prompts(split, 9, 0, of=one) for split in SPLITS]


@jailed
def test_strict_and_lenient_side_by_side(package):
    task = load_task("gym:countdown(min_numbers=3,max_numbers=3)")
    prompt = task.prompts("train", 1, 0)[0]
    other = f"({prompt.answer})"  # another text of the same value, which the scorer judges
    texts = {think("", other): (1, 1, 1), f"so <answer>{other}</answer>": (0, 1, 0),
             think("", "1+1"): (0, 0, 1), other: (0, 0, 0), "": (0, 0, 0)}
    said = [task.verify(prompt, text) for text in texts]
    assert [(v.score, v.parts["lenient"], v.parts["format"]) for v in said] == list(texts.values())
    assert said[2].parts["partial"] == 0 and all(v.error is None for v in said)


@jailed
def test_a_shell_command_as_an_answer_does_nothing(package, tmp_path):
    canary = tmp_path / "canary"
    task, of = load_task("gym:countdown"), gym.find_generator("countdown")
    prompt = task.prompts("train", 1, 0)[0]
    attacks = [f"__import__('os').system('touch {canary}')", f"open('{canary}', 'w')",
               f"exec(\"open('{canary}', 'w')\")"]
    for attack in attacks:
        said = task.verify(prompt, think("", attack))
        assert said.score == 0 and said.error is None and "is not one of 0-9" in said.reason
        gym.score_answer(of, prompt.meta["entry"], attack)  # and were it evaluated, the jail holds
    assert not canary.exists()
    dataset = of.make("countdown", seed=0, size=1)
    dataset.score_answer(attacks[0], prompt.meta["entry"])  # the same outside of the jail: the attack is one
    assert canary.exists()


def test_what_cannot_cross_becomes_text():
    entry = {"question": "a", "metadata": {"share": Fraction(1, 4), "cells": ((1, {2}), [None, True, 1.5])}}
    assert gym.as_plain_values(entry) == {"question": "a",
                                "metadata": {"share": "1/4", "cells": ((1, {2}), [None, True, 1.5])}}


@jailed
def test_what_scorers_evaluate_is_known(package):
    from reasoning_gym.factory import DATASETS
    found = {name: kind for name, (cls, _) in DATASETS.items()
             if (kind := gym._evaluates(cls.score_answer))}
    assert found.items() >= {"countdown": "formula", "puzzle24": "formula", "simple_integration": "formula",
                             "intermediate_integration": "formula", "polynomial_multiplication": "formula",
                             "n_queens": "list", "string_insertion": "list", "spiral_matrix": "list",
                             "binary_matrix": "list"}.items()


@jailed
@pytest.mark.parametrize("name", ["boxnet", "graph_color"])
def test_a_generator_without_gold_is_refused(package, name):
    with pytest.raises(ValueError, match="gives its problems no answer"):
        load_task(f"gym:{name}")


def scorer(source):
    return Jailed("gym", source, instead="choose another task")


@jailed
def test_a_scorer_that_rejects_its_own_gold_is_refused(package, monkeypatch):
    monkeypatch.setattr(gym, "SCORER", scorer("def score(name, settings, entry, answer): return 0.5"))
    with pytest.raises(ValueError, match=r"gym:chain_sum rejects its own gold \(the scorer pays 0.5"):
        load_task("gym:chain_sum")


@jailed
def test_a_fault_of_the_scorer_is_no_reward_and_a_slow_one_is_wrong(package, monkeypatch):
    task = load_task("gym:time_intervals")
    prompt = task.prompts("train", 1, 0)[0]
    monkeypatch.setattr(gym, "SCORER", scorer("import nothing_of_the_kind"))
    assert task.verify(prompt, think("", "1+2")).error.startswith("infrastructure: ")
    with pytest.raises(ValueError, match="the scorer of gym:chain_sum does not run in the sandbox"):
        load_task("gym:chain_sum")
    monkeypatch.setattr(gym, "SCORER", scorer("def score(*a): return float('nan')"))
    said = task.verify(prompt, think("", "1+2"))
    assert said.score == 0 and said.error is None


@jailed
@pytest.mark.parametrize(("name", "bribe"), [("complex_arithmetic", "'nan'"), ("game_of_life_halting", "' '"),
                                             ("coin_flip", "'0'")])
def test_a_scorer_that_pays_for_no_solution_is_refused(package, name, bribe):
    with pytest.raises(ValueError, match=f"gym:{name} pays in full for {bribe} where the answer") as caught:
        load_task(f"gym:{name}")
    assert "\n" not in str(caught.value)


EACH = "def pays(*problem): return [score(*problem[:3], a) == 1 for a in problem[3]]"


@jailed
@pytest.mark.parametrize("pays", ["answer == 'inf'", "answer == '1'", "answer == 'abc'", "not answer.strip()",
                                  "len(answer) > 20", "answer in ('20', '21', '22', '23')",
                                  "entry['answer'] in answer"])
def test_each_kind_of_bribe_is_tried(package, monkeypatch, pays):
    """The gold answers are 20 to 23: another problem's, and all of them in a row, are among the bribes."""
    source = f"def score(name, settings, entry, answer): return float(answer == entry['answer'] or {pays})"
    monkeypatch.setattr(gym, "SCORER", scorer(f"{source}\n{EACH}"))
    rows = [{"question": f"{i}?", "answer": f"2{i}"} for i in range(4)] * gym.CHUNK
    of = replace(gym.find_generator("chain_sum"), own_scorer=True, make=lambda name, **_: rows)
    monkeypatch.setattr(gym, "question_split", lambda question: "train")
    with pytest.raises(ValueError, match="pays in full for .* where the answer is '2[0-3]'"):
        gym.prove_scorer(of)
    monkeypatch.setattr(gym, "SCORER", scorer(f"{source.replace(pays, 'False')}\n{EACH}"))
    gym.prove_scorer(of)


@jailed
def test_a_probe_that_hangs_the_scorer_is_left_to_the_others(package, monkeypatch):
    source = ("def score(name, settings, entry, answer):\n    while answer == 'nan': pass\n"
              f"    return float(answer in (entry['answer'], 'yes'))\n{EACH}")
    monkeypatch.setattr(gym, "SCORER", Jailed("gym", source, instead="choose another task", seconds=0.3))
    of = gym.find_generator("time_intervals")
    assert gym.find_paid_probe(of, gym.prompts("train", 1, 0, of=of))[0] == "yes"


@jailed
@pytest.mark.parametrize(("name", "cheats"), [
    ("puzzle24", ("6*4*1*1", "24", "4!", "(5*5-1)*1*1", "25-0.9", "6*4")),
    ("countdown", ("{target}", "{target}+0*{a}", "{target}+x-x", "sqrt({target}*{target})", 
                   "{a}-{a}+{target}", "exp(log({target}))"))])
def test_expressions_are_read_here(package, name, cheats):
    task, asked = load_task(f"gym:{name}"), []
    assert not task.waits
    for prompt in task.prompts("train", 40, 0):
        facts = prompt.meta["entry"]["metadata"]
        values = {"target": facts.get("target", 24), "a": facts["numbers"][0]}
        right = (prompt.answer, f"({prompt.answer})")
        assert [task.verify(prompt, think("", text)).score for text in right] == [1, 1]
        if name == "countdown" or not {1, 5} & set(facts["numbers"]):
            asked += [task.verify(prompt, think("", cheat.format(**values))) for cheat in cheats]
    assert len(asked) > 40 and all((v.score, v.error) == (0.0, None) and v.reason for v in asked)


def test_an_expression_may_begin_with_a_sign_where_that_is_allowed(package):
    of = replace(gym.find_generator("countdown"), settings={"operators": ("+", "-", "*")})
    facts = {"numbers": [2, 3, 4], "target": 8}
    assert gym.judge_made_expression(of, facts, "4*(-2+3)").score == 0
    assert gym.judge_made_expression(of, facts | {"target": 4}, "4*(-2+3)").score == 1
    assert "uses /" in gym.judge_made_expression(of, facts | {"target": 6}, "4/2*3").reason
    assert gym.judge_made_expression(of, facts, "4*--2").score == 0
