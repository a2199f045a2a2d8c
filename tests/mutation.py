"""Change reports on purpose, bytes and whole figures, and count what the reader says of it: refused,
incomplete, contradictory, or nothing. Only a checksum beside the file lets nothing pass.

Run it as a program for the long version: `python tests/mutation.py --count 5000 --seed 1 REPORT…`
prints counts by the part of the file that was hit."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import itertools
import random
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import report_files
from rich.console import Console

from ncu_toolkit.base.core import workers
from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.cli.analyze import render, write_pages
from ncu_toolkit.kernel.analysis import analyze
from ncu_toolkit.kernel.report import framing, integrity, messages, reader, scrub
from ncu_toolkit.kernel.report.messages import elf_sections

ROOT = Path(__file__).resolve().parent.parent

#: What a double starts with in a metric's value.
_DOUBLE = b"\x19"
#: Names of the metrics that the toolkit reads.
READ = {
    *(name for metric in registry.REGISTRY.values() for name in metric.ncu),
    *registry.LAUNCH_FACTS.values(),
    *registry.DEVICE_FACTS.values(),
}

#: Fields of a result message by what they hold, for counts by part.
RESULT_PARTS = {
    5: "names",
    6: "names",
    7: "names",
    13: "metrics",
    15: "source ids",
    17: "sections",
    19: "rule messages",
    21: "NVTX",
}
SOURCE_PARTS = {4: "machine code", 8: "source text", 9: "function table"}


@dataclass(frozen=True)
class Mutation:
    """What was done where. `part` names what the first changed byte belongs to."""

    kind: str
    offset: int
    part: str


def parts(data: bytes) -> list[tuple[int, int, str]]:
    """Stretches of the file as (start, end, part), in order, without overlap; what is between them
    is framing."""
    found = []
    frame = framing.parse(data)
    for block in frame.blocks:
        start = block.offset + 4
        found.append((start, start + len(block.header), "block headers and metric names"))
        for offset, length in block.sources:
            found += _fields(data, offset, length, SOURCE_PARTS)
        for offset, length in block.results:
            found += _fields(data, offset, length, RESULT_PARTS)
    return sorted(found)


def _fields(
    data: bytes, offset: int, length: int, names: dict[int, str]
) -> list[tuple[int, int, str]]:
    found = []
    at, end = offset, offset + length
    while at < end:
        start = at
        tag, at = framing.read_varint(data, at)
        wire = tag & 7
        if wire == 0:
            _, at = framing.read_varint(data, at)
        elif wire == 2:
            size, at = framing.read_varint(data, at)
            at += size
        else:
            at += 8 if wire == 1 else 4
        name = names.get(tag >> 3, "other fields")
        if name == "metrics":
            found += _metric(data, start, at)
        else:
            found.append((start, at, name))
    return found


def _metric(data: bytes, start: int, end: int) -> list[tuple[int, int, str]]:
    """A metric's value and its instances apart: they are protected in different ways."""
    _, at = framing.read_varint(data, start)
    _, at = framing.read_varint(data, at)
    while at < end:
        tag, after = framing.read_varint(data, at)
        if tag >> 3 == 3:
            return [(start, at, "metric values"), (at, end, "metric instances")]
        if tag & 7 == 2:
            size, after = framing.read_varint(data, after)
            at = after + size
        else:
            _, at = framing.read_varint(data, after)
    return [(start, end, "metric values")]


def part_at(stretches: Sequence[tuple[int, int, str]], offset: int) -> str:
    for start, end, name in stretches:
        if start <= offset < end:
            return name
    return "framing"


def mutate(
    data: bytes, random: random.Random, stretches: Sequence[tuple[int, int, str]], kind: str = ""
) -> tuple[bytes, Mutation]:
    """One mutation, of a kind or any. Half of them hit a part chosen first, so that small parts are
    hit as often as large ones."""
    kind = kind or random.choice(
        (
            "flip a bit",
            "flip a bit",
            "flip a bit",
            "set a byte",
            "set a byte",
            "zero bytes",
            "cut the end",
            "cut out",
            "insert",
            "repeat",
            "move a block",
            "drop a block",
            "repeat a block",
            "double a figure",
            "double a figure",
            "cut at a block",
            *REWRITES,
        )
    )
    changed = bytearray(data)
    if kind.endswith("block"):
        return _mutate_block(data, kind, random)
    if kind == "double a figure":
        return double_a_figure(data, random)
    if kind in REWRITES:
        return rewrite(data, kind, random)
    if random.random() < 0.5:
        name = random.choice(sorted({part for _, _, part in stretches}))
        start, end, _ = random.choice([stretch for stretch in stretches if stretch[2] == name])
        at = random.randrange(start, end)
    else:
        at = random.randrange(len(data))
    length = random.choice((1, 2, 4, 16, 256, 4096))
    if kind == "flip a bit":
        changed[at] ^= 1 << random.randrange(8)
    elif kind == "set a byte":
        changed[at] = random.randrange(256)
    elif kind == "zero bytes":
        changed[at : at + length] = bytes(len(changed[at : at + length]))
    elif kind == "cut the end":
        del changed[at:]
    elif kind == "cut out":
        del changed[at : at + length]
    elif kind == "insert":
        changed[at:at] = random.randbytes(length)
    else:
        changed[at:at] = changed[at : at + length]
    return bytes(changed), Mutation(kind, at, part_at(stretches, at))


#: Rewrites that leave a well-formed report: every length and count fits.
REWRITES = (
    "drop a launch", "double a launch", "exchange launches", "exchange figures", "exchange names", "change a header",
    "change machine code's headers",
)  # fmt: skip
_NAMES = {5, 6, 7}


def rewrite(data: bytes, kind: str, random: random.Random) -> tuple[bytes, Mutation]:
    """A change as a program would make it that reads the format and writes it again."""
    blocks = framing.parse(data).blocks
    places = [place for block in blocks for place in block.results]
    one, other = random.randrange(len(places)), random.randrange(len(places))
    if kind == "drop a launch":
        return with_launches(data, lambda at, message: [] if at == one else [message]), Mutation(
            kind, places[one][0], "a launch"
        )
    if kind == "double a launch":
        return with_launches(data, lambda at, message: [message] * (1 + (at == one))), Mutation(
            kind, places[one][0], "a launch"
        )
    if kind.startswith("exchange"):
        wanted = {"exchange figures": {messages.RESULT_METRIC}, "exchange names": _NAMES}.get(kind)
        return exchanged(data, one, other, wanted), Mutation(kind, places[one][0], "a launch")
    if kind == "change a header":
        block = random.choice([block for block in blocks if block.header])
        return _changed_leaf(data, block.offset + 4, len(block.header), random), Mutation(
            kind, block.offset, "block headers"
        )
    codes = [
        (data.index(elf), elf)
        for block in blocks
        for offset, length in block.sources
        if (elf := messages.read_source(data[offset : offset + length]).code)
    ]
    if not codes:
        return data, Mutation(kind, 0, "machine code's headers")
    start, elf = random.choice(codes)
    at = start + random.choice(list(_header_bytes(elf)))
    changed = bytearray(data)
    changed[at] ^= 1 << random.randrange(8)
    return bytes(changed), Mutation(kind, at, "machine code's headers")  # fmt: skip


def _header_bytes(elf: bytes) -> Iterator[int]:
    """Offsets of a cubin's header and tables."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    yield from range(4, 64)
    yield from range(table, len(elf))
    for section in elf_sections(elf):
        if section.kind == 2 or section.name.startswith(b".nv.info"):  # symbols
            yield from range(section.start, section.start + section.size)


def with_launches(data: bytes, change: Callable[[int, bytes], list[bytes]]) -> bytes:
    """The report with other launches in its blocks: `change` gives those that take one's place."""
    pieces, at, index = [], 0, 0
    for block in framing.parse(data).blocks:
        if not block.results:
            continue
        head = block.offset + 4 + len(block.header)
        kept: list[bytes] = []
        for offset, length in block.results:
            kept += change(index, data[offset : offset + length])
            index += 1
        payload = data[head : block.results[0][0] - 4] + b"".join(
            struct.pack("<I", len(message)) + message for message in kept
        )
        header = report_files.without(
            block.header, lambda number, value: number in _COUNTED
        ) + b"".join(
            report_files.varint(number << 3) + report_files.varint(value)
            for number, value in zip(_COUNTED, (len(kept), len(payload)), strict=True)
        )
        pieces += [data[at : block.offset], struct.pack("<I", len(header)), header, payload]
        at = block.results[-1][0] + block.results[-1][1]
    return b"".join([*pieces, data[at:]])


#: Fields of a block's header: how many launches it holds, and how many bytes.
_COUNTED = (2, 5)


def exchanged(data: bytes, one: int, other: int, wanted: set[int] | None) -> bytes:
    """Two launches with these fields of each in the other; all of them where None."""
    found = [
        data[offset : offset + length]
        for block in framing.parse(data).blocks
        for offset, length in block.results
    ]

    def mixed(own: bytes, foreign: bytes) -> bytes:
        def is_wanted(number: int, value: object) -> bool:
            return wanted is None or number in wanted

        kept = report_files.without(own, is_wanted)
        return kept + report_files.without(foreign, lambda n, v: not is_wanted(n, v))

    swapped = {one: mixed(found[one], found[other]), other: mixed(found[other], found[one])}
    return with_launches(data, lambda at, message: [swapped.get(at, message)])


def _changed_leaf(data: bytes, start: int, length: int, random: random.Random) -> bytes:
    """A message with one byte of one number or text in it another, of the same length."""
    leaves: list[tuple[int, int]] = []

    def walk(a: int, b: int) -> None:
        for number, low, high in scrub._spans_of(data[a:b]):
            inside = list(scrub._spans_of(data[a + low : a + high]))
            if number and inside and all(each[0] for each in inside):
                walk(a + low, a + high)
            elif high > low:
                leaves.append((a + low, a + high))

    walk(start, start + length)
    if not leaves:
        return data
    low, high = random.choice(leaves)
    changed = bytearray(data)
    changed[random.randrange(low, high)] ^= 1 << random.randrange(7)
    return bytes(changed)


def double_a_figure(
    data: bytes, random: random.Random, metric: bytes = b""
) -> tuple[bytes, Mutation]:
    """A launch's figure (a given metric, or any) twice as large, as a person would change it: the
    message is as long as before."""
    frame = framing.parse(data)
    names = messages.metric_names(frame)
    place = random.choice([place for block in frame.blocks for place in block.results])
    found = [entry for entry in _figures(data, *place, names) if metric in (b"", entry[1])]
    at, name = random.choice(found)
    read = name.decode(errors="replace") in READ
    return _doubled(data, at), Mutation(
        "double a figure", at, f"a doubled figure, {'read' if read else 'not read'}"
    )


def _figures(
    data: bytes, offset: int, length: int, names: list[bytes]
) -> Iterator[tuple[int, bytes]]:
    """Where each figure of a launch is that is a floating-point number, with its name."""
    for start, end in _metrics(data, offset, length):
        parts = dict(framing.fields(data[start:end]))
        name, value = parts.get(1), parts.get(2)
        if isinstance(name, int) and isinstance(value, bytes) and value[:1] == _DOUBLE:
            yield data.index(value, start, end) + 1, names[name]


def _doubled(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into("<d", changed, at, 2 * struct.unpack_from("<d", data, at)[0])
    return bytes(changed)


def every_figure(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Every figure of the first launch that the toolkit reads and that is not 0, doubled by itself:
    its name, and whether a contradiction then names something."""
    frame = framing.parse(data)
    version, names = reader.ncu_version_in(data), messages.metric_names(frame)
    place = next(block.results[0] for block in frame.blocks if block.results)
    for at, name in _figures(data, *place, names):
        changed = _doubled(data, at)
        if name.decode(errors="replace") in READ and changed != data:
            other = replace(frame, data=changed)
            found = integrity.inspect(other, messages.sources(other), version)
            yield name, bool(found.contradictions)


def _metrics(data: bytes, offset: int, length: int) -> Iterator[tuple[int, int]]:
    """Where each metric of a launch is, without its tag and length."""
    at, end = offset, offset + length
    while at < end:
        tag, at = framing.read_varint(data, at)
        if tag & 7 == 0:
            _, at = framing.read_varint(data, at)
        elif tag & 7 == 2:
            size, at = framing.read_varint(data, at)
            if tag >> 3 == messages.RESULT_METRIC:
                yield at, at + size
            at += size
        else:
            at += 8 if tag & 7 == 1 else 4


def _mutate_block(data: bytes, kind: str, random: random.Random) -> tuple[bytes, Mutation]:
    """Whole blocks are dropped, repeated or moved, or the file ends at one: the framing stays
    whole."""
    blocks = framing.parse(data).blocks
    edges = [*(block.offset for block in blocks), len(data)]
    if kind == "cut at a block":
        index = random.randrange(len(blocks))
        return data[: edges[index]], Mutation(kind, edges[index], "end of the file")
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    index = random.randrange(len(pieces))
    name = (
        "results"
        if blocks[index].results
        else "sources"
        if blocks[index].sources
        else "session data"
    )
    piece = pieces.pop(index) if kind != "repeat a block" else pieces[index]
    if kind != "drop a block":
        pieces.insert(random.randrange(len(pieces) + 1), piece)
    return data[: edges[0]] + b"".join(pieces), Mutation(kind, edges[index], f"block of {name}")


def digest(report: reader.LoadedReport) -> str:
    """Of everything the reader says, whatever the order of the launches: two that changed places
    are still the same launches."""
    placed = (
        replace(profile, origin=replace(profile.origin, range_index=0, action_index=0))
        for profile in report.profiles
    )
    launches = sorted(
        repr([getattr(profile, field.name) for field in fields(profile)]) for profile in placed
    )
    return hashlib.sha256(repr((launches, report.damage, report.missing)).encode()).hexdigest()


def trial(
    folder: str,
    source: str,
    seed: int,
    expected: str,
    incomplete: int,
    with_checksum: bool,
    kind: str,
) -> tuple[str, Mutation]:
    """One mutation in a worker: "unchanged", "identical", "reported", "silent", or "broken" where
    the analysis of what was read cannot be shown."""
    data = Path(source).read_bytes()
    changed, mutation = mutate(data, random.Random(seed), _stretches(source), kind)
    if changed == data:
        return "unchanged", mutation
    path = Path(folder) / f"mutant-{seed}" / Path(source).name
    path.parent.mkdir()
    path.write_bytes(changed)
    try:
        if with_checksum:
            path.with_name(path.name + integrity.SUFFIX).write_text(
                f"{hashlib.sha256(data).hexdigest()}  {path.name}\n"
            )
        try:
            report = reader.load_report(path)
        except ToolkitError:
            return "reported", mutation
        if digest(report) == expected:
            return "identical", mutation
        if not can_be_shown(path):
            return "broken", mutation
        reported = (
            report.missing
            or sum(not profile.launch.complete for profile in report.profiles) > incomplete
            or any(profile.contradictions for profile in report.profiles)
        )
        return ("reported" if reported else "silent"), mutation
    finally:
        shutil.rmtree(path.parent)


def can_be_shown(path: Path) -> bool:
    """Whether every format shows what `analyze --allow-partial` makes of a report."""
    try:
        read = report_files.read(
            str(path), analyze.Options(allow_partial=True, figures=True, profiles=True)
        )
        analysis = analyze.Analysis((read,), analyze.Options(allow_partial=True))
        for form in ("text", "markdown", "brief", "json", "csv"):
            Console(file=io.StringIO(), width=100).print(render(analysis, form, None))
        write_pages(analysis, None, path.parent / "page.html", standalone=True)
    except ToolkitError:
        return True
    except Exception:
        return False
    return True


_STRETCHES: dict[str, list[tuple[int, int, str]]] = {}


def _stretches(source: str) -> list[tuple[int, int, str]]:
    if source not in _STRETCHES:
        _STRETCHES[source] = parts(Path(source).read_bytes())
    return _STRETCHES[source]


@dataclass
class Tally:
    """Counts by outcome, and by outcome and part; the silent mutations themselves."""

    outcomes: Counter[str]
    by_part: Counter[tuple[str, str]]
    by_kind: Counter[tuple[str, str]]
    silent: list[tuple[str, int, Mutation]]
    broken: list[tuple[str, int, Mutation]]


def campaign(
    sources: Sequence[Path],
    count: int,
    seed: int,
    *,
    with_checksum: bool,
    jobs: int = 0,
    kind: str = "",
) -> Tally:
    """`count` mutations over the sources in turn. A crash of the native module is a report: it
    costs one worker."""
    tally = Tally(Counter(), Counter(), Counter(), [], [])
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        known = {}
        for source in sources:
            report = reader.load_report(source)
            known[source] = (
                digest(report),
                sum(not profile.launch.complete for profile in report.profiles),
            )
        chosen = itertools.islice(itertools.cycle(sources), count)
        tasks = [
            (folder, str(source), seed + i, *known[source], with_checksum, kind)
            for i, source in enumerate(chosen)
        ]
        jobs = jobs or workers.default_jobs()
        for done in workers.run(
            "mutation:trial",
            tasks,
            jobs=jobs,
            timeout=120,
            label=lambda index: f"mutant {seed + index}",
        ):
            if done.error is not None:
                tally.outcomes["crashed"] += 1
                continue
            outcome, mutation = done.value
            tally.outcomes[outcome] += 1
            tally.by_part[mutation.part, outcome] += 1
            tally.by_kind[mutation.kind, outcome] += 1
            if outcome == "silent":
                tally.silent.append((tasks[done.index][1], tasks[done.index][2], mutation))
            elif outcome == "broken":
                tally.broken.append((tasks[done.index][1], tasks[done.index][2], mutation))
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "reports",
        nargs="*",
        type=Path,
        help="the first launches of the recording where none is named",
    )
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="", help=f"such mutations alone, as '{REWRITES[-1]}'")
    parser.add_argument(
        "--checksum", action="store_true", help="with the original's SHA-256 beside each mutant"
    )
    parser.add_argument("--list", action="store_true", help="name each silent mutation")
    parser.add_argument(
        "--figures", action="store_true", help="double every figure that is read, and nothing else"
    )
    chosen = parser.parse_args()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        reports = chosen.reports or [
            _of_recording(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        ]
        if chosen.figures:
            for path in reports:
                seen = dict(every_figure(framing.read_bytes(path)))
                unseen = sorted(name.decode() for name, reported in seen.items() if not reported)
                print(f"{path.name}: {len(unseen)} of {len(seen)} doubled figures unseen")
                if chosen.list:
                    print("   ", " ".join(unseen))
            return
        _show(
            chosen,
            started,
            campaign(
                reports,
                chosen.count,
                chosen.seed,
                with_checksum=chosen.checksum,
                kind=chosen.kind,
            ),
        )


def _of_recording(folder: Path) -> Path:
    path = folder / "recording.ncu-rep"
    path.write_bytes(report_files.first_launches(4))
    return path


def _show(chosen: argparse.Namespace, started: float, tally: Tally) -> None:
    """Print the counts; ends with 1 where a mutation went unseen beside a checksum, or cannot be
    shown."""
    how = "with" if chosen.checksum else "without"
    print(
        f"{chosen.count} mutations, seed {chosen.seed}, {how} checksum: {dict(tally.outcomes)} in {time.monotonic() - started:.0f} s"
    )
    for title, table in (("part", tally.by_part), ("kind", tally.by_kind)):
        print(f"{title:34} mutations  identical  reported  silent")
        for name in sorted({key for key, _ in table}):
            row = [table[name, outcome] for outcome in ("identical", "reported", "silent")]
            print(f"{name:34} {sum(row):9} {row[0]:10} {row[1]:9} {row[2]:7}")
    for source, seed, mutation in tally.broken:
        print(f"broken: {Path(source).name} seed {seed}: {mutation}")
    if chosen.list:
        for source, seed, mutation in sorted(tally.silent, key=lambda item: item[2].part):
            print(f"silent: {Path(source).name} seed {seed}: {mutation}")
    sys.exit(bool(tally.broken or (chosen.checksum and tally.silent)))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
    main()
