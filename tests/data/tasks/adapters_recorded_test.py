"""Doors to packages of others, on what was recorded of the real ones: tests/support/adapters_record.py"""

import io
import json
import random
import sys
from types import SimpleNamespace

import pytest
from paths import ASSETS

from postgrad.data.environments import Player
from postgrad.data.tasks import load_task
from postgrad.data.tasks.adapters import openenv
from postgrad.data.tasks.games import play_game
from tests.data.environments_test import Puppet
from tests.data.tasks.adapters_test import SETTINGS, game

# verifiers: a stand-in for its package whose scores are those that the real one gave

class Held(SimpleNamespace):
    """What is set when it is made."""


class Sums:
    """A task of the recording: it knows what the real one paid."""

    NEEDS_CONTAINER = False
    key = hash = ""

    def __init__(self, row):
        self.data, self.replies = Held(**row["data"]), row["replies"]
        self.config = Held(judges=[])

    setup = finalize = None
    toolsets = classmethod(lambda cls, config: [])

    def hooks(self, kind):
        return []

    def plugged_judges(self):
        return []

    async def score(self, trace):
        assert [(n["parent"], n["sampled"]) for n in trace.nodes] == [(None, False), (0, True)]
        paid = self.replies[trace.nodes[-1]["message"]["content"]]
        trace.rewards = {name: Held(score=score, weight=paid["weights"][name])
                         for name, score in paid["rewards"].items()}
        trace.reward = paid["score"]


class SumsTaskset:
    """Sums of two numbers."""

    bounded, config = True, Held(task=None)
    toolsets = classmethod(lambda cls, config: [])

    def __iter__(self):
        return iter([Sums(row) for row in recording("verifiers")["tasks"]])


def recording(door):
    return json.loads((ASSETS / "adapters" / f"{door}.json").read_text())


@pytest.fixture
def verifiers(monkeypatch):
    loaders = Held(taskset_config_type=lambda name: Held(model_validate=lambda given: given),
                   load_taskset=lambda config: SumsTaskset(), environment_class=lambda name: "alone",
                   SingleAgentEnv="alone")
    parts = {"": Held(Task=Sums, AgentConfig=Held), ".utils.loaders": loaders,
             ".trace": Held(TraceTask=Held, AgentInfo=Held, Trace=Held),
             ".state": Held(state_cls=lambda of: Held)}
    for name, part in parts.items():
        monkeypatch.setitem(sys.modules, f"verifiers.v1{name}", part)
    return loaders


def test_a_taskset_of_verifiers(verifiers):
    task = load_task("env:verifiers:sums-taskset(most=5)")
    rows = recording("verifiers")["tasks"]
    assert sum(task.meta["sizes"].values()) == len(rows) == 9
    for row in rows:
        prompt = next(p for p in task.verify.prompts if p.question == row["data"]["prompt"])
        assert prompt.answer == row["data"]["answer"]
        for text, paid in row["replies"].items():
            said = task.verify(prompt, text)
            assert (said.score, said.parts, said.weights) == (paid["score"], paid["rewards"], paid["weights"])


@pytest.mark.parametrize(("change", "said"), [
    ({"NEEDS_CONTAINER": True}, "needs a container"), ({"setup": print}, "sets up a runtime"),
    ({"toolsets": lambda config: [1]}, "has tools"),
    ({"hooks": lambda self, kind: [lambda trace, runtime: 1]}, "has rewards that need a runtime")])
def test_a_taskset_that_needs_more_is_refused(verifiers, monkeypatch, change, said):
    sys.modules["verifiers.v1"].Task = Held(setup=None, finalize=None)
    for name, value in change.items():
        monkeypatch.setattr(Sums, name, value)
    with pytest.raises(ValueError, match=f"env:verifiers:sums-taskset {said}, and only replies are scored"):
        load_task("env:verifiers:sums-taskset")


@pytest.mark.parametrize(("door", "package"), [("verifiers:sums", "verifiers"),
                                               ("openenv:ws://localhost:1", "websockets"),
                                               ("skyrl:gsm8k:FILE", "skyrl-gym")])
def test_without_the_package_the_sentence_says_what_to_install(monkeypatch, door, package):
    monkeypatch.setattr(openenv, "schema_of", lambda url, local: {})
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    door = door.replace("FILE", str(ASSETS / "replies.jsonl"))
    with pytest.raises(ValueError, match=f"needs the package {package} .*: pip install '{package}>="):
        load_task(f"env:{door}")


# OpenEnv: the messages of a real server, said again

class Server:
    """A connection that gives the recorded answers, to the recorded messages alone."""

    def __init__(self, messages):
        self.messages, self.closed = iter(messages), False

    def __enter__(self):
        return self

    def send(self, text):
        sent, self.answer = next(self.messages)
        assert json.loads(text) == sent

    def recv(self, timeout):
        return json.dumps(self.answer)

    def close(self):
        self.closed = True


def server_task(monkeypatch, action, connect):
    monkeypatch.setattr(openenv, "schema_of", lambda url, local: action)
    monkeypatch.setattr(openenv, "import_needed", lambda *names: Held(connect=connect))
    return load_task("env:openenv:http://127.0.0.1:8000/?turns=4")


def test_a_server_of_openenv(monkeypatch):
    kept, opened = recording("openenv"), []

    def connect(url, **settings):
        opened.append(url)
        return Server([pair for episode in kept["episodes"] for pair in episode["messages"]])

    task = server_task(monkeypatch, kept["action"], connect)
    prompt = task.prompts("train", 1, 0)[0]
    for episode in kept["episodes"]:
        script = iter(episode["replies"])
        messages, said = play_game(prompt, task.play, lambda *_, script=script: next(script),
                                   random.Random(episode["seed"]))
        assert messages == episode["conversation"] and said.score == episode["score"]
        assert list(said.per_turn) == episode["per_turn"]
    assert opened == ["ws://127.0.0.1:8000/ws"], "one connection, used again"
    assert {e["score"] for e in kept["episodes"]} == {0.0, 1.0}


def observed(text, **more):
    return {"type": "observation", "data": {"observation": {"text": text, "metadata": {}}, **more}}


def test_an_action_of_several_fields_is_a_tool(monkeypatch):
    seed = {"type": "reset", "data": {"seed": random.Random(0).getrandbits(31)}}
    talk = [[seed, observed("go")],
            [{"type": "step", "data": {"x": 1, "name": "a"}}, observed("no", reward=0.5)],
            [{"type": "step", "data": {"x": 2, "name": "b"}}, observed("yes", reward=1, done=True)]]
    action = {"properties": {"x": {"type": "integer"}, "name": {"type": "string"}, "metadata": {}},
              "required": ["x", "name"]}
    task = server_task(monkeypatch, action, lambda url, **settings: Server(talk))
    calls = [f'<tool_call>{{"name": "act", "arguments": {given}}}</tool_call>'
             for given in ('{"x": 1, "name": "a"}', '{"x": 1}', '{"x": 2, "name": "b"}')]
    shown, said = game(task, calls)
    told = [m["content"].split(" a ")[0] for m in shown if m["role"] == "tool"]
    assert told == ["no", "error: act: missing"]
    assert said.per_turn == (0.5, 0.0, 1.0) and said.score == 1.5


def test_a_server_that_fails_is_the_environment_s_fault(monkeypatch):
    full = {"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "1 of 1"}}
    made = []

    def connect(url, **settings):
        made.append(Server([[{"type": "reset", "data": {"seed": seed}}, full]]))
        return made[-1]

    task = server_task(monkeypatch, {"properties": {"message": {"type": "string"}}}, connect)
    prompt = task.prompts("train", 1, 0)[0]
    player = Player(task, Puppet(lambda text: "1"))
    monkeypatch.setattr(random.Random, "getrandbits", lambda self, n: seed)
    seed = 3
    said = player.sample([prompt], 1, SETTINGS, 0)[0][0].verdict
    assert "CAPACITY_REACHED, 1 of 1: serve it with more max_concurrent_envs" in said.error
    assert made[0].closed and not task.play.free


def test_a_game_that_is_cut_leaves_its_connection(monkeypatch):
    talk = [[{"type": "reset", "data": {"seed": random.Random(0).getrandbits(31)}}, observed("go")]]
    task = server_task(monkeypatch, {"properties": {"m": {"type": "string"}}}, lambda url, **_: Server(talk))
    game = task.play(task.prompts("train", 1, 0)[0], random.Random(0))
    next(game)
    game.close()
    assert len(task.play.free) == 1 and not task.play.free[0].closed


@pytest.mark.parametrize("source", ["localhost:8000", "ws://", "ftp://a"])
def test_an_address_that_is_none(source):
    with pytest.raises(ValueError, match="is no address: write env:openenv:ws://localhost:8000"):
        load_task(f"env:openenv:{source}")


# skyrl-gym: the steps of a real environment, taken again

class Again:
    """An environment that steps as recorded; closed: how many were."""

    closed = 0

    def __init__(self, episode):
        self.steps, self.max_turns = iter(episode["steps"]), episode["max_turns"]

    def init(self, prompt):
        return prompt, {}

    def step(self, text):
        said, step = next(self.steps)
        assert text == said
        return step

    def close(self):
        Again.closed += 1


@pytest.fixture
def skyrl(monkeypatch, tmp_path):
    """A file of the recorded rows; the stand-in makes what was recorded of each, in turn."""
    episodes = recording("skyrl")["episodes"]
    rows = {json.dumps({"prompt": e["prompt"], **e["extras"]}): None for e in episodes}
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    left = [None, *episodes]  # the first is made to be asked how many turns it has

    def make(name, *, env_config, extras):
        episode = left.pop(0) or episodes[0]
        assert (name, env_config, extras) == (episode["name"], {}, episode["extras"])
        return Again(episode)

    monkeypatch.setitem(sys.modules, "skyrl_gym", SimpleNamespace(make=make))
    return episodes, f"env:skyrl:gsm8k_multi_turn:{tmp_path / 'rows.jsonl'}"


def test_an_environment_of_skyrl(skyrl):
    episodes, name = skyrl
    task, before = load_task(name), Again.closed
    prompts = {json.dumps(p.messages): p for split in ("train", "validation", "test")
               for p in task.prompts(split, 9, 0)}
    assert task.turns == 3 and len(prompts) == 2
    for episode in episodes:
        prompt, script = prompts[json.dumps(episode["prompt"])], iter(episode["replies"])
        messages, said = play_game(prompt, task.play, lambda *_, script=script: next(script),
                                   random.Random(0))
        assert messages == episode["conversation"] and said.score == episode["score"]
        assert list(said.per_turn) == episode["per_turn"]
    assert Again.closed - before == len(episodes)


def test_rows_of_skyrl_that_are_not_there(skyrl, tmp_path):
    with pytest.raises(ValueError, match="names no file of rows: write env:skyrl:NAME:ROWS.jsonl"):
        load_task("env:skyrl:gsm8k")
    with pytest.raises(ValueError, match="cannot be made of its first row: AssertionError"):
        load_task(skyrl[1].replace("gsm8k_multi_turn", "other"))


@pytest.mark.parametrize("action", [
    None, [], 5, "text", {"properties": []}, {"properties": {"a": "string"}}, {"properties": {"a b": {}}},
    {"properties": {"class": {}}}, {"properties": {"": {}}}, {"properties": {"a" * 101: {}}},
    {"properties": {"a": {}}, "required": 5}, {"properties": {f"a{i}": {} for i in range(65)}}])
def test_a_schema_that_is_none_is_a_sentence(action):
    with pytest.raises(ValueError, match="^the server's schema"):
        openenv.action_fields(action)


@pytest.mark.parametrize("kind", [["string", "null"], {"a": 1}, None, 5, "unheard of"])
def test_a_type_that_is_not_known_is_a_text(kind):
    assert openenv.action_fields({"properties": {"a": {"type": kind}}}) == {"a": (str, False)}


@pytest.mark.parametrize("body", [b"[" * 100_000, b"", b"\xff", b'{"action": 1, "action": 2}', b"[]", b"7",
                                  b'{"other": {}}', b'{"action": {}, "x": "' + b"a" * 2**20 + b'"}'])
def test_an_answer_that_is_no_schema_is_a_sentence(monkeypatch, body):
    answers = SimpleNamespace(open=lambda url, timeout: io.BufferedReader(io.BytesIO(body)))
    monkeypatch.setattr(openenv, "build_opener", lambda *handlers: answers)
    with pytest.raises(ValueError, match="no OpenEnv server answers at http://a/schema"):
        openenv.schema_of("http://a/schema", True)


def test_an_answer_that_does_not_end_is_left():
    endless = SimpleNamespace(read1=lambda most: b"a")
    with pytest.raises(TimeoutError, match="did not end"):
        openenv.read_within(endless, 10**9, 0.0)


@pytest.mark.parametrize("reward", ["1", [], {}, float("nan"), float("inf"), 10**400, 1e300])
def test_a_reward_that_is_no_number_is_the_servers_fault(reward):
    with pytest.raises(ValueError, match="the server's reward is"):
        openenv.reward_number(reward)


@pytest.mark.parametrize("turns", ["0", "-1", "x", "1e3", "9" * 5000, "\u0663"])
def test_turns_that_are_none_are_a_sentence(turns):
    with pytest.raises(ValueError, match="is no number of replies"):
        openenv.load(f"ws://127.0.0.1:1?turns={turns}")
