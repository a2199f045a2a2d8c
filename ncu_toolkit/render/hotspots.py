"""SASS and source side by side with samples by stall reason: compact columns for the page's own script, and the hottest lines as a table."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from ncu_toolkit import units
from ncu_toolkit.model import Profile
from ncu_toolkit.render.safe import visible
from ncu_toolkit.render.views import Cell, HotSpots, number, plain_table, text

#: Lines in the table of the hottest.
_HOTTEST: Final = 12
#: Longest source line carried into the page.
_LINE: Final = 400
#: Per-instruction counters shown beside the samples, with their headings.
_COUNTERS: Final = {"shared_wavefronts": "shared wavefronts", "l2_sectors": "L2 sectors", "live_registers": "live registers"}


def hot_spots(profile: Profile) -> HotSpots | None:
    """None where the report holds no instructions."""
    rows = profile.instructions
    if not rows:
        return None
    reasons = [reason for reason, _ in Counter(profile.samples).most_common()]
    files = sorted({row.file for row in rows if row.file})
    total = sum(row.sample_count for row in rows)
    by_executions = total == 0
    counters = [name for name in _COUNTERS if any(row.counters.get(name) for row in rows)]
    data: dict[str, Any] = {
        "reasons": [reason.replace("_", " ") for reason in reasons],
        "files": [visible(name) for name in files],
        "sources": [_source(profile, name) for name in files],
        "address": [f"{row.address:x}" for row in rows],
        "sass": [visible(row.sass, _LINE) for row in rows],
        "file": [files.index(row.file) if row.file else -1 for row in rows],
        "line": [row.line for row in rows],
        "executed": [row.executed for row in rows],
        "samples": [[row.samples.get(reason, 0) for reason in reasons] if row.sample_count else 0 for row in rows],
        "counters": [{"name": _COUNTERS[name], "values": [row.counters.get(name) for row in rows]} for name in counters],
        "total": total,
    }
    note = "" if total else "The report holds no PC samples: lines are ranked by executed instructions."
    if files and not any(data["sources"]):
        note += " The report embeds no source (collect with --import-source yes): only line numbers are known."
    elif not files:
        note += " The kernel was built without line information (-lineinfo): only SASS is shown."
    return HotSpots(data, _hottest(profile, by_executions), note.strip())


def _source(profile: Profile, name: str) -> list[str]:
    source = profile.sources.get(name, "")
    return [visible(line, _LINE, keep="\t") for line in source.splitlines()] if source else []


def _hottest(profile: Profile, by_executions: bool) -> Any:
    """The source lines (or instructions, where no lines are known) with most samples."""
    weights: Counter[tuple[str, int, int]] = Counter()
    reasons: dict[tuple[str, int, int], Counter[str]] = {}
    sass: dict[tuple[str, int, int], str] = {}
    heaviest: dict[tuple[str, int, int], int] = {}
    for row in profile.instructions:
        weight = (row.executed or 0) if by_executions else row.sample_count
        if not weight:
            continue
        key = (row.file, row.line, -1) if row.file else ("", 0, row.index)
        weights[key] += weight
        reasons.setdefault(key, Counter()).update(row.samples)
        if weight > heaviest.get(key, 0):
            heaviest[key], sass[key] = weight, row.sass
    total = sum(weights.values()) or 1
    rows: list[list[Cell]] = []
    for key, weight in weights.most_common(_HOTTEST):
        name, line, index = key
        lines = profile.sources.get(name, "").splitlines()
        source = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        top = (
            ", ".join(f"{reason.replace('_', ' ')} {units.percent(n / weight, 2)}" for reason, n in reasons[key].most_common(3))
            if not by_executions
            else ""
        )
        place = f"{name.rsplit('/', 1)[-1]}:{line}" if name else f"instruction {index}"
        rows.append(
            [
                number(weight / total, "fraction", bar=weight / total),
                text(place, name),
                text(source, code=True) if source else text("–"),
                text(sass[key], code=True),
                text(top or "–"),
            ]
        )
    what = "executions" if by_executions else "samples"
    return plain_table(
        "hottest",
        f"The lines with most {what}",
        [("Share", f"of all {what}"), "Where", "Source", "Heaviest instruction", "Stall reasons"],
        rows,
        numeric=(0,),
    )
