"""What a probe reads of a recording. No GPU and no CUPTI; the recorder itself: test_recorder.py."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from click.testing import CliRunner

from ncu_toolkit.base.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.base.model import Device
from ncu_toolkit.base.model.profile import Launch
from ncu_toolkit.base.model.trace import KernelTimes, KernelTrace
from ncu_toolkit.cli import cli, main
from ncu_toolkit.guests.probe import trace
from ncu_toolkit.guests.probe.probed import Probed, answer_of
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.regime import profile_of
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.program.recording import recorder
from ncu_toolkit.program.recording.recorder import FIELDS, KERNEL

#: A kernel's record of CUDA 13.0, with what is read of it.
LAYOUT = numpy.dtype(
    {
        "names": [name for name, _, _ in FIELDS[KERNEL]],
        "formats": [form for _, _, form in FIELDS[KERNEL]],
        "offsets": [at for _, at, _ in FIELDS[KERNEL]],
        "itemsize": 216,
    }
)


def rows(spans: list[tuple[int, int, int]], **values: int) -> Any:
    """Records of (name, start, end) in nanoseconds."""
    made = numpy.zeros(len(spans), LAYOUT)
    for extent in ("gridX", "gridY", "gridZ", "blockY", "blockZ"):
        made[extent] = 1
    made["blockX"], made["registersPerThread"] = 256, 32
    for at, (name, start, end) in enumerate(spans):
        made[at]["name"], made[at]["start"], made[at]["end"] = name, start, end
    for field, value in values.items():
        made[field] = value
    return made


def written(folder: Path, records: Any, names: dict[int, str], ended: bool = True) -> Path:
    """A recording of one process."""
    device = bytearray(184)
    struct.pack_into("<IIII", device, 104, 9, 0, 0, 0)  # compute capability, number
    struct.pack_into("<I", device, 44, 132)
    struct.pack_into("<Q", device, 136, 99)
    (folder / "7.10.records").write_bytes(records.tobytes())
    (folder / "7.8.records").write_bytes(device)
    lines = [f"name {number} {name}" for number, name in {**names, 99: "NVIDIA H200"}.items()]
    lines += ["size 10 216", "size 8 184", *(["ended"] if ended else [])]
    (folder / "7.facts").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_kernels_gaps_and_shapes(tmp_path: Path) -> None:
    launches = [(1, 1000 * at, 1000 * at + 400) for at in range(10)]
    launches += [(2, 20_000, 90_000), (1, 95_000, 95_400)]
    names = {1: "_Z3fooIfEvPf", 2: "big"}
    found = trace.read(written(tmp_path, rows(launches, gridX=4096), names))
    assert [(kernel.launch.function, kernel.launches) for kernel in found.kernels] == [
        ("big", 1),
        ("foo<float>", 11),
    ]
    assert found.kernels[0].median_us == pytest.approx(70.0)
    assert (found.launches, found.span_us) == (12, pytest.approx(95.4))
    assert found.busy_us == pytest.approx(70.0 + 11 * 0.4)
    first = found.gaps[0]
    assert (first.after, first.before, first.times) == ("foo<float>", "big", 1)
    assert first.total_us == pytest.approx(20.0 - 9.4)
    assert found.gap_us == pytest.approx(0.6)


def test_launches_go_to_the_pressure_that_covers_them(tmp_path: Path) -> None:
    ours = rows([(9, 10_000, 20_000), (9, 40_000, 50_000)])
    theirs = rows([(1, at, at + 500) for at in range(0, 60_000, 1000)])
    slices = [
        # All blocks ran from 1 to 9 µs after the record's start; the GPU's clock is 5000 ahead.
        {
            "kind": kind,
            "blocks": 33,
            "multiprocessors": 33,
            "first": begin,
            "last": begin + 1000,
            "finished": begin + 9000,
            "rounds": 8,
        }
        for kind, begin in (("dram", 15_000), ("alone", 45_000))
    ]
    text = "".join(json.dumps(each) + "\n" for each in slices)
    (tmp_path / "7.pressure").write_text(text + '{"kind": "dr', encoding="utf-8")
    # Alone the pressure did 8 rounds in 5 of its 10 µs.
    (tmp_path / "plan").write_text('{"alone": {"dram": 0.0016}}', encoding="utf-8")
    names = {1: "theirs", 9: "pressure_dram"}
    mixed = numpy.zeros(len(theirs) + len(ours), LAYOUT)
    mixed[: len(theirs)], mixed[len(theirs) :] = theirs, ours
    (kernel,) = trace.read(written(tmp_path, mixed, names)).kernels
    counts = {name: len(times) for name, times in kernel.conditions.items()}
    # Of ten launches in each slice the first and the last run while blocks come and go.
    assert counts == {"plain": 40, "dram": 8, "alone": 8}
    # 8 rounds in 9 µs are 0.56 of its speed. The kernel fills half of the slice; in the other half
    # the pressure had all of its speed, so 0.11 is left for that beside the kernel.
    assert set(kernel.rates) == {"dram"}
    assert kernel.rates["dram"] == (pytest.approx(0.11, abs=0.01),)


def test_kernels_that_share_slices_are_told_apart_by_their_parts() -> None:
    """Two kernels in turn: the first takes half of the unit, the second a tenth. In slices that hold
    both in the same parts, neither can be reported."""
    lines, which = numpy.zeros(400, LAYOUT), numpy.arange(400) % 2
    lines["start"] = numpy.arange(400) * 1000
    lines["end"] = lines["start"] + 1000

    def kept(begins: list[int], span: int) -> dict[int, dict[str, float]]:
        windows = []
        for at in begins:
            first = sum(
                max(0, min(e + 1000, at + span) - max(e, at)) for e in range(0, 400_000, 2000)
            )
            lost = (0.5 * first + 0.1 * (span - first)) / span
            windows.append(trace._Slice("dram", at, at, at + span, at + span, 1 - lost))
        return trace._kept(lines, which, windows)

    reported = kept([at * 10_000 + at * 150 for at in range(20)], 2500)
    assert reported[0]["dram"] == pytest.approx(0.5, abs=0.01)
    assert reported[1]["dram"] == pytest.approx(0.9, abs=0.01)
    assert kept([at * 10_000 for at in range(20)], 4000) == {}


def test_a_killed_program_and_two_gpus_are_said(tmp_path: Path) -> None:
    both = rows([(1, 0, 9000), (1, 10_000, 12_000)])
    both["deviceId"] = [0, 1]
    folder = written(tmp_path, both, {1: "a"}, ended=False)
    found = trace.read(folder)
    assert found.launches == 1
    assert "ended from outside" in found.notes[0]
    assert "2 GPUs or processes" in found.notes[1]


def test_a_small_grid_is_found_without_counters(tmp_path: Path) -> None:
    found = trace.read(written(tmp_path, rows([(1, 0, 480_000)], gridX=16), {1: "few"}))
    verdict = diagnose(profile_of(found.kernels[0], found.device))
    assert verdict.primary.bottleneck == "grid-too-small"
    (card,) = answer_of(found, [Probed(verdict)], top=3).cards
    assert "16 blocks for 132 SMs" in card.summary
    assert card.shape.startswith("grid 16, block 256, 32 registers, theoretical occupancy 100")
    assert card.shape.endswith("0.0152 waves")
    assert card.missing.startswith("Measured without counters")


@pytest.mark.parametrize(
    ("file", "text", "error", "words"),
    [
        ("", "", UsageProblem, "did not use CUDA"),
        ("1.facts", "ended\n", UsageProblem, "launched no kernel"),
        ("1.facts", "failed CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\n", EnvironmentProblem, "may not"),
        ("1.facts", "failed CUPTI_ERROR_NOT_INITIALIZED\n", EnvironmentProblem, "too old"),
        ("1.facts", "failed something else\n", EnvironmentProblem, "something else"),
    ],
)
def test_nothing_recorded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    text: str,
    error: type[Exception],
    words: str,
) -> None:
    monkeypatch.setattr(cuda, "has_driver", lambda: True)
    if file:
        (tmp_path / file).write_text(text)
    with pytest.raises(error, match=words):
        trace.read(tmp_path)


def test_the_program_keeps_its_output_and_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The program's own sitecustomize still runs, and experiments that fail disturb nothing."""
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(recorder, "built", lambda: tmp_path / "recorder.so")
    monkeypatch.setattr(cuda, "has_driver", lambda: True)
    probe = tmp_path / "probe"
    probe.mkdir()
    words = "import sys, time; print(sys.argv); time.sleep(0.3); sys.exit(7)"
    code = trace.run([sys.executable, "-c", words, "x"], probe, {"root": str(tmp_path)})
    assert code == 7
    assert capfd.readouterr().out.splitlines() == ["theirs", "['-c', 'x']"]
    (slices,) = probe.glob("*.pressure")
    assert "no experiments: " in slices.read_text()
    with pytest.raises(UsageProblem, match="did not use CUDA"):
        trace.read(probe)


def test_the_command_names_what_is_missing() -> None:
    ended = CliRunner().invoke(cli, ["probe"])
    assert isinstance(ended.exception, UsageProblem)
    ended = CliRunner().invoke(cli, ["probe", "--", "./there-is-none"])
    assert "there is no program" in str(ended.exception)


def test_probe_takes_it_for_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = tuple(
        KernelTrace(
            Launch(f"_Z{name}", f"void {name}<float>(float*)", (64, 1, 1), (256, 1, 1)),
            3,
            30.0,
            10.0,
            9.0,
            11.0,
        )
        for name in ("gemm", "copy", "gemm_2")
    )
    found = KernelTimes(Device("GPU", (9, 0), sm_count=132), kernels, 9, 90.0, 100.0)
    monkeypatch.setattr(trace, "run", lambda *_: 0)
    monkeypatch.setattr(trace, "read", lambda _: found)
    with pytest.raises(SystemExit) as ended:
        main(["probe", "-k", "gemm", "--", "true"])
    shown = capsys.readouterr().out
    assert not ended.value.code
    assert "gemm_2" in shown
    assert "copy" not in shown
    with pytest.raises(SystemExit) as ended:
        main(["probe", "-k", "none", "--", "true"])
    assert ended.value.code == 2
    assert "no kernel of the program matches --kernel 'none'" in capsys.readouterr().err
