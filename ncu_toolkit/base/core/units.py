"""Numbers as text: three significant digits, a unit, commas in thousands. Spaces are plain ones, since people copy
and search what they see; only the HTML writer keeps a number and its unit on one line."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

NOT_AVAILABLE: Final = "n/a"
#: What is shown where the time of launches would be.
NO_TIME: Final = "time not collected"
#: A gain of less rounds to 1.00×: only a roof with useful work may have it.
LEAST_GAIN: Final = 1.005

#: Smaller values are shown as a bound: no timer, counter or sample of a GPU resolves them.
_LEAST_NS: Final = 0.1
_LEAST_FRACTION: Final = 1e-5
_LEAST: Final = 1e-4
#: Units of whole things: 32 lanes, not 32.0.
_WHOLE: Final = frozenset({"lanes", "warps"})
_TICKS: Final = "▁▂▃▄▅▆▇█"
#: Least part of the largest value that a sparkline's height stands for.
_LEVEL: Final = 0.01
#: Prefixes of a thousand's powers.
_POWERS: Final = ("", "k", "M", "G", "T", "P", "E")
_SI: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def significant(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, no exponent between 1e-4 and 1e15, commas in
    thousands; a whole number of that many digits without decimals: 4 bytes, not 4.00."""
    whole = float(value).is_integer() and abs(value) < 10.0**digits
    return f"{value:.0f}" if whole and value else _digits(value, digits)


def _digits(value: float, digits: int) -> str:
    """As `significant`, with the decimals that a measured figure keeps: 1.00×."""
    if math.isnan(value):
        return NOT_AVAILABLE
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -4 or magnitude >= 15:
        return f"{value:.{digits - 1}e}"
    rounded = round(value, digits - 1 - magnitude)
    if abs(rounded) >= 10.0 ** (magnitude + 1):
        magnitude += 1  # 9.996 rounds up to 10.0, which needs one decimal less
    decimals = max(0, digits - 1 - magnitude)
    return f"{rounded:,.{decimals}f}"


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 kernel`, `2 launches`; `many` is a plural that has other endings."""
    ending = "es" if one.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{count(number)} {one if number == 1 else many or one + ending}"


def shortlist(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`: the first names, and how many are left out."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def count(value: float) -> str:
    """A whole number with commas in thousands: `1,048,576`."""
    if not math.isfinite(value):
        return significant(value)
    return f"{round(value):,}"


def extents(sizes: Sequence[int] | None) -> str:
    """A grid or block in words, without trailing ones: `256×256`; empty where it is not recorded."""
    last = max((at for at, size in enumerate(sizes or ()) if size != 1), default=0)
    return "×".join(map(count, (sizes or ())[: last + 1]))


def si(value: float, unit: str, digits: int = 3) -> str:
    """`value` with an SI prefix: si(4.24e12, "B/s") is `4.24 TB/s`."""
    if not math.isfinite(value):
        return NOT_AVAILABLE
    for factor, prefix in _SI:
        if abs(value) >= factor * 0.9995:
            return f"{_digits(value / factor, digits)} {prefix}{unit}"
    return f"{_digits(value, digits)} {unit}"


def power_of_ten(power: int) -> str:
    """The label of an axis at a power of ten: `0.01`, `100`, `10k`."""
    if power < 0:
        return f"{10.0**power:g}"
    third = min(power // 3, len(_POWERS) - 1)
    return f"{10 ** (power - 3 * third)}{_POWERS[third]}"


def duration(microseconds: float, digits: int = 3) -> str:
    """Microseconds as ns, µs, ms or s; below a tenth of a nanosecond only as that."""
    if not math.isfinite(microseconds):
        return NOT_AVAILABLE
    if 0 < abs(microseconds) * 1e3 < _LEAST_NS:
        return _below(microseconds, _LEAST_NS, "ns")
    seconds = microseconds * 1e-6
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= factor * 0.9995:
            return f"{_digits(seconds / factor, digits)} {unit}"
    return f"{_digits(seconds * 1e9, digits)} ns"


def part(microseconds: float, whole: float) -> str:
    """A time of a longer one, with one unit where it is the same: `55.7 of 77.1 ms`."""
    figure, _, unit = duration(microseconds).rpartition(" ")
    every = duration(whole)
    same = unit == every.rpartition(" ")[2]
    return f"{figure if same else duration(microseconds)} of {every}"


def total(microseconds: float | None, without: int = 0) -> str:
    """The time of several launches, of which so many are `without` one: `15.5 ms (2 launches without
    a time)`; NO_TIME where it is None."""
    if microseconds is None:
        return NO_TIME
    lacking = f" ({counted(without, 'launch')} without a time)" if without else ""
    return f"{duration(microseconds)}{lacking}"


def percent(fraction: float, digits: int = 3) -> str:
    """A fraction as percent: 0.125 is `12.5 %`; below a thousandth of a per cent only as that."""
    if not math.isfinite(fraction):
        return NOT_AVAILABLE
    if fraction == 0:
        return "0 %"
    if abs(fraction) < _LEAST_FRACTION:
        return _below(fraction, _LEAST_FRACTION * 100, "%")
    return f"{_digits(fraction * 100, digits)} %"


def _below(value: float, bound: float, unit: str) -> str:
    """`< 0.1 ns`, and `> -0.1 ns` where it is negative."""
    return f"{'>' if value < 0 else '<'} {'-' if value < 0 else ''}{bound:g} {unit}"


def energy(joules: float, digits: int = 3) -> str:
    """An energy as µJ, mJ, J and so on."""
    if not math.isfinite(joules):
        return NOT_AVAILABLE
    for factor, unit in ((1e-3, "mJ"), (1e-6, "µJ")):
        if 0 < abs(joules) < factor * 999.5 and abs(joules) >= factor * 0.9995:
            return f"{_digits(joules / factor, digits)} {unit}"
    return si(joules, "J", digits)


def faster(speedup: float) -> str:
    """A speedup in words, `1.24× faster`; one below 1 as how many times slower."""
    return f"{ratio(speedup)} faster" if speedup >= 1 else f"{ratio(1 / speedup)} slower"


def ratio(value: float, digits: int = 3) -> str:
    """A factor: `1.24×`."""
    if not math.isfinite(value):
        return NOT_AVAILABLE
    return f"{_digits(value, digits)}×"


def sparkline(values: Sequence[float]) -> str:
    """Values as bars from the least to the largest; empty for fewer than two. Differences of less
    than a per cent do not fill the height."""
    if len(values) < 2:
        return ""
    least, most = min(values), max(values)
    step = max(most - least, abs(most) * _LEVEL) / (len(_TICKS) - 1)
    return "".join(_TICKS[round((value - least) / step) if step else 0] for value in values)


@lru_cache(maxsize=1 << 14)
def quantity(value: float | None, unit: str) -> str:
    """A value in one of the registry's units (see metrics.UNITS) as text."""
    if value is None:
        return NOT_AVAILABLE
    if unit == "us":
        return duration(value)
    if unit in ("B", "B/s", "FLOP", "FLOP/s", "Hz"):
        return si(value, unit)
    if unit == "fraction":
        return percent(value)
    if unit == "ratio":
        return ratio(value)
    if unit == "count":
        return count(value) if abs(value) >= 1000 else significant(value)
    if unit == "mJ":
        return energy(value * 1e-3)
    if not unit:
        return significant(value)
    if 0 < abs(value) < _LEAST:
        return _below(value, _LEAST, unit)
    if unit in _WHOLE and float(value).is_integer():
        return f"{count(value)} {unit}"
    return f"{significant(value)} {unit}"


def compact(value: float) -> str:
    """A count with three digits and a prefix: 134 M; small ones in full."""
    return count(value) if abs(value) < 10_000 else si(value, "").rstrip()
