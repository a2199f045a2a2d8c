"""Settings that a rung's model chooses among, so that tests and sanitizers run every form of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ncu_toolkit.kernel.ladder.rung import Rung

#: The best of the settings with these values are tried.
PICKS: tuple[dict[str, tuple[int, ...]], ...] = (
    {},
    {"SPLIT": (2,)},
    {"SPLIT": (3, 4)},
    {"SPLIT": (8,), "ACROSS": (1,)},
    {"BN": (160, 240), "ACROSS": (1,)},
    {"BM": (192,), "BN": (168, 184)},
    {"TURNS": (1,), "TURNED": (0,)},
    {"TURNS": (1,), "TURNED": (1,)},
    {"TURNS": (0,), "TURNED": (1,)},
    {"LOW": (2, 4), "ACROSS": (1,)},
    {"ALONG": (2,)},
    {"BN": (208,), "ACROSS": (0,)},
    {"CLUSTER": (4,), "ACROSS": (0,), "TURNED": (0,)},
    {"CLUSTER": (4,), "ACROSS": (1,), "TURNED": (0,)},
    {"CLUSTER": (4,), "ACROSS": (2,), "TURNED": (0,)},
    {"CLUSTER": (4,), "ACROSS": (0,), "TURNED": (1,)},
    {"CLUSTER": (4,), "ACROSS": (1, 2), "TURNED": (1,)},
    {"CLUSTER": (4,), "BN": (64, 72, 80, 88, 96, 104, 112, 120)},
    {"CLUSTER": (2,), "BN": (64, 72, 80, 88, 96, 104, 112, 120)},
    {"WITHIN": (1,), "TURNED": (0,)},
    {"WITHIN": (1,), "TURNED": (1,)},
)


def picks_of(rung: Rung) -> list[dict[str, tuple[int, ...]]]:
    """The picks whose parameters the rung's model chooses; none for a rung without a model."""
    choices = {**rung.model.over, **dict.fromkeys(rung.model.set, (0, 1))} if rung.model else {}
    return [
        pick
        for pick in PICKS
        if choices and all(set(values) & {*choices.get(name, ())} for name, values in pick.items())
    ]


def best(
    ranked: Sequence[tuple[float, dict[str, int]]], pick: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """The setting of least time among those that a pick allows, from `Rung.modelled`; where the size
    takes none of them, of all."""
    found = (
        setting
        for _, setting in ranked
        if all(setting[name] in values for name, values in pick.items())
    )
    return next(found, ranked[0][1])
