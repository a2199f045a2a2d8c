"""How often the verdicts on public reports are what an expert read in them, who saw no verdict.

    python benchmarks/readings.py score DRAW ANSWERS [ANSWERS …]   diagnose a half, and write its rows
    python benchmarks/readings.py show                             the tables, from the rows as written

DRAW is a JSON list of launches (repository, path, file beside DRAW, place, kernel, GPU), ANSWERS are lists
of readings by place in it (`i`, `cause`, `also_ok`); of two readings of a launch the later file's counts.
The half is the name of DRAW's folder. Rows go to docs/data/readings.csv, instead of that half's.

A verdict is right where the reading's cause or one of `also_ok` is its name; a roof reached with
useful work where the reading is `at-roof-good`; and where it is that the report holds too little,
`unknown` or a verdict that is only possible. A launch that cannot be read counts as wrong.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.calibrate import markdown  # noqa: E402
from ncu_toolkit.base.model import Finding, Profile  # noqa: E402
from ncu_toolkit.kernel.analysis.analyze import LaunchResult, Options, analyze  # noqa: E402
from ncu_toolkit.kernel.diagnosis.kernel import missing  # noqa: E402
from ncu_toolkit.kernel.diagnosis.rules import unknown  # noqa: E402

ROWS: Final = ROOT / "docs" / "data" / "readings.csv"
#: Confidence in the words of the card.
WORDS: Final[Mapping[str, str]] = {"high": "clear", "medium": "likely", "low": "possible"}
#: Words of the readings that are no bottleneck's id, and the id that means the same.
MEANS: Final[Mapping[str, str]] = {"partial-warps": "idle-threads"}
GENERATIONS: Final[Mapping[str, str]] = {
    "7.0": "Volta", "7.2": "Volta", "7.5": "Turing", "8.0": "Ampere", "8.6": "Ampere", "8.7": "Ampere",
    "8.9": "Ada", "9.0": "Hopper", "10.0": "Blackwell", "10.3": "Blackwell", "12.0": "Blackwell", "12.1": "Blackwell",
}  # fmt: skip
FULL, STALLS, THIN = (
    "stall reasons and instruction counts",
    "stall reasons",
    "no stall reasons",
)
UNREAD: Final = "unread"


@dataclass(frozen=True)
class Reading:
    """A launch of a public repository, what an expert read in it, and our verdict."""

    half: str
    repository: str
    path: str
    launch: int
    kernel: str
    gpu: str
    cc: str
    ncu: str
    set: str
    holds: str
    """FULL, STALLS or THIN."""
    expert: str
    also_ok: str
    """Other causes that the expert accepts, by spaces."""
    first: str
    second: str
    word: str
    """One of WORDS, of the first; UNREAD where the launch could not be read or was not measured."""
    right: int
    """1 where the first is right."""
    right_second: int
    """1 where one of the first two is."""


def agrees(finding: Finding, wanted: Iterable[str]) -> bool:
    """Whether a finding says what a reading accepts."""
    accepted = {MEANS.get(word, word) for word in wanted}
    return (
        finding.bottleneck in accepted
        or ("at-roof-good" in accepted and finding.good)
        or (
            "too-little-data" in accepted
            and (finding.bottleneck == "unknown" or finding.confidence == "low")
        )
    )


def word(finding: Finding | None) -> str:
    """The confidence in the first verdict. That a launch cannot be diagnosed is certain ("high"), and
    names no cause of which it could be."""
    if finding is None or (finding.bottleneck == unknown.ID and finding.confidence == "high"):
        return UNREAD
    return WORDS[finding.confidence]


def holds(profile: Profile) -> str:
    """What a report holds of a launch's waiting and instructions."""
    if missing(profile, ("stalls",)):
        return THIN
    return STALLS if missing(profile, ("opcodes",)) else FULL


def judged(half: str, about: Mapping[str, Any], answer: Mapping[str, Any], found: LaunchResult | None) -> Reading:  # fmt: skip
    """The row of a launch; `found` is None where it could not be read."""
    wanted = (answer["cause"], *answer.get("also_ok", ()))
    findings = found.diagnosis.findings[:2] if found else ()
    right = [agrees(finding, wanted) for finding in findings]
    profile = found.profile if found else None
    return Reading(
        half,
        about["repo"],
        about["path_in_repo"],
        about["launch"],
        about["kernel"],
        about["gpu"],
        about["cc"],
        about["ncu_version"],
        about.get("section_set", ""),
        holds(profile) if profile is not None else "",
        answer["cause"],
        " ".join(answer.get("also_ok", ())),
        findings[0].bottleneck if findings else "",
        findings[1].bottleneck if len(findings) > 1 else "",
        word(findings[0] if findings else None),
        int(bool(right) and right[0]),
        int(any(right)),
    )


def score(draw: Path, answers: Sequence[Path]) -> list[Reading]:
    """The rows of a half, in the order of its launches; those without an answer are left out."""
    listed = json.loads(draw.read_text(encoding="utf-8"))
    given = {
        int(each["i"]): each
        for path in answers
        for each in json.loads(path.read_text(encoding="utf-8"))
    }
    read: dict[str, tuple[LaunchResult, ...]] = {}
    rows = []
    for i, about in enumerate(listed):
        if i not in given:
            continue
        if about["file"] not in read:
            options = Options(allow_partial=True, profiles=True)
            read[about["file"]] = analyze([draw.parent / about["file"]], options, jobs=1).launches
        launches = read[about["file"]]
        found = launches[about["launch"]] if about["launch"] < len(launches) else None
        if found is not None and about["kernel"] not in found.function:
            found = None
        rows.append(judged(draw.parent.name, about, given[i], found))
    return rows


def read() -> list[Reading]:
    """The rows as they were written; none where there is no file."""
    if not ROWS.is_file():
        return []
    kinds = {field.name: int if field.type == "int" else str for field in fields(Reading)}
    with ROWS.open(encoding="utf-8", newline="") as file:
        return [Reading(**{k: kinds[k](v) for k, v in row.items()}) for row in csv.DictReader(file)]


def write(rows: Iterable[Reading]) -> None:
    """Write rows, instead of those of their halves."""
    new = list(rows)
    kept = [row for row in read() if row.half not in {each.half for each in new}]
    with ROWS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Reading)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in sorted([*kept, *new], key=lambda r: r.half))


HEADINGS: Final = ("", "launches", "first", "first two", "clear", "likely", "possible")
_GROUPS: Final[tuple[Callable[[Reading], str], ...]] = (
    lambda row: GENERATIONS.get(row.cc, f"CC {row.cc}"),
    lambda row: row.holds or UNREAD,
)


def table(rows: Sequence[Reading]) -> list[list[str]]:
    """How often verdicts were right, a line for each half, and for its parts: by generation of the
    GPU and by what the report holds."""
    lines = []
    for half in sorted({row.half for row in rows}):
        mine = [row for row in rows if row.half == half]
        lines.append(_line(f"**{half}**", mine))
        for group in _GROUPS:
            for name in sorted({group(row) for row in mine}):
                lines.append(_line(f"{half}: {name}", [r for r in mine if group(r) == name]))
    return lines


def _line(name: str, rows: Sequence[Reading]) -> list[str]:
    by_word = [[row for row in rows if row.word == word] for word in WORDS.values()]
    return [
        name,
        str(len(rows)),
        f"{sum(row.right for row in rows)} ({sum(row.right for row in rows) / len(rows):.0%})",
        str(sum(row.right_second for row in rows)),
        *(f"{sum(r.right for r in each)} of {len(each)}" if each else "" for each in by_word),
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    scored = commands.add_parser("score", help="diagnose a half and write its rows")
    scored.add_argument("draw", type=Path)
    scored.add_argument("answers", type=Path, nargs="+")
    commands.add_parser("show", help="the tables from the rows as written")
    given = parser.parse_args(arguments)
    if given.command == "score":
        found = score(given.draw, given.answers)
        write(found)
        for row in found:
            if not row.right:
                message = f"{row.first or UNREAD} ({row.word}), read as {row.expert} {row.also_ok}"
                print(f"{row.repository} {row.launch} {row.kernel}: {message}")
    print(markdown(HEADINGS, table(read())))


if __name__ == "__main__":
    main(sys.argv[1:])
