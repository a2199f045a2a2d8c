"""A step in time, as it is and with fixes: a row a stream, and one a thread of the host."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy

from ncu_toolkit.base.core import units
from ncu_toolkit.base.document.card import Strip, StripRow, whole_percent
from ncu_toolkit.program.model import ProgramDiagnosis, StepFinding
from ncu_toolkit.program.traces.classes import CLASSES
from ncu_toolkit.program.traces.ranks import union

#: Parts of the axis, a pixel or two of a page each.
_PARTS: Final = 600
#: Rows; of more, those with least time are one.
_ROWS: Final = 4
#: Kinds of work that the legend names.
_NAMED: Final = 6
#: The host is shown where the GPU idles for this part of the step, before or after.
_IDLE: Final = 0.05
_WORDS: Final = {
    "host-launch": "host: launching",
    "host-work": "host: other work",
    "host-wait": "host: waits",
    "copy": "Copies",
    "set": "Sets of memory",
    **{key: each.label for key, each in CLASSES.items()},
}

_Spans = Sequence[tuple[float, float, str]]


def strip_of(found: ProgramDiagnosis, findings: Iterable[StepFinding], fix: str) -> Strip | None:
    """The step, and the step with the findings fixed, which are called `fix`. None where none has a
    change that can be replayed, and where the step is not replayed as it was recorded."""
    edits = [each.edit for each in findings if each.edit]
    if found.times is None or not edits:
        return None
    steps = found.times(), found.times(*edits)
    after = [x[:2] for name, row in steps[1].rows.items() if not _host(name) for x in row]
    idle_us = max(0.0, steps[1].us - float(numpy.diff(union(after)).sum()))
    idle = max(0.0, 1 - found.account.busy), idle_us / steps[1].us if steps[1].us else 1.0
    longest, kinds = defaultdict[str, float](float), defaultdict[str, float](float)
    for name, spans in (*steps[0].rows.items(), *steps[1].rows.items()):
        if max(idle) >= _IDLE or not _host(name):
            for start, end, kind in spans:
                longest[name] += end - start
                kinds[kind] += end - start
    names = sorted(longest, key=lambda name: (not _host(name), -longest[name]))
    over = len(names) - _ROWS + 1
    rest = sorted(names[1:], key=longest.__getitem__)[:over] if over > 1 else []
    groups = {name: [name] for name in names if name not in rest}
    if rest:
        groups[f"{over} more streams{' and threads' * any(map(_host, rest))}"] = rest
    width = max(step.us for step in steps) / _PARTS
    rows = tuple(
        StripRow(
            name,
            all(map(_host, group)),
            *(_parts([span for each in group for span in step.rows.get(each, ())], width) for step in steps),
        )
        for name, group in groups.items()
    )  # fmt: skip
    whole, mean = found.step.word, "mean " * found.step.uneven
    now, then = (units.duration(step.us) for step in steps)
    words = (
        f"The {mean}{whole} takes {now} as recorded, and {then} replayed with {fix}; the GPU idles for"
        f" {whole_percent(idle[0])} of it, and then for {whole_percent(idle[1])}."
    )
    shown = sorted(kinds, key=lambda kind: -kinds[kind])[:_NAMED]
    named = {kind: _WORDS[kind] for kind in sorted(shown, key=_host)}
    return Strip(words, (steps[0].us, steps[1].us), idle, rows, named)


def _host(name: str) -> bool:
    return name.startswith("host")


def _parts(spans: _Spans, width: float) -> tuple[tuple[str, int], ...]:
    """Of each part of the axis the kind that takes most of it, and how many eighths are busy: one
    where there is anything."""
    times: dict[str, list[float]] = {}
    for start, end, kind in spans:
        own = times.setdefault(kind, [0.0] * (_PARTS + 1))
        first, last = int(start / width), min(_PARTS, int(end / width))
        if first == last:
            own[first] += end - start
            continue
        own[first] += (first + 1) * width - start
        own[last] += end - last * width
        for at in range(first + 1, last):
            own[at] += width
    found = []
    for at in range(_PARTS):
        us, kind = max(((own[at], kind) for kind, own in times.items()), default=(0.0, ""))
        busy = sum(own[at] for own in times.values()) / width
        found.append((kind, min(8, max(1, round(8 * busy)))) if us > 0.01 * width else ("", 0))
    return tuple(found)
