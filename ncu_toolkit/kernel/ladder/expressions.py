"""Expressions of kernel headers: `ceil_div(N, BN)` for a grid, `executed('STS.128') ==
executed('STS')` for a check.

A whitelist over Python's own syntax tree: numbers, strings, names, arithmetic, comparisons,
`and/or/not`, `a if c else b`, and calls of named functions. No attribute, subscript, comprehension
or lambda exists in it, so a header cannot reach anything but its names."""

import ast
import contextlib
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from ncu_toolkit.base.core.errors import InputProblem, did_you_mean

Value = int | float | bool | str
Function = Callable[..., Value]

#: Longest expression, in characters: a header line, not a program.
MAX_LENGTH = 2000
#: Largest integer an expression may produce, in bits. Sizes fit in 64; 256 leaves room for products
#: of three of them.
MAX_BITS = 256


class Abstains(Exception):
    """Raised by a name or a function that has no value here. `or` and `and` go by their other parts
    where those decide."""


class _Refused(ValueError):
    """What is wrong with an expression, and what to do."""


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up, for integers."""
    return -(-a // b)


#: Functions that every header expression may call.
FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {"ceil_div": ceil_div, "min": min, "max": max, "abs": abs}
)

_UNARY: Mapping[type[ast.unaryop], Callable[..., Value]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_BINARY: Mapping[type[ast.operator], Callable[..., Value]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip


def evaluate(
    expression: str,
    names: Mapping[str, Value],
    functions: Mapping[str, Function] = FUNCTIONS,
    where: str = "",
) -> Value:
    """The value of an expression.

    `/` between integers that divide evenly gives an integer, else a float. An exception that a
    function raises on purpose (one that is no ArithmeticError, TypeError or ValueError, such as
    `Abstains`) passes through. `where` is the file and key for the error message. Raises
    InputProblem: bad syntax, unknown name or function, division by zero, a result beyond
    MAX_BITS."""
    with _named(expression, where):
        return _bounded(_term(_parse(expression))((names, functions)))


def evaluate_int(expression: str, names: Mapping[str, Value], where: str = "") -> int:
    """Like `evaluate`, for grids, counts and sizes. Raises InputProblem: as `evaluate`, and where
    the result is not an integer."""
    with _named(expression, where):
        value = _bounded(_term(_parse(expression))((names, FUNCTIONS)))
        if isinstance(value, bool | str):
            example = "Write a count, such as ceil_div(N, BN)"
            raise _Refused(f"gives {value!r}, not an integer", example)
        if isinstance(value, float) and not value.is_integer():
            hint = "Use // or ceil_div(a, b) where a division leaves a remainder"
            raise _Refused(f"gives {value:g}, not an integer", hint)
        return int(value)


#: Factors that may follow a number in `quantity`: decimal and binary prefixes, with or without B or
#: FLOP.
UNITS: Mapping[str, int] = MappingProxyType(
    {"B": 1, "FLOP": 1}
    | {
        prefix + unit: 1000**power
        for power, prefixes in enumerate(("kK", "M", "G", "T", "P"), 1)
        for prefix in prefixes
        for unit in ("", "B", "FLOP")
    }
    | {
        prefix + "i" + unit: 1024**power
        for power, prefix in enumerate("KMGTP", 1)
        for unit in ("", "B")
    }
)
_WITH_UNIT = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*([A-Za-z]+)\b(?!\s*\()")


def quantity(expression: str, where: str = "") -> int | float:
    """An amount written as arithmetic over numbers with units: `2*256MiB`, `2*4096**3`, `1.5GFLOP`.

    kB, MB, GB are powers of 1000; KiB, MiB, GiB of 1024. Raises InputProblem: as `evaluate`; an
    unknown unit; or the result is no number."""

    def factor(found: re.Match[str]) -> str:
        number, unit = found.groups()
        if unit in ("if", "else", "and", "or"):
            return found.group()
        if unit not in UNITS:
            hint = "Write B, KiB, MB, GiB, GFLOP and so on"
            raise _Refused(f"there is no unit '{unit}'", hint)
        return f"({number}*{UNITS[unit]})"

    with _named(expression, where):
        _check_length(expression)
        plain = _WITH_UNIT.sub(factor, expression)
    value = evaluate(plain, {}, where=where)
    with _named(expression, where):
        if isinstance(value, bool | str):
            raise _Refused(f"gives {value!r}, not a number")
        return value


def check_syntax(
    expression: str, functions: Collection[str] = tuple(FUNCTIONS), where: str = ""
) -> frozenset[str]:
    """The variable names an expression reads, after checking its syntax and the functions it calls,
    without values. Raises InputProblem: bad syntax, or a call of a function that is not in
    `functions`."""
    with _named(expression, where):
        nodes = list(ast.walk(_parse(expression)))
        called = [node.func for node in nodes if isinstance(node, ast.Call)]
        for function in called:
            assert isinstance(function, ast.Name)  # _parse let nothing else through
            if function.id not in functions:
                raise _nearest(f"there is no function '{function.id}'", function.id, functions)
        read = (node for node in nodes if isinstance(node, ast.Name) and node not in called)
        return frozenset(name.id for name in read)


@contextlib.contextmanager
def _named(expression: str, where: str) -> Iterator[None]:
    """Raise InputProblem, with the expression and where it is, for what is wrong with it."""
    try:
        yield
    except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
        what, *remedy = error.args if isinstance(error, _Refused) else (str(error),)
        if isinstance(error, OverflowError):
            what = _TOO_LARGE
        elif isinstance(error, RecursionError):
            what = "cannot be read: it is nested too deeply"
        shown = expression if len(expression) <= MAX_LENGTH else expression[:40] + "…"
        place = f"{where}: " if where else ""
        raise InputProblem(f"{place}in '{shown}': {what}", *remedy) from error


_TOO_LARGE = "gives a number too large to mean anything"


def _check_length(expression: str) -> None:
    if len(expression) > MAX_LENGTH:
        what = f"is {len(expression)} characters long"
        raise _Refused(what, f"At most {MAX_LENGTH} are read")


@cache
def _parse(expression: str) -> ast.expr:
    """The syntax tree of an expression in the whitelist."""
    _check_length(expression)
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = (isinstance(error, SyntaxError) and error.msg) or "it is not an expression"
        raise _Refused(f"cannot be read: {reason}") from error
    for node in ast.walk(tree):
        if not _allowed(node):
            raise _Refused(f"{type(node).__name__} is not allowed here", _ALLOWED)
    return tree


_ALLOWED = "Numbers, names, + - * / // % **, comparisons, and/or/not, 'a if c else b' and calls such as ceil_div(N, BN) are allowed"


def _allowed(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=op):
            return type(op) in _BINARY
        case ast.UnaryOp(op=unary):
            return type(unary) in _UNARY
        case ast.Compare(ops=ops):
            return all(type(op) in _COMPARE for op in ops)
        case ast.Call(func=ast.Name(), keywords=[]):
            return True
        case ast.Constant(value=bool() | int() | float() | str()):
            return True
    return isinstance(
        node,
        ast.Name | ast.IfExp | ast.BoolOp | ast.expr_context | ast.operator | ast.unaryop | ast.cmpop | ast.boolop,
    )  # fmt: skip


_Scope = tuple[Mapping[str, Value], Mapping[str, Function]]
_Term = Callable[[_Scope], Value]


@cache
def _term(node: ast.expr) -> _Term:
    """A node as a function of names and functions: a model evaluates each a thousand times."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as constant):
            return lambda scope: constant
        case ast.Name(id=name):
            return lambda scope: _find(scope[0], name, "'{}' here")
        case ast.BinOp(left=left, op=op, right=right):
            a, b, kind = _term(left), _term(right), type(op)
            return lambda scope: _binary(kind, a(scope), b(scope))
        case ast.UnaryOp(op=op, operand=operand):
            takes = bool if isinstance(op, ast.Not) else _number
            a, unary = _term(operand), _UNARY[type(op)]
            return lambda scope: unary(takes(a(scope)))
        case ast.BoolOp(op=boolean, values=values):
            terms, stop = [_term(value) for value in values], isinstance(boolean, ast.Or)
            return lambda scope: _boolean(stop, terms, scope)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            a, b, c = _term(body), _term(test), _term(orelse)
            return lambda scope: a(scope) if b(scope) else c(scope)
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            a, b, compare = _term(left), _term(right), _COMPARE[type(comparison)]
            return lambda scope: compare(a(scope), b(scope))
        case ast.Compare(left=left, ops=ops, comparators=after):
            pairs = zip([left, *after[:-1]], ops, after, strict=True)
            return _term(ast.BoolOp(ast.And(), [ast.Compare(x, [op], [y]) for x, op, y in pairs]))
        case ast.Call(func=ast.Name(id=name), args=args):
            terms = [_term(argument) for argument in args]
            return lambda scope: _find(scope[1], name, "function '{}'")(*[t(scope) for t in terms])
    raise AssertionError(node)  # _parse let nothing else through


def _find(table: Mapping[str, Any], name: str, called: str) -> Any:
    if name not in table:
        raise _nearest(f"there is no {called.format(name)}", name, table)
    return table[name]


def _boolean(stop: bool, terms: list[_Term], scope: _Scope) -> Value:
    unknown: Abstains | None = None
    for term in terms:
        try:
            if bool(result := term(scope)) is stop:
                return result
        except Abstains as missing:
            unknown = unknown or missing
    if unknown is not None:
        raise unknown
    return result


def _binary(op: type[ast.operator], a: Value, b: Value) -> Value:
    a, b = _number(a), _number(b)
    if isinstance(a, int) and isinstance(b, int):
        if op is ast.Pow and b > 0 and a.bit_length() * b > 2 * MAX_BITS:
            raise _Refused(_TOO_LARGE)
        if op is ast.Div and b != 0 and a % b == 0:
            return a // b
    result = _BINARY[op](a, b)
    if isinstance(result, complex):
        raise ValueError("a root of a negative number")
    return _bounded(result)


def _bounded(value: Value) -> Value:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise _Refused(_TOO_LARGE)
    return value


def _number(value: Value) -> int | float:
    if isinstance(value, str):
        raise TypeError(f"'{value}' is text where a number is needed")
    return value


def _nearest(what: str, name: str, known: Iterable[str]) -> _Refused:
    """A name or function that does not exist, with the nearest one."""
    names = sorted(known)
    return _Refused(what, did_you_mean(name, names) or f"Known are {', '.join(names) or 'none'}")
