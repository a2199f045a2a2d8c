"""What holds of every verdict, whatever the launch: it names a unit that is full, or a wait that
takes half of the time; it says no figure that was not measured; no load is above its counter.

The cases are in tests/cases/verdicts: metric values in, the verdict out, and the change that makes
another one of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import diagnosis_cases as cases
import pytest
import recorded

from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import Diagnosis, Finding, Profile
from ncu_toolkit.kernel.diagnosis import figures, time_model
from ncu_toolkit.kernel.diagnosis.engine import _headroom, diagnose
from ncu_toolkit.kernel.diagnosis.rules import fp32_pipe, load_rules, tensor_pipe
from ncu_toolkit.kernel.diagnosis.time_model import BEYOND_FIX, BEYOND_ROOF
from ncu_toolkit.kernel.explain.sections import gain_cell
from ncu_toolkit.kernel.explain.verdict import WORDS, card
from ncu_toolkit.kernel.pages.json import diagnosis as as_json

FOLDER = cases.CASES / "verdicts"
FILES = sorted(FOLDER.glob("*.json"))
RECORDINGS = pytest.mark.parametrize("folder", recorded.FOLDERS, ids=lambda folder: folder.name)


def check(found: Diagnosis, expect: dict[str, Any]) -> None:
    """Hold a verdict to what a case says of it."""
    primary = found.primary
    said = f"{primary.bottleneck} {primary.speedup}: {primary.summary}"
    assert primary.bottleneck == expect.get("bottleneck", primary.bottleneck), said
    assert primary.bottleneck != expect.get("not"), said
    assert primary.good == expect.get("good", primary.good), said
    assert (primary.speedup is not None) == expect.get("figure", primary.speedup is not None), said
    for words in expect.get("says", ()):
        assert words in primary.summary, said
    for words in expect.get("says_not", ()):
        assert words not in primary.summary, said
    for words in expect.get("advises", ()):
        assert any(words in advice for advice in primary.advice), primary.advice
    for words in expect.get("advises_not", ()):
        assert not any(words in advice for advice in primary.advice), primary.advice


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_verdict(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    check(diagnose(cases.build(case)), case["expect"])
    other = {**case, **case["other"]}
    other["metrics"] = {**case.get("metrics", {}), **case["other"].get("metrics", {})}
    check(diagnose(cases.build(other)), case["other"]["expect"])


def full_or_waiting(profile: Profile) -> str:
    """The unit at 80% of its peak or more, or the stall reason of half of a warp's time or more."""
    model = time_model.build(profile)
    reasons = {
        reason: share
        for reason, share in model.stalls.items()
        # Issuing is no wait, readiness to issue neither, and misc is what the profiler cannot name.
        if reason not in ("selected", "not_selected", "misc")
    }
    busy = {
        name: profile.value(name) or 0.0
        for names, _, _ in time_model.RESOURCES.values()
        for name in names
        if name in registry.REGISTRY
    }
    if profile.launch.complete and model.working > 0.9 and max(busy.values()) >= 0.8:
        return max(busy, key=busy.__getitem__)
    reason = max(reasons, key=reasons.__getitem__, default="")
    return reason if profile.launch.complete and reason and reasons[reason] >= 0.5 else ""


@RECORDINGS
def test_no_verdict_is_empty(folder: Path) -> None:
    for profile in recorded.run_of(folder).profiles:
        primary = recorded.diagnosed(profile).primary
        assert primary.bottleneck != "unknown" or not full_or_waiting(profile), primary.summary


@pytest.mark.parametrize(
    "reason", sorted({wait for rule in load_rules().values() for wait in rule.WAITS})
)
def test_each_wait_has_a_verdict(reason: str) -> None:
    """Half of a warp's time, and nothing else known of the launch."""
    absent = dict.fromkeys(cases.METRICS) | {"duration": 100.0, "sm_cycles": 170_000.0}
    stalls = {"selected": 1.0, "wait": 1.0, reason: 9.0}
    found = diagnose(cases.build({"metrics": absent, "stalls": stalls, "opcodes": {}}))
    assert found.primary.bottleneck != "unknown"
    words = reason.replace("_", " ")
    assert (
        found.primary.speedup is not None
        or words in found.primary.summary
        or any(evidence.metric == f"stall_share:{reason}" for evidence in found.primary.evidence)
    )


@pytest.mark.parametrize("resource", sorted(time_model.RESOURCES))
def test_each_full_unit_has_a_verdict_without_stall_reasons(resource: str) -> None:
    """A report of one counter at 86%."""
    name = next(
        (n for n in time_model.RESOURCES[resource][0] if n in registry.REGISTRY), "sm_throughput"
    )
    absent = dict.fromkeys(cases.METRICS) | {"duration": 100.0, "sm_cycles": 170_000.0}
    found = diagnose(cases.build({"metrics": {**absent, name: 0.86}, "stalls": {}, "opcodes": {}}))
    assert found.primary.bottleneck != "unknown"
    assert not found.primary.good
    assert "86" in found.primary.summary


def test_each_unit_and_wait_goes_by_one_rule() -> None:
    units = [unit for rule in load_rules().values() for unit in rule.UNITS]
    waits = [
        wait for rule in load_rules().values() for wait, kind in rule.WAITS.items() if not kind
    ]
    assert sorted(units) == sorted(time_model.RESOURCES)
    assert sorted(waits) == sorted(
        set(registry.STALL_REASONS) - {"selected", "not_selected", "misc"}
    )


@RECORDINGS
def test_no_load_is_above_its_counter(folder: Path) -> None:
    for profile in recorded.run_of(folder).profiles:
        model = time_model.build(profile)
        for resource, (names, per_sm, _) in time_model.RESOURCES.items():
            counted = [v for name in names if (v := figures.value(profile, name)) is not None]
            if not counted:
                continue
            most = min(1.0, max(counted)) * (model.active if per_sm else 1.0)
            assert (model.utilization(resource) or 0.0) <= most * (1 + 1e-9), resource
            assert model.counted(resource) <= min(1.0, max(counted)) * (1 + 1e-9), resource


@RECORDINGS
def test_no_gain_is_beyond_the_headroom(folder: Path) -> None:
    for profile in recorded.run_of(folder).profiles:
        found, model = recorded.diagnosed(profile), time_model.build(profile)
        assert sum(model.floor) <= model.cycles
        if found.headroom is None:
            continue
        first, most = found.primary, found.headroom.factor * (1 + 1e-9)
        assert found.headroom.resource in found.bounds
        assert most >= max(1.0, first.speedup or 1.0, *(first.interval or ()))
        assert first.confidence != "high" or first.interval is None or first.interval[0] > 1
        if time_model.LAUNCH not in first.relieves and "blocks" not in first.relieves:
            floor = found.bounds[time_model.LAUNCH]
            assert (profile.duration_us or 0.0) / (first.speedup or 1.0) >= 0.99 * floor


def test_headroom_goes_by_the_work_that_the_change_leaves() -> None:
    case = cases.read("shared-bank-conflict")
    found = diagnose(cases.build(case))
    assert found.primary.bottleneck == "shared-bank-conflict"
    assert found.headroom is not None
    assert found.primary.relieves["l1_data"] < 0.5
    model = time_model.build(cases.build(case))
    left = {
        name: (model.utilization(name) or 0.0)
        * found.primary.relieves.get(name, BEYOND_FIX / BEYOND_ROOF)
        / BEYOND_FIX
        for name in model.loads
        if name != "blocks"
    }
    assert found.headroom.factor == pytest.approx(1 / max(left.values()))


def test_a_unit_that_keeps_most_of_its_work_is_still_a_roof() -> None:
    """Local memory is a tenth of what L1 moves: without it L1 is nearly as full as before, and the
    headroom says how much of that a fix may take besides."""
    case = {
        "metrics": {
            "lsu_pipe_active": 0.2,
            "l1_data_pipe_active": 0.85,
            "l1_writeback_active": 0.6,
            "local_load_sectors": 1e6,
        },
        "stalls": {"selected": 1.0, "lg_throttle": 3.0, "long_scoreboard": 6.0, "wait": 1.0},
        "opcodes": {"LDG.E": 1_600_000, "LDL": 300_000, "FFMA": 3_000_000, "IADD3": 1_000_000},
    }
    profile = cases.build(case)
    found = diagnose(profile)
    local = next(f for f in found.findings if f.bottleneck == "local-memory-traffic")
    assert 0.5 < local.relieves["l1_data"] < 1
    busy = time_model.build(profile).utilization("l1_data") or 0.0
    room = 1 / (busy * local.relieves["l1_data"])
    assert (local.speedup or 1.0) <= room
    bounded = _headroom(local, time_model.build(profile))
    assert bounded is not None
    assert bounded.resource == "l1_data"
    assert bounded.factor == pytest.approx(BEYOND_FIX * room)


NUMBER = re.compile(r"(?<![\w.×-])(\d+(?:,\d{3})*(?:\.\d+)?)( ?%)?(?![\w])")
#: Figures of a sentence that are no measurement: lanes of a warp, bytes of the widest access and
#: bits of a half, and what the best kernels reach.
STATED = (32.0, 16.0, fp32_pipe.BEST.value, tensor_pipe.BEST.value)
#: A part of a warp's time: some of what was measured, by the instructions that are its cause.
OF_TIME = re.compile(r"^[^.;]*\b(time|waiting for the data|in the queue)")


#: How many causes were and were not tested: no measurement of the launch.
TESTED = re.compile(r"Of \d+ known causes \d+ needs? more than this report holds\.")


def sentence_figures(text: str) -> Iterator[tuple[float, float, str]]:
    """The numbers of a sentence as (value, half of its last digit, what follows); percentages as
    fractions."""
    for found in NUMBER.finditer(text):
        digits = found[1].replace(",", "")
        whole, _, decimals = digits.partition(".")
        zeros = 0 if decimals else len(whole) - len(whole.rstrip("0"))
        unit = 0.01 if found[2] else 1.0
        half = 0.5 * 10.0 ** (zeros - len(decimals))
        yield float(digits) * unit, half * unit * 1.001, text[found.end() :]


def unmeasured(finding: Finding, profile: Profile) -> list[float]:
    """The figures of a finding's sentence that are neither evidence, nor follow from one or two
    figures of it, nor are a part of the waiting among it."""
    shares = [e.value for e in finding.evidence if e.metric.startswith("stall_share:")]
    values = [e.value for e in finding.evidence]
    values += [e.threshold for e in finding.evidence if e.threshold is not None]
    values += [finding.speedup or 1.0]
    # The part of the time in which SMs had work, apart from the start and end of every launch.
    active, duration = figures.value(profile, "active_fraction"), profile.duration_us
    if active and duration:
        values += [min(1.0, active / (1 - min(0.9, time_model.FLOOR_US / duration)))]
    launches = [float(profile.context.launch_count)] if profile.context else []
    launches += [float(profile.launch.blocks), float(profile.launch.threads_per_block)]
    known = [*values, *STATED, *launches, float(profile.device.sm_count)]
    known += [1 - a for a in values] + [1 / (1 - a) for a in values if a < 1]
    known += [a * b for a, b in product(values, values)] + [
        a * (1 - 1 / b) for a, b in product(values, values) if b
    ]
    known += [a + b for a, b in product(values, values)]
    known += [q for a, b in product(values, values) if b for q in (a / b, 1 - a / b)]
    return [
        value
        for value, half, rest in sentence_figures(TESTED.sub("", finding.summary))
        if not any(abs(figure - value) <= half for figure in known)
        and not (OF_TIME.match(rest) and value <= sum(shares) + half)
        and not (" of the waiting is for loads" in rest and value <= 1)
    ]


def wordy(finding: Finding) -> list[str]:
    """Sentences of a verdict or its advice that are too long to be read in one go."""
    texts = (finding.summary, *finding.advice, finding.look_for)
    sentences = (each for text in texts for each in re.split(r"(?<=[.!?])\s+", text))
    return [each for each in sentences if len(each.split()) > WORDS]


@RECORDINGS
def test_every_figure_of_a_verdict_is_measured(folder: Path) -> None:
    for profile in recorded.run_of(folder).profiles:
        for finding in recorded.diagnosed(profile).findings:
            assert unmeasured(finding, profile) == [], f"{finding.summary} {finding.evidence}"
            assert wordy(finding) == []


def test_a_figure_that_was_not_measured_is_seen() -> None:
    for name in ("dram-bandwidth", "low-occupancy", "shared-bank-conflict", "narrow-access"):
        profile = cases.build(cases.read(name))
        finding = diagnose(profile).primary
        assert unmeasured(finding, profile) == []
        wrong = replace(finding, summary=f"{finding.summary} Device memory is 57.3 % busy.")
        assert unmeasured(wrong, profile) == [pytest.approx(0.573)]


def test_a_direction_is_told_without_a_number() -> None:
    case = json.loads((FOLDER / "occupancy-is-no-prediction.json").read_text(encoding="utf-8"))
    found = diagnose(cases.build(case))
    assert found.primary.speedup is None
    assert found.primary.saved == 0
    assert card(cases.build(case), found).factor is None
    assert as_json(found)["predicted_speedup"] is None
    cell = gain_cell(found.primary)
    assert cell.missing
    assert "No estimate" in cell.title


@pytest.mark.parametrize("report", ["cupy", "principles-basic", "principles-full-1"])
def test_what_the_card_does_not_know_the_data_do_not_give(report: str) -> None:
    """At a unit's limit with work that may not all be needed; a roof with useful work has 1."""
    path = recorded.ROOT / "tests" / "origins" / "reports" / f"{report}.ncu-rep.xz"
    launches = recorded.launches(path)
    assert launches
    for launch in launches:
        assert launch.card is not None
        plain = as_json(launch.diagnosis)
        known = launch.card.factor is not None or launch.card.state == "roof"
        assert (plain["predicted_speedup"] is not None) is known, launch.function
        for other in plain["runners_up"]:
            assert other["good"] or other["predicted_speedup"] != 1.0


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("narrow-access", {}, "moves only 1 byte per thread,"),
        ("tail-effect", {}, "The grid is 1.05 waves, so the last"),
        ("tail-effect", {"waves": 555 / 553}, "is just over 1 wave (2 blocks more), so the last"),
        ("tail-effect", {"waves": 555 / 554}, "is just over 1 wave (1 block more), so the last"),
        ("tail-effect", {"waves": 555 / 277}, "is just over 2 waves (1 block more), so the last"),
    ],
)
def test_a_sentence_counts_as_one_would_say_it(
    name: str, change: dict[str, float], said: str
) -> None:
    case = cases.read(name)
    found = diagnose(cases.build({**case, "metrics": {**case["metrics"], **change}}))
    summaries = {each.bottleneck: each.summary for each in found.findings}
    assert said in summaries[name]
