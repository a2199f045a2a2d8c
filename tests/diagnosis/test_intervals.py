"""Intervals of gains: what was fitted is current and covers sets left out, and no interval leaves
its bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.heldout import fit, residuals
from benchmarks.heldout.residuals import Residual
from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis import time_model
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.time_model import Band, Intervals

CASES = fit.read()


def test_the_file_in_the_package_is_current() -> None:
    assert fit.FITTED.read_text(encoding="utf-8") == fit.fitted(CASES), (
        "run benchmarks/heldout/fit.py"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "cases", "least", "most", "width"),
    [
        ("field/", 80, 0.75, 0.87, 5.5),
        ("heldout/", 80, 0.75, 0.95, 4.0),
        ("", 200, 0.75, 0.92, 4.5),
    ],
)
def test_intervals_cover_what_is_left_out(
    part: str, cases: int, least: float, most: float, width: float
) -> None:
    """Wider than kernels with one planted cause need, and still narrow for real programs."""
    for out in (lambda each: each.source, residuals.pair):
        found = [
            each for each in residuals.left_out(CASES, part=out) if each[0].source.startswith(part)
        ]
        covered = residuals.coverage(found)
        assert covered.cases >= cases
        assert least <= covered.inside <= most
        assert min(covered.below, covered.above) > 0.01, "both ends are needed"
        assert covered.width < width


def test_no_case_of_a_set_helps_to_bound_it() -> None:
    source = "heldout/two"
    changed = [replace(e, achieved=999.0) if e.source == source else e for e in CASES]
    one, other = (
        [ends for each, ends in residuals.left_out(cases) if each.source == source]
        for cases in (CASES, changed)
    )
    assert one == other


@pytest.mark.parametrize("speedup", [1.01, 1.6, 12.0, 400.0])
@pytest.mark.parametrize("most", [None, 1.0, 1.7, 50.0])
def test_an_interval_stays_within_its_bounds(speedup: float, most: float | None) -> None:
    for rule in load_rules():
        low, high = time_model.shipped().around(rule, speedup, most)
        assert 1 <= low <= speedup <= high
        assert most is None or high <= max(most, speedup)


def test_a_rule_without_cases_has_the_band_of_all() -> None:
    found = Intervals(Band(-0.1, 0.2, 50), {"x": Band(0.0, 0.1, 9)})
    wide = time_model.STRETCH * 2  # at e the scale of a residual is 2
    low, high = math.exp(1 - 0.1 * wide), math.exp(1 + 0.2 * wide)
    assert found.around("unheard-of", math.e, None) == pytest.approx((low, high))
    assert found.around("x", math.e, None) == pytest.approx((math.e, math.exp(1 + 0.1 * wide)))


def case(rule: str, achieved: float, name: str, source: str = "heldout/one") -> Residual:
    return Residual(source, "h200", name, rule, "high", "stalls", math.e, math.exp(achieved), None)


def test_few_cases_are_drawn_towards_all() -> None:
    """One case far off moves a rule's band a little, many move it whole; a recording more moves
    nothing."""
    others = [case("y", 1 + n / 100, f"y{n}") for n in range(-50, 51)]
    far = [case("x", 3.0, f"x{n}") for n in range(200)]
    alone, many = (residuals.fit([*others, *far[:n]]).rules["x"] for n in (1, 200))
    assert alone.high < 0.5
    assert many.high == pytest.approx(1.0)
    again = replace(far[0], report="h100")
    assert residuals.fit([*others, far[0], again]) == residuals.fit([*others, far[0]])


def finding(**changes: object) -> Finding:
    made = Finding("memory-latency", "", "high", (), 2.0, (), ())
    return replace(made, **changes)  # type: ignore[arg-type]


def test_what_has_no_figure_has_no_interval() -> None:
    assert time_model.around(finding(), None) is not None
    for changes in ({"speedup": None}, {"speedup": 1.0}, {"speedup": math.inf}, {"good": True}):
        assert time_model.around(finding(**changes), None) is None
