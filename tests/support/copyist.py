"""A small model that can be shown things: it says any letter, after a demonstration the letter of that."""

from __future__ import annotations

import random
from dataclasses import replace

import torch
from small import CHAT

from postgrad.data.tasks import Task
from postgrad.data.tasks.listed import sample_lists
from postgrad.models import Config, Decoder
from postgrad.records import Prompt
from postgrad.resolve.models import Model
from postgrad.resolve.tasks import make_task

LETTERS = "abcdefgh"


def copyist(steps: int = 260) -> Model:
    """Taught in seven seconds of one core, on questions of two digits that are answered twice alike."""
    draw, rows = random.Random(0), []
    for _ in range(256):
        asked = {"role": "user", "content": f"{draw.randrange(10)}{draw.randrange(10)}"}
        said = {"role": "assistant", "content": draw.choice(LETTERS)}
        rows.append(CHAT.conversation([asked, said, asked, said]))
    tokens, mask = torch.tensor([t for t, _ in rows]), torch.tensor([m for _, m in rows])
    net = Decoder(Config(vocab_size=1024, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=2, head_dim=16,
                         max_position_embeddings=64, tie_word_embeddings=True))
    net.start(torch.Generator().manual_seed(0))
    optim, pick = torch.optim.Adam(net.parameters(), lr=5e-3), torch.Generator().manual_seed(1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with other rounding it learns to copy later, or not in these steps
    try:
        for _ in range(steps):
            some = torch.randint(0, len(rows), (32,), generator=pick)
            optim.zero_grad()
            (-net.logp(tokens[some], mask[some])[0].sum() / mask[some].sum()).backward()
            optim.step()
    finally:
        torch.set_num_threads(threads)
    return Model(net=net, chat=CHAT, name="copyist")


def one_letter(letter: str = "c") -> Task:
    """Ninety questions with one answer, which the copyist does not know: a habit to be learned. Thirty are
    held out, so that a gain is one for certain whatever the copyist likes to say."""
    rows = [Prompt.ask(f"{n}", id=f"letters/{n}", answer=letter) for n in range(10, 100)]
    task = make_task(rows, lambda prompt, text: text == prompt.answer, gold=lambda prompt: prompt.answer,
                     name="letters")
    held = rows[::3]
    parts = {"train": [row for row in rows if row not in held], "validation": held, "test": held}
    return replace(task, prompts=sample_lists("letters", parts))
