"""Redaction of a report, with a proof: no private text is left, and the figures are the same."""

import itertools
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncu_toolkit.base.core.errors import InputProblem, UsageProblem
from ncu_toolkit.base.core.files import REPORT_SUFFIXES, packed, write_atomic
from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.report import framing, reader, scrub


@dataclass(frozen=True)
class Redacted:
    """The outcome. `incomplete` of its `launches` hold no figures, or not all."""

    path: Path
    replaced: int
    blanked_bytes: int
    launches: int
    incomplete: int = 0


def redact(
    source: Path, target: Path, *, remove_source: bool = False, names: Iterable[str] = ()
) -> Redacted:
    """Write `target`: `source` without host names, users, addresses, command lines and absolute
    paths.

    Args:
        target: a new `.ncu-rep`, or `.ncu-rep.xz` or `.ncu-repz` to pack it.
        remove_source: also blank embedded source text.
        names: further strings to replace wherever they occur, in kernel names too.

    Raises:
        UsageProblem: the target exists; a name is empty.
        InputProblem: the source cannot be read, or the result would have other numbers, or hold
            something private.
    """
    if os.path.lexists(target):
        raise UsageProblem(f"'{target}' exists", "Name a new file: nothing is overwritten")
    if not target.name.endswith(REPORT_SUFFIXES):
        raise UsageProblem(
            f"'{target}' is not named like a report",
            "Give it the suffix .ncu-rep, or .ncu-rep.xz or .ncu-repz to pack it",
        )
    wanted = tuple(names)
    for name in wanted:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UsageProblem(
                f"--name '{os.fsencode(name).decode(errors='backslashreplace')}' is not UTF-8, as names in a report are",
                "Give it in UTF-8",
            ) from None
        if not scrub.replaceable(name.strip()):
            raise UsageProblem(
                f"--name '{name}' holds nothing that could be replaced",
                "Give a word, as it is written in the report",
            )
    done, profiles = _redacted(source, remove_source, wanted)
    write_atomic(target, packed(target.name, done.data))
    return _summary(target, done, profiles)


def redact_in_place(path: Path, *, remove_source: bool = False) -> Redacted:
    """Replace a report that was just made here by its redacted copy, without names of this machine
    and its user. Raises InputProblem as `redact`; the report then stays as it was."""
    done, profiles = _redacted(path, remove_source, (), words=scrub.machine_names())
    write_atomic(path, packed(path.name, done.data))
    return _summary(path, done, profiles)


def _summary(path: Path, done: scrub.Scrubbed, profiles: Sequence[Profile]) -> Redacted:
    return Redacted(
        path,
        done.replaced,
        done.blanked_bytes,
        len(profiles),
        sum(not profile.launch.complete for profile in profiles),
    )


def redact_folder(folder: Path, *, words: Iterable[str] = ()) -> None:
    """Redact the logs next to a run's reports, also of `words`; delete plans and progress."""
    for path in folder.glob("*.log"):
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        cleaned = scrub.clean_text(text, words=(*scrub.machine_names(), *words))
        write_atomic(path, cleaned.encode("utf-8", "surrogateescape"))
    for path in (*folder.glob("*-plan.json"), *folder.glob("*-progress.jsonl")):
        path.unlink()


def redact_text(text: str) -> str:
    """A line about a run without folders, addresses and names of this machine and its user."""
    return scrub.clean_text(text, words=scrub.machine_names())


def redact_command(words: Sequence[str]) -> str:
    """A command line of the toolkit's own: of paths the last component, other text cleaned."""
    return " ".join(
        Path(word).name if word.startswith(("/", "~")) else redact_text(word) for word in words
    )


def _redacted(
    source: Path, remove_source: bool, wanted: tuple[str, ...], *, words: Sequence[str] = ()
) -> tuple[scrub.Scrubbed, Sequence[Profile]]:
    """The redacted report's bytes, proven to hold the same figures, and its launches."""
    before = reader.load_report(source)
    data = framing.read_bytes(source)
    done = scrub.scrub(data, names=wanted, words=words, paths=True, source=remove_source)
    left = scrub.leftovers(done.data, names=wanted, paths=True, source=remove_source)
    if left:
        without = scrub.leftovers(done.data)
        for name in wanted:
            if scrub.leftovers(done.data, names=[name]) != without:
                raise InputProblem(
                    f"'{source}' holds '{name}' where it cannot be replaced: in machine code or numbers ({', '.join(left[:3])})",
                    "Nothing was written. Give a longer name that is in text alone, or leave it out",
                )
    survived = scrub.survivors(data, done.data, words=words)
    for what, where in (("private text", left), ("what it calls private", survived)):
        if where:
            raise InputProblem(
                f"'{source}' would still hold {what}: {', '.join(where[:5])}",
                "Nothing was written. Please report this",
            )
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
        copy = Path(scratch) / "redacted.ncu-rep"
        copy.write_bytes(done.data)
        try:
            after = reader.load_report(copy)
        except InputProblem as error:
            text = error.message.replace(str(copy), "the copy")
            raise _refused(source, wanted, f"it could not be read any more ({text})") from None
    for index, (old, new) in enumerate(itertools.zip_longest(before.profiles, after.profiles)):
        changed = _changed(old, new, wanted)
        if changed:
            raise _refused(source, wanted, f"the {changed} of launch {index} would change")
    return done, after.profiles


def _refused(source: Path, wanted: tuple[str, ...], why: str) -> InputProblem:
    remedy = (
        f"One of these is in text that figures hang on: {', '.join(wanted)}. Leave it out"
        if wanted
        else "Please report this"
    )
    return InputProblem(
        f"redacting '{source}' would change its figures: {why}", f"Nothing was written. {remedy}"
    )


def _changed(old: Profile | None, new: Profile | None, names: tuple[str, ...]) -> str:
    """Differences of a launch except replaced names; empty where there are none."""
    if old is None or new is None:
        return "number"
    now = figures(new)
    for what, first in figures(old).items():
        # Few figures hold names, so texts are compared only where a figure differs.
        if first != now[what]:
            before, after = (scrub.without_names(repr(each), names) for each in (first, now[what]))
            if before != after:
                return what
    return ""


def figures(profile: Profile) -> dict[str, object]:
    """The figures that a diagnosis uses, which redaction must not change."""
    launch = profile.launch
    return {
        "name, shape or GPU": (
            launch.kernel, launch.grid, launch.block, launch.status, launch.registers, profile.device
        ),
        "metrics": repr(profile.readings),
        "stalls": profile.stalls,
        "opcodes": profile.mix,
        "instructions": [
            (row.address, row.sass, row.line, row.executed, row.threads, row.samples, row.samples_not_issued, row.counters)
            for row in profile.instructions
        ],
        "rules": [(rule.rule, rule.kind, rule.speedup) for rule in profile.rules],
        "contradictions": tuple(profile.contradictions),
    }  # fmt: skip
