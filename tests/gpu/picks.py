"""Settings that a rung's model chooses among, so that tests and sanitizers run every form of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ncu_toolkit.kernel.ladder.rung import Rung

#: The best of the settings with these values are tried.
PICKS: tuple[dict[str, tuple[int, ...]], ...] = (
    {},
    {"SPLIT": (2,)},
    {"SPLIT": (3, 6)},
    {"SPLIT": (8,), "ACROSS": (1,)},
    {"ACROSS": (1,), "LOW": (2, 4, 8)},
    {"BN": (160, 240), "ACROSS": (1,)},
    {"BN": (208,), "ACROSS": (0,)},
)


def picks_of(rung: Rung) -> list[dict[str, tuple[int, ...]]]:
    """The picks whose parameters the rung's model chooses; none for a rung without a model."""
    return [pick for pick in PICKS if rung.model and rung.parameters.keys() >= pick.keys()]


def best(
    ranked: Sequence[tuple[float, dict[str, int]]], pick: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """The setting of least time among those that a pick allows, from `Rung.modelled`."""
    found = (
        setting
        for _, setting in ranked
        if all(setting[name] in values for name, values in pick.items())
    )
    chosen = next(found, None)
    assert chosen is not None, "the model chooses among no such setting"
    return chosen
