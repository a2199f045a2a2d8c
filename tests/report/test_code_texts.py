"""SASS that was read before is not read again, and reads the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import recorded
import report_files
from hypothesis import given, settings
from hypothesis import strategies as st

from ncu_toolkit.base.core import cache
from ncu_toolkit.kernel.analysis import analyze
from ncu_toolkit.kernel.report import framing, messages, ncu_source, reader
from ncu_toolkit.kernel.report.messages import Code
from ncu_toolkit.kernel.report.ncu_source import CodeTexts

BASE = 0x7F12_3450_0000
CODE = Code(b"\x01\x02", BASE, True)


class Info:
    def file_name(self) -> str:
        return "kernel.cu"

    def line(self) -> int:
        return 7


class Module:
    """Answers for code that is loaded at `base`, and remembers what it was asked."""

    def __init__(self, base: int, texts: dict[int, str]) -> None:
        self.base, self.texts = base, texts
        self.asked: list[int] = []

    def sass_by_pc(self, address: int) -> str:
        self.asked.append(address - self.base)
        return self.texts[address - self.base].format(
            here=hex(self.base + 0x40), before=hex(self.base - 0x10)
        )

    def source_info(self, address: int) -> Info | None:
        return Info() if address == self.base else None


TEXTS = {
    0: "@!P0 BRA {here}",
    16: "LDG.E R1, [R2]",
    32: "MOV R1, 0xfffffff0",
    48: "CALL.REL.NOINC {before}",
}


def lines(texts: CodeTexts, module: Module, code: Code = CODE) -> list[ncu_source.Line]:
    return texts.lines(
        module, replace(code, base=module.base), [module.base + place for place in module.texts]
    )


@pytest.mark.parametrize("base", [BASE, BASE + 0x7000, 0x1_0000_0000])
def test_a_text_is_asked_for_once_and_moves_with_its_code(tmp_path: Path, base: int) -> None:
    texts = CodeTexts(folder=tmp_path)
    first = lines(texts, Module(BASE, TEXTS))
    assert first[:2] == [(f"@!P0 BRA {BASE + 0x40:#x}", "kernel.cu", 7), ("LDG.E R1, [R2]", "", 0)]
    moved = Module(base, TEXTS)
    fresh = [line[0] for line in lines(CodeTexts(), Module(base, TEXTS))]
    assert [line[0] for line in lines(texts, moved)] == fresh
    assert not moved.asked
    texts.keep(CODE)
    again = Module(base, TEXTS)
    assert [line[0] for line in lines(CodeTexts(folder=tmp_path), again)] == fresh
    assert not again.asked


@pytest.mark.parametrize(
    ("base", "text"),
    [(0x8000_0000, "BRA {here}"), (BASE, "MOV R1, 0x123456789a"), (BASE, "BRA 0x00007f1234500040")],
    ids=["low", "far", "written otherwise"],
)
def test_an_address_that_could_be_something_else_is_asked_for_again(base: int, text: str) -> None:
    texts = CodeTexts()
    module, moved = Module(base, {0: text}), Module(base + 0x1000, {0: text})
    assert len(lines(texts, module)) == len(lines(texts, moved)) == 1
    assert module.asked == moved.asked == [0]


@settings(deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 1 << 20).map(lambda n: n * 16),
        st.text(st.characters(exclude_characters="{}", exclude_categories=["Cs"]), min_size=1),
    )
)
def test_any_text_comes_back(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[int, str]
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    made = CodeTexts(folder=folder)
    expected = lines(made, Module(BASE, texts))
    made.keep(CODE)
    assert lines(CodeTexts(folder=folder), Module(BASE, texts)) == expected


def test_code_that_is_not_in_the_report_or_has_no_text_is_not_kept(tmp_path: Path) -> None:
    for code, text in ((replace(CODE, embedded=False), "NOP"), (CODE, "N/A"), (CODE, "")):
        texts = CodeTexts(folder=tmp_path)
        lines(texts, Module(BASE, {0: "NOP", 16: text}), code)
        texts.keep(code)
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        '{"format": 0, "lines": []}',
        '{"format": 2}',
        '{"format": 2, "lines": [[0, "BAD"]]}',
        '{"format": 2, "lines": [[Infinity, "BAD", "", 0]]}',
        "[" * 100_000,
        "\xff",
    ],
    ids=str.__len__,
)
@pytest.mark.parametrize("write", [Path.write_bytes, cache.seal])
def test_a_damaged_file_is_as_none(
    tmp_path: Path, write: Callable[[Path, bytes], object], damage: str
) -> None:
    texts = CodeTexts(folder=tmp_path)
    expected = lines(texts, Module(BASE, TEXTS))
    texts.keep(CODE)
    (file,) = tmp_path.iterdir()
    write(file, damage.encode("latin-1"))
    assert lines(CodeTexts(folder=tmp_path), Module(BASE, TEXTS)) == expected


@pytest.mark.skipif(recorded.FP32 is None, reason="the recording is not here")
def test_a_report_reads_the_same_from_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "three.ncu-rep"
    path.write_bytes(report_files.first_launches(3))
    first = reader.load_report(path).profiles
    kept = sorted((tmp_path / "cache" / "sass").rglob("*.json"))
    assert len(kept) == 3
    assert reader.load_report(path).profiles == first
    content = json.loads(cache.unsealed(kept[0]) or b"")
    content["lines"][0][1] = "CHANGED"
    cache.seal(kept[0], json.dumps(content).encode())

    def texts() -> set[str]:
        return {row.sass for each in reader.load_report(path).profiles for row in each.instructions}

    assert "CHANGED" in texts(), "they are indeed what is read"
    kept[0].write_bytes(kept[0].read_bytes().replace(b"CHANGED", b"FLIPPED"))
    assert not {"CHANGED", "FLIPPED"} & texts(), "but not without their digest"


@pytest.mark.parametrize("jobs", [2, 5])
def test_texts_of_pieces_are_those_of_the_whole(
    jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces begin and end within a kernel too."""
    path = tmp_path / "report.ncu-rep"
    path.write_bytes(report_files.first_launches(3))
    monkeypatch.setenv("NCU_TOOLKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(analyze, "_TEXTS_BYTES", 64)
    file = reader.ReportFile(path)
    ((_, _, whole),) = analyze._texts(file, 1, tmp_path)
    pieces = analyze._texts(file, jobs, tmp_path)
    cuts = [place for _, _, cuts in pieces for place in cuts]
    assert len(pieces) == jobs
    assert set(cuts) == set(whole)
    assert len(cuts) > len(whole)
    made: dict[bytes, dict[int, ncu_source.Line]] = {}
    for piece in pieces:
        for code, found in reader.texts_of(*piece).items():
            assert not made.setdefault(code, {}).keys() & found.keys()
            made[code].update(found)
    (of_all,) = analyze._texts(file, 1, tmp_path)
    assert made == reader.texts_of(*of_all)


def table(*counts: int) -> bytes:
    """A table of counts by addresses as a report has it."""

    def part(tag: int, number: bytes) -> bytes:
        return bytes([tag, len(number)]) + number

    def entry(at: int, count: int) -> bytes:
        key = part(0x0A, b"\x28" + framing.encoded(0x7F2E_0000_0000 + 16 * at))
        return part(0x1A, key + part(0x12, b"\x28" + framing.encoded(count)))

    return b"".join(entry(at, count) for at, count in enumerate(counts))


@pytest.mark.parametrize("counts", [(0, 0, 0), (5, 127, 0, 9), (300, 16383, 128), (0, 128, 70000), (1 << 40,)])  # fmt: skip
def test_a_table_of_one_length_is_read_as_any_other(counts: tuple[int, ...]) -> None:
    made = messages.CountTable(table(*counts))
    assert made.counts == [float(count) for count in counts]
    assert made.keys == [0x7F2E_0000_0000 + 16 * at for at in range(len(counts))]
    first, last = (framing.encoded(key) for key in (made.keys[0], made.keys[-1]))
    assert made.ends == (len(counts), first, last)


def test_the_module_gets_the_numbers_that_are_read_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "report.ncu-rep"
    path.write_bytes(report_files.first_launches(1))

    def numbers(read: Path) -> dict[bytes, float | bytes | None]:
        frame = framing.parse(read.read_bytes())
        ((_, _, message),) = frame.results()
        return messages.scalars(message, messages.metric_names(frame))[1]

    of = [tmp_path / "less.ncu-rep", tmp_path / "whole.ncu-rep"]
    tables = [reader._lighter(path, to, whole) for to, whole in zip(of, (False, True), strict=True)]
    less, whole = map(numbers, of)
    assert tables[0] == tables[1]
    assert less.items() <= whole.items() == numbers(path).items()
    assert {name for name in whole if name.decode() in ncu_source.NUMBERS} <= less.keys()
    assert len(less) < len(whole)


def test_a_launch_of_which_no_number_is_read_keeps_one() -> None:
    frame = framing.parse(report_files.first_launches(1))
    ((_, _, message),) = frame.results()
    names = [name.decode() for name in messages.metric_names(frame)]
    light, _ = messages.lighter(message, names, (), (), ())
    assert 0 < len(messages.scalars(light, messages.metric_names(frame))[1]) < len(names)
