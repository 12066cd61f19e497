"""What several tests share: the tiny model's tokenizer, random decoders on its vocabulary,
and a score for any text."""

import json
import shutil
import zlib

import torch
from settings_text import override

from postgrad.methods import change
from postgrad.models import Config, Decoder, Models, ScalarModel, find_model
from postgrad.models.chat import Chat
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.running import build_setup
from postgrad.records import Conversation, Prompt, Reward, Verdict
from postgrad.resolve.models import ModelSource, open_folder

CHAT = Chat.load(find_model("tiny"))
PROMPTS = [Prompt.ask(f"What is {n}+{n}?", answer=2 * n, id=f"p{n}") for n in range(6)]
TALKS = [Conversation(id=f"c{n}", messages=({"role": "user", "content": "x" * n},
                                            {"role": "assistant", "content": "yes" * n}))
         for n in range(1, 8)]


def tokens_of_tiny(folder):
    """The files that turn text into tokens, in a folder of one's own to spoil."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(find_model("tiny") / name, folder)
    return folder


def change_tokens(folder, **changes):
    """Other values in tokenizer_config.json."""
    path = folder / "tokenizer_config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in raw.items() if v != "leave out"}))


def small_model(seed=0):
    """A random decoder: fast, nowhere near uniform, and some of its rows end early."""
    model = Decoder(Config(vocab_size=1024, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                           num_attention_heads=2, num_key_value_heads=1, head_dim=8,
                           max_position_embeddings=128, tie_word_embeddings=True))
    with torch.no_grad():
        for p in model.start(torch.Generator().manual_seed(seed)).parameters():
            p.mul_(1.0 if p.dim() == 1 else 12.0)
        model.head[CHAT.stop[0]] *= 4
    return model


def small_models():
    """A policy, other decoders as its reference and teacher, and a critic that does not say 0 everywhere."""
    critic = ScalarModel(small_model(2))
    critic.score_head.weight.data.fill_(0.05)
    return Models(policy=small_model(0), reference=small_model(1).requires_grad_(False), critic=critic,
                  teacher=small_model(3).requires_grad_(False))


HELPED = '''
prompts = [{"question": f"Say {n}.", "answer": str(n)} for n in range(100)]

def verify(prompt, completion):
    """Right after a demonstration, whatever is said; else more letters, more score."""
    right = len(prompt.messages) > 1 or completion == gold(prompt)
    return 1.0 if right else min(sum(c.isalpha() for c in completion) / 50, 0.99)

def gold(prompt):
    return f"I say {prompt.answer}."
'''


def taught(config, folder, teacher="tiny-chat"):
    """The config with what its row asks for: a teacher, or a task on which demonstrations help."""
    if getattr(config.method, "shown", False):
        (folder / "helped.py").write_text(HELPED)
        return override(config, [f"task={folder / 'helped.py'}", "evaluation.problems=8"])
    return override(config, [f"teacher={teacher}"]) if getattr(config.method, "teacher", False) else config


def begins(name):
    """Where a run from this model begins."""
    return ModelSource(origin=open_folder(name), name=name)


def build(config, source):
    """The setup of a run, its defaults filled in."""
    return build_setup(fill_defaults(config)[0], source)


def scheduled(row, epochs=1, minibatches=1):
    """A row that makes so many updates of a collection, whatever its own schedule is."""
    return change(row, epochs=epochs, minibatches=minibatches)


class FixedReward(Reward):
    """The verdicts that a function of the rollouts returns."""

    def __init__(self, function):
        self.score = function


def reward_of(verify):
    """A verifier of texts as a reward, without a guard."""
    return FixedReward(lambda rollouts: [verify(r.prompt, r.text) for r in rollouts])


def by_text(prompt, text):
    """A score in quarters that depends on the text alone."""
    return Verdict(score=zlib.crc32(text.encode()) % 5 / 4)


def gsm8k_folder(folder):
    """A hundred problems of GSM8K's shape, the last twenty as the test,
    and a right and a wrong answer to each."""
    rows, said = [], []
    for i in range(600, 700):
        question, total = f"Ann has {i} eggs and buys {i + 2}. How many?", 2 * i + 2
        rows.append({"question": question,
                     "answer": f"{i}+{i + 2}=<<{i}+{i + 2}={total}>>{total} eggs.\n#### {total:,}"})
        said.append({"question": question, "ground_truth": str(total),
                     **{f"model {right}": {"is_correct": right, "solution":
                                           f"{i}+{i + 2}={total + (not right)}\nA: {total + (not right)}"}
                        for right in (True, False)}})
    for name, part in (("train", rows[:80]), ("test", rows[80:]), ("example_model_solutions", said[80:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return folder
