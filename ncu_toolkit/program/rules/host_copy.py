"""Copies between host and device block the step.

What it is
Memory that `malloc` or NumPy gives is pageable. The driver copies it to its own buffer first, and
the call waits for that. Pinned memory is copied by the GPU directly, while the host goes on.

Why it costs time
Nothing runs alongside a pageable copy of the same thread, and it reaches a third to a half of the link's
rate. The GPU computes nothing meanwhile.

How to confirm
The trace says pageable, or the rate is far below the link's. No kernel runs while the copy does. Or
tens of copies of at most 64 KB follow each other: each takes as long as one of no bytes.

What to change
Pin the memory, copy asynchronously on its own stream, and copy the next batch while this one is
computed. Copy less: narrower types (uint8 images, converted on the GPU), or data that stay on the GPU.

When the advice is wrong
Pinned memory cannot be swapped out: gigabytes of it starve the host. Grace Hopper has a faster link.

Source
CUDA C++ Best Practices Guide, "Data Transfer Between Host and Device"; PCI Express rates:
base/hardware/specs.py.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.hardware.specs import Link, host_link
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit, StepFinding
from ncu_toolkit.program.rules import _patterns
from ncu_toolkit.program.rules._facts import Confidence, StepFacts, StepOutcome, fact
from ncu_toolkit.program.rules._host import OTHER_WORK, away, copied, staged, waits

TITLE: Final = "Copies between host and device"
SLOW: Final = Threshold(0.25, "of the link's rate: pinned copies reach 0.8 of it, pageable ones a third to a half at best")  # fmt: skip
HIDDEN: Final = Threshold(0.33, "of the time of copies and kernels: where less of it can run beside the rest, only less copying helps")  # fmt: skip
PINNED: Final = Threshold(0.8, "of the link's rate, which pinned copies reach")
#: Bytes.
TINY: Final = Threshold(65536.0, "a link of 25 GB/s takes as long for so few as a copy takes to start")  # fmt: skip
TIMES: Final = Threshold(32.0, "a batch has a few tensors, and a model a few inputs")
ROW: Final = Threshold(8.0, "a step in time keeps a few arrays, and a cache of attention two")
_TINY: Final = "Many tiny copies, one by one"
ALSO_CALLED: Final = (_TINY,)


def find(s: StepFacts) -> StepOutcome:
    outcome, tiny = _bulk(s), _tiny(s)
    if tiny is None or (isinstance(outcome, StepFinding) and outcome.ceiling_us >= tiny.ceiling_us):
        return outcome
    s.claimed |= {*tiny.gaps}
    return tiny


def _tiny(s: StepFacts) -> StepFinding | None:
    """Copies one by one that would be one, with what the GPU idles before each: the next was not
    launched yet, or the host waited for the one before."""
    small = {
        at: op.path
        for at, op in enumerate(s.ops)
        if op.kind == "copy" and copied(op) != "read" and op.size and op.size <= TINY.value
    }
    # within the GPU only many in a row: others are a part of what is computed
    in_a_row = groupby(enumerate(small), lambda each: (each[1] - each[0], small[each[1]]))
    rows = [[at for _, at in row] for _, row in in_a_row]
    able = (x for x in rows if small[x[0]] in ("HtoD", "DtoH") or len(x) >= ROW.value)
    by_path = grouped((at for row in able for at in row), small.__getitem__)
    places = max(by_path.values(), key=len, default=[])
    if len(places) < TIMES.value or s.lacks("wall time", "host calls"):
        return None
    every = {*places}
    handed = every & _patterns.arguments(s, (run for run, _ in _patterns.items(s)))
    if 2 * len(handed) > len(places):
        return None  # they go with the loop that they are made for
    after = {at + 1 for at in places} - every
    gaps = [
        at
        for at in s.idle("host late", "sync", "copy", "between")
        if (gap := s.gaps[at]).us < OTHER_WORK.value
        and (gap.before in every or (gap.before in after and gap.cause in ("sync", "copy")))
    ]
    inside = small[places[0]] == "DtoD"
    us, idle, size = s.us(places), s.idle_us(gaps), s.moved(places) or 0
    if not s.worth(us + idle):
        return None
    return s.finding(
        f"{units.count(len(places))} copies of {units.si(size / len(places), 'B')} on average, one by one: with the idle time around them they take "
        f"{s.of_step(us + idle)}, for {units.si(size, 'B')}.",
        "high",
        s.merged([places]),
        ops=places,
        gaps=gaps,
        evidence=(
            s.part("tiny_copies", "In tiny copies", us + idle, "in such copies and in the idle time around them."),
            fact("tiny_copy_count", "Tiny copies", len(places), "count", "Copies that take as long as one of no bytes.", TIMES),
        ),
        arithmetic="One copy of all bytes takes microseconds.",
        advice=s.advice("host-copy tiny" + ", within the GPU" * inside),
        title=_TINY,
    )  # fmt: skip


def _bulk(s: StepFacts) -> StepOutcome:
    copies = [at for at, op in enumerate(s.ops) if copied(op) == "bulk"]
    if not copies:
        if missing := s.lacks("wall time"):
            return s.abstain("A report has no copies.", *missing)
        return s.ruled_out(f"The {s.word} copies no more than a few bytes between host and device.")
    link = host_link(s.device.name, s.device.cc) if s.device and s.device.cc >= (7, 0) else None
    slow = {at for at in copies if link and _rate(s, at) < link.bandwidth * SLOW.value}
    unknown = {at for at in copies if s.ops[at].pinned is None}  # pageable if it is slow as well
    pageable = [at for at in copies if s.ops[at].pinned is False or at in slow & unknown]
    # Copies of pinned memory can run alongside kernels, as far as there are kernels.
    kernels = s.us(at for at, op in enumerate(s.ops) if op.kind == "kernel")
    staging = [] if s.lacks("wall time", "host calls") else [e for e in away(s) if staged(s, e)]
    held_up = waits(s, "bulk")
    gaps = sorted({*held_up, *(at for each in staging for at in each.gaps)})
    waited, ended = {s.gaps[at].call for at in held_up}, {s.gaps[at].before for at in gaps}
    holding = (at for at in copies if s.ops[at].call in waited or at in ended)
    held = copies if s.us(copies) > kernels else sorted({*pageable, *holding})
    # a call that reads a copy back waits for it: what is idle after it is the copy's too
    reading = {s.ops[at].call for at in held}
    after = {at for at in s.idle("sync") if s.gaps[at].call in reading} - s.claimed
    gaps = sorted({*gaps, *after})
    us = s.us(held) + s.idle_us(gaps)
    size, ways = s.moved(held), {s.ops[at].path for at in held}
    if not pageable and all(s.ops[at].pinned for at in held):
        s.useless.add("pinned-copies")
        # in both directions they can overlap with each other too
        parts = [kernels, *(s.us(at for at in held if s.ops[at].path == way) for way in ways)]
        if not staging and sum(parts) - max(parts) >= HIDDEN.value * sum(parts):
            return s.ruled_out("Pinned copies can overlap with the kernels, or with each other.")
    sorted_out = pageable or all(s.ops[at].pinned for at in copies)
    evidence = tuple(filter(None, (
        s.part("copies_exposed", "Exposed copies, with waits", us, "in which the GPU copied from or to the host, or waited for it, and did no work."),
        fact("pageable_copies", "Pageable copies", len(pageable), "count", "Copies from or to memory that is not pinned, or too slow to be.")
        if sorted_out else None,
        fact("copied_bytes", "Bytes", size, "B", "Bytes that the copies moved.") if size is not None else None,
    )))  # fmt: skip
    if not s.worth(us):
        return s.ruled_out("Copies between host and device are pinned, hidden or short.", *evidence)
    s.claimed |= after
    idle = s.idle_us(gaps)
    how = "until the host has prepared them" if staging else "while they block the host"
    waited_for = f", and the GPU waits {s.of_step(idle)} {how}" * s.worth(idle)
    which, sure, advice = _kind(s, held, pageable)
    # work of other steps hides pinned copies; in a single pass they take their time
    rate = 0.0 if s.steady or not link else PINNED.value * link.bandwidth
    keeps = {at: min(1.0, _rate(s, at) / rate) for at in held if rate and s.ops[at].size}
    moved = s.ending(at for each in staging for at in each.gaps)
    return s.finding(
        f"{units.counted(len(held), 'copy', 'copies')} {which}: {s.of_step(s.us(held))}{waited_for}.{_moved(s, held, link)}",
        sure,
        Edit(
            drops=frozenset(held).difference(keeps), keeps=keeps, moved=moved, waits=s.queuing(held)
        ),
        ops=held,
        gaps=gaps,
        evidence=evidence,
        advice=advice,
    )


def _kind(
    s: StepFacts, held: Sequence[int], pageable: Sequence[int]
) -> tuple[str, Confidence, tuple[str, ...]]:
    """What most of the copies are, in words, how sure that is, and what to do about them."""
    if not pageable or s.us(pageable) < s.us(held) / 2:
        return "between host and device", "medium", s.advice("host-copy")
    pin = s.advice("host-copy pageable" + ", once" * (not s.steady))
    if all(s.ops[at].pinned is False for at in pageable):
        return "from or to pageable memory", "high", pin
    return "from or to memory that seems to be pageable", "medium", pin


def _moved(s: StepFacts, copies: Sequence[int], link: Link | None) -> str:
    """Bytes and rate of some copies, beside the link's, in words."""
    size, took = s.moved(copies), sum(s.ops[at].us for at in copies)
    if size is None:
        return " The trace does not show how many bytes they move."
    if not took or not size:
        return f" They move {units.si(size, 'B')}."
    median = f"{units.duration(took)} in the {'median step' if s.steady else 'run'}"
    median *= abs(took - s.us(copies)) > 0.02 * took
    beside = f"{link.name} of this GPU: {units.si(link.bandwidth, 'B/s')}" if link else ""
    both = "; ".join(filter(None, (median, beside)))
    return f" They move {units.si(size, 'B')}, at {units.si(size / took * 1e6, 'B/s')}{f' ({both})' * bool(both)}."


def _rate(s: StepFacts, at: int) -> float:
    """Bytes per second of a copy; without bound for one too small to tell."""
    op = s.ops[at]
    size = op.size or 0  # unknown is too small to tell
    return size / op.us * 1e6 if size >= 1 << 20 and op.us else float("inf")
