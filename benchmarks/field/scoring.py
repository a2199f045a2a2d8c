"""Score what is recorded: how often the slow side's verdict is the label, and how far its gain is
off, by language and beside rivals. Needs no GPU.

A pair counts where its fix gains at least 5 %. The verdict has to be the label's cause or one of its
alternates. The gain predicted is the first finding's where it names the cause, else none; achieved
is the part of the time that the fix saves, on the profiler's clock where the profiled launches make
up most of the call, else on the call's.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import calibrate, field
from ncu_toolkit.base.core.files import write_atomic
from ncu_toolkit.kernel.analysis.analyze import FileResult, LaunchResult, Options, analyze
from ncu_toolkit.kernel.diagnosis.rules import load_rules

#: A fix that saves less of the time proves nothing about its cause.
VOID: Final = 0.05
#: The profiled launches stand for the calls where both take at least this part of them.
WHOLE: Final = 0.7
#: A verdict on a fast side at a roof is a false alarm where it promises to save this much.
ALARM: Final = 0.2
#: Part of the peak of the label's roof from which a fast side is there by the counters.
AT_ROOF: Final = 0.75
#: What counts by roof: L1, L2 and device memory, or the busiest unit of an SM.
ROLL_UPS: Final = {"memory": "memory_throughput", "arithmetic": "sm_throughput"}


@dataclass(frozen=True)
class Case:
    """What one diagnostician says of the slow side of a pair. `named` are causes by rank, each as
    the set of ids that it can stand for; `predicted` and `achieved` are parts of the time saved."""

    name: str
    language: str
    wanted: frozenset[str]
    named: tuple[frozenset[str], ...]
    predicted: float
    achieved: float
    interval: tuple[float, float] | None = None
    """Between which parts of the time it expects the gain."""

    @property
    def rank(self) -> int | None:
        return next((n for n, ids in enumerate(self.named, 1) if ids & self.wanted), None)

    @property
    def error(self) -> float:
        """Points between the gain predicted and achieved."""
        return abs((self.predicted if self.rank == 1 else 0.0) - self.achieved) * 100


@dataclass(frozen=True)
class Recorded:
    """One pair's recording: its JSON document, label, and both sides as analysed."""

    name: str
    about: dict[str, Any]
    label: dict[str, Any]
    sides: dict[str, LaunchResult]
    chains: dict[str, float] = dataclasses.field(default_factory=dict)
    """The part (0-1) of a side's call that one launch instead of the chain would save, by side;
    none where the launch meant is in no chain."""

    @property
    def achieved(self) -> float:
        launches = [self.about["launches"][v]["duration_us"] for v in field.VARIANTS]
        calls = [self.about["before_us"], self.about["after_us"]]
        whole = all(a >= WHOLE * b for a, b in zip(launches, calls, strict=True))
        before, after = launches if whole else calls
        return float(1 - after / before)

    @property
    def share(self) -> float:
        """The part of the slow call that the profiled launch takes, 1 where it is most of it."""
        part = self.about["launches"]["before"]["duration_us"] / self.about["before_us"]
        return 1.0 if part >= WHOLE else float(part)


def read(folder: Path, group: str) -> list[Recorded]:
    """The recorded pairs of one of field.GROUPS, by name."""
    labels, found = field.labels(), []
    for path in sorted(folder.glob("*.json")):
        name = path.stem
        if name not in field.names() or field.group(name) != group:
            continue
        sides, chains = {}, {}
        about = json.loads(path.read_text(encoding="utf-8"))
        for variant in field.VARIANTS:
            reports = sorted(folder.glob(f"{name}-{variant}.ncu-rep*"))[:1]
            for file in analyze(reports, Options(profiles=True), jobs=1).files:
                if file.error is not None:
                    raise file.error
                sides[variant] = file.launches[about["launches"][variant].get("place", 0)]
                chains |= _chained(variant, sides[variant], file, about[f"{variant}_us"])
        found.append(Recorded(name, about, labels[name], sides, chains))
    return found


def _chained(
    variant: str, meant: LaunchResult, file: FileResult, call_us: float
) -> dict[str, float]:
    """What the chain with the launch meant would save of its call. A chain of all launches that were
    profiled stands for the call: more of them are like these, and what else takes time is between
    them."""
    for chain, launches in file.chains:
        if meant in launches:
            whole = len(file.launches) == chain.launches
            return {variant: chain.saved * (1.0 if whole else min(1.0, chain.now_us / call_us))}
    return {}


#: What a diagnostician says: causes by rank, the part of the time saved, and its interval.
Said = tuple[list[frozenset[str]], float, tuple[float, float] | None]


def ours(pair: Recorded) -> Said:
    diagnosis = pair.sides["before"].diagnosis
    first = diagnosis.primary
    interval, chained = None, pair.chains.get("before")
    if first.interval is not None and chained is None:
        low, high = ((1 - 1 / end) * pair.share for end in first.interval)
        interval = low, high
    named = [frozenset((each.bottleneck,)) for each in diagnosis.findings]
    return named, first.saved * pair.share if chained is None else chained, interval


def _ncu(pair: Recorded) -> Said:
    profile = pair.sides["before"].profile
    messages = calibrate.ncu_estimates(profile) if profile is not None else []
    saved = (messages[0].speedup or 0.0) / 100 if messages else 0.0
    return [frozenset(calibrate.ncu_means(message)) for message in messages], saved, None


def _thresholds(pair: Recorded) -> Said:
    """The rule of two thresholds names a class and no gain; any cause of the class counts as
    named."""
    profile = pair.sides["before"].profile
    found = calibrate.two_thresholds(profile) if profile is not None else None
    if found is None:
        return [], 0.0, None
    return (
        [frozenset(name for name, rule in load_rules().items() if found == rule.LIMIT)],
        0.0,
        None,
    )


RIVALS: Final[dict[str, Callable[[Recorded], Said]]] = {
    "ncu-toolkit": ours,
    "Nsight Compute's rules": _ncu,
    "two thresholds": _thresholds,
}


def cases(pairs: Iterable[Recorded], says: Callable[[Recorded], Said]) -> list[Case]:
    """What one diagnostician says of every pair that is not void."""
    found = []
    for pair in pairs:
        if pair.achieved < VOID:
            continue
        named, saved, interval = says(pair)
        wanted = frozenset((pair.label["cause"], *pair.label["also"]))
        language = pair.about["language"]
        found.append(
            Case(pair.name, language, wanted, tuple(named), saved, pair.achieved, interval)
        )
    return found


def constant(given: Sequence[Case]) -> list[Case]:
    """The best constant: the cause that is right most often, and the median gain."""
    ids = sorted(field.causes())
    best = max(ids, key=lambda each: sum(each in case.wanted for case in given))
    middle = statistics.median(case.achieved for case in given)
    return [
        Case(c.name, c.language, c.wanted, (frozenset((best,)),), middle, c.achieved) for c in given
    ]


def gains(given: Sequence[Case]) -> list[tuple[float, float]]:
    """Predicted and achieved parts of the time saved; a cause that is not first predicts none."""
    return [(case.predicted if case.rank == 1 else 0.0, case.achieved) for case in given]


def _strict(pairs: Iterable[Recorded], case: Case) -> Case:
    """The case with the label's first cause alone."""
    (label,) = (pair.label for pair in pairs if pair.name == case.name)
    return replace(case, wanted=frozenset((label["cause"],)))


def row(who: str, given: Sequence[Case]) -> str:
    """A line of the table."""
    n = len(given)
    first = sum(case.rank == 1 for case in given)
    two = sum(case.rank in (1, 2) for case in given)
    errors = [case.error for case in given]
    held = calibrate.covered(
        [(case.interval, case.achieved) for case in given if case.interval and case.rank == 1]
    )
    skill, spearman = calibrate.skill(gains(given)), calibrate.spearman(gains(given))

    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}"

    return (
        f"| {who} | {n} | {first} ({first / n:.0%}) | {two} ({two / n:.0%}) | {number(skill)} | "
        f"{number(spearman)} | {'–' if held is None else f'{held:.0%}'} | "
        f"{statistics.median(errors):.1f} | {max(errors):.1f} |"
    )


def alarms(pairs: Iterable[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    """Fast sides at a roof, by their label and by the counters, and those of them whose verdict
    promises to save ALARM or more."""
    there = [p for p in pairs if p.label["roof"] in ROLL_UPS and _at_roof(p)]
    return there, [pair for pair in there if _promises(pair) >= ALARM]


def _at_roof(pair: Recorded) -> bool:
    """Whether the counter of the label's roof is near its peak on the fast side."""
    profile = pair.sides["after"].profile
    used = profile.value(ROLL_UPS[pair.label["roof"]]) if profile is not None else None
    return used is not None and used >= AT_ROOF


def _promises(pair: Recorded) -> float:
    """The part of the fast side's time that its verdict or its chain promises to save, on a
    condition too."""
    saved = pair.sides["after"].diagnosis.primary.saved
    return max(saved, pair.chains.get("after", 0.0))


def update(page: Path, tables: str) -> None:
    """Put the tables between the marks of a Markdown page."""
    before, mark, rest = page.read_text(encoding="utf-8").partition("<!-- scores -->\n")
    _, end, after = rest.partition("<!-- end of scores -->")
    write_atomic(page, f"{before}{mark}\n{tables}\n{end}{after}".encode())


def document(pairs: Sequence[Recorded], *, every: bool) -> str:
    """The table in Markdown; with `every`, each case as well."""
    mine = cases(pairs, ours)
    lines = [
        "| who | pairs | first | first two | skill | Spearman | in the 80% interval | median error (points) | worst |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(row(who, cases(pairs, says)) for who, says in RIVALS.items()),
        row("best constant", constant(mine)),
        row("ncu-toolkit, without alternates", [_strict(pairs, case) for case in mine]),
    ]
    languages = sorted({case.language for case in mine})
    lines += [row(f"ncu-toolkit, {language}", [c for c in mine if c.language == language]) for language in languages]  # fmt: skip
    there, alarmed = alarms(pairs)
    void = [pair.name for pair in pairs if pair.achieved < VOID]
    lines += [
        "",
        f"False alarms on the fast side: {len(alarmed)} of {len(there)} that are at a roof by their label and by the counters.",
        f"Void, since the fix saves less than {VOID:.0%}: {', '.join(void) or 'none'}.",
    ]
    if every:
        lines += [
            "",
            "| pair | label | verdict | predicted | achieved |",
            "|---|---|---|---:|---:|",
        ]
        for case in mine:
            shown = ", ".join(next(iter(ids)) for ids in case.named[:2])
            lines.append(
                f"| {case.name} | {', '.join(sorted(case.wanted))} | {shown} (rank {case.rank or '–'}) | "
                f"{case.predicted:.0%} | {case.achieved:.0%} |"
            )
        lines += [f"- false alarm: {pair.name}" for pair in alarmed]
    return "\n".join(lines) + "\n"
