"""Makes `tiny-tools`, the embedded model that knows tools: tiny-chat with tokens and a template for them.

    python tools/make_tools.py OUT      on a CPU in about three minutes; writes models/embedded/tiny-tools

Each new token begins as a copy of the one that it resembles. Then the model imitates: demonstrations of the
tasks it knows, so that they are not forgotten, and calls of the calculator where the user asks for one. That
a call helps where nobody asks for it is left to be found out.
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import torch
from make_tiny import CHAT, write
from tokenizers import AddedToken

from postgrad.data.tasks import load_task
from postgrad.data.tasks.toolbox import calc
from postgrad.models import Decoder, load_model, save_model
from postgrad.models.chat import Chat
from postgrad.models.chat.tools import tool_schema
from postgrad.models.load import EMBEDDED, EMBEDDING
from postgrad.recipes.own_rows import RowSettings
from postgrad.recipes.running import start_run
from postgrad.recipes.sft import SFTConfig
from postgrad.records import Conversation
from postgrad.training.optim import OptimSettings

# a control token is for the template alone; the others are text that the model writes
LIKE = {"<|tools|>": "<|system|>", "<|tool|>": "<|user|>", "<tool>": "<think>", "</tool>": "</think>"}
TEMPLATE = """{{ bos_token }}{% if tools %}<|tools|>\
{% for tool in tools %}{{ tool.function.name }}\
{% for name in tool.function.parameters.properties %} {{ name }}{% endfor %}\
{% if not loop.last %}, {% endif %}{% endfor %}<|end|>{% endif %}\
{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\
{% for call in m.tool_calls or [] %}<tool>{{ call.function.name }}\
{% for value in call.function.arguments.values() %} {{ value }}{% endfor %}</tool>{% endfor %}\
<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
CALLS, SHARE = 3000, 0.25  # calls that are imitated, and how much of what tiny-chat imitated


def with_tools(model: Decoder, chat: Chat) -> tuple[Decoder, Chat]:
    """The model and its tokenizer with the new tokens, and the template for them."""
    for name in LIKE:
        chat.tokenizer.add_tokens([AddedToken(name, special=name.startswith("<|"), normalized=False)])
    wider = Decoder(replace(model.config, vocab_size=chat.vocab_size))
    copies = model.head[[chat.id(name) for name in LIKE.values()]]
    wider.load_state_dict(model.state_dict() | {EMBEDDING: torch.cat([model.head, copies])})
    return wider, Chat(chat.tokenizer, TEMPLATE, bos=chat.bos, eos=chat.eos, pad=chat.pad, ends=chat.ends)


def calls() -> list[Conversation]:
    """Products that the user wants from the calculator."""
    made = []
    for prompt in load_task("big-numbers").prompts("train", CALLS, 0):
        asked = prompt.question.removeprefix("What is ").removesuffix("?")
        said = {"user": f"Use calc: {asked}", "assistant": f"<tool>calc {asked}</tool>", "tool": calc(asked)}
        talk = [*said.items(), ("assistant", f"<answer>{prompt.answer}</answer>")]
        made.append(Conversation(id=prompt.id, tools=(tool_schema(calc),),
                                 messages=tuple({"role": role, "content": text} for role, text in talk)))
    return made


def main(out: Path) -> None:
    start = out / "start"
    start.mkdir(parents=True, exist_ok=True)
    model, chat = with_tools(load_model("tiny-chat"), Chat.load(EMBEDDED["tiny-chat"]))
    save_model(model, start, torch.float32)
    chat.save(start)
    known = [row for name, count in CHAT.items()
             for row in load_task(name).demonstrations("train", int(SHARE * count), 0)]
    config = SFTConfig(model=str(start), data=[*known, *calls()], rows=RowSettings(holdout=0.0), steps=120,
                       save_every=120, optim=OptimSettings(lr=1e-3, schedule="linear", warmup=10))
    run = start_run(config, out / "run", command="python tools/make_tools.py OUT")
    for name in ("metrics.jsonl", "config.json"):
        shutil.copy(run.folder / name, out / f"run-{name}")
    target = EMBEDDED["tiny"].parent / "tiny-tools"
    write(run.latest(), out, target, "python tools/make_tools.py OUT", "one CPU core")
    chat.tokenizer.save(str(target / "tokenizer.json"), pretty=False)  # so that the folder is within 4 MB


if __name__ == "__main__":
    main(Path(sys.argv[1]))
