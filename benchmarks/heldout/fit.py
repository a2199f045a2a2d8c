"""Fit the intervals of gains to every case on record, and show how they do on sets left out.

    python benchmarks/heldout/fit.py            write ncu_toolkit/data/intervals.json and the cases behind it
    python benchmarks/heldout/fit.py --show     from the cases as they were written, without a diagnosis

Cases are the ladders' steps on both GPUs, the held-out sets and the field benchmark without its
sealed pairs, where the verdict names the cause and gives a figure. They need three minutes; run it after a change of a rule that moves gains."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final

if __name__ == "__main__":  # the tests' own modules and the package of this checkout
    _ROOT = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(_ROOT), str(_ROOT / "tests")]

import recorded

from benchmarks.field import RECORDINGS, scoring
from benchmarks.heldout import residuals, score
from benchmarks.heldout.residuals import Coverage, Residual
from ncu_toolkit.base.model import Diagnosis
from ncu_toolkit.kernel.diagnosis import calibrate
from ncu_toolkit.kernel.diagnosis.calibrate import Judged
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.ladder.catalogue import load_families

CASES: Final = recorded.ROOT / "docs" / "data" / "residuals.csv"
FITTED: Final = recorded.ROOT / "ncu_toolkit" / "data" / "intervals.json"
#: Runs of the ladders by GPU.
LADDERS: Final = {"h200": recorded.FOLDERS, "h100": sorted((score.HERE / "ladders").iterdir())}
_DIGITS: Final = 5


def residual(
    source: str, report: str, case: str, found: Diagnosis, saved: float, achieved: float
) -> Residual | None:
    """A case whose verdict is the cause; `saved` is the part of the time (0-1) predicted to go.
    None where there is no figure."""
    finding = found.primary
    if finding.good or saved <= 0:
        return None
    rule = load_rules()[finding.bottleneck]
    stalled = any(fact.metric.startswith("stall") for fact in finding.evidence)
    # A part of a rung's launches has no roof of its own.
    whole = abs(saved - finding.saved) < 1e-9
    return Residual(
        source,
        report,
        case,
        finding.bottleneck,
        finding.confidence,
        "shape" if rule.FROM_SHAPE else "stalls" if stalled else "counters",
        round(1 / (1 - saved), _DIGITS),
        round(1 / (1 - achieved), _DIGITS),
        round(found.headroom.factor, _DIGITS) if found.headroom and whole else None,
    )


def of_ladders(report: str, outcomes: Iterable[Judged]) -> list[Residual]:
    """The cases of a calibration."""
    found = []
    for outcome in outcomes:
        pair, guess = outcome.pair, outcome.ours
        if outcome.counts and guess.rank == 1 and guess.saved and guess.diagnosis is not None:
            source, case = f"ladders/{pair.family}", f"{pair.before} > {pair.after}"
            made = residual(source, report, case, guess.diagnosis, guess.saved, pair.achieved)
            found += [made] if made else []
    return found


def of_set(recording: score.Recording) -> list[Residual]:
    """The cases of a held-out report."""
    times = json.loads(recording.timings.read_text(encoding="utf-8"))
    launches = recorded.launches(recording.report)
    read = {each.function: each for each in launches if re.search(score.SLOW, each.function)}
    found = []
    for case in score.our_cases(score.read_truth(recording.truth), times, read):
        if case.rank == 1 and not case.void and case.achieved is not None:
            name, diagnosis = case.truth.kernel, read[case.truth.kernel].diagnosis
            source = f"heldout/{recording.folder}"
            made = residual(source, recording.name, name, diagnosis, case.predicted, case.achieved)
            found += [made] if made else []
    return found


def of_field(folder: Path) -> list[Residual]:
    """The cases of the field benchmark that rules were changed in view of (development and scored)
    on one GPU, a set for each language.

    Without calls of which the profiled launch is a part: what their other launches gain says
    nothing of how far a launch's prediction is off."""
    known = [*scoring.read(folder, "development"), *scoring.read(folder, "scored")]
    pairs = {pair.name: pair for pair in known}
    found = []
    for case in scoring.cases(pairs.values(), scoring.ours):
        if case.rank == 1 and pairs[case.name].share == 1.0:
            diagnosis = pairs[case.name].sides["before"].diagnosis
            source = f"field/{case.language}"
            made = residual(
                source, folder.name, case.name, diagnosis, case.predicted, case.achieved
            )
            found += [made] if made else []
    return found


def read() -> list[Residual]:
    """The cases as they were written."""
    with CASES.open(encoding="utf-8", newline="") as file:
        return [
            Residual(
                **{
                    **row,
                    "predicted": float(row["predicted"]),
                    "achieved": float(row["achieved"]),
                    "roof": float(row["roof"]) if row["roof"] else None,
                }
            )
            for row in csv.DictReader(file)
        ]


def write(cases: Sequence[Residual]) -> None:
    with CASES.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Residual)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, cases))


def fitted(cases: Sequence[Residual]) -> str:
    """The file in the package."""
    return json.dumps({"level": residuals.LEVEL, **asdict(residuals.fit(cases))}, indent=1) + "\n"


KINDS: Final = {"ladders": "ladders", "heldout": "held-out sets", "field": "field benchmark"}
#: What intervals could go by beside the predicted gain.
GROUPS: Final[dict[str, Callable[[Residual], str]]] = {
    "all cases alike": lambda each: "",
    "by rule (used)": lambda each: each.rule,
    "by confidence": lambda each: each.confidence,
    "by evidence (shape, stalls, counters)": lambda each: each.evidence,
    "by size of the gain (1.5×, 2.5×)": lambda each: str(
        (each.predicted > 1.5) + (each.predicted > 2.5)
    ),
}
HEADINGS: Final = ("", "cases", "inside", "below", "above", "mean width", "score")


def line(name: str, found: Coverage) -> tuple[str, ...]:
    parts = (f"{part:.0%}" for part in (found.inside, found.below, found.above))
    return (name, f"{found.cases:.0f}", *parts, f"{found.width:.2f}×", f"{found.score:.2f}")


def alternatives(cases: Sequence[Residual]) -> list[tuple[str, ...]]:
    """How each way of grouping does on sets left out, a row of HEADINGS each."""
    return [
        line(name, residuals.coverage(residuals.left_out(cases, group)))
        for name, group in GROUPS.items()
    ]


def parts(cases: Sequence[Residual]) -> list[tuple[str, ...]]:
    """How the intervals do on parts of what is left out: held-out sets, ladders, each set, each
    confidence, and small and large gains."""
    found = residuals.left_out(cases)
    ways: dict[str, Callable[[Residual], str]] = {
        "kind": lambda each: KINDS[each.source.partition("/")[0]],
        "set": lambda each: each.source,
        "confidence": lambda each: f"{each.confidence} confidence",
        "gain": lambda each: (
            "predicted below 1.5×",
            "predicted 1.5 to 2.5×",
            "predicted above 2.5×",
        )[(each.predicted > 1.5) + (each.predicted > 2.5)],
    }
    rows = [line("all", residuals.coverage(found))]
    alone = residuals.left_out(cases, part=residuals.pair)
    rows += [
        line(
            f"{name}, pair by pair",
            residuals.coverage([e for e in alone if e[0].source.startswith(kind)]),
        )
        for kind, name in KINDS.items()
    ]
    for way in ways.values():
        for name in dict.fromkeys(way(each) for each, _ in found):
            chosen = [pair for pair in found if way(pair[0]) == name]
            rows.append(line(name, residuals.coverage(chosen)))
    return rows


def main(arguments: Sequence[str]) -> None:
    if "--show" not in arguments:
        cases = []
        steps = [rung for family in load_families().values() for rung in family.rungs]
        for report, folders in LADDERS.items():
            pairs = calibrate.pairs(map(recorded.run_of, folders), steps)
            cases += of_ladders(report, calibrate.judged(pairs))
        cases += [each for recording in score.RECORDINGS for each in of_set(recording)]
        cases += [each for folder in sorted(RECORDINGS.iterdir()) for each in of_field(folder)]
        write(cases)
        FITTED.write_text(fitted(cases), encoding="utf-8")
    cases = read()
    for row in (HEADINGS, *alternatives(cases), *parts(cases)):
        print(f"{row[0]:40}" + "".join(f"{cell:>11}" for cell in row[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
