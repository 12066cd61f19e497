"""The pages about runs without a browser: what is read, what is refused, what is told, and that all of it stays text."""

import fcntl
import html.parser
import itertools
import json
import math
import os
import random
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from postgrad import recipes
from postgrad.memory import Setup, cache, parameters
from postgrad.models import find_model
from postgrad.models.families import Config
from postgrad.run import Run
from postgrad.settings import flat, override
from postgrad.studio import curves, forms, live, pairing, processes, samples, traces
from postgrad.studio.app import create_app
from postgrad.studio.launch import shown
from postgrad.studio.pages import size

TOKEN = "a-token-for-the-tests-of-the-studio"


def client(root: Path, **more) -> TestClient:
    app = create_app(runs=root, token=TOKEN, hosts=("testserver",), **more)
    return TestClient(app, cookies={"postgrad": TOKEN}, headers={"X-Postgrad": "1"})


def sample(step, k, *, prompt="What is 2+2?", text="<answer>4</answer>", score=1.0, adv=0.5, reason="4 is the answer"):
    tokens = ["<answer>", "4", "</answer>"]
    columns = {"adv": [adv] * 3, "ratio": [1.0, 2.0, 0.5], "kl": [0.0, 0.1, 0.2], "entropy": [0.3, 0.0, 0.1], "mask": [1.0] * 3}
    return {"id": f"{step}/{k}", "prompt": prompt, "text": text, "tokens": tokens, "columns": columns, "score": score,
            "reason": reason, "finished": True, "adv": adv, "prompt_tokens": ["What"], "parts": {}}


def make(folder: Path, steps: int = 3, *, done: bool = True, config=None, **facts) -> Run:
    """A run whose numbers are known: reward = step / 10."""
    facts = {"method": "grpo", "model": "tiny-chat", "task": "words"} | facts
    run = Run.create(folder, recipe="grpo", config=config or {"steps": steps, "optim": {"lr": 1e-3}}, steps=steps, **facts)
    grow(run, steps)
    if done:
        run.status("done")
    return run


def grow(run: Run, steps: int) -> None:
    for step in range(run.next_step, run.next_step + steps):
        run.log_samples(step, [sample(step, k, score=float(k % 2), adv=2.0 * (k % 2) - 1.0) for k in range(4)])
        run.log(step, {"reward": step / 10, "kl": 0.01 * step, "time/step": 2.0})


# reading

def logged(trace):
    """All numbers of a trace, as text: nan is equal to nan."""
    return {name: str(column) for name, column in trace.columns.items() if column[0]}


@pytest.mark.parametrize("seed", range(5))
def test_a_trace_that_grew_equals_one_that_was_read_at_once(tmp_path, seed):
    rng, run = random.Random(seed), make(tmp_path / "a", 0, done=False)
    held = traces.Traces(tmp_path)
    for _ in range(12):
        for step in range(run.next_step, run.next_step + rng.randrange(4)):
            row = {"reward": rng.choice([rng.random(), math.nan, math.inf]), "time/step": 1.0}
            run.log(step, row | ({"extra": 1} if rng.random() < 0.3 else {}))
            if rng.random() < 0.4:
                run.log_eval(step, {"pass@1": rng.random(), "pass@1_interval": [0.1, 0.9]})
        if rng.random() < 0.3:
            run.rewind(rng.randrange(run.next_step))  # a resume: what comes then replaces what stood there
            run.log(run.next_step, {"reward": -1.0, "time/step": 1.0})
        grown, fresh = held.get("a"), traces.Trace(tmp_path / "a").refresh()
        assert logged(grown) == logged(fresh)
        assert grown.evals == fresh.evals and grown.step == fresh.step == run.next_step - 1


def test_runs_are_found_wherever_they_are_and_links_are_not_followed(tmp_path):
    make(tmp_path / "runs" / "b", 2)
    make(tmp_path / "runs" / "demo" / "rl", 1)
    make(tmp_path / "runs" / "lab" / "x" / "y", 1)
    make(tmp_path / "elsewhere" / "c", 1)
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere" / "c")
    (tmp_path / "runs" / ".output").mkdir()
    assert list(traces.find(tmp_path / "runs")) == ["b", "demo/rl", "lab/x/y"]
    with pytest.raises(traces.NoRun, match="out of the runs folder"):
        traces.locate(tmp_path / "runs", "link")
    page = client(tmp_path / "runs").get("/runs").text
    assert all(f'href="/runs/{name}"' in page for name in ("b", "demo/rl", "lab/x/y")) and "link" not in Texts(page).text


def test_the_list_is_sorted_filtered_and_says_what_is_broken(tmp_path):
    for name, steps in (("aa", 1), ("bb", 5), ("cc", 3)):
        make(tmp_path / name, steps)
    make(tmp_path / "zz", 2, method="ppo", done=False).close()  # its process died
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.json").write_text("{")
    web = client(tmp_path)
    names = ["aa", "bb", "cc", "zz", "torn"]

    def order(query):
        text = Texts(web.get(f"/runs?{query}").text).text
        return sorted((n for n in names if f"\n{n}\n" in text), key=lambda n: text.index(f"\n{n}\n"))

    assert order("sort=step&order=down")[:2] == ["bb", "cc"] and order("sort=reward&order=up")[:2] == ["aa", "zz"]
    assert order("q=ppo") == ["zz"] and order("q=grpo+BB") == ["bb"] and order("q=nothing") == []
    assert order("q=interrupted") == ["zz"] and order("q=broken") == ["torn"]
    assert "is not a JSON object" in web.get("/runs?q=broken").text
    assert web.get("/runs?sort=colour").status_code == 400


def test_a_hostile_run_folder_is_shown_not_obeyed(tmp_path):
    run = make(tmp_path / "odd", 2)
    (run.folder / "run.json").write_text(json.dumps({"created": "yesterday", "steps": [], "method": {"a": 1}, "model": None}))
    (run.folder / "config.json").write_text(json.dumps({"optim": {"lr": "\ud800"}}))
    (run.folder / "status.json").write_text(json.dumps({"state": "running", "pid": 1, "updated": {}}))
    with open(run.folder / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": null, "reward": 1}\n{"step": 99999999999999999999, "reward": 1}\n{"step": 3, "reward": [1]}\n')
    with open(run.folder / "samples.jsonl", "ab") as file:
        file.write(b'{"step": 3}\n{"step": 3, "tokens": 5, "columns": [], "parts": 1, "prompt": "\\ud800", "score": "x"}\n')
    web = client(tmp_path)
    pages = "/runs", "/runs/odd", "/runs/-/samples?run=odd&step=3&group=1", "/runs/-/curves?run=odd", "/runs/compare?ids=odd"
    for path in pages:
        assert web.get(path).status_code == 200, path
    assert web.post("/runs/-/stop", data={"run": "odd"}).status_code == 400  # nobody holds its lock: process 1 is left alone


def test_a_long_run_s_first_picture_keeps_its_extremes_and_is_small(tmp_path):
    run = make(tmp_path / "long", 0)
    values = [math.sin(s / 40) for s in range(10_000)]
    values[7_776], values[123] = 50.0, -50.0
    rows = (json.dumps({"step": s + 1, "reward": v}) for s, v in enumerate(values))
    (run.folder / "metrics.jsonl").write_text("".join(f"{row}\n" for row in rows))
    found = curves.charts({"long": traces.Trace(run.folder).refresh()}, ["reward"])["reward"]["series"][0]
    assert len(found["steps"]) <= curves.POINTS + 1 and not found["whole"]
    assert dict(zip(found["steps"], found["values"], strict=True))[7_777] == 50.0 == max(found["values"])
    assert min(found["values"]) == -50.0 and found["steps"][-1] == 10_000 and found["steps"] == sorted(set(found["steps"]))
    web = client(tmp_path)
    detail = web.get("/runs/-/curves?run=long&name=reward&from=7700&to=7800").json()["reward"]
    assert detail["steps"] == list(range(7_700, 7_801)) and detail["values"][77] == 50.0
    assert len(web.get("/runs/long").content) < 60_000


# live

def test_the_stream_tells_each_row_once_and_goes_on_from_a_cursor(tmp_path):
    run = make(tmp_path / "a", 2, done=False)
    seen = live.Watched(tmp_path, "a", [0, 0, 0])
    first = seen.news()
    assert [row["step"] for row in first["metrics"]] == [1, 2] and first["samples"] == 2
    assert first["state"]["state"] == "running"
    assert seen.news() is None
    grow(run, 2)
    run.log_eval(4, {"pass@1": 0.5, "pass@1_interval": [0.25, 0.75], "errors": math.nan})
    run.event("skipped", "step 4: <b>", step=4)
    later, again = seen.news(), live.Watched(tmp_path, "a", [*seen.cursor]).news()
    assert [row["step"] for row in later["metrics"]] == [3, 4] and later["metrics"][1]["reward"] == 0.4
    assert later["evals"] == [{"step": 4, "pass@1": 0.5, "errors": None, "pass@1_interval": [0.25, 0.75]}]
    assert later["events"] == [{"step": 4, "kind": "skipped", "text": "step 4: <b>"}]
    assert again["metrics"] == again["evals"] == [] and again["state"] == later["state"]
    run.status("stopped", error="stopped by SIGTERM")
    assert seen.news()["state"] == {"state": "stopped", "step": 4, "steps": 2, "error": "stopped by SIGTERM"}


def test_a_reader_far_behind_is_told_to_read_anew(tmp_path, monkeypatch):
    make(tmp_path / "a", 5)
    monkeypatch.setattr(live, "MOST", 3)
    assert live.Watched(tmp_path, "a", [0, 0, 0]).news()["reload"] is True


def test_the_list_s_signature_changes_with_what_the_list_shows(tmp_path):
    seen = [live.signature(tmp_path)]
    run = make(tmp_path / "a", 1, done=False)
    seen.append(live.signature(tmp_path))
    assert live.signature(tmp_path) == seen[-1]
    grow(run, 1)
    seen.append(live.signature(tmp_path))
    run.close()
    seen.append(live.signature(tmp_path))  # its process is gone: "interrupted"
    assert len(set(seen)) == 4


@pytest.mark.parametrize("watch", ["a", "a:1:2", "a:1:2:x", "a:-1:0:0", "../a:0:0:0", "a:0:0:0:0", "a:9999999999999999999:0:0"])
def test_a_bad_cursor_is_refused(tmp_path, watch):
    make(tmp_path / "a", 1)
    assert client(tmp_path).get("/runs/-/live", params={"watch": watch}).status_code == 400


# samples

def test_the_group_is_worked_out_as_it_was_trained(tmp_path):
    rows = [sample(1, k, score=s, adv=a) for k, (s, a) in enumerate([(1, 1.0), (0, -1.0), (0, -1.0), (1, 1.0)])]
    (group,) = samples.groups(rows)
    assert (group["mean"], group["std"], group["flat"]) == (0.5, 0.5, False)
    told = samples.worked(group, "grpo", {})
    assert told["adv"] == [1, -1, -1, 1] and told["gap"] == 0 and told["function"].endswith("credit.group_zscore")
    assert samples.worked(group, "dr_grpo", {})["adv"] == [0.5, -0.5, -0.5, 0.5]
    assert "critic" in samples.worked(group, "ppo", {})["why"] and "compares" in samples.worked(group, "dpo", {})["why"]
    (flat_one,) = samples.groups([sample(1, k, score=1.0, adv=0.0) for k in range(4)])
    assert flat_one["flat"] and samples.worked(flat_one, "grpo", {})["adv"] == [0, 0, 0, 0]


def test_samples_come_in_the_order_of_their_numbers_and_colours_by_size(tmp_path):
    (group,) = samples.groups([sample(1, k) for k in (10, 9, 2)])
    assert [row["id"] for row in group["rows"]] == ["1/2", "1/9", "1/10"]
    row = sample(1, 0, adv=-1.0)
    largest = samples.scale([row], "ratio")
    assert largest == pytest.approx(math.log(2))
    looks = [t["look"] for t in samples.strip(row, "ratio", largest)]
    assert looks == ["given", "up-0", "up-6", "down-6"]  # double and half weigh the same
    assert [t["look"] for t in samples.strip(row, "adv", 2.0)] == ["given", "down-3", "down-3", "down-3"]
    assert [t["look"] for t in samples.strip(row, "mask", 1.0)] == ["given"] + ["size-3"] * 3
    assert dict(samples.strip(row, "kl", 0.2)[3]["numbers"]) == {
        "mask": 1.0, "advantage": -1.0, "ratio": 0.5, "KL": 0.2, "entropy": 0.1}


def test_every_step_s_samples_can_be_browsed(tmp_path):
    make(tmp_path / "a", 30)
    web = client(tmp_path)
    for step in range(1, 31):
        text = web.get(f"/runs/-/samples?run=a&step={step}").text
        assert f'data-step="{step}"' in text and f"At step {step} its 4 answers earned 0.500" in text
    assert 'data-step="30"' in web.get("/runs/a").text  # the newest, unless another is asked for
    assert web.get("/runs/a?step=x").status_code == web.get("/runs/a?colour=red").status_code == 400


def test_pairs_of_samples_are_those_on_the_same_prompt():
    a, b = {"x": [1, 9], "only a": [2]}, {"x": [8], "only b": [2]}
    assert pairing.shared({"a": a, "b": b}) == [("x", [1, 8]), ("x", [9, 8])]
    assert pairing.shared({"a": a, "b": {}}) == []


def test_two_runs_side_by_side_show_only_what_differs(tmp_path):
    make(tmp_path / "a", 3, config={"seed": 0, "optim": {"lr": 1e-3, "clip": 1.0}})
    make(tmp_path / "b", 4, config={"seed": 0, "optim": {"lr": 2e-3, "clip": 1.0}})
    page = Texts(client(tmp_path).get("/runs/compare?ids=a,b").text)
    assert "optim.lr" in page.text and "0.002" in page.text and "optim.warmup" not in page.text and "seed" not in page.text
    assert "What is 2+2?" in page.text and page.data["charts"]["reward"]["series"][1]["values"] == [0.1, 0.2, 0.3, 0.4]
    assert client(tmp_path).get("/runs/compare?ids=a,nobody").status_code == 404


# refused paths

def crooked() -> list[str]:
    """500 ways to ask for what lies outside."""
    ups = ["..", "../..", "../../..", "./..", "....//", "..;", ".%2e", "%2e%2e", "..%2f", "%2e%2e%2f", "..%5c", "..\\",
           "%252e%252e%252f", "..%c0%af", "..%00", "\u2025", "\uff0e\uff0e", "a/..", "a/../..", "a/b/../../..", "//", "/", "~",
           "~root", "C:\\", "\\\\host\\x"]
    ends = ["secret", "secret/run.json", "etc/passwd", "/etc/passwd", "secret%00.json", "secret/.", "secret/", "secret\n",
            "SECRET", "proc/self/environ", "", "link", "link/../../secret", "a/checkpoints", "a/run.json", "a/.", "-",
            ".output/a", "a/lock", "*"]
    joined = (f"{up}{glue}{end}" for up, end, glue in itertools.product(ups, ends, ("/", "")))
    return list(dict.fromkeys(joined))[:500]


WRITES = ("/runs/-/stop", "/runs/-/resume", "/runs/-/forget")
OPENED: list[str] = []
sys.addaudithook(lambda event, args: OPENED.append(str(args[0])) if event == "open" and isinstance(args[0], str) else None)


def test_500_crooked_paths_read_nothing_outside(tmp_path):
    root, outside = tmp_path / "runs", tmp_path / "secret"
    make(root / "a", 1)
    run = make(outside, 1, method="SECRET-METHOD")
    (root / "link").symlink_to(outside)
    (root / ".output").mkdir()
    (tmp_path / "secret.log").write_text("SECRET-METHOD")
    web, paths = client(root), crooked()
    assert len(paths) == 500
    web.get("/runs/a"), web.get("/runs/new")  # templates and modules are read once, before the watch begins
    OPENED.clear()
    parts = [(f"/runs/-/{part}", "run", "{}") for part in ("samples", "curves", "head", "worked", "output")]
    parts += [(address, "run", "{}") for address in WRITES]
    parts += [("/runs/compare", "ids", "a,-,{}"), ("/runs/-/live", "watch", "{}:0:0:0"), ("/runs/-/pairs", "ids", "a,-,{}")]
    turns = itertools.cycle([parts[i::4] for i in range(4)])  # each path is tried on a quarter of the parts
    for path in paths:
        whole = quote(path, safe="")
        for address in (f"/runs/{quote(path, safe='/%;:~*')}", f"/runs/{whole}", f"/runs/-/at/{whole}"):
            if not web.build_request("GET", address).url.path.startswith("/runs/"):
                continue  # the client has resolved the dots itself, and asks for another page
            answer = web.get(address, follow_redirects=False)
            assert answer.status_code in (400, 404, 307) and "SECRET-METHOD" not in answer.text, address
        for address, key, value in next(turns):
            if key == "run" and address in WRITES:
                answer = web.post(address, data={"run": path})
            else:
                answer = web.get(address, params={key: value.format(path)})
            assert answer.status_code in (400, 404) and "SECRET-METHOD" not in answer.text, (address, path)
    ours = [os.path.realpath(path) for path in OPENED if str(tmp_path) in path]
    strayed = [path for path in ours if not path.startswith(f"{os.path.realpath(root)}/")]
    strayed += [path for path in OPENED if path.startswith(("/etc/passwd", "/proc/self"))]
    assert not strayed and run.folder.exists() and (root / "a" / "run.json").exists()


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "-x", "x y", "<b>", "a" * 101, "new\n", "con:", "é"])
def test_a_run_cannot_be_started_under_a_name_that_leads_elsewhere(tmp_path, name, monkeypatch):
    monkeypatch.setattr(processes, "start", lambda *a, **k: pytest.fail("started"))
    answer = client(tmp_path).post("/runs/-/start", data={"recipe": "grpo:words", "name": name})
    assert answer.status_code == 400 and "name" in answer.text and not list(tmp_path.iterdir())


# text stays text

class Texts(html.parser.HTMLParser):
    """The texts and elements of a page, and the numbers of its data block."""

    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.parts, self.elements, self.inside, self.data = [], [], None, None
        self.feed(page)
        self.text = "\n" + "\n".join(part.strip() for part in self.parts) + "\n"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = (tag, dict(attrs))

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside and self.inside[0] == "script" and self.inside[1].get("id") == "run-data":
            self.data = json.loads(data)
        else:
            self.parts.append(data)


def poisons() -> list[str]:
    """100 strings that would run if they were taken for markup; each sets window.pwned."""
    code = "window.pwned=1"
    shapes = ["<script>{c}</script>", "<img src=x onerror={c}>", "<svg onload={c}>", "<svg/onload={c}>", "<body onload={c}>",
              "<iframe srcdoc='<script>parent.{c}</script>'></iframe>", "<details open ontoggle={c}>x</details>",
              "</script><script>{c}</script>", "</title><script>{c}</script>", "</textarea><script>{c}</script>",
              "<a href=javascript:{c}>x</a>", "<math><mi//xlink:href='data:x,{c}'>", "<input autofocus onfocus={c}>",
              "<video><source onerror={c}>", "<marquee onstart={c}>", "<object data=javascript:{c}>",
              "<embed src=javascript:{c}>", "<form action=javascript:{c}><button>",
              "<style>@import 'javascript:{c}'</style>", "{{{{ {c} }}}}"]
    ways = [lambda s: s, lambda s: f'">{s}', lambda s: f"'>{s}", lambda s: f"-->{s}<!--", lambda s: f"\0{s}"]
    return [way(shape.format(c=code)) for shape in shapes for way in ways]


def poisoned(root: Path) -> list[str]:
    """Runs in which everything that can hold text holds poison; -> the poisons."""
    bad = poisons()
    run = make(root / "bad", 0, model=bad[0], task=bad[1], command=bad[2], config={"x": bad[3], bad[4]: bad[5]}, done=False)
    for step, text in enumerate(bad, 1):
        other = bad[step % len(bad)]
        row = sample(step, 0, prompt=text, text=text, reason=other)
        run.log_samples(step, [row | {"id": text, "tokens": [text, other, "x"], "prompt_tokens": [other], "parts": {text: 1}}])
        run.log(step, {"reward": 1.0, text: 0.5})
        run.event("skipped", text, step=step)
    run.status("failed", error=bad[6])
    for text in bad:
        folder = root / text.replace("/", "\u2215").replace("\0", "")
        folder.mkdir(exist_ok=True)
        (folder / "run.json").write_text("{}")
    (root / ".output").mkdir()
    (root / ".output" / "bad.log").write_text("\n".join(bad))
    return bad


def test_100_poisons_are_shown_as_text(tmp_path):
    bad = poisoned(tmp_path)
    assert len(set(bad)) == 100
    web = client(tmp_path)
    pages = [f"/runs/-/samples?run=bad&step={step}" for step in range(1, 101)]
    pages += ["/runs", "/runs/bad", "/runs/compare?ids=bad", "/runs/-/output?run=bad", "/runs/-/head?run=bad"]
    pages += [f"/runs?q={quote(text)}" for text in bad]
    pages += [f"/runs/new?recipe={t}&name={t}&set.model={t}" for t in map(quote, bad[::5])]
    for path in pages:
        page = Texts(web.get(path).text)
        for tag, attrs in page.elements:
            assert tag not in ("img", "iframe", "video", "marquee", "object", "embed", "math", "style"), path
            block = attrs.get("type") == "application/json"
            assert tag != "script" or block or attrs.get("src", "").startswith("/static/"), path
            assert not [a for a in attrs if a.startswith("on")] and "javascript:" not in (attrs.get("href") or "")[:20], path
    for step, text in enumerate(bad, 1):
        assert samples.clean(text) in Texts(web.get(f"/runs/-/samples?run=bad&step={step}").text).text
    assert bad[0] in Texts(web.get("/runs/bad").text).data["charts"]


# forms

SPECS = [f"{row['name']}:{key}" for row in forms.menu() for key, _ in row["settings"]]


@pytest.mark.parametrize("spec", SPECS)
def test_an_untouched_form_asks_for_the_setting_itself(spec):
    given = {f["key"]: f["value"] for group in forms.sections(spec, {}) for f in group["fields"]}
    plan = forms.plan(spec, given, "runs/x")
    assert plan["error"] is None and plan["words"] == ["train", spec, "--run", "runs/x"]
    wanted = flat(recipes.resolve(spec)[1])
    assert given.keys() == wanted.keys() - {"method"}
    changed = override(recipes.resolve(spec)[1], [f"{key}={text}" for key, text in given.items()])
    assert flat(changed) == wanted  # every value survives being written into a form and read again


def test_a_changed_value_is_in_the_command_and_an_equal_one_is_not():
    given = {"optim.lr": "none", "steps": "7", "anchor.measure": "true", "nonsense": "1"}
    plan = forms.plan("grpo:words", given, "runs/x")
    assert plan["command"] == "postgrad train grpo:words steps=7 anchor.measure=true --run runs/x"
    own = forms.plan("grpo", {"task": "mine.py", "rollouts.group_size": "4"}, "runs/x")
    assert own["command"] == "postgrad train grpo task=mine.py rollouts.group_size=4 --run runs/x" and own["error"] is None
    data = forms.plan("dpo", {"task": "none", "data": "pairs.jsonl"}, "runs/x")
    assert data["command"] == "postgrad train dpo data=pairs.jsonl --run runs/x" and data["error"] is None


def test_the_memory_of_a_form_is_that_of_postgrad_memory(tmp_path):
    """tiny-chat by GRPO on a CPU: all in float32, 16 bytes a trained weight; a cache of 16 prompts x 8 replies of 64 tokens."""
    shape = Config.read(find_model("tiny-chat") / "config.json")
    plan = forms.plan("grpo", {"task": "words"}, "runs/x")
    needs, n = plan["memory"], parameters(shape)
    assert (needs["weights"], needs["gradients"], needs["optimizer"]) == (8 * n, 4 * n, 8 * n)  # a reference beside the policy
    assert needs["cache"] == cache(shape, Setup(bits=32, tokens=64, samples=128))
    alone = forms.plan("grpo", {"task": "words", "anchor.kl": "0"}, "runs/x")["memory"]
    assert alone["weights"] == 4 * n
    assert forms.plan("dpo", {"task": "questions", "model": "no-such-model"}, "runs/x")["memory"] is None
    assert forms.plan("align", {}, "runs/x")["memory"] is None
    assert "optim.lr=0.0003" in plan["chosen"] and "rollouts.max_new_tokens=64" in plan["chosen"]
    told = Texts(client(tmp_path).get("/runs/-/plan?recipe=grpo&set.task=words").text).text
    assert plan["chosen"] in " ".join(told.split())
    assert f"at most about {size(needs['peak'])}" in " ".join(told.split())


def test_nothing_is_started_where_other_machines_can_ask(tmp_path):
    """A task may be a file of Python."""
    web = client(tmp_path, loopback=False)
    for act in ("start", "resume"):
        answer = web.post(f"/runs/-/{act}", data={"recipe": "grpo:words", "name": "x", "run": "x"})
        assert answer.status_code == 403 and "switched off" in answer.text
    page = web.get("/runs/new").text
    assert "switched off" in page and ">Start<" not in page and not any(tmp_path.iterdir())


@pytest.mark.parametrize(("key", "text"), [("optim.lr", "-1"), ("optim.lr", "x"), ("steps", "0"), ("rollouts.minibatches", "5"),
                                           ("optim.schedule", "cosin"), ("rollouts.temperature", "0"), ("steps", "")])
def test_a_bad_value_gets_the_library_s_own_sentence(tmp_path, key, text):
    with pytest.raises(ValueError) as fault:
        recipes.resolve("grpo:words", [f"{key}={text}"])
    web = client(tmp_path)
    told = Texts(web.get("/runs/-/plan", params={"recipe": "grpo:words", f"set.{key}": text}).text).text
    assert str(fault.value) in told
    assert str(fault.value) in Texts(web.get("/runs/new", params={"recipe": "grpo:words", f"set.{key}": text}).text).text
    refused = web.post("/runs/-/start", data={"recipe": "grpo:words", f"set.{key}": text})
    assert refused.status_code == 400 and str(fault.value) in Texts(refused.text).text and not list(tmp_path.iterdir())


def test_the_form_carries_the_words_of_the_code():
    fields = {f["key"]: f for group in forms.sections("grpo:words", {}) for f in group["fields"]}
    wanted = "the rank of low-rank adapters; 0 trains all weights; none: by the model's size"
    assert fields["optim.adapter.lora"]["about"] == wanted
    assert fields["anchor.measure"]["yes_no"] and fields["reward"]["optional"] and "method" not in fields
    assert all(f["about"] and f["when"] for f in fields.values()) and "method.high" in fields


# processes

def finished(root: Path, name: str) -> None:
    """Wait for a process that was started for a run: its lock on what it says goes with it."""
    with open(processes.output(root, name)) as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def test_a_run_is_started_from_the_page_as_a_process_of_its_own(tmp_path):
    web = client(tmp_path)
    small = {"steps": "2", "rollouts.prompts_per_step": "2", "rollouts.group_size": "2", "rollouts.max_new_tokens": "6",
             "evaluation.every": "0"}
    asked = {"recipe": "grpo:arithmetic", "name": "mine"} | {f"set.{k}": v for k, v in small.items()}
    answer = web.post("/runs/-/start", data=asked)
    assert answer.status_code == 200 and answer.headers["hx-redirect"] == "/runs/mine"
    pid = json.loads((tmp_path / ".output" / "mine.json").read_text())["pid"]
    assert os.getsid(pid) == pid != os.getsid(0) and os.getpriority(os.PRIO_PROCESS, pid) >= processes.NICE
    assert "mine" in web.get("/runs").text and web.get("/runs/mine").status_code == 200
    again = web.post("/runs/-/start", data={"recipe": "grpo:arithmetic", "name": "mine"})
    assert again.status_code == 400 and "taken" in again.text
    finished(tmp_path, "mine")
    run = Run.open(tmp_path / "mine")
    assert run.state()["state"] == "done" and run.state()["pid"] == pid and run.next_step == 3
    page = web.get("/runs/mine").text
    assert "done" in page and "$ postgrad train grpo:arithmetic steps=2" in Texts(page).text
    assert web.post("/runs/-/resume", data={"run": "mine"}).status_code == 400  # it is done
    assert web.post("/runs/-/stop", data={"run": "mine"}).status_code == 400


def test_a_run_that_cannot_start_says_why(tmp_path):
    web = client(tmp_path)
    web.post("/runs/-/start", data={"recipe": "grpo:words", "name": "lost", "set.model": "no-such-model"})
    finished(tmp_path, "lost")
    page = Texts(web.get("/runs/lost").text).text
    assert "It did not start" in page and "no-such-model" in page and not (tmp_path / "lost").exists()
    assert "did not start" in web.get("/runs").text
    assert web.post("/runs/-/forget", data={"run": "lost"}).headers["hx-redirect"] == "/runs"
    assert web.get("/runs/lost").status_code == 404


def test_a_run_can_be_stopped_before_its_first_step(tmp_path):
    web = client(tmp_path)
    web.post("/runs/-/start", data={"recipe": "grpo:words", "name": "soon"})
    assert "Process" in web.post("/runs/-/stop", data={"run": "soon"}).text
    finished(tmp_path, "soon")
    assert not (tmp_path / "soon").exists() and not processes.at_work(tmp_path, "soon")


def test_a_stage_goes_on_with_its_pipeline(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(processes, "start", lambda root, name, words, **how: started.append((name, words)))
    for name in ("lab/ppo", "demo/rl"):
        make(tmp_path / name, 1, done=False).status("stopped")
    (tmp_path / "lab" / "pipeline.json").write_text(json.dumps({"recipe": "align", "config": {}, "command": ""}))
    web = client(tmp_path)
    assert [web.post("/runs/-/resume", data={"run": name}).status_code for name in ("lab/ppo", "demo/rl")] == [200, 200]
    assert started == [("lab", ["resume", str(tmp_path / "lab")]), ("demo/rl", ["resume", str(tmp_path / "demo" / "rl")])]


def test_only_a_process_that_trains_there_is_stopped(tmp_path):
    run = make(tmp_path / "a", 1, done=False)
    web = client(tmp_path)
    assert "this very process" in web.post("/runs/-/stop", data={"run": "a"}).text  # the lock is ours
    run.close()
    assert "nobody is training" in web.post("/runs/-/stop", data={"run": "a"}).text
    assert web.post("/runs/-/forget", data={"run": "a"}).status_code == 400 and run.folder.exists()


def test_a_folder_is_written_as_it_is_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "runs" / "x") == "runs/x" and shown(Path("/elsewhere/x")) == "/elsewhere/x"


def test_runs_called_like_pages_have_a_page(tmp_path):
    for name in ("new", "compare", "live"):
        make(tmp_path / name, 1)
        assert f'href="{traces.address(name)}"' in client(tmp_path).get("/runs").text
        assert f"<bdi>{name}</bdi>" in client(tmp_path).get(traces.address(name)).text
