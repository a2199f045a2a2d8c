"""Reports of one section each (an H200, ncu 2025.3.1): the card stands and says what is missing."""

from pathlib import Path

import pytest

from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.kernel import COLLECT
from ncu_toolkit.kernel.explain.verdict import card
from ncu_toolkit.kernel.report.reader import load_report

FOLDER = Path(__file__).parent / "sections"
TITLES = {
    "ComputeWorkloadAnalysis": "No cause found",
    "LaunchStats": "No cause found",
    "Occupancy": "No cause found",
    "SourceCounters": "Memory latency",
    "SpeedOfLight": "Uncoalesced global access",
    "WarpStateStats": "Memory latency",
}


@pytest.mark.parametrize(
    "section",
    [
        each
        if each in ("LaunchStats", "SourceCounters")
        else pytest.param(each, marks=pytest.mark.slow)
        for each in TITLES
    ],
)
def test_a_single_section_gets_a_card(section: str) -> None:
    (profile,) = load_report(FOLDER / f"{section}.ncu-rep.xz").profiles
    shown = card(profile, diagnose(profile))
    assert shown.title == TITLES[section]
    assert shown.time_us == pytest.approx(275, rel=0.05)
    assert shown.missing
    # the next roof is not known without memory and issue slots
    assert (shown.headroom is not None) == (section == "SpeedOfLight")
    assert shown.do
    assert shown.next == COLLECT


def test_every_report_is_tried() -> None:
    assert {path.name.partition(".")[0] for path in FOLDER.iterdir()} == set(TITLES)
