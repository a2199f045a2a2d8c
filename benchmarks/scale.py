"""How reading, judging and showing a report grows: `python benchmarks/scale.py 500 2000 10000 [--sass
50000]` prints times and peak memory.

Reports of so many launches are made from the shipped recording: its first launch without its
per-instruction tables, under the names of many kernels by turns (report_files.many_launches), and
that launch with its code and counts repeated (report_files.long_kernel). Where ncu is installed,
`ncu --import --page raw --csv` reads the same files beside."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Kernels that the launches are of: more kinds than the page lists.
KINDS = 400
#: One reading, and every format from it, in its own process. Peaks are of the largest process,
#: children included.
_CHILD = """
import json, resource, sys, tempfile, time
from pathlib import Path
from ncu_toolkit.kernel.analysis import analyze
from ncu_toolkit.base.core import workers
from ncu_toolkit.cli.analyze import render, write_pages
from rich.console import Console

def peak():
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024

found = {}
start = time.monotonic()
file = analyze.unpacked(analyze.read_packed(sys.argv[1], analyze.Options(figures=True), jobs=workers.default_jobs()))
found["read"] = time.monotonic() - start
found["launches"], found["peak"] = len(file.launches), peak()
whole = analyze.Analysis((file,), analyze.Options(figures=True))
for form in ("text", "markdown", "json", "csv"):
    start = time.monotonic()
    made = render(whole, form, None)
    if form == "text":
        Console(file=open("/dev/null", "w"), width=120).print(made)
    found[form] = time.monotonic() - start
found["rendered"] = peak()
if sys.argv[2] == "pages":
    options = analyze.Options(profiles=True)
    file = analyze.unpacked(analyze.read_packed(sys.argv[1], options, jobs=workers.default_jobs()))
    whole = analyze.Analysis((file,), options)
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        page = write_pages(whole, None, Path(folder) / "run", standalone=False)
        found["pages"] = time.monotonic() - start
        found["bytes"] = sum(path.stat().st_size for path in page.parent.iterdir())
    found["all"] = peak()
print(json.dumps(found))
"""
#: `ncu --import` in a process that tells how long it took and the largest resident set.
_NCU = """
import json, resource, subprocess, sys, time
start = time.monotonic()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
print(json.dumps([time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, code]))
"""


def child(code: str, *words: str) -> str:
    """What a Python of this checkout prints."""
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


def main(arguments: list[str]) -> None:
    import json

    import report_files

    from ncu_toolkit.base.core.errors import EnvironmentProblem
    from ncu_toolkit.kernel.gpu.collect import find_ncu

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("launches", nargs="*", type=int, default=[500, 2000])
    parser.add_argument(
        "--sass",
        type=int,
        default=50_000,
        metavar="N",
        help="instructions of the report of one long kernel; 0 for none",
    )
    parser.add_argument("--pages", action="store_true", help="write the pages too")
    options = parser.parse_args(arguments)
    try:
        ncu: str | None = find_ncu().path
    except EnvironmentProblem:
        ncu = None
    print(
        "| report | size | read and diagnose | launches/s | peak memory | a launch | text | markdown | json | csv | pages | ncu --import --csv |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    before: tuple[float, float] | None = None
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        path = Path(folder) / "report.ncu-rep"
        for count in (*options.launches, *([0] if options.sass else []), -1):
            if count > 0:
                name, data = (
                    f"{count} launches",
                    report_files.many_launches(count, min(count, KINDS)),
                )
            elif count == 0:
                name, data = (
                    f"one of {options.sass} instructions",
                    report_files.long_kernel(options.sass),
                )
            else:
                name, data = "the recording", report_files.recorded.report_bytes()
            path.write_bytes(data)
            found = json.loads(child(_CHILD, str(path), "pages" if options.pages else ""))
            each = ""
            if count > 0:
                if (
                    before is not None and count > before[0]
                ):  # what a further launch adds: modules and buffers are there anyhow
                    each = f"{(found['rendered'] - before[1]) / (count - before[0]):.3f} MiB"
                before = count, found["rendered"]
            pages = (
                f"{found['pages']:.1f} s, {found['bytes'] / 2**20:.1f} MiB, peak {found['all']:.0f} MiB"
                if options.pages
                else ""
            )
            beside = "ncu not found here"
            if ncu is not None:
                seconds, peak, code = json.loads(
                    child(_NCU, ncu, "--import", str(path), "--page", "raw", "--csv")
                )
                beside = (
                    f"{seconds:.2f} s, {found['launches'] / seconds:.0f} launches/s, {peak:.0f} MiB"
                    if code == 0
                    else f"ended with {code}"
                )
            print(
                f"| {name} | {len(data) / 2**20:.1f} MiB | {found['read']:.2f} s | {found['launches'] / found['read']:.0f} | "
                f"{found['rendered']:.0f} MiB | {each} | {found['text']:.2f} s | {found['markdown']:.2f} s | {found['json']:.2f} s | "
                f"{found['csv']:.2f} s | {pages} | {beside} |",
                flush=True,
            )


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    main(sys.argv[1:])
