"""A corpus of data files as people have them, good, odd and broken: what each must become.

Case.want: TRL, tokens and masks equal those of TRL on the same rows; rows, those of TRL on these rows
instead, and the line before training says so (`said`); a text, the sentence that refuses the file.
"""

import gzip
import io
import json
from dataclasses import dataclass
from typing import Any

TRL = "trl"


@dataclass(frozen=True)
class Case:
    name: str
    kind: str  # sft, dpo, kto or rl
    rows: Any  # a list of rows, or the bytes of the file
    want: Any = TRL
    said: str = ""
    suffix: str = ".jsonl"


def user(text, **more):
    return {"role": "user", "content": text, **more}


def bot(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def tool(text, **more):
    return {"role": "tool", "content": text, **more}


def call(name, **arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


ADD = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}}}
CALLED = [user("What is 2+3?"), bot("", tool_calls=[call("add", a=2, b=3)]), tool("5", name="add"),
          bot("It is 5.")]
OPENAI = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":2,\"b\":3}"}}
Q, A, B = user("What colour is the sky?"), bot("It is blue."), bot("It is green.")
TALK = [Q, A, user("And the sea?"), bot("Blue too.")]


def pair(**columns):
    return [columns]


SFT = [
    Case("messages", "sft", [{"messages": [Q, A]}]),
    Case("messages-system", "sft", [{"messages": [system("Be brief."), Q, A]}]),
    Case("messages-turns", "sft", [{"messages": TALK}, {"messages": [Q, A]}]),
    Case("messages-null-fields", "sft", [{"messages": [user("Hi", name=None), bot("Hello", name=None)]}]),
    Case("messages-extra-columns", "sft", [{"messages": [Q, A], "source": "web", "score": 3}],
         said="ignored: source, score"),
    Case("messages-tool-calls", "sft", [{"messages": CALLED, "tools": [ADD]}]),
    Case("messages-tools-json", "sft", [{"messages": CALLED, "tools": json.dumps([ADD])}]),
    Case("messages-tool-calls-openai", "sft",
         [{"messages": [user("2+3?"), {"role": "assistant", "content": None, "tool_calls": [OPENAI]},
                        tool("5", tool_call_id="c1"), bot("5")]}],
         [{"messages": [user("2+3?"), bot("", tool_calls=[call("add", a=2, b=3)]), tool("5"), bot("5")]}]),
    Case("messages-parts", "sft", [{"messages": [user([{"type": "text", "text": "What colour "},
                                                       {"type": "text", "text": "is the sky?"}]), A]}],
         [{"messages": [Q, A]}]),
    Case("messages-weight", "sft", [{"messages": [Q, bot("It is green.", weight=0), user("No."),
                                                  bot("Blue.", weight=1)]}],
         [{"prompt": [Q, B, user("No.")], "completion": [bot("Blue.")]}]),
    Case("sharegpt", "sft", [{"conversations": [{"from": "user", "value": "Hi"},
                                                {"from": "assistant", "value": "Hello"}]}]),
    Case("sharegpt-human", "sft", [{"conversations": [{"from": "human", "value": "Hi"},
                                                      {"from": "gpt", "value": "Hello"}]}],
         [{"messages": [user("Hi"), bot("Hello")]}], "rows of conversations"),
    Case("sharegpt-system", "sft", [{"system": "Be brief.", "conversations": [
        {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}],
        [{"messages": [system("Be brief."), user("Hi"), bot("Hello")]}], "used: system, conversations"),
    Case("conversations-chatml", "sft", [{"conversations": TALK}], [{"messages": TALK}]),
    Case("prompt-completion-messages", "sft", [{"prompt": [Q], "completion": [A]}]),
    Case("prompt-completion-history", "sft", [{"prompt": TALK[:3], "completion": TALK[3:]}]),
    Case("prompt-completion-texts", "sft", [{"prompt": "Hi", "completion": "Hello"}],
         [{"messages": [user("Hi"), bot("Hello")]}], "as texts (a user's and an assistant's turn)"),
    Case("alpaca", "sft", [{"instruction": "Add.", "input": "2 and 3", "output": "5"}],
         [{"messages": [user("Add.\n2 and 3"), bot("5")]}], "Alpaca (instruction and input"),
    Case("alpaca-no-input", "sft", [{"instruction": "Say hi.", "input": "", "output": "Hi"}],
         [{"messages": [user("Say hi."), bot("Hi")]}], "Alpaca"),
    Case("text", "sft", [{"text": "The sky is blue."}, {"text": "The sea too."}],
         said="texts are trained whole, and control tokens in them are trusted"),
    Case("text-rendered", "sft", [{"text": "<|bos|><|user|>Hi<|end|><|assistant|>Hello<|end|>"}],
         said="control tokens in them are trusted"),
    Case("image-part", "sft", [{"messages": [user([
        {"type": "image_url", "image_url": {"url": "a.png"}}]), A]}],
         "line 1: a message has a part of type 'image_url', and only text is trained"),
    Case("images-column", "sft", [{"messages": [Q, A], "images": ["a.png"]}],
         "line 1: the column 'images' is not empty, and only text is trained"),
    Case("template-kwargs", "sft", [{"messages": [Q, A], "chat_template_kwargs": {"enable_thinking": False}}],
         "line 1: the column 'chat_template_kwargs' is not supported"),
    Case("alpaca-history", "sft", [{"instruction": "Hi", "output": "Hello", "history": [["a", "b"]]}],
         "line 1: the column 'history' is not supported"),
    Case("weight-half", "sft", [{"messages": [Q, bot("Blue.", weight=0.5)]}],
         "line 1: a message has the weight 0.5; it must be 0"),
    Case("weight-all-zero", "sft", [{"messages": [Q, bot("Blue.", weight=0)]}],
         "line 1: no assistant message with text, so there is nothing to imitate"),
    Case("weight-on-user", "sft", [{"messages": [user("Hi", weight=1), A]}],
         "line 1: a message of the role user has weight 1"),
    Case("tool-arguments-broken", "sft", [{"messages": [Q, bot("", tool_calls=[
        {"type": "function", "function": {"name": "add", "arguments": "{a:"}}])]}],
        "line 1: the arguments of the call of add are not JSON"),
    Case("tool-calls-text", "sft", [{"messages": [Q, bot("", tool_calls="add(2, 3)")]}],
         "line 1: tool_calls must be a list"),
    Case("function-call", "sft", [{"messages": [Q, bot("", function_call={"name": "add"})]}],
         "line 1: function_call is OpenAI's older form"),
    Case("tools-broken", "sft", [{"messages": [Q, A], "tools": "[add"}], "line 1: tools are not JSON"),
    Case("reasoning-no-place", "sft", [{"messages": [Q, bot("Blue.", reasoning_content="Rayleigh.")]}],
         "line 1 has reasoning_content, and the model's chat template has no place for them"),
    Case("unknown-role", "sft", [{"messages": [Q, {"role": "robot", "content": "x"}]}], "is not a message"),
    Case("no-known-column", "sft", [{"foo": "x"}], "line 1: expected 'messages', 'conversations'"),
    Case("no-assistant", "sft", [{"messages": [Q]}], "no assistant message with text"),
    Case("empty-text", "sft", [{"text": ""}], "line 1: expected 'messages'"),
]
DPO = [
    Case("pair-texts", "dpo", pair(prompt="Sky?", chosen="Blue.", rejected="Green."),
         pair(prompt=[user("Sky?")], chosen=[bot("Blue.")], rejected=[bot("Green.")]),
         "as texts (a user's and an assistant's turn)"),
    Case("pair-messages", "dpo", pair(prompt=[Q], chosen=[A], rejected=[B])),
    Case("pair-implicit", "dpo", pair(chosen=[Q, A], rejected=[Q, B])),
    Case("pair-implicit-system", "dpo", pair(chosen=[system("Be brief."), Q, A],
                                             rejected=[system("Be brief."), Q, B])),
    Case("pair-implicit-turns", "dpo", pair(chosen=TALK, rejected=[*TALK[:3], bot("Green.")])),
    Case("ultrafeedback", "dpo", pair(prompt=Q["content"], chosen=[Q, A], rejected=[Q, B],
                                      score_chosen=8.0, score_rejected=3.0),
         pair(chosen=[Q, A], rejected=[Q, B]),
         "the prompt stands in chosen and rejected too, and is taken once"),
    Case("ultrafeedback-other-prompt", "dpo", pair(prompt="Another text", chosen=[Q, A], rejected=[Q, B]),
         pair(chosen=[Q, A], rejected=[Q, B]), "the column 'prompt' says something else, and is ignored"),
    Case("prompt-text-answers-messages", "dpo", pair(prompt=Q["content"], chosen=[A], rejected=[B]),
         pair(prompt=[Q], chosen=[A], rejected=[B])),
    Case("prompt-messages-answers-texts", "dpo",
         pair(prompt=[Q], chosen="It is blue.", rejected="It is green."),
         pair(prompt=[Q], chosen=[A], rejected=[B])),
    Case("prompt-messages-repeated", "dpo", pair(prompt=[Q], chosen=[Q, A], rejected=[Q, B]),
         pair(prompt=[Q], chosen=[A], rejected=[B]), "is taken once"),
    Case("pair-history", "dpo", pair(prompt=TALK[:3], chosen=[TALK[3]], rejected=[bot("Green.")])),
    Case("pair-several-turns", "dpo", pair(prompt=[Q], chosen=[A, user("Sure?"), bot("Yes.")],
                                           rejected=[B, user("Sure?"), bot("No.")]),
         said="of an answer of several turns the assistant's are trained"),
    Case("pair-tool-turns", "dpo",
         pair(prompt=CALLED[:1], chosen=CALLED[1:], rejected=[bot("6")], tools=[ADD]),
         said="of an answer of several turns the assistant's are trained"),
    Case("pair-tool-call", "dpo", pair(prompt=CALLED[:1], chosen=CALLED[1:2], rejected=[bot("6")],
                                       tools=json.dumps([ADD]))),
    Case("pair-same", "dpo", pair(prompt=[Q], chosen=[A], rejected=[A]),
         "chosen and rejected are the same text"),
    Case("pair-implicit-texts", "dpo",
         pair(chosen="Human: Hi Assistant: Yes", rejected="Human: Hi Assistant: No"),
         "there is no prompt, in 'prompt' or before the answer"),
    Case("pair-other-questions", "dpo", pair(chosen=[user("a"), A], rejected=[user("b"), B]),
         "must answer the same prompt"),
    Case("pair-ends-with-user", "dpo", pair(chosen=[Q, A, user("x")], rejected=[Q, B]),
         "end with an assistant's"),
    Case("pair-one-side", "dpo", pair(prompt="Hi", chosen="a"), "'rejected' is missing or empty"),
    Case("pair-image", "dpo", pair(prompt=[user([{"type": "image"}])], chosen=[A], rejected=[B]),
         "a message has a part of type 'image', and only text is trained"),
]
HH = "\n\nHuman: What colour is the sky?\n\nAssistant: "
DPO += [
    Case("hh-dialogues", "dpo", pair(chosen=HH + "It is blue.", rejected=HH + "It is green."),
         pair(chosen=[Q, A], rejected=[Q, B]), "dialogues (Human: and Assistant: are turns)"),
    Case("hh-dialogues-turns", "dpo",
         pair(chosen=HH + "It is blue.\n\nHuman: And the sea?\n\nAssistant: Blue too.",
              rejected=HH + "It is blue.\n\nHuman: And the sea?\n\nAssistant: Green."),
         pair(chosen=TALK, rejected=[*TALK[:3], bot("Green.")]), "dialogues"),
    Case("hh-other-questions", "dpo", pair(chosen="\n\nHuman: a\n\nAssistant: x",
                                           rejected="\n\nHuman: b\n\nAssistant: y"),
         "must answer the same prompt"),
]
LABELS = [{"prompt": [Q], "completion": [A], "label": True},
          {"prompt": [Q], "completion": [B], "label": False}]
KTO = [
    Case("labelled-messages", "kto", LABELS),
    Case("labelled-history", "kto", [{"prompt": TALK[:3], "completion": TALK[3:], "label": True}, LABELS[1]]),
    Case("labelled-texts", "kto", [{"prompt": row["prompt"][0]["content"],
                                    "completion": row["completion"][0]["content"], "label": row["label"]}
                                   for row in LABELS], LABELS, "completion with labels"),
    Case("labelled-numbers", "kto", [{**row, "label": int(row["label"])} for row in LABELS], LABELS),
    Case("labelled-conversations", "kto", [{"messages": [Q, A], "label": True},
                                           {"messages": [Q, B], "label": False}], LABELS),
    Case("labelled-as-text", "kto", [{**LABELS[0], "label": "good"}, LABELS[1]], "label is \"good\""),
    Case("labelled-one-way", "kto", LABELS[:1] * 2, "all 2 labels are true"),
    Case("label-missing", "kto", [{"prompt": "Hi", "completion": "Hello"}], "the label is missing"),
]
RL = [
    Case("prompt-messages", "rl", [{"prompt": [system("Be brief."), Q], "solution": "blue"}],
         said="handed to the reward by name: solution"),
    Case("prompt-turns", "rl", [{"prompt": TALK[:3]}]),
    Case("prompt-text", "rl", [{"prompt": Q["content"]}], [{"prompt": [Q]}], "rows of prompt"),
    Case("prompt-and-question", "rl", [{"prompt": [Q], "question": "Sky?"}],
         said="handed to the reward by name: question"),
    Case("prompt-twice", "rl", [{"prompt": [Q]}, {"prompt": [Q]}], said="is asked as often as it stands"),
    Case("gsm8k", "rl", [{"question": "2+3?", "answer": "2+3=5\n#### 5"}], [{"prompt": [user("2+3?")]}]),
    Case("prompt-ends-with-assistant", "rl", [{"prompt": [Q, A]}], "the last message must be the user's"),
    Case("prompt-empty", "rl", [{"prompt": " "}], "the prompt must be a text that is not empty"),
    Case("prompt-missing", "rl", [{"input": "Hi"}], "expected one of question, prompt or messages"),
    Case("prompt-image", "rl", [{"prompt": [user([{"type": "image"}])]}], "only text is trained"),
]
CHATS = [{"messages": [Q, A]}, {"messages": TALK}]


def lines(rows, end="\n"):
    return "".join(json.dumps(row) + end for row in rows).encode()


def parquet(rows):
    from pyarrow import Table
    from pyarrow.parquet import write_table
    file = io.BytesIO()
    write_table(Table.from_pylist(rows), file)
    return file.getvalue()


FILES = [
    Case("json-list", "sft", json.dumps(CHATS).encode(), CHATS, suffix=".json"),
    Case("json-lines", "sft", lines(CHATS), CHATS, suffix=".json"),
    Case("gzip", "sft", gzip.compress(lines(CHATS)), CHATS, suffix=".jsonl.gz"),
    Case("parquet", "sft", parquet(CHATS), CHATS, suffix=".parquet"),
    Case("bom-and-crlf", "sft", b"\xef\xbb\xbf" + lines(CHATS, "\r\n\r\n"), CHATS),
    Case("csv-texts", "sft", b"text,source\nThe sky is blue.,web\n\"The sea, too.\",web\n",
         [{"text": "The sky is blue."}, {"text": "The sea, too."}], "ignored: source", ".csv"),
    Case("csv-pairs", "dpo", b"prompt,chosen,rejected\nSky?,Blue.,Green.\n",
         pair(prompt=[user("Sky?")], chosen=[bot("Blue.")], rejected=[bot("Green.")]), suffix=".csv"),
    Case("csv-ragged", "sft", b"prompt,completion\nHi,Hello, you\n", "has another number of fields",
         suffix=".csv"),
    Case("parquet-as-jsonl", "sft", parquet(CHATS), "is a parquet file"),
    Case("parquet-broken", "sft", parquet(CHATS)[:-9], "is not a sound parquet file", suffix=".parquet"),
    Case("gzip-cut", "sft", gzip.compress(lines(CHATS))[:-9], "is not a sound gzip file", suffix=".jsonl.gz"),
    Case("utf-16", "sft", lines(CHATS).decode().encode("utf-16"), "is text in UTF-16"),
    Case("json-line-cut", "sft", lines(CHATS)[:-20], "line 2 is not JSON in UTF-8"),
    Case("key-twice", "sft", b'{"text": "a", "text": "b"}\n', "the field 'text' stands twice"),
    Case("not-a-number", "sft", b'{"text": "a", "score": NaN}\n', "NaN is no JSON number"),
    Case("empty", "sft", b"", "has no rows"),
]
CASES = [*SFT, *DPO, *KTO, *RL, *FILES]
