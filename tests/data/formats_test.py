"""Files as people have them: trained tokens and masks are TRL's, or one sentence says what is wrong."""

import copy
import csv
import gzip
import json
from types import SimpleNamespace

import pytest
from format_corpus import CASES, TRL

import postgrad
from postgrad.data.preferences import read_pairs, read_singles
from postgrad.data.rows import BadRows, read_conversations, read_rows_file
from postgrad.data.tasks.listed import read_prompts
from postgrad.models.chat import Chat
from postgrad.training.batches.offline import TokenLimit, encode_conversation, encode_pair, encode_single

FOLDER = f"{postgrad.__path__[0]}/models/embedded/tiny-tools"
CHAT = Chat.load(FOLDER)
MARKED = (CHAT.template.replace("<|{{ m.role }}|>", "<|{{ m.role }}|>{% if m.role == 'assistant' %}"
                                "{% generation %}{{ m.content }}{% for call in m.tool_calls or [] %}<tool>"
                                "{{ call.function.name }}{% for value in call.function.arguments.values() "
                                "%} {{ value }}{% endfor %}</tool>{% endfor %}<|end|>{% endgeneration %}"
                                "{% else %}")
          .replace("<|end|>{% endfor %}{% if add", "<|end|>{% endif %}{% endfor %}{% if add"))


def write(case, tmp_path):
    path = tmp_path / f"{case.name}{case.suffix}"
    path.write_bytes(case.rows if isinstance(case.rows, bytes) else
                     "".join(json.dumps(row) + "\n" for row in case.rows).encode())
    return path


def our_rows(case, path):
    """[(tokens, mask), ...] of each row, for a pair of chosen and rejected, and the line that is said."""
    bad = BadRows()
    if case.kind == "sft":
        rows = [encode_conversation(row, CHAT) for row in read_conversations(path, bad)]
    elif case.kind == "kto":
        rows = [encode_single(row, CHAT) for row in read_singles(path, bad)]
    elif case.kind == "rl":
        placed = read_rows_file(path, bad)
        prompts = read_prompts([row for _, row in placed], [at for at, _ in placed].__getitem__, bad=bad,
                               counted=True)
        rows = [(tokens, [False] * len(tokens)) for tokens in (CHAT.render(p.messages) for p in prompts)]
    else:
        rows = [(list(row.tokens), list(row.mask)) for pair in read_pairs(path, bad)
                for row in encode_pair(pair, CHAT, TokenLimit(4096))]
    return rows, bad.understood.note(path.name)[0]


@pytest.fixture(scope="module")
def tokenizer():
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(FOLDER)


def sft_rows(rows, tokenizer, tmp_path):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    talks = "text" not in rows[0] and "prompt" not in rows[0]
    args = trl.SFTConfig(output_dir=str(tmp_path), assistant_only_loss=talks, use_cpu=True, bf16=False,
                         max_length=None)
    fake = SimpleNamespace(_tokenizer=tokenizer, chat_template=MARKED if talks else None,
                           completion_only_loss="prompt" in rows[0])
    made = trl.SFTTrainer._prepare_dataset(fake, datasets.Dataset.from_list(copy.deepcopy(rows)), tokenizer,
                                           args, False, None, "train")
    return [(row["input_ids"], [label != -100 for label in row["labels"]]) for row in made]


def dpo_rows(rows, tokenizer, tmp_path):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    args = trl.DPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_length=None)
    made = trl.DPOTrainer._prepare_dataset(SimpleNamespace(_tokenizer=tokenizer),
                                           datasets.Dataset.from_list(copy.deepcopy(rows)), tokenizer, args,
                                           "train")
    return [(row["prompt_ids"] + row[side], [False] * len(row["prompt_ids"]) + [True] * len(row[side]))
            for row in made for side in ("chosen_ids", "rejected_ids")]


def kto_rows(rows, tokenizer, tmp_path):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    args = trl.KTOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_length=None)
    fake = SimpleNamespace(_tokenizer=tokenizer, calculate_KL=False, desirable_weight=1.0,
                           undesirable_weight=1.0)
    made = trl.KTOTrainer._prepare_dataset(fake, datasets.Dataset.from_list(copy.deepcopy(rows)), tokenizer,
                                           args, "train")
    return [(row["prompt_ids"] + row["completion_ids"],
             [False] * len(row["prompt_ids"]) + [True] * len(row["completion_ids"])) for row in made]


def rl_rows(rows, tokenizer, tmp_path):
    ids = [tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)
           for row in rows]
    return [(tokens, [False] * len(tokens)) for tokens in ids]


THEIRS = {"sft": sft_rows, "dpo": dpo_rows, "kto": kto_rows, "rl": rl_rows}


@pytest.mark.parametrize("case", [c for c in CASES if not isinstance(c.want, str) or c.want == TRL],
                         ids=lambda case: case.name)
def test_tokens_and_masks_are_those_of_trl(case, tokenizer, tmp_path):
    ours, said = our_rows(case, write(case, tmp_path))
    wanted = case.rows if case.want == TRL else case.want
    theirs = THEIRS[case.kind](wanted, tokenizer, tmp_path)
    assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in theirs]
    assert case.said in said
    for (tokens, mask), (_, trained) in zip(ours, theirs, strict=True):
        if "several turns" in case.said:  # TRL trains what stands between the assistant's turns too
            assert sum(mask) < sum(trained) or mask == trained
            assert all(there for here, there in zip(mask, trained, strict=True) if here)
            texts = CHAT.tokenizer.decode([t for t, here in zip(tokens, mask, strict=True) if here],
                                          skip_special_tokens=False)
            assert "<|user|>" not in texts and "Sure?" not in texts
        elif wanted[0].get("text"):
            assert mask[1:] == trained[1:]  # the first token has no context
        else:
            assert mask == trained


@pytest.mark.parametrize("case", [c for c in CASES if isinstance(c.want, str) and c.want != TRL],
                         ids=lambda case: case.name)
def test_what_is_not_honoured_is_refused_in_a_sentence(case, tmp_path):
    with pytest.raises(ValueError) as caught:
        our_rows(case, write(case, tmp_path))
    assert case.want in str(caught.value) and str(caught.value).count("\n") == 0


def test_the_corpus_is_whole():
    assert len({case.name for case in CASES}) == len(CASES) >= 90


PAIRS = [{"prompt": f"What is {n}?", "chosen": f'{n}, "of course".', "rejected": "No,\nnever."}
         for n in range(3)]


def test_files_of_all_kinds_hold_the_same_rows(tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in PAIRS)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "lines.json").write_text(lines)
    (tmp_path / "a.json").write_text(json.dumps(PAIRS, indent=1))
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(lines)
    with (tmp_path / "a.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, PAIRS[0])
        table.writeheader()
        table.writerows(PAIRS)
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(PAIRS).to_parquet(tmp_path / "a.parquet")
    first = read_pairs(tmp_path / "a.jsonl")
    assert len(first) == 3
    for name in ("lines.json", "a.json", "a.jsonl.gz", "a.csv", "a.parquet"):
        assert read_pairs(tmp_path / name) == first, name
    assert read_pairs(datasets.Dataset.from_list(PAIRS)) == first
    (tmp_path / "b.csv").write_text("prompt,chosen,rejected\nHi,Hello, you,No\n")
    with pytest.raises(ValueError, match="b.csv, row 1 has another number of fields"):
        read_pairs(tmp_path / "b.csv")
