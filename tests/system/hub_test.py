"""Hub ids: what is one, and what is said where the hub gives nothing. No test reaches the network."""

import httpx
import huggingface_hub
import pytest
from huggingface_hub import errors

from postgrad.system import hub

RESPONSE = httpx.Response(403, request=httpx.Request("GET", "https://example.org"))
FAULTS = {
    "go online once": errors.LocalEntryNotFoundError("no connection"),
    "asks for an agreement": errors.GatedRepoError("gated", response=RESPONSE),
    "no model some/model on the hub": errors.RepositoryNotFoundError("404", response=RESPONSE),
    "try again": errors.HfHubHTTPError("500 Server Error\nfor url", response=RESPONSE),
    "could not be fetched from the hub (disk full)": OSError("disk full"),
}


@pytest.mark.parametrize("name, is_one",
                         [("HuggingFaceTB/SmolLM2-135M-Instruct", True), ("a/b", True), ("./a/b", False),
                          ("../b", False), ("a/b/c", False), ("a", False), ("/a/b", False), ("a/..", False),
                          ("runs/grpo-words-1", True), ("a/b@v1.0", True), ("a/b@", False), ("a@v/b", False)])
def test_what_could_be_an_id(name, is_one):
    assert hub.is_id(name) is is_one


@pytest.mark.parametrize("said", FAULTS)
def test_every_fault_is_a_sentence_with_a_way_out(said, monkeypatch):
    def fail(*args, **options):
        raise FAULTS[said]

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ValueError) as raised:
        hub.download("some/model", ["config.json"], instead="name a folder on this machine")
    assert said in str(raised.value) and str(raised.value).endswith("name a folder on this machine.")
    assert "\n" not in str(raised.value)


def test_a_folder_without_the_files_is_refused(tmp_path, monkeypatch):
    asked = {}

    def fetch(id, **options):
        asked.update(options, id=id)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(ValueError, match="has none of train.jsonl"):
        hub.download("some/set", ["train.jsonl"], kind="dataset", instead="name a file")
    (tmp_path / "train.jsonl").write_text("")
    assert hub.download("some/set", ["train.jsonl"], kind="dataset", instead="name a file") == tmp_path
    assert asked == {"id": "some/set", "repo_type": "dataset", "allow_patterns": ["train.jsonl"],
                     "revision": None}
