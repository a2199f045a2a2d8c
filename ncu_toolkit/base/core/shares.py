"""Division of a large report's launches among processes, and of anything by a key."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key")
#: About what all processes together read of a report at once: launches, and bytes of their messages.
#: NVIDIA's module uses some 20 bytes for each of those, and gives them back when its process ends.
PART_LAUNCHES: Final = 1000
PART_BYTES: Final = 128 << 20
#: Bytes of messages that are worth another process: starting one takes a tenth of a second, reading
#: these as long.
SHARE_BYTES: Final = 1 << 19
#: Reports with fewer bytes of messages are read as a whole.
WHOLE_BYTES: Final = 2 << 20


def even(lengths: Sequence[int], codes: Sequence[bytes | None], jobs: int) -> list[list[int]]:
    """Launches divided into parts of about equal bytes, by their places in the file and the lengths
    of their messages: a part for each of `jobs` processes, or several where a part would be too
    large.

    Launches of the same code (by digest, None if unknown) stay together where one part can hold
    them, and follow each other: its text and data flow are then made once."""
    total, launches = sum(lengths), len(lengths)
    count = min(jobs, total // SHARE_BYTES) if total > WHOLE_BYTES else 1
    least = max(1, -(-total * jobs // PART_BYTES), -(-launches * jobs // PART_LAUNCHES))
    if least > count:
        count = least if least == 1 else -(-least // jobs) * jobs
    groups = grouped(range(launches), lambda at: at if codes[at] is None else codes[at])
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
        at = sizes.index(min(sizes))
        dealt[at] += piece
        sizes[at] += sum(lengths[index] for index in piece)
    return [share for share in dealt if share]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by their key, both in the order in which they come."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def summed(pairs: Iterable[tuple[Key, float]]) -> defaultdict[Key, float]:
    """Numbers added up by their key, in the order in which they come."""
    found: defaultdict[Key, float] = defaultdict(float)
    for key, number in pairs:
        found[key] += number
    return found


def places(span: Sequence[int]) -> str:
    """Launches of a part in words: `launches 0 to 999`, or each where they are not consecutive."""
    if len(span) > 1 and span[-1] - span[0] == len(span) - 1:
        return f"launches {span[0]} to {span[-1]}"
    return f"launch{'es' if len(span) > 1 else ''} {', '.join(map(str, span))}"
