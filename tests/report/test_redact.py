"""redact: nothing private is left, and the same figures come back."""

from __future__ import annotations

from pathlib import Path

import pytest
import report_files

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import InputProblem, UsageProblem
from ncu_toolkit.kernel.report import framing, reader, redact, scrub

CORPUS = report_files.recorded.ROOT.parent / "shared" / "corpus"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording's first launches, with the source moved into somebody's home folder: as many
    bytes, so that the framing stays."""
    data = report_files.first_launches(2)
    path = tmp_path_factory.mktemp("private") / "in.ncu-rep"
    assert data.count(b"/src/kernels/gemm_fp32") > 1
    path.write_bytes(
        data.replace(b"/src/kernels/gemm_fp32", b"/home/alice.b/my1/proj").replace(
            b"/usr/bin/python3.12", b"/home/alice.b/bin/x"
        )
    )
    return path


def test_private_text_goes_and_figures_stay(source: Path, tmp_path: Path) -> None:
    before = source.read_bytes()
    assert b"alice.b" in before
    done = redact.redact(source, tmp_path / "out.ncu-rep")
    after = done.path.read_bytes()
    assert len(after) == len(before)
    for gone in (b"alice", b"/home/", b"/proj/"):
        assert gone not in after
    assert b"127.0.0.1" in after
    assert scrub.leftovers(after, paths=True) == []
    old, new = reader.load_report(source).profiles, reader.load_report(done.path).profiles
    assert list(map(redact.figures, old)) == list(map(redact.figures, new))
    names = {Path(name).name for profile in new for name in profile.sources}
    assert names == {Path(name).name for profile in old for name in profile.sources}, (
        "file names stay, folders go"
    )
    joined = {row.file for profile in new for row in profile.instructions if row.file}
    assert joined & {name for profile in new for name in profile.sources}, (
        "instructions still lead to their source"
    )
    assert any("One thread" in text for profile in new for text in profile.sources.values())


@pytest.mark.parametrize(
    "suffix",
    [
        files.REPORT_SUFFIXES[0],
        *(pytest.param(each, marks=pytest.mark.slow) for each in files.REPORT_SUFFIXES[1:]),
    ],
)
def test_source_goes_when_asked(source: Path, tmp_path: Path, suffix: str) -> None:
    packed = tmp_path / f"in{suffix}"
    packed.write_bytes(files.packed(packed.name, framing.read_bytes(source)))
    done = redact.redact(packed, tmp_path / f"out{suffix}", remove_source=True, names=["gemm_fp32"])
    assert done.path.read_bytes()[:4] == packed.read_bytes()[:4], "it is packed as its name says"
    assert done.blanked_bytes > 1000
    texts = [
        text
        for profile in reader.load_report(done.path).profiles
        for text in profile.sources.values()
    ]
    assert all(not text.strip() for text in texts)
    data = framing.read_bytes(done.path)
    assert b"One thread" not in data
    assert b"gemm_fp32" not in data


@pytest.mark.parametrize("name", [pytest.param("coalesced", marks=pytest.mark.slow), "NVIDIA"])
def test_a_name_goes_from_kernels_and_gpus_too(source: Path, tmp_path: Path, name: str) -> None:
    """It becomes the same other name everywhere, so the report still agrees with itself, and every
    figure stays."""
    done = redact.redact(source, tmp_path / "out.ncu-rep", names=[name])
    assert name.encode() not in done.path.read_bytes()
    old, new = reader.load_report(source).profiles, reader.load_report(done.path).profiles
    shown = [(profile.launch.kernel, profile.device.name) for profile in old]
    assert any(name in text for pair in shown for text in pair)
    other = "x" * len(name)
    assert [(profile.launch.kernel, profile.device.name) for profile in new] == [
        tuple(t.replace(name, other) for t in pair) for pair in shown
    ]
    assert [profile.readings for profile in new] == [profile.readings for profile in old]


def test_names_that_figures_hang_on_are_refused(source: Path, tmp_path: Path) -> None:
    for name, says in (
        ("time_duration", "'?time_duration"),
        ("__", "holds '__'|would change"),
    ):
        with pytest.raises(InputProblem, match=says) as refused:
            redact.redact(source, tmp_path / "out.ncu-rep", names=[name])
        assert "report this" not in str(refused.value), "it is the name, no defect"
        assert not (tmp_path / "out.ncu-rep").exists()
    for nothing in ("", "  ", "xx", "/"):
        with pytest.raises(UsageProblem, match="nothing that could be replaced"):
            redact.redact(source, tmp_path / "out.ncu-rep", names=[nothing])


def test_nothing_is_overwritten(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "there.ncu-rep"
    target.write_bytes(b"mine")
    with pytest.raises(UsageProblem, match="exists"):
        redact.redact(source, target)
    assert target.read_bytes() == b"mine"
    with pytest.raises(UsageProblem, match="named like"):
        redact.redact(source, tmp_path / "out.txt")


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the folder of real reports is not here")
@pytest.mark.parametrize("name", sorted(path.stem for path in CORPUS.glob("*.ncu-rep")))
def test_real_reports(name: str, tmp_path: Path) -> None:
    done = redact.redact(CORPUS / f"{name}.ncu-rep", tmp_path / "out.ncu-rep", remove_source=True)
    data = done.path.read_bytes()
    frame = framing.parse(data)
    assert not frame.problem
    for word in (b"/home/", b"/root/", b"/Users/"):
        assert word not in data
