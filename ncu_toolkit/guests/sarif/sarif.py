"""Findings and regressions as SARIF 2.1.0, which code hosts and editors show on the source line.

A result lies on the line that the finding names, as a path in the folder one works in where that
holds the file: reports keep the paths of the machine that compiled the code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from ncu_toolkit import __version__
from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.card import Card, gain_text
from ncu_toolkit.kernel.diagnosis.kernel import sentence
from ncu_toolkit.kernel.diagnosis.rules import title
from ncu_toolkit.kernel.pages.json import written

if TYPE_CHECKING:
    from ncu_toolkit.base.model import Finding
    from ncu_toolkit.kernel.analysis.analyze import Analysis, LaunchResult
    from ncu_toolkit.kernel.analysis.gate import ComparedPair, Comparison, Failure

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
REGRESSION: Final = "regression"
_Level = Literal["error", "warning", "note"]
#: Further lines of a finding that are listed.
_RELATED: Final = 10


def analysis_document(analysis: Analysis) -> str:
    """Every finding of the launch of median time of each kernel: the verdict as a warning, others
    and roofs that were reached with useful work as notes. Incomplete launches, and
    ranges that were profiled as one, have none."""
    results = [
        _finding(group.typical, finding, first=at == 0)
        for group in analysis.groups
        if group.typical.complete and not group.typical.workload
        for at, finding in enumerate(group.typical.diagnosis.findings)
        if at == 0 or finding.speedup is not None
    ]
    return _document(results)


def comparison_document(comparison: Comparison) -> str:
    """Every gate that a kernel fails as an error; without gates every kernel that is slower beyond
    chance as a warning. It lies on the hottest line of the new side."""
    if comparison.gates:
        found = [_slower(each.pair, each, "error") for each in comparison.failures]
    else:
        found = [
            _slower(pair, None, "warning")
            for pair in comparison.ordered
            if pair.time and not pair.gpus and pair.time.certain_change > 0
        ]
    return _document(found)


def _document(results: Sequence[dict[str, Any]]) -> str:
    rules = {result["ruleId"]: result.pop("_title") for result in results}
    driver = {
        "name": "ncu-toolkit",
        "version": __version__,
        "rules": [{"id": id, "shortDescription": {"text": text}} for id, text in rules.items()],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": list(results)}
    return written({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _finding(launch: LaunchResult, finding: Finding, first: bool) -> dict[str, Any]:
    gain = ""
    if first:
        gain = sentence(launch.card.gain)
    elif finding.speedup:
        figure = gain_text(finding.speedup, finding.interval)
        gain = sentence(f"{figure} faster if only this is fixed")
    return _result(
        (finding.bottleneck, title(finding.bottleneck)), "warning" if first and not finding.good else "note",
        [f"{launch.card.kernel}: {finding.summary}", gain, *finding.advice[:1]], launch.kernel,
        [(place.file, place.line) for place in finding.locations] + (_lines(launch.card) if first else []),
    )  # fmt: skip


def _slower(pair: ComparedPair, failure: Failure | None, level: _Level) -> dict[str, Any]:
    differences = failure.differences if failure else tuple(filter(None, (pair.time,)))
    parts = [
        f"{each.figure} {units.quantity(each.old, each.unit)} → {units.quantity(each.new, each.unit)}"
        + (f" ({each.change:+.1%})" if each.change is not None else "")
        for each in differences
    ]
    old, new = (side.card.title if side.card else "" for side in (pair.old, pair.new))
    moved = f"Bottleneck: {old} → {new}." if old != new else ""
    gate = f" fails {failure.gate}" if failure else ""
    return _result(
        (REGRESSION, "A kernel is slower, or fails a gate"), level, [f"{pair.name}{gate}: {', '.join(parts)}.", moved],
        pair.name, _lines(pair.new.card), failure.gate if failure else "",
    )  # fmt: skip


def _lines(card: Card | None) -> list[tuple[str, int]]:
    return [(line.path, line.line) for line in card.where] if card else []


def _result(
    about: tuple[str, str],
    level: _Level,
    sentences: Iterable[str],
    kernel: str,
    places: Sequence[tuple[str, int]],
    which: str = "",
) -> dict[str, Any]:
    """One result of a rule and its title, at places; `which` distinguishes several of one rule and
    kernel."""
    rule, words = about
    found = list(dict.fromkeys(each for each in places if each[0] and each[1] > 0))
    first, *others = [_physical(*place) for place in found] or [{}]
    logical = [{"fullyQualifiedName": visible(kernel), "kind": "function"}]
    digest = hashlib.sha256(f"{rule} {kernel} {which}".encode()).hexdigest()[:32]
    result: dict[str, Any] = {
        "_title": words,
        "ruleId": rule,
        "level": level,
        "message": {"text": visible(" ".join(filter(None, sentences)))},
        "locations": [{**first, "logicalLocations": logical}],
        # The same kernel and cause are one alert from run to run, wherever the line moves.
        "partialFingerprints": {"kernelAndRule/v1": digest},
    }
    if others:
        related = enumerate(others[:_RELATED])
        result["relatedLocations"] = [{"id": at, **place} for at, place in related]
    return result


def _physical(file: str, line: int) -> dict[str, Any]:
    location = {"artifactLocation": {"uri": source_uri(file)}, "region": {"startLine": line}}
    return {"physicalLocation": location}


def source_uri(file: str, root: Path | None = None) -> str:
    """A source file as a relative reference where a folder (the current one) holds it under the
    longest end of its path that exists there; else its whole path as a URI."""
    path = PurePosixPath(visible(file, 4096).replace("\\", "/"))
    parts = [part for part in path.parts if part not in ("/", ".")]
    if ".." not in parts:
        for at in range(len(parts)):
            end = Path(*parts[at:])
            if not end.is_absolute() and ((root or Path.cwd()) / end).is_file():
                return quote(end.as_posix())
    whole = quote("/".join(parts))
    drive = bool(parts) and len(parts[0]) == 2 and parts[0][1] == ":"
    return f"file:///{whole}" if path.is_absolute() or drive else whole
