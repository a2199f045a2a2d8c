"""What commands found, for machines: a run, an analysis and a comparison as JSON, and an analysis as
CSV. The analysis' schema is schemas/analysis-1.json in the package."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from ncu_toolkit import __version__
from ncu_toolkit.core.safe import csv_rows, visible
from ncu_toolkit.document.card import Card
from ncu_toolkit.metrics.registry import REGISTRY
from ncu_toolkit.model import Diagnosis, Evidence, Finding, Frame, Location, Profile, finite

if TYPE_CHECKING:
    from ncu_toolkit.analysis.analyze import Analysis, FileResult, Group, LaunchResult
    from ncu_toolkit.analysis.gate import ComparedPair, Comparison, Difference, Total
    from ncu_toolkit.document.views import Answer, Cell, RunView, Table
    from ncu_toolkit.explain.probed import Verdict
    from ncu_toolkit.model.trace import Trace

#: Raised when a field changes its meaning or goes away; fields may be added without that.
VERSION: Final = 1


def written(plain: Any) -> str:
    """A document as text, with a final newline."""
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def document(view: RunView) -> str:
    """The run as a JSON document with a final newline."""
    shown = json.dumps(plain(view), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return shown + "\n"


def plain(view: RunView) -> dict[str, Any]:
    """The run as plain data: `launches[]` with file, kernel, status, duration_us and diagnosis, and
    the ladders' tables."""
    return {
        "schema": "ncu-toolkit/report",
        "schema_version": VERSION,
        "run": {
            "id": view.id,
            "title": view.title,
            "created": view.created,
            "live": view.live,
            "facts": {fact.label: fact.cell.text for fact in view.facts},
        },
        "launches": list(view.records),
        "families": [
            {
                "family": f.name,
                "title": f.title,
                "sentence": f.sentence,
                "sizes": [{"size": p.label, "rungs": table(p.table)} for p in f.panels],
            }
            for f in view.families
        ],
        "calibration": [table(found) for found in view.calibration],
        "not_collected": table(view.skipped) if view.skipped else [],
    }


def table(found: Table) -> list[dict[str, Any]]:
    """Rows by column key: the value where there is one, else null with the reason under
    `<key>_missing`."""
    rows = []
    for row in found.rows:
        fields: dict[str, Any] = {}
        for column, cell in zip(found.columns, row, strict=True):
            fields[column.key] = _value(cell)
            if cell.missing:
                fields[f"{column.key}_missing"] = cell.title
        rows.append(fields)
    return rows


def _value(cell: Cell) -> Any:
    return None if cell.missing else cell.value if cell.value is not None else cell.text


def launch_of_run(profile: Profile, found: Diagnosis, page: str) -> dict[str, Any]:
    """A launch of a run, with the name of its page where it has one."""
    first, *others = map(_finding, found.findings)
    rung = profile.rung
    return {
        "file": visible(profile.origin.file),
        "launch": profile.origin.key,
        "kernel": visible(profile.launch.kernel),
        "status": visible(profile.launch.status),
        "duration_us": profile.duration_us,
        "page": page,
        "context": {name: getattr(rung, name) for name in ("family", "rung", "size", "dtype")}
        if rung
        else None,
        "diagnosis": {**first, "runners_up": others},
    }


@cache
def schema() -> dict[str, Any]:
    """The published JSON schema of an analysis."""
    text = (
        resources.files("ncu_toolkit")
        .joinpath(f"schemas/analysis-{VERSION}.json")
        .read_text(encoding="utf-8")
    )
    loaded = json.loads(text)
    assert isinstance(loaded, dict)
    return loaded


def analysis_document(analysis: Analysis, omitted_launches: int = 0) -> str:
    """An analysis. `omitted_launches` counts those that --top left out. Every text is made visible:
    no control or reordering character is left in it."""
    plain = {
        "schema": "ncu-toolkit/analysis",
        "version": VERSION,
        "tool_version": __version__,
        "kernel_filter": visible(analysis.options.kernel),
        "omitted_launches": omitted_launches,
        "missed": [visible(sentence) for sentence in analysis.missed],
        "files": [_file(file) for file in analysis.files],
        "kernels": [_group(group, analysis.total_us) for group in analysis.groups],
        "launches": [_launch(launch) for launch in analysis.launches],
        "chains": [
            {
                "file": visible(file.path),
                "launches": [launch.key for launch in launches],
                "now_us": chain.now_us,
                "fused_us": chain.fused_us,
                "handed_on": chain.handed,
            }
            for file in analysis.files
            for chain, launches in file.chains
        ],
    }
    return written(plain)


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
    times, launch = group.times_us, group.typical
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
        "workload": launch.workload or None,
        "inside": [visible(name) for name in launch.inside],
        "stack": [_frame(frame) for frame in launch.stack],
        "process": launch.process or None,
        "device": launch.device,
        "contradictions": [
            {"text": visible(sentence), "metrics": [visible(name) for name in names]}
            for sentence, names in launch.contradictions.items()
        ],
        "duration_us": finite(launch.duration_us),
        "needs": {"bytes": launch.needed_bytes, "flops": launch.needed_flops},
        "diagnosis": diagnosis(launch.diagnosis),
        "card": card(launch.card),
    }


def _frame(frame: Frame) -> dict[str, Any]:
    return {
        "function": visible(frame.function),
        "file": visible(frame.file),
        "line": frame.line or None,
        "module": visible(frame.module),
        "python": frame.python,
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
        "interval": list(finding.interval) if finding.interval else None,
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


def card(shown: Card) -> dict[str, Any]:
    """A card as plain data. Shares are fractions of 1, times microseconds."""
    plain = {**asdict(shown), "headroom_text": shown.room}
    del plain["file"]  # that of the launch
    return plain


def probe_document(trace: Trace, verdicts: Sequence[Verdict], shown: Answer) -> str:
    """What a probe found, as a JSON document: kernels with most time first, the first ones with
    their verdict and card."""
    kernels = []
    for at, kernel in enumerate(trace.kernels):
        launch = kernel.launch
        row: dict[str, Any] = {
            "kernel": visible(launch.function), "grid": launch.grid, "block": launch.block,
            "registers": launch.registers, "shared_static": launch.shared_static,
            "shared_dynamic": launch.shared_dynamic, "launches": kernel.launches,
            "total_us": kernel.total_us, "median_us": kernel.median_us, "low_us": kernel.low_us,
            "high_us": kernel.high_us, "conditions_us": dict(kernel.conditions),
            "kept": dict(kernel.rates),
        }  # fmt: skip
        if at < len(verdicts):
            row["diagnosis"] = diagnosis(verdicts[at].diagnosis)
        if at < len(shown.cards):
            row["card"] = card(shown.cards[at])
        kernels.append(row)
    plain = {
        "schema": "ncu-toolkit/probe",
        "version": VERSION,
        "tool_version": __version__,
        "device": asdict(trace.device),
        "launches": trace.launches,
        "span_us": trace.span_us,
        "busy_us": trace.busy_us,
        "median_gap_us": trace.gap_us,
        "gaps": [
            {
                "after": visible(gap.after),
                "before": visible(gap.before),
                "times": gap.times,
                "total_us": gap.total_us,
            }
            for gap in trace.gaps
        ],
        "kernels": kernels,
        "notes": [visible(note) for note in shown.notes],
    }
    return written(plain)


def csv(analysis: Analysis) -> str:
    """One row a launch: identity, verdict, and every metric that was kept, under its short name and
    unit. Unreadable files get a row too."""
    names = sorted({name for launch in analysis.launches for name in launch.figures})
    headings = [
        "file",
        "launch",
        "kernel",
        "gpu",
        "grid",
        "block",
        "status",
        "duration_us",
        "bottleneck",
        "predicted_speedup",
        "confidence",
        "runner_up",
        "runner_up_speedup",
        "contradictions",
    ]
    rows: list[list[object]] = [
        [
            *headings,
            *(f"{name} ({unit})" if (unit := REGISTRY[name].unit) else name for name in names),
        ]
    ]
    for launch in analysis.launches:
        first, second = launch.diagnosis.primary, (launch.diagnosis.runners_up or (None,))[0]
        rows.append(
            [
                launch.file, launch.key, launch.kernel, launch.gpu, "x".join(map(str, launch.grid)), "x".join(map(str, launch.block)), launch.status,
                launch.duration_us,
                first.bottleneck, first.speedup, first.confidence, second.bottleneck if second else None, second.speedup if second else None,
                "; ".join(launch.contradictions) or None, *(launch.figures.get(name) for name in names),
            ]
        )  # fmt: skip
    rows += [
        [file.path, None, None, None, None, None, f"unreadable: {file.error.message}"]
        for file in analysis.unreadable
        if file.error
    ]
    return csv_rows(rows)


def comparison_document(comparison: Comparison) -> str:
    """A comparison, the kernel whose time moved most first."""
    plain = {
        "schema": "ncu-toolkit/comparison",
        "version": VERSION,
        "tool_version": __version__,
        "gates": list(comparison.gates),
        "passed": not comparison.failures and comparison.comparable,
        "compared": comparison.compared,
        "pairs": [_plain_pair(pair) for pair in comparison.ordered],
        "regressions": [
            {
                "gate": f.gate,
                "kernel": visible(f.pair.name),
                "differences": [_plain_difference(d) for d in f.differences],
            }
            for f in comparison.failures
        ],
        "undecided": [visible(reason) for reason in comparison.undecided],
        "only_old": [visible(side.name) for side in comparison.alone_old],
        "only_new": [visible(side.name) for side in comparison.alone_new],
        "alone": [
            {
                "kernel": visible(side.name),
                "side": which,
                "launches": len(side.times_us),
                "time_us": sum(side.times_us),
                "bottleneck": side.bottleneck or None,
            }
            for which, found in (("old", comparison.alone_old), ("new", comparison.alone_new))
            for side in found
        ],
        "total": _plain_total(comparison.total),
        "remarks": [visible(remark) for remark in comparison.remarks],
    }
    return written(plain)


def _plain_pair(pair: ComparedPair) -> dict[str, Any]:
    from ncu_toolkit.analysis.answers import prediction

    found, came = pair.difference("time"), prediction(pair)
    return {
        "kernel": visible(pair.name),
        "problem": visible(pair.problem) or None,
        "different_gpus": visible(pair.gpus) or None,
        "time": _plain_difference(found) if found else None,
        "launches": [len(pair.old.times_us), len(pair.new.times_us)],
        "bottleneck": [pair.old.bottleneck or None, pair.new.bottleneck or None],
        "prediction": {**asdict(came), "inside": came.inside} if came else None,
    }


def _plain_total(found: Total | None) -> dict[str, Any] | None:
    """All launches of both sides, each figure as [old, new]; null where no sum says anything."""
    if found is None:
        return None
    return {
        "time_us": list(found.times_us),
        "launches": list(found.launches),
        "alone": list(found.alone),
    }


def _plain_difference(found: Difference) -> dict[str, Any]:
    certain = found.certain_change
    return {
        "figure": found.figure,
        "unit": found.unit,
        "old": found.old,
        "new": found.new,
        "change": found.change,
        "noise": found.noise,
        "p_value": found.p,
        "certain_change": certain if math.isfinite(certain) else None,
    }
