"""The audit on judges whose biases are known, because they were written down; and the command, end to end."""

import json
import statistics
import zlib

import pytest
import rlhf as bench
import torch
from small import CHAT, small_model

from postgrad.cli import main
from postgrad.data.tasks import load_task
from postgrad.data.tasks.questions import FACTS, FILLER, FREE_WORDS, KNOWN, reply_words
from postgrad.evaluation import edits
from postgrad.evaluation.audit import (
    THRESHOLD,
    answers_of_pairs,
    answers_of_task,
    audit_scores,
    bias_verdict,
    label_agreement,
    text_scorer,
)
from postgrad.evaluation.edits import NEUTRAL, PRAISE, PROBES, draw_probes, insert, repeat, split_sentences
from postgrad.models import ScalarModel, save_model
from postgrad.records import Pair

ANSWERS, TRUTH = answers_of_task(load_task("questions"), 60, 0)
WORDS = [len(text.split()) for _, text in ANSWERS]


def taste(answer):
    """What a judge thinks of an answer for reasons of its own:
    noise that hangs on the opening alone, and no edit moves."""
    return zlib.crc32(answer[1].split()[0].encode() + answer[0][-1]["content"].encode()) / 2**31


def judge(pay):
    return lambda answers: [taste(a) + pay(a[1]) for a in answers]


def verdicts(found):
    return {row["probe"]: row["verdict"] for row in found["probes"]}


def row(found, name):
    return next(r for r in found["probes"] if r["probe"] == name)


def test_a_judge_of_length_is_found_and_its_slope_is_the_price_of_a_word():
    found = audit_scores(ANSWERS, lambda answers: [0.25 * len(text.split()) for _, text in answers])
    length = row(found, "length")
    assert length["verdict"] == "biased up" and length["rises"] == 1.0
    assert (length["slope"]["per_token"] == pytest.approx(0.25)
            and length["slope"]["interval"] == pytest.approx([0.25, 0.25]))
    # one, two and three of all neutral sentences: on average twice their mean length, at 0.25 a word,
    # over the spread
    wanted = 0.25 * 2 * statistics.fmean(len(s.split()) for s in NEUTRAL) / (0.25 * statistics.stdev(WORDS))
    assert [k["effect"] for k in length["kinds"]] == sorted(k["effect"] for k in length["kinds"])
    assert length["effect"] == pytest.approx(wanted, rel=0.05)
    # all that these edits do is to add words, and the audit says so
    for name in ("sycophancy", "repetition"):
        assert row(found, name)["effect"] == pytest.approx(row(found, name)["by_length"])


def test_the_price_of_a_word_may_be_negative():
    found = audit_scores(ANSWERS, lambda answers: [-0.01 * len(text.split()) for _, text in answers],
                  names=["length"])
    assert (verdicts(found) == {"length": "biased down"}
            and found["probes"][0]["slope"]["per_token"] == pytest.approx(-0.01))


BIASES = {
    "format": lambda text: 3.0 * (("**" in text) + ("- " in text) + ("## " in text)),
    "sycophancy": lambda text: 3.0 * any(text.startswith(p) for p in PRAISE),
    "repetition": lambda text: -3.0 * (len(parts := split_sentences(text)[0]) - len(set(parts))),
    "position": lambda text: 3.0 * text.endswith(("Hello!", "Good day!", "Hello there!", "Hi there!")),
    "length": lambda text: 0.5 * sum(text.count(s) for s in NEUTRAL),
}


@pytest.mark.parametrize("name", BIASES)
def test_each_bias_is_found_where_it_is_and_nowhere_else(name):
    found = audit_scores(ANSWERS, judge_of_the_question(BIASES[name]))
    expected = ({probe: "none found" for probe in PROBES}
                | {name: "biased down" if name == "repetition" else "biased up"})
    assert verdicts(found) == expected


def judge_of_the_question(pay):
    """The rest of the score hangs on the question, which no edit touches."""
    return lambda answers: [zlib.crc32(m[-1]["content"].encode()) / 2**31 + pay(text) for m, text in answers]


def test_a_judge_who_looks_at_the_question_alone_has_no_bias():
    found = audit_scores(ANSWERS, judge_of_the_question(lambda text: 0.0))
    assert set(verdicts(found).values()) == {"none found"}
    assert all(r["effect"] == 0.0 and r["rises"] == 0.0 for r in found["probes"])


def test_dislike_of_one_sentence_is_not_dislike_of_length():
    """Over answers alone the interval would be as narrow as can be:
    the same sentence is put into all of them."""
    found = audit_scores(ANSWERS, judge_of_the_question(lambda text: 4.0 * ("There you have it." in text)),
                  names=["length"])
    low, high = found["probes"][0]["interval"]
    assert low < 0 < high and verdicts(found) == {"length": "none found"}


def test_a_random_taste_for_wordings_is_rarely_taken_for_a_bias():
    """Each sentence is liked or disliked by itself, by a judge of each seed:
    no more than about one in twenty is accused."""
    accused = 0
    for seed in range(60):
        tastes = {s: zlib.crc32(f"{seed}/{s}".encode()) / 2**31 - 1 for s in NEUTRAL}
        found = audit_scores(ANSWERS[:20],
                      judge_of_the_question(lambda text, t=tastes: sum(t[s] for s in t if s in text)),
                      seed=seed, names=["length"])
        accused += found["probes"][0]["verdict"] != "none found"
    assert accused <= 6


def test_the_rule():
    assert bias_verdict(THRESHOLD, 0.01,
                        0.5) == "biased up" and bias_verdict(-0.3, -0.5, -0.1) == "biased down"
    assert bias_verdict(0.3, -0.01, 0.6) == bias_verdict(THRESHOLD - 0.01, 0.1, 0.25) == "none found"


def test_the_true_quality_stands_beside():
    found = audit_scores(ANSWERS, TRUTH, truth=TRUTH)
    for r in found["probes"]:  # a judge who is the truth: every effect is deserved
        assert r["truth"] == pytest.approx(r["effect"])
    assert row(found, "repetition")["verdict"] == "biased down"


def test_the_true_quality_is_indifferent_to_the_neutral_sentences():
    """Up to the 24 words that are free.

    Beyond, they have a price, which the column of the true quality shows.
    """
    edited, before = [], []
    for messages, text in ANSWERS:
        for probe in draw_probes(["length"], 1):
            for wording in probe.wordings:
                if len(reply_words(new := insert(text, wording))) <= FREE_WORDS:
                    edited.append((messages, new))
                    before.append((messages, text))
    same = [a == pytest.approx(b) for a, b in zip(TRUTH(edited), TRUTH(before), strict=True)]
    assert len(same) > 100 and all(same)


def test_what_cannot_be_edited_is_counted():
    single = [a for a in ANSWERS if len(split_sentences(a[1])[0]) == 1]
    rows = audit_scores(single, judge(lambda text: 0.0), names=["position"])["probes"]
    assert (rows[0]["verdict"] == "not measured"
            and rows[0]["left_out"] == {"does not apply": 2 * len(single), "too long": 0})
    assert "not measured" in rows[0]["sentence"]
    room = max(WORDS)
    found = audit_scores(ANSWERS, judge(lambda text: 0.0), names=["repetition"], max_tokens=room)["probes"][0]
    assert (found["left_out"]["too long"] > 0
            and found["edits"] + found["left_out"]["too long"] == 2 * len(ANSWERS))
    assert audit_scores(ANSWERS, judge(len), names=["format"],
                        max_tokens=room - 1)["too_long"] == WORDS.count(room)
    with pytest.raises(ValueError, match="fit into the model's 1 tokens"):
        audit_scores(ANSWERS, judge(len), max_tokens=1)
    with pytest.raises(ValueError, match="60 answers the same, 2"):
        audit_scores(ANSWERS, lambda answers: [2.0] * len(answers))
    with pytest.raises(ValueError, match="not all finite"):
        audit_scores(ANSWERS, lambda answers: [float("nan")] * len(answers))


def test_edits_change_one_thing():
    text = "Hello! A dog eats meat.\nHave a nice day!"
    assert (insert(text, ["So it is.", "That is that."])
            == "Hello! A dog eats meat. So it is. That is that.\nHave a nice day!")
    assert (insert("A dog eats meat.", ["So it is."]) == "A dog eats meat. So it is."
            and insert(text, []) == text)
    assert repeat(text, 2) == "Hello! A dog eats meat. A dog eats meat.\nHave a nice day!"
    assert edits.make_bold("a\n\nb") == "**a**\n\n**b**"
    assert edits.bullets(text) == "- Hello!\n- A dog eats meat.\n- Have a nice day!"
    assert (edits.heading(text) == "## Hello!\n\nA dog eats meat.\nHave a nice day!"
            and edits.heading("Yes.") == "## Yes.")
    for probe in draw_probes(["format", "position"], 0):
        for change in probe.kinds.values():
            assert sorted(reply_words(change(text, ()))) == sorted(reply_words(text))


def test_the_neutral_sentences_are_of_the_embedded_corpus_and_held_out_from_the_bench():
    assert {word for s in NEUTRAL + PRAISE for word in reply_words(s)} <= KNOWN
    rivals = {word for fact in FACTS for phrase in fact.rivals if "bigger" not in phrase
              for word in reply_words(phrase)}
    # "the long of it" would answer a question about opposites
    assert not rivals & {word for s in NEUTRAL for word in reply_words(s)}
    assert not set(NEUTRAL) & (set(bench.NEUTRAL) | set(FILLER)) and len(set(NEUTRAL)) == len(NEUTRAL) == 24
    (length,) = draw_probes(["length"], 3)
    assert sorted(s for wording in length.wordings for s in wording) == sorted(NEUTRAL)  # each in one wording


def test_the_bench_plants_length_and_nothing_else():
    control, planted = (bench.label("train", 1000, 0, bias) for bias in (0.0, bench.BIAS))
    for a, b in zip(control, planted, strict=True):
        assert a == b or (a.messages, a.chosen, a.rejected) == (b.messages, b.rejected, b.chosen)
    turned = [b for a, b in zip(control, planted, strict=True) if a != b]
    assert 50 < len(turned) < 200 and all(len(reply_words(p.chosen)) > len(reply_words(p.rejected))
                                          for p in turned)


def random_reward_model(folder):
    model = ScalarModel(small_model())
    model.score_head.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    folder.mkdir()
    save_model(model, folder)
    CHAT.save(folder)
    return model


def test_the_scorer_gives_each_text_its_own_score(tmp_path):
    model = random_reward_model(tmp_path / "model")
    said = ANSWERS[:12]
    with torch.no_grad():
        alone = [model.score(torch.tensor([row]), torch.tensor([len(row)])).item()
                 for row in (CHAT.answer(*a)[0] for a in said)]
    assert text_scorer(model, CHAT, tokens_per_pass=200)(said) == pytest.approx(alone, abs=1e-5)


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random_reward_model(tmp_path / "model")
    assert main(["audit", "model", "--count", "4", "--json", "--out", "figures.json"]) == 0
    said, err = capsys.readouterr()
    found = json.loads(said)
    assert err == "" and found == json.loads((tmp_path / "figures.json").read_text())
    assert (list(verdicts(found)) == list(PROBES) and found["answers"] == 4
            and found["source"] == "questions, test split")
    for r in found["probes"]:
        assert r["interval"][0] <= r["effect"] <= r["interval"][1] and r["truth"] is not None
    assert main(["audit", "model", "--count", "4", "--seed", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found

    pairs = [{"prompt": "Why?", "chosen": "It is so. I know it.", "rejected": "No."},
             {"prompt": "How?", "chosen": "So. As it is.", "rejected": "I do not know."}]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs))
    assert main(["audit", "model", "--pairs", "pairs.jsonl", "--probes", "repetition,length"]) == 0
    shown = capsys.readouterr().out
    assert "4 answers to 2 prompts (pairs.jsonl)" in shown and "The longest sentence said again: " in shown
    assert "position" not in shown and "agreement with the labels: " in shown and " of 2 pairs (" in shown


@pytest.mark.parametrize("line, wanted", [
    ("tiny-chat", "tiny-chat is no reward model: it scores all 0"),
    ("nowhere", "no model at nowhere"),
    ("model --probes lenght", "no probe 'lenght': did you mean 'length'?"),
    ("model --count 1", "--count is 1: it must be at least 2"),
    ("model --task questions --pairs x.jsonl", "not both"),
    ("model --pairs x.jsonl", "no file x.jsonl"),
    ("model --out no/where.json", "there is no folder no"),
])
def test_bad_input_gets_a_sentence(tmp_path, capsys, monkeypatch, line, wanted):
    monkeypatch.chdir(tmp_path)
    random_reward_model(tmp_path / "model")
    assert main(["audit", *line.split()]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("postgrad: ") and wanted in said[0], said


def test_both_sides_of_pairs_are_answers_once_each():
    pairs = load_task("questions").preferences("test", 40, 0)
    said = answers_of_pairs(pairs * 2, 1000, 0)
    assert len(said) == len({(p.messages[0]["content"], x) for p in pairs for x in (p.chosen, p.rejected)})
    assert answers_of_pairs(pairs, 5, 0) != answers_of_pairs(pairs, 5, 1)


def test_agreement_with_labels_by_hand():
    """Of four pairs the judge of length has two right, one wrong and one equal: 2.5 of 4; a tie does not
    count."""
    def pair(i, chosen, rejected, **more):
        return Pair(id=str(i), messages=({"role": "user", "content": f"{i}?"},), chosen=chosen,
                    rejected=rejected, **more)

    pairs = [pair(0, "long", "no"), pair(1, "longer", "yes"), pair(2, "a", "bb"), pair(3, "cc", "dd"),
             pair(4, "x", "yyyy", tie=True)]
    found = label_agreement(pairs, lambda answers: [float(len(text)) for _, text in answers])
    assert (found["share"], found["pairs"], found["equal"], found["ties"]) == (0.625, 4, 1, 1)
    assert 0 <= found["interval"][0] < 0.625 < found["interval"][1] <= 1
    assert label_agreement(pairs[4:], lambda answers: [0.0] * len(answers)) is None
