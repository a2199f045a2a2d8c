"""A step in time, as it is and with fixes: a row a stream, and one a thread of the host."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.document.card import Strip, StripRow
from ncu_toolkit.program.model import ProgramDiagnosis, StepFinding, StepTimes
from ncu_toolkit.program.traces.classes import CLASSES

#: Parts of the axis, a pixel or two of a page each.
_PARTS: Final = 600
#: Rows; of more, those with least time are one.
_ROWS: Final = 4
#: Kinds of work that the legend names.
_NAMED: Final = 6
#: The host is shown where the GPU idles for this part of the step, before or after.
_IDLE: Final = 0.05
_WORDS: Final = {
    "host-launch": "CUDA calls",
    "host-work": "other work of the host",
    "host-wait": "host waits",
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
    idle = 1 - found.account.busy, 1 - _busy(steps[1])
    longest: defaultdict[str, float] = defaultdict(float)
    kinds: Counter[str] = Counter()
    for step in steps:
        for name, spans in step.rows.items():
            if max(idle) >= _IDLE or not _host(name):
                longest[name] += sum(end - start for start, end, _ in spans)
                for start, end, kind in spans:
                    kinds[kind] += round(end - start)
    names = sorted(longest, key=lambda name: (not _host(name), -longest[name]))
    groups = {name: [name] for name in names}
    if len(names) > _ROWS:
        rest = sorted(names[1:], key=longest.__getitem__)[: len(names) - _ROWS + 1]
        what = "streams" if not any(map(_host, rest)) else "streams and threads"
        groups = {name: [name] for name in names if name not in rest} | {
            f"{len(rest)} more {what}": rest
        }
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
        f" {units.percent(idle[0], 2)} of it, and then for {units.percent(idle[1], 2)}."
    )
    shown = [kind for kind, _ in kinds.most_common(_NAMED)]
    named = {kind: _WORDS[kind] for kind in sorted(shown, key=_host)}
    return Strip(words, (steps[0].us, steps[1].us), idle, rows, named)


def _host(name: str) -> bool:
    return name.startswith("host")


def _busy(step: StepTimes) -> float:
    """The part (0-1) of a step in which some stream works."""
    spans = sorted(span for name, row in step.rows.items() if not _host(name) for span in row)
    busy = until = 0.0
    for start, end, _ in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy / step.us if step.us else 0.0


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
