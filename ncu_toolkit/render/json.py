"""The run's view as JSON: what the pages show, for machines. One entry a launch, in file order,
none dropped."""

from __future__ import annotations

import json
from typing import Any, Final

from ncu_toolkit.render.views import Cell, LaunchRecord, RunView, Table

#: Raised when a field changes its meaning or goes away.
SCHEMA: Final = 1


def document(view: RunView) -> str:
    """The run as a JSON document with a final newline."""
    return json.dumps(plain(view), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def plain(view: RunView) -> dict[str, Any]:
    """The run as plain data: `launches[]` with file, kernel, status, duration_us and diagnosis, and
    the ladders' tables."""
    return {
        "schema": "ncu-toolkit/report",
        "schema_version": SCHEMA,
        "run": {
            "id": view.id,
            "title": view.title,
            "created": view.created,
            "live": view.live,
            "facts": {fact.label: fact.cell.text for fact in view.facts},
        },
        "launches": [_launch(record) for record in view.records],
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


def _launch(record: LaunchRecord) -> dict[str, Any]:
    first, *others = record.findings
    return {
        "file": record.file,
        "launch": record.key,
        "kernel": record.kernel,
        "status": record.status,
        "duration_us": record.duration_us,
        "page": record.page,
        "context": record.context,
        "diagnosis": {**first, "runners_up": others},
    }
