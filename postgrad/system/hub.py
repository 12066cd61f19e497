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


# data sets by name

def is_dataset(name: object) -> bool:
    """Whether a text names a data set on the hub, hub:OWNER/NAME[@REVISION][:CONFIG][:SPLIT]."""
    return isinstance(name, str) and name.startswith("hub:")


def dataset_files(name: str, suffixes: Sequence[str]) -> list[Path]:
    """The files of one split of a data set on the hub, in the order of their names.

    hub:OWNER/NAME is the split "train"; hub:OWNER/NAME:test another; hub:OWNER/NAME:CONFIG:test that of one
    of several configs. The set's card says which files are a split's; without, their names and folders do.
    """
    id, *words = name.removeprefix("hub:").split(":")
    instead = "give the path of a file on this machine"
    if not is_id(id) or len(words) > 2:
        raise ValueError(f"{name!r} is no data set of the hub: expected hub:OWNER/NAME, "
                         "hub:OWNER/NAME:SPLIT or hub:OWNER/NAME:CONFIG:SPLIT.")
    config, split = ("", *words)[-2:] if words else ("", "train")
    card = download(id, ["README.md", ".gitattributes"], kind="dataset", instead=instead) / "README.md"
    patterns = _split_patterns(name, card, config, split) or [
        f"{before}{split}{after}{suffix}" for suffix in suffixes
        for before in ("", "**/") for after in ("", "-*", "_*", ".*", "/**/*")]
    coarse = [pattern.replace("**/", "*").replace("**", "*") for pattern in patterns]
    folder = download(id, coarse, kind="dataset", instead=f"name another split, or {instead}")
    wanted = re.compile("|".join(map(_pattern, patterns)))
    files = sorted(path for path in folder.rglob("*")
                   if path.is_file() and wanted.fullmatch(path.relative_to(folder).as_posix()))
    if other := [path.name for path in files if not path.name.endswith(tuple(suffixes))]:
        raise ValueError(f"{name} has the file {other[0]}, which is none of {', '.join(suffixes)}: "
                         f"{instead}.")
    if not files:
        raise ValueError(f"{name} has no files of the split {split!r}: name another split, or {instead}.")
    return files


def _split_patterns(name: str, card: Path, config: str, split: str) -> list[str]:
    """The file patterns of a split by a data set's card; none where the card names no files."""
    from huggingface_hub import metadata_load
    configs = {str(entry.get("config_name", "default")): entry
               for entry in ((metadata_load(card) or {}).get("configs") or () if card.is_file() else ())
               if isinstance(entry, dict) and entry.get("data_files")}
    if not configs and not config:
        return []
    named = [key for key, entry in configs.items()
             if key == config or not config and (len(configs) == 1 or entry.get("default"))]
    chosen = (named or [key for key in configs if not config and key == "default"])[:1]
    if not chosen:
        raise ValueError(f"{name} has several configs, or not this one: name one of "
                         f"{', '.join(configs) or 'none'}, hub:OWNER/NAME:CONFIG:SPLIT.")
    files = configs[chosen[0]]["data_files"]
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        files = [{"split": "train", "path": files}]
    paths = {str(file.get("split", "train")): file.get("path") for file in files}
    if split not in paths:
        raise ValueError(f"{name} has no split {split!r}: it has {', '.join(paths)}.")
    found = paths[split]
    return [str(path) for path in (found if isinstance(found, list) else [found])]


def _pattern(glob: str) -> str:
    """A glob as a regular expression: * within a folder, ** over several."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(parts.get(piece, re.escape(piece)) for piece in re.split(r"(\*\*/|\*\*|\*|\?)", glob))
