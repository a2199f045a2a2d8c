"""How well the diagnosis does on the held-out kernels, whose causes were planted by somebody who
knew no rule (tests/heldout/README.md).

    python benchmarks/heldout/score.py                  the figures of every recorded report
    python benchmarks/heldout/score.py --cases          every case as well, and the verdicts on the faster kernels
    python benchmarks/heldout/score.py --truth tests/heldout/one/truth.json --timings timings.json report.ncu-rep     another report

A case is a kernel with a planted cause, or at a roof. It is named where the verdict is its cause,
or one of the alternatives that say the same of that kernel. What is predicted counts only where the
cause comes first; else the prediction is 0. Achieved is what its twin saves, by the timings. A twin
that saves less than VOID proves nothing: its case is void.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":  # the package of this checkout
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import calibrate
from ncu_toolkit.base.model import RuleMessage
from ncu_toolkit.kernel.analysis.analyze import LaunchResult, Options, analyze
from ncu_toolkit.kernel.diagnosis.calibrate import Score
from ncu_toolkit.kernel.diagnosis.time_model import NOISE

HERE: Final = Path(__file__).resolve().parents[2] / "tests" / "heldout"
#: Part of the time that a twin saves at least; below it the case is void.
VOID: Final = 0.05
#: Kernels with a planted cause, among the names of a report; their twins end in `_b`.
SLOW: Final = r"_a\b"


@dataclass(frozen=True)
class Recording:
    """A report of a set, its times by kernel in microseconds, and what is held of it (to a tenth of
    a point)."""

    folder: str
    name: str
    times: str
    held: Score
    theirs: Score | None = None
    """The same of Nsight Compute's own rules, where the report holds them."""

    @property
    def label(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def report(self) -> Path:
        return HERE / self.folder / f"{self.name}.ncu-rep.xz"

    @property
    def timings(self) -> Path:
        return HERE / self.folder / self.times

    @property
    def truth(self) -> Path:
        return HERE / self.folder / "truth.json"


#: docs/lab/calibration.md quotes these.
RECORDINGS: Final = (
    Recording("one", "h100", "h100-timings.json", Score(34, 34, 34, 34, 5.2, 37.8)),
    Recording("one", "h200", "h200-timings.json", Score(34, 34, 34, 34, 4.9, 43.6)),
    Recording(
        "one",
        "h100-stock",
        "h100-timings.json",
        Score(34, 34, 34, 34, 5.3, 37.7),
        theirs=Score(34, 34, 20, 25, 21.0, 88.4),
    ),
    Recording("two", "h200", "h200-timings.json", Score(30, 30, 30, 30, 4.5, 56.6)),
    Recording("three", "h100", "h100-timings.json", Score(18, 18, 17, 17, 6.3, 71.2)),
    Recording("three", "h200", "h200-timings.json", Score(18, 18, 17, 17, 7.7, 66.8)),
    Recording(
        "three",
        "h200-stock",
        "h200-timings.json",
        Score(18, 18, 17, 17, 7.9, 66.8),
        theirs=Score(18, 18, 10, 13, 44.1, 94.9),
    ),
    Recording("four", "h100", "h100-timings.json", Score(18, 18, 18, 18, 3.9, 15.3)),
    Recording("four", "h200", "h200-timings.json", Score(18, 18, 18, 18, 5.1, 11.3)),
    Recording(
        "four",
        "h200-stock",
        "h200-timings.json",
        Score(18, 18, 18, 18, 5.1, 11.3),
        theirs=Score(18, 18, 12, 13, 15.5, 93.8),
    ),
)


@dataclass(frozen=True)
class Truth:
    """What was planted in a kernel: the cause, others that say the same of it, the twin that lacks
    it (empty at a roof), and why."""

    kernel: str
    cause: str
    alternatives: tuple[str, ...]
    fixed: str
    why: str

    @property
    def causes(self) -> frozenset[str]:
        return frozenset((self.cause, *self.alternatives))


@dataclass(frozen=True)
class Case:
    """A kernel with its verdict: the causes by rank, those that count, and the parts of its
    time (0-1) predicted and achieved to go."""

    truth: Truth
    named: tuple[str, ...]
    rank: int | None
    predicted: float
    achieved: float | None
    """None at a roof."""

    @property
    def void(self) -> bool:
        return self.achieved is not None and self.achieved < VOID

    @property
    def error(self) -> float | None:
        """|predicted - achieved| in points of time saved; None at a roof."""
        return None if self.achieved is None else abs(self.predicted - self.achieved) * 100

    def __str__(self) -> str:
        rank = "void" if self.void else f"rank {self.rank or 'none'}"
        times = (
            "at a roof"
            if self.achieved is None
            else f"predicted {self.predicted * 100:5.1f}, achieved {self.achieved * 100:5.1f}"
        )
        return f"{self.truth.kernel}  {self.truth.cause:27} {rank:9} {times:34} says {', '.join(self.named[:3]) or 'nothing'}"


def read_truth(path: Path) -> tuple[Truth, ...]:
    """The planted causes of a set, in the order of its kernels."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Truth(kernel, e["cause"], tuple(e["alternatives"]), e["fixed"] or "", e["why"])
        for kernel, e in found.items()
    )


def read(report: Path, kernels: str = "", *, rules: bool = False) -> dict[str, LaunchResult]:
    """The launches of a report with their verdicts, by the kernel's name.

    Args:
        kernels: a regular expression that restricts them.
        rules: keep what Nsight Compute's own rules say, in `profile`.

    Raises:
        ToolkitError: the report cannot be read, or differs from its checksum.
    """
    analysis = analyze([report], Options(kernel=kernels, profiles=rules), jobs=1)
    for file in analysis.files:
        if file.error is not None:
            raise file.error
    return {launch.function: launch for launch in analysis.launches}


def our_cases(
    truths: Iterable[Truth], times: Mapping[str, float], found: Mapping[str, LaunchResult]
) -> list[Case]:
    """Every case of a set that the report holds."""
    cases = []
    for truth in truths:
        if truth.kernel in found:
            findings = found[truth.kernel].diagnosis.findings
            named = [frozenset((finding.bottleneck,)) for finding in findings]
            cases.append(
                _case(
                    truth,
                    times,
                    [finding.bottleneck for finding in findings],
                    named,
                    [finding.saved for finding in findings],
                )
            )
    return cases


def their_cases(
    truths: Iterable[Truth], times: Mapping[str, float], found: Mapping[str, LaunchResult]
) -> list[Case]:
    """The same for Nsight Compute's rules: messages with an estimate for the whole launch, highest
    first, judged as in `calibrate`."""
    cases = []
    for truth in truths:
        if truth.kernel in found:
            messages = _estimates(found[truth.kernel])
            named = [frozenset(calibrate.ncu_means(message)) for message in messages]
            cases.append(
                _case(
                    truth,
                    times,
                    [message.rule for message in messages],
                    named,
                    [(message.speedup or 0.0) / 100 for message in messages],
                )
            )
    return cases


def _estimates(launch: LaunchResult) -> list[RuleMessage]:
    return calibrate.ncu_estimates(launch.profile) if launch.profile is not None else []


def _case(
    truth: Truth,
    times: Mapping[str, float],
    words: Sequence[str],
    named: Sequence[frozenset[str]],
    saved: Sequence[float],
) -> Case:
    rank = next((place for place, causes in enumerate(named, 1) if causes & truth.causes), None)
    achieved = 1 - times[truth.fixed] / times[truth.kernel] if truth.fixed else None
    return Case(truth, tuple(words), rank, saved[0] if rank == 1 else 0.0, achieved)


def score(cases: Iterable[Case]) -> Score:
    """Ranks over all cases that are not void, errors over those of them that have a twin."""
    judged = [case for case in cases if not case.void]
    errors = [case.error for case in judged if case.error is not None]
    return Score(
        len(judged),
        len(judged),
        sum(case.rank == 1 for case in judged),
        sum(case.rank in (1, 2) for case in judged),
        statistics.median(errors) if errors else None,
        max(errors, default=None),
    )


def line(found: Score) -> str:
    """A score in words."""
    errors = (
        "no errors"
        if found.median_error is None
        else f"median error {found.median_error:.1f}, worst {found.worst_error:.1f} points"
    )
    return f"{found.first} of {found.ranked} first, {found.first_two} among the first two, {errors}"


def twins(truths: Iterable[Truth], found: Mapping[str, LaunchResult]) -> list[str]:
    """Verdicts on the kernels without the planted causes, false alarms among it: a line each,
    and how many are at a roof."""
    shown = {truth.fixed: found[truth.fixed].diagnosis for truth in truths if truth.fixed in found}
    lines = []
    for kernel, verdict in shown.items():
        causes = ", ".join(
            f"{finding.bottleneck} {'(good)' if finding.good else f'{finding.saved:.0%}'}"
            for finding in verdict.findings[:3]
        )
        lines.append(f"{kernel}  {causes}")
    roofs = [
        verdict
        for verdict in shown.values()
        if verdict.primary.good or verdict.primary.saved < NOISE
    ]
    others = max(
        (finding.saved for verdict in roofs for finding in verdict.findings[1:]), default=0.0
    )
    return [
        *lines,
        f"{len(roofs)} of {len(shown)} faster kernels are at a roof, and no other cause is shown to save more than {others:.0%} there",
    ]


def show(
    report: Path, truth: Path, timings: Path, label: str, every_case: bool, rules: bool
) -> None:
    """Print what a report scores."""
    truths, times = read_truth(truth), json.loads(timings.read_text(encoding="utf-8"))
    found = read(report, "" if every_case else SLOW, rules=rules)
    cases = our_cases(truths, times, found)
    print(f"{label}: {line(score(cases))}")
    if every_case:
        print(*cases, *twins(truths, found), sep="\n")
    if rules:
        theirs = their_cases(truths, times, found)
        print(f"{label}, Nsight Compute's own rules: {line(score(theirs))}")
        if every_case:
            print(*theirs, sep="\n")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Score the diagnosis on held-out kernels.")
    parser.add_argument(
        "reports",
        nargs="*",
        type=Path,
        help="reports of one set; all recorded ones where none is named",
    )
    parser.add_argument("--truth", type=Path, help="the set's truth.json")
    parser.add_argument(
        "--timings", type=Path, help="times of its kernels, as app.py --time writes them"
    )
    parser.add_argument(
        "--cases", action="store_true", help="list every case, and the faster kernels"
    )
    parser.add_argument(
        "--rules",
        action="store_true",
        help="also score the rules of Nsight Compute in named reports",
    )
    named = parser.parse_args(arguments)
    if named.reports and not (named.truth and named.timings):
        parser.error("a report needs --truth and --timings")
    for report in named.reports:
        show(report, named.truth, named.timings, str(report), named.cases, named.rules)
    for recording in () if named.reports else RECORDINGS:
        show(
            recording.report,
            recording.truth,
            recording.timings,
            recording.label,
            named.cases,
            recording.theirs is not None,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
