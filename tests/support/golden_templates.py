"""What `transformers` makes of conversations with real chat templates: ids, and masks where TRL marks them.

    python tests/support/golden_templates.py FOLDER    records tests/assets/templates.json

FOLDER holds the .jinja files of llama-cpp-python's source distribution; TRL's are read from the installed
package. No template is stored here: the record has the hash of each file, of the ids and of the mask.
"""

import hashlib
import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from postgrad.models import find_model
from postgrad.models.chat import Chat

RECORD = Path(__file__).parents[1] / "assets" / "templates.json"
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer", "description": "one"},
                                     "b": {"type": "integer", "description": "the other"}},
    "required": ["a", "b"]}}}
ASK, MORE = {"role": "user", "content": "What is 2+3?"}, {"role": "user", "content": "And 10 more, où 数?"}
FIVE, FIFTEEN = {"role": "assistant", "content": "It is 5."}, {"role": "assistant", "content": "🙂 15"}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "call12345", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}]}
CALL_TEXT = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "call12345", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}]}
RESULT = {"role": "tool", "tool_call_id": "call12345", "name": "add", "content": "5"}
TALKS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "single": ([ASK, FIVE], []),
    "system": ([{"role": "system", "content": "Be brief."}, ASK, FIVE], []),
    "turns": ([ASK, FIVE, MORE, FIFTEEN], []),
    "thoughts": ([ASK, FIVE | {"reasoning_content": "2 and 3 make 5."}, MORE,
                  FIFTEEN | {"reasoning_content": "5+10"}], []),
    "written": ([ASK, FIVE | {"content": "<think>\n2 and 3\n</think>\n\nIt is 5."}, MORE,
                 FIFTEEN | {"content": "<think>\n5+10\n</think>\n\n🙂 15"}], []),
    "tools": ([ASK, CALL, RESULT, FIVE, MORE, FIFTEEN], [TOOL]),
    "calls as text": ([ASK, CALL_TEXT, RESULT, FIVE, MORE, FIFTEEN], [TOOL]),
}
NAMES = re.compile(r"<\|[^|<>{}'\"\n]{1,40}\|>|<｜[^｜<>{}'\"\n]{1,40}｜>|<\|[a-z_]+>|<[a-z_]+\|>"
                   r"|\[/?[A-Z_]{3,24}\]|\[gMASK\]|<sop>|</?(?:start|end)_of_\w+>|</?s>|<(?:bos|eos)>|<\[[^\]<>]+\]>|\]<\]\w+\[>\[")
ROLES = ("system", "user", "assistant", "tool")
BEGINS = ("<｜begin▁of▁sentence｜>", "<|begin_of_text|>", "<|startoftext|>", "<|START|>", "<BOS_TOKEN>",
          "<bos>", "<s>")
ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<turn|>", "<｜end▁of▁sentence｜>",
        "<|END_OF_TURN_TOKEN|>", "<|end_of_turn|>", "<|return|>", "<|end|>", "<end_of_utterance>",
        "<|endoftext|>", "<|end_of_text|>", "<|eom|>", "[e~[", "</s>", "<eos>")


class Today(datetime):
    """A clock for templates that write the date."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime(2026, 1, 2)


def short_hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def trl_folder() -> Path | None:
    found = importlib.util.find_spec("trl")
    return Path(str(found.origin)).parent / "chat_templates" if found else None


def templates(folder: Path | None = None) -> Iterator[tuple[str, Path, Path | None]]:
    """Name, file and TRL's training twin: TRL's own, and those of a folder."""
    ours = trl_folder()
    for path in sorted(ours.glob("*.jinja")) if ours else ():
        if not path.stem.endswith("_training"):
            twin = path.with_name(f"{path.stem}_training.jinja")
            yield f"trl/{path.stem}", path, twin if twin.exists() else None
    for path in sorted(folder.rglob("*.jinja")) if folder else ():
        yield f"llama.cpp/{path.stem}", path, None


def write_tokens(source: str, folder: Path) -> Path:
    """The embedded model's tokenizer with the template's control tokens added, and the template."""
    tiny = find_model("tiny")
    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    names = [*dict.fromkeys(NAMES.findall(source))]
    if "'<|' +" in source or "<|{{" in source:
        names += [f"<|{role}|>" for role in ROLES]
    bos = next((name for name in BEGINS if name in names), "<s>" if "bos_token" in source else None)
    eos = next((name for name in ENDS if name in source), "</s>")
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False)
                                  for name in dict.fromkeys([*names, *([bos] if bos else []), eos])])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in
                          ("<think>", "</think>", "<tool_call>", "</tool_call>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": eos,
        "pad_token": "<|pad|>", "clean_up_tokenization_spaces": False}))
    (folder / "chat_template.jinja").write_text(source)
    return folder


def open_chat(source: str) -> Chat:
    with tempfile.TemporaryDirectory() as folder:
        return Chat.load(write_tokens(source, Path(folder)))


def record_template(path: Path, twin: Path | None) -> dict[str, Any]:
    """Hash of the file, and by conversation: the ids' hash and that of the prompt's (all but the last turn,
    with the generation prompt); with a twin the hashes of its ids and mask. A conversation that the template
    refuses, or renders without the assistant's words, has none."""
    from transformers import PreTrainedTokenizerFast
    source = path.read_text()
    talks: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        theirs = PreTrainedTokenizerFast.from_pretrained(write_tokens(source, Path(folder)))
        for name, (messages, tools) in TALKS.items():
            how = {"tools": tools or None, "return_dict": True}
            try:
                text = theirs.apply_chat_template(messages, tokenize=False, **how)
                if not all(m["content"].split()[-1] in text for m in messages
                           if m["role"] == "assistant" and m["content"]):
                    continue
                ids = theirs.apply_chat_template(messages, **how)["input_ids"]
                prompt = theirs.apply_chat_template(messages[:-1], add_generation_prompt=True,
                                                    **how)["input_ids"]
            except Exception as error:  # noqa: BLE001 - a template may refuse in any way
                talks[name] = {"refused": type(error).__name__}
                continue
            talks[name] = {"ids": short_hash(ids), "prompt": short_hash(prompt)}
            if twin:
                marked = theirs.apply_chat_template(messages, chat_template=twin.read_text(),
                                                    return_assistant_tokens_mask=True, **how)
                talks[name] |= {"twin": short_hash(marked["input_ids"]),
                                "mask": short_hash([int(on) for on in marked["assistant_masks"]])}
    return {"file": hashlib.sha256(path.read_bytes()).hexdigest()[:16], "talks": talks}


def main(folder: Path) -> None:
    import transformers
    import trl
    transformers.utils.chat_template_utils.datetime = Today
    found = {name: record_template(path, twin) for name, path, twin in templates(folder)}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in found.items())
    RECORD.write_text(f'{{"transformers": "{transformers.__version__}", "trl": "{trl.__version__}", '
                      f'"templates": {{\n{lines}}}}}\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
