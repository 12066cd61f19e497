"""Files of the Hugging Face hub, in its own cache: models and data sets by id.

Nothing that comes from there is executed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")  # owner/name, owner/name@revision


def is_id(name: str) -> bool:
    """Whether a text can be a hub id: "HuggingFaceTB/SmolLM2-135M" -> True; ./folder and a/b/c are paths.

    A revision (a branch, a tag, a commit) may follow: HuggingFaceTB/SmolLM2-135M@main.
    """
    return bool(ID.fullmatch(name)) and not name.startswith((".", "-")) and ".." not in name


def download(id: str, files: Sequence[str], *, kind: str = "model", instead: str) -> Path:
    """The folder of a model or dataset with these files (patterns such as "*.json"), from the cache or
    fetched.

    id: owner/name, or owner/name@revision. instead: the end of an error's sentence, what to do without the
    hub: "name a folder on this machine".
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    name, _, revision = id.partition("@")
    try:
        folder = Path(snapshot_download(name, repo_type=kind, allow_patterns=list(files),
                                        revision=revision or None))
    except GatedRepoError as error:
        raise ValueError(f"the {kind} {id} asks for an agreement on the hub: accept it there and log in (hf "
                         f"auth login), or {instead}.") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ValueError(f"there is no {kind} {id} on the hub, or it is private: check the spelling, log in "
                         f"(hf auth login), or {instead}.") from error
    except RevisionNotFoundError as error:
        raise ValueError(f"the {kind} {name} on the hub has no revision {revision!r}: leave it "
                         f"out, or {instead}.") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise ValueError(f"the {kind} {id} is not in the cache on this machine and the hub cannot be "
                         f"reached: go online once, or {instead}.") from error
    except (HfHubHTTPError, OSError) as error:
        raise ValueError(f"the {kind} {id} could not be fetched from the hub ({_line(error)}): try again, "
                         f"or {instead}.") from error
    if not any(any(folder.rglob(pattern)) for pattern in files):
        raise ValueError(f"the {kind} {id} on the hub has none of {', '.join(files)}: {instead}.")
    return folder


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
