"""An analysis of anybody's reports as text for a terminal, Markdown for a pull request, CSV, and a
digest of at most a page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from ncu_toolkit.analysis.analyze import Analysis, Group, LaunchResult
from ncu_toolkit.core import units
from ncu_toolkit.core.safe import csv_rows, markdown, markdown_code, visible
from ncu_toolkit.metrics.registry import REGISTRY
from ncu_toolkit.model import Finding
from ncu_toolkit.render.fitted import Column, Fitted
from ncu_toolkit.render.words import counted

#: Kinds of launches in a table where --top does not say: a table of this many rows fits a screen.
TOP: Final = 15
#: Kinds of launches, and of incomplete ones, in a digest: more would not fit a page.
DIGEST_TOP: Final = 5
#: What to do about a file that is incomplete.
COPY_AGAIN: Final = "Copy or record it again"
_NAME: Final = 60
_FILE: Final = 40
#: Longest name of a kernel in a command that is to be copied.
_LONGEST_WORD: Final = 200
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def verdict(group: Group) -> str:
    """The bottleneck's id, with how many of the repeats share it where they differ."""
    name = group.median.diagnosis.primary.bottleneck
    return (
        name
        if group.agreeing == len(group.launches)
        else f"{name} ({group.agreeing} of {len(group.launches)})"
    )


def gain(finding: Finding) -> str:
    """The predicted speedup as a bound; what there is instead for a kernel at its roof, and where the
    report holds too little for a figure."""
    if finding.speedup is None:
        return "no figure"
    shown = units.ratio(finding.speedup)
    if finding.good and shown == units.ratio(1.0):
        return "at its roof"
    return f"≤ {shown}" if finding.speedup > 1 and shown != units.ratio(1.0) else "none predicted"


def _cells(analysis: Analysis, group: Group, name_length: int) -> tuple[str, ...]:
    launch, total = group.median, analysis.total_us
    times = group.times_us
    median = units.duration(times[(len(times) - 1) // 2]) if times else units.NOT_AVAILABLE
    shown = verdict(group) if launch.complete else "incomplete"
    return (
        visible(launch.function, name_length),
        str(len(group.launches)),
        units.duration(group.total_us) if times else units.NOT_AVAILABLE,
        units.percent(group.total_us / total) if total and times else units.NOT_AVAILABLE,
        median,
        units.percent(group.spread, 2) if group.spread is not None else "",
        visible(shown),
        gain(launch.diagnosis.primary) if launch.complete else "",
    )


_HEADINGS: Final = (
    "kernel",
    "launches",
    "time",
    "share",
    "median",
    "spread",
    "bottleneck",
    "predicted",
)
#: Which column is left out first on a narrow terminal, and which then.
_GIVES_WAY: Final = {
    name: order
    for order, name in enumerate(("spread", "median", "file", "share", "launches", "predicted"), 1)
}
_NUMERIC: Final = frozenset({"launches", "time", "share", "median", "spread", "predicted"})


def headline(analysis: Analysis) -> str:
    """One sentence over everything."""
    launches, groups = analysis.launches, analysis.groups
    devices = ", ".join(
        visible(name, 60)
        for name in dict.fromkeys(f"{launch.gpu} ({launch.arch})" for launch in launches)
    )
    words = f"{counted(len(launches), 'launch', 'launches')} of {counted(len(groups), 'kind')} in {counted(len(analysis.files), 'file')}"
    return (
        f"{words}, {units.duration(analysis.total_us)} under ncu, on {devices}."
        if launches
        else f"{words}: nothing to diagnose."
    )


def remarks(analysis: Analysis) -> Iterable[str]:
    """What is not as it should be, with its state: unreadable files, incomplete files and launches,
    contradictory launches; and what a filter left out."""
    for file in analysis.files:
        if file.error is not None:
            yield f"unreadable: {visible(file.error.message)}. {visible(file.error.remedy)}".strip()
        elif file.damage:
            yield f"unreadable in part: {visible(file.path)}: {file.read} of at least {file.declared} launches could be read: {visible(file.damage)}"
        if file.missing:
            yield f"incomplete: {visible(file.path)}: {visible(file.missing)}. {COPY_AGAIN}"
    for group in (group for group in analysis.groups if not group.median.complete):
        launch = group.median
        times = f", {len(group.launches)} launches" if len(group.launches) > 1 else ""
        yield f"{visible(launch.status)}: {visible(launch.function, _NAME)} (launch {launch.key} of {visible(launch.file)}{times})"
    for group in analysis.groups:
        yield from _contradictory(group)
    yield from map(visible, analysis.missed)
    for each in analysis.unused_needs:
        yield f"no launch matches --needs '{visible(str(each), 80)}'"
    filtered = sum(file.filtered_out for file in analysis.files)
    if filtered:
        others = "1 other launch does" if filtered == 1 else f"{filtered} other launches do"
        yield f"{others} not match --kernel {visible(analysis.options.kernel, 80)}"


def _contradictory(group: Group) -> Iterable[str]:
    """A line for the launches of a kind that hold figures which do not fit together."""
    found = [launch for launch in group.launches if launch.contradictions]
    if found:
        launch = found[0]
        first, *others = launch.contradictions
        more = f" (and {len(others)} more)" if others else ""
        times = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
        which = f"{visible(launch.function, _NAME)} (launch {launch.key} of {visible(launch.file)}{times})"
        yield f"contradictory: {which}: {visible(first)}{more}; the verdict is less sure"


def text(analysis: Analysis, top: int = TOP) -> RenderableType:
    """One screen: the kinds of launches that take most time, what limits each, and what to do about
    the first."""
    parts: list[RenderableType] = [Text(headline(analysis), style="bold")]
    groups = [group for group in analysis.groups if group.median.complete]
    if groups:
        several = len({launch.file for launch in analysis.launches}) > 1
        parts.append(_table(analysis, groups[:top], several))
        if len(groups) > top:
            rest = sum(group.total_us for group in groups[top:])
            parts.append(
                Text(
                    f"… and {counted(len(groups) - top, 'more kind')} with {units.duration(rest)}: --top {len(groups)} shows them",
                    style="dim",
                )
            )
        parts += [Text(), *(Text(line) for line in _advice(groups[0].median))]
    notes = list(remarks(analysis))
    parts += [Text(line, style="yellow") for line in notes[:TOP]]
    if len(notes) > TOP:
        parts.append(
            Text(
                f"… and {len(notes) - TOP} more like these: --format json lists all", style="yellow"
            )
        )
    return Stack(*parts)


def _table(analysis: Analysis, groups: Sequence[Group], several: bool) -> Fitted:
    """The ranking. Names and columns give way where the terminal is narrow, figures do not."""
    columns = [
        Column(heading, heading in _NUMERIC, _GIVES_WAY.get(heading, 0))
        for heading in (*_HEADINGS, *(["file"] if several else []))
    ]
    rows = []
    for group in groups:
        file = [visible(Path(group.median.file).name, _FILE)] if several else []
        rows.append([Text(cell) for cell in (*_cells(analysis, group, _NAME), *file)])
    return Fitted(columns, rows)


def _advice(launch: LaunchResult) -> Iterable[str]:
    finding = launch.diagnosis.primary
    yield f"{visible(launch.function, _NAME)}: {visible(finding.summary)}"
    for step in finding.advice[:2]:
        yield f"  - {visible(step)}"
    for note in launch.diagnosis.notes[:2]:
        yield f"  note: {visible(note)}"


def markdown_text(analysis: Analysis, top: int = TOP) -> str:
    """A Markdown summary with a table, fit for a pull request."""
    lines = [f"**{markdown(headline(analysis))}**", ""]
    groups = [group for group in analysis.groups if group.median.complete]
    if groups:
        lines.append("| " + " | ".join(_HEADINGS) + " |")
        lines.append(
            "|" + "|".join("---:" if heading in _NUMERIC else "---" for heading in _HEADINGS) + "|"
        )
        for group in groups[:top]:
            name, *cells = _cells(analysis, group, _NAME)
            lines.append("| " + " | ".join((markdown_code(name), *cells)) + " |")
        if len(groups) > top:
            lines += ["", f"Not shown: {counted(len(groups) - top, 'more kind')}."]
        lines.append("")
        for group in groups[: min(3, top)]:
            launch, finding = group.median, group.median.diagnosis.primary
            lines.append(
                f"- {markdown_code(visible(launch.function, _NAME))}: {markdown(finding.summary)}"
            )
            lines += [f"  - {markdown(step)}" for step in finding.advice[:1]]
    notes = list(remarks(analysis))
    if notes:
        lines += ["", *(f"- {markdown(note)}" for note in notes)]
    return "\n".join(lines).rstrip() + "\n"


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


def brief(analysis: Analysis, top: int = DIGEST_TOP) -> str:
    """At most a page: what takes the time, why, on what evidence, where, what to change, and the
    exact next command."""
    lines = [headline(analysis)]
    groups = [group for group in analysis.groups if group.median.complete]
    for rank, group in enumerate(groups[: min(top, DIGEST_TOP)], 1):
        lines += ["", *_digest(analysis, rank, group)]
    if len(groups) > DIGEST_TOP:
        lines += [
            "",
            f"{counted(len(groups) - DIGEST_TOP, 'more kind')}, {units.duration(sum(group.total_us for group in groups[DIGEST_TOP:]))} together.",
        ]
    notes = [visible(note, 200) for note in remarks(analysis)]
    if notes:
        lines += ["", *(f"! {note}" for note in notes[:DIGEST_TOP])]
        if len(notes) > DIGEST_TOP:
            lines.append(
                f"! and {len(notes) - DIGEST_TOP} more like these: --format json lists all"
            )
    lines += ["", f"Next: {next_command(analysis)}"]
    return "\n".join(lines) + "\n"


def _digest(analysis: Analysis, rank: int, group: Group) -> Iterable[str]:
    launch, finding = group.median, group.median.diagnosis.primary
    share = (
        f", {units.percent(group.total_us / analysis.total_us)} of the time"
        if analysis.total_us
        else ""
    )
    each = (
        f"{len(group.launches)} × {units.duration(launch.duration_us)}"
        if launch.duration_us is not None
        else f"{counted(len(group.launches), 'launch', 'launches')}"
    )
    yield f"{rank}. {visible(launch.function, _NAME)} [{each}{share}]: {verdict(group)}, {gain(finding)}, confidence {finding.confidence}"
    yield f"   why: {visible(finding.summary, 300)}"
    facts = [
        f"{visible(e.label, 60)} {units.quantity(e.value, e.unit)}" for e in finding.evidence[:4]
    ]
    if facts:
        yield f"   evidence: {'; '.join(facts)}"
    for place in finding.locations[:1]:
        where = f"{visible(place.file, 80)}:{place.line}, " if place.file else ""
        yield f"   where: {where}+0x{place.address:x} {visible(place.sass, 80)} ({units.percent(place.share)} of {visible(place.what, 60)})"
    for step in finding.advice[:1]:
        yield f"   change: {visible(step, 300)}"
    others = ", ".join(
        f"{other.bottleneck} {gain(other)}" for other in launch.diagnosis.runners_up[:2]
    )
    if others:
        yield f"   then: {others}"


def next_command(analysis: Analysis) -> str:
    """The command that brings most next: look closer at the first kernel, or read what could not be
    read. Fit for a shell whatever the names hold."""
    groups = [group for group in analysis.groups if group.median.complete]
    if not groups:
        broken = next((file for file in analysis.files if file.error or file.lacking), None)
        if broken is None:
            return "ncu-toolkit profile -- <your program>"
        return f"ncu-toolkit analyze --allow-partial {_word(broken.path)}"
    launch = groups[0].median
    plain = len(launch.function) <= _LONGEST_WORD and _PLAIN_NAME.fullmatch(launch.function)
    name = f" --kernel {launch.function}" if plain else " --top 1"
    return f"ncu-toolkit analyze {_word(launch.file)}{name} --format html"


def _word(path: str) -> str:
    """A path as one word of a shell: not read as an option, and with what cannot be shown spelled
    out, as bash, zsh and ksh read it."""
    path = f"./{path}" if path.startswith("-") else path
    if path.isprintable():
        return shlex.quote(path)
    # two strings wherever a hexadecimal digit follows an escape: some shells would read it as part
    # of that
    return (
        "$'"
        + re.sub(r"(\\x[0-9a-f]{2})(?=[0-9a-fA-F])", r"\1'$'", "".join(map(_escaped, path)))
        + "'"
    )


def _escaped(character: str) -> str:
    if character in ("\\", "'"):
        return f"\\{character}"
    if character.isprintable():
        return character
    data = character.encode(
        "utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    )
    return "".join(f"\\x{byte:02x}" for byte in data)
