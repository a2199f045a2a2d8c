"""Runs of a program with and without a switch: is its step faster, and does it print the same?

Times are compared as `compare` does it (gate.py): medians, the noise that repeats show, and an exact
permutation test. What is printed is compared number by number; timings in it, and numbers that vary
between runs without the switch, are left out."""

import json
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from ncu_toolkit.base.core import files, units
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.kernel.analysis import gate
from ncu_toolkit.kernel.analysis.gate import SIGNIFICANT, difference
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import ProgramTrial, Results, Tried, TryOutcome
from ncu_toolkit.program.traces.files import is_trace

#: Beside a trace, what was tried of its program.
SUFFIX: Final = ".tried.json"
_VERSION: Final = 1
LEAST: Final = Threshold(gate.RUNS_DIFFER, "clocks and allocations differ from start to start by 1 to 2% of a step")  # fmt: skip
FEW: Final = Threshold(gate.FEW_DIFFER, "so few runs that no test can tell chance differ by 2 to 4% by themselves now and then")  # fmt: skip
#: Numbers of steps in two runs that differ by more than this factor are of two kinds of step.
_STEPS: Final = 1.5
#: Relative spread between runs alike from which a number that is printed is no result.
_VARIES: Final = 5e-3
_NUMBER: Final = re.compile(
    r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?<!\w)[-+]?(?:nan|inf)(?!\w)"
)
_TIMING_AFTER: Final = re.compile(
    r"\s*(?:[nuµm]?s|sec\w*|min\w*|hours?|h|\w+/(?:[nuµm]?s|sec\w*|min\w*|h)|[KMGT]i?B|[MGTP]FLOPS?\w*|fps|%|x)\b", re.IGNORECASE
)  # fmt: skip
_TIMING_BEFORE: Final = re.compile(
    r"time|elapsed|took|duration|latency|speed|throughput|per.?s|/(?:[nuµm]?s|sec|min|h)\b|\b[nuµm]s\b|sec|fps|\beta\b|mem|bandwidth|flops",
    re.IGNORECASE,
)
#: Characters before a number that may hold its name.
_NAME: Final = 32


@dataclass(frozen=True)
class TryRun:
    """One run of a program."""

    us: float | None
    """A step's mean wall time; None where nothing was timed."""
    steps: int = 0
    word: str = "step"
    printed: str = ""
    code: int = 0
    problem: str = ""
    """Why it counts for nothing, a clause; empty where it is fine."""
    applied: frozenset[str] = frozenset()
    """Ids of switches that changed something."""
    unable: tuple[tuple[str, str], ...] = ()
    """Switches that reported why they changed nothing."""
    modules: frozenset[str] = frozenset()
    """Frameworks that it imported."""
    sm_mhz: float | None = None
    throttle: str = ""


def judged(
    names: tuple[str, ...],
    title: str,
    before: Sequence[TryRun],
    after: Sequence[TryRun],
    tolerance: float = 0.0,
    work: float = 1.0,
) -> Tried:
    """What runs say of a switch, without it and with it.

    Args:
        tolerance: by how much it may change results, relative.
        work: how much more a step does with it, by which its time is divided.
    """

    def outcome_of(outcome: TryOutcome, text: str, **more: Any) -> Tried:
        return Tried(switches=names, title=title, outcome=outcome, description=text, **more)

    broken = next((each.problem for each in after if each.problem), "")
    if broken:
        return outcome_of("broke", f"The program fails with it: {broken}.")
    old = tuple(each.us for each in before if each.us is not None)
    new = tuple(each.us / work for each in after if each.us is not None)
    if not old or not new:
        return outcome_of("broke", "No step was timed.")
    results, compared = compare_printed(
        [each.printed for each in before], [each.printed for each in after], tolerance
    )
    facts = {"before_us": old, "after_us": new, "results": results, "compared": compared}
    counts = [statistics.median(each.steps for each in side) for side in (before, after)]
    kinds = {each.word for each in (*before, *after)}
    low, high = sorted(counts)
    if len(kinds) > 1 or (kinds == {"step"} and high > _STEPS * max(low, 1) and work == 1.0):
        seen = " and ".join(f"{count:.0f}" for count in counts)
        text = f"It changes the step: {seen} steps were found without and with it. Mark the steps with NVTX."
        return outcome_of("other step", text, **facts)
    found = difference("time", old, new)
    change = found.certain_change
    sure = found.p is not None and found.p < SIGNIFICANT
    apart = max(new) < min(old) or max(old) < min(new)
    least = LEAST if sure else FEW
    moved = abs(found.change or 0.0) >= least.value and change != 0.0 and (sure or apart)
    outcome: TryOutcome = "same" if not moved else "faster" if change < 0 else "slower"
    text = _sentence(outcome, found.old, found.new, sure, min(len(old), len(new)))
    return outcome_of(outcome, text, noise_us=found.noise, p=found.p, **facts)


def _sentence(outcome: TryOutcome, old: float, new: float, sure: bool, runs: int) -> str:
    times = f"{units.duration(old)} → {units.duration(new)}"
    if outcome == "same":
        return f"No difference that exceeds the noise: {times}."
    by = f"{units.percent(new / old - 1, 2)} slower"
    if outcome == "faster":
        by = f"{units.ratio(old / new)} as fast"
    few = "" if sure else f" {units.counted(runs, 'run')} per side cannot rule out chance; 5 can."
    return f"{times}, {by}.{few}"


def compare_printed(
    before: Sequence[str], after: Sequence[str], tolerance: float
) -> tuple[Results, str]:
    """Whether runs print the same as those without a switch, and how it differs, a sentence.

    Numbers may differ by `tolerance`, relative; text may not."""
    if math.isinf(tolerance):
        return "not compared", "The program does different work, so its results are not compared."
    old, new = [_lines(text) for text in before], [_lines(text) for text in after]
    count = min((len(each) for each in (*old, *new)), default=0)
    if not count:
        return "not compared", "The program prints nothing."
    lengths = {len(each) for each in old}
    differing = [len(each) for each in new if len(each) not in lengths]
    if len(lengths) == 1 and differing:
        lines = units.counted(differing[0], "line")
        return "differ", f"It prints {lines} instead of {len(old[0])}."
    compared = worst = 0.0
    example = ""
    for at in range(count):
        texts = {each[at][0] for each in old}
        if len(texts) > 1:
            continue  # it varies by itself
        if any(each[at][0] not in texts for each in new):
            instead = f"{_quoted(after, at)} instead of {_quoted(before, at)}"
            return "differ", f"It prints different text: {instead}."
        for place, timing in enumerate(old[0][at][2]):
            values = [each[at][1][place] for each in old]
            others = [each[at][1][place] for each in new]
            spread = _apart(min(values), max(values))
            if timing or (spread > _VARIES and not any(map(math.isnan, values))):
                continue
            compared += 1
            for value in others:
                apart = min(_apart(value, each) for each in values)
                if apart > max(spread, worst):
                    worst, example = apart, _both(values[0], value)
    if worst > max(tolerance, 0.0):
        far = "no number" if math.isinf(worst) else f"{units.percent(worst, 2)} apart"
        return "differ", f"Results differ: {example} ({far})."
    if worst:
        return "within", f"Results differ by at most {units.percent(worst, 2)}: {example}."
    if compared:
        numbers = units.counted(int(compared), "number")
        return "equal", f"{numbers} that it prints {'is' if compared == 1 else 'are'} the same."
    return "not compared", "It prints no number that could be compared."


def _lines(text: str) -> list[tuple[str, list[float], list[bool]]]:
    """Of each line that is not empty its text without numbers, the numbers, and which are timings."""
    found = []
    lines = (line.rstrip("\r").rpartition("\r")[2].strip() for line in text.split("\n"))
    for line in filter(None, lines):
        numbers, timings = [], []
        last = 0
        for match in _NUMBER.finditer(line):
            name = line[max(last, match.start() - _NAME) : match.start()]
            numbers.append(float(match[0]))
            after = _TIMING_AFTER.match(line, match.end())
            timings.append(bool(after) or _TIMING_BEFORE.search(name) is not None)
            last = match.end()
        found.append((_NUMBER.sub("#", line), numbers, timings))
    return found


def _apart(one: float, other: float) -> float:
    """The relative difference of two numbers; infinite where only one is finite."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other))


def _both(one: float, other: float) -> str:
    """Two numbers, with as many digits as tell them apart."""
    forms = ("{:.6g}", "{:.9g}")
    shown = next((each for each in forms if each.format(one) != each.format(other)), "{!r}")
    return f"{shown.format(one)} → {shown.format(other)}"


def _quoted(texts: Sequence[str], at: int) -> str:
    lines = [line.strip() for line in texts[-1].split("\n") if line.strip()]
    return f"'{visible(lines[at], 60)}'" if at < len(lines) else "nothing"


def trial_path(trace: Path) -> Path:
    """Where what was tried of a trace's program lies."""
    return trace.with_name(trace.name + SUFFIX)


def find_trials(path: Path) -> list[Path]:
    """The files of trials that a path means: itself, what is next to a trace, or in a folder."""
    if path.is_dir():
        return sorted(path.rglob(f"*{SUFFIX}"))
    each = path if path.suffix == ".json" and not is_trace(path) else trial_path(path)
    return [each] if each.is_file() else []


def save_trial(trial: ProgramTrial, path: Path) -> None:
    """Write a trial. Raises as `write_atomic`."""
    plain = {"version": _VERSION, **msgspec.to_builtins(trial)}
    text = json.dumps(plain, indent=1, ensure_ascii=False)
    files.write_atomic(path, f"{text}\n".encode("utf-8", "backslashreplace"))


def load_trial(trace: Path) -> ProgramTrial | None:
    """What was tried of a trace's program; None where nothing was.

    Raises:
        InputProblem: the file is damaged, or of a later release.
    """
    path = trial_path(trace)
    return read_trial(path) if path.is_file() else None


def read_trial(path: Path) -> ProgramTrial:
    """A trial by its file. Raises as `load_trial`."""
    found = files.read_json(path)
    if isinstance(found, dict) and found.get("version", 0) > _VERSION:
        raise InputProblem(f"'{path}' was written by a later release", "Use that release")
    try:
        return msgspec.convert(found, ProgramTrial)
    except msgspec.ValidationError as error:
        raise InputProblem(
            f"'{path}' does not hold the result of a try: {error}",
            "Name a file that `ncu-toolkit try` wrote, or try again",
        ) from None


def steps_of(paths: Sequence[Path]) -> gate.Sides:
    """The step as it is and with each switch that was timed; of several programs with their names.
    Raises InputProblem."""
    found: gate.Sides = {}
    for path in paths:
        tried = read_trial(path)
        which = tried.word if len(paths) == 1 else f"{tried.word} of {tried.program}"
        timed = {" + ".join(each.switches): each.after_us for each in tried.tried if each.after_us}
        for switches, times in {"": tried.before_us, **timed}.items():
            name = f"{which} with {switches}" if switches else which
            if (name, "", "") in found:
                raise InputProblem(
                    f"there are several trials of '{visible(tried.program)}'",
                    f"Name one, as '{path}'",
                )
            if times:
                found[name, "", ""] = gate.Side(name, tried.gpu, times, what=tried.word)
    return found
