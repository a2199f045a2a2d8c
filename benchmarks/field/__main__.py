"""python -m benchmarks.field: run, check, time and record pairs of the field benchmark.

    python -m benchmarks.field --list
    python -m benchmarks.field fetch [--from REPOSITORY=FOLDER]
    python -m benchmarks.field NAME --variant before|after
    python -m benchmarks.field --check [NAME...]
    python -m benchmarks.field time NAME
    python -m benchmarks.field record --out DIR [NAME...] [--jobs N | --cluster WHERE] [--seconds S]
    python -m benchmarks.field pack --out DIR
    python -m benchmarks.field score [--group GROUP] [--cases] [--out docs/lab/field.md]

`fetch` brings the sources of the pairs of public repositories into the cache folder; --from takes
a clone on this machine, bare or not, instead of the network.

Exit codes are those of ncu-toolkit; 5 where a pair fails, 3 where its sources are not fetched.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks import field
from benchmarks.field import public
from ncu_toolkit.base.core.errors import (
    EXIT_ENVIRONMENT,
    EXIT_KERNEL,
    EXIT_OK,
    InputProblem,
    ToolkitError,
    UsageProblem,
)

#: Headings of the groups in the scores.
TITLES: dict[field.Group, str] = {
    "development": "development half",
    "scored": "former sealed half, development since it was scored",
    "sealed": "sealed half",
}
VERBS = ("fetch", "time", "record", "record-one", "pack", "score")


def main(arguments: list[str] | None = None) -> int:
    """Carry out one command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.field", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", metavar="NAME", help="time, record, or pairs")
    parser.add_argument("--variant", choices=field.VARIANTS)
    parser.add_argument(
        "--from",
        dest="clones",
        action="append",
        default=[],
        metavar="REPOSITORY=FOLDER",
        help="clone to fetch from; may be repeated",
    )
    parser.add_argument(
        "--list", action="store_true", help="language, group, name and work of each"
    )
    parser.add_argument("--check", action="store_true", help="compare both variants' results")
    parser.add_argument(
        "--out", type=Path, help="folder of recordings; page to put the scores into"
    )
    parser.add_argument("--jobs", type=int, default=1, help="pairs to record at once")
    parser.add_argument("--cluster", help="record on a cluster: local, tcp://host:port, FILE.yaml")
    parser.add_argument("--slow-boards", action="store_true", help="use slow GPUs of a cluster too")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no pair after this long"
    )
    parser.add_argument("--group", choices=field.GROUPS, help="score one group of pairs, not all")
    parser.add_argument(
        "--cases", action="store_true", help="list every case that was scored, but no sealed one"
    )
    given = parser.parse_intermixed_args(arguments)
    try:
        return _carry_out(given)
    except ToolkitError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    except Exception as error:
        if "record-one" in given.words:
            raise  # `record` lists the last lines of what a pair says
        print(f"error: {type(error).__name__}: {_first_line(error)}", file=sys.stderr)
        return EXIT_KERNEL


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _carry_out(given: argparse.Namespace) -> int:
    if given.list:
        for name in field.names():
            where = f"{field.language(name):8} {field.group(name):11}"
            absent = " (sources not fetched)" if _unfetched(name) else ""
            print(f"{where} {name:38} {field.work(name)}{absent}")
        return EXIT_OK
    words: list[str] = list(given.words)
    verb = words.pop(0) if words and words[0] in VERBS else ""
    unknown = [name for name in words if name not in field.names()]
    if unknown:
        raise UsageProblem(f"there is no pair '{unknown[0]}'", "--list lists them")
    if verb == "fetch":
        clones = public.clones(given.clones)
        for repository in public.repositories().values():
            new = public.fetch(repository, clones.get(repository.name))
            whole = f"{len(repository.files)} files, {new} of them new"
            print(f"{repository.name}: {whole}, in {repository.folder}")
        return EXIT_OK
    if verb == "score":
        from benchmarks.field import scoring

        tables = ""
        for folder in sorted(field.RECORDINGS.iterdir()):
            for group in (given.group,) if given.group else field.GROUPS:
                if pairs := scoring.read(folder, group):
                    every = given.cases and group != "sealed"
                    found = scoring.document(pairs, every=every)
                    tables += f"### {folder.name}, {TITLES[group]}\n\n{found}\n"
        if not tables:
            raise InputProblem("no such pair is recorded", "`make field` records them")
        print(tables, end="")
        if given.out is not None:
            scoring.update(given.out, tables)
        return EXIT_OK
    from benchmarks.field import running

    if given.check:
        return _check(words or list(field.names()))
    if verb == "time" and words:
        for name in words:
            print(json.dumps(running.measure(field.find(name))), flush=True)
        return EXIT_OK
    if verb and given.out is None:
        raise UsageProblem("recordings need a folder", "Name one with --out")
    if verb == "pack":
        running.pack(given.out.resolve())
        return EXIT_OK
    if verb == "record-one" and len(words) == 1:
        running.record_one(words[0], given.out.resolve())
        return EXIT_OK
    if verb == "record":
        chosen = words or list(field.names())
        failed = _recorded(chosen, given)
        for name, message in failed.items():
            print(f"\n{name} failed:\n{message}", file=sys.stderr)
        codes = (EXIT_ENVIRONMENT if _unfetched(name) else EXIT_KERNEL for name in failed)
        return max(codes, default=EXIT_OK)
    if len(words) == 1 and given.variant:
        running.run(field.find(words[0]), given.variant)
        return EXIT_OK
    raise UsageProblem("name one pair and its --variant", "`--help` shows every form")


def _unfetched(name: str) -> bool:
    """Whether the pair includes sources of a public repository that are not in the cache folder."""
    repository = field.repository(name)
    return bool(repository) and bool(public.repositories()[repository].missing())


def _recorded(chosen: list[str], given: argparse.Namespace) -> dict[str, str]:
    from benchmarks.field import running
    from ncu_toolkit.guests.cluster import schedulers

    if given.cluster is None:
        return running.record(chosen, given.out.resolve(), given.jobs, given.seconds)
    if given.jobs != 1:
        raise UsageProblem("--jobs counts processes of this machine", "Leave it out of --cluster")

    def note(text: str) -> None:
        print(f"note: {text}", file=sys.stderr)

    with schedulers.opened(given.cluster, note, given.slow_boards) as executor:
        return running.record(chosen, given.out.resolve(), 1, given.seconds, executor)


def _check(chosen: list[str]) -> int:
    """Compare both variants of each pair; those that fail are named, and the others go on."""
    from benchmarks.field import running

    codes = set()
    for name in chosen:
        try:
            print(f"{name}: agrees to {running.agreement(field.find(name)):.2g}", flush=True)
        except Exception as error:
            codes.add(error.exit_code if isinstance(error, ToolkitError) else EXIT_KERNEL)
            print(f"{name}: {type(error).__name__}: {_first_line(error)}", file=sys.stderr)
    return max(codes, default=EXIT_OK)


if __name__ == "__main__":
    sys.exit(main())
