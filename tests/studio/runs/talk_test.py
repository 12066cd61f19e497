"""A question to a checkpoint is answered by that checkpoint's weights."""

from studio_small import Texts, client, make
from talk_small import talking

from postgrad.resolve.models import open_named_model
from postgrad.runs import Run

QUESTION = "What is 2 + 3?"


def test_a_checkpoint_answers_and_what_cannot_be_asked_is_a_sentence(tmp_path):
    talking(tmp_path)
    web = client(tmp_path)
    page = web.get("/runs/a").text
    assert '<option value="2">step 2</option>' in page
    asked = {"run": "a", "step": "2", "question": QUESTION, "tokens": "16"}
    said = Texts(web.post("/runs/-/talk", data=asked).text).text
    assert open_named_model("tiny-chat").reply(QUESTION, max_new_tokens=16, temperature=0.0) in said
    for wrong in ({"question": " "}, {"step": "9"}, {"temperature": "hot"}, {"tokens": "100000"},
                  {"temperature": "nan"}, {"question": "x" * 5000}):
        assert web.post("/runs/-/talk", data=asked | wrong).status_code == 400, wrong
    assert web.post("/runs/-/talk", data=asked | {"run": "../a"}).status_code == 400


def test_a_run_that_cannot_be_talked_to_says_why(tmp_path):
    make(tmp_path / "young", 1)
    run = Run.create(tmp_path / "judge", recipe="reward", config={}, steps=1, method="reward")
    run.close()
    web = client(tmp_path)
    assert "has no checkpoint yet" in web.get("/runs/young").text
    assert "scores text and writes none" in web.get("/runs/judge").text
