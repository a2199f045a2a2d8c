"""How numbers are written: three significant digits, units, thin spaces, and never nothing."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ncu_toolkit.core import units
from ncu_toolkit.metrics import registry

T = units.THIN_SPACE
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1.004, "1.00"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234, f"1{T}230"),
        (1048576, f"1{T}050{T}000"),
        (0.01234, "0.0123"),
        (9.996, "10.0"),
        (999.6, f"1{T}000"),
        (0.9996, "1.00"),
        (-1.5, "-1.50"),
        (4.0, "4"),
        (-16.0, "-16"),
        (1e-5, "1.00e-05"),
        (1e15, "1.00e+15"),
        (NAN, "n/a"),
        (INF, "∞"),
        (-INF, "-∞"),
    ],
)
def test_significant(value: float, text: str) -> None:
    assert units.significant(value) == text


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        (units.si, (4.24e12, "B/s"), f"4.24{T}TB/s"),
        (units.si, (999.6e9, "B/s"), f"1.00{T}TB/s"),
        (units.si, (12, "B"), f"12.0{T}B"),
        (units.si, (NAN, "B"), "n/a"),
        (units.si, (-2e9, "FLOP/s"), f"-2.00{T}GFLOP/s"),
        (units.duration, (64.3,), f"64.3{T}µs"),
        (units.duration, (0.5,), f"500{T}ns"),
        (units.duration, (1659e3,), f"1.66{T}s"),
        (units.duration, (999.96,), f"1.00{T}ms"),
        (units.duration, (INF,), "n/a"),
        (units.duration, (1.23e-5,), f"<{T}0.1{T}ns"),
        (units.duration, (-1.23e-5,), f">{T}-0.1{T}ns"),
        (units.duration, (0.0,), f"0{T}ns"),
        (units.energy, (58.1,), f"58.1{T}J"),
        (units.energy, (0.0123,), f"12.3{T}mJ"),
        (units.energy, (0.99996,), f"1.00{T}J"),
        (units.energy, (4e-6,), f"4.00{T}µJ"),
        (units.energy, (NAN,), "n/a"),
        (units.percent, (0.125,), f"12.5{T}%"),
        (units.percent, (0,), f"0{T}%"),
        (units.percent, (1,), f"100{T}%"),
        (units.percent, (NAN,), "n/a"),
        (units.percent, (3.21e-7,), f"<{T}0.001{T}%"),
        (units.percent, (3.21e-5,), f"0.00321{T}%"),
        (units.ratio, (12.7,), "12.7×"),
        (units.ratio, (INF,), "n/a"),
        (units.count, (1048576,), f"1{T}048{T}576"),
        (units.count, (0.4,), "0"),
    ],
)
def test_kinds(function: object, arguments: tuple[object, ...], text: str) -> None:
    assert callable(function)
    assert function(*arguments) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "us", "n/a"),
        (64.3, "us", f"64.3{T}µs"),
        (0.5, "fraction", f"50.0{T}%"),
        (2.0, "ratio", "2.00×"),
        (12.0, "count", "12"),
        (12.5, "count", "12.5"),
        (123456.0, "count", f"123{T}456"),
        (16.5, "sectors", f"16.5{T}sectors"),
        (1.25, "", "1.25"),
        (60e6, "B", f"60.0{T}MB"),
        (1.98e9, "Hz", f"1.98{T}GHz"),
        (3.2, "cycles/inst", f"3.20{T}cycles/inst"),
        (4.17e-5, "cycles/inst", f"<{T}0.0001{T}cycles/inst"),
        (32.0, "lanes", f"32{T}lanes"),
        (2048.0, "warps", f"2{T}048{T}warps"),
        (58100.0, "mJ", f"58.1{T}J"),
    ],
)
def test_quantity(value: float | None, unit: str, text: str) -> None:
    assert units.quantity(value, unit) == text


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e14, max_value=1e14))
def test_significant_reads_back_within_half_a_unit_of_the_third_digit(value: float) -> None:
    text = units.significant(value)
    back = float(text.replace(T, ""))
    assert abs(back - value) <= abs(value) * 0.00501 + 1e-300
    assert len(re.sub(r"[^0-9]", "", text.split("e")[0]).lstrip("0")) >= 3 or value.is_integer()


@given(st.floats(), st.sampled_from(registry.UNITS))
@example(INF, "count")
@example(-INF, "us")
def test_any_value_of_any_unit_becomes_text(value: float, unit: str) -> None:
    try:
        text = units.quantity(value, unit)
    except (OverflowError, ValueError):
        pytest.fail(f"quantity({value!r}, {unit!r}) raised")
    assert text
