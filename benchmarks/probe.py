"""python -m benchmarks.probe: how often `probe` tells the regime that counters tell.

    python -m benchmarks.probe measure --out FILE.jsonl [--set pathology|field|ladders] [--seconds S]
    python -m benchmarks.probe launch [--seconds S]
    python -m benchmarks.probe fit FILE.jsonl... [--program FILE.json] [--data docs/data/probe.json]
    python -m benchmarks.probe table [--data docs/data/probe.json] [--page docs/probe.md]

`measure` needs a GPU: it puts every kernel that has a recorded verdict under pressure. `launch` is a
program that launches the pathology kernels over and over, for `ncu-toolkit probe --experiments
--top 80 --format json -o FILE.json -- python -m benchmarks.probe launch`. `fit` takes
the regime that the recorded counters tell as the truth, fits the thresholds on the kernels of one
half by a hash of their names, and writes responses and regimes of all of them. `table` writes the
tables of docs/probe.md from that.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ncu_toolkit.diagnosis import regime
from ncu_toolkit.model import Device
from ncu_toolkit.model.profile import Launch, Profile
from ncu_toolkit.model.trace import KernelTrace

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "docs" / "data" / "probe.json", ROOT / "docs" / "probe.md"
SETS = ("pathology", "field", "ladders")
#: Languages of field pairs that launch on the default stream of this process.
LANGUAGES = ("cupy", "triton", "pytorch", "numba", "warp")
#: Sizes of the ladders' kernels: those with a recorded profile.
SIZES = ("1024", "4096", "2048", "16384", "4194304", "268435456")
#: Cycles the GPU spins before a field program's run.
SPIN_CYCLES = 1_000_000
#: Longest kernel of a ladder that is measured, in microseconds.
LONGEST_US = 30_000.0
CHOICES: Mapping[str, tuple[float, ...]] = {
    "dram": (0.1, 0.15, 0.2, 0.25, 0.3),
    "dram_used": (0.25, 0.3, 0.35, 0.4, 0.45),
    "l2": (0.2, 0.3, 0.4, 0.5, 0.6),
    "l2_used": (0.1, 0.15, 0.2, 0.25, 0.3),
    "on_chip": (0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    "balance": (0.7, 0.75, 0.8, 0.85, 0.9),
    "constant": (0.1, 0.15, 0.2),
    "arithmetic": (0.15, 0.2, 0.25, 0.3, 0.35),
    "issue": (0.2, 0.3, 0.35, 0.4, 0.5),
    "special": (0.3, 0.4, 0.5, 0.7),
    "idle": (0.2, 0.25, 0.3, 0.35, 0.4, 0.5),
    "follows": (0.1, 0.15, 0.2, 0.3),
    "half": (0.2, 0.3, 0.4, 0.5),
}


#: Those that are fitted for programs, where what the pressure lost is not known.
BY_SLOPES: Mapping[str, tuple[float, ...]] = {
    "dram": (0.2, 0.25, 0.3, 0.35, 0.4, 0.5), "l2": (0.3, 0.4, 0.5, 0.6, 0.7),
    "memory": (0.7, 0.9, 1.0, 1.1, 1.3), "spare": (0.3, 0.4, 0.5, 0.6, 0.8),
    "shared": (0.05, 0.08, 0.1, 0.12, 0.15, 0.2), "constant": (0.1, 0.15, 0.2),
    "arithmetic": (0.1, 0.15, 0.2, 0.25, 0.3), "special": (0.3, 0.4, 0.5),
    "idle": (0.2, 0.25, 0.3, 0.35, 0.4, 0.5), "follows": (0.03, 0.05, 0.1, 0.2),
}  # fmt: skip


def half(name: str) -> str:
    """ "fitted" or "held out", by the kernel's name without its size. Another hash than that of the
    field's halves."""
    return "fitted" if hashlib.sha256(f"probe {name}".encode()).digest()[0] % 2 else "held out"


class _Program:
    """A field program's variant, as the experiments see a rung."""

    def __init__(self, run: Any) -> None:
        self.run = run

    @contextlib.contextmanager
    def padded(self) -> Iterator[bool]:
        yield False


def measure(out: Path, which: str, seconds: float) -> None:
    """Put the kernels of a set under pressure; a line of JSON each, none begun after `seconds`."""
    from ncu_toolkit.gpu import cuda, pressure, probe, timing

    deadline = time.monotonic() + seconds
    cuda.disable_tf32()
    device = cuda.device()
    press = pressure.Pressure(pressure.compiled(device.arch), device.sm_count)
    watches = probe.stopwatches()
    if which == "field":  # Numba and Triton take up to 200 µs to enqueue a launch.
        watches = {cache: timing.Stopwatch(cache, SPIN_CYCLES) for cache in ("warm", "flushed")}
    with out.open("a", encoding="utf-8") as file:

        def write(row: Mapping[str, Any]) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        rates = probe.calibrate(press)
        write({"gpu": device.name, "sm_count": device.sm_count, "rates": rates})
        done: Iterator[tuple[str, Any, Any, str]] = (
            _works(device) if which == "field" else _rungs(which, device)
        )
        for name, run, space, cache in done:
            if time.monotonic() > deadline:
                print(f"out of time at {name}", flush=True)
                return
            begun = time.monotonic()
            try:
                runnable = run()
                found = probe.experiment(runnable, press, watches, cache, 0.8)
                again = max((v.worst for v in runnable.verify()), default=0.0) if space else None
            except Exception as error:
                print(f"FAILED {name}: {type(error).__name__}: {str(error)[:150]}", flush=True)
                if not cuda.context_works():
                    return
                continue
            conditions = {k: [round(t, 2) for t in m.times_us] for k, m in found.items()}
            shown_rates = {
                k: float(f"{statistics.median(m.rates):.4g}") for k, m in found.items() if m.rates
            }
            lost = sum(m.left_out for m in found.values())
            write(
                {
                    "name": name,
                    "cache": cache,
                    "conditions": conditions,
                    "rates": shown_rates,
                    "lost": lost,
                    "worst_after": again,
                }
            )
            middle = statistics.median(conditions["plain"])
            print(
                f"{name} {middle:.1f} us, {len(conditions['plain'])} runs, {lost} lost, {time.monotonic() - begun:.1f} s",
                flush=True,
            )


def launch_all(seconds: float) -> None:
    """Launch each pathology kernel for so long, as a program would."""
    from ncu_toolkit.gpu import cuda

    device, cp = cuda.device(), cuda.cupy()
    for name, run, _, _ in _rungs("pathology", device):
        try:
            runnable = run()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                for _ in range(10):
                    runnable.run()
                cp.cuda.Device().synchronize()
            worst = max(each.worst for each in runnable.verify())
            print(f"{name} right, worst {worst:.2g}", flush=True)
        except Exception as error:
            print(f"FAILED {name}: {type(error).__name__}: {str(error)[:150]}", flush=True)


def _cases(which: str) -> tuple[Any, ...]:
    from ncu_toolkit.runs import store

    found = []
    for folder in store.recordings():
        run = store.load_manifest(folder)
        times = {
            (t.rung, t.size): statistics.median(t.times_us) for t in store.load_timings(folder)
        }
        found += [
            case
            for case in run.cases
            if (case.family == "pathology") == (which == "pathology")
            and case.state == "profiled"
            and case.size in (*SIZES, "16777216")
            and times.get((case.rung, case.size), 0.0) < LONGEST_US
        ]
    order = ("transpose", "reduction", "elementwise", "gemm_fp32", "gemm_tensor")
    return tuple(
        sorted(
            found,
            key=lambda c: (order.index(c.family) if c.family in order else 9, -len(c.size), c.size),
        )
    )


def _rungs(which: str, device: Device) -> Iterator[tuple[str, Any, Any, str]]:
    from ncu_toolkit.gpu import launch, selection
    from ncu_toolkit.gpu.session import cache_of
    from ncu_toolkit.ladder.problems import problem_for

    for group in selection.groups_of(_cases(which)):
        first = group[0]
        problem, options = problem_for(first.family), selection.rung_of(first).problem
        space = launch.Workspace(problem, selection.size_of(first), first.dtype, options)
        for case in group:
            rung = selection.rung_of(case)
            if rung.unsupported_on(device.cc):
                continue

            def made(case: Any = case, rung: Any = rung, space: Any = space) -> Any:
                runnable = launch.Runnable(rung, space, case.parameters)
                runnable.verify()
                return runnable

            yield f"{case.family}/{case.rung}/{case.size}", made, space, cache_of(problem, None)


def _works(device: Device) -> Iterator[tuple[str, Any, Any, str]]:
    from benchmarks import field
    from benchmarks.field import running

    for name in _field_names():
        try:
            works = running.check(field.find(name)).works  # type: ignore[arg-type]
        except Exception as error:
            print(f"FAILED field/{name}: {type(error).__name__}: {str(error)[:150]}", flush=True)
            continue
        for variant, work in works.items():
            yield f"field/{name}/{variant}", lambda work=work: _Program(work.run), None, "flushed"


def _field_names() -> list[str]:
    from benchmarks import field

    recorded = {path.name.split("-before")[0] for path in field.RECORDINGS.glob("*/*-before*")}
    found = [
        name
        for name in field.names()
        if field.half(name) == "development"
        and name in recorded
        and field.language(name) in LANGUAGES
    ]
    return sorted(found, key=lambda name: LANGUAGES.index(field.language(name)))


def truths() -> dict[str, tuple[Profile, regime.Regime, str]]:
    """The longest recorded launch of each kernel, its regime by counters, and its verdict."""
    from benchmarks import field
    from ncu_toolkit.analysis.analyze import Options, analyze, judge
    from ncu_toolkit.runs import store

    best: dict[str, tuple[float, Profile]] = {}
    for folder in store.recordings():
        for profile in store.load_run(folder, live=False).profiles:
            about = profile.context
            if about is None:
                continue
            key = f"{about.family}/{about.rung}/{about.size}"
            weight = (profile.duration_us or 0.0) * about.repeat
            if weight >= best.get(key, (0.0,))[0]:
                best[key] = (weight, profile)
    found = {}
    for key, (_, profile) in best.items():
        diagnosis = judge(profile, key, Options()).diagnosis
        found[key] = (profile, regime.of_counters(profile, diagnosis), diagnosis.primary.bottleneck)
    for name, variant in itertools.product(_field_names(), field.VARIANTS):
        for report in sorted(field.RECORDINGS.glob(f"*/{name}-{variant}.ncu-rep*"))[:1]:
            (file,) = analyze([report], Options(profiles=True), jobs=1).files
            first = file.launches[0]
            assert first.profile is not None
            told = regime.of_counters(first.profile, first.diagnosis)
            found[f"field/{name}/{variant}"] = (
                first.profile,
                told,
                first.diagnosis.primary.bottleneck,
            )
    return found


def kernel_of(row: Mapping[str, Any], profile: Profile, alone: Mapping[str, float]) -> KernelTrace:
    """A measured row as a traced kernel, with the launch of its recording. `alone` is the rate of
    each pressure with nothing beside it."""
    conditions = {name: tuple(times) for name, times in row["conditions"].items()}
    middle = statistics.median([*conditions["plain"], *conditions["plain_again"]])
    launches = (
        profile.context.launch_count
        if profile.context and not row["name"].startswith("field")
        else 1
    )
    repeat = profile.context.repeat if profile.context else 1
    number = max(1, launches - 1 + repeat)
    shape = profile.launch
    launch = Launch(
        shape.kernel, shape.function, shape.grid, shape.block, shape.registers,
        shape.shared_static, shape.shared_dynamic,
    )  # fmt: skip
    kept = {kind: (rate / alone[kind],) for kind, rate in row["rates"].items() if kind in alone}
    return KernelTrace(launch, number, middle, middle / number, middle, middle, conditions, kept)


def fit(files: Sequence[Path], program: Path | None, data: Path) -> None:
    """Fit the thresholds on one half and write what was measured, told and recorded."""
    rows, gpu, rates = [], "", {}
    for line in itertools.chain.from_iterable(path.read_text().splitlines() for path in files):
        row = json.loads(line)
        if "rates" in row and "name" not in row:
            gpu, rates = row["gpu"], row["rates"]
        else:
            rows.append(row)
    alone = {kind: statistics.median(each) for kind, each in rates.items() if each}
    known = truths()
    device = Device(gpu, (9, 0), sm_count=132)
    cases = []
    for row in rows:
        if row["name"] not in known:
            continue
        profile, right, rule = known[row["name"]]
        kernel = kernel_of(row, profile, alone)
        same = (
            row["name"].startswith("field")
            and abs(kernel.median_us / (profile.duration_us or 1) - 1) > 0.4
        )
        if same:
            print(
                f"left out: {row['name']} takes {kernel.median_us:.1f} us, its launch {profile.duration_us:.1f} us"
            )
            continue
        answers = regime.responses(kernel.conditions)
        if regime.tell(kernel, device) is None:
            print(f"left out: {row['name']} has too few runs under pressure")
            continue
        seen = regime.seen(answers, regime.kept(kernel), regime.unused_by_shape(kernel, device))
        cases.append((row["name"], right, rule, seen, kernel, answers))
    own = [case for case in cases if half(_kernel(case[0])) == "fitted"]
    best = _search([(right, seen) for _, right, _, seen, _, _ in own], CHOICES)
    print("thresholds", asdict(best))
    written = []
    for name, right, rule, seen, kernel, answers in cases:
        told = regime.tell(kernel, device, best)
        assert told is not None
        written.append(
            {
                "name": name, "half": half(_kernel(name)), "verdict": rule, "counters": right,
                "first": told.first, "second": told.second, "time_us": round(kernel.median_us, 2),
                "unused": round(seen.unused, 3),
                "kept": {kind: round(part, 3) for kind, part in seen.kept.items()},
                "responses": {kind: [round(a.slope, 4), round(a.spread, 4)] for kind, a in answers.items()},
            }
        )  # fmt: skip
    slopes = regime.BY_SLOPES
    if program is not None:
        inside, slopes = _of_program(program, known)
        written += inside
    about = {
        "gpu": gpu,
        "thresholds": asdict(best),
        "thresholds_by_slopes": asdict(slopes),
        "alone_rates": {k: statistics.median(v) for k, v in rates.items() if v},
    }
    old = json.loads(data.read_text()) if data.exists() else {}
    kept = {key: old[key] for key in ("overhead",) if key in old}
    data.write_text(
        json.dumps(
            {**about, **kept, "kernels": written}, indent=None, separators=(",", ":")
        ).replace('{"name"', '\n{"name"')
        + "\n"
    )


def _of_program(
    path: Path, known: Mapping[str, tuple[Profile, regime.Regime, str]]
) -> tuple[list[dict[str, Any]], regime.Thresholds]:
    """The kernels that `launch` launched, as `probe` saw them from inside that program, and
    thresholds fitted on one half of them."""
    document = json.loads(path.read_text(encoding="utf-8"))
    device = Device(document["device"]["name"], (9, 0), sm_count=document["device"]["sm_count"])
    rungs = {
        (profile.launch.function, profile.launch.grid, profile.launch.block): (key, right, rule)
        for key, (profile, right, rule) in known.items()
        if key.startswith("pathology/")
    }
    cases = []
    for row in document["kernels"]:
        named = (row["kernel"], tuple(row["grid"]), tuple(row["block"]))
        if named not in rungs:
            continue
        key, right, rule = rungs.pop(named)
        launch = Launch(
            row["kernel"], row["kernel"], tuple(row["grid"]), tuple(row["block"]),
            row["registers"], row["shared_static"], row["shared_dynamic"],
        )  # fmt: skip
        conditions = {name: tuple(times) for name, times in row["conditions_us"].items()}
        kernel = KernelTrace(
            launch, row["launches"], row["total_us"], row["median_us"], row["low_us"], row["high_us"], conditions
        )  # fmt: skip
        if regime.tell(kernel, device) is None:
            print(f"left out: {key} in the program has too few launches under pressure")
            continue
        answers = regime.responses(conditions)
        seen = regime.seen(answers, {}, regime.unused_by_shape(kernel, device))
        cases.append((key, right, rule, kernel, answers, seen))
    own = [(right, seen) for key, right, *_, seen in cases if half(_kernel(key)) == "fitted"]
    best = _search(own, BY_SLOPES)
    print("thresholds by slopes", asdict(best))
    found = []
    for key, right, rule, kernel, answers, seen in cases:
        told = regime.tell(kernel, device, best)
        assert told is not None
        found.append(
            {
                "name": key.replace("pathology/", "program/"), "half": half(_kernel(key)),
                "verdict": rule, "counters": right, "first": told.first, "second": told.second,
                "time_us": round(kernel.median_us, 2), "unused": round(seen.unused, 3), "kept": {},
                "responses": {kind: [round(a.slope, 4), round(a.spread, 4)] for kind, a in answers.items()},
            }
        )  # fmt: skip
    return found, best


def _kernel(name: str) -> str:
    return name.rsplit("/", 1)[0] if not name.startswith("field") else name.split("/")[1]


def _search(
    own: Sequence[tuple[str, regime.Seen]], choices: Mapping[str, tuple[float, ...]]
) -> regime.Thresholds:
    """The thresholds with most right on these kernels: coordinate descent from many starts; of
    equal ones the median of each threshold among the best."""

    def right(at: regime.Thresholds) -> int:
        total = 0
        for truth, seen in own:
            made = regime.scores(seen, at)
            total += max(made, key=lambda name: made[name]) == truth
        return total

    shuffler, best = random.Random(1), []
    for start in range(40):
        at = regime.Thresholds(
            **{name: shuffler.choice(values) for name, values in choices.items()}
        )
        if not start:
            at = regime.Thresholds()
        score, moved = right(at), True
        while moved:
            moved = False
            for name in shuffler.sample(list(choices), len(choices)):
                for value in choices[name]:
                    other = replace(at, **{name: value})
                    if (new := right(other)) > score:
                        at, score, moved = other, new, True
        best.append((score, at))
    most = max(score for score, _ in best)
    tops = [at for score, at in best if score == most]
    middle = regime.Thresholds(
        **{name: statistics.median_low(getattr(at, name) for at in tops) for name in choices}
    )
    chosen = middle if right(middle) >= most else tops[0]
    print(f"right on the fitted half: {right(chosen)} of {len(own)}")
    return chosen


def tables(data: Path) -> str:
    """The tables of docs/probe.md."""
    found = json.loads(data.read_text(encoding="utf-8"))
    kernels = found["kernels"]
    lines = [
        "| kernels | half | right | right or one of the two | of |",
        "|---|---|---:|---:|---:|",
    ]
    for which in ("pathology", "program", "field", "ladders"):
        for part in ("fitted", "held out"):
            own = [k for k in kernels if k["half"] == part and _set(k["name"]) == which]
            if own:
                right = sum(k["first"] == k["counters"] for k in own)
                either = sum(k["counters"] in (k["first"], k["second"]) for k in own)
                lines.append(
                    f"| {which} | {part} | {right} ({right / len(own):.0%}) | {either} ({either / len(own):.0%}) | {len(own)} |"
                )
    for part in ("fitted", "held out"):
        own = [k for k in kernels if k["half"] == part and _set(k["name"]) != "program"]
        counts = Counter((k["counters"], k["first"]) for k in own)
        lines += ["", f"Counters (rows) against pressure (columns), {part}:", ""]
        lines.append("| | " + " | ".join(regime.REGIMES) + " |")
        lines.append("|---|" + "---:|" * len(regime.REGIMES))
        for row in regime.REGIMES:
            cells = " | ".join(str(counts[row, column] or "") for column in regime.REGIMES)
            lines.append(f"| **{row}** | {cells} |")
    wrong = [
        k
        for k in kernels
        if k["first"] != k["counters"] and _set(k["name"]) in ("pathology", "field")
    ]
    lines += ["", "Where the two differ (pathology and field):", ""]
    lines += [
        "| kernel | verdict from counters | regime | pressure | dram | l2 | alone | half |",
        "|---|---|---|---|---:|---:|---:|---|",
    ]
    for k in wrong:
        either = " or ".join(filter(None, (k["first"], k["second"])))
        slopes = " | ".join(f"{k['responses'][kind][0]:+.2f}" for kind in ("dram", "l2", "alone"))
        short = k["name"].removeprefix("pathology/").removesuffix("/16777216")
        lines.append(
            f"| {short} | {k['verdict']} | {k['counters']} | {either} | {slopes} | {k['half']} |"
        )
    return "\n".join(lines) + "\n"


def _set(name: str) -> str:
    family = name.split("/")[0]
    return family if family in ("pathology", "program", "field") else "ladders"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.probe", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("verb", choices=("measure", "launch", "fit", "table"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--program", type=Path)
    parser.add_argument("--set", choices=SETS, default="pathology")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    if given.verb == "measure":
        measure(given.out, given.set, given.seconds)
    elif given.verb == "launch":
        launch_all(given.seconds)
    elif given.verb == "fit":
        fit(given.files, given.program, given.data)
    else:
        text = given.page.read_text(encoding="utf-8")
        text = re.sub(
            r"(<!-- regimes -->\n).*(<!-- end of regimes -->)",
            lambda found: f"{found[1]}\n{tables(given.data)}\n{found[2]}",
            text,
            flags=re.DOTALL,
        )
        given.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
