"""The papers of the house: links lead somewhere, what is made from the code is up to date, every command is
one that exists, and every command and snippet runs.

Each page is run from its top in a folder of its own: blocks marked as files are written there, commands go
through the command line in this process, snippets share one namespace. So that all of it takes seconds,
trainings are made small: one or two steps on few prompts (SMALL and FEWER below), evaluations of a few
problems; what a line sets itself stays, but for `steps`. Blocks marked `not run` (a GPU, the network,
minutes, a server) are parsed, and their trainings resolved to a config.
"""

import io
import json
import re
import runpy
import shlex

import harness
import pytest
from doc_blocks import LANGUAGES, PAGES, ROOT, anchors, blocks, links, name_of, prose, spans

import docs as made
from postgrad.cli import COMMANDS, main, parser
from postgrad.cli.settings import config_from_text
from postgrad.recipes import fit as door
from postgrad.recipes import measuring
from postgrad.recipes.registry import is_pipeline, make_config, recipe_for
from postgrad.system.settings import flat_settings

SMALL = {  # what makes any training small, where its config has such a key
    "steps": 1, "save_every": 1, "rollouts.prompts": 12, "examples": 24, "rows_per_step": 4,
    "rollouts.prompts_per_step": 2, "rollouts.group_size": 2, "rollouts.max_new_tokens": 12,
    "rollouts.resample_limit": 0, "pairs.drawn": 24, "pairs.held_out": 12, "pairs.per_step": 4,
    "evaluation.problems": 2, "evaluation.samples": 2, "replies.problems": 6, "replies.samples": 2,
    "replies.per_step": 4,
}
FEWER = {  # flags that make a command small
    "eval": ("--problems", "4", "--samples", "2"), "compare": ("--problems", "4", "--samples", "2"),
    "ledger": ("--problems", "3", "--samples", "2"), "pick": ("--prompts", "4", "--samples", "2"),
    "rlaif": ("--prompts", "12", "--samples", "2"), "audit": ("--count", "8"),
    "label make": ("--prompts", "6"),
}
ids = {"ids": name_of}


# links

@pytest.mark.parametrize("page", PAGES, **ids)
def test_links_lead_somewhere(page):
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{name_of(page)} links to {link}, which is not there"
        if anchor and target.suffix == ".py":
            assert 0 < int(anchor.removeprefix("L")) <= len(target.read_text().splitlines()), link
        elif anchor:
            assert anchor in anchors(target), f"{name_of(page)}: {name_of(target)} has no heading #{anchor}"


def test_every_page_of_docs_is_on_the_reader_s_path():
    reached = {(ROOT / "docs" / link.partition("#")[0]).resolve()
               for link in links(ROOT / "docs" / "index.md")}
    assert {page for page in PAGES if page.name != "index.md"} <= reached
    assert set((ROOT / "docs" / "results").glob("*.md")) <= reached


@pytest.mark.parametrize("page", PAGES, **ids)
def test_code_among_words_begins_and_ends_on_one_line(page):
    for line in prose(page).splitlines():
        assert line.count("`") % 2 == 0, f"{name_of(page)}: {line}"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= 9000


# what is made from the code

def test_the_made_pages_are_up_to_date(monkeypatch):
    monkeypatch.setattr(harness, "changed_since", lambda at, paths: False)  # which stale() does not look at
    assert made.stale(made.pages()) == [], "make docs"


def test_the_readme_names_rows_that_there_are_and_the_page_of_all():
    from postgrad.methods import METHODS
    table = (ROOT / "README.md").read_text().partition("## The table")[2].partition("\n\n```")[0]
    names = set(re.findall(r"`(\w+)`", table.partition("| methods |")[2].partition("\n\n")[0]))
    assert len(names) > 30 and names <= METHODS.keys() and "(docs/methods.md)" in table
    listed = set(spans(ROOT / "docs" / "methods.md"))
    assert METHODS.keys() <= listed, f"run make docs: methods.md lacks {METHODS.keys() - listed}"


# every command is one that exists

def parsed(line):
    """The arguments of a `postgrad` line; a line that the parser does not take fails."""
    try:
        args, extra = parser().parse_known_args(shlex.split(line)[1:])
    except SystemExit:
        pytest.fail(f"the command line does not take: {line}")
    assert args.command == "train" and all("=" in word for word in extra) or not extra, line
    return args, extra


def check(line):
    """A command that may be too long to run: it is one that exists."""
    first, *words = shlex.split(line, posix=False)
    if first == "postgrad":
        parsed(line.partition(" > ")[0])
    elif first == "eval":  # of what a command of ours prints
        parsed(re.fullmatch(r'eval "\$\((postgrad .*)\)"', line)[1])
    elif first == "torchrun":  # which starts a command of ours
        parsed(line[line.index(" postgrad ") + 1:])
    elif first == "make":
        assert re.search(rf"^([\w -]+ )?{words[0]}[ :]", (ROOT / "Makefile").read_text(), re.M), line
    elif first in ("python", "pytest"):
        files = [word for word in words if word.endswith(".py")]
        assert files and all((ROOT / file).is_file() for file in files), line
    else:
        assert first in ("git", "pip", "uv", "cd", "docker"), line


@pytest.mark.parametrize("page", PAGES, **ids)
def test_code_among_the_words_exists(page):
    for span in spans(page):
        if re.fullmatch(r"postgrad [a-z]+", span):
            assert span.split()[1] in {command.name for command in COMMANDS}, span
        elif re.match(r"postgrad [a-z]", span):
            parsed(span)
        elif re.match(r"(make [a-z]|(python|pytest) [\w/]+\.py)", span):
            check(span)


@pytest.mark.parametrize("page", PAGES, **ids)
def test_every_block_says_what_it_is(page):
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.page}, line {block.line}: ```{block.language}"
        assert block.language in ("sh", "python") or block.mark in ("", "file")
        for line in block.commands if block.language == "sh" and block.mark == "not run" else ():
            check(line.replace("<this repository>", "postgrad"))
            if line.startswith("postgrad train"):
                args, extra = parsed(line)
                if args.config:
                    continue  # which is the user's own
                config_from_text(args.recipe, [*args.changes, *extra], args.task)


# every command and snippet runs

def smaller(config, given):
    """The changes that make a config small; what is given stays, but for the steps."""
    named = {word.split("=")[0].split(".")[-1] for word in given} - {"steps"}
    return {key: value for key, value in SMALL.items()
            if key in flat_settings(config) and key.split(".")[-1] not in named}


def run_command(line):
    args, extra = parsed(line)
    words = shlex.split(line)[1:]
    if args.command == "train" and not args.show and not args.config:
        given = [*args.changes, *extra]
        recipe, config = config_from_text(args.recipe, given, args.task)
        never = is_pipeline(recipe) or any("every=" in word for word in given)
        unseen = {} if never else {"evaluation.every": 0}
        less = smaller(config, given) | unseen
        words = [word for word in words if not (word.startswith("steps=") and "steps" in less)]
        words += [f"{key}={value}" for key, value in less.items()]
    if args.command == "resume":  # training further: by a step
        words = [re.sub(r"^steps=\d+$", "steps=2", word) for word in words]
    words += FEWER.get(args.command, FEWER.get(f"{args.command} {getattr(args, 'action', '')}", ()))
    return main(words)


@pytest.fixture
def small(monkeypatch):
    """fit, evaluate and compare as they are, on less work."""
    fit, evaluate, compare = door.fit, measuring.evaluate, measuring.compare

    def small_fit(model, method="grpo", **given):
        row = door.methods.get_method(method) if isinstance(method, str) else method
        recipe = recipe_for(row)
        objects = {name: given[name] for name in ("task", "data") if name in given}
        config = make_config(row.name, recipe, "", {"method": row, **objects})
        return fit(model, method, **given | smaller(config, given))

    monkeypatch.setattr(door, "fit", small_fit)
    few = {"problems": 4, "samples": 2}
    monkeypatch.setattr(measuring, "evaluate", lambda *a, **k: evaluate(*a, **k | few))
    monkeypatch.setattr(measuring, "compare", lambda *a, **k: compare(*a, **k | few))


def run_block(block, space, capsys):
    """One block of a page, in the folder of the page."""
    if block.language == "python":
        code = compile("\n" * block.line + block.text, str(ROOT / block.page), "exec")
        if block.mark == "fails":
            with pytest.raises(ValueError, match=re.escape(block.words)):
                exec(code, space)
        else:
            exec(code, space)
        return
    for line in block.commands:
        if line.startswith("python "):
            runpy.run_path(line.split()[1], run_name="__main__")
            continue
        assert line.startswith("postgrad "), (f"{block.page}, line {block.line}: {line} (mark the "
                                              "block as not run)")
        status = main(shlex.split(line)[1:]) if block.mark == "fails" else run_command(line)
        said = capsys.readouterr()
        assert status == (2 if block.mark == "fails" else 0), f"{line}: {said.err}"
        assert block.mark != "fails" or block.words in said.err


@pytest.mark.parametrize("page", [p for p in PAGES if any(b.language in ("sh", "python") for b in blocks(p))],
                         **ids)
def test_every_command_and_snippet_runs(page, tmp_path, monkeypatch, capsys, small):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    space = {"__name__": "page"}
    for block in blocks(page):
        if block.mark == "file":
            (tmp_path / block.words).write_text(block.text)
        elif block.language in ("sh", "python") and block.mark != "not run":
            run_block(block, space, capsys)


def test_what_a_refusal_says_is_what_the_page_shows(capsys):
    page = ROOT / "docs" / "reliability.md"
    shown = {before.commands[0]: after.text.strip()
             for before, after in zip(blocks(page), blocks(page)[1:], strict=False)
             if before.mark == "fails" and after.language == "text"}
    assert shown
    for line, text in shown.items():
        assert main(shlex.split(line)[1:]) == 2 and capsys.readouterr().err.strip() == text


def test_every_result_is_bars_and_its_page_is_made_from_them():
    always = {"name", "target", "measured", "holds", "command", "commit"}
    for path in sorted((ROOT / "docs" / "results").glob("*.json")):
        found = json.loads(path.read_text())
        assert {"title", "commit", "date", "seeds", "machine", "paths", "bars"} <= found.keys(), path.name
        page = path.with_suffix(".md").read_text()
        for row in found["bars"]:
            further = {"part", "machine", "earlier", "by_hand", "seeds", "paths"}
            assert always <= row.keys() <= always | further, path.name
            assert row["name"].replace("|", "\\|") in page, path.name
