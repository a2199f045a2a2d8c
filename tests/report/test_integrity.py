"""The three states of a report: unreadable, incomplete, contradictory; checksums beside it, and
some hundreds of mutations (the rest: mutation.py)."""

from __future__ import annotations

import hashlib
import itertools
import json
import lzma
import os
import random
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import mutation
import pytest
import report_files
from hypothesis import given, settings
from hypothesis import strategies as st

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.report import cubin, framing, integrity, messages, reader
from ncu_toolkit.kernel.report.messages import ELF_MAGIC, elf_sections
from ncu_toolkit.kernel.runs import store

SHARED = report_files.recorded.ROOT.parent / "shared"
CORPUS, REFUSED = SHARED / "corpus", SHARED / "refused"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.ncu-rep"
    path.write_bytes(report_files.first_launches(2))
    return path


def inspected(data: bytes) -> integrity.Inspection:
    frame = framing.parse(data)
    assert not frame.problem, "the change is meant to keep the framing whole"
    return integrity.inspect(frame, messages.sources(frame), reader.ncu_version_in(data))


def loaded(folder: Path, data: bytes) -> reader.LoadedReport:
    path = folder / "changed.ncu-rep"
    path.write_bytes(data)
    return reader.load_report(path)


def pieces_of(data: bytes) -> tuple[bytes, list[bytes], framing.Framing]:
    """What is before the first block, the blocks' bytes, and the framing."""
    frame = framing.parse(data)
    edges = [*(block.offset for block in frame.blocks), len(data)]
    return data[: edges[0]], [data[a:b] for a, b in itertools.pairwise(edges)], frame


def test_a_whole_report_agrees_with_itself(small: Path) -> None:
    assert inspected(small.read_bytes()) == integrity.Inspection()


def test_a_recording_is_not_accused() -> None:
    assert inspected(report_files.recorded.report_bytes()) == integrity.Inspection()


REAL = sorted((*CORPUS.glob("*.ncu-rep"), *REFUSED.glob("*.ncu-rep")))


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.skipif(not REAL, reason="the folders of real reports are not here")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_no_real_report_is_accused(path: Path) -> None:
    """Two processes in one file, and rows that do not disassemble, among others."""
    report = reader.load_report(path)
    assert (report.damage, report.missing) == ("", "")
    assert not any(profile.contradictions for profile in report.profiles)
    for profile in report.profiles:
        assert profile.launch.status.partition(":")[0] in ("complete", "incomplete")


ORIGIN_REPORTS = sorted(
    (report_files.recorded.ROOT / "tests" / "origins" / "reports").glob("*.ncu-rep.xz")
)


@pytest.mark.slow
@pytest.mark.skipif(not ORIGIN_REPORTS, reason="no reports of other origins were made yet")
def test_no_report_of_any_origin_is_accused() -> None:
    for path in ORIGIN_REPORTS:
        assert inspected(framing.read_bytes(path)) == integrity.Inspection(), path.name


# ---- origins of whole files that an invariant must not forbid


def in_threads(message: bytes) -> bytes:
    """As ncu 2020.2 writes a launch: its grid in threads."""
    values = {10: {}, 11: {}}  # type: dict[int, dict[int, int]]
    for number, _, value in report_files.raw_fields(message):
        if number in values and isinstance(value, bytes):
            values[number] = {n: v for n, _, v in report_files.raw_fields(value)}  # type: ignore[misc]
    assert values[10]
    assert values[11]
    grid = b"".join(
        report_files.varint(axis << 3) + report_files.varint(blocks * values[11].get(axis, 1))
        for axis, blocks in values[10].items()
    )
    return b"".join(
        report_files._field(10, grid) if number == 10 else raw
        for number, raw, _ in report_files.raw_fields(message)
    )


def of_another_process(message: bytes) -> bytes:
    """As on Windows, and where a child process launches: not the process of the block's header."""
    return b"".join(
        report_files.varint(1 << 3) + report_files.varint(4_242) if number == 1 else raw
        for number, raw, _ in report_files.raw_fields(message)
    )


ORIGINS = {
    "Windows or a child process": of_another_process,
    "ncu 2020.2": in_threads,
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_whole_files_of_other_origins(small: Path, tmp_path: Path, origin: str) -> None:
    before = reader.load_report(small).profiles
    changed = report_files._with_results(small.read_bytes(), ORIGINS[origin])
    assert changed != small.read_bytes()
    report = loaded(tmp_path, changed)
    assert (report.damage, report.missing) == ("", "")
    for old, new in zip(before, report.profiles, strict=True):
        assert (new.launch.status, new.contradictions) == ("complete", {})
        assert new.launch.grid == old.launch.grid
        assert diagnose(new) == diagnose(old)


def test_launches_of_two_processes_interleave(small: Path, tmp_path: Path) -> None:
    """Two programs at once: launches by turns, the second process's clock behind the first's."""
    turn = itertools.count()

    def change(message: bytes) -> bytes:
        return of_another_process(message) if next(turn) % 2 else message

    data = report_files._with_results(report_files.first_launches(4), change)
    head, pieces, frame = pieces_of(data)
    at = [index for index, block in enumerate(frame.blocks) if block.results]
    pieces[at[1]], pieces[at[2]] = pieces[at[2]], pieces[at[1]]
    report = loaded(tmp_path, head + b"".join(pieces))
    assert [profile.launch.status for profile in report.profiles] == ["complete"] * 4
    assert not any(profile.contradictions for profile in report.profiles)


# ---- unreadable


def test_a_report_without_launches_is_unreadable(small: Path, tmp_path: Path) -> None:
    head, pieces, frame = pieces_of(small.read_bytes())
    first = next(index for index, block in enumerate(frame.blocks) if block.results)
    for kept in range(1, first + 1):
        with pytest.raises(InputProblem, match="has no launches"):
            loaded(tmp_path, head + b"".join(pieces[:kept]))


def test_bytes_inside_a_launch_that_make_no_sense_are_damage(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    offset = next(block.results[0][0] for block in framing.parse(data).blocks if block.results)
    odd = data[:offset] + b"\x07" * 4 + data[offset + 4 :]  # wire type 7 does not exist
    with pytest.raises(InputProblem, match=f"is damaged at offset {offset}, in launch 0"):
        loaded(tmp_path, odd)
    (tmp_path / "changed.ncu-rep").write_bytes(odd)
    partly = reader.load_report(tmp_path / "changed.ncu-rep", allow_partial=True)
    assert f"at offset {offset}" in partly.damage


def test_a_newer_format_is_not_called_damaged(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    newer = re.sub(rb"2025\.\d\.\d(?=\.\d \(build)", b"2031.1.0", data)
    assert reader.ncu_version_in(newer) == "2031.1.0"
    assert [profile.launch.status for profile in loaded(tmp_path, newer).profiles] == [
        "complete",
        "complete",
    ]
    offset = next(block.results[0][0] for block in framing.parse(newer).blocks if block.results)
    odd = newer[:offset] + b"\x07" * 4 + newer[offset + 4 :]
    assert inspected(odd).damage == ""


# ---- incomplete


@pytest.mark.slow
def test_a_file_cut_at_a_block(small: Path, tmp_path: Path) -> None:
    """Every cut before the end of the session data is named; so is one after a kernel's code. What
    is there is read. A cut after a whole launch leaves a whole file."""
    head, pieces, frame = pieces_of(report_files.first_launches(3))
    session = next(i for i, piece in enumerate(pieces) if b"(build " in piece)
    seen = set()
    for kept in range(1, len(pieces)):
        launches = sum(len(block.results) for block in frame.blocks[:kept])
        if not launches:
            continue
        report = loaded(tmp_path, head + b"".join(pieces[:kept]))
        assert len(report.profiles) == launches
        if kept <= session:
            assert "names no ncu version" in report.missing
        elif frame.blocks[kept - 1].sources:
            assert "the code of a kernel that no launch ran" in report.missing
        else:
            assert report.missing == ""
        seen.add(report.missing)
    assert len(seen) == 3


# ---- contradictory


def doubled(data: bytes, metric: bytes) -> bytes:
    """The report with a figure of its first launch twice as large."""
    for seed in range(100):
        changed, where = mutation.double_a_figure(data, random.Random(seed), metric)
        first = next(block.results[0] for block in framing.parse(data).blocks if block.results)
        if where.offset < sum(first):
            return changed
    raise AssertionError(metric)


def test_a_doubled_figure_is_named_and_the_verdict_stands(small: Path, tmp_path: Path) -> None:
    before = reader.load_report(small).profiles
    report = loaded(tmp_path, doubled(small.read_bytes(), b"dram__bytes_read.sum"))
    first, second = report.profiles
    assert report.missing == ""
    assert first.launch.complete
    assert second.contradictions == {}
    assert diagnose(second) == diagnose(before[1]), "the other launch is as good as before"
    sentence = next(text for text in first.contradictions if text.startswith("dram__bytes.sum is"))
    assert "dram__bytes_read.sum and dram__bytes_write.sum give" in sentence
    assert "dram_read_bytes" in first.contradictions[sentence]
    old, new = diagnose(before[0]), diagnose(first)
    assert new.primary.bottleneck != "unknown"
    assert f"Contradictory: {sentence}." in new.notes
    kept = {finding.bottleneck: finding for finding in old.findings}
    lowered = False
    for finding in new.findings:
        used = {name for fact in finding.evidence for name in figures.origins(fact.metric)}
        if used & {"dram_read_bytes", "dram_write_bytes"}:
            assert "cannot be true: dram__bytes" in finding.summary
            assert finding.confidence != "high"
            lowered = True
        elif finding.bottleneck in kept:
            assert "contradictory" not in finding.summary
            assert finding.confidence == kept[finding.bottleneck].confidence
    assert lowered, "a rule of this launch uses the bytes that were read"


STOCK = report_files.recorded.ROOT / "tests" / "heldout" / "three" / "h200-stock.ncu-rep.xz"


@pytest.fixture(scope="module")
def stock() -> bytes:
    """The first two launches of a report with rates: the ladders' sections collect none."""
    head, pieces, frame = pieces_of(framing.read_bytes(STOCK))
    at = [index for index, block in enumerate(frame.blocks) if block.sources or block.results]
    second = [index for index in at if frame.blocks[index].results][1]
    following = next(index for index in at if index > second)
    return head + b"".join(pieces[:following])


def test_a_doubled_time_is_named(stock: bytes, tmp_path: Path) -> None:
    (before, *_) = loaded(tmp_path, stock).profiles
    assert before.contradictions == {}
    (first, second) = loaded(tmp_path, doubled(stock, b"gpu__time_duration.sum")).profiles
    ((sentence, names),) = first.contradictions.items()
    assert names == ("duration",)
    assert re.match(
        r"gpu__time_duration\.sum is \d+ ns, and (\S+) / \1\.per_second gives", sentence
    )
    assert second.contradictions == {}
    sure = {"high": 2, "medium": 1, "low": 0}
    kept = {finding.bottleneck: finding for finding in diagnose(before).findings}
    for finding in diagnose(first).findings:
        assert sentence in finding.summary
        if finding.bottleneck in kept:
            assert sure[finding.confidence] <= sure[kept[finding.bottleneck].confidence]
        assert finding.confidence != "high"


@pytest.mark.slow
def test_doubled_figures_that_are_seen(stock: bytes) -> None:
    seen = dict(mutation.every_figure(stock))
    assert seen[b"gpu__time_duration.sum"]
    assert seen[b"dram__bytes_read.sum"]
    assert seen[b"lts__t_sectors.sum"]
    assert 0.3 < sum(seen.values()) / len(seen) < 1


def test_a_doubled_rate_is_named_with_its_figure(stock: bytes) -> None:
    found = inspected(doubled(stock, b"dram__cycles_elapsed.avg.per_second"))
    named = dict(map(reversed, found.contradictions[0].items()))  # type: ignore[arg-type]
    rate = named["dram__cycles_elapsed.avg", "dram_clock"]
    assert rate.startswith("dram__cycles_elapsed.avg is ")
    units = named["dram_clock", "dram__cycles_elapsed.sum.per_second"]
    assert units.startswith("dram__cycles_elapsed.avg.per_second is ")
    assert len(named) == 2, "the time is not accused: other rates fit it"


def test_code_that_is_gone_is_named_and_lowers_the_confidence(small: Path, tmp_path: Path) -> None:
    before = reader.load_report(small).profiles
    head, pieces, frame = pieces_of(small.read_bytes())
    without = [
        piece for piece, block in zip(pieces, frame.blocks, strict=True) if not block.sources
    ]
    report = loaded(tmp_path, head + b"".join(without))
    for old, new in zip(before, report.profiles, strict=True):
        assert new.launch.complete
        assert new.contradictions == {"it names machine code that the file does not contain": ()}
        verdict = diagnose(new).primary
        assert verdict.bottleneck != "unknown"
        assert verdict.confidence != "high"
        assert "does not contain" in verdict.summary
        assert diagnose(old).primary.confidence == "high"


def test_counts_of_instructions_are_compared_with_their_total(small: Path, tmp_path: Path) -> None:
    data = bytearray(small.read_bytes())
    frame = framing.parse(bytes(data))
    which = messages.metric_names(frame).index(b"inst_executed")
    offset, length = next(block.results[0] for block in frame.blocks if block.results)
    for number, _, value in report_files.raw_fields(bytes(data[offset : offset + length])):
        if (
            number == messages.RESULT_METRIC
            and isinstance(value, bytes)
            and next(report_files.raw_fields(value))[2] == which
        ):
            # a small count of some instruction: its last byte, which holds its high bits
            data[bytes(data).index(value, offset) + len(value) - 5] ^= 0x01
            break
    first, second = loaded(tmp_path, bytes(data)).profiles
    assert any("summed over its instructions" in text for text in first.contradictions)
    assert ("executed",) in first.contradictions.values()
    assert second.contradictions == {}


def test_rows_without_text_condemn_nothing(small: Path, tmp_path: Path) -> None:
    """Code that the disassembler does not know: zeros for some instructions."""
    data = bytearray(small.read_bytes())
    at = data.index(b".text.") and data.index(b"\x7fELF")
    (profile, *_) = reader.load_report(small).profiles
    start = _text_section(bytes(data), at)
    data[start + 16 : start + 16 * 4] = b"\xff" * 48
    (first, *_) = loaded(tmp_path, bytes(data)).profiles
    assert [row.sass for row in first.instructions] != [row.sass for row in profile.instructions]
    assert first.launch.complete
    assert first.contradictions == {}


def _text_section(data: bytes, elf: int) -> int:
    """Where the first code of an ELF at offset `elf` starts."""
    (sections,) = struct.unpack_from("<Q", data, elf + 0x28)
    count, names = struct.unpack_from("<HH", data, elf + 0x3C)
    strings = struct.unpack_from("<IIQQQQ", data, elf + sections + 64 * names)[4]
    for index in range(count):
        name, _, _, _, offset, _ = struct.unpack_from("<IIQQQQ", data, elf + sections + 64 * index)
        if data[elf + strings + name :].startswith(b".text."):
            return int(elf + offset)
    raise AssertionError("no code")


# ---- checksums


def beside(path: Path) -> Path:
    """Write a report's checksum beside it, as `sha256sum` does."""
    side = path.with_name(path.name + integrity.SUFFIX)
    side.write_bytes(f"{integrity.digest(path)}  ".encode() + os.fsencode(path.name) + b"\n")
    return side


def test_side_files(small: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.ncu-rep"
    shutil.copyfile(small, path)
    assert integrity.verify(path) == integrity.SumCheck()
    side = beside(path)
    assert integrity.verify(path).source == "r.ncu-rep.sha256"
    assert reader.load_report(path).checksum == "r.ncu-rep.sha256"
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--quiet", side.name], cwd=tmp_path, check=True)
    data = bytearray(path.read_bytes())
    at = data.index(b"One thread com")  # source text: nothing in the file itself protects it
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputProblem, match=r"its SHA-256 is not the one in r\.ncu-rep\.sha256"):
        reader.load_report(path)
    assert "SHA-256" in reader.load_report(path, allow_partial=True).damage
    side.write_text("not a sum\n")
    assert "does not name it" in integrity.verify(path).problem


def test_manifests_carry_checksums(small: Path, tmp_path: Path) -> None:
    shutil.copyfile(small, tmp_path / "profile.ncu-rep")
    manifest = Run("id", "t", "2025-01-01T00:00:00Z", report_files=("profile.ncu-rep",))
    store.save(tmp_path, manifest)
    assert json.loads((tmp_path / "run.json").read_text())["data"]["checksums"] == {
        "profile.ncu-rep": hashlib.sha256(small.read_bytes()).hexdigest()
    }
    assert integrity.verify(tmp_path / "profile.ncu-rep").source == "run.json"
    (tmp_path / "profile.ncu-rep").write_bytes(small.read_bytes() + b"\0")
    assert "run.json" in integrity.verify(tmp_path / "profile.ncu-rep").problem


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
    manifest = Run("id", "t", "2025-01-01", report_files=(path.name,))
    store.save(tmp_path, manifest)
    text = (tmp_path / "run.json").read_text()
    assert change(text) != text
    (tmp_path / "run.json").write_text(change(text))
    assert "run.json" in integrity.verify(path).problem
    with pytest.raises(InputProblem, match=r"run\.json"):
        reader.load_report(path)


@pytest.mark.parametrize("text", ["not JSON", '{"name": "other"}', "[1, 2", "\x00\x01"])
def test_the_run_json_of_other_programs_is_no_concern(
    small: Path, tmp_path: Path, text: str
) -> None:
    shutil.copyfile(small, tmp_path / "r.ncu-rep")
    (tmp_path / "run.json").write_text(text)
    assert integrity.verify(tmp_path / "r.ncu-rep") == integrity.SumCheck()


@pytest.mark.parametrize("name", ["run.json", "r.ncu-rep.sha256"])
def test_sums_are_read_from_files_alone(small: Path, tmp_path: Path, name: str) -> None:
    shutil.copyfile(small, tmp_path / "r.ncu-rep")
    os.mkfifo(tmp_path / name)
    assert f"{name}' is not a regular file" in integrity.verify(tmp_path / "r.ncu-rep").problem
    (tmp_path / name).unlink()
    (tmp_path / "r.ncu-rep.sha256").write_bytes(bytes(2 << 20))
    assert "has more than 1048576 bytes" in integrity.verify(tmp_path / "r.ncu-rep").problem


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


@pytest.mark.slow
def test_no_mutation_is_silent_beside_a_checksum(sources: list[Path]) -> None:
    tally = mutation.campaign(sources, 200, 1, with_checksum=True)
    assert sum(tally.outcomes.values()) == 200
    assert not tally.silent
    assert not tally.broken
    assert tally.outcomes["reported"] > 150


@pytest.mark.slow
def test_mutations_give_no_traceback_and_cuts_are_reported(sources: list[Path]) -> None:
    tally = mutation.campaign(sources, 150, 7, with_checksum=False)
    assert not tally.broken
    cut = ("cut the end", "cut out", "insert", "repeat")
    assert not [found for found in tally.silent if found[2].kind in cut]
    assert tally.outcomes["reported"] > 40


#: Reports whose module is in two messages: its code, and further functions.
IN_TWO = (
    "assert", "debug-build", "nested-names", "parent-and-child", "siblings", "source-imported",
)  # fmt: skip


def in_two_messages(folder: Path) -> list[Path]:
    found = []
    for name in IN_TWO:
        found.append(folder / f"{name}.ncu-rep")
        found[-1].write_bytes(
            framing.read_bytes(mutation.ROOT / f"tests/origins/reports/{name}.ncu-rep.xz")
        )
    return found


def test_a_module_in_two_messages_is_one(tmp_path: Path) -> None:
    """One of the kernels is named in the message with the code, one in the other."""
    for path in in_two_messages(tmp_path):
        codes = reader.ReportFile(path).codes
        assert all(code.embedded and code.base is not None for code in codes), path
    data = bytearray(path.read_bytes())
    at, elf = cubin_of(bytes(data))
    data[at + struct.unpack_from("<Q", elf, 0x28)[0] + 64 + 4] ^= 2  # a section's type
    assert all("headers of its machine code" in each for each in sentences(bytes(data)).values())
    assert len(sentences(bytes(data))) == 2


@pytest.mark.slow
def test_no_flip_in_the_headers_of_such_a_module_is_silent(tmp_path: Path) -> None:
    tally = mutation.campaign(
        in_two_messages(tmp_path), 90, 2, with_checksum=False, kind=mutation.REWRITES[-1]
    )
    assert not tally.silent
    assert not tally.broken
    assert tally.outcomes["reported"] > 30


# ---- well-formed rewrites


def sentences(data: bytes) -> dict[int, str]:
    return {at: " ".join(found) for at, found in inspected(data).contradictions.items()}


def test_a_launch_that_is_there_twice_is_named(small: Path) -> None:
    head, pieces, frame = pieces_of(small.read_bytes())
    at = next(i for i, block in enumerate(frame.blocks) if block.results)
    last = [i for i, block in enumerate(frame.blocks) if block.results][-1]
    doubled_block = head + b"".join([*pieces[: last + 1], pieces[last], *pieces[last + 1 :]])
    assert sentences(doubled_block) == {
        2: "it is there twice: launch 1 is the same call of the same thread"
    }
    assert at < last


def test_launches_that_changed_places_are_named() -> None:
    data = report_files.first_launches(3)
    changed = mutation.exchanged(data, 0, 2, None)
    found = sentences(changed)
    assert set(found) == {1, 2}
    assert "it comes after launch 0, which the same thread called later" in found[1]
    assert found[1].count("launch 0, which was profiled later") == 1


def test_figures_of_another_launch_are_named(tmp_path: Path) -> None:
    """Those of a kernel of the same grid, block and registers too."""
    data = report_files.first_launches(3)
    changed = mutation.exchanged(data, 0, 2, {messages.RESULT_METRIC})
    found = [profile.contradictions for profile in loaded(tmp_path, changed).profiles]
    assert "its counts by instruction are of other machine code" in found[0]
    assert "its counts by instruction are of other machine code" in found[2]
    assert not found[1]


def test_another_grid_is_named(small: Path) -> None:
    changed = report_files._with_results(small.read_bytes(), in_threads)
    assert not inspected(changed).contradictions, "as ncu 2020.2 writes it"
    changed = report_files._with_results(changed, in_threads)
    assert all("its grid is" in each for each in sentences(changed).values())
    assert len(sentences(changed)) == 2


def test_a_name_of_another_launch_is_named() -> None:
    data = report_files.first_launches(3)
    found = sentences(mutation.exchanged(data, 0, 2, {5, 6, 7}))
    assert all("its machine code has no kernel of its name" in each for each in found.values())
    assert set(found) == {0, 2}


def test_a_gpu_that_the_session_does_not_have_is_named(small: Path) -> None:
    data = small.read_bytes()
    session = next(
        block.header
        for block in framing.parse(data).blocks
        if b"device__attribute_multiprocessor_count" in block.header and not block.results
    )
    name = b"device__attribute_multiprocessor_count\x12\x03\x28"
    at = data.index(session) + session.index(name) + len(name)
    changed = bytearray(data)
    changed[at] ^= 1
    assert sentences(bytes(changed)) == dict.fromkeys(
        (0, 1),
        "device__attribute_multiprocessor_count is another than that of any GPU of the session",
    )


def cubin_of(data: bytes) -> tuple[int, bytes]:
    """Where the first machine code of a report is, and the code."""
    for block in framing.parse(data).blocks:
        for offset, length in block.sources:
            elf = messages.read_source(data[offset : offset + length]).code
            if elf:
                return data.index(elf), elf
    raise AssertionError("no code")


def test_headers_of_machine_code_that_do_not_fit_lower_the_confidence(
    small: Path, tmp_path: Path
) -> None:
    data = small.read_bytes()
    at, elf = cubin_of(data)
    text = next(i for i, each in enumerate(elf_sections(elf)) if each.name.startswith(b".text."))
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    changed = bytearray(data)
    changed[at + table + 64 * text + 24 + 1] ^= 2  # where the code starts
    report = loaded(tmp_path, bytes(changed))
    profile = report.profiles[0]
    (sentence,) = profile.contradictions
    assert re.match("the headers of its machine code do not fit together: its section", sentence)
    assert profile.contradictions[sentence] == ()
    assert profile.launch.status == "complete"
    assert diagnose(profile).primary.bottleneck, "the verdict is given all the same"


def test_a_section_that_reaches_over_another_into_code_is_reported(small: Path) -> None:
    """Not only one that ends where the next begins."""
    _, elf = cubin_of(small.read_bytes())
    found = sorted(
        (s for s in elf_sections(elf)[1:] if s.in_file and s.size), key=lambda s: s.start
    )
    at, code = next((i, s) for i, s in enumerate(found) if s.name.startswith(b".text"))
    before = next(s for s in found[: at - 1] if not s.entry and s.kind == 3)
    changed = bytearray(elf)
    size = code.start + 16 - before.start
    struct.pack_into("<Q", changed, before.header + 32, size)
    reported = cubin.read(bytes(changed)).problem
    assert reported == f"its section {code.name.decode()[:60]} is not where its header says"


def test_code_that_keeps_to_no_alignment_is_whole() -> None:
    """cuBLAS's kernels under JAX: code at 2528 that asks for a multiple of 128, and names no symbol."""
    recordings = report_files.recorded.ROOT / "benchmarks" / "programs" / "recordings"
    path = recordings / "jax_density_of_states.before.ncu-rep.xz"
    _, elf = cubin_of(lzma.decompress(path.read_bytes()))
    code = next(each for each in elf_sections(elf) if each.name.startswith(b".text."))
    assert code.start % code.alignment
    assert cubin.read(elf).problem == ""


def test_code_may_be_filled_up_to_a_multiple_of_eight_bytes(small: Path) -> None:
    """As nvcc 13.5 does, whose tables end at a multiple of four."""
    _, elf = cubin_of(small.read_bytes())
    assert cubin.read(elf + bytes(4)) == cubin.read(elf)
    assert cubin.read(elf + bytes(8)).problem
    assert cubin.read(elf + bytes(3) + b"\1").problem


def test_every_field_of_a_header_is_looked_at(small: Path) -> None:
    """A flipped bit in any byte of the file header but its flags' unused ones is reported."""
    _, elf = cubin_of(small.read_bytes())
    assert cubin.read(elf).problem == ""
    assert cubin.read(elf).kernels
    known = cubin.read(elf)
    reported = []
    for at in range(4, 64):
        changed = bytearray(elf)
        changed[at] ^= 0x40
        reported.append(cubin.read(bytes(changed)) != known)
    version, flags = range(20, 24), range(48, 52)
    assert all(found for at, found in enumerate(reported, 4) if at not in (*version, *flags))
    assert reported[45], "the architecture is in the flags"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_break_the_reader_of_machine_code(noise: bytes) -> None:
    assert cubin.read(ELF_MAGIC + noise).problem
    _, elf = cubin_of(report_files.first_launches(1))
    cubin.read(elf[:200] + noise + elf[200 + len(noise) :])
    cubin.read(elf[: len(elf) - len(noise)] + noise)


def with_source(data: bytes, change: Callable[[int, bytes | int], bytes | None]) -> bytes:
    """The report with each field of its source messages as `change` gives it; None leaves it."""

    def rewritten(message: bytes) -> bytes:
        out = b""
        for number, raw, value in report_files.raw_fields(message):
            new = change(number, value)
            out += raw if new is None else new
        return out

    return report_files._with_sources(data, rewritten)


LOST_CODE = {
    "the table of functions is empty": (
        lambda number, value: (
            report_files._field(number, b"") if number == messages.SOURCE_FUNCTIONS else None
        ),
        "its machine code gives no text for the instructions that were counted",
    ),
    "its first byte": (
        lambda number, value: (
            report_files._field(number, b"\x7d" + value[1:])
            if number == messages.SOURCE_CODE
            else None
        ),
        "the headers of its machine code do not fit together: its first bytes are not those of a cubin",
    ),
}


@pytest.mark.parametrize("what", LOST_CODE)
def test_code_that_cannot_be_read_is_named(small: Path, tmp_path: Path, what: str) -> None:
    """Rules that read instructions find nothing then, and the verdict was another without a word."""
    change, sentence = LOST_CODE[what]
    for profile in loaded(tmp_path, with_source(small.read_bytes(), change)).profiles:
        assert not any(row.sass.strip("N/A?") for row in profile.instructions)
        assert profile.launch.complete
        assert profile.contradictions == {sentence: ()}


def test_a_launch_that_names_no_code_is_named(small: Path, tmp_path: Path) -> None:
    data = report_files._with_results(
        small.read_bytes(),
        lambda message: report_files.without(message, lambda number, _: number == 15),
    )
    for profile in loaded(tmp_path, data).profiles:
        assert "it names no machine code" in profile.contradictions


def test_code_that_a_recording_blanked_is_not_named(small: Path) -> None:
    data = with_source(
        small.read_bytes(),
        lambda number, value: (
            report_files._field(number, bytes(len(value)))
            if number == messages.SOURCE_CODE and isinstance(value, bytes)
            else None
        ),
    )
    assert inspected(data).contradictions == {}


def test_a_metric_without_a_name_is_damage(small: Path, tmp_path: Path) -> None:
    """One name lost from the table: each figure after it has the name of another."""
    frame = framing.parse(small.read_bytes())
    block = next(block for block in frame.blocks if block.results)
    names = next(value for n, value in framing.fields(block.header) if n == 4)
    assert isinstance(names, bytes)
    first = next(raw for _, raw, _ in report_files.raw_fields(names))
    data = small.read_bytes()
    header = block.header.replace(
        report_files._field(4, names), report_files._field(4, names[len(first) :])
    )
    changed = data.replace(
        struct.pack("<I", len(block.header)) + block.header, struct.pack("<I", len(header)) + header
    )
    with pytest.raises(InputProblem, match="a metric's name is not in the table of names"):
        loaded(tmp_path, changed)
