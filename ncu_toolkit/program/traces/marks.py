"""Marks of a trace: which are around a call, and how they are named. It needs no NumPy."""

import re
from collections.abc import Sequence

from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.program.model import Call, Mark


def marks_around(calls: Sequence[Call | None], marks: Sequence[Mark]) -> list[tuple[Mark, ...]]:
    """The marks, outermost first, that were open on a call's thread as it began. `marks` are by
    start."""
    own = grouped(marks, lambda mark: (mark.process, mark.thread))
    known = {at: call for at, call in enumerate(calls) if call is not None}
    asked = grouped(known, lambda at: (known[at].process, known[at].thread))
    found: list[tuple[Mark, ...]] = [()] * len(calls)
    for thread, questions in asked.items():
        opened: list[Mark] = []
        theirs, following = own.get(thread, []), 0
        for at in sorted(questions, key=lambda at: known[at].start):
            start = known[at].start
            while following < len(theirs) and theirs[following].start <= start:
                opened = [mark for mark in opened if mark.end > theirs[following].start]
                opened.append(theirs[following])
                following += 1
            found[at] = tuple(mark for mark in opened if mark.end > start)
    return found


def range_name(name: str) -> str:
    """`jit_f` for XLA's `XlaModule:#hlo_module=jit_f,program_id=7#`."""
    return re.sub(r"^\w*:?#(?:\w+=)?([^,#]+).*", r"\1", name)
