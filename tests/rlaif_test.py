"""RLAIF: the constitution's checks and mends, its two judges, and the files that the command writes."""

import itertools
import json
import random

import pytest
import torch
from small import CHAT

from postgrad.cli import main
from postgrad.data.preferences import read_pairs, report
from postgrad.data.rows import read_conversations
from postgrad.records import Prompt
from postgrad.rewards.constitution import CHECKS, Constitution, Rule, read_constitution
from postgrad.rewards.judges import REVISION_REQUEST, PromptedJudge, RuleJudge, critique_request
from postgrad.sampler import Sampling, ScriptedSampler
from postgrad.tasks import load_task, questions

ASK = Prompt.ask("What does a cow eat?", id="cow")
POLITE = "Hello! A cow eats grass. I hope this helps!"
RUDE = "What a silly question. A cow eats grass."
SHIPPED = read_constitution()


def rule(check, mend=None, **values):
    return Rule(name=check, rule="As it says.", check=check, critique="It says {found}.",
                mend=mend or CHECKS[check].mends[0], **values)


@pytest.mark.parametrize(("made", "text", "found"), [
    (rule("starts_with_one_of", texts=("Hello!", "Good day!")), "hello, you", None),
    (rule("starts_with_one_of", texts=("Hello!",)), "Helloween is a day of pumpkins", '"Helloween is a day"'),
    (rule("starts_with_one_of", texts=("Hello!",)), "  ", "nothing"),
    (rule("ends_with_one_of", texts=("Bye now!",)), "It is red. Bye now", None),
    (rule("ends_with_one_of", texts=("Bye now!",)), "Bye now! It is red.", '"now! It is red."'),
    (rule("contains_any_of", texts=("please", "thank you")), "I thank you.", None),
    (rule("contains_any_of", texts=("please", "thank you")), "I thank all.", 'none of "please", "thank you"'),
    (rule("contains_none_of", texts=("art", "fool", "shut up")), "A part of the foolish shut it up", None),
    (rule("contains_none_of", texts=("art", "fool", "shut up")), "SHUT up, fool!", '"fool", "shut up"'),
    (rule("at_most_words", words=3), "One, two - three!", None),
    (rule("at_most_words", words=3), "One two three four", "4 words, 3 are enough"),
    (rule("no_repeated_phrase", words=2), "It is, is it? A is a.", None),
    (rule("no_repeated_phrase", words=2), "It is so. Is it is", '"it is"'),
    (rule("no_repeated_phrase", words=1), "It is it", '"it"'),
])
def test_checks_by_hand(made, text, found):
    assert made.found(text) == found


@pytest.mark.parametrize(("made", "text", "mended"), [
    (rule("starts_with_one_of", texts=("Hello!",)), " It is red.", "Hello! It is red."),
    (rule("ends_with_one_of", texts=("Bye!",)), "It is red.", "It is red. Bye!"),
    (rule("contains_any_of", texts=("Please.",)), "Go.", "Please. Go."),
    (rule("contains_any_of", "append", texts=("Please.",)), "Go.", "Go. Please."),
    (rule("contains_none_of", texts=("fool",)), "Hi! You fool. It is red.\nFool", "Hi! It is red."),
    (rule("contains_none_of", "cut", texts=("fool",)), "It is red, you fool. Bye!", "It is red, you"),
    (rule("at_most_words", words=4), "Hi! It is very very red. Bye now!", "Hi! Bye now!"),
    (rule("at_most_words", "cut", words=4), "Hi! It is very very red.", "Hi! It is very"),
    (rule("no_repeated_phrase", words=2), "It is red. It is red. Bye!", "It is red. Bye!"),
    (rule("no_repeated_phrase", "cut", words=2), "It is red and it is blue.", "It is red and it"),
    (rule("at_most_words", words=2), "fine \n as  ", "fine \n as  "),
    (rule("contains_none_of", texts=("fool",)), "Fool!", ""),
])
def test_mends_by_hand(made, text, mended):
    assert made.mended(text, random.Random(0)) == mended


PIECES = ["Hello!", "hello", "fool", "FOOL.", "a", "b", "A b a b.", "Bye!", "\n", "  ", "...", "ß", "İ", "ΑΣ", "é\u0301",
          "x\u00a0y", "\u2028", "what?", "", "-fool-", "🙂", "\x1c", "İ." * 3]
KINDS = [rule(check, mend, **({"texts": ("Hello!", "a b", "ß İ", "ΑΣ")} if kind.needs == "texts" else {"words": 2}))
         for check, kind in CHECKS.items() for mend in kind.mends]


def strange_texts(count, seed=0):
    rng = random.Random(seed)
    return [rng.choice(["", " ", "\n"]).join(rng.choices(PIECES, k=rng.randrange(14))) for _ in range(count)]


@pytest.mark.parametrize("made", KINDS, ids=lambda r: f"{r.check}-{r.mend}")
def test_a_mended_text_keeps_its_rule(made):
    touched = 0
    for i, text in enumerate(strange_texts(300)):
        after = made.mended(text, random.Random(i))
        touched += after != text
        assert made.found(after) is None, text
        assert made.mended(after, random.Random(i + 1)) == after
    assert touched > 20


def test_a_revision_is_never_worse_and_the_same_when_revised_again():
    rng, helped = random.Random(1), 0
    for i, text in enumerate(strange_texts(300, seed=1)):
        rules = Constitution(tuple(rng.sample(KINDS, 3)))  # among them rules that no text can keep together
        after = rules.revised(text, i)
        assert rules.debt(after) <= rules.debt(text) and rules.revised(after, i) == after
        assert after == text or rules.debt(after) < rules.debt(text)
        helped += after != text
    assert helped > 50


def test_the_shipped_rules_mend_every_style_of_the_writer():
    rng = random.Random(0)
    for fact, style in itertools.product(questions.FACTS[:40], questions.STYLES):
        text = questions.reply(fact, style, rng)
        after = SHIPPED.revised(text, 0)
        assert not SHIPPED.broken(after) and ("polite" == style) <= (after == text)
        before, now = (questions.quality(Prompt.ask(fact.question), t).parts for t in (text, after))
        assert now["correct"] == before["correct"]  # manners change, the truth doesn't
        assert now["rude"] == now["filler"] == now["repetition"] == 0 and now["greets"] == now["closes"] == 0.5


def test_critiques_and_labels_of_the_shipped_rules():
    judge = RuleJudge(SHIPPED)
    (made,) = judge.revise([(ASK, RUDE)], 0)
    assert made.rules == ("no insults", "greeting", "closing")
    assert made.critique.startswith('The reply is rude: it says "silly". The reply does not greet: it begins with "What')
    said, mirrored = judge.compare([(ASK, POLITE, RUDE), (ASK, RUDE, POLITE)], 0)
    assert (said.first, mirrored.first) == (1, 0) and said.rules == mirrored.rules == made.rules
    one, none = judge.compare([(ASK, "Hello! Red.", "Red."), (ASK, "Red.", "Blue.")], 0)
    assert (one.first, one.rules) == (1, ("greeting",)) and (none.first, none.rules) == (0.5, ())
    wrong = "Hello! A cow eats meat. I hope this helps!"
    assert judge.compare([(ASK, wrong, POLITE)], 0)[0].first == 0.5  # the truth is not among the rules


def test_weights_decide_between_rules():
    light, heavy = (rule("contains_none_of", texts=(word,), weight=w) for word, w in (("ugly", 0.3), ("fool", 0.4)))
    judge = RuleJudge(Constitution((light, heavy)))
    assert judge.compare([(ASK, "Ugly.", "Fool.")], 0)[0].first == 1
    thirds = tuple(rule("contains_none_of", texts=(w,), weight=x) for w, x in (("a", 0.1), ("b", 0.2), ("c", 0.3)))
    assert RuleJudge(Constitution(thirds)).compare([(ASK, "a b", "c")], 0)[0].first == 0.5  # 0.1 + 0.2 is 0.3 here


GOOD = {"name": "short", "rule": "Be short.", "check": "at_most_words", "words": 9, "critique": "{found}", "mend": "cut"}


@pytest.mark.parametrize(("change", "words"), [
    ({"name": None}, r"rule 1: name is missing; expected a text"),
    ({"rule": 3}, r"rule 1 \('short'\): rule is 3; expected a text"),
    ({"check": "eval"}, r"\('short'\): check is 'eval'; expected one of starts_with_one_of, "),
    ({"check": ["at_most_words"]}, r"\('short'\): check is \['at_most_words'\]; expected one of"),
    ({"words": 0}, r"\('short'\): words is 0; expected a whole number of at least 1"),
    ({"words": True}, r"\('short'\): words is True"),
    ({"words": None}, r"\('short'\): words is missing"),
    ({"texts": ["a"]}, r"\('short'\): texts is \['a'\]; expected that it is left out: at_most_words reads words"),
    ({"mend": "append"}, r"\('short'\): mend is 'append'; expected drop or cut"),
    ({"mend": None}, r"\('short'\): mend is missing"),
    ({"critique": " "}, r"\('short'\): critique is ' '; expected a text"),
    ({"weight": -1}, r"\('short'\): weight is -1; expected a number above 0"),
    ({"weight": float("nan")}, r"\('short'\): weight is nan"),
    ({"colour": "red"}, r"\('short'\): colour is 'red'; expected no other fields"),
    ({"check": None}, r"\('short'\): words is 9; expected that it is left out, or a check beside it"),
    ({"check": "contains_none_of", "words": None, "texts": ["a", "!"], "mend": "drop"}, r"\('short'\): texts is \['a', '!'\]"),
])
def test_a_fault_is_named_with_its_rule_and_field(tmp_path, change, words):
    table = {k: v for k, v in (GOOD | change).items() if v is not None}
    path = tmp_path / "c.toml"
    lines = (f"{k} = {v if isinstance(v, float) else json.dumps(v)}" for k, v in table.items())
    path.write_text("[[rule]]\n" + "\n".join(lines))
    with pytest.raises(ValueError, match=rf"c\.toml, {words}" if words.startswith("rule") else words):
        read_constitution(path)


@pytest.mark.parametrize(("text", "words"), [
    ("", "expected .*rule.* tables and nothing else; found none"),
    ("rule = 3", "tables and nothing else"), ("rule = [3]", "rule 1 is 3"),
    ("[[rules]]\nname = 'a'", "found 'rules'"), ("[[rule", "cannot be read as TOML"),
    ("[[rule]]\nname='a'\nrule='b'\n[[rule]]\nname='a'\nrule='c'", "rule 'a': name stands twice"),
])
def test_a_file_that_is_no_constitution_is_said(tmp_path, text, words):
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_constitution(tmp_path / "c.toml")


class Reader:
    """A model that prefers the reply with `Hello` in it by `sense` nats, and the one shown first by `bias`."""

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
    return PromptedJudge(model, CHAT, ScriptedSampler(CHAT, script), rules, Sampling(max_new_tokens=128), rows_at_once=6)


def test_a_liking_for_a_place_is_averaged_away():
    pairs = [(ASK, POLITE, RUDE), (ASK, RUDE, POLITE)]
    said, mirrored = prompted(Reader(2.0, 5.0)).compare(pairs, 0)
    p, q = (1 / (1 + torch.tensor(-x).exp().item()) for x in (7.0, 3.0))  # what one order and the other say of A
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


LINE = ["rlaif", "tiny-chat", "--task", "questions", "--prompts", "24", "--samples", "3", "--seed", "3", "--json", "--out"]


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
    assert report(pairs)["repeated"] == report(pairs)["contradicted"] == 0
    assert all(SHIPPED.debt(p.chosen) < SHIPPED.debt(p.rejected) for p in pairs)
    assert found["keep all rules before"] < found["keep all rules after"] == sum(
        not SHIPPED.broken(t.messages[-1]["content"]) for t in talks)
    asked = {p.question for p in load_task("questions").prompts("train", 1000, 0)}
    assert {t.messages[0]["content"] for t in talks} | {p.messages[0]["content"] for p in pairs} <= asked
    assert read_constitution(made / "constitution.toml") == SHIPPED


def test_the_same_seed_gives_the_same_bytes(made, tmp_path, capsys):
    assert main([*LINE, str(tmp_path / "again")]) == 0
    assert {p.name: p.read_bytes() for p in made.iterdir()} == {p.name: p.read_bytes() for p in (tmp_path / "again").iterdir()}
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
    assert found["rules"] == [{"rule": "kind", "broken before": None, "after": None, "pairs decided": found["pairs"]}]
    assert found["pairs"] and 0 < found["reply shown first preferred"] < 1


@pytest.mark.parametrize(("change", "words"), [
    (["--samples", "1"], "2 samples to make a pair"), (["--constitution", "nowhere"], "there is no constitution nowhere"),
    (["--judge", "nowhere"], "no model at nowhere"), (["--max-new-tokens", "600"], "over the model's 512 positions"),
])
def test_bad_input_gets_a_sentence_and_leaves_nothing(tmp_path, capsys, change, words):
    assert main([*LINE, str(tmp_path / "out"), *change]) == 2
    assert words in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_what_a_person_sees(tmp_path, capsys):
    assert main([*(word for word in LINE if word != "--json"), str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "no insults" in said and "critique" in said and f"train dpo model=tiny-chat data={tmp_path}/out/pairs.jsonl" in said
