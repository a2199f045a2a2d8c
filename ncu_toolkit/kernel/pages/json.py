"""What commands found, for machines: a run, an analysis and a comparison as JSON, an analysis as CSV,
and how values become JSON and CSV. Schemas are in the package's folder schemas/."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import resources
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from ncu_toolkit import __version__
from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.base.core.safe import csv_rows, visible
from ncu_toolkit.base.document.card import Card
from ncu_toolkit.base.metrics.registry import REGISTRY
from ncu_toolkit.base.model import Diagnosis, Profile, finite

if TYPE_CHECKING:
    from ncu_toolkit.base.document.tables import Cell, Table
    from ncu_toolkit.base.document.views import RunView
    from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, Group, LaunchResult
    from ncu_toolkit.kernel.analysis.gate import ComparedPair, Comparison
    from ncu_toolkit.kernel.pages.book import Book

#: Raised when a field changes its meaning or goes away; fields may be added without that.
VERSION: Final = 1
#: What is written of a value, by the name of its class: attributes, or `key=attribute`; after a
#: question mark, null stands for an empty one.
_FIELDS: Final[Mapping[str, str]] = {
    "Chain": "now_us fused_us handed_on=handed",
    "Difference": "figure unit old new change noise p_value=p certain_change",
    "Evidence": "metric label value unit comparison threshold meaning",
    "Failure": "gate kernel=pair.name differences",
    "Finding": "bottleneck summary confidence good predicted_speedup=speedup interval provided? arithmetic advice look_for evidence locations",
    "Frame": "function file line? module python",
    "Gap": "after before times total_us",
    "Location": "file line address sass share what",
    "NoFinding": "bottleneck outcome reason missing",
    "StepFinding": "rule title summary confidence good ceiling_us expected_us measured_us where advice arithmetic evidence switch?",
    "Total": "time_us=times_us launches alone",
    "Tried": "switches title outcome description said=description before_us after_us noise_us p results compared causes ceiling_us keep before after",
}


#: Marks the place of launches in a document: no text of a report holds a control character.
_HERE: Final = "\0"


def written(plain: Any) -> str:
    """A document as text, with a final newline."""
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_plain(value: Any) -> Any:
    """A value as JSON has it. No text holds control or reordering characters, and null stands for
    what is not finite."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {key: as_plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_plain(each) for each in value]
    names = _FIELDS.get(type(value).__name__)
    return value if names is None else fields_of(value, names)


def fields_of(value: Any, names: str) -> dict[str, Any]:
    found = {}
    for key, get, nullable in parsed(names):
        got = as_plain(get(value))
        found[key] = (got or None) if nullable else got
    return found


@cache
def parsed(names: str) -> Sequence[tuple[str, Callable[[Any], Any], bool]]:
    """Key, attribute and whether null stands for an empty one, of each field."""
    found = []
    for name in names.split():
        key, _, path = name.rstrip("?").partition("=")
        found.append((key, attrgetter(path or key), name.endswith("?")))
    return found


def cells(value: Any, shown: Sequence[tuple[str, Callable[[Any], Any], bool]]) -> list[Any]:
    """A row of CSV, with grids and blocks as `4x4x1`."""
    found = (get(value) for _, get, _ in shown)
    return ["x".join(map(str, each)) if isinstance(each, tuple) else each for each in found]


def document(view: RunView, book: Book, pages: Mapping[int, str]) -> str:
    """The run as a JSON document with a final newline."""
    shown = plain(view, book, pages)
    return json.dumps(shown, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def plain(view: RunView, book: Book, pages: Mapping[int, str]) -> dict[str, Any]:
    """The run as plain data: `launches[]` with file, kernel, status, duration_us and diagnosis, and
    the ladders' tables. `pages` are those of launches, by the identity of their profile."""
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
        "launches": [
            launch_of_run(each, book.diagnosis(each), pages.get(id(each), ""))
            for each in book.run.profiles
        ],
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
    first, *others = as_plain(found.findings)
    names = (
        "file=origin.file launch=origin.key kernel=launch.kernel status=launch.status duration_us"
    )
    return {
        **fields_of(profile, names),
        "page": page,
        "context": fields_of(profile.rung, "family rung size dtype") if profile.rung else None,
        "diagnosis": {**first, "runners_up": others},
    }


@cache
def schema(name: str = "analysis") -> dict[str, Any]:
    """The published JSON schema of an `analysis`, a `program`, or a `trial`."""
    text = (
        resources.files("ncu_toolkit")
        .joinpath(f"schemas/{name}-{VERSION}.json")
        .read_text(encoding="utf-8")
    )
    loaded = json.loads(text)
    assert isinstance(loaded, dict)
    return loaded


def analysis_document(analysis: Analysis, omitted_launches: int = 0, **more: Any) -> str:
    """An analysis. `omitted_launches` counts those that --top left out; `more` is put last."""
    head, _, tail = document_of(
        "analysis",
        kernel_filter=visible(analysis.options.kernel),
        omitted_launches=omitted_launches,
        missed=as_plain(analysis.missed),
        files=[file_of(file) for file in analysis.files],
        kernels=[_group(group, analysis.total_us) for group in analysis.groups],
        launches=[_HERE],
        chains=[
            {
                "file": visible(file.path),
                "launches": [launch.key for launch in launches],
                **as_plain(chain),
            }
            for file in analysis.files
            for chain, launches in file.chains
        ],
        **more,
    ).partition(f"\n  {json.dumps(_HERE)}\n ")
    # One after the other: as one document they take twenty times the memory.
    rows = (written(_launch(each)).rstrip().replace("\n", "\n  ") for each in analysis.launches)
    inside = [part for row in rows for part in (",\n  ", row)]
    return "".join([head, *(["\n  ", *inside[1:], "\n "] if inside else []), tail])


def document_of(name: str, **content: Any) -> str:
    head = {"schema": f"ncu-toolkit/{name}", "version": VERSION, "tool_version": __version__}
    return written({**head, **content})


class ReadFile(Protocol):
    """A file that was read, or could not be."""

    @property
    def path(self) -> str: ...
    @property
    def error(self) -> ToolkitError | None: ...


def opened(file: ReadFile, status: str) -> dict[str, Any]:
    error = file.error
    return {
        "file": visible(file.path),
        "status": status,
        "error": visible(error.message) if error else None,
        "remedy": visible(error.remedy) if error else None,
    }


def file_of(file: FileResult) -> dict[str, Any]:
    return {
        **opened(file, file.status),
        **fields_of(file, "state damage=lacking? ncu_version?"),
        "declared_launches": None if file.error else file.declared,
        "read_launches": None if file.error else file.read,
        "checksum": visible(file.checksum) or None,
    }


def _group(group: Group, total_us: float | None) -> dict[str, Any]:
    times, launch = group.times_us, group.typical
    return {
        **fields_of(launch, "file kernel"),
        "launches": [member.key for member in group.launches],
        "status": visible(launch.status),
        "total_us": group.total_us,
        "share": group.total_us / total_us if group.total_us is not None and total_us else None,
        "median_us": times[(len(times) - 1) // 2] if times else None,
        "minimum_us": times[0] if times else None,
        "maximum_us": times[-1] if times else None,
        "bottleneck": launch.diagnosis.primary.bottleneck,
        "agreeing_launches": group.agreeing,
        "predicted_speedup": launch.diagnosis.primary.speedup,
    }


def _launch(launch: LaunchResult) -> dict[str, Any]:
    names = "file launch=key kernel function gpu arch grid block status workload? inside stack process? device"
    return {
        **fields_of(launch, names),
        "contradictions": [
            {"text": visible(sentence), "metrics": as_plain(metrics)}
            for sentence, metrics in launch.contradictions.items()
        ],
        "duration_us": finite(launch.duration_us),
        "needs": {"bytes": launch.needed_bytes, "flops": launch.needed_flops},
        "diagnosis": diagnosis(launch.diagnosis),
        "card": card(launch.card),
    }


def diagnosis(found: Diagnosis) -> dict[str, Any]:
    """A verdict as plain data: the first finding, with the others under `runners_up`."""
    first, *others = as_plain(found.findings)
    return {**first, **fields_of(found, "bounds_us=bounds notes"), "runners_up": others}


def card(shown: Card) -> dict[str, Any]:
    """A card as plain data. Shares are fractions of 1, times microseconds."""
    plain = {**asdict(shown), "headroom_text": shown.room}
    # of the launch; of programs; `time_us` is null
    for name in ("file", "then", "of", "strip", "tested", "untimed", "assumed"):
        del plain[name]
    return plain


def csv(analysis: Analysis) -> str:
    """One row a launch: identity, verdict, and every metric that was kept, under its short name and
    unit. Unreadable files get a row too."""
    metrics = sorted({name for launch in analysis.launches for name in launch.figures})
    shown = parsed(
        "file launch=key kernel gpu grid block status duration_us bottleneck=diagnosis.primary.bottleneck "
        "predicted_speedup=diagnosis.primary.speedup confidence=diagnosis.primary.confidence"
    )
    rows: list[list[object]] = [
        [
            *(key for key, _, _ in shown),
            *("runner_up", "runner_up_speedup", "contradictions"),
            *(f"{name} ({unit})" if (unit := REGISTRY[name].unit) else name for name in metrics),
        ]
    ]
    for launch in analysis.launches:
        second = next(iter(launch.diagnosis.runners_up), None)
        rows.append(
            [
                *cells(launch, shown),
                *((second.bottleneck, second.speedup) if second else (None, None)),
                "; ".join(launch.contradictions) or None,
                *(launch.figures.get(name) for name in metrics),
            ]
        )
    rows += [
        [file.path, None, None, None, None, None, f"unreadable: {file.error.message}"]
        for file in analysis.unreadable
        if file.error
    ]
    return csv_rows(rows)


def comparison_document(comparison: Comparison, **more: Any) -> str:
    """A comparison, the kernel whose time moved most first; `more` is at its end."""
    return document_of(
        "comparison",
        gates=list(comparison.gates),
        passed=not comparison.failures and comparison.comparable,
        compared=comparison.compared,
        pairs=[_pair(pair) for pair in comparison.ordered],
        regressions=as_plain(comparison.failures),
        undecided=as_plain(comparison.undecided),
        only_old=[visible(side.name) for side in comparison.alone_old],
        only_new=[visible(side.name) for side in comparison.alone_new],
        alone=[
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
        # all launches of both sides, each figure as [old, new]; null where no sum says anything
        total=as_plain(comparison.total),
        remarks=as_plain(comparison.remarks),
        **more,
    )


def _pair(pair: ComparedPair) -> dict[str, Any]:
    from ncu_toolkit.kernel.analysis.answers import prediction

    found, came = pair.difference("time"), prediction(pair)
    return {
        **fields_of(pair, "kernel=name problem? different_gpus=gpus?"),
        "time": as_plain(found),
        "launches": [len(pair.old.times_us), len(pair.new.times_us)],
        "bottleneck": [pair.old.bottleneck or None, pair.new.bottleneck or None],
        "prediction": {**asdict(came), "inside": came.inside} if came else None,
    }
