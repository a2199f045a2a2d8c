"""Analyse every report in folders as a user would, and show what became of each.

    python tests/field_check.py DIR…              a row a file, and totals
    python tests/field_check.py --relations DIR…  on how many launches each relation of
                                                  kernel/report/integrity.py holds, for docs/integrity.md

Ends with 1 where a report that loads was refused, a traceback appeared, or an exit code is not the
one of the file's state; with --relations where a relation does not hold."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ncu_toolkit.base.core.errors import ToolkitError  # noqa: E402
from ncu_toolkit.kernel.analysis.analyze import find_reports  # noqa: E402
from ncu_toolkit.kernel.report import framing, integrity, ncu_action, reader  # noqa: E402

#: Every relation between figures of one launch, and what it proves where it holds.
RELATIONS: Final[Mapping[str, str]] = {
    "sum = average × units": "a figure's `.avg` and `.sum` are of one measurement: the units are "
    "the same for all figures of a kind (`sm`, `lts`)",
    "minimum ≤ average ≤ maximum": "a figure's `.min`, `.avg` and `.max` are of one measurement",
    "X / X.per_second = duration": "the kernel's time is the one that its rates were made with",
    "time = cycles / clock": "the kernel's time is in the unit that it says",
    "DRAM bytes = read + written": "the traffic of device memory is of one measurement",
    "latency = warps / issue rate": "the total of the stall reasons fits occupancy and issue rate",
    "grid and block = their products": "grid, block and number of threads are of one launch",
    "waves = grid / (limit × SMs)": "the waves fit the grid, the block limits and the SMs",
    "total = sum over instructions": "counts by instruction and their total are of one launch",
    integrity.OWN: "the counters are not another launch's: replay passes, counts of patched code, and "
    "one instruction or more for each warp",
    "counts are possible": "no count by instruction is negative or no number",
    "samples = sum over stall reasons": "PC samples by stall reason and their number are of one launch",
    "lanes ≤ 32 × warps": "an instruction's counts of threads and warps fit together",
    "not issued ≤ all samples": "an instruction's two tables of samples fit together",
    "code is in the file": "the machine code that a launch names was not lost",
    "the code's headers fit together": "sections, symbols and program headers of the machine code "
    "are of one file (report/cubin.py)",
    "the kernel is in its code": "a launch's name and its machine code are of one kernel",
    "the code is for the GPU": "machine code and GPU are of one launch",
    "registers ≥ those of the code": "registers per thread and machine code are of one kernel",
    "static shared memory = that of the code": "shared memory and machine code are of one kernel",
    "grid and block are the launch's": "a launch's figures and its own grid and block are of one launch",
    "the GPU is one of the session's": "a launch's GPU and the list of GPUs are of one file",
    "the kernel's entry was executed": "counts by instruction and machine code are of one launch",
    "counted instructions have a text": "the machine code can be disassembled where it was counted",
    "a call is there once": "no launch is there twice",
    "calls are in order": "launches are in the order in which their thread made them",
    "times are in order": "launches are in the order in which they were profiled",
}

STATES = ("unreadable", "incomplete", "contradictory")


@dataclass(frozen=True)
class Row:
    """What `analyze` made of one file. `launches` counts launches by state, `verdicts` complete
    ones by bottleneck; `faults` are what must not happen."""

    file: Path
    state: str
    launches: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    error: str = ""
    faults: tuple[str, ...] = ()


def check(path: Path) -> Row:
    """One file through the command line, as JSON."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ncu_toolkit", "analyze", str(path), "--format", "json", "-j", "1"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    seconds = time.monotonic() - started
    errors = done.stderr.decode(errors="replace")
    faults = ["traceback"] if "Traceback" in errors or done.returncode not in (0, 4) else []
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return Row(path, "unreadable", seconds=seconds, error=errors, faults=(*faults, "no JSON"))
    (file,) = document["files"]
    state = file["state"]
    if state == "unreadable" and loads(path):
        faults.append("refused")
    if done.returncode != (4 if state in ("unreadable", "incomplete") else 0):
        faults.append(f"exit {done.returncode}")
    launches, verdicts = tally(document["launches"])
    error = file["error"] or file["damage"] or ""
    return Row(path, state, launches, verdicts, seconds, error, tuple(faults))


def tally(launches: Iterable[dict[str, Any]]) -> tuple[Counter[str], Counter[str]]:
    """States of launches, and verdicts of those that were judged."""
    states: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for launch in launches:
        whole = launch["status"] == "complete"
        states[
            "incomplete"
            if not whole
            else "contradictory"
            if launch["contradictions"]
            else "complete"
        ] += 1
        if whole:
            verdicts[launch["diagnosis"]["bottleneck"]] += 1
    return states, verdicts


def loads(path: Path) -> bool:
    """Whether the framing is whole and NVIDIA's module finds every launch that it declares."""
    try:
        data = framing.read_bytes(path)
    except ToolkitError:
        return False
    frame = framing.parse(data)
    if frame.problem or not frame.declared_launches:
        return False
    with tempfile.TemporaryDirectory() as scratch:
        readable = reader.ReportFile(path).plain(Path(scratch))
        context = ncu_action.module().load_report(str(readable))
        found = sum(context.range_by_idx(i).num_actions() for i in range(context.num_ranges()))
    return bool(found == frame.declared_launches)


def table(rows: Sequence[Row]) -> Iterable[str]:
    """A line a file, then the totals."""
    width = max([len(str(row.file)) for row in rows] + [4])
    yield f"{'file':{width}} {'launches':>8}  {'states':34} {'seconds':>7}  verdicts"
    for row in rows:
        states = ", ".join(f"{n} {state}" for state, n in row.launches.most_common())
        verdicts = ", ".join(f"{n} {name}" for name, n in row.verdicts.most_common())
        shown = states if row.state in (*row.launches, "complete") else f"{row.state}: {states}"
        yield (
            f"{row.file!s:{width}} {row.launches.total():8}  {shown:34} {row.seconds:7.1f}  "
            f"{verdicts}{' '.join(('', *map(str.upper, row.faults)))}"
        )
        if row.error:
            yield f"{'':{width}} {row.error.strip()}"
    launches = sum((row.launches for row in rows), Counter[str]())
    verdicts = sum((row.verdicts for row in rows), Counter[str]())
    files = Counter(row.state for row in rows)
    faults = Counter(fault for row in rows for fault in row.faults)
    yield ""
    yield f"{len(rows)} files, {launches.total()} launches"
    for state in STATES:
        yield f"{state:15} {files[state]:5} files {launches[state]:6} launches"
    yield f"{'without verdict':15} {verdicts['unknown']:19} launches"
    yield f"{'refused':15} {faults['refused']:5} files"
    yield f"{'tracebacks':15} {faults['traceback']:5} files"


def relations(files: Sequence[Path]) -> tuple[Counter[str], Counter[str], int]:
    """Launches in which each relation was looked at, those where it did not hold, and launches in
    all. Every check of a launch goes through `integrity.contradictions`, once for the figures and
    once for the instructions."""
    seen: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    fold = integrity.contradictions

    def counting(checks: Iterable[integrity.Check]) -> dict[str, tuple[str, ...]]:
        known = list(checks)
        seen.update({check.relation for check in known})
        broken.update({check.relation for check in known if check.problem})
        return fold(known)

    integrity.contradictions = counting
    launches = 0
    try:
        for path in files:
            launches += reader.visit_report(path, lambda profile: None).read_launches
            print(f"{path}: {launches} launches", file=sys.stderr)
    finally:
        integrity.contradictions = fold
    return seen, broken, launches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--relations", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    files, empty = find_reports(chosen.folders)
    for result in empty:
        print(result.error, file=sys.stderr)
    if chosen.relations:
        seen, broken, launches = relations(files)
        print(f"{launches} launches in {len(files)} files\n")
        print("| relation | what it proves | launches |\n|---|---|---:|")
        for relation, proves in RELATIONS.items():
            print(f"| {relation} | {proves} | {seen[relation]:,} |")
        for relation, count in broken.items():
            print(f"does not hold in {count} launches: {relation}")
        sys.exit(bool(broken or empty))
    with ThreadPoolExecutor(chosen.jobs) as pool:
        rows = list(pool.map(check, files))
    print("\n".join(table(rows)))
    sys.exit(bool(empty or any(row.faults for row in rows)))


if __name__ == "__main__":
    main()
