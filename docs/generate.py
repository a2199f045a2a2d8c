"""Rewrite the generated documents: command reference, bottleneck pages, metric table, ladder
tables, the results, the figures and the card of the README, the picture of the front page.

`python docs/generate.py` writes what has changed; `--check` writes nothing and ends with 1 where
something has. Figures come from the recordings in the package; text outside the markers `<!--
generated: NAME -->` … `<!-- end: NAME -->` is left alone.

It is incremental. The recordings' reports are read again only where a module that reads them changed
(tests/recorded.py). The folder .cache keeps the findings of each rule until the rule or a module that it
imports changes. A picture is taken again only where the words of its page changed. Nothing
is done where neither an input nor a document changed since the last run."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import html
import importlib.util
import json
import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the tests' own modules and the package of this checkout
    sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("", "tests")]

import agent_session
import bottleneck_pages
import click
import recorded
import switch_tables
import watch_session

from benchmarks import calibrate, parsed, readings
from benchmarks.heldout import fit
from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import Diagnosis, Profile, Timing
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.cli import COMMANDS, cli
from ncu_toolkit.kernel.diagnosis import engine, glossary
from ncu_toolkit.kernel.diagnosis.rules import load_rules, title
from ncu_toolkit.kernel.diagnosis.time_model import NOISE
from ncu_toolkit.kernel.explain import entry, verdict
from ncu_toolkit.kernel.ladder.catalogue import find_family, load_families
from ncu_toolkit.kernel.ladder.problems import problem_for
from ncu_toolkit.kernel.ladder.rung import Rung
from ncu_toolkit.kernel.pages.book import open_book
from ncu_toolkit.kernel.pages.html import write_front
from ncu_toolkit.kernel.pages.index_view import index_part
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.analysis import program as programs
from ncu_toolkit.program.diagnosis import diagnose_program
from ncu_toolkit.program.pages.program_view import write_program_page
from ncu_toolkit.program.pages.publish import RECORDED_PREFIX, as_shown, with_best_ceilings
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.files import read_trace
from ncu_toolkit.program.traces.step import find_step

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_NOTE = "<!-- Written by docs/generate.py (`make docs`); do not edit. -->\n"
_SIZES = ("1024", "4096")
#: Rungs whose cards the tutorial of a slow kernel shows; the README shows the first.
EXAMPLES = ("smem_tiled", "thread_tile_1d")


_diagnosed: dict[int, tuple[Profile, Diagnosis]] = {}


def diagnose(profile: Profile) -> Diagnosis:
    """The verdict on a launch, computed once."""
    known = _diagnosed.get(id(profile))
    if known is None:
        known = _diagnosed[id(profile)] = (profile, engine.diagnose(profile))
    return known[1]


def recordings() -> list[Run]:
    """The runs in the package, as the report shows them."""
    return list(as_shown({at.name: recorded.run_of(at) for at in recorded.FOLDERS}).values())


@contextlib.contextmanager
def remembered(runs: Sequence[Run]) -> Iterator[None]:
    """Findings of rules that have not changed are not computed again."""
    launches = {id(p): (p, f"{run.id} {p.origin.key}") for run in runs for p in run.profiles}
    reading = recorded.digest(
        [
            *recorded.modules(*recorded.READERS),
            *(f for at in recorded.FOLDERS for f in at.iterdir()),
        ]
    )
    with contextlib.ExitStack() as undone:
        for name, rule in load_rules().items():
            at = f"kernel.diagnosis.rules.{name.replace('-', '_')}"
            key = reading + recorded.digest(recorded.modules(at))
            kept = ROOT / ".cache" / "findings" / f"{name}.pickle"
            known: dict[str, Any] = {}
            # classes may have moved since
            with contextlib.suppress(OSError, ImportError, AttributeError, pickle.PickleError):
                known = pickle.loads(kept.read_bytes())
            if known.get("") != key:
                known = {"": key}
            undone.callback(_keep, kept, known, len(known))
            undone.callback(setattr, rule, "find", rule.find)
            rule.find = _remembering(rule.find, launches, known)
        yield


def _remembering(
    find: Callable[..., Any], launches: Mapping[int, tuple[Profile, str]], known: dict[str, Any]
) -> Callable[..., Any]:
    def found(k: Any) -> Any:
        launch, name = launches.get(id(k.profile), (None, ""))
        if launch is not k.profile:
            return find(k)
        if name not in known:
            known[name] = find(k)
        return known[name]

    return found


def _keep(path: Path, known: dict[str, Any], before: int) -> None:
    if len(known) != before:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(known))


def documents(runs: list[Run], chosen: Callable[[Path], bool] = lambda _: True) -> dict[Path, str]:
    """Every generated document's whole text by path; of the chosen paths alone where a choice is
    given, of which the pages of docs/bottlenecks are one."""
    counted = functools.cache(partial(calibration_tables, runs))
    blocks: dict[Path, Callable[[], Mapping[str, str]]] = {
        DOCS / "ci.md": lambda: {"loop": measured("loop")},
        DOCS / "cluster.md": lambda: {"two_boards": measured("two_boards")},
        DOCS / "agents.md": lambda: {"session": agent_session.transcript()},
        DOCS / "history.md": lambda: {"example": history_example()},
        DOCS / "lab" / "calibration.md": lambda: {
            **{name: text for name, text in counted().items() if name != "halves"},
            "steps": switch_tables.causes(),
        },
        DOCS / "decisions" / "12-kernels-that-changed-the-rules.md": lambda: {
            "halves": counted()["halves"]
        },
        DOCS / "try.md": switch_tables.blocks,
        DOCS / "guide" / "slow-kernel.md": lambda: {
            rung: example_card(runs, rung, "before.ncu-rep.xz") for rung in EXAMPLES
        },
        DOCS / "lab" / "results.md": lambda: {
            "sessions": sessions_sentence(runs),
            "ladder": ladder_table(runs),
            "families": families_table(runs),
            "goals": goals_table(runs),
            "cost": measured("cost"),
        },
        ROOT / "kernels" / "README.md": lambda: {"ladders": rung_tables()},
        ROOT / "README.md": lambda: {
            "card": example_card(runs, EXAMPLES[0], "my-report.ncu-rep"),
            "figures": figures_sentence(runs),
        },
    }
    program = DOCS / "program.md"
    whole: dict[Path, Callable[[], str]] = {
        program: lambda: with_program_example(program.read_text(encoding="utf-8")),
        DOCS / "commands.md": commands,
        DOCS / "glossary.md": lambda: glossary.markdown().replace("\n", f"\n\n{_NOTE}", 1),
        DOCS / "metrics.md": metric_table,
        DOCS / "lab" / "rungs.md": partial(rung_figures, runs),
        **{path: partial(words_of, name, runs) for name, path in WORDS.items()},
        SESSION: lambda: watch_session.recorded().export_text(clear=False),
    }
    written = {path: text() for path, text in whole.items() if chosen(path)}
    for path, made in blocks.items():
        if chosen(path):
            text = path.read_text(encoding="utf-8")
            for name, block in made().items():
                text = between(text, name, block)
            written[path] = text
    pages = DOCS / "bottlenecks"
    if chosen(pages):
        written |= {pages / name: text for name, text in bottleneck_pages.documents().items()}
    return written


#: Slow kernels whose first recording led to a change of a rule or of the model
#: (docs/decisions/12-kernels-that-changed-the-rules.md).
LED_TO_CHANGES = (
    "memory_latency", "async_copy_wait", "local_memory_traffic", "atomic_contention", "tensor_core_unused", "instruction_dependency",
    "low_occupancy", "tail_effect", "launch_overhead", "rectangular_tile", "gelu_unfused", "rgb_to_gray", "reduce_divergent", "reduce_sequential",
    "reduce_unrolled", "transpose_swizzled", "wmma_smem", "wmma_warp_tiled", "wgmma_tma", "warp_tiled",
    "wmma_global", "wgmma_warp_specialized", "reduce_shuffle", "gelu_fused", "narrow_access",
)  # fmt: skip


def calibration_tables(runs: list[Run]) -> dict[str, str]:
    """The tables of the calibration by marker."""
    steps = [rung for family in load_families().values() for rung in family.rungs]
    found = calibrate.calibrate(calibrate.judging.pairs(runs, steps), diagnose)
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
    parts = fit.parts(fit.read())
    return {
        "summary": calibrate.markdown(
            calibrate.SUMMARY, calibrate.summary(calibrate.scores(found))
        ),
        "halves": calibrate.markdown(calibrate.SUMMARY, calibrate.summary(halves)),
        "cases": calibrate.markdown(calibrate.HEADINGS, calibrate.rows(found.outcomes), 5),
        "intervals": calibrate.markdown(fit.HEADINGS, fit.alternatives(fit.read())),
        "coverage": calibrate.markdown(fit.HEADINGS, parts),
        "limits": interval_limits(parts),
        "readings": calibrate.markdown(readings.HEADINGS, readings.table(readings.read())),
    }


def interval_limits(parts: Sequence[Sequence[str]]) -> str:
    """What the rows of `fit.parts` say of real programs and of planted causes."""
    rows = {row[0]: dict(zip(fit.HEADINGS, row, strict=True)) for row in parts}
    real, planted = (rows[f"{fit.KINDS[kind]}, pair by pair"] for kind in ("field", "heldout"))
    by_inside = sorted(rows, key=lambda name: int(rows[name]["inside"].rstrip("%")))
    worst = next(name for name in by_inside if name.startswith("field/"))
    sets = [rows[name]["inside"] for name in by_inside if name.startswith("heldout/")]
    return (
        f"- **They are made for real programs.** Of the [field benchmark](field.md)'s {real['cases']} gains of development and formerly sealed pairs"
        f" {real['inside']} lie in the interval when their pair is left out, {real['below']} below it and {real['above']} above, at a mean width of"
        f" {real['mean width']}. `{worst}` fares worst ({rows[worst]['inside']}). For kernels with one planted cause the intervals are too wide:"
        f" {planted['inside']} of the held-out sets ([decisions/15](../decisions/15-gains.md)).\n"
        f"- Sets differ more than cases within one: held-out sets alone range from {sets[0]} to {sets[-1]}.\n"
    )


def between(text: str, name: str, content: str) -> str:
    """`text` with what is between a marker and its end replaced. Raises ValueError where the
    markers are not there exactly once."""
    start, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"the markers of '{name}' are not there exactly once")
    head, _, rest = text.partition(start)
    return f"{head}{start}{content}{end}{rest.partition(end)[2]}"


_COMMANDS_HEAD = """\
| exit code | meaning |
|---:|---|
| 0 | done |
| 1 | a gate failed |
| 2 | wrong usage |
| 3 | this machine lacks something: GPU, permission, disk, memory |
| 4 | an input file is unreadable or incomplete |
| 5 | a kernel failed or computed a wrong result |
| 130, 143, 129 | interrupted by Ctrl-C, SIGTERM, SIGHUP; the program that was run is ended with all that it started |

- Every error is one line on standard error. `| head` does not change the exit code.
- Colours follow the terminal and `NO_COLOR`.
- `--quiet`, `--verbose` and `--log-file FILE` go before or after the command. The log holds versions, every command that is run,
  ncu's output and tracebacks. Nothing is removed from it: read it before you send it.
- `eval "$(ncu-toolkit completion bash)"` lets a shell complete commands, options, kernels, families and runs.
- `NCU_TOOLKIT_MAX_BYTES` is the largest size of one input file, unpacked (2 GiB by default).
"""


def commands() -> str:
    """docs/commands.md from the commands' own help."""
    lines = [
        "# Commands\n",
        _NOTE,
        _COMMANDS_HEAD,
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
        "# Metrics\n",
        _NOTE,
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
            kind = "" if rung.kind == "step" or rung.kind in rung.title else f" ({rung.kind})"
            lines.append(
                f"| {rung.order:02d} | `{rung.name}` | {_cell(rung.title)}{kind} | {_code(rung.compared_with)} | {_code(rung.removes)} | {needs} |"
            )
        lines.append("")
    return "\n".join(lines) + "\n"


def example_card(runs: list[Run], rung: str, file: str) -> str:
    """The card that `ncu-toolkit analyze FILE` prints for a rung of the FP32 ladder at 4096."""
    (launch,) = [
        profile
        for profile in _holding(runs, "gemm_fp32").profiles
        if profile.context is not None
        and (profile.context.rung, profile.context.size) == (rung, _SIZES[-1])
    ]
    shown = plain_text(verdict.card(launch, diagnose(launch), file))
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


#: Recordings that started within this of each other belong to one session.
_SESSION = timedelta(hours=1)


def sessions_sentence(runs: list[Run]) -> str:
    """When the ladders were recorded, from what the recordings say."""
    sessions: list[list[tuple[datetime, str]]] = []
    for run in sorted(runs, key=lambda run: run.created):
        at = datetime.fromisoformat(run.created)
        if not sessions or at - sessions[-1][-1][0] > _SESSION:
            sessions.append([])
        sessions[-1].append((at, ", ".join(sorted({timing.family for timing in run.timings}))))
    parts = [
        f"on {each[0][0]:%Y-%m-%d} from {each[0][0]:%H:%M} to {each[-1][0]:%H:%M} UTC ({', '.join(name for _, name in each)})"
        for each in sessions
    ]
    return f"The recordings were started {' and '.join(parts)}.\n"


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
        largest = _largest([t for t in run.timings if t.family == name]).size
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
                f"| {name} | {len(rungs)} | {largest} | pairs of a defect and its repair: see the report | | | | |"
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


#: What the tops of the ladders were to reach: rung, size, what it is compared with, and the least
#: ratio. "copy" is the device copy of the same recording; "mma" is 65% of what wgmma_fitted reaches
#: in the same recording, the peak of mma.sync on Hopper.
GOALS = (
    *(
        ("gemm_fp32", "register_blocked", str(1024 * n), "cublas", 1.05)
        for n in (2, 3, 4, 5, 6, 7, 8, 12, 16)
    ),
    *(
        (
            "gemm_tensor",
            "wgmma_fitted",
            str(1024 * n),
            "cublas_bf16",
            {4: 1.001, 8: 1.024}.get(n, 1),
        )
        for n in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
    ),
    ("gemm_tensor", "mma_ldmatrix", "4096", "mma", 0.90),
    ("gemm_tensor", "mma_ldmatrix", "8192", "mma", 0.90),
    ("reduction", "reduce_dealt", "1073741824", "cub", 1.014),
    ("transpose", "transpose_vectorized", "16384", "copy", 0.97),
    ("elementwise", "gelu_vectorized", "16384", "copy", 0.97),
    ("elementwise", "rgb_to_gray_vectorized", "16384", "copy", 0.97),
    ("softmax", "softmax_registers", "262144x1024", "copy", 0.97),
    ("softmax", "softmax_registers", "65536x4096", "copy", 0.97),
    ("softmax", "softmax_registers", "8192x32768", "copy", 0.97),
    ("scan", "scan_in_flight", "268435456", "cub_scan", 0.98),
    *(
        ("attention", "attention_warp_specialized", f"{n}x{d}{mask}", "cudnn_attention", 0.95)
        for d in (64, 128)
        for mask in ("", "xcausal")
        for n in (4096, 16384)
    ),
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
    """The tops of the ladders and what they are compared with, with the spread of both, and
    whether the goal was reached."""
    # Of the same board and minute: the best copy of all recordings may be another board's.
    copies = {run.id: run.ceilings.copy for run in map(store.load_manifest, store.recordings())}
    lines = [
        "| rung | size | rate | spread | compared with | rate | spread | ratio | goal | |",
        "|---|---:|---:|---:|---|---:|---:|---:|---:|---|",
    ]
    for family, name, size, against, goal in GOALS:
        run = _holding(runs, family)
        times, kind = _timings(run, family), problem_for(family).rate
        ours, theirs = times[name, size], times.get((against, size))
        rate = _of(ours, kind)
        if against == "copy":
            held = copies[run.id] or 0.0
            beside = f"device copy | {units.si(held, 'B/s')} | "
        elif against == "mma":
            held = 0.65 * _of(times["wgmma_fitted", size], kind)
            beside = f"65 % of `wgmma_fitted` | {units.si(held, 'FLOP/s')} | "
        else:
            assert theirs is not None
            held = (
                _of(theirs, kind)
                if ours.baseline_us is None
                else rate * ours.median_us / ours.baseline_us
            )
            beside = f"`{against}` | {units.si(held, _unit(kind))} | {units.percent(theirs.spread)}"
        ratio = math.floor(1e4 * rate / held) / 1e4  # never rounded up to its goal
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


def _unit(kind: str) -> str:
    return "FLOP/s" if kind == "flop" else "B/s"


def _of(timing: Timing, kind: str) -> float:
    return timing.flop_rate if kind == "flop" else timing.byte_rate


def measured(name: str) -> str:
    """The table that benchmarks/NAME.py makes of what it measured, docs/data/NAME.json; nothing
    where none is kept."""
    path = DOCS / "data" / f"{name}.json"
    if not path.is_file():
        return ""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    table: str = module.table(json.loads(path.read_text(encoding="utf-8")))
    return f"\n{table}\n"


def rung_figures(runs: list[Run]) -> str:
    """Every rung with its source, the claim made there, and what was measured here at the largest
    size it was timed at."""
    ceilings = with_best_ceilings({run.id: run for run in runs})
    lines = [
        "# Every rung: claim and measurement\n",
        _NOTE,
        "Medians of unprofiled runs on an NVIDIA H200, each at the largest size the rung was timed at; the roof is the best copy, FP32 or",
        "tensor rate measured in the recordings on that GPU. A claim is what the source reports on its own GPU. The gain is over the rung",
        "that it is compared with.\n",
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
            "| rung | source | claim of the source | size | time | rate | of the baseline | of the roof | gain |",
        ]
        lines.append("|---|---|---|---|---:|---:|---:|---:|---:|")
        of_rung: dict[str, list[Timing]] = {}
        for timing in run.timings:
            if timing.family == name:
                of_rung.setdefault(timing.rung, []).append(timing)
        timed = {rung: _largest(timings) for rung, timings in of_rung.items()}
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
    row = f"| `{rung.name}` | {source.document} | {claim} |"
    if timing is None:
        return f"{row} not recorded yet | | | | | |"
    rate = timing.flop_rate if kind == "flop" else timing.byte_rate
    share = units.percent(timing.baseline_us / timing.median_us) if timing.baseline_us else ""
    of_roof = units.percent(rate / roof) if roof and rate else ""
    before = timed.get(rung.compared_with)
    step = (
        units.ratio(before.median_us / timing.median_us)
        if before and before.size == timing.size
        else ""
    )
    size = entry.size_of(rung, timing)
    return f"{row} {size} | {units.duration(timing.median_us)} | {_rate(timing, kind)} | {share} | {of_roof} | {step} |"


def _rate(timing: Timing, kind: str) -> str:
    return units.si(_of(timing, kind), _unit(kind))


def _holding(runs: list[Run], family: str) -> Run:
    """The recording with the most timings of a family. Raises LookupError where there is none."""
    counted = [
        (sum(timing.family == family for timing in run.timings), run.id, run) for run in runs
    ]
    count, _, run = max(counted, key=lambda item: item[:2], default=(0, "", None))
    if run is None or not count:
        raise LookupError(f"no recording holds timings of {family}")
    return run


def _timings(run: Run, family: str) -> dict[tuple[str, str], Timing]:
    """A family's timings by rung and size, those of the curve's further sizes among them."""
    timed = (*run.curve, *run.timings)
    return {(timing.rung, timing.size): timing for timing in timed if timing.family == family}


def _largest(timings: Sequence[Timing]) -> Timing:
    """The timing of the largest size: most bytes, then most operations; of equals the last."""
    return max(reversed(timings), key=lambda timing: (timing.compulsory_bytes, timing.flops))


def _verdict(run: Run, rung: Rung) -> str:
    if (rung.family, rung.name) not in run.tried:
        return "not recorded yet"
    found: list[Profile] = [
        p
        for p in run.profiles
        if p.context is not None and (p.context.rung, p.context.size) == (rung.name, _SIZES[-1])
    ]
    if not found:
        return ""
    primary = diagnose(max(found, key=lambda p: p.duration_us or 0.0)).primary
    return f"[{title(primary.bottleneck)}](../bottlenecks/{primary.bottleneck}.md)" + (
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


def figures_sentence(runs: list[Run]) -> str:
    """What the tops of the two matrix ladders reach, for the README."""
    parts = []
    for name, size in (("gemm_fp32", _SIZES[-1]), ("gemm_tensor", "8192")):
        problem, times = problem_for(name), _timings(_holding(runs, name), name)
        rungs = [rung for rung in find_family(name).rungs if (rung.name, size) in times]
        steps = [times[rung.name, size] for rung in rungs if rung.kind != "baseline"]
        best = min(steps, key=lambda timing: timing.median_us)
        assert best.baseline_us
        parts.append(
            f"`{best.rung}` reaches {_rate(best, problem.rate)} at {size}, "
            f"{units.percent(best.baseline_us / best.median_us)} of `{problem.baseline}`"
        )
    return f"On the recorded {runs[0].device.name}, {'; '.join(parts)}.\n"


def history_example() -> str:
    """What `history` shows of a recording, in its own history."""
    commands = (
        f"history import {(recorded.FOLDERS[0].parent / 'h200-transpose').relative_to(ROOT)}",
        "history transpose_smem",
    )
    with tempfile.TemporaryDirectory() as folder:
        known = {
            **os.environ,
            "NCU_TOOLKIT_HISTORY": folder,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
        }
        parts = [
            f"$ ncu-toolkit {words}\n"
            + subprocess.run(
                [sys.executable, "-m", "ncu_toolkit", *words.split()],
                cwd=ROOT, env=known, check=True, capture_output=True, text=True,
            ).stdout
            for words in commands
        ]  # fmt: skip
    return f"```text\n{chr(10).join(parts)}```\n"


def with_program_example(text: str) -> str:
    """The page of programs with what `analyze` shows of a trace of the benchmark."""
    name = "torch_bert_pretrain.before.ncu-trace"
    path = ROOT / "benchmarks" / "programs" / "recordings" / name
    shown = programs.answer_of(programs.load_program(path), top=8, page=False)
    example = f"```text\n$ ncu-toolkit analyze {name} --top 8\n{plain_text(shown)}\n```\n"
    return between(text, "answer", example)


#: The recorded program whose page is the picture of the README.
PROGRAM = ROOT / "tests" / "program" / "recorded" / "h100-gpt.ncu-trace"
#: The words of a page; its picture is next to them and is taken again where they change.
WORDS = {name: DOCS / "images" / f"{name}.txt" for name in ("report", "program")}


#: The recorded session of `watch`, as text; its picture is made again where the text differs.
SESSION = DOCS / "images" / "watch.txt"


def write_front_page(runs: list[Run], folder: Path) -> Path:
    """The report's front page over the recordings, as `ncu-toolkit report` writes it."""
    parts = [(f"{RECORDED_PREFIX}{run.id}", index_part(open_book(run, diagnose))) for run in runs]
    return write_front(folder, parts)


def write_pictured(name: str, runs: list[Run], folder: Path) -> Path:
    """The page that a picture shows."""
    if name == "report":
        return write_front_page(runs, folder)
    step = find_step(read_trace(PROGRAM))
    return write_program_page(diagnose_program(step, account_of(step)), folder / "page.html")


def words_of(name: str, runs: list[Run]) -> str:
    """The words that a reader of the page sees, a line for each run of text."""
    with tempfile.TemporaryDirectory() as folder:
        page = write_pictured(name, runs, Path(folder)).read_text(encoding="utf-8")
    body = page[page.index("<main") : page.index("</main>")]
    body = re.sub(r"<(script|style|svg).*?</\1>", "", body, flags=re.DOTALL)
    lines = (" ".join(html.unescape(line).split()) for line in re.split(r"<[^>]+>", body))
    return "\n".join(line for line in lines if line) + "\n"


def take_picture(name: str, runs: list[Run]) -> None:
    """Write a picture. Raises EnvironmentProblem where no Chromium is installed."""
    import browser  # tests/browser.py

    picture = WORDS[name].with_suffix(".png")
    found = browser.find_chromium()
    if found is None:
        raise EnvironmentProblem(
            f"{picture.relative_to(ROOT)} is out of date and there is no Chromium to take it again",
            "Install the package 'chromium', or set CHROMIUM",
        )
    with browser.Browser(found) as page, tempfile.TemporaryDirectory() as folder:
        page.open(write_pictured(name, runs, Path(folder)), width=1280, height=800)
        page.screenshot(picture, whole=False)


def stale(wanted: dict[Path, str]) -> list[Path]:
    """Documents of `documents()` whose file differs from what would be written, and pages of
    bottlenecks that are gone."""
    different = [
        path
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    pages = (DOCS / "bottlenecks").rglob("*")
    return different + [
        path for path in pages if path.suffix in (".md", ".svg") and path not in wanted
    ]


#: Digest of all that the documents rest on, and of the documents, after the last run.
STAMP = ROOT / ".cache" / "documents"


def _state() -> str:
    """A digest of every file that the documents rest on, and of the documents."""
    state = hashlib.sha256()
    for top in (
        "ncu_toolkit",
        "kernels",
        "docs",
        "benchmarks",
        "tests/recorded.py",
        "benchmarks/heldout/fit.py",
        "README.md",
    ):
        path = ROOT / top
        for each in [path] if path.is_file() else sorted(path.rglob("*")):
            if each.is_file() and each.suffix != ".pyc":
                state.update(f"{each.relative_to(ROOT)} ".encode() + each.read_bytes())
    return state.hexdigest()


def main(arguments: list[str]) -> int:
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == _state():
        return 0
    check = "--check" in arguments
    if not check:
        for folder in recorded.FOLDERS:
            if not recorded.is_current(folder):
                parsed.save_parsed(folder)
                print((folder / store.PARSED).relative_to(ROOT))
    runs = recordings()
    with remembered(runs):
        wanted = documents(runs)
        outdated = stale(wanted)
        if check:
            for path in outdated:
                print(f"out of date: {path.relative_to(ROOT)}", file=sys.stderr)
            return 1 if outdated else 0
        pictured = {path: name for name, path in WORDS.items()}
        for path in sorted(outdated, key=lambda path: path in pictured):
            if path in pictured:
                take_picture(pictured[path], runs)
            if path == SESSION:
                picture = watch_session.svg(watch_session.recorded())
                path.with_suffix(".svg").write_text(picture, encoding="utf-8")
            if path in wanted:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(wanted[path], encoding="utf-8")
            else:
                path.unlink()
            print(path.relative_to(ROOT))
    STAMP.parent.mkdir(exist_ok=True)
    STAMP.write_text(_state(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except EnvironmentProblem as problem:
        sys.exit(f"error: {problem.message}. {problem.remedy}.")
