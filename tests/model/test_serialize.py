"""Profiles and timings survive JSON, whatever is in them; documents that do not fit say where."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import (
    SCHEMA_VERSION,
    Presence,
    Profile,
    Reading,
    Timing,
)
from ncu_toolkit.base.model.codec import document, from_plain, open_document, plain_json, to_plain
from ncu_toolkit.base.model.run import Run

names = st.text(max_size=12)
whole = st.integers(0, 2**53)
numbers = st.floats(width=64)
PLAIN_TYPES = {str: names, int: whole, float: numbers, bool: st.booleans(), type(None): st.none()}
#: Fields whose values are of the registry.
NAMED = {
    (Reading, "name"): st.sampled_from(sorted(registry.REGISTRY)),
    (Reading, "unit"): st.sampled_from(registry.UNITS),
    (Timing, "times_us"): st.lists(numbers, min_size=1, max_size=3).map(tuple),
}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type of the model, from its annotations; few and short, as there are many fields."""
    if kind in PLAIN_TYPES:
        return PLAIN_TYPES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of(*map(any_of, arguments))
    if origin is tuple and arguments[-1] is ...:
        return st.lists(any_of(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(any_of, arguments))
    if origin in (dict, Mapping):
        return st.dictionaries(*map(any_of, arguments), max_size=3)
    if issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    hints = get_type_hints(kind)
    known = {
        each.name: NAMED[kind, each.name]
        if (kind, each.name) in NAMED
        else any_of(hints[each.name])
        for each in fields(kind)
    }
    return st.builds(kind, **known)


def same(a: Any, b: Any) -> bool:
    """Equality that holds for NaN too: by the JSON text of both, which is where they have to
    agree."""
    return json.dumps(to_plain(a), sort_keys=True) == json.dumps(to_plain(b), sort_keys=True)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(to_plain(value), allow_nan=False))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_of(Profile))
def test_profiles_survive(profile: Profile) -> None:
    back = from_plain(Profile, through_json(profile))
    assert same(back, profile)
    assert type(back.launch.grid) is type(profile.launch.grid)
    assert all(type(reading.presence) is Presence for reading in back.readings.values())
    slowly = json.dumps(document("profiles", [profile]), ensure_ascii=False, allow_nan=False)
    assert plain_json("profiles", [profile]) == slowly


@settings(max_examples=60, deadline=None)
@given(any_of(Timing))
def test_timings_survive(timing: Timing) -> None:
    back = from_plain(Timing, through_json(timing))
    assert same(back, timing)


def test_values_that_json_has_not() -> None:
    for value in (math.nan, math.inf, -math.inf):
        back = from_plain(Reading, through_json(Reading("x", value, "", Presence.UNDEFINED)))
        assert back.value is not None
        assert repr(back.value) == repr(value)


PLAIN = through_json(
    Timing(
        "gemm_fp32",
        "naive",
        "64",
        "float32",
        {"M": 64},
        {"BLOCK": 32},
        (1.0, 2.0),
        "warm",
        1.0,
        1.0,
        0.5,
    ),
)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"times_us": ...}, "Timing.times_us is missing"),
        ({"times_us": [1.0, "fast"]}, "Timing.times_us[1] is 'fast', expected a number"),
        ({"times_us": 3.0}, "Timing.times_us is 3.0, expected a list"),
        ({"cache": "cold"}, "Timing.cache is 'cold', which is none of its values"),
        ({"dims": [1]}, "Timing.dims is a list, expected a table"),
        ({"dims": {"M": 1.5}}, "Timing.dims.M is 1.5, expected an integer"),
        ({"dims": {"M": 1, "N": "x", "K": 2}}, "Timing.dims.N is 'x', expected an integer"),
        ({"dims": {"M": 1 << 64}}, "Timing.dims.M is 18446744073709551616, which is too large"),
        ({"flops": 10**400}, "which is too large"),
        ({"dims": {"M": True}}, "Timing.dims.M is True, expected an integer"),
        ({"flops": True}, "Timing.flops is True, expected a number"),
        ({"family": None}, "Timing.family is None, expected a string"),
        ({"baseline_us": "n/a"}, "Timing.baseline_us is 'n/a', expected a number"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(change: dict[str, Any], says: str) -> None:
    data = {key: value for key, value in {**PLAIN, **change}.items() if value is not ...}
    with pytest.raises(InputProblem) as caught:
        from_plain(Timing, data)
    assert says in str(caught.value)


def test_an_unknown_enumeration_value_is_an_input_problem() -> None:
    with pytest.raises(InputProblem, match=r"presence is 'perhaps'"):
        from_plain(Reading, {"name": "x", "value": 1.0, "unit": "", "presence": "perhaps"})


@pytest.mark.parametrize("data", [None, [], "text", 3, {"origin": {}}])
def test_nonsense_in_place_of_a_document(data: Any) -> None:
    for kind in (Profile, Run):
        with pytest.raises(InputProblem):
            from_plain(kind, data)


def test_keys_of_later_versions_and_defaults_that_are_left_out() -> None:
    assert from_plain(Timing, {**PLAIN, "colour": "green"}) == from_plain(
        Timing, {key: value for key, value in PLAIN.items() if key != "throttle"}
    )


def test_documents_know_their_kind_and_version() -> None:
    assert open_document("timings", document("timings", [1]), "f") == [1]
    with pytest.raises(InputProblem, match="'f' is not an ncu-toolkit run file"):
        open_document("run", document("timings", []), "f")
    with pytest.raises(
        InputProblem, match=f"schema version 99, this release reads {SCHEMA_VERSION}"
    ):
        open_document("run", {**document("run", {}), "version": 99}, "f")
    for stranger in ([], None, 3, {"data": 1}):
        with pytest.raises(InputProblem):
            open_document("run", stranger, "f")
