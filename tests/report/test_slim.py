"""Reports without the machine code that no launch ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncu_toolkit.base.core import files
from ncu_toolkit.kernel.report import cubin, framing, messages, reader, slim
from ncu_toolkit.kernel.report.redact import figures
from ncu_toolkit.program.recording import program_run

#: 23 kernels in a module, 18 launches.
REPORT = Path(__file__).parents[1] / "origins" / "reports" / "principles-full-2.ncu-rep.xz"


@pytest.fixture(scope="module")
def data() -> bytes:
    return files.read_bytes(REPORT)


@pytest.fixture
def module(data: bytes) -> bytes:
    return messages.sources(framing.parse(data))[0].code


def texts(elf: bytes) -> dict[bytes, bytes]:
    return {
        each.name: elf[each.start : each.start + each.size]
        for each in messages.elf_sections(elf)
        if each.name.startswith(b".text.")
    }


def test_a_report_reads_the_same(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slim, "_LARGE", 0)
    made = slim.slim(data)
    assert len(made) < len(data)
    assert framing.parse(made).problem == ""
    path = tmp_path / "slim.ncu-rep"
    path.write_bytes(made)
    before, after = reader.load_report(REPORT), reader.load_report(path)
    assert not after.damage
    for old, new in zip(before.profiles, after.profiles, strict=True):
        assert figures(old) == figures(new)
        assert old.instructions == new.instructions


def test_a_module_keeps_the_kernels_that_were_launched(module: bytes) -> None:
    whole = texts(module)
    kept = sorted(whole)[3]
    name = kept.removeprefix(b".text.")
    made = slim._module(module, {name})
    assert texts(made) == {kept: whole[kept]}
    assert len(made) < len(module)
    assert cubin.read(made).problem == ""
    assert cubin.read(made).kernels[name] == cubin.read(module).kernels[name]
    assert slim._module(made, {name}) == made


def test_what_cannot_be_followed_stays(data: bytes, module: bytes) -> None:
    torn = module[:-400]
    assert slim._module(torn, set()) == torn
    assert slim._module(b"no module", set()) == b"no module"
    for broken in (data[:-100], b"", b"NVR\0"):
        assert slim.slim(broken) == broken


def test_a_run_keeps_a_report_that_would_read_otherwise(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "profile.ncu-rep"
    report.write_bytes(data)
    monkeypatch.setattr(program_run, "slim", lambda whole: whole[:-100])
    assert program_run._slim(report) == ()
    assert report.read_bytes() == data
    monkeypatch.setattr(slim, "_LARGE", 0)
    monkeypatch.setattr(program_run, "slim", slim.slim)
    (note,) = program_run._slim(report)
    assert "kept without the code of kernels" in note
    assert len(report.read_bytes()) < len(data)
    assert [path.name for path in tmp_path.iterdir()] == ["profile.ncu-rep"]
