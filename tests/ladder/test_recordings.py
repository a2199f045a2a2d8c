"""The shipped recordings: whole, complete, with their provenance, and with nothing private in
them."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest
import recorded

from benchmarks import parsed
from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.ladder.catalogue import find_family
from ncu_toolkit.kernel.report import framing
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.kernel.sass import addresses

FOLDERS = pytest.mark.parametrize("folder", recorded.FOLDERS, ids=lambda folder: folder.name)
#: Most replay passes a launch may take with our sections.
MAX_PASSES = 16
_ADDRESS = re.compile(rb"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])(?! \(build)")
_PRIVATE = {
    "a home folder": re.compile(rb"/home/[A-Za-z0-9_.-]*[^x/.][A-Za-z0-9_.-]*|/root/|/Users/"),
    "a mail address": re.compile(
        rb"[A-Za-z0-9_.]{2,}@(?:[A-Za-z0-9-]{2,}\.)+(?:com|org|net|edu|io|local)\b"
    ),
    "a user's temporary folder": re.compile(
        rb"/tmp/(?:[a-z_]+[-_.])?(?:user|runner|pytest|tmp)[A-Za-z0-9_.-]*|/run/user/"
    ),
    "a host name": re.compile(
        rb"\b(?=[a-z]*[0-9-])[a-z][a-z0-9-]{2,}\.(?:internal|local|lan|corp|intra|cluster)\b|\bip-\d+-\d+-\d+-\d+\b"
    ),
    "a token": re.compile(rb"\b(?:ghp|hf|sk|pypi)[_-][A-Za-z0-9]{20,}"),
}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file's bytes, unpacked, by name."""
    return {
        path.name: lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        for path in sorted(folder.iterdir())
    }


def test_there_are_recordings_of_the_fp32_ladder() -> None:
    assert recorded.FP32 is not None


@pytest.mark.slow
@FOLDERS
def test_nothing_private_is_in_a_recording(folder: Path) -> None:
    found = []
    for name, data in contents(folder).items():
        for what, pattern in _PRIVATE.items():
            found += [f"{name}: {what}: {match.group()!r}" for match in pattern.finditer(data)]
        for match in _ADDRESS.finditer(data):
            parts = [int(part) for part in match.group().split(b".")]
            versions = (
                max(parts) > 255
                or (name.endswith(".json") and parts[0] > 223)
                or match.group() == b"127.0.0.1"
            )
            if not versions:
                found.append(f"{name}: an address: {match.group()!r}")
    assert not found


def test_the_patterns_find_what_they_are_for() -> None:
    secrets = (
        b"see /home/alice/x", b"/root/y", b"/Users/bob/z", b"to bob@lab.example.org", b"/tmp/runner-5/x",
        b"node7.internal", b"ip-10-0-0-1", b"hf_" + b"a" * 30,
    )  # fmt: skip
    for secret in secrets:
        assert any(pattern.search(secret) for pattern in _PRIVATE.values()), secret
    for harmless in (
        b"/home/xxxxx/x",
        b"2025.3.1.0 (build 1)",
        b"/src/kernels/a.cu",
        b"__half@plt",
        b"st.local.u32",
    ):
        assert not any(pattern.search(harmless) for pattern in _PRIVATE.values()), harmless


@FOLDERS
def test_sources_lie_in_a_neutral_folder(folder: Path) -> None:
    for profile in recorded.run_of(folder).profiles:
        files = {
            instruction.file for instruction in profile.instructions if instruction.file
        } | set(profile.sources)
        strays = {file for file in files if not file.startswith("/src/") and "/cuda/" not in file}
        assert not strays, profile.launch.kernel


@FOLDERS
def test_reports_are_whole(folder: Path) -> None:
    for name, data in contents(folder).items():
        if ".ncu-rep" in name:
            frame = framing.parse(data)
            assert frame.problem == "", name
            assert frame.declared_launches > 0, name


@pytest.mark.slow
@FOLDERS
def test_what_is_kept_of_the_reports_is_what_they_hold(folder: Path) -> None:
    assert recorded.is_current(folder), "run `make docs`, which reads the reports again"


@FOLDERS
def test_what_is_kept_of_addresses_is_of_this_code(folder: Path) -> None:
    source, kept = parsed.kept_answers(folder)
    assert source == addresses.source(), "run `make docs`, which computes it again"
    assert kept


@pytest.mark.slow
@FOLDERS
def test_what_is_kept_of_addresses_is_what_is_computed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = recorded.run_of(folder).profiles
    monkeypatch.setattr(addresses, "KEPT", {})
    addresses.answer.cache_clear()
    assert parsed.kept_answers(folder)[1] == parsed.answers(profiles)


@FOLDERS
def test_provenance_is_complete(folder: Path) -> None:
    run = recorded.run_of(folder)
    manifest = store.load_manifest(folder)
    for label in (
        "GPU",
        "Driver",
        "CUDA driver API",
        "CUDA runtime",
        "Clocks",
        "Compiler",
        "Nsight Compute",
        "ncu-toolkit",
    ):
        assert run.environment.get(label), label
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", run.created)
    assert run.device.name
    assert run.device.sm_count > 0
    if run.profiles:
        command = next(command for command in run.commands if "--set ladder" in command)
        assert command.startswith("ncu "), "no path of the machine it was made on"
        assert "--clock-control none" in command
        assert all(
            part.startswith(("ncu", "--", "python")) or "/" not in part for part in command.split()
        )
        assert run.ceilings.copy
        assert run.ceilings.fp32
    assert set(manifest.report_files) <= {path.name for path in folder.iterdir()}
    assert {path.name for path in folder.iterdir()} <= {
        store.MANIFEST,
        store.PARSED,
        store.TIMINGS,
        store.RULES,
        store.CURVE,
        *manifest.report_files,
    }, "nothing else is shipped"
    assert not [case for case in manifest.cases if case.state == "failed"], (
        "a recording holds no wrong kernels"
    )


@FOLDERS
def test_every_launch_is_complete_and_belongs_to_a_case(folder: Path) -> None:
    run = recorded.run_of(folder)
    broken = [
        f"{p.launch.function}: {p.launch.status}" for p in run.profiles if not p.launch.complete
    ]
    loose = [p.launch.function for p in run.profiles if p.context is None]
    assert (broken, loose) == ([], [])


@FOLDERS
def test_passes(folder: Path) -> None:
    over = {
        f"{label(p)}": p.value("passes")
        for p in recorded.run_of(folder).profiles
        if (p.value("passes") or 99) > MAX_PASSES
    }
    assert not over


def label(profile: Profile) -> str:
    assert profile.context is not None
    return f"{profile.context.rung} at {profile.context.size}"


@FOLDERS
def test_every_rung_of_a_recorded_family_is_there(folder: Path) -> None:
    run = recorded.run_of(folder)
    skipped = {item.what for item in run.skipped}
    profiled = {
        (p.context.family, p.context.rung, p.context.size) for p in run.profiles if p.context
    }
    timed = {(t.family, t.rung) for t in run.timings}
    missing, pending = [], store.pending_rungs()
    for family, sizes in {
        (f, frozenset(s for g, _, s in profiled if g == f)) for f, _, _ in profiled
    }:
        for rung in find_family(family).rungs:
            what = f"{family}/{rung.name}"
            if what in skipped or rung.unsupported_on(run.device.cc):
                continue
            if (family, rung.name) in pending:
                continue
            whole = [
                size
                for size in sizes
                if sum(
                    (family, other.name, size) in profiled for other in find_family(family).rungs
                )
                > len(find_family(family).rungs) / 2
            ]
            missing += [
                f"{what} at {size}"
                for size in whole
                if (family, rung.name, size) not in profiled and f"{what} at {size}" not in skipped
            ]
            if (family, rung.name) not in timed:
                missing.append(f"{what}: no timing")
    assert not missing


@FOLDERS
def test_timings_are_of_verified_runs_and_repeat(folder: Path) -> None:
    for timing in recorded.run_of(folder).timings:
        assert 0 <= timing.verified_worst <= 1, timing.rung
        assert len(timing.times_us) >= 3, timing.rung
        assert min(timing.times_us) > 0, timing.rung
        assert timing.flops > 0 or timing.compulsory_bytes > 0, timing.rung
