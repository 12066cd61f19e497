"""Which paragraphs of the intuition make a claim, which a derivation and a line of code stand behind."""

import re

from postgrad.methods import METHODS
from postgrad.studio.book import blocks, numbers

NAMED = {name.upper().replace("_", "-") for name in METHODS} | {
    "Dr.GRPO", "SimPO", "SFT", "RLHF", "RLVR", "TRPO", "GAE", "Bradley-Terry", "LoRA", "AdamW"}
METHOD = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(NAMED, key=len, reverse=True)))}|"
                    r"[Bb]est[- ]of[- ]n|TRPO)(?![\w-])")


def names_method(pieces):
    return any((p.kind in ("text", "cite") and METHOD.search(p.text)) or names_method(p.inner)
               or (p.kind == "code" and p.text in METHODS) for p in pieces)


def has_formula(pieces):
    return any(p.kind == "tex" or has_formula(p.inner) for p in pieces)


def is_claim(pieces):
    """A number that is neither a name nor a chapter's, a formula, or the name of a method."""
    counted = any(n.kind != "structural" for n in numbers.numbers_in_pieces(pieces, ""))
    return counted or has_formula(pieces) or names_method(pieces)


def paragraphs(chapter):
    """The paragraphs and items of lists of a chapter's intuition: (line of its file, item or -1, pieces)."""
    for block in blocks.walk_blocks(chapter.layers["intuition"]):
        if block.kind == "p":
            yield block.line, -1, block.pieces
        elif block.kind in ("ul", "ol"):
            for i, row in enumerate(block.rows):
                yield block.line, i, row[0]


def claims(chapter):
    return [(line, i, pieces) for line, i, pieces in paragraphs(chapter) if is_claim(pieces)]
