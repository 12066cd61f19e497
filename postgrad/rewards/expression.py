"""Integer expressions with + - * / ( ): a parser and an exact evaluator with caps,
for text that a model wrote.

A tree is an int, or (operator, left, right), or ("-", tree) for a sign, where signs are asked for. Left out
on purpose: powers, decimals, names, implicit products.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TypeAlias

# 3, ("+", 3, ("*", 5, 8)) or ("-", 3)
Tree: TypeAlias = "int | tuple[str, Tree, Tree] | tuple[str, Tree]"
Tokens = list[int | str]

# caps: characters, digits of an integer, nesting, integers in all
LONGEST, DIGITS, DEPTH, INTEGERS = 200, 9, 20, 32
_SIGNS = {*"+-*/()"}
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2}


class BadExpression(ValueError):
    """Text that is no expression, or one without a value; the message is the reason given to the model."""


def parse_expression(text: str, *, signs: bool = False) -> Tree:
    """"3+5*8" -> ("+", 3, ("*", 5, 8)). * and / bind tighter, equals go left to right.

    Raises BadExpression only.
    signs: a sum may begin with a minus, "-2+3" or "4*(-2+3)".
    """
    if len(text) > LONGEST:
        raise BadExpression(f"an expression of more than {LONGEST} characters")
    tokens = _tokens(text)
    if sum(isinstance(token, int) for token in tokens) > INTEGERS:
        raise BadExpression(f"more than {INTEGERS} integers")
    tree, place = _sum(tokens, 0, 0, signs)
    if place < len(tokens):
        raise BadExpression(f"unexpected {tokens[place]!r}")
    return tree


def _tokens(text: str) -> Tokens:
    tokens: Tokens = []
    for piece in re.findall(r"[0-9]+|[^ \t\n]", text):
        if len(piece) > DIGITS:
            raise BadExpression(f"an integer of more than {DIGITS} digits")
        if piece not in _SIGNS and piece[0] not in "0123456789":
            raise BadExpression(f"the character {piece!a} is not one of 0-9 + - * / ( )")
        tokens.append(piece if piece in _SIGNS else int(piece))
    return tokens


def _sum(tokens: Tokens, place: int, depth: int, signs: bool) -> tuple[Tree, int]:
    minus = signs and tokens[place: place + 1] == ["-"]
    tree, place = _product(tokens, place + minus, depth, signs)
    tree = ("-", tree) if minus else tree
    while place < len(tokens) and (op := tokens[place]) in ("+", "-"):
        right, place = _product(tokens, place + 1, depth, signs)
        tree = (str(op), tree, right)
    return tree, place


def _product(tokens: Tokens, place: int, depth: int, signs: bool) -> tuple[Tree, int]:
    tree, place = _atom(tokens, place, depth, signs)
    while place < len(tokens) and (op := tokens[place]) in ("*", "/"):
        right, place = _atom(tokens, place + 1, depth, signs)
        tree = (str(op), tree, right)
    return tree, place


def _atom(tokens: Tokens, place: int, depth: int, signs: bool) -> tuple[Tree, int]:
    if place == len(tokens):
        raise BadExpression("it ends where a number should stand")
    token = tokens[place]
    if isinstance(token, int):
        return token, place + 1
    if token != "(":
        raise BadExpression(f"{token!r} where a number should stand")
    if depth == DEPTH:
        raise BadExpression(f"more than {DEPTH} parentheses inside each other")
    tree, place = _sum(tokens, place + 1, depth + 1, signs)
    if place == len(tokens) or tokens[place] != ")":
        raise BadExpression("an open parenthesis")
    return tree, place + 1


def expression_value(tree: Tree) -> Fraction:
    """The exact value: value(("/", 3, 2)) -> Fraction(3, 2). A division by zero raises BadExpression."""
    if isinstance(tree, int):
        return Fraction(tree)
    if len(tree) == 2:
        return -expression_value(tree[1])
    op, left, right = tree[0], expression_value(tree[1]), expression_value(tree[2])
    if op == "/" and right == 0:
        raise BadExpression("a division by zero")
    return (left + right if op == "+" else left - right if op == "-" else left * right if op == "*"
            else left / right)


def integers(tree: Tree) -> list[int]:
    """The integers used, left to right: integers(("+", 3, ("*", 5, 3))) -> [3, 5, 3]"""
    if isinstance(tree, int):
        return [tree]
    _, *parts = tree
    return [number for part in parts for number in integers(part)]


def render_expression(tree: Tree) -> str:
    """The text of a tree with only the parentheses its value needs: ("*", ("+", 3, 5), 8) -> "(3+5)*8"."""
    if isinstance(tree, int):
        return str(tree)
    assert len(tree) == 3, "only text that a model wrote has signs"
    op, left, right = tree
    binds = _BINDS[op]
    left_text, right_text = render_expression(left), render_expression(right)
    if not isinstance(left, int) and _BINDS[left[0]] < binds:
        left_text = f"({left_text})"
    if not isinstance(right, int) and _BINDS[right[0]] < binds + (op in "-/"):
        right_text = f"({right_text})"
    return f"{left_text}{op}{right_text}"


def expression_steps(tree: Tree) -> tuple[int, list[str]]:
    """The value of an integer-valued tree and its chain, innermost first: ("*", ("+", 3, 5), 8) -> 64,
    ["3+5=8", "8*8=64"].

    Every step's value must be an integer: for trees made here, not for text that a model wrote.
    """
    if isinstance(tree, int):
        return tree, []
    assert len(tree) == 3, "only text that a model wrote has signs"
    op, (left, before), (right, after) = tree[0], expression_steps(tree[1]), expression_steps(tree[2])
    result = (left + right if op == "+" else left - right if op == "-" else left * right if op == "*"
              else left // right)
    assert op != "/" or result * right == left, f"{left}/{right} is not an integer"
    return result, [*before, *after, f"{left}{op}{right}={result}"]
