"""A reward model reads an answer at one token, whoever asks: at its end of turn, whatever a template writes
after that."""

import pytest
import torch
from small import CHAT, change_tokens, small_model, tokens_of_tiny

from postgrad.evaluation.audit import text_scorer
from postgrad.methods import METHODS
from postgrad.models import Models, ScalarModel
from postgrad.models.chat import Chat
from postgrad.records import Pair, Prompt, Rollout
from postgrad.rewards.model import ModelReward
from postgrad.training.batches import PairBatches

ASKED = ({"role": "user", "content": "What is 2+3?"},)
PAIRS = [Pair(id=f"p{i}", messages=ASKED, chosen=f"It is {i}.", rejected="No." * i, margin=0.0)
         for i in range(1, 6)]


@pytest.fixture(params=["", "\n", "\n\n", " then"])
def chat(request, tmp_path):
    """The embedded template with a text after each end of turn, as ChatML has a line break."""
    folder = tokens_of_tiny(tmp_path)
    end = CHAT.tokenizer.id_to_token(CHAT.stop[0])
    assert CHAT.template.count(end) or "eos_token" in CHAT.template
    spelled = CHAT.template.replace(end, end + request.param)
    change_tokens(folder, chat_template=spelled)
    made = Chat.load(folder)
    tail = made.text_of([*ASKED, {"role": "assistant", "content": "5"}], reply=False)
    assert tail.endswith(end + request.param)
    return made


def test_an_answer_ends_as_a_sampled_one_does(chat):
    tokens, mask = chat.answer(ASKED, "It is 5.")
    assert tokens == [*chat.render(ASKED), *chat.encode("It is 5."), chat.stop[0]]
    assert mask == [False] * len(chat.render(ASKED)) + [True] * (len(tokens) - len(chat.render(ASKED)))


def test_training_evaluation_audit_and_judge_read_the_same_token(chat):
    model = ScalarModel(small_model(3))
    model.score_head.weight.data.copy_(torch.randn(1, 16, generator=torch.Generator().manual_seed(0)))
    models = Models(policy=model)
    line = PairBatches(PAIRS, chat, METHODS["reward"], models, per_step=5, steps=1, seed=0, max_tokens=128,
                       tokens_per_pass=10**6)
    (batch,) = line
    trained = dict(zip(batch.ids, model.scores(batch.tokens, batch.lengths)[:, 0].tolist(), strict=True))
    answers = {f"{p.id}/{side}": getattr(p, side) for p in PAIRS for side in ("chosen", "rejected")}
    prompt = Prompt(id="q", messages=ASKED)
    sampled = [Rollout(prompt=prompt, prompt_tokens=tuple(chat.render(ASKED)), text=text, finished=True,
                       tokens=(*chat.encode(text), chat.stop[0]), seed=0,
                       logp=(0.0,) * (len(chat.encode(text)) + 1))
               for text in answers.values()]
    judged = dict(zip(answers, (v.score for v in ModelReward([model]).score(sampled)), strict=True))
    audit = text_scorer(model, chat)([(ASKED, text) for text in answers.values()])
    audited = dict(zip(answers, audit, strict=True))
    assert len({round(x, 4) for x in trained.values()}) == 10
    for name in answers:
        assert trained[name] == pytest.approx(judged[name], abs=1e-5)
        assert trained[name] == pytest.approx(audited[name], abs=1e-5)
