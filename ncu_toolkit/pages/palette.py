"""Colours of the charts: the palette of Okabe and Ito, which people with the common colour-vision
deficiencies can tell apart.

Neighbours in a stack also differ by pattern where the eight colours do not suffice, so nothing
rests on colour alone."""

from __future__ import annotations

import math
from typing import Final

BLUE: Final = "#0072B2"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
YELLOW: Final = "#F0E442"
ORANGE: Final = "#E69F00"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#8A8F98"
LIGHT: Final = "#C9CDD3"

#: Kind of rung -> (pattern, words). The colour is the rung's own.
KINDS: Final[dict[str, tuple[str, str]]] = {
    "step": ("", "step"),
    "slower": ("\\", "step, slower than the one before"),
    "regression": ("/", "regression, kept to show it"),
    "planted": ("x", "planted defect"),
    "baseline": ("", "library baseline"),
    "roof": ("", "roof"),
    "probe": (".", "probe"),
}
#: Our own rungs are of one hue, from the pale first to the deep last one; lightness and chroma
#: (OKLCH) show on white and on black.
_HUE: Final = math.radians(245.0)
_FIRST, _LAST, _CHROMA = 0.76, 0.52, 0.13


def rung_colour(place: int, count: int, kind: str) -> str:
    """The colour of a rung in every chart, by its place among `count`; libraries and roofs are
    grey, regressions and planted defects vermilion.

    OKLCH to sRGB after B. Ottosson, "A perceptual color space for image processing" (2020)."""
    if kind in ("baseline", "roof"):
        return GREY
    if kind in ("regression", "planted"):
        return VERMILION
    lightness = _FIRST + (_LAST - _FIRST) * place / max(1, count - 1)
    a, b = _CHROMA * math.cos(_HUE), _CHROMA * math.sin(_HUE)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    return "#" + "".join(f"{_eight_bits(value):02x}" for value in linear)


def _eight_bits(linear: float) -> int:
    """A linear channel as its sRGB value, 0-255 (IEC 61966-2-1)."""
    value = min(1.0, max(0.0, linear))
    coded = 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055
    return round(255 * coded)


#: Stall reason -> (colour, pattern). A reason keeps its colour on every chart.
STALLS: Final[dict[str, tuple[str, str]]] = {
    "selected": (GREY, ""),
    "not_selected": (LIGHT, ""),
    "long_scoreboard": (BLUE, ""),
    "short_scoreboard": (SKY, ""),
    "mio_throttle": (VERMILION, ""),
    "lg_throttle": (ORANGE, ""),
    "barrier": (PURPLE, ""),
    "math_pipe_throttle": (GREEN, ""),
    "wait": (YELLOW, ""),
    "membar": (PURPLE, "/"),
    "tex_throttle": (ORANGE, "/"),
    "drain": (BLUE, "/"),
    "imc_miss": (SKY, "/"),
    "no_instruction": (GREEN, "/"),
    "branch_resolving": (YELLOW, "/"),
    "dispatch_stall": (VERMILION, "/"),
    "sleeping": (GREY, "/"),
    "misc": (LIGHT, "/"),
    "gmma": (GREEN, "x"),
}

#: Memory level -> (colour, marker symbol).
LEVELS: Final[dict[str, tuple[str, str]]] = {
    "dram": (BLUE, "circle"),
    "l2": (ORANGE, "square"),
    "l1": (GREEN, "diamond"),
}
SYMBOLS: Final = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "cross",
    "x",
    "star",
    "hexagon",
    "pentagon",
)
