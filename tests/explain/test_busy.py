"""Bars are measurements: on every launch of every report at hand the longest bar is what Nsight
Compute's own roll-ups show, or the card says why it is not, and one unit has one figure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import recorded
import render_fixture

from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.base.document.card import CLOSE, Card, UnitBar
from ncu_toolkit.base.model import Diagnosis, Presence, Profile, Reading
from ncu_toolkit.base.render import html
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES
from ncu_toolkit.kernel.explain import sections
from ncu_toolkit.kernel.explain.sections import Use, uses
from ncu_toolkit.kernel.explain.verdict import card
from ncu_toolkit.kernel.pages import json as documents
from ncu_toolkit.kernel.pages.unit_folds import memory_view, traffic_table

SHARED = recorded.ROOT.parent / "shared"
REPORTS = [
    *sorted((recorded.ROOT / "tests" / "heldout").rglob("*.ncu-rep.xz")),
    *sorted((recorded.ROOT / "tests" / "origins" / "reports").glob("*.ncu-rep.xz")),
    *sorted((SHARED / "corpus").glob("*.ncu-rep")),
    *sorted((SHARED / "strangers").glob("*.ncu-rep")),
]
#: Nsight's roll-ups, by the short names of the registry.
ROLL_UPS = (
    "sm_throughput", "memory_throughput", "l1_throughput", "l2_throughput", "dram_utilization",
)  # fmt: skip
#: Units that only the roll-up over the SMs covers.
OF_THE_SMS = {*(name for name, (_, in_sm, _) in RESOURCES.items() if in_sm), "constant", "blocks"}


def launches() -> Iterator[tuple[str, Profile, Diagnosis]]:
    for folder in recorded.FOLDERS:
        for profile in recorded.run_of(folder).profiles:
            yield folder.name, profile, recorded.diagnosed(profile)


def judged(report: Path) -> Iterator[tuple[str, Profile, Diagnosis, Card]]:
    try:
        found = recorded.launches(report)
    except ToolkitError:
        return
    for each in found:
        assert each.profile is not None
        yield report.name, each.profile, each.diagnosis, each.card


def check(name: str, profile: Profile, shown: Card) -> str:
    """Which way a launch's longest bar agrees with the roll-ups; fails where it does not."""
    values = [profile.value(each) for each in ROLL_UPS]
    rolled = max((value for value in values if value is not None), default=None)
    if rolled is None:
        return "no roll-up"
    where = f"{name} {profile.origin.key} {profile.launch.function[:40]}"
    longest = max(shown.bars, key=lambda bar: bar.busy, default=UnitBar("", "", 0.0))
    if abs(longest.busy - rolled) <= CLOSE:
        return "within"
    if rolled > longest.busy:
        assert "too short" in shown.basis, f"{where}: {rolled:.0%} is on no bar ({shown.bars})"
        return "says why"
    if longest.resource in OF_THE_SMS and profile.value("sm_throughput") is None:
        return "not covered"
    assert shown.basis, f"{where}: {longest.label} {longest.busy:.0%}, roll-ups {rolled:.0%}"
    return "says why"


def one_figure(name: str, profile: Profile, diagnosis: Diagnosis, shown: Card) -> None:
    """Compares bars, picture, table and JSON."""
    used = uses(profile, diagnosis.bounds)
    if not profile.instructions:  # what is kept of a report lacks them, and tags are counted there
        used |= {
            bar.resource: Use(bar.busy, bar.share) for bar in shown.bars if bar.resource == "l1_tag"
        }
    where = f"{name} {profile.origin.key}: {shown.summary}"
    for bar in shown.bars:
        assert bar.busy == used[bar.resource].busy, where
        assert 0 <= bar.busy <= 1, where
        assert bar.share is None or 0 <= bar.share <= bar.busy, where
    assert sum(bar.limit for bar in shown.bars) <= 1, where
    assert [bar["busy"] for bar in documents.card(shown)["bars"]] == [b.busy for b in shown.bars]
    memory = memory_view(profile, shown, used)
    if memory:
        levels = (memory.l1, memory.l2)
        drawn = [unit for level in levels for unit, _ in level.units]
        drawn += [link.busy for link in (memory.link, *(link for link, _ in memory.ends))]
        bars = {bar.label: bar for bar in shown.bars}
        for label, bar in bars.items():
            for text in drawn:
                if re.match(rf"{label} \d", text):
                    assert text == f"{label} {html.whole_percent(bar.busy)}", where
    rows = {row[0].text: row[4].value for row in traffic_table(profile, None, used).rows}
    for label, resource in (
        ("DRAM", "dram"),
        ("L1 data stage", "l1_data"),
        ("L2-to-SM link", "fill"),
    ):
        if resource in used:
            assert rows[label] == used[resource].busy, where


@pytest.mark.slow
def test_recorded_launches_have_bars_that_nsight_shows() -> None:
    ways = set()
    for name, profile, diagnosis in launches():
        shown = card(profile, diagnosis)
        ways.add(check(name, profile, shown))
        one_figure(name, profile, diagnosis, shown)
    assert "within" in ways


@pytest.mark.parametrize(
    "report",
    [*REPORTS[:3], *(pytest.param(each, marks=pytest.mark.slow) for each in REPORTS[3:])],
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_reports_have_bars_that_nsight_shows(report: Path) -> None:
    for name, profile, diagnosis, shown in judged(report):
        if profile.launch.complete:
            check(name, profile, shown)
            one_figure(name, profile, diagnosis, shown)


def with_readings(**values: float) -> Profile:
    base = render_fixture.profile("vectorized", 1024, 0)
    counters = {name for names, _, _ in RESOURCES.values() for name in names}
    counters.add("l1_data_pipe_active")  # of which l1_data_active is made
    kept = {name: found for name, found in base.readings.items() if name not in counters}
    found = {name: Reading(name, each, "", Presence.PRESENT) for name, each in values.items()}
    return replace(base, readings={**kept, **found})


def test_a_bar_is_what_was_measured_with_the_models_floor_in_it() -> None:
    profile = with_readings(l2_throughput=0.94, l2_utilization=0.26, duration=100.0)
    used = uses(profile, {"l2": 26.0})
    assert used["l2"] == Use(0.94, 0.26)
    shown = card(profile, replace(diagnose(profile), bounds={"l2": 26.0}))
    (bar,) = (bar for bar in shown.bars if bar.resource == "l2")
    assert (bar.busy, bar.share, bar.beyond) == (0.94, 0.26, True)
    page = html._environment().get_template("card.html").module.card(shown)  # type: ignore[attr-defined]
    assert 'style="width:94.0%"><i style="width:28%"' in page


def test_a_roll_up_is_a_bar_only_where_no_part_explains_it() -> None:
    alone = uses(with_readings(sm_throughput=0.24), {})
    assert alone["sm"] == Use(0.24)
    explained = uses(with_readings(sm_throughput=0.24, issue_active=0.22), {})
    assert "sm" not in explained
    turing = uses(with_readings(l1_throughput=0.97, l1_data_pipe_active=0.5), {})
    assert turing["l1"].busy == 0.97


def test_sms_without_work_are_named() -> None:
    profile = with_readings(issue_active=0.8, sm_cycles=1000.0, sm_active_cycles=400.0)
    message = sections.basis(profile, uses(profile, {}))
    assert (
        message == "Units in SMs: % of the cycles with a block on the SM (40 % of all SM cycles)."
    )
    whole = with_readings(issue_active=0.8, sm_cycles=1000.0, sm_active_cycles=990.0)
    assert sections.basis(whole, uses(whole, {})) == ""
