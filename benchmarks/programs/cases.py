"""python -m benchmarks.programs.cases [--write]: what fixes achieved of the ceilings that they had.

Prints the cases by cause, and how well they predict each other. `--write` puts them into
ncu_toolkit/data/achieved.json. A program counts once for each cause. The cases are

- the programs of `score.development` whose label is the first cause that is found (score.py), clear or likely, in a steady step,
- pairs of traces that others published, `published.json` (docs/decisions/32-program-first.md); `most_ms` is the first
  finding's ceiling,
- trials on a GPU, docs/data/try.json: what one switch saved, of the ceiling of the findings that it is for. Not of
  HELD_UP: there a switch seldom reaches the cause, which is in the program.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.calibrate import covered
from benchmarks.programs import score
from ncu_toolkit.base.core.files import write_atomic
from ncu_toolkit.kernel.diagnosis import achieved
from ncu_toolkit.program.model import ProgramTrial
from ncu_toolkit.program.switches import switches

ROOT: Final = Path(__file__).resolve().parents[2]
TRIALS: Final = ROOT / "docs" / "data" / "try.json"
SHIPPED: Final = ROOT / "ncu_toolkit" / "data" / "achieved.json"
#: Fewest programs from which to measure how well each is predicted from the others.
ENOUGH: Final = 10
#: Causes whose time has no kernel.
HELD_UP: Final = frozenset(
    ("launch-bound", "host-sync", "host-work", "host-copy", "serial-copies", "allocation-in-step")
)


@dataclass(frozen=True)
class Achieved:
    """A program whose fix removed a cause: what could be saved (its ceiling) and what was, as parts (0-1) of
    the step."""

    cause: str
    program: str
    most: float
    saved: float
    source: str
    """`benchmark`, `published` or `tried`."""

    @property
    def share(self) -> float:
        return self.saved / self.most


def cases(
    programs: Iterable[score.RecordedProgram],
    published: Path = score.FOLDER / "published.json",
    trials: Path = TRIALS,
) -> list[Achieved]:
    """All cases, by cause and program, one of each: of several, that of the median share. `programs`:
    those of `score.development`."""
    found = [*_benchmark(programs), *_published(published), *_tried(trials)]
    alike: dict[tuple[str, str], list[Achieved]] = defaultdict(list)
    for case in found:
        alike[case.cause, case.program].append(case)
    return [_middle(alike[key]) for key in sorted(alike)]


def _middle(alike: Sequence[Achieved]) -> Achieved:
    ordered = sorted(alike, key=lambda case: case.share)
    return ordered[(len(ordered) - 1) // 2]


def _benchmark(programs: Iterable[score.RecordedProgram]) -> Iterable[Achieved]:
    for program in programs:
        if program.healthy or program.achieved < score.VOID or not program.found.costly:
            continue
        found = program.found
        first = found.costly[0]
        # only such a finding has an expected saving: of a steady step, and not merely possible
        if first.expected_us and first.rule in score.meant(program.label["cause"]):
            most = first.ceiling_us / found.account.wall_us
            yield Achieved(first.rule, program.name, most, program.achieved, "benchmark")


def _published(path: Path) -> Iterable[Achieved]:
    for each in json.loads(path.read_text(encoding="utf-8")):
        before, after, most = (each[key] for key in ("before_ms", "after_ms", "most_ms"))
        saved = 1 - after / before
        yield Achieved(each["cause"], each["program"], most / before, saved, "published")


def _tried(path: Path) -> Iterable[Achieved]:
    """Of each program and cause the switch that saved most: the others are no fix of it."""
    best: dict[tuple[str, str], Achieved] = {}
    for row in json.loads(path.read_text(encoding="utf-8")) if path.is_file() else ():
        name = row["name"].partition(" ")[0].removesuffix(".py")
        if "trial" not in row:
            continue
        for each in msgspec.convert(row["trial"], ProgramTrial).tried:
            known = each.outcome in ("faster", "same", "slower") and each.results != "differ"
            several = len(each.switches) > 1 or len(each.causes) > 1
            if several or not each.ceiling_us or not known:
                continue
            cause = (each.causes or switches()[each.switches[0].partition(":")[0]].causes)[0]
            if cause in HELD_UP:
                continue
            saved = max(0.0, 1 - each.left)
            case = Achieved(cause, name, each.ceiling_us / each.before, saved, "tried")
            if (cause, name) not in best or best[cause, name].share < case.share:
                best[cause, name] = case
    return best.values()


@dataclass(frozen=True)
class Evaluation:
    """How well cases predict each other: each from those of all other programs."""

    programs: int
    skill: float
    """1 - mean absolute error over that of the others' median saving."""
    most: float
    """The same if what could be saved were the prediction."""
    covered: float
    """The part of the cases whose saving was in the interval."""
    width: float
    """Mean width of the intervals, as part of the step."""


def evaluate(given: Sequence[Achieved]) -> Evaluation | None:
    """None where the cases are too few. The table in `achieved` need not be that of `given`."""
    if len({case.program for case in given}) < ENOUGH:
        return None
    known = rows(given)
    errors, constant, most, bounds = [], [], [], []
    for case in given:
        low, likely, high = achieved.expected(case.most, 1.0, case.program, known)
        others = (each.saved for each in given if each.program != case.program)
        errors.append(abs(likely - case.saved))
        constant.append(abs(statistics.median(others) - case.saved))
        most.append(abs(case.most - case.saved))
        bounds.append(((low, high), case.saved))
    least = sum(constant)
    if not least:
        return None
    return Evaluation(
        len({case.program for case in given}),
        1 - sum(errors) / least,
        1 - sum(most) / least,
        covered(bounds) or 0.0,
        statistics.fmean(high - low for (low, high), _ in bounds),
    )


def rows(given: Iterable[Achieved]) -> list[achieved.Case]:
    """The cases as the package has them."""
    return [(c.cause, c.program, round(c.most, 3), round(c.saved, 3)) for c in given]


def written(given: Sequence[Achieved]) -> str:
    return "[\n" + ",\n".join(f" {json.dumps(each)}" for each in rows(given)) + "\n]\n"


def table(given: Sequence[Achieved]) -> list[str]:
    """Cases by cause in Markdown, and how well they predict each other."""
    by_cause: dict[str, list[Achieved]] = defaultdict(list)
    for case in given:
        by_cause[case.cause].append(case)
    lines = [
        "| cause | programs | achieved of what could be saved, median | least | most |",
        "|---|---:|---:|---:|---:|",
    ]
    for cause, alike in [*sorted(by_cause.items()), ("all", [*given])]:
        each = [case.share for case in alike]
        figures = " | ".join(f"{x:.0%}" for x in (statistics.median(each), min(each), max(each)))
        lines.append(f"| {cause} | {len(alike)} | {figures} |")
    found = evaluate(given)
    if found is None:
        return [*lines, "", "These are too few to expect anything of another program."]
    return [
        *lines,
        "",
        f"Each of {found.programs} programs predicted from the others: skill {found.skill:.2f} (what could be saved, as it is, {found.most:.2f}); "
        f"the 80 % interval, {found.width * 100:.0f} points wide in the mean, holds {found.covered:.0%}.",
    ]


def main() -> int:
    labels = score.read_labels(score.FOLDER)
    given = cases(score.development(score.FOLDER / "recordings", labels))
    if "--write" in sys.argv[1:]:
        write_atomic(SHIPPED, written(given).encode())
    print("\n".join(table(given)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
