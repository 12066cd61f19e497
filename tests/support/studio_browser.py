"""A real browser for the tests of the studio: a server in a thread, a page that is logged in and watched.

    from studio_browser import browser, studio, tab  # noqa: F401

    def test_x(studio, tab):
        page = tab(studio(runs=tmp_path)); page.goto("/instruments/bradley-terry")
At the end of a test every page is checked: no error on the console, no request to another host.
Skipped where there is no
chromium. No sleeps: wait for a state of the page, by playwright's `expect` (wait_for_function would need
eval, which the pages' security policy forbids).
"""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from paths import ASSETS
from web_small import on_a_port

from postgrad.studio.app import create_studio
from postgrad.studio.security import COOKIE
from postgrad.system.sockets import LOOPBACK

TOKEN = "a-token-for-the-tests-of-the-studio"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


SLOWEST = 60_000  # ms that a state of a page may take to come: a busy machine is no fault of the page
STRANGE = ("main :is(img, iframe, video, marquee, object, embed, style), [onload], [onerror], "
           "[onfocus], [ontoggle]")
AXE = ASSETS / "axe" / "axe.min.js"


def axe(page, levels=("serious", "critical")) -> list[str]:
    """What axe-core finds wrong with a page, as sentences. Equations, which see a little later whether they
    have to scroll, see to it now."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    page.evaluate("document.querySelectorAll('tex-math').forEach(e => e.reach())")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})"
                          ".then((found) => found.violations)")
    return [f"{v['id']} ({v['impact']}): {v['help']}: {node['html'][:160]}" for v in found
            if v["impact"] in levels for node in v["nodes"]]


@contextmanager
def serving(runs: Path, store: Path | None = None, token: str = TOKEN):
    """The studio on a free port of this machine, in a thread; -> its origin."""
    app = create_studio(runs=runs, token=token, hosts=LOOPBACK, store=store)
    with on_a_port(app) as port:
        yield f"http://127.0.0.1:{port}"


# not the session: while it is open, no other test of this thread can use asyncio.run
@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        assert not os.environ.get("POSTGRAD_BROWSER"), ("POSTGRAD_BROWSER asks for a browser, and there is "
                                                        "no chromium here")
        pytest.skip("there is no chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=SLOWEST)
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM,
                                           args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield found
        found.close()


@pytest.fixture
def studio(tmp_path):
    """studio(runs=..., store=...)

    -> the origin of a server over them; a folder of the test's own where not given.
    """
    with_open = []

    def start(runs=None, store=None):
        held = serving(runs or tmp_path / "runs", store or tmp_path / "preferences.db")
        origin = held.__enter__()
        with_open.append(held)
        return origin

    yield start
    for held in with_open:
        held.__exit__(None, None, None)


class Watched:
    """A page that is logged in; what it says on the console and which other hosts it asks are kept."""

    def __init__(self, browser, origin, *, dark=False, width=1280, height=900, token=TOKEN):  # noqa: F811
        self.context = browser.new_context(
            base_url=origin, color_scheme="dark" if dark else "light", reduced_motion="reduce",
            viewport={"width": width, "height": height})
        self.page = self.context.new_page()
        self.page.set_default_timeout(SLOWEST)
        self.errors, self.elsewhere = [], []
        self.page.on("console",
                     lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("request", lambda r: None if r.url.startswith((origin, "data:", "blob:"))
                     else self.elsewhere.append(r.url))
        self.context.add_cookies([{"name": COOKIE, "value": token, "url": origin, "httpOnly": True,
                                   "sameSite": "Strict"}])

    def judge(self, allowed=()):
        """Nothing strange since it was opened or judged last."""
        strange = [e for e in self.errors if not any(word in e for word in allowed)]
        elsewhere, self.errors, self.elsewhere = self.elsewhere, [], []
        assert not elsewhere, f"a page asked another host: {elsewhere}"
        assert not strange, f"errors on the console: {strange}"


@pytest.fixture
def tab(browser):
    """tab(origin, dark=True, width=390) -> a watched page, judged when the test is over."""
    opened = []

    def start(origin, *, errors=(), **look):
        watched = Watched(browser, origin, **look)
        opened.append((watched, errors))
        return watched.page

    yield start
    for watched, allowed in opened:
        watched.context.close()
        watched.judge(allowed)
