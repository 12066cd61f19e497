"""Wrong answers made from right ones: one change of the syntax tree each, drawn by a seed.

    changes(source)              every change that is known: (what, the changed source)
    wrong_answers(name, seed, 12)  twelve of them that are really wrong: held against the exercise's oracle on
                                 many cases of other seeds, so that a change without effect does not count
"""

import ast
import contextlib
import copy
import io
import signal
import warnings
from functools import cache
from random import Random

import torch  # noqa: F401 (its import is not to be cut short)
from exercises_small import judged, names_in

from postgrad.studio.exercises import exercise_named
from postgrad.studio.exercises.coding import broken_run
from postgrad.studio.exercises.grading import observe_answer, outcome_is_right
from postgrad.studio.exercises.values import to_plain

SECONDS = 5
OTHER_OPERATOR = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
                  ast.FloorDiv: ast.Div, ast.Pow: ast.Mult}
OTHER_COMPARISON = {ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt),
                    ast.GtE: (ast.Gt, ast.LtE), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,)}
DROPPED = ("exp", "log", "abs", "float", "reversed", "sorted", "softmax", "sigmoid", "sqrt")
OTHER_NAME = {"min": "max", "max": "min", "any": "all", "all": "any", "exp": "log1p", "log": "exp",
              "mean": "sum", "sum": "max"}


def sites(tree):
    """(kind, node, change): a change puts one thing in place of another, in that node."""
    for node in ast.walk(tree):
        yield from OF_KIND.get(type(node), lambda node: ())(node)


def of_binary(node):
    swap = OTHER_OPERATOR.get(type(node.op))
    if swap:
        yield "operator", lambda n: setattr(n, "op", swap())
    if isinstance(node.op, ast.Sub | ast.Div | ast.Pow):
        def swap_sides(n):
            n.left, n.right = n.right, n.left
        yield "swap of sides", swap_sides
    if isinstance(node.op, ast.Div):
        yield "sum for mean", lambda n: n.__dict__.update(copy.copy(n.left.__dict__), _as=type(n.left))
    if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Pow):
        yield "left out", lambda n: n.__dict__.update(copy.copy(n.left.__dict__), _as=type(n.left))
    if isinstance(node.op, ast.Add | ast.Mult):
        yield "left out", lambda n: n.__dict__.update(copy.copy(n.right.__dict__), _as=type(n.right))


def of_unary(node):
    if isinstance(node.op, ast.USub | ast.Not):
        yield "sign", lambda n: n.__dict__.update(copy.copy(n.operand.__dict__), _as=type(n.operand))


def of_constant(node):
    if isinstance(node.value, bool):
        yield "truth", lambda n: setattr(n, "value", not n.value)
    elif isinstance(node.value, int | float):
        yield "off by one", lambda n: setattr(n, "value", n.value + 1)
        yield "off by one", lambda n: setattr(n, "value", n.value - 1)
        if node.value not in (0, 1):
            yield "twice", lambda n: setattr(n, "value", 2 * n.value)


def of_call(node):
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if other := OTHER_NAME.get(name):
        yield f"{other} for {name}", lambda n: (setattr(n.func, "id", other) if isinstance(n.func, ast.Name)
                                                else setattr(n.func, "attr", other))
    if len(node.args) > 1:
        def swap_arguments(n):
            n.args[0], n.args[1] = n.args[1], n.args[0]
        yield "swap of arguments", swap_arguments
    if node.args and name in DROPPED:
        yield f"no {name}", lambda n: n.__dict__.update(copy.copy(n.args[0].__dict__), _as=type(n.args[0]))
    if name == "range":
        def shorten(n):
            end = len(n.args) > 1
            n.args[end] = ast.BinOp(left=n.args[end], op=ast.Sub(), right=ast.Constant(1))
        yield "off by one", shorten
        if len(node.args) == 1:
            yield "off by one", lambda n: n.args.insert(0, ast.Constant(1))
    for i, keyword in enumerate(node.keywords):
        if keyword.arg in ("dim", "axis"):
            yield "axis", lambda n, i=i: setattr(n.keywords[i], "value", ast.Constant(0 if getattr(
                n.keywords[i].value, "value", 0) else 1))
        elif keyword.arg != "key":
            yield "argument left out", lambda n, i=i: n.keywords.pop(i)


def of_subscript(node):
    if isinstance(node.slice, ast.Slice):
        for end in ("lower", "upper"):
            if getattr(node.slice, end) is not None:
                yield "off by one", lambda n, end=end: setattr(n.slice, end, ast.BinOp(
                    left=getattr(n.slice, end), op=ast.Add(), right=ast.Constant(1)))
    elif isinstance(node.slice, ast.Name) and isinstance(node.ctx, ast.Load):
        yield "off by one", lambda n: setattr(n, "slice", ast.BinOp(left=n.slice, op=ast.Sub(),
                                                                    right=ast.Constant(1)))
    if isinstance(node.value, ast.Subscript):
        def other_axis(n):
            n.slice, n.value.slice = n.value.slice, n.slice
        yield "axis", other_axis


def of_compare(node):
    for other in OTHER_COMPARISON.get(type(node.ops[0]), ()):
        yield "comparison", lambda n, other=other: n.ops.__setitem__(0, other())


def of_boolean(node):
    for i in range(len(node.values)):
        yield "condition left out", lambda n, i=i: n.values.pop(i)


def of_branch(node):
    yield "condition turned", lambda n: setattr(n, "test", ast.UnaryOp(op=ast.Not(), operand=n.test))


def of_comprehension(node):
    for i, part in enumerate(node.generators):
        if part.ifs:
            yield "condition left out", lambda n, i=i: n.generators[i].ifs.clear()


def of_body(node):
    for i, statement in enumerate(node.body):
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr | ast.If) and len(node.body) > 1:
            yield "line left out", lambda n, i=i: n.body.pop(i)
        if isinstance(statement, ast.Return) and statement.value is not None:
            yield "sign", lambda n, i=i: setattr(n.body[i], "value", ast.UnaryOp(
                op=ast.USub(), operand=n.body[i].value))
        if isinstance(statement, ast.For) and i + 1 < len(node.body):
            yield "inside the loop", lambda n, i=i: n.body[i].body.append(n.body.pop(i + 1))
    if isinstance(node, ast.For):
        yield "one turn only", lambda n: n.body.append(ast.Break())
    if isinstance(node, ast.FunctionDef) and len(node.args.args) > 1:
        def swap_parameters(n):
            n.args.args[0], n.args.args[1] = n.args.args[1], n.args.args[0]
        yield "swap of arguments", swap_parameters


def of_assignment(node):
    if isinstance(node.op, ast.Add | ast.Sub):
        other = ast.Sub if isinstance(node.op, ast.Add) else ast.Add
        yield "sign", lambda n: setattr(n, "op", other())


OF_KIND = {ast.BinOp: of_binary, ast.UnaryOp: of_unary, ast.Constant: of_constant, ast.Call: of_call,
           ast.Subscript: of_subscript, ast.Compare: of_compare, ast.BoolOp: of_boolean,
           ast.ListComp: of_comprehension, ast.GeneratorExp: of_comprehension, ast.IfExp: of_branch,
           ast.AugAssign: of_assignment, ast.FunctionDef: of_body, ast.For: of_body}


class Retyped(ast.NodeTransformer):
    """A node that took over another's fields becomes of its type."""

    def generic_visit(self, node):
        if kind := node.__dict__.pop("_as", None):
            fields = {name: getattr(node, name) for name in kind._fields if hasattr(node, name)}
            node = kind(**fields)
        return super().generic_visit(node)


def changes(source):
    """Every change of a source: (what, the whole changed source), without those that are the same text."""
    tree = ast.parse(source)
    seen = {ast.unparse(tree)}
    for place, node in enumerate(ast.walk(tree)):
        for number, (kind, _) in enumerate(OF_KIND.get(type(node), lambda node: ())(node)):
            changed = copy.deepcopy(tree)
            there = next(n for i, n in enumerate(ast.walk(changed)) if i == place)
            list(OF_KIND[type(there)](there))[number][1](there)
            text = ast.unparse(ast.fix_missing_locations(Retyped().visit(changed)))
            if text not in seen:
                seen.add(text)
                yield f"{kind}, line {getattr(node, 'lineno', 0)}", text


class TooLong(BaseException):
    """No answer catches it."""


@contextlib.contextmanager
def no_longer_than(seconds):
    def stop(*_):
        raise TooLong
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)  # of the processor
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def really_wrong(exercise, source, seeds):
    """Whether a source differs from the oracle, on cases of other seeds than the grader's."""
    try:
        answer = names_in(source)[exercise.function]
    except Exception:
        return True
    for seed in seeds:
        for case, right in unseen_cases(exercise.name, seed):
            if not outcome_is_right(observe_answer(exercise, answer, case), right, exercise.tolerance):
                return True
    return False


@cache
def unseen_cases(exercise_name, seed):
    """Cases that the grader does not draw, and what is right in them; of runs with faults, other runs."""
    exercise = exercise_named(exercise_name)
    if exercise_name == "broken-run":
        return [((broken_run.train_with_fault(fault, 100 + seed, luck=0.2 * (seed % 2)),), fault)
                for fault in broken_run.FAULTS]
    return [(case, to_plain(exercise.right(*copy.deepcopy(case))))
            for case in exercise.cases(Random(f"{exercise_name} {seed}"))]


def wrong_answers(name, seed, count, others=20):
    """-> [(what, source, verdict)] of `count` wrong answers, and how many changes had no effect.

    A change is wrong where it fails on cases of `others` seeds; its verdict is the grader's, on its own.
    What raises an error is not drawn: Python names that.
    """
    exercise = exercise_named(name)
    drawn = list(changes(exercise.solution))
    Random(f"{name} {seed}").shuffle(drawn)
    made, same = [], 0
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for what, source in drawn:
            try:
                with no_longer_than(SECONDS):
                    verdict = judged(name, source)
            except TooLong:
                continue
            if verdict.named_by == "error":
                continue
            if verdict.passed and not really_wrong(exercise, source, range(others)):
                same += 1
                continue
            made.append((what, source, verdict))
            if len(made) == count:
                break
    return made, same
