"""Who may ask the studio: every route of the router, however it is asked, from wherever;
and no file outside static/."""

import itertools
import os
import re
import stat
from urllib.parse import unquote

import pytest
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from postgrad.studio.app import create_studio
from postgrad.studio.export import get_from_app, run_coroutine
from postgrad.studio.pages import STATIC
from postgrad.studio.security import COOKIE
from postgrad.system.sockets import host_name, keep_token

TOKEN = "the-token-of-the-owner-of-this-studio"
HERE, OURS = "http://127.0.0.1:8765", "127.0.0.1:8765"
KNOWN = f"{COOKIE}={TOKEN}"


def app_over(tmp_path, **more):
    return create_studio(runs=tmp_path / "runs", token=TOKEN, hosts=("127.0.0.1", "localhost"),
                         store=tmp_path / "p.db", **more)


def client(app, **headers):
    return TestClient(app, base_url=HERE, headers={"cookie": KNOWN, "x-postgrad": "1"} | headers,
                      raise_server_exceptions=False)


def every_route(routes, before=""):
    """(method, path) of every route, parameters filled in; a mount is asked for a file of its own."""
    for route in routes:
        path = before + re.sub(r"\{[^}]*\}", "x", route.path)
        if isinstance(route, Mount):
            yield from every_route(route.routes, path) if route.routes else (("GET", f"{path}/studio.css"),)
        else:
            assert isinstance(route, Route), f"a {type(route).__name__} needs a case of its own here"
            yield from ((method, path) for method in sorted(route.methods or ("GET",)))


ROUTES = sorted(set(every_route(create_studio(runs=".", token=TOKEN, hosts=("x",)).routes)))
CASES = {  # what is sent -> the status that refuses it
    "no token": ({"cookie": "other=1"}, 401),
    "wrong token": ({"cookie": f"{COOKIE}={TOKEN[:-1]}x"}, 401),
    "token in the query": ({"cookie": "", "path": f"?token={TOKEN}"}, 401),
    "foreign host": ({"host": "evil.example:8765"}, 421),
    "foreign host with ours in it": ({"host": "127.0.0.1.evil.example"}, 421),
    "foreign origin": ({"origin": "http://evil.example"}, 403),
    "null origin": ({"origin": "null"}, 403),
    "origin of another port": ({"origin": "http://127.0.0.1:9999"}, 403),
    "origin over https": ({"origin": "https://127.0.0.1:8765"}, 403),
    "script of another site": ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    "script of another port": ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
}


def test_the_router_has_what_the_studio_promises():
    assert ({("GET", "/"), ("GET", "/about"), ("GET", "/instruments"), ("GET", "/static/studio.css")}
            <= set(ROUTES))


@pytest.mark.parametrize("case", CASES)
def test_every_route_refuses(tmp_path, case):
    headers, status = CASES[case]
    headers = dict(headers)
    query = headers.pop("path", "")
    asking = client(app_over(tmp_path), **headers)
    for method, path in ROUTES:
        answer = asking.request(method, path + query, follow_redirects=False)
        assert answer.status_code == status, f"{method} {path}"
        assert COOKIE not in answer.headers.get("set-cookie", "") and TOKEN not in answer.text
        assert "script-src 'self';" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("headers", [
    # as browsers send it
    {"origin": "http://evil.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    # a form of our own without the header
    {"origin": HERE},
    {},
], ids=["cross-site form", "cross-site form without origin", "our form without the header", "no header"])
def test_a_form_of_another_site_changes_nothing(tmp_path, headers):
    sent = {"cookie": KNOWN, "content-type": "application/x-www-form-urlencoded"} | headers
    asking = TestClient(app_over(tmp_path), base_url=HERE, headers=sent)
    for path in sorted({path for _, path in ROUTES}):
        assert asking.post(path, content="a=1", follow_redirects=False).status_code == 403, path


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"])
def test_other_methods_are_writes_too(tmp_path, method):
    app = app_over(tmp_path)
    assert TestClient(app, base_url=HERE, headers={"cookie": KNOWN}).request(method, "/").status_code == 403
    assert client(app).request(method, "/").status_code == 405


def test_the_owner_comes_in(tmp_path):
    with TestClient(app_over(tmp_path), base_url=HERE) as browser:
        assert browser.get("/").status_code == 401
        answer = browser.get(f"/start?token={TOKEN}", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie and "secure" not in cookie
        assert (browser.get("/").status_code == 200
                and browser.get("/", headers={"origin": HERE}).status_code == 200)
        assert browser.get("/static/studio.css").status_code == 200
        assert browser.get("/start?token=wrong", follow_redirects=False).status_code == 401
        assert browser.get("/start", follow_redirects=False).status_code == 401


def test_a_link_from_elsewhere_may_be_followed_but_brings_no_cookie(tmp_path):
    """A visit from another site is let to the door; SameSite=Strict keeps the cookie at home,
    so it goes no further."""
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert TestClient(app_over(tmp_path), base_url=HERE).get("/", headers=headers).status_code == 401


@pytest.mark.parametrize("path", ["/", "/about", "/nowhere", "/static/studio.js", "/static/nowhere",
                                  "/instruments/bradley-terry?chosen=x"])
def test_every_answer_has_its_headers(tmp_path, path):
    headers = client(app_over(tmp_path)).get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert (policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
            and policy["frame-ancestors"] == "'none'")
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers["x-content-type-options"] == "nosniff"
            and headers["cross-origin-resource-policy"] == "same-origin")
    assert "cache-control" in headers and "server" not in headers


def test_a_fault_of_ours_is_a_page_with_the_same_headers(tmp_path):
    app = app_over(tmp_path)

    def fail(request):
        raise RuntimeError("a secret of the server")

    app.router.routes.insert(0, Route("/fails", fail))
    answer = client(app).get("/fails")
    assert answer.status_code == 500 and "RuntimeError" in answer.text and "secret" not in answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_no_page_has_a_script_or_a_style_of_its_own(tmp_path):
    app = app_over(tmp_path)
    for path in ("/", "/about", "/instruments", "/instruments/bradley-terry", "/nowhere"):
        text = client(app).get(path).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", text), path


@pytest.mark.parametrize(("host", "name"), [
    ("localhost:80", "localhost"), ("LOCALHOST", "localhost"), ("[::1]:8765", "[::1]"), ("[::1]", "[::1]"),
    ("", ""), ("127.0.0.1:1@evil", "127.0.0.1:1@evil"), ("evil:127.0.0.1", "evil:127.0.0.1"),
])
def test_the_name_in_a_host(host, name):
    assert host_name(host) == name


def test_the_token_outlives_a_restart_and_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "state" / "token"
    token = keep_token(path)
    assert len(token) >= 40 and keep_token(path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(ValueError, match="can be read by others"):
        keep_token(path)
    path.write_text("short")
    path.chmod(0o600)
    with pytest.raises(ValueError, match="does not hold a token"):
        keep_token(path)


def test_a_token_that_is_no_file_is_a_sentence(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "bytes").write_bytes(b"\xff" * 40)
    (tmp_path / "bytes").chmod(0o600)
    for name in ("pipe", "folder", "bytes", "bytes/token", "pipe/token"):
        with pytest.raises(ValueError, match=str(tmp_path / name)):
            keep_token(tmp_path / name)


UPS = ("../", "..\\", "%2e%2e/", "%2e%2e%2f", "..%2f", "..%5c", "%252e%252e%252f", "....//", "..;/", ".%00./",
       "%c0%ae%c0%ae/", "..//", "./../", "..\u2215", "..\uff0f", "%uff0e%uff0e/", "\\..\\", "/../",
       "..%c0%af", "..%01/")
AIMS = ("app.py", "templates/base.html", "outside.txt", "etc/passwd", "proc/self/environ")
STRINGS = ([prefix + up * times + aim for up, aim, times, prefix in itertools.product(
    UPS, AIMS, (1, 2, 8), ("", "vendor/"))]
           + ["/etc/passwd", "//etc/passwd", "C:\\Windows\\win.ini", "file:///etc/passwd"])


def test_no_path_leaves_the_static_folder(tmp_path):
    """Asked without a client in between, which would tidy the path; as sent, and as a server that decodes
    once hands it on."""
    assert len(STRINGS) >= 500
    app = app_over(tmp_path)
    inside = {p.read_bytes() for p in STATIC.rglob("*") if p.is_file()}
    paths = {p for text in STRINGS
             for p in (f"/static/{text}", "/static/" + unquote(text), f"/static/vendor/htmx/{text}")}

    async def try_all():
        for path in sorted(paths):
            status, _, body = await get_from_app(app, path, headers={"host": OURS, "cookie": KNOWN})
            assert status in (404, 405, 400) or body in inside, f"{path!r}: {status}"

    run_coroutine(try_all())


def test_a_link_out_of_the_static_folder_is_not_followed(tmp_path, monkeypatch):
    from postgrad.studio import app as module
    (tmp_path / "static").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "static" / "link").symlink_to(tmp_path / "secret")
    monkeypatch.setattr(module, "STATIC", tmp_path / "static")
    assert client(app_over(tmp_path)).get("/static/link").status_code == 404
