"""Reading reports: what comes out of a whole one, and what a damaged or incomplete one is refused
with."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import recorded

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import Presence, Profile
from ncu_toolkit.kernel.report import framing, ncu_action, ncu_source, reader

CORPUS = recorded.ROOT.parent / "shared" / "corpus"


@pytest.fixture(scope="module")
def whole() -> bytes:
    return recorded.report_bytes()


@pytest.fixture(scope="module")
def small(whole: bytes) -> bytes:
    """The recording up to and including its first two launches: whole, and quick to load."""
    blocks = framing.parse(whole).blocks
    launches = 0
    for block, following in itertools.pairwise(blocks):
        launches += len(block.results)
        if launches == 2:
            return whole[: following.offset]
    pytest.fail("the recording holds fewer than three launches")


def written(folder: Path, data: bytes) -> Path:
    path = folder / "cut.ncu-rep"
    path.write_bytes(data)
    return path


def test_profiles_of_a_whole_report(tmp_path: Path, small: bytes) -> None:
    report = reader.load_report(written(tmp_path, small))
    assert (len(report.profiles), report.declared_launches, report.damage) == (2, 2, "")
    assert report.ncu_version.startswith("20")
    first, second = report.profiles
    assert (first.origin.key, second.origin.key) == ("0.0", "0.1")
    for profile in report.profiles:
        check_profile(profile)
        assert [instruction.index for instruction in profile.instructions] == list(
            range(len(profile.instructions))
        )
        assert profile.instructions[0].address == 0
        assert sum(row.executed or 0 for row in profile.instructions) == profile.mix.total
        executed, counted = profile.mix.total, profile.value("instructions")
        assert counted is not None
        assert executed == pytest.approx(counted, rel=0.01), (
            "instructions by PC and the counter are of the same launch"
        )
        assert any(text for text in profile.sources.values()), "the source is embedded"


def check_profile(profile: Profile) -> None:
    assert set(profile.readings) == set(registry.REGISTRY), "every registry metric has a reading"
    for reading in profile.readings.values():
        assert (reading.value is not None) == (reading.presence is Presence.PRESENT)
        if reading.unit == "fraction" and reading.value is not None:
            assert 0 <= reading.value <= 1.3, (
                f"{reading.name} = {reading.value}: a percentage was not converted"
            )
    assert profile.launch.complete == (profile.launch.status == "complete")


def test_the_intact_part_can_be_had_on_request(tmp_path: Path, small: bytes) -> None:
    with pytest.raises(InputProblem, match="1 launch before that is intact"):
        reader.load_report(written(tmp_path, small[:-1]))
    report = reader.load_report(
        written(tmp_path, small[:-1]), instructions=False, allow_partial=True
    )
    assert len(report.profiles) == 1
    assert "at offset" in report.damage


@pytest.mark.parametrize(
    ("sass", "opcode"),
    [
        ("@!P0 LDG.E.128 R4, [R2] ;", "LDG.E.128"),
        ("FFMA R1, R2, R3, R4", "FFMA"),
        ("{ HMMA.16816.F32 R1, R2, R3, R4", "HMMA.16816.F32"),
        ("EXIT;", "EXIT"),
        ("", ""),
        ("@P1", ""),
    ],
)
def test_opcodes(sass: str, opcode: str) -> None:
    assert ncu_source.opcode_of(sass) == opcode


def test_links_of_the_gui_become_plain_words() -> None:
    class Action:
        def rule_results_as_dicts(self) -> list[dict[str, object]]:
            links = "@section:Occupancy:the Occupancy section@, @url:the guide:https://example.org/a.html#b@, @source:7f5e:0x7f5e@ and @metric:m@"
            message = {"title": "T", "message": f"See {links}.", "type": 2}
            return [
                {
                    "rule_identifier": "R",
                    "rule_message": message,
                    "speedup_estimation": {"speedup": 12.5, "type": 2},
                    "section_identifier": "S",
                },
                {"rule_identifier": "bare"},
            ]

    full, bare = ncu_action.messages_of(Action())
    assert (full.kind, full.speedup, full.scope) == ("optimization", 12.5, "global")
    assert full.text == "See the Occupancy section, the guide, 0x7f5e and m."
    assert (bare.kind, bare.speedup, bare.title) == ("none", None, "")


corpus = [
    pytest.mark.corpus,
    pytest.mark.skipif(
        not CORPUS.is_dir(), reason="the folder of real reports from other GPUs is not here"
    ),
]
REPORTS = {
    "rtx3070-2020.3": ("2020.3.1", (8, 6), 1, 0), "a100-a": ("2021.2.2", (8, 0), 1, 0),
    "a100-incomplete-launch": ("2022.4", (8, 0), 1, 1), "a40-julia": ("2022.1.1", (8, 6), 2, 0),
    "a10g-incomplete-last-launch": ("2023.1.1", (8, 6), 6, 1),
    "h100-triton-2023.2": ("2023.2.2", (9, 0), 1, 0), "a100-cutlass-2024.1": ("2024.1.1", (8, 0), 1, 0),
    "rtx3090-thrust": ("2024.1.1", (8, 6), 27, 0), "rtx3060ti-source-2024.3": ("2024.3", (8, 6), 4, 0),
    "gh200-basic-2025.2": ("2025.2.1", (9, 0), 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=corpus) for name in REPORTS])
def test_other_peoples_reports(name: str) -> None:
    version, cc, count, incomplete = REPORTS[name]
    report = reader.load_report(CORPUS / f"{name}.ncu-rep", instructions=False)
    assert len(report.profiles) == report.declared_launches == count
    assert report.ncu_version.startswith(version)
    assert {profile.device.cc for profile in report.profiles} == {cc}
    assert len({profile.origin.key for profile in report.profiles}) == count, (
        "launches of one name are kept apart"
    )
    broken = [profile for profile in report.profiles if not profile.launch.complete]
    assert len(broken) == incomplete
    for profile in report.profiles:
        check_profile(profile)
    for profile in broken:
        assert "incomplete" in profile.launch.status
        assert profile.duration_us is None, "an aborted launch has no time"


@pytest.mark.corpus
@pytest.mark.skipif(
    not CORPUS.is_dir(), reason="the folder of real reports from other GPUs is not here"
)
def test_what_an_architecture_never_had_is_not_called_uncollected() -> None:
    profile = reader.load_report(
        CORPUS / "a100-cutlass-2024.1.ncu-rep", instructions=False
    ).profiles[0]
    assert profile.reading("stall_gmma").presence is Presence.NOT_AVAILABLE
    assert profile.reading("stall_long_scoreboard").presence is Presence.PRESENT


class Action:
    """A launch as the report module gives it, with one number a metric."""

    def __init__(self, values: dict[str, tuple[float, str]]) -> None:
        self.values = values

    def metric_names(self) -> tuple[str, ...]:
        return tuple(self.values)

    def metric_by_name(self, name: str) -> Action:
        return Action({"": self.values[name]})

    def value(self) -> float:
        return self.values[""][0]

    def unit(self) -> str:
        return self.values[""][1]


ACTIVE, ELAPSED = registry.REGISTRY["l1_data_pipe_active"].ncu
CYCLES = {
    registry.REGISTRY["sm_active_cycles"].ncu[0]: (600.0, "cycle"),
    registry.REGISTRY["sm_cycles"].ncu[0]: (1000.0, "cycle"),
}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({ACTIVE: (50.0, "%"), ELAPSED: (99.0, "%"), **CYCLES}, 0.5),
        ({ELAPSED: (30.0, "%"), **CYCLES}, 0.5),
        ({ELAPSED: (30.0, "%")}, None),
    ],
    ids=["as it is collected", "over elapsed cycles", "without the active part of the time"],
)
def test_a_fraction_of_active_cycles_from_one_of_elapsed_cycles(
    values: dict[str, tuple[float, str]], expected: float | None
) -> None:
    raw = {name: ncu_source.Value(*value) for name, value in values.items()}
    reading = ncu_action._reading(raw.get, registry.REGISTRY["l1_data_pipe_active"], (9, 0))
    assert reading.value == (None if expected is None else pytest.approx(expected))
    assert (reading.presence is Presence.PRESENT) == (expected is not None)


def test_times_are_right_where_the_module_does_not_know_the_chip(tmp_path: Path) -> None:
    """It names no units then, and nanoseconds were read as microseconds."""
    path = recorded.ROOT / "tests" / "origins" / "reports" / "set-full.ncu-rep.xz"
    data = framing.read_bytes(path)
    chip, other = b"\x28\x80\x03", b"\x28\x89\x06"  # a number, 384 for GH100 and 777
    assert data.count(chip) > 2
    strange = reader.load_report(written(tmp_path, data.replace(chip, other))).profiles
    for profile, known in zip(strange, reader.load_report(path).profiles, strict=True):
        assert profile.duration_us == known.duration_us
        assert {n: r.value for n, r in profile.readings.items()} == {
            n: r.value for n, r in known.readings.items()
        }
        assert not profile.contradictions


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (1000.0, False), (0.001, False)])
def test_a_time_that_its_cycles_refute_is_named(
    small: bytes, tmp_path: Path, factor: float, fits: bool
) -> None:
    (profile, _) = reader.load_report(written(tmp_path, small)).profiles
    time = profile.readings["duration"]
    assert time.value is not None
    readings = {**profile.readings, "duration": replace(time, value=time.value * factor)}
    (check,) = ncu_action.clock_check(readings)
    assert (not check.problem) == fits
    assert fits or ("the time is" in check.problem and "GHz take" in check.problem)
