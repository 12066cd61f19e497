"""The pipelines that ship: each cut at everything it does, and gone on with to the same bits."""

import json
from collections import Counter
from functools import cache

import pytest
from pipeline_small import check_cuts, run_small, small_stages

from postgrad.cli import main
from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import load_task
from postgrad.data.tasks.mixed import part_of
from postgrad.recipes.difficulty import read_rates
from postgrad.recipes.pipelines import r1
from postgrad.recipes.pipelines.r1 import write_cold_start
from postgrad.recipes.pipelines.stages import Stage
from postgrad.runs import Run
from postgrad.system.settings import flat_settings

SMALL = {
    "r1-zero": "task=words collections=2 problems=2 samples=2".split(),
    "r1": ("task=words both=words+questions lengths.cold=2 lengths.reasoning=2 lengths.sft=2 "
           "lengths.reward=2 lengths.last=2 problems=2 samples=2 gathered.chains=8 gathered.prompts=4 "
           "gathered.pairs=8").split(),
    "instruct": "sft_steps=2 pairs=8 reward_steps=2 collections=1 problems=2 samples=2".split(),
    "expert-iteration": ("task=words model=tiny-chat prompts=6 lengths.sft=2 lengths.grpo=2 lengths.again=2 "
                         "lengths.last=2 kept.samples=4 kept.practice=0 rates.imitation=none "
                         "rates.grpo=none rates.last=none problems=1 samples=2").split(),
}


@pytest.fixture(autouse=True, scope="module")
def quickly():
    with small_stages():
        yield


def carried_out(name, folder, stages=None):
    return run_small(name, SMALL[name], folder, stages)


@pytest.fixture(scope="module")
def whole(quickly, tmp_path_factory):
    """(folder, summary) of a pipeline that was left alone."""
    @cache
    def of(name):
        folder = tmp_path_factory.mktemp("whole") / name
        return folder, carried_out(name, folder)
    return of


LONG = ("instruct", "r1", "expert-iteration")  # the steps of the others, in another order


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] if name in LONG else [])
                                  for name in SMALL])
def test_cut_at_everything_it_does_it_ends_the_same(name, whole, tmp_path):
    folder, summary = whole(name)
    check_cuts(folder, tmp_path / "cut", lambda cut, stages: carried_out(name, cut, stages))
    assert summary["tables"] and summary["minutes"] > 0


def test_instruct_is_sft_a_reward_model_and_ppo_with_text(whole, capsys):
    folder, _ = whole("instruct")
    assert main(["resume", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "True quality on 2 held-out prompts" in out and "Reward model" in out
    runs = {name: Run.open(folder / name) for name in ("sft", "reward", "ppo")}
    assert [runs[name].info["model"] for name in runs] == ["tiny", f"{folder}/sft", f"{folder}/sft"]
    assert runs["ppo"].config["reward"] == f"{folder}/reward" and runs["ppo"].config["ptx"]["coef"] == 0.1
    assert [p["name"] for p in json.loads((folder / "summary.json").read_text())["policies"]] == [
        "base", "sft", "ppo"]


def test_r1_zero_is_grpo_on_a_base_by_rules_alone(whole):
    folder, summary = whole("r1-zero")
    run = Run.open(folder / "rl")
    assert (run.info["method"], run.info["model"]) == ("grpo", "tiny-zero")
    assert run.config["reward"] == "correct+0.2*think"
    (rows,) = summary["tables"].values()
    assert [(row["model"], row["task"]) for row in rows] == [("base", "words"), ("rl", "words")]
    assert {"pass@1", "pass@1_interval", "pass@2", "format", "turn_back", "worded"} <= rows[0].keys()


def test_r1_has_four_stages_and_one_table(whole):
    folder, summary = whole("r1")
    runs = {name: Run.open(folder / name) for name in ("cold", "reasoning", "sft", "reward", "last")}
    starts = {name: run.info["model"].removeprefix(f"{folder}/") for name, run in runs.items()}
    assert starts == {"cold": "tiny-zero", "reasoning": "cold", "sft": "tiny-zero", "reward": "sft",
                      "last": "sft"}
    chains = [json.loads(line) for line in (folder / "chains/conversations.jsonl").read_text().splitlines()]
    assert len(chains) == 8 and all("plus" in text or "minus" in text or "times" in text or "divided" in text
                                    for text in (row["messages"][-1]["content"] for row in chains))
    verify, prompts = load_task("words").verify, {p.question: p for p in load_task("words").prompts(
        "train", 4, 0)}
    kept = [json.loads(line)["messages"] for line in
            (folder / "kept/conversations.jsonl").read_text().splitlines()]
    assert kept and all(verify(prompts[asked["content"]], said["content"]).score == 1 for asked, said in kept)
    shares = {source["name"].rpartition("/")[2]: source["share"]
              for source in runs["sft"].info["data"]["sources"]}
    assert shares == {"conversations.jsonl": 0.75, "questions": 0.25}
    assert runs["last"].config["reward"].startswith(f"questions={folder}/reward;correct")
    rows, thoughts = summary["tables"].values()
    assert [row["stage"] for row in rows] == ["base", "cold", "reasoning", "sft", "last"]
    assert all({"words", "words_interval", "format", "true quality", "minutes"} <= row.keys() for row in rows)
    assert [(row["stage"], row["task"]) for row in thoughts] == [(row["stage"], "words") for row in rows]


def test_requests_to_refuse_are_in_r1_where_a_share_of_them_is_asked_for():
    def stages(*changes):
        config = config_from_text("r1", changes)[1]
        return {step.name: step.config for step in r1.pipeline(config).steps if isinstance(step, Stage)}

    plain, safe = stages(), stages("gathered.safety=0.2")
    assert plain["sft"].data == "{kept}/conversations.jsonl:0.75,questions:0.25"
    assert safe["sft"].data == ("{kept}/conversations.jsonl:0.55,questions:0.25,harmful-requests:0.1,"
                                "benign-requests:0.1")
    rules = "correct+think+0.2*language"
    assert plain["last"].reward == f"questions={{reward}};{rules}"
    assert safe["last"].reward == ("questions={reward};harmful-requests=correct;benign-requests=correct;"
                                   f"{rules}")
    assert safe["last"].task == f"{plain['last'].task}+harmful-requests+benign-requests"
    same = [name for name in plain if plain[name] == safe[name]]
    assert same == ["cold", "reasoning", "reward"]


def test_every_stage_of_r1_is_asked_what_it_refuses():
    small = ["task=words", "both=words+questions", "problems=2", "samples=1"]
    config = config_from_text("r1", [*small, "gathered.safety=0.2"])[1]
    rates = r1.refusal_rates(r1.r1_figures(config, "tiny-zero", iter))
    assert rates == {"harmful-requests refused": 0.0, "benign-requests refused": 0.0}  # nobody taught it
    assert r1.refusal_rates({"safety": {"harmful-requests": {"reward/refused": 0.75}}}) == {
        "harmful-requests refused": 0.75}
    assert r1.refusal_rates({"reasoning": {}}) == {}


def test_the_chains_of_a_cold_start_are_right_and_search_where_there_is_something_to_find(tmp_path):
    config = config_from_text("r1", ["gathered.chains=60"])[1]
    write_cold_start(config, tmp_path / "chains.jsonl", iter)
    task, lines = load_task(config.task), (tmp_path / "chains.jsonl").read_text().splitlines()
    replies = {asked["content"]: said["content"]
               for asked, said in (json.loads(line)["messages"] for line in lines)}
    prompts = task.prompts("train", 60, config.seed)
    assert len(replies) == 60 and all(task.verify(p, replies[p.question]).score == 1 for p in prompts)
    assert all(step.right for p in prompts for step in task.steps(p, replies[p.question]))
    tries = [replies[p.question].count("no.") for p in prompts if part_of(p) == "countdown"]
    assert len(tries) == 20 and 0 in tries and max(tries) >= 4
    assert all(" más " in replies[p.question] or " menos " in replies[p.question] or " por " in
               replies[p.question] or " entre " in replies[p.question] for p in prompts
               if part_of(p) == "words-es")


def test_expert_iteration_is_taught_what_was_right_and_trains_on_what_was_not_always(whole):
    folder, summary = whole("expert-iteration")
    runs = {name: Run.open(folder / name) for name in ("sft", "grpo", "again", "last")}
    starts = {name: run.info["model"].removeprefix(f"{folder}/") for name, run in runs.items()}
    assert starts == {"sft": "tiny-chat", "grpo": "sft", "again": "tiny-chat", "last": "again"}
    task = load_task("words")
    prompts = {p.question: p for p in task.prompts("train", 6, 0)}
    kept = [json.loads(line)["messages"] for line in
            (folder / "kept/conversations.jsonl").read_text().splitlines()]
    assert all(task.verify(prompts[asked["content"]], said["content"]).score == 1 for asked, said in kept)
    most = Counter(asked["content"] for asked, _ in kept).most_common(1)[0][1]
    assert most <= 4 and len({*map(str, kept)}) == len(kept)
    sources = [source["name"].rpartition("/")[2] for source in runs["again"].info["data"]["sources"]]
    assert sources == ["words", "conversations.jsonl"]
    rates = read_rates(str(folder / "kept/rates.jsonl"))
    trained = {row["prompt"] for row in runs["last"].rows("samples")[0]}
    assert trained <= {p.question for p in prompts.values() if 0 < rates[p.id] < 1} and len(rates) == 6
    (rows,) = summary["tables"].values()
    assert [row["stage"] for row in rows] == ["sft", "grpo", "again", "last"]
    assert all({"pass@1", "lenient", "greedy", "greedy_lenient", "pass@2", "minutes"} <= row.keys()
               for row in rows)


def test_a_mixture_is_measured_part_by_part():
    from postgrad.recipes.pipelines import measured
    from postgrad.recipes.pipelines.r1_zero import R1ZeroConfig
    config = R1ZeroConfig(task="words+countdown", problems=2, samples=2)
    found = measured.figures_by_part(config, "tiny-chat", iter)
    assert list(found) == ["words", "countdown"] and all(said["problems"] == 2 for said in found.values())
    line = measured.solved_row(found)
    assert line["countdown"] == found["countdown"]["pass@1"] and len(line["words_interval"]) == 2
    assert [row["task"] for row in measured.part_rows(found)] == ["words", "countdown"]


@pytest.mark.parametrize("spec", ["r1-zero:quick", "r1:quick", "expert-iteration:quick"])
def test_quick_settings_are_a_few_steps(spec):
    config = flat_settings(config_from_text(spec)[1])
    whole = flat_settings(config_from_text(spec.partition(":")[0])[1])
    lengths = [key for key in whole if key == "collections" or key.startswith("lengths.")]
    assert lengths and all(config[key] <= 2 < 20 <= whole[key] for key in lengths)
