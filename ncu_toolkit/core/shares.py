"""Division of a large report's launches among processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Limits of a part of a report that one process reads: launches, and bytes of their messages.
#: NVIDIA's module uses some 20 bytes for each of those.
PART_LAUNCHES: Final = 1000
PART_BYTES: Final = 64 << 20


def parts(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Launches as (start, stop) of parts of at most PART_LAUNCHES and PART_BYTES, by the lengths of
    their messages."""
    found = []
    start = size = 0
    for index, length in enumerate(lengths):
        if index > start and (index - start >= PART_LAUNCHES or size + length > PART_BYTES):
            found.append((start, index))
            start, size = index, 0
        size += length
    return [*found, (start, len(lengths))]


#: Bytes of messages that are worth another process: starting one takes a tenth of a second, reading
#: these as long.
SHARE_BYTES: Final = 1 << 19
#: Reports with fewer bytes of messages are read as a whole.
WHOLE_BYTES: Final = 2 << 20


def even(lengths: Sequence[int], codes: Sequence[bytes | None], jobs: int) -> list[list[int]]:
    """Launches divided among at most `jobs` processes, as places in file order, of about equal
    bytes.

    Launches of the same code (by digest, None if unknown) stay together where one share can hold
    them: its text is then made once."""
    total = sum(lengths)
    count = max(1, min(jobs, total // SHARE_BYTES))
    groups: dict[object, list[int]] = {}
    for index, code in enumerate(codes):
        groups.setdefault(index if code is None else code, []).append(index)
    pieces: list[list[int]] = []
    for group in groups.values():
        room = 0
        for index in group:
            if room < lengths[index]:
                pieces.append([])
                room = max(total // count, lengths[index])
            pieces[-1].append(index)
            room -= lengths[index]
    dealt: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=lambda piece: -sum(lengths[index] for index in piece)):
        least = sizes.index(min(sizes))
        dealt[least] += piece
        sizes[least] += sum(lengths[index] for index in piece)
    return [sorted(share) for share in dealt if share]


def places(span: Sequence[int]) -> str:
    """Launches of a part in words: `launches 0 to 999`, or each where they are not consecutive."""
    if len(span) > 1 and span[-1] - span[0] == len(span) - 1:
        return f"launches {span[0]} to {span[-1]}"
    return f"launch{'es' if len(span) > 1 else ''} {', '.join(map(str, span))}"
