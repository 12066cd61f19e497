"""The five threads of the book: replies of our own models, as recorded, in every chapter."""

import pytest

from postgrad.data.tasks import load_task
from postgrad.records import Prompt
from postgrad.resolve.models import open_model
from postgrad.sampling import LocalSampler, Sampling
from postgrad.studio.book import blocks, chapters, inline
from postgrad.studio.book.computed import threads
from postgrad.studio.recordings import recording

REPLIES = recording("threads")["replies"]


def test_the_embedded_model_still_says_what_was_recorded():
    rows = [row for row in REPLIES if row["model"] == "tiny-chat"]
    sampler = LocalSampler(*open_model("tiny-chat"))
    said = sampler.sample([Prompt.ask(row["asked"]) for row in rows], 1,
                          Sampling(max_new_tokens=64, temperature=0.0), 0)
    assert len(rows) == 2 and [rollout.text for (rollout,) in said] == [row["reply"] for row in rows]


def test_products_are_judged_by_the_checker():
    """Each by the task whose form it was taught; a right number in another form is paid nothing."""
    plain, played = load_task("arithmetic"), load_task("big-numbers")
    for row in (row for row in REPLIES if row["thread"] == "product"):
        prompt = Prompt.ask(row["asked"], "391", expression="23*17")
        last = row["reply"].rpartition(" → ")[2]
        verdict = (played.verify(prompt, last) if row["model"] == "calculator"
                   else plain.verify(prompt, row["reply"]))
        assert (verdict.score >= 1, verdict.reason) == (row["right"], row["says"])
    real = next(row for row in REPLIES if (row["thread"], row["model"]) == ("product", "models/smollm2"))
    assert "391" in real["reply"] and not real["right"]


def test_refusals_are_counted():
    found = recording("threads")["refused"]
    assert found["harmful_refused"] > 0.9 * found["harmful"] and found["demonstrations"] > 0
    by = {row["model"]: row["says"] for row in REPLIES if row["thread"] == "refusal"}
    assert by["refuses"] == "refused" and by["tiny-chat"] == "not refused"


def test_a_long_reply_is_shown_up_to_its_answer():
    assert threads.shortened_reply("First.\n#### 3\n#### 3") == "First.\n#### 3 …"
    code = "def f():\n    return 1"
    assert threads.shortened_reply(f"So:\n```python\n{code}\n```\nThis") == f"{code} …"
    assert threads.shortened_reply("391") == threads.answer_line("391") == "391"


@pytest.mark.parametrize("chapter", chapters.all_chapters()[:6], ids=lambda c: c.name)
def test_every_chapter_of_the_story_takes_up_all_five(chapter):
    """By name, in one table, with what a model of ours replied. Chapters 7 to 10 go on from the story."""
    page, kept = list(blocks.walk_blocks(chapter.layers["intuition"])), chapters.stored_values()[chapter.name]
    tables = [*([[inline.plain_text(cell) for cell in row] for row in b.rows] for b in page
                if b.kind == "grid"),
              *(kept[b.argument]["rows"] for b in page if b.kind == "table")]
    whole = next(rows for rows in tables if set(threads.THREADS.values()) <= {row[0] for row in rows})
    said = " ".join(cell for row in whole for cell in row)
    for names in (("product_small", "product_real", "product_tool"), ("helpful_long", "helpful_terse"),
                  ("refusal_after",), ("school_end",), ("code_passed", "code_failed")):
        assert any(kept[name] in said for name in names), names
