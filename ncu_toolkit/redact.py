"""A report without what is private in it, and the proof: nothing private is left, and it loads with the same numbers."""

from __future__ import annotations

import lzma
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ncu_toolkit import framing, ncu_rep, scrub
from ncu_toolkit.errors import InputProblem, UsageProblem
from ncu_toolkit.model import Profile
from ncu_toolkit.store import write_atomic


@dataclass(frozen=True)
class Redacted:
    """What was done to a report."""

    path: Path
    replaced: int
    blanked_bytes: int
    launches: int


def redact(source: Path, target: Path, *, remove_source: bool = False, names: Iterable[str] = ()) -> Redacted:
    """Write `target`, a report with the figures of `source` and without host names, users, addresses, command lines and absolute paths.

    Args:
        target: `.ncu-rep`, or `.ncu-rep.xz` to compress it; not the source itself.
        remove_source: also blank embedded source text.
        names: further strings to replace.

    Raises:
        UsageProblem: the target is the source, or exists.
        InputProblem: the source cannot be read, or the result would not hold the same numbers, or still holds something private.
    """
    if os.path.lexists(target):
        raise UsageProblem(f"'{target}' exists", "Name a new file: nothing is overwritten")
    if not target.name.endswith((".ncu-rep", ".ncu-rep.xz")):
        raise UsageProblem(f"'{target}' is not named like a report", "Give it the suffix .ncu-rep, or .ncu-rep.xz to compress it")
    done, launches = _redacted(source, remove_source, tuple(names))
    write_atomic(target, lzma.compress(done.data) if target.suffix == ".xz" else done.data)
    return Redacted(target, done.replaced, done.blanked_bytes, launches)


def redact_in_place(path: Path, *, remove_source: bool = False) -> Redacted:
    """Replace a report that was just made here by its redacted copy; names of this machine and its user go too.

    Raises:
        InputProblem: as `redact`; the report stays as it was.
    """
    done, launches = _redacted(path, remove_source, scrub.machine_names())
    write_atomic(path, done.data)
    return Redacted(path, done.replaced, done.blanked_bytes, launches)


def redact_folder(folder: Path) -> None:
    """Take private text out of what lies beside a redacted run's reports: the logs. Plans and progress name files of this machine and go."""
    names = scrub.machine_names()
    for path in folder.glob("*.log"):
        write_atomic(
            path, scrub.clean_text(path.read_text(encoding="utf-8", errors="surrogateescape"), names=names).encode("utf-8", "surrogateescape")
        )
    for path in (*folder.glob("*-plan.json"), *folder.glob("*-progress.jsonl")):
        path.unlink()


def redact_commands(commands: Iterable[str]) -> tuple[str, ...]:
    """Command lines with folders reduced to neutral ones, so that they name no machine and can still be read."""
    names = scrub.machine_names()
    return tuple(scrub.clean_text(command, names=names) for command in commands)


def _redacted(source: Path, remove_source: bool, wanted: tuple[str, ...]) -> tuple[scrub.Scrubbed, int]:
    """The redacted report's bytes, proven to hold the same figures, and how many launches it has."""
    before = ncu_rep.load_report(source)
    done = scrub.scrub(framing.read_bytes(source), names=wanted, paths=True, source=remove_source)
    left = scrub.leftovers(done.data, names=wanted, paths=True)
    if left:
        raise InputProblem(f"'{source}' would still hold private text: {', '.join(left[:5])}", "Nothing was written. Please report this")
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
        copy = Path(scratch) / "redacted.ncu-rep"
        copy.write_bytes(done.data)
        after = ncu_rep.load_report(copy)
    if list(map(figures, before.profiles)) != list(map(figures, after.profiles)):
        raise InputProblem(f"redacting '{source}' would change its figures", "Nothing was written. Please report this")
    return done, len(after.profiles)


def figures(profile: Profile) -> tuple[object, ...]:
    """All that a diagnosis rests on: what must be the same before and after."""
    launch = profile.launch
    rows = [
        (row.address, row.sass, row.line, row.executed, row.threads, row.samples, row.samples_not_issued, row.counters)
        for row in profile.instructions
    ]
    rules = [(rule.rule, rule.kind, rule.speedup) for rule in profile.rules]
    identity = (launch.kernel, launch.grid, launch.block, launch.status, launch.registers, profile.device)
    return identity, repr(profile.readings), profile.stalls, profile.mix, rows, rules
