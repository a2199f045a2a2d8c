"""How far a predicted gain can be off: an 80% interval from cases whose outcome is known.

The residual of a case is (ln achieved - ln predicted) / (1 + ln predicted), of factors: a relative
error that may grow with the gain. On that scale errors are about as large for small gains as for
large ones, and for each confidence (docs/calibration.md has the figures). The interval lies between
two quantiles of the residuals, of all cases mixed with the rule's own.

The quantiles are data/intervals.json, which `python tests/heldout/fit.py` writes. Imported by the
rule inside Nsight Compute, so it may import nothing that needs a compiled module."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from ncu_toolkit.model import Finding

#: Bands are this much wider than the quantiles say. Most cases are kernels with one planted cause;
#: fixes of real programs change more. Of the field benchmark's first 31 pairs, each left out in
#: turn, intervals hold 61% of the gains without this and 77% with it, and their interval score
#: falls from 2.18 to 1.89; 1.25 and 1.75 score 1.94 and 1.85.
STRETCH: Final = 1.5
#: How far beyond the next roof an interval may end: the roof is that of the work as it is, and a fix
#: may remove some of that too. 23 of the field benchmark's 100 pairs gain more than the headroom. Each
#: left out in turn, intervals hold 82% of their gains with this, 72% with 1 and 83% with 1.5.
BEYOND_ROOF: Final = 1.25


@dataclass(frozen=True)
class Band:
    """Two quantiles of residuals, and how many cases are the rule's own. A case that was recorded
    several times counts once."""

    low: float
    high: float
    cases: float


@dataclass(frozen=True)
class Intervals:
    """What was fitted: the band of all cases, for rules without any, and those of single rules."""

    pooled: Band
    rules: Mapping[str, Band]

    def around(self, rule: str, speedup: float, roof: float | None) -> tuple[float, float]:
        """The interval of a gain, as factors: never below 1, never far above the next roof
        (BEYOND_ROOF), and never without the figure itself."""
        band = self.rules.get(rule, self.pooled)
        scale = STRETCH * (1 + math.log(speedup))
        low = speedup * math.exp(band.low * scale)
        high = speedup * math.exp(band.high * scale)
        most = BEYOND_ROOF * (roof or math.inf)
        return max(1.0, min(low, speedup)), max(speedup, min(high, most))


@cache
def shipped() -> Intervals:
    """The quantiles in the package."""
    file = resources.files("ncu_toolkit").joinpath("data", "intervals.json")
    found = json.loads(file.read_text(encoding="utf-8"))
    rules = {rule: Band(**band) for rule, band in found["rules"].items()}
    return Intervals(Band(**found["pooled"]), rules)


def around(finding: Finding, roof: float | None) -> tuple[float, float] | None:
    """The interval of a finding's gain; None where it has no figure, or is at a roof."""
    speedup = finding.speedup
    if finding.good or speedup is None or not math.isfinite(speedup) or speedup <= 1:
        return None
    return shipped().around(finding.bottleneck, speedup, roof)
