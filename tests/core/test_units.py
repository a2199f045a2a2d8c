"""How numbers are written: three significant digits, units, commas, and never nothing."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ncu_toolkit.base.core import units
from ncu_toolkit.base.metrics import registry

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1, "1"), (1.004, "1.00"), (12.34, "12.3"), (123.4, "123"), (1234, "1,230"),
        (1048576, "1,050,000"), (0.01234, "0.0123"), (9.996, "10.0"), (999.6, "1,000"), (0.9996, "1.00"),
        (-1.5, "-1.50"), (4.0, "4"), (-16.0, "-16"), (1e-5, "1.00e-05"), (1e15, "1.00e+15"), (NAN, "n/a"),
        (INF, "∞"), (-INF, "-∞"),
    ],
)  # fmt: skip
def test_significant(value: float, text: str) -> None:
    assert units.significant(value) == text


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        (units.si, (4.24e12, "B/s"), "4.24 TB/s"), (units.si, (999.6e9, "B/s"), "1.00 TB/s"),
        (units.si, (12, "B"), "12.0 B"), (units.si, (NAN, "B"), "n/a"),
        (units.si, (-2e9, "FLOP/s"), "-2.00 GFLOP/s"), (units.duration, (64.3,), "64.3 µs"),
        (units.duration, (0.5,), "500 ns"), (units.duration, (1659e3,), "1.66 s"),
        (units.duration, (999.96,), "1.00 ms"), (units.duration, (INF,), "n/a"),
        (units.duration, (1.23e-5,), "< 0.1 ns"), (units.duration, (-1.23e-5,), "> -0.1 ns"),
        (units.duration, (0.0,), "0 ns"), (units.energy, (58.1,), "58.1 J"),
        (units.energy, (0.0123,), "12.3 mJ"), (units.energy, (0.99996,), "1.00 J"),
        (units.energy, (4e-6,), "4.00 µJ"), (units.energy, (NAN,), "n/a"),
        (units.percent, (0.125,), "12.5 %"), (units.percent, (0,), "0 %"), (units.percent, (1,), "100 %"),
        (units.percent, (NAN,), "n/a"), (units.percent, (3.21e-7,), "< 0.001 %"),
        (units.percent, (3.21e-5,), "0.00321 %"), (units.ratio, (12.7,), "12.7×"),
        (units.ratio, (INF,), "n/a"), (units.count, (1048576,), "1,048,576"), (units.count, (0.4,), "0"),
    ],
)  # fmt: skip
def test_kinds(function: object, arguments: tuple[object, ...], text: str) -> None:
    assert callable(function)
    assert function(*arguments) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "us", "n/a"), (64.3, "us", "64.3 µs"), (0.5, "fraction", "50.0 %"), (2.0, "ratio", "2.00×"),
        (12.0, "count", "12"), (12.5, "count", "12.5"), (123456.0, "count", "123,456"),
        (16.5, "sectors", "16.5 sectors"), (1.25, "", "1.25"), (60e6, "B", "60.0 MB"),
        (1.98e9, "Hz", "1.98 GHz"), (3.2, "cycles/inst", "3.20 cycles/inst"),
        (4.17e-5, "cycles/inst", "< 0.0001 cycles/inst"), (32.0, "lanes", "32 lanes"),
        (2048.0, "warps", "2,048 warps"), (58100.0, "mJ", "58.1 J"),
    ],
)  # fmt: skip
def test_quantity(value: float | None, unit: str, text: str) -> None:
    assert units.quantity(value, unit) == text


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e14, max_value=1e14))
def test_significant_reads_back_within_half_a_unit_of_the_third_digit(value: float) -> None:
    text = units.significant(value)
    back = float(text.replace(",", ""))
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
