"""Small runs and hostile texts for the studio's tests."""

import html.parser
import json
from pathlib import Path

from starlette.testclient import TestClient

from postgrad.runs import Run
from postgrad.studio.app import create_studio

TOKEN = "a-token-for-the-tests-of-the-studio"


def client(root: Path, **more) -> TestClient:
    app = create_studio(runs=root, token=TOKEN, hosts=("testserver",), **more)
    return TestClient(app, cookies={"postgrad": TOKEN}, headers={"X-Postgrad": "1"})


def sample(step, k, *, prompt="What is 2+2?", text="<answer>4</answer>", score=1.0, adv=0.5,
           reason="4 is the answer"):
    tokens = ["<answer>", "4", "</answer>"]
    columns = {"adv": [adv] * 3, "ratio": [1.0, 2.0, 0.5], "kl": [0.0, 0.1, 0.2], "entropy": [0.3, 0.0, 0.1],
               "mask": [1.0] * 3}
    return {"id": f"{step}/{k}", "prompt": prompt, "text": text, "tokens": tokens, "columns": columns,
            "score": score, "reason": reason, "finished": True, "adv": adv, "prompt_tokens": ["What"],
            "parts": {}}


def make(folder: Path, steps: int = 3, *, done: bool = True, config=None, **facts) -> Run:
    """A run whose numbers are known: reward = step / 10."""
    facts = {"method": "grpo", "model": "tiny-chat", "task": "words"} | facts
    run = Run.create(folder, recipe="grpo", config=config or {"steps": steps, "optim": {"lr": 1e-3}},
                     steps=steps, **facts)
    grow(run, steps)
    if done:
        run.status("done")
    return run


def grow(run: Run, steps: int) -> None:
    for step in range(run.next_step, run.next_step + steps):
        run.log_samples(step,
                        [sample(step, k, score=float(k % 2), adv=2.0 * (k % 2) - 1.0) for k in range(4)])
        run.log(step, {"reward": step / 10, "kl": 0.01 * step, "time/step": 2.0})


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
    shapes = ["<script>{c}</script>", "<img src=x onerror={c}>", "<svg onload={c}>", "<svg/onload={c}>",
              "<body onload={c}>", "<iframe srcdoc='<script>parent.{c}</script>'></iframe>",
              "<details open ontoggle={c}>x</details>", "</script><script>{c}</script>",
              "</title><script>{c}</script>", "</textarea><script>{c}</script>",
              "<a href=javascript:{c}>x</a>", "<math><mi//xlink:href='data:x,{c}'>",
              "<input autofocus onfocus={c}>", "<video><source onerror={c}>", "<marquee onstart={c}>",
              "<object data=javascript:{c}>", "<embed src=javascript:{c}>",
              "<form action=javascript:{c}><button>",
              "<style>@import 'javascript:{c}'</style>", "{{{{ {c} }}}}"]
    ways = [lambda s: s, lambda s: f'">{s}', lambda s: f"'>{s}", lambda s: f"-->{s}<!--", lambda s: f"\0{s}"]
    return [way(shape.format(c=code)) for shape in shapes for way in ways]


def poisoned(root: Path) -> list[str]:
    """Runs in which everything that can hold text holds poison; -> the poisons."""
    bad = poisons()
    run = make(root / "bad", 0, model=bad[0], task=bad[1], command=bad[2],
               config={"x": bad[3], bad[4]: bad[5]}, done=False)
    for step, text in enumerate(bad, 1):
        other = bad[step % len(bad)]
        row = sample(step, 0, prompt=text, text=text, reason=other)
        run.log_samples(step, [row | {"id": text, "tokens": [text, other, "x"], "prompt_tokens": [other],
                                      "parts": {text: 1}}])
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
