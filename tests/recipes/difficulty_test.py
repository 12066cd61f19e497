"""Prompts by recorded pass rates, replies kept by prompt, and calculations to practise: each by hand."""

import json
import random
from dataclasses import replace

import pytest
from rlhf_small import small, trained
from small import gsm8k_folder

from postgrad.cli import main
from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import calculations, load_task
from postgrad.data.tasks.calculations import EACH, noted_expressions, practice, vary_numbers, whole_result
from postgrad.evaluation import ScoredSamples, task_figures
from postgrad.recipes.difficulty import Difficulty, read_rates
from postgrad.recipes.pick import distinct_replies, pass_rates, reply_key
from postgrad.recipes.pipelines.expert_iteration import write_practice
from postgrad.recipes.running import resume_run
from postgrad.records import Prompt, Rollout, Scored, Verdict

RATES = {"never": 0.0, "seldom": 0.125, "half": 0.5, "mostly": 0.875, "always": 1.0}


def prompt(name):
    return replace(Prompt.ask(f"is {name}?"), id=name)


@pytest.fixture
def rates(tmp_path):
    path = tmp_path / "rates.jsonl"
    lines = (json.dumps({"prompt": name, "rate": rate}) for name, rate in RATES.items())
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.parametrize("bounds, kept", [
    ({}, ["seldom", "half", "mostly"]), ({"above": 0.125}, ["half", "mostly"]),
    ({"below": 0.5}, ["seldom"]), ({"above": 0.2, "below": 0.8}, ["half"])])
def test_prompts_strictly_between_two_rates_are_kept_in_their_order(rates, bounds, kept):
    prompts = [prompt(name) for name in (*RATES, "unknown")]
    for order in (1, -1):
        selected, note = Difficulty(rates=rates, **bounds).select(prompts[::order])
        assert [p.id for p in selected] == kept[::order]
        assert note.startswith(f"{len(kept)} of {len(prompts)} prompts have a pass rate above ")


def test_what_cannot_choose_says_so(rates, tmp_path):
    with pytest.raises(ValueError, match="above is 0.5 and difficulty.below 0.5: no rate lies between"):
        Difficulty(rates=rates, above=0.5, below=0.5)
    with pytest.raises(ValueError, match="none of 1 prompts has a pass rate above 0 and below 1"):
        Difficulty(rates=rates).select([prompt("always")])
    with pytest.raises(ValueError, match="there is no file"):
        Difficulty(rates=str(tmp_path / "none.jsonl")).select([prompt("half")])
    for bad in ('{"prompt": "a"}', '{"prompt": 1, "rate": 0.5}', '{"prompt": "a", "rate": 1.5}',
                '{"prompt": "a", "rate": true}'):
        (tmp_path / "bad.jsonl").write_text(f"{bad}\n")
        with pytest.raises(ValueError, match='line 1: expected {"prompt": ID, "rate"'):
            read_rates(str(tmp_path / "bad.jsonl"))


def test_a_run_trains_on_the_chosen_prompts_alone_and_goes_on_with_the_same(tmp_path):
    file = tmp_path / "rates.jsonl"
    asked = load_task("words").prompts("train", 6, 3)
    file.write_text("".join(json.dumps({"prompt": p.id, "rate": rate}) + "\n"
                            for p, rate in zip(asked, (0, 0.5, 1, 0.25, 0, 1), strict=True)))
    config = small(config_from_text("grpo:words", [f"difficulty.rates={file}"])[1])
    run = trained("rollouts", config, tmp_path / "run")
    drawn = {row["prompt"] for row in run.rows("samples")[0]}
    assert drawn == {asked[1].question, asked[3].question}
    assert any("2 of 6 prompts have a pass rate above 0 and below 1" in str(row)
               for row in run.rows("events")[0])
    file.write_text(file.read_text().replace("0.25", "0.75"))
    with pytest.raises(ValueError, match="difficulty.rates .*rates.jsonl has changed since this run began"):
        resume_run(run, config)


@pytest.mark.parametrize("most, distinct, kept", [
    (None, "any", [0, 1, 2, 5, 6]), (1, "any", [0, 5]), (2, "any", [0, 1, 5, 6]),
    (None, "text", [0, 2, 5, 6]), (None, "numbers", [0, 5, 6]), (1, "numbers", [0, 5])])
def test_of_good_replies_one_of_a_kind_and_a_few_of_a_prompt_are_kept(most, distinct, kept):
    texts = ["2+3=5", "2+3=5 ", "2 and 3 is 5", "2+3=6", "9", "1,000+1=1001", "1+1000=1001", "0"]
    good = [0, 1, 2, 5, 6]  # replies 0 to 3 answer one prompt, 4 to 7 the next
    assert distinct_replies(good, 4, most, lambda i: reply_key(texts[i], i, distinct)) == kept


def test_pass_rates_are_of_what_could_be_judged():
    said = [Verdict(score=x) for x in (1.2, 1.0, 1.2, 0.0)] + [Verdict(score=0.0, error="late")] * 2
    said[3] = Verdict(score=0.0, error="late")
    assert pass_rates(said, 2, 1.2) == [0.5, 1.0, None]


def test_pick_records_how_often_each_prompt_was_solved(tmp_path, capsys):
    ask = ["pick", "tiny-chat", "--task", "words", "--prompts", "6", "--samples", "4", "--keep", "passing",
           "--most", "1", "--distinct", "numbers", "--json"]
    out, rates = tmp_path / "kept.jsonl", tmp_path / "rates.jsonl"
    assert main([*ask, "--out", str(out), "--rates", str(rates)]) == 0
    said, found = json.loads(capsys.readouterr().out), read_rates(str(rates))
    assert found.keys() == {p.id for p in load_task("words").prompts("train", 6, 0)}
    solved = sum(rate > 0 for rate in found.values())
    assert sum(found.values()) * 4 == said["passing"] > said["kept"] == solved
    assert len(out.read_text().splitlines()) == said["kept"] == 6 - said["prompts without one"]
    assert main([*ask, "--out", str(tmp_path / "x.jsonl"), "--rates", str(rates)]) == 2
    assert "is there already: give another file with --rates" in capsys.readouterr().err


def test_calculations_keep_their_kind_and_have_whole_results():
    solution = "48/2 = <<48/2=24>>24, <<24*0.5=12>>12, <<5=5>>5, <<3-7=-4>>, <<(12+3)*10=150>>150"
    assert noted_expressions(solution) == ["48/2", "(12+3)*10"]
    assert [whole_result(text)
            for text in ("48/2", "7/2", "3-7", "x", "0.5*4")] == [24, None, None, None, None]
    rng = random.Random(0)
    other = [vary_numbers("48/2", rng) for _ in range(40)]
    assert len(set(other)) > 20
    assert all(10 <= int(a) < 100 and 1 <= int(b) < 10 and int(a) % int(b) == 0
               for a, b in (text.split("/") for text in other))
    assert vary_numbers("1-10", rng) == "1-10"  # no other numbers of as many digits do
    (row,) = practice([solution], 1, rng)
    lines = row.messages[-1]["content"].splitlines()
    assert len(lines) == EACH and row.messages[0]["content"].splitlines()[1:] == [
        line.partition(" = ")[0] for line in lines]
    for line in lines:
        text, _, said = line.partition(" = ")
        assert said == f"<<{text}={whole_result(text)}>>{whole_result(text)}"
    with pytest.raises(ValueError, match="nothing to practise"):
        practice(["no notes"], 1, rng)


def test_practice_is_drawn_from_the_training_solutions(tmp_path):
    task = f"task=gsm8k:{gsm8k_folder(tmp_path)}"
    config = config_from_text("expert-iteration", [task, "kept.practice=3"])[1]
    assert write_practice(config, tmp_path / "a.jsonl", iter) == {"rows": 3}
    write_practice(config, tmp_path / "b.jsonl", iter)
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    asked = [line for row in rows for line in row["messages"][0]["content"].splitlines()[1:]]
    assert len(asked) == 3 * calculations.EACH and all(text.count("+") == 1 for text in asked)


def test_greedy_replies_are_read_both_ways():
    said = Rollout(prompt=prompt("a"), prompt_tokens=(1,), tokens=(2,), logp=(0.0,), text="x", seed=0,
                   finished=True)
    right, loosely, wrong = (Scored(rollout=said, verdict=Verdict(
        score=strict, parts={"correct": strict, "lenient": lenient}))
        for strict, lenient in ((1.0, 1.0), (0.0, 1.0), (0.0, 0.0)))
    found = task_figures(load_task("words"), ScoredSamples([[wrong]] * 4, [right, loosely, loosely, wrong]))
    assert (found["greedy"], found["greedy_lenient"], found["pass@1"], found["lenient"]) == (0.25, 0.75, 0, 0)
