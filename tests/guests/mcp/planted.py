"""Whether the digest that a model gets is enough: of kernels with a planted cause it must name the
cause first, a line of the code that was planted, and the change that fixes it.

    python tests/guests/mcp/planted.py          the table of docs/agents.md, and every case that fails

No model takes part. Cases are the pairs of the pathology ladder and the held-out kernels, recorded
on an H200, each as the only launch of a report and at the default budget. Causes are the labels.
The planted code is where a kernel differs from its twin that is fixed: those lines, three lines
around them, and the functions that they call. A kernel that differs from its twin in its launch or
its data alone has no such line."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    _ROOT = Path(__file__).resolve().parents[3]
    sys.path[:0] = [str(_ROOT), str(_ROOT / "tests")]

import recorded

from benchmarks.heldout import score
from ncu_toolkit.guests.mcp.digest import Digest
from ncu_toolkit.guests.mcp.reports import ServedReport
from ncu_toolkit.guests.mcp.tools import analysed
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, LaunchResult, Options, judge
from ncu_toolkit.kernel.ladder.catalogue import find_family

LADDER: Final = "pathology"
HEADINGS: Final = ("set", "kernels", "cause first", "line", "change", "all")
#: Lines around a changed one that count as it.
NEAR: Final = 3
#: Cause -> a phrase of the change that the fixed twins make.
CHANGES: Final = {
    "uncoalesced-global-access": "threadIdx.x run along|neighbouring lanes|own array",
    "narrow-access": "float4|16 bytes",
    "missing-data-reuse": "shared memory|registers",
    "shared-bank-conflict": "pad|XOR|neighbouring words",
    "shared-instruction-pressure": "in registers|16 bytes at a time",
    "global-instruction-pressure": "16 bytes|float4|once before the loop",
    "local-memory-traffic": "more registers per thread|index",
    "memory-latency": "independent loads|break the chain|in flight",
    "async-copy-wait": "before its use",
    "instruction-dependency": "independent|several elements",
    "low-occupancy": "fewer registers|less shared memory|larger block",
    "grid-too-small": "smaller blocks|more blocks",
    "tail-effect": "number of waves|smaller blocks",
    "load-imbalance": "split",
    "warp-divergence": "same for all lanes",
    "barrier-imbalance": "same work between barriers",
    "atomic-contention": "reduce within the warp|copy per block in shared memory|within the block first",
    "constant-cache-divergence": "table to shared memory",
    "special-function-pressure": "reuse|by multiplications",
    "double-precision": "single precision|float",
    "integer-arithmetic": "shifts and masks|constants",
    "tensor-core-unused": "tensor cores",
    "instruction-cache": "unroll less",
    "launch-overhead": "fewer|graph|one launch|fuse",
}


@dataclass(frozen=True)
class Case:
    """A planted kernel. `planted` are the lines of its code by file name; empty where its twin
    differs in launch or data alone."""

    name: str
    causes: frozenset[str]
    launch: LaunchResult
    planted: frozenset[tuple[str, int]]

    @property
    def digest(self) -> Digest:
        """What a model gets of a report that holds this launch alone."""
        file = FileResult("report.ncu-rep", (self.launch,), declared=1, read=1)
        return analysed(ServedReport("0" * 10, file.path, Analysis((file,))))

    def found(self) -> tuple[bool, bool | None, bool]:
        """Whether the digest names the cause, a planted line (None where there is none), and the
        change."""
        (launch,) = self.digest.launches
        lines = {place.line for place in launch.where}
        line = bool(lines & {f"{file}:{n}" for file, n in self.planted}) if self.planted else None
        wanted = "|".join(CHANGES[cause] for cause in self.causes if cause in CHANGES)
        change = re.search(wanted, " ".join(launch.do), re.IGNORECASE) is not None
        return launch.cause in self.causes, line, change


def sets() -> dict[str, Sequence[Case]]:
    """The cases of each set, read when they are asked for."""
    return {name: cases(name) for name in names()}


def names() -> tuple[str, ...]:
    return (LADDER, *(each.label for each in score.RECORDINGS if each.name == "h200"))


def cases(name: str) -> list[Case]:
    """The cases of one set."""
    return list(_ladder() if name == LADDER else _heldout(name))


def _ladder() -> Iterator[Case]:
    folder = next(each for each in recorded.FOLDERS if each.name.endswith(LADDER))
    run = recorded.run_of(folder)
    for rung in find_family(LADDER).rungs:
        if rung.removes:
            slow, fast = (
                max(
                    (p for p in run.profiles if p.context is not None and p.context.rung == name),
                    key=lambda p: p.duration_us or 0.0,
                )
                for name in (rung.compared_with, rung.name)
            )
            texts = [
                next((text for path, text in p.sources.items() if path.endswith(".cu")), "")
                for p in (slow, fast)
            ]
            file = next((path for path in slow.sources if path.endswith(".cu")), "")
            planted = _planted(texts, (rung.compared_with, rung.name))
            launch = judge(slow, "report.ncu-rep", Options())
            lines = frozenset((Path(file).name, n) for n in planted)
            yield Case(rung.compared_with, frozenset((rung.removes,)), launch, lines)


def _heldout(name: str) -> Iterator[Case]:
    (recording,) = [each for each in score.RECORDINGS if each.label == name]
    program = recorded.ROOT / "benchmarks" / "heldout" / recording.truth.parent.name
    text = (program / "kernels.cu").read_text(encoding="utf-8")
    launches = {each.function: each for each in recorded.launches(recording.report)}
    for truth in score.read_truth(recording.truth):
        if truth.fixed and truth.kernel in launches:
            planted = _planted((text, text), (truth.kernel, truth.fixed))
            lines = frozenset(("kernels.cu", n) for n in planted)
            yield Case(truth.kernel, truth.causes, launches[truth.kernel], lines)


def _planted(texts: Sequence[str], kernels: Sequence[str]) -> set[int]:
    """Lines of the first text in which the first kernel differs from the second, NEAR lines around
    them, and the functions that they call."""
    sides = [text.splitlines() for text in texts]
    spans = [_span(side, name) for side, name in zip(sides, kernels, strict=True)]
    if not all(spans):
        return set()
    (first, last), (start, end) = spans
    old = [line.strip() for line in sides[0][first:last]]
    new = [line.strip().replace(*kernels[::-1]) for line in sides[1][start:end]]
    changed: set[int] = set()
    for tag, a, b, _, _ in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if tag != "equal":
            changed |= {min(at, last - 1) for at in range(first + a, first + max(b, a + 1))}
    near = {n for at in changed for n in range(at - NEAR, at + NEAR + 1) if first <= n < last}
    found, waiting = set(near), sorted(near)
    seen = {kernels[0]}
    while waiting:
        at = waiting.pop()
        for called in re.findall(r"\b(\w+)\s*(?:<[^()]*>)?\s*\(", sides[0][at]):
            span = None if called in seen else _span(sides[0], called)
            seen.add(called)
            if span is not None:
                found |= set(range(*span))
                waiting += range(*span)
    return {n + 1 for n in found}


def _span(lines: Sequence[str], name: str) -> tuple[int, int] | None:
    """Where a function's definition begins and ends, counted from 0; None where there is none."""
    head = re.compile(rf"^(?!\s*(?:return|for|while|if|else)\b)[\w<>,*&\s:()]*\b{name}\s*\([^;]*$")
    for first, line in enumerate(lines):
        inline = re.search(rf"^[^=;]*\b{name}\s*\(.*\)\s*\{{.*\}}\s*$", line)
        if not inline and not head.search(line):
            continue
        depth, opened = 0, False
        for at in range(first, len(lines)):
            depth += lines[at].count("{") - lines[at].count("}")
            opened = opened or "{" in lines[at]
            if opened and depth <= 0:
                return first, at + 1
    return None


def row(name: str, found: Sequence[Case]) -> tuple[str, ...]:
    """A row of the table."""
    results = [case.found() for case in found]
    lines = [line for _, line, _ in results if line is not None]
    return (
        name,
        str(len(results)),
        str(sum(cause for cause, _, _ in results)),
        f"{sum(lines)} of {len(lines)}",
        str(sum(change for _, _, change in results)),
        str(sum(cause and line is not False and change for cause, line, change in results)),
    )


def table(every: dict[str, Sequence[Case]]) -> list[str]:
    """The table of docs/agents.md, a line a row; the last sums the others."""
    whole = [case for found in every.values() for case in found]
    rows = [row(name, found) for name, found in every.items()]
    head = [f"| {' | '.join(HEADINGS)} |", f"|---|{'---:|' * (len(HEADINGS) - 1)}"]
    return [*head, *(f"| {' | '.join(each)} |" for each in [*rows, row("all", whole)])]


def misses(found: Sequence[Case]) -> Iterator[str]:
    """A line for each case that fails, with what the digest says."""
    for case in found:
        cause, line, change = case.found()
        if not (cause and line is not False and change):
            (launch,) = case.digest.launches
            wrong = [
                what
                for what, right in (
                    ("cause", cause),
                    ("line", line is not False),
                    ("change", change),
                )
                if not right
            ]
            places = ", ".join(place.line or place.sass for place in launch.where)
            yield f"{case.name} ({'/'.join(sorted(case.causes))}): {', '.join(wrong)}; says {launch.cause} at {places}: {launch.do[:1]}"


if __name__ == "__main__":
    everything = sets()
    print("\n".join(table(everything)))
    for one in everything.values():
        print("\n".join(misses(one)))
