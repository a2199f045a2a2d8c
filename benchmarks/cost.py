"""What the toolkit costs, beside Nsight Compute's own sets and printed pages, in one run on one
machine.

    python benchmarks/cost.py --output docs/data/cost.json [--budget 300]

On the GPU: the same ladder under ncu with our set, `--set detailed` and `--set full`, in an order
drawn again for each repeat, and the program by itself. On the CPU: reading the report of our set,
diagnosing and rendering it, beside `ncu --import` on the same file. Writes JSON and prints
Markdown. `--report FILE` does the CPU side alone. What the budget leaves no time for is listed, not
guessed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from ncu_toolkit.base.core import units  # noqa: E402  (after the path)
from ncu_toolkit.base.core.errors import EnvironmentProblem, ToolkitError  # noqa: E402
from ncu_toolkit.base.core.files import write_atomic  # noqa: E402
from ncu_toolkit.base.metrics.registry import SET_NAME  # noqa: E402
from ncu_toolkit.base.model.run import RunCase  # noqa: E402
from ncu_toolkit.kernel.gpu import collect  # noqa: E402
from ncu_toolkit.kernel.gpu.runner import TARGET  # noqa: E402
from ncu_toolkit.kernel.gpu.selection import case_of  # noqa: E402
from ncu_toolkit.kernel.gpu.target import Plan, plan_path, stop_path, write_plan  # noqa: E402
from ncu_toolkit.kernel.ladder.catalogue import find_family  # noqa: E402
from ncu_toolkit.kernel.ladder.problems import problem_for  # noqa: E402

SETS = (SET_NAME, "detailed", "full")
#: Launches of the report that is read on the CPU side: rungs at a smaller size make up the number.
LAUNCHES = 25
SMALL = "512"
FAMILY = "gemm_fp32"
#: Asked in a separate process, so that this one has no context on the GPU while others are
#: profiled.
_FACTS = """
import json
from dataclasses import asdict
from ncu_toolkit import gpu
state = gpu.sample()
print(json.dumps({"gpu": gpu.device().name, "cc": gpu.device().cc, "environment": gpu.environment(), "clocks": asdict(state)}))
"""


@dataclass
class Series:
    """Repeats of one thing: wall seconds each, and what else is known of it. `failed` says why
    there are none."""

    seconds: list[float] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    """Replay passes of each kernel, in launch order, of the last repeat."""
    report_bytes: int = 0
    peak_mib: float = 0.0
    """Largest resident set of one process of it."""
    failed: str = ""

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None


class Clock:
    """Time that is left. `fits` asks whether something as long as it was the last time still has
    room."""

    def __init__(self, budget: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._end = now, now() + budget

    @property
    def left(self) -> float:
        return self._end - self._now()

    def fits(self, series: Series) -> bool:
        return self.left > 1.1 * max(series.seconds, default=1.0)


def planned(size: str, cc: tuple[int, int]) -> list[RunCase]:
    """Every rung of the FP32 ladder that the GPU can run at `size`, and at SMALL as many of the
    first ones as LAUNCHES asks for."""
    rungs = [rung for rung in find_family(FAMILY).rungs if not rung.unsupported_on(cc)]
    parse = problem_for(FAMILY).parse_size
    cases = [case_of(rung, parse(size), "float32") for rung in rungs]
    return cases + [
        case_of(rung, parse(SMALL), "float32") for rung in rungs[: max(0, LAUNCHES - len(cases))]
    ]


def environment() -> dict[str, str]:
    """The child's search path: this checkout first."""
    return {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    }


def under_ncu(
    ncu: collect.Ncu, set_name: str, cases: Sequence[RunCase], folder: Path, timeout: float
) -> tuple[collect.NcuOutcome, Path]:
    """One run of the ladder under ncu with a set, its flags as the toolkit's own sessions give
    them."""
    stem = f"{set_name}-{len(list(folder.glob('*.log')))}"
    plan = plan_path(folder, stem)
    write_plan(Plan(tuple(cases)), plan)
    request = collect.Request(
        folder / stem,
        (sys.executable, *TARGET, str(plan)),
        collect.section_folders(ncu, set_name),
        set_name=set_name,
        ranges_only=True,
    )
    job = collect.NcuJob(ncu, request, timeout, environment())
    outcome = collect.run(job, request_stop=stop_path(plan).touch)
    return outcome, folder / f"{stem}.ncu-rep"


def alone(cases: Sequence[RunCase], folder: Path, timeout: float) -> float:
    """Seconds of the same program without ncu: start, inputs, verification, launches."""
    plan = plan_path(folder, f"alone-{time.monotonic_ns()}")
    write_plan(Plan(tuple(cases)), plan)
    return timed([sys.executable, *TARGET, str(plan)], timeout)


def timed(words: Sequence[str], timeout: float, **variables: str) -> float:
    """Wall seconds of a command, with `variables` in its environment; its output goes nowhere.

    Raises:
        EnvironmentProblem: it failed or took longer than `timeout`.
    """
    start = time.perf_counter()
    with subprocess.Popen(
        list(words),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment(), **variables},
    ) as process:
        try:
            _, errors = process.communicate(timeout=max(1.0, timeout))
        except subprocess.TimeoutExpired:
            process.kill()
            raise EnvironmentProblem(
                f"'{Path(words[0]).name}' took longer than {timeout:.0f} s"
            ) from None
    seconds = time.perf_counter() - start
    if process.returncode:
        last = (errors.decode("utf-8", "replace").strip().splitlines() or ["no output"])[-1]
        raise EnvironmentProblem(
            f"'{' '.join(map(str, words[1:4]))}' ended with {process.returncode}: {last}"
        )
    return seconds


#: A command in a process that tells its own and its children's largest resident set.
_MEASURED = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
json.dump({"seconds": seconds, "peak_mib": peak, "code": done.returncode, "said": done.stderr[-300:]}, open(sys.argv[1], "w"))
"""


def measured(
    words: Sequence[str], folder: Path, timeout: float, **variables: str
) -> tuple[float, float]:
    """As `timed`, with the largest resident set in MiB of a process of it."""
    answer = folder / "measured.json"
    answer.unlink(missing_ok=True)
    timed([sys.executable, "-S", "-c", _MEASURED, str(answer), *words], timeout, **variables)
    found = json.loads(answer.read_text(encoding="utf-8"))
    if found["code"]:
        raise EnvironmentProblem(
            f"'{Path(words[0]).name} {words[1]}' ended with {found['code']}: {found['said'].strip()}"
        )
    return float(found["seconds"]), float(found["peak_mib"])


#: How the names of those commands end that find the text of the kernels' code kept by a reading
#: before; all others read it for the first time.
KNOWN: Final = ", code known"


def cpu_commands(report: Path, ncu: str | None, folder: Path) -> dict[str, list[str]]:
    """What is timed on the CPU side, by name; ncu's own where there is one."""
    ours = [sys.executable, "-P", "-m", "ncu_toolkit"]
    commands = {
        "analyze (text)": [*ours, "analyze", str(report)],
        "analyze (CSV)": [*ours, "analyze", str(report), "--format", "csv"],
        "analyze (pages)": [
            *ours,
            "analyze",
            str(report),
            "--format",
            "html",
            "--output",
            str(folder / "pages"),
        ],
        "--help": [*ours, "--help"],
    }
    commands |= {
        f"{name}{KNOWN}": words for name, words in commands.items() if name.startswith("analyze")
    }
    if ncu is not None:
        commands["ncu --import --page details"] = [
            ncu,
            "--import",
            str(report),
            "--page",
            "details",
        ]
        commands["ncu --import --page raw --csv"] = [
            ncu,
            "--import",
            str(report),
            "--page",
            "raw",
            "--csv",
        ]
    return commands


def cpu_side(
    report: Path, ncu: str | None, repeats: int, clock: Clock, rng: random.Random
) -> tuple[dict[str, Series], list[str]]:
    """Every command `repeats` times, the order drawn again for each repeat; and what there was no
    time for."""
    found: dict[str, Series] = {}
    left_out = []
    with tempfile.TemporaryDirectory(prefix="cost-") as scratch:
        commands = cpu_commands(report, ncu, Path(scratch))
        known = Path(scratch) / "known"
        with contextlib.suppress(ToolkitError):  # reported where it is timed
            measured(
                commands["analyze (CSV)"], Path(scratch), clock.left, NCU_TOOLKIT_CACHE=str(known)
            )
        for repeat in range(repeats):
            for name in rng.sample(sorted(commands), len(commands)):
                series = found.setdefault(name, Series())
                if series.failed:
                    continue
                if not clock.fits(series):
                    left_out.append(f"{name}, repeat {repeat + 1}")
                    continue
                try:
                    cache = known if name.endswith(KNOWN) else Path(tempfile.mkdtemp(dir=scratch))
                    seconds, peak = measured(
                        commands[name], Path(scratch), clock.left, NCU_TOOLKIT_CACHE=str(cache)
                    )
                except ToolkitError as error:
                    series.failed = error.message
                    continue
                series.seconds.append(seconds)
                series.peak_mib = max(series.peak_mib, peak)
    return found, left_out


def launches_in(report: Path) -> int:
    """Launches that a report declares."""
    from ncu_toolkit.kernel.report import framing

    return framing.parse(framing.read_bytes(report)).declared_launches


def gpu_side(
    ncu: collect.Ncu,
    cases: Sequence[RunCase],
    folder: Path,
    repeats: int,
    clock: Clock,
    rng: random.Random,
    first: Callable[[Path], None],
) -> tuple[dict[str, Series], list[str]]:
    """The ladder with each set, and by itself, `repeats` times; `first` gets the first report of
    our set as soon as it is there."""
    found = {name: Series() for name in ("alone", *SETS)}
    left_out = []
    alone(cases, folder, clock.left)  # builds what is not built yet; not counted
    for repeat in range(repeats):
        for name in ["alone", *rng.sample(SETS, len(SETS))] if repeat else ["alone", *SETS]:
            series = found[name]
            if series.failed:
                continue
            if not clock.fits(series):
                left_out.append(f"{name}, repeat {repeat + 1}")
                continue
            try:
                if name == "alone":
                    series.seconds.append(alone(cases, folder, clock.left))
                    continue
                outcome, report = under_ncu(ncu, name, cases, folder, clock.left)
            except ToolkitError as error:
                series.failed = str(error)
                continue
            if outcome.problem is not None or not report.is_file():
                series.failed = str(outcome.problem or "ncu wrote no report")
                continue
            series.seconds.append(outcome.seconds)
            series.passes, series.report_bytes = list(outcome.passes), report.stat().st_size
            if name == SET_NAME and repeat == 0:
                first(report)
            report.unlink(missing_ok=True)
    return found, left_out


def facts() -> dict[str, Any]:
    """GPU, driver, versions and clocks. Raises EnvironmentProblem where there is no GPU."""
    done = subprocess.run(
        [sys.executable, "-c", _FACTS],
        capture_output=True,
        text=True,
        env={**os.environ, **environment()},
        check=False,
    )
    if done.returncode:
        raise EnvironmentProblem(
            f"the GPU cannot be asked: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def spread(series: Mapping[str, Any]) -> str:
    """Median seconds with the shortest and longest repeat."""
    seconds = series["seconds"]
    if not seconds:
        return f"failed: {series['failed']}" if series["failed"] else "not measured"
    middle = units.duration(statistics.median(seconds) * 1e6)
    if len(seconds) == 1:
        return f"{middle} (1 run)"
    return f"{middle} ({units.duration(min(seconds) * 1e6)} to {units.duration(max(seconds) * 1e6)}, {len(seconds)} runs)"


def table(data: Mapping[str, Any]) -> str:
    """The result as Markdown."""
    lines = []
    profiling, reading = data.get("gpu_side"), data.get("cpu_side")
    if profiling:
        full = profiling["full"]["seconds"]
        lines += [
            "| collected with | wall time | of `--set full` | passes a kernel | report |",
            "|---|---:|---:|---:|---:|",
        ]
        names = {SET_NAME: f"ncu-toolkit (`--set {SET_NAME}`)", "alone": "the program by itself"}
        for name, series in profiling.items():
            seconds, passes = series["seconds"], series["passes"]
            share = (
                units.percent(statistics.median(seconds) / statistics.median(full))
                if seconds and full
                else ""
            )
            shown = (
                ""
                if not passes
                else f"{statistics.median(passes):g}"
                + (f" ({min(passes)} to {max(passes)})" if len(set(passes)) > 1 else "")
            )
            size = units.si(series["report_bytes"], "B") if series["report_bytes"] else ""
            lines.append(
                f"| {names.get(name, f'`--set {name}`')} | {spread(series)} | {share} | {shown} | {size} |"
            )
        lines.append("")
    if reading:
        what = f"reading a report of {data['launches']} launches ({units.si(data['report_bytes'], 'B')})"
        lines += [f"| {what} | wall time | peak memory |", "|---|---:|---:|"]
        for name in sorted(reading):
            series = reading[name]
            peak = units.si(series["peak_mib"] * 2**20, "B") if series["peak_mib"] else ""
            command = (
                f"`{name}`"
                if name.startswith("ncu ")
                else f"`ncu-toolkit {name}`"
                if name.startswith("-")
                else f"`ncu-toolkit` {name}"
            )
            lines.append(f"| {command} | {spread(series)} | {peak} |")
        lines.append("")
    if data.get("left_out"):
        missing: dict[str, list[str]] = {}
        for left in data["left_out"]:
            name, _, repeat = left.partition(", repeat ")
            missing.setdefault(name, []).append(repeat)
        reported = (
            f"{name} (repeat{'s' * (len(of) > 1)} {' and '.join(of)})"
            for name, of in missing.items()
        )
        lines += [f"Not run for lack of time: {', '.join(reported)}.", ""]
    lines.append(provenance(data))
    return "\n".join(lines) + "\n"


def provenance(data: Mapping[str, Any]) -> str:
    """Where and with what the figures were measured."""
    machine = data.get("machine") or {}
    known = machine.get("environment", {})
    words = [f"Measured {data['created'][:10]}"]
    if machine:
        words.append(f"on one {machine['gpu']}")
    kept = [f"{label} {known[label]}" for label in ("Driver", "CUDA runtime") if label in known]
    kept += [f"Nsight Compute {data['ncu']}"] if data.get("ncu") else ["ncu not found here"]
    kept += [f"clocks {known['Clocks']}"] if "Clocks" in known else []
    kept += [f"{data['processors']} processors"]
    if data.get("cases"):
        kept.append(f"{data['cases']} cases of the FP32 ladder, size {data['size']}")
    return f"{' '.join(words)} ({'; '.join(kept)}). Medians, with the shortest and longest; the order was drawn again for each repeat."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("cost.json"), help="JSON file to write")
    parser.add_argument(
        "--budget",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="begin nothing that would not end within this time",
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", default="1024")
    parser.add_argument(
        "--report", type=Path, help="measure only how long this report takes to read"
    )
    options = parser.parse_args(arguments)
    clock, rng = Clock(options.budget), random.Random(1)
    data: dict[str, Any] = {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "size": options.size, "processors": len(os.sched_getaffinity(0)),
    }  # fmt: skip
    left_out: list[str] = []

    def read(report: Path) -> None:
        found, missed = cpu_side(report, ncu.path if ncu else None, options.repeats, clock, rng)
        data["cpu_side"] = {name: asdict(series) for name, series in found.items()}
        data["launches"], data["report_bytes"] = launches_in(report), report.stat().st_size
        left_out.extend(missed)

    try:
        ncu: collect.Ncu | None = collect.find_ncu()
    except EnvironmentProblem as error:
        ncu = None
        print(f"{error.message}: only our own reading is measured", file=sys.stderr)
    data["ncu"] = ncu.version if ncu else ""
    try:
        if options.report is not None:
            read(options.report)
        elif ncu is None:
            raise EnvironmentProblem(
                "there is no ncu to profile with", "Use --report FILE to measure reading alone"
            )
        else:
            data["machine"] = facts()
            cases = planned(options.size, tuple(data["machine"]["cc"]))
            data["cases"] = len(cases)
            with tempfile.TemporaryDirectory(prefix="cost-") as scratch:
                found, missed = gpu_side(
                    ncu, cases, Path(scratch), options.repeats, clock, rng, read
                )
            data["gpu_side"] = {name: asdict(series) for name, series in found.items()}
            left_out.extend(missed)
    except ToolkitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    data["left_out"] = left_out
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(options.output, (json.dumps(data, indent=1) + "\n").encode())
    print(table(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
