"""An analysis as a JSON document; its schema is schemas/analysis-1.json in the package."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, Final

from ncu_toolkit import __version__
from ncu_toolkit.analysis.analyze import Analysis, FileResult, Group, LaunchResult
from ncu_toolkit.core.safe import visible
from ncu_toolkit.model import Diagnosis, Evidence, Finding, Location, finite
from ncu_toolkit.render import card

#: Raised when a field changes its meaning or goes away; fields may be added without that.
VERSION: Final = 1


@cache
def schema() -> dict[str, Any]:
    """The published JSON schema of the document."""
    text = (
        resources.files("ncu_toolkit")
        .joinpath(f"schemas/analysis-{VERSION}.json")
        .read_text(encoding="utf-8")
    )
    loaded = json.loads(text)
    assert isinstance(loaded, dict)
    return loaded


def document(analysis: Analysis, omitted_launches: int = 0) -> str:
    """The document with a final newline. `omitted_launches` counts those that --top left out."""
    return (
        json.dumps(plain(analysis, omitted_launches), indent=1, ensure_ascii=False, allow_nan=False)
        + "\n"
    )


def plain(analysis: Analysis, omitted_launches: int = 0) -> dict[str, Any]:
    """The document as plain data. Every text is made visible: no control or reordering character is
    left in it."""
    return {
        "schema": "ncu-toolkit/analysis",
        "version": VERSION,
        "tool_version": __version__,
        "kernel_filter": visible(analysis.options.kernel),
        "omitted_launches": omitted_launches,
        "missed": [visible(sentence) for sentence in analysis.missed],
        "files": [_file(file) for file in analysis.files],
        "kernels": [_group(group, analysis.total_us) for group in analysis.groups],
        "launches": [_launch(launch) for launch in analysis.launches],
    }


def _file(file: FileResult) -> dict[str, Any]:
    return {
        "file": visible(file.path),
        "status": file.status,
        "error": visible(file.error.message) if file.error else None,
        "remedy": visible(file.error.remedy) if file.error else None,
        "state": file.state,
        "damage": visible(file.lacking) if file.lacking else None,
        "ncu_version": visible(file.ncu_version) or None,
        "declared_launches": None if file.error else file.declared,
        "read_launches": None if file.error else file.read,
        "checksum": visible(file.checksum) or None,
    }


def _group(group: Group, total_us: float) -> dict[str, Any]:
    times, launch = group.times_us, group.median
    return {
        "file": visible(launch.file),
        "kernel": visible(launch.kernel),
        "launches": [member.key for member in group.launches],
        "status": visible(launch.status),
        "total_us": group.total_us if times else None,
        "share": group.total_us / total_us if times and total_us else None,
        "median_us": times[(len(times) - 1) // 2] if times else None,
        "minimum_us": times[0] if times else None,
        "maximum_us": times[-1] if times else None,
        "bottleneck": launch.diagnosis.primary.bottleneck,
        "agreeing_launches": group.agreeing,
        "predicted_speedup": launch.diagnosis.primary.speedup,
    }


def _launch(launch: LaunchResult) -> dict[str, Any]:
    return {
        "file": visible(launch.file),
        "launch": launch.key,
        "kernel": visible(launch.kernel),
        "function": visible(launch.function),
        "gpu": visible(launch.gpu),
        "arch": launch.arch,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "status": visible(launch.status),
        "contradictions": [
            {"text": visible(sentence), "metrics": [visible(name) for name in names]}
            for sentence, names in launch.contradictions.items()
        ],
        "duration_us": finite(launch.duration_us),
        "needs": {"bytes": launch.needed_bytes, "flops": launch.needed_flops},
        "diagnosis": diagnosis(launch.diagnosis),
        "card": card.plain(launch.card),
    }


def diagnosis(found: Diagnosis) -> dict[str, Any]:
    """A verdict as plain data: the first finding, with the others under `runners_up`."""
    first, *others = found.findings
    return {
        **_finding(first),
        "bounds_us": {name: finite(value) for name, value in found.bounds.items()},
        "notes": [visible(note) for note in found.notes],
        "runners_up": [_finding(other) for other in others],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "bottleneck": finding.bottleneck,
        "summary": visible(finding.summary),
        "confidence": finding.confidence,
        "good": finding.good,
        "predicted_speedup": finite(finding.speedup),
        "arithmetic": [visible(line) for line in finding.arithmetic],
        "advice": [visible(line) for line in finding.advice],
        "look_for": visible(finding.look_for),
        "evidence": [_evidence(item) for item in finding.evidence],
        "locations": [_location(place) for place in finding.locations],
    }


def _evidence(item: Evidence) -> dict[str, Any]:
    return {
        "metric": item.metric,
        "label": visible(item.label),
        "value": finite(item.value),
        "unit": item.unit,
        "comparison": item.comparison,
        "threshold": item.threshold,
        "meaning": visible(item.meaning),
    }


def _location(place: Location) -> dict[str, Any]:
    return {
        "file": visible(place.file),
        "line": place.line,
        "address": place.address,
        "sass": visible(place.sass),
        "share": finite(place.share),
        "what": visible(place.what),
    }
