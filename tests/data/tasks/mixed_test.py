"""Several tasks as one, and rewards that ask each prompt's own task and language."""

import pytest

from postgrad.data.tasks import Task, load_task, mixture_parts
from postgrad.data.tasks.mixed import mix_tasks, part_of
from postgrad.recipes.fit import fit
from postgrad.records import Prompt, Rollout, Verdict
from postgrad.resolve.rewards import parse_reward
from postgrad.rewards.named import read_spec
from postgrad.runs.explain import explain

THREE = "words+words-es+countdown"
NAMES = THREE.split("+")


def test_prompts_come_in_turn_and_are_those_of_the_parts():
    drawn = load_task(THREE).prompts("train", 8, 5)
    assert [part_of(prompt) for prompt in drawn] == (NAMES * 3)[:8]
    for name, count in zip(NAMES, (3, 3, 2), strict=True):
        own = load_task(name).prompts("train", count, 5)
        assert [p.id for p in drawn if part_of(p) == name] == [p.id for p in own]
        assert [p.messages for p in drawn if part_of(p) == name] == [p.messages for p in own]
    assert len({prompt.id for prompt in load_task(THREE).prompts("test", 300, 0)}) == 300


def test_each_prompt_is_judged_by_its_own_task():
    task = load_task(THREE)
    for prompt in task.prompts("validation", 30, 1):
        own = load_task(part_of(prompt))
        for text in (task.gold(prompt), "", "<think></think><answer>7</answer>"):
            said, theirs = task.verify(prompt, text), own.verify(prompt, text)
            assert said.score == theirs.score and said.reason == theirs.reason
            assert said.parts == {**theirs.parts, f"{own.name}/correct": theirs.parts["correct"]}
            assert task.steps(prompt, text) == own.steps(prompt, text)
        assert task.verify(prompt, task.gold(prompt)).score == 1
    assert task.tokens == 128 and task.meta["parts"] == tuple(NAMES)
    assert len(task.demonstrations("train", 10, 0)) == 10


def small_task(name, best=1.0, verify=True, **more):
    return Task(name=name, about=name, best=best, prompts=lambda split, count, seed: [
        Prompt.ask(f"{i}?", i, id=f"{i}") for i in range(count)][:3],
        verify=(lambda prompt, text: Verdict(score=best * (text == str(prompt.answer)))) if verify else None,
        **more)


def test_parts_of_different_scale_and_size_count_the_same():
    both = mix_tasks([small_task("a", best=2.0), small_task("b")])
    drawn = both.prompts("train", 10, 0)
    assert [p.id for p in drawn] == ["a/0", "b/0", "a/1", "b/1", "a/2", "b/2"]  # finite: what there is
    said = both.verify(drawn[0], "0")
    assert said.score == 1 and said.parts == {"a/correct": 1} and both.best == 1
    assert both.gold is None and both.steps is None and both.tokens is None


def test_what_is_a_mixture_and_what_is_not(tmp_path):
    assert mixture_parts(THREE) == NAMES and mixture_parts("words + countdown") == ["words", "countdown"]
    assert mixture_parts("gsm8k:data+words") == ["gsm8k:data", "words"]
    assert mixture_parts("a.py+text:q.jsonl") == ["a.py", "text:q.jsonl"]
    for one in ("words", "number+0.2*think:q.jsonl", "regex(a+b):q.jsonl", "maths+language(en):q.jsonl"):
        assert mixture_parts(one) == [one]
    odd = tmp_path / "a.py+b.py"
    odd.write_text("")
    assert mixture_parts(str(odd)) == [str(odd)]
    with pytest.raises(ValueError, match=r"names each task once, this one is words \+ words"):
        load_task("words+words")
    with pytest.raises(ValueError, match="task b has no verifier, so it is no part of a mixture"):
        mix_tasks([small_task("a"), small_task("b", verify=False)])
    with pytest.raises(ValueError, match="there is no task"):
        load_task("words+nothing")


def judged(spec, prompt, text, task):
    reward = parse_reward(spec).open(task, None, [], device="cpu")
    return reward.score([Rollout(prompt=prompt, prompt_tokens=(), tokens=(), logp=(), text=text,
                                 finished=True, seed=0)])[0]


def test_correct_is_the_tasks_own_reading_and_nothing_else():
    """R1-Zero pays for the answer and the form; words-es pays for Spanish as well."""
    task = load_task(THREE)
    words, spanish, numbers = task.prompts("train", 3, 0)
    english = f"<think>5 plus 8 is 13, then 13 minus 3 is 10</think><answer>{spanish.answer}</answer>"
    assert task.verify(spanish, english).score == pytest.approx(0.8)
    assert judged("correct", spanish, english, task).score == 1
    said = judged("correct+0.2*think", spanish, english, task)
    assert said.score == pytest.approx(1.2) and said.parts["words-es/correct"] == said.parts["correct"] == 1
    assert judged("correct+0.2*think", numbers, task.gold(numbers), task).score == pytest.approx(1.2)
    formed = judged("correct+0.2*think", words, "<think></think><answer>x</answer>", task)
    assert formed.score == pytest.approx(0.2) and formed.parts["correct"] == 0
    assert judged("correct+0.2*think", words, words.answer, task).score == 0


def test_language_is_each_prompts_own():
    task, spec = load_task(THREE), "correct+0.2*think+0.3*language"
    words, spanish, numbers = task.prompts("train", 3, 0)
    chains = {"en": "5 plus 8 is 13, then 13 minus 3 is 10", "es": "5 más 8 son 13, luego 13 menos 3 son 10",
              "signs": "5+8=13, 13-3=10"}

    def paid(prompt, chain):
        reply = f"<think>{chains[chain]}</think><answer>{prompt.answer}</answer>"
        return judged(spec, prompt, reply, task).score

    assert paid(words, "en") == paid(spanish, "es") == pytest.approx(1.5)
    assert paid(words, "es") == paid(spanish, "en") == pytest.approx(1.2)
    assert paid(words, "signs") == paid(spanish, "signs") == pytest.approx(1.5)  # nothing to judge
    assert judged(spec, numbers, task.gold(numbers), task).score == pytest.approx(1.5)  # asks for no language
    rows = Prompt.ask("¿Qué?", 1, language="xx")
    assert read_spec("language")(rows, "the").absent


def test_correct_needs_a_task(tmp_path):
    with pytest.raises(ValueError, match="`correct` is what a task's own verifier says, and here"):
        read_spec("correct")(Prompt.ask("2+2?", 4), "4")
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "2+2?", "answer": "4"}\n')
    with pytest.raises(ValueError, match="`correct` is what a task's own verifier says"):
        load_task(f"correct:{path}")


def test_an_evaluation_shows_the_parts_and_how_replies_look_back(tmp_path):
    run = fit("tiny-chat", "grpo", task=THREE, reward="correct+0.2*think", run=tmp_path / "run",
              display=False, steps=1, kl=0, rollouts={"prompts": 6, "prompts_per_step": 3, "group_size": 2},
              evaluation={"every": 1, "problems": 12, "samples": 2})
    row = run.evaluations()[-1]
    rates = [row[f"reward/{name}/correct"] for name in NAMES]
    assert sum(rates) / 3 == pytest.approx(row["pass@1"])
    for name in ("turn_back", "restart", "recheck", "after_right"):
        assert name in row and f"countdown/{name}" in row
    assert {"worded", "words-es/worded", "words/length"} <= row.keys() and "countdown/worded" not in row
    told = {"step", "seconds", "problems", "samples"}
    for name in row.keys() - told:
        assert explain(name.removesuffix("_interval")).meaning
