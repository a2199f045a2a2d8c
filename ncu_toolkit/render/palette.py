"""Colours of the charts: the palette of Okabe and Ito, which people with the common colour-vision
deficiencies can tell apart.

Neighbours in a stack also differ by pattern where the eight colours do not suffice, so nothing
rests on colour alone."""

from __future__ import annotations

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

#: Kind of rung -> (colour, pattern, words).
KINDS: Final[dict[str, tuple[str, str, str]]] = {
    "step": (BLUE, "", "step"),
    "slower": (PURPLE, "\\", "step, slower than the one before"),
    "regression": (ORANGE, "/", "regression, kept to show it"),
    "planted": (VERMILION, "x", "planted defect"),
    "baseline": (GREY, "", "library baseline"),
    "roof": (LIGHT, "", "roof"),
    "probe": (SKY, ".", "probe"),
}

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
SERIES: Final = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, GREY)
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
