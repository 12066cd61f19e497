"""What is hostile in the studio: paths that lead elsewhere are refused, text stays text."""

import itertools
import os
import sys
from urllib.parse import quote

import pytest
from studio_small import Texts, client, make, poisoned

from postgrad.studio.runs import processes, samples


def crooked() -> list[str]:
    """500 ways to ask for what lies outside."""
    ups = ["..", "../..", "../../..", "./..", "....//", "..;", ".%2e", "%2e%2e", "..%2f", "%2e%2e%2f",
           "..%5c", "..\\", "%252e%252e%252f", "..%c0%af", "..%00", "\u2025", "\uff0e\uff0e", "a/..",
           "a/../..", "a/b/../../..", "//", "/", "~", "~root", "C:\\", "\\\\host\\x"]
    ends = ["secret", "secret/run.json", "etc/passwd", "/etc/passwd", "secret%00.json", "secret/.", "secret/",
            "secret\n", "SECRET", "proc/self/environ", "", "link", "link/../../secret", "a/checkpoints",
            "a/run.json", "a/.", "-", ".output/a", "a/lock", "*"]
    joined = (f"{up}{glue}{end}" for up, end, glue in itertools.product(ups, ends, ("/", "")))
    return list(dict.fromkeys(joined))[:500]


WRITES = ("/runs/-/stop", "/runs/-/resume", "/runs/-/forget", "/runs/-/note")
OPENED: list[str] = []
sys.addaudithook(
    lambda event, args: OPENED.append(str(args[0])) if event == "open" and isinstance(args[0], str) else None)


def ask_crookedly(web):
    """Every path in every place where one can stand; OPENED is what was read meanwhile."""
    paths = crooked()
    assert len(paths) == 500
    web.get("/runs/a"), web.get("/runs/new")  # templates and modules are read once, before the watch begins
    OPENED.clear()
    parts = [(f"/runs/-/{part}", "run", "{}") for part in ("samples", "curves", "head", "worked", "output",
                                                      "doctor", "csv", "search", "found")]
    parts += [(address, "run", "{}") for address in WRITES]
    parts += [("/runs/compare", "ids", "a,-,{}"), ("/runs/-/live", "watch", "{}:0:0:0"),
              ("/runs/-/pairs", "ids", "a,-,{}")]
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


def test_500_crooked_paths_read_nothing_outside(tmp_path):
    root, outside = tmp_path / "runs", tmp_path / "secret"
    make(root / "a", 1)
    run = make(outside, 1, method="SECRET-METHOD")
    (root / "link").symlink_to(outside)
    (root / ".output").mkdir()
    (tmp_path / "secret.log").write_text("SECRET-METHOD")
    with client(root) as web:  # one portal for all that is asked
        ask_crookedly(web)
    ours = [os.path.realpath(path) for path in OPENED if str(tmp_path) in path]
    strayed = [path for path in ours if not path.startswith(f"{os.path.realpath(root)}/")]
    strayed += [path for path in OPENED if path.startswith(("/etc/passwd", "/proc/self"))]
    assert not strayed and run.folder.exists() and (root / "a" / "run.json").exists()


@pytest.mark.parametrize("name",
                         ["../x", "a/b", ".hidden", "-x", "x y", "<b>", "a" * 101, "new\n", "con:", "é"])
def test_a_run_cannot_be_started_under_a_name_that_leads_elsewhere(tmp_path, name, monkeypatch):
    monkeypatch.setattr(processes, "start_process", lambda *a, **k: pytest.fail("started"))
    answer = client(tmp_path).post("/runs/-/start", data={"recipe": "grpo:words", "name": name})
    assert answer.status_code == 400 and "name" in answer.text and not list(tmp_path.iterdir())


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
            assert (not [a for a in attrs if a.startswith("on")]
                    and "javascript:" not in (attrs.get("href") or "")[:20]), path
    for step, text in enumerate(bad, 1):
        assert samples.safe_text(text) in Texts(web.get(f"/runs/-/samples?run=bad&step={step}").text).text
    assert bad[0] in Texts(web.get("/runs/bad").text).data["charts"]


@pytest.mark.parametrize("address", ["/runs/new", "/runs/-/plan"])
@pytest.mark.parametrize("given", [
    {"recipe": "{}"}, {"recipe": "{}:quick"}, {"recipe": "grpo", "set.task": "{}"},
    {"recipe": "grpo", "set.task": "{}:NAME"}, {"recipe": "grpo:words", "set.reward": "{}"},
    {"recipe": "grpo:words", "set.reward": "words,{}"}, {"recipe": "grpo:words", "set.method": "{}"},
    {"recipe": "grpo:words", "set.remote.sampler": "{}"}, {"recipe": "grpo:words", "set.track": "{}"}],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else "")
def test_a_page_runs_no_file_that_its_address_names(tmp_path, address, given):
    ran, code = tmp_path / "ran", tmp_path / "mine.py"
    code.write_text(f"open({str(ran)!r}, 'w')\n")
    answer = client(tmp_path / "runs").get(address, params={k: v.format(code) for k, v in given.items()})
    assert answer.status_code == 200 and not ran.exists()
