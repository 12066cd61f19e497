"""RLAIF: judges by rules and by a model, and the files that the command writes."""

import json

import pytest
import torch
from constitutions import ASK, POLITE, RUDE, SHIPPED
from small import CHAT

from postgrad.cli import main
from postgrad.data.preferences import preference_report, read_pairs
from postgrad.data.rows import read_conversations
from postgrad.data.tasks import load_task
from postgrad.rewards.constitution import Constitution, Rule, read_constitution
from postgrad.rewards.judges import REVISION_REQUEST, PromptedJudge, RuleJudge, critique_request
from postgrad.sampling import Sampling, ScriptedSampler


class Reader:
    """A model that prefers the reply with `Hello` in it by `sense` nats,
    and the one shown first by `bias`."""

    def __init__(self, sense, bias):
        self.sense, self.bias = sense, bias

    def logp(self, tokens, mask):
        out = torch.zeros(tokens.shape)
        for i, row in enumerate(tokens):
            assert len(row[mask[i]]) == 1  # the letter alone, without the end of the turn
            first, second = CHAT.decode(row.tolist()).split("Reply A:")[1].split("Reply B:")
            liked = {"A": self.sense * ("Hello" in first) + self.bias, "B": self.sense * ("Hello" in second)}
            out[i][mask[i]] = liked[CHAT.decode(row[mask[i]].tolist())]
        return out, None


def prompted(model, script=None, rules=SHIPPED):
    return PromptedJudge(model, CHAT, ScriptedSampler(CHAT, script), rules, Sampling(max_new_tokens=128),
                         max_concurrent=6)


def test_a_liking_for_a_place_is_averaged_away():
    pairs = [(ASK, POLITE, RUDE), (ASK, RUDE, POLITE)]
    said, mirrored = prompted(Reader(2.0, 5.0)).compare(pairs, 0)
    # what one order and the other say of A
    p, q = (1 / (1 + torch.tensor(-x).exp().item()) for x in (7.0, 3.0))
    assert said.first == pytest.approx((p + 1 - q) / 2) and said.first + mirrored.first == pytest.approx(1)
    assert said.position == mirrored.position == pytest.approx((p + q) / 2) and said.rules == mirrored.rules
    blind = prompted(Reader(0.0, 5.0)).compare(pairs, 0)
    assert [o.first for o in blind] == [0.5, 0.5] and blind[0].position > 0.99


def test_the_rule_is_drawn_by_the_seed():
    pairs = [(ASK, POLITE, RUDE + " " * n) for n in range(30)]
    judge = prompted(Reader(1.0, 0.0))
    drawn = [[o.rules[0] for o in judge.compare(pairs, seed)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and len(set(drawn[0])) >= 4
    assert [o.rules[0] for o in judge.compare(pairs[::-1], 0)] == drawn[0][::-1]


def test_a_prompted_revision_follows_its_critique():
    manners = Constitution((Rule(name="manners", rule="Be kind."),))  # no check: for a judge that reads
    script = {critique_request(manners.rules[0])["content"]: ["The reply is unkind."],
              REVISION_REQUEST["content"]: [" A cow. "]}
    (made,) = prompted(None, script, manners).revise([(ASK, RUDE)], 0)
    assert (made.critique, made.text, made.rules) == ("The reply is unkind.", "A cow.", ("manners",))
    with pytest.raises(ValueError, match="rule 'manners' has no check, so code cannot judge by it"):
        RuleJudge(manners)


LINE = ["rlaif", "tiny-chat", "--task", "questions", "--prompts", "24", "--samples", "3", "--seed", "3",
        "--json", "--out"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rlaif") / "out"
    assert main([*LINE, str(folder)]) == 0
    return folder


def test_the_files_hold_what_the_summary_counts(made):
    found = json.loads((made / "summary.json").read_text())
    talks, pairs = read_conversations(made / "revisions.jsonl"), read_pairs(made / "pairs.jsonl")
    assert len(talks) + found["empty"] + found["emptied"] == 24 * 3
    seen = found["pairs"] + found["ties"] + found["identical"] + found["repeated"]
    assert found["empty"] or seen == 24 * 3  # three pairs of three samples
    assert len(pairs) == found["pairs"] > 20
    assert preference_report(pairs)["repeated"] == preference_report(pairs)["contradicted"] == 0
    assert all(SHIPPED.debt(p.chosen) < SHIPPED.debt(p.rejected) for p in pairs)
    assert found["keep all rules before"] < found["keep all rules after"] == sum(
        not SHIPPED.broken(t.messages[-1]["content"]) for t in talks)
    asked = {p.question for p in load_task("questions").prompts("train", 1000, 0)}
    assert {t.messages[0]["content"] for t in talks} | {p.messages[0]["content"] for p in pairs} <= asked
    assert read_constitution(made / "constitution.toml") == SHIPPED


def test_the_same_seed_gives_the_same_bytes(made, tmp_path, capsys):
    assert main([*LINE, str(tmp_path / "again")]) == 0
    assert {p.name: p.read_bytes() for p in made.iterdir()} == {p.name: p.read_bytes()
                                                                for p in (tmp_path / "again").iterdir()}
    capsys.readouterr()
    assert main([*LINE, str(made)]) == 2
    assert "is not an empty folder: give another one with --out" in capsys.readouterr().err


@pytest.mark.parametrize(("method", "file"), [("sft", "revisions"), ("dpo", "pairs"), ("reward", "pairs")])
def test_training_reads_the_files(made, tmp_path, method, file):
    change = ["rows_per_step=4"] if method == "sft" else ["pairs.per_step=4", "evaluation.every=0"]
    line = ["train", method, "model=tiny-chat", f"data={made}/{file}.jsonl", "steps=2", *change]
    assert main([*line, "--run", str(tmp_path / "run"), "--json"]) == 0
    rows = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and all(row["grad_norm"] > 0 for row in rows)


def test_a_model_as_judge_and_rules_of_ones_own(tmp_path, capsys):
    (tmp_path / "c.toml").write_text('[[rule]]\nname = "kind"\nrule = "Be kind."\n')
    line = [*LINE, str(tmp_path / "out"), "--constitution", str(tmp_path / "c.toml"), "--prompts", "3"]
    assert main(line) == 2 and "rule 'kind' has no check" in capsys.readouterr().err
    assert main([*line, "--judge", "tiny-chat"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rules"] == [{"rule": "kind", "broken before": None, "after": None,
                               "pairs decided": found["pairs"]}]
    assert found["pairs"] and 0 < found["reply shown first preferred"] < 1


@pytest.mark.parametrize(("change", "words"), [
    (["--samples", "1"], "2 samples to make a pair"),
    (["--constitution", "nowhere"], "there is no constitution nowhere"),
    (["--judge", "nowhere"], "no model at nowhere"),
    (["--max-new-tokens", "600"], "over the model's 512 positions"),
])
def test_bad_input_gets_a_sentence_and_leaves_nothing(tmp_path, capsys, change, words):
    assert main([*LINE, str(tmp_path / "out"), *change]) == 2
    assert words in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_what_a_person_sees(tmp_path, capsys):
    assert main([*(word for word in LINE if word != "--json"), str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert ("no insults" in said and "critique" in said
            and f"train dpo model=tiny-chat data={tmp_path}/out/pairs.jsonl" in said)
