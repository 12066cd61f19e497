"""serve --record: the exact tokens and log-probs of every chat, by conversation."""

import pytest
import torch
from serve_small import ASK, client, events, post, served

from postgrad.serving import session_recorder
from postgrad.serving.session_recorder import Recorder, read_sessions

SURE = {"role": "user", "content": "Are you <|end|>sure?"}


def keyed(name):
    return {"headers": {"Authorization": "Bearer secret", "X-Session-ID": name}}


def test_a_conversation_that_goes_on_is_one_row_and_its_tokens_are_those_that_were_sampled(tmp_path):
    what = served()
    what.recorder = Recorder(tmp_path / "kept", what.chat)
    with client(what) as web:
        def chat(key, messages, **more):
            answer = web.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 20,
                                                            "return_token_ids": True, **more}, **keyed(key))
            assert answer.status_code == 200, answer.text
            return events(answer.text) if more.get("stream") else answer.json()
        first = chat("ann", ASK, seed=1, temperature=1.5)["choices"][0]
        second = chat("ann", [*ASK, first["message"], SURE], seed=2)
        streamed = chat("bob", ASK, seed=1, temperature=1.5, stream=True)
        chat("ann", [*ASK, {**first["message"], "content": "Seven."}, SURE], seed=3)
        chat("not a/name", ASK, n=2)
    kept = read_sessions(tmp_path / "kept")
    assert {"ann", "bob"} < set(kept) and len(kept) == 3
    row, other = kept["ann"].rows
    assert [t.role for t in row.turns] == ["assistant", "user", "assistant"] and len(other.turns) == 1
    assert list(row.tokens[: row.turns[0].end]) == first["token_ids"]
    assert [*row.prompt_tokens, *row.tokens[: row.turns[1].end]] == second["prompt_token_ids"]
    end = what.chat.id("<|end|>")
    shown = row.tokens[row.turns[1].start: row.turns[1].end]
    assert shown.count(end) == 1  # the template's, not the client's
    assert kept["bob"].tokens == row.tokens[: row.turns[0].end] and len(streamed) > 2
    net = what.worker.batch.model
    for rollout, heat in ((kept["bob"], 1.5), (other, 1.0)):
        tokens = torch.tensor([[*rollout.prompt_tokens, *rollout.tokens]])
        mask = torch.arange(tokens.shape[1])[None] >= len(rollout.prompt_tokens)
        assert net.logp(tokens, mask, heat)[0][mask].tolist() == pytest.approx(rollout.logp, abs=1e-4)


def test_a_key_is_a_session_and_no_file_has_its_name(tmp_path):
    what = served()
    recorder = Recorder(tmp_path / "kept", what.chat)
    ann, bob, nobody = (recorder.session({"authorization": f"Bearer {key}"}).path.stem
                        for key in ("ann", "bob", ""))
    assert nobody == "nobody" and len({ann, bob, nobody}) == 3 and "ann" not in ann
    assert recorder.session({"authorization": "Bearer ann"}).path.stem == ann


def test_a_session_is_for_the_key_that_began_it_and_has_an_end(tmp_path, monkeypatch):
    what = served()
    what.recorder = Recorder(tmp_path / "kept", what.chat)
    with client(what) as web:
        def chat(key, name):
            return web.post("/v1/chat/completions", json={"messages": ASK, "max_tokens": 2},
                            headers={"Authorization": f"Bearer {key}", "X-Session-ID": name})

        assert chat("ann", "one").status_code == 200
        assert chat("bob", "one").status_code == 403 and "another client's" in chat("bob", "one").text
        before = (tmp_path / "kept" / "one.jsonl").read_text()
        monkeypatch.setattr(session_recorder, "MOST_BYTES", len(before) - 1)
        assert chat("ann", "one").status_code == 429
        monkeypatch.setattr(session_recorder, "MOST_FILES", 1)
        assert chat("ann", "two").status_code == 429 and chat("ann", "two").status_code == 429
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["one.jsonl"]
    assert (tmp_path / "kept" / "one.jsonl").read_text() == before


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(ValueError, match="not an empty folder"):
        Recorder(tmp_path, served().chat)


def test_without_a_folder_nothing_is_kept(tmp_path):
    with client() as web:
        assert post(web, "/v1/chat/completions", messages=ASK, max_tokens=2)["choices"]
