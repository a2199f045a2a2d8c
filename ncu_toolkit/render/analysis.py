"""An analysis of anybody's reports as text for a terminal, Markdown for a pull request, CSV, and a
digest of at most a page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rich.console import RenderableType

from ncu_toolkit.analysis.analyze import Analysis, Group
from ncu_toolkit.core.safe import csv_rows, shell_word, visible
from ncu_toolkit.explain.answer import CARDS, TOP, Answer, Kind
from ncu_toolkit.explain.answer import answer as explain
from ncu_toolkit.metrics.registry import REGISTRY
from ncu_toolkit.render import card

#: Kinds of launches, and of incomplete ones, in a digest: more would not fit a page.
DIGEST_TOP: Final = 5
#: What to do about a file that is incomplete.
COPY_AGAIN: Final = "Copy or record it again"
_NAME: Final = 60
#: Longest name of a kernel in a command that is to be copied.
_LONGEST_WORD: Final = 200
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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


def answer(analysis: Analysis, top: int | None = None, cards: int = CARDS) -> Answer:
    """What the analysis says, for the writers: kinds of launches by time, then what is wrong with
    the input. Incomplete launches are among the latter."""
    groups = [group for group in analysis.groups if group.median.complete]
    kinds = [
        Kind(
            group.median.card,
            len(group.launches),
            group.total_us if group.times_us else None,
            group.agreeing,
            group.median.file,
        )
        for group in groups
    ]
    notes = list(remarks(analysis))
    if len(notes) > TOP:
        notes = [*notes[:TOP], f"{len(notes) - TOP} more like these; --format json lists all."]
    return explain(kinds, notes, top or TOP, cards)


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


def text(analysis: Analysis, top: int | None = None) -> RenderableType:
    """For a terminal: the kernels that take most time, and the cards of the first."""
    return card.AnswerText(answer(analysis, top))


def markdown_text(analysis: Analysis, top: int | None = None) -> str:
    """For a pull request."""
    return card.markdown(answer(analysis, top))


def brief(analysis: Analysis, top: int | None = None) -> str:
    """At most a page: the first kernels in a few lines each, and the next command."""
    shown = answer(analysis, top, min(top or DIGEST_TOP, DIGEST_TOP))
    if len(shown.notes) > DIGEST_TOP:
        more = f"{len(shown.notes) - DIGEST_TOP} more like these; --format json lists all."
        shown = replace(shown, notes=(*shown.notes[:DIGEST_TOP], more))
    return f"{card.brief(shown)}\nNext: {next_command(analysis)}\n"


def next_command(analysis: Analysis) -> str:
    """The command that brings most next: look closer at the first kernel, or read what could not be
    read. Fit for a shell whatever the names hold."""
    groups = [group for group in analysis.groups if group.median.complete]
    if not groups:
        broken = next((file for file in analysis.files if file.error or file.lacking), None)
        if broken is None:
            return "ncu-toolkit profile -- <your program>"
        return f"ncu-toolkit analyze --allow-partial {shell_word(broken.path)}"
    launch = groups[0].median
    plain = len(launch.function) <= _LONGEST_WORD and _PLAIN_NAME.fullmatch(launch.function)
    name = f" --kernel {launch.function}" if plain else " --top 1"
    return f"ncu-toolkit analyze {shell_word(launch.file)}{name} --format html"
