"""What is believed of a report, and why: contradictions inside it, checksums beside it, and some
hundreds of mutations (the rest: mutation.py)."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import mutation
import pytest
import report_files

from ncu_toolkit.core.errors import InputProblem, ToolkitError
from ncu_toolkit.metrics import registry
from ncu_toolkit.report import checksums, framing, integrity, messages, reader
from ncu_toolkit.runs import store

CORPUS = report_files.recorded.ROOT.parent / "shared" / "corpus"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.ncu-rep"
    path.write_bytes(report_files.first_launches(2))
    return path


def inspected(data: bytes) -> integrity.Inspection:
    frame = framing.parse(data)
    assert not frame.problem, "the change is meant to keep the framing whole"
    return integrity.inspect(data, frame)


def result_at(data: bytes, index: int = 0) -> tuple[int, int]:
    return [place for block in framing.parse(data).blocks for place in block.results][index]


def test_a_whole_report_agrees_with_itself(small: Path) -> None:
    assert inspected(small.read_bytes()) == integrity.Inspection()


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the folder of real reports is not here")
def test_no_real_report_is_accused() -> None:
    for path in sorted(CORPUS.glob("*.ncu-rep")):
        assert inspected(path.read_bytes()) == integrity.Inspection(), path.name
        assert not [
            p.launch.status
            for p in reader.load_profiles(path)
            if p.launch.status.startswith("damaged")
        ], path.name


def test_a_recording_is_not_accused() -> None:
    assert inspected(report_files.recorded.report_bytes()) == integrity.Inspection()


def value_of(data: bytes, metric: bytes, index: int = 0) -> tuple[int, int]:
    """Where a launch's double value of a metric stands: offset and length of the 8 bytes."""
    names = messages.metric_names(framing.parse(data))
    offset, length = result_at(data, index)
    at = offset
    for number, raw, value in report_files.raw_fields(data[offset : offset + length]):
        if number == messages.RESULT_METRIC and isinstance(value, bytes):
            parts = {n: v for n, _, v in report_files.raw_fields(value)}
            if names[int(parts[1])] == metric:  # type: ignore[arg-type]
                inner = parts[2]
                assert isinstance(inner, bytes)
                assert inner[0] == 0x19, "a double"
                start = data.index(inner, at) + 1
                return start, 8
        at += len(raw)
    raise AssertionError(metric)


@pytest.mark.parametrize(
    "metric",
    [
        b"dram__bytes.sum",
        b"smsp__average_warp_latency_per_inst_issued.ratio",
        b"sm__warps_active.avg.pct_of_peak_sustained_active",
        b"lts__t_sectors.avg",
    ],
)
@pytest.mark.parametrize("bit", [12, 30, 50, 61])
def test_a_flipped_bit_of_a_figure_is_seen(
    small: Path, tmp_path: Path, metric: bytes, bit: int
) -> None:
    data = bytearray(small.read_bytes())
    start, _ = value_of(bytes(data), metric)
    data[start + bit // 8] ^= 1 << bit % 8
    found = inspected(bytes(data))
    assert list(found.launches) == [0]
    path = tmp_path / "flipped.ncu-rep"
    path.write_bytes(data)
    first, second = reader.load_profiles(path)
    assert first.launch.status.startswith("damaged: ")
    assert second.launch.complete, "the other launch is as good as before"


def test_counts_of_instructions_are_held_against_their_total(small: Path, tmp_path: Path) -> None:
    data = bytearray(small.read_bytes())
    names = messages.metric_names(framing.parse(bytes(data)))
    which = names.index(b"inst_executed")
    offset, length = result_at(bytes(data))
    for number, _, value in report_files.raw_fields(bytes(data[offset : offset + length])):
        if (
            number == messages.RESULT_METRIC
            and isinstance(value, bytes)
            and next(report_files.raw_fields(value))[2] == which
        ):
            # a small count of some instruction: its last byte, which holds its high bits
            at = bytes(data).index(value, offset) + len(value) - 5
            data[at] ^= 0x01
            break
    path = tmp_path / "counts.ncu-rep"
    path.write_bytes(data)
    try:
        status = reader.load_profiles(path)[0].launch.status
    except ToolkitError as error:
        status = f"damaged: {error}"
    assert status.startswith("damaged")


def test_whole_blocks(small: Path) -> None:
    data = small.read_bytes()
    frame = framing.parse(data)
    edges = [*(block.offset for block in frame.blocks), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    head = data[: edges[0]]
    of_results = [i for i, block in enumerate(frame.blocks) if block.results]
    of_sources = [i for i, block in enumerate(frame.blocks) if block.sources]
    twice = [*pieces[: of_results[1] + 1], pieces[of_results[1]], *pieces[of_results[1] + 1 :]]
    assert "in the file twice" in inspected(head + b"".join(twice)).launches[2]
    swapped = list(pieces)
    swapped[of_results[0]], swapped[of_results[1]] = swapped[of_results[1]], swapped[of_results[0]]
    assert inspected(head + b"".join(swapped)) != integrity.Inspection()
    no_code = [piece for i, piece in enumerate(pieces) if i != of_sources[1]]
    assert (
        "the code it refers to is not in the file"
        in inspected(head + b"".join(no_code)).launches[1]
    )
    no_launch = [piece for i, piece in enumerate(pieces) if i != of_results[1]]
    assert "belong to no launch" in inspected(head + b"".join(no_launch)).problems[0]


def test_names_must_fit(small: Path) -> None:
    data = small.read_bytes()
    renamed = data.replace(b"launch__grid_size", b"launch__grjd_size")
    assert "launch__grid_size" in inspected(renamed).problems[0]
    other = report_files.with_texts(data, lambda name: b"naivf" if name == b"naive" else None)
    assert "no function of its name" in inspected(other).launches[0]


def test_an_empty_report_is_refused(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    first = next(block for block in framing.parse(data).blocks if block.results)
    path = tmp_path / "none.ncu-rep"
    path.write_bytes(data[: first.offset])
    with pytest.raises(InputProblem, match="holds no launches"):
        reader.load_report(path)


def test_a_newer_format_is_not_called_damaged(small: Path) -> None:
    data = small.read_bytes()
    frame = framing.parse(data)
    offset, length = frame.blocks[-1].results[0] if frame.blocks[-1].results else result_at(data)
    odd = data[:offset] + b"\x07" * 4 + data[offset + 4 :]  # wire type 7 does not exist
    assert "cannot be read" in integrity.inspect(odd, frame, "2025.3.1").launches.popitem()[1]  # type: ignore[attr-defined]
    assert integrity.inspect(odd, frame, "2031.1.0") == integrity.Inspection()
    assert length


# ---- checksums


def test_side_files(small: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.ncu-rep"
    shutil.copyfile(small, path)
    assert checksums.verify(path) == checksums.Verdict()
    side = checksums.write(path)
    assert checksums.verify(path).source == "r.ncu-rep.sha256"
    assert reader.load_report(path).checksum == "r.ncu-rep.sha256"
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--quiet", side.name], cwd=tmp_path, check=True)
    data = bytearray(path.read_bytes())
    at = data.index(b"One thread com")  # source text: nothing in the file itself protects it
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        InputProblem, match=r"its SHA-256 differs from the one in r\.ncu-rep\.sha256"
    ):
        reader.load_report(path)
    assert "SHA-256" in reader.load_report(path, allow_partial=True).damage
    side.write_text("not a sum\n")
    assert "does not name it" in checksums.verify(path).problem


def test_manifests_carry_checksums(small: Path, tmp_path: Path) -> None:
    shutil.copyfile(small, tmp_path / "profile.ncu-rep")
    manifest = store.Manifest(
        "id", "t", "2025-01-01T00:00:00Z", "0", None, {}, report_files=("profile.ncu-rep",)
    )
    store.save(tmp_path, manifest, ())
    assert json.loads((tmp_path / "run.json").read_text())["data"]["checksums"] == {
        "profile.ncu-rep": hashlib.sha256(small.read_bytes()).hexdigest()
    }
    assert checksums.verify(tmp_path / "profile.ncu-rep").source == "run.json"
    (tmp_path / "profile.ncu-rep").write_bytes(small.read_bytes() + b"\0")
    assert "run.json" in checksums.verify(tmp_path / "profile.ncu-rep").problem


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text[:20],
        lambda text: "",
        lambda text: re.sub(r'": "[0-9a-f]{64}"', '": 5', text),
        lambda text: re.sub(r'": "[0-9a-f]{64}"', '": "0"', text),
        lambda text: re.sub(r'"checksums": \{[^}]*\}', '"checksums": []', text),
    ],
)
def test_a_broken_manifest_does_not_switch_its_checksums_off(
    small: Path, tmp_path: Path, change: Callable[[str], str]
) -> None:
    path = tmp_path / "profile.ncu-rep"
    shutil.copyfile(small, path)
    manifest = store.Manifest("id", "t", "2025-01-01", "0", None, {}, report_files=(path.name,))
    store.save(tmp_path, manifest, ())
    text = (tmp_path / "run.json").read_text()
    assert change(text) != text
    (tmp_path / "run.json").write_text(change(text))
    assert "run.json" in checksums.verify(path).problem
    with pytest.raises(InputProblem, match=r"run\.json"):
        reader.load_report(path)


@pytest.mark.parametrize("text", ["not JSON", '{"name": "other"}', "[1, 2", "\x00\x01"])
def test_the_run_json_of_other_programs_is_no_concern(
    small: Path, tmp_path: Path, text: str
) -> None:
    shutil.copyfile(small, tmp_path / "r.ncu-rep")
    (tmp_path / "run.json").write_text(text)
    assert checksums.verify(tmp_path / "r.ncu-rep") == checksums.Verdict()


@pytest.mark.parametrize("name", ["run.json", "r.ncu-rep.sha256"])
def test_sums_are_read_from_files_alone(small: Path, tmp_path: Path, name: str) -> None:
    shutil.copyfile(small, tmp_path / "r.ncu-rep")
    os.mkfifo(tmp_path / name)
    assert f"{name}' is no regular file" in checksums.verify(tmp_path / "r.ncu-rep").problem
    (tmp_path / name).unlink()
    (tmp_path / "r.ncu-rep.sha256").write_bytes(bytes(2 << 20))
    assert "holds more than 1048576 bytes" in checksums.verify(tmp_path / "r.ncu-rep").problem


def test_a_sum_beside_a_name_that_is_no_text(small: Path, tmp_path: Path) -> None:
    path = tmp_path / "na\udcffme.ncu-rep"
    shutil.copyfile(small, path)
    checksums.write(path)
    assert checksums.verify(path).source == "na\udcffme.ncu-rep.sha256"


# ---- mutations


@pytest.fixture(scope="module")
def sources(small: Path) -> list[Path]:
    return [
        small,
        *(
            [path for path in sorted(CORPUS.glob("*.ncu-rep")) if path.stat().st_size < 400_000]
            if CORPUS.is_dir()
            else []
        ),
    ]


def test_no_mutation_is_silent_beside_a_checksum(sources: list[Path]) -> None:
    tally = mutation.campaign(sources, 200, 1, with_checksum=True)
    assert sum(tally.outcomes.values()) == 200
    assert not tally.silent
    assert not tally.broken
    assert tally.outcomes["reported"] > 150


#: Parts whose bytes mean something by themselves: text and code, where the file holds nothing to
#: compare with.
UNPROTECTED = {
    "source text",
    "rule messages",
    "NVTX",
    "names",
    "machine code",
    "block of results",
    "other fields",
}


def test_without_a_checksum_figures_are_hardly_ever_changed_in_silence(sources: list[Path]) -> None:
    tally = mutation.campaign(sources, 150, 7, with_checksum=False)
    protected = [item for item in tally.silent if item[2].part not in UNPROTECTED]
    assert len(protected) <= 4, protected
    assert not tally.broken
    assert tally.outcomes["reported"] > 60


def test_mutations_are_the_same_for_the_same_seed(small: Path) -> None:
    data = small.read_bytes()
    stretches = mutation.parts(data)
    assert mutation.mutate(data, random.Random(3), stretches) == mutation.mutate(
        data, random.Random(3), stretches
    )
    ends = [end for _, end, _ in stretches]
    assert all(start >= end for (start, _, _), end in zip(stretches[1:], ends, strict=False)), (
        "parts do not overlap"
    )


@pytest.mark.parametrize(
    ("average", "total", "percentage", "agree"),
    [
        (2.2944434120072152, 2.294443412007231, True, True),
        (2.2944434120072152, 2.294443412107231, True, False),
        (97.70555658799279, 97.70555658799277, True, True),
        (1.0, 132.0, False, True),
        (1.0, 132.5, False, False),
    ],
    ids=[
        "what is left of 100",
        "changed",
        "a large part",
        "a sum over 132 units",
        "no whole number of units",
    ],
)
def test_averages_and_sums(average: float, total: float, percentage: bool, agree: bool) -> None:
    """The first pair stands in a stock report of a kernel that leaves 2.3% of the issue slots
    idle."""
    assert integrity._agree(average, total, percentage) is agree


def test_other_matrix_types_are_no_misspelt_names() -> None:
    name = registry.REGISTRY["hmma_pipe_active"].ncu[-1].encode()
    assert not list(integrity._name_table([name.replace(b"hmma", b"dmma")]))
    assert list(integrity._name_table([name.replace(b"hmma", b"hmna")]))
