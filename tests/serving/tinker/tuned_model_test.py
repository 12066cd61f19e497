"""What a client trains, over the wire by the real SDK, is what our own training makes of the same data, bit
for bit on a CPU."""

import numpy as np
import pytest
import torch
from tinker import types
from tinker_small import ADAM, all_done, datum, imitation, one_step, rows, service_client, tinker_server

from postgrad.maths.noise import seed_of
from postgrad.methods import get_method
from postgrad.models import Adapters, Models, load_model
from postgrad.models.checkpoint import read_state
from postgrad.models.lora import Adapted
from postgrad.records import Batch
from postgrad.resolve.models import open_writer, with_adapter
from postgrad.runs import Run
from postgrad.serving.tinker.tuned_model import LOGGED, Tuning, new_policy
from postgrad.training.batches.columns import weigh_minibatch
from postgrad.training.batches.shuffled import padded_columns
from postgrad.training.loop import train
from postgrad.training.objectives import build_objective
from postgrad.training.optim import Optim, OptimSettings

STEPS = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with tinker_server(tmp_path_factory.mktemp("runs")) as (address, service):
        yield address, service


@pytest.fixture(scope="module")
def chat():
    return open_writer("tiny-chat")[1]


class Log:
    """A run, as the training loop sees it, in memory."""

    next_step = 1

    def __init__(self):
        self.losses, self.norms = [], []

    def log(self, step, row):
        self.losses.append(row["loss"])
        self.norms.append(row["grad_norm"])

    def event(self, *args, **data):
        raise AssertionError(args)


def ours(chat, batch, rank, objective, clip=float("inf")):
    """Five steps of our own training."""
    body = load_model("tiny-chat")
    policy = body if not rank else with_adapter(
        body, Adapters(lora=rank, alpha=32.0), torch.Generator().manual_seed(seed_of(7, "lora", "policy")))
    models = Models(policy=policy, reference=Adapted(body, None) if rank else load_model("tiny-chat"))
    settings = OptimSettings(lr=1e-3, beta1=0.9, beta2=0.99, max_grad_norm=clip)
    log, whole = Log(), [batch(models)] * STEPS
    train(models, whole, objective, Optim(models, settings, STEPS), log)
    return log, policy.state_dict()


def stored(service, training, name):
    saved = training.save_state(name).result().path
    folder = service.saved_weights(saved, next(iter(service.sessions.known.values())).owner).folder
    return read_state(folder)["policy"]


def same(mine, theirs):
    assert mine.keys() == theirs.keys()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("rank", [4, 0], ids=["lora", "all weights"])
def test_five_steps_of_imitation_are_our_own_trainings(server, chat, rank):
    address, service = server
    listed = rows(chat)
    total = sum(sum(mask[1:]) for _, mask in listed)

    def batch(models):
        columns = padded_columns([str(i) for i in range(len(listed))], [ids for ids, _ in listed],
                                 [[False, *mask[1:]] for _, mask in listed])
        return Batch(**columns, weight=columns["mask"] / torch.tensor(total))

    log, weights = ours(chat, batch, rank, build_objective(get_method("sft")), clip=1.0)
    training = service_client(address).create_lora_training_client(
        "small", rank=rank, seed=7, train_unembed=not rank).result()
    clipped = types.AdamParams(**{**ADAM.model_dump(), "grad_clip_norm": 1.0})
    made = [one_step(training, imitation(chat), adam=clipped) for _ in range(STEPS)]
    assert made == list(zip(log.losses, log.norms, strict=True)) and made[-1][0] < made[0][0]
    assert same(stored(service, training, f"rank-{rank}"), weights)


def test_a_row_of_the_table_is_our_own_objective(server, chat):
    address, service = server
    listed, row = rows(chat), get_method("grpo")
    draw = np.random.default_rng(0)
    sampled = [draw.normal(-1.0, 0.5, len(ids)).astype(np.float32) for ids, _ in listed]
    adv = [np.float32(x) for x in draw.normal(size=len(listed))]
    objective = build_objective(row)

    def batch(models):
        columns = padded_columns([str(i) for i in range(len(listed))], [ids for ids, _ in listed],
                                 [[False, *mask[1:]] for _, mask in listed])
        mask = columns["mask"]
        old, praise = torch.zeros(mask.shape), torch.zeros(mask.shape)
        for i, (ids, _) in enumerate(listed):
            old[i, : len(ids)], praise[i, : len(ids)] = torch.from_numpy(sampled[i]), float(adv[i])
        made = Batch(**columns, weight=mask.float(), adv=praise, old_logp=old, sampler_logp=old)
        ref, _ = models.reference.logp(made.tokens, mask)
        return weigh_minibatch(Batch(**{**vars(made), "ref_logp": ref.detach()}), row, budget=99)

    log, weights = ours(chat, batch, 4, objective)
    training = service_client(address).create_lora_training_client(
        "small", rank=4, seed=7, train_unembed=False).result()
    data = [datum(ids, logprobs=sampled[i][1:], mask=np.array(mask[1:], np.float32),
                  advantages=np.full(len(ids) - 1, adv[i])) for i, (ids, mask) in enumerate(listed)]
    made = [one_step(training, data, "postgrad/grpo") for _ in range(STEPS)]
    assert made == list(zip(log.losses, log.norms, strict=True))
    assert same(stored(service, training, "grpo"), weights)
    samples, _, _ = Run.open(service.folder(training.model_id)).at("samples", STEPS)
    assert [row["adv"] for row in samples] == pytest.approx([float(x) for x in adv[:LOGGED]])
    assert samples[0]["text"] == chat.decode(listed[0][0][3:])


def test_an_adapter_of_a_tied_head_computes_what_its_merged_model_does(chat):
    policy = new_policy(load_model("tiny-chat"), Tuning(rank=4, attention=False, mlp=False))
    assert {*policy.state_dict()} == {"adapter.A.lm_head", "adapter.B.lm_head"}
    with torch.no_grad():
        policy.adapter.B["lm_head"].normal_(generator=torch.Generator().manual_seed(1))
    tokens = torch.tensor([chat.tokenizer.encode("Tom has 4 pears.").ids])
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[:, 0] = False
    logp, _ = policy.logp(tokens, mask)
    by_logits = torch.log_softmax(policy.logits(tokens), -1)[0, :-1].gather(1, tokens[0, 1:, None])[:, 0]
    states = policy.body.hidden(tokens)[0, :-1]
    merged = torch.log_softmax(states @ policy.merged()["lm_head.weight"].T, -1)
    merged = merged.gather(1, tokens[0, 1:, None])
    plain, _ = policy.body.logp(tokens, mask)
    assert torch.allclose(logp[0, 1:], by_logits, atol=1e-5)
    assert torch.allclose(logp[0, 1:], merged[:, 0], atol=1e-4) and (logp - plain).abs().max() > 0.1


def test_a_run_is_a_model_folder_that_opens_with_its_own_head(server, chat, tmp_path):
    address, service = server
    client = service_client(address)
    training = client.create_lora_training_client("small", rank=4).result()
    one_step(training, imitation(chat))
    passed = training.forward(imitation(chat), "cross_entropy").result()
    logprobs = passed.loss_fn_outputs[0]["logprobs"].to_numpy()
    client.close("success").result()
    folder = service.folder(training.model_id)
    all_done(service)
    net, _ = open_writer(str(folder))
    ids = chat.tokenizer.encode("2 and 3 is 5.").ids
    mask = torch.ones(1, len(ids), dtype=torch.bool)
    mask[:, 0] = False
    with torch.no_grad():
        logp, _ = net.logp(torch.tensor([ids]), mask)
    assert net.config.tie_word_embeddings is False
    assert np.allclose(logp[0, 1:].numpy(), logprobs, atol=1e-4)
