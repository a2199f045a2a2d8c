"""Launches of a program that a report cannot hold, by ncu's filters.

A report does not say how many launches were not profiled (launch numbers count all CUDA calls) or
how long they took. Only its command line helps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ncu_toolkit.report import messages
from ncu_toolkit.report.framing import Framing, Malformed

#: ncu's options that take no value; every other one takes the next word, unless that is an option.
_FLAGS: Final = frozenset(
    {
        "-f", "--force-overwrite", "--nvtx", "--call-stack", "--csv", "--quiet", "--verbose", "--null-stdin",
        "--print-fp", "--print-nvtx-rename", "--disable-extra-suffixes", "--details-all", "--fp", "--summary-only",
    }
)  # fmt: skip
_LONG: Final = {
    "-k": "--kernel-name", "--kernel-regex": "--kernel-name", "-s": "--launch-skip", "-c": "--launch-count"
}  # fmt: skip
#: Options that filter launches, and their words in the sentence.
_CHOOSE: Final = {
    "--kernel-name": "kernels that match", "--kernel-id": "launches with the id", "--nvtx-include": "launches inside the NVTX range",
    "--nvtx-exclude": "launches outside the NVTX range", "--range-filter": "launches in the range",
}  # fmt: skip
#: Longest pattern that is shown in full.
_SHOWN: Final = 60
#: Kernels that wait for other GPUs: kernel replay runs one launch at a time, so that they wait
#: forever (Nsight Compute Kernel Profiling Guide, "Kernel Replay").
_COLLECTIVE: Final = re.compile(r"nccl(Dev)?Kernel|nvshmem|cross_device_reduce")


def left_out(frame: Framing) -> str:
    """One line on the launches that ncu's filters left out; empty without filters or command."""
    try:
        processes = {messages.process(block) for block in frame.blocks if block.results}
        command = messages.command_line(frame)
    except Malformed:
        return ""
    return by_command(command.split(), frame.declared_launches, len(processes) == 1)


def by_command(words: Sequence[str], launches: int, one_process: bool) -> str:
    """The same from ncu's command line and the number of launches that were profiled.

    Skipped launches are counted over all processes or in each, so that their number is known only
    for a single process."""
    given = _options(words)
    skipped = _count(given, "--launch-skip") + _count(given, "--launch-skip-before-match")
    most = _count(given, "--launch-count")
    parts = [
        f"only {what} {' or '.join(map(_short, given[option]))} ({option})"
        for option, what in _CHOOSE.items()
        if option in given
    ]
    if given.get("--profile-from-start", ["on"])[-1].lower() in ("off", "no", "0", "false"):
        parts.append("only what the program marks (--profile-from-start off)")
    if skipped:
        parts.append(f"not the first {skipped} (--launch-skip)")
    if most and launches >= most:
        parts.append(f"none after {launches} (--launch-count)")
    if not parts or not launches:
        return ""
    total = f" of at least {skipped + launches}" if skipped and one_process else ""
    noun = "launch" if launches == 1 and not total else "launches"
    return f"Profiled {launches}{total} {noun}: {', '.join(parts)}. The report does not show their share of the program's GPU time."


def by_kernel(line: str) -> bool:
    """Whether by the line of `left_out` other kernels may have run between the launches."""
    return "(--kernel-" in line


def is_collective(kernel: str) -> bool:
    """Whether a kernel's name is that of a collective, which waits for other GPUs."""
    return bool(_COLLECTIVE.search(kernel))


#: Remedy for a collective that was not finished.
COLLECTIVE: Final = (
    "a collective waits for other GPUs, but kernel replay runs it alone. Exclude it by name, or profile a range (ncu "
    "--replay-mode app-range)"
)


def _options(words: Sequence[str]) -> dict[str, list[str]]:
    """ncu's own options with their values: what stands before the program's name."""
    found: dict[str, list[str]] = {}
    at = 1
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        at += 1
        if not equals and name not in _FLAGS and at < len(words) and not words[at].startswith("-"):
            value = words[at]
            at += 1
        found.setdefault(_LONG.get(name, name), []).append(value)
    return found


def _count(given: dict[str, list[str]], option: str) -> int:
    value = given.get(option, ["0"])[-1]
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
