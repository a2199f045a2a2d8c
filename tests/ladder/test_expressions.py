"""Header expressions: what they compute, and what they refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.kernel.ladder.expressions import check_syntax, evaluate, evaluate_int

NAMES = {"M": 1000, "N": 517, "K": 2049, "BM": 64, "BN": 48, "TM": 4, "sm_count": 132}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("ceil_div(N, BN)", 11), ("(BM / TM) * (BN / TM)", 192), ("M if M > N else N", 1000),
        ("N if M > N else missing", 517), ("min(sm_count, ceil_div(M, BM)) * 2", 32), ("-M // BM", -16),
        ("M % BM", 40), ("2 ** 10", 1024), ("1 < TM <= 4 != 5", True), ("not M or K", 2049),
        ("M and 0 and missing", 0), ("abs(-3) + max(1, 2, 3)", 6), ("'a' == 'a' and 'b' != 'a'", True),
        ("M / 3", 1000 / 3), ("0.05 * M", 50.0),
    ],
)  # fmt: skip
def test_evaluates(expression: str, expected: object) -> None:
    assert evaluate(expression, NAMES) == expected


def test_division_that_leaves_no_remainder_is_an_integer() -> None:
    assert type(evaluate("BM / TM", NAMES)) is int
    assert type(evaluate("BM / 3", NAMES)) is float
    assert type(evaluate_int("M * 0.5", NAMES)) is int


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**20))
def test_ceil_div_is_the_smallest_cover(a: int, b: int) -> None:
    tiles = evaluate_int("ceil_div(a, b)", {"a": a, "b": b})
    assert tiles * b >= a > (tiles - 1) * b


@given(st.integers(0, 2**62), st.integers(1, 2**31))
def test_even_division_is_exact_beyond_float_precision(quotient: int, divisor: int) -> None:
    assert evaluate_int("a / b", {"a": quotient * divisor, "b": divisor}) == quotient


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("ceil_div(N, BNN)", "Did you mean 'BN'?"),
        ("ceildiv(N, BN)", "Did you mean 'ceil_div'?"),
        ("ceil_div(N,", "cannot be read"),
        ("", "cannot be read"),
        ("M; N", "cannot be read"),
        ("M.real", "Attribute is not allowed"),
        ("(lambda: 1)()", "is not allowed"),
        ("[1][0]", "is not allowed"),
        ("__import__('os')", "there is no function '__import__'"),
        ("max(M, key=abs)", "is not allowed"),
        ("M << 3", "is not allowed"),
        ("M in 'abc'", "is not allowed"),
        ("None", "is not allowed"),
        ("f'{M}'", "is not allowed"),
        ("9 ** 9 ** 9", "too large"),
        ("M ** 99", "too large"),
        ("'a' * 1000000000", "text where a number is needed"),
        ("-'a'", "text where a number is needed"),
        ("M / 0", "zero"),
        ("M % (N - N)", "zero"),
        ("(-1) ** 0.5", "negative"),
        ("2.0 ** 99999", "too large"),
        ("ceil_div(1)", "argument"),
        ("M < 'a'", "not supported"),
        ("1" * 5000, "characters long"),
        ("+".join("1" * 999), "cannot be read"),
        ("(" * 600 + "1" + ")" * 600, "cannot be read"),
    ],
)
def test_refuses_with_the_expression_and_a_reason(expression: str, hint: str) -> None:
    with pytest.raises(InputProblem) as caught:
        evaluate(expression, NAMES, where="kernels/f/01_x.cu: launch[0].grid")
    text = str(caught.value)
    assert hint.lower() in text.lower()
    assert text.startswith("kernels/f/01_x.cu: launch[0].grid: in '" + expression[:20])


@pytest.mark.parametrize("expression", ["M / 3", "M > N", "'128'", "1e400"])
def test_a_grid_must_be_an_integer(expression: str) -> None:
    with pytest.raises(InputProblem, match="not an integer"):
        evaluate_int(expression, NAMES)


def test_syntax_check_lists_names_without_values() -> None:
    assert check_syntax("ceil_div(N, BN) * (1 if K % 4 == 0 else TM)") == {"N", "BN", "K", "TM"}
    with pytest.raises(InputProblem, match="there is no function 'executed'"):
        check_syntax("executed('STS')")
    assert check_syntax("executed('STS.128') == min(1, x)", ["executed", "min"]) == {"x"}


def test_functions_may_abstain_with_their_own_exception() -> None:
    class AbsentError(Exception):
        pass

    def executed(pattern: str) -> int:
        if pattern == "LDL":
            raise AbsentError(pattern)
        return 7

    assert evaluate("executed('STS') == 7", {}, {"executed": executed}) is True
    with pytest.raises(AbsentError):
        evaluate("executed('LDL') == 0", {}, {"executed": executed})
