"""Publishes a run's model on the hub: the exported folder and its card.

    postgrad push runs/grpo-words-1 me/words --dry-run    the card and the files, nothing is sent
    postgrad push runs/grpo-words-1@best me/words         the best checkpoint, in a repository of one's own
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from postgrad.recipes.export import export_model
from postgrad.resolve.models import run_named
from postgrad.runs.rows import JsonDict
from postgrad.system.files import error_text
from postgrad.system.hub import is_id


def push_run(name: str, repository: str, *, adapter: bool = False, dtype: str | None = None,
             licence: str | None = None, private: bool = False, dry_run: bool = False) -> JsonDict:
    """Exports the model and uploads it; -> its card, its files and where they are. dry_run: nothing is sent.
    """
    if not is_id(repository) or "@" in repository:
        raise ValueError(f"{repository!r} is no repository of the hub: expected OWNER/NAME.")
    if not run_named(name):
        raise ValueError(f"{name} is no run: what is published is the model of a run, with the card of how "
                         "it was trained; other folders go up with `hf upload`.")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        made = export_model(name, folder, adapter=adapter, dtype=dtype, licence=licence)
        card = check_card(name, folder)
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        out = {"run": name, "repository": repository, "files": files, "bytes": made["bytes"], "card": card}
        return out | ({"dry_run": True} if dry_run else {"url": upload(folder, repository, private)})


def check_card(name: str, folder: Path) -> str:
    """The card, once huggingface_hub has read it; one without a licence is refused."""
    from huggingface_hub import ModelCard
    path = folder / "README.md"
    if not path.exists():
        raise ValueError(f"{name} is the model that the run began with, not the run's work: name {name} "
                         "without @0.")
    text = path.read_text("utf-8")
    if not ModelCard(text).data.get("license"):
        raise ValueError("the licence of the model that the run began with is not known here: say it with "
                         "--license, by its SPDX name such as apache-2.0.")
    return text


def upload(folder: Path, repository: str, private: bool) -> str:
    """Creates the repository unless it is there, and uploads the folder as one commit; -> its address."""
    from huggingface_hub import HfApi, ModelCard, get_token
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
    if get_token() is None:
        raise ValueError("nobody is logged in to the hub: `hf auth login`, or set HF_TOKEN.")
    api = HfApi()
    try:
        ModelCard((folder / "README.md").read_text("utf-8")).validate()
        url = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Upload of postgrad push")
    except HfHubHTTPError as error:
        code = error.response.status_code
        remedy = ("log in with a token that may write there (hf auth login)" if code in (401, 403)
                  else "try again")
        raise ValueError(f"the hub refused {repository} ({code}: {error_text(error)}): {remedy}.") from error
    except (OfflineModeIsEnabled, OSError) as error:
        raise ValueError(f"the hub cannot be reached ({error_text(error)}): go online and push again; the "
                         "run is as it was.") from error
    return str(url)
