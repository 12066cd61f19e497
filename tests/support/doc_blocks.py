"""README, CONTRIBUTING, AGENTS, the skills and the pages of docs/ taken apart: blocks of code with what is
said of them, links, headings.

A fenced block has a language. What a comment on the line before it says:

<!-- file: NAME -->     the block is a file; commands and snippets of the page find it under that name
<!-- not run: WHY -->   its commands are parsed and not run
<!-- fails: WORDS -->   it ends with an error that has these words
"""

import re
from dataclasses import dataclass
from pathlib import Path

from paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
         ROOT / "AGENTS.md", *sorted((ROOT / "skills").glob("*/SKILL.md")),
         *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = ("sh", "python", "json", "toml", "text")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
MARK = re.compile(r"<!-- (file|not run|fails): (.+?) -->\n\Z")
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page. mark: file, not run, fails or "", and what it says."""

    page: str
    line: int
    language: str
    text: str
    mark: str = ""
    words: str = ""

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block without their comments; of `a && b`, both."""
        lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in self.text.splitlines()]
        return [part.strip() for line in lines if line for part in line.split(" && ")]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text, out = page.read_text(), []
    for found in FENCE.finditer(text):
        mark = MARK.search(text[: found.start()])
        out.append(Block(page=name_of(page), line=text[: found.start()].count("\n") + 1, language=found[1],
                         text=found[2], mark=mark[1] if mark else "", words=mark[2] if mark else ""))
    return out


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    return LINK.findall(INLINE.sub("`code`", prose(page)))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {slug if n == 0 else f"{slug}-{n}" for slug, count in found.items() for n in range(count + 1)}


def spans(page: Path) -> list[str]:
    """What stands as code within the words of a page."""
    return INLINE.findall(prose(page))
