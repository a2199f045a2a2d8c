"""python -m benchmarks.programs.savings docs/program.md: put the table of predicted and achieved savings
of the recorded programs into a page, between its marks. Needs no GPU."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.field.scoring import update
from benchmarks.programs.score import FOLDER, RecordedProgram, cases, development, ours, read_labels
from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import EXIT_OK


def table(programs: Sequence[RecordedProgram]) -> str:
    """A row for each program whose first cause is its label's: what we say that the step loses to it
    at most, and what its fix saved, by medians of steps that nobody recorded."""
    given = cases(programs, ours)
    first = {case.name for case in given if case.rank == 1}
    lines = [
        "| program | first cause | step before | saves up to | step after | saved |",
        "|---|---|---:|---:|---:|---:|",
    ]
    within = 0
    for each in programs:
        if each.name not in first:
            continue
        before, after = (statistics.median(each.times[side]["us"]) for side in ("before", "after"))
        cause, wall = each.found.costly[0], each.found.account.wall_us
        most = cause.ceiling_us / wall * before
        times = map(units.duration, (before, most, after, before - after))
        lines.append(f"| {' | '.join((each.name, cause.title, *times))} |")
        within += before - after <= most
    others = [case.name for case in given if case.name not in first]
    lines += [
        "",
        f"Of {len(given)} programs these are the {len(first)} whose cause we name first; not so of {', '.join(others) or 'none'}. "
        f"{within} of the {len(first)} saved no more than the ceiling; the fix of any other removed more than that cause.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    programs = development(FOLDER / "recordings", read_labels(FOLDER))
    made = table(programs)
    for page in arguments:
        update(Path(page), made)
    if not arguments:
        print(made)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
