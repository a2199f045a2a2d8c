"""Verdicts of every launch on record, and each format of two reports, kept as text so that a change
of a rule or a writer shows what it moved.

    python tests/golden.py                    compare and print the difference
    python tests/golden.py --update           write them as they are now
    python tests/golden.py --only analyze     the same for files whose name holds a word

A line a launch: place in the file, kernel, verdict, confidence, predicted speedup, runners-up,
and the metrics that the verdict's evidence names. Recordings and the ladders of another GPU are
read as runs, since a rung's useful work is part of its diagnosis; held-out sets, reports of other
origins and the corpus as anybody's reports. The corpus is compared where it is there.

The files considered-* hold what each rule made of each launch: two characters a rule, in the order
of the first line. The first is one of OUTCOMES, the second a digest of the reason; a difference is
printed in words.

`analyze` is run as a user runs it on a pipe; its output is kept with floating-point figures rounded
and the tool's version left out. The help of every command is docs/commands.md."""

from __future__ import annotations

import argparse
import contextlib
import csv
import difflib
import hashlib
import io
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

if __name__ == "__main__":  # the tests' own modules and the package of this checkout
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import recorded
from click.testing import CliRunner

from ncu_toolkit import __version__
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import Diagnosis, Finding, NoFinding
from ncu_toolkit.cli import cli
from ncu_toolkit.kernel.diagnosis.rules import load_rules

FOLDER = Path(__file__).resolve().parent / "golden"
HELDOUT = recorded.ROOT / "tests" / "heldout"
ORIGINS = recorded.ROOT / "tests" / "origins" / "reports"
SHARED = recorded.ROOT.parent / "shared"


def sets() -> dict[str, list[Path]]:
    """What each golden file holds: run folders and reports by the file's name."""
    found = {
        "recordings": [*recorded.FOLDERS, *sorted((HELDOUT / "ladders").iterdir())],
        **{
            f"heldout-{folder.name}": sorted(folder.glob("*.ncu-rep.xz"))
            for folder in sorted(HELDOUT.iterdir())
            if folder.is_dir()
        },
        "origins": sorted(ORIGINS.glob("*.ncu-rep.xz")),
        "corpus": sorted([*SHARED.glob("corpus/*.ncu-rep"), *SHARED.glob("refused/*.ncu-rep")]),
    }
    return {name: paths for name, paths in found.items() if paths}


def diagnoses(path: Path) -> Iterator[tuple[str, str, Diagnosis, str]]:
    """Place, name, diagnosis and status of each launch of a run folder or a report."""
    if not path.is_dir():
        for each in recorded.launches(path):
            yield f"{path.name} {each.key}", each.function, each.diagnosis, each.status
        return
    for profile in recorded.run_of(path).profiles:
        where = f"{path.name} {profile.origin.key}"
        if profile.context is not None:
            where += f" {profile.context.rung}@{profile.context.size}"
        yield where, profile.launch.function, recorded.diagnosed(profile), "complete"


def lines(paths: list[Path]) -> list[str]:
    """The verdicts of run folders and reports, a line a launch."""
    return [
        f"{where} {name}: {verdict(diagnosis) if status == 'complete' else status}"
        for path in paths
        for where, name, diagnosis, status in diagnoses(path)
    ]


OUTCOMES = {"r": "ruled out", "a": "abstained", "-": "a finding"}


def considered(paths: list[Path]) -> list[str]:
    """What became of each rule in run folders and reports: the rules, then a line a launch."""
    rules = sorted(load_rules())

    def mark(each: NoFinding | None) -> str:
        if each is None:
            return "--"
        return (
            each.outcome[0] + b64encode(hashlib.sha256(each.reason.encode()).digest()).decode()[0]
        )

    found = [" ".join(rules)]
    for path in paths:
        for where, _, diagnosis, status in diagnoses(path):
            if status == "complete":
                of = {each.bottleneck: each for each in diagnosis.considered}
                found.append(f"{where} {''.join(mark(of.get(rule)) for rule in rules)}")
    return found


def in_words(found: list[str]) -> list[str]:
    """Lines of `considered` as a line a launch and rule."""
    return [
        f"{where} {rule}: {OUTCOMES[marks[2 * at]]} ({marks[2 * at + 1]})"
        for where, _, marks in (line.rpartition(" ") for line in found[1:])
        for at, rule in enumerate(found[0].split())
    ]


def verdict(diagnosis: Diagnosis) -> str:
    """One diagnosis in a line."""
    first = diagnosis.primary
    rest = ", ".join(_short(finding) for finding in diagnosis.runners_up)
    evidence = " ".join(sorted({each.metric for each in first.evidence}))
    return f"{_short(first)} [{first.confidence}] then [{rest}] from [{evidence}]"


def _short(finding: Finding) -> str:
    if finding.good:
        return f"{finding.bottleneck} good"
    gain = "without a figure" if finding.speedup is None else f"{finding.speedup:.3g}x"
    return f"{finding.bottleneck} {gain}"


#: What `analyze` is run on for the goldens of its formats: a shipped recording, and a report that
#: a user's program left.
SHOWN = {
    "recording": (
        "ncu_toolkit/data/recordings/h200-transpose/profile.ncu-rep.xz",
        "--kernel",
        "transpose_naive",
    ),
    "foreign": ("tests/origins/reports/set-full.ncu-rep.xz",),
}
FORMATS = ("text", "markdown", "json", "csv")


def shown(arguments: tuple[str, ...], form: str) -> Iterator[str]:
    """What `ncu-toolkit analyze` prints on a pipe, without what changes from version to version."""
    with contextlib.chdir(recorded.ROOT):
        done = CliRunner(env={"COLUMNS": "100"}).invoke(
            cli, ["analyze", *arguments, "--format", form]
        )
    assert done.exit_code == 0, done.output
    for line in done.stdout.splitlines():
        line = re.sub(r"\d+\.\d{4,}(?:e[+-]?\d+)?", lambda found: f"{float(found[0]):.6g}", line)
        yield line.replace(__version__, "VERSION").rstrip()


def goldens() -> dict[str, Callable[[], list[str]]]:
    """What makes the lines of each golden file, by the file's name."""
    made: dict[str, Callable[[], list[str]]] = {
        f"analyze-{name}.{form}": partial(lambda *of: list(shown(*of)), arguments, form)
        for name, arguments in SHOWN.items()
        for form in FORMATS
    }
    for name, paths in sets().items():
        made[name] = partial(lines, paths)
        made[f"considered-{name}"] = partial(considered, paths)
    return made


def difference(name: str, now: list[str]) -> list[str]:
    """What differs from the golden file, as a unified diff without context; empty where nothing."""
    kept = FOLDER / f"{name}.txt"
    before = kept.read_text(encoding="utf-8").splitlines() if kept.is_file() else []
    if before and name.endswith(".csv"):
        now = without_new_columns(before[0], now)
    if name.startswith("considered"):
        before, now = in_words(before), in_words(now)
    return list(difflib.unified_diff(before, now, "golden", "now", n=0, lineterm=""))


def without_new_columns(header: str, now: list[str]) -> list[str]:
    """Lines of a table without the columns of metrics that its golden does not have yet, so that a
    new metric moves no golden."""
    known, (first, *rows) = next(csv.reader([header])), csv.reader(now)
    added = {f"{m.name} ({m.unit})" if m.unit else m.name for m in registry.REGISTRY.values()}
    kept = [at for at, name in enumerate(first) if name in known or name not in added]
    if len(kept) == len(first):
        return now
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [row[at] for at in kept] for row in (first, *rows)
    )
    return text.getvalue().splitlines()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="write them as they are now")
    parser.add_argument("--only", default="", help="files whose name holds this")
    given = parser.parse_args(arguments)
    changed = 0
    for name, made in goldens().items():
        if given.only not in name:
            continue
        now = made()
        found = difference(name, now)
        changed += bool(found)
        print("\n".join(found) if found else f"{name}: the same")
        if found and given.update:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / f"{name}.txt").write_text("\n".join(now) + "\n", encoding="utf-8")
    return 0 if given.update or not changed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
