"""Rewrite the generated documents: command reference, bottleneck pages, metric table, ladder
tables, the results, the card of the README.

`python docs/generate.py` writes what has changed; `--check` writes nothing and ends with 1 where
something has. Figures come from the recordings in the package; text outside the markers `<!--
generated: NAME -->` … `<!-- end: NAME -->` is left alone."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click

from ncu_toolkit.cli import COMMANDS, cli
from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import calibrate, glossary
from ncu_toolkit.diagnosis.engine import diagnose
from ncu_toolkit.diagnosis.rules import reference
from ncu_toolkit.diagnosis.time_model import NOISE
from ncu_toolkit.explain import verdict
from ncu_toolkit.ladder.catalogue import Rung, find_family, load_families
from ncu_toolkit.ladder.problems import problem_for
from ncu_toolkit.metrics import registry
from ncu_toolkit.model import Profile, Timing
from ncu_toolkit.model.run import Run
from ncu_toolkit.render import calibration as views
from ncu_toolkit.render.columns import rate_unit
from ncu_toolkit.render.publish import with_best_ceilings
from ncu_toolkit.render.text import plain_text
from ncu_toolkit.runs import store

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_NOTE = "<!-- Written by docs/generate.py (`make docs`); do not edit. -->\n"
_SIZES = ("1024", "4096")
#: Rungs whose cards the tutorial of a slow kernel shows; the README shows the first.
EXAMPLES = ("smem_tiled", "thread_tile_1d")


def documents(runs: Iterable[Run]) -> dict[Path, str]:
    """Every generated document's whole text by path."""
    recorded = list(runs)
    pages = {DOCS / "bottlenecks" / name: text for name, text in reference.pages().items()}
    kernels = ROOT / "kernels" / "README.md"
    readme = ROOT / "README.md"
    results = DOCS / "results.md"
    text = results.read_text(encoding="utf-8")
    tables = {"ladder": ladder_table, "families": families_table, "goals": goals_table}
    for name, table in {
        **{name: made(recorded) for name, made in tables.items()},
        "cost": cost_table(),
    }.items():
        text = between(text, name, table)
    tutorial = DOCS / "tutorials" / "slow-kernel.md"
    lesson = tutorial.read_text(encoding="utf-8")
    for rung in EXAMPLES:
        lesson = between(lesson, rung, example_card(recorded, rung))
    calibrated = DOCS / "calibration.md"
    held = calibrated.read_text(encoding="utf-8")
    for name, table in calibration_tables(recorded).items():
        held = between(held, name, table)
    return {
        calibrated: held,
        DOCS / "commands.md": commands(),
        DOCS / "glossary.md": f"{_NOTE}\n{glossary.markdown()}",
        DOCS / "metrics.md": metric_table(),
        DOCS / "rungs.md": rung_figures(recorded),
        **pages,
        kernels: between(kernels.read_text(encoding="utf-8"), "ladders", rung_tables()),
        readme: between(
            readme.read_text(encoding="utf-8"), "card", example_card(recorded, EXAMPLES[0])
        ),
        results: text,
        tutorial: lesson,
    }


#: Slow kernels whose first recording led to a change of a rule or of the model (docs/calibration.md
#: says which).
LED_TO_CHANGES = (
    "memory_latency", "async_copy_wait", "local_memory_traffic", "atomic_contention", "tensor_core_unused", "instruction_dependency",
    "low_occupancy", "tail_effect", "launch_overhead", "rectangular_tile", "gelu_unfused", "rgb_to_gray", "reduce_divergent", "reduce_sequential",
    "reduce_unrolled", "transpose_swizzled", "wmma_smem", "wmma_warp_tiled", "wgmma_tma", "warp_tiled",
    "wmma_global", "wgmma_warp_specialized", "reduce_shuffle", "gelu_fused", "narrow_access",
)  # fmt: skip


def calibration_tables(runs: list[Run]) -> dict[str, str]:
    """The tables of docs/calibration.md by marker."""
    found = calibrate.calibrate(
        calibrate.pairs(
            runs, [rung for family in load_families().values() for rung in family.rungs]
        )
    )
    changed = [o for o in found.outcomes if o.largest and o.pair.before in LED_TO_CHANGES]
    others = [o for o in found.outcomes if o not in changed]
    smaller = [
        replace(o, largest=True, ranked=o.pair.achieved > NOISE)
        for o in found.outcomes
        if not o.largest
    ]
    halves = [
        ("led to no change", calibrate.score(others)),
        ("led to a change", calibrate.score(changed)),
        ("smaller sizes, not judged", calibrate.score(smaller)),
    ]
    return {
        "summary": views.markdown(views.SUMMARY, views.summary(views.scores(found))),
        "halves": views.markdown(views.SUMMARY, views.summary(halves)),
        "cases": views.markdown(views.HEADINGS, views.rows(found.outcomes), 5),
    }


def between(text: str, name: str, content: str) -> str:
    """`text` with what stands between a marker and its end replaced. Raises ValueError where the
    markers are not there exactly once."""
    start, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"the markers of '{name}' are not there exactly once")
    head, _, rest = text.partition(start)
    return f"{head}{start}{content}{end}{rest.partition(end)[2]}"


def commands() -> str:
    """docs/commands.md from the commands' own help."""
    lines = [
        _NOTE,
        "# Commands\n",
        "Exit codes: 0 done, 1 a gate did not hold, 2 usage, 3 something is missing on this machine (GPU, permission, disk, memory), 4 an input",
        "file is unreadable or incomplete, 5 a kernel failed or computed a wrong result, 130 interrupted. Every error is one",
        "line on standard error. Colours follow the terminal and `NO_COLOR`. `--quiet`, `--verbose` and `--log-file FILE` go before or after the",
        "command; the log holds versions, every command that is run, ncu's output and tracebacks, and nothing is taken out of it: read it before you",
        'send it. `eval "$(ncu-toolkit completion bash)"` lets a shell complete commands, options, kernels, families and runs.',
        "A reader that leaves early (`| head`) changes no exit code. `NCU_TOOLKIT_MAX_BYTES` is the most "
        "that one input file may hold, unpacked (2 GiB).\n",
    ]
    top = click.Context(cli, info_name="ncu-toolkit", terminal_width=110, **cli.context_settings)
    lines += ["```text", cli.get_help(top), "```\n"]
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        context = click.Context(
            command,
            info_name=name,
            parent=top,
            terminal_width=110,
            max_content_width=top.max_content_width,
        )
        lines += [f"## ncu-toolkit {name}\n", "```text", command.get_help(context), "```\n"]
        for part, inner in command.commands.items() if isinstance(command, click.Group) else ():
            own = click.Context(
                inner,
                info_name=part,
                parent=context,
                terminal_width=110,
                max_content_width=top.max_content_width,
            )
            lines += [f"### ncu-toolkit {name} {part}\n", "```text", inner.get_help(own), "```\n"]
    return "\n".join(lines)


def metric_table() -> str:
    """docs/metrics.md from the registry."""
    lines = [
        _NOTE,
        "# Metrics\n",
        "Short names as reports, rules and kernel headers use them, with the profiler's own names in order of preference.\n",
    ]
    for group, entries in registry.GROUPS.items():
        lines += [
            f"## {group.capitalize()}\n",
            "| name | what it is | unit | Nsight Compute | GPUs (CC) |",
            "|---|---|---|---|---|",
        ]
        for metric in entries:
            names = ", ".join(f"`{name}`" for name in metric.ncu) + (
                " (read, not collected)" if metric.name in registry.READ_ONLY else ""
            )
            lines.append(
                f"| `{metric.name}` | {metric.label}: {metric.meaning} | {metric.unit} | {names} | {_range(metric)} |"
            )
        lines.append("")
    return "\n".join(lines)


def _range(metric: registry.Metric) -> str:
    since, until = (".".join(map(str, cc)) for cc in (metric.since, metric.until))
    if metric.until >= (99, 0):
        return "all" if metric.since <= (7, 0) else f"from {since}"
    return (
        f"up to {until}"
        if metric.since <= (7, 0)
        else (since if since == until else f"{since} to {until}")
    )


def rung_tables() -> str:
    """The ladders with their rungs, from the kernels' headers."""
    lines = []
    for family in load_families().values():
        lines += [
            f"### {family.name}\n",
            "| | rung | what it is | compared with | removes | needs |",
            "|---|---|---|---|---|---|",
        ]
        for rung in family.rungs:
            needs = (
                f"sm_{rung.minimum_cc[0]}{rung.minimum_cc[1]}a"
                if rung.arch_specific
                else f"CC {rung.minimum_cc[0]}.{rung.minimum_cc[1]}"
            )
            kind = "" if rung.kind == "step" else f" ({rung.kind})"
            lines.append(
                f"| {rung.order:02d} | `{rung.name}` | {_cell(rung.title)}{kind} | {_code(rung.compared_with)} | {_code(rung.removes)} | {needs} |"
            )
        lines.append("")
    return "\n".join(lines) + "\n"


def example_card(runs: list[Run], rung: str) -> str:
    """The card that `ncu-toolkit analyze` prints for a rung of the FP32 ladder at 4096."""
    (launch,) = [
        profile
        for profile in _holding(runs, "gemm_fp32").profiles
        if profile.context is not None
        and (profile.context.rung, profile.context.size) == (rung, _SIZES[-1])
    ]
    shown = plain_text(verdict.card(launch, diagnose(launch), "before.ncu-rep"))
    return f"```text\n{shown.strip()}\n```\n"


def ladder_table(runs: list[Run]) -> str:
    """The FP32 ladder with measured figures."""
    run = _holding(runs, "gemm_fp32")
    times = _timings(run, "gemm_fp32")
    family = find_family("gemm_fp32")
    head = (
        "| rung | what it is | "
        + " | ".join(f"time at {size}" for size in _SIZES)
        + f" | rate at {_SIZES[-1]} | of cuBLAS | what limits it at {_SIZES[-1]} |"
    )
    lines = [head, "|---|---|" + "---:|" * (len(_SIZES) + 2) + "---|"]
    for rung in family.rungs:
        timed = [times.get((rung.name, size)) for size in _SIZES]
        last = timed[-1]
        rate = units.si(last.flop_rate, "FLOP/s") if last else units.NOT_AVAILABLE
        against = (
            units.percent(last.baseline_us / last.median_us)
            if last and last.baseline_us
            else ("100 %" if rung.kind == "baseline" else units.NOT_AVAILABLE)
        )
        shown = " | ".join(
            units.duration(item.median_us) if item else units.NOT_AVAILABLE for item in timed
        )
        lines.append(
            f"| `{rung.name}` | {_described(rung)} | {shown} | {rate} | {against} | {_verdict(run, rung)} |"
        )
    return "\n".join([*lines, "", _provenance(run, "gemm_fp32"), ""])


def families_table(runs: list[Run]) -> str:
    """One line for each recorded family: where it starts, where it ends, and the baseline beside
    it."""
    lines = [
        "| ladder | rungs | size | first rung | best rung | | baseline | |",
        "|---|---:|---|---|---|---:|---|---:|",
    ]
    for name in load_families():
        try:
            run = _holding(runs, name)
        except LookupError:
            continue
        problem = problem_for(name)
        rungs = {rung.name: rung for rung in find_family(name).rungs}
        largest = max(
            (t for t in run.timings if t.family == name), key=lambda t: t.compulsory_bytes
        ).size
        timed = {
            t.rung: t
            for t in run.timings
            if t.family == name and t.size == largest and t.rung in rungs
        }
        baseline = timed.pop(problem.baseline, None)
        steps = [
            t
            for t in timed.values()
            if rungs[t.rung].kind in ("step", "regression", "planted")
            and dict(rungs[t.rung].problem) == dict(rungs[next(iter(timed))].problem)
        ]
        if name == "pathology" or len(steps) < 2:
            lines.append(
                f"| {name} | {len(rungs)} | {largest} | pairs of a defect and its mending: see the report | | | | |"
            )
            continue
        first, best = (
            min(steps, key=lambda t: rungs[t.rung].order),
            min(steps, key=lambda t: t.median_us),
        )
        beside = f"`{baseline.rung}` | {_rate(baseline, problem.rate)}" if baseline else " | "
        ends = f"`{first.rung}` {_rate(first, problem.rate)} | `{best.rung}` | {_rate(best, problem.rate)}"
        lines.append(f"| {name} | {len(rungs)} | {largest} | {ends} | {beside} |")
    return "\n".join([*lines, ""])


#: What the tops of the ladders were to reach: rung, size, what it is held against, and the least
#: ratio. "copy" is the measured device copy; "mma" is 65% of what wgmma_persistent reaches in the
#: same recording, the peak of mma.sync on Hopper.
GOALS = (
    ("gemm_fp32", "register_blocked", "4096", "cublas", 1.05),
    ("gemm_fp32", "register_blocked", "8192", "cublas", 1.05),
    ("gemm_tensor", "wgmma_persistent", "4096", "cublas_bf16", 1.07),
    ("gemm_tensor", "wgmma_persistent", "8192", "cublas_bf16", 1.04),
    ("gemm_tensor", "mma_ldmatrix", "4096", "mma", 0.90),
    ("gemm_tensor", "mma_ldmatrix", "8192", "mma", 0.90),
    ("reduction", "reduce_bulk", "1073741824", "cub", 1.015),
    ("transpose", "transpose_vectorized", "16384", "copy", 0.97),
    ("elementwise", "gelu_vectorized", "16384", "copy", 0.97),
    ("elementwise", "rgb_to_gray_vectorized", "16384", "copy", 0.97),
)
#: A geometric mean over sizes with its least ratio, and the ratio that no size may fall below.
MEAN_GOAL = (
    "gemm_fp32",
    "register_blocked",
    "cublas",
    tuple(str(1024 * i) for i in range(1, 9)),
    1.05,
    0.95,
)


def goals_table(runs: list[Run]) -> str:
    """The tops of the ladders beside what they are held against, with the spread of both, and
    whether the goal was reached."""
    ceilings = with_best_ceilings({run.id: run for run in runs})
    lines = [
        "| rung | size | rate | spread | beside | rate | spread | ratio | goal | |",
        "|---|---:|---:|---:|---|---:|---:|---:|---:|---|",
    ]
    for family, name, size, against, goal in GOALS:
        run = _holding(runs, family)
        times, kind = _timings(run, family), problem_for(family).rate
        ours, theirs = times[name, size], times.get((against, size))
        rate = _of(ours, kind)
        if against == "copy":
            held = ceilings[run.id].ceilings.copy or 0.0
            beside = f"device copy | {units.si(held, 'B/s')} | "
        elif against == "mma":
            held = 0.65 * _of(times["wgmma_persistent", size], kind)
            beside = f"65 % of `wgmma_persistent` | {units.si(held, 'FLOP/s')} | "
        else:
            assert theirs is not None
            held = (
                _of(theirs, kind)
                if ours.baseline_us is None
                else rate * ours.median_us / ours.baseline_us
            )
            beside = (
                f"`{against}` | {units.si(held, rate_unit(kind))} | {units.percent(theirs.spread)}"
            )
        ratio = rate / held
        lines.append(
            f"| `{name}` | {size} | {_rate(ours, kind)} | {units.percent(ours.spread)} | {beside} | {ratio:.4f} | {goal:.3f} | "
            f"{'reached' if ratio >= goal else 'missed'} |"
        )
    family, name, against, sizes, goal, least = MEAN_GOAL
    times = _timings(_holding(runs, family), family)
    ratios = [
        baseline / timing.median_us
        for size in sizes
        if (timing := times[name, size]) and (baseline := timing.baseline_us)
    ]
    mean = math.prod(ratios) ** (1 / len(ratios))
    lines.append(
        f"| `{name}` | {sizes[0]} … {sizes[-1]}, {len(ratios)} sizes | | | `{against}` | | | {mean:.4f} (least {min(ratios):.3f}) | "
        f"{goal:.3f} (least {least:.2f}) | {'reached' if mean >= goal and min(ratios) >= least else 'missed'} |"
    )
    return "\n".join([*lines, ""])


def _of(timing: Timing, kind: str) -> float:
    return timing.flop_rate if kind == "flop" else timing.byte_rate


def cost_table(path: Path = DOCS / "data" / "cost.json") -> str:
    """What the toolkit itself costs, from a run of benchmarks/cost.py; nothing where none is
    kept."""
    if not path.is_file():
        return ""
    spec = importlib.util.spec_from_file_location("cost", ROOT / "benchmarks" / "cost.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    words = "What profiling and reading cost, beside Nsight Compute's own sets and printed pages (`make bench-cost`):"
    return f"{words}\n\n{module.table(json.loads(path.read_text(encoding='utf-8')))}\n"


def rung_figures(runs: list[Run]) -> str:
    """Every rung with its source, the claim made there, and what was measured here at the largest
    size it was timed at."""
    ceilings = with_best_ceilings({run.id: run for run in runs})
    lines = [
        "# Every rung: claim and measurement\n",
        _NOTE,
        "Medians of unprofiled runs on an NVIDIA H200, each at the largest size the rung was timed at; the roof is the best copy, FP32 or",
        "tensor rate measured in the recordings on that GPU. A claim is what the source reports on its own GPU. The last column is the time",
        "of the rung it is compared with over its own.\n",
    ]
    for name, family in load_families().items():
        try:
            run = _holding(runs, name)
        except LookupError:
            continue
        problem = problem_for(name)
        roof = {
            "copy": ceilings[run.id].ceilings.copy,
            "fp32": ceilings[run.id].ceilings.fp32,
            "tensor": ceilings[run.id].ceilings.tensor,
        }[problem.roof]
        lines += [
            f"## {name}\n",
            "| rung | source | claim there | size | time | rate | of the baseline | of the roof | against the one before |",
        ]
        lines.append("|---|---|---|---|---:|---:|---:|---:|---:|")
        timed: dict[str, Timing] = {}
        for timing in run.timings:
            if timing.family == name and (
                timing.rung not in timed
                or timing.compulsory_bytes >= timed[timing.rung].compulsory_bytes
            ):
                timed[timing.rung] = timing
        lines += [_rung_line(rung, timed, problem.rate, roof) for rung in family.rungs]
        lines.append("")
    return "\n".join(lines)


def _rung_line(rung: Rung, timed: dict[str, Timing], kind: str, roof: float | None) -> str:
    timing = timed.get(rung.name)
    source = rung.source
    named = (
        not source.device
        or source.device == "not stated"
        or all(part.strip() in source.claim for part in source.device.split(","))
    )
    claim = source.claim if named or not source.claim else f"{source.claim} ({source.device})"
    told = f"| `{rung.name}` | {source.document} | {claim} |"
    if timing is None:
        return f"{told} not recorded | | | | | |"
    rate = timing.flop_rate if kind == "flop" else timing.byte_rate
    share = units.percent(timing.baseline_us / timing.median_us) if timing.baseline_us else ""
    of_roof = units.percent(rate / roof) if roof and rate else ""
    before = timed.get(rung.compared_with)
    step = (
        units.ratio(before.median_us / timing.median_us)
        if before and before.size == timing.size
        else ""
    )
    return f"{told} {timing.size} | {units.duration(timing.median_us)} | {_rate(timing, kind)} | {share} | {of_roof} | {step} |"


def _rate(timing: Timing, kind: str) -> str:
    return units.si(_of(timing, kind), rate_unit(kind))


def _holding(runs: list[Run], family: str) -> Run:
    """The recording with the most timings of a family. Raises LookupError where there is none."""
    counted = [
        (sum(timing.family == family for timing in run.timings), run.id, run) for run in runs
    ]
    count, _, run = max(counted, key=lambda item: item[:2], default=(0, "", None))
    if run is None or not count:
        raise LookupError(f"no recording holds timings of {family}")
    return run


def with_tops(run: Run) -> Run:
    """The run with the tops of its ladders, and their library, as timed in the run of the curve,
    which is of few rungs taken in turns."""
    curve = {(t.family, t.rung, t.size, t.dtype): t for t in run.curve}
    return replace(
        run, timings=tuple(curve.get((t.family, t.rung, t.size, t.dtype), t) for t in run.timings)
    )


def _timings(run: Run, family: str) -> dict[tuple[str, str], Timing]:
    return {(timing.rung, timing.size): timing for timing in run.timings if timing.family == family}


def _verdict(run: Run, rung: Rung) -> str:
    found: list[Profile] = [
        p
        for p in run.profiles
        if p.context is not None and (p.context.rung, p.context.size) == (rung.name, _SIZES[-1])
    ]
    if not found:
        return ""
    primary = diagnose(max(found, key=lambda p: p.duration_us or 0.0)).primary
    return f"[{primary.bottleneck}](bottlenecks/{primary.bottleneck}.md)" + (
        " (good)" if primary.good else ""
    )


def _described(rung: Rung) -> str:
    mark = {"regression": " (a regression, kept)", "planted": " (a planted defect)"}.get(
        rung.kind, ""
    )
    return _cell(rung.title) + ("" if rung.kind in rung.title else mark)


def _provenance(run: Run, family: str) -> str:
    facts = ", ".join(
        f"{label} {run.environment[label]}"
        for label in ("Driver", "CUDA runtime", "Nsight Compute")
        if label in run.environment
    )
    caches = " and ".join(
        sorted({timing.cache for timing in run.timings if timing.family == family})
    )
    clocks = run.environment.get("Clocks", "not recorded").partition(";")[0]
    how = f"medians of unprofiled runs, {caches} L2, clocks {clocks}; verdicts from the profile"
    return f"Recorded {run.created[:10]} on one {run.device.name} ({facts}); {how}."


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def stale(wanted: dict[Path, str]) -> list[Path]:
    """Documents of `documents()` whose file differs from what would be written, and pages of
    bottlenecks that are gone."""
    different = [
        path
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    return different + [path for path in (DOCS / "bottlenecks").glob("*.md") if path not in wanted]


def main(arguments: list[str]) -> int:
    runs = [with_tops(store.load_run(folder, live=False)) for folder in store.recordings()]
    wanted = documents(runs)
    if "--check" in arguments:
        outdated = stale(wanted)
        for path in outdated:
            print(f"out of date: {path.relative_to(ROOT)}", file=sys.stderr)
        return 1 if outdated else 0
    for path in stale(wanted):
        text = wanted.get(path)
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
