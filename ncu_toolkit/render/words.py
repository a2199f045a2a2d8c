"""Words that sentences and tables of several commands share."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 kernel`, `2 kernels`; `many` where the plural does not just end in
    s."""
    return f"{number} {one if number == 1 else many or one + 's'}"
