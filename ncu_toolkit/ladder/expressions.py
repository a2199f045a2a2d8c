"""Expressions of kernel headers: `ceil_div(N, BN)` for a grid, `executed('STS.128') ==
executed('STS')` for a check.

A whitelist over Python's own syntax tree: numbers, strings, names, arithmetic, comparisons,
`and/or/not`, `a if c else b`, and calls of named functions. No attribute, subscript, comprehension
or lambda exists in it, so a header cannot reach anything but its names."""

from __future__ import annotations

import ast
import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType

from ncu_toolkit.core.errors import InputProblem

Value = int | float | bool | str
Function = Callable[..., Value]

#: Longest expression, in characters: a header line, not a program.
MAX_LENGTH = 2000
#: Largest integer an expression may produce, in bits. Sizes fit in 64; 256 leaves room for products
#: of three of them.
MAX_BITS = 256


class Unknown(Exception):
    """Raised by a name or a function that has no value here. `or` and `and` go by their other parts
    where those decide."""


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up, for integers."""
    return -(-a // b)


#: Functions that every header expression may call.
FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {"ceil_div": ceil_div, "min": min, "max": max, "abs": abs}
)

_UNARY: Mapping[type[ast.unaryop], Callable[..., Value]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
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
    functions: Mapping[str, Function] | None = None,
    where: str = "",
) -> Value:
    """The value of an expression.

    `/` between integers that divide evenly gives an integer, else a float. An exception that a
    function raises on purpose (one that is no ArithmeticError, TypeError or ValueError, such as
    `Unknown`) passes through, so that a check can abstain.

    Args:
        expression: the text, at most MAX_LENGTH characters.
        names: variables.
        functions: callables by name; FUNCTIONS where None.
        where: file and key for the error message.

    Raises:
        InputProblem: bad syntax, unknown name or function, division by zero, a result beyond
            MAX_BITS.
    """
    tree = parse(expression, where)
    try:
        return _Evaluator(
            expression, names, FUNCTIONS if functions is None else functions, where
        ).value(tree)
    except OverflowError as error:
        raise problem(expression, where, "gives a number too large to mean anything", "") from error
    except RecursionError as error:
        raise problem(expression, where, "cannot be read: it is nested too deeply", "") from error
    except (ArithmeticError, TypeError, ValueError) as error:
        raise problem(expression, where, str(error), "") from error


def evaluate_int(expression: str, names: Mapping[str, Value], where: str = "") -> int:
    """Like `evaluate`, for grids, counts and sizes.

    Raises:
        InputProblem: as `evaluate`, and where the result is not an integer.
    """
    value = evaluate(expression, names, where=where)
    if isinstance(value, bool | str):
        raise problem(
            expression,
            where,
            f"gives {value!r}, not an integer",
            "Write a count, such as ceil_div(N, BN)",
        )
    if isinstance(value, float):
        if not value.is_integer():
            raise problem(
                expression,
                where,
                f"gives {value:g}, not an integer",
                "Use // or ceil_div(a, b) where a division leaves a remainder",
            )
        return int(value)
    return value


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

    kB, MB, GB are powers of 1000; KiB, MiB, GiB of 1024.

    Raises:
        InputProblem: as `evaluate`; an unknown unit; or the result is no number.
    """

    def factor(found: re.Match[str]) -> str:
        number, unit = found.groups()
        if unit in ("if", "else", "and", "or"):
            return found.group()
        if unit not in UNITS:
            raise problem(
                expression,
                where,
                f"there is no unit '{unit}'",
                "Write B, KiB, MB, GiB, GFLOP and so on",
            )
        return f"({number}*{UNITS[unit]})"

    if len(expression) > MAX_LENGTH:
        parse(expression, where)
    value = evaluate(_WITH_UNIT.sub(factor, expression), {}, where=where)
    if isinstance(value, bool | str):
        raise problem(expression, where, f"gives {value!r}, not a number", "")
    return value


def check_syntax(
    expression: str, functions: Iterable[str] = tuple(FUNCTIONS), where: str = ""
) -> frozenset[str]:
    """The variable names an expression reads, after checking its syntax and the functions it calls,
    without values.

    Raises:
        InputProblem: bad syntax, or a call of a function that is not in `functions`.
    """
    known = set(functions)
    read = set()
    called = set()
    for node in ast.walk(parse(expression, where)):
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)  # parse() let nothing else through
            called.add(node.func)
            if node.func.id not in known:
                raise problem(
                    expression,
                    where,
                    f"there is no function '{node.func.id}'",
                    _nearest(node.func.id, known),
                )
        elif isinstance(node, ast.Name):
            read.add(node)
    return frozenset(name.id for name in read - called)


#: Expressions that `parse` has let through.
_allowed: set[str] = set()


@cache
def _parse(expression: str) -> ast.expr:
    return ast.parse(expression.strip(), mode="eval").body


def parse(expression: str, where: str = "") -> ast.expr:
    """The syntax tree of an expression in the whitelist.

    Raises:
        InputProblem: bad syntax, or a construct outside the whitelist.
    """
    if len(expression) > MAX_LENGTH:
        raise problem(
            expression[:40] + "…",
            where,
            f"is {len(expression)} characters long",
            f"At most {MAX_LENGTH} are read",
        )
    try:
        tree = _parse(expression)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = (
            error.msg if isinstance(error, SyntaxError) and error.msg else "it is not an expression"
        )
        raise problem(expression, where, f"cannot be read: {reason}", "") from error
    if expression not in _allowed:
        for node in ast.walk(tree):
            _check_node(expression, node, where)
        _allowed.add(expression)
    return tree


def _check_node(expression: str, node: ast.AST, where: str) -> None:
    """Raise for a construct outside the whitelist."""
    if (isinstance(node, ast.BinOp) and type(node.op) in _BINARY) or (
        isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY
    ):
        return
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        return
    if isinstance(
        node,
        ast.Name
        | ast.IfExp
        | ast.BoolOp
        | ast.expr_context
        | ast.operator
        | ast.unaryop
        | ast.cmpop
        | ast.boolop,
    ):
        return
    hint = "Numbers, names, + - * / // % **, comparisons, and/or/not, 'a if c else b' and calls such as ceil_div(N, BN) are allowed"
    raise problem(expression, where, f"{type(node).__name__} is not allowed here", hint)


class _Evaluator:
    def __init__(
        self,
        expression: str,
        names: Mapping[str, Value],
        functions: Mapping[str, Function],
        where: str,
    ) -> None:
        self.expression, self.names, self.functions, self.where = (
            expression,
            names,
            functions,
            where,
        )

    def value(self, node: ast.expr) -> Value:
        result = self._raw(node)
        if isinstance(result, int) and result.bit_length() > MAX_BITS:
            raise problem(
                self.expression, self.where, "gives a number too large to mean anything", ""
            )
        return result

    def _raw(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as constant):
                return constant
            case ast.Name(id=name):
                if name not in self.names:
                    raise problem(
                        self.expression,
                        self.where,
                        f"there is no '{name}' here",
                        _nearest(name, self.names),
                    )
                return self.names[name]
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.value(operand)
            case ast.UnaryOp(op=unary, operand=operand):
                return _UNARY[type(unary)](_number(self.value(operand)))
            case ast.BoolOp(op=boolean, values=values):
                stop = isinstance(boolean, ast.Or)
                result: Value = not stop
                unknown: Unknown | None = None
                for part in values:
                    try:
                        result = self.value(part)
                    except Unknown as missing:
                        unknown = unknown or missing
                        continue
                    if bool(result) is stop:
                        return result
                if unknown is not None:
                    raise unknown
                return result
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body) if self.value(test) else self.value(orelse)
            case ast.Compare(left=first, ops=ops, comparators=comparators):
                before = self.value(first)
                for comparison, comparator in zip(ops, comparators, strict=True):
                    after = self.value(comparator)
                    if not _COMPARE[type(comparison)](before, after):
                        return False
                    before = after
                return True
            case ast.Call(func=ast.Name(id=called), args=args):
                if called not in self.functions:
                    raise problem(
                        self.expression,
                        self.where,
                        f"there is no function '{called}'",
                        _nearest(called, self.functions),
                    )
                return self.functions[called](*(self.value(arg) for arg in args))
        raise problem(self.expression, self.where, f"{type(node).__name__} is not allowed here", "")

    def _binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        a, b = _number(left), _number(right)
        if (
            isinstance(op, ast.Pow)
            and isinstance(a, int)
            and isinstance(b, int)
            and b > 0
            and a.bit_length() * b > 2 * MAX_BITS
        ):
            raise problem(
                self.expression, self.where, "gives a number too large to mean anything", ""
            )
        if (
            isinstance(op, ast.Div)
            and isinstance(a, int)
            and isinstance(b, int)
            and b != 0
            and a % b == 0
        ):
            return a // b
        result = _BINARY[type(op)](a, b)
        if isinstance(result, complex):
            raise ValueError("a root of a negative number")
        return result


def _number(value: Value) -> int | float:
    if isinstance(value, str):
        raise TypeError(f"'{value}' is text where a number is needed")
    return value


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean '{close[0]}'?" if close else f"Known are {', '.join(names) or 'none'}"


def problem(expression: str, where: str, what: str, remedy: str) -> InputProblem:
    """An InputProblem that shows where the expression stands, the expression, and what is wrong
    with it."""
    return InputProblem(f"{where + ': ' if where else ''}in '{expression}': {what}", remedy)
