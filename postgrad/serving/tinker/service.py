"""What the routes ask: sessions, models, samplers and futures of the clients, each behind its API key."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from postgrad.maths.noise import seed_of
from postgrad.models.checkpoint import read_state
from postgrad.models.lora import Network
from postgrad.runs import Run
from postgrad.sampling import Request, Sampling
from postgrad.serving.decode_worker import DecodeWorker, ServedModel
from postgrad.serving.request_body import Refusal, RequestBody
from postgrad.serving.tinker.catalogue import (
    Catalogue,
    SavedCheckpoint,
    expiry,
    iso_time,
    split_path,
    tinker_path,
)
from postgrad.serving.tinker.journal import Journal
from postgrad.serving.tinker.operations import ModelPlace, Result, has_optimizer
from postgrad.serving.tinker.sampler_pool import SamplerPool, SavedWeights
from postgrad.serving.tinker.sessions import Session, SessionBook
from postgrad.serving.tinker.training_queue import Promise, TrainingQueue, failure
from postgrad.serving.tinker.tuned_model import TunedModel, Tuning
from postgrad.serving.tinker.wire import SampledReply, encode_sample
from postgrad.system.json_text import shorten_value

MOST_MODELS = 64         # in memory at once; one of which all weights are trained counts as so many:
WHOLE_MODEL = 16
MOST_PROMISES = 100_000  # of samples
MOST_STOP, MOST_TOP = 64, 100
CLONE = 10**9            # numbers of a client's requests in a sampling session
STAYING = 4096           # results of samples that stay after they were sent


class TinkerService:
    """base: the served network; origin: its folder. runs: where training runs go."""

    def __init__(self, served: ServedModel, base: Network, origin: str, runs: Path):
        assert isinstance(served.worker, DecodeWorker), "models are trained in the process that serves them"
        self.served, self.worker, self.base = served, served.worker, base
        self.origin, self.runs = origin, runs
        self.sessions = SessionBook(runs / ".tinker")
        self.pool = SamplerPool(served, self.worker, base)
        self.queues: dict[str, TrainingQueue] = {}
        self.known: dict[str, dict[str, Any]] = {}  # what models were made with, which never changes
        self.catalogues: dict[str, Catalogue] = {}
        self.samples: dict[str, SamplePromise] = {}
        self.ended: dict[tuple[str, int], EndedSamples] = {}
        self.copies: dict[tuple[str, str], str] = {}  # by owner and idempotency key
        self.sampling: dict[str, asyncio.Task[None]] = {}
        self.tokenizer = self.sessions.folder / "tokenizer"
        self.tokenizer.mkdir(exist_ok=True)
        served.chat.save(self.tokenizer)

    @property
    def architecture(self) -> str:
        return str(self.base.config.model_type) if hasattr(self.base.config, "model_type") else "transformers"

    @property
    def tokenizer_id(self) -> str:
        return str(self.tokenizer.resolve())

    @property
    def positions(self) -> int:
        return int(self.base.config.max_position_embeddings)

    def check_base(self, name: str | None) -> None:
        if name != self.served.name:
            raise Refusal(f"there is no base model {name!r:.80}: this server has {self.served.name!r}.",
                          404, param="base_model")

    # models

    def folder(self, model_id: str) -> Path:
        session, _, number = model_id.partition(":train:")
        return self.runs / f"tinker-{session}-{number}"

    def facts(self, model_id: str) -> dict[str, Any] | None:
        """What a model was made with; None where there is none."""
        if model_id in self.known:
            return self.known[model_id]
        session, middle, number = model_id.partition(":train:")
        if not middle or not session.isalnum() or not session.isascii() or not number.isdecimal():
            return None
        folder = self.folder(model_id)
        if not (folder / "run.json").is_file():
            return None
        facts = Run.open(folder).info.get("tinker")
        if not isinstance(facts, dict):
            return None
        self.known[model_id] = facts
        return facts

    def owned_facts(self, model_id: str, owner: str) -> dict[str, Any]:
        facts = self.facts(model_id)
        if facts is None or facts["owner"] != owner:
            raise Refusal(f"there is no training run {shorten_value(model_id)} of this API key.", 404)
        return facts

    def create(self, session: Session, number: int, tuning: Tuning, user_metadata: Mapping[str, Any] | None,
               load: Mapping[str, Any] | None = None) -> TrainingQueue:
        """A new model of a session. load: the weights that it begins with; created twice, it is the same."""
        model_id = f"{session.id}:train:{number}"
        if self.facts(model_id) is None:
            if not session.open:
                raise Refusal(f"session {session.id} is finished.", 410)
            facts = {"model_id": model_id, "session": session.id, "owner": session.owner,
                     "base_model": self.served.name, "tuning": asdict(tuning),
                     "user_metadata": dict(user_metadata or {}), "load": dict(load) if load else None,
                     "created": time.time()}
            run = Run.create(self.folder(model_id), recipe="tinker", steps=0, method="tinker",
                             model=self.origin, tinker=facts, config=run_config(self.origin, tuning))
            run.close()
        return self.queue(model_id, session.owner)

    def queue(self, model_id: str, owner: str) -> TrainingQueue:
        """A model in memory, opened where it is not."""
        facts = self.owned_facts(model_id, owner)
        if (queue := self.queues.pop(model_id, None)) and not queue.failed:
            self.queues[model_id] = queue  # the one that was used last stands last
            return queue
        if facts["base_model"] != self.served.name:
            raise Refusal(f"training run {model_id} is on {facts['base_model']}, and this server has "
                          f"{self.served.name}: serve that one.")
        self.make_room(model_cost(facts))
        home = self.folder(model_id) / "tinker"
        place = ModelPlace(model_id=model_id, catalogue=self.catalogue(model_id),
                           vocab=self.worker.vocab_size, positions=self.positions,
                           resolve=partial(self.saved_weights, owner=owner))
        try:
            journal = Journal(home / "journal")
        except ValueError as error:
            raise Refusal(f"training run {model_id} cannot go on: {error}", 500) from error
        queue = self.queues[model_id] = TrainingQueue(
            self.worker, place, journal, facts["load"] and facts["load"]["path"])
        queue.open(partial(self.open_model, facts, queue))
        return queue

    def make_room(self, cost: int) -> None:
        """Lets go of models that nothing is asked of, the longest unused first."""
        taken = sum(model_cost(self.known[model_id]) for model_id in self.queues)
        for model_id in [model_id for model_id, queue in self.queues.items() if queue.idle]:
            if taken + cost <= MOST_MODELS:
                return
            taken -= model_cost(self.known[model_id])
            self.unload(model_id)
        if taken + cost > MOST_MODELS:
            raise Refusal("as many models are trained at once as have room: ask again in a moment.", 429)

    def open_model(self, facts: Mapping[str, Any],
                   queue: TrainingQueue) -> tuple[TunedModel, dict[str, Any] | None]:
        """On the thread: the model as it was made, or as its newest checkpoint has it."""
        run = Run.open(self.folder(facts["model_id"]))
        begun = run.checkpoints() or run.rows("metrics")[0]
        newest = run.resume() if begun else None
        run.status("running")
        model = TunedModel(self.base, self.served.chat, self.origin, Tuning(**facts["tuning"]), run)
        if newest:
            return model, model.restore(newest)
        if load := facts["load"]:
            saved = self.saved_weights(load["path"], owner=facts["owner"])
            state = read_state(saved.folder)
            model.load(state, load["optimizer"] and has_optimizer(state, load["path"]))
            model.checkpoint({"seq": 0, "seals": {}, "results": {}})
        return model, None

    def unload(self, model_id: str, state: str = "stopped") -> None:
        """Lets go of a model; it is opened again when it is asked for."""
        queue = self.queues.pop(model_id, None)
        if queue is None:
            return
        queue.closed = True

        def order() -> None:
            if queue.model:
                close_model(queue, state)

        self.worker.inbox.put(order)

    def models_of(self, session: Session) -> list[str]:
        there = self.runs.glob(f"tinker-{session.id}-*/run.json")
        numbers = [path.parent.name.rpartition("-")[2] for path in there]
        return [f"{session.id}:train:{n}" for n in sorted(numbers, key=int)]

    def all_facts(self, owner: str) -> list[dict[str, Any]]:
        """Of the models of a key, newest first."""
        listed = []
        for path in self.runs.glob("tinker-*/run.json"):
            session, _, number = path.parent.name.removeprefix("tinker-").rpartition("-")
            facts = self.facts(f"{session}:train:{number}")
            if facts and facts["owner"] == owner:
                listed.append(facts)
        return sorted(listed, key=lambda facts: -facts["created"])

    def run_record(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """A training run as clients are sent it."""
        model_id, rank = facts["model_id"], facts["tuning"]["rank"]
        there = self.catalogue(model_id).available()
        newest = {kind: next((e.record(model_id) for e in there if e.id.startswith(f"{kind}/")), None)
                  for kind in ("weights", "sampler_weights")}
        journal = self.folder(model_id) / "tinker" / "journal"
        last = journal.stat().st_mtime if journal.exists() else facts["created"]
        return {"training_run_id": model_id, "base_model": facts["base_model"], "model_owner": facts["owner"],
                "is_lora": rank > 0, "lora_rank": rank or None, "corrupted": False,
                "last_request_time": iso_time(last), "last_checkpoint": newest["weights"],
                "last_sampler_checkpoint": newest["sampler_weights"],
                "user_metadata": facts["user_metadata"]}

    def run_records(self, owner: str) -> list[dict[str, Any]]:
        return [self.run_record(facts) for facts in self.all_facts(owner)]

    def checkpoint_records(self, owner: str) -> list[dict[str, object]]:
        """The saved weights of a key, newest first."""
        entries = [(entry, facts["model_id"]) for facts in self.all_facts(owner)
                   for entry in self.catalogue(facts["model_id"]).available()]
        return [entry.record(model) for entry, model in sorted(entries, key=lambda pair: -pair[0].made)]

    async def close(self) -> None:
        """Lets go of all models, each with a checkpoint."""
        for model_id in [*self.queues]:
            self.unload(model_id)
        await self.worker.call(lambda: None)

    # saved weights

    def catalogue(self, model_id: str) -> Catalogue:
        if model_id not in self.catalogues:
            self.catalogues[model_id] = Catalogue(self.folder(model_id) / "tinker")
        return self.catalogues[model_id]

    def checkpoint(self, path: str, owner: str) -> tuple[dict[str, Any], SavedCheckpoint, Catalogue]:
        """Saved weights by their path, of this key or published by another."""
        model_id, name = split_path(path)
        facts = self.facts(model_id)
        catalogue = self.catalogue(model_id) if facts else None
        entry = catalogue.entries.get(name) if catalogue else None
        if not facts or not catalogue or not entry or not entry.exists or (
                facts["owner"] != owner and not entry.public):
            raise Refusal(f"there are no weights {shorten_value(path)} of this API key.", 404, param="path")
        return facts, entry, catalogue

    def copy_weights(self, session: Session, number: int, path: str, ttl: int | None) -> str:
        """Saved weights, copied to a run of their own -> their path there."""
        facts, entry, catalogue = self.checkpoint(path, session.owner)
        self.check_base(facts["base_model"])
        queue = self.create(session, number, Tuning(**facts["tuning"]), facts["user_metadata"])
        made = SavedCheckpoint(id=entry.id, seq=0, made=time.time(), expires=expiry(ttl))
        source = catalogue.path(entry.id)

        def write(folder: Path) -> None:
            shutil.copytree(source, folder)

        queue.place.catalogue.save(made, write, False)
        return tinker_path(queue.place.model_id, entry.id)

    def storage(self, owner: str) -> tuple[int, int]:
        """How many weights a key has saved, and their bytes."""
        entries = [entry for facts in self.all_facts(owner)
                   for entry in self.catalogue(facts["model_id"]).available()]
        return len(entries), sum(entry.size for entry in entries)

    def saved_weights(self, path: str, owner: str) -> SavedWeights:
        facts, entry, catalogue = self.checkpoint(path, owner)
        return SavedWeights(folder=catalogue.path(entry.id), tuning=Tuning(**facts["tuning"]))

    # sampling

    def sampler(self, sampling_session: str, owner: str) -> tuple[Session, str, dict[str, str]]:
        session_id, middle, number = sampling_session.partition(":sample:")
        session = self.sessions.get(session_id, owner)
        if not middle or number not in session.samplers:
            raise Refusal(f"there is no sampling session {shorten_value(sampling_session)}.", 404)
        return session, number, session.samplers[number]

    def add_sampler(self, session: Session, number: int, source: dict[str, str]) -> str:
        before = session.samplers.setdefault(str(number), source)
        if before != source:
            raise Refusal(f"sampler {number} of session {session.id} is there already, of other weights: a "
                          "sampler has a number of its own.", param="sampling_session_seq_id")
        self.sessions.write(session)
        return f"{session.id}:sample:{number}"

    def weights_of(self, source: Mapping[str, str], owner: str) -> SavedWeights | None:
        if path := source.get("path"):
            return self.saved_weights(path, owner)
        if model_id := source.get("inflight"):
            loose = [e for e in self.catalogue(model_id).entries.values() if not e.has_name and e.exists]
            if not loose:
                raise Refusal(f"{model_id} has published no weights to sample from.", 404)
            newest = max(loose, key=lambda entry: entry.seq)
            return self.saved_weights(f"tinker://{model_id}/{newest.id}", owner)
        return None

    def ask(self, body: RequestBody, owner: str) -> tuple[str, list[str]]:
        """Begins to sample -> the future's id and one of each sequence."""
        fields = dict(body.left)
        name, seq = body.take("sampling_session_id", str, None), body.take("seq_id", int, 0, low=0)
        if name is None:
            raise Refusal("sampling_session_id has to be given: create_sampling_session makes one.",
                          param="sampling_session_id")
        session, number, source = self.sampler(name, owner)
        body.take("type", str, None)
        body.take("base_model", str, None)
        body.take("model_path", str, None)
        ask = SampleAsk.read(body, self, seed_of(0, "tinker sample", int(number), seq))
        request_id = f"{name}:{seq}"
        ids = [f"{request_id}:{i}" for i in range(len(ask.requests))]
        if request_id not in self.samples:
            if len(self.samples) >= MOST_PROMISES:
                raise Refusal("too many samples wait to be fetched: ask again in a moment.", 429)
            weights = self.weights_of(source, owner)
            self.sessions.note_ask(session.id, request_id, fields)
            promise = self.samples[request_id] = SamplePromise(request_id, (name, seq // CLONE))
            task = asyncio.create_task(self.run_sample(promise, ask, weights))
            self.sampling[request_id] = task
            task.add_done_callback(lambda _: self.sampling.pop(request_id, None))
        return request_id, ids

    async def run_sample(self, promise: SamplePromise, ask: SampleAsk, weights: SavedWeights | None) -> None:
        try:
            scored = await self.pool.score(weights, ask.prompt, ask.prompt_top) if ask.scores else None
            sequences = await self.pool.sample(weights, ask.prompt, ask.requests) if ask.requests else []
        except asyncio.CancelledError:
            return self.settle_sample(promise, Result(error="this sample was cancelled."))
        except Exception as error:  # told to the client
            return self.settle_sample(promise, failure(error))
        replies = [SampledReply(tokens=s.tokens, logprobs=[token.logp for token in s.sampled],
                                stop_reason="stop" if s.finish_reason == "stop" else "length",
                                top=[token.top for token in s.sampled] if ask.top else None)
                   for s in sequences]
        logprobs: list[float] | None = None
        tops: list[tuple[tuple[int, float], ...]] | None = None
        if scored is not None:
            first = len(ask.prompt) - ask.last if ask.last else 0
            logprobs = [float("nan")] + [t.logp if i >= first else float("nan")
                                         for i, t in enumerate(scored, 1)]
            if ask.prompt_top:
                tops = [(), *(t.top if i >= first else () for i, t in enumerate(scored, 1))]
        self.settle_sample(promise, Result(proto=encode_sample(replies, logprobs, tops)))

    def settle_sample(self, promise: SamplePromise, result: Result) -> None:
        promise.settle(result)
        ended = self.ended.setdefault(promise.poller, EndedSamples())
        ended.add({"request_id": promise.request_id, "state": "failed"} if result.error else
                  {"request_id": promise.request_id, "state": "finished",
                   "response_payload_uncompressed_size": len(result.proto or b"")})

    async def ended_samples(self, sampling_session: str, clone: int, cursor: int, owner: str,
                            seconds: float) -> tuple[list[dict[str, Any]], int]:
        """The samples of one client of a sampler that have ended since a cursor, and the next cursor."""
        self.sampler(sampling_session, owner)
        ended = self.ended.setdefault((sampling_session, clone), EndedSamples())
        return await ended.since(cursor, seconds)

    # futures

    def future(self, request_id: str, owner: str) -> Promise:
        session, _, rest = request_id.partition(":")
        kind, _, rest = rest.partition(":")
        number, _, seq = rest.partition(":")
        if kind == "train":
            queue = self.queue(f"{session}:train:{number}", owner)
            if seq == "create":
                return queue.opening
            if seq == "unload":
                return settled(Result(fields={"model_id": queue.place.model_id, "type": "unload_model"}))
            if seq.isdecimal() and int(seq) in queue.promises:
                return queue.promises[int(seq)]
            if seq.isdecimal() and not queue.opening.settled.is_set():
                return queue.promise(int(seq))
        elif kind == "sample":
            self.sessions.get(session, owner)
            if request_id not in self.samples and (body := self.sessions.sample_request(session, request_id)):
                self.ask(RequestBody(body), owner)  # it was asked for before a restart
            if request_id in self.samples:
                return self.samples[request_id]
            raise Refusal(f"the sample {shorten_value(request_id)} is gone: ask for it again.", 410)
        raise Refusal(f"there is no future {shorten_value(request_id)}.", 404)

    def cancel(self, request_id: str, owner: str) -> None:
        """Drops a sample; what is trained goes on."""
        self.future(request_id, owner)
        if task := self.sampling.pop(request_id, None):
            task.cancel()

    def mark_sent(self, request_id: str, promise: Promise) -> None:
        promise.sent = True
        if request_id in self.samples:
            sent = [name for name, other in self.samples.items() if other.sent]
            for name in sent[:-STAYING]:
                del self.samples[name]


class SamplePromise(Promise):
    """poller: the sampling session, and which of its clients."""

    def __init__(self, request_id: str, poller: tuple[str, int]):
        super().__init__()
        self.request_id, self.poller = request_id, poller


class EndedSamples:
    """What has ended of one client of a sampler, in its order. A cursor counts all that ended."""

    def __init__(self) -> None:
        self.gone, self.listed = 0, list[dict[str, Any]]()
        self.news = asyncio.Event()

    def add(self, record: dict[str, Any]) -> None:
        self.listed.append(record)
        self.news.set()

    async def since(self, cursor: int, seconds: float) -> tuple[list[dict[str, Any]], int]:
        seen = min(max(cursor - self.gone, 0), len(self.listed))
        self.gone, self.listed = self.gone + seen, self.listed[seen:]
        if not self.listed and seconds:
            self.news.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self.news.wait()
            except TimeoutError:
                return [], self.gone
        return list(self.listed), self.gone + len(self.listed)


def settled(result: Result) -> Promise:
    promise = Promise()
    promise.settle(result)
    return promise


class SampleAsk:
    """A request for samples: the prompt's tokens, a request for each sample, and what is wanted beside."""

    def __init__(self, prompt: list[int], requests: list[Request], scores: bool, prompt_top: int, last: int,
                 top: int):
        self.prompt, self.requests, self.scores = prompt, requests, scores
        self.prompt_top, self.last, self.top = prompt_top, last, top

    @classmethod
    def read(cls, body: RequestBody, service: TinkerService, seed: int) -> SampleAsk:
        served = service.served
        prompt = served.check_tokens(prompt_tokens(body.take("prompt", dict)), "prompt")
        count = body.take("num_samples", int, 1, low=1, high=4096)
        top = body.take("topk_sample_logprobs", int, 0, low=0, high=MOST_TOP)
        scores = body.take("prompt_logprobs", bool, False)
        prompt_top = body.take("topk_prompt_logprobs", int, 0, low=0, high=MOST_TOP)
        last = body.take("prompt_logprobs_last_n", int, 0, low=1, high=max(1, len(prompt) - 1))
        fields = RequestBody(body.take("sampling_params", dict, {}), "sampling_params.")
        new = served.reply_room(prompt, fields.take("max_tokens", int, None, low=1), "prompt")
        stop_texts, stop_tokens = stops(fields, service)
        given = fields.take("seed", int, None, low=-2**63, high=2**64 - 1)
        top_k = fields.take("top_k", int, -1, low=-1)
        temperature = fields.take("temperature", float, 1.0, low=0, high=100)
        sampling = Sampling(max_new_tokens=new, temperature=temperature, top_k=max(top_k, 0),
                            top_p=fields.take("top_p", float, 1.0, low=1e-6, high=1), stop=stop_texts)
        fields.done()
        body.done({"target_prompt_logprobs": (), "prompt_alt_tokens_k": (0,),
                   "record_stability_info": (False,)})
        first = Request(sampling=sampling, seed=seed if given is None else given % 2**63,
                        stop_token_ids=stop_tokens, raw_logprobs=True, top_logprobs=top)
        requests = [first.nth(i) for i in range(count)]
        return cls(prompt, requests, scores or prompt_top > 0, prompt_top, last, top)


def stops(fields: RequestBody, service: TinkerService) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The texts and the tokens that end a reply: none given, those of the model; an empty list, none."""
    natural = service.served.chat.stop
    value = fields.left.get("stop")
    if value is None:
        fields.take("stop", str, None)
        return (), natural
    if isinstance(value, list) and value and all(type(x) is int for x in value):
        tokens = service.served.check_tokens(fields.take("stop", list), "sampling_params.stop")
        return (), tuple(dict.fromkeys((*tokens, *natural)))
    texts = fields.texts("stop", MOST_STOP)
    return texts, natural if texts else ()


def prompt_tokens(prompt: dict[str, Any]) -> list[int]:
    """The tokens of a ModelInput: its chunks, end to end."""
    body = RequestBody(prompt, "prompt.")
    tokens: list[int] = []
    for i, chunk in enumerate(body.take("chunks", list)):
        if not isinstance(chunk, dict):
            raise Refusal(f"prompt.chunks[{i}] is {shorten_value(chunk)}, and has to be an object.")
        part = RequestBody(chunk, f"prompt.chunks[{i}].")
        kind = part.take("type", str, "encoded_text")
        if kind != "encoded_text":
            raise Refusal(f"prompt.chunks[{i}] is {shorten_value(kind)}, and this server reads text: send "
                          "tokens.")
        tokens += part.take("tokens", list)
        part.done()
    body.done()
    return tokens


def model_cost(facts: Mapping[str, Any]) -> int:
    return 1 if facts["tuning"]["rank"] else WHOLE_MODEL


def run_config(origin: str, tuning: Tuning) -> dict[str, Any]:
    return {"model": origin, **asdict(tuning)}


def close_model(queue: TrainingQueue, state: str = "stopped") -> None:
    """On the thread: a checkpoint where it loses nothing, and the run's status."""
    model = queue.model
    assert model
    if not model.pending and queue.finished > queue.saved:
        queue.save()
    model.run.status(state)
    queue.journal.close()
    queue.model = None


