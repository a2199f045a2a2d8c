"""python -m benchmarks.programs.score: how often the answer to a whole program is right.

    python -m benchmarks.programs.score [--sealed] [--cases] [--recordings FOLDER] [--out docs/lab/programs.md]

Reads labels*.toml, and in FOLDER what record.py writes: NAME.before.ncu-trace, where there is one also
NAME.before.ncu-rep and NAME.rules.ncu-rep (or .xz), what hta.py wrote, and times.json: {NAME: {"before": {us: [...], recorded_us, step,
seconds, recorded_seconds, result, code, error}, "after": {...}}}, where `us` are steps that nobody recorded.
"profile_seconds" beside them is what `ncu-toolkit profile` took. Needs no GPU. The sealed half is
scored once.

A program counts where its fix saves at least 5 % of the step. First is right where our first cause is
the label's. The saving predicted is the first finding's where it is the label's cause, else none.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import calibrate
from benchmarks.field import half
from benchmarks.field.scoring import VOID, Case, Said, gains, row, update
from benchmarks.programs.run import close
from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import EXIT_INPUT, EXIT_OK, EXIT_USAGE
from ncu_toolkit.base.core.files import write_atomic
from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.analysis.analyze import Options, analyze
from ncu_toolkit.kernel.diagnosis.achieved import expected
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.program.analysis.program import TraceResult, analyze_programs
from ncu_toolkit.program.explain.program import program_answer, step_kernels
from ncu_toolkit.program.model import ProgramDiagnosis
from ncu_toolkit.program.rules import step_rules

FOLDER: Final = Path(__file__).resolve().parent
#: What is scored once, the first that is not scored yet.
SEALED: Final = (
    "sealed", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh", "twelfth", "thirteenth", "fourteenth",
)  # fmt: skip
#: The same under the rules of today: development, once they were scored.
NOW: Final = {
    "now": "sealed", **{f"{each}-now": each for each in SEALED[1:]}
}  # fmt: skip
#: After what a set was scored again.
_AFTER: Final = {"second": "its fixes", "third": "its fixes"}
#: The page's headings, in its order.
HEADINGS: Final = {
    "development": "The development half",
    "sealed": "The sealed half",
    "now": "The sealed half after its fixes",
} | {
    key: f"The {each} sealed set{after}"
    for each in SEALED[1:]
    for key, after in ((each, ""), (f"{each}-now", f" after {_AFTER.get(each, 'later changes')}"))
}
#: What a label can name beside ids of rules of the step and `kernel:WHAT`.
OTHERS: Final = frozenset(("library", "none"))
#: What stands for a kernel of the author's own that takes most of the step, where nothing else is found.
OWN: Final = "own-kernel"
#: What `library` means: own work that a library's call does better, by meaning, before any recording; and
#: since 2026-11-29 a library's call that is not made as the library does it best.
LIBRARY: Final = frozenset((OWN, "missing-data-reuse", "tensor-core-unused", "fft-length"))
#: What `kernel:WHAT` means where WHAT is no rule's id: the rules of each word that is in it. Written
#: before any label or recording was seen.
MEANINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "coalesc": ("uncoalesced-global-access", "narrow-access"),
    "stride": ("uncoalesced-global-access",),
    "access": ("uncoalesced-global-access", "narrow-access"),
    "vector": ("narrow-access", "global-instruction-pressure"),
    "bank": ("shared-bank-conflict",),
    "shared": ("shared-bank-conflict", "shared-instruction-pressure"),
    "reuse": ("missing-data-reuse", "l1-bandwidth", "l2-bandwidth", "shared-instruction-pressure"),
    "til": ("missing-data-reuse", "l1-bandwidth", "l2-bandwidth"),
    "atomic": ("atomic-contention",),
    "contention": ("atomic-contention",),
    "spill": ("local-memory-traffic",),
    "local": ("local-memory-traffic",),
    "register": ("local-memory-traffic", "low-occupancy"),
    "occupancy": ("low-occupancy", "grid-too-small"),
    "block": ("low-occupancy", "grid-too-small", "idle-threads"),
    "grid": ("grid-too-small", "tail-effect"),
    "parallel": ("grid-too-small", "low-occupancy"),
    "tail": ("tail-effect", "load-imbalance"),
    "imbalance": ("load-imbalance", "barrier-imbalance", "tail-effect"),
    "barrier": ("barrier-imbalance",),
    "diverge": ("warp-divergence", "idle-threads"),
    "idle-thread": ("idle-threads", "warp-divergence"),
    "double": ("double-precision",),
    "fp64": ("double-precision",),
    "precision": ("double-precision", "tensor-core-unused"),
    "tensor": ("tensor-core-unused",),
    "special": ("special-function-pressure",),
    "transcendental": ("special-function-pressure",),
    "integer": ("integer-arithmetic",),
    "division": ("integer-arithmetic", "special-function-pressure"),
    "latency": ("memory-latency", "instruction-dependency", "low-occupancy"),
    "dependen": ("instruction-dependency",),
    "bandwidth": ("dram-bandwidth", "l2-bandwidth", "l1-bandwidth"),
    "traffic": ("dram-bandwidth", "l2-bandwidth", "missing-data-reuse"),
    "host-memory": ("host-memory",),
    "managed": ("host-memory",),
    "debug": ("debug-build",),
    "constant": ("constant-cache-divergence",),
    "reread": ("missing-data-reuse", "l1-bandwidth", "l2-bandwidth"),
    "dram": ("dram-bandwidth",),
    "compute": (
        "fp32-pipe", "tensor-pipe", "instruction-throughput", "integer-arithmetic", "double-precision",
        "special-function-pressure",
    ),
}  # fmt: skip
#: What someone who reads a list of kernels by time may take the class of the biggest for. Generous.
BY_CLASS: Final[Mapping[str, tuple[str, ...]]] = {
    "product": ("fp32-matmul", "library", "small-ops-loop"),
    "convolution": ("fp32-matmul", "library"),
    "attention": ("unfused-attention",),
    "softmax": ("unfused-attention", "spelled-out", "unfused-chain"),
    "norm": ("spelled-out", "unfused-chain"),
    "loss": ("spelled-out", "unfused-chain"),
    "elementwise": ("unfused-chain", "spelled-out", "optimizer-launches", "small-ops-loop"),
    "reduction": ("unfused-chain", "spelled-out"),
    "layout": ("layout-copies",),
    "optimizer": ("optimizer-launches",),
    "collective": ("exposed-collectives",),
    "random": ("unfused-chain",),
}
#: What HTA's parts of a program's time may be taken for (hta.py), by what its documentation says of them: host
#: wait, "the CPU not enqueuing kernels fast enough"; kernel wait, the overhead between kernels that CUDA graphs
#: reduce. Written before its output was seen. Computation is the biggest kernel, "other" has no cause.
BY_HTA: Final[Mapping[str, tuple[str, ...]]] = {
    "host wait": ("launch-bound", "host-work", "host-sync", "allocation-in-step", "small-ops-loop"),
    "kernel wait": ("launch-bound", "launch-overhead", "small-ops-loop"),
    "other": (),
    "memory": ("host-copy", "serial-copies", "layout-copies"),
    "communication": ("exposed-collectives",),
}
#: A GPU that idles for more of the step counts as waiting for launches.
IDLE: Final = 0.2
#: A step is the one that a program prints if it differs by no more.
PRINTED: Final = 0.05
#: A healthy program that is promised more of its step is a false alarm.
ALARM: Final = 0.1
#: What recording and profiling cost: figures of times.json, and those of the program alone.
COSTS: Final = {
    "A recorded step": ("recorded_us", "us"),
    "A recorded program": ("recorded_seconds", "seconds"),
}


@dataclass(frozen=True)
class RecordedProgram:
    """A program's recording: its label, its times, and what its trace before the fix says."""

    name: str
    label: Mapping[str, Any]
    times: Mapping[str, Any]
    result: TraceResult
    hta: Mapping[str, float] = field(default_factory=dict)
    """What HolisticTraceAnalysis says of the trace (hta.py)."""
    stock: Profile | None = None
    """The biggest kernel, with what Nsight Compute's own rules say; None where it was not recorded."""

    @property
    def found(self) -> ProgramDiagnosis:
        assert self.result.found is not None
        return self.result.found

    @property
    def framework(self) -> str:
        return "public" if self.label.get("public") else self.name.partition("_")[0]

    @property
    def healthy(self) -> bool:
        return bool(self.label.get("healthy")) or self.label["cause"] == "none"

    @property
    def achieved(self) -> float:
        """The part (0-1) of the step that the fix saved, by medians of unrecorded steps."""
        before, after = (statistics.median(self.times[v]["us"]) for v in ("before", "after"))
        return float(1 - after / before)

    def times_over(self, what: str, alone: str) -> float | None:
        """One figure of the side before in multiples of another; None where one was not taken."""
        took, plain = (self.times["before"].get(each) for each in (what, alone))
        plain = statistics.median(plain) if isinstance(plain, list) and plain else plain
        return took / plain if took and plain else None

    @property
    def overdue(self) -> float | None:
        """Seconds that profiling took beyond three times the program, with its imports, and 30 s."""
        side = self.times["before"]
        if "profile_seconds" not in side:
            return None
        return side["profile_seconds"] - 3 * (side["seconds"] + side.get("imports", 0.0)) - 30

    @property
    def differs(self) -> bool:
        """Whether the results of both sides are further apart than the label allows."""
        one, other = (self.times.get(side, {}).get("result") for side in ("before", "after"))
        if not isinstance(one, list) or not isinstance(other, list):
            return one is not None and other is not None and one != other
        return not close(one, other, float(self.label.get("tolerance") or 1e-3))


def of_printed(wall_us: float, printed_us: float) -> int:
    """How many of the steps found make the step that the program prints, within PRINTED: 1 where
    they are the same; 0 where no number does."""
    times = printed_us / wall_us if wall_us else 0.0
    whole = round(times)
    return whole if whole and abs(times / whole - 1) <= PRINTED else 0


def meant(cause: str) -> frozenset[str]:
    """The ids of findings that a label's cause stands for.

    Raises ValueError for a word outside of the vocabulary."""
    if cause in step_rules() or cause in OTHERS:
        return LIBRARY | {cause} if cause == "library" else frozenset((cause,))
    kind, _, what = cause.partition(":")
    if kind == "kernel" and what in load_rules():
        return frozenset((what,))
    ids = {each for word, rules in MEANINGS.items() if word in what for each in rules}
    if kind != "kernel" or not ids:
        raise ValueError(f"no meaning is known for the label {cause!r}")
    return frozenset(ids)


def read_labels(folder: Path) -> dict[str, Any]:
    """The labels in labels*.toml of a folder, by program."""
    return {
        name: label
        for path in sorted(folder.glob("labels*.toml"))
        for name, label in tomllib.loads(path.read_text(encoding="utf-8")).items()
    }


def read(
    folder: Path, labels: Mapping[str, Any], which: str
) -> tuple[list[RecordedProgram], list[str]]:
    """The recorded programs of a half, and a sentence for each that does not count."""
    times = json.loads((folder / "times.json").read_text(encoding="utf-8"))
    theirs = folder / "hta.json"
    hta = json.loads(theirs.read_text(encoding="utf-8")) if theirs.exists() else {}
    found, left_out = [], []
    for name, label in sorted(labels.items()):
        if label.get("set", half(name)) != which:
            continue
        trace, timed = folder / f"{name}.before.ncu-trace", times.get(name, {})
        sides = ("before",) if label.get("healthy") else ("before", "after")
        if not trace.exists():
            left_out.append(f"{name}: not recorded")
        elif any(timed.get(v, {}).get("code") or not timed.get(v, {}).get("us") for v in sides):
            left_out.append(f"{name}: a run failed or was not timed")
        else:
            reports = sorted(folder.glob(f"{name}.before.ncu-rep*"))[:1]
            programs = analyze_programs([trace, *reports], jobs=1)
            if programs.errors:
                left_out.append(f"{name}: {programs.errors[0]}")
                continue
            found.append(
                RecordedProgram(
                    name, label, timed, programs.traces[0], hta.get(name, {}), _stock(folder, name)
                )
            )
    return found, left_out


def development(folder: Path, labels: Mapping[str, Any]) -> list[RecordedProgram]:
    """The recorded programs from which savings are expected: those of all sets that were scored."""
    return [each for which in ("development", *SEALED) for each in read(folder, labels, which)[0]]


def _stock(folder: Path, name: str) -> Profile | None:
    """The profile of the biggest kernel that record.py --rules made."""
    reports = sorted(folder.glob(f"{name}.rules.ncu-rep*"))[:1]
    files = analyze(reports, Options(profiles=True), jobs=1).files if reports else ()
    launches = [launch for file in files for launch in file.launches]
    return max(
        (launch.profile for launch in launches if launch.profile is not None),
        key=lambda profile: profile.duration_us or 0.0,
        default=None,
    )


def _share(program: RecordedProgram, us: float) -> float:
    wall = program.found.account.wall_us
    return us / wall if wall else 0.0


def ours(program: RecordedProgram) -> Said:
    """Causes in our order, and the first one's saving: what is expected, without what is on record of
    this program, else the ceiling, whose interval begins at none."""
    found = program.found
    costly = found.costly
    if not costly:
        card = program_answer(found, program.result.known).cards[0]
        named = [frozenset((OWN,))] if " takes " in card.title else [frozenset(("none",))]
        return named, 0.0, None
    first = costly[0]
    reported = first.expected_us
    if reported is not None:
        reported = expected(first.ceiling_us, found.account.wall_us, program.name)
    low, likely, high = reported or (0.0, first.ceiling_us, first.ceiling_us)
    interval = _share(program, low), _share(program, high)
    return [frozenset((each.rule,)) for each in costly], _share(program, likely), interval


def ceilings(program: RecordedProgram) -> Said:
    """The same with the first finding's ceiling for its saving."""
    named, _, _ = ours(program)
    most = max((each.ceiling_us for each in program.found.costly[:1]), default=0.0)
    return named, _share(program, most), (0.0, _share(program, most))


def _biggest(program: RecordedProgram) -> Said:
    """Fix the kernel with most time: all of its time can go, and its name tells the cause."""
    time: Counter[tuple[str, str]] = Counter()
    for each in step_kernels(program.found.step, program.found.account):
        time[each.launch.kernel, each.kind] += each.us  # type: ignore[assignment]
    labels = {part.label: part.key for part in program.found.account.parts}
    own = {OWN, *load_rules()}
    named = [
        frozenset(BY_CLASS.get(labels.get(kind, ""), tuple(own)))
        for (_, kind), _ in time.most_common(5)
    ]
    most = max(time.values(), default=0.0)
    return named, _share(program, most), None


def _idle(program: RecordedProgram) -> Said:
    """A GPU that idles for more than a fifth of the step waits for the host's launches."""
    idle = 1 - program.found.account.busy
    return ([frozenset(("launch-bound",))], idle, None) if idle > IDLE else ([], 0.0, None)


def _ncu(program: RecordedProgram) -> Said:
    """The largest estimates of Nsight Compute's rules for the kernel with most time."""
    messages = calibrate.ncu_estimates(program.stock) if program.stock else []
    saved = (messages[0].speedup or 0.0) / 100 if messages else 0.0
    named = [frozenset(calibrate.ncu_means(message)) for message in messages]
    return named, saved * _biggest(program)[1], None


def _asked(says: Callable[[RecordedProgram], Said], program: RecordedProgram) -> bool:
    """Whether a rival was asked about a program."""
    return bool({_ncu: program.stock, _hta: program.hta}.get(says, True))


def _hta(program: RecordedProgram) -> Said:
    """HolisticTraceAnalysis: the largest part of the program's time."""
    parts = program.hta
    named = {name: frozenset(ids) for name, ids in BY_HTA.items()}
    biggest, _, _ = _biggest(program)
    named["largest"] = biggest[0] if biggest else frozenset()
    ordered = sorted((name for name in parts if name in named), key=lambda name: -parts[name])
    return [named[name] for name in ordered], parts[ordered[0]] if ordered else 0.0, None


RIVALS: Final[dict[str, Callable[[RecordedProgram], Said]]] = {
    "ncu-toolkit": ours,
    "the biggest kernel": _biggest,
    "idle over 20 %": _idle,
    "Nsight Compute's rules on the biggest kernel": _ncu,
    "HolisticTraceAnalysis": _hta,
}


def cases(
    programs: Iterable[RecordedProgram], says: Callable[[RecordedProgram], Said]
) -> list[Case]:
    """What one diagnostician says of each program that is not healthy and whose fix saves enough."""
    found = []
    for program in programs:
        if program.healthy or program.achieved < VOID:
            continue
        named, saved, interval = says(program)
        wanted = meant(program.label["cause"])
        found.append(
            Case(
                program.name,
                program.framework,
                wanted,
                tuple(named),
                saved,
                program.achieved,
                interval,
            )
        )
    return found


def constant(given: Sequence[Case]) -> list[Case]:
    """The best constant: the cause that is right most often, and the median saving."""
    causes = sorted({each for case in given for each in case.wanted})
    best = max(causes, key=lambda each: sum(each in case.wanted for case in given))
    middle = statistics.median(case.achieved for case in given)
    return [
        replace(case, named=(frozenset((best,)),), predicted=middle, interval=None)
        for case in given
    ]


def alarms(
    programs: Iterable[RecordedProgram], says: Callable[[RecordedProgram], Said] = ours
) -> tuple[list[RecordedProgram], list[RecordedProgram]]:
    """Healthy programs, and those of them of whose step a diagnostician promises more than ALARM."""
    healthy = [each for each in programs if each.healthy]
    return healthy, [each for each in healthy if says(each)[1] > ALARM]


def _cost(programs: Sequence[RecordedProgram]) -> list[str]:
    """What profiling took, as a user runs it."""
    known = {each.name: late for each in programs if (late := each.overdue) is not None}
    if not known:
        return []
    over = ", ".join(f"{name} {late:.0f} s" for name, late in known.items() if late > 0)
    within = sum(late <= 0 for late in known.values())
    beyond = f" Longer by: {over}." if over else ""
    return [
        f"Profiling took at most three times the program and 30 s for {within} of {len(known)}.{beyond}"
    ]


def _generous(programs: Sequence[RecordedProgram]) -> str:
    """How many healthy programs the rivals promise much, and how many causes their first word can be."""
    reported = []
    for who, says in RIVALS.items():
        if says is ours:
            continue
        named = [case.named[0] for case in cases(programs, says) if case.named]
        if named:
            many = statistics.fmean(map(len, named))
            reported.append(
                f"{who} {len(alarms(programs, says)[1])}, for {many:.0f} causes in the mean"
            )
    return (
        f"The rivals promise more than {ALARM:.0%} of so many healthy programs, and a first word of theirs "
        f"counts for so many causes (ours for one): {'; '.join(reported)}."
    )


def document(
    programs: Sequence[RecordedProgram], left_out: Sequence[str] = (), *, every: bool = False
) -> str:
    """The scores in Markdown; with `every`, each program as well."""
    mine = cases(programs, ours)
    if not mine:
        return "No program is recorded.\n"
    causes = {each.name: str(each.label["cause"]) for each in programs}
    bare = {each.name for each in programs if not each.result.known}
    blind = [
        c for c in mine if c.name in bare and causes[c.name].startswith(("kernel:", "library"))
    ]
    seen = [case for case in mine if case not in blind]
    lines = [
        "| who | programs | first | first two | skill | Spearman | in the interval | median error (points) | worst |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(
            row(who, given)
            for who, says in RIVALS.items()
            if (given := cases([p for p in programs if _asked(says, p)], says))
        ),
        row("best constant", constant(mine)),
        row("ncu-toolkit, with the ceiling for what is expected", cases(programs, ceilings)),
    ]
    # what a reader is promised, whether or not the cause is the label's
    promised = [replace(case, wanted=case.named[0]) for case in mine]
    held = calibrate.covered([(c.interval, c.achieved) for c in promised if c.interval])
    skill, spearman = (f(gains(promised)) for f in (calibrate.skill, calibrate.spearman))
    if blind and seen:
        lines.append(row("ncu-toolkit, without kernels' causes where no report is there", seen))
    frameworks = sorted({case.language for case in mine})
    lines += [
        row(f"ncu-toolkit, {name}", [c for c in mine if c.language == name]) for name in frameworks
    ]
    healthy, alarmed = alarms(programs)
    second = {
        p.name: frozenset().union(*map(meant, others))
        for p in programs
        if (others := p.label.get("accept") or [*filter(None, [p.label.get("second")])])
    }
    accepted = [
        replace(case, wanted=case.wanted | second.get(case.name, frozenset())) for case in mine
    ]
    either = sum(case.rank == 1 for case in accepted)
    counted = calibrate.skill(gains(accepted)) or 0.0
    whose = sum(c.named[:1] == (frozenset((OWN,)),) for c in blind)
    right = [case for case in cases(programs, ceilings) if case.rank == 1]
    below = sum(case.achieved <= case.predicted for case in right)
    costs = {
        shown: [over for each in programs if (over := each.times_over(*of)) is not None]
        for shown, of in COSTS.items()
    }
    void = [each.name for each in programs if not each.healthy and each.achieved < VOID]
    lines += [
        "",
        f"Our first is the label or what it also accepts: {either} of {len(mine)}; skill {counted:.2f} if both count.",
        f"The step's saving whatever the cause: skill {skill or 0.0:.2f}, Spearman {spearman or 0.0:.2f}, {held or 0.0:.0%} in the interval.",
        f"The label is a kernel's cause and no report is there: {len(blind)}, of which {whose} have the kernel named.",
        f"The saving achieved is within the ceiling: {below} of {len(right)} whose cause is first.",
        f"Healthy programs promised more than {ALARM:.0%}: {len(alarmed)} of {len(healthy)}.",
        _generous(programs),
        _printed(programs, named=every),
        *(
            ("Of no program Nsight Compute's own rules were recorded (record.py --rules).",)
            if not any(each.stock for each in programs)
            else ()
        ),
        *(
            f"{shown}: {statistics.median(found):.2f} times as long in the median, {max(found):.2f} at most."
            for shown, found in costs.items()
            if found
        ),
        *_cost(programs),
        f"Void, since the fix saves less than {VOID:.0%}: {', '.join(void) or 'none'}.",
    ]
    if apart := [each.name for each in programs if each.differs]:
        lines.append(
            f"Results before and after differ by more than the label allows: {', '.join(apart)}."
        )
    if left_out:
        lines.append(f"Left out: {'; '.join(left_out)}.")
    if every:
        lines += [
            "",
            "| program | label | ours | predicted | interval | achieved |",
            "|---|---|---|---:|---:|---:|",
        ]
        for case in mine:
            shown = ", ".join(next(iter(ids)) for ids in case.named[:2])
            low, high = case.interval or (0.0, 0.0)
            between = f"{low * 100:.0f}–{high:.0%}" if high else "–"
            lines.append(
                f"| {case.name} | {causes[case.name]} | {shown} (rank {case.rank or '–'}) | {case.predicted:.0%} | {between} | {case.achieved:.0%} |"
            )
        lines += [f"- false alarm: {each.name}, {ours(each)[1]:.0%}" for each in alarmed]
    return "\n".join(lines) + "\n"


def _median_and_mean(program: RecordedProgram) -> tuple[float, float]:
    """Microseconds of a step."""
    step, whole = program.found.step, program.times["before"].get("step")
    if whole is not None:
        return whole["median_us"], whole["us"]
    return statistics.median(window.us for window in step.windows), step.wall_us


def _printed(programs: Sequence[RecordedProgram], *, named: bool) -> str:
    """How the steps found compare with those that programs print, by their median as programs do, or by
    the mean that the answer gives: of the whole recording where record.py kept it, else of the few
    steps that lie here."""
    took = {
        each.name: (*_median_and_mean(each), us)
        for each in programs
        if (us := each.times["before"].get("recorded_us"))
    }
    times = {
        name: 1 if of_printed(middle, us) == 1 else of_printed(mean, us)
        for name, (middle, mean, us) in took.items()
    }
    same = sum(many == 1 for many in times.values())
    part = sum(many > 1 for many in times.values())
    others = [
        f"{name} ({took[name][2] / took[name][1]:.2g} steps)" for name in times if not times[name]
    ]
    neither = (", ".join(others) if named else units.count(len(others))) or "none"
    return (
        f"The step is what the program prints as one, within {PRINTED:.0%}, in {same} of {len(times)}; in {part} it is a part of it that repeats, "
        f"with nothing in the trace to tell where the whole begins. Neither: {neither}."
    )


_PAGE: Final = """# How often the answer to a program is right

Whole programs, each written twice: as people write it, and fixed. Someone who had seen neither rules
nor recordings labelled each with the cause that its fix removes. A hash of the name puts each into the
development half or into the sealed one, which is scored once. `make programs-score` writes this page.

- **First** and **first two**: the label's cause is our first, or one of our first two.
- **Skill** compares the error of the predicted saving with that of the best constant: 1 is no error, 0 no better. A cause that is not first predicts
  nothing.
- **Predicted** is what the first cause's fix is expected to save, with its 80 % interval, from what other programs' fixes saved of what they
  could. In the development half each program is predicted from the others. Where nothing is expected (a cause that is only possible, no steady
  step), it is the ceiling, and the interval begins at none.

What can be done without this tool is in the table too: take the kernel with most time, call a GPU that
idles for a fifth of the step launch-bound, ask Nsight Compute's own rules about the biggest kernel, or give the same trace to [HolisticTraceAnalysis](https://github.com/facebookresearch/HolisticTraceAnalysis).
These say no cause in our words, so what they say counts for each cause that it may mean: "host wait" for
five, "the biggest kernel is this one" for all that can be wrong with a kernel. The rules for that were
written before their output was seen (`BY_CLASS`, `BY_HTA` in `score.py`).

<!-- scores -->
<!-- end of scores -->
"""


def _sections(page: Path) -> dict[str, str]:
    """The tables of a page by their heading; none where there is no page."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    within = text.partition("<!-- scores -->")[2].partition("<!-- end of scores -->")[0]
    parts = (part.partition("\n") for part in ("\n" + within).split("\n## ")[1:])
    return {heading: body.strip() + "\n" for heading, _, body in parts}


def put(page: Path, which: str, tables: str) -> None:
    """Put the tables of a half into a page, which is made where there is none; the others stay."""
    known = _sections(page) | {HEADINGS[which]: tables}
    if not page.exists():
        write_atomic(page, _PAGE.encode())
    found = (f"## {each}\n\n{known[each]}" for each in HEADINGS.values() if each in known)
    update(page, "\n".join(found).strip())


def main(arguments: list[str] | None = None) -> int:
    """Carry out one command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.programs.score")
    parser.add_argument("--recordings", type=Path, default=FOLDER / "recordings")
    parser.add_argument("--labels", type=Path, default=FOLDER, help="folder of labels*.toml")
    parser.add_argument(
        "--sealed", action="store_true", help="score what is sealed and not scored yet, once"
    )
    parser.add_argument("--cases", action="store_true", help="each program as well")
    parser.add_argument("--out", type=Path, help="page to put the scores into")
    given = parser.parse_args(arguments)
    from benchmarks.programs import cases as achieved  # which needs this module

    known = _sections(given.out) if given.out is not None else {}
    labels = read_labels(given.labels)
    sets = {label.get("set", half(name)) for name, label in labels.items()}
    left = [each for each in SEALED if each in sets and HEADINGS[each] not in known]
    if given.sealed and not left:
        print(f"error: what is sealed is scored once, and {given.out} has it", file=sys.stderr)
        return EXIT_USAGE
    now = [each for each, once in NOW.items() if HEADINGS[once] in known]
    chosen = left[:1] if given.sealed else ["development", *now]
    try:
        found = {each: read(given.recordings, labels, NOW.get(each, each)) for each in chosen}
        for which, (programs, left_out) in found.items():
            tables = f"{document(programs, left_out, every=given.cases)}"
            if which == "development":
                known_now = [each for programs, _ in found.values() for each in programs]
                shares = achieved.table(achieved.cases(known_now))
                tables += "\n".join(("", "### What fixes achieved", "", *shares, ""))
            if given.out is None:
                print(f"## {HEADINGS[which]}\n\n{tables}")
            else:
                put(given.out, which, tables)
    except (OSError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_INPUT
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
