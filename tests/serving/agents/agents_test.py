"""Agents: programs with an OpenAI client play, and their exact tokens are trained on."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from doc_blocks import blocks
from paths import ASSETS, ROOT

import postgrad as pg
from postgrad.cli import main
from postgrad.data.environments import Player
from postgrad.records import Prompt
from postgrad.resolve.models import open_writer
from postgrad.resolve.tasks import make_task
from postgrad.sampling import LocalSampler, Sampling
from postgrad.serving.agents import Agent, played_by

HERE = ASSETS / "agents"
PLAIN = f"{sys.executable} -I {HERE / 'plain.py'}"
QUESTION = "Tom has 3 pears and buys 4 more. How many pears does he have?"


@pytest.fixture(scope="module")
def opened():
    net, chat = open_writer("tiny-chat")
    return net.requires_grad_(False), chat


def played(opened, *plays, verify=None, group_size=1, seed=0, turns=None, **agent):
    net, chat = opened
    task = make_task([{"question": QUESTION, "answer": "7"}], verify or (lambda prompt, text: "7" in text))
    task = replace(task, verify=None) if verify is False else task
    task = played_by(Agent(command=PLAIN, **agent), task, chat, net)
    prompts = [Prompt.ask(QUESTION, "7", id=f"{name}-{i}", plays=name) for i, name in enumerate(plays)]
    groups = Player(task, LocalSampler(net, chat), turns=turns).sample(
        prompts, group_size, Sampling(max_new_tokens=24), seed)
    return [rollout for group in groups for rollout in group]


def test_a_game_is_one_row_of_the_tokens_that_were_sampled(opened):
    net, chat = opened
    made = played(opened, "two", "two", group_size=2)
    assert len({r.tokens for r in made}) == 4  # seeds are the episodes' own
    for r in made:
        assert [t.role for t in r.turns] == ["assistant", "user", "assistant"] and not r.earlier
        tokens, mask = torch.tensor([[*r.prompt_tokens, *r.tokens]]), torch.tensor([[False] * len(
            r.prompt_tokens) + list(r.mask)])
        mine = net.logp(tokens, mask)[0][mask]
        assert mine.tolist() == pytest.approx([x for x, m in zip(r.logp, r.mask, strict=True) if m], abs=1e-4)
        shown = chat.tokenizer.decode([t for t, m in zip(r.tokens, r.mask, strict=True) if not m],
                                      skip_special_tokens=False)
        assert "Are you sure?" in shown and r.verdict.error is None
    alone = played(opened, "two", "two", group_size=2, at_once=1)
    assert [r.tokens for r in alone] == [r.tokens for r in made]  # however many play at once


def test_a_conversation_that_does_not_go_on_is_a_new_row(opened):
    (made,) = played(opened, "forgets")
    replies = [turn for row in made.rows for turn in row.turns if turn.role == "assistant"]
    assert len(made.rows) == 3 and len(replies) == 4
    first, retold, branch = sorted(made.rows, key=lambda r: (len(r.turns) < 3, len(r.prompt_tokens)))
    assert len(first.turns) == 3 and len(retold.turns) == len(branch.turns) == 1
    reply = first.tokens[: first.turns[0].end]
    asked_again = next(r for r in (retold, branch) if r.prompt_tokens[: len(first.prompt_tokens) + len(reply)]
                       == (*first.prompt_tokens, *reply))  # the sampled tokens, as they are
    assert asked_again.mask is None


@pytest.mark.parametrize(("verify", "plays", "wanted"), [
    (None, "crashes", "exit code 1: RuntimeError: the tool is broken"),
    (None, "hangs", "for 1 s; agent.seconds"),
    (None, "silent", "without asking the model"), (None, "unsound", 'expected {"score": 0.5}'),
    (None, "cold", "temperature is the training's to choose"), (None, "stranger", "of no episode"),
    (False, "judged", "wrote no"), (False, "echoes", "wrote no"), (None, "greedy", "agent.highest allows -1 "
                                                                                   "to 1"),
])
def test_a_fault_of_the_agent_is_named_and_no_score(opened, verify, plays, wanted):
    (made,) = played(opened, plays, verify=verify, seconds=1 if plays == "hangs" else 30)
    assert made.verdict.error.startswith("infrastructure: the agent") and wanted in made.verdict.error


def test_the_verifier_judges_where_no_score_is_written_and_turns_have_an_end(opened):
    judged, endless, echo = played(opened, "judged", "endless", "echoes", turns=3)
    assert echo.verdict.score == float("7" in echo.text)  # not the printed {"score": 1000000}
    assert judged.verdict.error is None and judged.verdict.score == float("7" in judged.text)
    assert endless.verdict.score == 0 and endless.verdict.reason == "no verdict after 3 replies"


def kept_by(opened, tmp_path, plays, **agent):
    net, chat = opened
    task = make_task([{"question": QUESTION, "answer": "7"}], lambda prompt, text: 1)
    task = played_by(Agent(command=PLAIN, **agent), task, chat, net)
    kept = tmp_path / "kept"
    ((made,),) = Player(task, LocalSampler(net, chat)).sample(
        [Prompt.ask(QUESTION, "7", plays=plays, kept=str(kept))], 1, Sampling(max_new_tokens=4), 0)
    assert made.verdict.score == 1
    return kept.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
def test_what_an_agent_leaves_behind_is_ended(opened, tmp_path):
    number = kept_by(opened, tmp_path, "leaves")
    stat = Path(f"/proc/{number}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_an_agent_is_given_no_keys(opened, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("POSTGRAD_JUDGE_KEY", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("SEARCH_KEY", "mine")
    given = json.loads(kept_by(opened, tmp_path, "looks"))
    assert "secret" not in given.values() and "HTTPS_PROXY" not in given and given["LC_ALL"] == "C.UTF-8"
    assert "SEARCH_KEY" not in given and {"PATH", "OPENAI_API_KEY", "POSTGRAD_SCORE"} <= given.keys()
    given = json.loads(kept_by(opened, tmp_path, "looks", env="SEARCH_KEY"))
    assert given["SEARCH_KEY"] == "mine" and "AWS_SECRET_ACCESS_KEY" not in given
    with pytest.raises(ValueError, match=r"agent.env names 'NOT_THERE'.*set it"):
        Agent(command=PLAIN, env="NOT_THERE")


def train(folder, command, *words):
    small = ["rollouts.prompts_per_step=1", "rollouts.group_size=2", "rollouts.max_new_tokens=24",
             "evaluation.every=0", "save_every=1", "optim.schedule=constant", *words]
    assert main(["train", "grpo", *small, "--task", "words", "--agent", command, "--run", str(folder),
                 "--json"]) == 0
    return pg.Run.open(folder)


def test_openais_client_trains_a_policy(tmp_path):
    """The program of docs/agents.md."""
    (block,) = [block for block in blocks(ROOT / "docs" / "agents.md") if block.words == "my_agent.py"]
    (tmp_path / "my_agent.py").write_text(block.text)
    run = train(tmp_path / "run", f"python {tmp_path / 'my_agent.py'}", "steps=1")
    (row,) = run.metrics()
    assert row["turns"] == 2 and row["errors"] == row["new_rows"] == 0 and row["mismatch"] < 1e-4
    said = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert len(said) == 2 and all("Are you sure?" in "".join(sample["tokens"]) for sample in said)
    assert all([turn["reward"] for turn in s["turns"]] == [0.0, None, s["score"]] for s in said)


def test_a_run_goes_on_bit_for_bit_and_not_with_another_agent(tmp_path, capsys):
    agent = tmp_path / "agent.py"
    agent.write_text((HERE / "plain.py").read_text())
    command = f"{sys.executable} -I {agent}"
    whole, parts = (train(tmp_path / f"to-{n}", command, f"steps={n}") for n in (2, 1))
    agent.write_text(agent.read_text() + "# a comment changes nothing that it does\n")
    assert main(["resume", str(parts.folder), "steps=2", "--json"]) == 0
    first, second = (next(run.latest().glob("*.safetensors")).read_bytes() for run in (whole, parts))
    assert whole.latest().name == parts.latest().name and first == second
    agent.write_text(agent.read_text() + "changed = True\n")
    assert main(["resume", str(parts.folder), "steps=3", "--json"]) != 0
    assert "has changed since this run began" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "wanted"), [
    (["--task", "words", "--agent", "no-such-program x"], "there is no program 'no-such-program'"),
    (["--task", "guess", "--agent", PLAIN], "task guess plays by itself"),
    (["--task", "words", "--agent", PLAIN, "agent.at_once=0"], "agent.at_once 0"),
])
def test_an_agent_that_cannot_play_is_refused_before_anything_is_trained(words, wanted, tmp_path, capsys):
    assert main(["train", "grpo", *words, "--run", str(tmp_path / "run")]) != 0
    assert wanted in capsys.readouterr().err
